"""The GPU kernel of small networks: at most 128 units, LSTM and GRU in half precision 64.

At these sizes the chain of ticks takes nearly all the time, so a tick must take as little as possible: one block
computes one sequence, with the recurrent weights in its registers and the states in its shared memory. Forward is one
launch (cuda/small_forward.cu, cuda/small_gated_forward.cu). Backward is three: the recurrence in reverse
(cuda/small_backward.cu, cuda/small_gated_backward.cu), which writes the gradient of every sum that was activated; the
products of these gradients with states, inputs and weights; and the sum of the parts of the weights' gradients (both in
cuda/small_gradients.cu).

The registers of a block cannot hold the weights of an LSTM or a GRU of more than 64 units. A part of them stays in
shared memory, and one more launch first computes the drive of all steps (cuda/small_drive.cu). The drive takes 4 bytes
of working memory for each gate of each unit, at each step of each sequence.

float32 is multiplied as float32, whatever torch allows: products of tf32 would save no time here. All sums are sums of
float32, in an order that depends on the shapes alone. Zeros stand in for the weights from modules that a module does
not hear. Zero times an infinite state would be NaN, so a sum that is NaN is computed again without them.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ...cells import CELLS, PEEPHOLES
from ...held import count_rows
from ...schedule import Schedule
from ..tensors import dense, pointer, whole, with_memory
from . import driver
from .tables import count_blocks, list_first_ticks, round_up

MOST_UNITS = 128
"""The most units of a small network: the registers of a block hold its weights, those of LSTM and GRU together with the
shared memory."""
MOST_UNITS_IN_REGISTERS = 64
"""The most units of LSTM and GRU for which registers hold all weights and helpers compute the drive. In half precision,
larger ones run faster by scan.py."""
KEPT = {"lstm": 5, "gru": 4}
"""How many numbers per unit and tick forward keeps for backward, besides the ticks."""
PART_LINES = 128
"""The fewest lines (a step of a sequence) that a part of the weights' gradients is the sum of."""
MOST_PARTS = 128
"""The most parts of the weights' gradients."""
TILE = 64
"""Rows and columns of the products that a block of cuda/small_gradients.cu and cuda/small_drive.cu computes."""

# where the members of the structure `Call` in cuda/small.cuh stand in an array of 64-bit integers
(
    FIELD_T, FIELD_B, FIELD_I, FIELD_N, FIELD_G,
    FIELD_INPUT, FIELD_INPUT_S, FIELD_INPUT_T, FIELD_INPUT_B,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_IH_S, FIELD_WEIGHT_HH, FIELD_WEIGHT_HH_S, FIELD_BIAS, FIELD_BIAS_S,
    FIELD_PEEPHOLES, FIELD_PEEPHOLES_S, FIELD_H0, FIELD_H0_S, FIELD_H0_B, FIELD_LENGTHS,
    FIELD_FINAL, FIELD_HELD, FIELD_HELD_STEP,
    FIELD_TICKS, FIELD_TICKS_S, FIELD_KEPT, FIELD_KEPT_S, FIELD_STATES_SIZE, FIELD_DRIVE,
    FIELD_G_HELD, FIELD_G_HELD_S, FIELD_G_HELD_T, FIELD_G_HELD_B, FIELD_G_HELD_N, FIELD_G_TICKS, FIELD_G_FINAL,
    FIELD_G_INPUT, FIELD_G_WEIGHT_IH, FIELD_G_WEIGHT_HH, FIELD_G_BIAS, FIELD_G_H0, FIELD_G_PEEPHOLES,
    FIELD_G_DRIVE, FIELD_G_DRIVE_STEP, FIELD_BEFORE, FIELD_PARTS, FIELD_G_PEEPHOLE_PARTS,
    FIELD_PART_COUNT, FIELD_PART_LINES, FIELD_FIRST_COLUMN, FIELD_COLUMNS, FIELD_MODULES,
) = range(53)  # fmt: skip
MODULE_FIELDS, MOST_MODULES = 3, 128
"""The 64-bit integers of a structure `Module` (period and first tick, first unit and size, states), and how many there
are."""


