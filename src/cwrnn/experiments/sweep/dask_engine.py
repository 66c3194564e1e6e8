"""The same sweep on a Dask cluster: one that exists, or processes of this machine that Dask looks after.

Dask gives a batch whose worker died to another one, a few times; after that its runs are tried one by one, and the one
that no worker survives has failed. The cluster's Python must have cwrnn installed. Dask's messages are pickled: name no
scheduler that you do not trust.
"""

import asyncio
import time
import traceback
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from functools import partial
from logging import CRITICAL
from queue import SimpleQueue
from typing import Any

from ...extras import require
from .run import Record
from .workers import Batch, Crew, Engine, Event, Finished, Progress, failed, interrupts_held, train

AHEAD = 2
"""Batches per worker that are handed over before they are needed, so that no worker waits for the next."""
BETWEEN_WORDS = 1.0
"""Seconds between what a batch says of its progress."""
JOIN = 60.0
"""Seconds to wait for a scheduler to answer, and for its first worker."""


_News = SimpleQueue[tuple[str, int | None]]
"""Of a batch by its name: how many epochs it has made, or None when it is done."""


class ClusterError(Exception):
    """There is no cluster to work on, or none any more; the message says why."""


def dask(batches: Iterator[Batch], workers: int, scheduler: str | None = None) -> Iterator[Event]:
    """Trains on the cluster whose scheduler has the address `scheduler`, or on one of `workers` local processes."""
    with staying(workers, scheduler) as engine:
        yield from engine(batches)


@contextmanager
def staying(workers: int, scheduler: str | None = None) -> Iterator[Engine]:
    """The same for several sweeps, one after the other: the connection, or the cluster, stays until the end of this."""
    distributed = require("distributed", extra="dask", purpose="the engine 'dask'")
    with ExitStack() as stack:
        client = _connect(distributed, stack, workers, scheduler)
        news: _News = SimpleQueue()
        topic = f"cwrnn-{uuid.uuid4().hex}"
        client.subscribe_topic(topic, lambda event: news.put(event[1]))
        yield partial(_sweep, client=client, scheduler=scheduler, topic=topic, news=news)


def _sweep(batches: Iterator[Batch], client: Any, scheduler: str | None, topic: str, news: _News) -> Iterator[Event]:
    futures: dict[str, tuple[Any, Batch]] = {}
    again: list[Batch] = []
    crew = 0
    while True:
        # asked each time: workers come and go
        with _reached(scheduler):
            threads = _threads(client)
        if len(threads) != crew and threads:
            crew = len(threads)
            yield Crew(sum(threads.values()))
        while len(futures) < AHEAD * max(1, sum(threads.values())):
            batch = again.pop() if again else next(batches, None)
            if batch is None:
                break
            name = f"cwrnn-{uuid.uuid4().hex}"
            with _reached(scheduler):
                future = client.submit(_train, batch, topic, name, key=name)
            futures[name] = future, batch
            future.add_done_callback(lambda future: news.put((future.key, None)))
        if not futures:
            return
        name, epochs = news.get()
        if name not in futures:
            continue
        future, batch = futures[name]
        if epochs is not None:
            yield Progress(batch, epochs)
            continue
        del futures[name]
        with _reached(scheduler):
            records = _records(future, batch)
        if records is None:
            again += reversed(batch.parts())
            yield Progress(batch, 0)
        else:
            yield Finished(batch, records)


def _connect(distributed: Any, stack: ExitStack, workers: int, scheduler: str | None) -> Any:
    address: Any = scheduler
    if scheduler is None:
        # what becomes of workers is told by the records; Dask's log would tell it a second time, into the progress
        options: dict[str, Any] = {"threads_per_worker": 1, "processes": True, "silence_logs": CRITICAL}
        # no dashboard; the scheduler's web server, which it starts all the same, takes a port that is free
        options |= {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
        # Ctrl-C reaches all processes of a terminal, but is for the one that waits; workers inherit that
        with interrupts_held():
            address = stack.enter_context(distributed.LocalCluster(n_workers=workers, **options))
    try:
        # without the client, the scheduler forgets what it was asked for
        client = stack.enter_context(distributed.Client(address, timeout=JOIN, set_as_default=False))
        client.wait_for_workers(1, timeout=JOIN)
    # until Python 3.11, asyncio's is another TimeoutError, and no OSError
    except (OSError, TimeoutError, asyncio.TimeoutError, ValueError) as error:
        raise ClusterError(f"no cluster at {scheduler}: {error}") from error
    return client


def _threads(client: Any) -> dict[str, int]:
    """The threads of each worker."""
    if client.status != "running":
        # to ask would be to wait for as long as JOIN
        raise ConnectionError("its scheduler has hung up")
    threads: dict[str, int] = client.nthreads()
    return threads


@contextmanager
def _reached(scheduler: str | None) -> Iterator[None]:
    """What the cluster is asked for needs its scheduler."""
    try:
        yield
    except (OSError, TimeoutError, asyncio.TimeoutError, CancelledError) as error:
        where = "on this machine" if scheduler is None else f"at {scheduler}"
        raise ClusterError(f"the cluster {where} is gone: {error}; go on with --resume") from error


def _train(batch: Batch, topic: str, name: str) -> tuple[Record, ...]:
    """What a worker does; says now and then how far it is."""
    worker = require("distributed", extra="dask", purpose="the engine 'dask'").get_worker()
    said = -BETWEEN_WORDS

    def progress(epochs: int) -> None:
        nonlocal said
        if time.monotonic() - said >= BETWEEN_WORDS:
            said = time.monotonic()
            worker.log_event(topic, (name, epochs))

    return train(batch, progress)


def _records(future: Any, batch: Batch) -> tuple[Record, ...] | None:
    """What a batch came to; None if it has to be tried in parts."""
    try:
        records: tuple[Record, ...] = future.result()
        return records
    except Exception:
        if future.status != "error":
            # cancelled or lost, as all are when the scheduler goes: no batch is to blame
            raise
        # training catches its own errors: this is the cluster's, such as workers that died of the batch
        if len(batch.runs) > 1:
            return None
        return (failed(batch.runs[0], traceback.format_exc()),)
