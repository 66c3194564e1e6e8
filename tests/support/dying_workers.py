"""Main functions of worker processes that die. This module imports nothing that takes time."""

import os


def work(connection):
    """Die when the first batch arrives."""
    connection.send(None)
    connection.recv_bytes()
    os._exit(3)


def fail(connection):
    """Die before it is ready."""
    os._exit(4)
