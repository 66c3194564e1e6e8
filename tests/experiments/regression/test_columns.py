"""Columns of a table are cut into training, validation and test, and normalised by the training part alone."""

import re

import numpy as np
import pytest
from support.made_columns import make_columns, make_table

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.regression.columns import Columns, read_columns
from cwrnn.experiments.regression.task import REGRESSION
from cwrnn.experiments.tables import Table, TableError


def test_rows_are_cut_in_their_order():
    table = make_table(rows=205)
    columns = read_columns(table, inputs=["noise", "x"], target="y", length=10)
    assert columns.counts == {"training": 12, "validation": 4, "test": 4}
    numbers = table.select(["noise", "x", "y"])
    mean, deviation = numbers[:120].mean(axis=0), numbers[:120].std(axis=0)
    expected = ((numbers[:200] - mean) / deviation).reshape(20, 10, 3)
    start = 0
    for name, count in columns.counts.items():
        part = columns.parts[name]
        np.testing.assert_allclose(part.inputs, expected[start : start + count, :, :2], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(part.targets, expected[start : start + count, :, 2])
        start += count
    assert columns.name == "town y"
    assert columns.source == "town, columns 'noise', 'x' and the target 'y'"


def test_later_rows_do_not_change_the_scale():
    table = make_table()
    numbers = table.select(["x", "y"])
    numbers[150:] *= 100
    changed = Columns("", "", numbers[:, :1], numbers[:, 1], ("x",), "y", 10)
    usual = read_columns(table, inputs=["x"], target="y", length=10)
    np.testing.assert_array_equal(changed.parts["training"].inputs, usual.parts["training"].inputs)
    assert changed.digest != usual.digest


def test_length_is_chosen_so_that_there_are_enough_sequences():
    for rows, length in ((200, 10), (6400, 320), (100_000, 320), (30, 2)):
        columns = read_columns(make_table(rows), inputs=["x"], target="y")
        assert columns.length == length
    columns = read_columns(make_table(100), inputs=["x"], target="y", offset=40, length=20)
    np.testing.assert_array_equal(columns.target, make_table(100).select(["y"])[40:, 0])
    assert columns.counts == {"training": 1, "validation": 1, "test": 1}
    assert columns.source.endswith(", from row 40 on")


def test_input_that_is_constant_in_training_stays_finite():
    numbers = make_table().select(["x", "y"])
    numbers[:150, 0] = 7
    columns = Columns("", "", numbers[:, :1], numbers[:, 1], ("x",), "y", 10)
    assert not columns.parts["training"].inputs.any()
    assert np.isfinite(columns.parts["test"].inputs).all()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": None}, ArgumentError, "inputs: expected the names of columns that networks read, got none"),
        ({"inputs": []}, ArgumentError, "inputs: expected the names of columns that networks read, got none"),
        ({"target": None}, ArgumentError, "target: expected the name of the column that networks return, got none"),
        ({"inputs": ["x", "y"]}, ArgumentError, "inputs: expected other columns than the target, got 'y'"),
        ({"inputs": ["x", "z"]}, ArgumentError, "inputs: town has no column 'z'"),
        ({"inputs": ["x", "x"]}, ArgumentError, "inputs: expected different columns, got 'x' twice"),
        ({"target": "z"}, ArgumentError, "target: town has no column 'z'"),
        ({"inputs": ["time"]}, TableError, "town, column 'time': expected numbers"),
        ({"length": 80}, TableError, "3 sequences of at least 2 rows are needed, got 200 rows for sequences of 80"),
        ({"offset": 1e300}, TableError, "3 sequences of at least 2 rows are needed, got 0 rows"),
    ],
)
def test_columns_that_cannot_be_learned_are_refused(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        read_columns(make_table(), **{"inputs": ["x"], "target": "y", **options})


@pytest.mark.parametrize(("rows", "part"), [((0, 120), "training"), ((120, 160), "validation"), ((160, 200), "test")])
def test_target_that_is_constant_in_a_part_is_refused(rows, part):
    numbers = make_table().select(["x", "y"])
    numbers[slice(*rows), 1] = 7
    table = Table.from_columns({"x": numbers[:, 0], "y": numbers[:, 1]}, "town")
    with pytest.raises(TableError, match=f"town: the column 'y' is constant in its {part} part"):
        read_columns(table, inputs=["x"], target="y", length=10)


def test_stored_columns_are_the_same():
    columns = make_columns()
    about, numbers = REGRESSION.pack(columns)
    again = REGRESSION.unpack(columns.name, columns.source, about, numbers)
    assert (again.digest, again.input_columns, again.target_column) == (columns.digest, ("x", "noise"), "y")
    for damage in ({"length": "10"}, {"length": 150}, {"inputs": [7, 8]}, {"inputs": ["x"] * 6}, {"target": None}):
        with pytest.raises(ValueError, match="must|needed|constant|cannot reshape|names"):
            REGRESSION.unpack(columns.name, columns.source, about | damage, numbers)


def test_signal_has_all_columns_of_the_training_part():
    signal = REGRESSION.signal(make_columns())
    assert signal.shape == (120, 3)
    np.testing.assert_allclose(signal.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(signal.std(axis=0), 1, rtol=1e-5)
