"""The runs of the paper's first experiment."""

import numpy as np

from cwrnn.experiments.generation.plan import plan
from cwrnn.experiments.sweep.run import Dataset


def test_the_plan_has_the_papers_runs():
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
