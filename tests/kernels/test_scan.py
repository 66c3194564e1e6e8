"""The GPU kernel of simple cells against the specification. An emulator runs the programs on the CPU.

Backward, the programs compute the gradients of all messages (`g_messages`). The tests compute from them the gradients
of the weights, the bias and the input, as the equations say.
"""

import contextlib
import inspect
import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from like_torch.test_nonfinite import broken_networks, run_reference
from support import emulated_gpu
from support.scan_layouts import Cut, cutting

from cwrnn import Schedule, clockwork_reference
from cwrnn.kernels.gpu import launch, scan

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")

CPU = torch.device("cpu")
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
TF32 = "tf32"
TOLERANCES = {torch.float32: 2e-5, TF32: 4e-3, torch.float16: 1e-2, torch.bfloat16: 8e-2}
NAMES = ("output", "final", "ticks", "input", "weight_ih", "weight_hh", "bias", "h0")
"""What `compute` returns: results of a call, and the gradients of its arguments."""


@dataclass(frozen=True)
class Variant:
    """Programs with constants of their own."""

    schedule: Schedule
    dtype: object = torch.float32
    cell: str = "tanh"
    cut: Cut | None = None

    @property
    def element(self) -> torch.dtype:
        return torch.float32 if self.dtype == TF32 else self.dtype


VARIANTS = {
    "float32": Variant(Schedule((1, 2, 4), (16, 3, 24))),
    "float32-coprime": Variant(Schedule((2, 3, 7), (5, 3, 9)), cell="relu"),
    "tf32": Variant(Schedule((1, 3, 6), (48, 48, 40)), TF32),
    "bfloat16-coprime": Variant(Schedule((2, 3, 7), (5, 18, 9)), torch.bfloat16),
    "bfloat16-vectors": Variant(Schedule((1, 2, 6), (16, 8, 24)), torch.bfloat16),
    "bfloat16-136-units": Variant(Schedule((1, 3), (136, 16)), torch.bfloat16),
    "float16-pairs": Variant(Schedule((1, 2, 4), (2, 6, 10)), torch.float16),
    "float16-full": Variant(Schedule((1, 2, 4, 8), (16, 16, 32, 16)), torch.float16),
    "spread-float32": Variant(Schedule((2, 3, 7), (35, 3, 70)), cell="relu", cut=Cut(2, 1, 2, 3)),
    "spread-tf32": Variant(Schedule((1, 2, 4), (72, 8, 56)), TF32, cut=Cut(1, 2, 1, 1)),
    "spread-bfloat16": Variant(Schedule((1, 2, 4), (8, 40, 24)), torch.bfloat16, cut=Cut(1, 1, 1, 2)),
    "spread-float16": Variant(Schedule((1, 2, 6), (33, 70, 9)), torch.float16, cut=Cut(4, 1, 4, 2)),
    "turns-float32": Variant(Schedule((2, 3, 7), (36, 4, 72)), cell="relu", cut=Cut(2, 1, 2, 3, 4)),
    "turns-tf32": Variant(Schedule((1, 2, 4), (72, 8, 56)), TF32, cut=Cut(1, 2, 1, 1, 2)),
    "turns-bfloat16": Variant(Schedule((1, 2, 4), (8, 40, 24)), torch.bfloat16, cut=Cut(2, 1, 1, 2, 2)),
}
SPREAD = [name for name, variant in VARIANTS.items() if variant.cut is not None]


@pytest.fixture(autouse=True, scope="module")
def device():
    """The emulated device, in place of the driver; small networks are not left to programs of their own."""
    with emulated_gpu.emulating() as device, pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.gradients, "compute", lambda *arguments: None)
        yield device


@contextlib.contextmanager
def running(variant):
    """Makes the programs cut modules, and multiply float32, as the variant says."""
    with pytest.MonkeyPatch.context() as patch, cutting(variant.cut):
        patch.setattr(torch.backends.cudnn, "allow_tf32", variant.dtype == TF32)
        yield


@pytest.fixture
def variant(request):
    """The variant of that name."""
    variant = VARIANTS[request.param]
    with running(variant):
        yield variant


@dataclass(frozen=True)
class Call:
    """Everything about a call but the network."""

    T: int
    B: int
    I: int = 3
    t0: int = 0
    bias: bool = True
    initial: bool = True
    lengths: tuple[int, ...] | None = None
    seed: int = 0


