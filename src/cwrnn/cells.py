"""The cells: the computation of a module at one of its ticks, by name.

    tanh, relu   the Elman cells of torch.nn.RNN
    lstm         Long Short-Term Memory, with or without peepholes; its state is h and c
    gru          the gated recurrent unit of torch.nn.GRU, whose reset gate acts after the product

Weights and biases are gate-major, as torch's: all units of the first gate, then all units of the second, ... The gates
are i, f, g, o for the LSTM and r, z, n for the GRU. `reference.py` has the equations.

A module with K units hears two things at a tick. Its *drive* has `biases` K numbers: the products of its input with the
biases added, gate after gate. That of a GRU has a fourth part for the bias inside the reset product. *Messages* have
`gates` K numbers. For the GRU, a message to gate n is part of the reset product, so it is added to the fourth part.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Cell(NamedTuple):
    """How many numbers a cell needs for each of its units."""

    gates: int
    """Rows of `weight_ih` and `weight_hh`."""
    biases: int
    """Entries of `bias`."""
    parts: int
    """Entries of the state: h, or h and c."""


CELLS = {"tanh": Cell(1, 1, 1), "relu": Cell(1, 1, 1), "lstm": Cell(4, 4, 2), "gru": Cell(3, 4, 1)}
"""The cells by name."""

PEEPHOLES = 3
"""The peepholes of an LSTM's unit, to the gates i, f and o."""

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}
"""The functions of the Elman cells, by their names in torch."""


def select_units(tensor: Tensor, count: int, units: slice) -> Tensor:
    """The rows of `units` of a gate-major tensor with `count` rows per unit, gate-major as well.

    >>> select_units(torch.arange(8), 2, slice(1, 3))
    tensor([1, 2, 5, 6])
    """
    if count == 1:
        return tensor[units]
    rows: Tensor = tensor.unflatten(0, (count, tensor.shape[0] // count))[:, units]
    return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])


def compute_drive(cell: str, input: Tensor, weight_ih: Tensor, bias: Tensor | None) -> Tensor:
    """The drive (..., biases K) of a module that reads `input` (..., I)."""
    if cell != "gru":
        return F.linear(input, weight_ih, bias)
    K = weight_ih.shape[0] // 3
    if bias is None:
        return F.pad(F.linear(input, weight_ih), (0, K))
    gates, d = bias.split((3 * K, K))
    return torch.cat((F.linear(input, weight_ih, gates), d.expand(*input.shape[:-1], K)), dim=-1)


def add_message(cell: str, drive: Tensor, message: Tensor) -> Tensor:
    """The drive (..., biases K) with a message (..., gates K) added to it."""
    if cell != "gru":
        return drive + message
    K = drive.shape[-1] // 4
    gates, n, d = drive.split((2 * K, K, K), dim=-1)
    to_gates, to_n = message.split((2 * K, K), dim=-1)
    return torch.cat((gates + to_gates, n, d + to_n), dim=-1)


def update(cell: str, drive: Tensor, message: Tensor, state: Tensor, weight_ch: Tensor | None) -> Tensor:
    """The state (..., parts K) of a module after a tick.

    Args:
        cell: the name of the cell
        drive: (..., biases K)
        message: (..., gates K), the sum of the messages that the drive does not contain
        state: (..., parts K), the state before the tick
        weight_ch: (3 K), the peepholes of an LSTM, or None
    """
    if cell == "lstm":
        # not `chunk`: traced, it has no gradient if nothing reads one of its parts
        before = state[..., state.shape[-1] // 2 :]
        i, f, g, o = (drive + message).chunk(4, dim=-1)
        if weight_ch is not None:
            p_i, p_f, p_o = weight_ch.chunk(3, dim=-1)
            i, f = i + p_i * before, f + p_f * before
        c = torch.sigmoid(f) * before + torch.sigmoid(i) * torch.tanh(g)
        if weight_ch is not None:
            o = o + p_o * c
        return torch.cat((torch.sigmoid(o) * torch.tanh(c), c), dim=-1)
    if cell == "gru":
        r, z, n, d = drive.chunk(4, dim=-1)
        to_r, to_z, to_n = message.chunk(3, dim=-1)
        n = torch.tanh(n + torch.sigmoid(r + to_r) * (d + to_n))
        z = torch.sigmoid(z + to_z)
        return (1 - z) * n + z * state
    return NONLINEARITIES[cell](drive + message)
