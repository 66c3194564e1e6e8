"""Files of arrays (.npy and .npz): reading them without trusting them.

numpy's own reader allocates as much memory as a header asks for, and evaluates the header as a Python literal. Here the
header must be as numpy writes it, and its shape must fit the size of the file before anything is allocated. Arrays of
Python objects, which only pickle could load, are refused.
"""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..untrusted import read_regular_file, shorten
from ..writing import write_files

LARGEST_FILE = 2**31
"""The most bytes of a file of arrays: 2 GiB, the features of 100 hours."""

LARGEST_RATIO = 64
"""How many times as large as its file an array may be. Features compress to nine tenths."""

LEAST_LIMIT = 2**26
"""The bytes that an array of numbers may have in any case: a constant column compresses to almost nothing."""

MOST_ARRAYS = 10_000
"""The most arrays of a file."""

MAGIC = b"\x93NUMPY\x01\x00"

HEADER = re.compile(
    rb"\{'descr': '([<>|]?[a-z][0-9]{1,2})', 'fortran_order': (False|True), "
    rb"'shape': \(((?:[0-9]{1,18},|[0-9]{1,18}(?:, [0-9]{1,18}){1,7})?)\), \} *\n"
)
"""The header of an array of at most eight dimensions, as numpy writes it."""

NUMBERS = frozenset(
    order + kind for kind in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8") for order in "<>"
) | {"|b1", "|i1", "|u1"}
"""The dtypes of plain numbers, as a header names them."""


class ArrayFileError(ValueError):
    """A file is not one of arrays, or not with the arrays that are needed. The message does not name the file."""


class Header(NamedTuple):
    """The beginning of an array in a file."""

    dtype: str
    shape: tuple[int, ...]
    is_fortran: bool
    """Whether the first axis changes fastest."""

    @property
    def size(self) -> int:
        """The number of bytes of the array."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class ArrayFile:
    """The arrays of numbers in an .npy or .npz file, which are read one by one.

    Raises an OSError for a file that cannot be read or is no regular file, and an ArrayFileError for any other contents
    than arrays.
    """

    def __init__(self, path: Path, most: int = LARGEST_FILE) -> None:
        """Reads the file, of at most `most` bytes, and the headers of its arrays."""
        self._data = read_regular_file(path, most)
        self._is_archive = self._data.startswith(b"PK")
        self.headers: dict[str, Header] = {}
        """The headers of the arrays by their names; the name of the array in an .npy file is empty."""
        problem = ""
        for name in self._list_names():
            try:
                with self._open(name) as (file, _):
                    self.headers[name] = _read_header(file, name)
            except ArrayFileError as error:
                # one array that is no number, such as the names of columns, does not spoil the others
                problem = problem or str(error)
        if problem and not self.headers:
            raise ArrayFileError(problem)

    def read(self, name: str) -> NDArray[Any]:
        """Return an array of plain numbers."""
        header = self.headers[name]
        if header.dtype not in NUMBERS:
            raise ArrayFileError(f"{_quote(name)} must be numbers, got the dtype {header.dtype}")
        with self._open(name) as (file, size):
            _read_header(file, name)
            return _read_body(file, name, header, size, max(LEAST_LIMIT, LARGEST_RATIO * len(self._data)))

    def _list_names(self) -> list[str]:
        if not self._is_archive:
            return [""]
        with _explain_damage(), zipfile.ZipFile(io.BytesIO(self._data)) as archive:
            names = archive.namelist()
        if len(names) > MOST_ARRAYS:
            raise ArrayFileError(f"has {len(names)} arrays, but may have {MOST_ARRAYS} at most")
        for name in names:
            if not name.endswith(".npy"):
                raise ArrayFileError(f"has a member that is no array: {shorten(ascii(name))}")
        if len(set(names)) < len(names):
            raise ArrayFileError("has two arrays of the same name")
        return [name.removesuffix(".npy") for name in names]

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], int]]:
        """Open an array; yields a stream and the number of its bytes."""
        if not self._is_archive:
            yield io.BytesIO(self._data), len(self._data)
            return
        with _explain_damage(), zipfile.ZipFile(io.BytesIO(self._data)) as archive:
            entry = _find_entry(archive, name)
            with archive.open(entry) as member:
                yield member, entry.file_size


def read_arrays(path: Path, dtypes: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file with these names and dtypes, which have at most two dimensions.

    Raises an OSError for a file that cannot be read or is no regular file, and an ArrayFileError for any other contents
    than these arrays.

    Args:
        path: the file
        dtypes: the dtype of each array, such as "<f4"
    """
    data = read_regular_file(path, LARGEST_FILE)
    most = LARGEST_RATIO * len(data)
    with _explain_damage(), zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: _read_array(archive, name, dtype, most) for name, dtype in dtypes.items()}


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, compress: bool) -> None:
    """Write arrays to an .npz file, whole or not at all. The same arrays give the same bytes."""
    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, allow_pickle=False, **arrays)
    write_files({path: file.getvalue()})


