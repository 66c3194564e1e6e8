"""Errors become messages and exit codes, and progress becomes bars or lines."""

import io
import sys

import pytest
import typer

from cwrnn.commands import console
from cwrnn.experiments.errors import ArgumentError, ExperimentError
from cwrnn.experiments.progress import Progress


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ExperimentError("the disk is full"), 1, "cwrnn: the disk is full\n"),
        (ImportError("no module"), 1, "cwrnn: no module\n"),
        (OSError(28, "No space left on device", "a/file"), 1, "cwrnn: a/file: No space left on device\n"),
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
    ],
)
def test_an_error_has_a_message_and_an_exit_code(capsys, error, code, message):
    with pytest.raises(typer.Exit) as ended, console.handle_errors():
        raise error
    assert ended.value.exit_code == code
    assert capsys.readouterr() == ("", message)


def test_an_argument_error_names_the_option():
    with pytest.raises(typer.BadParameter, match="expected numbers") as refused, console.handle_errors():
        raise ArgumentError("learning_rate", "expected numbers")
    assert refused.value.param_hint == "--learning-rate"


def test_a_command_with_a_store_says_how_to_resume(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["/somewhere/cwrnn"])
    with pytest.raises(typer.Exit), console.handle_errors(["reproduce", "--out", "a b"]):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.splitlines()[-1] == "  /somewhere/cwrnn reproduce --out 'a b' --resume"


def test_only_progress_with_an_estimate_prints_lines(capsys):
    with console.show_progress() as report:
        report(Progress("reading", 1, 2, 0.5))
        report(Progress("training", 0, 8, 0.0))
        report(Progress("training", 4, 8, 0.5, 30.0))
        report(Progress("training", 8, 8, 1.0, 0.0))
    assert [line[:20] for line in capsys.readouterr().err.splitlines()] == [
        " 50 %  4 of 8 runs, ",
        "100 %  8 of 8 runs, ",
    ]


def test_the_first_report_names_the_store_and_the_runs_that_it_has(capsys, tmp_path):
    with console.show_progress(store=tmp_path / "runs.sqlite", lines=False) as report:
        report(Progress("training", 3, 8, 0.0))
        report(Progress("training", 8, 8, 1.0, 0.0))
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"8 runs, 3 of them there already; the store is {tmp_path / 'runs.sqlite'}"
    assert last.startswith("5 runs took 0:0")


def test_an_output_that_knows_few_characters_gets_escapes(monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), encoding="ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    with console.guard_output():
        print("0.5 ± 0.1 \udce9")
    assert ascii_only.buffer.getvalue() == b"0.5 \\xb1 0.1 \\udce9\n"
    assert ascii_only.errors == "strict"


def test_a_closed_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    with console.guard_output():
        print("nobody reads this")
