"""Files of an export to ONNX: steps of a stream, the check, refusals, and use without cwrnn."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from support.onnx_models import draw_state, make_layer, open_session, run_export, run_network

from cwrnn import ClockworkRNN, Schedule
from cwrnn.cells import CELLS
from cwrnn.experiments.errors import ArgumentError
from cwrnn.export import ExportError, OnnxStepper, check_onnx, to_onnx
from cwrnn.export.model import read_model
from cwrnn.export.onnx.checking import compare_files
from cwrnn.export.onnx.step import build_step
from cwrnn.network import Network

NESTED = Schedule((1, 2, 4), (3, 2, 4))
NOT_NESTED = Schedule((2, 3, 7), (3, 1, 2))


@pytest.mark.parametrize("schedule", [NESTED, NOT_NESTED], ids=["nested", "not nested"])
@pytest.mark.parametrize("cell", CELLS)
def test_steps_equal_the_specification(close, tmp_path, cell, schedule):
    options = {"peepholes": True} if cell == "lstm" else {}
    network = Network(make_layer(cell, 2, schedule, layers=2, **options), 3, softmax=True)
    to_onnx(network, tmp_path / "out")
    stepper = OnnxStepper(tmp_path / "out", batch=2)
    input = torch.randn(20, 2, 2)
    zeros = [torch.zeros_like(part) for part in draw_state(network.layer, 2)]
    for state, t0 in ((zeros, 0), (draw_state(network.layer, 2), 1)):
        if t0:
            stepper.set_state(*state, t=t0)
        expected, *after = run_network(network, input, state, t0)
        for x, y in zip(input.numpy(), expected, strict=True):
            close(torch.from_numpy(stepper.step(x)), y)
        assert stepper.t == t0 + 20
        for actual, final in zip((stepper.h, stepper.c), after, strict=False):
            close(torch.from_numpy(actual), final)
    stepper.reset()
    close(torch.from_numpy(stepper.step(input[0].numpy())), run_network(network, input[:1], zeros, 0)[0][0])


def test_steps_continue_a_sequence(close, tmp_path):
    layer = make_layer("lstm", 2, NOT_NESTED)
    files = to_onnx(layer, tmp_path / "out", name="net").files
    assert [file.name for file in files] == [
        "net.onnx", "net_step_0.onnx", "net_step_1.onnx", "net_step_2.onnx", "net_hold.onnx", "net.json", "stepper.py",
    ]  # fmt: skip
    session = open_session(onnx.load(files[0]))
    input, state = torch.randn(12, 1, 2), draw_state(layer, 1)
    expected, *_ = run_export(session, input, state, 3)
    _, *after = run_export(session, input[:7], state, 3)
    stepper = OnnxStepper(tmp_path / "out", "net")
    stepper.set_state(*(part.numpy() for part in after), t=10)
    for x, y in zip(input[7:].numpy(), expected[7:], strict=True):
        close(torch.from_numpy(stepper.step(x)), y)


def test_the_result_describes_itself(tmp_path):
    result = to_onnx(Network(make_layer("tanh", 1, NESTED), 1), tmp_path / "out")
    *files, counts = str(result).splitlines()
    assert files == list(map(str, result.files))
    assert counts == f"1 input, 1 output, opset 17, {sum(path.stat().st_size for path in result.files):,} bytes"
    assert json.loads(json.dumps(result.to_dict()))["files"] == files


def test_a_step_multiplies_no_weights_of_slower_modules():
    model = read_model(make_layer("tanh", 2, NESTED))
    for slowest, units in enumerate((3, 5, 9)):
        weights = [list(value.dims) for value in build_step(model, slowest, "network", 17).graph.initializer]
        assert [9, units] in weights
        assert [2, units] in weights
    assert [value.name for value in build_step(model, 2, "network", 17).graph.input] == ["input", "h"]


def test_a_network_without_inputs(close, tmp_path):
    network = Network(make_layer("gru", 0, NOT_NESTED, bias=False), 2)
    to_onnx(network, tmp_path / "out", check=True)
    stepper = OnnxStepper(tmp_path / "out")
    state = draw_state(network.layer, 1)
    stepper.set_state(state[0].numpy(), t=0)
    output = np.stack([stepper.step(np.zeros((1, 0))) for _ in range(9)])
    close(torch.from_numpy(output), run_network(network, torch.zeros(9, 1, 0), state, 0)[0])


def test_the_folder_needs_neither_cwrnn_nor_torch(tmp_path):
    network = Network(make_layer("tanh", 2, NESTED), 2)
    to_onnx(network, tmp_path / "out")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['cwrnn'] = None\n"
        "from stepper import OnnxStepper\n"
        "stepper = OnnxStepper('.')\n"
        "print([stepper.step([[1.0, -1.0]]).tolist() for _ in range(9)])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "out", capture_output=True, text=True, check=True
    )
    expected = run_network(network, torch.tensor([[1.0, -1.0]]).expand(9, 1, 2), [torch.zeros(1, 1, 9)], 0)[0]
    torch.testing.assert_close(torch.tensor(json.loads(result.stdout)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_the_check_accepts_an_export(tmp_path, cell):
    layer = make_layer(cell, 2, NOT_NESTED, layers=2, batch_first=True)
    to_onnx(layer, tmp_path / "out", check=True)
    assert check_onnx(layer).error < 1e-5
    assert compare_files(read_model(layer), tmp_path / "out", "network") < 1e-5


@pytest.mark.parametrize("factor", [1.05, np.nan], ids=["wrong", "not a number"])
@pytest.mark.parametrize("file", ["network.onnx", "network_step_2.onnx"])
def test_the_check_finds_a_wrong_weight(tmp_path, file, factor):
    layer = make_layer("tanh", 2, NESTED)
    to_onnx(layer, tmp_path / "out")
    path = tmp_path / "out" / file
    model = onnx.load(path)
    (weight,) = [
        value for value in model.graph.initializer if list(value.dims) == ([3, 3] if file == "network.onnx" else [9, 9])
    ]
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * factor, weight.name))
    onnx.save(model, path)
    with pytest.raises(ExportError, match=r"network.onnx with T = \d+, B = \d, t0 = \d+ differs from the network"):
        compare_files(read_model(layer), tmp_path / "out", "network")


def test_the_check_finds_a_file_that_is_not_valid(tmp_path):
    layer = make_layer("tanh", 2, NESTED)
    to_onnx(layer, tmp_path / "out")
    path = tmp_path / "out" / "network_step_1.onnx"
    model = onnx.load(path)
    model.graph.node[0].op_type = "Nonsense"
    onnx.save(model, path)
    with pytest.raises(ExportError, match=r"network_step_1.onnx is not a valid ONNX file"):
        compare_files(read_model(layer), tmp_path / "out", "network")


def test_nothing_is_written_if_the_check_fails(tmp_path, monkeypatch):
    def fail(*arguments):
        raise ExportError("differs")

    monkeypatch.setattr("cwrnn.export.onnx.files.compare_files", fail)
    with pytest.raises(ExportError, match="differs"):
        to_onnx(ClockworkRNN(2, 4), tmp_path / "out", check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (ClockworkRNN(2, 4, bidirectional=True), "a bidirectional layer"),
        (nn.RNN(2, 4), "got a RNN"),
    ],
    ids=["bidirectional", "torch's layer"],
)
def test_models_that_cannot_be_exported_are_refused(tmp_path, source, message):
    with pytest.raises(ExportError, match=message):
        to_onnx(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "../net"}, "name: expected a C identifier, .* got '../net'"),
        ({"name": "2nd"}, "name: expected a C identifier, .* got '2nd'"),
        ({"name": 5}, "name: expected a C identifier, .* got 5"),
        ({"name": None}, "name: expected a C identifier, .* got None"),
        ({"name": "con"}, "name: expected a name that Windows does not keep for a device, got 'con'"),
        ({"opset": 13}, "opset: expected at least 14, got 13"),
        ({"opset": 999}, r"opset: expected at most \d+, got 999"),
        ({"opset": "17"}, "opset: expected an integer, got '17'"),
        ({"opset": 17.0}, r"opset: expected an integer, got 17\.0"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path, options, message):
    with pytest.raises(ArgumentError, match=message):
        to_onnx(ClockworkRNN(2, 4), tmp_path / "out", **options)
    with pytest.raises(ArgumentError, match=message):
        check_onnx(ClockworkRNN(2, 4), **options)
    assert not (tmp_path / "out").exists()


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ArgumentError, match="out: .*file is a file"):
        to_onnx(ClockworkRNN(2, 4), tmp_path / "file")
    with pytest.raises(ArgumentError, match="out: .* exists and is not empty"):
        to_onnx(ClockworkRNN(2, 4), tmp_path)
    assert (tmp_path / "file").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("module", ["onnx", "onnx.helper", "onnx.defs"])
def test_a_missing_package_is_named(tmp_path, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"the export to ONNX needs onnx: pip install 'cwrnn\[onnx\]'"):
        to_onnx(ClockworkRNN(2, 4), tmp_path / "out", check=True)


def test_a_missing_runtime_is_named(tmp_path, monkeypatch):
    to_onnx(ClockworkRNN(2, 4), tmp_path / "out")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="OnnxStepper needs onnxruntime: pip install onnxruntime"):
        OnnxStepper(tmp_path / "out")
    with pytest.raises(ImportError, match=r"the export to ONNX needs onnxruntime: pip install 'cwrnn\[onnx\]'"):
        check_onnx(ClockworkRNN(2, 4))


def test_the_stepper_refuses_what_does_not_fit(tmp_path):
    to_onnx(make_layer("lstm", 2, NESTED), tmp_path / "lstm")
    to_onnx(make_layer("gru", 2, NESTED), tmp_path / "gru")
    lstm, gru = OnnxStepper(tmp_path / "lstm", batch=2), OnnxStepper(tmp_path / "gru")
    h = np.zeros((1, 2, 9))
    with pytest.raises(ValueError, match=r"input must have the shape \(2, 2\), got \(2, 3\)"):
        lstm.step(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="an LSTM needs c"):
        lstm.set_state(h, t=0)
    with pytest.raises(ValueError, match="only an LSTM has c"):
        gru.set_state(h, h, t=0)
    with pytest.raises(ValueError, match=r"c must have the shape \(1, 2, 9\), got \(1, 2, 8\)"):
        lstm.set_state(h, h[..., 1:], t=0)
    with pytest.raises(ValueError, match="t must be zero or greater, got -1"):
        lstm.set_state(h, h, t=-1)
    with pytest.raises(ValueError, match="batch and threads must be at least 1, got 0 and 1"):
        OnnxStepper(tmp_path / "gru", batch=0)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"periods": [1]}', "[" * 100_000, b"\xff"],
    ids=["empty", "list", "none", "few", "deep", "bytes"],
)
def test_the_stepper_refuses_a_file_that_describes_no_network(tmp_path, content):
    (tmp_path / "network.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=r"network.json does not describe a network that cwrnn exported to ONNX"):
        OnnxStepper(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": [3, 1, 2**40]}, "does not describe the model network_step_0.onnx beside it"),
        ({"sizes": [1, 2, 3]}, "does not describe the model network_step_1.onnx beside it"),
        ({"periods": [2, 4, 8]}, "does not describe the model network_step_1.onnx beside it"),
        ({"layers": 2**40}, "does not describe the model network_step_0.onnx beside it"),
        ({"cell": "gru"}, "does not describe the model network_step_0.onnx beside it"),
        ({"inputs": 3}, "does not describe the model network_step_0.onnx beside it"),
        ({"outputs": 7}, "does not describe the model network_step_0.onnx beside it"),
        ({"labels": ["one"]}, "does not describe a network"),
        ({"labels": "abcdef"}, "does not describe a network"),
        ({"periods": [7, 3, 2]}, "does not describe a network"),
    ],
)
def test_the_stepper_refuses_a_description_of_another_network(tmp_path, changes, message):
    to_onnx(make_layer("lstm", 2, NOT_NESTED), tmp_path / "out")
    path = tmp_path / "out" / "network.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message):
        OnnxStepper(tmp_path / "out")


def test_the_stepper_names_a_model_that_is_missing(tmp_path):
    to_onnx(make_layer("gru", 2, NESTED), tmp_path)
    (tmp_path / "network_step_2.onnx").unlink()
    with pytest.raises(FileNotFoundError, match="describes a network whose model network_step_2.onnx is missing"):
        OnnxStepper(tmp_path)


def test_the_command_writes_and_checks_a_recogniser(model, tmp_path, capsys):
    pytest.importorskip("typer")
    from cwrnn.commands.main import main

    out = tmp_path / "exported"
    assert main(["export", str(model), "--to", "onnx", "--name", "words", "--out", str(out), "--check", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [name.rsplit("/")[-1] for name in result["files"]] == sorted(
        (path.name for path in out.iterdir()), key=lambda name: (name == "stepper.py", name.endswith("json"), name)
    )
    assert result["check"]["error"] < 1e-4
    assert OnnxStepper(out, "words").labels == ["no", "née", "yes"]
    assert main(["export", str(model), "--to", "onnx", "--out", str(out)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
