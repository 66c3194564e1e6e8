"""Outcomes: what the records of a task come to, and the numbers behind its pictures.

summarise            a row of the table for each method and size
best_rates           of a search of the learning rate
box, best, curve, searched
                     what is drawn of records
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import task as tasks
from ..generation.training import Settings
from ..networks.build import METHODS
from ..sweep.run import DIVERGED, FAILED, FINISHED, Record


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


@dataclass(frozen=True)
class Box:
    """What a box with whiskers shows of the runs of one method and size."""

    finished: int
    diverged: int
    failed: int
    mean: float
    lower: float
    """The quartile below which a quarter of the runs lie."""
    median: float
    upper: float
    minimum: float
    maximum: float
    whiskers: tuple[float, float]
    """The lowest and the highest that are no outliers."""
    outliers: tuple[float, ...]
    """Further from the box than one and a half times its height."""


def box(records: Iterable[Record], scale: float = 1.0) -> Box:
    """The box of these records' errors times `scale`; all its numbers are NaN if no run finished."""
    records = list(records)
    counts = {status: sum(record.status == status for record in records) for status in (DIVERGED, FAILED)}
    return box_of([scale * record.error for record in records if record.status == FINISHED], **counts)


def box_of(errors: Sequence[float], *, diverged: int = 0, failed: int = 0) -> Box:
    """The box of these errors, of runs that finished.

    >>> box_of([1.0, 2.0, 3.0, 4.0, 100.0]).outliers
    (100.0,)
    """
    values, counts = np.sort(errors), {"diverged": diverged, "failed": failed}
    if not len(values):
        nothing = math.nan
        return Box(0, **counts, mean=nothing, lower=nothing, median=nothing, upper=nothing, minimum=nothing,
                   maximum=nothing, whiskers=(nothing, nothing), outliers=())  # fmt: skip
    lower, median, upper = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    reach = 1.5 * (upper - lower)
    inside = (values >= lower - reach) & (values <= upper + reach)
    return Box(
        len(values),
        **counts,
        mean=float(values.mean()),
        lower=lower,
        median=median,
        upper=upper,
        minimum=float(values[0]),
        maximum=float(values[-1]),
        whiskers=(float(values[inside][0]), float(values[inside][-1])),
        outliers=tuple(values[~inside].tolist()),
    )


def best(records: Iterable[Record]) -> Record | None:
    """The record with the lowest error; where none finished, the diverged one that was best on its way; or None."""
    records = list(records)
    finished = [record for record in records if record.status == FINISHED]
    if finished:
        return min(finished, key=lambda record: (record.error, record.key))
    diverged = [record for record in records if record.status == DIVERGED and math.isfinite(record.best_error)]
    return min(diverged, key=lambda record: (record.best_error, record.key), default=None)


def curve(
    records: Iterable[Record], column: int = 1, *, kept: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The epochs (E,), and the quartiles and the median (3, E) of a column of the curves of the runs that finished.

    A run has no value after its last epoch; with `kept`, for curves that have a point for every epoch, it goes on with
    that of the network that was kept.
    """
    finished = [record for record in records if record.status == FINISHED]
    curves = [(record.curve, record.best_epoch) for record in finished if record.curve is not None]
    if not curves:
        return np.empty(0), np.empty((3, 0))
    epochs = np.unique(np.concatenate([points[:, 0] for points, _ in curves])).astype(np.float64)
    values = [
        np.interp(epochs, points[:, 0], points[:, column], right=points[best, column] if kept else np.nan)
        for points, best in curves
    ]
    return epochs, np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)


@dataclass(frozen=True)
class Searched:
    """What came of one learning rate. Here a run that diverged or failed counts as infinitely bad."""

    rate: float
    lower: float
    median: float
    upper: float
    runs: int
    diverged: int


def searched(records: Iterable[Record], scale: float = 1.0) -> list[Searched]:
    """What came of every learning rate, from the lowest to the highest; errors times `scale`."""
    by_rate: dict[float, list[Record]] = {}
    for record in records:
        by_rate.setdefault(record.run.settings.learning_rate, []).append(record)
    found = []
    for rate, group in sorted(by_rate.items()):
        errors = [scale * record.error if record.status == FINISHED else math.inf for record in group]
        # the lower of two neighbours: between a number and infinity there is none
        lower, median, upper = (float(value) for value in np.quantile(errors, (0.25, 0.5, 0.75), method="lower"))
        diverged = sum(record.status == DIVERGED for record in group)
        found.append(Searched(rate, lower, median, upper, len(group), diverged))
    return found


def methods(records: Iterable[Record]) -> list[str]:
    """Those that there are records of, in the paper's order."""
    found = {record.run.method for record in records}
    return [method for method in METHODS if method in found]


def sizes(records: Iterable[Record]) -> list[int]:
    """Those that there are records of."""
    return sorted({record.run.size for record in records})


def of(records: Iterable[Record], method: str, size: int) -> list[Record]:
    """The records of one method and size."""
    return [record for record in records if (record.run.method, record.run.size) == (method, size)]
