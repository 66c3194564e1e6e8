"""The gradients of the weights, the bias and the input of simple cells on a GPU, run by an emulator on the CPU.

Some tests call the whole kernel and compare its gradients with the specification. The others give the programs random
gradients of messages, and compute from them what the equations say.
"""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from like_torch.test_nonfinite import broken_networks, run_reference
from support import emulated_gpu
from support.network_cases import Case, evaluate, measure_distance

from cwrnn import Schedule
from cwrnn.kernels.backend import KernelBackend
from cwrnn.kernels.gpu import gradients, launch
from cwrnn.kernels.gpu.tables import make_plan

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")

CPU = torch.device("cpu")
KERNEL = KernelBackend(launch)
TF32 = "tf32"
TOLERANCES = {torch.float32: 1e-6, TF32: 2e-3, torch.float16: 2e-3, torch.bfloat16: 1e-2}
WHOLE_TOLERANCES = {torch.float32: 2e-5, TF32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 8e-2}
DTYPES = list(TOLERANCES)
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True, scope="module")
def device():
    """The emulated device, in place of the driver; small networks are not left to programs of their own."""
    with emulated_gpu.emulating() as device:
        yield device


def multiply(schedule, T, B, I, t0, messages, states, input, weight, lengths):
    """The gradients of input, weight_ih, weight_hh and bias of one replica, as the equations say."""
    plan, N = make_plan(schedule, t0, T, B, CPU), schedule.hidden_size
    shapes = (T, B, I), (N, I), (N, N), (N,)
    g_input, g_weight_ih, g_weight_hh, g_bias = (torch.zeros(shape, dtype=torch.float64) for shape in shapes)
    messages = messages.double().split([(n + 1) * B * u.stop for n, u in zip(plan.ticks, schedule.slices, strict=True)])
    states = states.double().split([(n + 1) * B * size for n, size in zip(plan.ticks, schedule.sizes, strict=True)])
    modules = zip(schedule.periods, plan.ticks, schedule.slices, messages, states, strict=True)
    for period, n, units, rows, sent in modules:
        rows, sent = rows.view(n + 1, B, units.stop), sent.view(n + 1, B, -1)
        g_weight_hh[: units.stop, units] = torch.einsum("nbr,nbs->rs", rows, sent)
        # the gradient of a row's message to its own module is that of the next tick's sum
        g_sums, times = rows[:-1, :, units], slice(-t0 % period, None, period)
        g_bias[units] = g_sums.sum((0, 1))
        ends = torch.full((B,), T) if lengths is None else lengths
        g_sums = g_sums * (torch.arange(T)[times][:n, None, None] < ends[:, None])
        g_weight_ih[units] = torch.einsum("nbu,nbi->ui", g_sums, input[times][:n].double())
        g_input[times][:n] += g_sums @ weight[units].double()
    return g_input, g_weight_ih, g_weight_hh, g_bias


