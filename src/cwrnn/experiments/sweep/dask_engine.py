"""The Dask engine: trains on an existing Dask cluster, or on processes of this machine that Dask manages.

Dask gives a batch whose worker died to another worker, a few times. After that the runs of the batch are tried one by
one, and a run that no worker survives has failed. The Python of the cluster must have cwrnn installed.

Dask's messages are pickled, so a program that reaches a scheduler can run code on it and on its workers. The cluster
that this engine starts speaks TLS, with a certificate that exists only in its own processes: nobody else on the machine
can use it. A cluster of your own is as safe as you made it: protect it with Dask's TLS (`tls://...`, with the
certificates in Dask's configuration), or keep others from its port; and do not name a scheduler that you do not trust.
"""

import asyncio
import time
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from logging import CRITICAL, getLogger
from queue import SimpleQueue
from typing import Any

from ...extras import require
from ..errors import ExperimentError
from .batches import Batch, BatchDone, Engine, EpochsDone, Event, WorkerCount, record_failure, train_batch
from .interrupts import hold_interrupts
from .run import Record

BATCHES_AHEAD = 2
"""Batches per worker that are submitted before they are needed, so that no worker waits for the next."""
SECONDS_BETWEEN_REPORTS = 1.0
"""The time between two progress reports of a batch."""
JOIN = 60.0
"""Seconds to wait for a scheduler to answer, and for its first worker."""


_Reports = SimpleQueue[tuple[str, int | None]]
"""Reports of batches: the name of the batch, and how many epochs it has made, or None when it is done."""


class ClusterError(ExperimentError):
    """There is no cluster to work on, or it has gone. The message says why."""


def train_on_dask(batches: Iterator[Batch], workers: int, scheduler: str | None = None) -> Iterator[Event]:
    """Trains on the cluster whose scheduler has the address `scheduler`, or on one of `workers` local processes."""
    with keep_cluster(workers, scheduler) as engine:
        yield from engine(batches)


@contextmanager
def keep_cluster(workers: int, scheduler: str | None = None) -> Iterator[Engine]:
    """The Dask engine for several sweeps, one after the other.

    It connects, or starts its cluster, when the first sweep begins, and stays until the context ends.
    """
    distributed = require("distributed", extra="dask", purpose="the engine 'dask'")
    reports: _Reports = SimpleQueue()
    topic = f"cwrnn-{uuid.uuid4().hex}"
    client: Any = None
    with ExitStack() as stack:

        def engine(batches: Iterator[Batch]) -> Iterator[Event]:
            nonlocal client
            if client is None:
                client = _connect(distributed, stack, workers, scheduler)
                client.subscribe_topic(topic, lambda event: reports.put(event[1]))
            return _sweep(batches, client, scheduler, topic, reports)

        yield engine


def _sweep(
    batches: Iterator[Batch], client: Any, scheduler: str | None, topic: str, reports: _Reports
) -> Iterator[Event]:
    futures: dict[str, tuple[Any, Batch]] = {}
    again: list[Batch] = []
    known_workers = 0
    while True:
        # asked again for every batch: workers come and go
        with _name_lost_cluster(scheduler):
            threads = _threads(client)
        if len(threads) != known_workers and threads:
            known_workers = len(threads)
            yield WorkerCount(sum(threads.values()))
        while len(futures) < BATCHES_AHEAD * max(1, sum(threads.values())):
            batch = again.pop() if again else next(batches, None)
            if batch is None:
                break
            name = f"cwrnn-{uuid.uuid4().hex}"
            with _name_lost_cluster(scheduler):
                future = client.submit(_train, batch, topic, name, key=name)
            futures[name] = future, batch
            future.add_done_callback(lambda future: reports.put((future.key, None)))
        if not futures:
            return
        name, epochs = reports.get()
        if name not in futures:
            continue
        future, batch = futures[name]
        if epochs is not None:
            yield EpochsDone(batch, epochs)
            continue
        del futures[name]
        with _name_lost_cluster(scheduler):
            records = _records(future, batch)
        if records is None:
            again += reversed(batch.split())
            yield EpochsDone(batch, 0)
        else:
            yield BatchDone(batch, records)


