"""LSTM and GRU by the programs of the GPU kernel against the specification. An emulator runs the programs on the CPU.

The tests call the whole kernel: drives, recurrences, messages, and the gradients of everything.
"""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from like_torch.test_nonfinite import run_reference
from support import emulated_gpu
from support.network_cases import Case, evaluate, measure_distance
from support.network_cases import cases as draw_cases
from support.scan_layouts import Cut, cutting

from cwrnn import Schedule
from cwrnn.cells import CELLS
from cwrnn.kernels.backend import KernelBackend
from cwrnn.kernels.gpu import launch, scan

pytestmark = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="the emulator needs g++ on x86-64")

KERNEL = KernelBackend(launch)
TF32 = "tf32"
TOLERANCES = {torch.float32: 2e-5, TF32: 1e-2, torch.float16: 1e-2, torch.bfloat16: 8e-2}
SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@pytest.fixture(autouse=True, scope="module")
def device():
    """The emulated device, in place of the driver; small networks are not left to programs of their own."""
    with emulated_gpu.emulating() as device:
        yield device


@dataclass(frozen=True)
class Variant:
    """Programs with constants of their own."""

    schedule: Schedule
    dtype: object = torch.float32
    cell: str = "lstm"
    peepholes: bool = False
    cut: Cut | None = None

    @property
    def element(self) -> torch.dtype:
        return torch.float32 if self.dtype == TF32 else self.dtype


VARIANTS = {
    "float32": Variant(Schedule((1, 2, 4), (16, 3, 24))),
    "gru-float32": Variant(Schedule((1, 2, 4), (16, 3, 24)), cell="gru"),
    "float32-coprime": Variant(Schedule((2, 3, 7), (5, 3, 9)), peepholes=True),
    "gru-tf32": Variant(Schedule((1, 3, 6), (48, 48, 40)), TF32, "gru"),
    "tf32": Variant(Schedule((1, 3, 6), (48, 48, 40)), TF32, peepholes=True),
    "bfloat16-vectors": Variant(Schedule((1, 2, 6), (16, 8, 24)), torch.bfloat16, peepholes=True),
    "gru-bfloat16-vectors": Variant(Schedule((1, 2, 6), (16, 8, 24)), torch.bfloat16, "gru"),
    "gru-float16-pairs": Variant(Schedule((1, 2, 4), (2, 6, 10)), torch.float16, "gru"),
    "float16-full": Variant(Schedule((1, 2, 4, 8), (16, 16, 32, 16)), torch.float16),
    "gru-float16-full": Variant(Schedule((1, 2, 4, 8), (16, 16, 32, 16)), torch.float16, "gru"),
    "bfloat16-128-units": Variant(Schedule((1, 3), (128, 16)), torch.bfloat16),
    "spread-float32": Variant(Schedule((2, 3, 7), (35, 3, 70)), peepholes=True, cut=Cut(2, 1, 2, 3)),
    "spread-gru-float32": Variant(Schedule((1, 2, 4), (35, 3, 70)), cell="gru", cut=Cut(2, 1, 2, 3)),
    "spread-tf32": Variant(Schedule((1, 2, 4), (72, 8, 56)), TF32, cut=Cut(1, 2, 1, 1)),
    "spread-bfloat16": Variant(Schedule((1, 2, 4), (8, 40, 24)), torch.bfloat16, peepholes=True, cut=Cut(2, 1, 2, 2)),
    "spread-gru-bfloat16": Variant(Schedule((2, 3, 7), (8, 40, 24)), torch.bfloat16, "gru", cut=Cut(4, 1, 4, 2)),
    "spread-float16": Variant(Schedule((1, 2, 6), (33, 70, 9)), torch.float16, cut=Cut(4, 1, 4, 2)),
    "turns-float32": Variant(Schedule((1, 2, 6), (36, 4, 72)), peepholes=True, cut=Cut(2, 1, 2, 3, 4)),
    "turns-gru-tf32": Variant(Schedule((2, 3, 7), (36, 4, 72)), TF32, "gru", cut=Cut(2, 1, 2, 1, 3)),
    "turns-bfloat16": Variant(Schedule((1, 2, 4), (8, 40, 24)), torch.bfloat16, peepholes=True, cut=Cut(2, 1, 1, 2, 2)),
}
SPREAD = [name for name, variant in VARIANTS.items() if variant.cut is not None]


