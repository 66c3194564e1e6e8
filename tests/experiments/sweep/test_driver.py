"""A sweep trains the runs that its store lacks, and stores what training returns."""

import errno
import math
import os
from pathlib import Path

import numpy as np
import pytest
from support import small_sweeps

from cwrnn.experiments.errors import ArgumentError, ExperimentError
from cwrnn.experiments.generation.training import train_many
from cwrnn.experiments.report.statistics import summarise
from cwrnn.experiments.sweep.batches import (
    BatchDone,
)
from cwrnn.experiments.sweep.driver import make_folder
from cwrnn.experiments.sweep.store import Store


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


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, ExperimentError), (errno.EDQUOT, ExperimentError), (errno.EACCES, ArgumentError)],
)
def test_a_full_disk_is_not_the_fault_of_the_argument(tmp_path, monkeypatch, number, kind):
    def refuse(self, **options):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(kind, match=f"cannot make the folder {tmp_path}/mine: {os.strerror(number)}"):
        make_folder(tmp_path / "mine")
