"""The GPU kernel: the whole recurrence, forward and backward, in a few launches.

Simple cells (tanh, relu) run by CUDA programs (scan.py, gradients.py), and so do small networks of all cells
(small.py). Larger networks of gated cells (LSTM, GRU) run by Triton programs (programs/), which this file starts.

On a GPU, waiting takes the time: for a launch, for memory, for the step before. Therefore

* all modules run at once, in one launch. One block of threads computes the recurrence of one module for a few
  sequences, and keeps its K x K weights, those of all gates, in registers over all time (of large modules of gated
  cells in tf32, half of them in shared memory; those of a large module of a simple cell, in several blocks). Another
  block computes the messages of that module to the faster ones, some rows at a time. The blocks wait for each other by
  flags in memory, always for a block that began to run earlier. A slow module never waits for a fast one, and with
  nested periods it is soon far ahead, so that the whole launch takes little longer than the fastest module alone;
* the numbers that a tick needs are loaded some ticks before it (one tick for the gated cells, which have more of them);
* everything that can be computed for all time at once is computed before or after: the drive, the hold, the gradients
  of the weights.

With nested periods messages telescope, as in the CPU kernel: each module adds its own message to the sum of the slower
ones. Otherwise a module waits until all slower modules are done, and adds up their messages.

Backward is the same in reverse, fastest module first. `g_messages` holds for every row of a module the gradient of its
message: the gradients of all faster modules' ticks that read the row while it was held, and the gradient of the
module's own next tick. Its product with the states is the gradient of the weights, and its product with the weights is
the gradient of the states.

float32 is multiplied as tf32 where torch allows this to cuDNN's recurrent layers (`torch.backends.cudnn.allow_tf32`).
Otherwise simple cells take three products of tf32, which are nearly as exact as float32, and larger gated networks
float32. The drive takes three products even where one is allowed. A small network is always multiplied in float32.

Products are added up in float32. The gradients of messages are rounded to the dtype of the weights. No sum depends on
the order in which programs run: every run gives the same bits.

The tables that the programs read are made once for each shape and phase of the clock, and kept (tables.py). Run the
same shapes once before you capture a CUDA graph. Tables that a captured graph reads are kept for ever.
"""

from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...cells import CELLS, PEEPHOLES
from ...held import count_rows
from ...schedule import Schedule
from ..tensors import dense, whole, with_memory
from . import driver, gradients, scan, small
from .tables import BLOCK_SIZE, Plan, count_blocks, make_plan, make_weight_tables

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
REGISTER_BYTES = 128 * 1024
"""Bytes of K x K weights of a gated cell that stay in a block's registers. In tf32, as many again stay in its shared
memory. Larger weights are read again at every tick."""
TILE = 8
"""Sequences that one block runs together."""
SHARED_BYTES = 144 * 1024
"""Bytes of shared memory that a block may need."""
SHARED_SCRATCH = 8 * 1024
"""Bytes of shared memory that a gated cell's block needs beside its weights, if a part of them stays there."""
OLDEST_TRITON = (3, 6)
"""The oldest Triton that the programs were tested with. Older ones refuse products of eight columns."""
SMALL_NETWORK = 128
"""Up to this many units, tf32 is replaced by three products of tf32, which make up for its rounding: at some of these
sizes cuDNN does not use tf32 even where it may, and the kernel must not be less exact than cuDNN."""
LARGEST_MODULE = 1024
"""Units of the largest module that the kernel takes. For larger ones plain matrix products use the whole GPU."""


