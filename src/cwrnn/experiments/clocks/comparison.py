"""Comparison of series of periods: networks with each series, all with the same modules and at most as many parameters.

Every series is compared with the first one by a rank test, and the p values are corrected for their number.
"""

import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ...environment import environment
from ...schedule import Schedule
from ..errors import ArgumentError
from ..json_safe import make_json_safe
from ..limits import check_plan
from ..networks.build import schedule_parameter_count
from ..progress import ProgressCallback
from ..report.drawing import write_figure
from ..report.statistics import Box, box
from ..sweep.driver import check_engine, open_sweep
from ..sweep.run import FAILED, Record, Run
from ..sweep.store import Store
from ..task import Data, find_task
from ..text_table import format_table
from .rank_test import compare_ranks, correct_by_holm
from .request import (
    ClockRequest,
    Source,
    choose_task,
    find_shape,
    list_sources,
    load_data,
    make_request,
    make_signal,
    select,
)
from .series import ALL_SERIES, SERIES, define_series, fit_budget


@dataclass(frozen=True)
class SeriesResult:
    """The runs of one series, compared with those of the first series."""

    name: str
    schedules: tuple[str, ...]
    """Its modules, period:units; several if they depend on the data."""
    parameters: int
    """The number of parameters of its largest network."""
    box: Box
    """Mean, median and quartiles of the errors of the runs that finished, and the number of runs that did not."""
    better: float | None
    """The probability that a run has a lower error than a run of the first series on the same data; a tie counts half.
    None for the first series."""
    p: float | None
    """The p value of the difference from the first series (van Elteren's rank test, corrected by Holm's method). None
    for the first series."""

    @property
    def runs(self) -> int:
        """The number of runs."""
        return self.box.finished + self.box.diverged + self.box.failed

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers in one dictionary."""
        values = asdict(self)
        del values["box"]
        return values | asdict(self.box) | {"best": self.box.minimum}


@dataclass(frozen=True)
class ClockComparison:
    """The result of `compare_clocks`. Printing it shows a table with a line for each series."""

    request: ClockRequest
    data: tuple[str, ...]
    """The names of the data sets."""
    series: tuple[SeriesResult, ...]
    """The first one is the baseline of the others."""
    failures: tuple[Record, ...]
    """The records of the runs that failed."""
    seconds: float
    store: Path | None = None
    """The store with all records; None if it was temporary."""
    figures: tuple[Path, ...] = ()

    def __str__(self) -> str:
        task = find_task(self.request.task)
        headers = ["series", "para-\nmeters", f"median\n{task.error_header}", "mean", "diverged", "better", "p"]
        rows = [
            [
                _break_spec(result.name),
                str(result.parameters),
                task.format_error(result.box.median),
                task.format_error(result.box.mean),
                f"{result.box.diverged} of {result.runs}",
                "" if result.better is None else f"{100 * result.better:.0f} %",
                "" if result.p is None else f"{result.p:.2g}",
            ]
            for result in self.series
        ]
        caption = (
            f"Median and mean are over the runs that finished. better: the probability that a run has a lower error "
            f"than a run of {self.series[0].name} on the same data. p: the p value of the difference (ranks within "
            "each data set, corrected by Holm's method); there, a run that diverged counts as the worst. The series "
            "random is a single draw."
        )
        table = format_table("The errors of every series of periods", headers, rows, caption)
        return f"{table}\n\nThe picture is {self.figures[-1].resolve()}" if self.figures else table

    def draw(self, folder: str | PathLike[str]) -> tuple[Path, ...]:
        """Draw the errors of every series into `folder`, as clocks.svg and clocks.png, and return these paths."""
        # matplotlib takes long to import: not before it is needed
        from .figures import draw_series

        figure = draw_series(self.series, find_task(self.request.task).error_name)
        return tuple(write_figure(figure, Path(folder), "clocks"))

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that `cwrnn clocks compare --json` prints."""
        values: dict[str, Any] = make_json_safe({
            **asdict(self.request),
            "task": find_task(self.request.task).clocks_name,
            "series": [result.to_dict() for result in self.series],
            "data": self.data,
            "failed": len(self.failures),
            "seconds": self.seconds,
            "store": None if self.store is None else str(self.store.resolve()),
            "figures": [str(path.resolve()) for path in self.figures],
            "environment": environment(),
        })  # fmt: skip
        return values


