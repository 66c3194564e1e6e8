"""The cascade: what makes a Clockwork RNN fast, in plain PyTorch.

A slow module never hears a fast one, and its message is constant between its ticks. Hence, exactly:

    1. Run the slowest module first, for all time, on its own clock: a small recurrence of its cell (scan.py).
    2. Its message to all faster modules, W_hh[:i, i] h_i, changes only when it ticks: one matrix product over
       all its ticks and for all gates at once, and the result is held (held.py).
    3. The next faster module hears that one step later, as a plain additional input. And so on to the fastest.

        t        0   1   2   3   4   5   6   7
        P = 4    o---------------o---------------        runs first, speaks twice
        P = 2    o-------o-------o-------o-------        hears it at t = 0 (the initial state), 2, 4, 6
        P = 1    o---o---o---o---o---o---o---o---        hears the sum of both

Per step and gate that costs sum_j K_j (K_1 + ... + K_j) / P_j multiply-adds: at most 4 K^2 for equal modules of
periods 1, 2, 4, ..., however many they are.

Three conditions, each easily missed. The delay: module i at t hears h_j(t - 1). The phase: ticks are counted on
the absolute clock, so a sequence that starts at t0 ticks at (t0 + s) mod P == 0. And before the first tick of a
sequence, a module holds its initial state, and sends the message of that state.
"""

import torch.nn.functional as F
from torch import Tensor

from .cells import CELLS, add_message, compute_drive, select_units
from .held import HeldSignal, Pass, SignalPass, accumulate, initial_state, last_tick_before
from .scan import scan
from .schedule import Schedule
from .sequences import mask


def cascade(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    lengths: Tensor | None = None,
    hold: bool = True,
    weight_ch: Tensor | None = None,
) -> Pass:
    """The states of every module at its own ticks, fastest module first.

    Held at every step they equal `clockwork_reference`, which has the same arguments. An initial state of None is zero.
    `lengths` (B,) are the lengths of the sequences, if they differ; steps beyond a sequence's end are not read. `hold`
    tells a backend that the caller will ask for the held output; the cascade builds it only when it is asked.
    """
    gates, biases, parts = CELLS[cell]
    input = mask(input, lengths)
    inputs = _decimate(input, schedule, t0)
    initial = initial_state(h0, input, schedule, parts)

    modules, cells = [], []
    messages: list[HeldSignal] = []
    for i in reversed(range(schedule.modules)):
        period, units, size = schedule.periods[i], schedule.slices[i], schedule.sizes[i]
        start = last_tick_before(t0, period)

        own_bias = None if bias is None else select_units(bias, biases, units)
        drive = compute_drive(cell, inputs[i], select_units(weight_ih, gates, units), own_bias)
        for_faster = []
        for message in messages:
            rest, mine = message.split(units.start)
            # the delay: the tick at start + period hears the message of one step before
            heard = mine.at(start + period - 1, period, drive.shape[0])
            drive = add_message(cell, drive, heard.reshape(*drive.shape[:-1], gates * size))
            for_faster.append(rest)

        column = weight_hh[:, units]
        state = initial.unflatten(-1, (parts, schedule.hidden_size))[..., units].flatten(-2)
        peepholes = None if weight_ch is None else select_units(weight_ch, 3, units)
        states = scan(drive, select_units(column, gates, units), state, cell, peepholes)
        modules.append(HeldSignal(states[..., :size], period, start))
        if parts > 1:
            cells.append(HeldSignal(states[..., size:], period, start))

        if units.start > 0:
            values = F.linear(modules[-1].values, select_units(column, gates, slice(0, units.start)))
            values = values.unflatten(-1, (gates, units.start))
            messages = accumulate(for_faster, HeldSignal(values, period, start))
    return SignalPass(t0, input.shape[0], lengths, tuple(reversed(modules)), tuple(reversed(cells)))


def _decimate(input: Tensor, schedule: Schedule, t0: int) -> list[Tensor]:
    """The input at each module's ticks, taken from that of the next faster module where it contains them all."""
    inputs: list[Tensor] = []
    for i, period in enumerate(schedule.periods):
        finer, stride, origin = input, 1, t0
        if i > 0 and period % schedule.periods[i - 1] == 0:
            finer, stride = inputs[-1], schedule.periods[i - 1]
            origin = last_tick_before(t0, stride) + stride
        first = last_tick_before(t0, period) + period
        inputs.append(finer[(first - origin) // stride :: period // stride])
    return inputs
