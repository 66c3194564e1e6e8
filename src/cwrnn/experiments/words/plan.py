"""The runs of spoken words, the paper's second task (section 4.2).

SRN, LSTM and CW-RNN in five sizes learn to tell apart 25 words that end alike, a hundred times each. All have one
learning rate. The parameter counts of the LSTM in the paper's table 2 are those of cells without peepholes. Whether it
had peepholes is open; they are an option here, as in the first task.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .. import paper
from ..networks.methods import MODELS
from ..sweep.planning import plan_learning_rates, plan_method
from ..sweep.run import Run
from .corpus import Corpus
from .training import MOST_EPOCHS, WordSettings

MODEL_LEARNING_RATE = 3e-4
"""The learning rate of all models of other papers. It was not searched; an echo state network does not use it."""

LEARNING_RATES = {
    **paper.WORDS_LEARNING_RATES,
    "gru": 3e-4,
    "cw-lstm": 3e-4,
    "cw-gru": 3e-4,
    **dict.fromkeys(MODELS, MODEL_LEARNING_RATE),
}
"""Learning rates, by method: the paper's, and ours for the methods that it does not have (`docs/paper.md`)."""


def plan(
    corpus: Corpus,
    *,
    methods: Sequence[str] = paper.METHODS,
    sizes: Sequence[int] = paper.WORDS_SIZES,
    runs: int = paper.RUNS,
    epochs: int = MOST_EPOCHS,
    seed: int = 0,
    learning_rates: Mapping[str, float] = LEARNING_RATES,
    peepholes: bool = True,
    noise: float = paper.WORDS_NOISE,
    schedule: Schedule | None = None,
    task: str = "words",
) -> list[Run]:
    """Every run of the task: each method in each size, with `runs` seeds from `seed` on.

    A `schedule` takes the place of all sizes, for methods with clocks.
    """
    return [
        run
        for method in methods
        for run in plan_method(
            task,
            [corpus],
            method,
            WordSettings(
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
    corpus: Corpus, *, learning_rates: Sequence[float], methods: Sequence[str] = paper.METHODS, **options: Any
) -> list[Run]:
    """Every run of the search: those of `plan` with each learning rate, for all methods."""
    return plan_learning_rates(plan, "words search", corpus, learning_rates, methods, **options)
