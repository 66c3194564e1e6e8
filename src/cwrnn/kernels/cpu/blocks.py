"""Memory for what the CPU kernel writes: large blocks are kept for the next call (blocks.c).

A new output of many megabytes at every call would be new memory at every call, which the system has to clear before it
lends it. What nobody has wanted for some seconds goes back to the system. The environment variable CWRNN_KEEP_SECONDS
says how many; 0 keeps nothing. A tensor in a block is one like any other, but cannot be resized to more than it has.
"""

import ctypes
import math
import os
import warnings
from array import array
from typing import Any

import torch
from torch import Tensor

from .loader import compiled

LARGE = 2 << 20
"""Bytes from which on a tensor gets a block: a large page. The C library keeps what is smaller."""

VARIABLE = "CWRNN_KEEP_SECONDS"
SECONDS = 5.0
NAME = b"dltensor"
"""A capsule does not copy its name."""

_lend: Any = None
_capsule: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


def empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`like.new_empty(shape)` of a tensor on the CPU, in a block that was kept if it is a large one."""
    if math.prod(shape) * like.itemsize >= LARGE and _lend is not None:
        bits, words = 8 * like.itemsize, array("q", shape)
        # all in one, without a line between them at which a signal could come: the block would belong to nobody
        lent = map(_lend, (bits,), (len(words),), (words.buffer_info()[0],))
        try:
            tensor: Tensor = next(map(torch._C._from_dlpack, map(_capsule, lent, (NAME,), (None,))))
            return tensor
        except ValueError:
            pass  # there is no memory: torch knows best what to say
    return like.new_empty(*shape)  # a tuple takes half as long again


def keep(seconds: float) -> None:
    """For how long blocks are kept from now on. Those that are kept already go back to the system."""
    library = compiled()
    if library is not None:
        library.cwrnn_keep(ctypes.c_int64(round(seconds * 1e9)))


def count_bytes() -> tuple[int, int]:
    """The bytes of the blocks that are kept, and of those that tensors have."""
    counts = array("q", [0, 0])
    library = compiled()
    if library is not None:
        library.cwrnn_count(ctypes.c_void_p(counts.buffer_info()[0]))
    return counts[0], counts[1]


def _seconds(said: str | None) -> float:
    """What the environment variable says."""
    try:
        seconds = float(said or SECONDS)
        if 0 <= seconds <= 1e9:
            return seconds
    except ValueError:
        pass
    warnings.warn(
        f"{VARIABLE}={said} is ignored: it must be a number of seconds, 0 or more", RuntimeWarning, stacklevel=2
    )
    return SECONDS


def _prepare() -> None:
    global _lend
    library = compiled()
    if library is not None:
        _lend = library.cwrnn_lend
        _lend.argtypes, _lend.restype = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p], ctypes.c_void_p
        keep(_seconds(os.environ.get(VARIABLE)))


_prepare()