def _connect(distributed: Any, stack: ExitStack, workers: int, scheduler: str | None) -> Any:
    address: Any = scheduler
    if scheduler is None:
        # the records say what happened to workers; Dask's log would repeat it in the middle of the progress display
        options: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "silence_logs": CRITICAL}
        # no dashboard; the scheduler starts its web server nevertheless, which takes any free port
        options |= {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
        # without a certificate, every user of the machine could run code in these processes
        require("cryptography", extra="dask", purpose="the certificate of the cluster on this machine")
        options |= {"host": "127.0.0.1", "protocol": "tls", "security": distributed.security.Security.temporary()}
        # Dask starts web servers in any case: without pages they tell nothing
        dask = require("dask", extra="dask", purpose="the engine 'dask'")
        silent: dict[str, list[str]] = {f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")}
        # Ctrl-C reaches all processes of a terminal, but only this one must react; workers inherit a blocked SIGINT
        with hold_interrupts(), dask.config.set(silent):
            address = stack.enter_context(distributed.LocalCluster(n_workers=workers, **options))
    try:
        stack.enter_context(_silence_client())
        # the scheduler forgets the work of a client that has gone
        client = stack.enter_context(distributed.Client(address, timeout=JOIN, set_as_default=False))
        client.wait_for_workers(1, timeout=JOIN)
    # before Python 3.11, asyncio.TimeoutError is neither TimeoutError nor OSError
    except (OSError, TimeoutError, asyncio.TimeoutError, ValueError) as error:
        raise ClusterError(f"no cluster at {scheduler}: {error}") from error
    return client


@contextmanager
def _silence_client() -> Iterator[None]:
    """Keeps Dask's client from logging: when its scheduler dies it logs tracebacks of its own, beside our error."""
    logger = getLogger("distributed.client")
    before = logger.level
    logger.setLevel(CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def _threads(client: Any) -> dict[str, int]:
    """The threads of each worker."""
    if client.status != "running":
        # asking would wait for JOIN seconds
        raise ConnectionError("its scheduler has closed the connection")
    threads: dict[str, int] = client.nthreads()
    return threads


@contextmanager
def _name_lost_cluster(scheduler: str | None) -> Iterator[None]:
    """Turns errors of a scheduler that cannot be reached into a ClusterError that names it."""
    try:
        yield
    except (OSError, TimeoutError, asyncio.TimeoutError, CancelledError) as error:
        where = "on this machine" if scheduler is None else f"at {scheduler}"
        raise ClusterError(f"the cluster {where} is gone: {error}; go on with --resume") from error


def _train(batch: Batch, topic: str, name: str) -> tuple[Record, ...]:
    """Trains a batch in a worker of the cluster, and reports the epochs about once a second."""
    worker = require("distributed", extra="dask", purpose="the engine 'dask'").get_worker()
    reported = -SECONDS_BETWEEN_REPORTS

    def progress(epochs: float) -> None:
        nonlocal reported
        if time.monotonic() - reported >= SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            worker.log_event(topic, (name, epochs))

    return train_batch(batch, progress)


def _records(future: Any, batch: Batch) -> tuple[Record, ...] | None:
    """The records of a batch, or None if its runs have to be tried one by one."""
    try:
        records: tuple[Record, ...] = future.result()
        return records
    except Exception:
        if future.status != "error":
            # cancelled or lost, as everything is when the scheduler goes: no batch is at fault
            raise
        # training catches its own errors: this one is the cluster's, such as workers that died of the batch
        if len(batch.runs) > 1:
            return None
        return (record_failure(batch.runs[0], traceback.format_exc()),)
