"""Numbers and texts as C writes them."""

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..model import Array, ExportError

NUMBERS_PER_LINE = 8
"""How many numbers a line holds: at most 15 characters each."""
LONGEST_TEXT = 4095
"""The most bytes of a string literal that every compiler of C99 takes."""


def format_floats(values: Array) -> str:
    """The numbers as a list of C literals, in lines, which a compiler reads back bit for bit.

    >>> format_floats(np.array([1.0, -0.1, 1e-30], np.float32))
    '    1.0f, -0.1f, 1e-30f'
    """
    # the shortest decimal number that is nearest to this float and to no other
    return format_list(f"{value}f" for value in np.asarray(values, np.float32).ravel().astype(str))


def format_integers(values: NDArray[np.integer[Any]]) -> str:
    """The numbers as a list of C literals, in lines.

    >>> format_integers(np.array([1, -128]))
    '    1, -128'
    """
    return format_list(map(str, np.asarray(values).ravel().tolist()))


def format_list(literals: Iterable[str]) -> str:
    """The literals separated by commas, in lines."""
    rest = iter(literals)
    lines = iter(lambda: ", ".join(itertools.islice(rest, NUMBERS_PER_LINE)), "")
    return ",\n".join(f"    {line}" for line in lines)


def format_text(text: str) -> str:
    r"""The text as a C string literal in UTF-8. Everything but plain ASCII is escaped, and so is "?" for trigraphs.

    >>> print(format_text('sí? "a\\b"'))
    "s\303\255\? \"a\\b\""
    """
    data = text.encode("utf-8", "surrogatepass")
    if b"\0" in data:
        raise ExportError(f"a label must not have a NUL character, at which a text in C ends, got {text!r}")
    if len(data) > LONGEST_TEXT:
        raise ExportError(f"a label must have at most {LONGEST_TEXT} bytes in UTF-8, got {len(data)}")
    # three octal digits end an escape, whatever follows
    return '"' + "".join(_format_byte(byte) for byte in data) + '"'


def _format_byte(byte: int) -> str:
    character = chr(byte)
    if character in '"\\?':
        return "\\" + character
    return character if 32 <= byte < 127 else f"\\{byte:03o}"