def refuse(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot run on that device with that dtype; None if it can."""
    if device.type != "cuda":
        return "it runs on CUDA devices only"
    if dtype not in DTYPES:
        return "it takes float32, bfloat16 and float16 only"
    return _refuse_device(device.index)


_reasons: dict[int | None, str | None] = {}


def _refuse_device(index: int | None) -> str | None:
    if index not in _reasons:
        _reasons[index] = _inspect_device(index)
    return _reasons[index]


# torch.compile takes the answer as a constant. torch.compiler.assume_constant_result sets the same mark, but calling it
# imports torch._dynamo
_refuse_device._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _inspect_device(index: int | None) -> str | None:
    if torch.version.hip is not None:
        return "it was not written for AMD's devices"
    try:
        release = tuple(int(part) for part in version("triton").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return "Triton is not installed"
    if release < OLDEST_TRITON:
        return f"it needs Triton {'.'.join(map(str, OLDEST_TRITON))} or above"
    if torch.cuda.get_device_capability(index) < (8, 0):
        return "it needs a device of compute capability 8.0 or above"
    properties: Any = torch.cuda.get_device_properties(index)
    if properties.shared_memory_per_block_optin < SHARED_BYTES:
        return f"it needs a device with {SHARED_BYTES // 1024} KiB of shared memory for a block"
    return driver.refuse()


def refuse_schedule(schedule: Schedule) -> str | None:
    """Why the kernel cannot run with the modules of `schedule`; None if it can."""
    largest = max(schedule.sizes)
    if largest <= LARGEST_MODULE:
        return None
    return f"it takes modules of at most {LARGEST_MODULE} units, and one has {largest}"


def advise_against(schedule: Schedule, dtype: torch.dtype, cell: str) -> str | None:
    """Why `auto` should prefer plain matrix products for this schedule and cell; None if it should not."""
    largest, fast = max(schedule.sizes), _largest_fast_module(dtype, schedule.modules, CELLS[cell].gates)
    return None if largest <= fast else f"matrix products may be faster for modules of more than {fast} units"


def _largest_fast_module(dtype: torch.dtype, modules: int, gates: int) -> int:
    """Units of the largest module with which the kernel was faster than matrix products in every timing."""
    if gates > 1:
        if dtype == torch.float32:
            return 64 if _choose_precision(dtype, SMALL_NETWORK + 1) == "ieee" else 128
        return 256
    return LARGEST_MODULE


# torch.compile takes this answer as a constant, too
_largest_fast_module._dynamo_marked_constant = True  # type: ignore[attr-defined]


def forward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    hold: bool,
    keep_ticks: bool = True,
    keep_gates: bool = True,
    weight_ch: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The final state (1, B, N), the states of all modules at their ticks in one row, and the output (T, B, N) or None.

    The output is computed if `hold` is true. Replicas add a leading dimension S. `keep_ticks` changes nothing here,
    because the states at the ticks are always computed. `kept` is what backward needs of a gated cell (its layout is in
    `programs/gated_forward.py`); None for other cells, or without `keep_gates`.
    """
    if small.takes(schedule, cell):
        return small.forward(
            input, weight_ih, weight_hh, bias, h0, lengths, schedule, t0, cell, hold, keep_ticks, keep_gates, weight_ch
        )
    input, weight_ih, weight_hh, bias, h0, lengths, weight_ch = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0, lengths=lengths, weight_ch=weight_ch
    )
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    lead = weight_hh.shape[:-2]
    S = lead.numel()
    T, B, I = input.shape[-3:]
    N, G = schedule.hidden_size, schedule.modules
    gates, _, parts = CELLS[cell]
    bias, weight_ch, lengths, h0 = dense(bias, 1), dense(weight_ch, 1), whole(lengths), dense(h0, 1)
    plan = make_plan(schedule, t0, T, B, input.device)
    final, states = input.new_empty((*lead, 1, B, parts * N)), input.new_empty((*lead, plan.states_size))
    held = input.new_empty((*lead, T, B, N)) if hold else None
    if gates == 1:
        if S * B > 0:
            with torch.cuda.device_of(input):
                cuda = _load_forward(schedule, cell, input, weight_ih)
                stream = driver.current_stream(input.device)
                scan.forward(
                    plan, schedule, cuda, input, weight_ih, weight_hh, bias, h0, lengths, states, final, held, stream
                )
        return final, states, held, None
    from .programs import forward as programs

    h0 = input.new_zeros((*lead, B, parts * N)) if h0 is None else h0
    options = _choose_options(schedule, weight_hh, cell)
    tiles = count_blocks(B, options["BT"])
    sizes = _count_tiled(plan, B, tiles, options)
    kept = h0.new_empty((*lead, count_kept(schedule, t0, T, B, cell))) if keep_gates else None
    if S * B == 0:
        return final, states, held, kept
    drive, messages = (
        h0.new_empty(S * gates * size, dtype=torch.float32) for size in (sizes.states, sizes.messages)
    )  # fmt: skip
    end = plan.table if lengths is None else lengths
    with torch.cuda.device_of(input):
        lines, width = tiles * options["BT"], _fit_block(max(schedule.sizes), 64)
        blocks = sum(count_blocks(n * lines, 64) for n in plan.ticks)
        if blocks > 0:
            programs.compute_drive[blocks, gates * count_blocks(max(schedule.sizes), width), S](
                plan.table, input, weight_ih, weight_hh if bias is None else bias, end, drive,
                B, I, N, tiles, _replica_stride(input, lead), input.stride(-3), input.stride(-2),
                _replica_stride(weight_ih, lead), 0 if bias is None else _replica_stride(bias, lead),
                gates * sizes.states,
                BM=64, BN=width, BI=_fit_block(I, 64), BIAS=bias is not None, LENGTHS=lengths is not None,
                PRECISION="tf32x3" if options["PRECISION"] == "tf32" else options["PRECISION"],
                GATES=gates, BT=options["BT"], ALIGN=options["ALIGN"], num_stages=1,
            )  # fmt: skip
        # a GRU's scan reads the bias inside the reset product where that of an LSTM reads the peepholes
        peephole = weight_ch if cell != "gru" else None if bias is None else bias[..., 3 * N :]
        weight_hh = _round_weights(weight_hh, options)
        turns, flags = _make_flags(S, (G + (G + 1) * G) * tiles, input.device)
        programs.run_forward[(2 * G - 1) * tiles, S](
            plan.table, turns, flags, weight_hh, weight_hh if peephole is None else peephole, h0, drive, messages,
            states, final, states if kept is None else kept, end,
            B, N, G, tiles, _replica_stride(weight_hh, lead),
            0 if peephole is None else _replica_stride(peephole, lead), _replica_stride(h0, lead), h0.stride(-2),
            plan.states_size, gates * sizes.states, gates * sizes.messages, 5 * sizes.states, flags.stride(0),
            **options, FAST=options["PRECISION"] == "tf32" or h0.dtype != torch.float32,
            LENGTHS=lengths is not None, PEEPHOLES=peephole is not None, KEEP=kept is not None,
        )  # fmt: skip
        if held is not None and T > 0:
            width = _fit_block(max(schedule.sizes), 128)
            blocks = sum(count_blocks(size, width) for size in schedule.sizes)
            programs.hold_states[count_blocks(T, 16) * count_blocks(B, 16), blocks, S](
                plan.table, states, held, end, T, B, N, plan.states_size,
                BT=16, BB=16, BN=width, LENGTHS=lengths is not None,
            )  # fmt: skip
    return final, states, held, kept


