"""Worker processes train batches, and a worker that dies costs no finished run."""

import multiprocessing
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import dying_workers, small_sweeps

from cwrnn.experiments.generation import training
from cwrnn.experiments.sweep import workers
from cwrnn.experiments.sweep.batches import (
    BatchDone,
    EpochsDone,
    WorkerCount,
    make_batches,
)
from cwrnn.experiments.sweep.workers import EngineError, train_locally


def test_training_stops_when_its_events_are_closed(waves, monkeypatch):
    """The batch does not fail, and its runs are not tried one by one."""
    asked = []

    def endless(method, hidden, targets, seeds, settings, *, progress=None):
        asked.append(list(seeds))
        while True:
            progress(1)

    monkeypatch.setattr(training, "train_many", endless)
    runs = small_sweeps.plan(waves[:1], methods=["srn"], sizes=[100], runs=5)
    events = train_locally(iter(make_batches(runs, waves)), 1)
    assert isinstance(next(events), WorkerCount)
    assert isinstance(next(events), EpochsDone)
    events.close()
    assert asked == [[0, 1, 2, 3, 4]]


WORKERS = """
import multiprocessing, os, signal, sys
sys.path.insert(0, {tests!r})
from support import small_sweeps
from cwrnn.experiments.sweep.batches import BatchDone, EpochsDone, make_batches
from cwrnn.experiments.sweep.driver import train_missing
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.workers import keep_workers

if __name__ == "__main__":
    waves = [small_sweeps.wave("one"), small_sweeps.wave("two", phase=1.0)]
    runs = small_sweeps.plan(waves, epochs={epochs})
    killed = []

    def observe(event):
        if {kill} and isinstance(event, BatchDone) and not killed:
            killed.extend(process.pid for process in multiprocessing.active_children())
            os.kill(killed[0], signal.SIGKILL)
        if {endless} and isinstance(event, EpochsDone):
            print("training", flush=True)

    def working():
        return {{process.pid for process in multiprocessing.active_children()}}

    batches = make_batches(runs, waves, 2)
    with Store.open({path!r}, create=True) as store, keep_workers(2) as train:
        for wave in waves:
            store.add_dataset(wave)
        train_missing(store, batches[:-1], train, observe)
        before = working()
        train_missing(store, batches[-1:], train, observe)
        print(len(killed), len(before), working() == before)
    print(working())
"""


def start(tmp_path, **options):
    script = tmp_path / "sweep.py"
    options = {"epochs": 3, "kill": False, "endless": False, **options}
    script.write_text(WORKERS.format(tests=str(Path(__file__).parents[2]), path=str(tmp_path / "many"), **options))
    return subprocess.Popen(
        [sys.executable, "-W", "error", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_a_killed_worker_process_does_not_change_the_store(tmp_path, waves):
    with start(tmp_path, kill=True) as process:
        output, _ = process.communicate(timeout=120)
    # the workers stay for the second sweep, and end with it
    assert output == "2 2 True\nset()\n"
    small_sweeps.sweep(tmp_path / "one", waves, small_sweeps.plan(waves))
    assert small_sweeps.contents(tmp_path / "many") == small_sweeps.contents(tmp_path / "one")


def test_workers_end_with_their_parent(tmp_path):
    """Workers hold the pipe of their output, which closes when the last of them ends."""
    with start(tmp_path, epochs=10**6, endless=True) as process:
        assert process.stdout.readline() == "training\n"
        process.kill()
        output, _ = process.communicate(timeout=120)
    assert set(output.split()) <= {"training"}
    assert process.returncode == -signal.SIGKILL


def test_a_run_that_no_worker_survives_has_failed(waves, monkeypatch):
    monkeypatch.setattr(workers, "_work", dying_workers.work)
    runs = small_sweeps.plan(waves[:1], methods=["srn"], sizes=[100], runs=2)
    events = list(train_locally(iter(make_batches(runs, waves)), 2))
    records = [record for event in events if isinstance(event, BatchDone) for record in event.records]
    assert sorted((record.run.seed, record.status) for record in records) == [(0, "failed"), (1, "failed")]
    assert "died (exit code 3)" in records[0].traceback


def test_workers_that_die_at_their_start_are_an_error(waves, monkeypatch):
    """No run is recorded as failed, because no run was tried."""
    monkeypatch.setattr(workers, "_work", dying_workers.fail)
    batches = make_batches(small_sweeps.plan(waves), waves)
    with pytest.raises(
        EngineError, match=r"3 worker processes in a row ended before they were ready \(exit code 4\): .*workers=1"
    ):
        list(train_locally(iter(batches), 2))


def test_a_worker_that_died_while_idle_is_forgotten():
    """The dead worker gets no batch, and no batch fails."""
    crew = workers._Processes(2)
    connection, _ = multiprocessing.Pipe()
    crew._processes[connection] = SimpleNamespace(is_alive=lambda: False)
    crew._ready.add(connection)
    assert list(crew.run(iter([]))) == []
    assert not crew._processes
    assert not crew._ready
    assert connection.closed
