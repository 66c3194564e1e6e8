"""The chapter of an evaluation task: which method has the lowest error, at what cost, and after how long."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..networks.methods import ALL_METHODS, PLACES
from ..report.chapter import Chapter, count_statuses, list_unfinished, sum_seconds
from ..report.drawing import NAMES
from ..report.numbers import format_count, join_words
from ..report.statistics import methods_of, sizes_of
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from .figures import BASELINES, draw_curves, draw_errors, draw_lengths, draw_operations, make_number_format
from .published import find_published
from .result import EvaluationRow, summarise_evaluation
from .task import Evaluation, SequentialMNIST
from .training import CUT, SECOND_MOMENT, WARM_UP, EvaluationSettings

TITLES = {
    "errors": "Test errors",
    "operations": "Test errors and the cost of a time step",
    "curves": "Validation errors and the time of training",
    "lengths": "Test errors and the length of the sequences",
}
"""The titles of all figures that a chapter can have, by the names of their files."""

NAMES_OF_TASKS = {
    "adding": "The adding problem",
    "copy": "The copy task",
    "sequential-mnist": "Sequential images",
    "permuted-mnist": "Permuted images",
    "characters": "The next character of a text",
}
"""The titles of the chapters, by task."""

DESCRIPTIONS = {
    "adding": (
        "A network reads random numbers, two of which are marked, one in each half of the sequence. After the last "
        "step it must answer their sum. A network that remembers nothing can only answer the mean, 1: an MSE of 1/6."
    ),
    "copy": (
        "A network reads ten symbols, then blanks for a long delay, then a mark: it must repeat the ten symbols in "
        "their order. There are eight different symbols, so guessing is wrong in 87.5 % of the answers."
    ),
    "sequential-mnist": (
        "A network reads an image one pixel at a time, row by row, and must name its class after the last pixel. "
        "Guessing is wrong in 90 % of the answers."
    ),
    "permuted-mnist": (
        "A network reads an image one pixel at a time, in one random order that is the same for all images, and must "
        "name its class after the last pixel. Pixels that are neighbours in the image can be hundreds of steps apart. "
        "Guessing is wrong in 90 % of the answers."
    ),
    "characters": (
        "A network reads a text one character at a time and must predict the next one. The error is the cross entropy "
        "in bits per character."
    ),
}
"""What a task is, by task."""

LENGTHS = {"copy": "delay [steps]"}
"""What the number in the name of a data set is, by task; for the others it is the length."""


@dataclass(frozen=True)
class TimedRow:
    """The validation errors of one method, budget and data set after some seconds of training."""

    data: str
    method: str
    size: int
    errors: Mapping[int, float]
    """The median over the runs of the last error measured by then, by seconds; NaN if a run has none yet."""


def make_chapter(store: Store, task: Evaluation) -> Chapter | None:
    """Returns the chapter of a task, or None if the store has no runs of it."""
    every = store.records(task.name)
    if not every:
        return None
    records, others = choose_settings(every, task)
    data = sort_data(records)
    rows, other_rows = _sort_rows(summarise_evaluation(records), data), _sort_rows(summarise_evaluation(others), data)
    shown = _choose_network_group(records, data)
    timed = measure_after(records, data)
    shown_times = [row for row in timed if (row.data, row.size) == shown]
    published = find_published(task.name)
    contents = {
        "measure": task.error_name,
        "number": make_number_format(task),
        "spread": make_spread_format(task),
        "description": DESCRIPTIONS[task.name],
        "summary": describe_runs(records, rows, task),
        "groups": _group_rows(rows),
        "other_groups": _group_rows(other_rows),
        "best": _find_best(rows),
        "whole": "{:,.0f}".format,
        "duration": format_duration,
        "periods": format_periods,
        "any_failed": any(row.failed for row in (*rows, *other_rows)),
        "is_image": isinstance(task, SequentialMNIST),
        "sizes": sizes_of(records),
        "baseline": BASELINES.get(task.name),
        "shown": shown,
        "timed": shown_times,
        "fastest": find_fastest(shown_times),
        "published": published,
        "sources": _list_sources(store, data),
        "settings": list_settings(every),
        "standings": find_standings(rows, task),
        "optimiser": {
            "momentum": EvaluationSettings.momentum,
            "second_moment": SECOND_MOMENT,
            "cut": CUT,
            "warm_up": WARM_UP,
        },
        "models": [(name, ALL_METHODS[name].source) for name in methods_of(every) if ALL_METHODS[name].source],
        "claims": [],
        "example": None,
        **list_unfinished(every),
    }
    numbers = {
        "counts": count_statuses(every),
        "seconds": sum_seconds(every),
        "data": data,
        "rows": [asdict(row) for row in rows],
        "other_rows": [asdict(row) for row in other_rows],
        "validation_after": [asdict(row) for row in timed],
        "published": [{**asdict(result), "error": result.error} for result in published],
    }
    return Chapter(
        task=task.name,
        title=NAMES_OF_TASKS[task.name],
        template="evaluation/chapter.html.j2",
        sections=_list_sections(any(record.status == FINISHED for record in records), bool(published)),
        contents=contents,
        figures=_draw_figures(records, rows, task, data, shown),
        titles=TITLES,
        numbers=numbers,
        records=every,
    )


def choose_settings(records: Sequence[Record], task: Evaluation) -> tuple[list[Record], list[Record]]:
    """Returns the records that are shown, and the rest.

    Shown are, for each data set, method and budget, the runs with the hyper-parameters whose median validation error is
    lowest. A run that did not finish counts as infinitely bad.
    """
    groups: dict[Any, dict[Any, list[Record]]] = {}
    for record in records:
        run = record.run
        settings = groups.setdefault((run.data, run.method, run.size), {})
        settings.setdefault((run.hidden, run.settings), []).append(record)

    def judge(group: Sequence[Record]) -> tuple[float, int]:
        errors = sorted(
            task.choice_error(record) if record.status == FINISHED and len(_curve(record)) else math.inf
            for record in group
        )
        # the lower of the two middle values: the mean of a number and infinity would be infinity
        return errors[(len(errors) - 1) // 2], -len(group)

    chosen: set[str] = set()
    for settings in groups.values():
        best = min(settings, key=lambda key: (*judge(settings[key]), key[1].learning_rate, repr(key)))
        chosen |= {record.key for record in settings[best]}
    return (
        [record for record in records if record.key in chosen],
        [record for record in records if record.key not in chosen],
    )


def sort_data(records: Sequence[Record]) -> list[str]:
    """Returns the names of the data sets, by the number at their end and then by name."""
    names = {record.run.data for record in records}
    return sorted(names, key=lambda name: (find_length(name) or 0, name))


def find_length(name: str) -> int | None:
    """Returns the length in the name of a data set, or None if it has none.

    >>> find_length("adding T=200"), find_length("MNIST")
    (200, None)
    """
    match = re.search(r"(\d{1,12})$", name)
    return int(match[1]) if match else None


def describe_runs(records: Sequence[Record], rows: Sequence[EvaluationRow], task: Evaluation) -> list[str]:
    """Returns sentences about what was trained and what came out."""
    counts = count_statuses(records)
    lost = [f"{counts[status]} {status}" for status in ("diverged", "failed") if counts[status]]
    sizes = join_words([f"{size:,}" for size in sizes_of(records)])
    sentences = [
        f"{format_count(len(methods_of(records)), 'method')} with at most {sizes} parameters: "
        f"{format_count(len(records), 'run')}"
        + (f", of which {join_words(lost)}." if lost else ", all of which finished.")
    ]
    finished = [row for row in rows if math.isfinite(row.error)]
    if not finished:
        return [*sentences, "No run has finished yet."]
    write = make_spread_format(task)
    groups = _group_rows(finished)
    for title, group in groups:
        best = [f"{NAMES[row.method]} ({write(row.error, row.deviation)})" for row in group[:3]]
        sentences.append(
            (f"On {title}, " if len(groups) > 1 else "On the test part, ")
            + f"{best[0]} has the lowest mean {task.error_name}"
            + (f", followed by {join_words(best[1:])}." if len(best) > 1 else ".")
        )
    front = _find_front(groups[0][1])
    if len(groups) == 1 and len(front) > 1:
        names = join_words([f"{NAMES[row.method]} ({row.multiply_adds:,.0f})" for row in front])
        sentences.append(
            "These methods have a lower error than all that need fewer multiply-adds per time step, from the cheapest "
            f"to the most accurate: {names}."
        )
    return sentences


def make_spread_format(task: Evaluation) -> Any:
    """Returns the function that writes a mean and a deviation of the errors of the task."""
    number = make_number_format(task)

    def write(mean: float, deviation: float) -> str:
        first = number(mean).removesuffix(" %")
        return f"{first} ± {number(deviation)}" if math.isfinite(mean) else "none"

    return write


def format_duration(seconds: float) -> str:
    """Returns seconds in whole numbers, or in two significant digits below 10; "none" if they are not known.

    >>> [format_duration(1234.5), format_duration(0.0123), format_duration(math.nan)]
    ['1,234', '0.012', 'none']
    """
    if not math.isfinite(seconds):
        return "none"
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


def measure_after(records: Sequence[Record], data: Sequence[str]) -> list[TimedRow]:
    """Returns the validation errors after 1, 10, 100, ... seconds of training, for each network that finished.

    A run that has ended keeps its last error.
    """
    groups: dict[tuple[str, str, int], list[Any]] = {}
    for record in records:
        if record.status == FINISHED and len(curve := _curve(record)):
            groups.setdefault((record.run.data, record.run.method, record.run.size), []).append(curve)
    curves = [curve for group in groups.values() for curve in group]
    if not curves:
        return []
    earliest = min(float(curve[0, 1]) for curve in curves)
    latest = max(float(curve[-1, 1]) for curve in curves)
    seconds = [10**power for power in range(10) if earliest <= 10**power <= latest]
    if not seconds:
        return []
    rows = [
        TimedRow(name, method, size, {second: _median_after(group, second) for second in seconds})
        for (name, method, size), group in groups.items()
    ]
    return sorted(rows, key=lambda row: (data.index(row.data), row.size, PLACES[row.method]))


def find_fastest(rows: Sequence[TimedRow]) -> dict[int, float]:
    """Returns the lowest validation error after some seconds, by seconds, where any row has one."""
    known: dict[int, list[float]] = {}
    for row in rows:
        for second, error in row.errors.items():
            if math.isfinite(error):
                known.setdefault(second, []).append(error)
    return {second: min(known[second]) for second in sorted(known)}


def format_periods(periods: Sequence[int]) -> str:
    """Returns the periods of modules; a long geometric series without its middle.

    >>> [format_periods((1, 2, 4, 8, 16, 32)), format_periods((3, 5, 7, 11, 13)), format_periods(())]
    ['1, 2, 4, ..., 32', '3, 5, 7, 11, 13', '']
    """
    is_series = all(a * c == b * b for a, b, c in zip(periods, periods[1:], periods[2:], strict=False))
    if len(periods) > 4 and is_series:
        return f"{', '.join(map(str, periods[:3]))}, ..., {periods[-1]}"
    return ", ".join(map(str, periods))


def list_settings(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns the hyper-parameters of each method that differ between methods, in the order of ALL_METHODS."""
    groups: dict[str, dict[str, set[Any]]] = {}
    for record in records:
        settings = record.run.settings
        assert isinstance(settings, EvaluationSettings)
        values = groups.setdefault(record.run.method, {})
        for name in ("learning_rate", "epochs", "updates", "batch", "device"):
            values.setdefault(name, set()).add(getattr(settings, name))
    return [
        {"method": method, **{name: _write_values(values) for name, values in groups[method].items()}}
        for method in ALL_METHODS
        if method in groups
    ]


