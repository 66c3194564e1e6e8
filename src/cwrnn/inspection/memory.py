"""Memory: how far back each module remembers, from the derivative of its state with respect to earlier inputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..cells import CELLS, NONLINEARITIES, compute_drive, update
from ..layer import AnyLayer
from ..reference import clockwork_reference
from ..schedule import Schedule
from .states import Array, as_sequences, copy_layer, run_layer

LONGEST_CYCLE = 2**20
"""The number of steps in which ticks are counted, if the clocks take longer to return to where they started."""


@dataclass(frozen=True)
class Memory:
    """How strongly each module's state depends on the input that came `lag` steps before.

    >>> memory = Memory(norms=np.array([[1.0, 0.5, 0.1]]), pairs=np.array([[9, 8, 7]]))
    >>> memory.reach(0), memory.is_open(0)
    (1, False)
    """

    norms: Array
    """(G, L): the norm of the derivative for lags 0, 1, ..., L - 1; NaN where the data are too short."""
    pairs: NDArray[np.int64]
    """(G, L): the number of pairs of an input and a later state in each mean."""

    def reach(self, module: int) -> int | None:
        """The longest lag with a norm of at least 1 / e of the highest; None for a module that gets no input."""
        norms = np.nan_to_num(self.norms[module])
        return int(np.flatnonzero(norms >= norms.max() / math.e)[-1]) if norms.max() > 0 else None

    def is_open(self, module: int) -> bool:
        """True if the reach is the longest lag in the data, so that the true reach may be longer."""
        known = np.flatnonzero(np.isfinite(self.norms[module]))
        return self.reach(module) == int(known[-1]) if len(known) else False


def measure_memory(layer: AnyLayer, inputs: Sequence[ArrayLike], longest: int | None = None) -> Memory:
    """How far back each module remembers: the norm of d state / d input, for each lag.

        norm(i, l) = sqrt( mean over s of || d h_i(s + l) / d x(s) ||_F^2 )

    The mean is over the times s at which an input can reach module i, directly or through slower modules: the times at
    which module i or a slower one ticks. It estimates the mean over an endless stream. For that, the times s are
    grouped by the slowest module that ticks; each group is averaged over the s with a step s + l in the data, and the
    groups are weighted by how often they occur on the clock. Groups without such an s are left out, as long as the
    others have at least half of the weight; with less than half, the norm is NaN.

    The derivatives are exact: they are carried forward from each input to all later states, h and c. For a network
    without input, the derivative is taken with respect to a number added to each unit's argument of the nonlinearity,
    in a gated cell to the argument of each gate.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        inputs: sequences (T, I)
        longest: the longest lag to compute. Default: all lags. The work for a sequence is at most T * longest * N^2 * I
            for each gate

    >>> from torch import nn
    >>> from cwrnn import ClockworkRNN
    >>> rnn = ClockworkRNN(1, 1, schedule=[3], nonlinearity="relu", bias=False)
    >>> _ = nn.init.constant_(rnn.weight_ih_l0, 1.0), nn.init.constant_(rnn.weight_hh_l0, 0.5)
    >>> measure_memory(rnn, [np.ones((30, 1))], longest=7).norms[0].tolist()  # it forgets half at each of its ticks
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    """
    schedule = layer.schedule
    G = schedule.modules
    copy, sequences = copy_layer(layer), as_sequences(layer, inputs)
    lags = max(len(sequence) for sequence in sequences)
    if longest is not None:
        lags = min(lags, longest + 1)
    # the first axis is the slowest module that ticks at the input
    energy, pairs = np.zeros((G, lags, G)), np.zeros((G, lags), dtype=np.int64)
    for sequence, states in zip(sequences, run_layer(copy, sequences), strict=True):
        _add_sequence(copy, sequence, states, energy, pairs)
    cycle = min(math.lcm(*schedule.periods), LONGEST_CYCLE)
    frequency = np.bincount(_slowest_due(schedule, cycle) + 1, minlength=G + 1)[1:]
    weights = np.where(pairs > 0, frequency[:, None], 0)
    means = weights[..., None] * energy / np.maximum(pairs, 1)[..., None]
    norms, counts = np.full((G, lags), np.nan), np.zeros((G, lags), dtype=np.int64)
    for i in range(G):
        counts[i] = pairs[i:].sum(axis=0)
        known = 2 * weights[i:].sum(axis=0) >= weights[i:, 0].sum()
        norms[i, known] = np.sqrt(means[i:, known, i].sum(axis=0) / weights[i:, known].sum(axis=0))
    return Memory(norms, counts)


def _slowest_due(schedule: Schedule, T: int) -> NDArray[np.int64]:
    """The slowest module that ticks at each of the times 0 to T - 1, (T,); -1 where none ticks."""
    slowest = np.full(T, -1)
    for i, ticks in enumerate(schedule.ticks(0, T)):
        slowest[ticks.start : T : ticks.step] = i
    return slowest


def _add_sequence(layer: AnyLayer, input: Tensor, states: Array, energy: Array, pairs: NDArray[np.int64]) -> None:
    """Adds the squared derivatives of one sequence to `energy`, and their number to `pairs`.

    Args:
        layer: a layer of N units in G modules
        input: (T, I)
        states: (T, N)
        energy: (G, L, G): squared norms, by the slowest module that ticks at the input, the lag, and the module
        pairs: (G, L): the number of norms, by the slowest module that ticks at the input and the lag
    """
    schedule, T, lags = layer.schedule, len(input), pairs.shape[1]
    N, (gates, _, parts) = schedule.hidden_size, CELLS[layer.cell]
    weight = _by_gate(_mask(layer), gates)
    weight_in = _by_gate(layer.weight_ih_l0.detach() if layer.input_size else torch.eye(gates * N).double(), gates)
    features = weight_in.shape[-1]
    slopes = _compute_slopes(layer, input, states)
    # the derivative of the state at time t by the input at every time s
    derivative = torch.zeros(parts, N, T, features, dtype=torch.float64)
    # the squared norm of each module's part of the derivative
    norms = np.zeros((T, schedule.modules))
    slowest = _slowest_due(schedule, T)
    for t in range(T):
        first = max(0, t - lags + 1)
        due = schedule.due(t)
        if due:
            rows = torch.cat([torch.arange(N)[schedule.slices[i]] for i in due])
            before = derivative[:, :, first:t].flatten(2)
            # (gates, rows, ...): the derivatives of what every gate hears
            messages = (weight[:, rows].flatten(0, 1) @ before[0]).unflatten(0, (gates, len(rows)))
            for part, slope in enumerate(slopes):
                after = (slope.message[t][:, rows, None] * messages).sum(0)
                if slope.state is not None:
                    after += (slope.state[t][:, rows, None] * before[:, rows]).sum(0)
                derivative[part, rows, first:t] = after.unflatten(1, (t - first, features))
                derivative[part, rows, t] = (slope.input[t][:, rows, None] * weight_in[:, rows]).sum(0)
            for i in due:
                squares = derivative[0, schedule.slices[i], first : t + 1].square()
                norms[first : t + 1, i] = squares.sum(dim=(0, 2)).numpy()
        times = np.flatnonzero(slowest[first : t + 1] >= 0) + first
        # every lag occurs once, so += adds to no place twice
        places = slowest[times], t - times
        energy[places] += norms[times]
        pairs[places] += 1


class _Slopes(NamedTuple):
    """The derivatives of one part of the state, h or c of every unit, by the numbers that the unit hears at a tick."""

    message: Tensor
    """(T, gates, N): by the messages to each gate."""
    input: Tensor
    """(T, gates, N): by the input of each gate."""
    state: Tensor | None
    """(T, parts, N): by the unit's own state before the tick, apart from its messages; None if there is no such way."""


