"""Batches: runs that differ in nothing but seed and data train at once, as replicas, each as if it were alone.

    runs -> make_batches -> an engine, which calls train_batch in its workers -> records

If training a batch raises, its runs are tried one by one, and the record of the run at fault holds the traceback.
"""

import math
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any

import numpy as np

from ...environment import environment
from ..networks.descent import use_one_thread
from ..networks.result import TrainingResult
from ..task import Data, find_task
from .run import FAILED, Record, Run

MOST_RUNS = 32
"""The largest batch. The kernels gain little from more runs, and a worker that dies costs at most this many."""
FEW_RUNS = 8
"""A batch of this many runs takes hardly longer than one run."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Runs that train at once: one task, one method, one hidden size, one set of settings, data that are alike."""

    runs: tuple[Run, ...]
    data: tuple[Data, ...]
    """One per run."""

    @cached_property
    def work(self) -> float:
        """The seconds that training takes on a core as fast as the one on which the tasks' costs were measured."""
        return sum(
            find_task(run.task).estimate_seconds(run, data) for run, data in zip(self.runs, self.data, strict=True)
        )

    def only(self, places: Sequence[int]) -> "Batch":
        """The batch of the runs at these places."""
        return Batch(tuple(self.runs[place] for place in places), tuple(self.data[place] for place in places))

    def split(self) -> list["Batch"]:
        """One batch for each run."""
        return [self.only([place]) for place in range(len(self.runs))]


@dataclass(frozen=True, eq=False)
class EpochsDone:
    """An engine reports that a batch is being trained."""

    batch: Batch
    epochs: float
    """Epochs that every run of the batch has made; 0 if the batch has to start again."""


@dataclass(frozen=True, eq=False)
class BatchDone:
    """An engine reports that a batch has been trained."""

    batch: Batch
    records: tuple[Record, ...]
    """One per run; none if another process was faster and the store has the records."""


@dataclass(frozen=True)
class WorkerCount:
    """An engine reports how many workers it has."""

    workers: int


Event = WorkerCount | EpochsDone | BatchDone
Engine = Callable[[Iterator[Batch]], Iterator[Event]]
"""Trains batches, taking each from the iterator when a worker can start it, and yields events."""


def make_batches(runs: Sequence[Run], datasets: Iterable[Data], workers: int = 1) -> list[Batch]:
    """The runs in batches. Those with the most work come first, so that all workers end at about the same time."""
    known = {(data.name, data.digest): data for data in datasets}
    groups: dict[Any, list[tuple[Run, Data]]] = defaultdict(list)
    for run in runs:
        data = known[run.data, run.digest]
        alike = find_task(run.task).batch_key(data)
        groups[run.task, run.method, run.size, run.hidden, run.settings, alike].append((run, data))
    # a small batch takes hardly less time than a larger one, but sharing the work needs a few for each worker
    largest = min(MOST_RUNS, max(FEW_RUNS, math.ceil(len(runs) / (4 * workers))))
    batches = []
    for group in groups.values():
        most = largest if find_task(group[0][0].task).trains_together else 1
        for part in np.array_split(np.arange(len(group)), math.ceil(len(group) / most)):
            members, their = zip(*(group[place] for place in part), strict=True)
            batches.append(Batch(members, their))
    return sorted(batches, key=lambda batch: -batch.work)


def train_batch(batch: Batch, progress: Callable[[float], None] | None = None) -> tuple[Record, ...]:
    """The records of a batch, in its order. If training it raises, its runs are tried one by one."""
    first = batch.runs[0]
    started = time.perf_counter()
    try:
        with use_one_thread():
            results = find_task(first.task).train(batch.runs, batch.data, progress)
        return tuple(record_result(run, result) for run, result in zip(batch.runs, results, strict=True))
    except Exception:
        if len(batch.runs) == 1:
            return (record_failure(first, traceback.format_exc(), time.perf_counter() - started),)
    return tuple(record for part in batch.split() for record in train_batch(part, progress))


def record_result(run: Run, result: TrainingResult) -> Record:
    """The record of a run that was trained to its end or diverged."""
    return _make_record(run, traceback=None, **vars(result))


def record_failure(run: Run, reason: str, seconds: float = 0.0) -> Record:
    """The record of a run that could not be trained."""
    return _make_record(
        run,
        traceback=reason,
        status=FAILED,
        error=math.nan,
        best_error=math.nan,
        best_epoch=0,
        epochs=0,
        curve=None,
        output=None,
        weights=None,
        seconds=seconds,
    )


def _make_record(run: Run, **outcome: Any) -> Record:
    return Record(
        run=run,
        parameters=run.parameters,
        schedule=run.schedule,
        environment=environment(),
        finished_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        **outcome,
    )
