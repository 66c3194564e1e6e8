"""The C program of a network in int8 computes the same integers on every machine, which are those of Python."""

import ctypes
import dataclasses
import shutil

import numpy as np
import pytest
import torch
import wasmtime
from support.exported_networks import WARNINGS, collect_hashes, compute_hashes, make_networks, write_integer_sources

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.export import ExportError
from cwrnn.export.c import integers
from cwrnn.export.c.calibration import judge, read_calibration, run_floats, run_integers
from cwrnn.export.c.check import compare_integers, load_program, quantise_rivals
from cwrnn.export.c.compilers import LIBRARY, compile_program, find_compiler, find_zig
from cwrnn.export.c.cost import count_steps, load_emulator, measure_cost
from cwrnn.export.c.emulator import TARGET, Emulator
from cwrnn.export.c.integer_plan import plan_integers
from cwrnn.export.c.quantisation import Ranges, bound_sums, make_table, quantise
from cwrnn.export.c.source import render_program
from cwrnn.export.model import read_model
from cwrnn.network import Network

M0 = (
    *("-target", "thumb-freestanding-eabi", "-mcpu=cortex_m0plus", "-nostdlib", "-static"),
    *("-ffunction-sections", "-Wl,--gc-sections"),
)
"""The options of zig cc for a Cortex-M0+. It has no floating point, and no library has it here: steps need none."""


def make_inputs(model, steps=400, seed=0):
    generator = np.random.default_rng(seed)
    return (generator.uniform(-2, 2, (steps, model.inputs)) * (1 + np.arange(model.inputs))).astype(np.float32)


def quantise_for(model, inputs):
    return quantise(model, run_floats(model, [inputs])[1])


@pytest.fixture(scope="module")
def plans():
    torch.set_num_threads(1)
    return {name: plan_integers(quantise_for(model, make_inputs(model))) for name, model in make_networks().items()}


