"""A request: the data and the networks that all experiments with clocks ask for, checked and with their defaults."""

from collections.abc import Sequence
from dataclasses import dataclass
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
from ..sweep.run import Dataset, Run
from ..task import Data, check_task, find_task, find_task_of_data
from ..words.corpus import Corpus
from .square_waves import PREFIX, load_square_waves

Source = str | PathLike[str] | Dataset | Corpus
"""A source as `cwrnn reproduce` takes it, a source of square waves such as "squares:3,7,21x20", or the data."""


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
    return [data] if isinstance(data, (str, PathLike, Dataset, Corpus)) else list(data)


def load_data(task: str, sources: Sequence[Source], progress: ProgressCallback | None = None) -> list[Data]:
    """Return the data sets of these sources, for one task.

    Args:
        task: "generation" or "words"
        sources: where the data come from; words have one source
        progress: called while recordings are read
    """
    expanded: list[Source] = []
    for source in sources:
        text = fspath(source) if isinstance(source, (str, PathLike)) else ""
        is_square_waves = task == GENERATION.name and text.startswith(PREFIX)
        expanded += load_square_waves(text) if is_square_waves else [source]
    return list(find_task(task).load_data(expanded, progress))


def find_shape(data: Data) -> tuple[int, int]:
    """Return the number of inputs and of outputs of a network for these data."""
    return find_task_of_data(data).network_shape(data)


def make_signal(data: Data) -> NDArray[np.float64]:
    """Return the samples of a sequence, or the features of all training words one after the other."""
    return find_task_of_data(data).signal(data)