def make_tensors(schedule, call, dtype, lead=()):
    """Random input, weight_ih, weight_hh, bias and h0; None for those that are left out."""
    N = schedule.hidden_size
    generator = torch.Generator().manual_seed(call.seed)
    shapes = (call.T, call.B, call.I), (N, call.I), (N, N), (N,), (call.B, N)
    scales = 1.0, 0.3, N**-0.5, 0.3, 0.5
    values = [torch.randn(*lead, *shape, generator=generator) for shape in shapes]
    tensors = [(value * scale).to(dtype) for value, scale in zip(values, scales, strict=True)]
    return [*tensors[:3], tensors[3] if call.bias else None, tensors[4] if call.initial else None]


def make_cotangents(schedule, call, dtype, ticks):
    """Random gradients of the output, the final state and the ticks."""
    generator = torch.Generator().manual_seed(call.seed + 1)
    shapes = (call.T, call.B, schedule.hidden_size), (call.B, schedule.hidden_size), (ticks,)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def make_lengths(call):
    return None if call.lengths is None else torch.tensor(call.lengths)


def specify(variant, call, tensors, cotangents):
    """The results by the specification, in float64. Ticks are rows of the output: those of each module, after h0."""
    schedule, lengths = variant.schedule, make_lengths(call)
    leaves = [None if tensor is None else tensor.double() for tensor in tensors]
    if leaves[4] is None:
        leaves[4] = torch.zeros(call.B, schedule.hidden_size, dtype=torch.float64)
    wanted = [leaf.requires_grad_() for leaf in leaves if leaf is not None]
    h0 = leaves[4]
    if call.T == 0:
        output, final = clockwork_reference(*leaves, schedule, call.t0, variant.cell), h0
    else:
        output, final = run_reference(leaves, schedule, call.t0, variant.cell, lengths)
    ticks = []
    for period, units in zip(schedule.periods, schedule.slices, strict=True):
        ticks += [h0[:, units].flatten(), output[-call.t0 % period :: period, :, units].flatten()]
    results = output, final, torch.cat(ticks)
    cotangents = [cotangent.double() for cotangent in cotangents]
    if call.lengths is not None:
        cotangents[2].zero_()
    gradients = iter(torch.autograd.grad(results, wanted, cotangents, allow_unused=True, materialize_grads=True))
    gradients = [None if leaf is None else next(gradients) for leaf in leaves]
    if not call.initial:
        gradients[4] = None
    return [*(result.detach() for result in results), *gradients]


def run_forward(variant, call, tensors):
    """The final state, the ticks and the output by the programs."""
    lengths = make_lengths(call)
    final, ticks, held, _ = launch.forward(*tensors, lengths, variant.schedule, call.t0, variant.cell, True)
    return final, ticks, held


class EnoughComputedError(Exception):
    """The gradients of all messages are there. What follows has tests of its own."""


def run_backward(variant, call, tensors, ticks, g_held, g_final, g_ticks):
    """The gradients of all messages, and that of h0, by the programs."""
    input, weight_ih, weight_hh, bias, h0 = tensors
    wanted = [True] * 3 + [bias is not None, h0 is not None, False]
    signature, backward, results = inspect.signature(scan.backward), scan.backward, []

    def keep_messages(*arguments):
        results.append(backward(*arguments))
        results.append(signature.bind(*arguments).arguments["g_h0"])
        raise EnoughComputedError

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(EnoughComputedError):
        patch.setattr(scan, "backward", keep_messages)
        launch.backward(
            wanted, input, weight_ih, weight_hh, bias, make_lengths(call), ticks, g_final, g_ticks, g_held,
            variant.schedule, call.t0, variant.cell,
        )  # fmt: skip
    return results


def compute(variant, call, tensors, cotangents):
    """The results by the programs, without replicas: outputs, and gradients that follow from those of the messages."""
    schedule = variant.schedule
    input, weight_ih, _, bias, _ = tensors
    final, ticks, held = run_forward(variant, call, tensors)
    g_held, g_final, g_ticks = cotangents
    if call.lengths is not None:
        g_ticks = None
    g_messages, g_h0 = run_backward(variant, call, tensors, ticks, g_held, g_final[None], g_ticks)
    plan = launch.make_plan(schedule, call.t0, call.T, call.B, CPU)
    N = schedule.hidden_size
    g_input, g_weight_ih = torch.zeros(input.shape, dtype=torch.float64), torch.zeros(weight_ih.shape).double()
    g_weight_hh, g_bias = torch.zeros(N, N, dtype=torch.float64), torch.zeros(N, dtype=torch.float64)
    rows = split_rows(schedule, plan.ticks, call.B, ticks, g_messages)
    for period, units, (states, g_rows) in zip(schedule.periods, schedule.slices, rows, strict=True):
        g_weight_hh[: units.stop, units] = torch.einsum("nbr,nbs->rs", g_rows, states)
        # the gradient of a row's message to its own module is that of the next tick's sum
        g_sums, times = g_rows[:-1, :, units], slice(-call.t0 % period, None, period)
        x = input[times].double()
        if call.lengths is not None:
            x = x.where(torch.arange(call.T)[times][:, None, None] < torch.tensor(call.lengths)[:, None], 0)
        g_weight_ih[units] = torch.einsum("nbu,nbi->ui", g_sums, x)
        g_bias[units] = g_sums.sum((0, 1))
        g_input[times] += g_sums @ weight_ih[units].double()
    return [held, final[0], ticks, g_input, g_weight_ih, g_weight_hh, None if bias is None else g_bias, g_h0]


