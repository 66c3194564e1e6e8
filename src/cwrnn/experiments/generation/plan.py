"""The runs of sequence generation, the paper's first task (section 4.1).

Networks without input learn to generate a sequence: SRN, LSTM and CW-RNN in four sizes, a hundred times each on five
snippets of music. Each method has a learning rate of its own, which is the same for all sizes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .. import paper
from ..networks.methods import MODELS
from ..sweep.planning import plan_learning_rates, plan_method
from ..sweep.run import Dataset, Run
from .training import GenerationSettings

MODEL_LEARNING_RATE = 1e-4
"""The learning rate of models of other papers except coRNN, the best of 1e-5, 1e-4 and 1e-3 after 300 epochs.

An echo state network does not use it.
"""

LEARNING_RATES = {
    **paper.GENERATION_LEARNING_RATES,
    "gru": 3e-4,
    "cw-lstm": 1e-4,
    "cw-gru": 3e-4,
    **dict.fromkeys(MODELS, MODEL_LEARNING_RATE),
    "cornn": 1e-3,
}
"""Learning rates, by method: the paper's, and ours for the methods that it does not have (`docs/paper.md`)."""


def plan(
    datasets: Iterable[Dataset],
    *,
    methods: Sequence[str] = paper.METHODS,
    sizes: Sequence[int] = paper.GENERATION_SIZES,
    runs: int = paper.RUNS,
    epochs: int = paper.GENERATION_EPOCHS,
    seed: int = 0,
    learning_rates: Mapping[str, float] = LEARNING_RATES,
    peepholes: bool = True,
    schedule: Schedule | None = None,
    task: str = "generation",
) -> list[Run]:
    """Every run of the task: each method in each size on each sequence, with `runs` seeds from `seed` on.

    A `schedule` takes the place of all sizes, for methods with clocks.

    >>> from .music import load_sequences
    >>> len(plan(load_sequences()))
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
            GenerationSettings(learning_rate=learning_rates[method], epochs=epochs),
            sizes=sizes,
            seeds=range(seed, seed + runs),
            peepholes=peepholes,
            schedule=schedule,
        )
    ]


def plan_search(
    datasets: Iterable[Dataset],
    *,
    learning_rates: Sequence[float],
    methods: Sequence[str] = paper.METHODS,
    **options: Any,
) -> list[Run]:
    """Every run of the search: those of `plan` with each learning rate, for all methods.

    >>> from .music import load_sequences
    >>> len(plan_search(load_sequences(), learning_rates=[1e-4, 1e-3], runs=4, sizes=[1000])) == 2 * 3 * 5 * 4
    True
    """
    return plan_learning_rates(plan, "search", list(datasets), learning_rates, methods, **options)
