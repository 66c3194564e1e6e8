"""Trials: one disturbance of one command, its result, and the queue of those that are still to be made."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .command import Command


@dataclass
class Trial:
    """One disturbance and its result."""

    command: str
    """The command that was disturbed, such as "reproduce words"."""
    fault: str
    """The fault, as the table names it."""
    folder: str
    """The name of the folder with the evidence, which is kept if there is a problem."""
    phase: str = ""
    """What the command was doing."""
    at: str = ""
    """When the fault came: seconds after the start, or the file operation."""
    code: int | None = None
    """The exit code; below 0, the signal that killed the command."""
    problems: list[str] = field(default_factory=list)


@dataclass
class Comparison:
    """A command that was disturbed, brought to its end, and compared with an undisturbed one."""

    command: str
    folder: str
    faults: int
    """The faults that it went through."""
    problems: list[str] = field(default_factory=list)


class FaultQueue:
    """The faults that are still to be made, each of which threads take one at a time.

    Args:
        faults: the faults, in the order in which they are made
        tries: how often a fault that came too late is put back, in all
    """

    def __init__(self, faults: Iterable[str], tries: int) -> None:
        self._faults = list(faults)
        self._tries = tries
        self._lock = threading.Lock()

    def take(self) -> str | None:
        """The next fault; None if all are made."""
        with self._lock:
            return self._faults.pop(0) if self._faults else None

    def has_more(self) -> bool:
        """True if there are faults to take."""
        with self._lock:
            return bool(self._faults)

    def put_back(self, fault: str) -> None:
        """Takes back a fault that came after the end of its command."""
        with self._lock:
            if self._tries > 0:
                self._tries -= 1
                self._faults.append(fault)


def finish(command: Command, trial: Trial, codes: Sequence[int]) -> None:
    """Waits for the end of a command, and checks its exit code and that no process is left."""
    trial.code = command.wait()
    left = command.wait_for_the_rest()
    if left:
        trial.problems.append(f"{len(left)} processes outlived the command")
    if trial.code not in codes:
        trial.problems.append(f"exit code {trial.code}, expected {' or '.join(map(str, codes))}")


def check_sentence(command: Command, trial: Trial, sentence: str = "cwrnn: ") -> None:
    """Checks that a command has ended with a sentence and no traceback."""
    log = command.read_log()
    if "Traceback" in log:
        trial.problems.append("the command printed a traceback")
    if sentence not in log:
        trial.problems.append(f"the command did not print {sentence!r}")
