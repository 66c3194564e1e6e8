"""Formulas for torch's FLOP counter (`torch.utils.flop_counter`), which counts by the operators that it sees.

A multiply-add counts as two operations. Per sequence and gate, module i of K units with n ticks costs

    n K I            to read the input
    n K K            for its message to itself, at each tick
    (n + 1) K F      for its messages to the F units of faster modules, of which the first is that of the initial state

The backend "torch" multiplies exactly these if all sequences have one length; it also computes the padding of shorter
ones, which the kernels leave out. Backward multiplies twice as much: once for the gradients of states and input, once
for those of the weights. Gradients that are not wanted are not computed, apart from those of the states, and in the
backend "torch" those of a module's weights to itself. For gated cells, the backend "torch" also computes the messages
of a module to itself again.

The FLOP counter takes long to import, because it imports Triton. So the formulas are registered when a counter is used.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ..cells import CELLS
from ..held import count_rows
from ..schedule import Schedule

COUNTER = "torch.utils.flop_counter"


def count_forward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    periods: Sequence[int],
    sizes: Sequence[int],
    t0: int,
    nonlinearity: str,
    *settings: Any,
    **options: Any,
) -> int:
    """The operations of `cwrnn::recurrence`, whose arguments are those of this function."""
    return 2 * CELLS[nonlinearity].gates * sum(_count_multiply_adds(input, lengths, periods, sizes, t0))


def count_backward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    ticks: Tensor,
    g_final: Tensor | None,
    g_ticks: Tensor | None,
    g_held: Tensor | None,
    periods: Sequence[int],
    sizes: Sequence[int],
    t0: int,
    nonlinearity: str,
    wanted: Sequence[bool] | None = None,
    *tensors: Tensor | None,
    **options: Any,
) -> int:
    """The operations of `cwrnn::recurrence_backward`, whose arguments are those of this function."""
    reading, recurrent = _count_multiply_adds(input, lengths, periods, sizes, t0)
    g_input, g_weight_ih, g_weight_hh, *_ = (True, True, True) if wanted is None else wanted
    return 2 * CELLS[nonlinearity].gates * (reading * (g_input + g_weight_ih) + recurrent * (1 + g_weight_hh))


def _count_multiply_adds(
    input: Tensor, lengths: Tensor | None, periods: Sequence[int], sizes: Sequence[int], t0: int
) -> tuple[int, int]:
    """The multiply-adds to read the input, and those of all messages."""
    T, B, I = input.shape
    schedule = Schedule(tuple(periods), tuple(sizes))
    # the lengths of fake tensors are unknown; then the padding counts as well
    known = lengths is not None and type(lengths) is Tensor and not lengths.is_meta
    ends = lengths.tolist() if known and lengths is not None else [T] * B
    reading = recurrent = 0
    for end in ends:
        for rows, units in zip(count_rows(schedule.periods, t0, end), schedule.slices, strict=True):
            size, ticks = units.stop - units.start, rows - 1
            reading += ticks * size * I
            recurrent += ticks * size * size + rows * size * units.start
    return reading, recurrent


def count_scan(drive: Tensor, weight: Tensor, h0: Tensor, *settings: Any, **options: Any) -> int:
    """The operations of `cwrnn::scan`, whose arguments are those of this function."""
    ticks, B, _ = drive.shape
    return 2 * ticks * B * weight.numel()


def count_scan_backward(
    gradient: Tensor, states: Tensor, weight: Tensor, nonlinearity: str, *tensors: Tensor | None, **options: Any
) -> int:
    """The operations of `cwrnn::scan_backward`, whose arguments are those of this function.

    The gates of a gated cell are computed again.
    """
    rows, B, _ = states.shape
    return (6 if CELLS[nonlinearity].gates > 1 else 4) * (rows - 1) * B * weight.numel()


def prepare_counters() -> None:
    """Gives the formulas to torch's FLOP counter, and to all counters that are counting now.

    Does nothing if nobody has imported the FLOP counter.
    """
    module: Any = sys.modules.get(COUNTER)
    if module is None:
        return
    formulas = {
        torch.ops.cwrnn.recurrence: count_forward,
        torch.ops.cwrnn.recurrence_backward: count_backward,
        torch.ops.cwrnn.scan: count_scan,
        torch.ops.cwrnn.scan_backward: count_scan_backward,
    }
    for operator, formula in formulas.items():
        if operator not in module.flop_registry:
            module.register_flop_formula(operator, get_raw=True)(formula)
    for mode in _get_current_dispatch_mode_stack():
        # a counter copies the formulas when it is made
        counter = getattr(mode, "counter", None)
        if isinstance(counter, module.FlopCounterMode):
            counter.flop_registry = formulas | counter.flop_registry
