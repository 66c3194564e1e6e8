"""The result of an evaluation: the records and their table, as text and as JSON."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...environment import environment
from ...schedule import Schedule
from ..file_names import format_page_path
from ..json_safe import make_json_safe
from ..networks.methods import ALL_METHODS, PLACES
from ..sweep.run import DIVERGED, FAILED, FINISHED, Record
from ..text_table import format_table
from .task import Evaluation, count_run_operations
from .training import EvaluationSettings


@dataclass(frozen=True)
class EvaluationRow:
    """The runs of one method, size and set of hyper-parameters on one data set.

    The errors and seconds are over the runs that finished; NaN if none did.
    """

    data: str
    method: str
    size: int
    hidden: int
    periods: tuple[int, ...]
    """The periods of the modules; empty without clocks."""
    parameters: int
    multiply_adds: float
    """The multiply-adds per time step."""
    runs: int
    diverged: int
    failed: int
    epochs: int
    """The most epochs that a run made; a part of an epoch counts as one."""
    updates: int | None
    """The updates after which training ended before its epochs were made; None if it made all of them."""
    batch: int
    device: str
    learning_rate: float
    validation: float
    """The mean error of the validation part, by which settings are chosen."""
    error: float
    """The mean error of the test part."""
    deviation: float
    """The standard deviation of the error, of the sample; NaN if fewer than two runs finished."""
    best: float
    """The lowest error."""
    seconds: float
    """The median of the seconds of training."""


def summarise_evaluation(records: Iterable[Record]) -> list[EvaluationRow]:
    """The rows of the records: by data set, short lengths first, in the order of ALL_METHODS, then by size."""
    groups: dict[Any, list[Record]] = {}
    for record in records:
        run = record.run
        groups.setdefault((run.data, run.method, run.size, run.hidden, run.settings), []).append(record)
    rows = []
    for (data, method, size, hidden, settings), group in groups.items():
        assert isinstance(settings, EvaluationSettings)
        finished = [record for record in group if record.status == FINISHED]
        errors = np.array([record.error for record in finished] or [math.nan])
        validations = [record.curve[-1, 3] for record in finished if record.curve is not None and len(record.curve)]
        schedule = group[0].schedule
        rows.append(
            EvaluationRow(
                data=data,
                method=method,
                size=size,
                hidden=hidden,
                periods=() if schedule is None else Schedule.parse(schedule).periods,
                parameters=group[0].parameters,
                multiply_adds=count_run_operations(group[0].run),
                runs=len(group),
                diverged=sum(record.status == DIVERGED for record in group),
                failed=sum(record.status == FAILED for record in group),
                epochs=max(record.epochs for record in group),
                updates=find_limit(group),
                batch=settings.batch,
                device=settings.device,
                learning_rate=settings.learning_rate,
                validation=float(np.mean(validations or [math.nan])),
                error=float(errors.mean()),
                deviation=float(errors.std(ddof=1)) if len(errors) > 1 else math.nan,
                best=float(errors.min()),
                seconds=float(np.median([record.seconds for record in finished] or [math.nan])),
            )
        )
    return sorted(
        rows, key=lambda row: (order_name(row.data), PLACES[row.method], row.size, row.hidden, row.learning_rate)
    )


def order_name(name: str) -> list[tuple[str, int]]:
    """A key that sorts names of data sets by the values of the numbers in them.

    >>> sorted(["adding 1000", "adding 200"], key=order_name)
    ['adding 200', 'adding 1000']
    """
    # a number of thousands of digits would be refused by int
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d{0,12})", name)]


def find_limit(records: Sequence[Record]) -> int | None:
    """The updates after which runs with the same settings end, or None if they make all of their epochs.

    A fixed layer is fitted in one epoch.
    """
    run = records[0].run
    settings = run.settings
    assert isinstance(settings, EvaluationSettings)
    epochs = 1 if ALL_METHODS[run.method].is_fixed else settings.epochs
    curves = [record.curve for record in records if record.curve is not None and len(record.curve)]
    return None if any(curve[-1, 0] >= epochs for curve in curves) else settings.updates


def format_spread(mean: float, deviation: float, write: Callable[[float], str]) -> str:
    """A mean and a deviation, the mean alone if there is no deviation, or "none" if there is no mean.

    Args:
        mean: the mean
        deviation: the deviation, in the same unit
        write: writes a number; a percent sign is written once

    >>> [format_spread(mean, deviation, "{:.0%}".format) for mean, deviation in [(0.5, 0.1), (0.5, math.nan)]]
    ['50% ± 10%', '50%']
    >>> format_spread(math.nan, math.nan, str)
    'none'
    """
    if not math.isfinite(mean):
        return "none"
    if not math.isfinite(deviation):
        return write(mean)
    return f"{write(mean).removesuffix(' %')} ± {write(deviation)}"


@dataclass(frozen=True)
class EvaluationResult:
    """The result of `evaluate`. Printing it shows a table."""

    task: Evaluation
    records: tuple[Record, ...]
    """The record of every run."""
    seconds: float
    """The duration of the training."""
    store: Path | None = None
    """The store with all records; None if it was temporary."""
    page: Path | None = None
    """The page with figures; None if it was not written."""

    @property
    def rows(self) -> list[EvaluationRow]:
        """The numbers of the table."""
        return summarise_evaluation(self.records)

    @property
    def failures(self) -> tuple[Record, ...]:
        """The records of the runs that failed."""
        return tuple(record for record in self.records if record.status == FAILED)

    def __str__(self) -> str:
        rows, write = self.rows, self.task.format_error
        has_lost = any(row.diverged or row.failed for row in rows)
        most = max(row.runs - row.diverged - row.failed for row in rows)
        headers = ["data", "method", "para-\nmeters", "units", "periods", "multiply-adds\nper step", "runs",
                   *(["diverged,\nfailed"] * has_lost), f"validation\n{self.task.error_header}",
                   f"test {self.task.error_header}" + "\nmean ± std" * (most > 1), "seconds"]  # fmt: skip
        cells = [
            [
                row.data,
                ALL_METHODS[row.method].label,
                str(row.parameters),
                str(row.hidden),
                ",".join(map(str, row.periods)),
                f"{row.multiply_adds:.0f}",
                str(row.runs),
                *([f"{row.diverged}, {row.failed}"] * has_lost),
                write(row.validation) if math.isfinite(row.validation) else "",
                format_spread(row.error, row.deviation, write),
                f"{row.seconds:.0f}" if math.isfinite(row.seconds) else "",
            ]
            for row in rows
        ]
        caption = self.task.describe_errors([], most, self.records[0].run.settings)
        table = format_table(self.task.table_title, headers, cells, caption, left=2, gap=1)
        return table if self.page is None else f"{table}\n\n{format_page_path(self.page)}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the dictionary that `cwrnn evaluate --json` prints."""
        described: dict[str, Any] = make_json_safe(
            {
                "task": self.task.name,
                "rows": [asdict(row) for row in self.rows],
                "runs": len(self.records),
                "failed": len(self.failures),
                "seconds": self.seconds,
                "store": None if self.store is None else str(self.store.resolve()),
                "page": None if self.page is None else str(self.page.resolve()),
                "environment": environment(),
            }
        )
        return described
