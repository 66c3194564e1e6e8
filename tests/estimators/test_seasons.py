"""Seasons: they divide each other, fit into the series, and have clocks."""

import numpy as np
import pytest

from cwrnn.estimators.clocks import Clock, Clocks, propose_clocks
from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.seasons import choose_seasons, clock_seasons, schedule_seasons
from cwrnn.estimators.windows import split_series

DAY, WEEK, YEAR = Clock(24, "day", 0.3), Clock(168, "week"), Clock(8766, "year")


@pytest.mark.parametrize(
    ("clocks", "T", "seasons"),
    [
        ((DAY, WEEK, YEAR), 100_000, (24, 168)),
        ((DAY, WEEK), 4 * 168 + 24, (24, 168)),
        ((DAY, WEEK), 4 * 168 + 23, (24,)),
        ((DAY, WEEK), 100, (1,)),
        ((DAY, WEEK, Clock(29, "", 0.5)), 2000, (24, 168)),
        ((Clock(7, "week"), Clock(365, "year")), 2000, (7, 364)),
        ((Clock(29, "", 0.5), Clock(10, "", 0.1), Clock(20, "", 0.4)), 2000, (10, 20)),
        ((Clock(1), Clock(2), Clock(4)), 2000, (1,)),
    ],
)
def test_seasons_divide_each_other_and_fit(clocks, T, seasons):
    assert choose_seasons(Clocks(clocks), T, 24) == seasons


def test_every_season_has_a_clock():
    proposed = Clocks((Clock(1), DAY, Clock(29, "", 0.5), WEEK))
    assert clock_seasons(proposed, (24, 168)).periods == (1, 2, 4, 24, 29, 168)
    assert clock_seasons(proposed, (24,)).periods == (1, 2, 4, 24)
    assert clock_seasons(Clocks((Clock(1),)), (10,)).periods == (1, 2, 4, 10)
    assert clock_seasons(proposed, (1,)).periods == (1, 2, 4)
    years = clock_seasons(Clocks((Clock(7, "week"), Clock(365, "year", 0.4))), (7, 364))
    assert years.periods == (1, 2, 4, 7, 364)
    assert years.cycles == (7, 364)
    doubled = tuple(2**i for i in range(12))
    assert len(clock_seasons(Clocks(()), doubled).periods) == 8


@pytest.mark.parametrize(
    ("hidden_size", "spec"),
    [
        (60, "1:18,2:18,4:18,24:3,168:3"),
        (40, "1:12,2:12,4:12,24:2,168:2"),
        (12, "1:4,2:3,4:3,24:1,168:1"),
        (5, "1:1,2:1,4:1,24:1,168:1"),
        (3, "1:1,24:1,168:1"),
        (1, "1:1"),
    ],
)
def test_slow_periods_have_few_units(hidden_size, spec):
    clocks = clock_seasons(Clocks((DAY, WEEK)), (24, 168))
    assert schedule_seasons(clocks, hidden_size).spec == spec


def test_made_loads_have_a_day_and_a_week():
    y = make_load_series(days=90)
    clocks = propose_clocks(y.to_numpy())
    assert 24 in clocks.rhythms
    assert choose_seasons(propose_clocks(y.to_numpy(), "h"), len(y), 24) == (24, 168)
    half = make_load_series(days=90, frequency="30min")
    assert len(half) == 2 * len(y)
    assert choose_seasons(propose_clocks(half.to_numpy(), "30min"), len(half), 24) == (48, 336)


def test_made_loads_repeat_without_noise_and_differ_by_seed():
    y = make_load_series(days=21, noise=0).to_numpy()
    np.testing.assert_array_equal(y[168:], y[:-168])
    assert not np.array_equal(make_load_series(seed=1), make_load_series(seed=2))


@pytest.mark.parametrize("T", [10, 50, 100, 700, 5000])
@pytest.mark.parametrize("season", [1, 24])
@pytest.mark.parametrize("horizon", [1, 24])
def test_at_most_a_quarter_is_held_out_and_never_too_little(T, season, horizon):
    held_out = T - split_series(T, season, horizon)
    assert held_out <= T / 4
    assert held_out == 0 or held_out >= horizon + 8
    assert held_out > 0 or horizon + 9 > T / 4
