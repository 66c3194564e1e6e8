"""The GPU kernel: the whole recurrence, forward and backward, in a few launches (programs.py).

What takes time on a GPU is to wait: for a launch, for memory, for the step before. So

* all modules run at once, in one launch. A program computes the recurrence of one module for a few sequences, its
  K x K weights in registers over all time (of 256 units in tf32 half of them in shared memory); another one computes
  what that module says to the faster ones, some rows at a time. They wait for each other by flags in memory, always for
  one that began to run before. A slow module never waits for a fast one, and with nested periods it is soon far ahead,
  so that the whole takes little longer than the fastest module alone;
* what a tick reads is loaded two ticks before;
* all that can be done for all time at once is done before or after: the drive, the hold, the weights' gradients.

With nested periods messages telescope, as in the CPU kernel: each module adds its own to the sum of the slower ones.
Otherwise a module waits until all slower ones are done, and adds up what they said.

Backward is the same in reverse, fastest module first. `back` holds for every row what heard it: the gradients of all
faster modules' ticks for as long as it was held, and that of the module's own next tick. Its product with the states is
the gradient of the weights, and with the weights that of the state.

float32 is multiplied as tf32 where torch lets cuDNN's recurrent layers do so (`torch.backends.cudnn.allow_tf32`), else
as float32. The drive, and all of a small network, are then three products of tf32, nearly as exact as float32. Products
are added up in float32; what a module hears back is rounded to the dtype of the weights. No sum depends on which
program comes first: the same bits in every run.

The tables that the programs read are made once for each shape and phase of the clock, and kept. To capture a CUDA
graph, run the same shapes once before; what a graph was captured with is kept for ever.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...schedule import Schedule
from ..cpu.loader import dense, whole

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
IN_REGISTERS = 128 * 1024
"""Bytes of K x K weights that stay in a program's registers; of tf32 as many again in its shared memory. Larger ones
are read again at every tick."""
SHARED = 144 * 1024
"""Bytes of shared memory that a program may need."""
OLDEST = (3, 6)
"""The Triton that it was tried with: older ones refuse a product of eight columns."""
SMALL = 128
"""Units of a network that is multiplied in three products of tf32, which make up for the rounding: there cuDNN, at some
sizes, takes no tf32 though it may."""
LARGEST = 512
"""Units of a module. Larger ones are left to plain matrix products, each on the whole GPU."""


def refuse(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot run on that device with that dtype; None if it can."""
    if device.type != "cuda":
        return "it runs on CUDA devices only"
    if dtype not in DTYPES:
        return "it takes float32, bfloat16 and float16 only"
    return _missing(device.index)


_known: dict[int | None, str | None] = {}


def _missing(index: int | None) -> str | None:
    if index not in _known:
        _known[index] = _look(index)
    return _known[index]