def count_kept(schedule: Schedule, t0: int, T: int, B: int, cell: str) -> int:
    """How many numbers `forward` keeps for `backward` besides the ticks; 0 for cells that need none."""
    if small.takes(schedule, cell):
        return small.count_kept(schedule, t0, T, B, cell)
    if CELLS[cell].gates == 1:
        return 0
    states = sum(rows * size for rows, size in zip(count_rows(schedule.periods, t0, T), schedule.sizes, strict=True))
    return 5 * states * count_blocks(B, TILE) * TILE


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
    cell: str,
    weight_ch: Tensor | None = None,
    kept: Tensor | None = None,
) -> list[Tensor | None]:
    """The gradients of input, weight_ih, weight_hh, bias, h0 and weight_ch; None for those that are not wanted."""
    if small.takes(schedule, cell):
        return small.backward(
            wanted, input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held,
            schedule, t0, cell, weight_ch, kept,
        )  # fmt: skip
    input, weight_ih, weight_hh, lengths, ticks, g_final, g_ticks, g_held, weight_ch, kept = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, lengths=lengths, ticks=ticks,
        gradient_of_h_n=g_final, gradient_of_ticks=g_ticks, gradient_of_output=g_held, weight_ch=weight_ch, kept=kept,
    )  # fmt: skip
    input, weight_ih, weight_hh, lengths = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2), whole(lengths)
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    weight_ch, kept = dense(weight_ch, 1), whole(kept)
    lead = weight_hh.shape[:-2]
    S = lead.numel()
    T, B, I = input.shape[-3:]
    N, G = schedule.hidden_size, schedule.modules
    gates, biases, parts = CELLS[cell]
    shapes = (T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N), (PEEPHOLES * N,)
    # no program fills the gradients of an empty input; those of gated cells skip the forbidden blocks of weight_hh
    zeros = [S * B * T == 0 or (position == 2 and gates > 1) for position in range(len(shapes))]
    results = [
        (ticks.new_zeros if zeros[position] else ticks.new_empty)((*lead, *shape)) if want else None
        for position, (want, shape) in enumerate(zip(wanted, shapes, strict=True))
    ]
    if S * B == 0:
        return results
    plan = make_plan(schedule, t0, T, B, input.device)
    if gates == 1:
        with torch.cuda.device_of(input):
            index, limit = input.device.index or 0, _count_shared_bytes(input.device)
            products = _count_products(input.dtype, schedule.hidden_size)
            cuda = scan.load_backward(schedule, cell, input.dtype, products, index, limit)
            g_held = None if g_held is None else _align(g_held, 2, *g_held.stride()[:-1])
            g_ticks, g_final = (None if tensor is None else _align(tensor, 2) for tensor in (g_ticks, g_final))
            g_input, g_weight_ih, g_weight_hh, g_bias, g_h0, _ = results
            g_messages = scan.backward(
                plan, schedule, cuda, weight_hh, lengths, T, B, ticks, g_held, g_ticks, g_final, g_h0,
                driver.current_stream(input.device),
            )  # fmt: skip
            gradients.compute(
                plan, schedule, products, input, weight_ih, lengths, ticks, g_messages,
                g_input, g_weight_ih, g_weight_hh, g_bias, driver.current_stream(input.device),
            )  # fmt: skip
        return results
    from .programs import backward as programs

    options = _choose_options(schedule, weight_hh, cell)
    tiles = count_blocks(B, options["BT"])
    sizes = _count_tiled(plan, B, tiles, options)
    g_outside, g_faster = (ticks.new_empty(S * sizes.states, dtype=torch.float32) for _ in range(2))
    g_messages = ticks.new_empty(S * PLANES * sizes.g_messages)
    end = plan.table if lengths is None else lengths
    with torch.cuda.device_of(input):
        width = _fit_block(max(schedule.sizes), 128)
        rows = sum(n + 1 for n in plan.ticks)
        held_strides = (
            (0, 0, 0) if g_held is None else (_replica_stride(g_held, lead), g_held.stride(-3), g_held.stride(-2))
        )
        programs.collect_gradients[rows * count_blocks(B, 8), count_blocks(max(schedule.sizes), width), S](
            plan.table, *(ticks if tensor is None else tensor for tensor in (g_held, g_ticks, g_final)), end, g_outside,
            T, B, N, G, tiles, *held_strides, plan.states_size, sizes.states, BT=8, BB=8, BN=width,
            HELD=g_held is not None, STATES=g_ticks is not None, FINAL=g_final is not None, LENGTHS=lengths is not None,
            PARTS=parts, TILE=options["BT"],
        )  # fmt: skip
        weight_hh = _round_weights(weight_hh, options)
        turns, flags = _make_flags(S, 2 * G * tiles, input.device)
        g_input, g_weight_ih, g_weight_hh, g_bias, g_h0, g_weight_ch = results
        g_peephole = None if weight_ch is None else weight_ch.new_empty((S, tiles, PEEPHOLES * N), dtype=torch.float32)
        programs.run_backward[(2 * G - 1) * tiles, S](
            plan.table, turns, flags, weight_hh, weight_hh if weight_ch is None else weight_ch, ticks,
            ticks if kept is None else kept, g_outside, g_faster, g_messages, ticks if g_final is None else g_final,
            ticks if g_h0 is None else g_h0, g_outside if g_peephole is None else g_peephole, end,
            B, N, G, tiles, _replica_stride(weight_hh, lead),
            0 if weight_ch is None else _replica_stride(weight_ch, lead),
            plan.states_size, 5 * sizes.states, sizes.states, PLANES * sizes.g_messages, flags.stride(0),
            **options, FAST=options["PRECISION"] == "tf32" or ticks.dtype != torch.float32, INITIAL=g_h0 is not None,
            FINAL=g_final is not None, LENGTHS=lengths is not None, PEEPHOLES=weight_ch is not None,
        )  # fmt: skip
        del g_outside, g_faster
        if g_weight_ch is not None and g_peephole is not None:
            g_weight_ch.copy_(g_peephole.sum(1).view(g_weight_ch.shape))
        _finish_backward(plan, schedule, input, weight_ih, lengths, ticks, g_messages, results, tiles, options)
    return results


