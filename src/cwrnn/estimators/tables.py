"""Tables: series in CSV and Parquet files of others. An error names the file, and the line or the column to look at.

    read_table      the times and numbers of the columns that are asked for
    split_table     the targets and the covariates of a table, for a forecaster

    time,load,temperature       the first column with times is the time column, wherever it stands
    2024-03-01 00:00,51.2,4.5
    2024-03-01 01:00,49.7,4.1
    2024-03-01 02:00,,3.9       no target: at the end of a table, a step to forecast whose covariates are known

No file is trusted: it must be a regular file of limited size, and nothing in it is executed.
"""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..untrusted import read_regular_file
from .series import check_missing
from .table_files import FileColumns, TableError, quote, read_columns
from .table_times import check_names, find_time_column, parse_times
from .time_axis import SeriesError, TimeAxis, format_time, read_axis

LARGEST_FILE = 2**28
"""The most bytes of a file: 256 MiB, some five million lines."""

NO_VALUES = frozenset({"", "na", "n/a", "#n/a", "nan", "null", "none", "nil", "-", "?", "."})
"""The texts that stand for a missing value, in lower case."""


@dataclass(frozen=True, eq=False)
class TableFile:
    """The times and numbers of a file."""

    path: Path
    frame: Any
    """A DataFrame of float64, first the targets, then the covariates; NaN is a missing value. Its index are the
    times, in the order of the file."""
    targets: tuple[str, ...]
    """The columns to forecast."""
    covariates: tuple[str, ...]
    """The columns that are known in advance."""
    unit: str
    """"line" for texts, "row" for Parquet."""
    places: NDArray[np.int64]
    """The number of the line or row of each row of `frame`, counted from 1."""

    def error(self, message: str, row: int | None = None, column: str | None = None) -> "TableError":
        """An error that names the file, and the line and the column if they are given."""
        place = None if row is None else f"{self.unit} {self.places[row]}"
        return TableError(self.path, message, place=place, column=column)


def read_table(
    path: str | os.PathLike[str],
    *,
    targets: Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    time: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    encoding: str | None = None,
) -> TableFile:
    """The times and numbers of a CSV or Parquet file.

    Values in a CSV file are separated by commas, semicolons, tabs or bars. With semicolons, a comma is a decimal point.

    Args:
        path: the file
        targets: the columns to forecast. Default: the only column beside the times and the covariates
        covariates: the columns that are known in advance
        time: the column of the times: dates, or whole numbers. Default: the first column of dates
        time_format: the format of the times, such as "%d/%m/%Y %H:%M". Default: ISO 8601, or one that fits all times
        timezone: the time zone of the times, such as "Europe/Berlin", in which an hour occurs twice when the clocks go
            back. Default: none, or that of the file
        encoding: the encoding of a CSV file. Default: UTF-8, or that of its byte order mark

    Raises a TableError that names the file, the line and the column of the first problem.
    """
    path = Path(path)
    columns = read_columns(path, _read_bytes(path), encoding)
    check_names(columns)
    time = find_time_column(columns) if time is None else columns.check(time, "time")
    covariates = tuple(columns.check(name, "covariates") for name in covariates)
    names = _choose_targets(columns, targets, {time, *covariates})
    for name in covariates:
        if name in names or name == time:
            role = "target" if name in names else "time"
            raise TableError(path, f"is the {role} column, and no covariate", column=name)
    values, places = columns.select([time, *names, *covariates])
    index = parse_times(columns, time, values[0], places, time_format, timezone)
    numbers = [
        _parse_numbers(columns, name, texts, places)
        for name, texts in zip([*names, *covariates], values[1:], strict=True)
    ]
    frame = pd.DataFrame(dict(zip([*names, *covariates], numbers, strict=True)), index=index)
    frame.index.name = time
    return TableFile(path, frame, names, covariates, columns.unit, places)