@pytest.fixture
def variant(request, monkeypatch):
    """The variant of that name."""
    variant = VARIANTS[request.param]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", variant.dtype == TF32)
    with cutting(variant.cut):
        yield variant


def check(case, dtype=torch.float32):
    expected, found = evaluate(case), evaluate(case, KERNEL.run, torch.float32 if dtype == TF32 else dtype)
    assert expected.keys() == found.keys()
    distances = {name: measure_distance(found[name], expected[name]) for name in expected}
    assert all(distance <= TOLERANCES[dtype] for distance in distances.values()), distances


def make_case(variant, T, B, t0, **others):
    inputs = others.pop("I", 3)
    return Case(
        variant.schedule, T, B, inputs, t0, cell=variant.cell, peepholes=variant.peepholes, scale=0.5, **others
    )  # fmt: skip


def make_tensors(schedule, T, B, I, cell, dtype=torch.float32, lead=()):
    """Random input, weight_ih, weight_hh, bias, h0, and the peepholes of an LSTM."""
    N, (gates, biases, parts) = schedule.hidden_size, CELLS[cell]
    generator = torch.Generator().manual_seed(0)
    shapes = [(T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N)]
    shapes += [(3 * N,)] if cell == "lstm" else []
    return [torch.randn(*lead, *shape, generator=generator).mul(0.3).to(dtype) for shape in shapes]


@pytest.mark.parametrize("variant", VARIANTS, indirect=True)
def test_every_layout_equals_the_specification(variant):
    longest = variant.schedule.periods[-1]
    check(make_case(variant, 4 * longest + 5, 11, 3), variant.dtype)
    check(make_case(variant, 2 * longest + 1, 2, 7, bias=False, initial=False, I=8), variant.dtype)
    for T in (0, 1, 2):
        check(make_case(variant, T, 3, 2 * longest - 1), variant.dtype)


@settings(max_examples=80, deadline=None, suppress_health_check=SLOW)
@given(case=draw_cases(("lstm", "gru")))
def test_any_schedule_and_phase_equal_the_specification(case):
    check(case)


@pytest.mark.parametrize("variant", ["float32", "gru-float32", "spread-gru-float32", "turns-float32"], indirect=True)
@pytest.mark.parametrize("seed", [1, 2])
def test_sequences_end_at_their_lengths_and_are_not_read_beyond(variant, seed):
    generator = torch.Generator().manual_seed(seed)
    T, B = 2 * variant.schedule.periods[-1] + 3, 18
    lengths = torch.randint(1, T + 1, (B,), generator=generator)
    values = make_tensors(variant.schedule, T, B, 2, variant.cell)
    for b, length in enumerate(lengths):
        values[0][length:, b] = torch.nan
    results = []
    for dtype in (torch.float64, torch.float32):
        leaves = [value.to(dtype).requires_grad_() for value in values]
        run = run_reference if dtype == torch.float64 else run_kernel
        output, final = run(leaves, variant.schedule, 5, variant.cell, lengths)
        generator = torch.Generator().manual_seed(2)
        cotangents = [torch.randn(value.shape, generator=generator).to(dtype) for value in (output, final)]
        gradients = torch.autograd.grad((output, final), leaves, cotangents, allow_unused=True, materialize_grads=True)
        results.append((output, final, *gradients))
    assert all(measure_distance(found, right) <= 2e-5 for right, found in zip(*results, strict=True))


def run_kernel(tensors, schedule, t0, cell, lengths):
    done = KERNEL.run(*tensors[:5], schedule, t0, cell, lengths, True, *tensors[5:])
    return done.hold(), done.final()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("variant", ["float32-coprime", *SPREAD], indirect=True)
def test_every_wait_ends_if_the_parts_of_one_module_run_at_once(device, monkeypatch, variant, seed):
    largest, gates = max(variant.schedule.sizes), CELLS[variant.cell].gates
    layout = scan.choose_layout(largest, variant.element.itemsize, 1, gates)
    monkeypatch.setattr(scan, "choose_registers", lambda schedule, layout, *sizes: layout)
    monkeypatch.setattr(device, "slots", layout.count_parts(largest) if layout.spread else 1)
    monkeypatch.setattr(device, "seed", seed)
    check(make_case(variant, 2 * variant.schedule.periods[-1] + 3, 9, 1), variant.dtype)


