"""The store keeps records and data sets unchanged, and refuses files that are broken or not its own."""

import dataclasses
import math
import shutil
import sqlite3
import threading

import numpy as np
import pytest
from support import small_sweeps

from cwrnn.experiments.sweep.batches import record_failure
from cwrnn.experiments.sweep.store import Store, StoreError
from cwrnn.experiments.sweep.store_file import VERSION


def record(seed=0, status="finished", **changes):
    dataset = small_sweeps.wave()
    run = small_sweeps.plan([dataset], runs=1, seed=seed)[0]
    made = record_failure(run, "Traceback: it went wrong")
    if status != "failed":
        made = dataclasses.replace(
            made,
            status=status,
            error=0.25 if status == "finished" else math.nan,
            best_error=0.125,
            best_epoch=2,
            epochs=3,
            curve=np.array([[0, 1.5], [3, 0.25]], dtype=np.float32),
            output=np.linspace(-1, 1, 12, dtype=np.float32),
            weights={"layer.weight": np.eye(3, dtype=np.float32), "bias": np.zeros((0,), dtype=np.float32)},
            seconds=1.5,
            traceback=None,
        )
    return dataclasses.replace(made, **changes)


def new(path, **options):
    """A new store that has the data set of the records."""
    opened = Store.open(path, create=True, **options)
    opened.add_dataset(small_sweeps.wave())
    return opened


def assert_same(actual, expected):
    for field in dataclasses.fields(expected):
        mine, theirs = getattr(actual, field.name), getattr(expected, field.name)
        if field.name == "weights" and theirs is not None:
            assert list(mine) == list(theirs)
            for name in theirs:
                np.testing.assert_array_equal(mine[name], theirs[name], strict=True)
        elif isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(mine, theirs, strict=True)
        elif isinstance(theirs, float) and math.isnan(theirs):
            assert math.isnan(mine)
        else:
            assert mine == theirs, field.name


@pytest.mark.parametrize("status", ["finished", "diverged", "failed"])
def test_a_stored_record_is_read_back_unchanged(tmp_path, status):
    expected = record(status=status)
    with new(tmp_path) as first:
        first.add(expected)
        # a second connection sees the record before the first is closed, as another process would
        with Store.read(tmp_path) as second:
            (found,) = second.records()
    assert_same(found, expected)
    assert found.key == expected.key == expected.run.key


def test_infinity_and_nan_are_stored(tmp_path):
    with new(tmp_path) as opened:
        opened.add(record(status="diverged", best_error=math.inf))
        (found,) = opened.records()
    assert math.isnan(found.error)
    assert found.best_error == math.inf


def test_a_second_record_of_a_run_is_ignored(tmp_path):
    with new(tmp_path) as opened:
        opened.add(record(error=0.5))
        opened.add(record(error=0.75), record(seed=1))
        opened.add(record(status="failed"))
        assert [found.error for found in opened.records()] == [0.5, 0.25]


def test_a_failed_record_is_replaced(tmp_path):
    with new(tmp_path) as opened:
        opened.add(record(status="failed"))
        key = record().key
        assert (opened.keys(), opened.keys(failed=False)) == ({key}, set())
        opened.add(record())
        (found,) = opened.records()
        assert_same(found, record(environment=found.environment, finished_at=found.finished_at))
        assert opened.keys(failed=False) == {key}


def test_records_are_added_together_or_not_at_all(tmp_path):
    with new(tmp_path) as opened:
        with pytest.raises(StoreError):
            opened.add(record(), record(seed=1, epochs=None))
        assert opened.keys() == set()
        opened.add(record())
        assert len(opened.records()) == 1


def test_the_order_of_records_does_not_depend_on_when_they_were_added(tmp_path):
    records = [record(seed=seed) for seed in range(5)]
    orders = []
    for name, given in (("a", records), ("b", records[::-1])):
        with new(tmp_path / name) as opened:
            for each in given:
                opened.add(each)
            orders.append([found.run.seed for found in opened.records()])
    assert orders == [[0, 1, 2, 3, 4]] * 2


