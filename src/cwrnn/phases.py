"""Phases: sequences that have clocks of their own, in groups whose modules tick at the same steps.

A batch with a clock for each sequence means what each sequence means alone (reference.py). Which modules tick at which
of its T steps depends on the first tick of every module, counted from the start of the sequence, and on nothing else.
Sequences that agree in these are one group, and a backend computes it with one clock. So every backend is exact for a
batch of clocks, and there are never more groups than different clocks.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .held import Pass, PhasedPass
from .schedule import Schedule


class Phase(NamedTuple):
    """The sequences of a batch that tick at the same steps."""

    t0: int
    """The clock of the first of them, from which all of them tick alike."""
    rows: Tensor
    """(n,): their places in the batch."""


def group_by_phase(clocks: Tensor, periods: Sequence[int], T: int, device: torch.device) -> list[Phase]:
    """The groups of sequences whose modules tick at the same of T steps; a batch of no sequences is one group.

    Args:
        clocks: (B,), int64, the clock of every sequence at its first step
        periods: those of the modules
        T: the number of steps
        device: where the places are to lie

    >>> [(t0, rows.tolist()) for t0, rows in group_by_phase(torch.tensor([4, 7, 8, 0]), [1, 4], 2, torch.device("cpu"))]
    [(4, [0, 2, 3]), (7, [1])]
    """
    # numpy, because torch.func may transform operations of torch
    times = np.array(clocks.tolist(), np.int64)
    if times.size == 0:
        return [Phase(0, torch.arange(0, device=device))]
    # a module whose first tick lies beyond the end does not tick, wherever that is
    first_ticks = np.minimum(-times[:, None] % np.array(periods, np.int64), T)
    groups: dict[tuple[int, ...], list[int]] = {}
    for row, ticks in enumerate(first_ticks.tolist()):
        groups.setdefault(tuple(ticks), []).append(row)
    return [Phase(int(times[rows[0]]), torch.tensor(rows, device=device)) for rows in groups.values()]


def invert(phases: Sequence[Phase]) -> Tensor:
    """(B,): the place of every sequence of the batch in its groups one after another."""
    return torch.cat([phase.rows for phase in phases]).argsort()


def run_in_phases(
    run: Callable[..., Pass],
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    clocks: Tensor,
    cell: str,
    lengths: Tensor | None,
    hold: bool,
    weight_ch: Tensor | None,
) -> Pass | PhasedPass:
    """The run of a backend over sequences that have clocks of their own, (B,): one run for each phase."""
    phases = group_by_phase(clocks, schedule.periods, input.shape[0], input.device)
    if len(phases) == 1:
        return run(
            input, weight_ih, weight_hh, bias, h0, schedule, phases[0].t0, cell, lengths, hold, weight_ch
        )  # fmt: skip
    passes = []
    for t0, rows in phases:
        own_h0 = None if h0 is None else h0.index_select(0, rows)
        own_lengths = None if lengths is None else lengths.index_select(0, rows)
        passes.append(
            run(
                input.index_select(1, rows), weight_ih, weight_hh, bias, own_h0, schedule, t0, cell, own_lengths, hold,
                weight_ch,
            )
        )  # fmt: skip
    return PhasedPass(tuple(passes), invert(phases))
