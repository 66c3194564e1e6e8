"""The paper's experiments as Python functions: both tasks, each alone or together.

    from cwrnn.experiments import reproduce_generation

    result = reproduce_generation(runs=2, methods=["srn", "cw"], out="out/mine", progress=print)
    print(result)                          # the table, with the paper's errors beside ours
    result.rows[0].median                  # its numbers
    result.page                            # the page with figures

Training uses one process per core. In a script, call these functions under ``if __name__ == "__main__":``, because
every process imports the script; or choose ``workers=1``.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

from ..schedule import Schedule
from . import reproduction_result
from .errors import ArgumentError
from .generation.task import GENERATION
from .limits import LARGEST_EPOCHS, LARGEST_LENGTH, LARGEST_RUNS, LARGEST_SEED, LARGEST_SIZE, check_count, check_plan
from .networks.models.table import check_methods
from .paper import GENERATION_EPOCHS, GENERATION_SIZES, RUNS, WORDS_NOISE, WORDS_SIZES
from .paper import METHODS as PAPER_METHODS
from .progress import ProgressCallback
from .reproduction_result import Reproduction, TaskReproduction
from .sweep.driver import LOCAL, check_engine, open_sweep
from .sweep.run import Dataset, Run
from .tables import Table
from .task import Data, Task
from .words.corpus import Corpus
from .words.draws import load_draws
from .words.task import WORDS
from .words.training import MOST_EPOCHS, check_noise

LearningRate = float | Mapping[str, float] | Sequence[float]
"""One learning rate, one for each method, or, for a search, those to try."""


@dataclass(frozen=True)
class Scale:
    """How much is trained unless arguments say otherwise."""

    runs: int
    """The number of initial weights for each network and data set."""
    sizes: tuple[int, ...]

    def count_runs(self, datasets: int = 1) -> int:
        """The number of runs of the paper's methods on so many data sets.

        >>> GENERATION_PAPER.count_runs(5), WORDS_PAPER.count_runs()
        (6000, 1500)
        """
        return len(PAPER_METHODS) * len(self.sizes) * self.runs * datasets


GENERATION_QUICK = Scale(runs=6, sizes=GENERATION_SIZES)
GENERATION_PAPER = Scale(runs=RUNS, sizes=GENERATION_SIZES)
GENERATION_SEARCH = Scale(runs=2, sizes=GENERATION_SIZES[-1:])
WORDS_QUICK = Scale(runs=4, sizes=(WORDS_SIZES[0], WORDS_SIZES[-1]))
WORDS_PAPER = Scale(runs=RUNS, sizes=WORDS_SIZES)
WORDS_SEARCH = Scale(runs=2, sizes=WORDS_SIZES[-1:])


def reproduce_generation(
    data: str | PathLike[str] | Table | Dataset | Sequence[str | PathLike[str] | Table | Dataset] = "bundle",
    *,
    target: str | None = None,
    methods: Sequence[str] = PAPER_METHODS,
    sizes: Sequence[int] | None = None,
    runs: int | None = None,
    epochs: int = GENERATION_EPOCHS,
    paper: bool = False,
    search: bool = False,
    seed: int = 0,
    learning_rate: LearningRate | None = None,
    peepholes: bool = True,
    schedule: Schedule | str | None = None,
    offset: float = 0.0,
    length: int | None = None,
    engine: str = LOCAL,
    scheduler: str | None = None,
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Trains networks to generate sequences of music: the paper's first task (section 4.1).

    SRN, LSTM and CW-RNN with about the same number of parameters learn each sequence by heart.

    Args:
        data: "bundle" for the five bundled snippets, a WAV, FLAC or OGG file, a folder of such files, a CSV or NumPy
            file, a `Table`, a `Dataset`, or several of these
        target: the column of each table that networks learn to generate. Default: the only one
        methods: some of "srn", "lstm", "cw", "gru", "cw-lstm" and "cw-gru", and of the models of other papers, which
            `cwrnn.experiments.networks.methods.MODELS` lists. Default: the first three, the paper's
        sizes: parameters of the networks. Default: the paper's 100, 250, 500 and 1000; for a search 1000
        runs: initial weights for each method, size and sequence. Default: 6; with `paper` 100; with `search` 2
        epochs: updates of each network
        paper: train as much as the paper: 6000 runs
        search: try several learning rates instead. The best rate of a method has the lowest median NMSE; there is no
            test part, because networks learn each sequence by heart
        seed: the seed of the first run; the others count from there
        learning_rate: one for all methods, or a dictionary by method; with `search`, those to try. Default: the
            paper's, and ours for the methods that it does not have
        peepholes: whether LSTMs, with clocks or without, have peephole connections
        schedule: the modules of the networks with clocks, such as "1:4,2:4,4:4"; takes the place of their sizes
        offset: seconds from the start of each sound file, rows from the start of each table
        length: samples or rows of each sequence that is read from a file. Default: 320, or all rows of a table that has
            fewer
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: the address of an existing Dask cluster. Default: one on this machine
        workers: processes on this machine. Default: one per core
        out: the folder of store, page and figures. Default: none of them are kept, and all records are in the result
        resume: go on with the store in `out`: runs that it has are not trained again
        command: how to repeat this; kept in the store
        progress: called with a `Progress` value while networks are trained

    Returns:
        A `Reproduction`: ``print(result)`` shows the table, ``result.rows`` has its numbers.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained, or the store cannot be used

    >>> result = reproduce_generation(methods=["cw"], sizes=[100], runs=1, epochs=2, length=20, workers=1)
    >>> [(row.method, row.size, row.runs) for row in result.rows]
    [('cw', 100, 5)]
    """
    check_engine(engine, scheduler, workers)
    scale = _choose_scale(paper, search, GENERATION_QUICK, GENERATION_PAPER, GENERATION_SEARCH)
    asked = _check_arguments(methods, sizes, runs, epochs, seed, schedule, scale)
    if length is not None:
        check_count("length", length, LARGEST_LENGTH, least=2)
    datasets = GENERATION.load_data(data, progress, target=target, offset=offset, length=length)
    plan = _plan(GENERATION, datasets, search, learning_rate, peepholes=peepholes, **asked)
    where: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "workers": workers, "out": out, "resume": resume}
    return _train([plan], **where, command=command, progress=progress)


