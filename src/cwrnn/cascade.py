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

Every faster module hears a message that is held for a whole period. Some do not hear the first message or the last one,
which a sequence may cut short. The gradient of a message that is not heard is 0, and 0 times infinity is NaN: so an
infinite state must have no product with the weights of modules that do not hear it. For the same reason, where a number
is not finite, a sequence that is shorter than the others runs to its own end only.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .cells import CELLS, PEEPHOLES, add_message, compute_drive, select_units
from .checks import are_known_finite, can_read
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
    input = mask(input, lengths)
    modules, cells = _compute_states(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, weight_ch)
    if lengths is not None and _may_spoil((weight_hh, bias, weight_ch), modules + cells):
        modules, cells = _compute_states_to_ends(
            input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, weight_ch
        )
    return SignalPass(t0, input.shape[0], lengths, modules, cells)


def _compute_states(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    weight_ch: Tensor | None,
) -> tuple[tuple[HeldSignal, ...], tuple[HeldSignal, ...]]:
    """The states h of every module and the states c, if the cell has any, fastest module first."""
    gates, biases, parts = CELLS[cell]
    inputs = decimate(input, schedule, t0)
    initial = initial_state(h0, input, schedule, parts)
    hearers = _find_partly_heard(schedule, t0, input.shape[0], input.device)

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
        peepholes = None if weight_ch is None else select_units(weight_ch, PEEPHOLES, units)
        states = scan(drive, select_units(column, gates, units), state, cell, peepholes)
        modules.append(HeldSignal(states[..., :size], period, start))
        if parts > 1:
            cells.append(HeldSignal(states[..., size:], period, start))

        if units.start > 0:
            to_faster = select_units(column, gates, slice(0, units.start))
            values = _multiply_heard(modules[-1].values, to_faster, hearers[i], schedule.sizes[:i] * gates)
            values = values.unflatten(-1, (gates, units.start))
            messages = accumulate(for_faster, HeldSignal(values, period, start))
    return tuple(reversed(modules)), tuple(reversed(cells))


def _may_spoil(operands: Sequence[Tensor | None], states: Sequence[HeldSignal]) -> bool:
    """True if numbers beyond a sequence's end may spoil a gradient, because some are not finite; False in graphs.

    `operands` and `states` are all numbers that have products there.
    """
    tensors = [tensor for tensor in operands if tensor is not None] + [signal.values for signal in states]
    return torch.is_grad_enabled() and can_read(*tensors) and not are_known_finite(*tensors)


def _compute_states_to_ends(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    lengths: Tensor,
    weight_ch: Tensor | None,
) -> tuple[tuple[HeldSignal, ...], tuple[HeldSignal, ...]]:
    """`_compute_states` with no operation beyond a sequence's end, where the states are zeros.

    The batch runs up to the next end of a sequence; the sequences that go on continue from there, without the others.
    """
    B, parts = input.shape[1], CELLS[cell].parts
    state = initial_state(h0, input, schedule, parts)
    rows = [[part[None]] for part in state.split(schedule.sizes * parts, dim=-1)]
    begin = 0
    for end in sorted({*lengths.tolist(), input.shape[0]}):
        going = (lengths >= end).nonzero().squeeze(1)
        x, h, t = input[begin:end].index_select(1, going), state.index_select(0, going), t0 + begin
        states = _compute_states(x, weight_ih, weight_hh, bias, h, schedule, t, cell, weight_ch)
        chunk = SignalPass(t, end - begin, None, *states)
        state = state.index_copy(0, going, chunk.final())
        for signal, known in zip(chunk.modules + chunk.cells, rows, strict=True):
            ticks = signal.values[1:]
            known.append(ticks.new_zeros(len(ticks), B, ticks.shape[-1]).index_copy(1, going, ticks))
        begin = end
    signals = tuple(
        HeldSignal(torch.cat(known), period, last_tick_before(t0, period))
        for known, period in zip(rows, schedule.periods * parts, strict=True)
    )
    return signals[: schedule.modules], signals[schedule.modules :]


