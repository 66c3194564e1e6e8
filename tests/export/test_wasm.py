"""The module in WebAssembly has the bits of the C program, and streams do not disturb each other."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from support.html_pages import HOSTILE
from support.sound_files import make_voice
from support.wasm_modules import NativeIntegerNetwork, NativeNetwork, WasmNetwork, hash_outputs

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.commands.main import main
from cwrnn.experiments.errors import ArgumentError
from cwrnn.export import ExportError, to_c, to_wasm
from cwrnn.export.wasm import compiler
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork

LARGEST = 50_000
"""The most bytes of a module with 102 units in 6 modules, 13 inputs and 25 outputs."""

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def make_network(seed=0, inputs=13, units=102, outputs=25, layer=ClockworkRNN, **options):
    torch.manual_seed(seed)
    return Network(layer(inputs, units, **{"schedule": 6} | options), outputs)


def run_wasm(network, folder, name="net"):
    result = to_wasm(network, folder, name=name)
    return WasmNetwork(result.files[0].read_bytes(), result.inputs, result.outputs), result


NETWORKS = {
    "paper": ({}, 10_000),
    "relu": ({"inputs": 2, "units": 19, "outputs": 3, "schedule": 4, "nonlinearity": "relu"}, 500),
    "no inputs": ({"inputs": 0, "units": 20, "outputs": 1, "schedule": 4}, 500),
    "lstm": ({"layer": ClockworkLSTM, "inputs": 3, "units": 14, "schedule": [1, 3, 4], "peepholes": True}, 500),
    "gru": ({"layer": ClockworkGRU, "inputs": 3, "units": 14, "schedule": 3, "num_layers": 2}, 500),
}


@pytest.mark.parametrize(("options", "steps"), NETWORKS.values(), ids=NETWORKS)
def test_the_module_has_the_bits_of_the_c_program(tmp_path, options, steps):
    network = make_network(**options)
    wasm, _ = run_wasm(network, tmp_path / "wasm")
    source = to_c(network, tmp_path / "c", name="net").files[1]
    native = NativeNetwork(source, "net", wasm.inputs, wasm.outputs)
    assert hash_outputs(wasm, steps) == hash_outputs(native, steps)


def test_the_module_has_the_bits_of_the_c_program_in_int8(tmp_path):
    network, options = make_network(), {"name": "net", "numbers": "int8"}
    calibration = np.random.default_rng(1).normal(0, 1, (200, 13)).astype(np.float32)
    result = to_wasm(network, tmp_path / "wasm", calibration=calibration, **options)
    wasm = WasmNetwork(result.files[0].read_bytes(), 13, 25)
    source = to_c(network, tmp_path / "c", calibration=calibration, **options).files[1]
    assert hash_outputs(wasm, 1000) == hash_outputs(NativeIntegerNetwork(source, "net", 13, 25), 1000)
    assert result.size < 20_000
    assert result.to_dict()["quantisation"]["error"] < 0.02
    assert "int8, calibrated" in str(result)


def test_a_network_without_inputs_runs_in_int8(tmp_path):
    network = make_network(inputs=0, units=20, outputs=2, schedule=3)
    exact, _ = run_wasm(network, tmp_path / "float32")
    result = to_wasm(network, tmp_path / "int8", numbers="int8", calibration=np.zeros((50, 0), np.float32))
    wasm = WasmNetwork(result.files[0].read_bytes(), 0, 2)
    for _ in range(30):
        exact.step([])
        wasm.step([])
    np.testing.assert_allclose(wasm.output(), exact.output(), atol=0.02)


def test_the_module_computes_what_the_network_does(tmp_path, close):
    network = make_network(units=30, inputs=4, outputs=3, schedule=3)
    wasm, _ = run_wasm(network, tmp_path / "wasm")
    rows = torch.randn(40, 1, 4)
    outputs = []
    for row in rows[:, 0]:
        wasm.step(row)
        outputs.append(torch.from_numpy(wasm.output().copy()))
    with torch.no_grad():
        close(torch.stack(outputs), network(rows)[:, 0])


def test_the_module_is_small_and_stands_alone(tmp_path):
    wasm, result = run_wasm(make_network(), tmp_path / "out")
    assert result.size == result.files[0].stat().st_size <= LARGEST
    assert wasm.module.imports == []
    # no names of functions
    assert b"add_product" not in result.files[0].read_bytes()
    assert sorted(export.name for export in wasm.module.exports) == [
        "close", "idle", "input", "memory", "open", "output", "reset", "step",
    ]  # fmt: skip


def test_idle_changes_no_bit(tmp_path):
    wasm, _ = run_wasm(make_network(units=30), tmp_path / "out")
    rows = np.random.default_rng(0).normal(0, 1, (40, 13))
    other = wasm.call("open")
    for row in rows:
        wasm.step(row)
        wasm.call("idle", other)
        wasm.step(row, other)
        np.testing.assert_array_equal(wasm.output(), wasm.output(other))


def test_streams_do_not_disturb_each_other_and_their_memory_is_used_again(tmp_path):
    wasm, _ = run_wasm(make_network(), tmp_path / "out")
    fresh = wasm.output().copy()
    # enough that the memory must grow
    streams = [wasm.call("open") for _ in range(200)]
    assert len({wasm.stream, *streams}) == 201
    gap = min(np.diff(sorted(streams)))
    assert gap >= 4 * 102
    row = np.ones(13)
    wasm.step(row, streams[-1])
    wasm.step(row, streams[3])
    stepped = wasm.output(streams[-1])
    np.testing.assert_array_equal(stepped, wasm.output(streams[3]))
    assert not np.array_equal(stepped, fresh)
    for stream in (wasm.stream, streams[2], streams[4], streams[-2]):
        np.testing.assert_array_equal(wasm.output(stream), fresh)
    wasm.call("close", streams[3])
    assert wasm.call("open") == streams[3]
    np.testing.assert_array_equal(wasm.output(streams[3]), fresh)


SCRIPT = """
import { load } from %s;
import { readFileSync } from "node:fs";
const net = await load(readFileSync(%s));
const catchError = (action) => { try { action(); } catch (error) { return `${error.name}: ${error.message}`; } };
const row = new Float32Array(4).fill(0.5);
net.step(row);
const first = net.output();
const streams = Array.from({ length: 3000 }, () => net.open());
streams[2999].step(row);
const result = {
  labels: net.labels, first: Array.from(first), again: Array.from(net.output()),
  last: Array.from(streams[2999].output()),
  short: catchError(() => net.step([1])),
};
streams[7].close();
result.closed = catchError(() => streams[7].step(row));
result.twice = catchError(() => streams[7].close());
net.reset();
result.reset = Array.from(net.output());
result.fresh = Array.from(net.open().output());
console.log(JSON.stringify(result));
"""


@needs_node
def test_the_wrapper_steps_streams_in_node(tmp_path):
    wasm, result = run_wasm(make_network(inputs=4, units=30, outputs=3), tmp_path / "out")
    found = run_node(SCRIPT, tmp_path, result.files[1], result.files[0])
    assert found["labels"] == []
    fresh = wasm.output().tolist()
    wasm.step([0.5] * 4)
    assert found["first"] == found["again"] == found["last"] == wasm.output().tolist()
    assert found["reset"] == found["fresh"] == fresh
    assert found["short"] == "RangeError: expected 4 numbers, got 1"
    assert found["closed"] == found["twice"] == "Error: this stream is closed"


HEARING = """
import { load } from %s;
import { readFileSync } from "node:fs";
const net = await load(readFileSync(%s));
const sound = new Int16Array(new Uint8Array(readFileSync(%s)).buffer);
let frames = 0, error;
net.hear(sound, () => frames++);
const whole = Array.from(net.output());
net.reset();
for (let start = 0; start < sound.length; start += 77) net.hear(sound.subarray(start, start + 77));
try { net.hear(new Float32Array(3)); } catch (problem) { error = `${problem.name}: ${problem.message}`; }
console.log(JSON.stringify({ frames, whole, parts: Array.from(net.output()), labels: net.labels, error }));
"""


def hear_voice(wasm):
    """Return samples, and the number of frames that the module has heard when it has heard them."""
    samples = np.rint(32768 * make_voice(3, 6000)).astype(np.int16)
    return samples, sum(wasm.call("hear", wasm.stream, int(sample)) for sample in samples)


def test_a_recogniser_hears_what_python_hears(recogniser, tmp_path):
    wasm, _ = run_wasm(recogniser, tmp_path / "out")
    samples, frames = hear_voice(wasm)
    assert frames == 1 + (6000 - 400) // 160
    expected = dict(recogniser.recognise(samples / 32768, 16000))
    found = torch.from_numpy(wasm.output().copy()).softmax(0).tolist()
    assert dict(zip(recogniser.words, found, strict=True)) == pytest.approx(expected, abs=1e-4)


@needs_node
def test_the_wrapper_hears_sound_in_chunks_of_any_length(recogniser, tmp_path):
    wasm, result = run_wasm(recogniser, tmp_path / "out")
    samples, frames = hear_voice(wasm)
    (tmp_path / "sound").write_bytes(samples.tobytes())
    in_node = run_node(HEARING, tmp_path, result.files[1], result.files[0], tmp_path / "sound")
    assert in_node["whole"] == in_node["parts"] == wasm.output().tolist()
    assert in_node["frames"] == frames
    assert in_node["labels"] == list(recogniser.words)
    assert in_node["error"] == "TypeError: expected the samples as an Int16Array"


def run_node(script, folder, *paths):
    """Run a script with the paths in place of each %s, and return what it prints."""
    (folder / "script.mjs").write_text(script % tuple(json.dumps(str(path)) for path in paths))
    process = subprocess.run(["node", folder / "script.mjs"], capture_output=True, text=True, check=True)
    return json.loads(process.stdout)


@needs_node
def test_the_javascript_of_the_documents_runs(recogniser, tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "howto" / "deploy.md").read_text(encoding="utf-8")
    (script,) = re.findall(r"^```js\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    to_wasm(recogniser, tmp_path / "out", name="words")
    (tmp_path / "out" / "script.mjs").write_text(script)
    process = subprocess.run(["node", "script.mjs"], cwd=tmp_path / "out", capture_output=True, text=True, check=True)
    # the frames of a second, the other stream, and the labels
    assert process.stdout.count("Float32Array(3)") == 98 + 1
    assert f"[ {', '.join(map(repr, recogniser.words))} ]" in process.stdout


def test_the_wrapper_is_short(tmp_path):
    _, result = run_wasm(make_network(), tmp_path / "out")
    lines = [line for line in result.files[1].read_text().splitlines() if not line.lstrip().startswith("//")]
    assert len(lines) <= 45


def test_the_result_describes_itself(tmp_path):
    result = to_wasm(make_network(units=12, schedule=2), tmp_path / "out", name="small")
    assert [path.name for path in result.files] == ["small.wasm", "small.js", "small.html"]
    assert sorted(tmp_path.joinpath("out").iterdir()) == sorted(result.files)
    assert json.loads(json.dumps(result.to_dict()))["size"] == result.size
    assert f"small.wasm has {result.size:,} bytes" in str(result)
    # the same network has the same bytes
    again = to_wasm(make_network(units=12, schedule=2), tmp_path / "again", name="small")
    assert [path.read_bytes() for path in again.files] == [path.read_bytes() for path in result.files]


def test_the_command_writes_the_files(tmp_path, capsys):
    SavedNetwork("generation", "cw", make_network(units=12, schedule=2)).save(tmp_path / "net.safetensors")
    command = ["export", str(tmp_path / "net.safetensors"), "--to", "wasm", "--name", "net", "--json"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [Path(file).name for file in result["files"]] == ["net.wasm", "net.js", "net.html"]
    assert result["size"] == (tmp_path / "out" / "net.wasm").stat().st_size
    assert main([*command, "--check", "--out", str(tmp_path / "other")]) == 2
    assert "works with --to c and --to onnx, got --to wasm" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "2nd"}, "name: expected a C identifier"),
        ({"name": HOSTILE}, "name: expected a C identifier"),
        ({"numbers": "int3"}, "numbers: expected one of float32"),
        ({"out": "full"}, "out: .*full exists and is not empty"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(tmp_path, options, message):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    out = tmp_path / options.pop("out", "out")
    with pytest.raises(ArgumentError, match=message):
        to_wasm(make_network(units=12), out, **options)
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "mine.txt"]


def test_without_a_compiler_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(compiler.shutil, "which", lambda name: None)
    with pytest.raises(ExportError, match=r"cwrnn\[export\]"):
        to_wasm(make_network(units=12), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("targets", "found"), [("x86-64\nwasm32", True), ("x86-64", False)])
def test_clang_is_taken_if_it_has_the_target(tmp_path, monkeypatch, targets, found):
    for name in ("clang", "wasm-ld"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{targets}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(compiler.shutil, "which", lambda name: str(tmp_path / name) if name != "zig" else None)
    if found:
        assert compiler.find_compiler()[:2] == [str(tmp_path / "clang"), "--target=wasm32"]
    else:
        with pytest.raises(ExportError, match="wasm32"):
            compiler.find_compiler()


def test_what_the_compiler_refuses_is_reported():
    with pytest.raises(ExportError, match=r"(?s)wasm32.* failed with exit status 1:.*error: "):
        compiler.compile_module({"a.c": "int f(void) { return missing; }"})
