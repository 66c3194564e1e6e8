"""Evolved clocks: `evolve_clocks` searches periods, and judges every candidate by networks that are trained with it.

The store keeps every network that was trained. A search that was interrupted can be repeated: it makes the same
candidates, and trains only those that are missing.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...environment import environment
from ...schedule import Schedule
from ...writing import write_files
from ..errors import ArgumentError, ExperimentError
from ..json_safe import make_json_safe
from ..limits import check_plan
from ..networks.build import schedule_parameter_count
from ..progress import ProgressCallback
from ..sweep.driver import Sweep, check_engine, open_sweep
from ..sweep.run import FAILED, FINISHED, Record
from ..task import Data, find_task
from .request import ClockRequest, Source, choose_task, find_shape, list_sources, load_data, make_request, select
from .search import WORST, JudgedGeneration, SearchSpace, check_search, search_schedules
from .series import make_paper_schedule
from .verdict import SCHEDULE_FILE, Verdict, format_use

LONGEST_PERIOD = 2**20


@dataclass
class Judge:
    """Trains networks with schedules and returns their errors; the store keeps the networks."""

    sweep: Sweep
    data: Sequence[Data]
    request: ClockRequest
    progress: ProgressCallback | None = None
    trained: int = 0
    """The number of networks that the last call trained; the store had the others."""
    statuses: Counter[str] = field(default_factory=Counter)
    """For the last call, how many runs finished, diverged or failed."""
    failures: dict[str, Record] = field(default_factory=dict)
    """The records of the runs that failed in any call, by the keys of the runs."""

    def judge_schedules(self, schedules: Sequence[Schedule], activity: str) -> list[float]:
        """Return the error of each schedule, after training the networks that are missing."""
        planned = {
            schedule: [run for dataset in self.data for run in self.request.plan_runs(dataset, schedule)]
            for schedule in schedules
        }
        every = [run for runs in planned.values() for run in runs]
        self.trained = self.sweep.train(self.data, every, activity=activity, progress=self.progress)
        known = {record.key: record for record in self.sweep.select(every)}
        self.statuses = Counter(record.status for record in known.values())
        self.failures |= {key: record for key, record in known.items() if record.status == FAILED}
        return [measure_error([known[run.key] for run in runs]) for runs in planned.values()]


def measure_error(records: Sequence[Record]) -> float:
    """Return the median error of the runs of a candidate; a run that did not finish counts as infinitely bad.

    The task says which error chooses clocks: the test set must have no part in it.
    """
    errors = [
        find_task(record.run.task).choice_error(record)
        if record.status == FINISHED and record.curve is not None
        else math.inf
        for record in records
    ]
    return float(np.median(errors))


@dataclass(frozen=True)
class GenerationReport:
    """A generation when it has been judged. Printing it shows the best schedule so far and the runs that were lost."""

    generation: JudgedGeneration
    generations: int
    """The number of generations in all."""
    statuses: Mapping[str, int]
    """How many runs of its new candidates finished, diverged or failed."""
    seconds: float
    """The time since the search began."""
    seconds_left: float
    """The estimated time until the end; 0 if nothing has been trained yet."""

    def __str__(self) -> str:
        """Return one line.

        >>> generation = JudgedGeneration(1, (), (), Schedule.exponential(4, 2), 0.5)
        >>> print(GenerationReport(generation, 15, {"finished": 20, "diverged": 3, "failed": 1}, 9.0, 0.0))
        generation 1 of 15: best 0.5 with 1:2,2:2; 3 of 24 runs diverged, 1 of 24 runs failed
        """
        best = f"best {self.generation.best_error:.3g} with {self.generation.best.spec}"
        if self.generation.best_error >= WORST:
            best = "no usable candidate yet"
        total = sum(self.statuses.values())
        lost = ", ".join(
            f"{count} of {total} runs {status}" for status, count in sorted(self.statuses.items()) if status != FINISHED
        )
        return "; ".join(filter(None, [f"generation {self.generation.number} of {self.generations}: {best}", lost]))


@dataclass(frozen=True)
class EvolvedClocks:
    """The result of `evolve_clocks`. Printing it shows the schedule, its error, and whether it beats the series."""

    request: ClockRequest
    data: tuple[str, ...]
    """The names of the data sets."""
    schedule: Schedule
    """The best schedule of the search."""
    error: float
    """The median error of its networks; for words, of their cross entropies on the training set."""
    parameters: int
    verdict: Verdict | None
    """The comparison with the series 1, 2, 4, ... of as many modules; None if its periods would be too long."""
    use: str
    """A command that trains networks with the schedule on the same data, or a line of Python."""
    generations: tuple[JudgedGeneration, ...]
    population: int
    failures: tuple[Record, ...]
    """The records of the runs that failed."""
    seconds: float
    store: Path | None = None
    """The store with all records; None if it was temporary."""

    def __str__(self) -> str:
        networks = self.request.runs * len(self.data)
        lines = [
            f"The best schedule is {self.schedule.spec}",
            f"Its error is {self.error:.3g}, the median of {networks} networks.",
        ]
        if self.verdict is not None:
            lines += ["", str(self.verdict)]
            if self.verdict.better:
                lines.append(
                    "The search chose them by these very networks: confirm it with `cwrnn clocks compare` and another "
                    "--seed."
                )
        else:
            lines += ["", f"There is no series 1, 2, 4, ... of {self.request.modules} modules to compare it with."]
        worse = self.verdict is not None and self.verdict.worse
        lines += ["", f"To use it{' all the same' if worse else ''}:", f"  {self.use}"]
        if self.store is not None:
            lines.append(f"All networks of the search are in {self.store.resolve()}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that `cwrnn clocks evolve --json` prints."""
        values: dict[str, Any] = make_json_safe({
            **asdict(self.request),
            "task": find_task(self.request.task).clocks_name,
            "schedule": self.schedule.spec,
            "periods": self.schedule.periods,
            "sizes": self.schedule.sizes,
            "error": self.error,
            "parameters": self.parameters,
            "verdict": None if self.verdict is None else self.verdict.to_dict(),
            "use": self.use,
            "data": self.data,
            "generations": len(self.generations),
            "population": self.population,
            "failed": len(self.failures),
            "seconds": self.seconds,
            "store": None if self.store is None else str(self.store.resolve()),
            "environment": environment(),
        })  # fmt: skip
        return values


