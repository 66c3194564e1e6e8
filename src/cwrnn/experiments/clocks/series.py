"""Series of periods: the rules by which the modules of a schedule get their periods, and their sizes at one budget.

    exponential-2       1, 2, 4, 8, ...: the paper's series
    exponential-1.5     the same with another base; exponential-3 and exponential-4 too
    linear              1, 2, 3, 4, ...
    fibonacci           1, 2, 3, 5, 8, ...
    logarithmic         periods that grow as a logarithm, up to the paper's longest: dense among the slow modules
    random              periods drawn at random, once
    spectrum            the paper's series, with modules that are larger where the data have more energy

The paper's discussion (section 5) names most of these and leaves them untried.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ...schedule import Schedule
from ..errors import ArgumentError
from ..networks.build import schedule_parameter_count

PAPER_SERIES = "exponential-2"
SERIES = (PAPER_SERIES, "exponential-1.5", "exponential-3", "linear", "fibonacci", "logarithmic", "random", "spectrum")
"""The series that are compared unless others are asked for."""
ALL_SERIES = (*SERIES, "exponential-4")

MakeSchedule = Callable[[int], Schedule]
"""Returns the schedule of a series for a number of units."""


def define_series(name: str, modules: int, *, seed: int = 0, signal: NDArray[np.float64] | None = None) -> MakeSchedule:
    """Return the function that makes the schedules of a series.

    Args:
        name: one of ALL_SERIES
        modules: number of modules; "spectrum" has fewer if the signal is too short for the slowest of them
        seed: seed of the draw of "random"
        signal: (time,) or (time, channels), the data whose energy "spectrum" measures; other series ignore it

    >>> [define_series(name, 5)(10).periods for name in ("exponential-3", "linear", "fibonacci")]
    [(1, 3, 9, 27, 81), (1, 2, 3, 4, 5), (1, 2, 3, 5, 8)]
    """
    if name not in ALL_SERIES:
        raise ArgumentError("series", f"expected some of {', '.join(ALL_SERIES)}, got {name!r}")
    if name.startswith("exponential-"):
        base = float(name.removeprefix("exponential-"))
        # an integer base stays exact
        return lambda units: Schedule.exponential(units, modules, int(base) if base.is_integer() else base)
    if name == "spectrum":
        if signal is None:
            raise ValueError("the series 'spectrum' needs a signal")
        most = min(modules, int(math.log2(max(1, len(signal) // 2))) + 1)
        return lambda units: Schedule.from_spectrum(signal, units, most)
    makers: dict[str, MakeSchedule] = {
        "linear": lambda units: Schedule.linear(units, modules),
        "fibonacci": lambda units: Schedule.fibonacci(units, modules),
        "logarithmic": lambda units: Schedule.logarithmic(units, modules),
        "random": lambda units: Schedule.random(units, modules, seed),
    }
    return makers[name]


def fit_budget(make: MakeSchedule, modules: int, size: int, inputs: int, outputs: int, method: str = "cw") -> Schedule:
    """Return the largest schedule that has at most `size` parameters.

    Args:
        make: makes the schedule for a number of units
        modules: number of modules, each of which needs a unit
        size: number of parameters, at most
        inputs: features of the input
        outputs: outputs of the network
        method: the method of the network, which decides how many parameters a schedule has

    >>> fit_budget(define_series("linear", 9), 9, 1000, 0, 1).hidden_size
    40
    """

    def fits(units: int) -> bool:
        return schedule_parameter_count(method, make(units), inputs, outputs) <= size

    if not fits(modules):
        least = schedule_parameter_count(method, make(modules), inputs, outputs)
        raise ArgumentError("size", f"expected at least {least} parameters for {modules} modules, got {size}")
    units = modules
    while fits(2 * units):
        units *= 2
    step = units
    while step > 0:
        while fits(units + step):
            units += step
        step //= 2
    return make(units)


def make_paper_schedule(modules: int, size: int, inputs: int, outputs: int, method: str = "cw") -> Schedule:
    """Return the paper's schedule, periods 1, 2, 4, ..., with at most `size` parameters.

    >>> make_paper_schedule(4, 200, 0, 1).periods
    (1, 2, 4, 8)
    """
    try:
        return fit_budget(define_series(PAPER_SERIES, modules), modules, size, inputs, outputs, method)
    except ArgumentError:
        raise
    except ValueError as error:
        raise ArgumentError("modules", f"{PAPER_SERIES} with {modules} modules: {error}") from error
