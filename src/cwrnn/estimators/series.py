"""Series: the door through which tables come in. It refuses what cannot be learned from, and says where it is.

A series is a Series or DataFrame of pandas, or an array (T,) or (T, channels). A SeriesError names the time and the
column of the first problem: text in a column of numbers, infinity, times that are irregular, occur twice or go
backwards, and, unless `missing` says how to fill them, values or rows that are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..untrusted import escape_controls, shorten
from .time_axis import SeriesError, TimeAxis, check_order, format_time, read_axis

LARGEST = 1e100
"""The largest absolute value: with larger ones, variances would not be finite."""

MISSING = ("error", "interpolate", "hold")
"""The ways to treat missing values: refuse them, draw a line between their neighbours, or keep the last value."""


@dataclass(frozen=True, eq=False)
class Table:
    """A series with a number at every step."""

    values: NDArray[np.float64]
    """(T, channels), finite."""
    observed: NDArray[np.bool_]
    """(T, channels): False where a value was missing and has been filled."""
    columns: tuple[Any, ...]
    """The names of the channels."""
    axis: TimeAxis
    """The times of all steps of the series, of which this table may be a part."""
    start: int
    """The step of the first row."""
    is_frame: bool
    """Whether the series was a table of columns, and not a single column."""

    @property
    def index(self) -> Any:
        """The times of the rows, as an index of pandas."""
        return self.axis.index(self.start, len(self.values))


def read_series(y: Any, *, missing: str = "error", argument: str = "y") -> Table:
    """The table of a series, from its first step on.

    Args:
        y: a Series or DataFrame of pandas, or an array (T,) or (T, channels)
        missing: "error" refuses values and rows that are missing; "interpolate" draws a line between their neighbours;
            "hold" keeps the last value. Values that are missing at an end get the nearest one.
        argument: the name of the argument, for messages

    >>> y = pd.Series([1.0, None, 3.0], pd.date_range("2024-03-01", periods=3, freq="h"), name="load")
    >>> read_series(y)
    Traceback (most recent call last):
        ...
    cwrnn.estimators.time_axis.SeriesError: y: column 'load' has no value at 2024-03-01 01:00:00 (1 of 3 are missing); \
