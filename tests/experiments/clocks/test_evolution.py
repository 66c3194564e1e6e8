"""Evolution finds the best schedules, depends on its seed alone, and is compared with the series 1, 2, 4, ..."""

import json
import math

import numpy as np
import pytest

from cwrnn.experiments.clocks import evolution
from cwrnn.experiments.clocks.evolution import Judge, evolve_clocks
from cwrnn.experiments.clocks.search import WORST, SearchSpace, search_schedules
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.generation import training

SPACE = SearchSpace(modules=3, longest=32, size=200, inputs=0, outputs=1)


def distance_to(*periods):
    """A judge whose errors are the distances from these periods, in octaves."""

    def judge(schedules):
        return [
            sum(min(abs(math.log2(p / wanted)) for p in schedule.periods) for wanted in periods) + 0.001
            for schedule in schedules
        ]

    return judge


def test_evolution_finds_the_best_schedule():
    *_, last = search_schedules(SPACE, distance_to(3, 7, 21), generations=25, population=12)
    assert last.best.periods == (3, 7, 21)
    assert last.best.parameter_count(0, 1) <= 200
    assert last.number == 25


def test_a_search_depends_on_its_seed():
    one, again, other = (
        [generation.schedules for generation in search_schedules(SPACE, distance_to(5), generations=3, seed=seed)]
        for seed in (0, 0, 1)
    )
    assert one == again
    assert one != other


def test_a_search_leaves_numpys_generator_alone():
    np.random.seed(7)
    expected = np.random.rand(3)
    np.random.seed(7)
    for _ in search_schedules(SPACE, distance_to(5), generations=2, population=4):
        pass
    np.testing.assert_array_equal(np.random.rand(3), expected)


def test_random_numbers_of_the_user_do_not_change_the_search():
    def draws(schedules):
        np.random.rand(5)
        return distance_to(5)(schedules)

    one, other = (
        [generation.schedules for generation in search_schedules(SPACE, judge, generations=3)]
        for judge in (draws, distance_to(5))
    )
    assert one == other


def test_no_candidate_is_judged_twice():
    judged = []

    def judge(schedules):
        judged.extend(schedules)
        return [math.nan if schedule.periods[0] == 1 else 1.0 for schedule in schedules]

    for generation in search_schedules(SPACE, judge, generations=4):
        assert all(error in (1.0, WORST) for error in generation.errors)
    assert len(judged) == len(set(judged))


def test_a_generation_may_have_no_new_candidate():
    space = SearchSpace(modules=2, longest=2, size=100, inputs=0, outputs=1)
    *_, last = search_schedules(space, distance_to(2), generations=12, population=4)
    assert last.number == 12


def test_sizes_are_searched():
    space = SearchSpace(modules=2, longest=32, size=300, inputs=0, outputs=1, sizes=True)

    def judge(schedules):
        return [1 + (schedule.sizes[0] / schedule.hidden_size - 0.8) ** 2 for schedule in schedules]

    *_, last = search_schedules(space, judge, generations=20)
    assert last.best.sizes[0] / last.best.hidden_size == pytest.approx(0.8, abs=0.05)
    for schedule in last.schedules:
        assert schedule.parameter_count(0, 1) <= 300


def test_impossible_searches_are_refused():
    with pytest.raises(ArgumentError, match="generations: expected at least 1, got 0"):
        next(search_schedules(SPACE, distance_to(5), generations=0))
    with pytest.raises(ArgumentError, match="population: expected at least 4, got 3"):
        next(search_schedules(SPACE, distance_to(5), population=3))
    with pytest.raises(ArgumentError, match="longest period of at least 2, got 1"):
        SearchSpace(3, 1, 200, 0, 1)
    with pytest.raises(ArgumentError, match="at least 2 modules to search, got 1"):
        SearchSpace(1, 8, 200, 0, 1)


TINY = {"data": "squares:3,5", "size": 120, "modules": 3, "runs": 1, "epochs": 3, "workers": 1}