# a graph takes the answer as it is. What torch.compiler.assume_constant_result sets: to call it imports torch._dynamo
_missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _look(index: int | None) -> str | None:
    if torch.version.hip is not None:
        return "it was not written for AMD's devices"
    try:
        release = tuple(int(part) for part in version("triton").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return "Triton is not installed"
    if release < OLDEST:
        return f"it needs Triton {'.'.join(map(str, OLDEST))} or above"
    if torch.cuda.get_device_capability(index) < (8, 0):
        return "it needs a device of compute capability 8.0 or above"
    properties: Any = torch.cuda.get_device_properties(index)
    if properties.shared_memory_per_block_optin < SHARED:
        return f"it needs a device with {SHARED // 1024} KiB of shared memory for a block"
    return None


def unsuited(schedule: Schedule) -> str | None:
    """Why the kernel should not run with those modules; None if it should."""
    largest = max(schedule.sizes)
    return None if largest <= LARGEST else f"it takes modules of at most {LARGEST} units, and one has {largest}"


def outdone(schedule: Schedule, dtype: torch.dtype) -> str | None:
    """Why plain matrix products may be faster with those modules; None if they are not."""
    largest, most = max(schedule.sizes), _most(dtype, schedule.modules)
    return None if largest <= most else f"matrix products may be faster for modules of more than {most} units"


def _most(dtype: torch.dtype, modules: int) -> int:
    """Units of a module, up to which the kernel was the faster one wherever it was timed."""
    if dtype == torch.float32:
        return 128 if _precision(dtype, SMALL + 1) == "ieee" else 256
    return LARGEST if modules > 1 else 320


# as above
_most._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Plan(NamedTuple):
    """The modules over T steps from some phase of the clock, as the programs want them."""

    table: Tensor
    """(G, 8), see programs.py."""
    ticks: tuple[int, ...]
    states: int
    """How many numbers all states are, in one replica; below: what modules say, and what they hear back."""
    sent: int
    back: int


def forward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
    hold: bool,
    keep_ticks: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The final state (1, B, N), the ticks of all modules in one row, and if `hold` the output (T, B, N).

    With replicas, (S, ...) of each. `keep_ticks` changes nothing: they are always there.
    """
    from . import programs

    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    lead = weight_hh.shape[:-2]
    S = lead.numel()
    T, B, I = input.shape[-3:]
    N, G = schedule.hidden_size, schedule.modules
    h0 = input.new_zeros((*lead, B, N)) if h0 is None else dense(h0, 1)
    bias, lengths = dense(bias, 1), whole(lengths)
    plan = _plan(schedule, t0, T, B, input.device)
    final, states = h0.new_empty((*lead, 1, B, N)), h0.new_empty((*lead, plan.states))
    held = h0.new_empty((*lead, T, B, N)) if hold else None
    if S * B == 0:
        return final, states, held
    driven, sent = (h0.new_empty(S * size, dtype=torch.float32) for size in (plan.states, plan.sent))
    options = _options(schedule, h0, nonlinearity)
    end = plan.table if lengths is None else lengths
    with torch.cuda.device_of(input):
        blocks, width = sum(_blocks(n * B, 64) for n in plan.ticks), _block(max(schedule.sizes), 64)
        if blocks > 0:
            programs.drive[blocks, _blocks(max(schedule.sizes), width), S](
                plan.table, input, weight_ih, weight_hh if bias is None else bias, end, driven,
                B, I, _replica(input, lead), input.stride(-3), input.stride(-2), _replica(weight_ih, lead),
                0 if bias is None else _replica(bias, lead), plan.states,
                BM=64, BN=width, BI=_block(I, 64), BIAS=bias is not None, LENGTHS=lengths is not None,
                PRECISION="tf32x3" if options["PRECISION"] == "tf32" else options["PRECISION"], num_stages=1,
            )  # fmt: skip
        weight_hh = _operands(weight_hh, options)
        tiles = _blocks(B, options["BT"])
        turns, flags = _flags(S, (G + (G + 1) * G) * tiles, input.device)
        programs.forward[(2 * G - 1) * tiles, S](
            plan.table, turns, flags, weight_hh, h0, driven, sent, states, final, end,
            B, N, G, tiles, _replica(weight_hh, lead), _replica(h0, lead), h0.stride(-2), plan.states, plan.sent,
            flags.stride(0), **options, FAST=options["PRECISION"] == "tf32" or h0.dtype != torch.float32,
            LENGTHS=lengths is not None,
        )  # fmt: skip
        if held is not None and T > 0:
            width = _block(max(schedule.sizes), 128)
            programs.hold[_blocks(T, 16) * _blocks(B, 16), sum(_blocks(size, width) for size in schedule.sizes), S](
                plan.table, states, held, end, T, B, N, plan.states,
                BT=16, BB=16, BN=width, LENGTHS=lengths is not None,
            )  # fmt: skip
    return final, states, held


def backward(
    wanted: Sequence[bool],
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    ticks: Tensor,
    g_final: Tensor | None,
    g_ticks: Tensor | None,
    g_held: Tensor | None,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
) -> list[Tensor | None]:
    """The gradients of input, weight_ih, weight_hh, bias and h0; None for those that are not wanted."""
    from . import programs

    input, weight_ih, weight_hh, lengths = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2), whole(lengths)
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    lead = weight_hh.shape[:-2]
    S = lead.numel()
    T, B, I = input.shape[-3:]
    N, G = schedule.hidden_size, schedule.modules
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    # the weights that do not exist have no gradient, and what nothing adds to is zero
    gradients = [
        (ticks.new_zeros if shape == (N, N) or S * B * T == 0 else ticks.new_empty)((*lead, *shape)) if want else None
        for want, shape in zip(wanted, shapes, strict=True)
    ]
    if S * B == 0:
        return gradients
    plan = _plan(schedule, t0, T, B, input.device)
    g, e = (ticks.new_empty(S * plan.states, dtype=torch.float32) for _ in range(2))
    back = ticks.new_empty(S * plan.back)
    options = _options(schedule, ticks, nonlinearity)
    end = plan.table if lengths is None else lengths
    with torch.cuda.device_of(input):
        width = _block(max(schedule.sizes), 128)
        rows = sum(n + 1 for n in plan.ticks)
        held_strides = (0, 0, 0) if g_held is None else (_replica(g_held, lead), g_held.stride(-3), g_held.stride(-2))
        programs.collect[rows * _blocks(B, 8), _blocks(max(schedule.sizes), width), S](
            plan.table, *(ticks if tensor is None else tensor for tensor in (g_held, g_ticks, g_final)), end, g,
            T, B, N, G, *held_strides, plan.states, BT=8, BB=8, BN=width,
            HELD=g_held is not None, STATES=g_ticks is not None, FINAL=g_final is not None, LENGTHS=lengths is not None,
        )  # fmt: skip
        weight_hh = _operands(weight_hh, options)
        tiles = _blocks(B, options["BT"])
        turns, flags = _flags(S, 2 * G * tiles, input.device)
        g_input, g_weight_ih, g_weight_hh, g_bias, g_h0 = gradients
        programs.backward[(2 * G - 1) * tiles, S](
            plan.table, turns, flags, weight_hh, ticks, g, e, back, back if g_h0 is None else g_h0,
            B, N, G, tiles, _replica(weight_hh, lead), plan.states, plan.back, flags.stride(0),
            **options, INITIAL=g_h0 is not None,
        )  # fmt: skip
        del g, e
        if g_weight_ih is not None or g_weight_hh is not None or g_bias is not None:
            of_inputs = g_weight_ih is not None or g_bias is not None
            items, blocks = _items(schedule, plan.ticks, B, I, g_weight_hh is not None, of_inputs, input.device)
            _keep(items, blocks)
            count = len(items)
            parts = torch.empty(S, count, BLOCK, BLOCK, dtype=torch.float32, device=input.device)
            sums = torch.empty(S, count, BLOCK, dtype=torch.float32, device=input.device)
            if count > 0:
                programs.weights[count, S](
                    plan.table, items, back, ticks, input, end, parts, sums,
                    B, I, _replica(input, lead), input.stride(-3), input.stride(-2), plan.states, plan.back,
                    BM=BLOCK, BN=BLOCK, BL=64, LENGTHS=lengths is not None, PRECISION=options["PRECISION"],
                    num_stages=3,
                )  # fmt: skip
            programs.add_up[len(blocks), S](
                plan.table, blocks, parts, sums,
                *(back if tensor is None else tensor for tensor in (g_weight_ih, g_weight_hh, g_bias)), N, I, count,
                BM=BLOCK, BN=BLOCK, IH=g_weight_ih is not None, HH=g_weight_hh is not None, BIAS=g_bias is not None,
            )  # fmt: skip
        if g_input is not None and g_input.numel() > 0:
            tall = _block(B, 64)
            programs.inputs[T * _blocks(B, tall), _blocks(I, 64), S](
                plan.table, back, weight_ih, end, g_input, B, I, G, _replica(weight_ih, lead), plan.back,
                BB=tall, BN=64, BI=_block(max(schedule.sizes), 64), LENGTHS=lengths is not None,
                PRECISION=options["PRECISION"],
            )  # fmt: skip
    return gradients


BLOCK = 64
"""Rows and columns of a block of the weights' gradients."""
LINES = 4096
"""How many rows of states, times sequences, one program adds up to such a block."""


def _plan(schedule: Schedule, t0: int, T: int, B: int, device: torch.device) -> Plan:
    """What depends on the clock by its phase only is made once for all streams in that phase."""
    # a module that does not tick is in no phase
    plan = _plan_of(schedule, tuple(min(-t0 % period, T) for period in schedule.periods), T, B, device)
    _keep(plan.table)
    return plan


_captured: list[Tensor] = []


def _keep(*tables: Tensor) -> None:
    """What the programs of this stream will read stays when it is forgotten here, until they have."""
    if not tables[0].is_cuda:
        return
    if torch.cuda.is_current_stream_capturing():
        # a graph reads them for as long as it lives, of which nobody tells us
        _captured.extend(tables)
        return
    stream = torch.cuda.current_stream(tables[0].device)
    for table in tables:
        table.record_stream(stream)


def _place(rows: list[list[int]], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A table on the device, in memory of its own."""
    if device.type == "cpu":
        return torch.tensor(rows, dtype=dtype)
    # made by another thread: who is about to capture a CUDA graph lends this one memory that it wants back
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(torch.tensor, rows, dtype=dtype, device=device).result()


@lru_cache(maxsize=4096)
def _plan_of(schedule: Schedule, firsts: tuple[int, ...], T: int, B: int, device: torch.device) -> Plan:
    lines = []
    states = sent = back = 0
    faster = 1
    for period, size, units, first in zip(schedule.periods, schedule.sizes, schedule.slices, firsts, strict=True):
        # a period that no sequence is as long as is any such period
        period = faster = min(period, (T // faster + 2) * faster if faster <= T else faster)
        ticks = (T - 1 - first) // period + 1 if first < T else 0
        lines.append([period, size, units.start, first, ticks, states, sent, back])
        states += (ticks + 1) * B * size
        sent += (ticks + 1) * B * units.start
        back += (ticks + 1) * B * units.stop
    table = _place(lines, torch.int64, device)
    return Plan(table, tuple(line[4] for line in lines), states, max(sent, 1), back)


@lru_cache(maxsize=4096)
def _items(
    schedule: Schedule, ticks: tuple[int, ...], B: int, I: int, recurrent: bool, inputs: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What the programs `weights` and `add_up` do: the parts, and the blocks that they make."""
    items: list[list[int]] = []
    blocks = []
    for j, (n, size, units) in enumerate(zip(ticks, schedule.sizes, schedule.slices, strict=True)):
        places = [
            (0, u, v, (n + 1) * B) for u in range(0, units.stop, BLOCK) for v in range(0, size, BLOCK) if recurrent
        ]
        for u in range(units.start, units.stop, BLOCK):
            places += [(1, u, v, n * B) for v in range(0, max(I, 1), BLOCK) if inputs]
        for of_input, u, v, lines in places:
            first = len(items)
            items += [[of_input, j, u, v, line, min(line + LINES, lines)] for line in range(0, lines, LINES)]
            blocks.append([of_input, j, u, v, first, len(items)])
    return _place(items, torch.int32, device).view(-1, 6), _place(blocks, torch.int32, device)


def _options(schedule: Schedule, states: Tensor, nonlinearity: str) -> dict[str, Any]:
    """What the programs are compiled for."""
    size = _power_of_two(max(16, *schedule.sizes))
    bytes = size * size * states.element_size()
    precision = _precision(states.dtype, schedule.hidden_size)
    wide = size >= (64 if precision == "tf32x3" else 128)
    return {
        "BK": size,
        "BT": 8,
        "C": 8,
        "BU": min(size, 64),
        "BI": min(size, 32 if size == 128 else 64),
        "NESTED": all(slow % fast == 0 for fast, slow in zip(schedule.periods, schedule.periods[1:], strict=False)),
        "RECTIFY": nonlinearity == "relu",
        "PRECISION": precision,
        "RESIDENT": 1 if bytes <= IN_REGISTERS else 2 if bytes <= 2 * IN_REGISTERS and precision == "tf32" else 0,
        "num_warps": 8 if wide else 4,
        "num_stages": 1,
    }


def _precision(dtype: torch.dtype, N: int) -> str:
    """How to multiply."""
    if dtype != torch.float32:
        return "ieee"
    # from torch 2.9 on each operator has a switch of its own; the common one raises where they differ
    switch = getattr(getattr(torch.backends.cudnn, "rnn", None), "fp32_precision", None)
    allowed = torch.backends.cudnn.allow_tf32 if switch is None else switch == "tf32"
    if not allowed:
        return "ieee"
    return "tf32x3" if N <= SMALL else "tf32"


def _operands(weight: Tensor, options: dict[str, Any]) -> Tensor:
    """The weights; rounded to tf32, if a part of them goes from shared memory right to where it is multiplied."""
    if options["RESIDENT"] < 2:
        return weight
    from . import programs

    rounded = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    N, S = weight.shape[-1], weight.shape[:-2].numel()
    programs.round_weights[_blocks(N * N, 4096), S](weight, rounded, N, _replica(weight, weight.shape[:-2]), BN=4096)
    return rounded


def _flags(S: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """How many programs have begun, and the flags of each replica; all zero."""
    # kept apart: who waits asks for its flag over and over
    both = torch.zeros(32 + S * count, dtype=torch.int32, device=device)
    return both, both[32:].view(S, count)


def _replica(tensor: Tensor, lead: Sequence[int]) -> int:
    return tensor.stride(0) if lead else 0


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _block(n: int, most: int) -> int:
    """A power of two that holds n, within what a matrix product takes."""
    return min(most, _power_of_two(max(n, 16)))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()
