"""The store: one SQLite file that holds the record of every run, also of those that diverged or failed.

    runs.sqlite     about      how and when the store was made, the commands that added to it, and notes
                    datasets   what was learned: target sequences, and words
                    runs       one row per run, by its key
                    arrays     curve, output and weights of a run: raw numbers with dtype and shape
                    digests    the hash of each record: `damage.py` leaves out a record that does not have it any more

A store holds whole records only: `crash_safety.py` decides what a killed process leaves on the disk. SQLite's locks let
several processes share one store. Nothing that is read is executed: text, numbers, JSON and the bytes of arrays.
"""

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..task import Data, all_tasks, find_task_of_data
from . import damage
from .crash_safety import write_all_or_nothing
from .run import FAILED, SEQUENCE, Dataset, Record
from .store_file import StoreError, explain_errors, locate_file, open_file, open_file_for_reading
from .store_rows import COLUMNS, order_row, pack_arrays, pack_record, unpack_array, unpack_record

if TYPE_CHECKING:
    from ..words.corpus import Corpus

KEYS_AT_ONCE = 500
"""Keys in one statement. SQLite's own limit is 999 in old versions."""
LATER_COMMAND = "command "
"""The prefix of the number of a command that added runs, from 2 on."""
NOTE = "note "
"""The prefix of the name of a note."""
WORDS = "words"
"""The kind of data set that a corpus is."""