@pytest.fixture(scope="module")
def sources(plans, tmp_path_factory):
    return write_integer_sources(plans, tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def hashes(plans, sources, tmp_path_factory):
    """The hashes of zig on this machine."""
    return compute_hashes(find_zig(), sources, plans, tmp_path_factory.mktemp("zig") / "here" / "all.so", steps=STEPS)


STEPS = 500


@pytest.mark.parametrize("name", list(make_networks()))
def test_integers_are_those_of_python(plans, name):
    plan = plans[name]
    steps, difference = compare_integers(plan, "network", find_compiler(), 600)
    assert (steps, difference) == (600, 0.0)


def test_idle_changes_no_bit(hashes):
    assert len({plain for plain, _ in hashes.values()}) == len(hashes)
    for name, (plain, with_idle) in hashes.items():
        assert plain == with_idle, name


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@pytest.mark.parametrize("option", ["-O0", "-O3"])
def test_gcc_computes_the_same_bits(plans, sources, hashes, tmp_path, option):
    found = compute_hashes(["gcc"], sources, plans, tmp_path / "here" / "all.so", option, steps=STEPS)
    assert found == hashes


@pytest.mark.parametrize("target", [TARGET, M0], ids=["M4", "M0+"])
def test_a_cortex_computes_the_same_bits(plans, sources, hashes, tmp_path, target):
    start = tmp_path / "start.c"
    calls = "".join(f"    hash_{name}(0, 0);\n" for name in plans)
    declarations = "".join(f"uint32_t hash_{name}(uint32_t steps, uint32_t idle);\n" for name in plans)
    start.write_text(f"#include <stdint.h>\n{declarations}void _start(void);\nvoid _start(void)\n{{\n{calls}}}\n")
    emulator = Emulator(
        compile_program(find_zig(), [start, *sources], tmp_path / "all.elf", *target, *WARNINGS), count=False
    )

    def call(name, steps, idle):
        return emulator.call(f"hash_{name}", steps, idle).result

    assert collect_hashes(plans, call, steps=STEPS) == hashes


def test_products_fit_where_int_has_16_bits(plans, sources, tmp_path):
    """No product of the source is one of int, which has 16 bits on an MSP430; places are unsigned."""
    options = ["-target", "msp430-freestanding", "-fno-sanitize=all", "-O0", "-S", "-emit-llvm"]
    for name in ("tanh_others", "relu_alone", "lstm_others", "gru_layers"):
        source = sources[list(plans).index(name)].with_name(f"{name}.c")
        code = compile_program(find_zig(), [source], tmp_path / f"{name}.ll", *options).read_text()
        assert "mul nsw i32" in code
        assert "mul nsw i16" not in code


def test_webassembly_computes_the_same_bits(plans, sources, hashes, tmp_path):
    exports = [f"-Wl,--export=hash_{name}" for name in plans]
    options = ["-target", "wasm32-freestanding", "-nostdlib", "-Wl,--no-entry", *exports]
    program = compile_program(find_zig(), sources, tmp_path / "all.wasm", *options)
    store = wasmtime.Store()
    functions = wasmtime.Instance(store, wasmtime.Module(store.engine, program.read_bytes()), []).exports(store)

    def call(name, steps, idle):
        return functions[f"hash_{name}"](store, steps, idle) % 2**32

    assert collect_hashes(plans, call, steps=STEPS) == hashes


@pytest.mark.parametrize("name", list(make_networks()))
def test_outputs_are_close_to_float32(plans, name):
    model, quantised = plans[name].model, plans[name].quantised
    inputs = make_inputs(model, seed=1)
    # networks that amplify errors differ more: the largest of these have three layers
    assert judge(quantised, read_calibration(model, inputs)).error < 0.03


@pytest.mark.parametrize("kind", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def test_steps_of_16_bits_are_almost_exact(kind):
    """Weights that need no rounding leave the errors of states, sums and tables, which are small."""
    torch.manual_seed(0)
    layer = kind(3, 16, schedule=[1, 2, 4])
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            # every row has a largest weight of 127 / 256, of which all others are a whole number of shares
            rounded = (256 * parameter / parameter.abs().max()).round().clamp(-126, 126) / 256
            parameter.copy_(rounded)
            if "weight" in name:
                parameter[:, -1] = 127 / 256
    model = read_model(layer)
    inputs = (np.random.default_rng(0).integers(-(2**14), 2**14, (300, 3)) / 2**13).astype(np.float32)
    outputs, ranges = run_floats(model, [inputs])
    quantised = quantise(model, Ranges((32767 / 2**14,) * 3, ranges.hidden, ranges.cells))
    exact, found = outputs[0], run_integers(quantised, [inputs])[0]
    assert np.abs(found - exact).max() < 2e-3


@pytest.mark.parametrize("kind", [ClockworkRNN, ClockworkGRU])
def test_divisions_have_no_bias(kind):
    torch.manual_seed(0)
    model = read_model(kind(4, 24, schedule=[1]))
    quantised = quantise(model, Ranges((1.0,) * 4, 1.0, 1.0))
    message, drive = quantised.layers[0].message, quantised.layers[0].drive
    generator = np.random.default_rng(0)
    sums = [(rows, generator.integers(-32768, 32768, (20_000, rows.weights.shape[1])) @ rows.weights.T)
            for rows in (message, drive)]  # fmt: skip
    found = sum((sum + rows.bias >> rows.shifts) * rows.factors for rows, sum in sums) / 2**quantised.fraction_bits
    exact = sum(sum * rows.unit for rows, sum in sums)
    # of the last gate, which for a GRU has two biases
    bias = model.layers[0].bias.reshape(-1, 24)[-1 if kind is ClockworkRNN else -2 :].sum(axis=0)
    difference = (found - exact)[:, -24:].mean(axis=0) - bias
    # without the halves that biases have, the mean would be as large as the last bit of a sum
    assert abs(difference.mean()) < 0.1 * message.factors.max() / 2**quantised.fraction_bits


def test_the_table_is_close_to_tanh():
    z = np.arange(-(2**30), 2**30, 99_991)
    for bits in (27, 25, 20):
        real = np.clip(z / 2.0**bits, -700, 700)
        assert np.abs(integers.tanh(z, bits) / 2**15 - np.tanh(real)).max() < 1.5e-4
        assert np.abs(integers.logistic(z, bits) / 2**15 - 1 / (1 + np.exp(-real))).max() < 1e-4
    assert make_table().max() == 2**15


def make_extreme(kind, scale, **options):
    torch.manual_seed(1)
    layer = kind(5, 24, schedule=[1, 2, 4], **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(scale)
        # a unit that hears nothing, and one with a bias alone
        layer.weight_hh_l0[::8] = 0
        layer.weight_ih_l0[::8] = 0
        layer.bias_l0[0] = 0
    return read_model(layer)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 20.0])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ClockworkRNN, {}),
        (ClockworkRNN, {"nonlinearity": "relu"}),
        (ClockworkLSTM, {"peepholes": True}),
        (ClockworkGRU, {}),
    ],
    ids=["tanh", "relu", "lstm", "gru"],
)
def test_nothing_overflows(kind, options, scale):
    model = make_extreme(kind, scale, **options)
    mixed = scale < 1 and "nonlinearity" not in options
    quantised = quantise(model, Ranges((3.0, 0.0, 1e-6, 1e6, 1.0) if mixed else (3.0,) * 5, 1.5 * scale, 1.5))
    for layer in quantised.layers:
        for rows in (layer.message, layer.drive):
            bound = bound_sums(rows)
            assert bound.max() < 2**31
            assert ((bound >> rows.shifts) * rows.factors).max() < 2**30
            assert rows.factors.max() < 2**15
            assert np.abs(rows.weights).max() <= 127
    # inputs that drive rows as far as they can go, to either side
    steps = np.sign(np.concatenate([quantised.layers[0].drive.weights, -quantised.layers[0].drive.weights])) * 32767
    with load_program(plan_integers(quantised), "network", find_compiler()) as program:
        output = program.run(steps.astype(np.int16), np.zeros(len(steps), np.uint8))
    np.testing.assert_array_equal(output, integers.compute_outputs(quantised, steps[:, None])[:, 0])


