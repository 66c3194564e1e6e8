"""Findings: what the records say, in words that the page prints. Every sentence comes from the numbers.

Here stands what both tasks share; `generation_findings` and `word_findings` have of their task

    summary    what was run, and what came out
    claims     the paper's statements, one by one: whether they hold for these runs
    reasons    what may explain where they do not
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..networks.build import METHODS
from ..sweep.run import STATUSES, Record
from ..task import TASKS
from .drawing import NAMES, count
from .statistics import Row

PAPER_RUNS = 100

# rows by method and size, one set of hyper-parameters each
Rows = Mapping[tuple[str, int], Row]


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, and what these runs say of it."""

    paper: str
    here: str
    holds: bool


def search_summary(records: Sequence[Record]) -> str:
    """What a search of the learning rate was made of, in a sentence."""
    counts = {status: sum(record.status == status for record in records) for status in STATUSES}
    return (
        f"{count(len(records), 'training')} to search the learning rate: "
        f"{listed([f'{count} {status}' for status, count in counts.items()])}."
    )


def known_rows(rows: Iterable[Row]) -> Rows:
    """The rows of which a run finished."""
    return {(row.method, row.size): row for row in rows if math.isfinite(row.mean)}


def largest_common(known: Rows, methods: Sequence[str] = ()) -> int | None:
    """The largest size that all these methods have, or all that there are."""
    methods = methods or [method for method in METHODS if any(kind == method for kind, _ in known)]
    sizes = [{size for kind, size in known if kind == method} for method in methods]
    return max(set.intersection(*sizes), default=None) if sizes else None


def times(worse: float, better: float) -> str:
    """How many times better, or worse.

    >>> [times(0.4, 0.1), times(0.1, 0.4), times(0.1, 0.102)]
    ['4 times better', '4 times worse', 'about as good']
    """
    if not better > 0:
        return "infinitely better" if worse > 0 else "as good"
    ratio = worse / better
    if 0.95 < ratio < 1.05:
        return "about as good"
    return f"{factor(ratio)} times better" if ratio >= 1 else f"{factor(1 / ratio)} times worse"


def factor(ratio: float) -> str:
    """A ratio in words.

    >>> [factor(1.234), factor(57.4), factor(1234.5), factor(1e9)]
    ['1.2', '57', '1,234', 'more than a million']
    """
    if ratio > 1e6:
        return "more than a million"
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"


def listed(words: Sequence[str]) -> str:
    """Words in a row.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def paper_figures(task: str) -> dict[tuple[str, int], tuple[float, float]]:
    """The mean and the deviation of the error that the paper prints, by method and size.

    >>> paper_figures("generation")["cw", 1000]
    (0.007, 0.004)
    """
    figures = {}
    for key, text in TASKS[task].paper.items():
        mean, deviation = (float(part) for part in text.split("±"))
        figures[key] = (mean, deviation)
    return figures


def order_of_the_paper(order: Sequence[Row]) -> list[str]:
    """Whether the methods, from best to worst, are in the paper's order; nothing of one alone."""
    if len(order) < 2:
        return []
    expected = [method for method in ("cw", "lstm", "srn") if any(row.method == method for row in order)]
    same = [row.method for row in order] == expected
    return [
        f"From best to worst that is {listed([NAMES[row.method] for row in order])}, "
        + ("the order of the paper." if same else "not the order of the paper.")
    ]


def few_runs(rows: Iterable[Row]) -> list[str]:
    """That there are fewer than the paper's, if so."""
    fewest = min((row.runs for row in rows), default=0)
    if fewest >= PAPER_RUNS:
        return []
    return [
        f"There are as few as {count(fewest, 'run')} of one method and size; the paper's figures are of {PAPER_RUNS}. "
        "A mean of few runs depends on their seeds."
    ]


def some_diverged(rows: Iterable[Row], error: str) -> list[str]:
    """Where most of the runs diverged, if some did."""
    diverged = [row for row in rows if row.diverged]
    if not diverged:
        return []
    most = max(diverged, key=lambda row: row.diverged / row.runs)
    return [
        f"Runs that diverged have no {error} and are no part of mean, deviation and median. The largest share is that "
        f"of {NAMES[most.method]} at {most.size} parameters, {most.diverged} of {most.runs}. The paper mentions none."
    ]


def other_rates(records: Iterable[Record], paper: Mapping[str, float]) -> list[str]:
    """The learning rates that are not the paper's, and that LSTM had no peepholes."""
    settings = {record.run.method: record.run.settings for record in records}
    found = [
        f"The learning rate of {NAMES[method]} was {each.learning_rate:g}; the paper's is {paper[method]:g}."
        for method, each in settings.items()
        if not math.isclose(each.learning_rate, paper[method])
    ]
    if "lstm" in settings and not settings["lstm"].peepholes:
        found.append("The LSTM had no peephole connections; the paper does not say whether its LSTM had.")
    return found
