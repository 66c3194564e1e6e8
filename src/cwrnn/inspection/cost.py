"""Cost: the multiply-adds of each module."""

from dataclasses import dataclass

import numpy as np

from ..schedule import Schedule
from .states import Array


@dataclass(frozen=True)
class Cost:
    """Multiply-adds per time step of each module, averaged over the clock."""

    recurrent: Array
    """(G,): multiply-adds for the message of each module to itself and all faster ones, once per tick."""
    input: Array
    """(G,): multiply-adds for reading the input, once per tick."""
    readout: Array
    """(G,): multiply-adds for the module's part of the readout, once per tick."""
    dense: float
    """The multiply-adds of an Elman network (SRN) of the same size, whose units all read each other at every step."""

    @property
    def total(self) -> Array:
        """(G,): all multiply-adds of each module."""
        return self.recurrent + self.input + self.readout


def count_operations(schedule: Schedule, input_size: int, output_size: int) -> Cost:
    """The multiply-adds per time step of each module, as ClockworkRNN and Readout compute them.

    Args:
        schedule: periods and sizes of the modules
        input_size: I, the number of features of the input
        output_size: the number of outputs of the readout

    >>> float(count_operations(Schedule.exponential(1024, 8), 0, 0).total.sum())  # Schedule.operations counts the same
    64256.0
    """
    N = schedule.hidden_size
    sizes, periods = np.array(schedule.sizes, dtype=np.float64), np.array(schedule.periods, dtype=np.float64)
    # a module sends to itself and all faster modules, which come before it
    readers = np.array([units.stop for units in schedule.slices])
    return Cost(
        recurrent=sizes * readers / periods,
        input=sizes * input_size / periods,
        readout=sizes * output_size / periods,
        dense=float(N * (N + input_size + output_size)),
    )
