"""Files of arrays (.npz): reading them without trusting them.

numpy's own reader allocates as much memory as a header asks for, and evaluates the header as a Python literal. Here the
header must be as numpy writes it, and its shape must fit the size of the file before anything is allocated.
"""

import io
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...untrusted import read_regular_file
from ...writing import write_files

LARGEST_FILE = 2**31
"""The most bytes of a file of arrays: 2 GiB, the features of 100 hours."""

LARGEST_RATIO = 64
"""How many times as large as its file an array may be. Features compress to nine tenths."""

MAGIC = b"\x93NUMPY\x01\x00"

HEADER = re.compile(
    rb"\{'descr': '([<>|]?[a-z][0-9]{1,2})', 'fortran_order': (False|True), "
    rb"'shape': \(((?:[0-9]{1,18},? ?){0,2})\), \} *\n"
)
"""The header of an array of at most two dimensions, as numpy writes it."""


class ArrayFileError(ValueError):
    """A file is not one of arrays, or not with the arrays that are needed. The message does not name the file."""


def read_arrays(path: Path, dtypes: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file with these names and dtypes.

    Raises an OSError for a file that cannot be read or is no regular file, and an ArrayFileError for any other contents
    than these arrays.

    Args:
        path: the file
        dtypes: the dtype of each array, such as "<f4"
    """
    data = read_regular_file(path, LARGEST_FILE)
    most = LARGEST_RATIO * len(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: _read_array(archive, name, dtype, most) for name, dtype in dtypes.items()}
    except ArrayFileError:
        raise
    except (EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        # the errors that zipfile raises for damaged archives, and for features that it lacks
        raise ArrayFileError(f"not an archive of arrays: {error}") from error


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], *, compress: bool) -> None:
    """Write arrays to an .npz file, whole or not at all. The same arrays give the same bytes."""
    file = io.BytesIO()
    (np.savez_compressed if compress else np.savez)(file, allow_pickle=False, **arrays)
    write_files({path: file.getvalue()})


def _read_array(archive: zipfile.ZipFile, name: str, dtype: str, most: int) -> NDArray[Any]:
    try:
        entry = archive.getinfo(f"{name}.npy")
    except KeyError as error:
        raise ArrayFileError(f"the array {name} is missing") from error
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ArrayFileError(f"the array {name} is compressed in a way that numpy does not use")
    with archive.open(entry) as member:
        start = member.read(10)
        header = HEADER.fullmatch(member.read(int.from_bytes(start[8:], "little")))
        if not start.startswith(MAGIC) or header is None:
            raise ArrayFileError(f"the array {name} has no header of numpy")
        shape = tuple(int(number) for number in header[3].replace(b",", b" ").split())
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if header[1].decode() != dtype:
            raise ArrayFileError(f"the array {name} must be {dtype}, got {header[1].decode()}")
        if size > most or size != entry.file_size - member.tell():
            raise ArrayFileError(f"the array {name} of the shape {shape} does not fit the size of the file")
        content = member.read(size + 1)
    if len(content) != size:
        raise ArrayFileError(f"the array {name} ends early")
    # a copy, because an array in bytes cannot be changed
    return np.frombuffer(content, dtype).reshape(shape, order="F" if header[2] == b"True" else "C").copy()
