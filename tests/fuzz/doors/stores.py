"""Stores: SQLite files with damaged pages, rows of other types, and hostile JSON in them."""

import functools
import json
import sqlite3
import tempfile
import warnings
from pathlib import Path
from random import Random
from typing import Any

from support.made_evaluations import make_evaluation_record, make_examples
from support.made_records import make_corpus, make_dataset, make_record, make_words_record

from cwrnn.experiments.errors import ExperimentError
from cwrnn.experiments.evaluation.chapter import check_records, choose_settings
from cwrnn.experiments.evaluation.result import summarise_evaluation
from cwrnn.experiments.evaluation.task import EVALUATIONS
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.store_file import FILE, StoreError
from cwrnn.experiments.task import all_tasks

from ..door import Door
from ..mutation import INTEGERS, LARGEST, NUMBERS, TEXTS, mutate_bytes, mutate_json


@functools.cache
def make_store() -> bytes:
    """Return the file of a store with runs of the paper's tasks and of an evaluation: finished, diverged and failed."""
    with tempfile.TemporaryDirectory() as folder:
        with Store.open(folder, create=True, command="cwrnn reproduce") as store:
            store.add_dataset(make_dataset())
            store.add_dataset(make_corpus())
            store.add(
                make_record(0.1), make_record(0.2, seed=1, method="srn"), make_record(0.3, seed=2, status="diverged")
            )
            store.add(make_record(0.4, seed=3, status="failed", traceback="no"), make_words_record(0.2))
            store.add_dataset(make_examples())
            store.add(make_evaluation_record(0.1), make_evaluation_record(0.2, method="gru", updates=7))
            store.note("search", {"a": 1})
        connection = sqlite3.connect(Path(folder, FILE))
        connection.executescript(
            "UPDATE about SET value = '2026-01-01' WHERE name = 'created'; PRAGMA journal_mode = DELETE; VACUUM"
        )
        connection.close()
        return Path(folder, FILE).read_bytes()


def make_case(random: Random) -> bytes:
    """Return a store with changed pages, or with changed rows."""
    if random.random() < 0.25:
        return mutate_bytes(random, make_store(), ())[:LARGEST]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, FILE)
        path.write_bytes(make_store())
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA foreign_keys = OFF")
            if random.random() < 0.6:
                # a store of an earlier version: with digests, a changed record is left out unread
                connection.execute("DROP TABLE digests")
            for _ in range(random.choice((1, 1, 2, 3))):
                try:
                    change_rows(random, connection)
                except (OverflowError, UnicodeEncodeError, sqlite3.Error):
                    continue
        finally:
            connection.close()
        return path.read_bytes()


def change_rows(random: Random, connection: sqlite3.Connection) -> None:
    """Change a cell, or the tables."""
    tables = [
        name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    ]
    table = random.choice([*tables, *(["runs"] * 3 if "runs" in tables else [])])
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    column = random.choice(columns)
    kind = random.randrange(12)
    rows = [row for (row,) in connection.execute(f'SELECT rowid FROM "{table}" ORDER BY rowid')]
    if kind == 0:
        connection.execute(random.choice((
            f'DELETE FROM "{table}"', f'DROP TABLE "{table}"',
            f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO other',
            f'ALTER TABLE "{table}" ADD COLUMN other', f'ALTER TABLE "{table}" RENAME TO other',
            "PRAGMA user_version = 1",
            "PRAGMA application_id = 0", f'CREATE TABLE t2 AS SELECT * FROM "{table}"', "PRAGMA auto_vacuum = FULL",
            f'CREATE VIEW v AS SELECT * FROM "{table}"', "PRAGMA journal_mode = WAL", "PRAGMA encoding = 'UTF-16'",
        )))  # fmt: skip
    elif kind == 1 and rows:
        connection.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (random.choice(rows),))
    elif rows:
        row = random.choice(rows)
        (value,) = connection.execute(f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', (row,)).fetchone()
        connection.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (change_value(random, value), row))


def change_value(random: Random, value: Any) -> Any:
    """Return another value for a cell."""
    if isinstance(value, str) and value.startswith(("{", "[")) and random.random() < 0.8:
        return mutate_json(random, value)
    if isinstance(value, bytes) and random.random() < 0.7:
        return mutate_bytes(random, value)
    if isinstance(value, (int, float)) and random.random() < 0.4:
        return random.choice((-1, 0, 1, 2**31, 2**63 - 1, 1e308, float("inf"), float("nan"), value + 1))
    texts = random.choice(
        (TEXTS, NUMBERS, ("<f4", "<f8", "|O", "<f2", "V4", "<f16", "[3, -1]", "[0, 4611686018427387904]", "[" * 2000))
    )
    return random.choice(
        (
            None,
            random.choice(texts),
            random.choice(texts).encode("utf-8", "replace"),
            random.choice(INTEGERS[:-2]),
            -1,
            0.5,
        )
    )


def read_store(case: bytes, folder: Path) -> None:
    """Read everything in the store, then add to it."""
    # a damaged record is left out with a warning
    warnings.simplefilter("ignore", UserWarning)
    path = folder / FILE
    path.write_bytes(case)
    with Store.read(path) as store:
        for task in all_tasks():
            for name in task.stored_names:
                for record in store.records(name):
                    json.dumps(dict(record.environment))
        for evaluation in EVALUATIONS:
            check_records(records := store.records(evaluation.name), str(path))
            summarise_evaluation(choose_settings(records, evaluation, store.load_all_data()).drawn)
        data = [*store.datasets().values(), *store.corpora().values()]
        store.names(), store.keys(failed=False), store.commands, store.created, store.read_note("search")
    with Store.open(path, command="cwrnn again") as store:
        store.add(make_record(0.5, seed=9))
        for dataset in data:
            store.add_dataset(dataset)
        store.note("more", {"b": 2})


def inspect_store(case: bytes, folder: Path) -> None:
    """Load the best network of the store, as `cwrnn inspect` does."""
    warnings.simplefilter("ignore", UserWarning)
    path = folder / FILE
    path.write_bytes(case)
    for task in ("generation", "words"):
        network = load_network(path, task=task)
        network.description.encode("utf-8", "surrogatepass")


DOORS = (
    Door("store", "Store.read, Store.open", (StoreError,), make_case, read_store),
    Door("inspect", "load_network", (ExperimentError,), make_case, inspect_store),
)
