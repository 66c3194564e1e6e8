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

from ...held import count_rows
from ...schedule import Schedule
from ..tensors import dense, pointer, whole
from .blocks import empty
from .loader import invoke

# where the members of the structure `Call` in cpu.h stand in an array of 64-bit words
(
    WORD_S, WORD_T, WORD_B, WORD_I, WORD_G, WORD_RECTIFY, WORD_THREADS,
    WORD_INPUT, WORD_INPUT_S, WORD_INPUT_T, WORD_INPUT_B,
    WORD_WEIGHT_IH, WORD_WEIGHT_IH_S, WORD_WEIGHT_HH, WORD_WEIGHT_HH_S, WORD_BIAS, WORD_BIAS_S, WORD_LENGTHS,
    WORD_LENGTHS_S, WORD_TICKS,
    WORD_H0, WORD_H0_S, WORD_H0_B, WORD_FINAL, WORD_HELD,
    WORD_G_TICKS, WORD_G_FINAL, WORD_G_HELD, WORD_G_HELD_S, WORD_G_HELD_T, WORD_G_HELD_B,
    WORD_G_INPUT, WORD_G_WEIGHT_IH, WORD_G_WEIGHT_HH, WORD_G_BIAS, WORD_G_H0,
    WORD_MODULES,
) = range(37)  # fmt: skip


@lru_cache(maxsize=256)
def _describe_clock(schedule: Schedule, t0: int, T: int) -> tuple["array[int]", int]:
    """The words of a call over T steps from t0, all zero but for the modules, and the number of states per sequence.

    The modules are described by their periods, their sizes and their first ticks, counted from t0.
    """
    firsts = [-t0 % period for period in schedule.periods]
    states = sum(map(operator.mul, count_rows(schedule.periods, t0, T), schedule.sizes))
    words = array("q", [*[0] * WORD_MODULES, *schedule.periods, *schedule.sizes, *firsts])
    words[WORD_G] = schedule.modules
    return words, states


def _describe_network(
    words: "array[int]",
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    nonlinearity: str,
) -> None:
    """Writes the words that forward and backward share. The tensors must be dense."""
    *_, words[WORD_T], words[WORD_B], words[WORD_I] = input.shape
    *_, words[WORD_INPUT_T], words[WORD_INPUT_B], _ = input.stride()
    words[WORD_S] = 1
    words[WORD_RECTIFY] = nonlinearity == "relu"
    words[WORD_THREADS] = torch.get_num_threads()
    words[WORD_INPUT] = input.data_ptr()
    words[WORD_WEIGHT_IH] = weight_ih.data_ptr()
    words[WORD_WEIGHT_HH] = weight_hh.data_ptr()
    if bias is not None:
        words[WORD_BIAS] = bias.data_ptr()
    if lengths is not None:
        words[WORD_LENGTHS] = lengths.data_ptr()
    if weight_hh.dim() > 2:
        words[WORD_S] = weight_hh.shape[0]
        words[WORD_INPUT_S] = input.stride(0)
        words[WORD_WEIGHT_IH_S] = weight_ih.stride(0)
        words[WORD_WEIGHT_HH_S] = weight_hh.stride(0)
        words[WORD_BIAS_S] = 0 if bias is None else bias.stride(0)
        words[WORD_LENGTHS_S] = 0 if lengths is None else lengths.stride(0)


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
    """The final state (1, B, N); the ticks of all modules in a row, if `keep_ticks`; the output (T, B, N), if `hold`.

    With replicas, each has a leading axis S.
    """
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths = dense(bias, 1), dense(h0, 1), dense(lengths, 1)
    *replicas, N, _ = weight_hh.shape
    *_, T, B, _ = input.shape
    template, states = _describe_clock(schedule, t0, T)
    final = input.new_empty(*replicas, 1, B, N)
    ticks = empty(input, (*replicas, B * states)) if keep_ticks else None
    held = empty(input, (*replicas, T, B, N)) if hold else None
    words = template[:]
    _describe_network(words, input, weight_ih, weight_hh, bias, lengths, nonlinearity)
    words[WORD_FINAL] = final.data_ptr()
    if ticks is not None:
        words[WORD_TICKS] = ticks.data_ptr()
    if held is not None:
        words[WORD_HELD] = held.data_ptr()
    if h0 is not None:
        words[WORD_H0] = h0.data_ptr()
        words[WORD_H0_S] = h0.stride(0) if replicas else 0
        words[WORD_H0_B] = h0.stride(-2)
    invoke("forward", weight_hh.dtype, words)
    return final, ticks, held


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
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, lengths = dense(bias, 1), dense(lengths, 1)
    *replicas, N, _ = weight_hh.shape
    *_, T, B, I = input.shape
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    gradients = [
        empty(ticks, (*replicas, *shape)) if want else None for want, shape in zip(wanted, shapes, strict=True)
    ]
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    template, _ = _describe_clock(schedule, t0, T)
    words = template[:]
    _describe_network(words, input, weight_ih, weight_hh, bias, lengths, nonlinearity)
    words[WORD_TICKS] = ticks.data_ptr()
    words[WORD_G_TICKS] = pointer(g_ticks)
    words[WORD_G_FINAL] = pointer(g_final)
    if g_held is not None:
        words[WORD_G_HELD] = g_held.data_ptr()
        *_, words[WORD_G_HELD_S], words[WORD_G_HELD_T], words[WORD_G_HELD_B], _ = (
            0,
            *g_held.stride(),
        )
    for word, gradient in zip(range(WORD_G_INPUT, WORD_MODULES), gradients, strict=True):
        words[word] = pointer(gradient)
    invoke("backward", ticks.dtype, words)
    return gradients
