"""Clocks from data: the calendar and the peaks of the spectrum become the periods of a schedule.

    calendar    the cycles of the calendar that fit the frequency: 24 and 168 steps for hourly data
    peak        a rhythm that stands out from the spectrum around it, and that no cycle of the calendar explains
    others      divisors of these, which close the gaps: 1, 3, 6 and 12 below 24; they are no rhythms of the data

A clock of 24 steps in hourly data ticks at the same hour of every day, so its module compares days; one of 16 or 32
steps ticks at another hour each time.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extras import require
from ..schedule import Schedule
from .peaks import find_peaks

CYCLES = {"minute": 60.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0, "year": 365.2425 * 86400.0}
"""The cycles of the calendar in seconds."""

SHORTEST_CYCLE = 4
"""The fewest steps of a cycle of the calendar: one of 2 or 3 steps needs no clock of its own."""

FEWEST_CYCLES = 2
"""A period of the calendar must fit this often into the data, or no rhythm of that length can be learned."""

MOST_PEAKS = 2
"""The most rhythms that are taken from the spectrum alone."""

MOST_MODULES = 8
"""The most modules of a proposed schedule."""

WIDEST_GAP = 8
"""The largest ratio of neighbouring periods that is left open if no divisor lies between them."""

MOST_SEQUENCES = 500
"""The most sequences whose spectra are averaged; of a larger set, evenly spaced ones are taken."""


@dataclass(frozen=True)
class Clock:
    """One proposed period, and where it comes from."""

    period: int
    cycle: str = ""
    """The name of the cycle of the calendar, such as "day"; empty if it is none."""
    share: float = 0.0
    """The share of the variance of the spectrum's peak at this period; 0 if there is no peak."""

    @property
    def source(self) -> str:
        """The origin of the period in words.

        >>> Clock(24, "day", 0.31).source
        'calendar: day; peak with 31 % of the variance'
        >>> Clock(6).source
        'no rhythm of the data'
        """
        reasons = [f"calendar: {self.cycle}"] if self.cycle else []
        reasons += [f"peak with {100 * self.share:.2g} % of the variance"] if self.share else []
        return "; ".join(reasons) or "no rhythm of the data"


@dataclass(frozen=True)
class Clocks:
    """The proposed periods in increasing order, each with its source.

    >>> print(Clocks((Clock(1), Clock(12), Clock(24, "day", 0.5))))
    period  source
         1  no rhythm of the data
        12  no rhythm of the data
        24  calendar: day; peak with 50 % of the variance
    """

    clocks: tuple[Clock, ...]

    @property
    def periods(self) -> tuple[int, ...]:
        """The periods in increasing order."""
        return tuple(clock.period for clock in self.clocks)

    @property
    def rhythms(self) -> tuple[int, ...]:
        """The periods that come from the calendar or from a peak, in increasing order."""
        return tuple(clock.period for clock in self.clocks if clock.cycle or clock.share)

    @property
    def cycles(self) -> tuple[int, ...]:
        """The periods that come from the calendar, in increasing order."""
        return tuple(clock.period for clock in self.clocks if clock.cycle)

    def schedule(self, hidden_size: int) -> Schedule:
        """The schedule of `hidden_size` units in modules of equal size, one per period.

        If there are fewer units than periods, the periods with the least reason are left out.

        >>> Clocks((Clock(1), Clock(12), Clock(24, "day"))).schedule(2).periods
        (1, 24)
        """
        # the schedule refuses a wrong number of units
        hidden_size = Schedule.from_periods(hidden_size, [1]).hidden_size
        return Schedule.from_periods(hidden_size, thin_periods(self.clocks, hidden_size))

    def to_dict(self) -> list[dict[str, Any]]:
        """The clocks as JSON-serialisable objects."""
        return [{"period": clock.period, "cycle": clock.cycle, "share": clock.share} for clock in self.clocks]

    def __str__(self) -> str:
        return "\n".join(["period  source", *(f"{clock.period:6d}  {clock.source}" for clock in self.clocks)])


