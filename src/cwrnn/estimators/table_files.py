"""Columns of files: the texts of a CSV file and the values of a Parquet file, before they become times and numbers.

A CSV file is decoded, its separator is found, and every line is checked to have as many values as the first, so that a
file that was cut short is noticed. A Parquet file is read by pyarrow, without the metadata of pandas.
"""

import codecs
import csv
import difflib
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..extras import require
from ..untrusted import escape_controls, shorten

SEPARATORS = (";", "\t", "|", ",")
"""The separators of values in a CSV file. The comma comes last, because it may be a decimal point."""

SAMPLE = 20
"""The number of lines from which the separator and the time column are found."""

MOST_COLUMNS = 10_000
"""The most columns of a file."""

MOST_ROWS = 10_000_000
"""The most rows of a file."""

MOST_BYTES = 2**30
"""The most bytes of the chosen columns of a Parquet file in memory, where they are not compressed."""

SHOWN = 12
"""The most columns that a message lists."""

MARKS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
"""The byte order marks with which a file says what its encoding is."""

OTHERS = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook: save the table as CSV"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the table as CSV"),
    (b"\x1f\x8b", "compressed: unpack it first"),
    (b"%PDF", "a PDF document: save the table as CSV"),
    (b"\x89PNG", "a picture"),
)
"""How files begin that people take for tables, and what they are."""


BINARY = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
"""The control characters that no text has."""

NO_ENCODINGS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape"})
"""Codecs of Python that are made for other things than files."""


class TableError(ValueError):
    """A file cannot be used as a table. The message names the file, and the line or the column.

    >>> error = TableError("load.csv", "has 'x', which is not a number", place="line 7", column="load")
    >>> str(error), error.place, error.column
    ("load.csv: line 7: column 'load' has 'x', which is not a number", 'line 7', 'load')
    """

    def __init__(
        self, path: str | os.PathLike[str], message: str, *, place: str | None = None, column: str | None = None
    ) -> None:
        named = message if column is None else f"column {quote(column)} {message}"
        parts = [escape_controls(os.fspath(path)), *([] if place is None else [place]), named]
        super().__init__(": ".join(parts))
        self.place = place
        """The line or row, such as "line 7", if one is to blame."""
        self.column = column
        """The column, if one is to blame."""


