"""The search of `evolve_clocks`: evolution finds periods, and on request sizes, without a derivative of a clock.

Covariance matrix adaptation (the package `cma`) moves a cloud of candidates through the logarithms of the periods. The
periods of a candidate are rounded to integers, and it has as many units as the budget of parameters allows.

The search depends only on its seed and on the errors of the candidates. If the errors come from a store, a search that
was interrupted can be repeated: it makes the same candidates, and none of them is trained twice.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ..errors import ArgumentError
from ..limits import LARGEST_GENERATIONS, LARGEST_POPULATION, check_count
from .series import fit_budget

SPREAD = 1.2
"""The standard deviation of the binary logarithm of a period in the first generation."""
LARGEST_SEED = 2**31
"""The largest seed of a search. The package `cma` takes seeds of 32 bits."""
WORST = 10.0
"""The largest error that counts; a candidate whose error is larger, infinite or NaN gets this one."""


@dataclass(frozen=True)
class SearchSpace:
    """The schedules that can be found."""

    modules: int
    longest: int
    """The longest period."""
    size: int
    """Number of parameters, at most."""
    inputs: int
    outputs: int
    sizes: bool = False
    """True if the sizes of the modules are searched too; otherwise all modules have the same size."""
    method: str = "cw"
    """The method of the networks, which decides how many parameters a schedule has."""

    def __post_init__(self) -> None:
        if self.modules < 2:
            raise ArgumentError("modules", f"expected at least 2 modules to search, got {self.modules}")
        if self.longest < 2:
            raise ArgumentError("longest", f"expected a longest period of at least 2, got {self.longest}")

    @property
    def start(self) -> NDArray[np.float64]:
        """The point at which the search starts: periods evenly spread, modules of the same size."""
        periods = np.linspace(0, math.log2(self.longest), self.modules + 2)[1:-1]
        return np.concatenate((periods, np.zeros(self.modules * self.sizes)))

    @property
    def bounds(self) -> tuple[list[float], list[float]]:
        """The lowest and the highest value of every coordinate."""
        more = self.modules * self.sizes
        return [0.0] * self.modules + [-2.0] * more, [math.log2(self.longest)] * self.modules + [2.0] * more

    def decode(self, point: NDArray[np.float64]) -> Schedule:
        """Return the schedule at a point.

        >>> SearchSpace(3, 32, 500, 0, 1).decode(np.array([1.6, 0.0, 4.4])).periods
        (1, 3, 21)
        """
        periods = [min(self.longest, max(1, round(2.0 ** float(x)))) for x in point[: self.modules]]
        shares = 2.0 ** point[self.modules :] if self.sizes else np.ones(self.modules)

        def make(units: int) -> Schedule:
            if not self.sizes:
                return Schedule.from_periods(units, periods)
            # every module gets one unit, and the others are divided by the shares, the largest remainders first
            exact = (units - self.modules) * shares / shares.sum()
            counts = np.floor(exact).astype(int)
            rest = np.argsort(-(exact - counts), kind="stable")[: units - self.modules - int(counts.sum())]
            counts[rest] += 1
            return Schedule(tuple(periods), tuple((counts + 1).tolist()))

        return fit_budget(make, self.modules, self.size, self.inputs, self.outputs, self.method)


@dataclass(frozen=True)
class JudgedGeneration:
    """One generation of candidates with their errors."""

    number: int
    """Counted from 1."""
    schedules: tuple[Schedule, ...]
    errors: tuple[float, ...]
    best: Schedule
    """The best schedule of this and all earlier generations."""
    best_error: float


def search_schedules(
    space: SearchSpace,
    judge: Callable[[Sequence[Schedule]], Sequence[float]],
    *,
    generations: int = 15,
    population: int = 12,
    seed: int = 0,
) -> Iterator[JudgedGeneration]:
    """Yield the generations of a search, each when its candidates have been judged.

    Args:
        space: the schedules that can be found
        judge: returns the errors of schedules, lower is better; NaN and infinity are the worst. It is not called
            twice with the same schedule
        generations: number of generations, at least 1
        population: number of candidates in a generation, at least 4
        seed: the same seed gives the same search
    """
    check_search(generations, population, seed)
    cma = require("cma", extra="clocks", purpose="evolving clocks")
    options = {"bounds": list(space.bounds), "seed": seed + 1, "popsize": population, "verbose": -9}
    known: dict[Schedule, float] = {}
    random_state = _RandomState()
    with random_state.use():
        strategy = cma.CMAEvolutionStrategy(space.start, SPREAD, options)
    for number in range(1, generations + 1):
        with random_state.use():
            points = strategy.ask()
        schedules = [space.decode(np.asarray(point)) for point in points]
        new = list(dict.fromkeys(schedule for schedule in schedules if schedule not in known))
        # a search that has settled makes no new candidates
        if new:
            known |= zip(new, (_bound_error(error) for error in judge(new)), strict=True)
        errors = [known[schedule] for schedule in schedules]
        with random_state.use():
            # evolution uses only the ranks of the errors
            strategy.tell(points, errors)
        best = min(known, key=lambda schedule: (known[schedule], schedule.spec))
        yield JudgedGeneration(number, tuple(schedules), tuple(errors), best, known[best])


def check_search(generations: int, population: int, seed: int) -> None:
    """Raise an ArgumentError if there are too few generations or candidates, or if the seed is too large."""
    check_count("generations", generations, LARGEST_GENERATIONS)
    check_count("population", population, LARGEST_POPULATION, least=4)
    if not 0 <= seed <= LARGEST_SEED:
        raise ArgumentError("seed", f"expected a number from 0 to 2^31, got {seed}")


def _bound_error(error: float) -> float:
    return min(error, WORST) if math.isfinite(error) else WORST


class _RandomState:
    """A state for numpy's global generator, from which `cma` draws; the user's state is restored after every use."""

    def __init__(self) -> None:
        self._state = np.random.RandomState(0).get_state()

    @contextmanager
    def use(self) -> Iterator[None]:
        users = np.random.get_state()
        np.random.set_state(self._state)
        try:
            yield
        finally:
            self._state = np.random.get_state()
            np.random.set_state(users)