def takes(schedule: Schedule, cell: str, dtype: torch.dtype) -> bool:
    """Whether this kernel computes a network with that schedule, cell and dtype."""
    exact = CELLS[cell].gates == 1 or dtype == torch.float32
    return schedule.hidden_size <= (MOST_UNITS if exact else MOST_UNITS_IN_REGISTERS)


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
    *lead, T, B, I = input.shape
    N, parts, device = schedule.hidden_size, CELLS[cell].parts, input.get_device()
    sizes = _describe_modules(schedule, list_first_ticks(schedule, t0, T), T, B, I)
    states_size = sizes[FIELD_STATES_SIZE]
    final = weight_hh.new_empty((*lead, 1, B, parts * N))
    ticks = weight_hh.new_empty((*lead, states_size)) if keep_ticks else None
    held = weight_hh.new_empty((*lead, T, B, N)) if hold else None
    kept = weight_hh.new_empty((*lead, KEPT[cell] * states_size)) if keep_gates and cell in KEPT else None
    blocks = B * weight_hh.shape[:-2].numel()
    if blocks > 0:
        call = _describe_call(sizes, input, weight_ih, weight_hh, lengths, weight_ch)
        call[FIELD_BIAS], call[FIELD_H0] = pointer(bias), pointer(h0)
        if h0 is not None:
            call[FIELD_H0_B] = h0.stride(-2)
        if lead:
            call[FIELD_BIAS_S], call[FIELD_H0_S] = _replica_stride(bias), _replica_stride(h0)
        call[FIELD_FINAL], call[FIELD_HELD] = final.data_ptr(), pointer(held)
        call[FIELD_TICKS], call[FIELD_KEPT] = pointer(ticks), pointer(kept)
        call[FIELD_KEPT_S] = KEPT.get(cell, 0) * states_size
        dtype, gates = weight_hh.dtype, CELLS[cell].gates
        if _is_large(N, gates) and T > 0:
            rows = gates * round_up(N, 16)
            drive = torch.empty(blocks * T * rows, dtype=torch.float32, device=input.device)
            call[FIELD_DRIVE] = drive.data_ptr()
            tiles = count_blocks(T * B, TILE) * count_blocks(rows, TILE)
            driver.launch_on(device, _load_drive(gates, dtype, device), blocks // B * tiles, 1, call)
        scan = _load_forward(N, I, dtype, cell, weight_ch is not None, device)
        driver.launch_on(device, scan, blocks, 1, call)
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
    device, dtype, S = input.get_device(), weight_hh.dtype, blocks // B
    launches = _prepare_backward(
        schedule, list_first_ticks(schedule, t0, T), T, B, I, dtype, cell, device,
        g_input is not None, g_weight_ih is not None, g_weight_hh is not None, g_bias is not None,
        g_peepholes is not None,
    )  # fmt: skip
    call = _describe_call(launches.sizes, input, weight_ih, weight_hh, lengths, weight_ch)
    call[FIELD_TICKS], call[FIELD_KEPT] = ticks.data_ptr(), pointer(kept)
    call[FIELD_G_TICKS], call[FIELD_G_FINAL] = pointer(g_ticks), pointer(g_final)
    if g_held is not None:
        # the gradient of a sum is one number with strides of zero
        g_held = whole(g_held) if g_held.layout is not torch.strided or g_held.is_neg() else g_held
        call[FIELD_G_HELD] = g_held.data_ptr()
        *_, call[FIELD_G_HELD_T], call[FIELD_G_HELD_B], call[FIELD_G_HELD_N] = g_held.stride()
        call[FIELD_G_HELD_S] = g_held.stride(0) if lead else 0
    g_drive = torch.empty(blocks * T * launches.planes * N, dtype=torch.float32, device=weight_hh.device)
    before = None if g_weight_hh is None else weight_hh.new_empty(blocks * T * N)
    call[FIELD_G_DRIVE], call[FIELD_BEFORE], call[FIELD_G_H0] = g_drive.data_ptr(), pointer(before), pointer(g_h0)
    if g_peepholes is not None:
        g_peephole_parts = g_drive.new_empty(blocks * PEEPHOLES * N)
        call[FIELD_G_PEEPHOLE_PARTS], call[FIELD_G_PEEPHOLES] = g_peephole_parts.data_ptr(), g_peepholes.data_ptr()
    driver.launch_on(device, launches.scan, blocks, 1, call)
    if launches.part_numbers > 0:
        g_parts = g_drive.new_empty(S * launches.part_numbers)
        call[FIELD_PARTS] = g_parts.data_ptr()
        call[FIELD_G_WEIGHT_IH], call[FIELD_G_WEIGHT_HH] = pointer(g_weight_ih), pointer(g_weight_hh)
        call[FIELD_G_BIAS] = pointer(g_bias)
    if g_input is not None:
        call[FIELD_G_INPUT] = g_input.data_ptr()
    if launches.products > 0:
        driver.launch_on(device, launches.multiply, S * launches.products, 1, call)
    if launches.sums > 0:
        driver.launch_on(device, launches.add, S * launches.sums, 1, call)
    return gradients


class _Launches(NamedTuple):
    """The launches of a backward call, and the sizes that they read."""

    sizes: "array[int]"
    """A call with its sizes and modules, and nothing else."""
    planes: int
    """Planes of the gradients of a step's sums."""
    part_numbers: int
    """How many numbers the parts of the weights' gradients have in a replica."""
    scan: driver.Program
    multiply: driver.Program
    add: driver.Program
    products: int
    """Blocks of `multiply` for each replica."""
    sums: int
    """Blocks of `add` for each replica."""


@lru_cache(maxsize=4096)
def _prepare_backward(
    schedule: Schedule,
    first_ticks: tuple[int, ...],
    T: int,
    B: int,
    I: int,
    dtype: torch.dtype,
    cell: str,
    device: int,
    of_input: bool,
    of_weight_ih: bool,
    of_weight_hh: bool,
    of_bias: bool,
    of_peepholes: bool,
) -> _Launches:
    """The launches of a backward call; the last arguments say which gradients are wanted."""
    N, gates, lines = schedule.hidden_size, CELLS[cell].gates, T * B
    planes = 1 if gates == 1 else 4
    sizes = _describe_modules(schedule, first_ticks, T, B, I)[:]
    sizes[FIELD_KEPT_S] = KEPT.get(cell, 0) * sizes[FIELD_STATES_SIZE]
    sizes[FIELD_G_DRIVE_STEP] = B * planes * N
    part_numbers = products = sums = 0
    # without steps, nothing is left to multiply
    if lines > 0 and (of_weight_ih or of_weight_hh or of_bias):
        first, end = 0 if of_weight_hh else N, N + I if of_weight_ih else N
        columns = end - first
        part_lines = max(PART_LINES, count_blocks(lines, 16 * MOST_PARTS) * 16)
        count = count_blocks(lines, part_lines)
        sizes[FIELD_PART_COUNT], sizes[FIELD_PART_LINES] = count, part_lines
        sizes[FIELD_FIRST_COLUMN], sizes[FIELD_COLUMNS] = first, columns
        part_numbers = count * planes * N * (columns + 1)
        products = count * count_blocks(planes * N, TILE) * max(count_blocks(columns, TILE), 1)
        sums = count_blocks(planes * N * (columns + 1), 32)
    if lines > 0 and of_peepholes:
        sums += count_blocks(PEEPHOLES * N, 32)
    if of_input:
        products += count_blocks(lines, TILE) * count_blocks(I, TILE)
    multiply, add = _load_gradients(gates, dtype, device)
    scan = _load_backward(N, dtype, cell, device)
    return _Launches(sizes, planes, part_numbers, scan, multiply, add, products, sums)


def _describe_call(
    sizes: "array[int]",
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    lengths: Tensor | None,
    weight_ch: Tensor | None,
) -> "array[int]":
    """A call with these sizes, and with the fields that forward and backward share."""
    call = sizes[:]
    *lead, call[FIELD_INPUT_T], call[FIELD_INPUT_B], _ = input.stride()
    call[FIELD_INPUT] = input.data_ptr()
    call[FIELD_WEIGHT_IH], call[FIELD_WEIGHT_HH] = weight_ih.data_ptr(), weight_hh.data_ptr()
    if lengths is not None:
        call[FIELD_LENGTHS] = lengths.data_ptr()
    if weight_ch is not None:
        call[FIELD_PEEPHOLES] = weight_ch.data_ptr()
        call[FIELD_PEEPHOLES_S] = weight_ch.stride(0) if lead else 0
    if lead:
        call[FIELD_INPUT_S] = lead[0]
        call[FIELD_WEIGHT_IH_S], call[FIELD_WEIGHT_HH_S] = weight_ih.stride(0), weight_hh.stride(0)
    return call


@lru_cache(maxsize=4096)
def _describe_modules(schedule: Schedule, first_ticks: tuple[int, ...], T: int, B: int, I: int) -> "array[int]":
    """A call with its sizes and modules, and nothing else."""
    fields = array("q", bytes(8 * (FIELD_MODULES + MODULE_FIELDS * MOST_MODULES)))
    fields[FIELD_T], fields[FIELD_B], fields[FIELD_I] = T, B, I
    fields[FIELD_N], fields[FIELD_G] = schedule.hidden_size, schedule.modules
    fields[FIELD_HELD_STEP] = B * schedule.hidden_size
    states, at = 0, FIELD_MODULES
    modules = zip(schedule.periods, schedule.sizes, schedule.slices, first_ticks, strict=True)
    for long_period, size, units, first in modules:
        # the programs count in 32 bits: a period longer than the sequence may be any such period
        period = min(long_period, T + 1)
        fields[at : at + MODULE_FIELDS] = array("q", [period | first << 32, units.start | size << 32, states])
        at += MODULE_FIELDS
        states += ((T - 1 - first) // period + 2 if first < T else 1) * B * size
    fields[FIELD_STATES_SIZE] = fields[FIELD_TICKS_S] = states
    return fields


@lru_cache(maxsize=1024)
def _load_forward(N: int, I: int, dtype: torch.dtype, cell: str, peepholes: bool, device: int) -> driver.Program:
    gates, units = CELLS[cell].gates, round_up(N, 16)
    constants = {"GATES": gates, "UNITS": units, "INPUTS": 4 if I <= 4 else 16 if I <= 16 else 64}
    if gates == 1:
        scan = helpers = round_up(units, 32)
        numbers = 5 * scan + 66 * scan + constants["INPUTS"] * (units + 40)
        return _load("small_forward.cu", "run_small_forward", dtype, scan + helpers, numbers, device,
                     **constants, RELU=cell == "relu")  # fmt: skip
    rows = gates * units
    constants["PEEPHOLES"] = peepholes
    if _is_large(N, gates):
        held, shared = _place_weights(units, units // 16, gates)
        numbers = shared + 3 * units + 16 * round_up(rows, 32) + 4
        return _load("small_gated_forward.cu", "run_small_forward", dtype, 4 * units, numbers, device,
                     GATES=gates, UNITS=units, IN_REGISTERS=held, PEEPHOLES=peepholes)  # fmt: skip
    numbers = 5 * units + 66 * round_up(rows, 32) + 4 + constants["INPUTS"] * (rows + 40)
    threads = 4 * units + round_up(rows // 2, 32)
    return _load("small_gated_forward.cu", "run_small_forward", dtype, threads, numbers, device, **constants)


@lru_cache(maxsize=1024)
def _load_backward(N: int, dtype: torch.dtype, cell: str, device: int) -> driver.Program:
    gates, units = CELLS[cell].gates, round_up(N, 16)
    helpers = round_up(units, 32)
    if gates == 1:
        return _load("small_backward.cu", "run_small_backward", dtype, 2 * helpers, 70 * helpers + 32, device,
                     GATES=gates, UNITS=units, RELU=cell == "relu")  # fmt: skip
    if _is_large(N, gates):
        held, shared = _place_weights(units, count_blocks(gates * units, 64), 4)
        numbers = shared + 67 * units + 64
        return _load("small_gated_backward.cu", "run_small_backward", dtype, 4 * units, numbers, device,
                     GATES=gates, UNITS=units, IN_REGISTERS=held)  # fmt: skip
    return _load("small_gated_backward.cu", "run_small_backward", dtype, 4 * units + helpers,
                 235 * units + helpers + 32, device, GATES=gates, UNITS=units)  # fmt: skip


def _is_large(N: int, gates: int) -> bool:
    """Whether a part of the weights stays in shared memory, and the drive is computed before."""
    return gates > 1 and N > MOST_UNITS_IN_REGISTERS


def _place_weights(units: int, groups: int, rows: int) -> tuple[int, int]:
    """How many groups of columns a thread keeps in registers, and how many numbers the others of all threads have.

    A group has four columns of each of the thread's `rows`.
    """
    # up to 96 units a thread may have 168 registers; with more units, 128
    held = min(groups, (20 if units <= 96 else 18) // rows)
    return held, 16 * rows * (groups - held) * units


@lru_cache(maxsize=1024)
def _load_drive(gates: int, dtype: torch.dtype, device: int) -> driver.Program:
    return _load("small_drive.cu", "compute_small_drive", dtype, 256, 2 * 16 * (TILE + 4), device, GATES=gates)


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


def _replica_stride(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.stride(0)