def compare_clocks(
    task: str | None = None,
    data: Source | Sequence[Source] | None = None,
    *,
    target: str | None = None,
    inputs: Sequence[str] | None = None,
    offset: float = 0.0,
    length: int | None = None,
    series: Sequence[str] = SERIES,
    schedules: Sequence[Schedule | str] = (),
    method: str = "cw",
    size: int | None = None,
    modules: int | None = None,
    runs: int = 20,
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
) -> ClockComparison:
    """Train networks with several series of periods, and compare their errors with those of the first series.

    All networks have the same number of modules and at most the same number of parameters.

    Args:
        task: "generation" (learn to generate a sequence), "words" (tell spoken words apart) or "regression" (read
            columns of a table, and return another one). Default: "regression" if there are `inputs`, else "generation"
        data: one or more sources as `cwrnn reproduce` takes them, or "squares:3,7,21x20" for square waves, or CSV or
            NumPy files, or a `Table`, or data sets. Default: the bundled data of the task
        target: the column of a table that networks generate or return. Default: the only one
        inputs: the columns of a table that networks read
        offset: seconds from the start of each sound file, rows from the start of each table
        length: samples or rows of each sequence. Default: 320, or fewer of a short table
        series: names from `ALL_SERIES`; the others are compared with the first
        schedules: schedules of your own to compare too, each of at most `size` parameters
        method: the networks: "cw" for Clockwork RNNs, "cw-lstm" or "cw-gru" for LSTMs or GRUs with clocks
        size: number of parameters, at most. Default: 1000, for words 2500
        modules: number of modules. Default: the paper's, 9, for words 7
        runs: number of networks for each series and data set
        epochs: epochs of each training. Default: the paper's
        learning_rate: learning rate. Default: the paper's; ours for "cw-lstm" and "cw-gru"
        seed: seed of the first network; "random" is drawn with it too
        out: folder for the store and the figure. Default: a temporary folder, and no figure
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: address of the Dask cluster
        workers: number of processes. Default: one per core
        resume: True to use the records of a store that is in `out` already
        command: how to repeat the comparison; kept in the store
        progress: called with a `Progress` while data are read and networks trained

    Returns:
        A ClockComparison: ``print(result)`` shows the table, ``result.series`` has the numbers.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained

    >>> result = compare_clocks(data="squares:3,5", series=["exponential-2", "linear"], size=60, modules=2, runs=2,
    ...                         epochs=2, workers=1)
    >>> [series.name for series in result.series]
    ['exponential-2', 'linear']
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
    names = check_series(series)
    datasets = load_data(task, list_sources(data), progress, select(target, inputs, offset, length))
    own = {}
    for schedule in schedules:
        name = f"own {schedule.spec if isinstance(schedule, Schedule) else schedule}"
        own[name] = _check_schedule(schedule, request, find_shape(datasets[0]))
    check_plan((len(names) + len(own)) * len(datasets) * request.runs)
    planned = plan_comparison(request, datasets, names, own)
    every = list({run.key: run for group in planned.values() for run in group}.values())
    with open_sweep(out, engine=engine, scheduler=scheduler, workers=workers, resume=resume, command=command) as sweep:
        started = time.monotonic()
        remember_comparison(sweep.store, planned)
        sweep.train(datasets, every, progress=progress)
        records = sweep.select(every)
        result = ClockComparison(
            request=request,
            data=tuple(dataset.name for dataset in datasets),
            series=tuple(compare_records(group_records(planned, records))),
            failures=tuple(record for record in records if record.status == FAILED),
            seconds=time.monotonic() - started,
        )
        if out is None:
            return result
        return replace(result, store=sweep.store.path, figures=result.draw(sweep.folder / "figures"))


def plan_comparison(
    request: ClockRequest, data: Sequence[Data], names: Sequence[str], own: Mapping[str, Schedule] | None = None
) -> dict[str, list[Run]]:
    """Return the runs of every series by its name, those of the schedules `own` last."""
    planned: dict[str, list[Run]] = {}
    for dataset in data:
        for name in names:
            signal = make_signal(dataset) if name == "spectrum" else None
            make = define_series(name, request.modules, seed=request.seed, signal=signal)
            try:
                schedule = fit_budget(make, request.modules, request.size, *find_shape(dataset), request.method)
            except ArgumentError:
                raise
            except ValueError as error:
                raise ArgumentError("modules", f"{name} with {request.modules} modules: {error}") from error
            runs = request.plan_runs(dataset, schedule)
            planned.setdefault(name, []).extend(replace(run, size=request.size) for run in runs)
        for name, schedule in (own or {}).items():
            planned.setdefault(name, []).extend(request.plan_runs(dataset, schedule))
    return planned


def compare_records(records: Mapping[str, Sequence[Record]]) -> list[SeriesResult]:
    """Compare the records of every series with those of the first one."""
    first, *others = records
    tests = {name: compare_ranks(records[name], records[first]) for name in others}
    corrected = dict(zip(tests, correct_by_holm([p for _, p in tests.values()]), strict=True))
    return [
        SeriesResult(
            name=name,
            schedules=tuple(dict.fromkeys(record.schedule or "" for record in group)),
            parameters=max(record.parameters for record in group),
            box=box(group),
            better=tests[name][0] if name in tests else None,
            p=corrected.get(name),
        )
        for name, group in records.items()
    ]


def group_records(planned: Mapping[str, Iterable[Run]], records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return the records of every series; two series that share a schedule share its records."""
    known = {record.key: record for record in records}
    return {name: [known[run.key] for run in runs] for name, runs in planned.items()}


