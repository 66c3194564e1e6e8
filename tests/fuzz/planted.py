"""Doors with planted faults, one of each kind that the fuzzer must see. The test runs this file as a program.

python -m fuzz.planted      prints, as JSON, the verdict on every planted fault, and the digests of made cases
"""

import ctypes
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path
from random import Random

import numpy as np

from .door import Door, require
from .doors.table import DOORS
from .processes import Worker


def refuse(case: bytes, folder: Path) -> None:
    """Raise the error that the door may raise."""
    raise ValueError("no")


def raise_another_error(case: bytes, folder: Path) -> None:
    """Raise an error that the door may not raise."""
    raise KeyError("x")


def hide_memory_error(case: bytes, folder: Path) -> None:
    """Ask for more memory than there is, and refuse the case because of it."""
    try:
        np.zeros(2**45)
    except MemoryError as error:
        raise ValueError("too large") from error


def fill_memory(case: bytes, folder: Path) -> None:
    """Need 1.2 GB."""
    np.ones(9 * 2**24)


def compute_for_ever(case: bytes, folder: Path) -> None:
    """Never end, inside one call of the interpreter."""
    all(x is not None for x in iter(int, None))


def wait_for_ever(case: bytes, folder: Path) -> None:
    """Wait for a pipe that nobody writes to."""
    os.mkfifo(folder / "fifo")
    (folder / "fifo").read_bytes()


def crash(case: bytes, folder: Path) -> None:
    """Read address 0."""
    ctypes.string_at(0)


def warn(case: bytes, folder: Path) -> None:
    """Warn."""
    warnings.warn("careful", RuntimeWarning, stacklevel=1)


def compute_nonsense(case: bytes, folder: Path) -> None:
    """Return what cannot be right."""
    require(False, "nan")


def say_nothing(case: bytes, folder: Path) -> None:
    """Refuse without a reason."""
    raise ValueError


def leave(case: bytes, folder: Path) -> None:
    """End the process, as sys.exit does."""
    sys.exit(3)


def accept(case: bytes, folder: Path) -> None:
    """Accept everything."""


PLANTED = {
    "accepted": accept,
    "refused": refuse,
    "undeclared": raise_another_error,
    "undeclared exit": leave,
    "memory hidden": hide_memory_error,
    "memory": fill_memory,
    "hang": compute_for_ever,
    "waits": wait_for_ever,
    "crash": crash,
    "warning": warn,
    "wrong": compute_nonsense,
    "silent": say_nothing,
}
"""The code behind each door, by the kind of the verdict: the first word of the key."""


def make_nothing(random: Random) -> bytes:
    """Return a case without bytes."""
    return b""


def main() -> int:
    """Print the verdicts and the digests of cases."""
    doors = {
        name: Door(name, name, (ValueError,), make_nothing, enter, seconds=0.5 if name in ("hang", "waits") else 20.0)
        for name, enter in PLANTED.items()
    }
    worker = Worker(doors)
    verdicts = {name: worker.run_case(door, b"").kind for name, door in doors.items()}
    # the next case of a worker is run as if nothing had happened
    verdicts["accepted afterwards"] = worker.run_case(doors["accepted"], b"").kind
    worker.close()
    print(json.dumps({"verdicts": verdicts, "cases": digest_cases()}))
    return 0


def digest_cases() -> dict[str, str]:
    """Return a digest of the first cases of every door."""
    return {
        name: hashlib.sha256(b"".join(door.make_case(0, number) for number in range(10))).hexdigest()
        for name, door in DOORS.items()
    }


if __name__ == "__main__":
    sys.exit(main())
