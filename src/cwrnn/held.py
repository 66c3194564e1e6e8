"""Ticks: signals that change only when a module ticks, and are held between.

Stream   one such signal: a value per tick, a period, a place on the clock
Pass     one run over time of one layer in one direction: a Stream of states per module
Ticks    what a layer computes before anything is held: the passes of its last layer, and how to hold them
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from .schedule import Schedule
from .sequences import Layout, mask


class Stream(NamedTuple):
    """A signal that is held from each multiple of `period` to the next.

    Row n of `values` (n + 1, B, ...) holds from time start + n * period on. `start` is the last tick before the
    sequence begins, so row 0 is what was there before the first tick.
    """

    values: Tensor
    period: int
    start: int

    def at(self, first: int, step: int, count: int) -> Tensor:
        """The values held at `count` times: first, first + step, first + 2 step, ..."""
        offset = first - self.start
        repeats = self.period // step
        # a hold window that is longer than what is asked for is not worth unrolling
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

    def split(self, size: int) -> "tuple[Stream, Stream]":
        """The first `size` features, and the others."""
        first, others = self.values.split((size, self.values.shape[-1] - size), dim=-1)
        return Stream(first, self.period, self.start), Stream(others, self.period, self.start)


def last_tick_before(t0: int, period: int) -> int:
    """The last multiple of `period` before t0: where a module's row 0 stands on the clock."""
    return (t0 - 1) // period * period


def count_rows(periods: Sequence[int], t0: int, T: int) -> list[int]:
    """How many states each module has: one per tick, and the one before. T may be a symbol."""
    return [(t0 + T - 1) // period - (t0 - 1) // period + 1 for period in periods]


def initial_state(h0: Tensor | None, like: Tensor, schedule: Schedule) -> Tensor:
    """h0 (B, N), or if there is none one of zeros, for a sequence `like` (T, B, ...)."""
    return like.new_zeros((like.shape[1], schedule.hidden_size)) if h0 is None else h0


def states_of(held: Tensor, h0: Tensor, schedule: Schedule, t0: int) -> tuple[Stream, ...]:
    """The states of every module at its own ticks, from those at every step (T, B, N) and before the first (B, N)."""
    modules = []
    for period, units in zip(schedule.periods, schedule.slices, strict=True):
        start = last_tick_before(t0, period)
        ticks = held[start + period - t0 :: period, ..., units]
        modules.append(Stream(torch.cat((h0[None, ..., units], ticks)), period, start))
    return tuple(modules)


def accumulate(streams: Iterable[Stream], stream: Stream) -> list[Stream]:
    """The same sum in fewer streams: `stream` takes in all those that change only when it ticks."""
    apart = []
    values = stream.values
    for other in streams:
        if other.period % stream.period == 0:
            values = values + other.at(stream.start, stream.period, values.shape[0])
        else:
            apart.append(other)
    return [*apart, Stream(values, stream.period, stream.start)]


@dataclass(eq=False)
class Pass:
    """One run over T time steps from clock t0: what a backend returns.

    `lengths` (B,) is None where all sequences have T steps. Beyond a sequence's end the states mean nothing.
    """

    t0: int
    T: int
    lengths: Tensor | None

    @property
    def modules(self) -> tuple[Stream, ...]:
        """The states of every module, fastest first."""
        raise NotImplementedError

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        held = torch.cat([module.at(self.t0, 1, self.T) for module in self.modules], dim=-1)
        return mask(held, self.lengths)

    def linear(self, weight: Tensor) -> Tensor:
        """(T, B, O): `weight` (O, N) times the hidden state at every time step, multiplied at tick rate."""
        streams: list[Stream] = []
        for stream in reversed(self.multiply(weight)):
            streams = accumulate(streams, stream)
        first, *others = [stream.at(self.t0, 1, self.T) for stream in streams]
        return sum(others, start=first)

    def multiply(self, weight: Tensor) -> list[Stream]:
        """What `weight` (O, N) makes of the states of every module, each by its own columns."""
        columns = weight.split([module.values.shape[-1] for module in self.modules], dim=1)
        return [
            Stream(F.linear(values, column), period, start)
            for (values, period, start), column in zip(self.modules, columns, strict=True)
        ]

    def final(self) -> Tensor:
        """(B, N): the hidden state at each sequence's own end."""
        lengths = self.lengths
        if lengths is None:
            return torch.cat([module.values[-1] for module in self.modules], dim=-1)
        last = []
        for values, period, start in self.modules:
            row = (lengths + (self.t0 - 1 - start)) // period
            last.append(values.gather(0, row[None, :, None].expand(1, -1, values.shape[-1])).squeeze(0))
        return torch.cat(last, dim=-1)

    def h_n(self) -> Tensor:
        """(1, B, N): the same, as a layer returns it."""
        return self.final().unsqueeze(0)


@dataclass(eq=False)
class StreamPass(Pass):
    """A pass that is nothing but the streams of its modules."""

    streams: tuple[Stream, ...]

    @property
    def modules(self) -> tuple[Stream, ...]:
        """The states of every module, fastest first."""
        return self.streams


@dataclass(eq=False, repr=False)
class Ticks:
    """All that a ClockworkRNN computes, one value per tick: its output, not yet held.

    `Readout` takes it in place of the output, and never builds (T, B, N).
    """

    passes: tuple[Pass, ...]
    """The forward pass, and if the layer is bidirectional the reverse one, on its own clock."""
    layout: Layout

    def hold(self) -> Tensor | PackedSequence:
        """The output: what the layer's forward returns."""
        return self.layout.sequence_out(self.held())

    def held(self) -> Tensor:
        """The output as (T, B, N), or (T, B, 2 N) of both directions, whatever guise the input had."""
        aligned = self._aligned([each.hold() for each in self.passes])
        return aligned[0] if len(aligned) == 1 else torch.cat(aligned, dim=-1)

    def linear(self, weight: Tensor, bias: Tensor | None = None) -> Tensor | PackedSequence:
        """`torch.nn.functional.linear` of the output, multiplied at tick rate."""
        N = sum(module.values.shape[-1] for module in self.passes[0].modules)
        if weight.dim() != 2 or weight.shape[1] != N * len(self.passes):
            raise ValueError(f"weight must have {N * len(self.passes)} columns, got shape {tuple(weight.shape)}")
        columns = weight.split(N, dim=1)
        parts = [each.linear(column) for each, column in zip(self.passes, columns, strict=True)]
        first, *others = self._aligned(parts)
        value = self.layout.mask(sum(others, start=first))
        return self.layout.sequence_out(value if bias is None else value + bias.to(value.dtype))

    def _aligned(self, values: list[Tensor]) -> list[Tensor]:
        return [values[0], *(self.layout.reverse(value) for value in values[1:])]