def _finish_backward(
    plan: Plan,
    schedule: Schedule,
    input: Tensor,
    weight_ih: Tensor,
    lengths: Tensor | None,
    ticks: Tensor,
    g_messages: Tensor,
    results: Sequence[Tensor | None],
    tiles: int,
    options: dict[str, Any],
) -> None:
    """Write a gated cell's gradients of the input, the weights and the bias from those of the messages."""
    from .programs import backward as programs

    g_input, g_weight_ih, g_weight_hh, g_bias, *_ = results
    lead = ticks.shape[:-1]
    T, B, I = input.shape[-3:]
    N, G, gates = schedule.hidden_size, schedule.modules, options["GATES"]
    end = plan.table if lengths is None else lengths
    if g_weight_ih is not None or g_weight_hh is not None or g_bias is not None:
        _compute_weight_gradients(
            plan, schedule, input, lengths, ticks, g_messages, g_weight_ih, g_weight_hh, g_bias, tiles, options
        )
    if g_input is not None and g_input.numel() > 0:
        tall = _fit_block(B, 64)
        programs.compute_input_gradient[T * count_blocks(B, tall), count_blocks(I, 64), lead.numel()](
            plan.table, g_messages, weight_ih, end, g_input,
            B, I, N, G, tiles, _replica_stride(weight_ih, lead), g_messages.numel() // lead.numel(),
            BB=tall, BN=64, BI=_fit_block(max(schedule.sizes), 64), LENGTHS=lengths is not None,
            PRECISION=options["PRECISION"], GATES=gates, BT=options["BT"], ALIGN=options["ALIGN"],
        )  # fmt: skip


