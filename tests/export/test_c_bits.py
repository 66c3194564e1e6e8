"""The C program of a network computes the same bits on every machine, and what Python computes."""

import shutil

import numpy as np
import pytest
import torch
import wasmtime
from support.exported_networks import WARNINGS, collect_hashes, compute_hashes, make_networks, write_sources

from cwrnn import ClockworkRNN
from cwrnn.export.c.check import load_program
from cwrnn.export.c.compilers import compile_program, find_compiler, find_zig
from cwrnn.export.c.emulator import TARGET, Emulator
from cwrnn.export.c.plan import plan_network
from cwrnn.export.model import read_model
from cwrnn.export.running import compute_outputs


@pytest.fixture(scope="module")
def models():
    return make_networks()


@pytest.fixture(scope="module")
def sources(models, tmp_path_factory):
    return write_sources(models, tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def hashes(models, sources, tmp_path_factory):
    """The hashes of zig on this machine."""
    path = tmp_path_factory.mktemp("zig") / "here" / "all.so"
    return compute_hashes(find_zig(), sources, models, path)


def test_idle_changes_no_bit(hashes):
    assert len({plain for plain, _ in hashes.values()}) == len(hashes)
    for name, (plain, with_idle) in hashes.items():
        assert plain == with_idle, name


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("option", ["-O0", "-O3"])
def test_gcc_computes_the_same_bits(models, sources, hashes, tmp_path, option):
    assert compute_hashes(["gcc"], sources, models, tmp_path / "here" / "all.so", option) == hashes


def test_a_cortex_m4_computes_the_same_bits(models, sources, hashes, tmp_path):
    start = tmp_path / "start.c"
    calls = "".join(f"    hash_{name}(0, 0);\n" for name in models)
    declarations = "".join(f"uint32_t hash_{name}(uint32_t steps, uint32_t idle);\n" for name in models)
    start.write_text(f"#include <stdint.h>\n{declarations}void _start(void);\nvoid _start(void)\n{{\n{calls}}}\n")
    emulator = Emulator(
        compile_program(find_zig(), [start, *sources], tmp_path / "all.elf", *TARGET, *WARNINGS), count=False
    )

    def call(name, steps, idle):
        return emulator.call(f"hash_{name}", steps, idle).result

    assert collect_hashes(models, call) == hashes


def test_webassembly_computes_the_same_bits(models, sources, hashes, tmp_path):
    exports = [f"-Wl,--export=hash_{name}" for name in models]
    options = ["-target", "wasm32-freestanding", "-nostdlib", "-Wl,--no-entry", *exports]
    program = compile_program(find_zig(), sources, tmp_path / "all.wasm", *options)
    store = wasmtime.Store()
    module = wasmtime.Module(store.engine, program.read_bytes())
    functions = wasmtime.Instance(store, module, []).exports(store)

    def call(name, steps, idle):
        return functions[f"hash_{name}"](store, steps, idle) % 2**32

    assert collect_hashes(models, call) == hashes


@pytest.mark.parametrize("name", list(make_networks()))
def test_outputs_are_those_of_python(models, name, close):
    model = models[name]
    generator = np.random.default_rng(1)
    input = generator.uniform(-2, 2, (500, model.inputs)).astype(np.float32)
    with load_program(model, "network", find_compiler()) as program:
        output = program.run(input, generator.integers(0, 3, len(input)).astype(np.uint8))
    assert np.abs(output).max() > 0.1
    close(torch.from_numpy(output), torch.from_numpy(compute_outputs(model, input)).float())


@pytest.mark.parametrize(("period", "bits"), [(65535, 16), (65536, 32)])
def test_no_clock_overflows(period, bits, close):
    layer = ClockworkRNN(1, 4, schedule=f"3:2,{period}:2")
    with torch.no_grad():
        layer.weight_hh_l0.mul_(1.5)
    model = read_model(layer)
    assert plan_network(model).clock_bits == bits
    input = np.random.default_rng(0).uniform(-2, 2, (period + 10, 1)).astype(np.float32)
    with load_program(model, "network", find_compiler()) as program:
        output = program.run(input, np.zeros(len(input), np.uint8))
    expected = compute_outputs(model, input)
    assert np.abs(output[period] - output[period - 1])[2:].min() > 1e-3
    close(torch.from_numpy(output), torch.from_numpy(expected).float())
