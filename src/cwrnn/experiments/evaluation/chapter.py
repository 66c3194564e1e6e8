"""The chapter of an evaluation task: which method has the lowest error, at what cost, and after how long."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ..networks.methods import ALL_METHODS, PLACES
from ..report.chapter import Chapter, count_statuses, list_unfinished, sum_seconds
from ..report.drawing import NAMES
from ..report.numbers import format_count, join_words
from ..report.statistics import methods_of, sizes_of
from ..sweep.run import FINISHED, Record
from ..sweep.store import Store
from ..sweep.store_file import StoreError
from .examples import Examples
from .figures import (
    BASELINES,
    draw_costs,
    draw_curves,
    draw_errors,
    draw_lengths,
    find_front,
    has_baseline,
    make_number_format,
)
from .published import find_published
from .result import EvaluationRow, format_spread, order_name, summarise_evaluation
from .task import Evaluation, PermutedMNIST, SequentialMNIST
from .training import COLUMNS, CUT, SECOND_MOMENT, TORCH_LAYERS, WARM_UP, EvaluationSettings

TITLES = {
    "errors": "Test errors",
    "operations": "Test errors and the cost of a time step",
    "seconds": "Test errors and the time of training",
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
        "With ten classes, guessing is wrong in 90 % of the answers."
    ),
    "permuted-mnist": (
        "A network reads an image one pixel at a time, in one random order that is the same for all images, and must "
        "name its class after the last pixel. Pixels that are neighbours in the image can be hundreds of steps apart. "
        "With ten classes, guessing is wrong in 90 % of the answers."
    ),
    "characters": (
        "A network reads a text one character at a time and must predict the next one. The error is the cross entropy "
        "in bits per character."
    ),
}
"""What a task is, by task."""

LENGTHS = {"copy": "delay [steps]"}
"""What the number in the name of a data set is, by task; for the others it is the length."""

UPPER_BOUNDS = ("compressor", "skip")
"""The methods whose multiply-adds per step depend on the data; the count is that of a step that leaves out nothing."""


@dataclass(frozen=True)
class ChosenRecords:
    """The records of a task, by where a page shows them."""

    drawn: list[Record]
    """One set of hyper-parameters for each data set, method and budget: figures, sentences and table."""
    listed: list[Record]
    """The chosen hyper-parameters of the same networks at other amounts of training: a row of the table each."""
    others: list[Record]
    """The hyper-parameters that were not chosen."""


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
    check_records(every, str(store.path))
    stored = store.load_all_data()
    chosen = choose_settings(every, task, stored)
    records = chosen.drawn
    data = sort_data(records)
    rows, listed, other_rows = (
        _sort_rows(summarise_evaluation(group), data) for group in (records, chosen.listed, chosen.others)
    )
    figures = _draw_figures(records, rows, task, data, shown := _choose_network_group(records, data))
    methods = methods_of(every)
    timed = measure_after(records, data)
    shown_times = [row for row in timed if (row.data, row.size) == shown]
    published = find_published(task.name)
    contents = {
        "measure": task.error_name,
        "number": make_number_format(task),
        "spread": lambda mean, deviation: format_spread(mean, deviation, make_number_format(task)),
        "has_deviations": any(math.isfinite(row.deviation) for row in (*rows, *listed, *other_rows)),
        "description": DESCRIPTIONS[task.name],
        "summary": describe_runs(records, rows, task),
        "groups": _group_rows(_sort_rows([*rows, *listed], data)),
        "undrawn": listed,
        "other_groups": _group_rows(other_rows),
        "best": _find_best(rows),
        "whole": "{:,.0f}".format,
        "duration": format_duration,
        "periods": format_periods,
        "training": format_training,
        "rate": format_rate,
        "varied": _find_varied([*rows, *listed, *other_rows]),
        "any_failed": any(row.failed for row in (*rows, *listed, *other_rows)),
        "is_image": isinstance(task, SequentialMNIST),
        "is_permuted": isinstance(task, PermutedMNIST),
        "is_unequal": len({row.runs for row in (*rows, *listed, *other_rows)}) > 1,
        "sizes": sizes_of(records),
        "baseline": BASELINES[task.name] if "errors" in figures and has_baseline(figures["errors"]) else None,
        "shown": shown,
        "timed": shown_times,
        "fastest": find_fastest(shown_times),
        "published": published,
        "sources": [(name, stored[name].source, stored[name].digest) for name in data if name in stored],
        "settings": list_settings(every),
        "standings": find_standings(rows, task),
        "optimiser": {
            "momentum": EvaluationSettings.momentum,
            "second_moment": SECOND_MOMENT,
            "cut": CUT,
            "warm_up": WARM_UP,
        },
        "models": [(name, ALL_METHODS[name].source) for name in methods if ALL_METHODS[name].source],
        "torch_layers": [NAMES[name] for name in methods if name in TORCH_LAYERS],
        "upper_bounds": join_words([NAMES[name] for name in methods if name in UPPER_BOUNDS]),
        "has_fixed": any(ALL_METHODS[name].is_fixed for name in methods),
        "claims": [],
        "example": None,
        **list_unfinished(every),
    }
    numbers = {
        "counts": count_statuses(every),
        "seconds": sum_seconds(every),
        "data": data,
        "rows": [asdict(row) for row in rows],
        "listed_rows": [asdict(row) for row in listed],
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
        figures=figures,
        titles=TITLES,
        numbers=numbers,
        records=every,
    )


def check_records(records: Sequence[Record], store: str) -> None:
    """Raises a StoreError that names the run if a record has values that no run of an evaluation task has.

    Args:
        records: the records of an evaluation task
        store: the name of their store
    """
    for record in records:
        run = record.run
        problem = _find_problem(record)
        if problem:
            raise StoreError(
                f"{store}: the store is broken: the run {run.key[:12]} ({run.method} with {run.size} parameters, seed "
                f"{run.seed}) has {problem}"
            )


def _find_problem(record: Record) -> str:
    """Returns what a record has that no run of an evaluation task has; an empty text if there is nothing."""
    if record.curve is not None and record.curve.shape[1:] != (len(COLUMNS),):
        return f"a curve of the shape {record.curve.shape}, expected (n, {len(COLUMNS)})"
    for name in ("error", "seconds", "epochs", "parameters"):
        if not isinstance(getattr(record, name), (int, float)):
            return f"a value of {name!r} that is no number"
    try:
        for spec in (record.schedule, record.run.schedule):
            if spec is not None:
                Schedule.parse(spec)
    except (TypeError, ValueError) as error:
        return f"a schedule that cannot be read: {error}"
    return ""


def choose_settings(records: Sequence[Record], task: Evaluation, data: Mapping[str, Any]) -> ChosenRecords:
    """Returns the records by where the page shows them.

    Hyper-parameters compete if data set, method, budget and amount of training are the same: epochs, updates, batch and
    device. Those with the lowest median validation error are chosen; a run that did not finish counts as infinitely
    bad. Of several amounts of training, the figures show the one with the most runs of the chosen hyper-parameters, and
    of equals the one with the most updates.

    Args:
        records: all records of the task
        task: their task
        data: the data sets by name, as far as they are known
    """
    networks: dict[Any, dict[Any, dict[Any, list[Record]]]] = {}
    for record in records:
        run = record.run
        amounts = networks.setdefault((run.data, run.method, run.size), {})
        settings = amounts.setdefault(_find_amount(record), {})
        settings.setdefault((run.hidden, run.settings), []).append(record)

    def judge(group: Sequence[Record]) -> tuple[float, int]:
        errors = sorted(
            task.choice_error(record) if record.status == FINISHED and len(_curve(record)) else math.inf
            for record in group
        )
        # the lower of the two middle values: the mean of a number and infinity would be infinity
        return errors[(len(errors) - 1) // 2], -len(group)

    def rank(group: Sequence[Record]) -> tuple[int, int, str]:
        run = group[0].run
        settings, examples = run.settings, data.get(run.data)
        assert isinstance(settings, EvaluationSettings)
        updates = settings.count_updates(examples) if isinstance(examples, Examples) else settings.epochs
        return len(group), updates, repr(settings)

    drawn: set[str] = set()
    listed: set[str] = set()
    for amounts in networks.values():
        winners = []
        for settings in amounts.values():
            best = min(settings, key=lambda key: (*judge(settings[key]), key[1].learning_rate, repr(key)))
            winners.append(settings[best])
        winners.sort(key=rank, reverse=True)
        drawn |= {record.key for record in winners[0]}
        listed |= {record.key for group in winners[1:] for record in group}
    return ChosenRecords(
        [record for record in records if record.key in drawn],
        [record for record in records if record.key in listed],
        [record for record in records if record.key not in drawn | listed],
    )


def _find_amount(record: Record) -> tuple[Any, ...]:
    """Returns the settings that decide how much a network is trained, and where."""
    names = ("epochs", "updates", "batch", "device")
    foreign = ALL_METHODS[record.run.method].foreign_settings
    return tuple(None if name in foreign else getattr(record.run.settings, name) for name in names)


def sort_data(records: Sequence[Record]) -> list[str]:
    """Returns the names of the data sets in the order of `order_name`: short lengths first."""
    return sorted({record.run.data for record in records}, key=order_name)


def find_length(name: str) -> int | None:
    """Returns the length in the name of a data set, or None if it has none.

    >>> find_length("adding 200"), find_length("MNIST")
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
    write = make_number_format(task)
    groups = _group_rows(finished)
    for title, group in groups:
        best = [f"{NAMES[row.method]} ({format_spread(row.error, row.deviation, write)})" for row in group[:3]]
        sentences.append(
            (f"On {title}, " if len(groups) > 1 else "On the test part, ")
            + f"{best[0]} has the lowest mean {task.error_name}"
            + (f", followed by {join_words(best[1:])}." if len(best) > 1 else ".")
        )
    front = find_front(groups[0][1], lambda row: (row.multiply_adds, row.error))
    if len(groups) == 1 and len(front) > 1:
        names = join_words([f"{NAMES[row.method]} ({row.multiply_adds:,.0f})" for row in front])
        sentences.append(
            "These methods have a lower error than all that need fewer multiply-adds per time step, from the cheapest "
            f"to the most accurate: {names}."
        )
    return sentences


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