def propose_schedule(
    values: Any,
    hidden_size: int,
    frequency: Any = None,
    *,
    longest: int | None = None,
    modules: int = MOST_MODULES,
) -> Schedule:
    """The schedule of `hidden_size` units whose periods the data suggest; `propose_clocks` explains them.

    >>> hours = np.arange(24 * 7 * 8)
    >>> load = np.sin(2 * np.pi * hours / 24) + np.sin(2 * np.pi * hours / 168)
    >>> propose_schedule(load, 60, frequency="h").periods
    (1, 3, 6, 12, 24, 168)
    """
    return propose_clocks(values, frequency, longest=longest, modules=modules).schedule(hidden_size)


def propose_clocks(
    values: Any, frequency: Any = None, *, longest: int | None = None, modules: int = MOST_MODULES
) -> Clocks:
    """The periods that the calendar and the spectrum of the data suggest, with their sources.

    Args:
        values: one series (T,) or (T, channels), in which NaN is a gap; or a list of sequences of that form, or an
            array (n, T, channels) of them, whose spectra are averaged
        frequency: the time between two steps, as pandas names it ("h", "30min", "D", "MS") or as one of its offsets;
            None if the steps have no calendar
        longest: the longest period. Default: half of the longest sequence
        modules: the most periods. Default: 8

    Peaks that a cycle of the calendar explains, its overtones and sidebands, have no period of their own. Without a
    calendar and without peaks, the periods are 1, 2, 4, ..., the series of the paper.

    >>> rng = np.random.default_rng(0)
    >>> t = np.arange(2000)
    >>> print(propose_clocks(np.sin(2 * np.pi * t / 50) + rng.normal(size=2000)))
    period  source
         1  no rhythm of the data
         5  no rhythm of the data
        25  no rhythm of the data
        50  peak with 34 % of the variance
    """
    sequences = _list_sequences(values)
    if isinstance(modules, bool) or not isinstance(modules, (int, np.integer)) or modules < 1:
        raise ValueError(f"modules must be a positive integer, got {modules!r}")
    steps = max(len(sequence) for sequence in sequences)
    limit = max(1, steps // FEWEST_CYCLES)
    if longest is not None:
        if isinstance(longest, bool) or not isinstance(longest, (int, np.integer)) or longest < 1:
            raise ValueError(f"longest must be a positive integer or None, got {longest!r}")
        limit = min(limit, int(longest))
    calendar = {period: name for name, period in find_cycles(frequency).items() if period <= limit}
    peaks = [peak for peak in find_peaks(sequences, known=tuple(calendar)) if peak.period <= limit]
    shares = {peak.period: peak.share for peak in peaks}
    own = [peak.period for peak in peaks if peak.period not in calendar][:MOST_PEAKS]
    rhythms = sorted({*calendar, *own})
    if not rhythms:
        powers = [2**i for i in range(modules) if 2**i <= limit]
        return Clocks(tuple(Clock(period) for period in powers))
    return fill_clocks(
        [Clock(period, calendar.get(period, ""), shares.get(period, 0.0)) for period in rhythms], modules
    )


def fill_clocks(rhythms: Sequence[Clock], modules: int = MOST_MODULES) -> Clocks:
    """The clocks of some rhythms and of the periods between them.

    >>> fill_clocks([Clock(24, "day"), Clock(168, "week")]).periods
    (1, 3, 6, 12, 24, 168)
    """
    known = {clock.period: clock for clock in rhythms}
    clocks = [known.get(period, Clock(period)) for period in _fill(sorted(known))]
    kept = set(thin_periods(clocks, modules))
    return Clocks(tuple(clock for clock in clocks if clock.period in kept))


def find_cycles(frequency: Any) -> dict[str, int]:
    """The cycles of the calendar in steps of `frequency`, by their names; cycles that are not whole are left out.

    >>> find_cycles("h")
    {'day': 24, 'week': 168, 'year': 8766}
    >>> find_cycles("30min")
    {'day': 48, 'week': 336, 'year': 17532}
    >>> find_cycles("MS"), find_cycles("B"), find_cycles(None)
    ({'year': 12}, {'week': 5, 'year': 261}, {})
    """
    if frequency is None:
        return {}
    seconds = _measure_step(frequency)
    cycles = {}
    for name, length in CYCLES.items():
        steps = length / seconds
        # a cycle that drifts by more than 1 % is none: 3.5 steps of two days are a week, but no clock ticks so
        if steps > SHORTEST_CYCLE - 0.5 and abs(steps - round(steps)) < 0.01 * steps:
            cycles[name] = round(steps)
    return cycles


def _list_sequences(values: Any) -> list[NDArray[np.float64]]:
    """The sequences (T, channels) of one series or of many, as float64; refuses other shapes, and infinity."""
    many = isinstance(values, (list, tuple)) and len(values) > 0 and np.ndim(values[0]) > 0
    if not many and np.ndim(values) == 3:
        many = True
    if many and len(values) > MOST_SEQUENCES:
        values = [values[i] for i in np.linspace(0, len(values) - 1, MOST_SEQUENCES).round().astype(int)]
    sequences = []
    for sequence in values if many else [values]:
        array = np.asarray(sequence, dtype=np.float64)
        if array.ndim not in (1, 2) or len(array) == 0:
            raise ValueError(f"values must be (T,) or (T, channels) with at least one step, got shape {array.shape}")
        if np.isinf(array).any():
            raise ValueError("values must not have infinity")
        sequences.append(array.reshape(len(array), -1))
    return sequences


def _measure_step(frequency: Any) -> float:
    """The mean time in seconds between two steps of a frequency of pandas."""
    pandas = require("pandas", extra="estimators", purpose="clocks from the calendar")
    try:
        offset = pandas.tseries.frequencies.to_offset(frequency)
    except (TypeError, ValueError) as error:
        raise ValueError(f"frequency must be a frequency of pandas, such as 'h' or 'D', got {frequency!r}") from error
    # months differ in length, and business days pause: 1000 steps have the mean, unless they leave pandas' calendar
    for count in (1000, 100, 10):
        try:
            start = pandas.Timestamp("1970-01-05") + offset
            return float((start + count * offset - start).total_seconds() / count)
        except (OverflowError, pandas.errors.OutOfBoundsDatetime, pandas.errors.OutOfBoundsTimedelta):
            continue
    return math.inf


def _fill(rhythms: Sequence[int]) -> list[int]:
    """The rhythms with divisors between them, from 1 on: each gap is halved, or divided by its next prime factor.

    Gaps that have no divisors are filled with multiples of the lower period.
    """
    periods = {1, *rhythms}
    for low, high in zip([1, *rhythms], rhythms, strict=False):
        period = high if high % low == 0 else low
        while period > low:
            periods.add(period)
            period //= _smallest_factor(period // low)
    for low, high in itertools.pairwise(sorted(periods)):
        parts = math.ceil(math.log(high / low, WIDEST_GAP) - 1e-9)
        periods |= {low * round((high / low) ** (i / parts)) for i in range(1, parts)}
    return sorted(periods)


def _smallest_factor(number: int) -> int:
    """The smallest prime factor of a number above 1."""
    return next((factor for factor in range(2, math.isqrt(number) + 1) if number % factor == 0), number)


def thin_periods(clocks: Sequence[Clock], count: int) -> tuple[int, ...]:
    """The periods that stay if only `count` may: 1, the strongest rhythms, and others that leave the gaps most even."""
    if len(clocks) <= count:
        return tuple(clock.period for clock in clocks)
    rhythms = [clock for clock in clocks[1:] if clock.cycle or clock.share]
    rhythms.sort(key=lambda clock: (-clock.share, clock.period))
    fixed = [1, *(clock.period for clock in rhythms[: count - 1])]
    others = [clock.period for clock in clocks[1:] if not (clock.cycle or clock.share)]
    choices = itertools.combinations(others, count - len(fixed))
    return min((tuple(sorted([*fixed, *choice])) for choice in choices), key=_unevenness)


def _unevenness(periods: Sequence[int]) -> float:
    """The sum of the squared logarithms of the ratios of neighbouring periods."""
    return sum(math.log(high / low) ** 2 for low, high in itertools.pairwise(periods))
