"""The CPU kernel of the recurrence: a whole sequence, forward and backward, in C (cpu.c), called through ctypes.

One call runs S independent networks on one schedule: tensors may have a leading axis of replicas. `stepping.py` has the
kernel of a single time step.
"""

import operator
from array import array
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ...cells import CELLS, PEEPHOLES
from ...held import count_rows
from ...schedule import Schedule
from ..tensors import LOW_ADDRESS, dense, pointer, whole, with_memory
from .blocks import empty
from .loader import CELL_NUMBERS, invoke

# where the members of the structure `Call` in cpu.h stand in an array of 64-bit integers
(
    FIELD_S, FIELD_T, FIELD_B, FIELD_I, FIELD_G, FIELD_CELL, FIELD_THREADS,
    FIELD_INPUT, FIELD_INPUT_S, FIELD_INPUT_T, FIELD_INPUT_B,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_IH_S, FIELD_WEIGHT_HH, FIELD_WEIGHT_HH_S, FIELD_BIAS, FIELD_BIAS_S, FIELD_WEIGHT_CH,
    FIELD_WEIGHT_CH_S, FIELD_LENGTHS, FIELD_LENGTHS_S, FIELD_TICKS, FIELD_KEPT,
    FIELD_H0, FIELD_H0_S, FIELD_H0_B, FIELD_FINAL, FIELD_HELD,
    FIELD_G_TICKS, FIELD_G_FINAL, FIELD_G_HELD, FIELD_G_HELD_S, FIELD_G_HELD_T, FIELD_G_HELD_B,
    FIELD_G_INPUT, FIELD_G_WEIGHT_IH, FIELD_G_WEIGHT_HH, FIELD_G_BIAS, FIELD_G_H0, FIELD_G_WEIGHT_CH,
    FIELD_MODULES,
) = range(41)  # fmt: skip

KEPT = {"lstm": 5, "gru": 4}
"""How many numbers per unit and tick forward keeps for backward, besides the ticks."""

KEPT_ROOM = 16
"""How many numbers are allocated beyond them, as in cells.h."""


@lru_cache(maxsize=256)
def _describe_clock(schedule: Schedule, t0: int, T: int) -> tuple["array[int]", int]:
    """The fields of a call over T steps from t0 that describe the modules, and the number of states per sequence.

    The periods, sizes and first ticks (counted from t0) of the modules are filled in. All other fields are zero.
    """
    firsts = [-t0 % period for period in schedule.periods]
    states = sum(map(operator.mul, count_rows(schedule.periods, t0, T), schedule.sizes))
    fields = array("q", [*[0] * FIELD_MODULES, *schedule.periods, *schedule.sizes, *firsts])
    fields[FIELD_G] = schedule.modules
    return fields, states


