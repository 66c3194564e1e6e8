"""The chapters of clocks: series of periods that were compared, or the best candidates of a search."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import task as tasks
from ..report import chapter
from ..report import statistics as outcomes
from ..report.chapter import Chapter
from ..report.drawing import percent, short
from ..sweep.run import Record
from ..sweep.store import Store
from . import comparison as series
from . import evolution
from .comparison import Compared
from .figures import series_plot

BEST = 10
"""Candidates of a search that are shown."""

TITLES = {"series": "What came of each"}


def anchor(task: str) -> str:
    """What the chapter of a task, "generation" or "words", is called in links and folders."""
    return f"clocks-{task}"


def make(store: Store, task: str) -> Chapter | None:
    """The chapter, if the store has runs for it."""
    every = store.records(tasks.CLOCKS[task])
    if not every:
        return None
    compared = series.kept(store, tasks.CLOCKS[task])
    found = series.compare(compared) if compared else best(every)
    contents: dict[str, Any] = {
        "measure": "NMSE" if task == tasks.GENERATION else "error",
        "number": short if task == tasks.GENERATION else percent,
        "compared": bool(compared),
        "found": found,
        "runs": len(every),
        "candidates": len({record.schedule for record in every}),
        "data": sorted({record.run.data for record in every}),
        "settings": _settings(every),
        "example": None,
        **chapter.lost(every),
    }
    numbers = {
        "counts": chapter.counts(every),
        "seconds": chapter.seconds(every),
        "compared": bool(compared),
        "series": [asdict(each) for each in found],
        "data": contents["data"],
    }
    title = "sequence generation" if task == tasks.GENERATION else "spoken words"
    measure = "NMSE" if task == tasks.GENERATION else "error rate"
    return Chapter(
        task=anchor(task),
        title=f"Clocks: {title}",
        template="clocks/chapter.html.j2",
        sections=[("result", "Result"), ("lost", "Runs that did not finish"), ("trained", "What was trained")],
        contents=contents,
        figures={"series": series_plot(found, measure)} if any(each.box.finished for each in found) else {},
        titles=TITLES,
        numbers=numbers,
        records=every,
    )


def best(records: Sequence[Record]) -> list[Compared]:
    """The candidates that the search finds best, untested: they were chosen by these very runs."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[record.schedule or ""].append(record)
    errors = {spec: evolution.fitness(of) for spec, of in groups.items()}
    # those of which something came, if there are any
    some = [spec for spec in errors if math.isfinite(errors[spec])] or list(errors)
    order = sorted(some, key=lambda spec: (errors[spec], spec))
    return [
        Compared(spec, (spec,), groups[spec][0].parameters, outcomes.box(groups[spec]), None, None)
        for spec in order[:BEST]
    ]


def _settings(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The hyper-parameters that occur, apart from the schedules."""
    plain = {replace(record.run.settings, schedule=None, modules=1): record for record in records}
    alike = [replace(record, run=replace(record.run, settings=settings)) for settings, record in plain.items()]
    found = chapter.settings(alike)
    for each in found:
        del each["settings"]["schedule"], each["settings"]["modules"]
    return found
