"""The weights of a layer in a graph, cut up for its modules and transposed, such that states stand left of them."""

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
        """(I, K) for each gate of the units."""
        columns = np.arange(self.inputs)
        return [self._take(self._weight_ih, rows, columns) for rows in self._rows(self.gates, units)]

    def input_weight(self, units: slice) -> str:
        """(I, gates K), the gates of the units side by side."""
        rows = np.concatenate(self._rows(self.gates, units))
        return self._take(self._weight_ih, rows, np.arange(self.inputs))

    def recurrent_gates(self, units: slice, columns: slice) -> list[str]:
        """(K of the columns, K) for each gate of the units: what they hear from the states of the columns."""
        all_columns = np.arange(columns.start, columns.stop)
        return [self._take(self._weight_hh, rows, all_columns) for rows in self._rows(self.gates, units)]

    def message_weight(self, i: int) -> str:
        """(K, gates (K_1 + ... + K_(i - 1))): from module i to the faster ones, one after another, with all gates."""
        receivers, own = self.schedule.slices[:i], self.schedule.slices[i]
        rows = np.concatenate([part for units in receivers for part in self._rows(self.gates, units)])
        return self._take(self._weight_hh, rows, np.arange(own.start, own.stop))

    def bias_gates(self, units: slice) -> list[str | None]:
        """(K) for each bias of the units: those of the gates, and for a GRU the one inside the reset product."""
        rows = self._rows(CELLS[self.cell].biases, units)
        return [None if self._bias is None else self._take(self._bias, part) for part in rows]

    def bias(self, units: slice) -> str | None:
        """(gates K), the biases of all gates side by side."""
        rows = self._rows(self.gates, units)
        return None if self._bias is None else self._take(self._bias, np.concatenate(rows))

    def inner_bias(self, units: slice) -> str | None:
        """(K), the bias inside the reset product of a GRU."""
        rows = self._rows(CELLS[self.cell].biases, units)
        return None if self._bias is None else self._take(self._bias, rows[-1])

    def peepholes(self, units: slice) -> list[str]:
        """(K) for the gates i, f and o; empty if the layer has none."""
        if self._weight_ch is None:
            return []
        return [self._take(self._weight_ch, rows) for rows in self._rows(PEEPHOLES, units)]

    def _rows(self, count: int, units: slice) -> list[NDArray[np.int64]]:
        """The rows of the units for each of `count` gates."""
        return [k * self.schedule.hidden_size + np.arange(units.start, units.stop) for k in range(count)]

    def _take(self, weight: Weight, *places: NDArray[Any]) -> str:
        """The part of a weight at these places of its axes, transposed."""
        if not isinstance(weight, str):
            return self._graph.constant(weight[np.ix_(*places)].T)
        for axis, places_of_axis in enumerate(places):
            weight = self._graph.add("Gather", weight, self._graph.constant(places_of_axis.astype(np.int64)), axis=axis)
        return weight if len(places) == 1 else self._graph.add("Transpose", weight, perm=[1, 0])