def remember_comparison(store: Store, planned: Mapping[str, Iterable[Run]]) -> None:
    """Write into the store which runs are compared, and under which names."""
    task = next(run.task for runs in planned.values() for run in runs)
    store.note(task, {name: [run.key for run in runs] for name, runs in planned.items()})


def read_comparison(store: Store, task: str) -> dict[str, list[Record]]:
    """Return the records of the last comparison by the names of the series; empty if there was none.

    If the comparison was interrupted, only series with records are returned, on the data sets that all of them have.
    """
    names = store.read_note(task)
    known = {record.key: record for record in store.records(task, [key for keys in names.values() for key in keys])}
    every = {name: [known[key] for key in keys if key in known] for name, keys in names.items()}
    begun = {name: records for name, records in every.items() if records}
    if not begun:
        return {}
    common = set.intersection(*({record.run.data for record in records} for records in begun.values()))
    if not common:
        return dict([next(iter(begun.items()))])
    return {name: [record for record in records if record.run.data in common] for name, records in begun.items()}


def check_series(series: Sequence[str]) -> list[str]:
    """Return the names of series, each once; raise an ArgumentError if there is none, or an unknown one."""
    names = [series] if isinstance(series, str) else list(dict.fromkeys(series))
    for name in names or [""]:
        if name not in ALL_SERIES:
            raise ArgumentError("series", f"expected some of {', '.join(ALL_SERIES)}, got {name!r}")
    return names


def _check_schedule(schedule: Schedule | str, request: ClockRequest, shape: tuple[int, int]) -> Schedule:
    try:
        checked = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    except ValueError as error:
        raise ArgumentError("schedules", str(error)) from error
    parameters = schedule_parameter_count(request.method, checked, *shape)
    if parameters > request.size:
        raise ArgumentError(
            "schedules",
            f"expected at most {request.size} parameters, the size of all networks, "
            f"got {checked.spec} with {parameters}",
        )
    return checked


def _break_spec(name: str) -> str:
    """Break the name of a series into lines of at most 30 characters where it has commas.

    >>> _break_spec("own 1:5,2:5,5:5,8:5,12:4,16:4,24:4,48:4")
    'own 1:5,2:5,5:5,8:5,12:4,16:4,\\n24:4,48:4'
    """
    lines = textwrap.wrap(name.replace(",", ", "), 36)
    return "\n".join(line.replace(", ", ",") for line in lines)