def split_table(
    table: TableFile, *, missing: str = "error", axis: TimeAxis | None = None, start: int = 0
) -> tuple[Any, Any]:
    """The targets as a Series, or as a DataFrame if there are several, and the covariates as a DataFrame or None.

    Rows at the end without any target are steps to forecast: only the covariates have them. Missing covariates are
    filled in the same way as missing targets.

    Args:
        table: the table
        missing: "error" refuses times and values that are missing; "interpolate" and "hold" leave the targets to the
            forecaster, which fills them
        axis: the times of the series that the table continues. Default: those of the table itself
        start: the step of that series at which the table should begin
    """
    check_missing(missing)
    check_times(table)
    axis = _read_axis(table) if axis is None else axis
    steps = _locate_rows(table, axis, start)
    observed = table.frame[list(table.targets)].notna().to_numpy().any(axis=1)
    if not observed.any():
        raise table.error("has no values", column=table.targets[0])
    end = int(np.flatnonzero(observed)[-1]) + 1
    if missing == "error":
        _check_gaps(table, axis, start, steps)
        _check_complete(table, table.targets, end)
        _check_complete(table, table.covariates, len(table.frame))
    y = table.frame[list(table.targets)].iloc[:end]
    X = table.frame[list(table.covariates)] if table.covariates else None
    if X is not None and missing != "error":
        for name in table.covariates:
            if X[name].isna().all():
                raise table.error("has no values", column=name)
        X = X.reindex(axis.index(start, int(steps[-1]) + 1 - start))
        X = X.interpolate(limit_direction="both") if missing == "interpolate" else X.ffill().bfill()
    return (y[table.targets[0]] if len(table.targets) == 1 else y), X


def check_targets_vary(table: TableFile) -> None:
    """Refuses a target that is constant: there is nothing to forecast."""
    for name in table.targets:
        values = table.frame[name].dropna()
        if len(values) and values.min() == values.max():
            raise table.error(
                f"is constant, all its values are {values.iloc[0]:g}: there is nothing to learn", column=name
            )


def check_times(table: TableFile) -> None:
    """Refuses times that occur twice or go backwards, and names the first such line."""
    index = table.frame.index
    numbers = index.asi8 if hasattr(index, "asi8") else np.asarray(index)
    wrong = np.flatnonzero(np.diff(numbers) <= 0)
    if not wrong.size:
        return
    row = int(wrong[0]) + 1
    time, before = format_time(index[row]), f"{table.unit} {table.places[row - 1]}"
    if numbers[row] == numbers[row - 1]:
        hint = ""
        if isinstance(index, pd.DatetimeIndex) and index.tz is None:
            hint = "; if the clocks went back there, give the time zone (--timezone Europe/Berlin)"
        raise table.error(f"the time {time} occurs twice, first in {before}{hint}", row)
    raise table.error(
        f"times must increase, but {time} follows {format_time(index[row - 1])} in {before}: sort the table by time",
        row,
    )


def _locate_rows(table: TableFile, axis: TimeAxis, start: int) -> NDArray[np.int64]:
    """The step of every row; refuses times between the steps of an axis, and names the first."""
    index = table.frame.index
    steps = axis.locate(index, start)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0))
        raise table.error(
            f"the times are irregular: {format_time(index[row])} lies between the steps of the frequency "
            f"{axis.frequency!r}; resample the table first",
            row,
        )
    return steps


def _check_gaps(table: TableFile, axis: TimeAxis, start: int, steps: NDArray[np.int64]) -> None:
    """Refuses steps from `start` on without a row, and names the first."""
    gaps = np.flatnonzero(np.diff(steps, prepend=start - 1) > 1)
    if gaps.size:
        row = int(gaps[0])
        first = start if row == 0 else int(steps[row - 1]) + 1
        count = int(steps[-1]) + 1 - start - len(steps)
        raise table.error(
            f"{format_time(axis.label(first))} is missing before {format_time(table.frame.index[row])} ({count} times "
            f"of the frequency {axis.frequency!r} are missing in all); {FILL_HINT}",
            row,
        )


