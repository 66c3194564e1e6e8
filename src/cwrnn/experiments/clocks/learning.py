"""Learned clocks: `learn_clocks` trains networks that find their periods by gradient descent.

Networks with the exponential series 1, 2, 4, ... are trained beside them in the same way (`training`), so that the
result can say which clocks are better.
"""

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ..errors import ArgumentError, ExperimentError
from ..file_names import check_path
from ..limits import check_plan
from ..networks.descent import use_one_thread
from ..progress import Progress, ProgressCallback
from ..sweep.driver import make_folder
from ..sweep.interrupts import interrupts
from ..task import Data, find_task, find_task_of_data
from .learned_clocks import NUMBERS_FILE, LearnedClocks, choose_best
from .request import Source, choose_task, find_shape, list_sources, load_data, make_request, select
from .series import make_paper_schedule
from .training import LearningSettings, TrainedNetwork, train_networks
from .verdict import SCHEDULE_FILE, format_use


def learn_clocks(
    task: str | None = None,
    data: Source | Sequence[Source] | None = None,
    *,
    target: str | None = None,
    inputs: Sequence[str] | None = None,
    offset: float = 0.0,
    length: int | None = None,
    size: int | None = None,
    modules: int | None = None,
    longest: int = 32,
    runs: int = 8,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    out: str | PathLike[str] | None = None,
    progress: ProgressCallback | None = None,
) -> LearnedClocks:
    """Find periods by gradient descent, and train networks with the exponential series in the same way.

    Both kinds of networks have the same modules, initial weights and updates. The best schedule is that of the network
    whose training error is the smallest share of the exponential series' on the same data.

    Args:
        task: "generation" (learn to generate a sequence), "words" (tell spoken words apart) or "regression" (read
            columns of a table, and return another one). Default: "regression" if there are `inputs`, else "generation"
        data: one or more sources as `cwrnn reproduce` takes them, or "squares:3,7,21x20" for square waves, or CSV or
            NumPy files, or a `Table`, or data sets. Default: the bundled data of the task
        target: the column of a table that networks generate or return. Default: the only one
        inputs: the columns of a table that networks read
        offset: seconds from the start of each sound file, rows from the start of each table
        length: samples or rows of each sequence. Default: 320, or fewer of a short table
        size: number of parameters of the networks with the exponential series, at most. Default: 1000, for words 2500.
            Networks with learned clocks start with as many; modules that learn the same period become one module with
            more weights
        modules: number of modules. Default: the paper's, 9, for words 7
        longest: the longest period
        runs: number of networks of each kind, for every sequence; for words, in all
        epochs: epochs of each training, at least 2. Default: 1000, for words 200
        learning_rate: learning rate of the weights. Default: 0.02, for words 0.01
        seed: seed of the first network; the next networks count from there
        out: folder for learned.json, schedule.txt and the figure. Default: nothing is written
        progress: called with a `Progress` while data are read and after every update

    Returns:
        LearnedClocks: ``result.schedule`` is the best schedule, ``result.verdict`` compares both kinds, and
        ``result.learned`` and ``result.exponential`` are the networks.

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: all networks diverged

    >>> result = learn_clocks(data="squares:2,3", size=60, modules=2, longest=4, runs=1, epochs=2)
    >>> result.verdict.series.periods
    (1, 2)
    """
    task = choose_task(task, inputs)
    known = find_task(task)
    request = make_request(
        task,
        size=size,
        modules=modules,
        runs=runs,
        epochs=known.learned_epochs if epochs is None else epochs,
        learning_rate=known.learned_rate if learning_rate is None else learning_rate,
        seed=seed,
    )
    if request.epochs < 2:
        raise ArgumentError("epochs", f"expected at least 2, got {epochs}")
    if longest < 2:
        raise ArgumentError("longest", f"expected a longest period of at least 2, got {longest}")
    _refuse_results(out)
    sources = list_sources(data)
    selection = select(target, inputs, offset, length)
    datasets = load_data(task, sources, progress, selection)
    check_plan(2 * len(datasets) * request.runs)
    shape = find_shape(datasets[0])
    settings = LearningSettings(
        hidden=make_paper_schedule(request.modules, request.size, *shape).hidden_size,
        modules=request.modules,
        longest=longest,
        epochs=request.epochs,
        learning_rate=request.learning_rate,
    )
    if out is not None:
        # a folder that cannot be made is found out before the training
        make_folder(Path(out, "figures"))
    started = time.monotonic()
    exponential, learned = train_both_kinds(datasets, request.runs, settings, seed, progress)
    best = choose_best(learned, exponential)
    if not math.isfinite(best.hard.train):
        raise ExperimentError("all networks diverged: try a lower --learning-rate (learning_rate=...)")
    result = LearnedClocks(
        task=task,
        data=tuple(datasets),
        settings=settings,
        exponential=tuple(exponential),
        learned=tuple(learned),
        use=format_use(
            task,
            sources,
            best.schedule,
            shape=shape,
            modules=settings.modules,
            out=out and Path(out) / "trained",
            selection=selection,
        ),
        seconds=time.monotonic() - started,
    )
    if out is not None:
        result = replace(result, figures=result.draw(Path(out) / "figures"))
        result.write(out)
    return result


def train_both_kinds(
    data: Sequence[Data], runs: int, settings: LearningSettings, seed: int, progress: ProgressCallback | None = None
) -> tuple[list[TrainedNetwork], list[TrainedNetwork]]:
    """Train networks with the exponential series, then networks with learned clocks, and return both.

    Sequences of the same length are learned at once. Every network has initial weights of its own.
    """
    objectives = find_task_of_data(data[0]).make_objectives(data, runs, seed)
    total = 2 * settings.epochs * sum(objective.updates for objective, _ in objectives)
    started = time.monotonic()
    done = 0

    def report() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            left = (time.monotonic() - started) * (total - done) / done
            progress(Progress("training", done, total, done / total, left))
        interrupts.check()

    with use_one_thread():
        exponential, learned = (
            [
                network
                for objective, seeds in objectives
                for network in train_networks(objective, settings, seeds, learned=kind, after_update=report)
            ]
            for kind in (False, True)
        )
    return exponential, learned


def _refuse_results(out: str | PathLike[str] | None) -> None:
    """Raise an ArgumentError if the folder has results already."""
    if out is None:
        return
    folder = check_path("out", out)
    for name in (NUMBERS_FILE, SCHEDULE_FILE):
        # a path that is too long for a file has no results; making its folder says so
        if os.path.lexists(folder / name):
            raise ArgumentError("out", f"{folder} has a {name} already: choose another folder")
