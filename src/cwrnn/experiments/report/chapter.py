"""Chapters: what a page says of one task, and what the chapters of both tasks are made of."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..generation.training import Settings
from ..networks.build import METHODS
from ..sweep.run import DIVERGED, FAILED, FINISHED, STATUSES, Record
from ..task import SEARCHES
from .statistics import best, best_rates, searched

LISTED = 200
"""How many diverged runs are listed one by one."""


@dataclass(frozen=True)
class Chapter:
    """What a page says of one task."""

    task: str
    title: str
    template: str
    """Its file."""
    sections: Sequence[tuple[str, str]]
    """The anchors of its parts, and their names."""
    contents: Mapping[str, Any]
    """What the template is filled with."""
    figures: Mapping[str, Any]
    """By the names of their files."""
    titles: Mapping[str, str]
    """Of every figure that there may be."""
    numbers: Mapping[str, Any]
    """For summary.json."""
    records: Sequence[Record]
    """All of them, those of the search as well."""


def main(records: Sequence[Record], *, rate: bool = True) -> tuple[list[Record], list[Record]]:
    """The records that are drawn, and the rest: for each method, the hyper-parameters that most of its runs have.

    Without `rate` all learning rates are one, as in a search of them.
    """

    def settings_of(record: Record) -> Settings:
        return record.run.settings if rate else replace(record.run.settings, learning_rate=0.0)

    counts = Counter((record.run.method, settings_of(record)) for record in records)
    chosen = {
        method: max(
            (settings for each, settings in counts if each == method),
            key=lambda settings: (counts[method, settings], settings.epochs, repr(settings)),
        )
        for method in {method for method, _ in counts}
    }
    found = [record for record in records if settings_of(record) == chosen[record.run.method]]
    return found, [record for record in records if settings_of(record) != chosen[record.run.method]]


def shown(records: Iterable[Record]) -> Record | None:
    """The Clockwork RNN whose modules are drawn: the best one of the largest size."""
    clockwork = [record for record in records if (record.run.method, record.status) == ("cw", FINISHED)]
    largest = max((record.run.size for record in clockwork), default=0)
    return best(record for record in clockwork if record.run.size == largest)


def search_table(records: Sequence[Record], paper: Mapping[str, float]) -> list[dict[str, Any]]:
    """What came of every learning rate, by method and size, and which is best."""
    rates = best_rates(records)
    found = []
    for method in METHODS:
        for size in sorted({record.run.size for record in records if record.run.method == method}):
            mine = [record for record in records if (record.run.method, record.run.size) == (method, size)]
            for each in searched(mine):
                found.append({"method": method, "size": size, "best": each.rate == rates.get((method, size)),
                              "paper": math.isclose(each.rate, paper[method]), **asdict(each)})  # fmt: skip
    return found


def lost(records: Sequence[Record]) -> dict[str, Any]:
    """The runs that did not finish, as the template takes them."""
    of_search = sum(record.status == DIVERGED and record.run.task in SEARCHES.values() for record in records)
    return {"failures": _failures(records), "diverged": _diverged(records), "of_search": of_search, "listed": LISTED}


def counts(records: Iterable[Record]) -> dict[str, int]:
    """How many there are of each status."""
    found = Counter(record.status for record in records)
    return {status: found[status] for status in STATUSES}


def seconds(records: Iterable[Record]) -> float:
    """What all of them took."""
    return round(math.fsum(record.seconds for record in records), 1)


def settings(records: Iterable[Record]) -> list[dict[str, Any]]:
    """The hyper-parameters that occur, by method, without those that do not concern it."""
    foreign = {"srn": {"modules", "peepholes", "forget_bias"}, "lstm": {"modules"}, "cw": {"peepholes", "forget_bias"}}
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        method = record.run.method
        values = {name: v for name, v in asdict(record.run.settings).items() if name not in foreign[method]}
        found[f"{METHODS.index(method)}{json.dumps(values, sort_keys=True)}"] = {"method": method, "settings": values}
    return [found[key] for key in sorted(found)]


def _failures(records: Iterable[Record]) -> list[tuple[str, list[Record]]]:
    """The failed runs by their traceback, the most frequent first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == FAILED:
            groups.setdefault(record.traceback or "no traceback was recorded", []).append(record)
    return sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))


def _diverged(records: Iterable[Record]) -> list[Record]:
    order = {method: place for place, method in enumerate(METHODS)}
    found = [record for record in records if record.status == DIVERGED]
    return sorted(
        found,
        key=lambda r: (r.run.task, order[r.run.method], r.run.size, r.run.data, r.run.settings.learning_rate,
                       r.run.seed, r.key),
    )  # fmt: skip
