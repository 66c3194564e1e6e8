"""Choice of a series of periods for spoken words by validation, and the errors of the chosen series on the test set.

    draw:   five training speakers of each word   ->  four train every series, one judges them: the choice
                                                  ->  all five train the chosen series
            two test speakers of each word        ->  its error, which has had no part in the choice

Each draw of the speakers chooses for itself: a test speaker of one draw may be a training speaker of another, so a
choice by all draws would have heard the test set of each.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ...environment import environment
from ..errors import ArgumentError
from ..json_safe import make_json_safe
from ..limits import check_plan
from ..networks.methods import METHODS
from ..progress import ProgressCallback
from ..report.draws import DrawRow, DrawSummary, compare_methods, make_row
from ..sweep.driver import Sweep, check_engine, open_sweep
from ..sweep.run import FAILED, FINISHED, Record, Run
from ..text_table import format_table
from ..words.corpus import Corpus
from ..words.draws import hold_out, load_draws
from ..words.task import WORDS
from .comparison import check_series, plan_comparison
from .request import ClockRequest, make_request

CHOICES = ("exponential-2", "exponential-3", "exponential-4")
"""The series that are tried unless others are asked for."""
BESIDE = ("srn", "lstm")
"""The methods without a choice that are trained too, unless others are asked for."""
CHOSEN = "chosen"
"""The name of the networks whose series was chosen."""


@dataclass(frozen=True)
class ClockChoice:
    """The result of `choose_clocks`. Printing it shows the errors of the validation and those on the test set."""

    request: ClockRequest
    data: tuple[str, ...]
    """The names of the corpora, one for each draw."""
    validation: tuple[DrawRow, ...]
    """The errors of each series in the validation."""
    chosen: Mapping[int, str]
    """The series that each draw chose, by the draw's seed."""
    schedules: Mapping[str, str]
    """The modules of each series, period:units."""
    test: DrawSummary
    """The errors on the test set: of the methods beside, of the first series, and of the series that was chosen."""
    failures: tuple[Record, ...]
    """The records of the runs that failed."""
    seconds: float
    store: Path | None = None
    """The store with all records; None if it was temporary."""

    def __str__(self) -> str:
        votes = list(self.chosen.values())
        rows = [
            [
                row.method,
                f"{100 * row.mean:.1f}",
                f"{votes.count(row.method)} of {len(votes)}",
                self.schedules[row.method],
            ]
            for row in self.validation
        ]
        caption = (
            "The errors of training speakers that the networks were not trained on. Each draw chooses the series with "
            "the lowest mean. The test set has no part in this table."
        )
        table = format_table(
            "The choice by validation", ["series", "error %\nmean", "chosen\nin draws", "modules"], rows, caption
        )
        return f"{table}\n\n{self.test}"

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that `cwrnn clocks choose --json` prints."""
        values: dict[str, Any] = make_json_safe({
            **asdict(self.request),
            "data": self.data,
            "validation": [{**asdict(row), "means": _name_keys(row.means)} for row in self.validation],
            "chosen": _name_keys(self.chosen),
            "schedules": dict(self.schedules),
            "test": self.test.to_dict(),
            "failed": len(self.failures),
            "seconds": self.seconds,
            "store": None if self.store is None else str(self.store.resolve()),
            "environment": environment(),
        })  # fmt: skip
        return values


def choose_clocks(
    data: str | PathLike[str] | Corpus = "bundle",
    *,
    words: Sequence[str] | None = None,
    draws: int = 10,
    validation: int = 1,
    series: Sequence[str] = CHOICES,
    beside: Sequence[str] = BESIDE,
    method: str = "cw",
    size: int | None = None,
    modules: int | None = None,
    runs: int = 3,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    engine: str = "local",
    scheduler: str | None = None,
    workers: int | None = None,
    resume: bool = False,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> ClockChoice:
    """Choose a series of periods for spoken words on a part of the training speakers, and test the choice.

    Args:
        data: "bundle", "timit:PATH", "nltk-timit:PATH" or "folder:PATH", as `reproduce_words` takes them, or a `Corpus`
        words: some of the words of `data`. Default: all
        draws: draws of the speakers, each of which chooses for itself
        validation: training speakers of each word that judge the series instead of training them
        series: names of series; the first one is tested too
        beside: methods that are trained and tested on the same draws
        method: the networks: "cw" for Clockwork RNNs, "cw-lstm" or "cw-gru" for LSTMs or GRUs with clocks
        size: number of parameters, at most. Default: 10000
        modules: number of modules. Default: the paper's 7
        runs: initial weights for each network and draw
        epochs: the most epochs of each training. Default: 1000; training ends when the error ceases to fall
        learning_rate: learning rate of the networks with clocks. Default: the paper's; ours for "cw-lstm" and "cw-gru"
        seed: seed of the first network of each draw
        out: folder for the store. Default: a temporary folder
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: address of the Dask cluster
        workers: number of processes. Default: one per core
        resume: True to use the records of a store that is in `out` already
        command: how to repeat the choice; kept in the store
        progress: called with a `Progress` while recordings are read and networks trained

    Returns:
        A ClockChoice: ``print(result)`` shows the tables, ``result.chosen`` has the series of each draw.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained

    >>> result = choose_clocks(words=["making", "subway"], draws=2, beside=[], size=600, runs=1, epochs=1, workers=1)
    >>> sorted(result.chosen)
    [0, 1]
    """
    check_engine(engine, scheduler, workers)
    request = make_request(
        WORDS.name,
        size=WORDS.sizes[-1] if size is None else size,
        modules=modules,
        runs=runs,
        epochs=epochs,
        learning_rate=learning_rate,
        seed=seed,
        method=method,
    )
    names = check_series(series)
    others = _check_beside(beside, method)
    corpora = load_draws(data if isinstance(data, Corpus) else str(data), draws, words=words, progress=progress)
    held = [hold_out(corpus, validation) for corpus in corpora]
    check_plan((len(names) + len(others) + 2) * len(corpora) * request.runs)
    tried = plan_comparison(request, held, names)
    besides = {
        name: WORDS.plan(corpora, methods=[name], sizes=[request.size], runs=request.runs, epochs=request.epochs,
                         seed=request.seed)
        for name in others
    }  # fmt: skip
    with open_sweep(out, engine=engine, scheduler=scheduler, workers=workers, resume=resume, command=command) as sweep:
        started = time.monotonic()
        validated = _train(sweep, held, tried, "validating", progress)
        rows = [_make_row(name, request.size, validated[name], held) for name in names]
        chosen = _choose(rows, corpora)
        tested = {**besides, names[0]: plan_comparison(request, corpora, names[:1])[names[0]]}
        tested[CHOSEN] = [
            run
            for corpus in corpora
            for run in plan_comparison(request, [corpus], [chosen[corpus.draw]])[chosen[corpus.draw]]
        ]
        records = _train(sweep, corpora, tested, "testing", progress)
        test_rows = [_make_row(name, request.size, records[name], corpora) for name in tested]
        every = [record for group in (*validated.values(), *records.values()) for record in group]
        result = ClockChoice(
            request=request,
            data=tuple(corpus.name for corpus in corpora),
            validation=tuple(rows),
            chosen=chosen,
            schedules={name: tried[name][0].schedule or "" for name in names},
            test=DrawSummary(
                tuple(corpus.draw for corpus in corpora),
                {corpus.name: corpus.draw for corpus in corpora},
                tuple(test_rows),
                tuple(compare_methods(test_rows)),
            ),
            failures=tuple({record.key: record for record in every if record.status == FAILED}.values()),
            seconds=time.monotonic() - started,
        )
        return result if out is None else replace(result, store=sweep.store.path)


def _check_beside(beside: Sequence[str], method: str) -> list[str]:
    names = [beside] if isinstance(beside, str) else list(dict.fromkeys(beside))
    expected = [name for name in METHODS if name != method]
    for name in names:
        if name not in expected:
            raise ArgumentError("beside", f"expected some of {', '.join(expected)}, got {name!r}")
    return names


def _train(
    sweep: Sweep,
    corpora: Sequence[Corpus],
    planned: Mapping[str, Sequence[Run]],
    activity: str,
    progress: ProgressCallback | None,
) -> dict[str, list[Record]]:
    """Train the runs of all names, and return their records by name; two names may share runs."""
    every = list({run.key: run for runs in planned.values() for run in runs}.values())
    sweep.train(corpora, every, activity=activity, progress=progress)
    return {name: sweep.select(runs) for name, runs in planned.items()}


def _make_row(name: str, size: int, records: Iterable[Record], corpora: Sequence[Corpus]) -> DrawRow:
    """Return the errors of the runs that finished over the draws."""
    draws = {corpus.name: corpus.draw for corpus in corpora}
    errors: dict[int, list[float]] = {}
    for record in records:
        if record.status == FINISHED:
            errors.setdefault(draws[record.run.data], []).append(record.error)
    return make_row(name, size, errors)


def _choose(rows: Sequence[DrawRow], corpora: Sequence[Corpus]) -> dict[int, str]:
    """Return the series with the lowest validation error of each draw; of several, the one that was named first."""
    return {corpus.draw: min(rows, key=lambda row: row.means.get(corpus.draw, math.inf)).method for corpus in corpora}


def _name_keys(values: Mapping[int, Any]) -> dict[str, Any]:
    """Return the values with texts as keys, as JSON has them."""
    return {str(key): value for key, value in values.items()}
