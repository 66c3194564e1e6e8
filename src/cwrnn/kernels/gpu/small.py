"""The GPU kernel of small networks: at most 128 units with the cells tanh and relu, at most 64 with LSTM and GRU.

At these sizes the chain of ticks takes nearly all the time, so a tick must take as little as possible: one block
computes one sequence, with all recurrent weights in its registers and the states in its shared memory. Forward is one
launch (cuda/small_forward.cu, cuda/small_gated_forward.cu). Backward is three: the recurrence in reverse
(cuda/small_backward.cu, cuda/small_gated_backward.cu), which writes the gradient of every sum that was activated; the
products of these gradients with states, inputs and weights; and the sum of the parts of the weights' gradients (both in
cuda/small_gradients.cu).

float32 is multiplied as float32, whatever torch allows: products of tf32 would save no time here. All sums are sums of
float32, in an order that depends on the shapes alone. Zeros stand in for the weights from modules that a module does
not hear. Zero times an infinite state would be NaN, so a sum that is NaN is computed again without them.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...cells import CELLS, PEEPHOLES
from ...held import count_rows
from ...schedule import Schedule
from ..tensors import dense, pointer, whole, with_memory
from . import driver
from .tables import count_blocks, round_up

MOST_UNITS = {"tanh": 128, "relu": 128, "lstm": 64, "gru": 64}
"""The most units of a small network of each cell: the registers of a block must hold its weights."""
KEPT = {"lstm": 5, "gru": 4}
"""How many numbers per unit and tick forward keeps for backward, besides the ticks."""
PART_LINES = 128
"""The fewest lines (a step of a sequence) that a part of the weights' gradients is the sum of."""
MOST_PARTS = 128
"""The most parts of the weights' gradients."""
TILE = 64
"""Rows and columns of the products that a block of cuda/small_gradients.cu computes."""

# where the members of the structure `Call` in cuda/small.cuh stand in an array of 64-bit integers
(
    FIELD_T, FIELD_B, FIELD_I, FIELD_N, FIELD_G,
    FIELD_INPUT, FIELD_INPUT_S, FIELD_INPUT_T, FIELD_INPUT_B,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_IH_S, FIELD_WEIGHT_HH, FIELD_WEIGHT_HH_S, FIELD_BIAS, FIELD_BIAS_S,
    FIELD_PEEPHOLES, FIELD_PEEPHOLES_S, FIELD_H0, FIELD_H0_S, FIELD_H0_B, FIELD_LENGTHS,
    FIELD_FINAL, FIELD_HELD, FIELD_TICKS, FIELD_TICKS_S, FIELD_KEPT, FIELD_KEPT_S, FIELD_STATES_SIZE,
    FIELD_G_HELD, FIELD_G_HELD_S, FIELD_G_HELD_T, FIELD_G_HELD_B, FIELD_G_HELD_N, FIELD_G_TICKS, FIELD_G_FINAL,
    FIELD_G_INPUT, FIELD_G_WEIGHT_IH, FIELD_G_WEIGHT_HH, FIELD_G_BIAS, FIELD_G_H0, FIELD_G_PEEPHOLES,
    FIELD_G_DRIVE, FIELD_BEFORE, FIELD_PARTS, FIELD_G_PEEPHOLE_PARTS,
    FIELD_PART_COUNT, FIELD_PART_LINES, FIELD_FIRST_COLUMN, FIELD_COLUMNS, FIELD_MODULES,
) = range(50)  # fmt: skip
MODULE_FIELDS, MOST_MODULES = 3, 128
"""The 64-bit integers of a structure `Module` (period and first tick, first unit and size, states), and how many there
are."""


def takes(schedule: Schedule, cell: str) -> bool:
    """Whether this kernel computes a network with that schedule and cell."""
    return schedule.hidden_size <= MOST_UNITS[cell]


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
    """The final state (1, B, N); the ticks of all modules in a row, if `keep_ticks`; the output (T, B, N), if `hold`.

    Replicas add a leading dimension S. The fourth result is what backward needs of a gated cell, if `keep_gates`; its
    layout is in cuda/small_gated_forward.cu. States of an LSTM are h and c side by side: (1, B, 2 N).
    """
    input, weight_ih, weight_hh, bias, h0, lengths, weight_ch = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0, lengths=lengths, weight_ch=weight_ch
    )
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths, weight_ch = dense(bias, 1), dense(h0, 1), whole(lengths), dense(weight_ch, 1)
    *lead, T, B, _ = input.shape
    N, parts = schedule.hidden_size, CELLS[cell].parts
    call, states_size = _describe_call(schedule, t0, input, weight_ih, weight_hh, lengths, weight_ch)
    final = weight_hh.new_empty((*lead, 1, B, parts * N))
    ticks = weight_hh.new_empty((*lead, states_size)) if keep_ticks else None
    held = weight_hh.new_empty((*lead, T, B, N)) if hold else None
    kept = weight_hh.new_empty((*lead, KEPT[cell] * states_size)) if keep_gates and cell in KEPT else None
    blocks = B * weight_hh.shape[:-2].numel()
    if blocks > 0:
        call[FIELD_BIAS], call[FIELD_H0] = pointer(bias), pointer(h0)
        if h0 is not None:
            call[FIELD_H0_B] = h0.stride(-2)
        if lead:
            call[FIELD_BIAS_S], call[FIELD_H0_S] = _replica_stride(bias), _replica_stride(h0)
        call[FIELD_FINAL], call[FIELD_HELD] = final.data_ptr(), pointer(held)
        call[FIELD_TICKS], call[FIELD_KEPT] = pointer(ticks), pointer(kept)
        call[FIELD_KEPT_S] = KEPT.get(cell, 0) * states_size
        device = input.get_device()
        _launch(_load_forward(N, input.shape[-1], weight_hh.dtype, cell, device), blocks, call, device)
    return final, ticks, held, kept


