"""The local engine: worker processes on this machine.

A worker is a process with one thread; it trains a batch and sends the records back. Only the caller's process writes
to the store, so a kill at any moment loses no more than the batches that are being trained.

A failure costs one run: when a worker dies, the runs of its batch are tried one by one, and a run that kills its worker
again gets a record that says so. A worker ends with its parent, however the parent ends.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import ExperimentError
from .batches import Batch, BatchDone, Engine, EpochsDone, Event, WorkerCount, record_failure, train_batch
from .interrupts import hold_interrupts

ATTEMPTS = 3
"""The number of workers in a row that may end before they are ready."""


class EngineError(ExperimentError):
    """No worker can be started on this machine. The message says why."""


def train_locally(batches: Iterator[Batch], workers: int) -> Iterator[Event]:
    """Trains the batches on this machine, in `workers` processes; with one worker, in this process itself."""
    with keep_workers(workers) as engine:
        yield from engine(batches)


@contextmanager
def keep_workers(workers: int) -> Iterator[Engine]:
    """The local engine for several sweeps, one after the other. Its processes stay until the context ends."""
    processes = _Processes(workers)

    def engine(batches: Iterator[Batch]) -> Iterator[Event]:
        yield WorkerCount(workers)
        yield from _train_here(batches) if workers == 1 else processes.run(batches)

    try:
        yield engine
    finally:
        processes.end()


def _train_here(batches: Iterator[Batch]) -> Iterator[Event]:
    """Trains in a thread of this process, while the calling thread yields the events."""
    parent, child = multiprocessing.Pipe()
    worker = threading.Thread(target=_serve, args=(child,), daemon=True)
    worker.start()
    try:
        for batch in batches:
            parent.send(batch)
            while True:
                message = parent.recv()
                if isinstance(message, (int, float)):
                    yield EpochsDone(batch, message)
                else:
                    yield BatchDone(batch, message)
                    break
    finally:
        # the thread ends when it next sends something and finds the pipe closed
        parent.close()
        worker.join()


class _Processes:
    """Worker processes, each of which trains one batch at a time."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[Connection, Any] = {}
        self._busy: dict[Connection, Batch] = {}
        self._ready: set[Connection] = set()
        # workers in a row that ended before they were ready
        self._failed_starts = 0
        # batches that have to be trained again: their workers died
        self._again: list[Batch] = []

    def run(self, batches: Iterator[Batch]) -> Iterator[Event]:
        """Keeps every worker busy until all batches are trained. The workers then wait for the next call."""
        self._forget_dead()
        try:
            while True:
                self._feed(batches)
                if not self._busy:
                    return
                for connection in wait(list(self._busy)):
                    assert isinstance(connection, Connection)
                    event = self._receive(connection)
                    if event is not None:
                        yield event
        except BaseException:
            # nobody will take the results of the batches under way
            self.end()
            raise

    def end(self) -> None:
        """Kills the workers, also those that are training."""
        for process in self._processes.values():
            # a worker writes nothing, so it cannot leave anything half written
            process.kill()
        for connection, process in self._processes.items():
            process.join()
            process.close()
            connection.close()
        self._processes.clear()
        self._busy.clear()
        self._ready.clear()
        self._again.clear()

    def _forget_dead(self) -> None:
        """Forgets workers that died while they were idle: no batch is at fault."""
        for connection, process in list(self._processes.items()):
            if not process.is_alive():
                del self._processes[connection]
                self._ready.discard(connection)
                connection.close()

    def _feed(self, batches: Iterator[Batch]) -> None:
        """Gives a batch to every idle worker, and starts workers while there are batches for them."""
        while True:
            idle = next((connection for connection in self._processes if connection not in self._busy), None)
            if idle is None and len(self._processes) == self._count:
                return
            batch = self._again.pop() if self._again else next(batches, None)
            if batch is None:
                return
            connection = idle if idle is not None else self._start()
            self._busy[connection] = batch
            # a worker that is still starting does not read yet: it gets its batch when it is ready
            if connection in self._ready:
                self._send(connection)

    def _send(self, connection: Connection) -> None:
        # `_receive` notices a worker that is dead
        with _ignore_closed_pipe():
            connection.send(self._busy[connection])

    def _receive(self, connection: Connection) -> Event | None:
        batch = self._busy[connection]
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return self._lose(connection)
        if message is None:
            self._ready.add(connection)
            self._failed_starts = 0
            self._send(connection)
            return None
        if isinstance(message, (int, float)):
            return EpochsDone(batch, message)
        del self._busy[connection]
        return BatchDone(batch, message)

    def _lose(self, connection: Connection) -> Event:
        """Handles a dead worker: its runs are tried one by one, and a run that kills a worker alone has failed."""
        batch, process = self._busy.pop(connection), self._processes.pop(connection)
        connection.close()
        process.join()
        code = process.exitcode
        cause = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        if connection not in self._ready:
            # no batch is at fault
            self._failed_starts += 1
            if self._failed_starts == ATTEMPTS:
                raise EngineError(
                    f"{ATTEMPTS} worker processes in a row ended before they were ready ({cause}): a script must start "
                    'training under `if __name__ == "__main__":`, or with workers=1'
                )
            self._again.append(batch)
            return EpochsDone(batch, 0)
        if len(batch.runs) > 1:
            self._again += reversed(batch.split())
            return EpochsDone(batch, 0)
        reason = f"The process that trained this run died ({cause}), twice if it was part of a batch.\n"
        return BatchDone(batch, (record_failure(batch.runs[0], reason),))

    def _start(self) -> Connection:
        parent, child = self._context.Pipe()
        process = self._context.Process(target=_work, args=(child,), daemon=True)
        # Ctrl-C reaches all processes of a terminal; workers inherit that SIGINT is blocked, and end with their parent
        with hold_interrupts():
            process.start()
        child.close()
        self._processes[parent] = process
        return parent


def _work(connection: Connection) -> None:
    """The main function of a worker process: trains the batches that it receives until its parent is gone."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    with _ignore_closed_pipe():
        # ready: if the worker ends after this, the batch that it received is at fault
        connection.send(None)
        _serve(connection)


def _serve(connection: Connection) -> None:
    """Trains every batch that arrives; sends the number of epochs while it trains, and the records at the end."""

    def progress(epochs: float) -> None:
        try:
            connection.send(epochs)
        except OSError as error:
            raise _Gone from error

    with _ignore_closed_pipe(), connection:
        while True:
            connection.send(train_batch(connection.recv(), progress))


class _Gone(BaseException):
    """Nobody receives the results any more. Not an Exception, so that training does not record it as a failure."""


@contextmanager
def _ignore_closed_pipe() -> Iterator[None]:
    """Ignores that the other end of a pipe is gone."""
    with suppress(_Gone, EOFError, OSError):
        yield
