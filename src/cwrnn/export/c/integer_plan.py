"""The plan of an int8 network: the numbers of every module as the C program reads them, and their memory.

Places, messages and the order of work are those of `plan.py`. The sums of a drive are kept apart from those of the
messages, because their units differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...cells import CELLS
from ..model import Model
from .plan import ModulePlace, Plan, plan_network
from .quantisation import Integers, QuantisedModel, make_table


@dataclass(frozen=True, eq=False)
class IntegerPart:
    """Some of a module's weights, and what they are."""

    text: str
    """What they are, for a comment."""
    values: Integers


@dataclass(frozen=True, eq=False)
class IntegerModule(ModulePlace):
    """A module of a layer: its places, and its weights."""

    rows: Integers
    """The rows of its gates among those of its layer, in order."""
    parts: tuple[IntegerPart, ...]

    @property
    def weights(self) -> Integers:
        """All weights of the module, in order."""
        return np.concatenate([part.values for part in self.parts])


@dataclass(frozen=True, eq=False)
class IntegerPlan:
    """An int8 network with the places of all its numbers."""

    plan: Plan
    """The same network in float32."""
    quantised: QuantisedModel
    modules: tuple[IntegerModule, ...]

    @property
    def model(self) -> Model:
        """The network."""
        return self.plan.model

    @property
    def gates(self) -> int:
        """The rows of a unit."""
        return CELLS[self.plan.cell].gates

    @property
    def sums(self) -> int:
        """How many sums of messages the state holds."""
        return sum(self.gates * module.units * (module.last - i + 1) for i, module in enumerate(self.modules))

    @property
    def drives(self) -> int:
        """How many sums of inputs the largest module has."""
        return max(self.gates * module.units for module in self.modules)

    @cached_property
    def biases(self) -> Integers:
        """The biases of all messages, module after module."""
        return np.concatenate([self.quantised.layers[m.layer - 1].message.bias[m.rows] for m in self.modules])

    @cached_property
    def drive_biases(self) -> Integers:
        """The biases of all drives of a GRU, module after module; for other cells, as many zeros as a module needs."""
        if self.plan.cell != "gru":
            return np.zeros(self.drives, np.int64)
        return np.concatenate([self.quantised.layers[m.layer - 1].drive.bias[m.rows] for m in self.modules])

    @cached_property
    def peepholes(self) -> Integers:
        """The peepholes of i, f and o of all modules, module after module."""
        found = [np.zeros(0, np.int64)]
        for m in self.modules:
            own = self.quantised.layers[m.layer - 1].message.peepholes
            if own is not None:
                found.append(own[m.rows].reshape(self.gates, m.units)[[0, 1, 3]].ravel())
        return np.concatenate(found)

    @cached_property
    def scales(self) -> Integers:
        """The factors of message and drive and their shifts for each row, (rows, 4)."""
        columns = []
        for module in self.modules:
            layer = self.quantised.layers[module.layer - 1]
            both = (layer.message.select(module.rows), layer.drive.select(module.rows))
            columns.append([*(rows.factors for rows in both), *(rows.shifts for rows in both)])
        return np.concatenate(columns, axis=1).T

    @property
    def readout_weights(self) -> Integers:
        """The weights of the readout, in the order in which the C program reads them."""
        assert self.quantised.readout is not None
        return interleave_rows(self.quantised.readout.weights)

    @property
    def constant_bytes(self) -> int:
        """The size of weights, biases, factors and tables."""
        size = sum(module.weights.size for module in self.modules) + 4 * self.biases.size + 6 * len(self.scales)
        size += 4 * (self.model.inputs + self.drive_biases.size) + 2 * self.peepholes.size
        if self.plan.cell != "relu":
            size += 2 * make_table().size
        if self.quantised.readout is not None:
            size += self.quantised.readout.weights.size + 7 * self.model.outputs
        return size

    @property
    def state_bytes(self) -> int:
        """The size of the state on targets that align a number to its own size, at most to 8 bytes."""
        clock = self.plan.clock_bits // 8
        states = self.plan.units * CELLS[self.plan.cell].parts
        members = ((4, self.sums + self.drives), (clock, len(self.modules)), (2, states), (1, len(self.modules)))
        end = 0
        for size, count in members:
            end = -(-end // size) * size + size * count
        alignment = max(4, clock)
        return -(-end // alignment) * alignment


def plan_integers(quantised: QuantisedModel) -> IntegerPlan:
    """The plan of a model in integers."""
    plan = plan_network(quantised.model)
    return IntegerPlan(plan, quantised, tuple(_place_modules(plan, quantised)))


def interleave_rows(matrix: Integers) -> Integers:
    """The weights of a matrix as the C program reads them: four rows and two columns at a time.

    >>> interleave_rows(np.arange(15).reshape(5, 3)).tolist()
    [0, 3, 1, 4, 6, 9, 7, 10, 2, 5, 8, 11, 12, 13, 14]
    """
    blocks, columns = len(matrix) // 4, matrix.shape[1]
    whole = matrix[: 4 * blocks].reshape(blocks, 2, 2, columns)
    # blocks of two halves of two rows, and pairs of columns
    tiles = whole[..., : columns // 2 * 2].reshape(blocks, 2, 2, columns // 2, 2).transpose(0, 3, 1, 4, 2)
    parts = [tiles.reshape(blocks, columns // 2 * 8), whole[..., columns // 2 * 2 :].reshape(blocks, columns % 2 * 4)]
    return np.concatenate([np.concatenate(parts, axis=1).ravel(), matrix[4 * blocks :].ravel()])


def _place_modules(plan: Plan, quantised: QuantisedModel) -> Iterator[IntegerModule]:
    sums, gates = 0, CELLS[plan.cell].gates
    for number, module in enumerate(plan.modules):
        layer, N = quantised.layers[module.layer - 1], quantised.model.layers[module.layer - 1].units
        slices = quantised.model.layers[module.layer - 1].schedule.slices
        units = slices[module.number - 1]
        rows = np.concatenate([gate * N + np.arange(N)[units] for gate in range(gates)])
        parts = [IntegerPart("inputs", interleave_rows(layer.drive.weights[rows]))]
        for j in reversed(range(module.number - 1, len(slices))):
            block = layer.message.weights[rows][:, slices[j]]
            parts.append(IntegerPart(f"messages from module {j + 1}", interleave_rows(block)))
        yield IntegerModule(
            layer=module.layer, number=module.number, period=module.period, units=module.units, hidden=module.hidden,
            last=module.last, sums=sums, source=module.source, inputs=module.inputs, rows=rows, parts=tuple(parts),
        )  # fmt: skip
        sums += gates * module.units * (module.last - number + 1)
