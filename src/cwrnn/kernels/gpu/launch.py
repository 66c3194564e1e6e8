"""The GPU kernel: the whole recurrence, forward and backward, in a few launches.

CUDA programs compute it: those of scan.py and gradients.py, or for small networks those of small.py.

On a GPU, waiting takes the time: for a launch, for memory, for the step before. Therefore

* all modules run at once, in one launch. One block of threads computes the recurrence of one module for a few
  sequences, and keeps its K x K weights, those of all gates, in registers over all time; several blocks share those of
  a large module. Another block computes the messages of that module to the faster ones, some rows at a time. The blocks
  wait for each other by flags in memory: for blocks that began to run earlier, and for the other blocks of the same
  module and tile of sequences, all of which must therefore run at once. A slow module never waits for a fast one, and
  with nested periods it is soon far ahead, so that the whole launch takes little longer than the fastest module alone;
* the numbers that a tick needs are loaded some ticks before it;
* everything that can be computed for all time at once is computed before or after: the drive, the hold, the gradients
  of the weights.

With nested periods messages telescope, as in the CPU kernel: each module adds its own message to the sum of the slower
ones. Otherwise a module waits until all slower modules are done, and adds up their messages.

Backward is the same in reverse, fastest module first. `g_messages` holds for every row of a module the gradient of its
message: the gradients of all faster modules' ticks that read the row while it was held, and the gradient of the
module's own next tick. Its product with the states is the gradient of the weights, and its product with the weights is
the gradient of the states. A gated cell has one such plane for each sum of a tick: i, f, g, o of an LSTM; r, z, the
reset product before r, and n of a GRU, of which the last one belongs to the drive alone.

float32 is multiplied as tf32 where torch allows this to cuDNN's recurrent layers (`torch.backends.cudnn.allow_tf32`).
Otherwise a product of float32 takes three products of tf32, which are nearly as exact. The drive always does. The
networks of small.py, which are all of up to 128 units, are multiplied in float32.

Products are added up in float32. The gradients of messages are rounded to the dtype of the weights. No sum depends on
the order in which programs run: every call gives the same bits.

The tables that the programs read are made once for each shape and phase of the clock, and kept (tables.py). Run the
same shapes once before you capture a CUDA graph. Tables that a captured graph reads are kept for ever.
"""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from ...cells import CELLS, PEEPHOLES
from ...held import count_rows
from ...schedule import Schedule
from ..precision import allows_tf32
from ..tensors import dense, whole, with_memory
from . import driver, gradients, scan, small
from .tables import Plan, make_plan

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SHARED_BYTES = 162 * 1024
"""Bytes of shared memory that a block may need."""
MOST_ROWS = 65535
"""The most rows of blocks that a launch may have: one for each replica and plane."""
MOST_BLOCKS = 512
"""`auto` leaves a spread module with more blocks to cuDNN: about four for each of an H200's multiprocessors."""
MOST_BLOCKS_OF_GRU = 1024
"""The same for a GRU of several modules. It was measured on an H200 against single ticks (gru_steps.py), which take
less time than the kernel with 2048 blocks, and more with 512."""


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
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    if torch.cuda.get_device_capability(index) < (8, 0):
        return "it needs a device of compute capability 8.0 or above"
    properties: Any = torch.cuda.get_device_properties(index)
    if properties.shared_memory_per_block_optin < SHARED_BYTES:
        return f"it needs a device with {SHARED_BYTES // 1024} KiB of shared memory for a block"
    return driver.refuse()


def refuse_schedule(schedule: Schedule, device: torch.device, dtype: torch.dtype, cell: str) -> str | None:
    """Why the kernel cannot run with the modules of `schedule` on a device; None if it can."""
    if small.takes(schedule, cell, dtype):
        return None
    return _refuse_module(max(schedule.sizes), device, dtype, cell)


def _refuse_module(size: int, device: torch.device, dtype: torch.dtype, cell: str) -> str | None:
    return _compare_module(size, device, dtype, cell, _count_products(dtype), _count_multiprocessors(device))


