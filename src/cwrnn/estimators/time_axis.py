"""TimeAxis: the times of the steps of a series, as a value that is saved, continued and extended into the future.

dates       a DatetimeIndex: step k is at first + k offsets of its frequency, in the time zone and unit of the index
periods     a PeriodIndex
numbers     integers with a constant difference, such as a RangeIndex, or the rows of a numpy array
"""

import operator
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.tseries.frequencies import to_offset

from ..untrusted import shorten

KINDS = ("dates", "periods", "numbers")
"""The kinds of time axes."""

RUNS = (10, 5, 3)
"""If an index has gaps, its frequency is inferred from runs of so many rows."""

UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
"""The units of dates, and their names in ISO 8601 as `Timestamp.isoformat` takes them."""

MOST_RUNS = 100
"""The most runs from which a frequency is inferred."""


class SeriesError(ValueError):
    """A series cannot be used. The message names the argument and the time or the column.

    >>> error = SeriesError("y: 'n/a' is not a number", row=3, column="load")
    >>> error.row, error.column
    (3, 'load')
    """

    def __init__(self, message: str, *, row: int | None = None, column: Any = None) -> None:
        super().__init__(message)
        self.row = row
        """The row of the table, counted from 0, if one row is to blame."""
        self.column = column
        """The name of the column, if one column is to blame."""


