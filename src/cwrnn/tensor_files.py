"""Tensor files: arrays and a JSON object in one safetensors file, which no reader has to trust.

    tensors     float32 and float64 arrays
    metadata    `cwrnn`, a JSON object: version, sha256, and what the writer adds

Reading executes no code from the file. A FormatError refuses a file that has another format or is damaged. The sha256
covers all tensors and all metadata, so every change is detected. Writing the same contents twice gives the same bytes.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .extras import require
from .untrusted import escape_controls, parse_json, read_regular_file, shorten
from .writing import write_files

KEY = "cwrnn"
"""The key of our JSON object in the metadata of the file."""

VERSION = 1
"""The version of the format, which loading requires."""

LARGEST_FILE = 2**32
"""The most bytes of a file: 4 GiB, the parameters of a layer of 32,000 units."""

LONGEST_HEADER = 2**24
"""The longest header in bytes: 16 MiB, enough for the labels of 100,000 words."""

MOST_DIMENSIONS = 8
"""The most dimensions of a tensor."""

DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
"""The dtypes in a file, by their names in safetensors: float32 for parameters, float64 for extra arrays."""


class ModelError(ValueError):
    """A file is not a saved model, or not one of the kind that is needed; the message begins with its path."""


class FormatError(Exception):
    """A problem with a file; the message does not name the file."""


@contextmanager
def name_problems(path: Path) -> Iterator[None]:
    """Turns a FormatError or an OSError about a file into a ModelError that begins with its path."""
    name = escape_controls(str(path))
    try:
        yield
    except OSError as error:
        raise ModelError(f"{name}: cannot be read: {error.strerror or error}") from error
    except FormatError as error:
        raise ModelError(f"{name}: {escape_controls(str(error))}") from error


def write_tensors(
    path: Path,
    metadata: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    *,
    extra: str,
    purpose: str = "saving networks",
) -> None:
    """Writes a file, completely or not at all; an existing file is replaced.

    Args:
        path: the file
        metadata: JSON-serialisable; version and sha256 are added
        arrays: float32 or float64
        extra: the extra of cwrnn that installs safetensors, for the message if it is missing
        purpose: what needs safetensors, for the same message

    Raises a ValueError, before anything is written, if `read_tensors` would refuse the file because the metadata is not
    JSON that it reads or because the header or the file is too long, and an OSError if the file cannot be written.
    """
    metadata = {"version": VERSION, **metadata}
    text = json.dumps(metadata | {"sha256": compute_digest(metadata, arrays)}, ensure_ascii=False, allow_nan=False)
    parse_json(text)
    safetensors = require("safetensors.numpy", extra=extra, purpose=purpose)
    data = safetensors.save(dict(arrays), {KEY: text})
    header = int.from_bytes(data[:8], "little")
    for name, size, most in (("header", header, LONGEST_HEADER), ("file", len(data), LARGEST_FILE)):
        if size > most:
            raise ValueError(f"the {name} would have {size:,} bytes, and at most {most:,} can be read again")
    write_files({path: data})


def read_tensors(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The metadata, without its checksum, and the arrays of a file whose checksum is right.

    Raises a FormatError for a file that is not of this format, and an OSError for one that cannot be read.
    """
    data = read_regular_file(path, LARGEST_FILE)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= LONGEST_HEADER:
        raise FormatError("this is not a safetensors file" if data else "empty")
    header = data[8 : 8 + length]
    if not header.startswith(b"{"):
        raise FormatError("this is not a safetensors file")
    if len(header) < length:
        raise FormatError("damaged: the file ends within its header")
    entries = _parse_object(header, "its header")
    texts = entries.pop("__metadata__", None)
    if not isinstance(texts, dict) or not isinstance(texts.get(KEY), str):
        raise FormatError("a safetensors file, but not one that cwrnn saved")
    metadata = _parse_object(texts[KEY], "its metadata")
    if metadata.get("version") != VERSION:
        version = shorten(repr(metadata.get("version")))
        raise FormatError(f"saved in version {version} of the format; this cwrnn reads version {VERSION}")
    arrays = _cut_arrays(entries, memoryview(data)[8 + length :])
    if metadata.pop("sha256", None) != compute_digest(metadata, arrays):
        raise FormatError("damaged: its contents do not match its checksum")
    return metadata, arrays


def compute_digest(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """The SHA-256 of all metadata and arrays."""
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps([metadata, shapes], sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def quote(name: str) -> str:
    """A name from a file, for a message."""
    return shorten(ascii(name))


class _Entry(NamedTuple):
    """The place of a tensor in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    """The first byte after the header."""
    end: int
    """One beyond the last byte."""


def _cut_arrays(entries: Mapping[str, Any], data: memoryview) -> dict[str, NDArray[Any]]:
    """The arrays that the header of a file describes: they fill `data` without a gap, as safetensors demands."""
    places = {name: _check_entry(name, entry) for name, entry in entries.items()}
    arrays, end = {}, 0
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].end)):
        if place.start != end:
            raise FormatError(f"damaged: the tensor {quote(name)} does not begin where the one before it ends")
        end = place.end
        if end > len(data):
            raise FormatError(f"damaged: the file ends within the tensor {quote(name)}")
        arrays[name] = np.frombuffer(data[place.start : end], place.dtype).reshape(place.shape)
    if end != len(data):
        raise FormatError(f"damaged: {len(data) - end} bytes follow the last tensor")
    return arrays


def _check_entry(name: str, entry: Any) -> _Entry:
    """The place of a tensor, from an entry of the header whose numbers make sense."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"damaged: the tensor {quote(name)} must have a dtype, a shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FormatError(f"the tensor {quote(name)} is {shorten(str(dtype))}, expected one of {', '.join(DTYPES)}")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise FormatError(f"damaged: the tensor {quote(name)} has a shape or offsets that are not numbers")
    if len(shape) > MOST_DIMENSIONS:
        raise FormatError(f"the tensor {quote(name)} has {len(shape)} dimensions, expected at most {MOST_DIMENSIONS}")
    # without its zeros: numpy refuses a shape whose other dimensions alone would be too large
    if math.prod(max(size, 1) for size in shape) > LARGEST_FILE:
        raise FormatError(f"the tensor {quote(name)} has a shape that no file can have: {shorten(str(shape))}")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * DTYPES[dtype].itemsize:
        raise FormatError(f"damaged: the offsets of the tensor {quote(name)} do not fit its shape")
    return _Entry(DTYPES[dtype], tuple(shape), *offsets)


def _parse_object(text: str | bytes, name: str) -> dict[str, Any]:
    """The JSON object in a text."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise FormatError(f"damaged: {name} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise FormatError(f"damaged: {name} is not a JSON object")
    return value