# torch.compile takes this answer as a constant, too
_refuse_module._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _compare_module(
    size: int, device: torch.device, dtype: torch.dtype, cell: str, products: int, most: int
) -> str | None:
    """Why the kernel cannot run with a module of `size` units on a device with `most` multiprocessors, or None."""
    gates = CELLS[cell].gates
    kind = {"lstm": "LSTM ", "gru": "GRU "}.get(cell, "")
    name = str(dtype) if dtype != torch.float32 else f"{dtype} {'with' if products == 1 else 'without'} tf32"
    largest = scan.find_largest_module(dtype.itemsize, products, gates)
    if size > largest:
        return f"in {name} it takes {kind}modules of at most {largest} units, and one has {size}"
    parts = scan.choose_layout(size, dtype.itemsize, products, gates).count_parts(size)
    if parts > most:
        needed = f"needs {parts} multiprocessors, and {device} has {most}"
        return f"one of its {kind}modules, of {size} units in {name}, {needed}"
    return None


def advise_against(schedule: Schedule, dtype: torch.dtype, cell: str, batch: int) -> str | None:
    """Why `auto` should prefer the backend `cudnn`; None if it should not."""
    if small.takes(schedule, cell, dtype) or not torch.backends.cudnn.is_available():
        return None
    if not torch._C._get_cudnn_enabled():
        return None
    size = max(schedule.sizes)
    layout = scan.choose_layout(size, dtype.itemsize, _count_products(dtype), CELLS[cell].gates)
    blocks = layout.count_parts(size) * -(-batch // scan.SEQUENCES)
    most = MOST_BLOCKS_OF_GRU if cell == "gru" and schedule.modules > 1 else MOST_BLOCKS
    if not layout.spread or blocks <= most:
        return None
    return f"cuDNN is faster for a module of {size} units and {batch} sequences"


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
    because the states at the ticks are always computed. `kept` is what backward needs of a gated cell (cuda/cells.cuh);
    None for other cells, or without `keep_gates`.
    """
    if small.takes(schedule, cell, input.dtype):
        return small.forward(
            input, weight_ih, weight_hh, bias, h0, lengths, schedule, t0, cell, hold, keep_ticks, keep_gates, weight_ch
        )
    lead = weight_hh.shape[:-2]
    S, most = lead.numel(), _count_replicas(cell)
    if most < S:
        run: Any = forward
        others = schedule, t0, cell, hold, keep_ticks, keep_gates
        tensors = input, weight_ih, weight_hh, bias, h0, lengths, weight_ch
        parts: Any = _run_in_parts(S, most, lambda *own: run(*own[:-1], *others, own[-1]), *tensors)
        return tuple(parts)
    input, weight_ih, weight_hh, bias, h0, lengths, weight_ch = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0, lengths=lengths, weight_ch=weight_ch
    )
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, weight_ch, lengths, h0 = dense(bias, 1), dense(weight_ch, 1), whole(lengths), dense(h0, 1)
    *_, T, B, I = input.shape
    N, (gates, _, parts), device = schedule.hidden_size, CELLS[cell], input.device
    plan = make_plan(schedule, t0, T, B, device)
    final, states = input.new_empty((*lead, 1, B, parts * N)), input.new_empty((*lead, plan.states_size))
    held = input.new_empty((*lead, T, B, N)) if hold else None
    kept = None
    if gates > 1 and keep_gates:
        kept = input.new_empty((*lead, scan.KEPT_PLANES * scan.count_plane(schedule, plan.ticks, B)))
    if S * B > 0:
        even = I % 2 == 0 and _has_even_rows(input) and _has_even_rows(weight_ih)
        products = _count_products(input.dtype)
        programs, sizes = _prepare_forward(
            plan, schedule, cell, S, device, input.dtype, products, even, weight_ch is not None
        )
        scan.forward(
            plan, schedule, programs, sizes, input, weight_ih, weight_hh, bias, h0, lengths, weight_ch,
            states, final, held, kept,
        )  # fmt: skip
    return final, states, held, kept


def count_kept(schedule: Schedule, t0: int, T: int, B: int, cell: str, dtype: torch.dtype) -> int:
    """How many numbers `forward` keeps for `backward` besides the ticks; 0 for cells that need none."""
    if small.takes(schedule, cell, dtype):
        return small.count_kept(schedule, t0, T, B, cell)
    if CELLS[cell].gates == 1:
        return 0
    ticks = [rows - 1 for rows in count_rows(schedule.periods, t0, T)]
    return scan.KEPT_PLANES * scan.count_plane(schedule, ticks, B)


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
    if small.takes(schedule, cell, input.dtype):
        return small.backward(
            wanted, input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held,
            schedule, t0, cell, weight_ch, kept,
        )  # fmt: skip
    lead = weight_hh.shape[:-2]
    S, most = lead.numel(), _count_replicas(cell)
    if most < S:
        tensors = input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held, weight_ch, kept
        run: Any = backward
        return _run_in_parts(S, most, lambda *own: run(wanted, *own[:-2], schedule, t0, cell, *own[-2:]), *tensors)
    input, weight_ih, weight_hh, lengths, ticks, g_final, g_ticks, g_held, weight_ch, kept = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, lengths=lengths, ticks=ticks,
        gradient_of_h_n=g_final, gradient_of_ticks=g_ticks, gradient_of_output=g_held, weight_ch=weight_ch, kept=kept,
    )  # fmt: skip
    input, weight_ih, weight_hh, lengths = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2), whole(lengths)
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    weight_ch, kept = dense(weight_ch, 1), whole(kept)
    *_, T, B, I = input.shape
    N, (gates, biases, parts), device = schedule.hidden_size, CELLS[cell], input.device
    shapes = (T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N), (PEEPHOLES * N,)
    # no program fills the gradients of an empty input
    empty = S * B * T == 0
    results = [
        (ticks.new_zeros if empty else ticks.new_empty)((*lead, *shape)) if want else None
        for want, shape in zip(wanted, shapes, strict=True)
    ]
    if S * B == 0:
        return results
    plan = make_plan(schedule, t0, T, B, device)
    products = _count_products(input.dtype)
    programs, sizes = _prepare_backward(plan, schedule, cell, S, device, input.dtype, products, weight_ch is not None)
    g_held = None if g_held is None else _align(g_held, 2, *g_held.stride()[:-1])
    g_ticks = None if g_ticks is None else _align(g_ticks, 2)
    g_final = None if g_final is None else _align(g_final, 2)
    g_input, g_weight_ih, g_weight_hh, g_bias, g_h0, g_weight_ch = results
    g_messages = scan.backward(
        plan, schedule, programs, sizes, weight_hh, lengths, weight_ch, kept, ticks, g_held, g_ticks, g_final,
        g_h0, g_weight_ch,
    )  # fmt: skip
    gradients.compute(
        plan, schedule, gates, products, input, weight_ih, lengths, ticks, g_messages,
        g_input, g_weight_ih, g_weight_hh, g_bias,
    )  # fmt: skip
    return results


def _count_replicas(cell: str) -> int:
    """The most replicas that one call computes."""
    # a GRU has four planes in reverse
    return MOST_ROWS // max(CELLS[cell].gates, CELLS[cell].biases)


def _run_in_parts(
    S: int, most: int, run: Callable[..., Sequence[Tensor | None]], *tensors: Tensor | None
) -> list[Tensor | None]:
    """The results of `run` for all replicas, at most so many of them at once. Each tensor has an axis of replicas."""
    parts: Any = [
        run(*(None if tensor is None else tensor[first : first + most] for tensor in tensors))
        for first in range(0, S, most)
    ]
    return [None if results[0] is None else torch.cat(results) for results in zip(*parts, strict=True)]


def _has_even_rows(tensor: Tensor) -> bool:
    """Whether all rows of a tensor begin at multiples of 4 bytes."""
    size = tensor.element_size()
    return tensor.data_ptr() % 4 == 0 and (size == 4 or all(stride * size % 4 == 0 for stride in tensor.stride()[:-1]))


@lru_cache(maxsize=4096)
def _prepare_forward(
    plan: Plan,
    schedule: Schedule,
    cell: str,
    S: int,
    device: torch.device,
    dtype: torch.dtype,
    products: int,
    even: bool,
    peepholes: bool,
) -> tuple[scan.ForwardPrograms, scan.Sizes]:
    """The CUDA programs of S replicas on a device, and the sizes that they need."""
    layout = _choose_layout(schedule, cell, S, plan.B, device, dtype, products)
    turns, index = _choose_turns(layout, schedule, plan.B, device, dtype, False), device.index or 0
    limit = _count_shared_bytes(device)
    programs = scan.load_forward(schedule, cell, dtype, layout, even, index, limit, turns, peepholes)
    return programs, scan.count_sizes(schedule, plan, S, dtype.itemsize, programs.layout, turns, False)


@lru_cache(maxsize=4096)
def _prepare_backward(
    plan: Plan,
    schedule: Schedule,
    cell: str,
    S: int,
    device: torch.device,
    dtype: torch.dtype,
    products: int,
    peepholes: bool,
) -> tuple[scan.BackwardPrograms, scan.Sizes]:
    """The CUDA programs of S replicas on a device, and the sizes that they need."""
    layout = _choose_layout(schedule, cell, S, plan.B, device, dtype, products)
    turns, index = _choose_turns(layout, schedule, plan.B, device, dtype, True), device.index or 0
    limit = _count_shared_bytes(device)
    programs = scan.load_backward(schedule, cell, dtype, layout, index, limit, turns, peepholes)
    return programs, scan.count_sizes(schedule, plan, S, dtype.itemsize, programs.layout, turns, True)


def _choose_layout(
    schedule: Schedule, cell: str, S: int, B: int, device: torch.device, dtype: torch.dtype, products: int
) -> scan.Layout:
    """How the programs cut the modules of S replicas with B sequences each.

    Raises a RuntimeError if the kernel cannot run: the switch of tf32 may have changed since the backend was chosen.
    """
    largest, multiprocessors = max(schedule.sizes), _count_multiprocessors(device)
    reason = _compare_module(largest, device, dtype, cell, products, multiprocessors)
    if reason is not None:
        raise RuntimeError(f"the kernel cannot run on {device}: {reason}")
    layout = scan.choose_layout(largest, dtype.itemsize, products, CELLS[cell].gates)
    return scan.choose_registers(schedule, layout, dtype.itemsize, S, B, multiprocessors)


def _choose_turns(
    layout: scan.Layout, schedule: Schedule, B: int, device: torch.device, dtype: torch.dtype, backward: bool
) -> int:
    """How many tiles a block computes by turns."""
    if not layout.spread or not scan.is_vector(schedule, dtype.itemsize):
        return 1
    largest, tiles, multiprocessors = max(schedule.sizes), -(-B // scan.SEQUENCES), _count_multiprocessors(device)
    return layout.choose_turns(largest, tiles, multiprocessors, _count_shared_bytes(device), backward)


def _count_products(dtype: torch.dtype) -> int:
    """How many products of tf32 a product of float32 takes: 3 unless torch allows one. 1 for half precision."""
    if dtype != torch.float32:
        return 1
    return 1 if allows_tf32("rnn") else 3


def _align(tensor: Tensor, numbers: int, *strides: int) -> Tensor:
    """`tensor`, or a copy if it does not begin at a multiple of that many numbers, or has other strides."""
    size = tensor.element_size()
    if tensor.data_ptr() % (numbers * size) == 0 and all(stride % numbers == 0 for stride in strides):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)


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
