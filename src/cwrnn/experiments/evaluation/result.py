"""The result of an evaluation: the records and their table, as text and as JSON."""

import math
import re
from collections.abc import Iterable
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
    learning_rate: float
    validation: float
    """The mean error of the validation part, by which settings are chosen."""
    error: float
    """The mean error of the test part."""
    deviation: float
    """The standard deviation of the error."""
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
                learning_rate=settings.learning_rate,
                validation=float(np.mean(validations or [math.nan])),
                error=float(errors.mean()),
                deviation=float(errors.std()),
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
    return [(text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d*)", name)]


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
        headers = ["data", "method", "para-\nmeters", "units", "periods", "multiply-adds\nper step", "runs",
                   *(["diverged,\nfailed"] * has_lost), f"validation\n{self.task.error_header}",
                   f"test {self.task.error_header}\nmean ± std", "seconds"]  # fmt: skip
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
                write(row.validation),
                f"{write(row.error)} ± {write(row.deviation)}",
                f"{row.seconds:.0f}",
            ]
            for row in rows
        ]
        runs = max(row.runs for row in rows)
        caption = self.task.describe_errors([], runs, self.records[0].run.settings)
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
