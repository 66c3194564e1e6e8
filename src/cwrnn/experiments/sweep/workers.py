"""The engine: runs in, records out, whatever happens.

    runs -> batches -> workers -> records -> store

Runs that differ in nothing but seed and data are a batch: they train at once, as replicas, each as if it were
alone. A worker is a process with one thread; it trains a batch and sends the records back. Only the caller's process
writes, one transaction per batch, so that a kill at any moment loses no more than the batches that are being trained.

Failures cost one run each: when a batch raises, or its process dies, its runs are tried one by one, and the culprit's
record holds the traceback. A worker ends with its parent, however that ends.
"""

import math
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

import numpy as np
import torch

from ...environment import environment
from .. import task as tasks
from ..generation.training import Result
from .run import FAILED, Data, Record, Run
from .store import Store

REPLICAS = 32
"""Runs of a batch, at most. The kernels gain little from more, and no more than as many are lost with a worker."""
SMALL = 8
"""Runs that take hardly longer than one."""
ATTEMPTS = 3
"""Workers in a row that may end before they begin."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Runs that train at once: one task, one method, one hidden size, one set of settings, data that are alike."""

    runs: tuple[Run, ...]
    data: tuple[Data, ...]
    """One per run."""

    @cached_property
    def work(self) -> float:
        """What it takes to train it, in seconds of a core that is as fast as the one on which this was measured."""
        return sum(tasks.of(run).work(run, data) for run, data in zip(self.runs, self.data, strict=True))

    def only(self, places: Sequence[int]) -> "Batch":
        """The batch of some of its runs."""
        return Batch(tuple(self.runs[place] for place in places), tuple(self.data[place] for place in places))

    def parts(self) -> list["Batch"]:
        """A batch for each of its runs."""
        return [self.only([place]) for place in range(len(self.runs))]


@dataclass(frozen=True, eq=False)
class Progress:
    """A batch is on its way."""

    batch: Batch
    epochs: int
    """Of every run of it; 0 again if it has to begin anew."""


@dataclass(frozen=True, eq=False)
class Finished:
    """A batch has been trained."""

    batch: Batch
    records: tuple[Record, ...]
    """One per run; none if another process was quicker, and the store has them."""


@dataclass(frozen=True)
class Crew:
    """How many work."""

    workers: int


class EngineError(Exception):
    """Nothing can be trained here at all; the message says why."""


Event = Crew | Progress | Finished
Engine = Callable[[Iterator[Batch]], Iterator[Event]]
"""Takes batches, each when it can begin it, and says what becomes of them."""


def make_batches(runs: Sequence[Run], datasets: Iterable[Data], workers: int = 1) -> list[Batch]:
    """The runs in batches, those with the most work first, so that all workers end at about the same time."""
    known = {(data.name, data.digest): data for data in datasets}
    groups: dict[Any, list[tuple[Run, Data]]] = defaultdict(list)
    for run in runs:
        data = known[run.data, run.digest]
        alike = tasks.of(run).alike(data)
        groups[run.task, run.method, run.size, run.hidden, run.settings, alike].append((run, data))
    # small ones take hardly less time than larger ones, but a few for each worker are needed to share the work
    largest = min(REPLICAS, max(SMALL, math.ceil(len(runs) / (4 * workers))))
    batches = []
    for group in groups.values():
        for part in np.array_split(np.arange(len(group)), math.ceil(len(group) / largest)):
            members, their = zip(*(group[place] for place in part), strict=True)
            batches.append(Batch(members, their))
    return sorted(batches, key=lambda batch: -batch.work)


def sweep(store: Store, batches: Iterable[Batch], engine: Engine, observe: Callable[[Event], None]) -> None:
    """Trains what the store has no record of yet, and adds the records as they come."""

    def missing() -> Iterator[Batch]:
        for batch in batches:
            # asked for each batch: another process may work on the same store
            there = store.keys(failed=False)
            places = [place for place, run in enumerate(batch.runs) if run.key not in there]
            if len(places) < len(batch.runs):
                observe(Finished(batch.only([*{*range(len(batch.runs))} - {*places}]), ()))
            if places:
                yield batch.only(places)

    events = engine(missing())
    try:
        for event in events:
            if isinstance(event, Finished):
                store.add(*event.records)
            observe(event)
            interrupts.check()
    finally:
        # an engine is a generator: closing it ends its workers
        getattr(events, "close", lambda: None)()


