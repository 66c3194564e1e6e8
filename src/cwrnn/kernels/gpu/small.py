"""The GPU kernel of small networks: at most 128 units, with the cells tanh and relu.

At these sizes the chain of ticks takes nearly all the time, so a tick must take as little as possible: one block
computes one sequence, with all recurrent weights in its registers and the states in its shared memory. Forward is one
launch (cuda/small_forward.cu). Backward is three: the recurrence in reverse (cuda/small_backward.cu), which writes the
gradient of every sum that was activated; the products of these gradients with states, inputs and weights; and the sum
of the parts of the weights' gradients (both in cuda/small_gradients.cu).

float32 is multiplied as float32, whatever torch allows: products of tf32 would save no time here. All sums are sums of
float32, in an order that depends on the shapes alone. Zeros stand in for the weights from modules that a module does
not hear. Zero times an infinite state would be NaN, so a sum that is NaN is computed again without them.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...schedule import Schedule
from ..tensors import dense, pointer, whole, with_memory
from . import driver

MOST_UNITS = 128
"""A network with more units is not small: the registers of a block cannot hold its weights."""
CELLS = ("tanh", "relu")
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""ELEMENT in cuda/primitives.cuh."""
PART_LINES = 128
"""The fewest lines (a step of a sequence) that a part of the weights' gradients is the sum of."""
MOST_PARTS = 128
"""The most parts of the weights' gradients."""

# where the members of the structure `Call` in cuda/small.cuh stand in an array of 64-bit integers
(
    FIELD_T, FIELD_B, FIELD_I, FIELD_N, FIELD_G,
    FIELD_INPUT, FIELD_INPUT_S, FIELD_INPUT_T, FIELD_INPUT_B,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_IH_S, FIELD_WEIGHT_HH, FIELD_WEIGHT_HH_S, FIELD_BIAS, FIELD_BIAS_S,
    FIELD_PEEPHOLES, FIELD_PEEPHOLES_S, FIELD_H0, FIELD_H0_S, FIELD_H0_B, FIELD_LENGTHS, FIELD_FINAL, FIELD_HELD, FIELD_TICKS, FIELD_TICKS_S,
    FIELD_KEPT, FIELD_KEPT_S,
    FIELD_G_HELD, FIELD_G_HELD_S, FIELD_G_HELD_T, FIELD_G_HELD_B, FIELD_G_HELD_N, FIELD_G_TICKS, FIELD_G_FINAL,
    FIELD_G_INPUT, FIELD_G_WEIGHT_IH, FIELD_G_WEIGHT_HH, FIELD_G_BIAS, FIELD_G_H0, FIELD_G_PEEPHOLES,
    FIELD_G_DRIVE, FIELD_BEFORE, FIELD_PARTS, FIELD_G_PEEPHOLE_PARTS,
    FIELD_PART_COUNT, FIELD_PART_LINES, FIELD_FIRST_COLUMN, FIELD_COLUMNS, FIELD_MODULES,
) = range(49)  # fmt: skip
MODULE_FIELDS = 3
"""The 64-bit integers of a structure `Module`: period and first tick, first unit and size, states."""


def takes(schedule: Schedule, cell: str) -> bool:
    """Whether this kernel computes a network with that schedule and cell."""
    return schedule.hidden_size <= MOST_UNITS and cell in CELLS


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
) -> tuple[Tensor, Tensor | None, Tensor | None, None]:
    """The final state (1, B, N); the ticks of all modules in a row, if `keep_ticks`; the output (T, B, N), if `hold`.

    Replicas add a leading dimension S. The fourth result, what backward needs of gated cells, is None.
    """
    input, weight_ih, weight_hh, bias, h0, lengths = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0, lengths=lengths
    )
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths = dense(bias, 1), dense(h0, 1), whole(lengths)
    *lead, T, B, I = input.shape
    N = schedule.hidden_size
    call, states_size = _describe_call(schedule, t0, input, weight_ih, weight_hh, lengths)
    final = weight_hh.new_empty((*lead, 1, B, N))
    ticks = weight_hh.new_empty((*lead, states_size)) if keep_ticks else None
    held = weight_hh.new_empty((*lead, T, B, N)) if hold else None
    blocks = final.numel() // N
    if blocks > 0:
        call[FIELD_BIAS], call[FIELD_H0] = pointer(bias), pointer(h0)
        if h0 is not None:
            call[FIELD_H0_B] = h0.stride(-2)
        if lead:
            call[FIELD_BIAS_S], call[FIELD_H0_S] = _replica_stride(bias), _replica_stride(h0)
        call[FIELD_FINAL], call[FIELD_HELD], call[FIELD_TICKS] = pointer(final), pointer(held), pointer(ticks)
        device = input.get_device()
        _launch(_load_forward(N, I, weight_hh.dtype, cell, device), blocks, call, device)
    return final, ticks, held, None