def split_rows(schedule, ticks, B, states, g_messages):
    """For each module its states (ticks + 1, B, K) and the gradients of its messages (ticks + 1, B, first unit + K)."""
    shapes = list(zip(ticks, schedule.sizes, schedule.slices, strict=True))
    all_states = states.double().split([(n + 1) * B * size for n, size, _ in shapes])
    all_rows = g_messages.double().split([(n + 1) * B * units.stop for n, _, units in shapes])
    return [
        (own.view(n + 1, B, size), rows.view(n + 1, B, units.stop))
        for (n, size, units), own, rows in zip(shapes, all_states, all_rows, strict=True)
    ]


def measure_distance(found, right):
    """The largest difference, relative to the largest number, or to 1 if that is less."""
    assert found.shape == right.shape
    if right.numel() == 0:
        return 0.0
    return ((found.double() - right).abs().max() / right.abs().max().clamp(min=1)).item()


def check(variant, call):
    """Compare all results of the programs with the specification."""
    tensors = make_tensors(variant.schedule, call, variant.element)
    size = launch.make_plan(variant.schedule, call.t0, call.T, call.B, CPU).states_size
    cotangents = make_cotangents(variant.schedule, call, variant.element, size)
    expected = specify(variant, call, tensors, cotangents)
    for b, length in enumerate(call.lengths or ()):
        # what lies behind the end of a sequence is not read
        tensors[0][length:, b] = cotangents[0][length:, b] = torch.nan
    found = compute(variant, call, tensors, cotangents)
    if call.lengths is not None:
        # rows behind the end of a sequence are of no use
        expected[2] = found[2] = torch.zeros(0)
    distances = {
        name: measure_distance(value, right)
        for name, value, right in zip(NAMES, found, expected, strict=True)
        if right is not None
    }
    assert all(distance <= TOLERANCES[variant.dtype] for distance in distances.values()), distances


@st.composite
def schedules(draw):
    """Draw schedules, nested or not, of one to four modules of at most 16 units, of which one has an odd size."""
    if draw(st.booleans()):
        periods = [draw(st.integers(1, 3))]
        while len(periods) < 4 and periods[-1] <= 6 and draw(st.booleans()):
            periods.append(periods[-1] * draw(st.integers(2, 3)))
    else:
        periods = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True))
    sizes = [draw(st.integers(1, 16)) for _ in periods]
    sizes[0] -= all(size % 2 == 0 for size in sizes)
    return Schedule(tuple(periods), tuple(sizes))


@st.composite
def calls(draw, longest):
    """Draw calls of any length at any phase of the clock: with few steps or many, with h0 or without."""
    B = draw(st.integers(1, 17))
    T = draw(st.one_of(st.integers(2 * longest + 1, 2 * longest + 9), st.integers(0, 2)))
    lengths = draw(st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B)) if T > 0 else None
    return Call(
        T=T,
        B=B,
        I=draw(st.integers(0, 5)),
        t0=draw(st.integers(0, 3 * longest)),
        bias=draw(st.booleans()),
        initial=draw(st.booleans()),
        lengths=None if lengths is None else tuple(lengths),
        seed=draw(st.integers(0, 1000)),
    )


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), schedule=schedules())
def test_any_schedule_and_phase_equal_the_specification(data, schedule):
    check(Variant(schedule), data.draw(calls(schedule.periods[-1])))


def check_calls(variant):
    longest = variant.schedule.periods[-1]
    check(variant, Call(4 * longest + 5, 11, 3, 3))
    check(variant, Call(2 * longest + 1, 2, 3, 7, bias=False, initial=False))
    check(variant, Call(9, 9, 3, 1, lengths=(9, 1, 2, 3, 4, 5, 6, 7, 8)))
    for T in (0, 1, 2):
        check(variant, Call(T, 3, 3, 2 * longest - 1))


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name not in SPREAD], indirect=True)
def test_modules_in_one_block_equal_the_specification(variant):
    check_calls(variant)


