"""The arithmetic of an int8 network, in Python: every integer that the C program computes, bit for bit.

It has no messages that are kept: sums of integers do not depend on their order, so there is nothing to imitate.
"""

import numpy as np
from numpy.typing import NDArray

from .quantisation import (
    LARGEST_STATE,
    TABLE_END,
    TABLE_STEPS,
    Integers,
    QuantisedModel,
    Rows,
    make_table,
)

TABLE = make_table()


def quantise_inputs(quantised: QuantisedModel, inputs: NDArray[np.float32]) -> Integers:
    """The inputs (..., I) as integers; those out of range are cut off."""
    factors = np.float32(1) / quantised.input_units
    numbers = inputs.astype(np.float32) * factors
    numbers = np.clip(numbers, np.float32(1 - LARGEST_STATE), np.float32(LARGEST_STATE - 1))
    integers: Integers = np.trunc(numbers + np.copysign(np.float32(0.5), numbers)).astype(np.int64)
    return integers


def compute_outputs(quantised: QuantisedModel, inputs: Integers) -> Integers:
    """The outputs (T, B, O) for the integer inputs (T, B, I), from the start of a stream."""
    hidden = inputs
    for number in range(len(quantised.layers)):
        hidden = _compute_layer(quantised, number, hidden)
    if quantised.readout is None:
        return hidden
    return _rescale(_multiply(hidden, quantised.readout), quantised.readout)


def tanh(z: Integers, fraction_bits: int) -> Integers:
    """tanh of z in units of 2^-15: a table with lines between its points."""
    size = np.abs(z)
    bits = fraction_bits - int(np.log2(TABLE_STEPS))
    index = np.minimum(size >> bits, TABLE_STEPS * TABLE_END - 1)
    between = (size >> (bits - 15)) & 0x7FFF
    low = TABLE[index]
    value = np.where(
        size >> bits >= TABLE_STEPS * TABLE_END, LARGEST_STATE, low + ((TABLE[index + 1] - low) * between >> 15)
    )
    return np.where(z < 0, -value, value)


def logistic(z: Integers, fraction_bits: int) -> Integers:
    """The logistic function of z in units of 2^-15, from 0 to 2^15."""
    return (LARGEST_STATE + tanh(z >> 1, fraction_bits)) >> 1


def saturate(values: Integers) -> Integers:
    """The nearest integers of 16 bits."""
    return np.clip(values, -LARGEST_STATE, LARGEST_STATE - 1)


def _multiply(values: Integers, rows: Rows) -> Integers:
    """The sums (..., rows) for the values (..., columns)."""
    # the sums have at most 31 bits, which float64 holds exactly, and its products are fast
    products = values.astype(np.float64) @ rows.weights.T.astype(np.float64)
    sums: Integers = products.astype(np.int64) + rows.bias
    return sums


def _rescale(sums: Integers, rows: Rows) -> Integers:
    """The sums (..., rows) in the unit that all rows share."""
    scaled: Integers = (sums >> rows.shifts) * rows.factors
    return scaled


def _compute_layer(quantised: QuantisedModel, number: int, inputs: Integers) -> Integers:
    """The outputs (T, B, N) of the units of a layer."""
    layer, schedule = quantised.layers[number], quantised.model.layers[number].schedule
    N = schedule.hidden_size
    drives = _rescale(_multiply(inputs, layer.drive), layer.drive)
    periods = np.repeat(schedule.periods, schedule.sizes)
    state = np.zeros((2, inputs.shape[1], N), np.int64)
    states = np.zeros((*inputs.shape[:2], N), np.int64)
    for t, drive in enumerate(drives):
        units = np.flatnonzero(t % periods == 0)
        rows = np.concatenate([gate + units for gate in range(0, drive.shape[-1], N)])
        state[..., units] = _tick(quantised, layer.message.select(rows), drive[:, rows], state, units)
        states[t] = state[0]
    return states


def _tick(quantised: QuantisedModel, message: Rows, drive: Integers, state: Integers, units: Integers) -> Integers:
    """The state (2, B, K) of the K units that tick: their outputs and their cells.

    Args:
        quantised: the network
        message: the rows of these units, gate-major
        drive: (B, rows), in units of z
        state: (2, B, N), before the tick
        units: (K), the numbers of the units
    """
    bits, cell = quantised.fraction_bits, quantised.cell
    hidden, cells = state[0][:, units], state[1][:, units]
    heard = _rescale(_multiply(state[0], message), message)
    z = heard + drive
    if cell == "tanh":
        hidden = saturate(tanh(z, bits))
    elif cell == "relu":
        hidden = np.clip(z >> (bits - quantised.hidden_bits), 0, LARGEST_STATE - 1)
    elif cell == "lstm":
        i, f, g, o = np.split(z, 4, axis=1)
        own = np.zeros((4, len(units)), np.int64)
        if message.peepholes is not None:
            own = message.peepholes.reshape(4, len(units))
        i, f = (gate + (own[k] * cells >> quantised.peephole_shift) for k, gate in enumerate((i, f)))
        added = logistic(i, bits) * tanh(g, bits) >> (15 - quantised.cell_bits)
        cells = saturate((logistic(f, bits) * cells + added + 2**14) >> 15)
        o = o + (own[3] * cells >> quantised.peephole_shift)
        hidden = saturate((logistic(o, bits) * tanh(cells << (bits - quantised.cell_bits), bits) + 2**14) >> 15)
    else:
        r, z_gate, _ = np.split(z, 3, axis=1)
        n = np.split(heard, 3, axis=1)[2]
        kept = logistic(z_gate, bits)
        new = tanh((n >> 12) * (logistic(r, bits) >> 3) + np.split(drive, 3, axis=1)[2], bits)
        hidden = saturate(((LARGEST_STATE - kept) * new + kept * hidden + 2**14) >> 15)
    return np.stack([hidden, cells])
