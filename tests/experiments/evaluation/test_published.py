"""Published results are as their papers print them, and have the error that follows from the number."""

import re

import pytest

from cwrnn.experiments.evaluation.published import NATS, PERCENT, PUBLISHED, SHARE, SQUARED, find_published
from cwrnn.experiments.evaluation.task import EVALUATIONS


def test_the_table_of_bai_is_complete():
    # table 1 of arXiv:1803.01271
    table = {
        "sequential-mnist": ("87.2", "96.2", "21.5", "99.0"),
        "permuted-mnist": ("85.7", "87.3", "25.3", "97.2"),
        "adding": ("0.164", "5.3e-5", "0.177", "5.8e-5"),
        "copy": ("0.0204", "0.0197", "0.0202", "3.5e-5"),
    }
    for task, values in table.items():
        rows = [result for result in find_published(task) if result.source.startswith("Bai")]
        assert [(result.method, result.value) for result in rows] == [
            *zip(("LSTM", "GRU", "RNN", "TCN"), values, strict=True)
        ]


@pytest.mark.parametrize("result", PUBLISHED, ids=lambda result: f"{result.task}-{result.method}-{result.value}")
def test_every_result_can_be_found_and_compared(result):
    assert result.task in {task.name for task in EVALUATIONS}
    assert re.search(r"\d{4}, (quoted by [^,]+, )?arXiv:\d{4}\.\d{5}$", result.source), result.source
    number = float(result.value.split(" ± ")[0])
    expected = {PERCENT: 1 - number / 100, SHARE: 1 - number, SQUARED: number, NATS: None}[result.measure]
    assert result.error == (None if expected is None else pytest.approx(expected, abs=1e-7))
    if result.measure in (PERCENT, SHARE):
        assert 0 < result.error < 0.9


def test_no_result_is_listed_twice():
    assert len({(result.task, result.method, result.source) for result in PUBLISHED}) == len(PUBLISHED)


def test_no_clockwork_network_is_among_them():
    assert not [result for result in PUBLISHED if "CW" in result.method or "Clockwork" in result.method]
    assert find_published("characters") == []
