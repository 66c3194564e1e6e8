"""Times of tables: texts in many formats, dates of Parquet files, and whole numbers become an index of pandas."""

import functools
import zoneinfo
from collections import Counter
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..untrusted import shorten
from .table_files import FileColumns, TableError, quote
from .time_axis import infer_regular_frequency

DATES = (
    "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%y", "%d/%m/%y",
    "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%b %d %Y", "%b %d, %Y", "%d %B %Y", "%B %d %Y", "%B %d, %Y",
)  # fmt: skip
"""The formats of dates beside those of ISO 8601, in the notation of strftime."""

CLOCKS = (
    "", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S", "T%H:%M:%S.%f",
)  # fmt: skip
"""The formats of the time of the day, which follows the date."""

EPOCHS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""The units of numbers that count from 1970, and how many of them a second has."""

EARLIEST, LATEST = 946_684_800, 4_102_444_800
"""The first seconds of the years 2000 and 2100 since 1970: numbers in between are times, others count steps."""


FIRST_YEAR, LAST_YEAR = 1678, 2261
"""The years that nanoseconds since 1970 can count in 64 bits."""

FEW = 5
"""The number of texts that are tried in all formats to see whether they are times."""


def find_time_column(columns: FileColumns) -> str:
    """The first column with dates; a TableError if there is none."""
    for name, count in Counter(columns.names).items():
        if name and count == 1:
            values = columns.sample(name)
            if isinstance(values, pd.DatetimeIndex):
                return name
            if isinstance(values, list) and _are_mostly_times(values):
                return name
    raise TableError(
        columns.path,
        f"no column has times such as 2024-03-01 05:00: it has {columns.describe()}. Times may be whole numbers, if "
        "--time (time=...) names their column",
    )


def check_names(columns: FileColumns) -> None:
    """Refuses a first line that has times and numbers where the names of the columns should be."""
    if all(_is_number(name) or _is_date(name) for name in columns.names if name):
        names = shorten(", ".join(columns.names), 40)
        problem = f"the names of the columns are expected here, got {quote(names)}"
        raise TableError(columns.path, problem, place=f"{columns.unit} 1")


def parse_times(
    columns: FileColumns,
    name: str,
    values: Any,
    places: NDArray[np.int64],
    time_format: str | None,
    timezone: str | None,
) -> Any:
    """The times of a column as a DatetimeIndex in nanoseconds, or as an Index of integers."""
    reader = _Reader(columns, name, places)
    index = reader.parse_texts(values, time_format) if isinstance(values, list) else values
    absent = np.asarray(pd.isna(index))
    if absent.any():
        raise reader.error("has no time", int(np.argmax(absent)))
    if isinstance(index, np.ndarray):
        index = reader.convert_numbers(index)
    if isinstance(index, pd.DatetimeIndex):
        try:
            index = index.as_unit("ns")
        except ValueError as error:
            raise reader.error(f"has times outside the years {FIRST_YEAR} to {LAST_YEAR}") from error
    return index if timezone is None else reader.localize(index, timezone)


class _Reader:
    """The column of times of a file, which its errors name."""

    def __init__(self, columns: FileColumns, name: str, places: NDArray[np.int64]) -> None:
        self.columns, self.name, self.places = columns, name, places

    def error(self, message: str, row: int | None = None) -> TableError:
        """An error that names the column, and the line of a row."""
        place = None if row is None else f"{self.columns.unit} {self.places[row]}"
        return TableError(self.columns.path, message, place=place, column=self.name)

    def parse_texts(self, values: list[str], time_format: str | None) -> Any:
        """The times of texts, with NaT for empty ones; an array of integers if the first text is one."""
        texts = pd.Series([text.strip() for text in values], dtype=object)
        absent = (texts == "").to_numpy()
        if absent.all():
            raise self.error("has no times")
        first = int(np.argmin(absent))
        if time_format is None and _is_integer(texts[first]):
            return self._parse_integers(texts, absent, first)
        parsers = (
            _list_parsers(texts[first]) if time_format is None else [functools.partial(_parse_format, time_format)]
        )
        if not parsers:
            raise self.error(f"has {quote(texts[first])}, which is not a time such as 2024-03-01 05:00", first)
        try:
            found = [parse(texts) for parse in parsers]
        except ValueError as error:
            raise TableError(self.columns.path, f"there is no time format {quote(str(time_format))}") from error
        index = min(found, key=lambda index: int(index.isna().sum()))
        wrong = index.isna() & ~absent
        if wrong.any():
            row = int(np.argmax(wrong))
            like = f"in the format {time_format}" if time_format else f"like {quote(texts[first])}"
            raise self.error(f"has {quote(texts[row])}, which is not a time {like}", row)
        return self._choose([index for index in found if not (index.isna() & ~absent).any()], texts)

    def _choose(self, found: list[Any], texts: Any) -> Any:
        """The only reading of all times, or the only regular one: 01/02/2024 is in January or in February."""
        different = [index for i, index in enumerate(found) if not any(index.equals(other) for other in found[:i])]
        if len(different) > 1:
            different = [index for index in different if _is_regular(index)] or different
        if len(different) > 1:
            first, second = different[:2]
            later = next(row for row in range(len(texts)) if first[row] != second[row] and not pd.isna(first[row]))
            readings = " or ".join(f"{index[later]:%Y-%m-%d}" for index in different)
            raise self.error(
                f"has {quote(texts[later])}, which is {readings}; give the format, such as --time-format %d/%m/%Y "
                "(time_format=...)",
                later,
            )
        return different[0]

    def _parse_integers(self, texts: Any, absent: NDArray[np.bool_], first: int) -> Any:
        for row, text in enumerate(texts):
            if absent[row]:
                raise self.error("has no time", row)
            if not _is_integer(text):
                raise self.error(f"has {quote(text)}, which is not a whole number like {quote(texts[first])}", row)
        return np.array([int(text) for text in texts], np.int64)

    def convert_numbers(self, numbers: NDArray[Any]) -> Any:
        """Numbers as an index: dates such as 20240301, times since 1970, or the numbers themselves."""
        if not np.issubdtype(numbers.dtype, np.integer):
            wrong = np.flatnonzero((numbers != np.round(numbers)) | (np.abs(numbers) > 2**53))
            if wrong.size:
                row = int(wrong[0])
                raise self.error(f"has {numbers[row]:g}, which is neither a date nor a whole number", row)
            numbers = numbers.astype(np.int64)
        for unit, factor in EPOCHS.items():
            if numbers.min() >= EARLIEST * factor and numbers.max() < LATEST * factor:
                return pd.DatetimeIndex(pd.to_datetime(numbers, unit=unit))
        if numbers.min() >= 19000101 and numbers.max() <= 21001231:
            dates = pd.to_datetime(pd.Series(numbers.astype(str)), format="%Y%m%d", errors="coerce")
            if dates.notna().all():
                return pd.DatetimeIndex(dates)
        return pd.Index(numbers)

    def localize(self, index: Any, timezone: str) -> Any:
        """Local times in a time zone; times with a zone are converted into it."""
        try:
            zoneinfo.ZoneInfo(timezone)
        except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError) as error:
            problem = f"there is no time zone {quote(timezone)}; they have names such as Europe/Berlin"
            raise TableError(self.columns.path, problem) from error
        if not isinstance(index, pd.DatetimeIndex):
            raise self.error("has whole numbers, which have no time zone")
        if index.tz is not None:
            return index.tz_convert(timezone)
        skipped = np.asarray(index.tz_localize(timezone, ambiguous=np.ones(len(index), bool), nonexistent="NaT").isna())
        if skipped.any():
            row = int(np.argmax(skipped))
            raise self.error(f"has {index[row]}, which does not exist in {timezone}: the clocks skip it", row)
        try:
            return index.tz_localize(timezone, ambiguous="infer")
        except Exception as error:
            # the errors of pandas for times that are ambiguous depend on its version
            raise self.error(
                f"has times at which the clocks of {timezone} go back, and does not show which are summer time: use UTC"
            ) from error


def _list_parsers(example: str) -> list[Any]:
    """Functions that parse texts of the form of an example into a DatetimeIndex, with NaT for other texts."""
    if _parse_iso(pd.Series([example], dtype=object)).notna().all():
        return [_parse_iso]
    formats = [date + clock for date in DATES for clock in CLOCKS if _matches(example, date + clock)]
    return [functools.partial(_parse_format, format) for format in formats]


def _parse_iso(texts: Any) -> Any:
    """The times of texts in ISO 8601. Times with an offset from UTC are in UTC."""
    has_offset = bool(texts.str.contains(r":.*[+-]|[Zz]$", regex=True).any())
    try:
        index = pd.DatetimeIndex(pd.to_datetime(texts, format="ISO8601", errors="coerce", utc=True))
    except (ValueError, OverflowError):
        return pd.DatetimeIndex([pd.NaT] * len(texts))
    return _drop_far_times(index if has_offset else index.tz_localize(None))


def _parse_format(format: str, texts: Any) -> Any:
    return _drop_far_times(pd.DatetimeIndex(pd.to_datetime(texts, format=format, errors="coerce")))


def _drop_far_times(index: Any) -> Any:
    """Times with NaT for those that have no nanoseconds; pandas 2 has none of them, pandas 3 counts microseconds."""
    return index.where((index.year >= FIRST_YEAR) & (index.year <= LAST_YEAR))


def _matches(text: str, format: str) -> bool:
    try:
        datetime.strptime(text, format)
    except ValueError:
        return False
    return True


def _is_regular(index: Any) -> bool:
    """Whether times increase in steps of a frequency: it tells days from months in 01/02/2024."""
    if len(index) < 3 or index.hasnans or not index.is_monotonic_increasing:
        return False
    return infer_regular_frequency(index) is not None


def _are_mostly_times(texts: list[str]) -> bool:
    """Whether most of some texts are dates, and not numbers."""
    present = [text.strip() for text in texts if text.strip()]
    if sum(map(_is_number, present)) >= len(present) / 2:
        return False
    if _parse_iso(pd.Series(present, dtype=object)).notna().sum() > len(present) / 2:
        return True
    # other formats are tried one by one, which takes long
    few = present[:FEW]
    return sum(map(_is_date, few)) > len(few) / 2


def _is_date(text: str) -> bool:
    """Whether a text is a date, and not a number."""
    has_digit = any(character.isdigit() for character in text)
    return has_digit and len(text) < 40 and not _is_number(text) and bool(_list_parsers(text))


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in "+-" else text
    return digits.isascii() and digits.isdigit() and len(digits) < 19