def train(batch: Batch, progress: Callable[[int], None] | None = None) -> tuple[Record, ...]:
    """The records of a batch, in its order; if it raises, its runs are tried one by one."""
    first = batch.runs[0]
    started = time.perf_counter()
    try:
        with one_thread():
            results = tasks.of(first).train(batch.runs, batch.data, progress)
        return tuple(finished(run, result) for run, result in zip(batch.runs, results, strict=True))
    except Exception:
        if len(batch.runs) == 1:
            return (failed(first, traceback.format_exc(), time.perf_counter() - started),)
    return tuple(record for part in batch.parts() for record in train(part, progress))


def finished(run: Run, result: Result) -> Record:
    """The record of a run that came to an end, be it that it diverged."""
    return Record(
        run=run,
        parameters=run.parameters,
        schedule=run.schedule,
        status=result.status,
        error=result.error,
        best_error=result.best_error,
        best_epoch=result.best_epoch,
        epochs=result.epochs,
        curve=result.curve,
        output=result.output,
        weights=result.weights,
        seconds=result.seconds,
        traceback=None,
        environment=environment(),
        finished_at=_now(),
    )


def failed(run: Run, reason: str, seconds: float = 0.0) -> Record:
    """The record of a run that could not be trained."""
    return Record(
        run=run,
        parameters=run.parameters,
        schedule=run.schedule,
        status=FAILED,
        error=math.nan,
        best_error=math.nan,
        best_epoch=0,
        epochs=0,
        curve=None,
        output=None,
        weights=None,
        seconds=seconds,
        traceback=reason,
        environment=environment(),
        finished_at=_now(),
    )


def local(batches: Iterator[Batch], workers: int) -> Iterator[Event]:
    """Trains on this machine, in as many processes; with one worker, in this process itself."""
    with staying(workers) as engine:
        yield from engine(batches)


@contextmanager
def staying(workers: int) -> Iterator[Engine]:
    """The same for several sweeps, one after the other: the processes stay until the end of this."""
    crew = _Workers(workers)

    def engine(batches: Iterator[Batch]) -> Iterator[Event]:
        yield Crew(workers)
        yield from _here(batches) if workers == 1 else crew.run(batches)

    try:
        yield engine
    finally:
        crew.end()


def _here(batches: Iterator[Batch]) -> Iterator[Event]:
    """A thread trains, and this one hands on what it says."""
    parent, child = multiprocessing.Pipe()
    worker = threading.Thread(target=_serve, args=(child,), daemon=True)
    worker.start()
    try:
        for batch in batches:
            parent.send(batch)
            while True:
                message = parent.recv()
                if isinstance(message, int):
                    yield Progress(batch, message)
                else:
                    yield Finished(batch, message)
                    break
    finally:
        # the thread's next word finds the pipe closed, and ends it
        parent.close()
        worker.join()


