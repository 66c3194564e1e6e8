"""The plan of an exported network: where every module has its numbers, and how much work and memory that takes.

A listener i keeps, for every speaker j of its layer that is no faster, a vector of `gates` K_i sums. Where every period
divides the next one, the vector of j is the running sum

    sum_j = sum_(j + 1) + W_hh[i, j] h_j        from the slowest module, where it begins with the biases, down to i

because then every module faster than j has ticked since the listener's last tick if j has. In other schedules every
vector is the message of one speaker, and they are added at every tick. Either way, the listener multiplies at its tick
only what speakers have said since its last one: the same products as if every speaker sent a message at its own tick,
but at other steps, and never all of them at once.

Four to twenty rows of a matrix are interleaved, so that their sums share the load of a factor. The sum of a row is in
order of its columns, so the layout does not change a bit.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...cells import CELLS, PEEPHOLES
from ..model import Array, ExportError, Model, ModelLayer

FEWEST_ROWS, MOST_ROWS = 4, 20
"""How many rows of a matrix may be interleaved: with more, their sums would not stay in registers."""
LONGEST_CYCLE = 2**16
"""The worst step is searched among this many steps; schedules that repeat later have an upper bound instead."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some of a module's numbers, and what they are."""

    text: str
    """What they are, for a comment."""
    values: Array


@dataclass(frozen=True, eq=False)
class ModulePlace:
    """A module of a layer, and its places in the tables of the program."""

    layer: int
    """The number of its layer, from 1."""
    number: int
    """Its number in the layer, from 1."""
    period: int
    units: int
    hidden: int
    """The place of its first unit among those of all layers."""
    last: int
    """The number, among the modules of all layers, of the slowest module of its layer."""
    sums: int
    """The place of the first of its sums, those of the slowest speaker."""
    source: int
    """The place of the first input among the units of all layers; 0 for the first layer."""
    inputs: int


@dataclass(frozen=True, eq=False)
class PlannedModule(ModulePlace):
    """A module of a layer: its places, and its numbers."""

    parts: tuple[Part, ...]

    @property
    def values(self) -> Array:
        """All numbers of the module, in order."""
        return np.concatenate([part.values for part in self.parts])


