"""Crash safety: what a killed sweep leaves on the disk.

Every write to a store is one transaction. A process that is killed leaves every transaction that was committed, and
nothing of the one in which it was killed: SQLite keeps a rollback journal beside the file, and the next process that
opens the store undoes the half. With `synchronous = FULL` a committed transaction also survives a power failure.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def connect_durably(path: Path, mode: str, lock_seconds: float) -> sqlite3.Connection:
    """A connection that waits for the disk at every commit, and begins no transaction by itself.

    Args:
        path: the file
        mode: SQLite's word for how to open it: "ro", "rw", or "rwc" to create it
        lock_seconds: how long to wait for another process that is writing
    """
    uri = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=lock_seconds, isolation_level=None)
    # a flipped bit may leave a text that is not UTF-8: it is read nevertheless, so that its record can be named
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def write_all_or_nothing(connection: sqlite3.Connection) -> Iterator[None]:
    """Makes one transaction of the statements inside: all of them reach the disk, or none.

    >>> connection = sqlite3.connect(":memory:", isolation_level=None)
    >>> with write_all_or_nothing(connection):
    ...     _ = connection.execute("CREATE TABLE runs (key TEXT)")
    >>> try:
    ...     with write_all_or_nothing(connection):
    ...         _ = connection.execute("INSERT INTO runs VALUES ('first')")
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     connection.execute("SELECT count(*) FROM runs").fetchone()
    (0,)
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