def test_evolve_clocks_needs_no_folder():
    generations, reports = [], []
    result = evolve_clocks(
        **TINY, generations=2, population=4, progress=reports.append, on_generation=generations.append
    )
    assert [str(report).split(":")[0] for report in generations] == ["generation 1 of 2", "generation 2 of 2"]
    assert result.generations == tuple(report.generation for report in generations)
    assert (result.schedule, result.error) == (result.generations[-1].best, result.generations[-1].best_error)
    assert {report.activity for report in reports} >= {"the series 1, 2, 4, ...", "generation 1 of 2"}
    assert result.store is None
    assert f"The best schedule is {result.schedule.spec}" in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


def judge_series_as(error, monkeypatch):
    """Let the series 1, 2, 4 have this error, and all candidates their distances from 3 and 5 octaves plus 0.5."""

    def judge_schedules(self, schedules, activity):
        self.trained = len(schedules)
        series = {(1, 2, 4): error}
        return [series.get(s.periods, d + 0.5) for s, d in zip(schedules, distance_to(3, 5)(schedules), strict=True)]

    monkeypatch.setattr(Judge, "judge_schedules", judge_schedules)


def test_evolved_clocks_that_are_worse_are_called_worse(monkeypatch):
    judge_series_as(0.25, monkeypatch)
    # the search does not meet the series itself: its shortest period is 2
    monkeypatch.setattr(evolution, "SearchSpace", WithoutOne)
    result = evolve_clocks(**TINY, generations=3)
    assert result.error >= 0.5
    assert (result.verdict.worse, result.verdict.better) == (True, False)
    assert (result.verdict.error, result.verdict.series_error) == (result.error, 0.25)
    assert "The evolved clocks are worse than 1, 2, 4: median NMSE" in str(result)
    assert "against 0.25. Use the series." in str(result)
    assert "To use it all the same:" in str(result)
    verdict = result.to_dict()["verdict"]
    assert (verdict["worse"], verdict["error"], verdict["series error"]) == (True, result.error, 0.25)


class WithoutOne(SearchSpace):
    """A search space without the period 1."""

    @property
    def bounds(self):
        low, high = super().bounds
        return [max(1.0, each) for each in low], high


def test_evolved_clocks_that_are_better_are_called_better(monkeypatch):
    judge_series_as(5.0, monkeypatch)
    result = evolve_clocks(**TINY, generations=3)
    assert (result.verdict.worse, result.verdict.better) == (False, True)
    assert "The evolved clocks are better than 1, 2, 4: median NMSE" in str(result)
    assert "against 5.0." in str(result)
    assert "confirm it with `cwrnn clocks compare`" in str(result)
    assert result.to_dict()["verdict"]["better"]


def test_the_series_is_judged_by_the_same_networks(tmp_path):
    """The error of the series is that of a candidate with its periods."""
    result = evolve_clocks(**TINY, generations=1, population=4, out=tmp_path)
    request = result.request
    with evolution.open_sweep(tmp_path, workers=1, resume=True) as sweep:
        datasets = evolution.load_data("generation", ["squares:3,5"])
        judge = Judge(sweep, datasets, request)
        assert judge.judge_schedules([result.verdict.series], "again") == [result.verdict.series_error]
        assert judge.trained == 0
    assert result.verdict.series.periods == (1, 2, 4)
    assert result.verdict.series.parameter_count(0, 1) <= 120


def test_a_series_whose_networks_fail_does_not_end_the_search(monkeypatch):
    train_many = training.train_many

    def fail_for_series(method, hidden, targets, seeds, settings, **options):
        if settings.schedule.startswith("1:") and ",2:" in settings.schedule and ",4:" in settings.schedule:
            raise RuntimeError("no luck")
        return train_many(method, hidden, targets, seeds, settings, **options)

    monkeypatch.setattr(training, "train_many", fail_for_series)
    result = evolve_clocks(**TINY, generations=1, population=4)
    assert [record.schedule for record in result.failures] == [result.verdict.series.spec]
    assert (result.verdict.better, result.verdict.series_error) == (True, math.inf)
    assert result.to_dict()["verdict"]["series error"] is None


def test_modules_too_many_for_the_series_are_searched_without_a_comparison(monkeypatch):
    monkeypatch.setattr(Judge, "judge_schedules", lambda self, schedules, activity: [0.5] * len(schedules))
    result = evolve_clocks(data="squares:3", size=99999, modules=60, generations=1, population=4)
    assert result.verdict is None
    assert "There is no series 1, 2, 4, ... of 60 modules" in str(result)
    assert result.to_dict()["verdict"] is None