class FileColumns:
    """The columns of a file by their names. Subclasses read them."""

    unit = "line"
    """The word for a place in the file."""
    has_decimal_comma = False
    """Whether 1,5 is the number 1.5."""

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str]) -> None:
        self.path, self.names = path, list(names)
        if len(self.names) > MOST_COLUMNS:
            raise TableError(path, f"the file has {len(self.names)} columns, expected at most {MOST_COLUMNS}")

    def check(self, name: str, role: str) -> str:
        """The name of a column that occurs exactly once; a TableError otherwise."""
        count = self.names.count(name)
        if count > 1:
            raise TableError(self.path, f"occurs {count} times", column=name)
        if count == 0:
            near = difflib.get_close_matches(name, self.names[:100], 1)
            hint = f"; did you mean {quote(near[0])}?" if near else ""
            raise TableError(self.path, f"there is no column {quote(name)} ({role}): it has {self.describe()}{hint}")
        return name

    def describe(self, names: Sequence[str] | None = None) -> str:
        """The names of the columns for a message."""
        names = [quote(name) for name in (self.names if names is None else names)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return f"the columns {', '.join(names[:SHOWN])}{more}" if len(names) != 1 else f"the column {names[0]} alone"

    def sample(self, name: str) -> Any:
        """The first values of a column, as `select` returns them."""
        raise NotImplementedError

    def select(self, names: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
        """The values of some columns, and the line or row of each, counted from 1.

        The values of a column are a list of texts, an array of numbers or a DatetimeIndex.
        """
        raise NotImplementedError


def read_columns(path: str | os.PathLike[str], data: bytes, encoding: str | None) -> FileColumns:
    """The columns of a file with these bytes."""
    if data.startswith(b"PAR1"):
        return ParquetColumns(path, data)
    return TextColumns(path, _decode(path, data, encoding))


class TextColumns(FileColumns):
    """The columns of a text with a line for each step.

    >>> columns = TextColumns("load.csv", "time;load\\n2024-03-01;1,5\\n2024-03-02;2,5\\n")
    >>> columns.names, columns.has_decimal_comma
    (['time', 'load'], True)
    >>> columns.select(["load"])
    ([['1,5', '2,5']], array([2, 3]))
    """

    def __init__(self, path: str | os.PathLike[str], text: str) -> None:
        self._text, self._separator = text, _find_separator(text)
        self._first = [values for _, values in itertools.islice(self._split(path), SAMPLE + 1)]
        if len(self._first) < 2:
            what = "has the names of columns, but no values" if self._first else "is empty"
            raise TableError(path, f"the file {what}")
        names = self._first[0]
        super().__init__(path, [name.strip() for name in names])
        self.has_decimal_comma = self._separator == ";"

    def sample(self, name: str) -> list[str]:
        """The first texts of a column."""
        column = self.names.index(name)
        return [values[column] for values in self._first[1:] if column < len(values)]

    def select(self, names: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
        """The texts of some columns, and the line of each."""
        chosen = [self.names.index(name) for name in names]
        columns: list[list[str]] = [[] for _ in names]
        places = []
        wrong: tuple[int, int] | None = None
        for number, (line, values) in enumerate(self._split(self.path)):
            if number == 0:
                continue
            if wrong is not None:
                self._refuse_length(*wrong, is_last=False)
            if number > MOST_ROWS:
                raise TableError(self.path, f"the file has more than {MOST_ROWS} rows")
            if len(values) != len(self.names):
                # whether the file was cut short is known when there is another line or none
                wrong = line, len(values)
                continue
            places.append(line)
            for column, texts in zip(chosen, columns, strict=True):
                texts.append(values[column])
        if wrong is not None:
            self._refuse_length(*wrong, is_last=True)
        return list(columns), np.array(places)

    def _refuse_length(self, line: int, found: int, *, is_last: bool) -> None:
        cut = "; it is the last line: the file may have been cut short" if is_last and found < len(self.names) else ""
        values = "is 1 value" if found == 1 else f"are {found} values"
        raise TableError(
            self.path, f"there {values}, but the first line names {len(self.names)} columns{cut}", place=f"line {line}"
        )

    def _split(self, path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
        """The number of the line and the values of every line that is not empty."""
        # universal newlines are the reader's own business
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=self._separator, strict=True)
        while True:
            line = reader.line_num + 1
            try:
                values = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                problem = f"this is not CSV: {error}"
                if "unexpected end" in str(error):
                    problem = "a quotation mark is never closed: the file may have been cut short"
                raise TableError(path, problem, place=f"line {line}") from error
            if any(value.strip() for value in values):
                yield line, values


class ParquetColumns(FileColumns):
    """The columns of a Parquet file."""

    unit = "row"

    def __init__(self, path: str | os.PathLike[str], data: bytes) -> None:
        self._arrow = require("pyarrow", extra="forecast", purpose="reading Parquet files")
        parquet = require("pyarrow.parquet", extra="forecast", purpose="reading Parquet files")
        try:
            schema = parquet.ParquetFile(self._arrow.BufferReader(data)).schema_arrow
            # a text that a small file repeats a million times is kept once
            texts = [field.name for field in schema if self._is_text(field.type)]
            self._file = parquet.ParquetFile(self._arrow.BufferReader(data), read_dictionary=texts)
            names, rows = self._file.schema_arrow.names, self._file.metadata.num_rows
        except (self._arrow.ArrowException, OSError, ValueError) as error:
            raise self._refuse(path, error) from error
        super().__init__(path, [str(name) for name in names])
        if not 0 < rows <= MOST_ROWS:
            problem = "no rows" if rows <= 0 else f"{rows} rows, expected at most {MOST_ROWS}"
            raise TableError(path, f"the file has {problem}")

    def sample(self, name: str) -> Any:
        """The first values of a column."""
        return self._read([name], lambda: next(self._file.iter_batches(SAMPLE, columns=[name], use_threads=False)))[0]

    def select(self, names: Sequence[str]) -> tuple[list[Any], NDArray[np.int64]]:
        """The values of some columns, and the row of each."""
        columns = self._read(names, lambda: self._file.read(list(names), use_threads=False))
        return columns, np.arange(1, len(columns[0]) + 1)

    def _read(self, names: Sequence[str], read: Callable[[], Any]) -> list[Any]:
        self._check_size(names)
        try:
            table = read()
            return [self._convert(name, table.column(name)) for name in names]
        except TableError:
            raise
        except (self._arrow.ArrowException, OSError, ValueError, KeyError, StopIteration) as error:
            raise self._refuse(self.path, error) from error

    def _check_size(self, names: Sequence[str]) -> None:
        """Refuses columns that would not fit into memory."""
        metadata, size = self._file.metadata, 0
        for group in range(metadata.num_row_groups):
            for column in range(metadata.num_columns):
                part = metadata.row_group(group).column(column)
                if part.path_in_schema in names:
                    size += max(0, part.total_uncompressed_size)
        if size > MOST_BYTES:
            raise TableError(self.path, f"the columns have {size} bytes, expected at most {MOST_BYTES}")

    def _convert(self, name: str, column: Any) -> Any:
        arrow, types = self._arrow, self._arrow.types
        if not isinstance(column, arrow.ChunkedArray):
            column = arrow.chunked_array([column])
        kind = column.type
        if types.is_dictionary(kind) and self._is_text(kind.value_type):
            return [text for chunk in column.chunks for text in self._list_texts(chunk)]
        if types.is_dictionary(kind):
            column = column.cast(kind.value_type)
            kind = column.type
        if types.is_timestamp(kind) or types.is_date(kind):
            return pd.DatetimeIndex(column.cast(arrow.timestamp("us", getattr(kind, "tz", None))).to_pandas())
        if types.is_integer(kind) and column.null_count == 0:
            return column.cast(arrow.int64()).to_numpy()
        if types.is_boolean(kind):
            column = column.cast(arrow.int8())
        elif not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
            problem = f"has values of the type {shorten(str(kind))}, expected numbers, times or texts"
            raise TableError(self.path, problem, column=name)
        return column.cast(arrow.float64(), safe=False).to_numpy()

    def _is_text(self, kind: Any) -> bool:
        return bool(self._arrow.types.is_string(kind) or self._arrow.types.is_large_string(kind))

    @staticmethod
    def _list_texts(chunk: Any) -> list[str]:
        """The texts of an array that keeps each of them once; "" for those that are missing."""
        texts = ["" if text is None else text for text in chunk.dictionary.to_pylist()]
        return ["" if index is None else texts[index] for index in chunk.indices.to_pylist()]

    @staticmethod
    def _refuse(path: str | os.PathLike[str], error: Exception) -> TableError:
        reason = shorten(" ".join(str(error).split()), 120)
        return TableError(path, f"this Parquet file is damaged or was cut short: {escape_controls(reason)}")


def quote(text: str) -> str:
    """A text from a file, for a message."""
    return escape_controls(shorten(repr(text)))


def _decode(path: str | os.PathLike[str], data: bytes, encoding: str | None) -> str:
    """The text of a file; refuses one that is no text, or has another encoding, and names the line."""
    if not data:
        raise TableError(path, "the file is empty")
    for start, what in OTHERS:
        if data.startswith(start):
            raise TableError(path, f"this is {what}")
    marked = next((name for mark, name in MARKS if data.startswith(mark)), None)
    encoding = encoding or marked or "utf-8"
    try:
        if codecs.lookup(encoding).name in NO_ENCODINGS:
            raise LookupError
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding == "utf-8" and data[: SAMPLE * 50].count(0):
            raise TableError(path, "this is binary data, not a text") from error
        line = data.count(b"\n", 0, error.start) + 1
        name = encoding.upper() if encoding.startswith("utf") else encoding
        problem = (
            f"the byte {data[error.start]:#04x} is not {name}; give the encoding of the file (--encoding latin-1), "
        )
        raise TableError(path, problem + "or save it as UTF-8", place=f"line {line}") from error
    except (LookupError, UnicodeError, ValueError) as error:
        raise TableError(path, f"there is no encoding {quote(encoding)} for texts") from error
    found = BINARY.search(text)
    if found is not None:
        problem = f"this is not text: it has the character {quote(found[0])}"
        raise TableError(path, problem, place=f"line {text.count(chr(10), 0, found.start()) + 1}")
    return text


def _find_separator(text: str) -> str:
    """The separator that gives the first lines the same number of values, and the most of them; "," if there is none.

    >>> _find_separator("time;load in MW, net\\n2024-03-01;1,5\\n")
    ';'
    """
    lines = list(itertools.islice(io.StringIO(text, newline=""), SAMPLE))
    best, most = ",", 1
    for separator in SEPARATORS:
        try:
            counts = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        except csv.Error:
            continue
        # the last line may have been cut short
        if counts and counts[0] > most and counts.count(counts[0]) > len(counts) / 2:
            best, most = separator, counts[0]
    return best