@pytest.fixture
def spoilt_memory(monkeypatch):
    """New memory is full of NaN."""
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    ("cell", "cut", "B"),
    [("tanh", Cut(2, 1, 1, 1, 4), 32), ("lstm", Cut(2, 1, 1, 1, 3), 20), ("tanh", Cut(2, 1, 2, 1, 2), 16)],
)
def test_no_row_is_announced_before_all_of_its_gradients_are_there(spoilt_memory, cell, cut, B):
    """A chunk of a slow module's rows may begin at a row of the next faster one that nothing has been gathered for."""
    case = Case(Schedule((1, 2, 8), (36, 36, 36)), 33, B, 3, 0, cell=cell, scale=0.5)
    with cutting(cut):
        check(case)


@pytest.mark.parametrize("registers", [scan.WEIGHT_REGISTERS, scan.FEW_WEIGHT_REGISTERS])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_modules_that_no_block_can_compute_alone_equal_the_specification(device, monkeypatch, cell, registers):
    layout = scan.choose_layout(100, 4, 3, CELLS[cell].gates, registers)
    assert layout.count_parts(100) > 1
    monkeypatch.setattr(scan, "choose_registers", lambda *sizes: layout)
    monkeypatch.setattr(device, "slots", layout.count_parts(100))
    check(Case(Schedule((2, 3), (100, 33)), 7, 3, 4, 1, cell=cell, scale=0.5))


def test_an_lstm_has_more_blocks_if_all_of_them_run_at_once():
    def count_parts(gates, *sizes, B=1, S=1, products=1, element_size=2):
        schedule = Schedule(tuple(range(1, len(sizes) + 1)), sizes)
        usual = scan.choose_layout(max(sizes), element_size, products, gates)
        chosen = scan.choose_registers(schedule, usual, element_size, S, B, 132)
        return usual.count_parts(max(sizes)), chosen.count_parts(max(sizes))

    # a module of 512 units has 32 blocks for each tile of 8 sequences in place of 16
    assert [count_parts(4, 512, B=B) for B in (1, 24, 25)] == [(16, 32), (16, 32), (16, 16)]
    assert [count_parts(4, 512, 512, B=B) for B in (8, 9)] == [(16, 32), (16, 16)]
    assert [count_parts(4, 512, B=8, S=S) for S in (3, 4)] == [(16, 32), (16, 16)]
    # other cells, modules in one block, and modules that are too large for fewer registers stay as they are
    assert count_parts(3, 512) == (16, 16)
    assert count_parts(4, 128) == (1, 1)
    assert count_parts(4, 1024) == (64, 64)


def compute_all(variant, call, tensors, cotangents):
    """All results of a call forward and backward."""
    schedule, t0, cell = variant.schedule, call["t0"], variant.cell
    input, weight_ih, weight_hh, bias, h0, weight_ch = *tensors, *[None] * (6 - len(tensors))
    final, ticks, held, kept = launch.forward(
        input, weight_ih, weight_hh, bias, h0, None, schedule, t0, cell, True, weight_ch=weight_ch
    )
    results = launch.backward(
        [True] * 5 + [weight_ch is not None], input, weight_ih, weight_hh, bias, None, ticks, *cotangents,
        schedule, t0, cell, weight_ch, kept,
    )  # fmt: skip
    return [final, ticks, held, *results[: len(tensors)]]


def make_cotangents(variant, T, B, lead=()):
    """Random gradients of the final state and the output; none of the ticks."""
    N, parts = variant.schedule.hidden_size, CELLS[variant.cell].parts
    shapes = (*lead, 1, B, parts * N), (*lead, T, B, N)
    g_final, g_held = (torch.randn(shape).to(variant.element) for shape in shapes)
    return [g_final, None, g_held]


@pytest.mark.parametrize(
    "variant", ["float32", "gru-bfloat16-vectors", "spread-float32", "turns-float32"], indirect=True
)
def test_replicas_have_the_bits_that_they_have_alone(variant):
    S, T, B = 3, 9, 9
    tensors = make_tensors(variant.schedule, T, B, 3, variant.cell, variant.element, (S,))
    cotangents = make_cotangents(variant, T, B, (S,))
    together = compute_all(variant, {"t0": 2}, tensors, cotangents)
    for s in range(S):
        own = [None if tensor is None else tensor[s] for tensor in cotangents]
        alone = compute_all(variant, {"t0": 2}, [tensor[s] for tensor in tensors], own)
        for all_of_them, one in zip(together, alone, strict=True):
            assert torch.equal(all_of_them.view(S, -1)[s], one.view(-1))