@dataclass(frozen=True)
class TimeAxis:
    """The time of every step of a series.

    >>> axis = TimeAxis("dates", "h", pd.Timestamp("2024-03-01"))
    >>> axis.label(25)
    Timestamp('2024-03-02 01:00:00')
    >>> axis.index(24, 2).astype(str).tolist()
    ['2024-03-02 00:00:00', '2024-03-02 01:00:00']
    """

    kind: str
    """"dates", "periods" or "numbers"."""
    frequency: Any
    """The frequency as pandas writes it, such as "h"; for numbers their difference."""
    first: Any
    """The time of step 0: a Timestamp, a Period or an integer."""
    name: Any = None
    """The name of the index."""

    @property
    def calendar(self) -> str | None:
        """The frequency for the calendar; None for numbers."""
        if self.kind == "periods":
            # pandas has other names for offsets than for periods, such as ME for M
            return str(self.first.freq.freqstr)
        return None if self.kind == "numbers" else self.frequency

    def label(self, step: int) -> Any:
        """The time of a step."""
        if self.kind == "numbers":
            return self.first + step * self.frequency
        if self.kind == "periods":
            return self.first + step
        offset = to_offset(self.frequency)
        if _is_absolute(offset):
            return self.first + step * offset
        # a day is a day of the calendar, also when the clocks change
        wall = self.first.tz_localize(None)
        # 0 offsets would move a time to the next one on the grid
        return _localize(wall + step * offset if step else wall, self.first.tz)

    def index(self, start: int, count: int) -> Any:
        """The times of `count` steps from step `start` on, as an index of pandas."""
        if self.kind == "numbers":
            first = self.first + start * self.frequency
            return pd.RangeIndex(first, first + count * self.frequency, self.frequency, name=self.name)
        label = self.label(start)
        if self.kind == "periods":
            return pd.period_range(label, periods=count, freq=self.frequency, name=self.name)
        return pd.date_range(label, periods=count, freq=self.frequency, name=self.name, unit=self.first.unit)

    def locate(self, index: Any, start: int) -> NDArray[np.int64]:
        """The steps of the times of an index; -1 for times between steps. No time may lie before step `start`.

        The cost does not depend on `start`.
        """
        if self.kind == "numbers":
            differences = np.asarray(index, dtype=np.int64) - self.first
            return np.where(differences % self.frequency == 0, differences // self.frequency, -1)
        if self.kind == "periods":
            differences = np.asarray(index.asi8 - self.first.ordinal)
            return np.where(differences % self.first.freq.n == 0, differences // self.first.freq.n, -1)
        offset = to_offset(self.frequency)
        if _is_absolute(offset):
            differences = (index - self.first).as_unit("ns").asi8
            return np.where(differences % offset.nanos == 0, differences // offset.nanos, -1)
        begin = self.label(start)
        grid = pd.date_range(begin, max(begin, index.max()), freq=self.frequency, unit="ns")
        steps = np.asarray(grid.get_indexer(index.as_unit("ns")), dtype=np.int64)
        return np.where(steps >= 0, steps + start, -1)

    def fits(self, index: Any) -> bool:
        """Whether an index is of this kind, with a time zone or without one, and of the same frequency."""
        if self.kind == "numbers":
            return bool(pd.api.types.is_integer_dtype(index.dtype))
        if self.kind == "periods":
            return isinstance(index, pd.PeriodIndex) and bool(index.freq.rule_code == self.first.freq.rule_code)
        return isinstance(index, pd.DatetimeIndex) and (index.tz is None) == (self.first.tz is None)

    def to_dict(self) -> dict[str, Any]:
        """The axis as a JSON-serialisable object, which `from_dict` reads."""
        zone = None
        first: Any = self.first
        if self.kind == "dates":
            zone = None if first.tz is None else str(first.tz)
            first = first if first.tz is None else first.tz_convert("UTC").tz_localize(None)
            # the number of digits says the unit
            first = first.isoformat(timespec=UNITS[first.unit])
        elif self.kind == "periods":
            first = int(first.ordinal)
        name = None if self.name is None else str(self.name)
        return {"kind": self.kind, "frequency": self.frequency, "first": first, "zone": zone, "name": name}

    @classmethod
    def from_dict(cls, values: Any) -> "TimeAxis":
        """The axis that `to_dict` described; raises a ValueError for anything else.

        >>> axis = TimeAxis("dates", "D", pd.Timestamp("2024-03-01", tz="Europe/Berlin"), "day")
        >>> TimeAxis.from_dict(axis.to_dict()) == axis
        True
        """
        if not isinstance(values, Mapping) or set(values) != {"kind", "frequency", "first", "zone", "name"}:
            raise ValueError(f"a time axis has kind, frequency, first, zone and name, got {shorten(repr(values))}")
        kind, frequency, first, zone, name = (values[key] for key in ("kind", "frequency", "first", "zone", "name"))
        problem = f"there is no time axis of {shorten(repr(dict(values)), 200)}"
        expected = {"dates": (str, str), "periods": (str, int), "numbers": (int, int)}.get(str(kind), ())
        if (type(frequency), type(first)) != expected or type(zone) not in (str, type(None)):
            raise ValueError(problem)
        if type(name) not in (str, type(None)) or (kind == "numbers" and frequency < 1):
            raise ValueError(problem)
        if kind != "numbers":
            try:
                if kind == "periods":
                    first = pd.Period(ordinal=first, freq=frequency)
                    offset = first.freq
                else:
                    offset = to_offset(frequency)
                    first = pd.Timestamp(first).as_unit(_find_unit(first))
                    # pandas refuses a frequency that is finer than the unit
                    pd.date_range(first, periods=2, freq=frequency, unit=first.unit)
                    first = first if zone is None else first.tz_localize("UTC").tz_convert(zone)
            except Exception as error:
                # pandas and the packages of time zones have many errors for texts that mean nothing
                raise ValueError(problem) from error
            if offset.n < 1 or first is pd.NaT:
                raise ValueError(problem)
        return cls(kind, frequency, first, name)


def read_axis(index: Any, argument: str) -> TimeAxis:
    """The time axis of an index, whose frequency is inferred; refuses times that no frequency fits.

    Args:
        index: the index of a Series or DataFrame, which may have gaps
        argument: the name of the argument, for messages
    """
    if isinstance(index, pd.DatetimeIndex):
        check_order(index, argument)
        return TimeAxis("dates", _infer_frequency(index, argument), index[0], index.name)
    if isinstance(index, pd.PeriodIndex):
        check_order(index, argument)
        return TimeAxis("periods", index.freqstr, index[0], index.name)
    if isinstance(index, pd.MultiIndex) or not pd.api.types.is_integer_dtype(index.dtype):
        raise SeriesError(
            f"{argument}: the index must be a DatetimeIndex, a PeriodIndex or integers, got {type(index).__name__} of "
            f"{index.dtype}; pandas.to_datetime makes times of texts"
        )
    check_order(index, argument)
    step = int(np.diff(index).min()) if len(index) > 1 else getattr(index, "step", 1)
    return TimeAxis("numbers", max(1, operator.index(step)), int(index[0]), index.name)


def infer_regular_frequency(index: Any) -> str | None:
    """The frequency of at least 3 dates without gaps as pandas writes it, or None if they have none.

    >>> infer_regular_frequency(pd.DatetimeIndex(["2024-03-01", "2024-03-02", "2024-03-03"]))
    'D'
    """
    with warnings.catch_warnings():
        # pandas 3 warns that a later version returns an offset
        warnings.filterwarnings("ignore", "A future version of pandas will return a BaseOffset")
        frequency = pd.infer_freq(index)
    return None if frequency is None else str(getattr(frequency, "freqstr", frequency))


def format_time(label: Any) -> str:
    """A time for a message.

    >>> format_time(pd.Timestamp("2024-03-01 05:00")), format_time(7)
    ('2024-03-01 05:00:00', 'step 7')
    """
    return f"step {label}" if isinstance(label, (int, np.integer)) else str(label)


def check_order(index: Any, argument: str) -> None:
    """Refuses times that are missing, occur twice or go backwards, and names the first such row."""
    if index.hasnans:
        row = int(np.flatnonzero(index.isna())[0])
        raise SeriesError(f"{argument}: row {row} has no time", row=row)
    numbers = index.asi8 if hasattr(index, "asi8") else np.asarray(index)
    wrong = np.flatnonzero(np.diff(numbers) <= 0)
    if wrong.size == 0:
        return
    row = int(wrong[0]) + 1
    time = format_time(index[row])
    if index[row] == index[row - 1]:
        raise SeriesError(f"{argument}: the time {time} occurs twice, in rows {row - 1} and {row}", row=row)
    raise SeriesError(
        f"{argument}: times must increase, but {time} in row {row} follows {format_time(index[row - 1])}; "
        "sort_index() sorts a table",
        row=row,
    )


def _infer_frequency(index: Any, argument: str) -> str:
    """The frequency of dates, which may have gaps."""
    if index.freq is not None:
        return str(index.freqstr)
    if len(index) < 3:
        # no calendar can be inferred from two times, but their distance can
        return str(to_offset(index[-1] - index[0]).freqstr if len(index) == 2 else "D")
    frequency = infer_regular_frequency(index)
    if frequency is not None:
        return frequency
    frequency = _infer_from_runs(index)
    if frequency is None:
        differences = np.diff(index.asi8)
        usual = pd.Timedelta(int(np.median(differences)), index.unit)
        row = int(np.argmax(differences != int(np.median(differences)))) + 1
        raise SeriesError(
            f"{argument}: the times are irregular: {index[row]} in row {row} follows {index[row - 1]}, "
            f"but most follow after {usual}; resample() makes regular ones",
            row=row,
        )
    grid = TimeAxis("dates", frequency, index[0])
    between = np.flatnonzero(grid.locate(index, 0) < 0)
    if between.size:
        row = int(between[0])
        raise SeriesError(
            f"{argument}: the times are irregular: {index[row]} in row {row} lies between the steps of the frequency "
            f"{frequency!r}; resample() makes regular ones",
            row=row,
        )
    return frequency


def _infer_from_runs(index: Any) -> str | None:
    """The most common frequency among runs of neighbouring rows, or None if no run has one."""
    for length in RUNS:
        starts = np.unique(np.linspace(0, max(0, len(index) - length), MOST_RUNS).round().astype(int))
        found = [infer_regular_frequency(index[start : start + length]) for start in starts if len(index) >= length]
        known = [frequency for frequency in found if frequency is not None]
        if known:
            return max(sorted(set(known)), key=known.count)
    return None


def _find_unit(text: str) -> str:
    """The unit of a time in ISO 8601: the coarsest one that has its digits behind the point.

    >>> _find_unit("2024-03-01T05:00:00"), _find_unit("2024-03-01T05:00:00.000250")
    ('s', 'us')
    """
    digits = len(text.partition(".")[2])
    return next(unit for unit, count in zip(UNITS, (0, 3, 6, digits), strict=True) if digits <= count)


def _is_absolute(offset: Any) -> bool:
    """Whether an offset is a fixed time, such as an hour, and not a day or a month of the calendar."""
    return isinstance(offset, pd.offsets.Tick) and not isinstance(offset, pd.offsets.Day)


def _localize(wall: Any, zone: Any) -> Any:
    """A time of the calendar in a time zone; a time that the zone skips is moved forward."""
    return wall if zone is None else wall.tz_localize(zone, ambiguous=True, nonexistent="shift_forward")
