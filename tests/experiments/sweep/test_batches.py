"""Runs are trained in batches, and a run that fails takes no other run of its batch with it."""

import numpy as np
from support import small_sweeps

from cwrnn.experiments.evaluation.adding import make_adding
from cwrnn.experiments.evaluation.plan import plan as plan_evaluation
from cwrnn.experiments.generation import training
from cwrnn.experiments.generation.training import train_many
from cwrnn.experiments.sweep.batches import (
    MOST_RUNS,
    make_batches,
)
from cwrnn.experiments.sweep.store import Store


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


def test_a_run_that_fails_does_not_fail_its_batch(tmp_path, waves, monkeypatch):
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
    # a second sweep trains the failed run again, and no other
    monkeypatch.undo()
    before = small_sweeps.times(tmp_path)
    small_sweeps.sweep(tmp_path, waves, runs)
    after = small_sweeps.times(tmp_path)
    assert [key for key in before if after[key] != before[key]] == [records[3].key]
    with Store.read(tmp_path) as store:
        assert {record.status for record in store.records()} == {"finished"}


def test_runs_of_a_task_that_does_not_train_together_stand_alone(waves):
    examples = [make_adding(10), make_adding(12)]
    options = {"sizes": [500], "epochs": 1, "batch": 4, "updates": 2, "device": "cpu", "seed": 0}
    runs = plan_evaluation(
        examples, methods=["cw", "srn"], runs=3, learning_rates={"cw": 1e-3, "srn": 1e-3}, periods={}, **options
    )
    others = small_sweeps.plan(waves[:1], methods=["srn"], sizes=[100], runs=5)
    batches = make_batches([*runs, *others], [*examples, *waves])
    assert sorted(len(batch.runs) for batch in batches) == [*[1] * 12, 5]
    assert sorted(run.key for batch in batches for run in batch.runs) == sorted(run.key for run in [*runs, *others])
    for batch in batches:
        assert [data.name for data in batch.data] == [run.data for run in batch.runs]