@pytest.mark.parametrize("variant", ["float32", "gru-float32"], indirect=True)
def test_more_replicas_than_a_launch_takes_run_in_parts(device, monkeypatch, variant):
    S, T, B = 5, 7, 3
    tensors = make_tensors(variant.schedule, T, B, 3, variant.cell, variant.element, (S,))
    cotangents = make_cotangents(variant, T, B, (S,))
    together = compute_all(variant, {"t0": 2}, tensors, cotangents)
    monkeypatch.setattr(launch, "MOST_ROWS", 9)
    device.launched.clear()
    parts = compute_all(variant, {"t0": 2}, tensors, cotangents)
    assert max(rows for _, _, rows in device.launched) <= 9
    assert all(map(torch.equal, together, parts))


@pytest.mark.parametrize(
    "variant", ["float32", "gru-bfloat16-vectors", "spread-float16", "turns-float32"], indirect=True
)
def test_the_order_of_blocks_does_not_matter(device, monkeypatch, variant):
    T, B = 15, 10
    tensors = make_tensors(variant.schedule, T, B, 3, variant.cell, variant.element)
    cotangents = make_cotangents(variant, T, B)
    one = compute_all(variant, {"t0": 1}, tensors, cotangents)
    monkeypatch.setattr(device, "seed", 5)
    monkeypatch.setattr(device, "slots", 12)
    assert all(map(torch.equal, one, compute_all(variant, {"t0": 1}, tensors, cotangents)))


@pytest.mark.parametrize("variant", ["float32", "gru-float32", "spread-float32"], indirect=True)
def test_a_split_sequence_equals_the_whole(variant):
    input, *others, h0 = make_tensors(variant.schedule, 31, 9, 3, variant.cell)[:5]

    def run(input, h0, t0):
        final, _, held, _ = launch.forward(input, *others, h0, None, variant.schedule, t0, variant.cell, True)
        return held, final[0]

    whole, final = run(input, h0, 5)
    for split in (1, 16, 29):
        first, middle = run(input[:split], h0, 5)
        second, end = run(input[split:], middle, 5 + split)
        torch.testing.assert_close(torch.cat((first, second)), whole, rtol=0, atol=1e-6)
        torch.testing.assert_close(end, final, rtol=0, atol=1e-6)


@pytest.mark.parametrize("variant", ["float32", "gru-float32"], indirect=True)
def test_without_gradients_nothing_is_kept_and_the_output_is_the_same(variant):
    tensors = make_tensors(variant.schedule, 9, 9, 3, variant.cell)[:5]
    call = None, variant.schedule, 1, variant.cell, True
    *results, kept = launch.forward(*tensors, *call)
    *others, nothing = launch.forward(*tensors, *call, True, False)
    assert kept.numel() == launch.count_kept(variant.schedule, 1, 9, 9, variant.cell, torch.float32)
    assert nothing is None
    assert all(map(torch.equal, results, others))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize(("dtype", "tf32"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)])
def test_it_refuses_modules_beyond_the_largest(monkeypatch, cell, dtype, tf32):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    products = 3 if dtype == torch.float32 and not tf32 else 1
    gates = CELLS[cell].gates
    most = scan.find_largest_module(dtype.itemsize, products, gates)
    scan.choose_layout(most, dtype.itemsize, products, gates)
    with pytest.raises(ValueError, match="too large"):
        scan.choose_layout(most + 1, dtype.itemsize, products, gates)
    assert launch.refuse_schedule(Schedule((1, 2), (most, 3)), torch.device("cpu"), dtype, cell) is None
    reason = launch.refuse_schedule(Schedule((1, 2), (most + 1, 3)), torch.device("cpu"), dtype, cell)
    name = str(dtype) if dtype != torch.float32 else f"{dtype} {'with' if tf32 else 'without'} tf32"
    assert reason == f"in {name} it takes {cell.upper()} modules of at most {most} units, and one has {most + 1}"
