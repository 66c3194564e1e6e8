"""One case in a process: it is run, watched and judged.

Inside the process the kernel counts: a timer of processor time kills it after the door's seconds, a limit of address
space makes large requests fail, and the largest resident size is read after every case. From outside the parent sees a
process that waits without end, or that a signal killed.
"""

import contextlib
import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cwrnn

from .door import Door, WrongResult

MEMORY = 2**30
"""The most memory in bytes that a case may need."""
ADDRESS_SPACE = 3 * 2**30
"""Bytes of address space beyond those at the start: a request for more fails."""
PACKAGE = str(Path(cwrnn.__file__).parent)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case."""

    kind: str
    """"accepted", "refused", or the kind of a failure."""
    name: str = ""
    """The type of the error."""
    place: str = ""
    """The function of the package in which it arose. Failures of the same kind, name and place count as one."""
    text: str = ""
    """Everything about a failure, for people to read."""

    @property
    def is_failure(self) -> bool:
        """True if the package must be mended."""
        return self.kind not in ("accepted", "refused")

    @property
    def signature(self) -> tuple[str, str, str]:
        """The values that failures share if they are likely to have one cause."""
        return self.kind, self.name, self.place


def judge(door: Door, case: bytes) -> Verdict:
    """Run a case in this process, which a hang or a crash ends, and return the verdict."""
    folder = Path(tempfile.mkdtemp(prefix="case-"))
    before = Path.cwd()
    os.chdir(folder)
    try:
        with warnings.catch_warnings(), _limit_time(door.seconds):
            warnings.simplefilter("error")
            door.enter(case, folder)
        verdict = Verdict("accepted")
    except Exception as error:
        verdict = _judge_error(door, error)
    except BaseException as error:
        verdict = _describe(error, "undeclared")
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
    if not verdict.is_failure and measure_memory() > _BASE.memory + MEMORY:
        grown = (measure_memory() - _BASE.memory) / 2**30
        return Verdict("memory", f"{verdict.name or 'accepted'}", "", f"needs {grown:.1f} GB of memory")
    return verdict


def _judge_error(door: Door, error: Exception) -> Verdict:
    if isinstance(error, WrongResult):
        return _describe(error, "wrong")
    if isinstance(error, Warning):
        return _describe(error, "warning")
    if isinstance(error, MemoryError):
        return _describe(error, "memory")
    if not isinstance(error, door.errors):
        return _describe(error, "undeclared")
    cause: BaseException | None = error
    while cause is not None:
        # refused only because this process has little memory: a larger machine would have spent it
        if isinstance(cause, MemoryError):
            return _describe(error, "memory")
        cause = cause.__cause__ or cause.__context__
    if not str(error).strip():
        return _describe(error, "silent")
    return Verdict("refused", type(error).__name__)


def _describe(error: BaseException, kind: str) -> Verdict:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename.startswith(PACKAGE)]
    frame = own[-1] if own else frames[-1]
    place = f"{os.path.relpath(frame.filename, PACKAGE)}:{frame.name}"
    text = "".join(traceback.format_exception(error)[-30:])
    return Verdict(kind, type(error).__name__, place, text[-3000:])


@contextlib.contextmanager
def _limit_time(seconds: float) -> Iterator[None]:
    """Let the kernel end this process with SIGPROF after so many seconds of processor time."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@dataclass
class _Base:
    """The memory of this process before its first case."""

    memory: int = 0


_BASE = _Base()


def measure_memory() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def enter_process(trace: Path) -> None:
    """Prepare a process that was just forked; a trace of the code goes to the file if a signal ends it."""
    os.setsid()
    # the handlers of the parent are not those of the package
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPROF):
        signal.signal(number, signal.SIG_DFL)
    file = trace.open("w")
    faulthandler.enable(file)
    faulthandler.register(signal.SIGPROF, file, all_threads=False, chain=True)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * os.sysconf("SC_PAGE_SIZE") + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _BASE.memory = measure_memory()