class _Workers:
    """Processes that train, each on a batch of its own."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, Any] = {}
        self._busy: dict[Connection, Batch] = {}
        self._ready: set[Connection] = set()
        # workers in a row that ended before they began
        self._stillborn = 0
        # what a worker died of, to be tried one by one
        self._again: list[Batch] = []

    def run(self, batches: Iterator[Batch]) -> Iterator[Event]:
        """Keeps every worker busy until all batches are trained; they wait for more then."""
        self._bury()
        try:
            while True:
                self._feed(batches)
                if not self._busy:
                    return
                for connection in wait(list(self._busy)):
                    assert isinstance(connection, Connection)
                    event = self._hear(connection)
                    if event is not None:
                        yield event
        except BaseException:
            # what they are at is of no use to anybody
            self.end()
            raise

    def end(self) -> None:
        """Ends the workers, whatever they are at."""
        for process in self._processes.values():
            # it holds nothing that could be left half done
            process.kill()
        for connection, process in self._processes.items():
            process.join()
            process.close()
            connection.close()
        self._processes.clear()
        self._busy.clear()
        self._ready.clear()
        self._again.clear()

    def _bury(self) -> None:
        """Forgets workers that died while they had nothing to do: no batch is to blame."""
        for connection, process in list(self._processes.items()):
            if not process.is_alive():
                del self._processes[connection]
                self._ready.discard(connection)
                connection.close()

    def _feed(self, batches: Iterator[Batch]) -> None:
        """Gives a batch to every worker that has none, and starts workers as long as there is work for them."""
        while True:
            idle = next((connection for connection in self._processes if connection not in self._busy), None)
            if idle is None and len(self._processes) == self._count:
                return
            batch = self._again.pop() if self._again else next(batches, None)
            if batch is None:
                return
            connection = idle if idle is not None else self._start()
            self._busy[connection] = batch
            # one that is still starting does not read: it is sent its batch when it can
            if connection in self._ready:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        # a worker that is dead is noticed when it is listened to
        with _tolerated():
            connection.send(self._busy[connection])

    def _hear(self, connection: Connection) -> Event | None:
        batch = self._busy[connection]
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return self._lose(connection)
        if message is None:
            self._ready.add(connection)
            self._stillborn = 0
            self._send(connection)
            return None
        if isinstance(message, int):
            return Progress(batch, message)
        del self._busy[connection]
        return Finished(batch, message)

    def _lose(self, connection: Connection) -> Event:
        """A worker is dead: its runs are tried one by one, and one that dies alone has failed."""
        batch, process = self._busy.pop(connection), self._processes.pop(connection)
        connection.close()
        process.join()
        code = process.exitcode
        cause = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        if connection not in self._ready:
            # no batch is to blame
            self._stillborn += 1
            if self._stillborn == ATTEMPTS:
                raise EngineError(f"{ATTEMPTS} worker processes in a row ended before they began ({cause})")
            self._again.append(batch)
            return Progress(batch, 0)
        if len(batch.runs) > 1:
            self._again += reversed(batch.parts())
            return Progress(batch, 0)
        reason = f"The process that trained this run died ({cause}), twice if it was part of a batch.\n"
        return Finished(batch, (failed(batch.runs[0], reason),))

    def _start(self) -> Connection:
        parent, child = self._context.Pipe()
        process = self._context.Process(target=_work, args=(child,), daemon=True)
        # Ctrl-C reaches all processes of a terminal; workers inherit that they do not hear it, and end when told
        with interrupts_held():
            process.start()
        child.close()
        self._processes[parent] = process
        return parent


def _work(connection: Connection) -> None:
    """A worker process: trains what it is sent, until its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with _tolerated():
        # it has come so far: if it ends, it is for what it is sent
        connection.send(None)
        _serve(connection)


def _serve(connection: Connection) -> None:
    """Trains every batch that comes, and sends epochs while it does and records when it has."""

    def progress(epochs: int) -> None:
        try:
            connection.send(epochs)
        except OSError as error:
            raise _Gone from error

    with _tolerated(), connection:
        while True:
            connection.send(train(connection.recv(), progress))


class _Gone(BaseException):
    """Nobody listens any more: nothing that training could fail of."""


@contextmanager
def _tolerated() -> Iterator[None]:
    """The other end of a pipe may be gone."""
    with suppress(_Gone, EOFError, OSError):
        yield


class Interrupts:
    """Ctrl-C, remembered: Python drops a KeyboardInterrupt that is raised where none can be caught, as in `__del__`."""

    def __init__(self) -> None:
        self._heard = False

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Within this, `check` knows of every SIGINT that has come."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._heard = False
        before = signal.signal(signal.SIGINT, self._hear)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self._heard = False

    def check(self) -> None:
        """Raises the KeyboardInterrupt that was dropped."""
        if self._heard:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: Any) -> None:
        self._heard = True
        raise KeyboardInterrupt


interrupts = Interrupts()


@contextmanager
def interrupts_held() -> Iterator[None]:
    """SIGINT waits until the end of this; what is started meanwhile never gets it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # what multiprocessing starts before the first process, and that lets SIGINT through when it has
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks as small as these are slower on two threads than on one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
