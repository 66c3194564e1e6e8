"""Schedules: their values, their forms, the series of periods, and the counts of operations."""

import itertools
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.network_cases import schedules

from cwrnn import ClockworkRNN, Schedule


@given(schedules())
def test_a_schedule_is_a_frozen_value(schedule):
    assert hash(schedule) == hash(Schedule(schedule.periods, schedule.sizes))
    assert eval(repr(schedule)) == schedule
    assert Schedule.parse(schedule.spec) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    with pytest.raises(AttributeError):
        schedule.periods = (1,)


@given(schedules(), st.randoms())
def test_the_order_of_the_modules_does_not_matter(schedule, random):
    pairs = list(zip(schedule.periods, schedule.sizes, strict=True))
    random.shuffle(pairs)
    assert Schedule(tuple(p for p, _ in pairs), tuple(k for _, k in pairs)) == schedule


def test_equal_periods_are_one_module():
    assert Schedule((2, 1, 2, 1), (1, 2, 3, 4)) == Schedule((1, 2), (6, 4))
    assert Schedule.from_periods(10, [1, 1, 2]) == Schedule((1, 2), (7, 3))


@given(st.integers(1, 60), st.data())
def test_units_are_split_evenly(hidden_size, data):
    periods = data.draw(st.lists(st.integers(1, 500), min_size=1, max_size=hidden_size, unique=True))
    sizes = Schedule.from_periods(hidden_size, periods).sizes
    assert sum(sizes) == hidden_size
    assert max(sizes) - min(sizes) <= 1
    assert list(sizes) == sorted(sizes, reverse=True)


@given(schedules())
def test_a_schedule_and_its_text_resolve_to_the_schedule(schedule):
    assert Schedule.resolve(schedule, schedule.hidden_size) is schedule
    assert Schedule.resolve(schedule.spec, schedule.hidden_size) == schedule


@pytest.mark.parametrize(
    "value",
    [(1, 2, 4), [4, 1, 2], iter([1, 2, 4]), np.array([1, 2, 4]), 3, np.int64(3)],
    ids=["tuple", "unsorted list", "iterator", "numpy array", "int", "numpy int"],
)
def test_periods_and_a_number_of_modules_resolve_to_even_sizes(value):
    assert Schedule.resolve(value, 11) == Schedule((1, 2, 4), (4, 4, 3))


def test_none_resolves_to_eight_modules_or_fewer():
    assert Schedule.resolve(None, 20) == Schedule.exponential(20, 8)
    assert Schedule.resolve(None, 3) == Schedule.exponential(3, 3)


@given(schedules())
def test_the_constructor_accepts_the_schedule_that_print_shows(schedule):
    rnn = ClockworkRNN(2, schedule.hidden_size, schedule=schedule)
    shown = re.search(r"schedule='([\d:,]+)'\)", str(rnn))
    assert ClockworkRNN(2, schedule.hidden_size, schedule=shown[1]).schedule == schedule


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("1:4,2:4", ValueError, "the schedule has 8 units, but hidden_size=9"),
        (Schedule((1,), (8,)), ValueError, "the schedule has 8 units, but hidden_size=9"),
        ("", ValueError, "a schedule is written period:size,period:size,..., got ''"),
        (10, ValueError, "10 modules need at least 10 units, got hidden_size=9"),
        (True, ValueError, "the number of modules must be a positive integer, got True"),
        ([1, "2"], ValueError, "periods must be positive integers, got '2'"),
        (
            b"1:9",
            TypeError,
            "schedule must be a Schedule, its text form, a sequence of periods, a number of modules or None, "
            "got b'1:9'",
        ),
    ],
)
def test_resolve_refuses_with_the_reason(value, error, message):
    with pytest.raises(error) as caught:
        Schedule.resolve(value, 9)
    assert str(caught.value) == message


@given(schedules(), st.integers(0, 50), st.integers(0, 40))
def test_ticks_are_the_times_at_which_a_module_is_due(schedule, t0, T):
    ticks = schedule.ticks(t0, T)
    for t in range(t0, t0 + T):
        assert schedule.due(t) == tuple(i for i in range(schedule.modules) if t in ticks[i])
    assert all(t0 <= t < t0 + T for module in ticks for t in module)
    assert schedule.due(0) == tuple(range(schedule.modules))


@given(schedules())
def test_the_mask_has_the_weights_from_slower_modules(schedule):
    mask = schedule.mask()
    module = [i for i, size in enumerate(schedule.sizes) for _ in range(size)]
    N = schedule.hidden_size
    for to in range(N):
        for source in range(N):
            assert mask[to, source] == (schedule.periods[module[to]] <= schedule.periods[module[source]])
    assert schedule.recurrent_parameter_count() == mask.sum()
    assert [list(range(N))[units] for units in schedule.slices] == [
        [n for n in range(N) if module[n] == i] for i in range(schedule.modules)
    ]


