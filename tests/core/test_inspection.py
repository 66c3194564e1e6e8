"""Inspection measures the known memory, spectrum and importance of modules with weights set by hand."""

import math

import numpy as np
import pytest
import torch
from support.rnn_pairs import MAKERS
from torch import nn

from cwrnn import ClockworkRNN, Schedule
from cwrnn.inspection import (
    Memory,
    compute_outputs,
    compute_states,
    count_operations,
    held_noise_density,
    inspect,
    measure_memory,
    measure_spectrum,
    measure_weights,
    silence_modules,
)

ODD = Schedule((1, 3, 4), (3, 2, 2))


def set_by_hand(schedule, *, recurrent=0.0, from_input=0.0, bias=0.0, inputs=1, nonlinearity="relu", **options):
    """A layer with these weights, given as numbers or arrays."""
    layer = ClockworkRNN(inputs, schedule.hidden_size, nonlinearity=nonlinearity, schedule=schedule,
                         dtype=torch.float64, **options)  # fmt: skip
    values = {"weight_hh_l0": recurrent, "weight_ih_l0": from_input, "bias_l0": bias}
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(torch.as_tensor(values[name], dtype=torch.float64).expand_as(parameter))
    layer.clear_forbidden_weights()
    return layer


CELLS = pytest.mark.parametrize("cell", MAKERS)


def random_layer(schedule=ODD, inputs=2, cell="tanh", **options):
    torch.manual_seed(1)
    return MAKERS[cell](inputs, schedule.hidden_size, schedule=schedule, dtype=torch.float64, **options)


def sequences(*lengths, inputs=2, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((length, inputs)) for length in lengths]


def linear(weight, bias=None):
    weight = torch.as_tensor(weight, dtype=torch.float64)
    readout = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    with torch.no_grad():
        readout.weight.copy_(weight)
        if bias is not None:
            readout.bias.copy_(torch.as_tensor(bias, dtype=torch.float64))
    return readout


@CELLS
def test_states_equal_the_output_of_the_layer(cell):
    layer = random_layer(cell=cell).float()
    inputs = sequences(11, 5)
    for states, sequence in zip(compute_states(layer, inputs), inputs, strict=True):
        expected, _ = layer(torch.tensor(sequence, dtype=torch.float32)[:, None])
        np.testing.assert_allclose(states, expected[:, 0].detach().numpy(), atol=1e-6)


