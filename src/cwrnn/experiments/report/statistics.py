"""Statistics of records: the rows of the tables, and the numbers behind the figures.

summarise                a row of the table for each method and size
rate_choices             the errors by which a search chooses, at every learning rate
best_rates               the best learning rate of a search, by method and size
box, box_of              quartiles, whiskers and outliers of errors
best_record              the record with the lowest error
quartile_curve           quartiles of learning curves
rate_outcomes            the errors at every learning rate of a search
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..networks.methods import ALL_METHODS, PLACES
from ..networks.settings import TrainingSettings
from ..sweep.run import DIVERGED, FAILED, FINISHED, Record
from ..task import find_task


@dataclass(frozen=True)
class SummaryRow:
    """The errors of all runs of one method and size; mean, std, median and best are over those that finished."""

    method: str
    size: int
    hidden: int
    parameters: int
    runs: int
    """All runs, including those that diverged or failed."""
    diverged: int
    failed: int
    mean: float
    std: float
    median: float
    best: float
    paper: str | None
    """Mean and deviation that the paper prints for this method and size, or None."""
    settings: TrainingSettings


def summarise(records: Iterable[Record]) -> list[SummaryRow]:
    """Returns a row for each method, size and set of hyper-parameters, in the order of ALL_METHODS."""
    groups: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        run = record.run
        groups[run.method, run.size, run.hidden, run.settings].append(record)
    rows = []
    for (method, size, hidden, settings), group in groups.items():
        errors = np.array([record.error for record in group if record.status == FINISHED])
        known = len(errors) > 0
        rows.append(
            SummaryRow(
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
                paper=find_task(group[0].run.task).paper_errors.get((method, size)),
                settings=settings,
            )
        )
    return sorted(rows, key=lambda row: (PLACES[row.method], row.size, row.hidden, row.settings.learning_rate))


def rate_choices(records: Iterable[Record]) -> dict[tuple[str, int], dict[float, float]]:
    """Returns the median of the task's `choice_error` at every learning rate of a search, by method and size.

    A run that diverged or failed counts as infinitely bad, so a rate at which most runs diverge cannot win by the few
    that did not.
    """
    groups: dict[Any, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        error = find_task(record.run.task).choice_error(record) if record.status == FINISHED else math.inf
        groups[record.run.method, record.run.size][record.run.settings.learning_rate].append(error)
    # the lower of the two middle values: the mean of a number and infinity would be infinity
    return {
        group: {rate: sorted(errors)[(len(errors) - 1) // 2] for rate, errors in rates.items()}
        for group, rates in groups.items()
    }


def best_rates(records: Iterable[Record]) -> dict[tuple[str, int], float]:
    """Returns the best learning rate of a search, by method and size: the one with the lowest of `rate_choices`.

    A method and size has no entry if most runs diverged or failed at all of its rates.
    """
    best = {}
    for group, medians in rate_choices(records).items():
        rate = min(medians, key=lambda rate: (medians[rate], rate))
        if math.isfinite(medians[rate]):
            best[group] = rate
    return best


@dataclass(frozen=True)
class Box:
    """The numbers behind a box with whiskers: the errors of some runs."""

    finished: int
    diverged: int
    failed: int
    mean: float
    lower: float
    """The lower quartile."""
    median: float
    upper: float
    """The upper quartile."""
    minimum: float
    maximum: float
    whiskers: tuple[float, float]
    """The lowest and the highest error that are not outliers."""
    outliers: tuple[float, ...]
    """Errors further from the box than one and a half times its height."""


def box(records: Iterable[Record], scale: float = 1.0) -> Box:
    """Returns the box of these records' errors times `scale`; its numbers are NaN if no run finished."""
    records = list(records)
    counts = {status: sum(record.status == status for record in records) for status in (DIVERGED, FAILED)}
    return box_of([scale * record.error for record in records if record.status == FINISHED], **counts)


def box_of(errors: Sequence[float], *, diverged: int = 0, failed: int = 0) -> Box:
    """Returns the box of the errors of runs that finished.

    >>> box_of([1.0, 2.0, 3.0, 4.0, 100.0]).outliers
    (100.0,)
    """
    values, counts = np.sort(errors), {"diverged": diverged, "failed": failed}
    if not len(values):
        nan = math.nan
        return Box(0, **counts, mean=nan, lower=nan, median=nan, upper=nan, minimum=nan, maximum=nan,
                   whiskers=(nan, nan), outliers=())  # fmt: skip
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


def best_record(records: Iterable[Record]) -> Record | None:
    """Returns the record with the lowest error.

    If no run finished, it is the diverged run with the lowest error on its way; None if there is no such run either.
    """
    records = list(records)
    finished = [record for record in records if record.status == FINISHED]
    if finished:
        return min(finished, key=lambda record: (record.error, record.key))
    diverged = [record for record in records if record.status == DIVERGED and math.isfinite(record.best_error)]
    return min(diverged, key=lambda record: (record.best_error, record.key), default=None)


def quartile_curve(
    records: Iterable[Record], column: int = 1, *, kept: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the epochs (E,), and lower quartile, median and upper quartile (3, E) of the curves of finished runs.

    Args:
        records: runs of any status; those that did not finish are left out
        column: the column of the curves
        kept: continue a run after its last epoch with the value of the network that was kept. The curves must have a
            point for every epoch. Without it a run has no value after its last epoch.
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
class RateOutcome:
    """The errors at one learning rate of a search. A run that diverged or failed counts as infinitely bad."""

    learning_rate: float
    lower: float
    median: float
    upper: float
    runs: int
    diverged: int


def rate_outcomes(records: Iterable[Record], scale: float = 1.0) -> list[RateOutcome]:
    """Returns the errors, times `scale`, at every learning rate from the lowest to the highest."""
    by_rate: dict[float, list[Record]] = {}
    for record in records:
        by_rate.setdefault(record.run.settings.learning_rate, []).append(record)
    outcomes = []
    for rate, group in sorted(by_rate.items()):
        errors = [scale * record.error if record.status == FINISHED else math.inf for record in group]
        # the lower of two neighbours: nothing can be interpolated between a number and infinity
        lower, median, upper = (float(value) for value in np.quantile(errors, (0.25, 0.5, 0.75), method="lower"))
        diverged = sum(record.status == DIVERGED for record in group)
        outcomes.append(RateOutcome(rate, lower, median, upper, len(group), diverged))
    return outcomes


def methods_of(records: Iterable[Record]) -> list[str]:
    """Returns the methods that occur, in the order of ALL_METHODS."""
    present = {record.run.method for record in records}
    return [method for method in ALL_METHODS if method in present]


def sizes_of(records: Iterable[Record]) -> list[int]:
    """Returns the sizes that occur, from the smallest on."""
    return sorted({record.run.size for record in records})


def select_records(records: Iterable[Record], method: str, size: int) -> list[Record]:
    """Returns the records of one method and size."""
    return [record for record in records if (record.run.method, record.run.size) == (method, size)]