def evolve_clocks(
    task: str | None = None,
    data: Source | Sequence[Source] | None = None,
    *,
    target: str | None = None,
    inputs: Sequence[str] | None = None,
    offset: float = 0.0,
    length: int | None = None,
    method: str = "cw",
    size: int | None = None,
    modules: int | None = None,
    longest: int | None = None,
    sizes: bool = False,
    generations: int = 15,
    population: int = 12,
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
    on_generation: Callable[[GenerationReport], None] | None = None,
) -> EvolvedClocks:
    """Find periods by evolution: networks are trained with many candidates, and the better ones lead to the next.

    A candidate is judged by the median error of its networks; for words by their cross entropy on the training set, so
    that the test set does not choose. A run that diverges counts as the worst. The series 1, 2, 4, ... is judged in
    the same way, and the result says whether the evolved clocks are better.

    Args:
        task: "generation" (learn to generate a sequence), "words" (tell spoken words apart) or "regression" (read
            columns of a table, and return another one). Default: "regression" if there are `inputs`, else "generation"
        data: one or more sources as `cwrnn reproduce` takes them, or "squares:3,7,21x20" for square waves, or CSV or
            NumPy files, or a `Table`, or data sets. Default: the bundled data of the task
        target: the column of a table that networks generate or return. Default: the only one
        inputs: the columns of a table that networks read
        offset: seconds from the start of each sound file, rows from the start of each table
        length: samples or rows of each sequence. Default: 320, or fewer of a short table
        method: the networks: "cw" for Clockwork RNNs, "cw-lstm" or "cw-gru" for LSTMs or GRUs with clocks
        size: number of parameters, at most. Default: 1000, for words 2500
        modules: number of modules, at least 2. Default: the paper's, 9, for words 7
        longest: the longest period. Default: that of the series 1, 2, 4, ..., at least 32
        sizes: True to evolve the sizes of the modules too
        generations: number of generations
        population: number of candidates in a generation, at least 4
        runs: number of networks for each candidate and data set
        epochs: epochs of each training. Default: the paper's
        learning_rate: learning rate. Default: the paper's; ours for "cw-lstm" and "cw-gru"
        seed: seed of the search and of its first network
        out: folder for the store and for schedule.txt. Default: a temporary folder
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: address of the Dask cluster
        workers: number of processes. Default: one per core
        resume: True to use the records of a store that is in `out` already
        command: how to repeat the search; kept in the store
        progress: called with a `Progress` while data are read and networks trained
        on_generation: called with a `GenerationReport` after every generation

    Returns:
        EvolvedClocks: ``result.schedule`` is the best schedule, ``result.verdict`` compares it with the series.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: every run failed, or no candidate can be trained at this learning rate

    >>> result = evolve_clocks(data="squares:3,5", size=60, modules=2, generations=1, population=4, runs=1, epochs=2,
    ...                        workers=1)
    >>> result.schedule.modules
    2
    """
    check_engine(engine, scheduler, workers)
    task = choose_task(task, inputs)
    request = make_request(
        task,
        size=size,
        modules=modules,
        runs=runs,
        epochs=epochs,
        learning_rate=learning_rate,
        seed=seed,
        method=method,
    )
    check_search(generations, population, seed)
    sources = list_sources(data)
    selection = select(target, inputs, offset, length)
    datasets = load_data(task, sources, progress, selection)
    check_plan(population * len(datasets) * request.runs)
    shape = find_shape(datasets[0])
    if longest is None:
        longest = min(LONGEST_PERIOD, max(32, 2 ** (request.modules - 1)))
    space = SearchSpace(request.modules, longest, request.size, *shape, sizes, request.method)
    # a budget that is too small is refused before anything is written
    space.decode(space.start)
    with open_sweep(out, engine=engine, scheduler=scheduler, workers=workers, resume=resume, command=command) as sweep:
        started = time.monotonic()
        judge = Judge(sweep, datasets, request, progress)
        series = _make_series(request, shape)
        series_error = None if series is None else judge.judge_schedules([series], "the series 1, 2, 4, ...")[0]
        judged = _search(space, judge, generations, population, seed, on_generation)
        best, error = judged[-1].best, judged[-1].best_error
        if error >= WORST:
            failures = [f"; the first run that failed:\n{record.traceback}" for record in judge.failures.values()]
            raise ExperimentError(
                "no candidate can be used: for each of them, half of the runs or more diverged or failed; try a lower "
                f"--learning-rate (learning_rate=...){''.join(failures[:1])}"
            )
        verdict = None
        if series is not None and series_error is not None:
            verdict = Verdict("evolved", series, error, series_error, find_task(task).choice_name)
        if out is not None:
            write_files({Path(out) / SCHEDULE_FILE: f"{best.spec}\n".encode()})
        return EvolvedClocks(
            request=request,
            data=tuple(dataset.name for dataset in datasets),
            schedule=best,
            error=error,
            parameters=schedule_parameter_count(request.method, best, *shape),
            verdict=verdict,
            use=format_use(
                task,
                sources,
                best,
                shape=shape,
                modules=request.modules,
                out=out and Path(out) / "trained",
                method=request.method,
                selection=selection,
            ),
            generations=tuple(judged),
            population=population,
            failures=tuple(judge.failures.values()),
            seconds=time.monotonic() - started,
            store=None if out is None else sweep.store.path,
        )


