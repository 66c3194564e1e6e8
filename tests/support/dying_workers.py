"""Workers that do not live long; imports nothing that takes time."""

import os


def work(connection):
    """Dies of the first batch."""
    connection.send(None)
    connection.recv_bytes()
    os._exit(3)


def fail(connection):
    """Does not even begin."""
    os._exit(4)
