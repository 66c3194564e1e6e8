"""The store: one SQLite file that holds every run's record, whatever became of the run.

    runs.sqlite     about      how and when the store was begun, what added to it later, and notes
                    datasets   what was learnt: target sequences, and words
                    runs       one row per run, by its key
                    arrays     curve, output and weights of a run: raw numbers with dtype and shape

What `add` was given is on the disk when it returns; a process that is killed at any moment leaves whole records only.
SQLite's rollback journal does that, and its locks let several processes share one store. Nothing that is read is
executed: text, numbers, JSON and the bytes of arrays.

A file that is no store, is broken, or is another version's raises a StoreError, and is left as it is.
"""

import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ExperimentError
from ..task import GENERATION, TASKS
from ..words import bundle
from ..words.corpus import Corpus
from ..words.features import FeatureSettings
from .run import FAILED, STATUSES, Data, Dataset, Record, Run

FILE = "runs.sqlite"
MAGIC = b"SQLite format 3\x00"
# "CWRS" in the file's header says whose it is, VERSION which tables to expect
APPLICATION = int.from_bytes(b"CWRS", "big")
VERSION = 2
PATIENCE = 60.0
"""Seconds to wait for another process that is writing."""

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
COLUMNS = (
    "key, task, data, digest, method, size, hidden, seed, settings, parameters, schedule, status, error, best_error, "
    "best_epoch, epochs, seconds, traceback, environment, finished_at"
)
AT_ONCE = 500
"""Keys that are asked for in one statement; SQLite's own limit was 999 once."""
LATER = "command "
"""Stands before the number of a command that added runs to a store, from 2 on."""
NOTE = "note "
"""Stands before the name of what is kept by name."""
SEQUENCE, WORDS = "sequence", "words"
"""Kinds of data sets."""
WEIGHT = "weight:"
"""Stands before a parameter's name in the table of arrays."""


class StoreError(ExperimentError):
    """The store cannot be used. The message says why, and what to do about it."""


