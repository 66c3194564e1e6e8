"""The cascade: what makes a Clockwork RNN fast, in plain PyTorch.

A slow module never hears a fast one, and what it says is constant between its ticks. Hence, exactly:

    1. Run the slowest module first, for all time, on its own clock: a small Elman recurrence (scan.py).
    2. What it says to all faster modules, W_hh[:i, i] h_i, changes only when it ticks: one matrix product over
       all its ticks, and the result is held (ticks.py).
    3. The next faster module hears that one step later, as a plain additional input. And so on to the fastest.

        t        0   1   2   3   4   5   6   7
        P = 4    o---------------o---------------        runs first, speaks twice
        P = 2    o-------o-------o-------o-------        hears it at t = 0 (the initial state), 2, 4, 6
        P = 1    o---o---o---o---o---o---o---o---        hears the sum of both

Per step that costs sum_j K_j (K_1 + ... + K_j) / P_j multiply-adds: at most 4 K^2 for equal modules of periods
1, 2, 4, ..., however many they are.

Three conditions, each easily missed. The delay: module i at t hears h_j(t - 1). The phase: ticks are counted on
the absolute clock, so a sequence that starts at t0 ticks at (t0 + s) mod P == 0. And before the first tick of a
sequence, a module holds, and says, its initial state.
"""

import torch.nn.functional as F
from torch import Tensor

from .held import Pass, Stream, StreamPass, accumulate, initial_state, last_tick_before
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

    Held at every step they equal `clockwork_reference`, which has the same arguments. An initial state that is None is
    zero. `lengths` (B,) are those of the sequences, if they differ: what lies beyond a sequence's end is not read.
    `hold` says whether the held output will be asked for; here it is made when it is.
    """
    input = mask(input, lengths)
    inputs = _decimate(input, schedule, t0)
    weights_ih = weight_ih.split(schedule.sizes)
    biases = bias.split(schedule.sizes) if bias is not None else [None] * schedule.modules
    initial = initial_state(h0, input, schedule).split(schedule.sizes, dim=-1)
    columns = weight_hh.split(schedule.sizes, dim=1)

    modules = []
    heard: list[Stream] = []
    for i in reversed(range(schedule.modules)):
        period, rows = schedule.periods[i], schedule.slices[i]
        start = last_tick_before(t0, period)

        drive = F.linear(inputs[i], weights_ih[i], biases[i])
        for_faster = []
        for stream in heard:
            rest, mine = stream.split(rows.start)
            # the delay: the tick at start + period hears what was said one step before
            drive = drive + mine.at(start + period - 1, period, drive.shape[0])
            for_faster.append(rest)

        to_faster, to_itself = columns[i][: rows.stop].split((rows.start, schedule.sizes[i]))
        module = Stream(scan(drive, to_itself, initial[i], nonlinearity), period, start)
        modules.append(module)

        if rows.start > 0:
            said = Stream(F.linear(module.values, to_faster), period, start)
            heard = accumulate(for_faster, said)
    return StreamPass(t0, input.shape[0], lengths, tuple(reversed(modules)))


def _decimate(input: Tensor, schedule: Schedule, t0: int) -> list[Tensor]:
    """The input at each module's ticks, taken from the next faster module's where that has them all."""
    inputs: list[Tensor] = []
    for i, period in enumerate(schedule.periods):
        finer, stride, origin = input, 1, t0
        if i > 0 and period % schedule.periods[i - 1] == 0:
            finer, stride = inputs[-1], schedule.periods[i - 1]
            origin = last_tick_before(t0, stride) + stride
        first = last_tick_before(t0, period) + period
        inputs.append(finer[(first - origin) // stride :: period // stride])
    return inputs
