"""Progress: the reports of every long function of this package to its caller.

def show(progress):
    print(f"{progress.activity}: {progress.done} of {progress.total}")

cwrnn.experiments.reproduce_generation(progress=show)
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a function has come."""

    activity: str
    """The current work, for people to read: "training", "reading the recordings", "generation 3 of 15"."""
    done: int
    """How many runs, files or steps are done."""
    total: int
    """How many there are in all."""
    fraction: float
    """The share of the work that is done, from 0 to 1. Runs differ in length, so it is not `done / total`."""
    seconds_left: float | None = None
    """The estimated time until the end, or None if nothing has been measured yet."""


ProgressCallback = Callable[[Progress], None]