FILL_HINT = "--missing interpolate or --missing hold (missing=...) fills them"
"""What to do about missing values."""


def _read_axis(table: TableFile) -> TimeAxis:
    """The time axis of a table, whose times increase; refuses times that no frequency fits."""
    try:
        return read_axis(table.frame.index, "y")
    except SeriesError as error:
        if error.row is None:
            raise TableError(table.path, str(error).removeprefix("y: ")) from error
        index, row = table.frame.index, error.row
        usual = str(pd.Timedelta(int(np.median(np.diff(index.asi8))), index.unit)).removeprefix("0 days ")
        raise table.error(
            f"the times are irregular: {format_time(index[row])} follows {format_time(index[row - 1])}, but most "
            f"follow after {usual}; resample the table first",
            row,
        ) from error


def _check_complete(table: TableFile, columns: Sequence[str], end: int) -> None:
    """Refuses values that are missing in the first `end` rows, and names the first of the first column."""
    for name in columns:
        absent = table.frame[name].iloc[:end].isna().to_numpy()
        if absent.any():
            row = int(np.argmax(absent))
            raise table.error(
                f"has no value at {format_time(table.frame.index[row])} ({int(absent.sum())} of {end} are missing); "
                f"{FILL_HINT}",
                row,
                name,
            )


def _read_bytes(path: Path) -> bytes:
    """The bytes of a regular file that is not too large."""
    try:
        return read_regular_file(path, LARGEST_FILE)
    except OSError as error:
        raise TableError(path, f"cannot be read: {error.strerror or error}") from error


def _choose_targets(columns: FileColumns, targets: Sequence[str] | None, others: set[str]) -> tuple[str, ...]:
    """The columns to forecast."""
    if targets is not None and not targets:
        raise TableError(columns.path, "targets must name at least one column, got none")
    if targets is not None:
        if len(set(targets)) < len(targets):
            name = next(name for name in targets if list(targets).count(name) > 1)
            raise TableError(columns.path, "is named twice as a target", column=name)
        if others.intersection(targets):
            name = next(name for name in targets if name in others)
            raise TableError(columns.path, "is the time column or a covariate, and no target", column=name)
        return tuple(columns.check(name, "target") for name in targets)
    left = [name for name in columns.names if name and name not in others]
    if len(left) == 1:
        return tuple(left)
    if not left:
        raise TableError(columns.path, f"there is no column to forecast: it has {columns.describe()}")
    raise TableError(columns.path, f"which column is to be forecast? Choose --target from {columns.describe(left)}")


def _parse_numbers(columns: FileColumns, name: str, values: Any, places: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers of a column, with NaN for missing ones; refuses text and infinity, and names the line."""
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64)
    else:
        numbers = np.empty(len(values))
        for row, text in enumerate(values):
            number = _parse_number(text, columns.has_decimal_comma)
            if number is None:
                problem = f"has {quote(text)}, which is not a number"
                raise TableError(columns.path, problem, place=f"{columns.unit} {places[row]}", column=name)
            numbers[row] = number
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise TableError(columns.path, "is infinite", place=f"{columns.unit} {places[row]}", column=name)
    return numbers


def _parse_number(text: str, has_decimal_comma: bool) -> float | None:
    """The number of a text; NaN if it stands for a missing one, None if it is no number."""
    text = text.strip()
    if text.lower() in NO_VALUES:
        return float("nan")
    if has_decimal_comma and "." not in text:
        text = text.replace(",", ".", 1)
    # Python allows 1_000, and digits of other scripts
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def cut_table(table: TableFile, first: int, last: int | None = None) -> TableFile:
    """The rows of a table from `first` to before `last`."""
    rows = slice(first, last)
    return dataclasses.replace(table, frame=table.frame.iloc[rows], places=table.places[rows])
