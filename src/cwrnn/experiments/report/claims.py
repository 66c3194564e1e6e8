"""The paper's claims and the runs of a store: sentences for the page, all of them made from the numbers.

This module has the parts that several tasks share. The claims of a task lie in its own folder, `claims.py`, with

    describe_runs      what was run, and what came out
    judge_claims       the paper's statements one by one, and whether they hold for these runs
    explain_failures   what may explain why some do not hold
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .. import paper
from ..networks.methods import ALL_METHODS
from ..sweep.run import STATUSES, Record
from ..task import find_task
from .drawing import NAMES
from .numbers import format_count, join_words
from .statistics import SummaryRow

RowsByNetwork = Mapping[tuple[str, int], SummaryRow]
"""Rows by method and size, one set of hyper-parameters each."""


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and whether it holds for the runs of a store."""

    paper: str
    """The statement."""
    here: str
    """The result of the runs of the store."""
    holds: bool


def describe_search(records: Sequence[Record]) -> str:
    """Returns a sentence about the runs of a search of the learning rate."""
    counts = {status: sum(record.status == status for record in records) for status in STATUSES}
    return (
        f"A search of the learning rate trained {format_count(len(records), 'network')}: "
        f"{join_words([f'{count} {status}' for status, count in counts.items()])}."
    )


def select_finished(rows: Iterable[SummaryRow]) -> RowsByNetwork:
    """Returns the rows of which at least one run finished, by method and size."""
    return {(row.method, row.size): row for row in rows if math.isfinite(row.mean)}


def select_paper(rows: Iterable[SummaryRow]) -> list[SummaryRow]:
    """Returns the rows of the methods that the paper has. Its claims are about these only."""
    return [row for row in rows if row.method in paper.METHODS]


def name_scope(rows: Sequence[SummaryRow]) -> str:
    """Returns the beginning of a sentence about the paper's methods, where others were trained too."""
    count = len(select_paper(rows))
    return "Of the paper's methods, " if 0 < count < len(rows) else ""


def common_sizes(rows: RowsByNetwork, methods: Sequence[str]) -> list[int]:
    """Returns the sizes in which all of these methods have a row, from the smallest on."""
    if not methods:
        return []
    return sorted(set.intersection(*({size for kind, size in rows if kind == method} for method in methods)))


def largest_common(rows: RowsByNetwork, methods: Sequence[str] = ()) -> int | None:
    """Returns the largest size in which all of these methods have a row, by default all methods that have any."""
    methods = methods or [method for method in ALL_METHODS if any(kind == method for kind, _ in rows)]
    return max(common_sizes(rows, methods), default=None)


def rank_rows(rows: RowsByNetwork, size: int, *, by: str = "mean") -> list[SummaryRow]:
    """Returns the rows of one size, from the lowest error to the highest; `by` is "mean" or "median"."""
    return sorted((row for row in rows.values() if row.size == size), key=lambda row: float(getattr(row, by)))


def paper_errors(task: str) -> dict[tuple[str, int], tuple[float, float]]:
    """Returns the mean and the deviation of the error that the paper prints, by method and size.

    >>> paper_errors("generation")["cw", 1000]
    (0.007, 0.004)
    """
    errors = {}
    for key, text in find_task(task).paper_errors.items():
        mean, deviation = (float(part) for part in text.split("±"))
        errors[key] = (mean, deviation)
    return errors


def compare_order(rows: Sequence[SummaryRow]) -> list[str]:
    """Returns whether the paper's methods, from best to worst, are in its order; nothing for a single one of them."""
    rows = select_paper(rows)
    if len(rows) < 2:
        return []
    expected = [method for method in ("cw", "lstm", "srn") if any(row.method == method for row in rows)]
    same = [row.method for row in rows] == expected
    return [
        f"From best to worst: {join_words([NAMES[row.method] for row in rows])}. "
        + ("The paper has the same order." if same else "The paper has another order.")
    ]


def mention_few_runs(rows: Iterable[SummaryRow]) -> list[str]:
    """Returns a sentence if there are fewer runs than in the paper."""
    fewest = min((row.runs for row in rows), default=0)
    if fewest >= paper.RUNS:
        return []
    return [
        f"A mean here covers as few as {format_count(fewest, 'run')}, a mean of the paper {paper.RUNS}. "
        "The mean of a few runs depends on their random initial weights."
    ]


def mention_diverged(rows: Iterable[SummaryRow], error: str) -> list[str]:
    """Returns a sentence about the runs that diverged, if any did; `error` names the error that they do not have."""
    diverged = [row for row in rows if row.diverged]
    if not diverged:
        return []
    most = max(diverged, key=lambda row: row.diverged / row.runs)
    return [
        f"Runs that diverged have no {error}, so mean, deviation and median leave them out. The largest share diverged "
        f"with {NAMES[most.method]} at {most.size} parameters, {most.diverged} of {most.runs}. The paper does not say "
        "whether any of its runs diverged."
    ]


def mention_other_settings(records: Iterable[Record], rates: Mapping[str, float]) -> list[str]:
    """Returns a sentence for each learning rate that is not the paper's, and for an LSTM without peepholes.

    Args:
        records: runs with one set of hyper-parameters for each method of the paper
        rates: the paper's learning rates, by method
    """
    settings = {record.run.method: record.run.settings for record in records}
    sentences = [
        f"The learning rate of {NAMES[method]} was {chosen.learning_rate:g}; the paper's is {rates[method]:g}."
        for method, chosen in settings.items()
        if not math.isclose(chosen.learning_rate, rates[method])
    ]
    if "lstm" in settings and not settings["lstm"].peepholes:
        sentences.append("The LSTM had no peephole connections; the paper does not say whether its LSTM had any.")
    return sentences