def format_training(row: EvaluationRow) -> str:
    """Returns the epochs of a row, or its updates if they ended before the epochs; a fixed layer has no updates."""
    if row.updates is None:
        return str(row.epochs)
    return f"{row.updates:,} batches" if ALL_METHODS[row.method].is_fixed else format_count(row.updates, "update")


def format_rate(row: EvaluationRow) -> str:
    """Returns the learning rate of a row; an empty text for a method without descent."""
    return "" if "learning_rate" in ALL_METHODS[row.method].foreign_settings else f"{row.learning_rate:g}"


def list_settings(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Returns the hyper-parameters that concern each method, in the order of ALL_METHODS."""
    groups: dict[str, dict[str, set[Any]]] = {}
    for record in records:
        settings = record.run.settings
        assert isinstance(settings, EvaluationSettings)
        values = groups.setdefault(record.run.method, {})
        for name in ("learning_rate", "epochs", "updates", "batch", "device"):
            values.setdefault(name, set()).add(getattr(settings, name))
    return [
        {
            "method": method,
            **{
                name: "" if name in ALL_METHODS[method].foreign_settings else _write_values(values)
                for name, values in groups[method].items()
            },
        }
        for method in ALL_METHODS
        if method in groups
    ]


def find_standings(rows: Sequence[EvaluationRow], task: Evaluation) -> dict[str, Any]:
    """Returns the errors for the table of all tasks: those of the last data set and of its largest budget."""
    if not rows:
        return {}
    data, size = rows[-1].data, max(row.size for row in rows if row.data == rows[-1].data)
    chosen = [row for row in rows if (row.data, row.size) == (data, size) and math.isfinite(row.error)]
    write, lowest = make_number_format(task), min((row.error for row in chosen), default=math.nan)
    return {
        "data": data,
        "size": size,
        "errors": {row.method: format_spread(row.error, row.deviation, write) for row in chosen},
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
    seconds = {(row.data, row.method, row.size): row.seconds for row in rows}
    drawn = {
        "errors": draw_errors(records, task, data),
        "operations": draw_costs(records, task, data, "operations", operations),
        "seconds": draw_costs(records, task, data, "seconds", seconds),
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


def _find_varied(rows: Sequence[EvaluationRow]) -> list[str]:
    """Returns which of batch and device differ between the rows."""
    return [name for name in ("batch", "device") if len({getattr(row, name) for row in rows}) > 1]


def _find_best(rows: Sequence[EvaluationRow]) -> list[EvaluationRow]:
    """Returns the rows with the lowest mean error of their data set and budget."""
    # the rows of a group are sorted; NaN equals nothing
    return [row for _, group in _group_rows(rows) for row in group if row.error == group[0].error]


def _median_after(curves: Sequence[Any], seconds: float) -> float:
    """Returns the median of the last errors that were measured by then; NaN if a run has none."""
    last = [curve[curve[:, 1] <= seconds][-1:, 3] for curve in curves]
    return float(np.median(np.concatenate(last))) if all(len(errors) for errors in last) else math.nan


def _curve(record: Record) -> Any:
    return np.empty((0, 4)) if record.curve is None else record.curve


def _write_values(values: set[Any]) -> str:
    """Returns the values of a hyper-parameter in order, without None."""
    known = sorted(value for value in values if value is not None)
    return ", ".join(f"{value:g}" if isinstance(value, float) else str(value) for value in known)


def _list_sections(has_figures: bool, has_published: bool) -> list[tuple[str, str]]:
    figures = [("figures", "Pictures")] if has_figures else []
    published = [("published", "Other papers")] if has_published else []
    return [("result", "Result"), *figures, ("table", "All numbers"), *published, ("details", "Details")]
