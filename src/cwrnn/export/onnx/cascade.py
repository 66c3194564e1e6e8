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

from ...cells import CELLS, PEEPHOLES
from ..model import Array, ModelLayer
from .clocks import Clocks
from .graph import Graph
from .recurrence import Module, add_recurrence, take_gates


class Signal(NamedTuple):
    """A value that is held from each tick of a module to the next: row 0 is the one before the first tick."""

    values: str
    """(length + 1, B, ...)."""
    period: int


class LayerStates(NamedTuple):
    """The states of a layer."""

    modules: list[Signal]
    """The hidden states of every module, fastest first."""
    final: list[str]
    """(B, N): h at the end of the sequence, and for an LSTM c."""


def add_layer(graph: Graph, clocks: Clocks, layer: ModelLayer, input: str, initial: Sequence[str]) -> LayerStates:
    """The states of a layer that reads `input` (T, B, I), from the state `initial`: h (B, N), and for an LSTM c."""
    schedule, cell = layer.schedule, layer.cell
    gates = CELLS[cell].gates
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
        drive = _add_drive(graph, clocks, layer, i, clocks.decimate(input, period) if layer.inputs else None, own)

        peepholes = [] if layer.weight_ch is None else take_gates(layer.weight_ch, PEEPHOLES, units)
        weights = [weight.T for weight in take_gates(layer.weight_hh, gates, units, units)]
        start = [part[i] for part in starts]
        states, after = add_recurrence(graph, Module(cell, size, weights, peepholes), drive, start)
        values = graph.concat([graph.unsqueeze(start[0], 0), states], axis=0)
        modules.append(Signal(values, period))
        finals.append(_take_final(graph, clocks, values, period, start, after))
        if i > 0:
            # receivers one after another, and for each of them its gates
            columns = [
                weight.T
                for faster in schedule.slices[:i]
                for weight in take_gates(layer.weight_hh, gates, faster, units)
            ]
            product = graph.add("MatMul", values, graph.constant(np.concatenate(columns, axis=1)))
            messages = accumulate(graph, clocks, for_faster, Signal(product, period))
    final = [graph.concat(part, axis=1) for part in zip(*reversed(finals), strict=True)]
    return LayerStates(modules[::-1], final)


def _add_drive(
    graph: Graph, clocks: Clocks, layer: ModelLayer, i: int, input: str | None, messages: Sequence[str]
) -> list[str]:
    """The drive (length, B, K) of each gate of module i, with the messages (length, B, gates K) added.

    A GRU has a fourth part, inside the reset product. `input` (length, B, I) is None for a layer without inputs.
    """
    gates, biases, _ = CELLS[layer.cell]
    units, size = layer.schedule.slices[i], layer.schedule.sizes[i]
    bias = np.zeros(biases * layer.units, np.float32) if layer.bias is None else layer.bias
    own_biases = take_gates(bias, biases, units)
    outside = graph.constant(np.concatenate(own_biases[:gates]))
    if input is None:
        length = graph.unsqueeze(clocks.length(layer.schedule.periods[i]), 0)
        shape = graph.concat([length, graph.unsqueeze(clocks.batch, 0), graph.integers(gates * size)], axis=0)
        drive = graph.add("Expand", outside, shape)
    else:
        weight: Array = np.concatenate(take_gates(layer.weight_ih, gates, units)).T
        drive = graph.add("Add", graph.add("MatMul", input, graph.constant(weight)), outside)
    if layer.cell != "gru":
        for message in messages:
            drive = graph.add("Add", drive, message)
        return graph.split(drive, [size] * gates, axis=2)
    parts = graph.split(drive, [size] * gates, axis=2)
    inside = graph.constant(own_biases[3])
    if not messages:
        return [*parts, graph.add("Expand", inside, graph.add("Shape", parts[0]))]
    for message in messages:
        to_gates = graph.split(message, [size] * gates, axis=2)
        parts[:2] = [graph.add("Add", part, to_gate) for part, to_gate in zip(parts[:2], to_gates[:2], strict=True)]
        inside = graph.add("Add", to_gates[2], inside)
    return [*parts, inside]


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