def _describe_network(
    fields: "array[int]",
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    weight_ch: Tensor | None,
) -> bool:
    """Writes the fields that forward and backward share. The tensors must be dense.

    Returns False if one of the tensors may have no memory.
    """
    *_, fields[FIELD_T], fields[FIELD_B], fields[FIELD_I] = input.shape
    *_, fields[FIELD_INPUT_T], fields[FIELD_INPUT_B], _ = input.stride()
    fields[FIELD_S] = 1
    fields[FIELD_CELL] = CELL_NUMBERS[cell]
    fields[FIELD_THREADS] = torch.get_num_threads()
    fields[FIELD_INPUT] = at_input = input.data_ptr()
    fields[FIELD_WEIGHT_IH] = at_weight_ih = weight_ih.data_ptr()
    fields[FIELD_WEIGHT_HH] = at_weight_hh = weight_hh.data_ptr()
    low = at_input < LOW_ADDRESS or at_weight_ih < LOW_ADDRESS or at_weight_hh < LOW_ADDRESS
    if bias is not None:
        fields[FIELD_BIAS] = at_bias = bias.data_ptr()
        low = low or at_bias < LOW_ADDRESS
    if lengths is not None:
        fields[FIELD_LENGTHS] = at_lengths = lengths.data_ptr()
        low = low or at_lengths < LOW_ADDRESS
    if weight_ch is not None:
        fields[FIELD_WEIGHT_CH] = at_weight_ch = weight_ch.data_ptr()
        low = low or at_weight_ch < LOW_ADDRESS
    if weight_hh.dim() > 2:
        fields[FIELD_S] = weight_hh.shape[0]
        fields[FIELD_INPUT_S] = input.stride(0)
        fields[FIELD_WEIGHT_IH_S] = weight_ih.stride(0)
        fields[FIELD_WEIGHT_HH_S] = weight_hh.stride(0)
        fields[FIELD_BIAS_S] = 0 if bias is None else bias.stride(0)
        fields[FIELD_WEIGHT_CH_S] = 0 if weight_ch is None else weight_ch.stride(0)
        fields[FIELD_LENGTHS_S] = 0 if lengths is None else lengths.stride(0)
    return not low


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

    The fourth result is one row of all that `backward` needs besides the ticks, if `keep_gates` and the cell is gated.
    With replicas, each has a leading axis S. State and final state of an LSTM are h and c side by side: (B, 2 N).
    """
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths, weight_ch = dense(bias, 1), dense(h0, 1), dense(lengths, 1), dense(weight_ch, 1)
    *replicas, _, N = weight_hh.shape
    *_, T, B, _ = input.shape
    template, states = _describe_clock(schedule, t0, T)
    final = input.new_empty(*replicas, 1, B, N * CELLS[cell].parts)
    ticks = empty(input, (*replicas, B * states)) if keep_ticks else None
    held = empty(input, (*replicas, T, B, N)) if hold else None
    kept = None
    if keep_gates and cell in KEPT:
        kept = empty(input, (*replicas, count_kept(schedule, t0, T, B, cell, input.dtype)))
    fields = template[:]
    safe = _describe_network(fields, input, weight_ih, weight_hh, bias, lengths, cell, weight_ch)
    fields[FIELD_FINAL] = final.data_ptr()
    if ticks is not None:
        fields[FIELD_TICKS] = ticks.data_ptr()
    if held is not None:
        fields[FIELD_HELD] = held.data_ptr()
    if kept is not None:
        fields[FIELD_KEPT] = kept.data_ptr()
    if h0 is not None:
        fields[FIELD_H0] = at_h0 = h0.data_ptr()
        safe = safe and at_h0 >= LOW_ADDRESS
        fields[FIELD_H0_S] = h0.stride(0) if replicas else 0
        fields[FIELD_H0_B] = h0.stride(-2)
    if not safe:
        given = input, weight_ih, weight_hh, bias, h0, lengths, weight_ch
        input, weight_ih, weight_hh, bias, h0, lengths, weight_ch = allocated = with_memory(
            input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0, lengths=lengths,
            weight_ch=weight_ch,
        )  # fmt: skip
        if any(map(operator.is_not, allocated, given)):
            return forward(
                input, weight_ih, weight_hh, bias, h0, lengths, schedule, t0, cell, hold,
                keep_ticks, keep_gates, weight_ch,
            )  # fmt: skip
    invoke("forward", weight_hh.dtype, fields)
    return final, ticks, held, kept


def count_kept(schedule: Schedule, t0: int, T: int, B: int, cell: str, dtype: torch.dtype) -> int:
    """How many numbers `forward` keeps for `backward` besides the ticks; 0 for cells that need none."""
    if cell not in KEPT:
        return 0
    states: int = sum(map(operator.mul, count_rows(schedule.periods, t0, T), schedule.sizes))
    return B * states * KEPT[cell] + KEPT_ROOM


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
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, lengths, weight_ch = dense(bias, 1), dense(lengths, 1), dense(weight_ch, 1)
    *replicas, _, N = weight_hh.shape
    *_, T, B, I = input.shape
    gates, biases, parts = CELLS[cell]
    shapes = (T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N), (PEEPHOLES * N,)
    gradients = [
        empty(ticks, (*replicas, *shape)) if want else None for want, shape in zip(wanted, shapes, strict=True)
    ]
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    kept = whole(kept)
    template, _ = _describe_clock(schedule, t0, T)
    fields = template[:]
    safe = _describe_network(fields, input, weight_ih, weight_hh, bias, lengths, cell, weight_ch)
    fields[FIELD_TICKS] = at_ticks = ticks.data_ptr()
    safe = safe and at_ticks >= LOW_ADDRESS
    if kept is not None:
        fields[FIELD_KEPT] = at_kept = kept.data_ptr()
        safe = safe and at_kept >= LOW_ADDRESS
    if g_ticks is not None:
        fields[FIELD_G_TICKS] = at_g_ticks = g_ticks.data_ptr()
        safe = safe and at_g_ticks >= LOW_ADDRESS
    if g_final is not None:
        fields[FIELD_G_FINAL] = at_g_final = g_final.data_ptr()
        safe = safe and at_g_final >= LOW_ADDRESS
    if g_held is not None:
        fields[FIELD_G_HELD] = at_g_held = g_held.data_ptr()
        safe = safe and at_g_held >= LOW_ADDRESS
        # without replicas there are three strides, and the stride of replicas is 0
        *_, fields[FIELD_G_HELD_S], fields[FIELD_G_HELD_T], fields[FIELD_G_HELD_B], _ = (0, *g_held.stride())
    for field, gradient in zip(range(FIELD_G_INPUT, FIELD_MODULES), gradients, strict=True):
        fields[field] = pointer(gradient)
    if not safe:
        given = input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held, weight_ch, kept
        allocated = with_memory(
            input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, lengths=lengths, ticks=ticks,
            gradient_of_h_n=g_final, gradient_of_ticks=g_ticks, gradient_of_output=g_held, weight_ch=weight_ch,
            gates=kept,
        )  # fmt: skip
        if any(map(operator.is_not, allocated, given)):
            *operands, weight_ch, kept = allocated
            input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held = operands
            return backward(
                wanted, input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held,
                schedule, t0, cell, weight_ch, kept,
            )  # fmt: skip
    invoke("backward", ticks.dtype, fields)
    return gradients
