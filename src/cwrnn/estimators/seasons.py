"""Seasons: the rhythms of a series after which its values return, chosen from its clocks; and clocks for them.

The longest season decides the naive forecast, the phases and the length of the windows, so it must fit into the series
several times, and every shorter season must divide it.

A forecaster has clocks for each season and each peak of the spectrum below the longest season, with few units, and
fast clocks with all others: the candidates already hold the values of the last seasons, and what is left for the
network changes from step to step.
"""

from collections.abc import Sequence

from ..schedule import Schedule
from .clocks import MOST_MODULES, Clock, Clocks, thin_periods

FEWEST_SEASONS = 4
"""The longest season must fit this often into the series, beside the horizon."""

LONGEST_SEASON = 2048
"""The longest season in steps: a week of five minutes has 2016."""

LARGEST_SHIFT = 0.01
"""A longer season is moved by at most this share to become a multiple of a shorter one: 365 days to 52 weeks."""


FAST_PERIODS = (1, 2, 4)
"""The periods that every forecaster has."""

UNITS_PER_SLOW_UNIT = 20
"""Every period above the fast ones gets one of so many units."""


def choose_seasons(clocks: Clocks, T: int, horizon: int) -> tuple[int, ...]:
    """The seasons of a series of T steps in increasing order; (1,) if it has none.

    Cycles of the calendar come first; a series without them has the seasons of its peaks.

    >>> choose_seasons(Clocks((Clock(24, "day"), Clock(29, "", 0.2), Clock(168, "week"))), 2000, 24)
    (24, 168)
    >>> choose_seasons(Clocks((Clock(7, "week"), Clock(365, "year"))), 4000, 14)
    (7, 364)
    """
    fitting = [clock for clock in clocks.clocks if _fits(clock.period, T, horizon)]
    candidates = [clock.period for clock in fitting if clock.cycle]
    if not candidates:
        peaks = sorted((clock for clock in fitting if clock.share), key=lambda clock: -clock.share)
        candidates = [clock.period for clock in peaks]
    seasons: list[int] = []
    for period in sorted(candidates):
        shifted = _shift(period, seasons)
        if shifted is not None and _fits(shifted, T, horizon):
            seasons.append(shifted)
    return tuple(seasons) or (1,)


def clock_seasons(clocks: Clocks, seasons: Sequence[int]) -> Clocks:
    """The clocks of a forecaster: the fast periods, the seasons, and the peaks below the longest season.

    >>> clock_seasons(Clocks((Clock(1), Clock(24, "day"), Clock(29, "", 0.2), Clock(168, "week"))), (24, 168)).periods
    (1, 2, 4, 24, 29, 168)
    """
    chosen = {period: Clock(period) for period in (*FAST_PERIODS, *seasons)}
    for clock in clocks.clocks:
        if not (clock.cycle or clock.share):
            continue
        near = [season for season in seasons if abs(season - clock.period) <= LARGEST_SHIFT * clock.period]
        if near:
            chosen[near[0]] = Clock(near[0], clock.cycle, clock.share)
        elif clock.period < seasons[-1]:
            chosen[clock.period] = clock
    kept = thin_periods([chosen[period] for period in sorted(chosen)], MOST_MODULES)
    return Clocks(tuple(chosen[period] for period in kept))


def schedule_seasons(clocks: Clocks, hidden_size: int) -> Schedule:
    """The schedule of a forecaster: few units for each slow period, and equal shares of the others for the fast ones.

    >>> schedule_seasons(Clocks((Clock(1), Clock(2), Clock(4), Clock(24, "day"), Clock(168, "week"))), 40).spec
    '1:12,2:12,4:12,24:2,168:2'
    """
    periods = thin_periods(clocks.clocks, hidden_size)
    fast = [period for period in periods if period <= FAST_PERIODS[-1]]
    slow = periods[len(fast) :]
    each = max(1, hidden_size // UNITS_PER_SLOW_UNIT)
    sizes = Schedule.from_periods(hidden_size - each * len(slow), fast).sizes
    return Schedule(periods, (*sizes, *(each for _ in slow)))


def _fits(period: int, T: int, horizon: int) -> bool:
    return 1 < period <= LONGEST_SEASON and FEWEST_SEASONS * period + horizon <= T


def _shift(period: int, shorter: Sequence[int]) -> int | None:
    """The next multiple of the longest of the shorter seasons, or None if it is too far away."""
    if not shorter:
        return period
    multiple = shorter[-1] * round(period / shorter[-1])
    return multiple if multiple > shorter[-1] and abs(multiple - period) <= LARGEST_SHIFT * period else None
