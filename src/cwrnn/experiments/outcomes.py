"""Outcomes: what the records of a task come to, by method and size."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import tasks
from .models import METHODS
from .runs import DIVERGED, FAILED, FINISHED, Record
from .training import Settings


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
                paper=tasks.of(group[0].run).paper.get((method, size)),
                settings=settings,
            )
        )
    return sorted(rows, key=lambda row: (METHODS.index(row.method), row.size, row.hidden, row.settings.learning_rate))


def best_rates(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """The best learning rate of a search, by method and size: the one with the lowest median error.

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
