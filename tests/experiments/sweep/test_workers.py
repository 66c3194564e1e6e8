import dataclasses
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support import dying_workers, small_sweeps

from cwrnn.commands import console
from cwrnn.experiments.generation import training
from cwrnn.experiments.generation.plan import plan, plan_search
from cwrnn.experiments.generation.training import GenerationSettings, train_many
from cwrnn.experiments.report.statistics import best_rates, summarise
from cwrnn.experiments.sweep import workers
from cwrnn.experiments.sweep.batches import (
    MOST_RUNS,
    BatchDone,
    EpochsDone,
    WorkerCount,
    make_batches,
    record_failure,
)
from cwrnn.experiments.sweep.interrupts import Interrupts
from cwrnn.experiments.sweep.progress import Estimate, report_to
from cwrnn.experiments.sweep.run import Dataset, Run
from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.workers import EngineError, train_locally
from cwrnn.schedule import Schedule


@pytest.fixture
def waves():
    return [small_sweeps.wave("one"), small_sweeps.wave("two", phase=1.0)]


def test_every_field_of_a_run_changes_its_key():
    run = Run("generation", "a", "0", "cw", 100, 11, 0, GenerationSettings(learning_rate=3e-4))
    others = [
        dataclasses.replace(run, **{name: value})
        for name, value in (
            ("task", "search"),
            ("data", "b"),
            ("digest", "1"),
            ("method", "srn"),
            ("size", 101),
            ("hidden", 12),
            ("seed", 1),
            ("settings", GenerationSettings(learning_rate=3e-4, epochs=1999)),
            ("settings", GenerationSettings(learning_rate=3.0000000000000003e-4)),
        )
    ]
    assert len({run.key, *(other.key for other in others)}) == 10
    assert dataclasses.replace(run).key == run.key
    # the same in every store, on every machine, in every version that trains the same
    assert run.key == "4e1089aceef3d2efa89454f85e73d297630312962bcf1a355c5c790aefb8965c"


def test_peepholes_change_only_the_keys_of_lstms(waves):
    with_, without = (
        {
            run.method: run.key
            for run in small_sweeps.plan(waves[:1], methods=["srn", "lstm", "cw"], sizes=[100], peepholes=p)
        }
        for p in (True, False)
    )
    assert (with_["srn"], with_["cw"]) == (without["srn"], without["cw"])
    assert with_["lstm"] != without["lstm"]


def test_batches_have_one_kind_of_run_and_the_longest_come_first(waves):
    longer = small_sweeps.wave("longer", steps=20)
    runs = small_sweeps.plan([*waves, longer], methods=["srn", "lstm"], sizes=[100, 1000], runs=40)
    batches = make_batches(runs, [*waves, longer])
    assert sorted(run.key for batch in batches for run in batch.runs) == sorted(run.key for run in runs)
    for batch in batches:
        assert len({(run.method, run.size, run.settings) for run in batch.runs}) == 1
        assert len(batch.runs) <= MOST_RUNS
        for run, target in zip(batch.runs, batch.data, strict=True):
            expected = {dataset.name: dataset.samples for dataset in (*waves, longer)}[run.data]
            np.testing.assert_array_equal(target.samples, expected)
    assert {len({run.data for run in batch.runs}) for batch in batches} == {1, 2}
    work = [batch.work for batch in batches]
    assert work == sorted(work, reverse=True)


def test_there_are_enough_batches_for_all_workers(waves):
    """No batch is so small that it takes as long as a larger one."""
    runs = small_sweeps.plan(waves, methods=["srn"], sizes=[100], runs=40)
    assert [len(make_batches(runs, waves, workers)) for workers in (1, 2, 100)] == [4, 8, 10]
    assert [len(make_batches(runs[:5], waves, workers)) for workers in (1, 2)] == [1, 1]


def test_a_record_is_the_result_of_training_alone(tmp_path, waves):
    small_sweeps.sweep(tmp_path, waves, small_sweeps.plan(waves, methods=["srn", "lstm", "cw"]))
    with Store.read(tmp_path) as store:
        records = store.records()
    assert len(records) == 3 * 2 * 2 * 2
    for record in records:
        run = record.run
        target = {dataset.name: dataset for dataset in waves}[run.data].samples
        (alone,) = train_many(run.method, run.hidden, target[None], [run.seed], run.settings)
        assert (record.status, record.error, record.epochs) == (alone.status, alone.error, alone.epochs)
        np.testing.assert_array_equal(record.output, alone.output)
        for name, value in alone.weights.items():
            np.testing.assert_array_equal(record.weights[name], value)
        assert record.schedule == (
            "1:2,2:2,4:1,8:1,16:1,32:1,64:1,128:1,256:1" if run.hidden == 11 else record.schedule
        )
        assert record.environment["threads"] == "1"


