"""A network in integers: weights of 8 bits, states of 16 bits and sums of 32 bits, none of which can overflow.

Every number is an integer times a unit. The units of inputs, of the outputs of ReLU units and of the cells of an LSTM
come from the ranges of a calibration; other units have outputs in [-1, 1], in units of 2^-15. Every row of a matrix has
a unit of its own, which is as small as 8 bits for its weights and 32 bits for its sum allow.

At a tick, the two sums of a row, its message with the bias and its drive, become one number of 32 bits in a unit that
all rows share, 2^-fraction_bits:

    z = floor(message / 2^p) factor_message + floor(drive / 2^q) factor_drive

The biases make up for what the divisions cut off on average, so both are as exact as with rounding. tanh and the
logistic function read z from a table. The range of z is chosen so that no sum of products within the ranges of their
factors can leave it. `integers.py` has the whole arithmetic, as Python.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...cells import CELLS, PEEPHOLES
from ..model import ExportError, Model, ModelLayer

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST_WEIGHT = 127
LARGEST_STATE = 2**15
"""The largest size of an input, an output of a unit or a cell."""
LARGEST_SUM = 2**31 - 1
Z_BITS = 30
"""Each of the two parts of z has at most this many bits, so that their sum has a sign and 31."""
FACTOR_BITS = 13
"""The bits of a factor. More would cost bits of the sum that it multiplies: both together have Z_BITS."""
LARGEST_SHIFT = 24
"""The most bits that a sum loses. Rows that would lose more are too small to matter."""
TABLE_STEPS = 32
"""The steps of the table of tanh from 0 to 1. It ends at TABLE_END, where tanh is 1 for 16 bits."""
TABLE_END = 8
LEAST_Z_RANGE = 3
"""The binary logarithm of the least range of z: that of the table."""
LARGEST_Z_RANGE = 10
"""The binary logarithm of the largest range of z, with which the table can be read: sums up to 1024."""
LEAST_OUTPUT_RANGE = -64
"""The binary logarithm of the least range of outputs."""
HEADROOM = 2.0
"""How many times as large as in the calibration a number may be before it saturates."""


@dataclass(frozen=True, eq=False)
class Rows:
    """A matrix in integers, with what makes its sums parts of z."""

    weights: Integers
    """(rows, columns), 8 bits."""
    bias: Integers
    """(rows), 32 bits, in the units of the sums."""
    unit: Floats
    """(rows), the real number for a sum of 1."""
    shifts: Integers
    """(rows), the bits that a sum loses before it is multiplied."""
    factors: Integers
    """(rows), 16 bits."""
    peepholes: Integers | None = None
    """(rows), 16 bits: the factor of the unit's own cell, whose product is part of z after a shift."""

    def select(self, rows: Integers) -> "Rows":
        """Some of the rows, in this order."""
        peepholes = None if self.peepholes is None else self.peepholes[rows]
        return Rows(
            self.weights[rows], self.bias[rows], self.unit[rows], self.shifts[rows], self.factors[rows], peepholes
        )


@dataclass(frozen=True, eq=False)
class QuantisedLayer:
    """A layer in integers. Rows are gate-major, as those of the model."""

    message: Rows
    """The products with the units of the layer."""
    drive: Rows
    """The products with the inputs of the layer."""


@dataclass(frozen=True)
class Ranges:
    """The largest sizes of numbers in a calibration."""

    inputs: tuple[float, ...]
    """Those of each input."""
    hidden: float
    """That of ReLU units; not used for other cells."""
    cells: float
    """That of the cells of an LSTM; not used for other cells."""


@dataclass(frozen=True, eq=False)
class QuantisedModel:
    """A model in integers."""

    model: Model
    layers: tuple[QuantisedLayer, ...]
    readout: Rows | None
    input_units: NDArray[np.float32]
    """(inputs), the real number for an input of 1."""
    hidden_bits: int
    """The output of a unit is in units of 2^-hidden_bits."""
    cell_bits: int
    """The cell of an LSTM is in units of 2^-cell_bits."""
    fraction_bits: int
    """z is in units of 2^-fraction_bits."""
    output_bits: int
    """The outputs are in units of 2^-output_bits."""
    peephole_shift: int = 0
    """The bits that the product of a peephole and a cell loses to become part of z."""

    @property
    def cell(self) -> str:
        """The cell of all layers."""
        return self.model.layers[0].cell