def count_kept(schedule: Schedule, t0: int, T: int, B: int, cell: str) -> int:
    """How many numbers the fourth result of `forward` has; 0 for cells that need none. T and B may be symbols."""
    rows = count_rows(schedule.periods, t0, T)
    return KEPT.get(cell, 0) * B * sum(n * size for n, size in zip(rows, schedule.sizes, strict=True))


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
    input, weight_ih, weight_hh, lengths, ticks, g_final, g_ticks, g_held, weight_ch, kept = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, lengths=lengths, ticks=ticks,
        gradient_of_h_n=g_final, gradient_of_ticks=g_ticks, gradient_of_output=g_held, weight_ch=weight_ch, kept=kept,
    )  # fmt: skip
    input, weight_ih, weight_hh, lengths = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2), whole(lengths)
    ticks, g_final, g_ticks, kept = whole(ticks), whole(g_final), whole(g_ticks), whole(kept)
    weight_ch = dense(weight_ch, 1)
    *lead, T, B, I = input.shape
    N, (gates, biases, parts) = schedule.hidden_size, CELLS[cell]
    blocks = B * weight_hh.shape[:-2].numel()
    shapes = (T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N), (PEEPHOLES * N,)
    # without steps or sequences no program writes the other gradients
    make = weight_hh.new_zeros if T * blocks == 0 else weight_hh.new_empty
    gradients = [make((*lead, *shape)) if want else None for want, shape in zip(wanted, shapes, strict=True)]
    if blocks == 0:
        return gradients
    g_input, g_weight_ih, g_weight_hh, g_bias, g_h0, g_peepholes = gradients
    call, states_size = _describe_call(schedule, t0, input, weight_ih, weight_hh, lengths, weight_ch)
    call[FIELD_TICKS], call[FIELD_TICKS_S] = ticks.data_ptr(), states_size
    call[FIELD_KEPT], call[FIELD_KEPT_S] = pointer(kept), KEPT.get(cell, 0) * states_size
    call[FIELD_G_TICKS], call[FIELD_G_FINAL] = pointer(g_ticks), pointer(g_final)
    if g_held is not None:
        # the gradient of a sum is one number with strides of zero
        g_held = whole(g_held) if g_held.layout is not torch.strided or g_held.is_neg() else g_held
        call[FIELD_G_HELD] = g_held.data_ptr()
        *_, call[FIELD_G_HELD_T], call[FIELD_G_HELD_B], call[FIELD_G_HELD_N] = g_held.stride()
        call[FIELD_G_HELD_S] = g_held.stride(0) if lead else 0
    device, dtype, S = input.get_device(), weight_hh.dtype, blocks // B
    planes = 1 if gates == 1 else 4
    g_drive = torch.empty(blocks * T * planes * N, dtype=torch.float32, device=weight_hh.device)
    before = None if g_weight_hh is None else weight_hh.new_empty(blocks * T * N)
    call[FIELD_G_DRIVE], call[FIELD_BEFORE], call[FIELD_G_H0] = g_drive.data_ptr(), pointer(before), pointer(g_h0)
    if g_peepholes is not None:
        g_peephole_parts = g_drive.new_empty(blocks * PEEPHOLES * N)
        call[FIELD_G_PEEPHOLE_PARTS] = g_peephole_parts.data_ptr()
    _launch(_load_backward(N, dtype, cell, device), blocks, call, device)
    if T == 0:
        return gradients
    multiply, add = _load_gradients(gates, dtype, device)
    lines = T * B
    products = sums = 0
    if g_weight_ih is not None or g_weight_hh is not None or g_bias is not None:
        first, end = 0 if g_weight_hh is not None else N, N + I if g_weight_ih is not None else N
        columns = end - first
        part_lines = max(PART_LINES, count_blocks(lines, 16 * MOST_PARTS) * 16)
        count = count_blocks(lines, part_lines)
        g_parts = g_drive.new_empty(S * count * planes * N * (columns + 1))
        call[FIELD_PARTS], call[FIELD_PART_COUNT], call[FIELD_PART_LINES] = g_parts.data_ptr(), count, part_lines
        call[FIELD_FIRST_COLUMN], call[FIELD_COLUMNS] = first, columns
        call[FIELD_G_WEIGHT_IH], call[FIELD_G_WEIGHT_HH] = pointer(g_weight_ih), pointer(g_weight_hh)
        call[FIELD_G_BIAS] = pointer(g_bias)
        products = count * count_blocks(planes * N, TILE) * max(count_blocks(columns, TILE), 1)
        sums = count_blocks(planes * N * (columns + 1), 32)
    if g_peepholes is not None:
        call[FIELD_G_PEEPHOLES] = g_peepholes.data_ptr()
        sums += count_blocks(PEEPHOLES * N, 32)
    if g_input is not None and I > 0:
        call[FIELD_G_INPUT] = g_input.data_ptr()
        products += count_blocks(lines, TILE) * count_blocks(I, TILE)
    if products > 0:
        _launch(multiply, S * products, call, device)
    if sums > 0:
        _launch(add, S * sums, call, device)
    return gradients


