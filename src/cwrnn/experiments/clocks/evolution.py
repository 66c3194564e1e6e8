"""Evolved clocks: periods, and by option sizes, found by evolution, which needs no derivative of a clock.

Covariance matrix adaptation (the package `cma`) moves a cloud of candidates through the logarithms of the periods; a
candidate's periods are rounded to integers. Each is judged by networks that are trained from a few initial weights, all
of a generation in parallel. Every candidate has as many units as the budget of parameters allows.

The search is a function of its seed and of the errors that it is told, and these lie in a store: a search that was
interrupted is repeated, and what was trained is not trained again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ..sweep.run import FINISHED, Record
from .comparison import at_budget

SPREAD = 1.2
"""Of the first generation: standard deviation of the binary logarithm of a period."""
WORST = 10.0
"""What a candidate counts at most, and one of which no run finishes."""


@dataclass(frozen=True)
class Space:
    """What is searched."""

    modules: int
    longest: int
    """Period, at most."""
    size: int
    """Parameters, at most."""
    inputs: int
    outputs: int
    sizes: bool = False
    """Whether the modules' shares of the units are searched too; else they are even."""

    def __post_init__(self) -> None:
        if self.modules < 2:
            raise ValueError(f"modules must be at least 2, got {self.modules}: one has nothing to be searched with")
        if self.longest < 2:
            raise ValueError(f"the longest period must be at least 2, got {self.longest}")

    @property
    def start(self) -> NDArray[np.float64]:
        """Periods evenly spread, sizes even."""
        periods = np.linspace(0, math.log2(self.longest), self.modules + 2)[1:-1]
        return np.concatenate((periods, np.zeros(self.modules * self.sizes)))

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """The lowest and the highest of every coordinate."""
        more = self.modules * self.sizes
        return [0.0] * self.modules + [-2.0] * more, [math.log2(self.longest)] * self.modules + [2.0] * more

    def decode(self, point: NDArray[np.float64]) -> Schedule:
        """The schedule at a point.

        >>> Space(3, 32, 500, 0, 1).decode(np.array([1.6, 0.0, 4.4])).periods
        (1, 3, 21)
        """
        periods = [min(self.longest, max(1, round(2.0 ** float(x)))) for x in point[: self.modules]]
        shares = 2.0 ** point[self.modules :] if self.sizes else np.ones(self.modules)

        def make(units: int) -> Schedule:
            if not self.sizes:
                return Schedule.from_periods(units, periods)
            # one unit each, and the others by their shares, the largest remainders first
            exact = (units - self.modules) * shares / shares.sum()
            counts = np.floor(exact).astype(int)
            rest = np.argsort(-(exact - counts), kind="stable")[: units - self.modules - int(counts.sum())]
            counts[rest] += 1
            return Schedule(tuple(periods), tuple((counts + 1).tolist()))

        return at_budget(make, self.modules, self.size, self.inputs, self.outputs)


@dataclass(frozen=True)
class Generation:
    """What one generation came to."""

    number: int
    """From 1 on."""
    schedules: tuple[Schedule, ...]
    errors: tuple[float, ...]
    best: Schedule
    """Of all so far."""
    best_error: float


def evolve(
    space: Space,
    judge: Callable[[Sequence[Schedule]], Sequence[float]],
    *,
    generations: int = 15,
    population: int = 12,
    seed: int = 0,
) -> Iterator[Generation]:
    """The generations, each when it has been judged; the last one's best is what the search found.

    Args:
        space: what is searched
        judge: the errors of schedules, the lower the better; NaN and infinity are the worst
        generations: how many
        population: candidates of each
        seed: the same search for the same seed
    """
    if generations < 1 or population < 4:
        raise ValueError(f"expected 1 generation or more of 4 or more, got {generations} of {population}")
    cma = require("cma", extra="clocks", purpose="evolving clocks")
    options = {"bounds": list(space.bounds), "seed": seed + 1, "popsize": population, "verbose": -9}
    known: dict[Schedule, float] = {}
    random = _Randomness()
    with random():
        strategy = cma.CMAEvolutionStrategy(space.start, SPREAD, options)
    for number in range(1, generations + 1):
        with random():
            points = strategy.ask()
        schedules = [space.decode(np.asarray(point)) for point in points]
        new = list(dict.fromkeys(schedule for schedule in schedules if schedule not in known))
        if new:
            # a search that has settled has none
            known |= zip(new, (_bounded(error) for error in judge(new)), strict=True)
        errors = [known[schedule] for schedule in schedules]
        with random():
            # evolution goes by ranks alone
            strategy.tell(points, errors)
        best = min(known, key=lambda schedule: (known[schedule], schedule.spec))
        yield Generation(number, tuple(schedules), tuple(errors), best, known[best])


def fitness(records: Sequence[Record]) -> float:
    """The median error; of words the lowest cross entropy of the training set, since the test set is not to be used."""
    errors = []
    for record in records:
        if record.status != FINISHED or record.curve is None:
            errors.append(math.inf)
        elif record.curve.shape[1] > 2:
            errors.append(float(record.curve[:, 1].min()))
        else:
            errors.append(record.error)
    return float(np.median(errors))


def _bounded(error: float) -> float:
    return min(error, WORST) if math.isfinite(error) else WORST


class _Randomness:
    """`cma` draws from numpy's one global generator: here it has a state of its own, and the user's is left alone."""

    def __init__(self) -> None:
        self._state = np.random.RandomState(0).get_state()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        theirs = np.random.get_state()
        np.random.set_state(self._state)
        try:
            yield
        finally:
            self._state = np.random.get_state()
            np.random.set_state(theirs)
