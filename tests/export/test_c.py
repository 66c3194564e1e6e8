"""The export to C: what is written, what is refused, and the parts of the program that need no network."""

import ctypes
import dataclasses
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from support.exported_networks import WARNINGS

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.commands.main import main
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.words.features import FeatureSettings
from cwrnn.export import ExportError, check_c, to_c
from cwrnn.export.c import check, compilers
from cwrnn.export.c.check import load_program
from cwrnn.export.c.compilers import LIBRARY, compile_program, find_compiler, find_zig
from cwrnn.export.c.plan import plan_network
from cwrnn.export.c.source import plan_program, render_network, render_program
from cwrnn.export.model import Features, read_model
from cwrnn.export.running import compute_outputs
from cwrnn.network import Network
from cwrnn.saved import ModelError, SavedNetwork

LABELS = (
    "plain",
    'a "quoted" word',
    "back\\slash",
    "what??/now??)",
    "caf\u00e9 \u732b",
    "tab\tline\n",
    "7\x018",
    "%d",
    "",
)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.safetensors"
    SavedNetwork("generation", "cw", Network(ClockworkRNN(3, 12, schedule=[1, 2, 4]), 2)).save(path)
    return path


def load_library(texts, folder):
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    sources = [folder / file for file in texts if file.endswith(".c")]
    return ctypes.CDLL(str(compile_program(find_compiler(), sources, folder / "library.so", *LIBRARY, *WARNINGS)))


def test_two_files_are_written_and_described(tmp_path):
    result = to_c(Network(ClockworkRNN(13, 102, schedule=6), 25), tmp_path / "out", name="word_model")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["word_model.c", "word_model.h"]
    header, source = (path.read_text(encoding="ascii") for path in result.files)
    assert (result.inputs, result.outputs) == (13, 25)
    # as many as Schedule.operations counts, but never 7,395 at once
    assert (round(result.mean_multiply_adds), result.worst_multiply_adds) == (1519, 3060)
    assert (result.readout_multiply_adds, result.constant_bytes, result.state_bytes) == (2550, 4 * 10072, 1856)
    for text in (header, source):
        assert "3,060" in text
        assert "1,856 bytes" in text
        assert "word_model_step(&state, input);" in text
        # the schedule, drawn
        assert " 32    17      #...............................#..............................." in text
    assert "malloc" not in source
    assert source.count("#include") == header.count("#include") == 1
    assert json.loads(json.dumps(result.to_dict()))["files"] == [str(path) for path in result.files]
    assert "3,060 at most; readout: 2,550" in str(result)


def test_the_worst_step_of_a_long_cycle_is_an_upper_bound():
    plan = plan_network(read_model(ClockworkRNN(1, 6, schedule="97:2,89:2,83:2")))
    assert not plan.has_exact_worst
    assert plan.worst_multiply_adds == 6 + 2 * 2 * 6


@pytest.mark.parametrize("compiler", [find_compiler(), find_zig()], ids=["host", "zig"])
def test_labels_survive(compiler, tmp_path):
    model = dataclasses.replace(read_model(ClockworkRNN(1, len(LABELS))), labels=LABELS)
    library = load_library(render_network(plan_network(model), "network"), tmp_path)
    labels = (ctypes.c_char_p * len(LABELS)).in_dll(library, "network_labels")
    assert tuple(label.decode("utf-8") for label in labels) == LABELS


@pytest.mark.parametrize("label", ["a\0b", "x" * 4096], ids=["NUL", "long"])
def test_labels_that_c_cannot_hold_are_refused(label):
    model = dataclasses.replace(read_model(ClockworkRNN(1, 1, schedule=1)), labels=(label,))
    with pytest.raises(ExportError, match="a label must"):
        render_network(plan_network(model), "network")


