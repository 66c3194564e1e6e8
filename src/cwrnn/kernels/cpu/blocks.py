"""Memory for the results of the CPU kernel: large blocks are kept for the next call (blocks.c).

The system clears new memory before it lends it, which takes time if every call has a new output of many megabytes. A
block that has not been used for some seconds goes back to the system. The environment variable CWRNN_KEEP_SECONDS sets
how many; 0 keeps nothing. A tensor in a block is an ordinary tensor, but cannot be resized beyond its block.
"""

import ctypes
import math
import os
import warnings
from array import array
from typing import Any

import torch
from torch import Tensor

from .loader import get_library

LARGE = 2 << 20
"""Tensors of at least this many bytes get a block: the size of a large page. The C library keeps smaller memory."""

VARIABLE = "CWRNN_KEEP_SECONDS"
SECONDS = 5.0
NAME = b"dltensor"
"""A capsule does not copy its name, so the name must live as long as the module."""

_lend: Any = None
_capsule: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`like.new_empty(shape)` of a tensor on the CPU, in a block that was kept if it is large."""
    if math.prod(shape) * like.itemsize >= LARGE and _lend is not None:
        bits, extents = 8 * like.itemsize, array("q", shape)
        # one expression: a signal that arrives between two lines would leave a block without an owner
        lent = map(_lend, (bits,), (len(extents),), (extents.buffer_info()[0],))
        try:
            tensor: Tensor = next(map(torch._C._from_dlpack, map(_capsule, lent, (NAME,), (None,))))
            return tensor
        except ValueError:
            pass  # out of memory: torch raises its own error below
    # a tuple as the argument would take half as long again
    return like.new_empty(*shape)


def keep_blocks(seconds: float) -> None:
    """Sets for how long blocks are kept from now on. Blocks that are kept already go back to the system."""
    library = get_library()
    if library is not None:
        library.cwrnn_keep(ctypes.c_int64(round(seconds * 1e9)))


def count_bytes() -> tuple[int, int]:
    """The bytes of the blocks that are kept for later, and of those that tensors use."""
    counts = array("q", [0, 0])
    library = get_library()
    if library is not None:
        library.cwrnn_count(ctypes.c_void_p(counts.buffer_info()[0]))
    return counts[0], counts[1]


def _parse_seconds(text: str | None) -> float:
    """The value of the environment variable, or the default with a warning if it is no number of seconds."""
    try:
        seconds = float(text or SECONDS)
        if 0 <= seconds <= 1e9:
            return seconds
    except ValueError:
        pass
    warnings.warn(
        f"{VARIABLE}={text} is ignored: it must be a number of seconds, 0 or more", RuntimeWarning, stacklevel=2
    )
    return SECONDS


def _prepare() -> None:
    global _lend
    library = get_library()
    if library is not None:
        _lend = library.cwrnn_lend
        _lend.argtypes, _lend.restype = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p], ctypes.c_void_p
        keep_blocks(_parse_seconds(os.environ.get(VARIABLE)))


_prepare()