@given(schedules(), st.integers(0, 4))
def test_operations_equal_a_count_step_by_step(schedule, input_size):
    """Counts every multiply-add until all clocks are back where they started."""
    cycle = np.lcm.reduce(schedule.periods)
    paper = cascade = 0
    for t in range(cycle):
        for i in schedule.due(t):
            size, units = schedule.sizes[i], schedule.slices[i]
            paper += size * (schedule.hidden_size - units.start) + size * input_size
            cascade += size * size + size * units.start + size * input_size
    operations = schedule.operations(input_size)
    assert operations.dense == schedule.hidden_size * (schedule.hidden_size + input_size)
    assert operations.paper == pytest.approx(paper / cycle, rel=1e-12)
    assert operations.cascade == pytest.approx(cascade / cycle, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "periods"),
    [
        (Schedule.exponential(9, 9), (1, 2, 4, 8, 16, 32, 64, 128, 256)),
        (Schedule.exponential(5, 4, base=3), (1, 3, 9, 27)),
        (Schedule.exponential(9, 6, base=1.5), (1, 2, 3, 4, 5, 8)),
        (Schedule.exponential(41, 41), tuple(2**i for i in range(41))),
        (Schedule.linear(9, 4), (1, 2, 3, 4)),
        (Schedule.linear(9, 4, step=5), (1, 6, 11, 16)),
        (Schedule.fibonacci(9, 7), (1, 2, 3, 5, 8, 13, 21)),
        (Schedule.fibonacci(9, 1), (1,)),
        (Schedule.logarithmic(9, 1), (1,)),
        (Schedule.logarithmic(9, 4, longest=4), (1, 2, 3, 4)),
        (Schedule.logarithmic(9, 5, longest=6), (1, 3, 4, 5, 6)),
    ],
)
def test_each_series_has_its_periods(schedule, periods):
    assert schedule.periods == periods


@given(st.integers(1, 12), st.integers(0, 100), st.integers(0, 1000))
def test_random_and_logarithmic_periods_end_at_the_longest(modules, seed, extra):
    longest = modules + extra
    drawn = Schedule.random(modules, modules, seed=seed, longest=longest)
    assert drawn.modules == modules
    assert drawn.periods[-1] <= longest
    assert drawn == Schedule.random(modules, modules, seed=seed, longest=longest)
    series = Schedule.logarithmic(modules, modules, longest=longest)
    assert series.modules == modules
    assert series.periods[0] == 1
    assert modules == 1 or series.periods[-1] == longest


def test_another_seed_draws_other_periods():
    drawn = {Schedule.random(6, 6, seed=seed, longest=1000) for seed in range(20)}
    assert len(drawn) == 20


def test_sizes_follow_the_energy_of_sines():
    """Most units go to the slowest module that can still follow the wave."""
    t = np.arange(1 << 14)
    # the limits 1 / (2 P) belong to waves of 2, 8, 32 and 128 steps
    periods = [1, 4, 16, 64]
    for module, wave in enumerate((3.1, 14.0, 60.0, 500.0)):
        sizes = Schedule.from_spectrum(np.sin(2 * np.pi * t / wave) + 5, 100, periods=periods).sizes
        assert sizes[module] >= 95, (wave, sizes)
    mixed = np.sqrt(3) * np.sin(2 * np.pi * t / 14) + np.sin(2 * np.pi * t / 500)
    assert Schedule.from_spectrum(mixed, 84, periods=periods).sizes == (1, 61, 1, 21)
    both = np.stack((np.sqrt(3) * np.sin(2 * np.pi * t / 14), np.sin(2 * np.pi * t / 500)), axis=1)
    assert Schedule.from_spectrum(both, 84, periods=periods).sizes == (1, 61, 1, 21)