def test_diverged_runs_have_records(tmp_path, waves):
    small_sweeps.sweep(tmp_path, waves, small_sweeps.plan(waves, learning_rates={"srn": 1e6, "cw": 1e-3}, epochs=50))
    with Store.read(tmp_path) as store:
        rows = summarise(store.records())
    assert [(row.method, row.size, row.runs, row.diverged, row.failed) for row in rows] == [
        ("srn", 100, 4, 4, 0),
        ("srn", 250, 4, 4, 0),
        ("cw", 100, 4, 0, 0),
        ("cw", 250, 4, 0, 0),
    ]
    assert math.isnan(rows[0].mean)
    assert math.isnan(rows[0].median)
    assert rows[2].mean > 0


def test_one_bad_run_costs_one_run(tmp_path, waves, monkeypatch):
    def touchy(method, hidden, targets, seeds, settings, *, progress=None):
        if 3 in seeds:
            raise ZeroDivisionError("seed 3 is not to my liking")
        return train_many(method, hidden, targets, seeds, settings, progress=progress)

    monkeypatch.setattr(training, "train_many", touchy)
    runs = small_sweeps.plan(waves[:1], methods=["srn"], sizes=[100], runs=5)
    small_sweeps.sweep(tmp_path, waves, runs)
    with Store.read(tmp_path) as store:
        records = store.records()
    assert [(record.run.seed, record.status) for record in records if record.status != "finished"] == [(3, "failed")]
    assert len(records) == 5
    assert "ZeroDivisionError: seed 3 is not to my liking" in records[3].traceback
    assert "touchy" in records[3].traceback
    assert records[3].weights is None
    # what failed is tried again, what did not is not
    monkeypatch.undo()
    before = small_sweeps.times(tmp_path)
    small_sweeps.sweep(tmp_path, waves, runs)
    after = small_sweeps.times(tmp_path)
    assert [key for key in before if after[key] != before[key]] == [records[3].key]
    with Store.read(tmp_path) as store:
        assert {record.status for record in store.records()} == {"finished"}


def test_stored_runs_are_not_trained_again(tmp_path, waves):
    small_sweeps.sweep(tmp_path, waves, small_sweeps.plan(waves, runs=2))
    before, events = small_sweeps.times(tmp_path), []
    small_sweeps.sweep(tmp_path, waves, small_sweeps.plan(waves, runs=3), observe=events.append)
    after = small_sweeps.times(tmp_path)
    assert len(after) == len(before) * 3 / 2
    assert {key: after[key] for key in before} == before
    assert sum(len(event.records) for event in events if isinstance(event, BatchDone)) == len(before) / 2
    assert sum(len(event.batch.runs) for event in events if isinstance(event, BatchDone)) == len(after)


def test_an_interrupt_leaves_the_finished_runs(tmp_path, waves):
    def interrupt(event):
        if isinstance(event, BatchDone):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_sweeps.sweep(tmp_path, waves, small_sweeps.plan(waves), observe=interrupt)
    assert len(small_sweeps.times(tmp_path)) == 4


def test_training_stops_when_its_events_are_closed(waves, monkeypatch):
    """Its batch does not fail, and its runs are not tried one by one."""
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
    # those that are left stay for the second sweep, and no longer
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
    """No run is at fault."""
    monkeypatch.setattr(workers, "_work", dying_workers.fail)
    batches = make_batches(small_sweeps.plan(waves), waves)
    with pytest.raises(
        EngineError, match=r"3 worker processes in a row ended before they were ready \(exit code 4\): .*workers=1"
    ):
        list(train_locally(iter(batches), 2))


def test_a_worker_that_died_while_idle_is_forgotten():
    """It gets no batch, and no batch fails."""
    crew = workers._Processes(2)
    connection, _ = multiprocessing.Pipe()
    crew._processes[connection] = SimpleNamespace(is_alive=lambda: False)
    crew._ready.add(connection)
    assert list(crew.run(iter([]))) == []
    assert not crew._processes
    assert not crew._ready
    assert connection.closed


