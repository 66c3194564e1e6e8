"""The driver: opens a store, trains the runs that it has no record of, and selects their records.

    with open_sweep("out/mine", engine="local", workers=4, resume=True) as sweep:
        sweep.train(data, runs, progress=print)
        records = sweep.select(runs)

The workers stay from one call of `train` to the next, until the context ends. The records of a finished batch are in
the store, in one transaction, before the next event is handled: killing the process at any moment loses only the
batches that are being trained, and `resume=True` trains those again.
"""

import errno
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ...environment import cores
from ..errors import ArgumentError, ExperimentError
from ..file_names import check_path
from ..limits import LARGEST_WORKERS, check_count
from ..progress import Progress, ProgressCallback
from ..task import Data
from .batches import Batch, BatchDone, Engine, Event, make_batches
from .dask_engine import keep_cluster
from .interrupts import interrupts
from .progress import Estimate, report_to
from .run import Record, Run
from .store import Store
from .workers import keep_workers

LOCAL, DASK = ENGINES = ("local", "dask")

TRAINING = "training"
"""The activity that `Sweep.train` reports unless its caller names another."""


@dataclass(frozen=True)
class Sweep:
    """A store and an engine, which trains the runs that the store lacks."""

    store: Store
    engine: Engine
    workers: int

    @property
    def folder(self) -> Path:
        """The folder that holds the store."""
        return self.store.path.parent

    def add_data(self, data: Iterable[Data]) -> None:
        """Adds data sets to the store, all of them or none."""
        # those whose names are known first: if the numbers of one have changed, none has been added
        known_names = self.store.names()
        for dataset in sorted(data, key=lambda dataset: dataset.name not in known_names):
            self.store.add_dataset(dataset)

    def find_missing(self, runs: Iterable[Run]) -> list[Run]:
        """The runs that the store has no record of, and those that failed."""
        keys = self.store.keys(failed=False)
        return [run for run in runs if run.key not in keys]

    def train(
        self,
        data: Sequence[Data],
        runs: Sequence[Run],
        *,
        activity: str = TRAINING,
        progress: ProgressCallback | None = None,
    ) -> int:
        """Trains the runs that the store has no record of, and returns how many there were.

        Args:
            data: every data set that a run names; those that the store lacks are added
            runs: all runs that are wanted
            activity: the text of the progress reports
            progress: called first with the number of runs that need no training, then after every event
        """
        self.add_data(data)
        missing = self.find_missing(runs)
        done = len(runs) - len(missing)
        if progress is not None:
            progress(Progress(activity, done, len(runs), 0.0 if missing else 1.0))
        if missing:
            batches = make_batches(missing, data, self.workers)
            estimate = Estimate(batches)
            observe: Callable[[Event], None] = estimate.observe
            if progress is not None:
                observe = report_to(progress, estimate, activity=activity, already_done=done)
            train_missing(self.store, batches, self.engine, observe)
        return len(missing)

    def select(self, runs: Sequence[Run]) -> list[Record]:
        """The records of these runs. The store may hold others."""
        keys = {run.key for run in runs}
        records = self.store.records(runs[0].task, keys)
        if len(records) != len(keys):
            raise ExperimentError(
                f"{len(keys) - len(records)} of {len(keys)} runs have no record: train them with --resume (resume=True)"
            )
        return records


@contextmanager
def open_sweep(
    out: str | PathLike[str] | None,
    *,
    engine: str = LOCAL,
    scheduler: str | None = None,
    workers: int | None = None,
    resume: bool = False,
    command: str = "",
) -> Iterator[Sweep]:
    """A sweep with the store in the folder `out`, which is made if it does not exist.

    Args:
        out: the folder; None for a temporary one that is removed when the context ends
        engine: "local" trains on the cores of this machine, "dask" on a Dask cluster
        scheduler: the address of the Dask cluster; None starts one on this machine
        workers: processes on this machine; one per core unless given
        resume: go on with a store that has records; without it, such a store is refused
        command: how to repeat the sweep; kept in the store
    """
    check_engine(engine, scheduler, workers)
    count = cores() if workers is None else workers
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cwrnn-")) if out is None else out
        store = stack.enter_context(open_store(folder, resume=resume, command=command))
        workers_kept = keep_workers(count) if engine == LOCAL else keep_cluster(count, scheduler)
        yield Sweep(store, stack.enter_context(workers_kept), count)


@contextmanager
def open_store(out: str | PathLike[str], *, resume: bool = False, command: str = "") -> Iterator[Store]:
    """The store in the folder `out`; both are made if they do not exist.

    A store that has records is refused without `resume`, and left as it is.
    """
    folder = make_folder(out)
    with Store.open(folder, create=True, command=command) as store:
        if not resume and store.keys():
            raise ArgumentError(
                "out",
                f"{folder} has {len(store.keys())} runs already: add --resume (resume=True) to go on with them, "
                "or choose another folder",
            )
        yield store


def make_folder(out: str | PathLike[str]) -> Path:
    """Makes the folder of an argument `out` if it does not exist, and returns it.

    An ArgumentError if that fails; on a full disk, where the argument is not at fault, an ExperimentError.
    """
    folder = check_path("out", out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"cannot make the folder {folder}: {error.strerror}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ExperimentError(message) from error
        raise ArgumentError("out", message) from error
    return folder


def check_engine(engine: str, scheduler: str | None, workers: int | None) -> None:
    """Raises an ArgumentError if engine, scheduler and workers do not fit together."""
    if engine not in ENGINES:
        raise ArgumentError("engine", f"expected one of {', '.join(ENGINES)}, got {engine!r}")
    if scheduler is not None and engine != DASK:
        raise ArgumentError("scheduler", "needs the engine dask")
    if workers is not None and scheduler is not None:
        raise ArgumentError("workers", "cannot be given with a scheduler: the cluster has workers of its own")
    if workers is not None:
        check_count("workers", workers, LARGEST_WORKERS)


def train_missing(store: Store, batches: Iterable[Batch], engine: Engine, observe: Callable[[Event], None]) -> None:
    """Trains the runs that the store has no record of, and adds each batch's records as soon as it is finished."""

    def find_missing() -> Iterator[Batch]:
        for batch in batches:
            # asked again for each batch: another process may work on the same store
            keys = store.keys(failed=False)
            places = [place for place, run in enumerate(batch.runs) if run.key not in keys]
            if len(places) < len(batch.runs):
                observe(BatchDone(batch.only([*{*range(len(batch.runs))} - {*places}]), ()))
            if places:
                yield batch.only(places)

    events = engine(find_missing())
    try:
        for event in events:
            if isinstance(event, BatchDone):
                store.add(*event.records)
            observe(event)
            interrupts.check()
    finally:
        # an engine is a generator: closing it stops its workers
        getattr(events, "close", lambda: None)()
