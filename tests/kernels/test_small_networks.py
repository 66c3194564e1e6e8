"""The GPU kernel of small networks against the specification. An emulator runs the programs on the CPU."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from like_torch.test_nonfinite import broken_networks, run_reference
from support import emulated_gpu
from support.network_cases import Case, cases, evaluate, schedules

from cwrnn import Schedule, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.kernels.backend import KernelBackend
from cwrnn.kernels.gpu import driver, launch, small

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")

KERNEL = KernelBackend(small)
TOLERANCES = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}
DTYPES = list(TOLERANCES)
NAMES = ("input", "weight_ih", "weight_hh", "bias", "h0")
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True, scope="module")
def device():
    """The emulated device, in place of the driver."""
    device = emulated_gpu.Emulator(seed=1)
    loaders = small._load_forward, small._load_backward, small._load_gradients
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "load_program", emulated_gpu.load_program)
        patch.setattr(driver, "launch", device.launch)
        for loader in loaders:
            loader.cache_clear()
        yield device
        for loader in loaders:
            loader.cache_clear()


def measure_distance(found, right):
    """The largest difference, relative to the largest number, or to 1 if that is less."""
    assert found.shape == right.shape
    if right.numel() == 0:
        return 0.0
    return ((found.double() - right).abs().max() / right.abs().max().clamp(min=1)).item()


def check(case, dtype=torch.float32):
    expected, found = evaluate(case), evaluate(case, KERNEL.run, dtype)
    assert expected.keys() == found.keys()
    distances = {name: measure_distance(found[name], expected[name]) for name in expected}
    assert all(distance <= TOLERANCES[dtype] for distance in distances.values()), distances


def make_tensors(schedule, T, B, I, lead=(), dtype=torch.float32, seed=0):
    """Random input, weight_ih, weight_hh, bias and h0."""
    N = schedule.hidden_size
    generator = torch.Generator().manual_seed(seed)
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    return [torch.randn(*lead, *shape, generator=generator).mul(0.5).to(dtype) for shape in shapes]


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(case=cases(small.CELLS))
def test_any_schedule_and_phase_equal_the_specification(case):
    check(case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cell", small.CELLS)
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


def test_long_sequences_are_summed_in_parts():
    check(Case(Schedule((1, 3), (2, 3)), 100, 3, 2, 1, scale=0.5))


def compute_ticks(run, values, schedule, t0, cell, lengths):
    """The ticks of all modules in one row, the final state, and the gradients of random sums of both."""
    leaves = [value.clone().requires_grad_() for value in values]
    done = run(*leaves, schedule, t0, cell, lengths, hold=False)
    ticks = torch.cat([module.values.flatten() for module in done.modules])
    final = done.final()
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(value.shape, generator=generator).to(value.dtype) for value in (ticks, final)]
    gradients = torch.autograd.grad((ticks, final), leaves, cotangents, allow_unused=True, materialize_grads=True)
    return dict(zip(("ticks", "final", *NAMES), (ticks.detach(), final.detach(), *gradients), strict=True))


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), schedule=schedules(), t0=st.integers(0, 20), cell=st.sampled_from(small.CELLS))
def test_ticks_equal_those_of_the_cascade(data, schedule, t0, cell):
    T, B = data.draw(st.integers(0, 20)), data.draw(st.integers(1, 3))
    lengths = data.draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B)) if T > 0 else None
    lengths = None if lengths is None else torch.tensor(lengths)
    values = make_tensors(schedule, T, B, 2)
    expected = compute_ticks(BACKENDS["torch"].run, [v.double() for v in values], schedule, t0, cell, lengths)
    found = compute_ticks(KERNEL.run, values, schedule, t0, cell, lengths)
    assert all(measure_distance(found[name], expected[name]) <= 2e-5 for name in expected)


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), schedule=schedules(), cell=st.sampled_from(small.CELLS))
def test_sequences_end_at_their_lengths_and_are_not_read_beyond(data, schedule, cell):
    T, B, I = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 5)), data.draw(st.integers(0, 2))
    lengths = data.draw(st.lists(st.integers(1, T), min_size=B, max_size=B))
    values = make_tensors(schedule, T, B, I)
    for b, length in enumerate(lengths):
        values[0][length:, b] = torch.nan
    results = []
    for dtype in (torch.float64, torch.float32):
        leaves = [value.to(dtype).requires_grad_() for value in values]
        if dtype == torch.float64:
            output, final = run_reference(leaves, schedule, 5, cell, torch.tensor(lengths))
        else:
            done = KERNEL.run(*leaves, schedule, 5, cell, torch.tensor(lengths))
            output, final = done.hold(), done.final()
        generator = torch.Generator().manual_seed(2)
        cotangents = [torch.randn(value.shape, generator=generator).to(dtype) for value in (output, final)]
        gradients = torch.autograd.grad((output, final), leaves, cotangents, allow_unused=True, materialize_grads=True)
        results.append((output, final, *gradients))
    assert all(measure_distance(found, right) <= 2e-5 for right, found in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("t0", [0, 5])
def test_a_split_sequence_has_the_same_bits(t0, dtype):
    schedule = Schedule((1, 3, 4), (5, 2, 4))
    input, *others, h0 = make_tensors(schedule, 45, 2, 3, dtype=dtype)
    final, _, whole, _ = small.forward(input, *others, h0, None, schedule, t0, "tanh", True)
    for split in (1, 32, 37):
        middle, _, first, _ = small.forward(input[:split], *others, h0, None, schedule, t0, "tanh", True)
        end, _, second, _ = small.forward(input[split:], *others, middle[0], None, schedule, t0 + split, "tanh", True)
        assert torch.equal(torch.cat((first, second)), whole)
        assert torch.equal(end, final)


def pull_back(tensors, cotangents, schedule, lengths=None):
    """All results of a call forward and backward."""
    input, weight_ih, weight_hh, bias, h0 = tensors
    final, ticks, held, _ = small.forward(input, weight_ih, weight_hh, bias, h0, lengths, schedule, 3, "tanh", True)
    *gradients, _ = small.backward(
        [True] * 5 + [False], input, weight_ih, weight_hh, bias, lengths, ticks, *cotangents, schedule, 3, "tanh"
    )
    return [final, ticks, held, *gradients]


def test_replicas_have_the_bits_of_networks_one_by_one():
    schedule, S, T, B = Schedule((1, 3, 4), (5, 2, 4)), 3, 21, 2
    tensors = make_tensors(schedule, T, B, 3, (S,))
    lengths = torch.tensor([[21, 3], [1, 20], [7, 7]])
    _, ticks, held, *_ = pull_back(tensors, (None, None, torch.zeros(S, T, B, 11)), schedule, lengths)
    cotangents = torch.randn(S, 1, B, 11), torch.randn(ticks.shape), torch.randn(held.shape)
    together = pull_back(tensors, cotangents, schedule, lengths)
    for s in range(S):
        alone = pull_back([tensor[s] for tensor in tensors], [c[s] for c in cotangents], schedule, lengths[s])
        assert all(torch.equal(all_of_them[s], one) for all_of_them, one in zip(together, alone, strict=True))


def test_views_are_read_as_their_strides_say():
    schedule, T, B = Schedule((1, 3, 4), (5, 2, 4)), 9, 2
    tensors = make_tensors(schedule, T, B, 3)
    g_held = torch.randn(T, B, 11)
    right = pull_back(tensors, (None, None, g_held), schedule)
    odd = [torch.stack((tensor, tensor + 1), -1)[..., 0] for tensor in tensors]
    odd[0] = tensors[0].transpose(0, 1).contiguous().transpose(0, 1)
    for view in (g_held.permute(2, 0, 1).contiguous().permute(1, 2, 0), torch.conj(-1j * g_held).imag):
        assert not view.is_contiguous() or view.is_neg()
        assert all(map(torch.equal, pull_back(odd, (None, None, view), schedule), right))
    one = torch.ones(())
    expanded = pull_back(tensors, (None, None, one.expand(T, B, 11)), schedule)
    assert all(map(torch.equal, expanded, pull_back(tensors, (None, None, torch.ones(T, B, 11)), schedule)))


@pytest.mark.parametrize("wanted", list(itertools.product([False, True], repeat=5))[1:])
def test_gradients_that_are_not_wanted_change_no_others(wanted):
    schedule = Schedule((1, 3), (2, 3))
    input, weight_ih, weight_hh, bias, h0 = make_tensors(schedule, 5, 2, 2)
    _, ticks, *_ = small.forward(input, weight_ih, weight_hh, bias, h0, None, schedule, 1, "relu", False)
    g_ticks = torch.randn(ticks.shape, generator=torch.Generator().manual_seed(0))
    arguments = input, weight_ih, weight_hh, bias, None, ticks, None, g_ticks, None, schedule, 1, "relu"
    everything = small.backward([True] * 5 + [False], *arguments)
    found = small.backward([*wanted, False], *arguments)
    for want, value, right in zip([*wanted, False], found, everything, strict=True):
        assert (value is not None) == want
        assert value is None or torch.equal(value, right)


@pytest.mark.parametrize("cell", small.CELLS)
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
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
    done = KERNEL.run(*tensors, schedule, t0, cell, lengths)
    return done.hold(), done.final()


def test_the_launch_takes_small_networks_alone(device):
    taken, left = Schedule((1, 2), (100, 28)), Schedule((1, 2), (100, 29))
    assert small.takes(taken, "tanh")
    assert not small.takes(left, "tanh")
    assert not small.takes(taken, "lstm")
    values = make_tensors(taken, 2, 1, 1)
    device.launched.clear()
    final, *_ = launch.forward(*values, None, taken, 0, "tanh", True)
    exact = clockwork_reference(*(value.double() for value in values), taken)
    assert measure_distance(final[0], exact[-1]) < 1e-5
    assert [name for name, *_ in device.launched] == ["run_small_forward"]
