"""Held signals: they change only when a module ticks, and hold their value until its next tick.

HeldSignal   one such signal: a value per tick, a period, a place on the clock
Pass         one run over time of one layer in one direction: a HeldSignal of states per module
PhasedPass   the same for sequences with clocks of their own: a Pass for each group that ticks together
Ticks        the output of a layer before it is held: the passes of its last layer, and how to hold them
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .checks import are_known_finite, can_read
from .schedule import Schedule
from .sequences import Layout, mask


class HeldSignal(NamedTuple):
    """A signal that is held from each multiple of `period` to the next.

    Row n of `values` (n + 1, B, ...) holds from time start + n * period on. `start` is the last tick before the
    sequence begins, so row 0 holds the value before the first tick.
    """

    values: Tensor
    period: int
    start: int

    def at(self, first: int, step: int, count: int) -> Tensor:
        """The values held at `count` times: first, first + step, first + 2 step, ..."""
        offset = first - self.start
        repeats = self.period // step
        # a hold window that is longer than all times asked for is not worth unrolling
        if self.period % step == 0 and (torch.compiler.is_compiling() or repeats <= count):
            skip = offset % self.period // step
            row = offset // self.period
            rows = (skip + count + repeats - 1) // repeats
            held = self.values[row : row + rows]
            if repeats > 1:
                # backward: the sum over each hold window
                held = held.repeat_interleave(repeats, dim=0)
            return held[skip : skip + count]
        times = torch.arange(count, device=self.values.device) * step + offset
        return self.values.index_select(0, times // self.period)

    def split(self, size: int) -> "tuple[HeldSignal, HeldSignal]":
        """The first `size` features, and the others."""
        first, others = self.values.split((size, self.values.shape[-1] - size), dim=-1)
        return HeldSignal(first, self.period, self.start), HeldSignal(others, self.period, self.start)


def last_tick_before(t0: int, period: int) -> int:
    """The last multiple of `period` before t0: the time at which row 0 of a module begins."""
    return (t0 - 1) // period * period


def count_rows(periods: Sequence[int], t0: int, T: int) -> list[int]:
    """The number of states of each module: one per tick, and its state before them.

    T may be a symbol of torch.export.
    """
    return [(t0 + T - 1) // period - (t0 - 1) // period + 1 for period in periods]


def initial_state(h0: Tensor | None, like: Tensor, schedule: Schedule, parts: int = 1) -> Tensor:
    """h0 (B, parts N), or zeros if h0 is None, for a sequence `like` (T, B, ...)."""
    return like.new_zeros((like.shape[1], parts * schedule.hidden_size)) if h0 is None else h0


def states_of(held: Tensor, h0: Tensor, schedule: Schedule, t0: int, step: int = 1) -> tuple[HeldSignal, ...]:
    """The states of every module at its own ticks, from the output `held` (n, B, N) and the initial state h0 (B, N).

    `held` has a row for each multiple of `step` from t0 on. `step` divides all periods.
    """
    first = last_tick_before(t0, step) + step
    modules = []
    # autograd joins the gradients of a tensor once if it was split once
    split = held.split(schedule.sizes, dim=-1), h0.split(schedule.sizes, dim=-1)
    for period, own, initial in zip(schedule.periods, *split, strict=True):
        start = last_tick_before(t0, period)
        ticks = own[(start + period - first) // step :: period // step]
        modules.append(HeldSignal(torch.cat((initial[None], ticks)), period, start))
    return tuple(modules)


def accumulate(signals: Iterable[HeldSignal], signal: HeldSignal) -> list[HeldSignal]:
    """The signals of a sum with `signal` added to it, as few as possible.

    `signal` absorbs every other signal that changes only when it ticks itself. The others stay apart.
    """
    apart = []
    values = signal.values
    for other in signals:
        if other.period % signal.period == 0:
            values = values + other.at(signal.start, signal.period, values.shape[0])
        else:
            apart.append(other)
    return [*apart, HeldSignal(values, signal.period, signal.start)]


@dataclass(eq=False)
class Pass:
    """One run over T time steps from clock t0, as a backend returns it.

    `lengths` (B,) is None if all sequences have T steps. Beyond a sequence's end the states have no meaning.
    """

    t0: int
    T: int
    lengths: Tensor | None

    @property
    def modules(self) -> tuple[HeldSignal, ...]:
        """The states of every module, fastest first."""
        raise NotImplementedError

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        held = torch.cat([module.at(self.t0, 1, self.T) for module in self.modules], dim=-1)
        return mask(held, self.lengths)

    def linear(self, weight: Tensor) -> Tensor:
        """(T, B, O): `weight` (O, N) times the hidden state at every time step, multiplied at tick rate."""
        signals: list[HeldSignal] = []
        for signal in reversed(self.multiply(weight)):
            signals = accumulate(signals, signal)
        first, *others = [signal.at(self.t0, 1, self.T) for signal in signals]
        return sum(others, start=first)

    def multiply(self, weight: Tensor) -> list[HeldSignal]:
        """The product of `weight` (O, N) with the states of every module, each by its own columns."""
        columns = weight.split([module.values.shape[-1] for module in self.modules], dim=1)
        products = []
        for (values, period, start), column in zip(self.modules, columns, strict=True):
            # a module that ticks at t0 never holds its initial state, and 0 times infinity would be NaN. A device is
            # not waited for, and finite calls multiply the tensor as it is
            never_held = start + period == self.t0 or self.T == 0
            matters = torch.is_grad_enabled() and can_read(values) and values.is_cpu and never_held
            if matters and not are_known_finite(values[0]):
                values = torch.cat((torch.zeros_like(values[:1]), values[1:]))
            products.append(HeldSignal(F.linear(values, column), period, start))
        return products

    @property
    def cells(self) -> tuple[HeldSignal, ...]:
        """The part c of every module's state, fastest first; empty if the state is h alone."""
        return ()

    def final(self) -> Tensor:
        """(B, parts N): the state at each sequence's own end."""
        lengths = self.lengths
        signals = self.modules + self.cells
        if lengths is None:
            return torch.cat([signal.values[-1] for signal in signals], dim=-1)
        last = []
        for values, period, start in signals:
            row = (lengths + (self.t0 - 1 - start)) // period
            last.append(values.gather(0, row[None, :, None].expand(1, -1, values.shape[-1])).squeeze(0))
        return torch.cat(last, dim=-1)

    def h_n(self) -> Tensor:
        """(1, B, parts N): the state at each sequence's own end, with the axis of layers."""
        return self.final().unsqueeze(0)

    def to(self, dtype: torch.dtype) -> "Pass":
        """The same states, rounded to `dtype`."""
        modules, cells = (
            tuple(HeldSignal(values.to(dtype), period, start) for values, period, start in signals)
            for signals in (self.modules, self.cells)
        )
        return SignalPass(self.t0, self.T, self.lengths, modules, cells)


