"""Sweeps on a Dask cluster, with a real scheduler and real workers in processes of their own."""

import logging
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import small_sweeps

from cwrnn.experiments.sweep import dask_engine
from cwrnn.experiments.sweep.batches import BatchDone, WorkerCount, make_batches, record_failure
from cwrnn.experiments.sweep.dask_engine import ClusterError, train_on_dask
from cwrnn.experiments.sweep.store import Store

pytest.importorskip("distributed")


@contextmanager
def processes(count, *words):
    """Start `count` processes of Dask."""
    # workers import the modules that the client imports
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "dask", *words, "--host", "127.0.0.1", "--no-dashboard"]
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
            started.append(stack.enter_context(process))
            stack.callback(process.kill)
        yield started


def find_in_output(process, pattern):
    """Return the first group of the pattern in the first line of the process that matches it."""
    return next(found[1] for line in process.stderr if (found := re.search(pattern, line)))


@pytest.fixture
def scheduler():
    with processes(1, "scheduler", "--port", "0") as (process,):
        yield find_in_output(process, r"Scheduler at: *(tcp://\S+)")


def test_a_killed_worker_does_not_change_the_store(scheduler, tmp_path):
    waves = [small_sweeps.wave("one"), small_sweeps.wave("two", phase=1.0)]
    runs = small_sweeps.plan(waves, sizes=[100, 150, 200, 250])
    events = []
    with processes(2, "worker", scheduler, "--nthreads", "1", "--no-nanny") as crew:
        for worker in crew:
            assert find_in_output(worker, r"Registered to: *(tcp://\S+)") == scheduler

        def observe(event):
            events.append(event)
            if isinstance(event, BatchDone) and crew[0].returncode is None:
                crew[0].send_signal(signal.SIGKILL)
                crew[0].wait()

        small_sweeps.sweep(
            tmp_path / "dask", waves, runs, lambda batches: train_on_dask(batches, 0, scheduler), observe
        )
    assert crew[0].returncode == -signal.SIGKILL
    assert WorkerCount(2) in events
    small_sweeps.sweep(tmp_path / "local", waves, runs)
    assert small_sweeps.contents(tmp_path / "dask") == small_sweeps.contents(tmp_path / "local")


def test_a_killed_scheduler_leaves_the_finished_runs(tmp_path, monkeypatch):
    """Finished runs are kept, and the others have no record: they have not failed."""
    monkeypatch.setattr(dask_engine, "JOIN", 10.0)
    waves = [small_sweeps.wave()]
    runs = small_sweeps.plan(waves, methods=["srn"], sizes=[100, 150, 200, 250], runs=1)
    with processes(1, "scheduler", "--port", "0") as (process,):
        address = find_in_output(process, r"Scheduler at: *(tcp://\S+)")

        def observe(event):
            if isinstance(event, BatchDone) and process.returncode is None:
                process.send_signal(signal.SIGKILL)
                process.wait()

        with processes(1, "worker", address, "--nthreads", "1", "--no-nanny") as (worker,):
            assert find_in_output(worker, r"Registered to: *(tcp://\S+)") == address
            with pytest.raises(ClusterError, match=f"the cluster at {address} is gone: .*; go on with --resume"):
                small_sweeps.sweep(tmp_path, waves, runs, lambda batches: train_on_dask(batches, 0, address), observe)
    with Store.read(tmp_path) as store:
        assert 1 <= len(store.records()) < len(runs)
        assert {record.status for record in store.records()} == {"finished"}


def test_the_client_of_a_lost_scheduler_logs_no_traceback():
    """Closing a client that has lost its scheduler makes Dask log the traceback of its own thread."""
    logger = logging.getLogger("distributed.client")
    enabled = []

    class Client:
        def __init__(self, address, **options):
            pass

        def wait_for_workers(self, count, timeout):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            enabled.append(logger.isEnabledFor(logging.CRITICAL))

    before = logger.level
    with ExitStack() as stack:
        dask_engine._connect(SimpleNamespace(Client=Client), stack, 0, "tcp://somewhere")
    assert enabled == [False]
    assert logger.level == before


def test_cancelled_runs_have_not_failed():
    waves = [small_sweeps.wave()]

    class Cancelled:
        status = "cancelled"

        def result(self):
            raise CancelledError("the scheduler is gone")

    (batch,) = make_batches(small_sweeps.plan(waves, methods=["srn"], sizes=[100], runs=1), waves)
    with (
        pytest.raises(ClusterError, match="the cluster at tcp://somewhere is gone: the scheduler is gone; go on with"),
        dask_engine._name_lost_cluster("tcp://somewhere"),
    ):
        dask_engine._records(Cancelled(), batch)


def _is_sigint_blocked():
    """True if SIGINT is blocked in a worker."""
    return any(
        int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1
        for line in open("/proc/self/status")
        if line.startswith("SigBlk")
    )


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs Linux's /proc")
def test_local_workers_ignore_interrupts():
    with ExitStack() as stack:
        client = dask_engine._connect(pytest.importorskip("distributed"), stack, 1, None)
        (is_blocked,) = client.run(_is_sigint_blocked).values()
    assert is_blocked
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_cluster_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr(dask_engine, "JOIN", 0.5)
    with pytest.raises(ClusterError, match="no cluster at tcp://127.0.0.1:9"):
        next(train_on_dask(iter([]), 0, "tcp://127.0.0.1:9"))


def test_a_batch_that_no_worker_survives_is_tried_run_by_run():
    """Dask raises an exception for the batch. The exception of a single run becomes its traceback."""
    waves = [small_sweeps.wave()]

    class Lost:
        status = "error"

        def result(self):
            raise RuntimeError("three workers died")

    (batch,) = make_batches(small_sweeps.plan(waves, methods=["srn"], sizes=[100]), waves)
    assert dask_engine._records(Lost(), batch) is None
    (record,) = dask_engine._records(Lost(), batch.only([1]))
    assert (record.status, record.run.seed) == ("failed", 1)
    assert "three workers died" in record.traceback
    assert record_failure(record.run, "").environment == record.environment


def test_nobody_else_can_use_the_cluster_on_this_machine(monkeypatch):
    """A program without the certificate is refused by the scheduler and by the workers, which train."""
    distributed = pytest.importorskip("distributed")
    clusters = []

    class Kept(distributed.LocalCluster):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            clusters.append(self)

    monkeypatch.setattr(distributed, "LocalCluster", Kept)
    waves = [small_sweeps.wave("one")]
    batches = make_batches(small_sweeps.plan(waves, sizes=[100])[:1], waves)
    done = []
    for event in train_on_dask(iter(batches), 1):
        if isinstance(event, WorkerCount):
            [cluster] = clusters
            [worker] = cluster.scheduler_info["workers"]
            for address in (cluster.scheduler_address, worker):
                assert address.startswith("tls://127.0.0.1:")
                for has_tls in (False, True):
                    assert not is_answered(address, has_tls)
        done += [event] * isinstance(event, BatchDone)
    assert [record.status for event in done for record in event.records] == ["finished"]


def is_answered(address, has_tls):
    """Return True if a program that has no certificate gets an answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host, port = address.removeprefix("tls://").split(":")
    try:
        with ExitStack() as stack:
            stream = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
            if has_tls:
                stream = stack.enter_context(context.wrap_socket(stream))
            stream.sendall(b"hello" * 100)
            # an unencrypted greeting may get an alert of TLS, which is no answer
            return stream.recv(1) not in (b"", b"\x15")
    except OSError:
        return False