class Store:
    """An open store. Use `Store.open` or `Store.read` in a with statement, or call `close`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, command: str = "") -> None:
        self.path = path
        self._connection = connection
        self._command = command
        self._damaged: dict[str, str] = {}
        self._has_looked_for_damage = False

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = False, command: str = "") -> "Store":
        """The store at `path` (the file, or the folder that holds it), for reading and writing.

        Args:
            path: a file, or the folder that holds runs.sqlite
            create: whether to make a store where there is none
            command: how to repeat what is done with the store; kept in a new store, and in another one if runs are
                added
        """
        path = locate_file(path)
        return cls(path, open_file(path, create=create, command=command), command)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Store":
        """The store at `path` for reading only."""
        path = locate_file(path)
        return cls(path, open_file_for_reading(path))

    def close(self) -> None:
        """Closes the file. Everything that was added is on the disk already."""
        self._connection.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def command(self) -> str:
        """The command that made the store."""
        return self._read_about("command")

    @property
    def commands(self) -> list[str]:
        """Every command that added runs, in order. The first one made the store."""
        with explain_errors(self.path):
            return [self.command, *_later_commands(self._connection)]

    @property
    def created(self) -> str:
        """When the store was made: UTC, ISO 8601."""
        return self._read_about("created")

    def add(self, *records: Record) -> None:
        """Adds the records in one transaction. They are on the disk when this returns.

        A run that has a record keeps it, unless that record failed or is damaged: then the new record replaces it.
        """
        with self._write() as connection:
            before = connection.total_changes
            for record in records:
                connection.execute("DELETE FROM runs WHERE key = ? AND status = ?", (record.key, FAILED))
                if record.key in self._damaged and damage.is_damaged(connection, record.key):
                    connection.execute("DELETE FROM runs WHERE key = ?", (record.key,))
                values = pack_record(record)
                places = ", ".join("?" * len(values))
                # INSERT OR IGNORE would also ignore a missing value
                statement = f"INSERT INTO runs ({', '.join(COLUMNS)}) VALUES ({places}) ON CONFLICT (key) DO NOTHING"
                added = connection.execute(statement, values)
                if added.rowcount == 1:
                    connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", list(pack_arrays(record)))
                    damage.add_digest(connection, record.key)
            if connection.total_changes > before:
                self._add_command(connection)
        for record in records:
            self._damaged.pop(record.key, None)

    def add_dataset(self, dataset: Data) -> None:
        """Adds a data set. A StoreError if other numbers are stored under its name.

        If the same numbers are there, what the digest leaves out is updated: the source, and the clusters of words.
        """
        with self._write() as connection:
            about, numbers = find_task_of_data(dataset).pack(dataset)
            row = (dataset.name, dataset.kind, dataset.digest, dataset.source, json.dumps(about), numbers)
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET source = excluded.source, about = excluded.about "
                "WHERE digest = excluded.digest AND (source, about) != (excluded.source, excluded.about)",
                row,
            )
            (digest,) = connection.execute("SELECT digest FROM datasets WHERE name = ?", row[:1]).fetchone()
        if digest != dataset.digest:
            raise StoreError(
                f"{self.path}: the data set {dataset.name!r} in the store has other numbers than {dataset.source} "
                "now: choose another folder, or the same data and options as before"
            )

    def keys(self, *, failed: bool = True) -> set[str]:
        """The keys of all runs that have a record; without `failed`, of those that are neither failed nor damaged."""
        with explain_errors(self.path):
            if failed:
                return {key for (key,) in self._connection.execute("SELECT key FROM runs")}
            self._look_for_damage()
            keys = {key for (key,) in self._connection.execute("SELECT key FROM runs WHERE status != ?", (FAILED,))}
            return keys - self._damaged.keys()

    @property
    def damaged(self) -> dict[str, str]:
        """The names of the damaged records for people to read, by key. `records` leaves these out."""
        with explain_errors(self.path):
            self._look_for_damage()
        return dict(self._damaged)

    def records(self, task: str = "generation", keys: Iterable[str] | None = None) -> list[Record]:
        """The records of a task, all or those with these keys, without those that are damaged.

        Their order does not depend on when they were added.
        """
        with explain_errors(self.path):
            self._look_for_damage()
            # one transaction: a batch that another process adds meanwhile is seen as a whole or not at all
            self._connection.execute("BEGIN")
            try:
                rows = []
                arrays: dict[str, dict[str, NDArray[Any]]] = {}
                for condition, values in _conditions(task, keys):
                    matching = self._connection.execute(
                        f"SELECT {', '.join(COLUMNS)} FROM runs WHERE {condition}", values
                    ).fetchall()
                    matching = [row for row in matching if row[0] not in self._damaged]
                    rows += matching
                    for row in matching:
                        stored = damage.read_arrays(self._connection, row[0])
                        arrays[row[0]] = {name: unpack_array(data, dtype, shape) for name, dtype, shape, data in stored}
                datasets = set(self._connection.execute("SELECT name, digest FROM datasets"))
            finally:
                self._connection.execute("COMMIT")
            records = [unpack_record(row, arrays[row[0]]) for row in sorted(rows, key=order_row)]
            for record in records:
                if (record.run.data, record.run.digest) not in datasets:
                    raise ValueError(f"the data set {record.run.data!r} of the run {record.key} is not there")
            return records

    def datasets(self) -> dict[str, Dataset]:
        """The target sequences by name, in the order in which they were added."""
        return self._load_data(SEQUENCE)

    def corpora(self) -> "dict[str, Corpus]":
        """The corpora of words by name, in the order in which they were added."""
        return self._load_data(WORDS)

    def load_all_data(self) -> dict[str, Data]:
        """The data sets of all kinds that this version knows, by name."""
        return {name: data for task in all_tasks() for name, data in self._load_data(task.data_kind).items()}

    def names(self) -> set[str]:
        """The names of all data sets."""
        with explain_errors(self.path):
            return {name for (name,) in self._connection.execute("SELECT name FROM datasets")}

    def note(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps JSON values under a name, in place of those that were kept under it."""
        with self._write() as connection:
            connection.execute(
                "INSERT INTO about VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (NOTE + name, json.dumps(value)),
            )

    def read_note(self, name: str) -> dict[str, Any]:
        """The JSON values that are kept under a name; empty if there are none."""
        with explain_errors(self.path):
            row = self._connection.execute("SELECT value FROM about WHERE name = ?", (NOTE + name,)).fetchone()
            return {} if row is None else dict(json.loads(row[0]))

    def _look_for_damage(self) -> None:
        """Compares all records with their digests, once, and warns about those that are damaged."""
        if self._has_looked_for_damage:
            return
        self._has_looked_for_damage = True
        for key in damage.find_damaged(self._connection):
            row = self._connection.execute(f"SELECT {', '.join(COLUMNS)} FROM runs WHERE key = ?", (key,)).fetchone()
            if row is not None:
                self._damaged[key] = damage.describe_damaged(dict(zip(COLUMNS, row, strict=True)))
        if self._damaged:
            damage.warn_about_damage(self.path, list(self._damaged.values()))

    def _load_data(self, kind: str) -> dict[str, Any]:
        """The data sets of a kind by name, in the order in which they were added."""
        task = next(task for task in all_tasks() if task.data_kind == kind)
        loaded: dict[str, Any] = {}
        with explain_errors(self.path):
            rows = self._connection.execute(
                "SELECT name, source, about, numbers, digest FROM datasets WHERE kind = ? ORDER BY rowid", (kind,)
            ).fetchall()
            for name, source, about, numbers, digest in rows:
                loaded[name] = task.unpack(name, source, json.loads(about), numbers)
                if loaded[name].digest != digest:
                    raise StoreError(f"{self.path}: broken: the numbers of {name!r} are not those that were stored")
        return loaded

    def _read_about(self, name: str) -> str:
        with explain_errors(self.path):
            row = self._connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise StoreError(f"{self.path}: the store is broken: it has no {name!r}")
            return str(row[0])

    def _add_command(self, connection: sqlite3.Connection) -> None:
        """Keeps the command that adds runs, if it is not known yet."""
        known = [self.command, *_later_commands(connection)]
        if self._command and self._command not in known:
            connection.execute("INSERT INTO about VALUES (?, ?)", (f"{LATER_COMMAND}{len(known) + 1}", self._command))

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        with explain_errors(self.path):
            try:
                with write_all_or_nothing(self._connection):
                    yield self._connection
            except (OverflowError, TypeError, ValueError, sqlite3.IntegrityError) as error:
                # the values are at fault: nothing is wrong with the store
                raise StoreError(f"{self.path}: cannot be stored: {type(error).__name__}: {error}") from error


def _later_commands(connection: sqlite3.Connection) -> list[str]:
    # by rowid: in the order in which they were added
    rows = connection.execute("SELECT value FROM about WHERE name LIKE ? ORDER BY rowid", (f"{LATER_COMMAND}%",))
    return [command for (command,) in rows]


def _conditions(task: str, keys: Iterable[str] | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The conditions of the statements that together select the records: SQLite takes a limited number of values."""
    if keys is None:
        yield "task = ?", (task,)
        return
    wanted = sorted(set(keys))
    for start in range(0, len(wanted), KEYS_AT_ONCE):
        part = wanted[start : start + KEYS_AT_ONCE]
        yield f"task = ? AND key IN ({', '.join('?' * len(part))})", (task, *part)
