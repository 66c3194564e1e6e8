"""Sequence generation, the paper's first task (section 4.1): what is to run, and what the records come to.

Networks without input learn to generate a sequence: SRN, LSTM and CW-RNN, in four sizes, a hundred times each on five
snippets of music. The learning rate was searched for each method and is one for all sizes.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import tasks
from .models import METHODS, SIZES, hidden_for
from .runs import DIVERGED, FAILED, FINISHED, Dataset, Record, Run
from .training import EPOCHS, LEARNING_RATES, Settings

TASK = tasks.GENERATION
SEARCH = tasks.SEARCHES[TASK]

PAPER = {"srn": "0.46 ± 0.08", "lstm": "0.04 ± 0.01", "cw": "0.007 ± 0.004"}
"""Table 3: mean and deviation of the NMSE over 100 runs of the largest networks."""
PAPER_SIZE = max(SIZES)

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
    task: str = TASK,
) -> list[Run]:
    """Every run of the task: each method in each size on each sequence, with as many seeds from `seed` on.

    >>> from .audio import load
    >>> len(plan(load()))
    6000
    """
    planned = []
    datasets = list(datasets)
    for method in methods:
        settings = Settings(learning_rate=learning_rates[method], epochs=epochs)
        if method == "lstm":
            # of no concern to the others, whose runs stay the same
            settings = Settings(learning_rate=learning_rates[method], epochs=epochs, peepholes=peepholes)
        for size in sizes:
            hidden = hidden_for(method, size, modules=settings.modules, peepholes=settings.peepholes)
            for dataset in datasets:
                for number in range(seed, seed + runs):
                    planned.append(Run(task, dataset.name, dataset.digest, method, size, hidden, number, settings))
    return planned


def plan_search(
    datasets: Iterable[Dataset], *, rates: Sequence[float] = RATES, methods: Sequence[str] = METHODS, **options: Any
) -> list[Run]:
    """Every run of the search: the same with each learning rate, for all methods.

    >>> from .audio import load
    >>> len(plan_search(load(), runs=4, sizes=[1000])) == 6 * 3 * 5 * 4
    True
    """
    datasets = list(datasets)
    return [
        run
        for rate in rates
        for run in plan(datasets, methods=methods, learning_rates=dict.fromkeys(methods, rate), task=SEARCH, **options)
    ]


@dataclass(frozen=True)
class Row:
    """What the runs of one method and size came to; mean, std, median and best are of those that finished."""

    method: str
    size: int
    hidden: int
    parameters: int
    runs: int
    """All of them."""
    diverged: int
    failed: int
    mean: float
    std: float
    median: float
    best: float
    paper: str | None
    """What the paper says of a network of this size."""
    settings: Settings


def summarise(records: Iterable[Record]) -> list[Row]:
    """A row for each method, size and set of hyper-parameters, in the paper's order."""
    groups: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        run = record.run
        groups[run.method, run.size, run.hidden, run.settings].append(record)
    rows = []
    for (method, size, hidden, settings), group in groups.items():
        errors = np.array([record.error for record in group if record.status == FINISHED])
        known = len(errors) > 0
        rows.append(
            Row(
                method=method,
                size=size,
                hidden=hidden,
                parameters=group[0].parameters,
                runs=len(group),
                diverged=sum(record.status == DIVERGED for record in group),
                failed=sum(record.status == FAILED for record in group),
                mean=float(errors.mean()) if known else math.nan,
                std=float(errors.std()) if known else math.nan,
                median=float(np.median(errors)) if known else math.nan,
                best=float(errors.min()) if known else math.nan,
                paper=PAPER.get(method) if size == PAPER_SIZE else None,
                settings=settings,
            )
        )
    return sorted(rows, key=lambda row: (METHODS.index(row.method), row.size, row.hidden, row.settings.learning_rate))


def best_rates(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """The best learning rate of a search, by method and size: the one with the lowest median NMSE.

    Here a run that diverged or failed counts as infinitely bad: a rate at which most diverge is not the best because
    some did not. None is best where all are that bad.
    """
    groups: dict[Any, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        error = record.error if record.status == FINISHED else math.inf
        groups[record.run.method, record.run.size][record.run.settings.learning_rate].append(error)
    best = {}
    for group, rates in groups.items():
        # the lower of two middle ones: half an infinity is none
        medians = {rate: sorted(errors)[(len(errors) - 1) // 2] for rate, errors in rates.items()}
        rate = min(medians, key=lambda rate: (medians[rate], rate))
        if math.isfinite(medians[rate]):
            best[group] = rate
    return best
