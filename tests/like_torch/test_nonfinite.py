"""Infinite numbers, NaN and huge numbers go as far as in the specification and in torch.nn.RNN, and no further."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import USABLE, schedules
from support.rnn_pairs import CLOCKWORK, MAKERS, join, make_pair, named_gradients
from torch.nn.utils.rnn import pack_padded_sequence

from cwrnn import ClockworkLSTM, ClockworkRNN, Schedule, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.cells import CELLS, NONLINEARITIES

SPECIAL = (float("inf"), float("-inf"), float("nan"), 2.0**40)
ONE = Schedule((1,), (4,))
THREE = Schedule((1, 2, 4), (2, 3, 2))
SCHEDULES, BOOLEANS = schedules(), st.booleans()
TORCHS_NAMES = {"tanh": "RNN", "relu": "relu", "lstm": "LSTM", "gru": "GRU"}


def draw_numbers(draw, *shape):
    """Small integers: their sums are exact in any order, so that only the special numbers matter."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    return torch.randint(-2, 3, shape, generator=generator, dtype=torch.float64)


@st.composite
def broken_networks(draw, possible=SCHEDULES, cells=("tanh", "relu"), peepholes=BOOLEANS):
    """Draw a schedule, t0, cell, lengths or None, and the tensors of a network with a few special numbers in them."""
    schedule, cell = draw(possible), draw(st.sampled_from(cells))
    N, T, B, I = schedule.hidden_size, draw(st.integers(1, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    gates, biases, parts = CELLS[cell]
    shapes = {"input": (T, B, I), "weight_ih": (gates * N, I), "weight_hh": (gates * N, N), "bias": (biases * N,)}
    shapes["h0"] = B, parts * N
    if cell == "lstm" and draw(peepholes):
        shapes["weight_ch"] = (3 * N,)
    tensors = {name: draw_numbers(draw, *shape) for name, shape in shapes.items()}
    # the derivatives of gates are rounded, so that huge numbers leave no digit to compare
    special = SPECIAL if cell in NONLINEARITIES else SPECIAL[:-1]
    for _ in range(draw(st.integers(1, 2))):
        values = tensors[draw(st.sampled_from((*["input"] * 3, "h0", *shapes)))].view(-1)
        values[draw(st.integers(0, values.numel() - 1))] = draw(st.sampled_from(special))
    lengths = draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B).map(torch.tensor))
    cotangents = draw_numbers(draw, T, B, N), draw_numbers(draw, B, parts * N)
    return schedule, draw(st.integers(0, 13)), cell, lengths, tensors, cotangents


def run_reference(tensors, schedule, t0, cell, lengths):
    """Output and final state by the specification, one sequence after the other, each for its own length."""
    input, weight_ih, weight_hh, bias, h0, *weight_ch = tensors
    T, B, _ = input.shape
    outputs, finals = [], []
    for b in range(B):
        steps = T if lengths is None else int(lengths[b])
        x, h = input[:steps, b : b + 1], h0[b : b + 1]
        states = clockwork_reference(x, weight_ih, weight_hh, bias, h, schedule, t0, cell, *weight_ch)
        output = states[..., : schedule.hidden_size]
        outputs.append(torch.cat((output, output.new_zeros(T - steps, *output.shape[1:]))))
        finals.append(states[-1])
    return torch.cat(outputs, dim=1), torch.cat(finals)


def run_backend(name, tensors, schedule, t0, cell, lengths):
    """Output and final state by a backend."""
    done = BACKENDS[name].run(*tensors[:5], schedule, t0, cell, lengths, True, *tensors[5:])
    return done.hold(), done.final()


def evaluate_pair(name, network):
    """Output, final state and all gradients by the specification, and the same by a backend."""
    schedule, t0, cell, lengths, tensors, cotangents = network
    results = []
    for run, *arguments in ((run_reference,), (run_backend, name)):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors.values()]
        outputs = run(*arguments, leaves, schedule, t0, cell, lengths)
        gradients = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, materialize_grads=True)
        results.append(dict(zip(("output", "final", *tensors), (*outputs, *gradients), strict=True)))
    return results