def batch_of(method, runs, waves, epochs=100):
    planned = plan(waves, methods=[method], sizes=[100], runs=runs, epochs=epochs)
    return make_batches(planned, waves)[0]


def finished(batch, seconds):
    """The event of a batch that took `seconds`."""
    records = (
        dataclasses.replace(record_failure(run, ""), status="finished", seconds=seconds / len(batch.runs))
        for run in batch.runs
    )
    return BatchDone(batch, tuple(records))


def test_the_estimate_follows_the_measured_times(waves):
    batches = [batch_of("srn", 2, waves), batch_of("srn", 2, waves), batch_of("lstm", 2, waves)]
    time = [0.0]
    estimate = Estimate(batches, clock=lambda: time[0])
    estimate.observe(WorkerCount(1))
    assert not estimate.known
    # a tenth of the first batch is done in 2 s
    estimate.observe(EpochsDone(batches[0], 10))
    time[0] = 2.0
    estimate.observe(EpochsDone(batches[0], 20))
    assert estimate.known
    assert estimate.seconds_left() == pytest.approx(16.0 + 20.0 + 20.0 * batches[2].work / batches[0].work)
    estimate.observe(EpochsDone(batches[0], 0))
    assert (estimate.fraction(), estimate.runs_done, estimate.runs) == (0.0, 0, 12)
    estimate.observe(finished(batches[0], 10.0))
    ratio = batches[2].work / batches[0].work
    assert estimate.seconds_left() == pytest.approx(10.0 + 10.0 * ratio)
    # half of the second batch is done; what the third takes is still a guess
    estimate.observe(EpochsDone(batches[1], 50))
    assert estimate.seconds_left() == pytest.approx(5.0 + 10.0 * ratio)
    assert estimate.fraction() == pytest.approx(15.0 / (20.0 + 10.0 * ratio))
    estimate.observe(finished(batches[2], 40.0))
    assert estimate.seconds_left() == pytest.approx(5.0)
    assert estimate.fraction() == pytest.approx(55 / 60)
    # two workers share what is left, but not a batch
    estimate.observe(WorkerCount(2))
    assert estimate.seconds_left() == pytest.approx(5.0)
    # its worker died
    estimate.observe(EpochsDone(batches[1], 0))
    assert estimate.seconds_left() == pytest.approx(5.0)
    estimate.observe(WorkerCount(1))
    assert estimate.seconds_left() == pytest.approx(10.0)
    # another process was quicker
    estimate.observe(BatchDone(batches[1], ()))
    assert (estimate.fraction(), estimate.seconds_left(), estimate.runs_done) == (1.0, 0.0, 12)


def test_plain_lines_show_progress_and_time(waves, capsys):
    batches = [batch_of("srn", 1, waves) for _ in range(4)]
    time = [0.0]
    estimate = Estimate(batches, clock=lambda: time[0])
    with console._show_lines(console.make_error_console(), "runs", True, clock=lambda: time[0]) as show:
        observe = report_to(show, estimate, activity="training")
        observe(WorkerCount(1))
        for batch in batches:
            observe(EpochsDone(batch, 1))
            time[0] += 30.0
            observe(EpochsDone(batch, 100))
            observe(finished(batch, 30.0))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == " 25 %  0 of 8 runs, 0:30 gone, about 1:31 left"
    assert lines[1] == " 50 %  2 of 8 runs, 1:00 gone, about 1:00 left"
    assert lines[-1] == "100 %  8 of 8 runs, 2:00 gone, about 0:00 left"
    assert len(lines) == 5
    with console.show_progress(quiet=True) as show:
        report_to(show, Estimate(batches), activity="training")(finished(batches[0], 30.0))
    assert capsys.readouterr() == ("", "")


def test_the_summary_counts_all_runs(waves):
    run = small_sweeps.plan(waves[:1], methods=["cw"], sizes=[1000], runs=1)[0]
    lost = record_failure(run, "gone")
    done = [dataclasses.replace(lost, status="finished", error=nmse) for nmse in (0.1, 0.2, 0.6)]
    (row,) = summarise([*done, lost, dataclasses.replace(lost, status="diverged")])
    assert (row.method, row.size, row.hidden, row.parameters) == ("cw", 1000, 40, 980)
    assert (row.runs, row.diverged, row.failed) == (5, 1, 1)
    assert (row.mean, row.median, row.best) == (pytest.approx(0.3), 0.2, 0.1)
    assert row.std == pytest.approx(math.sqrt((0.04 + 0.01 + 0.09) / 3))
    assert row.paper == "0.007 ± 0.004"


