"""The weights of a layer in a graph: cut up for modules, and transposed so that states multiply them from the left."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cells import CELLS, PEEPHOLES
from ...schedule import Schedule
from ..model import Array, ModelLayer
from .graph import Graph

Weight = Array | str
"""An array, whose parts become constants; or the name of a value, whose parts the graph takes itself."""


class Weights:
    """The weights of one layer. Every method returns names of values.

    Args:
        graph: the graph
        cell: the name of the cell
        schedule: the schedule of the layer
        inputs: I, the number of inputs
        weight_ih: (gates N, I)
        weight_hh: (gates N, N)
        bias: (biases N), or None
        weight_ch: (3 N), the peepholes of an LSTM, or None
    """

    def __init__(
        self,
        graph: Graph,
        cell: str,
        schedule: Schedule,
        inputs: int,
        weight_ih: Weight,
        weight_hh: Weight,
        bias: Weight | None,
        weight_ch: Weight | None,
    ) -> None:
        self.cell = cell
        self.schedule = schedule
        self.inputs = inputs
        self.gates = CELLS[cell].gates
        self._graph = graph
        self._weight_ih, self._weight_hh, self._bias, self._weight_ch = weight_ih, weight_hh, bias, weight_ch

    @classmethod
    def of_layer(cls, graph: Graph, layer: ModelLayer) -> "Weights":
        """The weights of a model's layer."""
        arrays = layer.weight_ih, layer.weight_hh, layer.bias, layer.weight_ch
        return cls(graph, layer.cell, layer.schedule, layer.inputs, *arrays)

    def input_gates(self, units: slice) -> list[str]:
        """The input weights of each gate of the units, (I, K)."""
        columns = np.arange(self.inputs)
        return [self._take(self._weight_ih, rows, columns) for rows in self._rows(self.gates, units)]

    def input_weight(self, units: slice) -> str:
        """The input weights of the units, (I, gates K), with the gates side by side."""
        rows = np.concatenate(self._rows(self.gates, units))
        return self._take(self._weight_ih, rows, np.arange(self.inputs))

    def recurrent_gates(self, units: slice, columns: slice) -> list[str]:
        """The weights of each gate of the units for the states of the columns, (K of the columns, K)."""
        all_columns = np.arange(columns.start, columns.stop)
        return [self._take(self._weight_hh, rows, all_columns) for rows in self._rows(self.gates, units)]

    def message_weight(self, i: int) -> str:
        """The weights from module i to all gates of the faster ones in turn, (K, gates (K_1 + ... + K_(i - 1)))."""
        receivers, own = self.schedule.slices[:i], self.schedule.slices[i]
        rows = np.concatenate([part for units in receivers for part in self._rows(self.gates, units)])
        return self._take(self._weight_hh, rows, np.arange(own.start, own.stop))

    def bias_gates(self, units: slice) -> list[str | None]:
        """The biases of the units, (K) each: those of the gates, and for a GRU the one inside the reset product."""
        rows = self._rows(CELLS[self.cell].biases, units)
        return [None if self._bias is None else self._take(self._bias, part) for part in rows]

    def bias(self, units: slice) -> str | None:
        """The biases of all gates side by side, (gates K)."""
        rows = self._rows(self.gates, units)
        return None if self._bias is None else self._take(self._bias, np.concatenate(rows))

    def inner_bias(self, units: slice) -> str | None:
        """The bias inside the reset product of a GRU, (K)."""
        rows = self._rows(CELLS[self.cell].biases, units)
        return None if self._bias is None else self._take(self._bias, rows[-1])

    def peepholes(self, units: slice) -> list[str]:
        """The peepholes of the gates i, f and o, (K) each; empty if the layer has none."""
        if self._weight_ch is None:
            return []
        return [self._take(self._weight_ch, rows) for rows in self._rows(PEEPHOLES, units)]

    def operator_weights(self, units: slice, heard: bool) -> list[str]:
        """W, R and B of the operators `LSTM` and `GRU`, which read the input and, if `heard`, messages behind it."""
        gates, size = self._order(self._rows(self.gates, units)), units.stop - units.start
        weight = self._pick(self._weight_ih, gates, np.arange(self.inputs))
        if heard:
            # row by row, the message to the gate and the unit that the row computes
            places = self._order([size * k + np.arange(size) for k in range(self.gates)])
            weight = self._join([weight, np.eye(self.gates * size, dtype=np.float32)[places]], axis=1)
        recurrent = self._pick(self._weight_hh, gates, np.arange(units.start, units.stop))
        bias: Weight = np.zeros(2 * self.gates * size, np.float32)
        if self._bias is not None:
            rows = self._rows(CELLS[self.cell].biases, units)
            zeros = np.zeros(self.gates * size - (size if self.cell == "gru" else 0), np.float32)
            inner = [self._pick(self._bias, rows[-1])] if self.cell == "gru" else []
            bias = self._join([self._pick(self._bias, gates), zeros, *inner], axis=0)
        return [self._lead(value) for value in (weight, recurrent, bias)]

    def operator_peepholes(self, units: slice) -> str:
        """P of the operator `LSTM`, or no input."""
        if self._weight_ch is None:
            return ""
        i, f, o = self._rows(PEEPHOLES, units)
        return self._lead(self._pick(self._weight_ch, np.concatenate([i, o, f])))

    def _order(self, rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """The rows of all gates in the order of the operators: i, o, f, g for the LSTM and z, r, n for the GRU."""
        return np.concatenate([rows[k] for k in ((0, 3, 1, 2) if self.cell == "lstm" else (1, 0, 2))])

    def _rows(self, count: int, units: slice) -> list[NDArray[np.int64]]:
        """The rows of the units for each of `count` gates."""
        return [k * self.schedule.hidden_size + np.arange(units.start, units.stop) for k in range(count)]

    def _take(self, weight: Weight, *places: NDArray[Any]) -> str:
        """The part of a weight at these places of its axes, transposed."""
        part = self._pick(weight, *places)
        if not isinstance(part, str):
            return self._graph.constant(part.T)
        return part if len(places) == 1 else self._graph.add("Transpose", part, perm=[1, 0])

    def _pick(self, weight: Weight, *places: NDArray[Any]) -> Weight:
        """The part of a weight at these places of its axes."""
        if not isinstance(weight, str):
            part: Array = weight[np.ix_(*places)]
            return part
        for axis, of_axis in enumerate(places):
            weight = self._graph.add("Gather", weight, self._graph.constant(of_axis.astype(np.int64)), axis=axis)
        return weight

    def _join(self, parts: Sequence[Weight], axis: int) -> Weight:
        """Parts of weights side by side."""
        arrays = [part for part in parts if not isinstance(part, str)]
        if len(arrays) == len(parts):
            return np.concatenate(arrays, axis=axis)
        return self._graph.concat(
            [part if isinstance(part, str) else self._graph.constant(part) for part in parts], axis
        )

    def _lead(self, weight: Weight) -> str:
        """The weight with an axis in front, which operators have for directions."""
        return self._graph.unsqueeze(weight, 0) if isinstance(weight, str) else self._graph.constant(weight[None])