@dataclass(frozen=True, eq=False)
class Plan:
    """A network with the places of all its numbers."""

    model: Model
    modules: tuple[PlannedModule, ...]
    sums: int
    """How many sums the state holds."""
    rows: int
    """How many rows of a matrix are interleaved."""

    @property
    def cell(self) -> str:
        """The cell of all layers."""
        return self.model.layers[0].cell

    @property
    def units(self) -> int:
        """The units of all layers."""
        return sum(layer.units for layer in self.model.layers)

    @property
    def peepholes(self) -> bool:
        """True for an LSTM with peepholes."""
        return self.model.layers[0].weight_ch is not None

    @property
    def is_chain(self) -> bool:
        """True if in every layer each period divides the next one."""
        return all(
            slow % fast == 0
            for layer in self.model.layers
            for fast, slow in zip(layer.schedule.periods, layer.schedule.periods[1:], strict=False)
        )

    @property
    def longest_period(self) -> int:
        """The longest period of all modules."""
        return max(module.period for module in self.modules)

    @property
    def clock_bits(self) -> int:
        """The bits of a countdown."""
        return next(bits for bits in (16, 32, 64) if self.longest_period < 2**bits)

    @property
    def state_bytes(self) -> int:
        """The size of the state on targets that align a number to its own size, at most to 8 bytes."""
        floats = self.units * CELLS[self.cell].parts + self.sums
        clock = self.clock_bits // 8
        alignment = max(4, clock)
        countdowns = -(-4 * floats // clock) * clock + clock * len(self.modules)
        return -(-(countdowns + len(self.modules)) // alignment) * alignment

    @property
    def constant_bytes(self) -> int:
        """The size of weights and biases, those of the readout included."""
        readout = [self.model.readout_weight, self.model.readout_bias]
        return 4 * (sum(module.values.size for module in self.modules) + sum(a.size for a in readout if a is not None))

    @property
    def readout_weights(self) -> Array:
        """The weights of the readout, in the order in which the C program reads them."""
        assert self.model.readout_weight is not None
        return interleave(self.model.readout_weight, self.rows)

    @property
    def readout_multiply_adds(self) -> int:
        """The multiply-adds of the readout."""
        return 0 if self.model.readout_weight is None else self.model.readout_weight.size

    @property
    def mean_multiply_adds(self) -> float:
        """The multiply-adds of a step on average, without the readout."""
        return float(sum(CELLS[layer.cell].gates * layer.schedule.operations(layer.inputs).cascade
                         for layer in self.model.layers))  # fmt: skip

    @property
    def has_exact_worst(self) -> bool:
        """True if `worst_multiply_adds` is the work of a step, and no upper bound."""
        return self.cycle <= LONGEST_CYCLE

    @property
    def worst_multiply_adds(self) -> int:
        """The multiply-adds of the step with the most work, without the readout and without work done before it.

        For schedules that take very long to repeat: those of a step at which all modules tick and hear all speakers.
        """
        return int(np.max(self._count_multiply_adds()))

    @property
    def worst_step(self) -> int:
        """The step after the first with the most multiply-adds, or one at which all modules tick if that is unknown."""
        return int(np.argmax(self._count_multiply_adds())) + 1 if self.has_exact_worst else self.cycle

    def _count_multiply_adds(self) -> "np.ndarray | int":
        """The multiply-adds of the steps 1 to `cycle`; an upper bound for schedules that take very long to repeat."""
        gates = CELLS[self.cell].gates
        t = np.arange(1, self.cycle + 1) if self.has_exact_worst else None
        work: np.ndarray | int = 0
        for i, listener in enumerate(self.modules):
            products: np.ndarray | int = listener.inputs
            for speaker in self.modules[i : listener.last + 1]:
                # the speaker has ticked since the listener's last tick
                is_heard = 1 if t is None else (t - 1) // speaker.period * speaker.period >= t - listener.period
                products = products + speaker.units * is_heard
            is_due = 1 if t is None else t % listener.period == 0
            work = work + gates * listener.units * products * is_due
        return work

    @property
    def cycle(self) -> int:
        """The steps after which all modules tick at once again."""
        return math.lcm(*(module.period for module in self.modules))


def plan_network(model: Model) -> Plan:
    """The plan of a model.

    Raises an ExportError if its layers differ in more than their sizes and periods.
    """
    kinds = {(layer.cell, layer.weight_ch is None) for layer in model.layers}
    if len(kinds) > 1:
        raise ExportError(f"all layers must have the same cell, got {', '.join(sorted(cell for cell, _ in kinds))}")
    rows = choose_rows(model)
    return Plan(model, tuple(_place_modules(model, rows)), sum(_count_sums(layer) for layer in model.layers), rows)


def choose_rows(model: Model) -> int:
    """How many rows of a matrix to interleave, for the fewest instructions of the modules' messages to themselves.

    With R rows side by side, a column takes R loads of weights, R products, R sums and 6 other instructions, and each
    block of rows has its sums to load and to store. A row that is left takes 8 instructions for every column.
    """

    def count_instructions(rows: int) -> float:
        count = 0.0
        for layer in model.layers:
            for period, size in zip(layer.schedule.periods, layer.schedule.sizes, strict=True):
                blocks, left = divmod(CELLS[layer.cell].gates * size, rows)
                count += (blocks * ((3 * rows + 6) * size + 2 * rows + 12) + left * (8 * size + 10)) / period
        return count

    return min(range(FEWEST_ROWS, MOST_ROWS + 1), key=count_instructions)


def _count_sums(layer: ModelLayer) -> int:
    return sum(_count_module_sums(layer, i) for i in range(layer.schedule.modules))


def _count_module_sums(layer: ModelLayer, i: int) -> int:
    """One vector of sums for every speaker; the own one of a GRU has a further part, the drive of gate n."""
    cell, size = CELLS[layer.cell], layer.schedule.sizes[i]
    return size * (cell.gates * (layer.schedule.modules - i) + cell.biases - cell.gates)


def _place_modules(model: Model, rows: int) -> Iterator[PlannedModule]:
    hidden = sums = modules = source = 0
    for number, layer in enumerate(model.layers):
        schedule = layer.schedule
        for i, (period, size) in enumerate(zip(schedule.periods, schedule.sizes, strict=True)):
            yield PlannedModule(
                layer=number + 1,
                number=i + 1,
                period=period,
                units=size,
                hidden=hidden + schedule.slices[i].start,
                last=modules + schedule.modules - 1,
                sums=sums,
                source=source,
                inputs=layer.inputs,
                parts=tuple(_list_parts(layer, i, rows)),
            )
            sums += _count_module_sums(layer, i)
        source = hidden
        hidden += layer.units
        modules += schedule.modules


def _list_parts(layer: ModelLayer, i: int, rows: int) -> Iterator[Part]:
    """The numbers of module i, in the order in which the C program reads them."""
    cell, units = CELLS[layer.cell], layer.schedule.slices[i]
    bias = np.zeros(cell.biases * layer.units, np.float32) if layer.bias is None else layer.bias
    # a GRU hears messages for n, r and z, and inputs for r, z and n; its sums are n's message, r, z, and n's drive
    is_gru = layer.cell == "gru"
    heard: Sequence[int] = (2, 0, 1) if is_gru else range(cell.gates)
    biases: Sequence[int] = (3, 0, 1, 2) if is_gru else range(cell.gates)
    names = {"lstm": "of i, f, g and o", "gru": "of n's message, r, z and n"}.get(layer.cell, "")
    yield Part(f"biases {names}".strip(), _select(bias, biases, layer.units, units).ravel())
    yield Part("inputs", interleave(_select(layer.weight_ih, range(cell.gates), layer.units, units), rows))
    if layer.weight_ch is not None:
        yield Part("peepholes of i, f and o", _select(layer.weight_ch, range(PEEPHOLES), layer.units, units).ravel())
    for j in reversed(range(i, layer.schedule.modules)):
        block = _select(layer.weight_hh, heard, layer.units, units)[:, layer.schedule.slices[j]]
        yield Part(f"messages from module {j + 1}", interleave(block, rows))


def _select(array: Array, gates: Sequence[int], total: int, units: slice) -> Array:
    """The rows of `units` for each of the gates, one gate after the other."""
    return np.concatenate([array[gate * total + units.start : gate * total + units.stop] for gate in gates])


def interleave(matrix: Array, rows: int) -> Array:
    """The numbers of a matrix, `rows` rows at a time and in these column by column; then the rows that are left.

    >>> interleave(np.arange(10, dtype=np.float32).reshape(5, 2), rows=4).tolist()
    [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0, 8.0, 9.0]
    """
    blocks = len(matrix) // rows
    whole = matrix[: blocks * rows].reshape(blocks, rows, matrix.shape[1]).transpose(0, 2, 1)
    return np.concatenate([whole.ravel(), matrix[blocks * rows :].ravel()])