def check(schedule, T, B, I, t0=0, dtype=torch.float32, S=None, ended=False, wanted=(True,) * 4, views=False):
    """Compare the gradients by the programs with those by the equations, and return them."""
    element, N, lead = torch.float32 if dtype == TF32 else dtype, schedule.hidden_size, () if S is None else (S,)
    plan, generator = make_plan(schedule, t0, T, B, CPU), torch.Generator().manual_seed(0)
    shapes = (plan.g_messages_size,), (plan.states_size,), (T, B, I), (N, I)
    messages, states, input, weight = (torch.randn(*lead, *shape, generator=generator).to(element) for shape in shapes)
    lengths = torch.randint(1, T + 1, (*lead, B), generator=generator) if ended else None
    if lengths is not None:
        # what lies behind the end of a sequence does not count
        input[torch.arange(T)[:, None] >= lengths[..., None, :]] = 100
    if views:
        input = input.transpose(-3, -2).contiguous().transpose(-3, -2)
        weight = torch.cat((weight.flatten()[:1], weight.flatten()))[1:].view(weight.shape)
    shapes = (T, B, I), (N, I), (N, N), (N,)
    found = [
        torch.full((*lead, *shape), torch.nan, dtype=element) if want else None
        for want, shape in zip(wanted, shapes, strict=True)
    ]
    products = 3 if dtype == torch.float32 else 1
    gradients.compute(plan, schedule, 1, products, input, weight, lengths, states, messages, *found)
    for s in range(S or 1):
        of_replica = [
            tensor if S is None or tensor is None else tensor[s]
            for tensor in (messages, states, input, weight, lengths)
        ]
        expected = multiply(schedule, T, B, I, t0, *of_replica)
        for tensor, right in zip(found, expected, strict=True):
            if tensor is not None:
                distance = measure_distance(tensor if S is None else tensor[s], right)
                assert distance <= TOLERANCES[dtype], (distance, right.shape)
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_any_shape_equals_the_equations(dtype, data):
    step = data.draw(st.sampled_from([1, 2, 8]))
    periods = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
    sizes = [step * data.draw(st.integers(1, 24 // step)) for _ in periods]
    T, B, I = data.draw(st.integers(0, 20)), data.draw(st.integers(1, 40)), step * data.draw(st.integers(0, 24 // step))
    ended, views, replicas = (data.draw(st.booleans()) for _ in range(3))
    check(
        Schedule(tuple(periods), tuple(sizes)), T, B, I, data.draw(st.integers(0, 30)), dtype,
        S=2 if replicas else None, ended=ended and T > 0, views=views and I > 0,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("schedule", "T", "B", "I"),
    [
        pytest.param(Schedule((1, 2), (128, 72)), 9, 40, 8, id="128 units"),
        pytest.param(Schedule((1, 3), (7, 131)), 9, 33, 5, id="odd sizes"),
        pytest.param(Schedule((1, 2, 4), (16, 16, 16)), 70, 17, 136, id="many inputs"),
        pytest.param(Schedule((2, 4), (24, 8)), 6, 150, 16, id="many sequences"),
        pytest.param(Schedule((1, 50), (20, 70)), 40, 30, 4, id="a module that ticks at most once"),
    ],
)
def test_large_blocks_equal_the_equations(dtype, schedule, T, B, I):
    check(schedule, T, B, I, 3, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_of_blocks_does_not_matter(device, monkeypatch, dtype):
    arguments = Schedule((1, 2, 4), (80, 16, 8)), 40, 30, 24, 3, dtype
    one = check(*arguments)
    monkeypatch.setattr(device, "seed", 5)
    monkeypatch.setattr(device, "slots", 2)
    assert all(map(torch.equal, one, check(*arguments)))


def test_gradients_that_are_not_wanted_change_no_bits():
    arguments = Schedule((1, 2, 4), (70, 16, 9)), 20, 30, 20, 3
    complete = check(*arguments)
    for wanted in itertools.product([False, True], repeat=4):
        found = check(*arguments, wanted=wanted)
        assert [tensor is not None for tensor in found] == list(wanted)
        for tensor, right in zip(found, complete, strict=True):
            assert tensor is None or torch.equal(tensor, right)


def test_replicas_have_the_bits_that_they_have_alone():
    schedule, T, B, I, S = Schedule((1, 2, 4), (70, 16, 8)), 20, 30, 20, 3
    plan = make_plan(schedule, 0, T, B, CPU)
    N = schedule.hidden_size
    shapes = (T, B, I), (N, I), (plan.states_size,), (plan.g_messages_size,)
    tensors = [torch.randn(S, *shape) for shape in shapes]
    shapes = (T, B, I), (N, I), (N, N), (N,)

    def run(lead, input, weight, states, messages):
        found = [torch.full((*lead, *shape), torch.nan) for shape in shapes]
        gradients.compute(plan, schedule, 1, 3, input, weight, None, states, messages, *found)
        return found

    together = run((S,), *tensors)
    for s in range(S):
        alone = run((), *(tensor[s].contiguous() for tensor in tensors))
        assert all(torch.equal(one, all_of_them[s]) for one, all_of_them in zip(alone, together, strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(Schedule((1, 2, 4), (16, 8, 24)), 23, 9, 8, 3, scale=0.5), id="nested"),
        pytest.param(Case(Schedule((2, 3, 7), (5, 3, 9)), 23, 3, 3, 5, cell="relu", scale=0.5), id="coprime"),
        pytest.param(Case(Schedule((1, 2, 4), (48, 48, 48)), 9, 3, 16, 0, scale=0.5), id="more than 128 units"),
        pytest.param(Case(Schedule((1, 2), (16, 8)), 9, 3, 0, 1, bias=False, initial=False), id="no inputs, no bias"),
        pytest.param(Case(Schedule((1, 2), (16, 8)), 9, 3, 5, 1, contiguous=False, scale=0.5), id="views"),
        pytest.param(Case(Schedule((1, 2), (16, 8)), 0, 3, 5, 1), id="no steps"),
    ],
)
def test_whole_calls_equal_the_specification(monkeypatch, dtype, case):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", dtype == TF32)
    element = torch.float32 if dtype == TF32 else dtype
    expected, found = evaluate(case), evaluate(case, KERNEL.run, element)
    assert expected.keys() == found.keys()
    distances = {name: measure_distance(found[name], expected[name]) for name in expected}
    assert all(distance <= WHOLE_TOLERANCES[dtype] for distance in distances.values()), distances


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_no_number_is_spoilt_that_the_specification_does_not_spoil(data):
    schedules = [Schedule((1, 2, 4), (3, 1, 2)), Schedule((2, 3, 5), (1, 2, 3))]
    schedule, t0, cell, lengths, tensors, cotangents = data.draw(broken_networks(st.sampled_from(schedules), ("relu",)))
    # a recurrent weight that is not finite may spoil more gradients than in the specification
    assume(tensors["weight_hh"].isfinite().all())
    # float32 has too few digits for sums of huge and small numbers
    values = [tensor.where(tensor != 2.0**40, 5).float() for tensor in tensors.values()]
    cotangents = [cotangent.float() for cotangent in cotangents]
    results = []
    for run in (run_reference, run_kernel):
        leaves = [value.clone().requires_grad_() for value in values]
        outputs = run(leaves, schedule, t0, cell, lengths)
        results.append(torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True, materialize_grads=True))
    # numbers may cancel, and differ by the rounding of the largest
    largest = max(1.0, *(right.nan_to_num(0, 0, 0).abs().max().item() for right in results[0]))
    for right, found in zip(*results, strict=True):
        # a message that is heard twice is multiplied once by the sum of both gradients
        forgiven = right.isnan() & found.isinf()
        found = found.where(~forgiven, torch.nan)
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


def run_kernel(tensors, schedule, t0, cell, lengths):
    done = KERNEL.run(*tensors, schedule, t0, cell, lengths, True)
    return done.hold(), done.final()
