"""The result of reproducing the paper's experiments: the records and their tables, as text and as JSON."""

import math
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..environment import environment
from ..extras import require
from .file_names import format_page_path
from .json_safe import make_json_safe
from .report.drawing import NAMES
from .report.draws import DrawSummary
from .report.statistics import SummaryRow, best_rates, rate_choices, summarise
from .sweep.driver import open_store
from .sweep.run import FAILED, Record
from .sweep.store import Store
from .task import Data, Task
from .text_table import format_table


@dataclass(frozen=True)
class TaskReproduction:
    """The records of one task, or of the search for its learning rate. Printing it shows a table."""

    task: Task[Any]
    data: tuple[Data, ...]
    """The data sets that networks were trained on."""
    records: tuple[Record, ...]
    """The record of every run."""
    runs_each: int
    """The number of initial weights for each network and data set."""
    is_search: bool = False
    """True for a search of the learning rate."""

    @property
    def rows(self) -> list[SummaryRow]:
        """The numbers of the table: one row for each method, size and set of hyper-parameters."""
        return summarise(self.records)

    @property
    def best_learning_rates(self) -> dict[tuple[str, int], float]:
        """The learning rate that a search found best, by method and size; empty without a search."""
        return best_rates(self.records) if self.is_search else {}

    @property
    def draws(self) -> DrawSummary | None:
        """The spread of the errors over draws of the data, and tests over them; None without several draws."""
        return None if self.is_search else self.task.summarise_draws(self.records, self.data)

    def __str__(self) -> str:
        if self.is_search:
            return self._format_search()
        draws = self.draws
        return self._format_errors() if draws is None else f"{self._format_errors()}\n\n{draws}"

    def to_dict(self) -> dict[str, Any]:
        """Returns the rows, and what they were made of, for JSON."""
        draws = self.draws
        return {
            "task": self.records[0].run.task,
            "rows": [self._describe_row(row) for row in self.rows],
            "runs": len(self.records),
            "failed": sum(record.status == FAILED for record in self.records),
            "data": [dataset.name for dataset in self.data],
            **({} if draws is None else {"draws": draws.to_dict()}),
        }

    def _describe_row(self, row: SummaryRow) -> dict[str, Any]:
        values = asdict(row)
        values |= values.pop("settings")
        if self.is_search:
            values["chosen"] = self._is_best(row)
        described: dict[str, Any] = make_json_safe(values)
        return described

    def _is_best(self, row: SummaryRow) -> bool:
        return self.best_learning_rates.get((row.method, row.size)) == row.settings.learning_rate

    def _is_paper(self, row: SummaryRow) -> bool:
        rate = self.task.paper_learning_rates.get(row.method)
        return rate is not None and math.isclose(rate, row.settings.learning_rate)

    def _format_errors(self) -> str:
        rows, write = self.rows, self.task.format_error
        has_failures = any(row.failed for row in rows)
        headers = ["method", "size", "hidden\nunits", "para-\nmeters", "runs", f"{self.task.error_header}\nmean ± std",
                   "median", "diverged", *(["failed"] * has_failures),
                   f"paper's {self.task.error_header}\nmean ± std"]  # fmt: skip
        cells = [
            [
                NAMES[row.method],
                *map(str, (row.size, row.hidden, row.parameters, row.runs)),
                f"{write(row.mean)} ± {write(row.std)}",
                write(row.median),
                str(row.diverged),
                *([str(row.failed)] * has_failures),
                "" if row.paper is None else " ± ".join(self._quote(part) for part in row.paper.split(" ± ")),
            ]
            for row in rows
        ]
        caption = self.task.describe_errors(self.data, self.runs_each, rows[0].settings)
        return format_table(self.task.table_title, headers, cells, caption, gap=1)

    def _quote(self, number: str) -> str:
        """A number of the paper, as it is printed or in percent."""
        return self.task.format_error(float(number)) if self.task.error_is_a_share else number

    def _format_search(self) -> str:
        choice, choices = self.task.choice_header, rate_choices(self.records)
        chosen_by = [f"median {choice}".replace(" ", "\n")] if choice else []
        headers = ["method", "size", "learning\nrate", "runs", *chosen_by, f"median\n{self.task.error_header}",
                   "diverged", "best", "paper's"]  # fmt: skip
        cells = [
            [
                NAMES[row.method],
                str(row.size),
                f"{row.settings.learning_rate:g}",
                str(row.runs),
                *([f"{choices[row.method, row.size][row.settings.learning_rate]:.3g}"] if choice else []),
                self.task.format_error(row.median),
                f"{100 * row.diverged / row.runs:.0f} %",
                "*" if self._is_best(row) else "",
                "*" if self._is_paper(row) else "",
            ]
            for row in self.rows
        ]
        caption = (
            f"The median {self.task.error_name} is over the runs that finished. The best learning rate (*) has the "
            f"lowest median {choice or self.task.error_name} when a run that diverged counts as infinitely bad."
        )
        if choice:
            caption += " The test set has no part in the choice."
        return format_table(f"The search for the learning rate: {self.task.title}", headers, cells, caption)


@dataclass(frozen=True)
class Reproduction:
    """The result of `reproduce_generation`, `reproduce_words` and `reproduce`.

    Printing it shows one table per task, with the paper's errors beside ours.
    """

    tasks: tuple[TaskReproduction, ...]
    seconds: float
    """The duration of the training."""
    store: Path | None = None
    """The store with all records; None if it was temporary."""
    page: Path | None = None
    """The page with figures; None if it was not written."""
    command: str = ""
    """How to repeat the reproduction, as the store keeps it."""

    @property
    def records(self) -> tuple[Record, ...]:
        """The records of all tasks."""
        return tuple(record for task in self.tasks for record in task.records)

    @property
    def rows(self) -> list[SummaryRow]:
        """The rows of the tables of all tasks."""
        return [row for task in self.tasks for row in task.rows]

    @property
    def failures(self) -> tuple[Record, ...]:
        """The records of the runs that failed."""
        return tuple(record for record in self.records if record.status == FAILED)

    def __str__(self) -> str:
        tables = [str(task) for task in self.tasks]
        if self.page is not None:
            tables.append(format_page_path(self.page))
        return "\n\n".join(tables)

    def to_dict(self) -> dict[str, Any]:
        """Returns the dictionary that `cwrnn reproduce --json` prints. A single task stands at its top."""
        tasks = [task.to_dict() for task in self.tasks]
        return {
            **(tasks[0] if len(tasks) == 1 else {"tasks": tasks}),
            "seconds": self.seconds,
            "store": None if self.store is None else str(self.store.resolve()),
            "page": None if self.page is None else str(self.page.resolve()),
            "environment": environment(),
        }

    def write_page(self, folder: str | PathLike[str]) -> Path:
        """Writes a store with all records, and the page with its figures, into `folder`; returns the page."""
        with open_store(folder, command=self.command) as store:
            for task in self.tasks:
                for dataset in task.data:
                    store.add_dataset(dataset)
                store.add(*task.records)
            return write_page(store, store.path.parent)


def require_page_packages() -> None:
    """Raises an ImportError if a page cannot be written. Call it before time is spent on training."""
    for package in ("matplotlib", "jinja2"):
        require(package, extra="experiments", purpose="the page")


def write_page(store: Store, folder: Path) -> Path:
    """Writes the page of a store into the folder, and returns it."""
    # importing matplotlib takes long
    from .report.page import write_store_report

    return write_store_report(store, folder).page
