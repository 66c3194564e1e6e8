"""Files that somebody else made: reading them, parsing their JSON and printing their texts without trusting them.

open_regular_file   a file that is open for reading: no pipe and no device, which may never end
read_regular_file   the bytes of such a file, if there are no more than the caller allows
parse_json          a value of bounded depth, with finite numbers, small integers and encodable texts
escape_controls     a text that a terminal prints and does not obey
"""

import errno
import io
import json
import math
import os
import re
import stat
from typing import Any

DEEPEST = 32
"""The deepest nesting of lists and objects in JSON."""

LARGEST_INTEGER = 2**63
"""Integers in JSON lie between minus and plus this number."""

CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""The characters that a terminal may obey: control characters, line separators, controls of the writing direction, and
surrogates, which no terminal can print."""


def read_regular_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Returns the bytes of a file.

    Raises an OSError for a file that cannot be read, is no regular file or has more than `most` bytes.
    """
    with open_regular_file(path) as file:
        expected = os.fstat(file.fileno()).st_size
        if expected > most:
            raise OSError(errno.EFBIG, f"it has {expected} bytes, but may have {most} at most", os.fspath(path))
        chunks, size = [], 0
        try:
            while chunk := file.read(max(expected - size, 0) + 4096):
                chunks.append(chunk)
                size += len(chunk)
                if size > most:
                    raise OSError(errno.EFBIG, f"it has more than {most} bytes", os.fspath(path))
            return b"".join(chunks)
        except MemoryError as error:
            raise OSError(errno.ENOMEM, "it does not fit into memory", os.fspath(path)) from error


def open_regular_file(path: str | os.PathLike[str]) -> io.FileIO:
    """Opens a file for reading; the caller closes it.

    Raises an OSError for a file that cannot be opened or is no regular file. It opens pipes and devices without waiting
    for them, and reads nothing from them.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
    try:
        # looked at before it is opened, because to open some devices is to change them
        _check_regular(os.stat(path), path)
        descriptor = os.open(path, flags)
    except ValueError as error:
        raise OSError(errno.EINVAL, "the name has a NUL byte", os.fspath(path)) from error
    file = io.FileIO(descriptor, "rb")
    try:
        # looked at again, because another file may have taken the name in between
        _check_regular(os.fstat(descriptor), path)
    except OSError:
        file.close()
        raise
    return file


def parse_json(text: str | bytes) -> Any:
    """Returns the value of a JSON text; bytes are UTF-8.

    Raises a ValueError for a text that is not JSON, or is JSON that other programs read in another way or not at all:
    keys that occur twice, NaN and infinity, integers beyond 64 bits, halves of surrogate pairs, and nesting deeper than
    DEEPEST.

    >>> parse_json('{"words": ["yes", "no"]}')
    {'words': ['yes', 'no']}
    >>> parse_json("[1e999]")
    Traceback (most recent call last):
        ...
    ValueError: 1e999 is not a finite number
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_make_object,
            parse_float=_parse_float,
            parse_int=_parse_int,
            parse_constant=_parse_float,
        )
    except RecursionError as error:
        raise ValueError(f"nested deeper than {DEEPEST} levels") from error
    _check_json(value)
    return value


def escape_controls(text: str) -> str:
    r"""Returns `text` with escapes for the characters that a terminal obeys instead of printing them.

    >>> escape_controls("a\x1b[31m\n.wav"), escape_controls("é [red] $x$")
    ('a\\x1b[31m\\n.wav', 'é [red] $x$')
    """
    return CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shorten(text: str, longest: int = 60) -> str:
    """Returns `text`, without its end if it is longer than `longest` characters.

    >>> shorten("a" * 70, 6)
    'aaa...'
    """
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def _check_regular(status: os.stat_result, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return value


def _parse_float(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{shorten(number)} is not a finite number")
    return value


def _parse_int(number: str) -> int:
    # the length first: long texts take quadratic time
    if len(number) > 20 or not -LARGEST_INTEGER <= int(number) <= LARGEST_INTEGER:
        raise ValueError(f"the integer {shorten(number)} does not fit into 64 bits")
    return int(number)


def _check_json(value: Any) -> None:
    """Refuses nesting that is too deep and texts that cannot be encoded, without recursion."""
    level = [value]
    for _ in range(DEEPEST):
        children: list[Any] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict):
                children += item
                children += item.values()
            elif isinstance(item, list):
                children += item
        level = children
    if level:
        raise ValueError(f"nested deeper than {DEEPEST} levels")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the text {shorten(ascii(text))} has half of a surrogate pair") from error
