"""A campaign: cases for all doors, for a given time that is shared evenly, and what came of them."""

import importlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .door import Door
from .findings import keep_finding
from .processes import Worker, wait_for
from .shrinking import shrink
from .worker import Verdict

SLICE = 0.5
"""Seconds that a worker spends on a door before it turns to the next."""
MOST_FINDINGS = 5
"""Findings of one door that are kept in one campaign."""
SHRINKING = 4.0
"""The most seconds for shrinking one finding. All findings together have a quarter of the campaign's time."""


SLOW_IMPORTS = (
    "cwrnn.experiments.inspect.page",
    "cwrnn.experiments.report.page",
    "kaldi_native_fbank",
    "safetensors.numpy",
    "scipy.signal",
    "scipy.stats",
    "soundfile",
)
"""Modules that the package imports where it uses them: seconds of processor time that are no fault of a case."""


@dataclass
class Tally:
    """What came of the cases of one door."""

    door: Door
    cases: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)
    """How many cases were accepted, and how many were refused with each type of error."""
    failures: dict[tuple[str, str, str], tuple[int, Verdict]] = field(default_factory=dict)
    """The number of the first case, and its verdict, for each different failure."""
    findings: list[tuple[Path, bytes, Verdict]] = field(default_factory=list)
    """The failures that were seen again, shrunk and kept."""
    unrepeated: list[Verdict] = field(default_factory=list)
    """The failures that were not seen again when the case ran alone."""
    is_busy: bool = False

    def add(self, number: int, verdict: Verdict) -> None:
        """Count a case."""
        self.cases += 1
        if verdict.is_failure:
            self.outcomes["failed"] += 1
            self.failures.setdefault(verdict.signature, (number, verdict))
        else:
            self.outcomes[verdict.name or verdict.kind] += 1


def run_campaign(
    doors: dict[str, Door], seed: int, seconds: float, workers: int, show: Callable[[list[Tally]], None]
) -> list[Tally]:
    """Try cases on all doors for some seconds, and return what came of them.

    Args:
        doors: the doors by name
        seed: decides all cases: case 17 of a door is always the same for the same seed
        seconds: the time for all doors together
        workers: the number of processes
        show: called from time to time
    """
    tallies = [Tally(door) for door in doors.values()]
    prepare(doors)
    pool = [Worker(doors) for _ in range(workers)]
    working: dict[Worker, Tally] = {}
    end = time.monotonic() + seconds
    try:
        while working or time.monotonic() < end:
            for worker in pool:
                idle = [tally for tally in tallies if not tally.is_busy]
                if worker not in working and idle and time.monotonic() < end:
                    tally = min(idle, key=lambda tally: tally.seconds)
                    tally.is_busy = True
                    working[worker] = tally
                    worker.run_cases(tally.door, seed, tally.cases, min(SLICE, end - time.monotonic()))
            for worker in wait_for(list(working)):
                tally = working[worker]
                for number, verdict in worker.read_answers():
                    tally.add(number, verdict)
                if worker.door is None:
                    tally.seconds += time.monotonic() - worker.started
                    tally.is_busy = False
                    del working[worker]
            show(tallies)
        end = time.monotonic() + max(10.0, seconds / 4)
        for tally in sorted(tallies, key=lambda tally: len(tally.failures)):
            keep_failures(tally, seed, pool[0], end)
            show(tallies)
    finally:
        for worker in pool:
            worker.close()
    return tallies


def prepare(doors: dict[str, Door]) -> None:
    """Do once, before workers are forked, what each of them would do in its first cases: imports and samples."""
    for name in SLOW_IMPORTS:
        importlib.import_module(name)
    for door in doors.values():
        door.make_case(0, 0)


def keep_failures(tally: Tally, seed: int, worker: Worker, end: float) -> None:
    """Run the cases that failed again, alone; shrink those that fail again, until the time `end`, and keep them."""
    for number, verdict in list(tally.failures.values())[:MOST_FINDINGS]:
        door = tally.door
        case = door.make_case(seed, number)
        again = worker.run_case(door, case)
        if not again.is_failure:
            tally.unrepeated.append(verdict)
            continue
        signature = again.signature
        seconds = min(SHRINKING, end - time.monotonic())
        small = shrink(case, lambda tried: worker.run_case(door, tried).signature == signature, seconds)  # noqa: B023
        tally.findings.append((keep_finding(door.name, small, again), small, again))