class Store:
    """An open store; `Store.open` or `Store.read` make one, `close` or a with statement ends it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, command: str = "") -> None:
        self.path = path
        self._connection = connection
        self._command = command

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, create: bool = False, command: str = "") -> "Store":
        """The store at `path` (the file, or the folder that holds it), for reading and writing.

        Args:
            path: a file, or a folder: then its runs.sqlite
            create: whether to begin one where none is
            command: what opens it, in words that repeat it; kept in a store that is new, and in another one if it
                adds runs
        """
        path = _file(path)
        if _size(path) > 0:
            _check_header(path)
        elif not create:
            raise StoreError(f"{path}: there is no store")
        with _explained(path):
            connection = _connect(path, "rwc" if create else "rw")
            try:
                if create and _empty(connection):
                    # only one process finds it empty twice: the others wait, and then find it made
                    connection.execute("BEGIN EXCLUSIVE")
                    if _empty(connection):
                        _make(connection, command)
                    connection.execute("COMMIT")
                _check(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, command)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "Store":
        """The store at `path` for reading only."""
        path = _file(path)
        if _size(path) == 0:
            raise StoreError(f"{path}: there is no store")
        _check_header(path)
        # what a killed process left half written is taken back by whoever opens next, if it may write
        writable = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
        with _explained(path):
            connection = _connect(path, "rw" if writable else "ro")
            try:
                connection.execute("PRAGMA query_only = ON")
                _check(connection, path)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection)

    def close(self) -> None:
        """Ends it; what was added is on the disk already."""
        self._connection.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def command(self) -> str:
        """How the store was begun."""
        return self._about("command")

    @property
    def commands(self) -> list[str]:
        """Every command that added runs, in their order; the first is the one that the store was begun with."""
        with _explained(self.path):
            return [self.command, *_later_commands(self._connection)]

    @property
    def created(self) -> str:
        """When the store was begun: UTC, ISO 8601."""
        return self._about("created")

    def add(self, *records: Record) -> None:
        """Adds the records in one transaction; on the disk when this returns.

        A record of a run that has one already is dropped, unless the old one failed: then the new one takes its place.
        """
        with self._writing() as connection:
            before = connection.total_changes
            for record in records:
                connection.execute("DELETE FROM runs WHERE key = ? AND status = ?", (record.key, FAILED))
                values = _row(record)
                places = ", ".join("?" * len(values))
                # not INSERT OR IGNORE, which would also ignore a value that is missing
                statement = f"INSERT INTO runs ({COLUMNS}) VALUES ({places}) ON CONFLICT (key) DO NOTHING"
                added = connection.execute(statement, values)
                if added.rowcount == 1:
                    connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", list(_arrays(record)))
            if connection.total_changes > before:
                self._remember(connection)

    def add_dataset(self, dataset: Data) -> None:
        """Adds a data set; a StoreError if another one has its name.

        One that is there already is told anew all that its digest leaves out: its source, and a corpus's clusters.
        """
        with self._writing() as connection:
            kind, about, numbers = _packed(dataset)
            row = (dataset.name, kind, dataset.digest, dataset.source, json.dumps(about), numbers)
            connection.execute(
                "INSERT INTO datasets VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE "
                "SET source = excluded.source, about = excluded.about "
                "WHERE digest = excluded.digest AND (source, about) != (excluded.source, excluded.about)",
                row,
            )
            (digest,) = connection.execute("SELECT digest FROM datasets WHERE name = ?", row[:1]).fetchone()
        if digest != dataset.digest:
            raise StoreError(
                f"{self.path}: the data set {dataset.name!r} there has other {'samples' if kind == SEQUENCE else kind} "
                f"than {dataset.source} now: choose another folder, or the same data and options as before"
            )

    def keys(self, *, failed: bool = True) -> set[str]:
        """The keys of all runs that have a record; without `failed`, of those that need not be tried again."""
        with _explained(self.path):
            if failed:
                return {key for (key,) in self._connection.execute("SELECT key FROM runs")}
            return {key for (key,) in self._connection.execute("SELECT key FROM runs WHERE status != ?", (FAILED,))}

    def records(self, task: str = GENERATION, keys: Iterable[str] | None = None) -> list[Record]:
        """All records of a task, or those with these keys, in an order that does not depend on when they were added."""
        with _explained(self.path):
            # one transaction, so that what another process adds meanwhile is seen whole or not at all
            self._connection.execute("BEGIN")
            try:
                rows = []
                arrays: dict[str, dict[str, NDArray[Any]]] = {}
                for condition, values in _conditions(task, keys):
                    matching = self._connection.execute(
                        f"SELECT {COLUMNS} FROM runs WHERE {condition}", values
                    ).fetchall()
                    rows += matching
                    arrays |= {row[0]: {} for row in matching}
                    parts = self._connection.execute(
                        "SELECT key, name, dtype, shape, data FROM arrays "
                        f"WHERE key IN (SELECT key FROM runs WHERE {condition}) ORDER BY rowid",
                        values,
                    )
                    for key, name, dtype, shape, data in parts:
                        arrays[key][name] = _array(data, dtype, json.loads(shape))
                datasets = set(self._connection.execute("SELECT name, digest FROM datasets"))
            finally:
                self._connection.execute("COMMIT")
            found = [_record(row, arrays[row[0]]) for row in sorted(rows, key=_order)]
            for each in found:
                if (each.run.data, each.run.digest) not in datasets:
                    raise ValueError(f"the data set {each.run.data!r} of the run {each.key} is not there")
            return found

    def datasets(self) -> dict[str, Dataset]:
        """The target sequences by name, in the order in which they were added."""
        return {name: data for name, data in self._data(SEQUENCE) if isinstance(data, Dataset)}

    def corpora(self) -> dict[str, Corpus]:
        """The corpora of words by name, in the order in which they were added."""
        return {name: data for name, data in self._data(WORDS) if isinstance(data, Corpus)}

    def names(self) -> set[str]:
        """Of all data sets."""
        with _explained(self.path):
            return {name for (name,) in self._connection.execute("SELECT name FROM datasets")}

    def note(self, name: str, value: Mapping[str, Any]) -> None:
        """Keeps what JSON can say under a name, in the place of what was kept under it."""
        with self._writing() as connection:
            connection.execute(
                "INSERT INTO about VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (NOTE + name, json.dumps(value)),
            )

    def noted(self, name: str) -> dict[str, Any]:
        """What is kept under a name; empty if nothing is."""
        with _explained(self.path):
            row = self._connection.execute("SELECT value FROM about WHERE name = ?", (NOTE + name,)).fetchone()
            return {} if row is None else dict(json.loads(row[0]))

    def _data(self, kind: str) -> Iterator[tuple[str, Data]]:
        with _explained(self.path):
            rows = self._connection.execute(
                "SELECT name, source, about, numbers, digest FROM datasets WHERE kind = ? ORDER BY rowid", (kind,)
            ).fetchall()
            for name, source, about, numbers, digest in rows:
                data = _unpacked(kind, name, source, json.loads(about), numbers)
                if data.digest != digest:
                    raise StoreError(f"{self.path}: broken: the numbers of {name!r} are not those that were stored")
                yield name, data

    def _about(self, name: str) -> str:
        with _explained(self.path):
            row = self._connection.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise StoreError(f"{self.path}: the store is broken: it does not say its {name!r}")
            return str(row[0])

    def _remember(self, connection: sqlite3.Connection) -> None:
        """Keeps the command that is adding runs, if it is not known yet."""
        known = [self.command, *_later_commands(connection)]
        if self._command and self._command not in known:
            connection.execute("INSERT INTO about VALUES (?, ?)", (f"{LATER}{len(known) + 1}", self._command))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                if isinstance(error, (OverflowError, TypeError, ValueError, sqlite3.IntegrityError)):
                    # the fault of what was given: nothing is wrong with the store
                    raise StoreError(f"{self.path}: cannot be stored: {type(error).__name__}: {error}") from error
                raise


def _file(path: str | os.PathLike[str]) -> Path:
    path = Path(path)
    status = _status(path)
    return path / FILE if status is not None and stat.S_ISDIR(status.st_mode) else path


def _size(path: Path) -> int:
    """In bytes; 0 where there is none."""
    status = _status(path)
    return 0 if status is None else status.st_size


def _status(path: Path) -> os.stat_result | None:
    """None where there is no file."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={mode}", uri=True, timeout=PATIENCE, isolation_level=None
    )
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    except BaseException:
        connection.close()
        raise
    return connection