@dataclass(eq=False)
class SignalPass(Pass):
    """A pass that consists of the states of its modules alone."""

    signals: tuple[HeldSignal, ...]
    cell_signals: tuple[HeldSignal, ...] = ()

    @property
    def modules(self) -> tuple[HeldSignal, ...]:
        """The states of every module, fastest first."""
        return self.signals

    @property
    def cells(self) -> tuple[HeldSignal, ...]:
        """The part c of every module's state, fastest first; empty if the state is h alone."""
        return self.cell_signals


@dataclass(eq=False)
class PhasedPass:
    """One run over sequences that have clocks of their own: a pass for each group of them that ticks together."""

    passes: tuple[Pass, ...]
    places: Tensor
    """(B,): the place of every sequence in the groups one after another."""

    @property
    def modules(self) -> tuple[HeldSignal, ...]:
        """The states of every module in the first group; those of the other groups have other ticks."""
        return self.passes[0].modules

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        return self._join([run.hold() for run in self.passes])

    def linear(self, weight: Tensor) -> Tensor:
        """(T, B, O): `weight` (O, N) times the hidden state at every time step, multiplied at tick rate."""
        return self._join([run.linear(weight) for run in self.passes])

    def h_n(self) -> Tensor:
        """(1, B, parts N): the state at each sequence's own end, with the axis of layers."""
        return self._join([run.h_n() for run in self.passes])

    def to(self, dtype: torch.dtype) -> "PhasedPass":
        """The same states, rounded to `dtype`."""
        return PhasedPass(tuple(run.to(dtype) for run in self.passes), self.places)

    def _join(self, values: list[Tensor]) -> Tensor:
        """The values (..., B, features) of all sequences, in the order of the batch."""
        return torch.cat(values, dim=1).index_select(1, self.places)


@dataclass(eq=False, repr=False)
class Ticks:
    """The output of a ClockworkRNN before it is held: one value per tick of each module.

    `Readout` takes it in place of the output, and never builds the (T, B, N) tensor.

    >>> import cwrnn
    >>> rnn = cwrnn.ClockworkRNN(3, 8, schedule=[1, 4])
    >>> x = torch.randn(20, 2, 3)
    >>> ticks, h_n = rnn.ticks(x)
    >>> torch.equal(ticks.hold(), rnn(x)[0])
    True
    """

    passes: tuple[Pass | PhasedPass, ...]
    """The forward pass, and for a bidirectional layer the reverse pass, on its own clock."""
    layout: Layout
    """The form of the layer's input, which its output has as well."""

    def hold(self) -> Tensor | PackedSequence:
        """The output, as the layer's forward returns it."""
        return self.layout.sequence_out(self.held())

    def held(self) -> Tensor:
        """The output as (T, B, N), or (T, B, 2 N) for two directions, whatever the form of the input."""
        aligned = self._aligned([run.hold() for run in self.passes])
        return aligned[0] if len(aligned) == 1 else torch.cat(aligned, dim=-1)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor | PackedSequence:
        """`torch.nn.functional.linear` of the output, multiplied at tick rate."""
        modules = self.passes[0].modules
        N, device = sum(module.values.shape[-1] for module in modules), modules[0].values.device
        if weight.dim() != 2 or weight.shape[1] != N * len(self.passes):
            raise ValueError(f"weight must have {N * len(self.passes)} columns, got shape {tuple(weight.shape)}")
        if weight.device != device:
            # torch multiplies a tensor on the CPU by one on the meta device, and the product is undefined
            raise RuntimeError(f"Ticks and weight are not on the same device: {device} and {weight.device}")
        columns = weight.split(N, dim=1)
        parts = [run.linear(column) for run, column in zip(self.passes, columns, strict=True)]
        first, *others = self._aligned(parts)
        value = self.layout.mask(sum(others, start=first))
        return self.layout.sequence_out(value if bias is None else value + bias.to(value.dtype))

    def _aligned(self, values: list[Tensor]) -> list[Tensor]:
        return [values[0], *(self.layout.reverse(value) for value in values[1:])]
