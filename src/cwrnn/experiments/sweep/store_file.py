"""The file of a store: where it lies, how it is opened and made, and which files are refused.

A file that is no store, is broken, or has another version raises a StoreError and is left as it is.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from ...untrusted import escape_controls, shorten
from ..errors import ExperimentError
from . import damage
from .crash_safety import connect_durably

FILE = "runs.sqlite"
MAGIC = b"SQLite format 3\x00"
# "CWRS" in the file's header marks a store, VERSION says which tables it has
APPLICATION = int.from_bytes(b"CWRS", "big")
VERSION = 2
LOCK_SECONDS = 60.0
"""How long to wait for another process that is writing."""

TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE datasets (
    name TEXT PRIMARY KEY, kind TEXT NOT NULL, digest TEXT NOT NULL, source TEXT NOT NULL, about TEXT NOT NULL,
    numbers BLOB NOT NULL
);
CREATE TABLE runs (
    key TEXT PRIMARY KEY, task TEXT NOT NULL, data TEXT NOT NULL, digest TEXT NOT NULL, method TEXT NOT NULL,
    size INTEGER NOT NULL, hidden INTEGER NOT NULL, seed INTEGER NOT NULL, settings TEXT NOT NULL,
    parameters INTEGER NOT NULL, schedule TEXT, status TEXT NOT NULL, error REAL, best_error REAL,
    best_epoch INTEGER NOT NULL, epochs INTEGER NOT NULL, seconds REAL NOT NULL, traceback TEXT,
    environment TEXT NOT NULL, finished_at TEXT NOT NULL
);
CREATE TABLE arrays (
    key TEXT NOT NULL REFERENCES runs (key) ON DELETE CASCADE, name TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (key, name)
);
"""


class StoreError(ExperimentError):
    """The store cannot be used. The message says why, and what to do about it."""


def locate_file(path: str | os.PathLike[str]) -> Path:
    """The file of the store at `path`, which is the file itself or the folder that holds it."""
    path = Path(path)
    status = _read_status(path)
    return path / FILE if status is not None and stat.S_ISDIR(status.st_mode) else path


def open_file(path: Path, *, create: bool, command: str) -> sqlite3.Connection:
    """A connection for reading and writing. With `create`, a store is made where there is none."""
    if _measure_size(path) > 0:
        _check_header(path)
    elif not create:
        raise StoreError(f"{path}: there is no store")
    with explain_errors(path):
        connection = connect_durably(path, "rwc" if create else "rw", LOCK_SECONDS)
        try:
            if create and _is_empty(connection):
                # only one process finds it empty twice: the others wait here, and then find it made
                connection.execute("BEGIN EXCLUSIVE")
                if _is_empty(connection):
                    _create_tables(connection, command)
                connection.execute("COMMIT")
            _check_contents(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def open_file_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that cannot write."""
    if _measure_size(path) == 0:
        raise StoreError(f"{path}: there is no store")
    _check_header(path)
    # a process that was killed may have left half a transaction: SQLite rolls it back now, if the file is writable
    is_writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    with explain_errors(path):
        connection = connect_durably(path, "rw" if is_writable else "ro", LOCK_SECONDS)
        try:
            connection.execute("PRAGMA query_only = ON")
            _check_contents(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turns errors of SQLite, and of rows that are no records, into a StoreError that names the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        hint = ": make space, then go on with --resume (resume=True); finished runs are kept"
        raise StoreError(f"{path}: the store cannot be used: {error}{hint * ('full' in str(error))}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: the store is broken: {error}") from error
    except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(f"{path}: the store is broken: {type(error).__name__}: {error}") from error


def _measure_size(path: Path) -> int:
    """The size in bytes; 0 where there is no file."""
    status = _read_status(path)
    return 0 if status is None else status.st_size


def _read_status(path: Path) -> os.stat_result | None:
    """The status of a file; None where there is none."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def _create_tables(connection: sqlite3.Connection, command: str) -> None:
    """Makes the tables of a new store, inside a transaction: a store has all of them or none."""
    for statement in _split_statements(TABLES):
        connection.execute(statement)
    about = {"command": command, "created": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _check_header(path: Path) -> None:
    """Refuses a file by its first bytes if it is not of this version, before SQLite can change it."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    if len(header) < 100 or not header.startswith(MAGIC) or _read_number(header, 68) != APPLICATION:
        raise StoreError(f"{path}: this is not a store of cwrnn: choose another folder")
    if _read_number(header, 60) != VERSION:
        raise StoreError(
            f"{path}: a store of another version of cwrnn (format {_read_number(header, 60)}, this one has {VERSION}): "
            "choose another folder"
        )


def _read_number(header: bytes, place: int) -> int:
    return int.from_bytes(header[place : place + 4], "big")


def _is_empty(connection: sqlite3.Connection) -> bool:
    """True if the file has no tables: it is new, or its process was killed while it made them."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def _split_statements(text: str) -> list[str]:
    """The statements of an SQL text, each with single spaces."""
    return [" ".join(statement.split()) for statement in text.split(";") if statement.strip()]


def _check_contents(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses an empty or broken file, and one with definitions that no store has."""
    if _is_empty(connection):
        raise StoreError(f"{path}: there is no store")
    # before anything is read: a view, a trigger or a check of somebody else may compute for ever
    known = {*_split_statements(TABLES), f"CREATE TABLE {damage.TABLE_DEFINITION}"}
    for kind, name, statement in connection.execute("SELECT type, name, sql FROM sqlite_master"):
        # the index of a primary key has no statement
        if statement is not None and " ".join(statement.split()) not in known:
            described = f"the {escape_controls(shorten(f'{kind} {name}'))}"
            raise StoreError(f"{path}: the store is broken: {described} is not one that a store has")
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise StoreError(f"{path}: the store is broken: {answer}")
