"""The cascade (`cwrnn/cascade.py`) as a graph: slow modules first, each on its own time axis.

input ---- decimated --- product --- drive -+- Scan of the slowest module -+- held --- output
      |                                     |                              |
      |                                     +---- 0                        +- message, held, one step later ---+
      +--- decimated --- product --- drive -+- Scan of the next module ...                                     |
                                            +--------------------------------------------------- added --------+
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..model import Array
from .clocks import Clocks
from .graph import Graph
from .operators import add_operator, fits_operator
from .recurrence import add_recurrence
from .weights import Weights


class Signal(NamedTuple):
    """A value that is held from each tick of a module to the next: row 0 is the one before the first tick."""

    values: str
    """The name of the values, (length + 1, B, ...)."""
    period: int
    """The period of the module."""


class LayerStates(NamedTuple):
    """The states of a layer."""

    modules: list[Signal]
    """The hidden states of every module, fastest first."""
    final: list[str]
    """The states at the end of the sequence, (B, N) each: h, and for an LSTM c."""


def add_layer(graph: Graph, clocks: Clocks, weights: Weights, input: str, initial: Sequence[str]) -> LayerStates:
    """The states of a layer that reads `input` (T, B, I), from the state `initial`: h (B, N), and for an LSTM c."""
    schedule, gates = weights.schedule, weights.gates
    starts = [graph.split(part, schedule.sizes, axis=1) for part in initial]
    modules: list[Signal] = []
    finals: list[list[str]] = []
    messages: list[Signal] = []
    for i in reversed(range(schedule.modules)):
        period, units, size = schedule.periods[i], schedule.slices[i], schedule.sizes[i]
        own = []
        for_faster = []
        for message in messages:
            parts = graph.split(message.values, [gates * units.start, gates * size] if i > 0 else [gates * size], 2)
            own.append(graph.add("Gather", parts[-1], clocks.heard(message.period, period), axis=0))
            for_faster.append(Signal(parts[0], message.period))
        read = clocks.decimate(input, period) if weights.inputs else None
        start = [part[i] for part in starts]
        if fits_operator(weights, i):
            states, after = add_operator(graph, weights, i, read, own, start)
        else:
            drive = _add_drive(graph, clocks, weights, i, read, own)
            recurrent, peepholes = weights.recurrent_gates(units, units), weights.peepholes(units)
            states, after = add_recurrence(graph, weights.cell, size, drive, recurrent, start, peepholes)
        values = graph.concat([graph.unsqueeze(start[0], 0), states], axis=0)
        modules.append(Signal(values, period))
        finals.append(_take_final(graph, clocks, values, period, start, after))
        if i > 0:
            product = graph.add("MatMul", values, weights.message_weight(i))
            messages = accumulate(graph, clocks, for_faster, Signal(product, period))
    final = [graph.concat(part, axis=1) for part in zip(*reversed(finals), strict=True)]
    return LayerStates(modules[::-1], final)


def _add_drive(
    graph: Graph, clocks: Clocks, weights: Weights, i: int, input: str | None, messages: Sequence[str]
) -> list[str | None]:
    """The drive (length, B, K) of each gate of module i, with the messages (length, B, gates K) added.

    A GRU has a fourth part, inside the reset product, which is None if it is 0. `input` (length, B, I) is the input at
    the ticks, or None if the layer has none.
    """
    period, units, size = weights.schedule.periods[i], weights.schedule.slices[i], weights.schedule.sizes[i]
    sizes, bias = [size] * weights.gates, weights.bias(units)
    if input is not None:
        drive = graph.sum(graph.add("MatMul", input, weights.input_weight(units)), bias)
    else:
        constant = graph.constant(np.zeros(sum(sizes), np.float32)) if bias is None else bias
        drive = graph.add("Expand", constant, clocks.shape(period, sum(sizes)))
    if weights.cell != "gru":
        return [*graph.split(graph.sum(drive, *messages), sizes, axis=2)]
    inside = weights.inner_bias(units)
    if not messages:
        # a constant does not change from tick to tick, but every part of the drive must have a time axis
        inside = None if inside is None else graph.add("Expand", inside, clocks.shape(period, size))
        return [*graph.split(drive, sizes, axis=2), inside]
    message = graph.sum(*messages)
    to_gates, to_n = graph.split(message, [2 * size, size], axis=2)
    outer, n = graph.split(drive, [2 * size, size], axis=2)
    return [*graph.split(graph.sum(outer, to_gates), [size, size], axis=2), n, graph.sum(to_n, inside)]


def _take_final(
    graph: Graph, clocks: Clocks, values: str, period: int, before: Sequence[str], after: Sequence[str]
) -> list[str]:
    """The state (B, K) at the end of the sequence: h, and for an LSTM c."""
    ticks = clocks.ticks(period)
    final = [graph.add("Gather", values, ticks, axis=0)]
    if len(before) > 1:
        # a module that never ticks has made one step that does not count
        silent = graph.add("Equal", ticks, graph.integer(0))
        final.append(after[1] if period == 1 else graph.add("Where", silent, before[1], after[1]))
    return final


def accumulate(graph: Graph, clocks: Clocks, signals: Sequence[Signal], signal: Signal) -> list[Signal]:
    """The signals of a sum with `signal` added to it, as `cwrnn.held.accumulate` returns them."""
    apart = []
    values = signal.values
    for other in signals:
        if other.period % signal.period == 0:
            held = graph.add("Gather", other.values, clocks.absorbed(other.period, signal.period), axis=0)
            values = graph.add("Add", values, held)
        else:
            apart.append(other)
    return [*apart, Signal(values, signal.period)]


def hold(graph: Graph, clocks: Clocks, signal: Signal) -> str:
    """The signal at every step of the sequence, (T, B, ...)."""
    return graph.add("Gather", signal.values, clocks.held(signal.period), axis=0)


def add_readout(graph: Graph, clocks: Clocks, modules: Sequence[Signal], weight: Array, sizes: Sequence[int]) -> str:
    """The product (T, B, outputs) of `weight` (outputs, N) with the states, multiplied at tick rate."""
    columns = np.split(weight, np.cumsum(sizes)[:-1], axis=1)
    signals: list[Signal] = []
    for (values, period), column in reversed(list(zip(modules, columns, strict=True))):
        product = graph.add("MatMul", values, graph.constant(column.T))
        signals = accumulate(graph, clocks, signals, Signal(product, period))
    total, *others = [hold(graph, clocks, signal) for signal in signals]
    for other in others:
        total = graph.add("Add", total, other)
    return total
