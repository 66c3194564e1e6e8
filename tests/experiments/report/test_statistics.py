"""The rows of the summary, and the best learning rates."""

import dataclasses
import math

import pytest
from support import small_sweeps

from cwrnn.experiments.generation.plan import plan_search
from cwrnn.experiments.report.statistics import best_rates, summarise
from cwrnn.experiments.sweep.batches import (
    record_failure,
)


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