def rounding_error(results):
    """The error that sums of numbers as large as the largest finite result may have.

    Huge numbers are multiplied with each other, and with the error of one rounding in the slope of a saturated unit.
    """
    finite = torch.cat([value.detach().nan_to_num(0, 0, 0).abs().flatten() for value in results.values()])
    return max(1e-9, 1e-13 * finite.max().item())


def check_against_the_specification(backend, network):
    """Compare every number that the backend computes with the specification's."""
    expected, actual = evaluate_pair(backend, network)
    operands, tolerance = network[4], rounding_error(expected)
    for name in expected:
        value, right = actual[name].detach(), expected[name].detach()
        # a message that is heard twice is multiplied once by the sum of both gradients: (1 + 0) times infinity is
        # infinite, where the specification adds 1 times infinity and 0 times infinity, which is NaN
        forgiven = right.isnan() & value.isinf() if name in operands else torch.zeros_like(right, dtype=torch.bool)
        torch.testing.assert_close(
            value.where(~forgiven, torch.nan),
            right,
            rtol=1e-9,
            atol=tolerance,
            equal_nan=True,
            msg=lambda m, n=name: f"{n}: {m}",
        )


@pytest.mark.skipif("cpu" not in USABLE, reason="the kernel was not built")
@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=100)
@given(data=st.data())
def test_the_kernel_spoils_no_number_that_the_specification_does_not_spoil(cell, data):
    check_against_the_specification("cpu", data.draw(broken_networks(cells=(cell,))))


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=100)
@given(data=st.data())
def test_the_cascade_spoils_no_number_that_the_specification_does_not_spoil(cell, data):
    check_against_the_specification("torch", data.draw(broken_networks(cells=(cell,))))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("backend", USABLE)
