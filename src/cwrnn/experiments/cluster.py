"""The same sweep on a Dask cluster: one that exists, or processes of this machine that Dask looks after.

Dask gives a batch whose worker died to another one, a few times; after that its runs are tried one by one, and the one
that no worker survives has failed. The cluster's Python must have cwrnn installed. Dask's messages are pickled: name no
scheduler that you do not trust.
"""

import signal
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from logging import CRITICAL
from queue import SimpleQueue
from typing import Any

from ..extras import require
from .engine import Batch, Crew, Event, Finished, Progress, failed, train
from .runs import Record

AHEAD = 2
"""Batches per worker that are handed over before they are needed, so that no worker waits for the next."""
BETWEEN_WORDS = 1.0
"""Seconds between what a batch says of its progress."""
JOIN = 60.0
"""Seconds to wait for a scheduler to answer, and for its first worker."""


class ClusterError(Exception):
    """There is no cluster to work on; the message says why."""


def dask(batches: Iterator[Batch], workers: int, scheduler: str | None = None) -> Iterator[Event]:
    """Trains on the cluster whose scheduler has the address `scheduler`, or on one of `workers` local processes."""
    distributed = require("distributed", extra="dask", purpose="the engine 'dask'")
    with ExitStack() as stack:
        client = _connect(distributed, stack, workers, scheduler)
        news: SimpleQueue[tuple[str, int | None]] = SimpleQueue()
        topic = f"cwrnn-{uuid.uuid4().hex}"
        client.subscribe_topic(topic, lambda event: news.put(event[1]))
        futures: dict[str, tuple[Any, Batch]] = {}
        again: list[Batch] = []
        crew = 0
        while True:
            # asked each time: workers come and go
            threads = client.nthreads()
            if len(threads) != crew and threads:
                crew = len(threads)
                yield Crew(sum(threads.values()))
            while len(futures) < AHEAD * max(1, sum(threads.values())):
                batch = again.pop() if again else next(batches, None)
                if batch is None:
                    break
                name = f"cwrnn-{uuid.uuid4().hex}"
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
            records = _records(future, batch)
            if records is None:
                again += [batch.only([place]) for place in reversed(range(len(batch.runs)))]
                yield Progress(batch, 0)
            else:
                yield Finished(batch, records)


def _connect(distributed: Any, stack: ExitStack, workers: int, scheduler: str | None) -> Any:
    address: Any = scheduler
    if scheduler is None:
        # what becomes of workers is told by the records; Dask's log would tell it a second time, into the progress
        options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "silence_logs": CRITICAL}
        address = stack.enter_context(distributed.LocalCluster(n_workers=workers, **options))
    try:
        # without the client, the scheduler forgets what it was asked for
        client = stack.enter_context(distributed.Client(address, timeout=JOIN, set_as_default=False))
        client.wait_for_workers(1, timeout=JOIN)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(f"no cluster at {scheduler}: {error}") from error
    if scheduler is None:
        # Ctrl-C reaches all processes of a terminal, but is for the one that waits
        client.run(_ignore_interrupts)
    return client


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


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
        # training catches its own errors: this is the cluster's, such as workers that died of the batch
        if len(batch.runs) > 1:
            return None
        return (failed(batch.runs[0], traceback.format_exc()),)
