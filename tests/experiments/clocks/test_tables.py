"""Clocks are compared, evolved and learned on columns of a table."""

import re

import numpy as np
import pytest
from support.made_columns import make_columns, make_table

from cwrnn.experiments import compare_clocks, evolve_clocks, inspect_network, learn_clocks, write_report
from cwrnn.experiments.clocks.evolution import measure_error
from cwrnn.experiments.clocks.request import Selection, choose_task, list_sources, load_data
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.sweep.store import Store

SMALL = {"size": 120, "modules": 2, "epochs": 3}


@pytest.fixture
def town(tmp_path, monkeypatch):
    """The name of a table in the current folder."""
    monkeypatch.chdir(tmp_path)
    numbers = make_table().select(["x", "noise", "y"])
    rows = "\n".join(",".join(map(str, row)) for row in numbers.tolist())
    (tmp_path / "town.csv").write_text(f"x,noise,y\n{rows}\n")
    return "town.csv"


def test_inputs_make_the_task():
    assert choose_task(None, None) == "generation"
    assert choose_task(None, ["x"]) == "regression"
    assert choose_task("words", None) == "words"
    with pytest.raises(ArgumentError, match="task: expected one of generation, words, regression, got 'dancing'"):
        choose_task("dancing", None)


def test_selection_is_repeated_as_arguments():
    assert Selection().options == {}
    selection = Selection("y", ("x", "noise"), 5.0, 20)
    assert selection.options == {"target": "y", "inputs": ("x", "noise"), "offset": 5.0, "length": 20}
    assert selection.arguments == ["--target", "y", "--inputs", "x,noise", "--offset", "5.0", "--length", "20"]


def test_data_may_be_tables_or_columns():
    table, columns = make_table(), make_columns()
    assert list_sources(table) == [table]
    assert list_sources(columns) == [columns]
    [loaded] = load_data("regression", [table], None, Selection("y", ("x", "noise"), length=10))
    assert loaded.digest == columns.digest
    assert load_data("regression", [columns]) == [columns]
    [sequence] = load_data("generation", [table], None, Selection("y", length=50))
    assert sequence.name == "town y"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "generation", "inputs": ["x"]}, "inputs: the task generation takes none"),
        ({"task": "words", "target": "y"}, "target: the task words takes none"),
        ({"task": "words"}, "expected recordings of words, got the table 'town'"),
        ({"inputs": ["x"]}, "target: expected the name of the column that networks return"),
        ({"inputs": ["x"], "target": "y", "data": "squares:3,5"}, "expected CSV or NumPy files with columns to read"),
        ({"inputs": ["x"], "target": "y", "offset": -1.0}, "offset: expected a row, 0 or more, got -1.0"),
        ({"inputs": ["x"], "target": "y", "length": 1}, "length: expected at least 2, got 1"),
        ({"task": "regression"}, "inputs: expected the names of columns"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        compare_clocks(**{"data": make_table(), **SMALL, **options})


def test_series_are_compared_on_columns(town, tmp_path):
    result = compare_clocks(data=town, target="y", inputs=["x", "noise"], series=["exponential-2", "spectrum"], runs=2,
                            out="out", workers=1, **SMALL)  # fmt: skip
    assert result.data == ("town y",)
    assert [series.runs for series in result.series] == [2, 2]
    assert result.to_dict()["task"] == "clocks regression"
    with Store.read(tmp_path / "out") as store:
        assert store.load_all_data()["town y"].digest == make_columns().digest
        for record in store.records("clocks regression"):
            # the validation part chooses, the test part is reported
            assert measure_error([record]) == pytest.approx(float(record.curve[:, 1].min()))
            assert record.error == pytest.approx(float(record.curve[record.best_epoch, 2]), rel=1e-6)
    report = write_report("out")
    assert "clocks-regression" in report.numbers
    assert "Clocks: columns of a table" in report.page.read_text(encoding="utf-8")
    found = inspect_network("out")
    assert found.inspection.intact["nmse"] == pytest.approx(
        min(record.error for record in _read_largest(tmp_path / "out")), rel=1e-4
    )


def _read_largest(path):
    with Store.read(path) as store:
        records = store.records("clocks regression")
    return [record for record in records if record.run.size == max(other.run.size for other in records)]


def test_network_of_a_run_is_inspected_on_another_table(town, tmp_path):
    compare_clocks(data=town, target="y", inputs=["x", "noise"], series=["exponential-2"], runs=1, out="out",
                   workers=1, **SMALL)  # fmt: skip
    numbers = make_table(seed=5).select(["x", "noise", "y"])
    np.savez("city.npz", x=numbers[:, 0], noise=numbers[:, 1], y=numbers[:, 2])
    found = inspect_network("out", data="city.npz", length=50).network
    columns = make_columns()
    mean, deviation = columns.scales
    np.testing.assert_allclose(found.inputs[1], ((numbers - mean) / deviation)[50:100, :2], rtol=1e-5, atol=1e-6)
    assert found.facts["looked at with"] == "city.npz: 4 sequences of 50 rows, normalised"
    for options, message in (
        ({"data": "city.npz", "inputs": ["x"]}, "inputs: expected 2 columns, got 1"),
        ({"data": "city.npz", "length": 201}, "length: expected 2 to 200 rows"),
        ({"data": "city.npz", "target": "z"}, "target: city.npz has no column 'z'"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            inspect_network("out", **options)
    for options in ({"word": "yes"}, {"length": 9}):
        with pytest.raises(Exception, match="is for networks that tell words apart|is for another table"):
            inspect_network("out", **options)


def test_clocks_are_evolved_on_columns(town):
    result = evolve_clocks(data=town, target="y", inputs=["x", "noise"], generations=1, population=4, runs=1, workers=1,
                           **SMALL)  # fmt: skip
    assert result.verdict.measure == "NMSE of the validation part"
    assert result.use.startswith("cwrnn clocks compare --data town.csv --target y --inputs x,noise --series")
    result = evolve_clocks(data=town, target="y", generations=1, population=4, runs=1, workers=1, **SMALL)
    assert result.use.startswith("cwrnn reproduce generation --data town.csv --target y --methods cw --schedule")


def test_clocks_are_learned_on_columns(town):
    result = learn_clocks(data=town, target="y", inputs="x", runs=1, longest=4, **SMALL)
    assert result.task == "regression"
    assert "lowest validation error" in str(result)
    assert " --inputs x --series " in result.use
    result = learn_clocks(data=make_table(), target="y", inputs=["x"], runs=1, longest=4, **SMALL)
    assert result.use.startswith("cwrnn.ClockworkRNN(1, ")
    tables = [make_columns(), make_columns(seed=1, name="city")]
    assert [network.seed for network in learn_clocks("regression", tables, runs=2, longest=4, **SMALL).learned] == [
        0, 1, 2, 3,
    ]  # fmt: skip
