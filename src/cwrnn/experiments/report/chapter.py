"""Chapters: the part of a page that is about one task, and the pieces that the chapters of all tasks share."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from .. import paper
from ..networks.methods import ALL_METHODS, CLOCKED, MODELS, PLACES
from ..networks.settings import TrainingSettings
from ..sweep.run import DIVERGED, FAILED, FINISHED, STATUSES, Record
from ..task import all_tasks
from .claims import largest_common, select_finished
from .privacy import hide_folders
from .statistics import SummaryRow, best_rates, best_record, rate_choices, rate_outcomes

LISTED = 200
"""How many diverged runs are listed one by one."""


@dataclass(frozen=True)
class Standing:
    """One method's line in the short table at the top of the page."""

    method: str
    error: str
    """Mean and deviation over the runs that finished, for a person to read."""
    paper: str
    """Mean and deviation in the paper, or an empty text."""
    best: bool
    """True for the method with the lowest mean."""


@dataclass(frozen=True)
class Overview:
    """The summary of one task at the top of the page."""

    task: str
    """A few words: what the networks learnt."""
    measure: str
    """A few words: what the error is, and at which size."""
    standings: Sequence[Standing]
    sentence: str
    """The outcome."""


@dataclass(frozen=True)
class Chapter:
    """The part of a page that is about one task."""

    task: str
    """The task's name in links, in folders and in summary.json."""
    title: str
    template: str
    """The path of its template below `cwrnn/experiments`."""
    sections: Sequence[tuple[str, str]]
    """The anchors and the names of the sections that the page's list of contents shows."""
    contents: Mapping[str, Any]
    """The values that the template prints."""
    figures: Mapping[str, Any]
    """The figures by the names of their files."""
    titles: Mapping[str, str]
    """The titles of all figures that the chapter can have, by the names of their files."""
    numbers: Mapping[str, Any]
    """The chapter's part of summary.json."""
    records: Sequence[Record]
    """All records of the task, including those of a search."""
    opening: str | None = None
    """The path of the template that opens the page with this chapter's best picture."""
    overview: Overview | None = None


def split_by_settings(
    records: Sequence[Record], *, ignore_learning_rate: bool = False
) -> tuple[list[Record], list[Record]]:
    """Returns the records that are drawn, and the rest.

    Drawn are, for each method, the runs with the hyper-parameters that most of its runs have. A search has runs of
    many learning rates: `ignore_learning_rate` compares all other hyper-parameters. The number of modules is not
    compared for runs without a schedule of their own: it may depend on the size.
    """

    def settings_of(record: Record) -> TrainingSettings:
        settings = record.run.settings
        if settings.schedule is None:
            settings = replace(settings, modules=1)
        return replace(settings, learning_rate=0.0) if ignore_learning_rate else settings

    counts = Counter((record.run.method, settings_of(record)) for record in records)
    chosen = {
        method: max(
            (settings for kind, settings in counts if kind == method),
            key=lambda settings: (counts[method, settings], settings.epochs, repr(settings)),
        )
        for method in {method for method, _ in counts}
    }
    drawn = [record for record in records if settings_of(record) == chosen[record.run.method]]
    return drawn, [record for record in records if settings_of(record) != chosen[record.run.method]]


def select_main(records: Sequence[Record]) -> list[Record]:
    """Returns the records of the paper's methods and of models of other papers, or all if there are none.

    They are drawn in most figures; the section about gated cells has figures of its own.
    """
    return [record for record in records if record.run.method in (*paper.METHODS, *MODELS)] or list(records)


def choose_shown(records: Iterable[Record]) -> Record | None:
    """Returns the network whose modules are drawn: the best CW-RNN of the largest size, or else one of gated cells."""
    finished = [record for record in records if record.status == FINISHED]
    for method in CLOCKED:
        clocked = [record for record in finished if record.run.method == method]
        if clocked:
            largest = max(record.run.size for record in clocked)
            return best_record(record for record in clocked if record.run.size == largest)
    return None


