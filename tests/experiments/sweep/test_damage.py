"""A record whose stored numbers have changed is left out, named, and trained again."""

import contextlib
import dataclasses
import itertools
import json
import logging
import sqlite3

import numpy as np
import pytest
from support.made_records import make_dataset, make_record

from cwrnn.commands.main import main
from cwrnn.experiments import reproduction_result
from cwrnn.experiments.reproduction import reproduce_generation
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.store_file import StoreError

SMALL = {"methods": ["cw"], "sizes": [100], "runs": 2, "epochs": 2, "length": 20, "workers": 1}


def fill(folder, *seeds):
    with Store.open(folder, create=True, command="first") as store:
        store.add_dataset(make_dataset())
        store.add(*(make_record(0.5, seed=seed) for seed in seeds))


def change(folder, *statements):
    connection = sqlite3.connect(folder / "runs.sqlite")
    for statement in statements:
        connection.execute(*statement) if isinstance(statement, tuple) else connection.execute(statement)
    connection.commit()
    connection.close()


def flip_a_bit(data):
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize("column", ["settings", "seed", "status", "error", "environment", "schedule", "data"])
def test_a_change_of_any_column_is_noticed(tmp_path, caplog, column):
    fill(tmp_path, 0, 1)
    [(key,)] = sqlite3.connect(tmp_path / "runs.sqlite").execute("SELECT key FROM runs WHERE seed = 1").fetchall()
    change(tmp_path, (f"UPDATE runs SET {column} = CAST(coalesce({column}, 0) AS TEXT) || '1' WHERE key = ?", (key,)))
    with caplog.at_level(logging.WARNING, "cwrnn"), Store.read(tmp_path) as store:
        assert [record.run.seed for record in store.records()] == [0]
        assert list(store.damaged) == [key]
        assert key not in store.keys(failed=False)
    assert key[:12] in caplog.text


@pytest.mark.parametrize("name", ["curve", "output", "weight:layer.weight_hh_l0"])
def test_a_flipped_bit_of_an_array_is_noticed(tmp_path, name):
    fill(tmp_path, 0, 1)
    connection = sqlite3.connect(tmp_path / "runs.sqlite")
    key, data = connection.execute("SELECT key, data FROM arrays WHERE name = ?", (name,)).fetchone()
    connection.close()
    change(tmp_path, ("UPDATE arrays SET data = ? WHERE key = ? AND name = ?", (flip_a_bit(data), key, name)))
    with Store.read(tmp_path) as store:
        assert list(store.damaged) == [key]
        assert len(store.records()) == 1


def test_no_flipped_bit_of_a_key_loses_an_array_in_silence(tmp_path):
    record = make_record(0.5, seed=0)
    record = dataclasses.replace(record, weights={**record.weights, "other": np.ones(2, np.float32)})
    fill(tmp_path)
    with Store.open(tmp_path) as store:
        store.add(record)
    file = tmp_path / "runs.sqlite"
    whole, key = file.read_bytes(), record.key.encode()
    # the tables and their indexes have a copy each
    places = [place for place in range(len(whole)) if whole.startswith(key, place)]
    for place, bit in itertools.product(places, (1, 2, 4, 8, 16, 32)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        # a StoreError notices the damage as well
        with contextlib.suppress(StoreError), Store.read(tmp_path) as store:
            assert [sorted(read.weights) for read in store.records()] == [sorted(record.weights)] or store.damaged


def test_the_warning_about_a_damaged_record_cannot_control_a_terminal(tmp_path, caplog):
    fill(tmp_path, 0)
    change(tmp_path, ("UPDATE runs SET method = ?, data = ?", ("cw\x1b[31m\u202e", "wave\n\x1b[0m")))
    with caplog.at_level(logging.WARNING, "cwrnn"), Store.read(tmp_path) as store:
        [name] = store.damaged.values()
    assert r"(cw\x1b[31m\u202e of size" in name
    assert name in caplog.messages[0]
    assert "\x1b" not in caplog.messages[0]


def test_a_text_that_is_not_utf_8_is_noticed(tmp_path):
    fill(tmp_path, 0, 1)
    change(tmp_path, "UPDATE runs SET environment = CAST(X'22FF22' AS TEXT) WHERE seed = 1")
    with Store.read(tmp_path) as store:
        assert (len(store.records()), len(store.damaged)) == (1, 1)


def test_a_damaged_run_is_trained_again_on_resume(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduction_result, "write_page", lambda store, folder: folder)
    first = reproduce_generation(**SMALL, out=tmp_path)
    change(tmp_path, "UPDATE runs SET error = error + 1 WHERE seed = 1")
    with Store.read(tmp_path) as store:
        assert len(store.damaged) == 5
    second = reproduce_generation(**SMALL, out=tmp_path, resume=True)
    assert [record.error for record in second.records] == [record.error for record in first.records]
    with Store.read(tmp_path) as store:
        assert (len(store.damaged), len(store.records())) == (0, 10)


def test_a_store_of_an_earlier_version_is_read_and_resumed(tmp_path):
    fill(tmp_path, 0)
    change(tmp_path, "DROP TABLE digests", "UPDATE runs SET error = 0.75")
    with Store.open(tmp_path) as store:
        assert [record.error for record in store.records()] == [0.75]
        store.add(make_record(0.5, seed=1))
    change(tmp_path, "UPDATE runs SET error = 0.25")
    with Store.read(tmp_path) as store:
        # only the new record has a digest
        assert [(record.run.seed, record.error) for record in store.records()] == [(0, 0.25)]
        assert len(store.damaged) == 1


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_what_it_leaves_out(tmp_path, capsys, caplog):
    fill(tmp_path, 0, 1)
    change(tmp_path, "UPDATE runs SET seconds = 9 WHERE seed = 1")
    assert main(["report", str(tmp_path)]) == 0
    assert "seed 1" in caplog.text
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "1 run is left out: its record is damaged" in page
    [name] = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))["damaged"]
    assert "cw of size 100 on 'tune', seed 1" in name
