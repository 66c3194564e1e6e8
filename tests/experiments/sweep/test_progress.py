"""The estimate of the time left, and how progress is shown."""

import dataclasses
import re

import pytest

from cwrnn.commands import console
from cwrnn.experiments.generation.plan import plan
from cwrnn.experiments.sweep.batches import (
    BatchDone,
    EpochsDone,
    WorkerCount,
    make_batches,
    record_failure,
)
from cwrnn.experiments.sweep.progress import Estimate, report_to


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
    # half of the second batch is done; the time of the third is still estimated from its work
    estimate.observe(EpochsDone(batches[1], 50))
    assert estimate.seconds_left() == pytest.approx(5.0 + 10.0 * ratio)
    assert estimate.fraction() == pytest.approx(15.0 / (20.0 + 10.0 * ratio))
    estimate.observe(finished(batches[2], 40.0))
    assert estimate.seconds_left() == pytest.approx(5.0)
    assert estimate.fraction() == pytest.approx(55 / 60)
    # two workers share the remaining batches, but one batch is not divided
    estimate.observe(WorkerCount(2))
    assert estimate.seconds_left() == pytest.approx(5.0)
    # the worker died, so the batch starts again
    estimate.observe(EpochsDone(batches[1], 0))
    assert estimate.seconds_left() == pytest.approx(5.0)
    estimate.observe(WorkerCount(1))
    assert estimate.seconds_left() == pytest.approx(10.0)
    # another process has trained the batch in the meantime
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