def test_sizes_follow_the_width_of_the_bands_for_noise():
    """The energy of white noise in a band is proportional to the width of the band."""
    noise = np.random.default_rng(0).standard_normal(1 << 18)
    sizes = Schedule.from_spectrum(noise, 1004, 4).sizes
    assert sum(sizes) == 1004
    assert np.array(sizes) == pytest.approx([501, 251, 126, 126], abs=6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Schedule((1, 2), (3,)), "periods and sizes must be of equal length, got 2 and 1"),
        (lambda: Schedule((), ()), "a schedule needs at least one module, got no periods"),
        (lambda: Schedule.exponential(42, 42), f"periods must be at most 2**40, got {2**41}"),
        (lambda: Schedule((1, 0), (1, 1)), "periods must be positive integers, got 0"),
        (lambda: Schedule((1, 2), (1, 0)), "sizes must be positive integers, got 0"),
        (lambda: Schedule((1, 2), (1, -1)), "sizes must be positive integers, got -1"),
        (lambda: Schedule((1, 1.5), (1, 1)), "periods must be positive integers, got 1.5"),
        (lambda: Schedule((1, "2"), (1, 1)), "periods must be positive integers, got '2'"),
        (lambda: Schedule(("1", True), (1, 1)), "periods must be positive integers, got '1'"),
        (lambda: Schedule.exponential(4, 5), "5 modules need at least 5 units, got hidden_size=4"),
        (lambda: Schedule.exponential(4, 2, base=1), "base must be a number greater than 1, got 1"),
        (lambda: Schedule.exponential(4, 2, base=float("nan")), "base must be a number greater than 1, got nan"),
        (lambda: Schedule.exponential(0, 1), "hidden_size must be a positive integer, got 0"),
        (lambda: Schedule.exponential(4, 1.5), "the number of modules must be a positive integer, got 1.5"),
        (lambda: Schedule.linear(4, 2, step=0), "step must be a positive integer, got 0"),
        (lambda: Schedule.random(4, 4, 0, longest=3), "4 different periods need longest >= 4, got longest=3"),
        (lambda: Schedule.logarithmic(4, 4, longest=3), "4 different periods need longest >= 4, got longest=3"),
        (lambda: Schedule.from_periods(2, [1, 2, 3]), "3 modules need at least 3 units, got hidden_size=2"),
        (lambda: Schedule.parse("1:2,4"), "a schedule is written period:size,period:size,..., got '1:2,4'"),
        (lambda: Schedule.parse("1:a"), "a schedule is written period:size,period:size,..., got '1:a'"),
        (lambda: Schedule.parse("0:1"), "periods must be positive integers, got 0"),
        (lambda: Schedule.from_spectrum(np.ones(100), 4, 2), "signal is constant: it has no spectrum to follow"),
        (lambda: Schedule.from_spectrum([1.0, np.nan] * 50, 4, 2), "signal must be finite, got NaN or infinity"),
        (
            lambda: Schedule.from_spectrum(np.arange(100.0), 9, 8),
            "signal of 100 steps is too short for a period of 128: at least 256 steps are needed",
        ),
        (
            lambda: Schedule.from_spectrum(np.ones((5, 5, 5)), 4, 2),
            "signal must be (time,) or (time, channels), got shape (5, 5, 5)",
        ),
        (lambda: Schedule.from_spectrum(np.arange(9.0), 4), "give either modules or periods"),
        (lambda: Schedule.from_spectrum(np.arange(9.0), 4, 2, periods=[1]), "give either modules or periods"),
    ],
)  # fmt: skip
def test_bad_schedules_are_refused_with_the_reason(call, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    assert str(caught.value) == message


def test_print_draws_the_ticks():
    lines = str(Schedule((2, 3), (4, 1))).splitlines()
    assert lines[0].startswith("5 units in 2 modules")
    assert lines[1] == "module  period  size  t = 0       8       16      24      32      40      48      56"
    start = lines[1].index("0")
    for line, period in zip(lines[2:], (2, 3), strict=True):
        assert [t for t, mark in enumerate(line[start:]) if mark == "#"] == list(range(0, 64, period))
    assert lines[2].split()[:3] == ["1", "2", "4"]


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.signal", None)
    with pytest.raises(ImportError, match=r"Schedule.from_spectrum needs scipy: pip install 'cwrnn\[spectrum\]'"):
        Schedule.from_spectrum(np.arange(100.0), 4, 2)


@pytest.mark.parametrize(
    "build",
    [
        lambda: Schedule.parse("1:1" + "0" * 400),
        lambda: Schedule((1, 2), (2**40, 1)),
        lambda: Schedule.from_periods(2**50, itertools.count(1)),
        lambda: Schedule.resolve(range(1, 2**40), 2**41),
        lambda: Schedule.exponential(8, 8, base=1e300),
        lambda: Schedule.exponential(10**6, 10**5),
        lambda: Schedule.linear(2**40, 2**40),
        lambda: Schedule.fibonacci(10**6, 10**5),
        lambda: Schedule.logarithmic(2**63, 2**63),
        lambda: Schedule.logarithmic(8, 8, longest=10**400),
        lambda: Schedule.random(8, 8, seed=0, longest=10**400),
    ],
)
def test_absurd_numbers_are_refused_before_they_cost_time_or_memory(build):
    with pytest.raises(ValueError, match="must be at most|needs at most"):
        build()


@pytest.mark.parametrize("size", [1e-300, 1e300, 1.7e308])
def test_a_spectrum_does_not_depend_on_the_unit_of_the_signal(size):
    signal = np.sin(np.arange(256) / 3) + np.sin(np.arange(256) / 20)
    schedule = Schedule.from_spectrum(signal, 20, periods=[1, 4, 8])
    assert Schedule.from_spectrum(size * (signal / 2), 20, periods=[1, 4, 8]) == schedule
