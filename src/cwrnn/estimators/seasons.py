"""Seasons: the rhythms of a series after which its values return, chosen from its clocks.

The longest season decides the naive forecast, the phases and the length of the windows, so it must fit into the series
several times, and every shorter season must divide it.
"""

from collections.abc import Sequence

from .clocks import Clock, Clocks, fill_clocks

FEWEST_SEASONS = 4
"""The longest season must fit this often into the series, beside the horizon."""

LONGEST_SEASON = 2048
"""The longest season in steps: a week of five minutes has 2016."""

LARGEST_SHIFT = 0.01
"""A longer season is moved by at most this share to become a multiple of a shorter one: 365 days to 52 weeks."""


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


def clock_seasons(clocks: Clocks, seasons: Sequence[int], modules: int) -> Clocks:
    """The clocks of the seasons, with the peaks below the longest one, and the periods between them."""
    rhythms = {season: Clock(season) for season in seasons if season > 1}
    for clock in clocks.clocks:
        if not (clock.cycle or clock.share) or clock.period > seasons[-1]:
            near = [season for season in rhythms if abs(season - clock.period) <= LARGEST_SHIFT * clock.period]
            if near and (clock.cycle or clock.share):
                rhythms[near[0]] = Clock(near[0], clock.cycle, clock.share)
            continue
        rhythms[clock.period] = clock
    return fill_clocks(list(rhythms.values()), modules) if rhythms else clocks


def _fits(period: int, T: int, horizon: int) -> bool:
    return 1 < period <= LONGEST_SEASON and FEWEST_SEASONS * period + horizon <= T


def _shift(period: int, shorter: Sequence[int]) -> int | None:
    """The next multiple of the longest of the shorter seasons, or None if it is too far away."""
    if not shorter:
        return period
    multiple = shorter[-1] * round(period / shorter[-1])
    return multiple if multiple > shorter[-1] and abs(multiple - period) <= LARGEST_SHIFT * period else None
