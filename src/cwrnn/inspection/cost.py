"""Cost: the multiply-adds and the parameters of each module."""

from dataclasses import dataclass

import numpy as np

from ..cells import CELLS, PEEPHOLES
from ..schedule import Schedule
from .states import Array


@dataclass(frozen=True)
class Cost:
    """Multiply-adds per time step of each module, averaged over the clock, and the number of its parameters."""

    recurrent: Array
    """(G,): multiply-adds for the message of each module to itself and all faster ones, once per tick."""
    input: Array
    """(G,): multiply-adds for reading the input, once per tick."""
    readout: Array
    """(G,): multiply-adds for the module's part of the readout, once per tick."""
    dense: float
    """The multiply-adds of a layer of the same cells and the same size whose units all read each other at every step,
    such as an Elman network (SRN), and of its readout."""

    parameters: Array
    """(G,): the parameters of each module that exist: the weights that it reads with, its biases, and its part of the
    readout's weights. The zeros that `weight_hh` stores from fast modules to slow ones are not counted."""

    @property
    def total(self) -> Array:
        """(G,): all multiply-adds of each module."""
        return self.recurrent + self.input + self.readout


def count_operations(
    schedule: Schedule,
    input_size: int,
    output_size: int,
    *,
    bias: bool = True,
    cell: str = "tanh",
    peepholes: bool = False,
) -> Cost:
    """The multiply-adds per time step of each module, as a layer and Readout compute them, and its parameters.

    The products with weights are counted. The few operations per unit that combine the gates are not.

    Args:
        schedule: periods and sizes of the modules
        input_size: I, the number of features of the input
        output_size: the number of outputs of the readout
        bias: whether the layer has biases, which count as parameters. Default: True
        cell: the cell of the layer: "tanh", "relu", "lstm" or "gru". Default: "tanh"
        peepholes: whether the layer has peepholes, which count as parameters. Default: False

    >>> float(count_operations(Schedule.exponential(1024, 8), 0, 0).total.sum())  # Schedule.operations counts the same
    64256.0
    """
    N = schedule.hidden_size
    sizes, periods = np.array(schedule.sizes, dtype=np.float64), np.array(schedule.periods, dtype=np.float64)
    # a module sends to itself and all faster modules, which come before it
    readers = np.array([units.stop for units in schedule.slices])
    read = np.array([N - units.start for units in schedule.slices])
    gates, biases, _ = CELLS[cell]
    own = biases * bias + PEEPHOLES * peepholes
    return Cost(
        recurrent=gates * sizes * readers / periods,
        input=gates * sizes * input_size / periods,
        readout=sizes * output_size / periods,
        dense=float(N * (gates * (N + input_size) + output_size)),
        parameters=sizes * (gates * (read + input_size) + own + output_size),
    )