@settings(max_examples=50)
@given(data=st.data())
def test_one_module_spoils_what_torch_spoils(backend, cell, data):
    """The backend `reference` runs all sequences to the end of the batch, so it is compared without lengths."""
    schedule, _, _, lengths, tensors, (g_output, g_final) = data.draw(
        broken_networks(st.just(ONE), (cell,), peepholes=st.just(False))
    )
    lengths = None if backend == "reference" else lengths
    I, N = tensors["input"].shape[-1], schedule.hidden_size
    theirs, ours = make_pair(I, N, kind=TORCHS_NAMES[cell])
    ours.backend = backend
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh"):
            for layer in (theirs, ours):
                getattr(layer, f"{name}_l0").copy_(tensors[name])
        ours.bias_l0.copy_(tensors["bias"])
        theirs.bias_ih_l0.copy_(tensors["bias"][: theirs.bias_ih_l0.numel()])
        theirs.bias_hh_l0.zero_()
        if cell == "gru":
            theirs.bias_hh_l0[2 * N :] = tensors["bias"][3 * N :]
    results = []
    for layer in (theirs, ours):
        x, h0 = tensors["input"].clone().requires_grad_(), tensors["h0"][None].clone().requires_grad_()
        packed = x if lengths is None else pack_padded_sequence(x, lengths, enforce_sorted=False)
        output, h_n = layer(packed, h0.split(N, dim=-1) if cell == "lstm" else h0)
        h_n = join(h_n)
        output = output if lengths is None else output.data
        weights = g_output if lengths is None else g_output.flatten(0, 1)[: len(output)]
        loss = (output * weights).sum() + (h_n * g_final).sum()
        gradients = named_gradients(layer, loss, {"input": x, "hx": h0})
        results.append({"output": output.detach(), "h_n": h_n.detach(), **gradients})
    expected, actual = results
    tolerance = rounding_error(expected)
    for name in expected:
        torch.testing.assert_close(
            actual[name], expected[name], rtol=1e-6, atol=tolerance, equal_nan=True, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("backend", [name for name in USABLE if name != "reference"])
def test_states_that_overflow_beyond_the_end_of_a_sequence_spoil_no_gradient(backend):
    shapes = {"input": (9, 3, 1), "weight_ih": (7, 1), "weight_hh": (7, 7), "bias": (7,), "h0": (3, 7)}
    tensors = {name: torch.full(shape, 1e60, dtype=torch.float64) for name, shape in shapes.items()}
    cotangents = torch.ones(9, 3, 7, dtype=torch.float64), torch.ones(3, 7, dtype=torch.float64)
    lengths = torch.tensor([3, 1, 2])
    check_against_the_specification(backend, (THREE, 0, "relu", lengths, tensors, cotangents))
    expected, _ = evaluate_pair(backend, (THREE, 0, "relu", lengths, tensors, cotangents))
    assert all(value.isfinite().all() for value in expected.values())


@pytest.mark.parametrize("backend", USABLE)
def test_an_infinite_c_spoils_what_it_spoils_in_torch(backend):
    """Without peepholes no gate reads c."""
    lstm, ours = torch.nn.LSTM(2, 3), ClockworkLSTM(2, 3, schedule=[1], peepholes=False, backend=backend)
    ours.load_state_dict(lstm.state_dict())
    results = []
    for layer in (lstm, ours):
        generator = torch.Generator().manual_seed(0)
        x, h, c = (torch.randn(1, 2, size, generator=generator) for size in (2, 3, 3))
        c[0, 0, 1] = torch.inf
        leaves = [tensor.requires_grad_() for tensor in (x, h, c)]
        output, (h_n, c_n) = layer(x, (h, c))
        bias = layer.bias_ih_l0 if layer is lstm else layer.bias_l0
        gradients = torch.autograd.grad(output.sum(), (*leaves, layer.weight_ih_l0, layer.weight_hh_l0, bias))
        results.append((output, h_n, c_n, *gradients))
    torch.testing.assert_close(results[1], results[0], equal_nan=True)
    assert results[0][0].isfinite().all()
    assert results[0][-1].isfinite().any()


def make_infinite_step(step, T=13):
    """A network's tensors, with an input that is infinite at one step, and the gradients of the first two outputs."""
    generator = torch.Generator().manual_seed(step)
    shapes = (T, 2, 1), (7, 1), (7, 7), (7,), (2, 7)
    leaves = [torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    leaves[0][step] = torch.inf
    leaves = [leaf.requires_grad_() for leaf in leaves]
    return leaves, torch.autograd.grad(clockwork_reference(*leaves, THREE, 0, "relu")[:2].sum(), leaves)


def sum_first_outputs(backend, *tensors):
    return BACKENDS[backend].run(*tensors, THREE, 0, "relu").hold()[:2].sum()


@pytest.mark.parametrize("step", [8, 10, 11, 12])
@pytest.mark.parametrize("backend", USABLE)
def test_an_infinite_input_spoils_no_gradient_of_weights_from_modules_that_are_not_heard(backend, step):
    leaves, expected = make_infinite_step(step)
    found = torch.autograd.grad(sum_first_outputs(backend, *leaves), leaves)
    torch.testing.assert_close(found, expected, equal_nan=True)


def test_an_infinite_input_spoils_no_such_gradient_of_a_mapped_cascade():
    leaves, expected = make_infinite_step(8)
    gradients = torch.func.grad(sum_first_outputs, tuple(range(1, 6)))
    found = torch.func.vmap(partial(gradients, "torch"))(*(leaf.detach()[None] for leaf in leaves))
    torch.testing.assert_close(tuple(value[0] for value in found), expected, equal_nan=True)


def test_an_infinite_input_spoils_no_such_gradient_of_a_compiled_cascade_of_any_length():
    compiled = torch.compile(sum_first_outputs, backend="aot_eager", fullgraph=True)
    for step, T in ((8, 13), (9, 10)):
        leaves, expected = make_infinite_step(step, T)
        torch._dynamo.mark_dynamic(leaves[0], 0)
        found = torch.autograd.grad(compiled("torch", *leaves), leaves)
        torch.testing.assert_close(found, expected, equal_nan=True)


@pytest.mark.parametrize("t0", [0, 1, 2, 3])
@pytest.mark.parametrize("backend", USABLE)
def test_an_initial_state_that_is_never_held_spoils_no_gradient_of_a_readout(backend, t0):
    rnn = ClockworkRNN(2, 9, schedule=[1, 2, 3], backend=backend)
    x, hx, weight = torch.randn(7, 2, 2), torch.full((1, 2, 9), torch.inf), torch.randn(4, 9, requires_grad=True)
    with torch.no_grad():
        # finite weights of one sign, so that an infinite state gives an infinite sum and not NaN
        rnn.weight_hh_l0.abs_()
    ticks, _ = rnn.ticks(x, hx, t0=t0)
    expected = torch.autograd.grad((ticks.hold() @ weight.T).sum(), weight)
    torch.testing.assert_close(torch.autograd.grad(ticks.linear(weight).sum(), weight), expected, equal_nan=True)
    assert expected[0].isfinite().any()


@pytest.mark.parametrize("T", [0, 1, 6])
@pytest.mark.parametrize("module", [0, 1, 2])
@pytest.mark.parametrize("layer", CLOCKWORK.values())
def test_an_infinite_initial_state_of_one_module_leaves_the_readout_right(layer, module, T):
    network = layer(2, 9, schedule=[1, 2, 4])
    h, weight = torch.randn(1, 2, 9), torch.randn(4, 9, requires_grad=True)
    h[..., network.schedule.slices[module].start] = torch.inf
    ticks, _ = network.ticks(torch.randn(T, 2, 2), (h, torch.randn(1, 2, 9)) if layer is ClockworkLSTM else h)
    held, multiplied = ticks.hold() @ weight.T, ticks.linear(weight)
    torch.testing.assert_close(multiplied, held, equal_nan=True)
    gradients = (torch.autograd.grad(output.sum(), weight) for output in (multiplied, held))
    torch.testing.assert_close(*gradients, equal_nan=True)


def pad(features, filler):
    """Sequences of different lengths, and `filler` beyond their ends."""
    lengths = torch.tensor([7, 2, 9, 1])
    x = torch.randn(9, 4, features, generator=torch.Generator().manual_seed(0))
    x[torch.arange(9)[:, None] >= lengths] = filler
    return x.requires_grad_(), lengths


# a unit with one infinite input is saturated and finite, a unit with two of both signs is NaN
@pytest.mark.parametrize("features", [1, 2])
@pytest.mark.parametrize("cell", MAKERS)
@pytest.mark.parametrize("backend", USABLE)
def test_nothing_beyond_the_end_of_a_sequence_is_read(backend, cell, features):
    layer = MAKERS[cell](features, 9, 2, bidirectional=True, schedule=[1, 2, 3], backend=backend)
    results = []
    for filler in (0.0, float("nan"), float("inf")):
        x, lengths = pad(features, filler)
        output, h_n = layer(x, lengths=lengths)
        h_n = join(h_n)
        gradients = torch.autograd.grad(output.sum() + h_n.sum(), [x, *layer.parameters()])
        results.append([output, h_n, *gradients])
    for spoilt in results[1:]:
        for value, right in zip(spoilt, results[0], strict=True):
            assert torch.equal(value, right)


def test_nothing_beyond_the_end_of_a_sequence_is_read_in_a_graph():
    """A graph asks for no number, so it runs all sequences to the end of the batch."""
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((7, 2), (7, 7), (7,), (4, 7))]

    def compute_loss(x, lengths, *weights):
        done = BACKENDS["torch"].run(x, *weights, THREE, 0, "tanh", lengths)
        return done.hold().sum() + done.final().sum()

    compiled = torch.compile(compute_loss, backend="aot_eager", fullgraph=True)
    gradient = torch.func.grad(compute_loss, (0, 2, 3, 4, 5))
    results = []
    for filler in (0.0, float("nan")):
        x, lengths = pad(2, filler)
        loss = compiled(x, lengths, *weights)
        results.append([loss, *torch.autograd.grad(loss, (x, *weights)), *gradient(x, lengths, *weights)])
    for value, right in zip(*results, strict=True):
        assert right.isfinite().all()
        assert torch.equal(value, right)