def test_tanh_is_close_everywhere(tmp_path):
    texts = render_network(plan_network(read_model(ClockworkLSTM(1, 2))), "network")
    texts["all.c"] = """#include "network.c"
void apply(uint32_t count, const float *x, float *y, float *z);
void apply(uint32_t count, const float *x, float *y, float *z)
{
    uint32_t i;
    for (i = 0; i < count; i++) {
        y[i] = tanh_of(x[i]);
        z[i] = logistic_of(x[i]);
    }
}
"""
    (tmp_path / "network.c").write_text(texts.pop("network.c"))
    library = load_library(texts, tmp_path)
    x = np.concatenate([np.linspace(-12, 12, 400_001), np.geomspace(1e-38, 1e38, 4001), [np.inf, -np.inf, 0.0]])
    x = x.astype(np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    library.apply(len(x), *(ctypes.c_void_p(array.ctypes.data) for array in (x, y, z)))
    exact = np.tanh(x.astype(np.float64))
    assert np.abs(y - exact).max() <= 4e-7
    assert np.abs(z - (1 + np.tanh(0.5 * x.astype(np.float64))) / 2).max() <= 3e-7
    assert np.abs(y).max() == 1.0
    assert (z.min(), z.max()) == (0.0, 1.0)
    small = np.abs(x) < 1e-3
    assert np.abs(y[small] - x[small]).max() <= 1e-9
    nothing = np.array([np.nan], np.float32)
    library.apply(1, *(ctypes.c_void_p(array.ctypes.data) for array in (nothing, y, z)))
    assert np.isnan([y[0], z[0]]).all()


def test_streams_do_not_disturb_each_other(tmp_path):
    model = read_model(ClockworkGRU(1, 5, schedule="1:2,2:3"))
    library = load_library(render_network(plan_network(model), "network"), tmp_path)
    size = plan_network(model).state_bytes
    states = [ctypes.create_string_buffer(size) for _ in range(3)]
    for state in states:
        library.network_reset(state)
    saved = None
    for t in range(7):
        for number, state in enumerate(states[:2]):
            library.network_step(state, (ctypes.c_float * 1)(np.sin(t + number)))
        if t == 2:
            # a copy continues where the stream was
            states[2].raw = states[0].raw
            library.network_idle(states[2])
        if t > 2:
            library.network_step(states[2], (ctypes.c_float * 1)(np.sin(t)))
        saved = [_read_output(library, state) for state in states]
    assert saved[0] == saved[2]
    assert saved[0] != saved[1]


def _read_output(library, state):
    output = (ctypes.c_float * 5)()
    library.network_output(state, output)
    return list(output)


def test_a_header_is_good_for_cpp(tmp_path):
    to_c(ClockworkRNN(0, 4), tmp_path / "out")
    (tmp_path / "main.cpp").write_text('#include "out/network.h"\nint size() { return (int)sizeof(network_state); }\n')
    # without an operating system, zig needs no C++ library, which it would build for minutes
    options = ["-target", "thumb-freestanding-eabihf", "-std=c++11", "-Wall", "-Wextra", "-pedantic", "-Werror", "-c"]
    subprocess.run([*find_zig(), *options, "main.cpp", "-o", "main.o"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    "name", ["", "2nd", "a-b", "_net", "int", "class", "é", "stdint", "STDINT", "AUX", "a" * 41, None, "x\n"]
)
def test_names_that_c_cannot_use_are_refused(tmp_path, name):
    with pytest.raises(ArgumentError, match="name: expected"):
        to_c(ClockworkRNN(1, 4), tmp_path / "out", name=name)
    assert not (tmp_path / "out").exists()


def test_other_numbers_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="numbers: expected one of float32"):
        to_c(ClockworkRNN(1, 4), tmp_path / "out", numbers="float16")
    with pytest.raises(ArgumentError, match="numbers: expected one of float32"):
        check_c(ClockworkRNN(1, 4), numbers="float16")


def test_only_a_new_folder_is_written(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ArgumentError, match="full exists and is not empty: name a new folder"):
        to_c(ClockworkRNN(1, 4), tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["notes.txt"]
    with pytest.raises(ArgumentError, match=r"notes\.txt is a file"):
        to_c(ClockworkRNN(1, 4), tmp_path / "full" / "notes.txt")
    (tmp_path / "empty").mkdir()
    to_c(ClockworkRNN(1, 4), tmp_path / "empty")
    to_c(ClockworkRNN(1, 4), tmp_path / "deep" / "new")


def test_models_that_cannot_be_exported_leave_no_folder(tmp_path):
    with pytest.raises(ExportError, match="bidirectional"):
        to_c(ClockworkRNN(1, 4, bidirectional=True), tmp_path / "out")
    (tmp_path / "bad.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError):
        to_c(tmp_path / "bad.safetensors", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_layers_of_different_cells_are_refused():
    layers = read_model(ClockworkRNN(1, 4)).layers + read_model(ClockworkGRU(4, 4)).layers
    with pytest.raises(ExportError, match="all layers must have the same cell, got gru, tanh"):
        plan_network(dataclasses.replace(read_model(ClockworkRNN(1, 4)), layers=layers))


def test_a_check_compares_measures_and_leaves_nothing(saved, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    reports = []
    result = check_c(saved, steps=200, progress=reports.append)
    assert list((tmp_path / "temporary").iterdir()) == []
    assert result.steps == 200
    assert 0 < result.difference < 1e-6
    assert [cost.network for cost in result.costs] == [
        "this network",
        "RNN, same units",
        "RNN, same parameters",
        "LSTM, same parameters",
        "GRU, same parameters",
    ]
    own, dense, *_ = result.costs
    assert own.mean_instructions < dense.mean_instructions
    assert own.parameters == 3 * 12 + 4 * 4 * 6 + 12 + 2 * 13
    assert json.loads(json.dumps(result.to_dict()))["costs"][0]["code_bytes"] == own.code_bytes
    assert f"{own.mean_instructions:,.0f}" in str(result)
    assert [report.done for report in reports] == list(range(6))


def test_a_check_without_an_emulator_counts_multiply_adds(saved, monkeypatch):
    monkeypatch.setattr(check, "can_count", lambda: False)
    result = check_c(saved, steps=10)
    assert all(cost.mean_instructions is None for cost in result.costs)
    assert "pip install 'cwrnn[export]'" in " ".join(str(result).split())


def test_a_check_notices_a_difference(saved, monkeypatch):
    monkeypatch.setattr(check, "compute_outputs", lambda model, stream, dtype=None: np.ones((len(stream), 2)))
    with pytest.raises(ExportError, match="differs from Python by .* over 50 steps"):
        check_c(saved, steps=50)


def test_a_check_without_a_compiler_names_the_extra(saved, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compilers.shutil, "which", lambda name: None)
    monkeypatch.setattr(compilers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"pip install 'cwrnn\[export\]'"):
        check_c(saved)
    with pytest.raises(ImportError, match=r"pip install 'cwrnn\[export\]'"):
        find_zig()
    monkeypatch.setenv("CC", 'gcc "')
    with pytest.raises(ExportError, match="CC is no command: No closing quotation: 'gcc \"'"):
        check_c(saved)
    monkeypatch.setenv("CC", "no-such-compiler -m32")
    with pytest.raises(ExportError, match="CC names no compiler that can be found: 'no-such-compiler -m32'"):
        check_c(saved)


def test_a_compiler_that_fails_is_quoted(saved, monkeypatch, tmp_path):
    monkeypatch.setenv("CC", " ".join([*find_zig(), "--no-such-option"]))
    with pytest.raises(ExportError, match="failed with exit status 1:\n.*no-such-option"):
        check_c(saved)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 3\n")
    silent.chmod(0o755)
    monkeypatch.setenv("CC", str(silent))
    with pytest.raises(ExportError, match="failed with exit status 3:\nit printed nothing"):
        check_c(saved)


def test_a_compiler_for_another_machine_is_refused(saved, monkeypatch):
    monkeypatch.setenv("CC", " ".join([*find_zig(), "-target", "riscv64-linux-musl"]))
    with pytest.raises(ExportError, match="the program of CC=.*riscv64-linux-musl does not run on this machine: the "):
        check_c(saved)


def test_the_command_writes_prints_and_checks(saved, tmp_path, capsys):
    assert main(["export", str(saved), "--to", "c", "--out", str(tmp_path / "a"), "--name", "wave", "--check"]) == 0
    printed = capsys.readouterr().out
    assert printed.splitlines()[:2] == [str(tmp_path / "a" / "wave.h"), str(tmp_path / "a" / "wave.c")]
    assert "GRU, same parameters" in printed
    assert main(["export", str(saved), "--to", "c", "--out", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"][1] == str(tmp_path / "b" / "network.c")
    arguments = ["export", str(saved), "--to", "c", "--out", str(tmp_path / "c"), "--json", "--check", "--quiet"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["check"]["steps"] == 10_000


def test_the_c_code_of_the_documents_compiles(tmp_path):
    features = Features(FeatureSettings(), np.zeros(13), np.ones(13))
    recogniser = dataclasses.replace(read_model(Network(ClockworkRNN(13, 8), 2)), features=features)
    (tmp_path / "out").mkdir()
    for file, text in render_network(plan_network(recogniser), "word_model").items():
        (tmp_path / "out" / file).write_text(text)
    pages = (Path(__file__).parents[2] / "docs").rglob("*.md")
    blocks = [block for page in pages for block in re.findall(r"^```c\n(.*?)^```", page.read_text(), re.DOTALL | re.M)]
    assert blocks
    for block in blocks:
        (tmp_path / "out" / "main.c").write_text(block)
        compile_program(find_compiler(), [tmp_path / "out" / "main.c"], tmp_path / "main.o", "-c", *WARNINGS)


@pytest.mark.parametrize("inputs", ["none", "numbers", "sounds"])
@pytest.mark.parametrize("numbers", ["float32", "int8"])
def test_the_example_in_the_header_compiles(tmp_path, inputs, numbers):
    model = read_model(Network(ClockworkRNN(0 if inputs == "none" else 13, 8), 2))
    if inputs == "sounds":
        features = Features(FeatureSettings(), np.zeros(13), np.ones(13))
        model = dataclasses.replace(model, features=features)
    calibration = None if numbers == "float32" or inputs == "none" else np.ones((9, 13))
    texts = render_program(plan_program(model, numbers, calibration)[0], "network")
    _, _, rest = texts["network.h"].partition("How to call it:")
    example = "\n".join(line.removeprefix(" *") for line in rest.partition("*/")[0].splitlines())
    for gap, code in (("... // wait for the sample", "sample = 1;"), ("... // wait for the input", "input[0] = 1;")):
        example = example.replace(gap, code)
    assert "..." not in example
    (tmp_path / "network.h").write_text(texts["network.h"])
    (tmp_path / "main.c").write_text(f'#include "network.h"\nint main(void)\n{{\n{example}\n}}\n')
    compile_program(find_compiler(), [tmp_path / "main.c"], tmp_path / "main.o", "-c", *WARNINGS)


def test_the_firmware_of_the_example_runs(tmp_path):
    folder = tmp_path / "microcontroller"
    example = Path(__file__).parents[2] / "examples" / "microcontroller"
    names = ("Makefile", "make_model.py", "main.c", "start.c", "link.ld", "emulate.py")
    folder.mkdir()
    for name in names:
        shutil.copy(example / name, folder)
    command = ["make", "--silent", "run", f"PYTHON={sys.executable}"]
    # a network of the user, whose file is older than everything that is made from the first network
    own = folder / "model.safetensors"
    torch.manual_seed(1)
    SavedNetwork("regression", "cw", Network(ClockworkRNN(2, 24, schedule=[1, 2, 4, 8]), 1)).save(own)
    for model, options in ((folder / "build" / "random.safetensors", []), (own, [f"MODEL={own.name}"])):
        result = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        # the export prints the lines before
        assert result.stdout.splitlines()[-40:] == compute_lines(model)
    subprocess.run(["make", "--silent", "clean"], cwd=folder, check=True)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, own.name])


def compute_lines(path):
    """The lines that the firmware of the example writes, from the same program on this machine."""
    input = ((np.arange(40)[:, None] * [1, 2] % 16 - 8) / 8).astype(np.float32)
    with load_program(read_model(path), "network", find_compiler()) as program:
        output = program.run(input, np.zeros(40, np.uint8))
    np.testing.assert_allclose(output, compute_outputs(read_model(path), input), atol=1e-6)
    return [str(int(np.float32(1e6) * number)) for number in output[:, 0]]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "rust", "--out", "new"], 2, "--to: expected one of c"),
        (["--to", "c", "--out", "."], 2, "--out: . exists and is not empty"),
        (["--to", "c", "--out", "new", "--name", "for"], 2, "--name: expected a name that is no keyword"),
        (["--to", "c", "--out", "new", "--numbers", "int4"], 2, "--numbers: expected one of float32"),
    ],
)
def test_the_command_refuses_wrong_options(saved, tmp_path, monkeypatch, capsys, arguments, code, message):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(saved), *arguments]) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()
