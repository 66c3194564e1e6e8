"""Runs and their records.

    Dataset     one target sequence (the words of the second task are a `Corpus`)
    Run         task, data set, method, size, seed and hyper-parameters: everything that decides the outcome
    Record      the outcome of a run: finished, diverged, or failed with its traceback

All are values. The key of a run is the hash of its configuration, so the same run has the same key in every store.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ...schedule import Schedule
from ..networks.build import parameter_count
from ..networks.methods import ALL_METHODS
from ..networks.settings import TrainingSettings

SEQUENCE = "sequence"
"""The kind of data set that a `Dataset` is, as stores know it."""

FINISHED, DIVERGED, FAILED = STATUSES = ("finished", "diverged", "failed")


@dataclass(frozen=True, eq=False)
class Dataset:
    """One target sequence."""

    kind: ClassVar[str] = SEQUENCE
    name: str
    rate: int
    """Samples per second; 1 for a sequence whose steps have no duration, such as a column of a table."""
    samples: NDArray[np.float64]
    """(T,), in [-1, 1]."""
    source: str
    """Where the sequence comes from, for people to read."""

    @property
    def has_duration(self) -> bool:
        """Whether the sequence is a sound, whose steps have a duration and which can be played."""
        return self.rate > 1

    @property
    def target_name(self) -> str:
        """The name of what is learned; sequences that differ only in their noise share it."""
        return self.name

    @property
    def clean(self) -> NDArray[np.float64]:
        """(T,): the samples without their noise, where it is known."""
        return self.samples

    @cached_property
    def digest(self) -> str:
        """The hash of the samples.

        >>> Dataset("a", 8, np.array([-1.0, 1.0]), "").digest == Dataset("b", 9, np.array([-1.0, 1.0]), "").digest
        True
        """
        return hashlib.sha256(np.ascontiguousarray(self.samples, dtype="<f8").tobytes()).hexdigest()


@dataclass(frozen=True)
class Run:
    """One training: everything that decides its outcome."""

    task: str
    data: str
    """The name of the data set."""
    digest: str
    """The hash of the data set's numbers: other numbers under the same name make another run."""
    method: str
    size: int
    """The nominal size of the network, as in the paper: about as many parameters."""
    hidden: int
    seed: int
    settings: TrainingSettings

    @cached_property
    def key(self) -> str:
        """The hash of all fields."""
        values = asdict(self)
        if self.settings.schedule is None:
            # the key of a run without a schedule is older than this field
            del values["settings"]["schedule"]
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def parameters(self) -> int:
        """The parameters of the network, as the paper counts them."""
        settings = self.settings
        return _count_parameters(
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
        """The modules of a network with clocks, as `Schedule.parse` reads them; None for the other networks."""
        if not ALL_METHODS[self.method].has_clocks:
            return None
        return self.settings.schedule or _exponential_spec(self.hidden, self.settings.modules)


@dataclass(frozen=True, eq=False)
class Record:
    """The outcome of a run: the fields of a `TrainingResult`, and where and when they were made."""

    run: Run
    parameters: int
    schedule: str | None
    status: str
    """One of STATUSES."""
    error: float
    """The error of the final network, as its task measures it; NaN unless finished."""
    best_error: float
    """The error of the network when its training loss was lowest."""
    best_epoch: int
    epochs: int
    """The number of epochs that were made."""
    curve: NDArray[np.float32] | None
    """(n, columns): epochs, and what the task measures then. Curve, output and weights of a failed run are None."""
    output: NDArray[np.float32] | None
    """The output of the network, in the form of its task."""
    weights: Mapping[str, NDArray[np.float32]] | None
    seconds: float
    traceback: str | None
    environment: Mapping[str, str]
    finished_at: str
    """The time in UTC, ISO 8601."""

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.run.key


@cache
def _count_parameters(
    method: str, hidden: int, inputs: int, outputs: int, modules: int, schedule: str | None, peepholes: bool
) -> int:
    shape = {"modules": modules, "schedule": schedule, "peepholes": peepholes}
    return parameter_count(method, hidden, inputs, outputs, **shape)  # type: ignore[arg-type]


@cache
def _exponential_spec(hidden: int, modules: int) -> str:
    return Schedule.exponential(hidden, modules).spec
