"""Series of periods are compared at one budget, by ranks, with a correction for their number."""

import math

import numpy as np
import pytest
from scipy import stats
from support import made_corpora
from support.made_records import make_record

from cwrnn import experiments
from cwrnn.experiments.clocks.comparison import compare_clocks, compare_records, plan_comparison
from cwrnn.experiments.clocks.evolution import evolve_clocks
from cwrnn.experiments.clocks.figures import draw_series
from cwrnn.experiments.clocks.learning import learn_clocks
from cwrnn.experiments.clocks.rank_test import correct_by_holm
from cwrnn.experiments.clocks.request import make_request
from cwrnn.experiments.clocks.series import PAPER_SERIES, SERIES, define_series, fit_budget
from cwrnn.experiments.clocks.square_waves import make_square_waves
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.schedule import Schedule


@pytest.mark.parametrize("name", SERIES)
@pytest.mark.parametrize("size", [150, 999, 1000])
def test_every_series_uses_the_whole_budget(name, size):
    signal = np.sin(np.arange(600) / 7) + np.sin(np.arange(600) / 90)
    make = define_series(name, 5, signal=signal)
    schedule = fit_budget(make, 5, size, 0, 1)
    assert schedule.modules == 5
    assert schedule.parameter_count(0, 1) <= size < make(schedule.hidden_size + 1).parameter_count(0, 1)


def test_the_first_series_is_the_papers():
    assert fit_budget(define_series(PAPER_SERIES, 9), 9, 1000, 0, 1) == Schedule.exponential(40, 9)


def test_impossible_series_and_budgets_are_refused():
    with pytest.raises(ArgumentError, match="at least .* parameters for 5 modules, got 10"):
        fit_budget(define_series("linear", 5), 5, 10, 0, 1)
    with pytest.raises(ArgumentError, match="expected some of exponential-2"):
        define_series("cubic", 5)
    with pytest.raises(ValueError, match="needs a signal"):
        define_series("spectrum", 5)


def test_a_short_signal_has_fewer_modules():
    assert define_series("spectrum", 9, signal=np.sin(np.arange(100.0)))(20).modules == 6


def make_small_request(task, **changes):
    arguments = {"size": 300, "modules": 4, "runs": 2, "epochs": None, "learning_rate": None, "seed": 0}
    return make_request(task, **(arguments | changes))


def test_runs_are_planned_for_sequences_and_words():
    planned = plan_comparison(
        make_small_request("generation"), [make_square_waves([3, 5])], ["exponential-2", "linear"]
    )
    assert list(planned) == ["exponential-2", "linear"]
    (first, _), (other, _) = planned.values()
    assert (first.task, first.schedule.split(",")[-1][:2]) == ("clocks generation", "8:")
    assert (other.schedule.split(",")[-1][:2], other.size) == ("4:", 300)
    request = make_small_request("words", size=500, modules=None, runs=3)
    (runs,) = plan_comparison(request, [made_corpora.make_corpus()], [], {"own": Schedule.parse("1:3,5:4")}).values()
    assert [(run.task, run.schedule, run.hidden) for run in runs] == [("clocks words", "1:3,5:4", 7)] * 3


def test_holms_correction_equals_one_by_hand():
    assert correct_by_holm([0.01, 0.2, 0.02, 0.5]) == pytest.approx([0.04, 0.4, 0.06, 0.5])
    assert correct_by_holm([0.9, 0.8]) == [1.0, 1.0]
    assert correct_by_holm([]) == []


def make_records(errors, data=None, **options):
    return [
        make_record(error, seed=seed, data=data, status="finished" if math.isfinite(error) else "diverged", **options)
        for seed, error in enumerate(errors)
    ]


def test_series_are_compared_by_ranks():
    first, better, same = [0.5, 0.6, 0.7, 0.8, 0.9], [0.1, 0.2, 0.3, 0.4, 0.45], [0.55, 0.65, 0.75, 0.85, math.inf]
    groups = {"first": first, "better": better, "same": same}
    series = compare_records({name: make_records(errors) for name, errors in groups.items()})
    assert [each.name for each in series] == ["first", "better", "same"]
    assert (series[0].better, series[0].p) == (None, None)
    asymptotic = {"method": "asymptotic", "use_continuity": False}
    ps = [stats.mannwhitneyu(each, first, **asymptotic).pvalue for each in (better, same)]
    assert series[1].p == pytest.approx(2 * ps[0])
    assert series[2].p == pytest.approx(max(2 * ps[0], ps[1]))
    assert series[1].better == 1.0
    assert series[2].better == pytest.approx(10 / 25)
    assert series[2].box.diverged == 1