def _search(
    space: SearchSpace,
    judge: Judge,
    generations: int,
    population: int,
    seed: int,
    on_generation: Callable[[GenerationReport], None] | None,
) -> list[JudgedGeneration]:
    """Run all generations of a search and report each of them."""
    started = time.monotonic()
    judged: list[JudgedGeneration] = []
    durations: list[float] = []

    def judge_candidates(schedules: Sequence[Schedule]) -> list[float]:
        errors = judge.judge_schedules(schedules, f"generation {len(judged) + 1} of {generations}")
        if set(judge.statuses) == {FAILED}:
            # the cause is not the candidates: others would fail too
            first = next(iter(judge.failures.values()))
            raise ExperimentError(f"every run failed; the first one:\n{first.traceback}")
        return errors

    search = search_schedules(space, judge_candidates, generations=generations, population=population, seed=seed)
    while len(judged) < generations:
        began = time.monotonic()
        # a generation without a new candidate does not call the judge
        judge.trained, judge.statuses = 0, Counter()
        judged.append(next(search))
        if judge.trained:
            durations.append(time.monotonic() - began)
        if on_generation is not None:
            left = (generations - len(judged)) * sum(durations) / len(durations) if durations else 0.0
            on_generation(GenerationReport(judged[-1], generations, judge.statuses, time.monotonic() - started, left))
    return judged


def _make_series(request: ClockRequest, shape: tuple[int, int]) -> Schedule | None:
    """Return the schedule of the series 1, 2, 4, ..., or None if so many modules have periods that are too long."""
    try:
        return make_paper_schedule(request.modules, request.size, *shape, request.method)
    except ArgumentError:
        return None