missing="interpolate" or missing="hold" fills them
    >>> read_series(y, missing="interpolate").values.ravel()
    array([1., 2., 3.])
    """
    check_missing(missing)
    frame, is_frame = _make_frame(y, argument)
    axis = read_axis(frame.index, argument)
    return _fill_table(frame, axis, 0, missing, argument, is_frame, before=None)


def continue_series(
    y: Any,
    axis: TimeAxis,
    start: int,
    columns: Sequence[Any],
    before: NDArray[np.float64],
    *,
    missing: str = "error",
    argument: str = "y",
) -> Table:
    """The table of observations that follow a series directly.

    Args:
        y: the new observations, with the columns of the series; an array continues at step `start`
        axis: the times of the series
        start: the number of steps before the new ones
        columns: the columns of the series
        before: the last values (channels,) of the series, which fill gaps at the start
        missing: how to treat missing values, see `read_series`
        argument: the name of the argument, for messages
    """
    frame, is_frame = _make_frame(y, argument)
    _check_columns(frame, columns, argument, y)
    if not isinstance(y, (pd.Series, pd.DataFrame)):
        frame.index = axis.index(start, len(frame))
    _check_index(frame.index, axis, argument)
    expected, found = axis.label(start), frame.index[0]
    if found < expected or (found > expected and missing == "error"):
        raise SeriesError(
            f"{argument} must begin at {format_time(expected)}, one step after the last observation, "
            f"got {format_time(found)}",
            row=0,
        )
    return _fill_table(frame, axis, start, missing, argument, is_frame, before)


def read_covariates(
    X: Any, axis: TimeAxis, start: int, count: int, columns: Sequence[Any] | None, *, argument: str = "X"
) -> Table:
    """The covariates of `count` steps from step `start` on. All must be there; rows at other times are ignored.

    Args:
        X: a Series or DataFrame with the times of the steps among its index, or an array with exactly `count` rows
        axis: the times of the series
        start: the first step
        count: the number of steps
        columns: the columns that X must have; None accepts any
        argument: the name of the argument, for messages
    """
    frame, is_frame = _make_frame(X, argument)
    if columns is not None:
        _check_columns(frame, columns, argument, X)
    if isinstance(X, (pd.Series, pd.DataFrame)):
        _check_index(frame.index, axis, argument)
        wanted = axis.index(start, count)
        absent = np.flatnonzero(frame.index.get_indexer(wanted) < 0)
        if absent.size:
            raise SeriesError(
                f"{argument} has no row for {format_time(wanted[absent[0]])}; it must have one for each of the "
                f"{count} steps from {format_time(wanted[0])} to {format_time(wanted[-1])}"
            )
        frame = frame.loc[wanted]
    elif len(frame) != count:
        raise SeriesError(f"{argument} must have {count} rows, one for each step, got {len(frame)}")
    values = _read_numbers(frame, argument)
    _check_complete(values, frame, argument, hint="")
    return Table(values, np.ones(values.shape, dtype=bool), tuple(frame.columns), axis, start, is_frame)


def check_varies(table: Table, argument: str = "y") -> None:
    """Refuses a series with a column that is constant: there is nothing to forecast."""
    for column, values in zip(table.columns, table.values.T, strict=True):
        if values.min() == values.max():
            raise SeriesError(
                f"{argument}: {_name(column)} is constant, all its values are {values[0]:g}: there is nothing to learn",
                column=column,
            )


def check_missing(missing: Any) -> None:
    """Refuses a value of the option `missing` that does not exist."""
    if missing not in MISSING:
        raise ValueError(f"missing must be one of {', '.join(map(repr, MISSING))}, got {missing!r}")


def _make_frame(values: Any, argument: str) -> tuple[Any, bool]:
    """A DataFrame with at least one row and one column, and whether `values` had columns."""
    if isinstance(values, pd.Series):
        frame, is_frame = values.to_frame(), False
    elif isinstance(values, pd.DataFrame):
        frame, is_frame = values, True
    elif isinstance(values, (str, bytes, dict)) or not hasattr(values, "__len__"):
        raise TypeError(f"{argument} must be a Series or DataFrame of pandas or an array, got {type(values).__name__}")
    else:
        array = np.asarray(values)
        if array.ndim not in (1, 2):
            raise SeriesError(f"{argument} must be (T,) or (T, channels), got shape {array.shape}")
        frame, is_frame = pd.DataFrame(array), array.ndim == 2
    if frame.columns.has_duplicates:
        column = frame.columns[frame.columns.duplicated()][0]
        raise SeriesError(f"{argument}: {_name(column)} occurs twice", column=column)
    if frame.shape[0] == 0 or frame.shape[1] == 0:
        raise SeriesError(f"{argument} is empty: it has {frame.shape[0]} rows and {frame.shape[1]} columns")
    return frame, is_frame


def _check_columns(frame: Any, columns: Sequence[Any], argument: str, values: Any) -> None:
    """Refuses a table whose columns are not the expected ones. An array has no names, only a number of columns."""
    if isinstance(values, pd.DataFrame) or (isinstance(values, pd.Series) and values.name is not None):
        same = list(frame.columns) == list(columns)
    else:
        same = frame.shape[1] == len(columns)
    if not same:
        found = ", ".join(map(_name, frame.columns))
        raise SeriesError(f"{argument} must have the columns of fit, {', '.join(map(_name, columns))}; got {found}")


def _check_index(index: Any, axis: TimeAxis, argument: str) -> None:
    """Refuses times of another kind than those of the series."""
    if not axis.fits(index):
        raise SeriesError(
            f"{argument}: the index must be like that of the series, which has times like "
            f"{format_time(axis.first)!r} with the frequency {axis.frequency!r}, got {type(index).__name__} of "
            f"{index.dtype}"
        )
    check_order(index, argument)


def _fill_table(
    frame: Any,
    axis: TimeAxis,
    start: int,
    missing: str,
    argument: str,
    is_frame: bool,
    before: NDArray[np.float64] | None,
) -> Table:
    """The table with a row for every step from `start` to the last time, and a number in each of them."""
    numbers = _read_numbers(frame, argument)
    rows = axis.locate(frame.index, start) - start
    if (rows < 0).any():
        row = int(np.argmax(rows < 0))
        raise SeriesError(
            f"{argument}: {format_time(frame.index[row])} in row {row} lies between the steps of the frequency "
            f"{axis.frequency!r}",
            row=row,
        )
    if missing == "error":
        _check_gaps(rows, axis, start, frame, argument)
        hint = '; missing="interpolate" or missing="hold" fills them'
        _check_complete(numbers, frame, argument, hint)
    values = np.full((int(rows[-1]) + 1, numbers.shape[1]), np.nan)
    values[rows] = numbers
    observed = ~np.isnan(values)
    for channel, column in enumerate(frame.columns):
        if not observed[:, channel].any() and before is None:
            raise SeriesError(f"{argument}: {_name(column)} has no values", column=column)
        previous = None if before is None else float(before[channel])
        values[:, channel] = _fill_gaps(values[:, channel], missing, previous)
    return Table(values, observed, tuple(frame.columns), axis, start, is_frame)


def _fill_gaps(values: NDArray[np.float64], missing: str, before: float | None) -> NDArray[np.float64]:
    """A channel without NaN: a line between neighbours or the last value; `before` is the value before the first."""
    if before is not None:
        return _fill_gaps(np.concatenate(([before], values)), missing, None)[1:]
    present = np.flatnonzero(~np.isnan(values))
    steps = np.arange(len(values))
    if missing == "hold":
        last = np.searchsorted(present, steps, side="right") - 1
        return values[present[np.maximum(last, 0)]]
    return np.interp(steps, present, values[present])


def _read_numbers(frame: Any, argument: str) -> NDArray[np.float64]:
    """The values of a table as float64, with NaN for missing ones; refuses text, infinity and other types."""
    columns = []
    for column in frame.columns:
        series = frame[column]
        if pd.api.types.is_object_dtype(series.dtype) or pd.api.types.is_string_dtype(series.dtype):
            numbers = pd.to_numeric(series, errors="coerce")
            wrong = np.flatnonzero(numbers.isna().to_numpy() & series.notna().to_numpy())
            if wrong.size:
                row = int(wrong[0])
                text = shorten(repr(series.iloc[row]))
                raise SeriesError(
                    f"{argument}: {_name(column)} has {escape_controls(text)} at {format_time(frame.index[row])} "
                    f"(row {row}), which is not a number",
                    row=row,
                    column=column,
                )
        elif pd.api.types.is_numeric_dtype(series.dtype) and not pd.api.types.is_complex_dtype(series.dtype):
            numbers = series
        else:
            raise SeriesError(f"{argument}: {_name(column)} must be numbers, got {series.dtype}", column=column)
        values = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
        wrong = np.flatnonzero(np.abs(values) > LARGEST)
        if wrong.size:
            row = int(wrong[0])
            problem = "infinite" if np.isinf(values[row]) else f"{values[row]:g}, beyond {LARGEST:g},"
            raise SeriesError(
                f"{argument}: {_name(column)} is {problem} at {format_time(frame.index[row])} (row {row})",
                row=row,
                column=column,
            )
        columns.append(values)
    return np.stack(columns, axis=1)


def _check_complete(values: NDArray[np.float64], frame: Any, argument: str, hint: str) -> None:
    """Refuses values that are missing, and names the first."""
    absent = np.isnan(values)
    if absent.any():
        row, channel = (int(place[0]) for place in np.nonzero(absent))
        column = frame.columns[channel]
        count = int(absent[:, channel].sum())
        raise SeriesError(
            f"{argument}: {_name(column)} has no value at {format_time(frame.index[row])} "
            f"({count} of {len(values)} are missing){hint}",
            row=row,
            column=column,
        )


def _check_gaps(rows: NDArray[np.int64], axis: TimeAxis, start: int, frame: Any, argument: str) -> None:
    """Refuses steps without a row, and names the first."""
    gaps = np.flatnonzero(np.diff(rows) > 1)
    if gaps.size:
        row = int(gaps[0])
        count = int(rows[-1]) + 1 - len(rows)
        raise SeriesError(
            f"{argument}: {format_time(axis.label(start + int(rows[row]) + 1))} is missing after "
            f"{format_time(frame.index[row])} in row {row} ({count} times with the frequency {axis.frequency!r} are "
            'missing); missing="interpolate" or missing="hold" fills them',
            row=row,
        )


def _name(column: Any) -> str:
    """A column for a message."""
    return f"column {escape_controls(shorten(repr(column)))}"
