"""Many networks at once on the CPU, without the detour over torch.func.vmap: for training with many seeds.

A network gives the same bits alone as among others, on any number of threads. Only first derivatives exist.
"""

import torch
from torch import Tensor

from ..cells import CELLS, PEEPHOLES
from ..schedule import Schedule
from .autograd import Recurrence, run_eager
from .cpu import sequence
from .tensors import check_shapes


def run_replicas(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    schedule: Schedule,
    lengths: Tensor | None = None,
    cell: str = "tanh",
    weight_ch: Tensor | None = None,
) -> Tensor:
    """The states h (S, T, N) of S networks from a state of zero, each on a sequence of its own, zero beyond its end.

    This equals `torch.func.vmap` of a backend's run with a batch of 1, without the cost of the mapping.

    Args:
        input: (S, T, I)
        weight_ih: (S, gates N, I)
        weight_hh: (S, gates N, N)
        bias: (S, biases N)
        schedule: the schedule of all networks
        lengths: (S,) int64, how many steps of each sequence are read; None for all
        cell: the name of the cell
        weight_ch: (S, 3 N), the peepholes of LSTMs, or None
    """
    S, _, I = input.shape
    _check_replicas(input, weight_ih, weight_hh, bias, schedule, S, I, cell, weight_ch)
    check_shapes(torch.int64, lengths=(lengths, (S,)))
    lengths = None if lengths is None else lengths[:, None]
    recurrence = Recurrence(sequence, schedule, 0, cell, hold=True)
    held: Tensor
    _, held = run_eager(
        input.unsqueeze(2), weight_ih, weight_hh, bias, None, weight_ch, lengths, recurrence, keep_ticks=False
    )
    return held.squeeze(2)


def run_to_end(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    schedule: Schedule,
    lengths: Tensor,
    cell: str = "tanh",
    weight_ch: Tensor | None = None,
) -> Tensor:
    """The states h (S, B, N) of S networks at the ends of B sequences each, from a state of zero.

    Args:
        input: (S, T, B, I)
        weight_ih: (S, gates N, I)
        weight_hh: (S, gates N, N)
        bias: (S, biases N)
        schedule: the schedule of all networks
        lengths: (S, B) int64, how many steps of each sequence are read
        cell: the name of the cell
        weight_ch: (S, 3 N), the peepholes of LSTMs, or None
    """
    S, _, B, I = input.shape
    _check_replicas(input, weight_ih, weight_hh, bias, schedule, S, I, cell, weight_ch)
    check_shapes(torch.int64, lengths=(lengths, (S, B)))
    recurrence = Recurrence(sequence, schedule, 0, cell, hold=False)
    final, _ = run_eager(input, weight_ih, weight_hh, bias, None, weight_ch, lengths, recurrence, keep_ticks=False)
    return final.squeeze(1)[..., : schedule.hidden_size]


def _check_replicas(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    schedule: Schedule,
    S: int,
    I: int,
    cell: str,
    weight_ch: Tensor | None,
) -> None:
    N = schedule.hidden_size
    gates, biases, _ = CELLS[cell]
    check_shapes(
        input.dtype,
        weight_ih=(weight_ih, (S, gates * N, I)),
        weight_hh=(weight_hh, (S, gates * N, N)),
        bias=(bias, (S, biases * N)),
        weight_ch=(weight_ch, (S, PEEPHOLES * N)),
    )
