"""Idx files: arrays of bytes in the format of MNIST, plain or compressed with gzip, read without trusting them.

    bytes 0, 1    0
    byte  2       0x08, the type: unsigned bytes
    byte  3       the number of dimensions
    then          the size of each dimension, 4 bytes, the most significant byte first
    then          the array, the last dimension varies fastest

The sizes decide how many bytes are decompressed: a small file that would fill the memory is refused at its header.
"""

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...untrusted import escape_controls, read_regular_file
from ..errors import DataError
from ..file_names import replace_undecodable
from .compression import GZIP, decompress

LARGEST_FILE = 2**28
"""The most bytes of a file, compressed or not: 256 MiB."""
UNSIGNED_BYTES = 0x08
"""The type of the numbers of an array: bytes, the only one that is read."""


class IdxArray(NamedTuple):
    """The contents of an idx file."""

    array: NDArray[np.uint8]
    checksum: str
    """The SHA-256 of the file without compression, in hexadecimal digits."""


def read_idx(path: Path, dimensions: int) -> IdxArray:
    """Returns the array in a file, which must have this many dimensions, all of them larger than 0.

    Raises a FileNotFoundError if there is no such file, and a DataError if it cannot be read.
    """
    name = escape_controls(replace_undecodable(str(path)))
    try:
        data = read_regular_file(path, LARGEST_FILE)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DataError(f"{name}: cannot be read: {error.strerror}") from error
    return parse_idx(data, name, dimensions)


def parse_idx(data: bytes, name: str, dimensions: int) -> IdxArray:
    """Returns the array in the bytes of a file.

    Args:
        data: the bytes, compressed with gzip or not
        name: the name of the file, for the messages
        dimensions: the number of dimensions that the array must have

    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]), "labels", 1).array
    array([7, 2, 1], dtype=uint8)
    >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2]), "labels", 1)
    Traceback (most recent call last):
        ...
    cwrnn.experiments.errors.DataError: labels: cut short: 3 numbers need 11 bytes, got 10
    """
    start = 4 + 4 * dimensions
    is_compressed = data.startswith(GZIP)
    shape = _parse_header(_decompress(data, name, start) if is_compressed else data[:start], name, dimensions)
    size = start + math.prod(shape)
    numbers = f"{' * '.join(map(str, shape))} numbers need {size} bytes"
    if size > LARGEST_FILE:
        raise DataError(f"{name}: too large: {numbers}, but it may have {LARGEST_FILE} at most")
    # one byte more, so that contents that are too long are seen
    contents = _decompress(data, name, size + 1) if is_compressed else data
    if len(contents) < size:
        raise DataError(f"{name}: cut short: {numbers}, got {len(contents)}")
    if len(contents) > size:
        raise DataError(f"{name}: too long: {numbers}, got {'more' if is_compressed else len(contents)}")
    array = np.frombuffer(contents, np.uint8, offset=start).reshape(shape)
    return IdxArray(array, hashlib.sha256(contents).hexdigest())


def _parse_header(header: bytes, name: str, dimensions: int) -> tuple[int, ...]:
    """Returns the shape of the array."""
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if header[:4] != magic:
        raise DataError(
            f"{name}: not an idx file of bytes in {dimensions} dimension{'s' if dimensions > 1 else ''}: expected the "
            f"magic number 0x{magic.hex()}, got {f'0x{header[:4].hex()}' if header else 'an empty file'}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise DataError(f"{name}: cut short: the header needs {4 + 4 * dimensions} bytes, got {len(header)}")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
    if 0 in shape:
        raise DataError(f"{name}: the array is empty: its shape is {shape}")
    return shape


def _decompress(data: bytes, name: str, most: int) -> bytes:
    try:
        return decompress(data, most)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from error
