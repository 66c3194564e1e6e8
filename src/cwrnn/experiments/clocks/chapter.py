"""The chapter about clocks: the series of periods that were compared, or the best candidates of a search."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ..networks.methods import METHODS
from ..report.chapter import Chapter, count_statuses, list_settings, list_unfinished, sum_seconds
from ..report.numbers import format_error, format_percent, join_words
from ..report.statistics import box, methods_of
from ..sweep.run import Record
from ..sweep.store import Store
from ..task import Task
from .comparison import SeriesResult, compare_records, read_comparison
from .evolution import measure_error
from .figures import draw_series

MOST_CANDIDATES = 10
"""The number of candidates of a search that are shown."""

TITLES = {"series": "The errors of every series or schedule"}


def name_chapter(task: Task[Any]) -> str:
    """Return the name of the chapter about the clocks of a task, in links, folders and numbers."""
    return f"clocks-{task.name}"


def make_chapter(store: Store, task: Task[Any]) -> Chapter | None:
    """Return the chapter about the clocks of a task, or None if the store has no runs for it."""
    every = store.records(task.clocks_name)
    if not every:
        return None
    compared = read_comparison(store, task.clocks_name)
    series = compare_records(compared) if compared else rank_candidates(every)
    contents: dict[str, Any] = {
        "measure": task.error_name,
        "number": format_percent if task.error_is_a_share else format_error,
        "compared": bool(compared),
        "series": series,
        "runs": len(every),
        "candidates": len({record.schedule for record in every}),
        "data": sorted({record.run.data for record in every}),
        "networks": join_words([METHODS[method].plural for method in methods_of(every)]),
        "settings": _list_settings(every),
        "example": None,
        **list_unfinished(every),
    }
    numbers = {
        "counts": count_statuses(every),
        "seconds": sum_seconds(every),
        "compared": bool(compared),
        "series": [asdict(result) for result in series],
        "data": contents["data"],
    }
    return Chapter(
        task=name_chapter(task),
        title=f"Clocks: {task.title}",
        template="clocks/chapter.html.j2",
        sections=[("result", "Result"), ("lost", "Runs that did not finish"), ("trained", "Settings")],
        contents=contents,
        figures={"series": draw_series(series, task.error_name)}
        if any(result.box.finished for result in series)
        else {},
        titles=TITLES,
        numbers=numbers,
        records=every,
    )


def rank_candidates(records: Sequence[Record]) -> list[SeriesResult]:
    """Return the best candidates of a search, the best one first.

    They are not tested against each other: the search chose them by these very runs.
    """
    several = len({record.run.method for record in records}) > 1
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        # the same schedule makes other networks with another method
        prefix = f"{METHODS[record.run.method].label} " if several else ""
        groups[f"{prefix}{record.schedule or ''}"].append(record)
    errors = {name: measure_error(group) for name, group in groups.items()}
    # candidates without a result are shown only if there are no others
    usable = [name for name in errors if math.isfinite(errors[name])] or list(errors)
    order = sorted(usable, key=lambda name: (errors[name], name))
    return [
        SeriesResult(name, (group[0].schedule or "",), group[0].parameters, box(group), better=None, p=None)
        for name, group in ((name, groups[name]) for name in order[:MOST_CANDIDATES])
    ]


def _list_settings(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the settings of the training that occur, without the schedules."""
    examples = {
        (record.run.method, replace(record.run.settings, schedule=None, modules=1)): record for record in records
    }
    alike = [replace(record, run=replace(record.run, settings=settings)) for (_, settings), record in examples.items()]
    rows = list_settings(alike)
    for row in rows:
        for name in ("schedule", "modules"):
            row["settings"].pop(name, None)
    return rows