def test_records_of_different_tasks_are_apart(tmp_path):
    searched = record(run=dataclasses.replace(record().run, task="search"))
    with new(tmp_path) as opened:
        opened.add(record(), searched)
        assert [found.run.task for found in opened.records("search")] == ["search"]
        assert len(opened.records()) == 1


def test_records_are_selected_by_their_keys(tmp_path, monkeypatch):
    """Several statements select them, in the same order."""
    monkeypatch.setattr("cwrnn.experiments.sweep.store.KEYS_AT_ONCE", 2)
    records = [record(seed=seed) for seed in range(6)]
    with new(tmp_path) as opened:
        opened.add(*records)
        some = opened.records(keys=[each.key for each in records[:0:-1]])
        assert [found.run.seed for found in some] == [1, 2, 3, 4, 5]
        np.testing.assert_array_equal(some[-1].curve, records[-1].curve)
        assert opened.records(keys=[]) == opened.records("search", keys=[records[0].key]) == []


def test_a_note_replaces_the_one_before(tmp_path):
    with new(tmp_path) as opened:
        assert opened.read_note("one") == {}
        opened.note("one", {"a": [1, 2]})
        opened.note("one", {"a": [3]})
    with Store.read(tmp_path) as opened:
        assert opened.read_note("one") == {"a": [3]}
        assert len(opened.commands) == 1


def test_data_sets_are_read_back_and_never_overwritten(tmp_path):
    with Store.open(tmp_path, create=True) as opened:
        for name in ("z", "a"):
            opened.add_dataset(small_sweeps.wave(name))
        opened.add_dataset(small_sweeps.wave("a"))
        with pytest.raises(StoreError, match="'a' in the store has other numbers than a test's a now"):
            opened.add_dataset(small_sweeps.wave("a", phase=1.0))
        found = opened.datasets()
    assert list(found) == ["z", "a"]
    assert found["a"].samples.tolist() == small_sweeps.wave().samples.tolist()
    assert (found["a"].rate, found["a"].source) == (8000, "a test's a")


def test_the_source_of_a_stored_data_set_is_updated(tmp_path):
    with Store.open(tmp_path, create=True) as opened:
        opened.add_dataset(small_sweeps.wave("a"))
        opened.add_dataset(dataclasses.replace(small_sweeps.wave("a"), source="moved"))
        with pytest.raises(StoreError, match="has other numbers"):
            opened.add_dataset(dataclasses.replace(small_sweeps.wave("a", phase=1.0), source="another"))
        assert opened.datasets()["a"].source == "moved"


def test_a_store_knows_when_and_by_which_command_it_was_made(tmp_path):
    with Store.open(tmp_path, create=True, command="cwrnn reproduce") as opened:
        created = opened.created
    with Store.open(tmp_path, create=True, command="another") as opened:
        assert opened.command == "cwrnn reproduce"
        assert opened.created == created


def test_a_store_knows_every_command_that_added_runs(tmp_path):
    for seed, command in enumerate(["first", "second", "", "first", *(f"number {place}" for place in range(3, 12))]):
        with new(tmp_path, command=command) as opened:
            opened.add(record(seed=seed))
    # commands that add no run are not kept: one finds all its runs, one stops before the first
    with new(tmp_path, command="late") as opened:
        opened.add(record())
    new(tmp_path, command="refused").close()
    with Store.read(tmp_path) as opened:
        assert opened.command == "first"
        assert opened.commands == ["first", "second", *(f"number {place}" for place in range(3, 12))]


def test_replacing_a_failed_record_keeps_the_command(tmp_path):
    for command, status in (("first", "failed"), ("again", "finished")):
        with new(tmp_path, command=command) as opened:
            opened.add(record(status=status))
    with Store.read(tmp_path) as opened:
        assert opened.commands == ["first", "again"]