def _make(connection: sqlite3.Connection, command: str) -> None:
    """The tables of a new store; inside a transaction, so that a store has all of them or none."""
    for statement in filter(str.strip, TABLES.split(";")):
        connection.execute(statement)
    about = {"command": command, "created": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _later_commands(connection: sqlite3.Connection) -> list[str]:
    # by rowid: the order in which they came
    rows = connection.execute("SELECT value FROM about WHERE name LIKE ? ORDER BY rowid", (f"{LATER}%",))
    return [command for (command,) in rows]


def _check_header(path: Path) -> None:
    """Refuses a file that is not this version's by its first bytes, before SQLite may do anything to it."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    if len(header) < 100 or not header.startswith(MAGIC) or _number(header, 68) != APPLICATION:
        raise StoreError(f"{path}: this is not a store of cwrnn's: choose another folder")
    if _number(header, 60) != VERSION:
        raise StoreError(
            f"{path}: a store of another version of cwrnn (format {_number(header, 60)}, this one has {VERSION}): "
            "choose another folder"
        )


def _number(header: bytes, place: int) -> int:
    return int.from_bytes(header[place : place + 4], "big")


def _empty(connection: sqlite3.Connection) -> bool:
    """Whether there is nothing in it: new, or its process was killed while it was made."""
    return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Refuses a broken file."""
    if _empty(connection):
        raise StoreError(f"{path}: there is no store")
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise StoreError(f"{path}: the store is broken: {answer}")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of SQLite's, and of rows that are no records, as a StoreError that names the file."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(f"{path}: the store cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path}: the store is broken: {error}") from error
    except (TypeError, ValueError, KeyError) as error:
        raise StoreError(f"{path}: the store is broken: {type(error).__name__}: {error}") from error


def _packed(data: Data) -> tuple[str, dict[str, Any], bytes]:
    """The kind, what is to be known besides name and source, and the numbers."""
    if isinstance(data, Dataset):
        return SEQUENCE, {"rate": data.rate}, _bytes(data.samples, "<f8")
    features, lengths = bundle.join_features(data)
    return WORDS, {**bundle.describe_corpus(data), "lengths": lengths.tolist()}, _bytes(features, "<f4")


def _unpacked(kind: str, name: str, source: str, about: dict[str, Any], numbers: bytes) -> Data:
    if kind == SEQUENCE:
        return Dataset(name, about["rate"], _array(numbers, "<f8", [-1]), source)
    features = _array(numbers, "<f4", [-1, FeatureSettings(**about["settings"]).channels])
    return bundle.assemble_corpus(about, features, np.array(about["lengths"]))


def _row(record: Record) -> tuple[Any, ...]:
    run = record.run
    return (
        record.key, run.task, run.data, run.digest, run.method, run.size, run.hidden, run.seed,
        json.dumps(asdict(run.settings), sort_keys=True), record.parameters, record.schedule, record.status,
        # SQLite has no NaN: it is NULL there
        record.error, record.best_error, record.best_epoch, record.epochs, record.seconds, record.traceback,
        json.dumps(dict(record.environment), sort_keys=True), record.finished_at,
    )  # fmt: skip


def _conditions(task: str, keys: Iterable[str] | None) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is asked for, in parts: SQLite takes so many values at once."""
    if keys is None:
        yield "task = ?", (task,)
        return
    wanted = sorted(set(keys))
    for start in range(0, len(wanted), AT_ONCE):
        part = wanted[start : start + AT_ONCE]
        yield f"task = ? AND key IN ({', '.join('?' * len(part))})", (task, *part)


def _order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """By data, method, size, hidden, settings, seed and key."""
    return (row[2], *row[4:7], row[8], row[7], row[0])


def _record(row: tuple[Any, ...], arrays: Mapping[str, NDArray[Any]]) -> Record:
    (key, task, data, digest, method, size, hidden, seed, settings, parameters, schedule, status, error, best_error,
     best_epoch, epochs, seconds, traceback, environment, finished_at) = row  # fmt: skip
    run = Run(task, data, digest, method, size, hidden, seed, TASKS[task].settings(**json.loads(settings)))
    if run.key != key:
        raise ValueError(f"the run {key} is not the one that its row describes")
    if status not in STATUSES:
        raise ValueError(f"the status of the run {key} is {status!r}, not one of {', '.join(STATUSES)}")
    weights = {name.removeprefix(WEIGHT): value for name, value in arrays.items() if name.startswith(WEIGHT)}
    for name, there in (("weights", weights), ("output", "output" in arrays), ("curve", "curve" in arrays)):
        if status != FAILED and not there:
            raise ValueError(f"the run {key} has {status}, but without {name}")
    return Record(
        run=run,
        parameters=parameters,
        schedule=schedule,
        status=status,
        error=_float(error),
        best_error=_float(best_error),
        best_epoch=best_epoch,
        epochs=epochs,
        curve=arrays.get("curve"),
        output=arrays.get("output"),
        weights=None if status == FAILED else weights,
        seconds=seconds,
        traceback=traceback,
        environment=json.loads(environment),
        finished_at=finished_at,
    )


def _float(value: float | None) -> float:
    return float("nan") if value is None else value


def _arrays(record: Record) -> Iterable[tuple[str, str, str, str, bytes]]:
    """The rows of the table of arrays."""
    named = {"curve": record.curve, "output": record.output}
    named |= {WEIGHT + name: value for name, value in (record.weights or {}).items()}
    for name, value in named.items():
        if value is not None:
            dtype = np.dtype(value.dtype).newbyteorder("<").str
            yield record.key, name, dtype, json.dumps(value.shape), _bytes(value, dtype)


def _bytes(array: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(array, dtype=dtype).tobytes()


def _array(data: bytes, dtype: str, shape: list[int]) -> NDArray[Any]:
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise ValueError(f"an array of {dtype!r}, where only floating point numbers are kept")
    return np.frombuffer(data, dtype=kind).reshape(shape)
