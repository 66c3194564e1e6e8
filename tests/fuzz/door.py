"""A door: a place where data from outside enters the package. A case: the bytes that try to break it.

A case is always bytes, so that every case can be kept in a file, replayed and shrunk: the contents of a file, or JSON
that describes a folder, the arguments of a call or a command line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random


class WrongResult(Exception):
    """The package accepted a case and made something of it that cannot be right."""


@dataclass(frozen=True)
class Door:
    """A door, with the errors that it may raise and the cases that are tried on it."""

    name: str
    entry: str
    """The function that data goes through, for people to read."""
    errors: tuple[type[Exception], ...]
    """The errors that may leave this door. Every other one is a failure."""
    make: Callable[[Random], bytes]
    """Makes a case. The same state of the generator makes the same case."""
    enter: Callable[[bytes, Path], None]
    """Takes a case through the door. The folder is empty, and removed afterwards."""
    seconds: float = 2.0
    """The most processor time that a case may take."""

    def make_case(self, seed: int, number: int) -> bytes:
        """Return the case with this number: always the same for the same seed."""
        return self.make(Random(f"{seed} {self.name} {number}"))


def require(condition: bool, problem: str) -> None:
    """Raise WrongResult with the problem unless the condition holds."""
    if not condition:
        raise WrongResult(problem)