def test_a_store_is_only_made_on_request(tmp_path):
    for how in (Store.open, Store.read):
        with pytest.raises(StoreError, match="there is no store"):
            how(tmp_path / "runs.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_reading_writes_nothing(tmp_path):
    with new(tmp_path) as opened:
        opened.add(record())
    before = (tmp_path / "runs.sqlite").read_bytes()
    with Store.read(tmp_path) as opened:
        with pytest.raises(StoreError, match="readonly"):
            opened.add(record(seed=1))
        assert len(opened.records()) == 1
    assert (tmp_path / "runs.sqlite").read_bytes() == before


def foreign(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE runs (key TEXT)")
    connection.commit()
    connection.close()


def another_version(path):
    Store.open(path, create=True).close()
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()


def cut_short(path):
    with Store.open(path, create=True) as opened:
        opened.add(*(record(seed=seed) for seed in range(50)))
    path.write_bytes(path.read_bytes()[: -path.stat().st_size // 2])


def scrambled(path):
    with Store.open(path, create=True) as opened:
        opened.add(*(record(seed=seed) for seed in range(50)))
    content = bytearray(path.read_bytes())
    content[4096:] = np.random.default_rng(0).bytes(len(content) - 4096)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("a diary, longer than a header\n" * 100), "not a store of cwrnn"),
        (lambda path: path.write_text("short"), "not a store of cwrnn"),
        (foreign, "not a store of cwrnn"),
        (another_version, f"another version of cwrnn \\(format {VERSION + 1}, this one has {VERSION}\\)"),
        (cut_short, "broken"),
        (scrambled, "broken"),
    ],
    ids=["text", "short", "foreign", "version", "cut", "scrambled"],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path, make, message):
    path = tmp_path / "runs.sqlite"
    make(path)
    before, modified = path.read_bytes(), path.stat().st_mtime_ns
    for how in (Store.open, Store.read, lambda path: Store.open(path, create=True)):
        with pytest.raises(StoreError, match=message) as refused:
            how(path)
        assert str(path) in str(refused.value)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == modified
    assert [entry.name for entry in tmp_path.iterdir()] == ["runs.sqlite"]


ENDLESS = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers) SELECT n FROM numbers"


@pytest.mark.parametrize(
    ("statements", "name"),
    [
        (["DROP TABLE digests", f"CREATE VIEW digests (key, digest) AS SELECT n, n FROM ({ENDLESS})"], "view digests"),
        ([f"CREATE TRIGGER more BEFORE INSERT ON runs BEGIN {ENDLESS}; END"], "trigger more"),
        (["CREATE TABLE other (size CHECK (length(zeroblob(size)) < 9))"], "table other"),
        (["ALTER TABLE about ADD COLUMN other"], "table about"),
        (["CREATE INDEX longest ON runs (length(zeroblob(size)))"], "index longest"),
    ],
    ids=["view", "trigger", "table", "column", "index"],
)
def test_definitions_of_somebody_else_are_refused_before_they_are_used(tmp_path, statements, name):
    with new(tmp_path) as opened:
        opened.add(record())
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    for how in (Store.open, Store.read):
        with pytest.raises(StoreError, match=f"the store is broken: the {name} is not one that a store has"):
            how(tmp_path)


def test_a_row_that_does_not_fit_its_key_is_an_error(tmp_path):
    with new(tmp_path) as opened:
        opened.add(record())
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    # a store of an earlier version
    connection.execute("DROP TABLE digests")
    connection.execute("UPDATE runs SET seed = 7")
    connection.commit()
    connection.close()
    with Store.read(tmp_path) as opened, pytest.raises(StoreError, match="not the one that its row describes"):
        opened.records()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("UPDATE runs SET status = 'asleep'", "is 'asleep', not one of finished, diverged, failed"),
        ("DELETE FROM arrays WHERE name LIKE 'weight:%'", "has {status}, but without weights"),
        ("DELETE FROM arrays WHERE name = 'output'", "has {status}, but without output"),
        ("DELETE FROM arrays WHERE name = 'curve'", "has {status}, but without curve"),
        ("DELETE FROM datasets", "the data set 'wave' of the run"),
        ("UPDATE datasets SET digest = 'another'", "the data set 'wave' of the run"),
        ("DELETE FROM about", "has no 'command'"),
    ],
)
@pytest.mark.parametrize("status", ["finished", "diverged"])
def test_an_error_names_what_is_missing(tmp_path, damage, message, status):
    with new(tmp_path) as opened:
        opened.add(record(status=status))
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    # a store of an earlier version
    connection.execute("DROP TABLE digests")
    connection.execute(damage)
    connection.commit()
    connection.close()
    with Store.read(tmp_path) as opened, pytest.raises(StoreError, match=message.format(status=status)) as refused:
        assert (opened.records(), opened.commands) == ([], [])
    assert f"{tmp_path / 'runs.sqlite'}: the store is broken: " in str(refused.value)