@pytest.mark.parametrize("period", [1, 3, 8])
@pytest.mark.parametrize("nonlinearity", ["relu", "tanh"])
def test_a_unit_forgets_by_its_weight_at_each_of_its_ticks(period, nonlinearity):
    # tanh is almost linear for small inputs
    size = 1.0 if nonlinearity == "relu" else 1e-7
    layer = set_by_hand(Schedule((period,), (1,)), recurrent=0.7, from_input=2.0, nonlinearity=nonlinearity)
    memory = measure_memory(layer, [np.full((50, 1), size)])
    np.testing.assert_allclose(memory.norms[0], 2.0 * 0.7 ** (np.arange(50) // period), rtol=1e-9)


def test_a_delay_line_remembers_exactly_its_length():
    L = 6
    layer = set_by_hand(Schedule((1, 2), (1, L)), recurrent=np.zeros((L + 1, L + 1)))
    with torch.no_grad():
        # the input enters the first unit of the slow module, moves on by one unit per tick, and leaves to the fast one
        layer.weight_ih_l0[1, 0] = 1
        for unit in range(1, L):
            layer.weight_hh_l0[1 + unit, unit] = 1
        layer.weight_hh_l0[0, L] = 1
    memory = measure_memory(layer, [np.ones((60, 1))])
    # an input at a tick of the slow module reaches its last unit 2 (L - 1) steps later, stays for two steps, and
    # reaches the fast module one step later
    at = 2 * (L - 1)
    # the slow module ticks at half of the times at which an input can reach the fast one
    expected = np.zeros(60)
    expected[at + 1 : at + 3] = math.sqrt(0.5)
    np.testing.assert_allclose(memory.norms[0], expected, atol=1e-12)
    np.testing.assert_array_equal(memory.norms[1], np.where(np.arange(60) < at + 2, 1.0, 0.0))
    assert [memory.reach(0), memory.reach(1)] == [at + 2, at + 1]
    assert not memory.is_open(0)
    assert not memory.is_open(1)


def test_memory_does_not_depend_on_the_length_of_the_data():
    # the fast module forgets at once, but reads the slow one, which forgets half at each tick
    layer = set_by_hand(Schedule((1, 8), (1, 1)), recurrent=[[0.0, 1.0], [0.0, 0.5]], from_input=1.0)
    short, long = (measure_memory(layer, [np.ones((steps, 1))]).norms[:, :35] for steps in (37, 500))
    np.testing.assert_allclose(short, long, rtol=1e-9)
    # one input in eight reaches the fast module, one step later, and is halved eight steps after that
    np.testing.assert_allclose(short[0, [0, 1, 8, 9, 17]], [1, *np.sqrt(1 / 8) * np.array([1, 1, 0.5, 0.25])])


@CELLS
def test_memory_equals_the_derivatives_of_autograd(cell):
    layer = random_layer(cell=cell)
    inputs = sequences(17, 9)
    # in twelve steps the slowest module that ticks is the first six times, the second and the third three times each
    frequency = {0: 6, 1: 3, 2: 3}
    jacobians = [
        # (T, N, T, I)
        torch.autograd.functional.jacobian(lambda x: layer(x[:, None])[0][:, 0], torch.tensor(sequence)).numpy()
        for sequence in inputs
    ]
    memory = measure_memory(layer, inputs)
    for i, units in enumerate(ODD.slices):
        for lag in range(17):
            squares = {kind: [] for kind in frequency}
            for jacobian in jacobians:
                for s in range(len(jacobian) - lag):
                    slowest = max(j for j in range(3) if s % ODD.periods[j] == 0)
                    squares[slowest].append(np.square(jacobian[s + lag, units, s]).sum())
            known = [kind for kind in frequency if kind >= i and squares[kind]]
            weight = sum(frequency[kind] for kind in known)
            if 2 * weight >= sum(frequency[kind] for kind in frequency if kind >= i):
                mean = sum(frequency[kind] * np.mean(squares[kind]) for kind in known) / weight
                np.testing.assert_allclose(memory.norms[i, lag], math.sqrt(mean), rtol=1e-9)
            else:
                assert math.isnan(memory.norms[i, lag])
            assert memory.pairs[i, lag] == sum(len(squares[kind]) for kind in known)
    assert np.isnan(memory.norms[:, 16]).tolist() == [True, False, False]
    short = measure_memory(layer, inputs, longest=4)
    np.testing.assert_allclose(short.norms, memory.norms[:, :5], rtol=1e-12)


@CELLS
def test_without_input_the_derivative_is_by_an_input_to_each_gate_of_each_unit(cell):
    layer = random_layer(inputs=0, cell=cell)
    rows = len(layer.weight_ih_l0)
    with torch.no_grad():
        # the same network with an input of zero for each gate of each unit and the identity as its weights
        twin = random_layer(inputs=rows, cell=cell)
        twin.load_state_dict({**layer.state_dict(), "weight_ih_l0": torch.eye(rows)})
    memory = measure_memory(layer, [np.empty((20, 0))])
    expected = measure_memory(twin, [np.zeros((20, rows))])
    np.testing.assert_allclose(memory.norms, expected.norms, rtol=1e-12)


def test_reach_is_open_without_decay_and_none_without_input():
    layer = set_by_hand(Schedule((1, 2), (1, 1)), recurrent=[[0.0, 0.0], [0.0, 1.0]], from_input=[[0.0], [1.0]])
    memory = measure_memory(layer, [np.ones((30, 1))])
    assert memory.reach(1) == 29
    assert memory.is_open(1)
    assert memory.reach(0) is None
    assert not memory.is_open(0)
    # the reach is the last lag with at least 1 / e of the highest norm
    norms = np.array([[1.0, 0.2, 1 / math.e, 0.1, math.nan]])
    assert Memory(norms, np.array([[9, 9, 9, 9, 0]])).reach(0) == 2


def test_the_power_of_a_spectrum_is_the_variance():
    wave = np.random.default_rng(0).standard_normal((20000, 1))
    for steps in (20000, 19999):
        spectrum = measure_spectrum([wave[:steps]], Schedule((1,), (1,)))
        power = spectrum.density.sum() * (spectrum.frequencies[1] - spectrum.frequencies[0])
        np.testing.assert_allclose(power, 1, rtol=0.03)


@pytest.mark.parametrize(("period", "wave"), [(1, 8), (2, 16), (4, 32)])
def test_a_module_that_follows_a_sine_has_its_peak_at_the_sine(period, wave):
    T = 32 * wave
    x = 1e-3 * np.sin(2 * np.pi * np.arange(T) / wave)[:, None]
    layer = set_by_hand(Schedule((period,), (1,)), from_input=1.0, nonlinearity="tanh")
    spectrum = measure_spectrum(compute_states(layer, [x]), layer.schedule)
    assert spectrum.frequencies[spectrum.density[0].argmax()] == pytest.approx(1 / wave)
    assert spectrum.median(0) == pytest.approx(1 / wave, abs=2 / T)
    near = np.abs(spectrum.frequencies - 1 / wave) < 3 / T
    below = spectrum.frequencies <= 1 / (2 * period)
    # there is nothing else below half the tick frequency, and above it only images around its multiples
    assert spectrum.density[0][below & ~near].sum() < 1e-3 * spectrum.density[0].sum()
    images = np.zeros(len(spectrum.frequencies), dtype=bool)
    for multiple in range(1, period + 1):
        for sign in (-1, 1):
            images |= np.abs(spectrum.frequencies - (multiple / period + sign / wave)) < 3 / T
    assert spectrum.density[0][~below & ~images].sum() < 1e-3 * spectrum.density[0].sum()
    # of a wave of eight ticks, the share sinc(1 / 8)^2 is below
    expected = held_noise_density(1 / wave, period) / (2 * period)
    assert spectrum.share_below(0, 1 / (2 * period)) == pytest.approx(float(expected), rel=2e-3)


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_unit_that_flips_at_each_tick_has_its_peak_at_half_its_tick_frequency(period):
    layer = set_by_hand(Schedule((period,), (1,)), recurrent=-5.0, bias=0.01, inputs=0, nonlinearity="tanh")
    spectrum = measure_spectrum(compute_states(layer, [np.empty((40 * period, 0))])[0:1], layer.schedule)
    assert spectrum.frequencies[spectrum.density[0].argmax()] == pytest.approx(1 / (2 * period))
    # a square wave has no even harmonics, so there is nothing at the tick frequency
    if period > 1:
        at = np.abs(spectrum.frequencies - 1 / period).argmin()
        assert spectrum.density[0, at] < 1e-4 * spectrum.density[0].max()


@pytest.mark.parametrize("period", [1, 2, 3, 8])
def test_noise_at_the_ticks_has_the_density_of_held_noise(period):
    noise = np.repeat(np.random.default_rng(0).standard_normal((2000, 200)), period, axis=0)
    spectrum = measure_spectrum([noise], Schedule((period,), (200,)))
    # the mean over neighbouring frequencies is smooth
    smooth = spectrum.density[0][1 : len(spectrum.density[0]) // 50 * 50 + 1].reshape(-1, 50).mean(axis=1)
    frequencies = spectrum.frequencies[1 : len(smooth) * 50 + 1].reshape(-1, 50)
    expected = held_noise_density(frequencies, period).mean(axis=1)
    np.testing.assert_allclose(smooth, expected, atol=0.07 * expected.max())
    assert held_noise_density(frequencies, period).mean() / 2 == pytest.approx(1, rel=0.01)


def test_a_constant_module_has_no_spectrum():
    spectrum = measure_spectrum([np.full((10, 1), 0.7)], Schedule((4,), (1,)))
    assert spectrum.density.max() < 1e-30
    spectrum = measure_spectrum([np.zeros((10, 1)), np.zeros((1, 1))], Schedule((4,), (1,)))
    assert math.isnan(spectrum.median(0))
    assert math.isnan(spectrum.share_below(0, 0.1))


def test_a_spectrum_weighs_sequences_by_length_and_units_equally():
    wave = np.sin(2 * np.pi * np.arange(64) / 4)
    loud, quiet = np.stack([wave, 0 * wave], axis=1), np.zeros((192, 2))
    both = measure_spectrum([loud, quiet], Schedule((1,), (2,)))
    apart = measure_spectrum([loud[:, :1]], Schedule((1,), (1,)))
    width = 1 / 192, 1 / 64
    assert both.density.sum() * width[0] == pytest.approx(apart.density.sum() * width[1] / 4 / 2)


def squared(outputs):
    return {"size": float(sum(np.square(output).sum() for output in outputs))}


def test_silencing_a_module_without_readers_changes_nothing():
    layer = random_layer()
    with torch.no_grad():
        layer.weight_hh_l0[ODD.slices[0], ODD.slices[1]] = 0
    weight = torch.randn(2, 7, dtype=torch.float64)
    weight[:, ODD.slices[1]] = 0
    intact, silenced = silence_modules(layer, linear(weight, [1.0, 2.0]), sequences(20, 7), squared)
    for errors in (silenced[1].zero, silenced[1].zero_readout, silenced[1].mean, silenced[1].mean_readout):
        assert errors["size"] == pytest.approx(intact["size"], rel=1e-12)
    assert abs(silenced[0].zero["size"] - intact["size"]) > 1e-3


def test_an_output_that_is_one_module_is_lost_without_it():
    layer, inputs = random_layer(), sequences(20, 7)
    weight = torch.zeros(1, 7, dtype=torch.float64)
    weight[:, ODD.slices[2]] = torch.tensor([1.0, -2.0])
    target = compute_outputs(layer, linear(weight), inputs)
    every = np.concatenate(target)

    def lost(outputs):
        return {"lost": float(np.square(np.concatenate(outputs) - every).sum() / np.square(every).sum())}

    intact, silenced = silence_modules(layer, linear(weight), inputs, lost)
    assert intact["lost"] == 0
    assert silenced[2].zero["lost"] == silenced[2].zero_readout["lost"] == 1
    # only the mean is left
    assert silenced[2].mean["lost"] == pytest.approx(every.var() / np.square(every).mean())
    assert silenced[0].zero["lost"] == silenced[1].mean["lost"] == 0


@CELLS
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_readers_of_a_silenced_module_read_a_constant(bias, everywhere, kind, cell):
    layer = random_layer(bias=bias, cell=cell)
    inputs = sequences(13)
    readout = linear(torch.randn(2, 7), [0.5, -0.5])
    module = 1
    units = ODD.slices[module]
    done = torch.tensor(compute_states(layer, inputs)[0])
    value = done[:, units].mean(dim=0) if kind == "mean" else torch.zeros(2, dtype=torch.float64)
    # by hand: before every step the state of the module is the constant, which only its readers notice
    start = torch.zeros(1, 7, dtype=torch.float64)
    state = (start, start, 0) if layer.cell == "lstm" else (start, 0)
    expected = []
    for x in torch.tensor(inputs[0]):
        if everywhere:
            h = state[0].clone()
            h[:, units] = value
            state = (h, *state[1:])
        y, state = layer.step(x, state)
        shown = y.clone()
        shown[units] = value
        expected.append((readout.weight @ shown + readout.bias).detach().numpy())
    seen_outputs = []

    def note(outputs):
        seen_outputs.append(outputs[0])
        return {}

    _, silenced = silence_modules(layer, readout, inputs, note)
    assert len(silenced) == 3
    # the intact network first, then four variants for each module
    order = ["zero_readout", "zero", "mean_readout", "mean"]
    at = 1 + 4 * module + order.index(kind + ("" if everywhere else "_readout"))
    np.testing.assert_allclose(seen_outputs[at], np.stack(expected), rtol=1e-9, atol=1e-12)


def test_inspection_does_not_change_the_network():
    layer, readout = random_layer().float(), nn.Linear(7, 2)
    before = {name: value.clone() for part in (layer, readout) for name, value in part.state_dict().items()}
    inspect(layer, readout, sequences(9), squared)
    for part in (layer, readout):
        for name, value in part.state_dict().items():
            assert torch.equal(value, before[name])
        assert all(parameter.requires_grad and parameter.grad is None for parameter in part.parameters())


def test_weight_norms_by_hand():
    schedule = Schedule((1, 2), (1, 2))
    layer = set_by_hand(
        schedule, recurrent=[[1.0, 3.0, 4.0], [9.0, 2.0, 0.0], [9.0, 0.0, 0.0]], from_input=[[1.0], [3.0], [4.0]]
    )
    norms = measure_weights(layer, linear([[1.0, 6.0, 8.0]]))
    np.testing.assert_allclose(norms.recurrent, [[1, math.sqrt(12.5)], [math.nan, 1]])
    np.testing.assert_allclose(norms.input, [1, 5])
    np.testing.assert_allclose(norms.output, [1, 10])


@CELLS
def test_weight_norms_count_the_weights_of_all_gates(cell):
    layer, twin = random_layer(cell=cell), random_layer()
    gates = len(layer.weight_hh_l0) // 7
    with torch.no_grad():
        for name in ("weight_hh_l0", "weight_ih_l0"):
            getattr(layer, name).copy_(getattr(twin, name).repeat(gates, 1))
    readout = linear(torch.randn(2, 7))
    norms, expected = measure_weights(layer, readout), measure_weights(twin, readout)
    np.testing.assert_allclose(norms.recurrent, expected.recurrent)
    np.testing.assert_allclose(norms.input, math.sqrt(gates) * expected.input)


@pytest.mark.parametrize("schedule", [ODD, Schedule.exponential(10, 4), Schedule((1,), (6,))])
@pytest.mark.parametrize(("cell", "gates"), [("tanh", 1), ("lstm", 4), ("gru", 3)])
def test_multiply_adds_equal_a_count_step_by_step(schedule, cell, gates):
    I, O, cycle = 3, 5, math.lcm(*schedule.periods)
    counted = np.zeros((3, schedule.modules))
    for t in range(cycle):
        for j in schedule.due(t):
            for _ in range(schedule.sizes[j]):
                # every unit of every module that reads it
                counted[0, j] += gates * sum(schedule.sizes[: j + 1])
                counted[1, j] += gates * I
                counted[2, j] += O
    cost = count_operations(schedule, I, O, cell=cell)
    np.testing.assert_allclose([cost.recurrent, cost.input, cost.readout], counted / cycle)
    assert cost.dense == schedule.hidden_size * (gates * (schedule.hidden_size + I) + O)
    np.testing.assert_allclose((cost.recurrent + cost.input).sum(), gates * schedule.operations(I).cascade)
    np.testing.assert_allclose(cost.total, counted.sum(axis=0) / cycle)


@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_one_module_costs_as_much_as_a_dense_network(cell):
    cost = count_operations(Schedule((1,), (6,)), 3, 5, cell=cell)
    assert cost.total.sum() == cost.dense


@CELLS
def test_the_summary_counts_the_parameters_that_exist(cell):
    for bias in (False, True):
        layer = random_layer(bias=bias, cell=cell)
        modules = inspect(layer, linear(np.ones((1, 7))), sequences(9), squared).modules
        assert sum(module.parameters for module in modules) == layer.count_parameters() + 7


def test_the_summary_of_a_module_repeats_the_measurements():
    layer, readout, inputs = random_layer(), linear(torch.randn(2, 7)), sequences(30, 12)
    inspection = inspect(layer, readout, inputs, squared, longest=10)
    states = np.concatenate(compute_states(layer, inputs))
    assert [module.period for module in inspection.modules] == [1, 3, 4]
    assert [module.units for module in inspection.modules] == [3, 2, 2]
    assert sum(module.share for module in inspection.modules) == pytest.approx(1)
    for i, module in enumerate(inspection.modules):
        assert module.variance == pytest.approx(states[:, ODD.slices[i]].var(axis=0).mean())
        assert module.reach == inspection.memory.reach(i)
        assert module.in_band == inspection.spectrum.share_below(i, 1 / (2 * module.period))
        assert module.output_weight == pytest.approx(float(readout.weight.detach()[:, ODD.slices[i]].norm()))
        assert module.silenced.zero["size"] != inspection.intact["size"]
    assert inspection.memory.norms.shape == (3, 11)
    assert inspection.intact == squared(compute_outputs(layer, readout, inputs))


@pytest.mark.parametrize(
    ("layer", "inputs", "message"),
    [
        (ClockworkRNN(2, 7, num_layers=2), sequences(5), "num_layers=2"),
        (ClockworkRNN(2, 7, bidirectional=True), sequences(5), "bidirectional=True"),
        (ClockworkRNN(2, 7), [], "at least one sequence"),
        (ClockworkRNN(2, 7), sequences(5, inputs=3), r"\(T, 2\), T >= 1, got \(5, 3\)"),
        (ClockworkRNN(2, 7), sequences(0), r"got \(0, 2\)"),
        (ClockworkRNN(2, 7), [np.zeros(5)], r"got \(5,\)"),
    ],
)
def test_layers_and_sequences_that_do_not_fit_are_refused(layer, inputs, message):
    with pytest.raises(ValueError, match=message):
        inspect(layer, nn.Linear(7, 1), inputs, squared)
