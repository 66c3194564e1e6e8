"""Measuring a network: all measurements of `cwrnn.inspection`, within limits of time and memory."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cells import CELLS
from ...inspection import Inspection, inspect_layer
from ...layer import AnyLayer
from .inspected import InspectedNetwork

LONGEST_LAG = 1000
"""The longest lag of the memory, in steps, at most."""
LEAST_LAG = 32
"""The longest lag of the memory in the largest layers."""
MOST_DERIVATIVES = 2**25
"""The most derivatives of states by inputs that are kept at once: 256 MiB."""
MOST_PRODUCTS = 2e10
"""The approximate number of multiply-adds for measuring the memory, at most: about ten seconds."""


def measure_network(network: InspectedNetwork) -> Inspection:
    """Return all measurements of a network. Lags go up to the median length of the sequences."""
    remembered, longest = choose_remembered(network.layer, network.inputs)
    return inspect_layer(
        network.layer,
        network.inputs,
        network.respond,
        readout=network.readout,
        longest=longest,
        remembered=remembered,
    )


def choose_remembered(layer: AnyLayer, inputs: Sequence[NDArray[Any]]) -> tuple[Sequence[NDArray[Any]], int]:
    """Return the sequences on which the memory is measured, and the longest lag: all that takes seconds.

    The derivative of every state by every earlier input takes much memory and time in a large layer. Then long
    sequences are cut off, lags are shorter, and fewer sequences are used.
    """
    N, (gates, _, parts) = layer.hidden_size, CELLS[layer.cell]
    features = layer.input_size or gates * N
    most_steps = max(LEAST_LAG + 1, MOST_DERIVATIVES // (parts * N * features))
    sequences = [sequence[:most_steps] for sequence in inputs]
    longest = max(0, min(LONGEST_LAG, int(np.median([len(sequence) for sequence in sequences])) - 1))
    units = sum(size / period for size, period in zip(layer.schedule.sizes, layer.schedule.periods, strict=True))

    def count_products(steps: int) -> float:
        return gates * units * N * features * steps * min(steps, longest + 1)

    while longest > LEAST_LAG and count_products(len(sequences[0])) > MOST_PRODUCTS:
        longest //= 2
    products = np.cumsum([count_products(len(sequence)) for sequence in sequences])
    return sequences[: max(1, int(np.searchsorted(products, MOST_PRODUCTS, side="right")))], longest