def count_kept(schedule: Schedule, t0: int, T: int, B: int, cell: str) -> int:
    """How many numbers the fourth result of `forward` has: none."""
    return 0


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
    input, weight_ih, weight_hh, lengths, ticks, g_final, g_ticks, g_held = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, lengths=lengths, ticks=ticks,
        gradient_of_h_n=g_final, gradient_of_ticks=g_ticks, gradient_of_output=g_held,
    )  # fmt: skip
    input, weight_ih, weight_hh, lengths = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2), whole(lengths)
    ticks, g_final, g_ticks = whole(ticks), whole(g_final), whole(g_ticks)
    *lead, T, B, I = input.shape
    N = schedule.hidden_size
    blocks = B * weight_hh.shape[:-2].numel()
    # without steps or sequences no program writes these gradients
    make = weight_hh.new_zeros if T * blocks == 0 else weight_hh.new_empty
    wants_input, wants_ih, wants_hh, wants_bias, wants_h0, *_ = wanted
    g_input = make((*lead, T, B, I)) if wants_input else None
    g_weight_ih = make((*lead, N, I)) if wants_ih else None
    g_weight_hh = make((*lead, N, N)) if wants_hh else None
    g_bias = make((*lead, N)) if wants_bias else None
    g_h0 = weight_hh.new_empty((*lead, B, N)) if wants_h0 else None
    gradients = [g_input, g_weight_ih, g_weight_hh, g_bias, g_h0, None]
    if blocks == 0:
        return gradients
    call, states_size = _describe_call(schedule, t0, input, weight_ih, weight_hh, lengths)
    call[FIELD_TICKS], call[FIELD_TICKS_S] = ticks.data_ptr(), states_size
    call[FIELD_G_TICKS], call[FIELD_G_FINAL] = pointer(g_ticks), pointer(g_final)
    if g_held is not None:
        # the gradient of a sum is one number with strides of zero
        g_held = whole(g_held) if g_held.layout is not torch.strided or g_held.is_neg() else g_held
        call[FIELD_G_HELD] = g_held.data_ptr()
        *_, call[FIELD_G_HELD_T], call[FIELD_G_HELD_B], call[FIELD_G_HELD_N] = g_held.stride()
        call[FIELD_G_HELD_S] = g_held.stride(0) if lead else 0
    g_drive = torch.empty((*lead, T, B, N), dtype=torch.float32, device=weight_hh.device)
    before = weight_hh.new_empty((*lead, T, B, N)) if wants_hh else None
    call[FIELD_G_DRIVE], call[FIELD_BEFORE], call[FIELD_G_H0] = g_drive.data_ptr(), pointer(before), pointer(g_h0)
    device, dtype = input.get_device(), weight_hh.dtype
    _launch(_load_backward(N, dtype, cell, device), blocks, call, device)
    if T > 0:
        call[FIELD_G_INPUT], call[FIELD_G_WEIGHT_IH] = pointer(g_input), pointer(g_weight_ih)
        call[FIELD_G_WEIGHT_HH], call[FIELD_G_BIAS] = pointer(g_weight_hh), pointer(g_bias)
        _multiply_gradients(call, wants_input and I > 0, wants_ih, wants_hh, wants_bias, blocks // B, weight_hh)
    return gradients


def _multiply_gradients(
    call: "array[int]", of_input: bool, of_weight_ih: bool, of_weight_hh: bool, of_bias: bool, S: int, like: Tensor
) -> None:
    """Computes the gradients other than that of h0 from those of the sums that were activated."""
    T, B, I, N, *_ = call
    device, lines, blocks = like.get_device(), T * B, 0
    multiply, add = _load_gradients(like.dtype, device)
    if of_weight_ih or of_weight_hh or of_bias:
        first, end = 0 if of_weight_hh else N, N + I if of_weight_ih else N
        columns = end - first
        part_lines = max(PART_LINES, -(-lines // (16 * MOST_PARTS)) * 16)
        count = -(-lines // part_lines)
        parts = torch.empty(S * count * N * (columns + 1), dtype=torch.float32, device=like.device)
        call[FIELD_PARTS], call[FIELD_PART_COUNT], call[FIELD_PART_LINES] = parts.data_ptr(), count, part_lines
        call[FIELD_FIRST_COLUMN], call[FIELD_COLUMNS] = first, columns
        blocks = count * -(-N // 64) * max(-(-columns // 64), 1)
    if of_input:
        blocks += -(-lines // 64) * -(-I // 64)
    if blocks > 0:
        _launch(multiply, S * blocks, call, device)
    if call[FIELD_PART_COUNT] > 0:
        _launch(add, S * -(-N * (columns + 1) // 32), call, device)


def _describe_call(
    schedule: Schedule, t0: int, input: Tensor, weight_ih: Tensor, weight_hh: Tensor, lengths: Tensor | None
) -> tuple["array[int]", int]:
    """The fields that forward and backward share, and how many numbers the states of all modules have in a replica."""
    *lead, T, B, _ = input.shape
    # a module that does not tick has no phase
    firsts = tuple([min(-t0 % period, T) for period in schedule.periods])
    modules, states_size = _describe_modules(schedule, firsts, T, B, input.shape[-1])
    call = modules[:]
    *_, call[FIELD_INPUT_T], call[FIELD_INPUT_B], _ = input.stride()
    call[FIELD_INPUT] = input.data_ptr()
    call[FIELD_WEIGHT_IH], call[FIELD_WEIGHT_HH] = weight_ih.data_ptr(), weight_hh.data_ptr()
    if lengths is not None:
        call[FIELD_LENGTHS] = lengths.data_ptr()
    if lead:
        call[FIELD_INPUT_S], call[FIELD_WEIGHT_IH_S] = input.stride(0), weight_ih.stride(0)
        call[FIELD_WEIGHT_HH_S], call[FIELD_TICKS_S] = weight_hh.stride(0), states_size
    return call, states_size


@lru_cache(maxsize=4096)
def _describe_modules(
    schedule: Schedule, first_ticks: tuple[int, ...], T: int, B: int, I: int
) -> tuple["array[int]", int]:
    """A call with its sizes and modules, and nothing else; and how many numbers the states have in a replica."""
    fields = array("q", bytes(8 * (FIELD_MODULES + MODULE_FIELDS * MOST_UNITS)))
    fields[FIELD_T], fields[FIELD_B], fields[FIELD_I] = T, B, I
    fields[FIELD_N], fields[FIELD_G] = schedule.hidden_size, schedule.modules
    states, at = 0, FIELD_MODULES
    modules = zip(schedule.periods, schedule.sizes, schedule.slices, first_ticks, strict=True)
    for long_period, size, units, first in modules:
        # the programs count in 32 bits: a period longer than the sequence may be any such period
        period = min(long_period, T + 1)
        fields[at : at + MODULE_FIELDS] = array("q", [period | first << 32, units.start | size << 32, states])
        at += MODULE_FIELDS
        states += ((T - 1 - first) // period + 2 if first < T else 1) * B * size
    return fields, states


@lru_cache(maxsize=1024)
def _load_forward(N: int, I: int, dtype: torch.dtype, cell: str, device: int) -> driver.Program:
    units, threads = _round_units(N)
    inputs = 4 if I <= 4 else 16 if I <= 16 else 64
    shared = 4 * (72 * threads + inputs * (units + 40))
    return _load("small_forward.cu", "run_small_forward", dtype, 2 * threads, shared, device,
                 UNITS=units, INPUTS=inputs, RELU=cell == "relu")  # fmt: skip


@lru_cache(maxsize=1024)
def _load_backward(N: int, dtype: torch.dtype, cell: str, device: int) -> driver.Program:
    units, threads = _round_units(N)
    shared = 4 * (70 * threads + 32)
    return _load("small_backward.cu", "run_small_backward", dtype, 2 * threads, shared, device,
                 UNITS=units, RELU=cell == "relu")  # fmt: skip


@lru_cache(maxsize=1024)
def _load_gradients(dtype: torch.dtype, device: int) -> tuple[driver.Program, driver.Program]:
    names = "multiply_small_gradients", "add_small_gradients"
    first, second = (_load("small_gradients.cu", name, dtype, 256, 4 * 2 * 16 * 68, device) for name in names)
    return first, second


def _load(
    file: str, name: str, dtype: torch.dtype, threads: int, shared: int, device: int, **constants: int
) -> driver.Program:
    """The program `name` of a file in `cuda/`."""
    pairs = (("ELEMENT", ELEMENTS[dtype]), ("SHARED", shared), *((key, int(value)) for key, value in constants.items()))
    return driver.load_program(file, name, pairs, threads, shared, device)


def _round_units(N: int) -> tuple[int, int]:
    """UNITS and SCAN of cuda/small.cuh."""
    return -(-N // 16) * 16, -(-N // 32) * 32


def _launch(program: driver.Program, blocks: int, call: "array[int]", device: int) -> None:
    """Starts a program on the current stream of a device. A negative number is a CPU, which tests emulate."""
    if device < 0:
        driver.launch(program, blocks, 1, call, 0)
    elif device == torch._C._cuda_getDevice():
        driver.launch(program, blocks, 1, call, torch._C._cuda_getCurrentRawStream(device))
    else:
        with torch.cuda.device(device):
            driver.launch(program, blocks, 1, call, torch._C._cuda_getCurrentRawStream(device))


def _replica_stride(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0)
