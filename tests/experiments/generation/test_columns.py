"""A column of a table becomes a sequence that networks generate, as a sound does."""

import re

import numpy as np
import pytest
from support.html_pages import Page

from cwrnn.experiments import reproduce_generation
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.generation import music
from cwrnn.experiments.generation.music import load_sequences, read_column
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.tables import Table, TableError

LOAD = np.sin(np.arange(400) / 5) + np.arange(400) / 100


@pytest.fixture
def town(tmp_path, monkeypatch):
    """The path of a table with a time, a load and a constant."""
    monkeypatch.chdir(tmp_path)
    rows = [f"day {i},{value},7" for i, value in enumerate(LOAD.tolist())]
    (tmp_path / "town.csv").write_text("\n".join(["time,load,flat", *rows]))
    return "town.csv"


def test_column_is_cut_and_scaled(town):
    [data] = load_sequences([town], target="load")
    assert (data.name, data.rate, data.has_duration) == ("town load", 1, False)
    assert data.source == "town.csv, column 'load', rows 0 to 319"
    np.testing.assert_array_equal(data.samples, music.scale(LOAD[:320]))
    [data] = load_sequences([town], target="load", offset=100, length=50)
    assert data.source == "town.csv, column 'load', rows 100 to 149"
    np.testing.assert_array_equal(data.samples, music.scale(LOAD[100:150]))


def test_short_table_is_used_whole_unless_a_length_is_given():
    table = Table.from_columns({"load": LOAD[:30]}, name="town")
    assert len(read_column(table).samples) == 30
    assert len(read_column(table, offset=10).samples) == 20
    with pytest.raises(TableError, match=re.escape("too short: 31 rows from row 0 on are needed, 30 are there")):
        read_column(table, length=31)
    with pytest.raises(TableError, match=re.escape("too short: 2 rows from row 1e+300 on are needed, 0 are there")):
        read_column(table, offset=1e300)


def test_sounds_and_tables_stand_side_by_side(town):
    found = load_sequences(["bundle", town, Table.from_columns({"load": LOAD}, name="city")], target="load", length=99)
    assert [data.name for data in found][5:] == ["town load", "city load"]
    assert {len(data.samples) for data in found} == {99}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, ArgumentError, "target: town.csv has several columns: name one of 'time', 'load', 'flat'"),
        ({"target": "wind"}, ArgumentError, "target: town.csv has no column 'wind'"),
        ({"target": "time"}, TableError, "town.csv, line 2, column 'time': expected a number, got 'day 0'"),
        ({"target": "flat"}, TableError, "town.csv, column 'flat': constant in the rows 0 to 319"),
    ],
)
def test_columns_that_cannot_be_learned_are_refused(town, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        load_sequences([town], **options)


def test_target_needs_a_table():
    with pytest.raises(ArgumentError, match="target: there is no table among the data that could have a column 'load'"):
        load_sequences(["bundle"], target="load")


@pytest.mark.usefixtures("undrawn")
def test_networks_learn_a_column_and_the_page_has_no_sound(town, tmp_path):
    result = reproduce_generation(
        town, target="load", methods=["srn", "cw"], sizes=[100], runs=1, epochs=3, length=40, workers=1, out="out"
    )
    assert [row.runs for row in result.rows] == [1, 1]
    with Store.read(tmp_path / "out") as store:
        np.testing.assert_array_equal(store.datasets()["town load"].samples, music.scale(LOAD[:40]))
    page = Page(result.page.read_text(encoding="utf-8"))
    assert "audio" not in page.tags
    assert "What two kinds of network make of 40 steps" in page.text
    assert "Sequences from memory" in page.text
    assert not re.search(r"\bmusic\b", page.text)
