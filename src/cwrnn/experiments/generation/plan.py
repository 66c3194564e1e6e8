"""Sequence generation, the paper's first task (section 4.1): what is to run.

Networks without input learn to generate a sequence: SRN, LSTM and CW-RNN, in four sizes, a hundred times each on five
snippets of music. The learning rate was searched for each method and is one for all sizes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .. import task as tasks
from ..networks.build import METHODS, SIZES
from ..sweep.planning import plan_method, plan_rates
from ..sweep.run import Dataset, Run
from .training import EPOCHS, LEARNING_RATES, Settings

TASK = tasks.GENERATION
SEARCH = tasks.SEARCHES[TASK]

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""Where the learning rate is searched."""


def plan(
    datasets: Iterable[Dataset],
    *,
    methods: Sequence[str] = METHODS,
    sizes: Sequence[int] = SIZES,
    runs: int = 100,
    epochs: int = EPOCHS,
    seed: int = 0,
    learning_rates: Mapping[str, float] = LEARNING_RATES,
    peepholes: bool = True,
    schedule: Schedule | None = None,
    task: str = TASK,
) -> list[Run]:
    """Every run of the task: each method in each size on each sequence, with as many seeds from `seed` on.

    With a schedule, that is the Clockwork RNN, in place of those of all sizes.

    >>> from .music import load
    >>> len(plan(load()))
    6000
    """
    datasets = list(datasets)
    return [
        run
        for method in methods
        for run in plan_method(
            task,
            datasets,
            method,
            Settings(learning_rate=learning_rates[method], epochs=epochs),
            sizes=sizes,
            seeds=range(seed, seed + runs),
            peepholes=peepholes,
            schedule=schedule,
        )
    ]


def plan_search(
    datasets: Iterable[Dataset], *, rates: Sequence[float] = RATES, methods: Sequence[str] = METHODS, **options: Any
) -> list[Run]:
    """Every run of the search: the same with each learning rate, for all methods.

    >>> from .music import load
    >>> len(plan_search(load(), runs=4, sizes=[1000])) == 6 * 3 * 5 * 4
    True
    """
    return plan_rates(plan, SEARCH, list(datasets), rates, methods, **options)