def _compute_slopes(layer: AnyLayer, input: Tensor, states: Array) -> list[_Slopes]:
    """The slopes of every part of the state at every time, as if all modules ticked."""
    cell, N = layer.cell, layer.hidden_size
    gates, biases, parts = CELLS[cell]
    if cell in NONLINEARITIES:
        slope = 1 - np.square(states) if cell == "tanh" else (states > 0).astype(np.float64)
        slopes = torch.from_numpy(slope)[:, None]
        return [_Slopes(slopes, slopes, None)]
    weight_ih, weight_hh, bias, weight_ch = layer._weights("_l0", torch.float64)
    zeros = torch.zeros(1, parts * N, dtype=torch.float64)
    after = clockwork_reference(input[:, None], weight_ih, weight_hh, bias, zeros, layer.schedule, 0, cell, weight_ch)
    before = torch.cat((zeros, after[:-1, 0])).requires_grad_()
    drive = compute_drive(cell, input, weight_ih, bias).requires_grad_()
    message = (before.detach()[:, :N] @ _mask(layer).T).requires_grad_()
    with torch.enable_grad():
        updated = update(cell, drive, message, before, weight_ch)
    found = []
    for part in updated.split(N, dim=-1):
        # every unit depends on its own numbers only, so the gradient of the sum has the derivative of each
        by_drive, by_message, by_state = torch.autograd.grad(part.sum(), (drive, message, before), retain_graph=True)
        found.append(
            _Slopes(
                by_message.unflatten(1, (gates, N)),
                by_drive.unflatten(1, (biases, N))[:, :gates],
                by_state.unflatten(1, (parts, N)),
            )
        )
    return found


def _mask(layer: AnyLayer) -> Tensor:
    """The recurrent weights (gates N, N) of a layer, with zeros from fast modules to slow ones."""
    weight = layer.weight_hh_l0.detach()
    mask = torch.from_numpy(layer.schedule.mask())
    return torch.where(mask.repeat(weight.shape[0] // mask.shape[0], 1), weight, 0)


def _by_gate(weight: Tensor, gates: int) -> Tensor:
    """A gate-major weight (gates N, ...) as (gates, N, ...)."""
    by_gate: Tensor = weight.unflatten(0, (gates, weight.shape[0] // gates))
    return by_gate
