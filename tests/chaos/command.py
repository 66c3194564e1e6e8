"""One running command: signals, the processes that it started, and the end of its log."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

SECONDS_TO_END = 30.0
"""The time that the processes of a dead command have to end by themselves."""
LONGEST = 600.0
"""The time after which a command counts as hanging."""
BETWEEN_LOOKS = 0.01
"""Seconds between two looks at a running command."""


class Command:
    """`cwrnn` with some arguments, in a session of its own, with its output in a log.

    Args:
        arguments: those of the command line
        log: the file that receives standard output and standard error
        environment: variables beside those of this process
    """

    running: ClassVar[list["Command"]] = []
    """The commands that may have living processes."""
    is_closed: ClassVar[bool] = False
    """True if no further command may be started."""

    def __init__(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.started = time.monotonic()
        if self.is_closed:
            raise RuntimeError("the guard is ending")
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cwrnn", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
            )
        self.running.append(self)

    @property
    def seconds(self) -> float:
        """The time since the command was started."""
        return time.monotonic() - self.started

    def wait_until(self, is_there: Callable[[], bool]) -> bool:
        """Waits until a condition holds; False if the command ended before."""
        while self.process.poll() is None:
            if is_there():
                return True
            if self.seconds > LONGEST:
                self.end()
                raise TimeoutError(f"the command did not end within {LONGEST:.0f} s: {self.log}")
            time.sleep(BETWEEN_LOOKS)
        return False

    def wait(self) -> int:
        """Waits for the end of the command, and returns its exit code; below 0, the signal that killed it."""
        self.wait_until(lambda: False)
        return int(self.process.returncode)

    def signal_group(self, number: int) -> None:
        """Sends a signal to all processes of the command, as a terminal does."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def list_processes(self) -> list[int]:
        """The living processes of the command's session."""
        return [number for number in list_numbers("/proc") if _read_session(number) == self.process.pid]

    def list_workers(self) -> list[int]:
        """The worker processes of the local engine."""
        return [number for number in self.list_processes() if b"spawn_main" in _read(f"/proc/{number}/cmdline")]

    def wait_for_the_rest(self) -> list[int]:
        """Waits until no process of a dead command is left; those that do not end are killed, and returned."""
        deadline = time.monotonic() + SECONDS_TO_END
        while (left := self.list_processes()) and time.monotonic() < deadline:
            time.sleep(BETWEEN_LOOKS)
        self.end()
        return left

    def end(self) -> None:
        """Kills everything that is left of the command."""
        for number in self.list_processes():
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        self.process.wait()
        with suppress(ValueError):
            self.running.remove(self)

    def read_log(self) -> str:
        """Everything that the command has printed."""
        return self.log.read_text(errors="replace")


def list_numbers(folder: str) -> list[int]:
    """The entries of a folder whose names are numbers."""
    return [int(name) for name in os.listdir(folder) if name.isdigit()]


def _read(path: str) -> bytes:
    """The contents of a file of /proc; empty if the process has ended."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _read_session(number: int) -> int | None:
    """The session of a living process; None for one that has ended."""
    # the name of the program, in parentheses, may contain anything
    fields = _read(f"/proc/{number}/stat").rpartition(b")")[2].split()
    return int(fields[3]) if fields and fields[0] not in (b"Z", b"X") else None
