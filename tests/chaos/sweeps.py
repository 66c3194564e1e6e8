"""`cwrnn reproduce` under kills, other signals and a full disk.

A sweep is started with --resume, disturbed, started again, disturbed again, and so on until a command comes to its end
before its fault does. Its store must then equal the store of an undisturbed sweep. After every fault, all runs that
were finished before must be there, and every file must be whole or absent.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import faults
from .command import Command
from .snapshot import Snapshot, check_kept, compare, take_snapshot
from .trial import Comparison, FaultQueue, Trial, check_sentence, finish

TASKS = {
    "generation": ["--data", "bundle", "--length", "60", "--epochs", "60", "--runs", "1", "--sizes", "100,140,180,220"],
    "words": ["--words", "making,subway", "--epochs", "12", "--runs", "2", "--sizes", "500,600,700,800"],
}
"""The options of a small sweep of each task."""

GROUP, MAIN, WORKER = "SIGKILL to all processes", "SIGKILL to the main process", "SIGKILL to a worker"
BEFORE, HALF = "SIGKILL before a file operation", "SIGKILL in the middle of a write"
TERM, INT, STOP = "SIGTERM", "Ctrl-C", "SIGSTOP, then SIGCONT"
FULL, SMALL = "no space from a file operation on", "a small file system (tmpfs)"
KILLS = (GROUP, GROUP, MAIN, BEFORE, HALF, BEFORE, GROUP, MAIN, WORKER, HALF)
"""The kinds of kills, in the proportions in which they are made."""
SIGNALS = (TERM, INT, STOP)
AT_OPERATION = {BEFORE: faults.BEFORE, HALF: faults.HALF, FULL: faults.FULL}

START, TRAINING, RECORD, DRAWING, PAGE, END = PHASES = (
    "start", "training", "writing to the store", "drawing", "writing the page", "end",
)  # fmt: skip
"""The phases of a command: start is import and planning; end is after the page is written."""


@dataclass(frozen=True)
class Undisturbed:
    """A sweep that nothing disturbs."""

    task: str
    snapshot: Snapshot
    seconds: float
    """How long it takes."""
    rest: float
    """How long the command takes when all runs are there already."""
    operations: int
    """Its operations on files."""

    @property
    def command(self) -> str:
        """The command, as the table names it."""
        return f"reproduce {self.task}"


def make_arguments(task: str, folder: Path) -> list[str]:
    """The arguments of a small sweep."""
    return ["reproduce", task, *TASKS[task], "--workers", "2", "--out", str(folder), "--resume"]


def run_undisturbed(task: str, where: Path, library: Path | None) -> Undisturbed:
    """Makes a sweep, and starts it once more when it is done."""
    # the folder of every sweep has the same name: summary.json has it
    folder = where / "sweep"
    folder.parent.mkdir(parents=True)
    count = folder.parent / "count"
    environment = {} if library is None else faults.plan_fault(library, folder, count)
    operations, seconds = 0, []
    for number in range(2):
        command = Command(make_arguments(task, folder), folder.parent / f"{number}.log", environment)
        if command.wait() != 0:
            raise SystemExit(f"the undisturbed command failed: {command.log}\n{command.read_log()}")
        seconds.append(command.seconds)
        if number == 0 and library is not None:
            operations = faults.read_count(count).operations
    return Undisturbed(task, take_snapshot(folder), *seconds, operations)


def disturb_sweep(
    undisturbed: Undisturbed,
    where: Path,
    queue: FaultQueue,
    chance: random.Random,
    library: Path | None,
    report: Callable[[Trial], None],
) -> Comparison:
    """Makes one sweep under the faults of the queue, and compares it with the undisturbed one.

    Args:
        undisturbed: the sweep without faults
        where: the folder of this sweep and its logs; it is removed if there is no problem
        queue: the faults, of which the sweep takes as many as it lives through
        chance: draws the times of the faults
        library: `faults.c`, compiled
        report: called with every trial
    """
    folder = where / "sweep"
    where.mkdir(parents=True)
    comparison = Comparison(undisturbed.command, where.name, 0)
    before = take_snapshot(folder)
    is_fine, is_mounted = True, False
    while True:
        fault = queue.take()
        if fault == SMALL and not is_mounted:
            is_mounted = _mount(folder)
        trial = Trial(undisturbed.command, fault or "none", where.name)
        missing = 1 - len(before.finished) / len(undisturbed.snapshot.runs)
        life = undisturbed.rest + (undisturbed.seconds - undisturbed.rest) * missing
        log = where / f"{comparison.faults:03}.log"
        has_hit = _Disturbance(undisturbed, folder, log, library, trial).make(fault, chance, life)
        after = _look(folder, trial)
        trial.problems += check_kept(before, after)
        before = after
        if fault is not None and not has_hit:
            queue.put_back(fault)
        elif fault is not None:
            comparison.faults += 1
            report(trial)
        is_fine = is_fine and not trial.problems
        if trial.code == 0 or trial.problems:
            break
    comparison.problems += trial.problems if not has_hit else []
    if trial.code == 0:
        comparison.problems += compare(undisturbed.snapshot, after)
    if is_mounted:
        subprocess.run(["umount", str(folder)], check=True)
    if is_fine and not comparison.problems:
        shutil.rmtree(where)
    return comparison


class _Disturbance:
    """One command and one fault."""

    def __init__(self, undisturbed: Undisturbed, folder: Path, log: Path, library: Path | None, trial: Trial) -> None:
        self._undisturbed, self._folder, self._log = undisturbed, folder, log
        self._library, self._trial = library, trial

    def make(self, fault: str | None, chance: random.Random, life: float) -> bool:
        """Runs the command with the fault; False if the command ended before the fault came."""
        if fault in AT_OPERATION:
            return self._hit_operation(fault, chance)
        if fault == SMALL:
            return self._fill_disk(chance)
        self._start()
        if fault is None:
            self._finish(codes=(0,))
            return False
        moment = chance.uniform(0, life)
        if not self._command.wait_until(lambda: self._command.seconds >= moment):
            self._finish(codes=(0,))
            return False
        if fault == WORKER:
            self._command.wait_until(lambda: bool(self._command.list_workers()))
        if not self._stop_and_look():
            self._finish(codes=(0,))
            return False
        actions = {
            GROUP: self._kill_group,
            MAIN: self._kill_main,
            WORKER: lambda: self._kill_worker(chance),
            TERM: self._terminate,
            INT: self._interrupt,
            STOP: lambda: self._stop(chance),
        }
        actions[fault]()
        return True

    def _start(self, environment: dict[str, str] | None = None) -> None:
        self._began = time.time()
        self._command = Command(make_arguments(self._undisturbed.task, self._folder), self._log, environment)

    def _finish(self, codes: Sequence[int]) -> None:
        finish(self._command, self._trial, codes)

    def _stop_and_look(self) -> bool:
        """Stops all processes and notes the phase; a kill now hits this very moment. False if the command has ended."""
        self._command.signal_group(signal.SIGSTOP)
        if self._command.process.poll() is not None:
            return False
        self._trial.at = f"{self._command.seconds:.3f} s"
        self._note_phase()
        return True

    def _note_phase(self) -> None:
        # an earlier command may have left some files
        new = [path for path in self._folder.rglob("*") if path.stat().st_mtime > self._began]
        names = {path.name for path in new}
        if any(name.endswith("-journal") for name in names):
            phase = RECORD
        elif any(name.endswith(".part") for name in names):
            phase = PAGE
        elif "; the store is" not in self._command.read_log():
            phase = START
        elif "index.html" in names:
            phase = END
        elif len(take_snapshot(self._folder).finished) == len(self._undisturbed.snapshot.runs):
            phase = DRAWING
        else:
            phase = TRAINING
        self._trial.phase = phase

    def _kill_group(self) -> None:
        self._command.signal_group(signal.SIGKILL)
        self._finish(codes=(-signal.SIGKILL,))

    def _kill_main(self) -> None:
        """Kills the main process alone: its workers must end by themselves."""
        os.kill(self._command.process.pid, signal.SIGKILL)
        self._command.signal_group(signal.SIGCONT)
        self._finish(codes=(-signal.SIGKILL,))

    def _kill_worker(self, chance: random.Random) -> None:
        """Kills a worker: the command goes on, and ends with code 1 if a run has failed for it."""
        workers = self._command.list_workers()
        if workers:
            os.kill(chance.choice(workers), signal.SIGKILL)
        else:
            self._trial.phase = f"{self._trial.phase}, no worker there"
        self._command.signal_group(signal.SIGCONT)
        self._finish(codes=(0, 1))
        if self._trial.code == 1 and "runs failed; --resume tries them again" not in self._command.read_log():
            self._trial.problems.append("exit code 1 without the sentence that runs failed")

    def _terminate(self) -> None:
        os.kill(self._command.process.pid, signal.SIGTERM)
        self._command.signal_group(signal.SIGCONT)
        self._finish(codes=(-signal.SIGTERM,))

    def _interrupt(self) -> None:
        """Presses Ctrl-C: exit code 130 and a sentence, or Python's own end while it is still importing."""
        self._command.signal_group(signal.SIGINT)
        self._command.signal_group(signal.SIGCONT)
        phase = self._trial.phase
        self._finish(codes=(130, -signal.SIGINT) if phase == START else (130, 0) if phase == END else (130,))
        log = self._command.read_log()
        if self._trial.code == 130 and "Interrupted." not in log:
            self._trial.problems.append("no sentence says that the command was interrupted")
        if phase != START and "Traceback" in log:
            self._trial.problems.append("a traceback after Ctrl-C")

    def _stop(self, chance: random.Random) -> None:
        """Stops all processes for a while: the command goes on as if nothing had been."""
        time.sleep(chance.uniform(0.1, 3.0))
        self._command.signal_group(signal.SIGCONT)
        self._finish(codes=(0,))

    def _hit_operation(self, fault: str, chance: random.Random) -> bool:
        """Kills the command at a file operation, or lets the disk be full from there on."""
        assert self._library is not None
        count = self._log.with_suffix(".count")
        at = chance.randint(1, self._undisturbed.operations)
        self._start(faults.plan_fault(self._library, self._folder, count, AT_OPERATION[fault], at))
        self._trial.code = self._command.wait()
        counted = faults.read_count(count)
        if not counted.has_hit:
            self._finish(codes=(0,))
            return False
        self._trial.at = f"operation {at}: {counted.operation}"
        has_begun = "; the store is" in self._command.read_log()
        self._trial.phase = RECORD if "sqlite" in counted.operation else PAGE if has_begun else START
        if fault == FULL:
            self._finish(codes=(1,))
            check_sentence(self._command, self._trial)
        else:
            self._finish(codes=(-signal.SIGKILL,))
        return True

    def _fill_disk(self, chance: random.Random) -> bool:
        """Gives the file system less space than the sweep needs, and all of it afterwards."""
        used = sum(path.stat().st_blocks * 512 for path in self._folder.rglob("*"))
        # from 4 KiB to 4 MiB, each doubling as often as the others: the store is small, and the page is large
        space = used + 4096 * int(2 ** chance.uniform(0, 10))
        _remount(self._folder, space)
        try:
            self._start()
            self._trial.at = f"{space >> 10} KiB"
            self._trial.code = self._command.wait()
            if self._trial.code == 0:
                self._finish(codes=(0,))
                return False
            self._trial.phase = RECORD if "sqlite: " in self._command.read_log() else PAGE
            self._finish(codes=(1,))
            check_sentence(self._command, self._trial)
        finally:
            _remount(self._folder, 1 << 28)
        return True