def _load_forward(schedule: Schedule, cell: str, input: Tensor, weight_ih: Tensor) -> scan.ForwardPrograms:
    """The CUDA programs for simple cells on the input's device."""
    even = input.shape[-1] % 2 == 0 and all(
        number % 4 == 0
        for tensor in (input, weight_ih)
        for number in (tensor.data_ptr(), *(stride * tensor.element_size() for stride in tensor.stride()[:-1]))
    )
    products = _count_products(input.dtype, schedule.hidden_size)
    index, limit = input.device.index or 0, _count_shared_bytes(input.device)
    programs = scan.load_forward(schedule, cell, input.dtype, products, even, index, limit)
    parts, most = programs.layout.count_parts(max(schedule.sizes)), _count_multiprocessors(input.device)
    if parts > most:
        raise RuntimeError(
            f"a module of {max(schedule.sizes)} units in {input.dtype} needs {parts} multiprocessors at once, and "
            f"{input.device} has {most}: pass backend='torch'"
        )
    return programs


def _count_products(dtype: torch.dtype, N: int) -> int:
    """How many products of tf32 a product of float32 takes in a network of N units: 3 unless one is exact enough."""
    return 3 if dtype == torch.float32 and _choose_precision(dtype, N) != "tf32" else 1


def _align(tensor: Tensor, numbers: int, *strides: int) -> Tensor:
    """`tensor`, or a copy if it does not begin at a multiple of that many numbers, or has other strides."""
    size = tensor.element_size()
    if tensor.data_ptr() % (numbers * size) == 0 and all(stride % numbers == 0 for stride in strides):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