def test_wide_layers_have_smaller_weights():
    model = read_model(ClockworkRNN(1, 1200, schedule=[1], bias=False))
    layer = dataclasses.replace(model.layers[0], weight_hh=np.full((1200, 1200), 0.5, np.float32))
    message = quantise(dataclasses.replace(model, layers=(layer,)), Ranges((1.0,), 1.0, 1.0)).layers[0].message
    # 127 times 1200 units of 2^15 would not fit 32 bits
    assert 50 <= message.weights.min() <= message.weights.max() <= 54
    assert bound_sums(message).max() < 2**31


def test_weights_that_are_too_large_are_refused():
    with pytest.raises(ExportError, match="a unit may receive more than 1024"):
        quantise(make_extreme(ClockworkRNN, 3000.0), Ranges((3.0,) * 5, 1.0, 1.0))
    with pytest.raises(ExportError, match="times as much as it did in the calibration"):
        quantise(make_extreme(ClockworkRNN, 100.0, nonlinearity="relu"), Ranges((3.0,) * 5, 1e-4, 1.0))


def test_real_inputs_become_integers(tmp_path):
    plan = plan_integers(quantise(read_model(ClockworkRNN(3, 4)), Ranges((1.0, 100.0, 0.001), 1.0, 1.0)))
    for file, text in render_program(plan, "network").items():
        (tmp_path / file).write_text(text)
    library = ctypes.CDLL(str(compile_program(find_compiler(), [tmp_path / "network.c"], tmp_path / "n.so", *LIBRARY)))
    real = np.random.default_rng(0).standard_normal((2000, 3)).astype(np.float32) * np.float32([1, 100, 0.001])
    real[:4] = [[0, -0.0, 1], [9e9, -9e9, 0], [np.inf, -np.inf, 0], [2 / 32767, 3 * 100 / 32767, -1 / 32767e3]]
    expected = integers.quantise_inputs(plan.quantised, real)
    found = np.empty_like(real, np.int16)
    for row, quantised in zip(real, found, strict=True):
        library.network_quantise(*(ctypes.c_void_p(array.ctypes.data) for array in (row, quantised)))
    np.testing.assert_array_equal(found, expected)
    assert expected[2].tolist() == [32767, -32767, 0]
    assert expected[3].tolist() == [1, 2, -1]
    # NaN does no harm
    nothing, quantised = np.full(3, np.nan, np.float32), np.empty(3, np.int16)
    library.network_quantise(*(ctypes.c_void_p(array.ctypes.data) for array in (nothing, quantised)))
    assert quantised.tolist() == [-32767] * 3


def test_instructions_stay_below_their_bars(tmp_path):
    model = read_model(Network(ClockworkRNN(13, 102, schedule=6), 25))
    plan = plan_integers(quantise(model, Ranges((3.0,) * 13, 1.0, 1.0)))
    own = measure_cost(plan, "", count=True)
    dense = measure_cost(quantise_rivals(plan)["RNN, same units"], "", count=True)
    assert own.mean_instructions <= 5_500
    assert own.worst_instructions <= 12_500
    assert dense.mean_instructions >= 4.5 * own.mean_instructions
    assert own.constant_bytes <= 12_000
    assert own.code_bytes <= 2_000
    counts = count_steps(load_emulator(plan, tmp_path, M0), plan)
    assert np.mean(counts) <= 14_500


def test_the_program_fits_its_description(plans, tmp_path):
    for name in ("tanh_layers", "lstm_others", "gru_layers", "relu_alone"):
        plan = plans[name]
        # a compiler that optimises needs no table of equal numbers
        emulator = load_emulator(plan, tmp_path, (*TARGET, "-O0", "-fno-sanitize=all"))
        tables = (
            "weights_",
            "biases",
            "drive_biases",
            "scales",
            "tanh_table",
            "readout_",
            "network_input_factors",
            "peepholes",
        )
        size = sum(symbol.size for symbol_name, symbol in emulator.symbols.items() if symbol_name.startswith(tables))
        assert size == plan.constant_bytes
        assert emulator.symbols["state"].size == plan.state_bytes


def test_large_cells_leave_the_weights_their_bits():
    torch.manual_seed(0)
    model = read_model(ClockworkLSTM(3, 12, schedule=[1, 2], peepholes=True))
    for cells in (0.5, 50.0):
        (layer,) = quantise(model, Ranges((1.0,) * 3, 1.0, cells)).layers
        assert (np.abs(layer.message.weights).max(axis=1) == 127).all()
        assert np.abs(layer.message.peepholes).max() > 2**13