def _look(folder: Path, trial: Trial) -> Snapshot:
    """The contents of the folder after a fault; a damaged file is a problem of the trial."""
    try:
        return take_snapshot(folder)
    except Exception as error:
        trial.problems.append(f"damaged: {type(error).__name__}: {error}")
        return Snapshot({}, {}, None, frozenset(), {})


def can_mount(where: Path) -> bool:
    """True if this process may mount a file system."""
    folder = where / "mounted"
    if not _mount(folder):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    return True


def unmount_all(where: Path) -> None:
    """Unmounts every file system that was mounted below a folder."""
    for folder in where.glob("*/*/sweep"):
        if folder.is_mount():
            subprocess.run(["umount", str(folder)], check=False)


def _mount(folder: Path) -> bool:
    """Mounts a file system in memory at a new folder; False if that is not allowed, or the folder is in use."""
    if folder.is_dir() and any(folder.iterdir()):
        return False
    folder.mkdir(parents=True, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={1 << 28}", "cwrnn-chaos", str(folder)]
    return shutil.which("mount") is not None and subprocess.run(words, capture_output=True).returncode == 0


def _remount(folder: Path, space: int) -> None:
    """Gives a mounted file system another size in bytes; at least one page."""
    subprocess.run(["mount", "-o", f"remount,size={max(space, 4096)}", str(folder)], check=True, capture_output=True)
