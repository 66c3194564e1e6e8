"""Series of periods, compared: the paper's discussion names others than 1, 2, 4, ... that were left untried.

    exponential-1.5, exponential-2 (the paper's), exponential-3, linear, fibonacci, logarithmic, random
    spectrum            the exponential series with modules as large as the data has energy in their bands

All have about as many parameters and the same number of modules; what is left of a unit is left. Every series is held
against the paper's by a rank test, and the probabilities are corrected for their number.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from .. import task as tasks
from ..generation import plan as generation
from ..networks.build import MODULES, WORD_MODULES
from ..report import statistics as outcomes
from ..sweep.run import FINISHED, Data, Dataset, Record, Run
from ..sweep.store import Store
from ..words import plan as words
from ..words.corpus import Corpus

PAPERS = "exponential-2"
SERIES = (PAPERS, "exponential-1.5", "exponential-3", "linear", "fibonacci", "logarithmic", "random", "spectrum")

Make = Callable[[int], Schedule]
"""The schedule of a series with so many units."""


class BudgetError(ValueError):
    """There are too few parameters for what is asked for."""


def series(name: str, modules: int, *, seed: int = 0, signal: NDArray[np.float64] | None = None) -> Make:
    """The schedules of a series with as many modules.

    Args:
        name: one of SERIES
        modules: how many; "spectrum" has fewer if the signal is too short for the slowest
        seed: of "random"
        signal: (time,) or (time, channels): what "spectrum" looks at

    >>> [series(name, 5)(10).periods for name in ("exponential-3", "linear", "fibonacci")]
    [(1, 3, 9, 27, 81), (1, 2, 3, 4, 5), (1, 2, 3, 5, 8)]
    """
    if name.startswith("exponential-"):
        base = float(name.removeprefix("exponential-"))
        # an integer base stays exact
        return lambda units: Schedule.exponential(units, modules, int(base) if base.is_integer() else base)
    if name == "spectrum":
        if signal is None:
            raise ValueError("the series 'spectrum' needs a signal")
        heard = signal
        longest = min(modules, int(math.log2(max(1, len(heard) // 2))) + 1)
        return lambda units: Schedule.from_spectrum(heard, units, longest)
    makes: dict[str, Make] = {
        "linear": lambda units: Schedule.linear(units, modules),
        "fibonacci": lambda units: Schedule.fibonacci(units, modules),
        "logarithmic": lambda units: Schedule.logarithmic(units, modules),
        "random": lambda units: Schedule.random(units, modules, seed),
    }
    if name not in makes:
        raise ValueError(f"expected one of {', '.join(SERIES)}, got {name!r}")
    return makes[name]


def at_budget(make: Make, modules: int, size: int, inputs: int, outputs: int) -> Schedule:
    """The schedule with the most units that make at most `size` parameters.

    >>> at_budget(series("linear", 9), 9, 1000, 0, 1).hidden_size
    40
    """

    def fits(units: int) -> bool:
        return make(units).parameter_count(inputs, outputs) <= size

    if not fits(modules):
        least = make(modules).parameter_count(inputs, outputs)
        raise BudgetError(f"size must be at least {least} parameters for {modules} modules, got {size}")
    units = modules
    while fits(2 * units):
        units *= 2
    step = units
    while step > 0:
        while fits(units + step):
            units += step
        step //= 2
    return make(units)


def plan(
    task: str,
    data: Sequence[Data],
    *,
    names: Sequence[str] = SERIES,
    size: int,
    modules: int | None = None,
    runs: int = 20,
    epochs: int | None = None,
    seed: int = 0,
    learning_rate: float | None = None,
    own: Mapping[str, Schedule] | None = None,
) -> dict[str, list[Run]]:
    """The runs of every series, by its name.

    Args:
        task: "generation" or "words"
        data: sequences, or one corpus
        names: which series
        size: parameters, at most
        modules: those of the paper unless given
        runs: initial weights
        epochs: the paper's unless given
        seed: of the first run; "random" is drawn with it
        learning_rate: the paper's unless given
        own: more schedules to compare, by name
    """
    kind = tasks.CLOCKS[task]
    modules = modules or (MODULES if task == tasks.GENERATION else WORD_MODULES)
    found: dict[str, list[Run]] = {}
    for each in data:
        for name in names:
            make = series(name, modules, seed=seed, signal=_signal(each) if name == "spectrum" else None)
            try:
                schedule = at_budget(make, modules, size, *shape(each))
            except BudgetError:
                raise
            except ValueError as error:
                raise ValueError(f"{name} with {modules} modules: {error}") from error
            planned = plan_schedule(kind, each, schedule, runs, epochs, seed, learning_rate)
            found.setdefault(name, []).extend(replace(run, size=size) for run in planned)
        for name, schedule in (own or {}).items():
            planned = plan_schedule(kind, each, schedule, runs, epochs, seed, learning_rate)
            found.setdefault(name, []).extend(planned)
    return found


def plan_schedule(
    task: str,
    data: Data,
    schedule: Schedule,
    runs: int,
    epochs: int | None = None,
    seed: int = 0,
    learning_rate: float | None = None,
) -> list[Run]:
    """The runs of one schedule on one data set."""
    options: dict[str, Any] = {"methods": ["cw"], "schedule": schedule, "runs": runs, "seed": seed, "task": task}
    if epochs is not None:
        options["epochs"] = epochs
    if learning_rate is not None:
        options["learning_rates"] = {"cw": learning_rate}
    return generation.plan([data], **options) if isinstance(data, Dataset) else words.plan(data, **options)


@dataclass(frozen=True)
class Compared:
    """What came of one series, beside the first one."""

    name: str
    schedules: tuple[str, ...]
    """Its modules; several if they depend on the data."""
    parameters: int
    """The most of its networks."""
    box: outcomes.Box
    better: float | None
    """The probability that a run of it is better than one of the first series on the same data; ties count half."""
    p: float | None
    """Of so large a difference by chance: van Elteren's test of ranks within each data set (for one data set, Mann and
    Whitney's), two-sided, corrected for the number of series by Holm's method. None for the first series itself."""


def compare(records: Mapping[str, Sequence[Record]]) -> list[Compared]:
    """Every series, the first one first: that is what the others are held against."""
    names = list(records)
    first = records[names[0]]
    tests = {name: _rank_test(records[name], first) for name in names[1:]}
    corrected = dict(zip(tests, holm([p for _, p in tests.values()]), strict=True))
    return [
        Compared(
            name=name,
            schedules=tuple(dict.fromkeys(record.schedule or "" for record in records[name])),
            parameters=max(record.parameters for record in records[name]),
            box=outcomes.box(records[name]),
            better=tests[name][0] if name in tests else None,
            p=corrected.get(name),
        )
        for name in names
    ]


def holm(probabilities: Sequence[float]) -> list[float]:
    """The probabilities, corrected for their number by Holm's method.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(probabilities)), key=lambda i: probabilities[i])
    found = [0.0] * len(probabilities)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * probabilities[place]))
        found[place] = highest
    return found


