"""Weights: how large the weights between modules, from the input and to the output are."""

import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from ..cells import CELLS
from ..layer import AnyLayer
from .states import Array, copy_layer


@dataclass(frozen=True)
class WeightNorms:
    """How large the weights of each module are."""

    recurrent: Array
    """(G, G): root mean square of the weights from the module of the column to the module of the row, over all gates;
    NaN below the diagonal, where there are no weights."""
    input: Array
    """(G,): norm of the weights from the input to all gates; 0 without an input."""
    output: Array
    """(G,): norm of the readout's weights; NaN without a readout."""


def measure_weights(layer: AnyLayer, readout: nn.Linear | None) -> WeightNorms:
    """How large the weights from module to module, from the input and to the output are.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        readout: a linear layer from its hidden units to the outputs, or None

    >>> from cwrnn import ClockworkRNN
    >>> norms = measure_weights(ClockworkRNN(3, 8, schedule=[1, 4]), nn.Linear(8, 1))
    >>> norms.recurrent.shape, bool(np.isnan(norms.recurrent[1, 0]))
    ((2, 2), True)
    """
    schedule = layer.schedule
    copy = copy_layer(layer)
    gates, G = CELLS[layer.cell].gates, schedule.modules
    weight = copy.weight_hh_l0.detach().unflatten(0, (gates, schedule.hidden_size))
    from_input = copy.weight_ih_l0.detach().unflatten(0, (gates, schedule.hidden_size))
    recurrent = np.full((G, G), np.nan)
    for i in range(G):
        for j in range(i, G):
            block = weight[:, schedule.slices[i], schedule.slices[j]]
            recurrent[i, j] = float(block.square().mean().sqrt())
    return WeightNorms(
        recurrent,
        np.array([float(from_input[:, units].norm()) for units in schedule.slices]),
        np.array([_norm_of_columns(readout, units) for units in schedule.slices]),
    )


def _norm_of_columns(readout: nn.Linear | None, units: slice) -> float:
    return math.nan if readout is None else float(readout.weight.detach()[:, units].double().norm())