def quantise(model: Model, ranges: Ranges) -> QuantisedModel:
    """The model in integers, for numbers within HEADROOM times the ranges.

    Raises an ExportError if the sums of a layer are too large for the table of tanh.
    """
    cell = model.layers[0].cell
    hidden_bits = 15 - _find_exponent(ranges.hidden) if cell == "relu" else 15
    # the input of a cell is at most 1
    cell_bits = min(15, 15 - _find_exponent(ranges.cells)) if cell == "lstm" else 15
    largest = np.array([size if size > 0 else 1.0 for size in ranges.inputs])
    input_units = (HEADROOM * largest / (LARGEST_STATE - 1)).astype(np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        is_usable = np.isfinite(input_units) & np.isfinite(1 / input_units)
    if not is_usable.all():
        raise ExportError("the calibration has inputs that are out of the range of float32")
    parts = []
    for number, layer in enumerate(model.layers):
        units = input_units.astype(np.float64) if number == 0 else np.full(layer.inputs, 2.0**-hidden_bits)
        parts.append(_quantise_layer(layer, units, 2.0**-hidden_bits))
    # at least that of a ReLU unit, or of the table and of an LSTM's cells
    least = 15 - hidden_bits if cell == "relu" else max(LEAST_Z_RANGE, 15 - cell_bits)
    peepholes = [_spread_peepholes(layer) for layer in model.layers]
    z_range = max(
        max(_find_range(message, least, np.abs(own) * 2.0 ** (15 - cell_bits)), _find_range(drive, least))
        for (message, drive), own in zip(parts, peepholes, strict=True)
    )
    if cell != "relu" and z_range > LARGEST_Z_RANGE:
        raise ExportError(
            f"the weights and the inputs of the calibration are too large for int8: a unit may receive more than "
            f"{2**LARGEST_Z_RANGE}"
        )
    fraction_bits = Z_BITS - z_range
    if fraction_bits < hidden_bits:
        raise ExportError(
            "the weights are too large for int8: a unit may receive "
            f"{2.0 ** (z_range - 15 + hidden_bits):g} times as much as it did in the calibration"
        )
    readout, output_bits = None, hidden_bits
    if model.readout_weight is not None:
        bias = np.zeros(model.outputs) if model.readout_bias is None else model.readout_bias.astype(np.float64)
        rows = _quantise_rows(model.readout_weight.astype(np.float64) * 2.0**-hidden_bits, bias)
        output_bits = Z_BITS - _find_range(rows, LEAST_OUTPUT_RANGE)
        readout = _find_factors(rows, output_bits)
    # in units of z for a cell of 1, times as large a power of two as 16 bits allow
    exact = [own * 2.0 ** (fraction_bits - cell_bits) for own in peepholes]
    largest_peephole = max(float(np.abs(own).max()) for own in exact)
    shift = min(15, math.floor(math.log2((LARGEST_STATE - 1) / largest_peephole))) if largest_peephole > 0 else 0
    layers = []
    for (message, drive), own, layer in zip(parts, exact, model.layers, strict=True):
        integers = None if layer.weight_ch is None else np.rint(own * 2.0**shift).astype(np.int64)
        message = replace(_find_factors(message, fraction_bits), peepholes=integers)
        layers.append(_round_drives(cell, message, _find_factors(drive, fraction_bits)))
    for rows in (*(rows for done in layers for rows in (done.message, done.drive)), *([readout] if readout else [])):
        check_bounds(rows, shift)
    return QuantisedModel(
        model, tuple(layers), readout, input_units, hidden_bits, cell_bits, fraction_bits, output_bits, shift
    )


def make_table() -> Integers:
    """tanh from 0 to TABLE_END in TABLE_STEPS steps to 1, in units of 2^-15.

    >>> make_table()[[0, 1, 32, 256]].tolist()
    [0, 1024, 24956, 32768]
    """
    points = np.tanh(np.arange(TABLE_STEPS * TABLE_END + 1) / TABLE_STEPS)
    table: Integers = np.rint(LARGEST_STATE * points).astype(np.int64)
    return table


def bound_sums(rows: Rows) -> Integers:
    """The largest size that the sum of each row can have, (rows)."""
    bound: Integers = np.abs(rows.weights).sum(axis=1) * LARGEST_STATE + np.abs(rows.bias)
    return bound


def check_bounds(rows: Rows, peephole_shift: int = 0) -> None:
    """Raises an ExportError unless every sum of the rows fits 32 bits, and its part of z fits Z_BITS."""
    bound = bound_sums(rows)
    z = ((bound >> rows.shifts) + 1) * rows.factors
    if rows.peepholes is not None:
        z = z + (np.abs(rows.peepholes) * LARGEST_STATE >> peephole_shift) + 1
    if (bound > LARGEST_SUM).any() or (z > 2**Z_BITS).any():
        raise ExportError("the sums of a unit do not fit 32 bits")


def _find_exponent(largest: float) -> int:
    """The binary logarithm of the smallest power of two that is no less than HEADROOM times a size.

    >>> _find_exponent(1.0), _find_exponent(1.5), _find_exponent(0.0)
    (1, 2, 0)
    """
    return math.ceil(math.log2(HEADROOM * largest)) if largest > 0 else 0


def _spread_peepholes(layer: ModelLayer) -> Floats:
    """The peepholes of all rows of a layer, (rows): those of gate g are 0, and so are all if the layer has none."""
    own = np.zeros((CELLS[layer.cell].gates, layer.units))
    if layer.weight_ch is not None:
        own[[0, 1, 3]] = layer.weight_ch.reshape(PEEPHOLES, layer.units)
    return own.ravel()


def _quantise_layer(layer: ModelLayer, input_units: Floats, hidden_unit: float) -> tuple[Rows, Rows]:
    """Message and drive of a layer, without factors."""
    N, cell = layer.units, CELLS[layer.cell]
    bias = np.zeros(cell.biases * N) if layer.bias is None else layer.bias.astype(np.float64)
    message_bias, drive_bias = bias[: cell.gates * N].copy(), np.zeros(cell.gates * N)
    if layer.cell == "gru":
        # the reset gate acts on the message of n with its own bias, and not on the other one
        drive_bias[2 * N :], message_bias[2 * N :] = bias[2 * N : 3 * N], bias[3 * N :]
    message = _quantise_rows(layer.weight_hh.astype(np.float64) * hidden_unit, message_bias)
    return message, _quantise_rows(layer.weight_ih.astype(np.float64) * input_units, drive_bias)


def _quantise_rows(weights: Floats, bias: Floats) -> Rows:
    """The rows in integers, without factors.

    Args:
        weights: (rows, columns), the real number for an input of 1
        bias: (rows), real numbers
    """
    size = np.abs(weights)
    # every weight and the bias may be rounded up by a half, and the bias makes up for two divisions
    room = LARGEST_SUM - LARGEST_STATE * (weights.shape[1] + 1) - 2 ** (LARGEST_SHIFT + 1)
    if room < LARGEST_SUM // 2:
        raise ExportError(f"int8 takes at most {LARGEST_SUM // 2 // LARGEST_STATE:,} inputs or units of a layer")
    unit = np.maximum(
        size.max(axis=1, initial=0) / LARGEST_WEIGHT, (size.sum(axis=1) * LARGEST_STATE + abs(bias)) / room
    )
    # a row of zeros
    unit[unit == 0] = 1.0
    zeros = np.zeros(len(bias), np.int64)
    return Rows(
        weights=np.rint(weights / unit[:, None]).astype(np.int64),
        bias=np.rint(bias / unit).astype(np.int64),
        unit=unit,
        shifts=zeros,
        factors=zeros,
    )


def _find_range(rows: Rows, least: int, added: Floats | float = 0.0) -> int:
    """The binary logarithm of a range that no sum of the rows can leave, with `added` on top, and at least `least`."""
    largest = float((bound_sums(rows) * rows.unit + added).max(initial=0))
    # one per cent more, for the rounding of factors
    return max(least, math.ceil(math.log2(1.01 * largest))) if largest > 0 else least


def _find_factors(rows: Rows, bits: int) -> Rows:
    """The rows with the shifts and factors that turn their sums into units of 2^-bits, and with biases to match."""
    exact = rows.unit * 2.0**bits
    shifts = np.clip(FACTOR_BITS - 1 - np.floor(np.log2(exact)), 1, LARGEST_SHIFT).astype(np.int64)
    factors = np.where(bound_sums(rows) > 0, np.rint(exact * 2.0**shifts), 0).astype(np.int64)
    # the division of a sum rounds down; half of its last bit makes that a rounding to the nearest number
    return replace(rows, bias=rows.bias + (1 << shifts >> 1), shifts=shifts, factors=factors)


def _round_drives(cell: str, message: Rows, drive: Rows) -> QuantisedLayer:
    """The layer with drives that begin at 0, except those of a GRU: the biases of the messages have their halves."""
    if cell == "gru":
        return QuantisedLayer(message, drive)
    halves = np.where(message.factors > 0, drive.factors * 2.0**message.shifts / np.maximum(2 * message.factors, 1), 0)
    bias = message.bias + np.rint(np.minimum(halves, 2**LARGEST_SHIFT)).astype(np.int64)
    return QuantisedLayer(replace(message, bias=bias), replace(drive, bias=np.zeros_like(drive.bias)))