def _rank_test(records: Sequence[Record], first: Sequence[Record]) -> tuple[float, float]:
    """How probable it is that a run is better than one of the first, and the test's p.

    Ranks are taken within each data set, since one may be harder than another; a run that did not finish is the worst.
    The sum over data sets of the first group's ranks, each divided by one more than the runs there, is held against
    what it would be by chance (van Elteren); with one data set that is the test of Mann and Whitney.
    """
    stats = require("scipy.stats", extra="experiments", purpose="the rank test")
    surplus = variance = wins = pairs = 0.0
    for name in dict.fromkeys(record.run.data for record in first):
        a, b = (np.array([_error(record) for record in group if record.run.data == name]) for group in (records, first))
        m, n = len(a), len(b)
        ranks = stats.rankdata(np.concatenate((a, b)))
        surplus += float(ranks[:m].sum() - m * (m + n + 1) / 2) / (m + n + 1)
        # of a sum of m ranks drawn without replacement; ties make it smaller
        variance += m * n / (m + n) * float(ranks.var(ddof=1)) / (m + n + 1) ** 2
        wins += float((a[:, None] < b).sum() + 0.5 * (a[:, None] == b).sum())
        pairs += m * n
    p = 2 * float(stats.norm.sf(abs(surplus) / math.sqrt(variance))) if variance > 0 else 1.0
    return wins / pairs, p


def _error(record: Record) -> float:
    return record.error if record.status == FINISHED and math.isfinite(record.error) else math.inf


def shape(data: Data) -> tuple[int, int]:
    """The inputs and outputs of a network for these data."""
    return (0, 1) if isinstance(data, Dataset) else (data.settings.channels, len(data.words))


def _signal(data: Data) -> NDArray[np.float64]:
    """What the series "spectrum" looks at: the samples, or the features of all training words one after the other."""
    if isinstance(data, Corpus):
        return np.concatenate([features for features, _ in data.normalised("train")]).astype(np.float64)
    return data.samples


def by_series(planned: Mapping[str, Iterable[Run]], records: Iterable[Record]) -> dict[str, list[Record]]:
    """The records of every series; one that two series have in common is in both."""
    known = {record.key: record for record in records}
    return {name: [known[run.key] for run in runs] for name, runs in planned.items()}


def keep(store: Store, planned: Mapping[str, Iterable[Run]]) -> None:
    """Has the store remember which runs were compared, and under which names."""
    task = next(run.task for runs in planned.values() for run in runs)
    store.note(task, {name: [run.key for run in runs] for name, runs in planned.items()})


def kept(store: Store, task: str) -> dict[str, list[Record]]:
    """The records of the runs that were compared last, by series; empty if none were.

    Of a comparison that was interrupted, the series that were begun, on the data sets that all of them have.
    """
    names = store.noted(task)
    known = {record.key: record for record in store.records(task, [key for keys in names.values() for key in keys])}
    every = {name: [known[key] for key in keys if key in known] for name, keys in names.items()}
    begun = {name: records for name, records in every.items() if records}
    if not begun:
        return {}
    common = set.intersection(*({record.run.data for record in records} for records in begun.values()))
    if not common:
        return dict([next(iter(begun.items()))])
    return {name: [each for each in records if each.run.data in common] for name, records in begun.items()}
