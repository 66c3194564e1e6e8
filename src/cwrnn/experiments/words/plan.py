"""Spoken words, the paper's second task (section 4.2): what is to run.

SRN, LSTM and CW-RNN in five sizes learn to tell 25 words apart that end alike, a hundred times each. All have one
learning rate. The LSTM's count of parameters in the paper's table 2 is that of cells without peepholes; whether it had
them is open, and they are an option here as in the first task.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .. import task as tasks
from ..networks.build import METHODS, WORD_SIZES
from ..sweep.planning import plan_method, plan_rates
from ..sweep.run import Run
from .corpus import Corpus
from .training import EPOCHS, Settings

TASK = tasks.WORDS
SEARCH = tasks.SEARCHES[TASK]

LEARNING_RATES = {"srn": 3e-4, "lstm": 3e-4, "cw": 3e-4}
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
"""Where the learning rate is searched."""


def plan(
    corpus: Corpus,
    *,
    methods: Sequence[str] = METHODS,
    sizes: Sequence[int] = WORD_SIZES,
    runs: int = 100,
    epochs: int = EPOCHS,
    seed: int = 0,
    learning_rates: Mapping[str, float] = LEARNING_RATES,
    peepholes: bool = True,
    noise: float = Settings.noise,
    schedule: Schedule | None = None,
    task: str = TASK,
) -> list[Run]:
    """Every run of the task: each method in each size, with as many seeds from `seed` on.

    With a schedule, that is the Clockwork RNN, in place of those of all sizes.
    """
    return [
        run
        for method in methods
        for run in plan_method(
            task,
            [corpus],
            method,
            Settings(
                learning_rate=learning_rates[method],
                epochs=epochs,
                noise=noise,
                inputs=corpus.settings.channels,
                outputs=len(corpus.words),
            ),
            sizes=sizes,
            seeds=range(seed, seed + runs),
            peepholes=peepholes,
            schedule=schedule,
        )
    ]


def plan_search(
    corpus: Corpus, *, rates: Sequence[float] = RATES, methods: Sequence[str] = METHODS, **options: Any
) -> list[Run]:
    """Every run of the search: the same with each learning rate, for all methods."""
    return plan_rates(plan, SEARCH, corpus, rates, methods, **options)
