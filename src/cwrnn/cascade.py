"""The cascade: what makes a Clockwork RNN fast, in plain PyTorch.

A slow module never hears a fast one, and its message is constant between its ticks. Hence, exactly:

    1. Run the slowest module first, for all time, on its own clock: a small Elman recurrence (scan.py).
    2. Its message to all faster modules, W_hh[:i, i] h_i, changes only when it ticks: one matrix product over
       all its ticks, and the result is held (held.py).
    3. The next faster module hears that one step later, as a plain additional input. And so on to the fastest.

        t        0   1   2   3   4   5   6   7
        P = 4    o---------------o---------------        runs first, speaks twice
        P = 2    o-------o-------o-------o-------        hears it at t = 0 (the initial state), 2, 4, 6
        P = 1    o---o---o---o---o---o---o---o---        hears the sum of both

Per step that costs sum_j K_j (K_1 + ... + K_j) / P_j multiply-adds: at most 4 K^2 for equal modules of periods
1, 2, 4, ..., however many they are.

Three conditions, each easily missed. The delay: module i at t hears h_j(t - 1). The phase: ticks are counted on
the absolute clock, so a sequence that starts at t0 ticks at (t0 + s) mod P == 0. And before the first tick of a
sequence, a module holds its initial state, and sends the message of that state.
"""

import torch.nn.functional as F
from torch import Tensor

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
    nonlinearity: str,
    lengths: Tensor | None = None,
    hold: bool = True,
) -> Pass:
    """The states of every module at its own ticks, fastest module first.

    Held at every step they equal `clockwork_reference`, which has the same arguments. An initial state of None is zero.
    `lengths` (B,) are the lengths of the sequences, if they differ; steps beyond a sequence's end are not read. `hold`
    tells a backend that the caller will ask for the held output; the cascade builds it only when it is asked.
    """
    input = mask(input, lengths)
    inputs = _decimate(input, schedule, t0)
    weights_ih = weight_ih.split(schedule.sizes)
    biases = bias.split(schedule.sizes) if bias is not None else [None] * schedule.modules
    initial = initial_state(h0, input, schedule).split(schedule.sizes, dim=-1)
    columns = weight_hh.split(schedule.sizes, dim=1)

    modules = []
    messages: list[HeldSignal] = []
    for i in reversed(range(schedule.modules)):
        period, rows = schedule.periods[i], schedule.slices[i]
        start = last_tick_before(t0, period)

        drive = F.linear(inputs[i], weights_ih[i], biases[i])
        for_faster = []
        for message in messages:
            rest, mine = message.split(rows.start)
            # the delay: the tick at start + period hears the message of one step before
            drive = drive + mine.at(start + period - 1, period, drive.shape[0])
            for_faster.append(rest)

        to_faster, to_itself = columns[i][: rows.stop].split((rows.start, schedule.sizes[i]))
        module = HeldSignal(scan(drive, to_itself, initial[i], nonlinearity), period, start)
        modules.append(module)

        if rows.start > 0:
            message = HeldSignal(F.linear(module.values, to_faster), period, start)
            messages = accumulate(for_faster, message)
    return SignalPass(t0, input.shape[0], lengths, tuple(reversed(modules)))


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
