"""The GPU kernel of small networks against the specification. An emulator runs the programs on the CPU."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from like_torch.test_nonfinite import broken_networks, run_reference
from support import emulated_gpu
from support.network_cases import Case, evaluate, measure_distance, schedules
from support.network_cases import cases as draw_cases

from cwrnn import Schedule, cells, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.kernels.backend import KernelBackend
from cwrnn.kernels.gpu import driver, launch, small

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")

KERNEL = KernelBackend(small)
CELLS = list(cells.CELLS)
TOLERANCES = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}
DTYPES = list(TOLERANCES)
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True, scope="module")
def device():
    """The emulated device, in place of the driver."""
    with emulated_gpu.emulating(large=False) as device:
        yield device


@pytest.fixture
def one_block(device, monkeypatch):
    """Blocks run one after the other: the emulator switches between fewer threads."""
    monkeypatch.setattr(device, "slots", 1)


def check(case, dtype=torch.float32):
    expected, found = evaluate(case), evaluate(case, KERNEL.run, dtype)
    assert expected.keys() == found.keys()
    distances = {name: measure_distance(found[name], expected[name]) for name in expected}
    assert all(distance <= TOLERANCES[dtype] for distance in distances.values()), distances


def make_tensors(schedule, T, B, I, cell="tanh", lead=(), dtype=torch.float32):
    """Random input, weight_ih, weight_hh, bias, h0, and the peepholes of an LSTM."""
    N, (gates, biases, parts) = schedule.hidden_size, cells.CELLS[cell]
    generator = torch.Generator().manual_seed(0)
    shapes = [(T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N)]
    shapes += [(3 * N,)] if cell == "lstm" else []
    return [torch.randn(*lead, *shape, generator=generator).mul(0.5).to(dtype) for shape in shapes]


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=120, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_any_schedule_and_phase_equal_the_specification(cell, data):
    check(data.draw(draw_cases((cell,))))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_every_dtype_equals_the_specification(cell, dtype):
    check(Case(Schedule((2, 3, 4), (3, 9, 2)), 19, 2, 5, 7, cell=cell, scale=0.5), dtype)


@pytest.mark.parametrize(
    ("schedule", "T", "I"),
    [
        pytest.param(Schedule.exponential(102, 6), 40, 70, id="two slices of inputs, nested"),
        pytest.param(Schedule((1,), (128,)), 5, 3, id="128 units"),
        pytest.param(Schedule((2, 3, 7), (30, 1, 66)), 37, 17, id="coprime"),
        pytest.param(Schedule.exponential(40, 8), 70, 1, id="three chunks"),
        pytest.param(Schedule.exponential(66, 33), 34, 1, id="the slowest period beyond 32 bits"),
    ],
)
def test_many_units_equal_the_specification(schedule, T, I):
    check(Case(schedule, T, 2, I, 3, scale=0.5))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_many_units_of_gated_cells_equal_the_specification(cell):
    check(Case(Schedule.exponential(64, 8), 40, 1, 66, 3, cell=cell, peepholes=True, scale=0.3))
    check(Case(Schedule((2, 3, 7), (3, 1, 40)), 35, 1, 5, 3, cell=cell, scale=0.5))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(
    ("schedule", "T", "I"),
    [
        pytest.param(Schedule((1, 2, 5), (20, 13, 32)), 14, 5, id="65 units"),
        pytest.param(Schedule((2, 3, 4), (50, 1, 30)), 11, 1, id="81 units"),
        pytest.param(Schedule.exponential(102, 6), 66, 70, id="102 units, twice the slowest period"),
        pytest.param(Schedule((1,), (128,)), 6, 17, id="128 units"),
    ],
)
def test_gated_cells_with_weights_in_shared_memory_equal_the_specification(cell, schedule, T, I, one_block):
    check(Case(schedule, T, 2, I, 3, cell=cell, peepholes=T != 11, bias=T != 11, initial=T != 14, scale=0.3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gated_cells_with_half_weights_in_shared_memory_equal_the_specification(cell, dtype, one_block):
    check(Case(Schedule((1, 2, 3), (40, 8, 52)), 9, 2, 5, 7, cell=cell, peepholes=True, scale=0.3), dtype)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_infinite_states_with_weights_in_shared_memory_spoil_no_slower_module(cell, one_block):
    schedule = Schedule((1, 3), (41, 30))
    results = []
    for run, dtype in ((run_reference, torch.float64), (run_kernel, torch.float32)):
        leaves = [0.3 * tensor.to(dtype) for tensor in make_tensors(schedule, 7, 1, 3, cell)]
        leaves[4][0, 3] = torch.inf
        output, final = run(leaves, schedule, 0, cell, None)
        results.append((output, final))
    for right, found in zip(*results, strict=True):
        assert right[..., 41:71].isfinite().all()
        torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_replicas_with_weights_in_shared_memory_end_at_their_lengths(cell, one_block):
    schedule, S, T, B = Schedule((1, 3), (41, 30)), 2, 6, 2
    tensors = [0.3 * tensor for tensor in make_tensors(schedule, T, B, 3, cell, (S,))]
    lengths = torch.tensor([[6, 3], [1, 5]])
    for s, b in itertools.product(range(S), range(B)):
        tensors[0][s, lengths[s, b] :, b] = torch.nan
    final, ticks, held, *_ = pull_back(tensors, (None, None, torch.zeros(S, T, B, 71)), schedule, cell, lengths)
    cotangents = torch.randn(final.shape), torch.randn(ticks.shape), torch.randn(held.shape)
    together = pull_back(tensors, cotangents, schedule, cell, lengths)
    for s in range(S):
        alone = pull_back([tensor[s] for tensor in tensors], [c[s] for c in cotangents], schedule, cell, lengths[s])
        assert all(torch.equal(all_of_them[s], one) for all_of_them, one in zip(together, alone, strict=True))
        results = []
        for run, dtype in ((run_reference, torch.float64), (run_kernel, torch.float32)):
            leaves = [tensor[s].to(dtype).requires_grad_() for tensor in tensors]
            output, last = run(leaves, schedule, 3, cell, lengths[s])
            loss = (output * cotangents[2][s]).sum() + (last * cotangents[0][s].squeeze(0)).sum()
            gradients = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
            results.append((output, last, *gradients))
        assert all(measure_distance(found, right) <= 2e-5 for right, found in zip(*results, strict=True))


def test_long_sequences_are_summed_in_parts():
    check(Case(Schedule((1, 3), (2, 3)), 100, 3, 2, 1, scale=0.5))


def compute_ticks(run, values, schedule, t0, cell, lengths):
    """The ticks of all modules in one row, the final state, and the gradients of random sums of both."""
    leaves = [value.clone().requires_grad_() for value in values]
    done = run(*leaves[:5], schedule, t0, cell, lengths, False, *leaves[5:])
    ticks = torch.cat([module.values.flatten() for module in done.modules])
    final = done.final()
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(value.shape, generator=generator).to(value.dtype) for value in (ticks, final)]
    gradients = torch.autograd.grad((ticks, final), leaves, cotangents, allow_unused=True, materialize_grads=True)
    return ticks.detach(), final.detach(), *gradients


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), schedule=schedules(), t0=st.integers(0, 20))
def test_ticks_equal_those_of_the_cascade(cell, data, schedule, t0):
    T, B = data.draw(st.integers(0, 20)), data.draw(st.integers(1, 3))
    lengths = data.draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B)) if T > 0 else None
    lengths = None if lengths is None else torch.tensor(lengths)
    values = make_tensors(schedule, T, B, 2, cell)
    expected = compute_ticks(BACKENDS["torch"].run, [v.double() for v in values], schedule, t0, cell, lengths)
    found = compute_ticks(KERNEL.run, values, schedule, t0, cell, lengths)
    assert all(measure_distance(value, right) <= 2e-5 for value, right in zip(found, expected, strict=True))


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), schedule=schedules())
def test_sequences_end_at_their_lengths_and_are_not_read_beyond(cell, data, schedule):
    T, B, I = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2))
    lengths = data.draw(st.lists(st.integers(1, T), min_size=B, max_size=B))
    values = make_tensors(schedule, T, B, I, cell)
    for b, length in enumerate(lengths):
        values[0][length:, b] = torch.nan
    results = []
    for dtype in (torch.float64, torch.float32):
        leaves = [value.to(dtype).requires_grad_() for value in values]
        run = run_reference if dtype == torch.float64 else run_kernel
        output, final = run(leaves, schedule, 5, cell, torch.tensor(lengths))
        generator = torch.Generator().manual_seed(2)
        cotangents = [torch.randn(value.shape, generator=generator).to(dtype) for value in (output, final)]
        gradients = torch.autograd.grad((output, final), leaves, cotangents, allow_unused=True, materialize_grads=True)
        results.append((output, final, *gradients))
    assert all(measure_distance(found, right) <= 2e-5 for right, found in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", CELLS)
def test_a_split_sequence_has_the_same_bits(cell, dtype):
    schedule, t0 = Schedule((1, 3, 4), (5, 2, 4)), 5
    input, *others, h0 = make_tensors(schedule, 45, 2, 3, cell, dtype=dtype)[:5]
    final, _, whole, _ = small.forward(input, *others, h0, None, schedule, t0, cell, True)
    for split in (1, 32, 37):
        middle, _, first, _ = small.forward(input[:split], *others, h0, None, schedule, t0, cell, True)
        end, _, second, _ = small.forward(input[split:], *others, middle[0], None, schedule, t0 + split, cell, True)
        assert torch.equal(torch.cat((first, second)), whole)
        assert torch.equal(end, final)


def pull_back(tensors, cotangents, schedule, cell, lengths=None):
    """All results of a call forward and backward."""
    input, weight_ih, weight_hh, bias, h0, weight_ch = *tensors, *[None] * (6 - len(tensors))
    final, ticks, held, kept = small.forward(
        input, weight_ih, weight_hh, bias, h0, lengths, schedule, 3, cell, True, weight_ch=weight_ch
    )
    gradients = small.backward(
        [True] * 5 + [weight_ch is not None], input, weight_ih, weight_hh, bias, lengths, ticks, *cotangents,
        schedule, 3, cell, weight_ch, kept,
    )  # fmt: skip
    return [final, ticks, held, *gradients[: len(tensors)]]


@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_replicas_have_the_bits_of_networks_one_by_one(cell):
    schedule, S, T, B = Schedule((1, 3, 4), (5, 2, 4)), 3, 21, 2
    tensors = make_tensors(schedule, T, B, 3, cell, (S,))
    lengths = torch.tensor([[21, 3], [1, 20], [7, 7]])
    final, ticks, held, *_ = pull_back(tensors, (None, None, torch.zeros(S, T, B, 11)), schedule, cell, lengths)
    cotangents = torch.randn(final.shape), torch.randn(ticks.shape), torch.randn(held.shape)
    together = pull_back(tensors, cotangents, schedule, cell, lengths)
    for s in range(S):
        alone = pull_back([tensor[s] for tensor in tensors], [c[s] for c in cotangents], schedule, cell, lengths[s])
        assert all(torch.equal(all_of_them[s], one) for all_of_them, one in zip(together, alone, strict=True))


@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_views_are_read_as_their_strides_say(cell):
    schedule, T, B = Schedule((1, 3, 4), (5, 2, 4)), 9, 2
    tensors = make_tensors(schedule, T, B, 3, cell)
    g_held = torch.randn(T, B, 11)
    right = pull_back(tensors, (None, None, g_held), schedule, cell)
    odd = [torch.stack((tensor, tensor + 1), -1)[..., 0] for tensor in tensors]
    odd[0] = tensors[0].transpose(0, 1).contiguous().transpose(0, 1)
    for view in (g_held.permute(2, 0, 1).contiguous().permute(1, 2, 0), torch.conj(-1j * g_held).imag):
        assert not view.is_contiguous() or view.is_neg()
        assert all(map(torch.equal, pull_back(odd, (None, None, view), schedule, cell), right))
    ones = torch.ones(())
    expanded = pull_back(tensors, (None, None, ones.expand(T, B, 11)), schedule, cell)
    assert all(map(torch.equal, expanded, pull_back(tensors, (None, None, torch.ones(T, B, 11)), schedule, cell)))


@pytest.mark.parametrize("cell", ["relu", "lstm", "gru"])
def test_gradients_that_are_not_wanted_change_no_others(cell):
    schedule = Schedule((1, 3), (2, 3))
    tensors = make_tensors(schedule, 5, 2, 2, cell)
    input, weight_ih, weight_hh, bias, h0, weight_ch = *tensors, *[None] * (6 - len(tensors))
    _, ticks, _, kept = small.forward(
        input, weight_ih, weight_hh, bias, h0, None, schedule, 1, cell, False, weight_ch=weight_ch
    )
    g_ticks = torch.randn(ticks.shape, generator=torch.Generator().manual_seed(0))
    last = weight_ch is not None
    arguments = input, weight_ih, weight_hh, bias, None, ticks, None, g_ticks, None, schedule, 1, cell, weight_ch, kept
    everything = small.backward([True] * 5 + [last], *arguments)
    for wanted in itertools.product([False, True], repeat=5 + last):
        wanted += (False,) * (not last)
        found = small.backward(wanted, *arguments)
        for want, value, right in zip(wanted, found, everything, strict=True):
            assert (value is not None) == want
            assert value is None or torch.equal(value, right)


@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_no_number_is_spoilt_that_the_specification_does_not_spoil(cell, data):
    schedule, t0, cell, lengths, tensors, cotangents = data.draw(broken_networks(cells=(cell,)))
    results = []
    for run in (run_reference, run_kernel):
        # float32 has too few digits for sums of huge and small numbers
        leaves = [tensor.where(tensor != 2.0**40, 5).float().requires_grad_() for tensor in tensors.values()]
        outputs = run(leaves, schedule, t0, cell, lengths)
        gradients = torch.autograd.grad(
            outputs, leaves, [cotangent.float() for cotangent in cotangents], allow_unused=True, materialize_grads=True
        )
        results.append((*outputs, *gradients))
    # numbers may cancel, and differ by the rounding of the largest
    largest = max(1.0, *(right.detach().nan_to_num(0, 0, 0).abs().max().item() for right in results[0]))
    for right, found in zip(*results, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


def run_kernel(tensors, schedule, t0, cell, lengths):
    done = KERNEL.run(*tensors[:5], schedule, t0, cell, lengths, True, *tensors[5:])
    return done.hold(), done.final()


@pytest.mark.parametrize("cell", CELLS)
def test_every_device_that_is_not_refused_has_the_shared_memory(cell, monkeypatch):
    monkeypatch.setattr(driver, "load_program", lambda *arguments: driver.Program(0, arguments[4], arguments[3]))
    for units in range(16, small.MOST_UNITS + 1, 16):
        forward = small._load_forward.__wrapped__(units, 70, torch.float32, cell, cell == "lstm", 0)
        backward = small._load_backward.__wrapped__(units, torch.float32, cell, 0)
        assert max(forward.shared, backward.shared) <= launch.SHARED_BYTES


@pytest.mark.parametrize("units", [1, small.MOST_UNITS + 1])
def test_more_steps_than_the_programs_count_are_refused(units):
    schedule = Schedule((1,), (units,))
    values = make_tensors(schedule, 2, 1, 0)
    values[0] = torch.empty(2**29 + 1, 1, 0)
    with pytest.raises(ValueError, match="takes at most 536870912 steps, and the input has 536870913"):
        launch.forward(*values, None, schedule, 0, "tanh", False)


def test_the_launch_takes_small_networks_alone(device):
    taken, left = Schedule((1, 2), (100, 28)), Schedule((1, 2), (100, 29))
    assert small.takes(taken, "tanh", torch.bfloat16)
    assert not small.takes(left, "tanh", torch.float32)
    assert small.takes(taken, "lstm", torch.float32)
    assert not small.takes(taken, "lstm", torch.float16)
    assert small.takes(Schedule((1, 2), (10, 54)), "gru", torch.float16)
    assert not small.takes(left, "gru", torch.float32)
    values = make_tensors(taken, 2, 1, 1)
    device.launched.clear()
    final, *_ = launch.forward(*values, None, taken, 0, "tanh", True)
    exact = clockwork_reference(*(value.double() for value in values), taken)
    assert measure_distance(final[0], exact[-1]) < 1e-5
    assert [name for name, *_ in device.launched] == ["run_small_forward"]
