"""Runs: what is to be trained, and what became of it.

    Dataset     one target sequence; the words of the second task are a `Corpus`
    Run         task, data set, method, size, seed and hyper-parameters: all that decides the outcome, and its key
    Record      what became of a run: finished, diverged, or failed with its traceback

They are values: a run's key is the hash of its configuration, so that the same run has the same key in every store.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from ...schedule import Schedule
from ..generation.training import Settings
from ..networks.build import parameter_count
from ..words.corpus import Corpus

FINISHED, DIVERGED, FAILED = STATUSES = ("finished", "diverged", "failed")


@dataclass(frozen=True, eq=False)
class Dataset:
    """One target sequence."""

    name: str
    rate: int
    """Samples per second."""
    samples: NDArray[np.float64]
    """(T,), in [-1, 1]."""
    source: str
    """Where it comes from, in words."""

    @cached_property
    def digest(self) -> str:
        """The hash of the samples.

        >>> Dataset("a", 8, np.array([-1.0, 1.0]), "").digest == Dataset("b", 9, np.array([-1.0, 1.0]), "").digest
        True
        """
        return hashlib.sha256(np.ascontiguousarray(self.samples, dtype="<f8").tobytes()).hexdigest()


Data = Dataset | Corpus
"""What a run is trained on: it has a name, a source in words, and a digest."""


@dataclass(frozen=True)
class Run:
    """One training: all that decides what comes out of it."""

    task: str
    data: str
    """The data set's name."""
    digest: str
    """The hash of its numbers: other ones under the same name are another run."""
    method: str
    size: int
    """The paper's word for the network's size: about as many parameters."""
    hidden: int
    seed: int
    settings: Settings

    @cached_property
    def key(self) -> str:
        """The hash of all of it."""
        values = asdict(self)
        if self.settings.schedule is None:
            # as it was before there were other schedules
            del values["settings"]["schedule"]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def parameters(self) -> int:
        """The network's parameters, as the paper counts them."""
        settings = self.settings
        return _parameters(
            self.method,
            self.hidden,
            settings.inputs,
            settings.outputs,
            settings.modules,
            settings.schedule,
            settings.peepholes,
        )

    @property
    def schedule(self) -> str | None:
        """The Clockwork RNN's modules, as `Schedule.parse` reads them; the others have none."""
        if self.method != "cw":
            return None
        return self.settings.schedule or _spec(self.hidden, self.settings.modules)


@dataclass(frozen=True, eq=False)
class Record:
    """What became of a run."""

    run: Run
    parameters: int
    schedule: str | None
    status: str
    """finished, diverged or failed."""
    error: float
    """Of the network in the end, as its task measures it; NaN unless finished."""
    best_error: float
    """Of the network when its training loss was lowest."""
    best_epoch: int
    epochs: int
    """Updates made."""
    curve: NDArray[np.float32] | None
    """A line for each point: epochs done, and what its task measures; None where failed, as the next two."""
    output: NDArray[np.float32] | None
    """What the network says, as its task has it."""
    weights: Mapping[str, NDArray[np.float32]] | None
    seconds: float
    traceback: str | None
    environment: Mapping[str, str]
    finished_at: str
    """UTC, ISO 8601."""

    @property
    def key(self) -> str:
        """The run's."""
        return self.run.key


@cache
def _parameters(
    method: str, hidden: int, inputs: int, outputs: int, modules: int, schedule: str | None, peepholes: bool
) -> int:
    shape = {"modules": modules, "schedule": schedule, "peepholes": peepholes}
    return parameter_count(method, hidden, inputs, outputs, **shape)  # type: ignore[arg-type]


@cache
def _spec(hidden: int, modules: int) -> str:
    return Schedule.exponential(hidden, modules).spec
