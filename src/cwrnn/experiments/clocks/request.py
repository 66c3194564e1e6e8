"""A request: the data and the networks that all experiments with clocks ask for, checked and with their defaults."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...schedule import Schedule
from ..errors import ArgumentError
from ..generation.music import BUNDLE
from ..generation.task import GENERATION
from ..limits import LARGEST_EPOCHS, LARGEST_MODULES, LARGEST_RUNS, LARGEST_SEED, LARGEST_SIZE, check_count
from ..networks.methods import CLOCKED, check_method
from ..progress import ProgressCallback
from ..regression.task import REGRESSION
from ..sweep.run import Run
from ..tables import Table
from ..task import Data, check_task, find_task, find_task_of_data
from .square_waves import PREFIX, load_square_waves

Source = str | PathLike[str] | Table | Data
"""A source as `cwrnn reproduce` takes it, square waves such as "squares:3,7,21x20", a table, or the data."""


@dataclass(frozen=True)
class Selection:
    """The part of the data that networks learn."""

    target: str | None = None
    """The column of a table that they return."""
    inputs: tuple[str, ...] | None = None
    """The columns of a table that they read."""
    offset: float = 0.0
    """Where the data begin: a time in seconds, or a row."""
    length: int | None = None
    """The samples or rows of a sequence."""

    @property
    def options(self) -> dict[str, Any]:
        """The options of `Task.load` that are given.

        >>> Selection("load", ("wind",)).options
        {'target': 'load', 'inputs': ('wind',)}
        """
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    @property
    def arguments(self) -> list[str]:
        """The same as arguments of a command.

        >>> Selection("load", ("temperature", "wind"), length=50).arguments
        ['--target', 'load', '--inputs', 'temperature,wind', '--length', '50']
        """
        values = {name: ",".join(value) if name == "inputs" else str(value) for name, value in self.options.items()}
        return [argument for name, value in values.items() for argument in (f"--{name}", value)]


@dataclass(frozen=True)
class ClockRequest:
    """The networks that an experiment with clocks trains for each schedule."""

    task: str
    size: int
    """Number of parameters, at most."""
    modules: int
    runs: int
    """Number of networks with different initial weights for each schedule and data set."""
    epochs: int
    learning_rate: float
    seed: int
    """Seed of the first network; the next networks count from there."""
    method: str = "cw"
    """The method, one of those with clocks."""

    def plan_runs(self, data: Data, schedule: Schedule) -> list[Run]:
        """Return the runs of one schedule on one data set."""
        options: dict[str, Any] = {
            "methods": [self.method],
            "schedule": schedule,
            "runs": self.runs,
            "seed": self.seed,
            "task": find_task(self.task).clocks_name,
            "epochs": self.epochs,
            "learning_rates": {self.method: self.learning_rate},
        }
        return find_task_of_data(data).plan([data], **options)


def make_request(
    task: str,
    *,
    size: int | None,
    modules: int | None,
    runs: int,
    epochs: int | None,
    learning_rate: float | None,
    seed: int,
    method: str = "cw",
) -> ClockRequest:
    """Check the arguments, and replace None by the paper's values, or by ours for a method that it does not have.

    >>> make_request("generation", size=None, modules=None, runs=20, epochs=None, learning_rate=None, seed=0).size
    1000
    """
    defaults = check_task(task)
    check_method("method", method, CLOCKED)
    if learning_rate is not None and not 0 < learning_rate <= 1e30:
        raise ArgumentError("learning_rate", f"expected a number above 0, up to 1e30, got {learning_rate}")
    return ClockRequest(
        task=task,
        size=check_count("size", defaults.clocks_size if size is None else size, LARGEST_SIZE),
        modules=check_count("modules", defaults.modules if modules is None else modules, LARGEST_MODULES),
        runs=check_count("runs", runs, LARGEST_RUNS),
        epochs=check_count("epochs", defaults.most_epochs if epochs is None else epochs, LARGEST_EPOCHS),
        learning_rate=learning_rate or defaults.learning_rates[method],
        seed=check_count("seed", seed, LARGEST_SEED, least=0),
        method=method,
    )


def list_sources(data: Source | Sequence[Source] | None) -> list[Source]:
    """Return the sources that an argument `data` names: one, several, or "bundle" for None.

    >>> list_sources(None), list_sources("squares:3"), list_sources(["a.wav", "b.wav"])
    (['bundle'], ['squares:3'], ['a.wav', 'b.wav'])
    """
    if data is None:
        return [BUNDLE]
    is_one = isinstance(data, (str, PathLike, Table)) or hasattr(data, "digest")
    return [data] if is_one else list(data)  # type: ignore[list-item, arg-type]


def choose_task(task: str | None, inputs: Sequence[str] | None) -> str:
    """Return the task: the one that is named, else "regression" if there are inputs, else "generation"."""
    if task is None:
        return GENERATION.name if inputs is None else REGRESSION.name
    return check_task(task).name


def select(target: str | None, inputs: Sequence[str] | None, offset: float, length: int | None) -> Selection:
    """Return the selection that arguments ask for."""
    names = [inputs] if isinstance(inputs, str) else inputs
    return Selection(target, None if names is None else tuple(names), offset, length)


def load_data(
    task: str,
    sources: Sequence[Source],
    progress: ProgressCallback | None = None,
    selection: Selection | None = None,
) -> list[Data]:
    """Return the data sets of these sources, for one task.

    Args:
        task: the name of the task
        sources: where the data come from; words have one source
        progress: called while recordings are read
        selection: the part of the data
    """
    known, options = find_task(task), (selection or Selection()).options
    for name in options:
        if name not in known.selects:
            raise ArgumentError(name, f"the task {task} takes none, got {options[name]!r}")
    expanded: list[Source] = []
    for source in sources:
        text = fspath(source) if isinstance(source, (str, PathLike)) else ""
        is_square_waves = task == GENERATION.name and text.startswith(PREFIX)
        expanded += load_square_waves(text) if is_square_waves else [source]
    return list(known.load_data(expanded, progress, **options))


def find_shape(data: Data) -> tuple[int, int]:
    """Return the number of inputs and of outputs of a network for these data."""
    return find_task_of_data(data).network_shape(data)


def make_signal(data: Data) -> NDArray[np.float64]:
    """Return the samples of a sequence, or the features of all training words one after the other."""
    return find_task_of_data(data).signal(data)