def _multiply_heard(
    values: Tensor, weight: Tensor, hearers: Mapping[int, Tensor | list[bool]], sizes: Sequence[int]
) -> Tensor:
    """The messages of a module to all faster ones, from its states `values`.

    Where a state or a weight is not finite, the weights of the modules that do not hear the first or last row have no
    part in any gradient of that row. `hearers` tells for such rows which modules or units hear them; `sizes` are those
    of the modules, once for each gate. Finite calls compute the same bits as the plain product.
    """
    if not hearers or are_known_finite(weight, *(values[row] for row in hearers)):
        return F.linear(values, weight)
    # 0 times infinity or NaN is NaN
    finite = (weight.detach() * 0).sum() + (values.detach() * 0).sum() == 0
    safe = values
    for row in hearers:
        safe = _replace_row(safe, row, values[row].where(finite, 0))
    products = F.linear(safe, weight)
    for row, hear in hearers.items():
        if isinstance(hear, Tensor):
            heard_weight = weight.where(hear.repeat(weight.shape[0] // hear.shape[0])[:, None], 0)
        else:
            parts = zip(weight.split(sizes), hear * (len(sizes) // len(hear)), strict=True)
            heard_weight = torch.cat([part if hears else torch.zeros_like(part) for part, hears in parts])
        # the side that is not taken has only zeros, so that it gets no gradient that is NaN
        exact = F.linear(values[row].where(~finite, 0), heard_weight)
        products = _replace_row(products, row, products[row].where(finite, exact))
    return products


def _replace_row(values: Tensor, row: int, value: Tensor) -> Tensor:
    """`values` with another first row (0) or last row (-1).

    torch.func.vmap computes wrong gradients of `select_scatter`.
    """
    return torch.cat((value[None], values[1:]) if row == 0 else (values[:-1], value[None]))


def _find_partly_heard(schedule: Schedule, t0: int, T: int, device: torch.device) -> list[Mapping[int, Any]]:
    """For each module, the rows 0 and -1 if not all faster modules hear them, and which modules do.

    In a graph T may be a symbol: the graph computes for both rows which units hear them.
    """
    traced = torch._C._get_tracing_state() is not None
    if not torch.is_grad_enabled() and not traced:
        return [{}] * schedule.modules
    if torch.compiler.is_compiling() or traced or type(T) is not int:
        periods = torch.tensor(schedule.periods, device=device)[:, None]
        of_units = [period for period, size in zip(schedule.periods, schedule.sizes, strict=True) for _ in range(size)]
        faster = torch.tensor(of_units, device=device)
        before, end = (torch.full_like(faster, time) for time in (t0 - 1, t0 + T - 1))
        both = [(row, _hear(row, periods, faster, before, end)) for row in (0, -1)]
        return [{row: hear[i, : units.start] for row, hear in both} for i, units in enumerate(schedule.slices)]
    return _find_partly_heard_by_modules(schedule.periods, t0, T)


@lru_cache(maxsize=1024)
def _find_partly_heard_by_modules(periods: tuple[int, ...], t0: int, T: int) -> list[Mapping[int, list[bool]]]:
    """What `_find_partly_heard` returns outside of a graph."""
    before, end = t0 - 1, t0 + T - 1
    partly_heard: list[Mapping[int, list[bool]]] = []
    for i, period in enumerate(periods):
        rows = (0, -1) if end // period > before // period else (-1,)
        hearers = {row: [_hear(row, period, faster, before, end) for faster in periods[:i]] for row in rows}
        partly_heard.append({row: hear for row, hear in hearers.items() if not all(hear)})
    return partly_heard


def _hear(row: int, period: Any, faster: Any, before: Any, end: Any) -> Any:
    """True if a module of period `faster` ticks while it hears row 0 or -1 of a module of period `period`.

    A row is heard from the step after its tick on, up to the next tick. `before` is the step before the sequence, `end`
    is its last step. All are integers, or tensors of integers. A single row is row -1, and as row 0 it is not heard.
    """
    ticks = end // faster > before // faster
    if row == 0:
        first = (before // period + 1) * period
        return ticks & (first // faster > before // faster) & (first <= end)
    return ticks & (end // faster > end // period * period // faster)


def decimate(input: Tensor, schedule: Schedule, t0: int) -> list[Tensor]:
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
