"""Tables: columns of numbers from CSV and NumPy files, read without trusting them.

    FILE.csv     a line for each row, with commas, semicolons or tabs between its cells; also FILE.tsv
    FILE.npy     an array (rows,) or (rows, columns)
    FILE.npz     arrays with the same rows: (rows,) is the column NAME, (rows, columns) are NAME.0, NAME.1, ...

The first line of a CSV file has the names of the columns, unless all of its cells are numbers. Columns without a name
are called 0, 1, 2, ... Only the columns that are asked for must be numbers: a column of dates does no harm. Every cell
of these must be a finite number; nothing is filled in. An error names the file, and the line or row and the column.
"""

import csv
import io
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..untrusted import escape_controls, read_regular_file, shorten
from .array_files import ArrayFile, ArrayFileError
from .errors import ArgumentError, DataError
from .file_names import check_path, replace_undecodable
from .limits import LARGEST_LENGTH

SUFFIXES = (".csv", ".npy", ".npz", ".tsv")
"""The endings of the files that are tables."""
LARGEST_FILE = 2**28
"""The most bytes of a file: 256 MiB."""
LARGEST_NUMBER = 1e100
"""The largest number in a column. The squares of larger ones could overflow."""
MOST_COLUMNS = 100_000
LONGEST_NUMBER = 100
"""The most characters of a number."""
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""A number as every program reads it: a point, no separators of thousands."""
SHOWN_COLUMNS = 12
"""The number of columns that a message names."""

Array = NDArray[np.float64]
ReadColumns = Callable[[Sequence[int]], Array]
"""Returns the columns with these places as (rows, columns)."""


class TableError(DataError):
    """A table cannot be read. The message names the file, the place in it and the reason."""


class Table:
    """Columns of numbers by their names: those of a file, or those of a mapping or a pandas DataFrame.

    >>> table = Table.from_columns({"load": [3.0, 4.0, 5.0], "hour": [0, 1, 2]}, name="town")
    >>> table.columns, table.select(["hour"]).tolist()
    (('load', 'hour'), [[0.0], [1.0], [2.0]])
    """

    def __init__(self, name: str, source: str, columns: Sequence[str], read: ReadColumns) -> None:
        self.name = name
        """The name of the table: that of its file, without the ending."""
        self.source = source
        """Where the table comes from, for people to read."""
        self.columns = tuple(columns)
        """The names of the columns."""
        self._read = read

    @classmethod
    def from_columns(cls, columns: Mapping[str, ArrayLike], name: str = "table") -> "Table":
        """Return a table of arrays (rows,) by name, such as a dictionary or a pandas DataFrame."""
        arrays = {str(key): np.asarray(values) for key, values in columns.items()}
        for key, values in arrays.items():
            if values.ndim != 1:
                raise TableError(f"{name}: the column {_quote(key)} must be (rows,), got the shape {values.shape}")

        def read(places: Sequence[int]) -> Array:
            return _join(name, {key: arrays[key] for key in (list(arrays)[place] for place in places)})

        return cls(name, name, list(arrays), read)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, columns: {self._list_columns()})"

    def select(self, names: Sequence[str], argument: str = "data") -> Array:
        """Return the columns of these names as (rows, columns).

        Raises an ArgumentError of the argument for a column that is not there, and a TableError for a cell that is no
        finite number.
        """
        for name in names:
            if list(names).count(name) > 1:
                raise ArgumentError(argument, f"expected different columns, got {_quote(name)} twice")
        places = [self._find(name, argument) for name in names]
        values = self._read(places)
        _check_numbers(self.source, names, values)
        return values

    def choose_target(self, name: str | None, argument: str = "target") -> str:
        """Return the name of the column to learn: `name`, or the only one if it is None."""
        if name is None and len(self.columns) > 1:
            raise ArgumentError(argument, f"{self.source} has several columns: name one of {self._list_columns()}")
        return self.columns[0] if name is None else name

    def _find(self, name: str, argument: str) -> int:
        count = self.columns.count(name)
        if count == 0:
            raise ArgumentError(
                argument, f"{self.source} has no column {_quote(name)}: expected one of {self._list_columns()}"
            )
        if count > 1:
            raise ArgumentError(argument, f"{self.source} has {count} columns of the name {_quote(name)}")
        return self.columns.index(name)

    def _list_columns(self) -> str:
        shown = ", ".join(map(_quote, self.columns[:SHOWN_COLUMNS]))
        return shown if len(self.columns) <= SHOWN_COLUMNS else f"{shown} and {len(self.columns) - SHOWN_COLUMNS} more"


def is_table(source: object) -> bool:
    """Return True for a Table, and for a path that ends as the files of tables do.

    >>> is_table("load.csv"), is_table("LOAD.NPZ"), is_table("song.wav")
    (True, True, False)
    """
    if isinstance(source, Table):
        return True
    return isinstance(source, (str, PathLike)) and fspath(source).lower().endswith(SUFFIXES)


def read_table(path: str | PathLike[str]) -> Table:
    """Return the table in a CSV or NumPy file; its columns are read when they are asked for."""
    file = check_path("data", path)
    source = escape_controls(replace_undecodable(str(file)))
    name = replace_undecodable(file.stem)
    suffix = file.suffix.lower()
    try:
        if suffix in (".npy", ".npz"):
            arrays = ArrayFile(file, LARGEST_FILE)
            return _make_array_table(name, source, arrays)
        if suffix not in SUFFIXES:
            raise TableError(f"{source}: is not a table: its name must end in {', '.join(SUFFIXES)}")
        rows = _TextRows(source, read_regular_file(file, LARGEST_FILE))
        return Table(name, source, rows.columns, rows.read)
    except ArrayFileError as error:
        raise TableError(f"{source}: {escape_controls(str(error))}") from error
    except FileNotFoundError as error:
        raise TableError(f"{source}: there is no such file") from error
    except OSError as error:
        raise TableError(f"{source}: cannot be read: {error.strerror}") from error


def open_table(source: "str | PathLike[str] | Table") -> Table:
    """Return the table that a source names, or that it is."""
    return source if isinstance(source, Table) else read_table(source)


class _TextRows:
    """The rows of a CSV file, parsed anew for every selection: their text is small beside their cells."""

    def __init__(self, source: str, data: bytes) -> None:
        self._source, self._data = source, data
        self._delimiter = _find_delimiter(data.partition(b"\n")[0])
        first = next(self._parse(), None)
        if first is None:
            raise TableError(f"{source}: empty")
        cells = first[1]
        if not cells:
            raise TableError(f"{source}, line 1: empty")
        self._has_names = not all(NUMBER.fullmatch(cell.strip()) for cell in cells)
        self.columns = [cell.strip() for cell in cells] if self._has_names else [str(i) for i in range(len(cells))]
        """The names of the columns."""

    def read(self, places: Sequence[int]) -> Array:
        """Return the columns with these places as (rows, columns)."""
        values = [array("d") for _ in places]
        for number, cells in self._list_rows():
            for column, place in zip(values, places, strict=True):
                column.append(self._parse_number(number, place, cells[place]))
        if not values[0]:
            raise TableError(f"{self._source}: has no rows")
        return np.stack([np.frombuffer(column, np.float64) for column in values], axis=1)

    def _list_rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the line and the cells of every row; empty lines may follow the last."""
        rows = self._parse()
        if self._has_names:
            next(rows)
        empty = None
        for count, (number, cells) in enumerate(rows):
            if not cells:
                empty = empty or number
                continue
            if empty is not None:
                raise TableError(f"{self._source}, line {empty}: empty")
            if len(cells) != len(self.columns):
                raise TableError(f"{self._source}, line {number}: expected {len(self.columns)} cells, got {len(cells)}")
            if count >= LARGEST_LENGTH:
                raise TableError(f"{self._source}: has more than {LARGEST_LENGTH} rows")
            yield number, cells

    def _parse(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the last line and the cells of every row, the first one included."""
        text = io.TextIOWrapper(io.BytesIO(self._data), encoding="utf-8-sig", newline="")
        reader = csv.reader(text, delimiter=self._delimiter, strict=True)
        try:
            for cells in reader:
                yield reader.line_num, cells
        except csv.Error as error:
            raise TableError(f"{self._source}, line {reader.line_num}: {error}") from error
        except UnicodeDecodeError as error:
            raise TableError(f"{self._source}, line {self._find_undecodable()}: is not UTF-8 text") from error

    def _find_undecodable(self) -> int:
        try:
            self._data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            return self._data.count(b"\n", 0, error.start) + 1
        return 1

    def _parse_number(self, line: int, place: int, cell: str) -> float:
        text = cell.strip()
        problem = "the cell is empty" if not text else f"expected a number, got {_quote(text)}"
        if len(text) <= LONGEST_NUMBER and NUMBER.fullmatch(text):
            number = float(text)
            if abs(number) <= LARGEST_NUMBER:
                return number
            problem = f"expected a number up to {LARGEST_NUMBER:g}, got {_quote(text)}"
        raise TableError(f"{self._source}, line {line}, column {_quote(self.columns[place])}: {problem}")


def _find_delimiter(line: bytes) -> str:
    """Return the delimiter that the first line has most of, outside of quotes.

    >>> _find_delimiter(b'"a,b";c'), _find_delimiter(b"load")
    (';', ',')
    """
    bare = re.sub(rb'"[^"]*"', b"", line)
    return max(",;\t", key=lambda delimiter: bare.count(delimiter.encode()))


def _make_array_table(name: str, source: str, arrays: ArrayFile) -> Table:
    """Return the table of an .npy or .npz file."""
    places: list[tuple[str, int | None]] = []
    columns: list[str] = []
    for key, header in arrays.headers.items():
        if len(header.shape) not in (1, 2):
            if key:
                # such an array is no column, but others may be
                continue
            raise ArrayFileError(f"expected the shape (rows,) or (rows, columns), got {header.shape}")
        count = 1 if len(header.shape) == 1 else header.shape[1]
        if len(columns) + count > MOST_COLUMNS:
            raise ArrayFileError(f"has more than {MOST_COLUMNS} columns")
        places += [(key, None if len(header.shape) == 1 else i) for i in range(count)]
        columns += [_name_column(key, None if len(header.shape) == 1 else i) for i in range(count)]
    if not columns:
        raise ArrayFileError("has no columns: expected arrays (rows,) or (rows, columns)")

    def read(wanted: Sequence[int]) -> Array:
        loaded: dict[str, NDArray[Any]] = {}
        chosen: dict[str, NDArray[Any]] = {}
        for place in wanted:
            key, column = places[place]
            if key not in loaded:
                try:
                    loaded[key] = arrays.read(key)
                except ArrayFileError as error:
                    raise TableError(f"{source}: {escape_controls(str(error))}") from error
            chosen[columns[place]] = loaded[key] if column is None else loaded[key][:, column]
        return _join(source, chosen)

    return Table(name, source, columns, read)


def _name_column(key: str, column: int | None) -> str:
    """Return the name of a column of an array.

    >>> _name_column("", None), _name_column("", 2), _name_column("load", None), _name_column("load", 2)
    ('0', '2', 'load', 'load.2')
    """
    if key:
        return key if column is None else f"{key}.{column}"
    return "0" if column is None else str(column)


def _join(source: str, columns: Mapping[str, NDArray[Any]]) -> Array:
    """Return columns (rows,) of any type of numbers as (rows, columns)."""
    for name, values in columns.items():
        if values.dtype.kind not in "biuf":
            raise TableError(f"{source}, column {_quote(name)}: expected numbers, got the dtype {values.dtype}")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{_quote(name)} has {length}" for name, length in list(lengths.items())[:SHOWN_COLUMNS])
        raise TableError(f"{source}: the columns must have the same number of rows: {shown}")
    if not all(lengths.values()):
        raise TableError(f"{source}: has no rows")
    if max(lengths.values()) > LARGEST_LENGTH:
        raise TableError(f"{source}: has more than {LARGEST_LENGTH} rows")
    return np.stack([values.astype(np.float64) for values in columns.values()], axis=1)


def _check_numbers(source: str, names: Sequence[str], values: Array) -> None:
    """Refuse numbers that are not finite, or so large that their squares could overflow."""
    # not (<=), because a NaN is neither larger nor smaller
    wrong = np.argwhere(~(np.abs(values) <= LARGEST_NUMBER))
    if len(wrong):
        row, column = wrong[0]
        number = values[row, column]
        expected = "a finite number" if not np.isfinite(number) else f"a number up to {LARGEST_NUMBER:g}"
        raise TableError(
            f"{source}, row {row} (counted from 0), column {_quote(names[column])}: expected {expected}, got {number:g}"
        )


def _quote(text: str) -> str:
    """Return a text from a file for a message."""
    return shorten(ascii(text) if not text.isprintable() else repr(text))
