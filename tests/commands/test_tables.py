"""The commands take CSV and NumPy files: a column to generate, or columns in and a column out."""

import json
import shlex

import numpy as np
import pytest
import torch
from support.made_columns import make_table

from cwrnn import ClockworkRNN
from cwrnn.commands.main import main
from cwrnn.experiments.sweep.store import Store
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork

TINY = ("--size", "120", "--modules", "2", "--epochs", "3", "--quiet")
CHOSEN = ("--data", "town.csv", "--inputs", "x, noise", "--target", "y")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `cwrnn` in a folder with tables, and return its exit code, its output and its errors on one line."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    numbers = make_table().select(["x", "noise", "y"])
    rows = "\n".join(f"day {i}," + ",".join(map(str, row)) for i, row in enumerate(numbers.tolist()))
    (tmp_path / "town.csv").write_text(f"time,x,noise,y\n{rows}\n")
    np.save("town.npy", numbers)

    def execute(*arguments):
        code = main([*map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, " ".join(captured.err.split())

    return execute


@pytest.mark.usefixtures("undrawn")
def test_a_column_is_generated(run):
    code, out, err = run("reproduce", "generation", "--data", "town.npy", "--target", "2", "--sizes", "100", "--runs",
                         "1", "--epochs", "2", "--length", "30", "--offset", "20", "--workers", "1", "--json",
                         "--quiet")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["data"] == ["town 2"]
    with Store.read("out/generation") as store:
        [data] = store.datasets().values()
    assert data.source == "town.npy, column '2', rows 20 to 49"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("command", ["evolve", "learn"])
def test_the_printed_command_runs_on_the_table(run, command):
    more = ("--generations", "1", "--population", "4", "--workers", "1") if command == "evolve" else ("--longest", "4")
    code, out, err = run("clocks", command, *CHOSEN, "--runs", "1", *more, *TINY, "--out", "found")
    assert code == 0, err
    [printed] = [line.strip() for line in out.splitlines() if line.startswith("  cwrnn clocks compare")]
    assert "--data town.csv --target y --inputs x,noise" in printed
    code, _, err = run(*shlex.split(printed)[1:], "--runs", "1", "--epochs", "2", "--workers", "1", "--quiet")
    assert code == 0, err


@pytest.mark.usefixtures("undrawn")
def test_clocks_of_columns_are_compared_and_inspected(run, tmp_path):
    code, out, err = run("clocks", "compare", *CHOSEN, "--series", "exponential-2,linear", "--runs", "1", "--workers",
                         "1", *TINY, "--out", "out", "--json")  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["task"] == "clocks regression"
    code, out, err = run("inspect", "out", "--json", "--quiet")
    assert code == 0, err
    assert json.loads(out)["task"] == "regression"
    assert (tmp_path / "out" / "inspect.html").stat().st_size > 10_000


@pytest.mark.usefixtures("undrawn")
def test_saved_network_is_inspected_on_a_table(run, tmp_path):
    torch.manual_seed(0)
    SavedNetwork("town", "cw", Network(ClockworkRNN(2, 8, schedule=2), 1)).save(tmp_path / "net.safetensors")
    code, out, err = run("inspect", "net.safetensors", *CHOSEN, "--length", "50", "--json", "--quiet")
    assert code == 0, err
    numbers = json.loads(out)
    assert (numbers["sequences"], list(numbers["intact"])) == (4, ["nmse"])
    assert (tmp_path / "inspect.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["reproduce", "generation", "--data", "town.csv"], 2, "--target: town.csv has several columns: name one of"),
        (["reproduce", "generation", "--data", "town.csv", "--target", "time"], 2,
         "--data: town.csv, line 2, column 'time': expected a number, got 'day 0'"),
        (["reproduce", "generation", "--data", "no.csv", "--target", "y"], 2, "--data: no.csv: there is no such file"),
        (["reproduce", "generation", "--target", "y"], 2, "--target: there is no table among the data"),
        (["clocks", "compare", "--data", "town.csv", "--inputs", "z", "--target", "y"], 2, "--inputs: town.csv has no"),
        (["clocks", "evolve", "--data", "town.csv", "--inputs", "x", "--target", "y", "--length", "99"], 2,
         "--data: town.csv: 3 sequences of at least 2 rows are needed"),
        (["clocks", "learn", "--data", "town.csv", "--inputs", "x"], 2, "--target: expected the name of the column"),
        (["clocks", "learn", "--task", "words", "--target", "x"], 2, "--target: the task words takes none, got 'x'"),
        (["clocks", "learn", "--task", "regression", "--data", "song.wav", "--inputs", "x", "--target", "y"], 2,
         "--data: expected CSV or NumPy files with columns to read, got 'song.wav'"),
    ],
)  # fmt: skip
def test_errors_name_option_value_and_expectation(run, tmp_path, arguments, code, message):
    found, out, err = run(*arguments)
    assert (found, out) == (code, "")
    assert message in err
    assert not list(tmp_path.glob("out/*"))


@pytest.mark.parametrize("command", [["clocks", "compare"], ["clocks", "evolve"], ["clocks", "learn"], ["inspect"]])
def test_help_names_the_options_of_a_table(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    for option in ("--target", "--inputs", "--length"):
        assert option in out
    assert "--inputs" in out[out.index("examples:") :]