def make_search_table(records: Sequence[Record], paper_rates: Mapping[str, float]) -> list[dict[str, Any]]:
    """Returns the errors at every learning rate, by method and size, and which rate is best.

    "choice" is the median of the error by which the best rate was chosen.
    """
    rates, choices = best_rates(records), rate_choices(records)
    rows = []
    for method in ALL_METHODS:
        for size in sorted({record.run.size for record in records if record.run.method == method}):
            mine = [record for record in records if (record.run.method, record.run.size) == (method, size)]
            for outcome in rate_outcomes(mine):
                values = asdict(outcome)
                rate = values.pop("learning_rate")
                rows.append({"method": method, "size": size, "best": rate == rates.get((method, size)),
                             "paper": math.isclose(rate, paper_rates.get(method, math.nan)), "rate": rate,
                             "choice": choices[method, size][rate], **values})  # fmt: skip
    return rows


def list_sections(*, has_runs: bool, has_claims: bool, has_gated: bool = False) -> list[tuple[str, str]]:
    """Returns the anchors and titles of the sections that the chapter of a task has."""
    figures = [("figures", "Pictures")] if has_runs else []
    claims = [("claims", "Beside the paper")] if has_claims else []
    gated = [("gated", "Gated cells")] if has_gated else []
    return [("result", "Result"), *figures, *claims, *gated, ("details", "Details")]


def list_unfinished(records: Sequence[Record]) -> dict[str, Any]:
    """Returns the runs that did not finish, as the template `parts.unfinished` takes them."""
    of_search = sum(
        record.status == DIVERGED and record.run.task in {task.search_name for task in all_tasks()}
        for record in records
    )
    return {"failures": _failures(records), "diverged": _diverged(records), "of_search": of_search, "listed": LISTED}


def count_statuses(records: Iterable[Record]) -> dict[str, int]:
    """Returns how many records there are of each status."""
    counts = Counter(record.status for record in records)
    return {status: counts[status] for status in STATUSES}


def sum_seconds(records: Iterable[Record]) -> float:
    """Returns the time that all runs took together."""
    return round(math.fsum(record.seconds for record in records), 1)


def list_settings(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Returns the hyper-parameters that occur, by method, without those that the method does not have."""
    by_key: dict[str, dict[str, Any]] = {}
    for record in records:
        method = record.run.method
        foreign = ALL_METHODS[method].foreign_settings
        values = {name: v for name, v in asdict(record.run.settings).items() if name not in foreign}
        by_key[f"{PLACES[method]:02}{json.dumps(values, sort_keys=True)}"] = {"method": method, "settings": values}
    return [by_key[key] for key in sorted(by_key)]


def make_overview(
    task: str, measure: str, rows: Iterable[SummaryRow], sentence: str, write: Callable[[float, float], str],
    quote: Callable[[str], str],
) -> Overview | None:  # fmt: skip
    """Returns what the top of the page says about a task; None if no run has finished.

    The rows are those of the largest size that all methods have, or of each method's largest size if they share none.

    Args:
        task: what the networks learnt
        measure: what the error is
        rows: one set of hyper-parameters for each method and size
        sentence: the outcome
        write: makes text of a mean and a deviation
        quote: makes text of the mean and the deviation that the paper prints
    """
    finished = select_finished(rows)
    if not finished:
        return None
    common = largest_common(finished)
    chosen = [
        finished[method, common or max(size for kind, size in finished if kind == method)]
        for method in ALL_METHODS
        if any(kind == method for kind, _ in finished)
    ]
    lowest = min(row.mean for row in chosen)
    size = f", {common} parameters" if common else ""
    return Overview(
        task,
        measure + size,
        [
            Standing(row.method, write(row.mean, row.std), quote(row.paper) if row.paper else "", row.mean == lowest)
            for row in chosen
        ],
        sentence,
    )


def _failures(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """Returns the failed runs by their traceback, the most frequent first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == FAILED:
            traceback = (record.traceback or "").strip() or "no traceback was recorded"
            groups.setdefault(hide_folders(traceback), []).append(record)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _diverged(records: Iterable[Record]) -> list[Record]:
    return sorted(
        (record for record in records if record.status == DIVERGED),
        key=lambda r: (r.run.task, PLACES[r.run.method], r.run.size, r.run.data, r.run.settings.learning_rate,
                       r.run.seed, r.key),
    )  # fmt: skip
