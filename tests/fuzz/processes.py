"""Worker processes as their parent sees them: forked when all imports are done, watched, and replaced when they die."""

import itertools
import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from .door import Door
from .worker import PACKAGE, Verdict, enter_process, judge

PAUSE = 0.25
"""Seconds between two looks at a process that says nothing."""
LOOKS = 6
"""A process that waits, without any processor time, at so many looks in a row waits for ever."""
PATIENCE = 90.0
"""Seconds after which a case ends in any case, on a machine that may have much else to do."""


class Worker:
    """A process that runs cases. After each case it answers with the verdict."""

    def __init__(self, doors: dict[str, Door]) -> None:
        self.doors = doors
        self.door: Door | None = None
        """The door that the process works on; None if it is idle."""
        self.number = 0
        """The number of the next case that it answers."""
        self.started = 0.0
        self._fork()

    def _fork(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cwrnn-fuzz-", dir=_find_memory_folder())
        self._trace = Path(self._folder.name, "trace")
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._requests)
            os.close(self._answers)
            _serve(self.doors, requests, answers, Path(self._folder.name))
        os.close(requests)
        os.close(answers)
        self._unread = b""
        self._looks, self._used, self._heard = 0, -1, time.monotonic()

    def fileno(self) -> int:
        """The file to wait for: it has answers to read, or ends when the process died."""
        return self._answers

    def run_cases(self, door: Door, seed: int, first: int, seconds: float) -> None:
        """Ask for the cases of a door from the number `first` on, for some time."""
        self._ask(door, first, {"door": door.name, "seed": seed, "first": first, "seconds": seconds})

    def run_case(self, door: Door, case: bytes) -> Verdict:
        """Return the verdict on one case."""
        path = Path(self._folder.name, "request")
        path.write_bytes(case)
        self._ask(door, 0, {"door": door.name, "file": str(path)})
        verdict = Verdict("accepted")
        while self.door is not None:
            wait_for([self])
            for _, answer in self.read_answers():
                verdict = answer
        return verdict

    def _ask(self, door: Door, first: int, request: dict[str, Any]) -> None:
        self.door, self.number, self.started = door, first, time.monotonic()
        self._looks, self._used, self._heard = 0, -1, time.monotonic()
        os.write(self._requests, json.dumps(request).encode() + b"\n")

    def read_answers(self) -> Iterator[tuple[int, Verdict]]:
        """Yield the numbers and verdicts of the cases that were run; a process that died is replaced."""
        assert self.door is not None
        if not _is_readable(self._answers):
            if self._waits_for_ever():
                yield self.number, self._end_waiting()
            return
        data = os.read(self._answers, 2**16)
        if not data:
            yield self.number, self._explain_death()
            return
        self._looks, self._heard = 0, time.monotonic()
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            if answer is None:
                self.door = None
                return
            number, self.number = self.number, self.number + 1
            yield number, Verdict(**answer)

    def _waits_for_ever(self) -> bool:
        """Look at a process that says nothing: True if it has waited at many looks without any processor time."""
        assert self.door is not None
        silence = time.monotonic() - self._heard
        if silence > PATIENCE:
            return True
        if silence < self.door.seconds or sys.platform != "linux":
            return False
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        state, used = fields[0], int(fields[11]) + int(fields[12])
        self._looks = self._looks + 1 if state == "S" and used == self._used else 0
        self._used = used
        return self._looks >= LOOKS

    def _end_waiting(self) -> Verdict:
        os.killpg(self.pid, signal.SIGPROF)
        verdict = self._explain_death()
        return Verdict("waits", "", verdict.place, f"waits for ever\n{verdict.text.partition(chr(10))[2]}")

    def _explain_death(self) -> Verdict:
        """Return the verdict on the case that ended the process, and start another process."""
        assert self.door is not None
        seconds = self.door.seconds
        _, status = os.waitpid(self.pid, 0)
        trace = _cut_trace(self._trace.read_text(errors="replace") if self._trace.exists() else "")
        place = _find_place(trace)
        self.close()
        self.door = None
        self._fork()
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            return Verdict("hang", "", place, f"needs more than {seconds:g} s of processor time\n{trace}")
        cause = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit code {os.WEXITSTATUS(status)}"
        return Verdict("crash", cause, place, f"the process died: {cause}\n{trace}")

    def close(self) -> None:
        """End the process, and what it started."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError, PermissionError):
            pass
        os.close(self._requests)
        os.close(self._answers)
        self._folder.cleanup()


def wait_for(workers: list[Worker]) -> list[Worker]:
    """Return the workers to read answers from, after a short time at most."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ, worker)
        ready = [key.data for key, _ in selector.select(PAUSE)]
    return ready or workers


def _is_readable(file: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(file, selectors.EVENT_READ)
        return bool(selector.select(0))


def _cut_trace(trace: str) -> str:
    """Return the trace without the functions of the fuzzer that called the package."""
    lines = trace.splitlines()
    return "\n".join(itertools.takewhile(lambda line: f'"{__file__}"' not in line, lines))


def _find_place(trace: str) -> str:
    """Return the function of the package in which a process was when a signal ended it."""
    for line in trace.splitlines():
        if f'"{PACKAGE}' in line:
            file, _, function = line.rpartition(" in ")
            return f"{os.path.relpath(file.split(chr(34))[1], PACKAGE)}:{function}"
    return ""


def _find_memory_folder() -> str | None:
    """Return a folder whose files are kept in memory, if the machine has one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


def _serve(doors: dict[str, Door], requests: int, answers: int, folder: Path) -> NoReturn:
    """Run the cases that the parent asks for, until it asks no more."""
    enter_process(folder / "trace")
    os.environ |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "TMPDIR": str(folder)}
    tempfile.tempdir = str(folder)
    os.chdir(folder)

    def answer(value: dict[str, str] | None) -> None:
        os.write(answers, json.dumps(value).encode() + b"\n")

    with os.fdopen(requests, "rb", buffering=0) as lines:
        for line in lines:
            request = json.loads(line)
            door = doors[request["door"]]
            if "file" in request:
                answer(asdict(judge(door, Path(request["file"]).read_bytes())))
            else:
                end, number = time.monotonic() + request["seconds"], request["first"]
                while time.monotonic() < end:
                    answer(asdict(judge(door, door.make_case(request["seed"], number))))
                    number += 1
            answer(None)
    os._exit(0)