def _describe_call(
    schedule: Schedule,
    t0: int,
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    lengths: Tensor | None,
    weight_ch: Tensor | None,
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
    if weight_ch is not None:
        call[FIELD_PEEPHOLES] = weight_ch.data_ptr()
        call[FIELD_PEEPHOLES_S] = weight_ch.stride(0) if lead else 0
    if lead:
        call[FIELD_INPUT_S], call[FIELD_WEIGHT_IH_S] = input.stride(0), weight_ih.stride(0)
        call[FIELD_WEIGHT_HH_S], call[FIELD_TICKS_S] = weight_hh.stride(0), states_size
    return call, states_size


@lru_cache(maxsize=4096)
def _describe_modules(
    schedule: Schedule, first_ticks: tuple[int, ...], T: int, B: int, I: int
) -> tuple["array[int]", int]:
    """A call with its sizes and modules, and nothing else; and how many numbers the states have in a replica."""
    fields = array("q", bytes(8 * (FIELD_MODULES + MODULE_FIELDS * MOST_MODULES)))
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
    fields[FIELD_STATES_SIZE] = states
    return fields, states


@lru_cache(maxsize=1024)
def _load_forward(N: int, I: int, dtype: torch.dtype, cell: str, device: int) -> driver.Program:
    gates, units = CELLS[cell].gates, round_up(N, 16)
    constants = {"GATES": gates, "UNITS": units, "INPUTS": 4 if I <= 4 else 16 if I <= 16 else 64}
    if gates == 1:
        scan = helpers = round_up(units, 32)
        numbers = 7 * scan + 65 * scan + constants["INPUTS"] * (units + 40)
        return _load("small_forward.cu", "run_small_forward", dtype, scan + helpers, numbers, device,
                     **constants, RELU=cell == "relu")  # fmt: skip
    rows = gates * units
    numbers = 5 * units + 65 * round_up(rows, 32) + 4 + constants["INPUTS"] * (rows + 40)
    threads = 4 * units + round_up(rows // 2, 32)
    return _load("small_gated_forward.cu", "run_small_forward", dtype, threads, numbers, device, **constants)


@lru_cache(maxsize=1024)
def _load_backward(N: int, dtype: torch.dtype, cell: str, device: int) -> driver.Program:
    gates, units = CELLS[cell].gates, round_up(N, 16)
    helpers = round_up(units, 32)
    if gates == 1:
        return _load("small_backward.cu", "run_small_backward", dtype, 2 * helpers, 70 * helpers + 32, device,
                     GATES=gates, UNITS=units, RELU=cell == "relu")  # fmt: skip
    return _load("small_gated_backward.cu", "run_small_backward", dtype, 4 * units + helpers,
                 235 * units + helpers + 32, device, GATES=gates, UNITS=units)  # fmt: skip


@lru_cache(maxsize=1024)
def _load_gradients(gates: int, dtype: torch.dtype, device: int) -> tuple[driver.Program, driver.Program]:
    names, numbers = ("multiply_small_gradients", "add_small_gradients"), 2 * 16 * (TILE + 4)
    first, second = (_load("small_gradients.cu", name, dtype, 256, numbers, device, GATES=gates) for name in names)
    return first, second


def _load(
    file: str, name: str, dtype: torch.dtype, threads: int, numbers: int, device: int, **constants: int
) -> driver.Program:
    """The program `name` of a file in `cuda/`, whose shared memory has `numbers` of 4 bytes."""
    shared = 4 * numbers
    pairs = (
        ("ELEMENT", driver.ELEMENTS[dtype]),
        ("SHARED", shared),
        *((key, int(value)) for key, value in constants.items()),
    )
    return driver.load_program(file, name, pairs, threads, shared, device)


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