@pytest.mark.parametrize("variant", SPREAD, indirect=True)
def test_spread_modules_equal_the_specification(variant):
    check_calls(variant)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
@pytest.mark.parametrize("variant", ["float32", "float32-coprime", *SPREAD], indirect=True)
def test_every_wait_ends_if_the_parts_of_one_module_run_at_once(device, monkeypatch, variant, seed):
    largest = max(variant.schedule.sizes)
    slots = 1 if variant.cut is None else scan.choose_layout(largest, variant.element.itemsize, 1).count_parts(largest)
    monkeypatch.setattr(device, "slots", slots)
    monkeypatch.setattr(device, "seed", seed)
    check(variant, Call(2 * variant.schedule.periods[-1] + 3, 9, 3, 1))


def test_modules_that_no_block_can_compute_alone_equal_the_specification(device, monkeypatch):
    variant = Variant(Schedule((2, 3), (300, 33)))
    layout = scan.choose_layout(300, 4, 3)
    assert layout.count_parts(300) > 1
    monkeypatch.setattr(device, "slots", layout.count_parts(300))
    check(variant, Call(7, 3, 4, 1))


def run_all(variant, call, tensors, cotangents):
    """The outputs of a call, the gradients of the messages and of h0, all by the programs."""
    final, ticks, held = run_forward(variant, call, tensors)
    return [final, ticks, held, *run_backward(variant, call, tensors, ticks, *cotangents)]


@pytest.mark.parametrize("variant", ["float32", "bfloat16-coprime", "spread-tf32", "spread-float16"], indirect=True)
def test_a_split_sequence_has_the_same_bits(variant):
    call = Call(31, 9, 3, 5)
    input, *others, h0 = make_tensors(variant.schedule, call, variant.element)
    final, _, whole = run_forward(variant, call, [input, *others, h0])
    for split in (1, 16, 29):
        middle, _, first = run_forward(variant, replace(call, T=split), [input[:split], *others, h0])
        rest = replace(call, T=31 - split, t0=5 + split)
        end, _, second = run_forward(variant, rest, [input[split:], *others, middle[0]])
        assert torch.equal(torch.cat((first, second)), whole)
        assert torch.equal(end, final)


@pytest.mark.parametrize("variant", ["float32", "bfloat16-136-units", "spread-float32"], indirect=True)
def test_replicas_and_sequences_have_the_bits_that_they_have_alone(variant):
    schedule, S, call = variant.schedule, 3, Call(15, 9, 3, 2)
    tensors = make_tensors(schedule, call, variant.element, (S,))
    ticks = launch.make_plan(schedule, call.t0, call.T, call.B, CPU).states_size
    shapes = (S, call.T, call.B, schedule.hidden_size), (S, 1, call.B, schedule.hidden_size), (S, ticks)
    cotangents = [torch.randn(shape).to(variant.element) for shape in shapes]
    together = run_all(variant, call, tensors, cotangents)
    for s in range(S):
        alone = run_all(variant, call, [tensor[s] for tensor in tensors], [tensor[s] for tensor in cotangents])
        for all_of_them, one in zip(together, alone, strict=True):
            assert torch.equal(all_of_them.view(S, -1)[s], one.view(-1))
    input, *weights, h0 = (tensor[0] for tensor in tensors)
    for b in (0, 8):
        one = run_forward(variant, replace(call, B=1), [input[:, b : b + 1], *weights, h0[b : b + 1]])
        assert torch.equal(one[0], together[0][0, :, b : b + 1])
        assert torch.equal(one[2], together[2][0, :, b : b + 1])


@pytest.mark.parametrize("variant", ["float32", "bfloat16-vectors"], indirect=True)
def test_views_are_read_as_their_strides_say(variant):
    schedule, call = variant.schedule, Call(15, 9, 6, 2)
    N = schedule.hidden_size
    tensors = make_tensors(schedule, call, variant.element)
    g_held, g_final = torch.randn(15, 9, N).to(variant.element), torch.randn(1, 9, N).to(variant.element)
    right = run_all(variant, call, tensors, (g_held, g_final, None))
    views = [
        tensors[0].transpose(0, 1).contiguous().transpose(0, 1),
        *(
            torch.cat((tensor, torch.full_like(tensor, torch.nan)), -1)[..., : tensor.shape[-1]]
            for tensor in tensors[1:]
        ),
    ]
    found = run_all(variant, call, views, (g_held.transpose(0, 1).contiguous().transpose(0, 1), g_final, None))
    assert all(map(torch.equal, found, right))
    expanded = run_all(variant, call, tensors, (g_held[:1, :1].expand(15, 9, N), g_final, None))
    copied = run_all(variant, call, tensors, (g_held[:1, :1].repeat(15, 9, 1), g_final, None))
    assert all(map(torch.equal, expanded, copied))


