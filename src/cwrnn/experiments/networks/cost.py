"""The multiply-adds of one time step of a network: what it costs to run."""

from functools import cache

from ...cells import CELLS
from ...schedule import Schedule
from .methods import ALL_METHODS
from .models.table import find_layer_class


@cache
def count_multiply_adds(method: str, hidden: int, inputs: int, outputs: int, schedule: str | None = None) -> float:
    """The multiply-adds of the hidden layer and its readout per time step, averaged over the clock.

    With clocks, a module that does not tick costs nothing, neither in the layer nor in the readout. For a Skip RNN and
    a history compressor it is an upper bound, because the input decides how often they compute. No layer is built.

    Args:
        method: one of ALL_METHODS
        hidden: the hidden units
        inputs: features of the input
        outputs: outputs of the network
        schedule: the modules of a network with clocks, as `Schedule.parse` reads them; None for a single module

    >>> count_multiply_adds("srn", 100, 1, 10), count_multiply_adds("cw", 100, 1, 10, "1:50,4:50")
    (11100.0, 4437.5)
    """
    chosen = ALL_METHODS[method]
    if chosen.model:
        layer = find_layer_class(chosen)
        return layer.count_multiply_adds(inputs, hidden) + outputs * layer.count_states(hidden)
    modules = Schedule.exponential(hidden, 1) if schedule is None else Schedule.parse(schedule)
    ticking = sum(size / period for size, period in zip(modules.sizes, modules.periods, strict=True))
    return CELLS[chosen.cell].gates * modules.operations(inputs).cascade + outputs * ticking