@pytest.mark.parametrize("changes", [{"epochs": 10**20}, {"epochs": None}, {"environment": {"a": object()}}])
def test_values_that_cannot_be_stored_leave_the_store_unchanged(tmp_path, changes):
    with new(tmp_path) as opened:
        with pytest.raises(StoreError, match="cannot be stored") as refused:
            opened.add(record(**changes))
        assert "broken" not in str(refused.value)
        with pytest.raises(StoreError, match="cannot be stored"):
            opened.add_dataset(dataclasses.replace(small_sweeps.wave("fast"), rate=object()))
        assert (opened.records(), list(opened.datasets())) == ([], ["wave"])


@pytest.mark.parametrize("how", [Store.open, Store.read, lambda path: Store.open(path, create=True)])
def test_a_store_without_permission_is_an_error(tmp_path, monkeypatch, how):
    """Root always has permission, so the test takes it away."""
    new(tmp_path).close()

    def refuse(self, **options):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(type(tmp_path), "stat", refuse)
    with pytest.raises(StoreError, match="cannot be read: Permission denied") as refused:
        how(tmp_path / "runs.sqlite")
    monkeypatch.undo()
    assert str(tmp_path / "runs.sqlite") in str(refused.value)


def test_a_write_that_was_killed_is_rolled_back(tmp_path):
    """A killed process leaves the file and its journal as they were at that moment."""
    (tmp_path / "after").mkdir()
    with new(tmp_path) as opened:
        opened.add(record())
        # a small cache makes SQLite write to the file before the end of the transaction
        opened._connection.execute("PRAGMA cache_size = 1")
        with opened._write() as connection:
            connection.execute("UPDATE runs SET error = 99")
            values = [(record().key, str(place), "<f4", "[1000]", bytes(4000)) for place in range(200)]
            connection.executemany("INSERT INTO arrays VALUES (?, ?, ?, ?, ?)", values)
            for file in ("runs.sqlite", "runs.sqlite-journal"):
                shutil.copy(tmp_path / file, tmp_path / "after" / file)
    assert (tmp_path / "after" / "runs.sqlite").stat().st_size > 200 * 4000 / 2
    with Store.read(tmp_path / "after") as opened:
        (found,) = opened.records()
        assert found.error == 0.25
        assert sorted(found.weights) == ["bias", "layer.weight"]


def test_an_empty_file_of_a_killed_process_becomes_a_store(tmp_path):
    (tmp_path / "runs.sqlite").touch()
    with pytest.raises(StoreError, match="there is no store"):
        Store.read(tmp_path)
    with new(tmp_path) as opened:
        opened.add(record())
        assert len(opened.keys()) == 1


def test_many_writers_make_one_store(tmp_path):
    """Several threads make the store at once, and add the same runs."""
    start = threading.Barrier(4)
    failures = []

    def write():
        try:
            start.wait()
            with Store.open(tmp_path / "runs.sqlite", create=True) as opened:
                for seed in range(10):
                    opened.add_dataset(small_sweeps.wave())
                    opened.add(record(seed=seed))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Store.read(tmp_path) as opened:
        assert [found.run.seed for found in opened.records()] == list(range(10))


def test_a_full_disk_loses_no_record_and_says_how_to_go_on(tmp_path, waves):
    runs = small_sweeps.plan(waves, methods=["srn"], sizes=[100], runs=1)
    small_sweeps.sweep(tmp_path, waves, runs)
    kept = small_sweeps.contents(tmp_path)
    with Store.open(tmp_path) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="full: make space, then go on with --resume .*; finished runs are kept"):
            store.note("large", {"text": "x" * 100_000})
    assert small_sweeps.contents(tmp_path) == kept