def reproduce_words(
    data: str | PathLike[str] | Corpus = "bundle",
    *,
    words: Sequence[str] | None = None,
    methods: Sequence[str] = PAPER_METHODS,
    sizes: Sequence[int] | None = None,
    draws: int = 1,
    runs: int | None = None,
    epochs: int = MOST_EPOCHS,
    paper: bool = False,
    search: bool = False,
    seed: int = 0,
    learning_rate: LearningRate | None = None,
    peepholes: bool = True,
    schedule: Schedule | str | None = None,
    noise: float = WORDS_NOISE,
    engine: str = LOCAL,
    scheduler: str | None = None,
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Trains networks to tell spoken words apart: the paper's second task (section 4.2).

    Args:
        data: "bundle" for the paper's 25 words as synthetic speech; "timit:PATH", "nltk-timit:PATH" or "folder:PATH"
            for recordings; or a `Corpus`
        words: some of the words of `data`. Default: all
        methods: some of "srn", "lstm", "cw", "gru", "cw-lstm" and "cw-gru", and of the models of other papers, which
            `cwrnn.experiments.networks.methods.MODELS` lists. Default: the first three, the paper's
        sizes: parameters of the networks. Default: 500 and 10000; with `paper` the paper's five; with `search` 10000
        draws: draws of the speakers: each draw chooses seven speakers of every word by a seed of its own, five for
            training and two for the test. With 1, the speakers are always the same
        runs: initial weights for each method, size and draw. Default: 4; with `paper` 100; with `search` 2
        epochs: the most epochs of each network; training ends when the error ceases to fall
        paper: train as much as the paper: 1500 runs
        search: try several learning rates instead. The best rate of a method has the lowest median cross entropy of
            the training set; test errors have no part in the choice
        seed: the seed of the first run; the others count from there
        learning_rate: one for all methods, or a dictionary by method; with `search`, those to try. Default: the
            paper's, and ours for the methods that it does not have
        peepholes: whether LSTMs, with clocks or without, have peephole connections
        schedule: the modules of the networks with clocks, such as "1:4,2:4,4:4"; takes the place of their sizes
        noise: the standard deviation of the noise on the inputs during training
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: the address of an existing Dask cluster. Default: one on this machine
        workers: processes on this machine. Default: one per core
        out: the folder of store, page and figures. Default: none of them are kept, and all records are in the result
        resume: go on with the store in `out`: runs that it has are not trained again
        command: how to repeat this; kept in the store
        progress: called with a `Progress` value while recordings are read and networks are trained

    Returns:
        A `Reproduction`: ``print(result)`` shows the table, ``result.rows`` has its numbers.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained, or the store cannot be used

    >>> result = reproduce_words(words=["making", "subway"], methods=["cw"], sizes=[500], runs=1, epochs=1, workers=1)
    >>> [(row.method, row.size, row.runs) for row in result.rows]
    [('cw', 500, 1)]
    """
    check_engine(engine, scheduler, workers)
    check_noise(noise)
    scale = _choose_scale(paper, search, WORDS_QUICK, WORDS_PAPER, WORDS_SEARCH)
    asked = _check_arguments(methods, sizes, runs, epochs, seed, schedule, scale)
    if isinstance(data, Corpus):
        corpora = load_draws(data, draws, words=words)
    else:
        corpora = WORDS.load_data(data, progress, words=words, draws=draws)
    plan = _plan(WORDS, corpora, search, learning_rate, peepholes=peepholes, noise=noise, **asked)
    where: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "workers": workers, "out": out, "resume": resume}
    return _train([plan], **where, command=command, progress=progress)


def reproduce(
    *,
    methods: Sequence[str] = PAPER_METHODS,
    runs: int | None = None,
    epochs: int | None = None,
    seed: int = 0,
    engine: str = LOCAL,
    scheduler: str | None = None,
    workers: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    command: str = "",
    progress: ProgressCallback | None = None,
) -> Reproduction:
    """Repeats both experiments of the paper on a small scale, with the bundled data, on one page.

    Args:
        methods: some of "srn", "lstm", "cw", "gru", "cw-lstm" and "cw-gru", and of the models of other papers, which
            `cwrnn.experiments.networks.methods.MODELS` lists. Default: the first three, the paper's
        runs: initial weights for each network and data set. Default: 6 for music, 4 for words
        epochs: the most epochs of each network. Default: the paper's
        seed: the seed of the first run of each task
        engine: "local" for the cores of this machine, "dask" for a Dask cluster
        scheduler: the address of an existing Dask cluster. Default: one on this machine
        workers: processes on this machine. Default: one per core
        out: the folder of store, page and figures. Default: none of them are kept, and all records are in the result
        resume: go on with the store in `out`: runs that it has are not trained again
        command: how to repeat this; kept in the store
        progress: called with a `Progress` value while networks are trained

    Returns:
        A `Reproduction` with two tasks.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the networks cannot be trained, or the store cannot be used

    >>> result = reproduce(methods=["srn"], runs=1, epochs=1, workers=1)
    >>> [(task.task.name, len(task.records)) for task in result.tasks]
    [('generation', 20), ('words', 2)]
    """
    check_engine(engine, scheduler, workers)
    plans = []
    for task, scale in ((GENERATION, GENERATION_QUICK), (WORDS, WORDS_QUICK)):
        most_epochs = task.most_epochs if epochs is None else epochs
        asked = _check_arguments(methods, None, runs, most_epochs, seed, None, scale)
        datasets: list[Any] = task.load_data("bundle", progress)
        plans.append(_plan(task, datasets, False, None, **asked))
    where: dict[str, Any] = {"engine": engine, "scheduler": scheduler, "workers": workers, "out": out, "resume": resume}
    return _train(plans, **where, command=command, progress=progress)


@dataclass(frozen=True)
class _Plan:
    """The runs of one task."""

    task: Task[Any]
    data: Sequence[Data]
    runs: Sequence[Run]
    runs_each: int
    is_search: bool


def _plan(
    task: Task[Any], data: Sequence[Data], search: bool, learning_rate: LearningRate | None, **asked: Any
) -> _Plan:
    """The runs that the arguments ask for."""
    rates = (
        _check_searched_rates(learning_rate, task.searched_learning_rates)
        if search
        else _check_learning_rates(learning_rate, asked["methods"], task.learning_rates)
    )
    networks = len(asked["methods"]) * len(asked["sizes"]) * (len(rates) if search else 1)
    check_plan(networks * len(data) * asked["runs"])
    plan = task.plan_search if search else task.plan
    try:
        planned = plan(data, learning_rates=rates, **asked)
    except ValueError as error:
        raise ArgumentError("sizes", str(error)) from error
    return _Plan(task, data, planned, asked["runs"], search)


def _train(
    plans: Sequence[_Plan],
    *,
    out: str | PathLike[str] | None,
    command: str,
    progress: ProgressCallback | None,
    **options: Any,
) -> Reproduction:
    """Trains the runs of all plans, and writes the page if there is a folder for it."""
    if out is not None:
        reproduction_result.require_page_packages()
    with open_sweep(out, command=command, **options) as sweep:
        started = time.monotonic()
        data = [dataset for plan in plans for dataset in plan.data]
        sweep.train(data, [run for plan in plans for run in plan.runs], progress=progress)
        seconds = time.monotonic() - started
        tasks = tuple(
            TaskReproduction(
                plan.task, tuple(plan.data), tuple(sweep.select(plan.runs)), plan.runs_each, plan.is_search
            )
            for plan in plans
        )
        if out is None:
            return Reproduction(tasks, seconds, command=command)
        page = reproduction_result.write_page(sweep.store, sweep.folder)
        return Reproduction(tasks, seconds, sweep.store.path, page, command)


def _choose_scale(paper: bool, search: bool, quick: Scale, of_paper: Scale, of_search: Scale) -> Scale:
    if paper and search:
        raise ArgumentError("paper", "cannot be combined with search: choose sizes and runs instead")
    return of_search if search else of_paper if paper else quick


def _check_arguments(
    methods: Sequence[str],
    sizes: Sequence[int] | None,
    runs: int | None,
    epochs: int,
    seed: int,
    schedule: Schedule | str | None,
    scale: Scale,
) -> dict[str, Any]:
    """The arguments that all plans take, with those of the scale for None."""
    names = check_methods(methods)
    sizes = scale.sizes if sizes is None else tuple(sorted(set(sizes)))
    if not sizes or sizes[0] < 1:
        given = ", ".join(map(str, sizes)) or "none"
        raise ArgumentError("sizes", f"expected numbers of parameters, 1 or more, got {given}")
    if sizes[-1] > LARGEST_SIZE:
        raise ArgumentError("sizes", f"expected at most {LARGEST_SIZE} parameters, got {sizes[-1]}")
    sizes = tuple(check_count("sizes", size, LARGEST_SIZE) for size in sizes)
    runs = check_count("runs", scale.runs if runs is None else runs, LARGEST_RUNS)
    epochs = check_count("epochs", epochs, LARGEST_EPOCHS)
    seed = check_count("seed", seed, LARGEST_SEED, least=0)
    try:
        schedule = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
    except ValueError as error:
        raise ArgumentError("schedule", str(error)) from error
    return {"methods": names, "sizes": sizes, "runs": runs, "epochs": epochs, "seed": seed, "schedule": schedule}


def _check_learning_rates(
    learning_rate: LearningRate | None, methods: Sequence[str], defaults: Mapping[str, float]
) -> dict[str, float]:
    """The learning rate of each method."""
    if learning_rate is None:
        return dict(defaults)
    if isinstance(learning_rate, (int, float)):
        return dict.fromkeys(methods, _check_positive([learning_rate])[0])
    if not isinstance(learning_rate, Mapping):
        raise ArgumentError("learning_rate", "expected one number, or one for each method; a list is for a search")
    for method in learning_rate:
        if method not in methods:
            raise ArgumentError("learning_rate", f"expected methods among {', '.join(methods)}, got {method!r}")
    _check_positive(learning_rate.values())
    return {**defaults, **learning_rate}


def _check_searched_rates(learning_rate: LearningRate | None, defaults: Sequence[float]) -> tuple[float, ...]:
    """The learning rates that a search tries, in increasing order."""
    if learning_rate is None:
        return tuple(defaults)
    if isinstance(learning_rate, Mapping):
        raise ArgumentError("learning_rate", "expected a list of numbers for a search, got one for each method")
    rates = [learning_rate] if isinstance(learning_rate, (int, float)) else list(learning_rate)
    return tuple(sorted(set(_check_positive(rates))))


def _check_positive(learning_rates: Iterable[float]) -> list[float]:
    rates = list(learning_rates)
    for rate in rates or [0.0]:
        if not (rate > 0 and math.isfinite(rate)):
            raise ArgumentError("learning_rate", f"expected numbers above 0, got {rate:g}")
    return rates
