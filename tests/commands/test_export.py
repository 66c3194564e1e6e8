"""`cwrnn export` names the formats that an option works with, and says what the check does for each of them."""

import pytest

pytest.importorskip("typer")

from cwrnn.commands.main import main
from cwrnn.export.c.check import STEPS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "onnx", "--numbers", "int8"], "--numbers: works with --to c and --to wasm, got --to onnx"),
        (["--to", "onnx", "--calibrate", "x.npy"], "--calibrate: works with --to c and --to wasm, got --to onnx"),
        # always the first of them, in the order of the help
        (
            ["--to", "onnx", "--calibrate", "x.npy", "--numbers", "int8", "--check"],
            "--numbers: works with --to c and --to wasm, got --to onnx",
        ),
        (["--to", "wasm", "--check"], "--check: works with --to c and --to onnx, got --to wasm"),
    ],
    ids=["numbers", "calibrate", "both", "check"],
)
def test_an_option_of_other_formats_is_refused(tmp_path, capsys, arguments, message):
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "net.safetensors"), "--out", str(out), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


def test_help_says_what_the_check_does_for_each_format(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["export", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert f"C: it is compiled and runs {STEPS:,} steps" in text
    assert "ONNX: onnxruntime runs the models over whole sequences and step by step" in text
