"""`cwrnn reproduce --engine dask` while workers, schedulers and the command itself are killed.

The cluster is real: a scheduler and two workers, each a process of its own. A command survives the death of a worker,
ends with a sentence at the death of its scheduler, and goes on elsewhere. If a command that started its own cluster is
killed, no process of the cluster stays.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import sweeps
from .command import Command
from .snapshot import check_kept, compare, take_snapshot
from .trial import Comparison, FaultQueue, Trial, check_sentence, finish

WORKER, SCHEDULER = "SIGKILL to a worker of the cluster", "SIGKILL to the scheduler"
MAIN, GROUP = "SIGKILL to the command with its own cluster", "SIGKILL to the command and its own cluster"
FAULTS = (WORKER, SCHEDULER, MAIN, GROUP)
TASK = "generation"
COMMAND = f"reproduce {TASK} --engine dask"
BEFORE_RECORDS, BETWEEN_RECORDS, AFTER_RECORDS = "before the first record", "after some records", "after all records"
SECONDS_TO_START = 60.0


class Cluster:
    """A scheduler and two workers in processes of their own, with their output in the folder of logs."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._workers: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("scheduler", "--port", "0")
        self.address = self._wait_for("scheduler-0.log", r"Scheduler at: *(tcp://\S+)")
        for _ in range(2):
            self.add_worker()
        for number in range(2):
            self._wait_for(f"worker-{number}.log", r"Registered to: *(tcp://\S+)")

    def add_worker(self) -> None:
        """Starts a worker."""
        self._workers.append(self._start("worker", self.address, "--nthreads", "1", "--no-nanny"))

    def kill_worker(self, chance: random.Random) -> None:
        """Kills a worker, and starts another one."""
        worker = self._workers.pop(chance.randrange(len(self._workers)))
        worker.kill()
        worker.wait()
        self.add_worker()

    def close(self) -> None:
        """Kills all processes."""
        for process in (self.scheduler, *self._workers):
            process.kill()
            process.wait()

    def _start(self, kind: str, *words: str) -> "subprocess.Popen[bytes]":
        number = len(list(self._logs.glob(f"{kind}-*.log")))
        with (self._logs / f"{kind}-{number}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "dask", kind, *words, "--host", "127.0.0.1", "--no-dashboard"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def _wait_for(self, name: str, pattern: str) -> str:
        """Waits for a line in a log, and returns the first group of the pattern."""
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            match = re.search(pattern, (self._logs / name).read_text(errors="replace"))
            if match is not None:
                return match[1]
            time.sleep(0.05)
        self.close()
        raise SystemExit(f"a process of Dask did not start: {self._logs / name}")


def disturb_cluster(
    undisturbed: sweeps.Undisturbed,
    where: Path,
    queue: FaultQueue,
    chance: random.Random,
    report: Callable[[Trial], None],
) -> Comparison | None:
    """Disturbs one sweep on a cluster, and brings it to its end; None if all faults are made."""
    fault = queue.take()
    if fault is None:
        return None
    where.mkdir(parents=True)
    folder = where / "sweep"
    trial = Trial(COMMAND, fault, where.name)
    comparison = Comparison(COMMAND, where.name, 1)
    has_hit = _disturb(undisturbed, folder, trial, chance)
    before = take_snapshot(folder)
    if has_hit:
        report(trial)
    else:
        queue.put_back(fault)
        comparison.faults = 0
    # the local engine goes on where the cluster ended
    command = Command(sweeps.make_arguments(TASK, folder), where / "last.log")
    if command.wait() != 0:
        comparison.problems.append(f"exit code {command.process.returncode} when it was resumed")
    after = take_snapshot(folder)
    comparison.problems += check_kept(before, after) + compare(undisturbed.snapshot, after, with_commands=False)
    if not trial.problems and not comparison.problems:
        shutil.rmtree(where)
    return comparison


def _disturb(undisturbed: sweeps.Undisturbed, folder: Path, trial: Trial, chance: random.Random) -> bool:
    """Runs a command and makes its fault; False if the command ended before."""
    where, fault = folder.parent, trial.fault
    cluster = Cluster(where) if fault in (WORKER, SCHEDULER) else None
    options = ["--workers", "2"] if cluster is None else ["--scheduler", cluster.address]
    options += ["--engine", "dask", "--out", str(folder), "--resume"]
    command = Command(["reproduce", TASK, *sweeps.TASKS[TASK], *options], where / "disturbed.log")
    try:
        # half of the faults come in the middle of the training: soon after the first report of a batch
        sign, longest = ("%", 1.0) if chance.random() < 0.5 else ("; the store is", undisturbed.seconds / 2)
        moment = chance.uniform(0, longest)
        if not command.wait_until(lambda: sign in command.read_log()):
            finish(command, trial, (0,))
            return False
        began = command.seconds
        if not command.wait_until(lambda: command.seconds - began >= moment):
            finish(command, trial, (0,))
            return False
        trial.at = f"{command.seconds:.3f} s"
        done = len(take_snapshot(folder).finished)
        is_last = done == len(undisturbed.snapshot.runs)
        trial.phase = BEFORE_RECORDS if done == 0 else AFTER_RECORDS if is_last else BETWEEN_RECORDS
        if fault in (MAIN, GROUP):
            command.process.kill() if fault == MAIN else command.signal_group(signal.SIGKILL)
            # the command may have come to its end while the store was read
            finish(command, trial, (-signal.SIGKILL, 0))
            return trial.code != 0
        if fault == WORKER:
            assert cluster is not None
            cluster.kill_worker(chance)
            finish(command, trial, (0,))
        else:
            assert cluster is not None
            cluster.scheduler.kill()
            # a command that has all records does not need the cluster
            finish(command, trial, (0, 1) if trial.phase == AFTER_RECORDS else (1,))
            if trial.code == 1:
                check_sentence(command, trial, f"the cluster at {cluster.address} is gone")
        return True
    finally:
        command.end()
        if cluster is not None:
            cluster.close()
