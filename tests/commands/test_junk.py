"""Every option of every command with values that no one means: an exit code and a sentence, never a traceback."""

import os
import stat

import pytest
from typer.main import get_command

from cwrnn.commands.app import app
from cwrnn.commands.main import main
from cwrnn.experiments.clocks import learning
from cwrnn.experiments.errors import ExperimentError
from cwrnn.experiments.sweep.driver import Sweep

LONG = "x" * 5000
NUMBERS = ["", "-1", "nan", "1e400", "9" * 30, "1.5", "٣"]
TEXTS = ["", ",", "cw=nan", "1:", "a\0b", "\udce9", "[red]", LONG]
PATHS = ["", "a\0b", LONG, "taken", "taken/x", "pipe", "/dev/zero"]
SOURCES = [*PATHS, "folder:", "timit:taken", "folder:pipe", "squares:", "squares:3x0"]

SMALL = {
    ("reproduce", "generation"): {"--runs": "1", "--length": "20"},
    ("clocks", "compare"): {"--data": "squares:3", "--series": "linear"},
    ("clocks", "evolve"): {"--data": "squares:3"},
    ("clocks", "learn"): {"--data": "squares:3"},
}
"""Options with which a command has little to plan."""
TRAINS = "this would be trained"
"""The message of a command whose arguments are all good."""


def list_options():
    """Return each command with each of its options that take a value, and with its arguments."""
    root = get_command(app)
    reproduce, clocks = root.commands["reproduce"], root.commands["clocks"]
    commands = {("reproduce",): reproduce}
    commands |= {("reproduce", name): command for name, command in reproduce.commands.items()}
    commands |= {("clocks", name): command for name, command in clocks.commands.items()}
    commands |= {(name,): root.commands[name] for name in ("report", "inspect")}
    for names, command in commands.items():
        for parameter in command.params:
            if parameter.name != "help" and not getattr(parameter, "is_flag", False):
                yield names, command, parameter


OPTIONS = list(list_options())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Work in an empty folder with a file and a pipe, and train nothing."""

    def refuse(*arguments, **options):
        raise ExperimentError(TRAINS)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sweep, "train", refuse)
    monkeypatch.setattr(learning, "train_both_kinds", refuse)
    (tmp_path / "taken").write_bytes(b"junk")
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


def choose_junk(parameter):
    if parameter.metavar in ("N", "P", "R", "SIGMA", "SECONDS", "SAMPLES"):
        return NUMBERS
    if parameter.name == "model":
        return [path for path in PATHS if path not in ("pipe", "/dev/zero")]
    if parameter.name in ("out", "folder"):
        return PATHS
    return SOURCES if parameter.name in ("data", "more") else TEXTS


@pytest.mark.parametrize(
    ("names", "command", "parameter"), OPTIONS, ids=[" ".join((*names, option.name)) for names, _, option in OPTIONS]
)
def test_junk_is_refused_with_a_sentence(names, command, parameter, folder, capsys):
    is_option = parameter.param_type_name == "option"
    option = max(parameter.opts, key=len)
    others = [text for pair in SMALL.get(names, {}).items() if pair[0] != option for text in pair]
    others += ["taken"] * (names == ("inspect",) and is_option)
    for junk in choose_junk(parameter):
        given = [option, junk] if is_option else [junk]
        code = main([*names, *others, *given])
        printed, said = capsys.readouterr()
        assert code in (1, 2), (junk[:20], printed, said)
        assert said.strip(), junk[:20]
        assert "Traceback" not in said, (junk[:20], said)
        if code == 2:
            assert (option if is_option else parameter.metavar) in said or "--data" in said, (junk[:20], said)
        if TRAINS in said:
            # the value was good: the store that it made goes away
            assert junk not in ("", *PATHS) or parameter.name not in ("out", "folder")
            for path in folder.glob("out/**/runs.sqlite*"):
                path.unlink()
    made = {path.name for path in folder.iterdir()}
    assert made <= {"taken", "pipe", "out"}
    assert (folder / "taken").read_bytes() == b"junk"
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