def find_standings(rows: Sequence[EvaluationRow], task: Evaluation) -> dict[str, Any]:
    """Returns the errors for the table of all tasks: those of the last data set and of its largest budget."""
    if not rows:
        return {}
    data, size = rows[-1].data, max(row.size for row in rows if row.data == rows[-1].data)
    chosen = [row for row in rows if (row.data, row.size) == (data, size) and math.isfinite(row.error)]
    write, lowest = make_spread_format(task), min((row.error for row in chosen), default=math.nan)
    return {
        "data": data,
        "size": size,
        "errors": {row.method: write(row.error, row.deviation) for row in chosen},
        "best": [row.method for row in chosen if row.error == lowest],
    }


def _draw_figures(
    records: Sequence[Record],
    rows: Sequence[EvaluationRow],
    task: Evaluation,
    data: Sequence[str],
    shown: tuple[str, int] | None,
) -> dict[str, Any]:
    """Returns the figures that these records suffice for."""
    if shown is None:
        return {}
    operations = {(row.data, row.method, row.size): row.multiply_adds for row in rows}
    drawn = {
        "errors": draw_errors(records, task, data),
        "operations": draw_operations(records, task, data, operations),
    }
    lengths = {name: length for name in data if (length := find_length(name)) is not None and length > 0}
    if task.takes_lengths and len(set(lengths.values())) == len(data) > 1:
        label = LENGTHS.get(task.name, "length of a sequence [steps]")
        drawn["lengths"] = draw_lengths(records, task, lengths, label)
    group = [record for record in records if (record.run.data, record.run.size) == shown]
    if any(len(_curve(record)) for record in group):
        drawn["curves"] = draw_curves(group, task)
    return drawn


