"""The runs of regression: networks of any method in any size, or with a schedule, on columns of tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from ..sweep.planning import plan_learning_rates, plan_method
from ..sweep.run import Run
from .columns import Columns
from .training import MOST_EPOCHS, RegressionSettings

LEARNING_RATES = {"srn": 1e-3, "lstm": 3e-3, "cw": 1e-3, "gru": 3e-3, "cw-lstm": 1e-2, "cw-gru": 1e-2}
"""Learning rates of Adam, by method: among the better of four on a made table of 2400 rows. Yours may need others."""
SIZE = 1000
"""Parameters of the networks, unless given."""


def plan(
    datasets: Iterable[Columns],
    *,
    methods: Sequence[str] = ("cw",),
    sizes: Sequence[int] = (SIZE,),
    runs: int = 1,
    epochs: int = MOST_EPOCHS,
    seed: int = 0,
    learning_rates: Mapping[str, float] = LEARNING_RATES,
    peepholes: bool = True,
    schedule: Schedule | None = None,
    task: str = "regression",
) -> list[Run]:
    """Every run of the task: each method in each size on each data set, with `runs` seeds from `seed` on.

    A `schedule` takes the place of all sizes, for methods with clocks.
    """
    return [
        run
        for method in methods
        for columns in datasets
        for run in plan_method(
            task,
            [columns],
            method,
            RegressionSettings(learning_rate=learning_rates[method], epochs=epochs, inputs=columns.inputs.shape[1]),
            sizes=sizes,
            seeds=range(seed, seed + runs),
            peepholes=peepholes,
            schedule=schedule,
        )
    ]


def plan_search(
    datasets: Iterable[Columns],
    *,
    learning_rates: Sequence[float],
    methods: Sequence[str] = ("cw",),
    **options: Any,
) -> list[Run]:
    """Every run of the search: those of `plan` with each learning rate, for all methods."""
    return plan_learning_rates(plan, "regression search", list(datasets), learning_rates, methods, **options)