PLANES = 4
"""The planes of the gradients of a gated cell's messages: `programs/gated_backward.py` says which."""


class _Sizes(NamedTuple):
    """How many numbers one gate of a replica has in tensors that only the programs of gated cells read."""

    states: int
    messages: int
    g_messages: int


def _count_tiled(plan: Plan, B: int, tiles: int, options: dict[str, Any]) -> _Sizes:
    """The sizes of those tensors, which are made of whole tiles of sequences."""
    sizes = _Sizes(plan.states_size, plan.messages_size, plan.g_messages_size)
    if B == 0:
        return sizes
    return _Sizes(*(max(size // B, 1) * tiles * options["BT"] for size in sizes))


def _compute_weight_gradients(
    plan: Plan,
    schedule: Schedule,
    input: Tensor,
    lengths: Tensor | None,
    ticks: Tensor,
    g_messages: Tensor,
    g_weight_ih: Tensor | None,
    g_weight_hh: Tensor | None,
    g_bias: Tensor | None,
    tiles: int,
    options: dict[str, Any],
) -> None:
    """Write a gated cell's gradients of the weights and the bias, except those that are None."""
    from .programs import backward as programs
    from .programs import gated_backward

    lead = ticks.shape[:-1]
    S = lead.numel()
    B, I = input.shape[-2:]
    recurrent, of_inputs = g_weight_hh is not None, g_weight_ih is not None or g_bias is not None
    gates, tile = options["GATES"], options["BT"]
    # larger blocks read every row less often
    block = 2 * BLOCK_SIZE if min(schedule.sizes) > BLOCK_SIZE and ticks.element_size() == 2 else BLOCK_SIZE
    parts, blocks = make_weight_tables(schedule, plan.ticks, tiles * tile, I, recurrent, of_inputs, input.device, block)
    count = len(parts)
    products = torch.empty(S, PLANES, count, block, block, dtype=torch.float32, device=input.device)
    sums = torch.empty(S, PLANES, count, block, dtype=torch.float32, device=input.device)
    arguments = (
        plan.table,
        parts,
        g_messages,
        ticks,
        input,
        plan.table if lengths is None else lengths,
        products,
        sums,
    )
    strides = (
        _replica_stride(input, lead),
        input.stride(-3),
        input.stride(-2),
        plan.states_size,
        g_messages.numel() // S,
    )
    constants = {
        "BM": block, "BN": block, "BL": 64,
        "LENGTHS": lengths is not None, "PRECISION": options["PRECISION"], "num_stages": 3,
    }  # fmt: skip
    if count > 0:
        gated_backward.compute_gated_weight_parts[count, S, PLANES](
            *arguments, B, I, tiles, *strides, **constants, BT=tile, GATES=gates, ALIGN=options["ALIGN"],
            num_warps=8 if block > 64 else 4,
        )  # fmt: skip
    programs.add_weight_parts[len(blocks), S, PLANES](
        plan.table, blocks, products, sums,
        *(g_messages if tensor is None else tensor for tensor in (g_weight_ih, g_weight_hh, g_bias)),
        schedule.hidden_size, I, count, BM=block, BN=block,
        IH=g_weight_ih is not None, HH=g_weight_hh is not None, BIAS=g_bias is not None, GATES=gates,
    )  # fmt: skip


def _choose_options(schedule: Schedule, weight: Tensor, cell: str) -> dict[str, Any]:
    """The compile-time constants of the programs of gated cells, and how many warps and stages they use."""
    size = _power_of_two(max(16, *schedule.sizes))
    gates = CELLS[cell].gates
    bytes = gates * size * size * weight.element_size()
    precision = _choose_precision(weight.dtype, schedule.hidden_size)
    wide = size >= (64 if precision == "tf32x3" else 128)
    # 1: the weights stay in registers; 2: half of them stay in shared memory; 0: they are read again at every tick
    resident = 1 if bytes <= REGISTER_BYTES else 2 if bytes <= 2 * REGISTER_BYTES and precision == "tf32" else 0
    options = {
        "CELL": cell,
        "GATES": gates,
        "BK": size,
        "BT": TILE,
        "C": 8,
        "BU": min(size, 64),
        "BI": min(size, 32 if size == 128 else 64),
        "NESTED": all(slow % fast == 0 for fast, slow in zip(schedule.periods, schedule.periods[1:], strict=False)),
        "PRECISION": precision,
        "RESIDENT": resident,
        "ALIGN": 1,
        "num_warps": 8 if wide else 4,
        "num_stages": 1,
    }
    half = weight.element_size() == 2
    if resident == 2 and bytes + SHARED_SCRATCH > _count_shared_bytes(weight.device):
        options["RESIDENT"] = 0
    if half or precision == "tf32":
        # as many warps as a product of 16 rows each keeps busy: then a warp loads the numbers that it multiplies
        options |= {"num_warps": min(size // 16, 8), "BU": min(size, 128 if half else 64), "BI": min(size, 128)}
    aligned = all(number % 16 == 0 for number in (*schedule.sizes, *weight.stride()[:-2]))
    options["ALIGN"] = 16 if aligned else 1
    return options


@cache
def _count_multiprocessors(device: torch.device) -> int:
    """The number of blocks of a large module that run at once on that device; they wait for each other."""
    if device.type != "cuda":
        return 1 << 30
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.multi_processor_count)


@cache
def _count_shared_bytes(device: torch.device) -> int:
    """Bytes of shared memory that a program may have on that device."""
    if device.type != "cuda":
        return 0
    properties: Any = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)


def _choose_precision(dtype: torch.dtype, N: int) -> str:
    """Triton's name for how to multiply in a network of N units: "ieee", "tf32" or "tf32x3"."""
    if dtype != torch.float32:
        return "ieee"
    # from torch 2.9 on each operator has its own switch; the switch of all of cuDNN raises where they differ
    switch = getattr(getattr(torch.backends.cudnn, "rnn", None), "fp32_precision", None)
    allowed = torch.backends.cudnn.allow_tf32 if switch is None else switch == "tf32"
    if not allowed:
        return "ieee"
    return "tf32x3" if N <= SMALL_NETWORK else "tf32"


def _round_weights(weight: Tensor, options: dict[str, Any]) -> Tensor:
    """The weights; rounded to tf32 if a part of them goes from shared memory directly into products."""
    if options["RESIDENT"] < 2:
        return weight
    from .programs import forward as programs

    rounded = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    lead, size = weight.shape[:-2], weight.shape[-2:].numel()
    programs.round_weights[count_blocks(size, 4096), lead.numel()](
        weight, rounded, size, _replica_stride(weight, lead), BN=4096
    )
    return rounded


def _make_flags(S: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The counter of programs that have begun to run, and `count` flags for each of S replicas; all zero."""
    # 128 bytes apart, because waiting programs read their flags over and over
    both = torch.zeros(32 + S * count, dtype=torch.int32, device=device)
    return both, both[32:].view(S, count)


def _replica_stride(tensor: Tensor, lead: Sequence[int]) -> int:
    """The stride between the replicas of `tensor`; 0 if there are none (`lead` is empty)."""
    return tensor.stride(0) if lead else 0


def _fit_block(n: int, largest: int) -> int:
    """The smallest power of two that covers n, between 16 (the least that a product takes) and `largest`."""
    return min(largest, _power_of_two(max(n, 16)))


def _power_of_two(n: int) -> int:
    """The smallest power of two that is not below n."""
    return 1 << (n - 1).bit_length()