def _choose_network_group(records: Sequence[Record], data: Sequence[str]) -> tuple[str, int] | None:
    """Returns the data set and budget whose learning curves are drawn: those with the most finished runs.

    Of several it is the last data set, which has the longest sequences, and the largest budget.
    """
    counts = Counter((record.run.data, record.run.size) for record in records if record.status == FINISHED)
    return max(counts, key=lambda key: (counts[key], data.index(key[0]), key[1]), default=None)


def _sort_rows(rows: Sequence[EvaluationRow], data: Sequence[str]) -> list[EvaluationRow]:
    """Returns the rows by data set and budget, within these from the lowest mean error to the highest."""

    def order(row: EvaluationRow) -> Any:
        place = data.index(row.data) if row.data in data else len(data)
        return place, row.size, row.error if math.isfinite(row.error) else math.inf, PLACES[row.method]

    return sorted(rows, key=order)


def _group_rows(rows: Sequence[EvaluationRow]) -> list[tuple[str, list[EvaluationRow]]]:
    """Returns the rows by data set and budget, each group with its title."""
    groups: dict[str, list[EvaluationRow]] = {}
    for row in rows:
        groups.setdefault(f"{row.data} with at most {row.size:,} parameters", []).append(row)
    return list(groups.items())


def _find_best(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Returns the rows with the lowest mean error of their data set and budget."""
    # the rows of a group are sorted; NaN equals nothing
    return [row for _, group in _group_rows(rows) for row in group if row.error == group[0].error]


def _find_front(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Returns the rows that no other beats in both error and multiply-adds, the cheapest one first."""
    front: list[EvaluationRow] = []
    for row in sorted(rows, key=lambda row: (row.multiply_adds, row.error)):
        if not front or row.error < front[-1].error:
            front.append(row)
    return front


def _median_after(curves: Sequence[Any], seconds: float) -> float:
    """Returns the median of the last errors that were measured by then; NaN if a run has none."""
    last = [curve[curve[:, 1] <= seconds][-1:, 3] for curve in curves]
    return float(np.median(np.concatenate(last))) if all(len(errors) for errors in last) else math.nan


def _curve(record: Record) -> Any:
    return np.empty((0, 4)) if record.curve is None else record.curve


def _list_sources(store: Store, data: Sequence[str]) -> list[tuple[str, str, str]]:
    """Returns the name, the source and the hash of each data set that the store has."""
    known = store.load_all_data()
    return [(name, known[name].source, known[name].digest) for name in data if name in known]


def _write_values(values: set[Any]) -> str:
    """Returns the values of a hyper-parameter in order, without None."""
    known = sorted(value for value in values if value is not None)
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in known)


def _list_sections(has_figures: bool, has_published: bool) -> list[tuple[str, str]]:
    figures = [("figures", "Pictures")] if has_figures else []
    published = [("published", "Other papers")] if has_published else []
    return [("result", "Result"), *figures, ("table", "All numbers"), *published, ("details", "Details")]