@contextmanager
def _explain_damage() -> Iterator[None]:
    """Turn the errors that zipfile raises for damaged archives, and for features that it lacks, into our own."""
    try:
        yield
    except ArrayFileError:
        raise
    except (EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ArrayFileError(f"not an archive of arrays: {error}") from error


def _find_entry(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    try:
        entry = archive.getinfo(f"{name}.npy")
    except KeyError as error:
        raise ArrayFileError(f"{_quote(name)} is missing") from error
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArrayFileError(f"{_quote(name)} is compressed in a way that numpy does not use")
    return entry


def _read_array(archive: zipfile.ZipFile, name: str, dtype: str, most: int) -> NDArray[Any]:
    entry = _find_entry(archive, name)
    with archive.open(entry) as member:
        header = _read_header(member, name)
        if header.dtype != dtype:
            raise ArrayFileError(f"{_quote(name)} must be {dtype}, got {header.dtype}")
        if len(header.shape) > 2:
            raise ArrayFileError(f"{_quote(name)} must have at most two dimensions, got the shape {header.shape}")
        return _read_body(member, name, header, entry.file_size, most)


def _read_header(file: IO[bytes], name: str) -> Header:
    start = file.read(10)
    text = file.read(int.from_bytes(start[8:], "little"))
    if not start.startswith(MAGIC):
        raise ArrayFileError(f"{_quote(name)} has no header of numpy" if start else f"{_quote(name)} is empty")
    if b"'descr': '|O'" in text:
        raise ArrayFileError(f"{_quote(name)} has Python objects, which are never loaded: save it as plain numbers")
    if b"'descr': [" in text:
        raise ArrayFileError(f"{_quote(name)} has fields: save each field as an array of its own, in an .npz file")
    header = HEADER.fullmatch(text)
    if header is None:
        raise ArrayFileError(f"{_quote(name)} has no header of numpy")
    shape = tuple(int(number) for number in header[3].replace(b",", b" ").split())
    try:
        np.dtype(header[1].decode())
    except TypeError as error:
        raise ArrayFileError(f"{_quote(name)} has an unknown dtype: {header[1].decode()}") from error
    return Header(header[1].decode(), shape, header[2] == b"True")


def _read_body(file: IO[bytes], name: str, header: Header, total: int, most: int) -> NDArray[Any]:
    """Return the array that follows its header in a stream of `total` bytes; it may have `most` bytes."""
    size, shape = header.size, header.shape
    if size > most or size != total - file.tell():
        raise ArrayFileError(f"{_quote(name)} of the shape {shape} does not fit the size of the file")
    content = file.read(size + 1)
    if len(content) != size:
        raise ArrayFileError(f"{_quote(name)} ends early")
    # a copy, because an array in bytes cannot be changed
    return np.frombuffer(content, header.dtype).reshape(shape, order="F" if header.is_fortran else "C").copy()


def _quote(name: str) -> str:
    """Return the name of an array for a message; an .npy file has one array without a name."""
    return f"the array {shorten(ascii(name).strip(chr(39)))}" if name else "the array"