def test_a_learning_rate_at_which_most_runs_diverge_is_not_the_best(waves):
    runs = plan_search(waves[:1], learning_rates=[1e-4, 1e-3], methods=["cw"], sizes=[1000], runs=3, epochs=5)
    errors = {1e-4: [0.5, 0.6, 0.7], 1e-3: [0.1, math.nan, math.nan]}
    records = [
        dataclasses.replace(record_failure(run, ""), status="diverged" if math.isnan(nmse) else "finished", error=nmse)
        for run, nmse in zip(runs, [*errors[1e-4], *errors[1e-3]], strict=True)
    ]
    assert best_rates(records) == {("cw", 1000): 1e-4}
    assert best_rates(records[4:]) == {}
    assert {run.task for run in runs} == {"search"}


def test_the_papers_runs():
    datasets = [Dataset(str(i), 44100, np.linspace(-1, 1, 320) * (-1) ** i * (i + 1) / 5, "") for i in range(5)]
    runs = plan(datasets)
    assert len({run.key for run in runs}) == 6000
    assert {run.settings.epochs for run in runs} == {2000}
    assert {(run.method, run.settings.learning_rate) for run in runs} == {("srn", 3e-4), ("lstm", 3e-5), ("cw", 3e-4)}
    sizes = {(run.method, run.size): run.hidden for run in runs}
    assert {method: [sizes[method, size] for size in (100, 250, 500, 1000)] for method in ("srn", "lstm", "cw")} == {
        "srn": [9, 15, 22, 31],
        "lstm": [4, 7, 10, 15],
        "cw": [11, 19, 27, 40],
    }


def test_a_terminal_shows_a_bar(waves, capsys, monkeypatch):
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    batches = [batch_of("srn", 1, waves) for _ in range(2)]
    time = [0.0]
    estimate = Estimate(batches, clock=lambda: time[0])
    with console.show_progress() as show:
        observe = report_to(show, estimate, activity="training")
        observe(WorkerCount(1))
        for batch in batches:
            observe(EpochsDone(batch, 10))
            time[0] += 90.0
            observe(EpochsDone(batch, 100))
            observe(finished(batch, 100.0))
    out, err = capsys.readouterr()
    assert out == ""
    text = re.sub(r"\x1b\[[\d;?]*\w", "", err)
    assert "100%" in text
    assert "4 of 4 runs" in text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_of_a_step_names_it(waves, capsys, monkeypatch, terminal):
    """The bar names the step. Where there is no terminal, nothing is printed."""
    if terminal:
        for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "100")):
            monkeypatch.setenv(name, value)
    batch = batch_of("srn", 1, waves)
    with console.show_progress(lines=False) as show:
        report_to(show, Estimate([batch]), activity="generation [3] of 9")(finished(batch, 100.0))
    assert ("generation [3] of 9" in capsys.readouterr().err) == terminal


def test_an_interrupt_that_python_drops_is_raised_later(monkeypatch):
    dropped = []
    monkeypatch.setattr(sys, "unraisablehook", dropped.append)

    class Destroyed:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            # where the signal arrives, at the latest
            for _ in range(1000):
                pass

    interrupts = Interrupts()
    with interrupts.remember():
        interrupts.check()
        Destroyed()
        assert len(dropped) == 1
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
    interrupts.check()


def test_a_schedule_replaces_the_sizes_of_the_clockwork_rnn(tmp_path, waves):
    schedule = Schedule.parse("1:3,3:2,7:2")
    runs = small_sweeps.plan(waves[:1], methods=["srn", "cw"], sizes=[100, 250], schedule=schedule)
    own = [run for run in runs if run.method == "cw"]
    assert {(run.hidden, run.schedule, run.size) for run in own} == {(7, "1:3,3:2,7:2", schedule.parameter_count(0, 1))}
    assert len({run.key for run in runs}) == len(runs) == 4 + 2
    small_sweeps.sweep(tmp_path, waves, runs)
    with Store.read(tmp_path) as store:
        assert {record.run for record in store.records()} == set(runs)


def test_keys_without_a_schedule_have_not_changed(waves):
    """Keys are the same as before runs could have schedules, so stored runs are not trained again."""
    (run,) = small_sweeps.plan(waves[:1], methods=["cw"], sizes=[100], runs=1)
    assert run.key == "30cbb657820cf0e1a0041bde51245a2791ac70994e2f530a725785c3b37c4d49"