def test_a_harder_data_set_does_not_hide_a_difference():
    """One of two data sets has errors a hundred times larger; ranks within each data set still show the difference."""
    easy, hard = Dataset("easy", 1, np.array([1.0, -1, 1]), ""), Dataset("hard", 1, np.array([-1.0, 1, 1]), "")
    generator = np.random.default_rng(0)
    first, lower = generator.uniform(0.5, 0.6, 10), generator.uniform(0.4, 0.49, 10)
    one = make_records(first, data=easy) + make_records(100 * first, data=hard)
    other = make_records(lower, data=easy) + make_records(100 * lower, data=hard)
    series = compare_records({"one": one, "other": other})
    assert series[1].better == 1.0
    assert series[1].p < 1e-6


def test_equal_errors_are_no_difference():
    series = compare_records({"one": make_records([0.5] * 4), "other": make_records([0.5] * 4)})
    assert (series[1].better, series[1].p) == (0.5, 1.0)


def test_chance_alone_is_rarely_significant():
    """Of 200 comparisons by chance, each with one run on twenty data sets, about 10 have a p value below 5 %."""
    generator = np.random.default_rng(0)
    data = [Dataset(f"d{i}", 1, np.array([1.0, -1, i]) / (i + 1), "") for i in range(20)]
    low = 0
    for _ in range(200):
        one, other = (
            [record for each in data for record in make_records([generator.random()], data=each)] for _ in range(2)
        )
        low += compare_records({"one": one, "other": other})[1].p < 0.05
    assert low <= 20


def test_the_figure_shows_every_series():
    groups = {"exponential-2": [0.5, 0.6], "linear": [0.1, math.inf], "random": [math.inf]}
    series = compare_records({name: make_records(errors) for name, errors in groups.items()})
    (panel,) = draw_series(series, "NMSE").axes
    assert [label.get_text().split("\n")[0] for label in panel.get_xticklabels()] == ["exponential", "linear", "random"]
    assert panel.get_xticklabels()[1].get_text().endswith("1 of 2")
    assert panel.get_ylabel() == "NMSE"


TINY = {"size": 120, "modules": 3, "runs": 2, "epochs": 3, "workers": 1}


def test_the_package_exports_the_three_functions():
    functions = experiments.compare_clocks, experiments.evolve_clocks, experiments.learn_clocks
    assert functions == (compare_clocks, evolve_clocks, learn_clocks)
    assert {function.__name__ for function in functions} <= set(dir(experiments))


def test_compare_clocks_needs_no_folder(tmp_path):
    """Data and schedules may be objects; the result prints itself, and draws on request."""
    reports = []
    result = compare_clocks(
        data=[make_square_waves([3, 5])],
        series=["exponential-2", "linear"],
        schedules=[Schedule((1, 5), (2, 3)), "1:2,4:3"],
        **TINY,
        progress=reports.append,
    )
    names = ["exponential-2", "linear", "own 1:2,5:3", "own 1:2,4:3"]
    assert [each.name for each in result.series] == names
    assert all(name in str(result) for name in names)
    assert (result.store, result.figures) == (None, ())
    assert (reports[-1].done, reports[-1].total, reports[-1].fraction) == (8, 8, 1.0)
    paths = result.draw(tmp_path)
    assert sorted(path.name for path in paths) == ["clocks.png", "clocks.svg"]
    numbers = result.to_dict()
    assert [each["median"] for each in numbers["series"]] == [each.box.median for each in result.series]
    assert numbers["data"] == ["squares 3-5 #0"]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"task": "chess"}, "task"),
        ({"series": []}, "series"),
        ({"runs": 0}, "runs"),
        ({"epochs": 0}, "epochs"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"size": 10**10}, "size"),
        ({"data": []}, "data"),
        ({"data": made_corpora.make_corpus()}, "data"),
        ({"task": "words", "data": make_square_waves([3])}, "data"),
        ({"schedules": ["1:9,x"]}, "schedules"),
        ({"engine": "magic"}, "engine"),
    ],
)
def test_bad_arguments_are_named(arguments, argument, tmp_path):
    with pytest.raises(ArgumentError) as error:
        compare_clocks(**{"data": "squares:3", "out": tmp_path / "none", **arguments})
    assert error.value.argument == argument
    assert not (tmp_path / "none").exists()
