"""The runs of an evaluation: sizes, the hidden units that fit into them, schedules, and keys."""

from dataclasses import replace
from itertools import product

import pytest

from cwrnn import Schedule
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.evaluation.adding import make_adding
from cwrnn.experiments.evaluation.plan import (
    LEARNING_RATE,
    PERIODS,
    RECIPES,
    Recipe,
    fit_settings,
    parse_size,
    plan,
)
from cwrnn.experiments.evaluation.task import EVALUATIONS
from cwrnn.experiments.evaluation.training import EvaluationSettings, build_untrained
from cwrnn.experiments.networks.build import parameter_count
from cwrnn.experiments.networks.methods import ALL_METHODS, CLOCKED
from cwrnn.experiments.task import all_tasks, check_task, clock_tasks, find_task

OPTIONS = {
    "methods": ["cw"],
    "sizes": [500],
    "runs": 1,
    "seed": 0,
    "epochs": 2,
    "batch": 8,
    "updates": None,
    "device": "cpu",
    "learning_rates": dict.fromkeys(ALL_METHODS, 1e-3),
    "periods": {},
}


def make_settings(inputs=2, outputs=1):
    return EvaluationSettings(learning_rate=1e-3, epochs=1, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("512", 512), ("10k", 10_000), ("10K", 10_000), (" 3M ", 3_000_000), ("2m", 2_000_000), ("0", 0)],
)
def test_sizes_have_suffixes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "k", "70q", "70kk", "-5", "1.5k", "1e4", "7 k", "9" * 13, "ten"])
def test_other_texts_are_no_sizes(text):
    with pytest.raises(ArgumentError, match="expected numbers of parameters, such as 10k,70k or 3M, got") as refused:
        parse_size(text)
    assert refused.value.argument == "sizes"


@pytest.mark.parametrize("method", ALL_METHODS)
@pytest.mark.parametrize(("inputs", "outputs", "size"), [(2, 1, 2000), (1, 10, 7003), (10, 8, 4999)])
def test_the_largest_network_that_fits_is_chosen(method, inputs, outputs, size):
    periods = (1, 3, 9, 27, 81)
    hidden, settings = fit_settings(method, size, make_settings(inputs, outputs), periods)

    def count(units):
        schedule = Schedule.from_periods(units, periods).spec if method in CLOCKED else None
        return parameter_count(method, units, inputs, outputs, schedule=schedule, peepholes=False)

    assert count(hidden) <= size < count(hidden + 1)
    if method not in ("srn", "lstm", "gru"):
        network = build_untrained(method, hidden, settings)
        if method in CLOCKED:
            gates = len(network.layer.weight_hh_l0) // hidden
            forbidden = gates * int((~network.layer.schedule.mask()).sum())
            # the periods count as parameters
            numbers = sum(value.numel() for value in network.parameters()) - forbidden + len(periods)
        else:
            numbers = sum(value.numel() for value in network.state_dict().values())
        assert count(hidden) == numbers


def test_networks_with_clocks_have_a_schedule_and_the_others_none():
    for method in ALL_METHODS:
        hidden, settings = fit_settings(method, 3000, make_settings(), (8, 2, 4))
        if method in CLOCKED:
            assert settings.schedule == Schedule.from_periods(hidden, [2, 4, 8]).spec
            assert settings.modules == 3
        else:
            assert (settings.schedule, settings.modules) == (None, 1)


def test_a_size_that_no_network_has_is_refused():
    hidden, _ = fit_settings("cw", 57, make_settings(), PERIODS[:4])
    assert hidden >= 4
    with pytest.raises(ValueError, match=r"size must be at least \d+ parameters for a CW-RNN of 8 modules, got 30"):
        fit_settings("cw", 30, make_settings(), PERIODS)
    with pytest.raises(ValueError, match="size must be at least"):
        fit_settings("lru", 1, make_settings(), PERIODS)


def test_there_is_a_run_for_every_combination():
    datasets = [make_adding(10), make_adding(20)]
    options = OPTIONS | {"methods": ["srn", "cw"], "sizes": [500, 900], "runs": 3, "seed": 7}
    runs = plan(datasets, **options)
    found = [(run.data, run.method, run.size, run.seed) for run in runs]
    assert found == list(product(["adding 10", "adding 20"], ["srn", "cw"], [500, 900], [7, 8, 9]))
    assert {(run.task, run.digest) for run in runs} == {("adding", examples.digest) for examples in datasets}
    for run in runs:
        assert run.parameters <= run.size
        assert run.settings.inputs == 2


def test_periods_are_those_of_the_method():
    options = OPTIONS | {"methods": ["cw", "cw-gru"], "periods": {"cw-gru": (3, 9)}}
    first, second = plan([make_adding(10)], **options)
    assert Schedule.parse(first.schedule).periods == PERIODS
    assert Schedule.parse(second.schedule).periods == (3, 9)
    assert Schedule.parse(first.schedule).hidden_size == first.hidden


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rates": {"cw": 2e-3}},
        {"periods": {"cw": (1, 2)}},
        {"epochs": 3},
        {"batch": 9},
        {"updates": 10},
        {"sizes": [501]},
        {"seed": 1},
        {"device": "cuda"},
        {"methods": ["cw-gru"], "sizes": [800]},
    ],
)
def test_another_setting_is_another_run(change):
    (first,) = plan([make_adding(10)], **OPTIONS)
    (again,) = plan([make_adding(10)], **OPTIONS)
    (other,) = plan([make_adding(10)], **OPTIONS | change)
    assert first.key == again.key
    assert first.key != other.key
    (longer,) = plan([make_adding(11)], **OPTIONS)
    assert longer.key != first.key


def test_every_task_has_a_recipe_that_fits():
    assert list(RECIPES) == [task.name for task in EVALUATIONS]
    for task in EVALUATIONS:
        recipe = task.recipe()
        assert set(recipe.learning_rates) <= set(ALL_METHODS)
        assert set(recipe.periods) <= set(CLOCKED)
        for method in ALL_METHODS:
            assert 1e-5 < recipe.learning_rate(method) < 0.1
            # characters have the most inputs and outputs, 81
            fit_settings(method, recipe.sizes[0], make_settings(81, 81), recipe.periods.get(method, PERIODS))
    assert Recipe((1,), 1, learning_rates={"cw": 0.5}).learning_rate("cw") == 0.5
    assert Recipe((1,), 1).learning_rate("cw") == LEARNING_RATE


def test_the_tasks_are_found_but_have_no_commands_about_clocks():
    for task in EVALUATIONS:
        assert find_task(task.name) is task
        assert task in all_tasks()
        assert task not in clock_tasks()
        with pytest.raises(ArgumentError, match="expected one of generation, words, regression, got"):
            check_task(task.name)


def test_estimates_grow_with_the_work():
    examples = make_adding(50)
    (run,) = plan([examples], **OPTIONS)
    task = find_task("adding")
    seconds = task.estimate_seconds(run, examples)
    twice = replace(run, settings=replace(run.settings, epochs=4))
    assert task.estimate_seconds(twice, examples) == pytest.approx(2 * seconds)
    assert task.estimate_seconds(run, make_adding(100)) == pytest.approx(2 * seconds)
    wider = replace(run, settings=replace(run.settings, batch=16))
    assert task.estimate_seconds(wider, examples) == pytest.approx(2 * seconds)