@pytest.mark.parametrize("variant", ["float32", "spread-bfloat16"], indirect=True)
def test_gradients_that_are_missing_are_zero(variant):
    schedule, call = variant.schedule, Call(15, 9, 3, 2)
    tensors = make_tensors(schedule, call, variant.element)
    ticks = launch.make_plan(schedule, call.t0, call.T, call.B, CPU).states_size
    g_held, g_final, g_ticks = make_cotangents(schedule, call, variant.element, ticks)
    cotangents = [g_held, g_final[None], g_ticks]
    for missing in itertools.product([False, True], repeat=3):
        zeros = [g.zero_() if none else g for none, g in zip(missing, [g.clone() for g in cotangents], strict=True)]
        nones = [None if none else g for none, g in zip(missing, cotangents, strict=True)]
        found, right = (run_all(variant, call, tensors, some) for some in (nones, zeros))
        assert all(map(torch.equal, found, right))


BROKEN = {
    False: [Schedule((1, 2, 4), (3, 1, 2)), Schedule((2, 3, 5), (1, 2, 3))],
    True: [Schedule((1, 2, 4), (18, 1, 17)), Schedule((2, 3, 5), (17, 2, 16))],
}
"""Schedules of networks with numbers that are not finite, by whether their modules are spread."""


@pytest.mark.parametrize("spread", [False, True], ids=["one block", "spread"])
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_no_number_is_spoilt_that_the_specification_does_not_spoil(spread, data):
    schedule, t0, cell, lengths, tensors, _ = data.draw(broken_networks(st.sampled_from(BROKEN[spread]), ("relu",)))
    # float32 has too few digits for sums of huge and small numbers
    values = [tensor.where(tensor != 2.0**40, 5).float() for tensor in tensors.values()]
    expected = run_reference(values, schedule, t0, cell, lengths)
    with running(Variant(schedule, cell=cell, cut=Cut(1, 1, 1, 1) if spread else None)):
        final, _, held, _ = launch.forward(*values, lengths, schedule, t0, cell, True)
    largest = max(1.0, *(right.nan_to_num(0, 0, 0).abs().max().item() for right in expected))
    for right, found in zip(expected, (held, final[0]), strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5 * largest, equal_nan=True)


@pytest.mark.parametrize(("element_size", "products"), [(4, 3), (4, 1), (2, 1)])
def test_every_layout_fits_a_block(element_size, products):
    for largest in range(1, scan.find_largest_module(element_size, products, 1) + 1):
        layout = scan.choose_layout(largest, element_size, products)
        assert layout.steps * scan.STEP_BYTES >= largest * element_size
        assert layout.steps % (2 * layout.split) == 0
        assert layout.warps % layout.split == 0
        assert layout.registers <= scan.WEIGHT_REGISTERS
        assert layout.spread or layout.units >= largest
        assert layout.units * layout.count_parts(largest) >= largest
        # a device must run all of them at once
        assert layout.count_parts(largest) <= 128


def test_the_switch_of_tf32_is_read_at_every_call(monkeypatch):
    variant, call, outputs = Variant(Schedule((1, 2), (100, 40))), Call(5, 3), []
    tensors = make_tensors(variant.schedule, call, torch.float32)
    for allowed in (False, True, False):
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", allowed)
        outputs.append(run_forward(variant, call, tensors)[2])
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    # without tf32, the weights of such a module do not fit the registers
    tensors = make_tensors(Schedule((1,), (1025,)), call, torch.float32)
    with pytest.raises(RuntimeError, match="cannot run on cpu: in torch.float32 without tf32 it takes modules of"):
        launch.forward(*tensors, None, Schedule((1,), (1025,)), 0, "tanh", True)


def test_a_device_that_cannot_run_all_blocks_of_a_module_is_refused(monkeypatch):
    monkeypatch.setattr(launch, "_count_multiprocessors", lambda device: 63)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert launch.refuse_schedule(Schedule((1, 2), (1008, 3)), CPU, torch.float32, "tanh") is None
    assert (
        launch.refuse_schedule(Schedule((1, 2), (1009, 3)), CPU, torch.float32, "tanh")
        == "one of its modules, of 1009 units in torch.float32 without tf32, needs 64 multiprocessors, and cpu has 63"
    )
