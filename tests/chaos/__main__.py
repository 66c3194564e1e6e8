"""The command line of chaos: plans the faults, makes them, and prints a table of the results."""

import argparse
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from itertools import count
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from . import cluster, models, sweeps
from .command import Command
from .faults import build_library
from .table import describe_machine, format_markdown, write_results
from .trial import Comparison, FaultQueue, Trial

Report = Callable[[Trial], None]
Disturb = Callable[[int, FaultQueue, random.Random, Report], Comparison | None]
"""Makes one command under faults of the queue; None if all of them are made."""

SCENARIOS = ("kills", "full", "models", "dask")

EXAMPLES = """\
scenarios:
  kills   `cwrnn reproduce` of each task: SIGKILL to all its processes, to the main one, to a worker, and before or in
          the middle of a file operation; then SIGTERM, Ctrl-C and SIGSTOP, a tenth as often each
  full    the same commands on a disk that is full from a file operation on, and on a small file system (as root)
  models  `cwrnn words train`: the same faults, on the model file and the cache of features
  dask    `cwrnn reproduce --engine dask`: a worker is killed, the scheduler is killed, the command is killed

examples:
  make chaos           everything, 200 kills of sweeps: 20 to 40 minutes on two cores
  make chaos KILLS=10  the short version: about 6 minutes
  PYTHONPATH=tests python -m chaos --only dask --only full     two scenarios
  PYTHONPATH=tests python -m chaos --seed 7 --out out/chaos-7  draw other times; keep the evidence elsewhere

The folder --out gets chaos.md (the table), chaos.json (every fault), and for each problem the folder of its command:
the store as it was left, and the logs of all commands that worked on it. Do not change or commit the source while this
runs: records hold the commit.

exit codes: 0 everything is equal, 1 there is a problem, 2 wrong usage, 130 interrupted
"""


def main() -> int:
    """Makes all faults, and returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m chaos",
        description="Kill the commands of cwrnn at random times, fill their disk, kill their cluster; let them go on, "
        "and compare the results with those of undisturbed commands.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--kills",
        type=int,
        default=200,
        metavar="N",
        help="kills of sweeps (default: 200); the number of all other faults follows from it",
    )
    parser.add_argument("--only", action="append", choices=SCENARIOS, help="a scenario; may be repeated (default: all)")
    parser.add_argument("--seed", type=int, default=None, help="the seed of the times (default: a random one)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="commands at once (default: 2)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/chaos"),
        metavar="FOLDER",
        help="results and evidence (default: out/chaos); those of an earlier call are removed",
    )
    arguments = parser.parse_args()
    if arguments.kills < 1 or arguments.jobs < 1:
        parser.error("--kills and --jobs: expected at least 1")
    if not sys.platform.startswith("linux"):
        parser.error("needs Linux: it reads /proc")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # a shell lets its background jobs ignore Ctrl-C, and the commands would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return Chaos(arguments).make()


class Chaos:
    """All scenarios, one after the other."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.kills: int = arguments.kills
        self.jobs: int = arguments.jobs
        self.scenarios = arguments.only or SCENARIOS
        self.seed = random.SystemRandom().randrange(2**31) if arguments.seed is None else arguments.seed
        self.out: Path = arguments.out.resolve()
        self.trials: list[Trial] = []
        self.comparisons: list[Comparison] = []
        self.notes: list[str] = []
        self._chance = random.Random(self.seed)
        self._undisturbed: dict[str, sweeps.Undisturbed] = {}

    def make(self) -> int:
        """Makes the faults of all scenarios, prints the table and returns the exit code."""
        started = time.monotonic()
        if (self.out / "chaos.json").exists() or not self.out.exists():
            shutil.rmtree(self.out, ignore_errors=True)
        elif any(self.out.iterdir()):
            raise SystemExit(f"{self.out} is not empty and has no results of chaos: choose another folder")
        self.out.mkdir(parents=True, exist_ok=True)
        about = describe_machine(self.seed)
        self.library = build_library(self.out)
        if self.library is None:
            self.notes.append("There is no C compiler: no fault was made at a file operation.")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        try:
            with Progress(*columns) as self.bars:
                for scenario in self.scenarios:
                    getattr(self, f"make_{scenario}")()
        except KeyboardInterrupt:
            self.notes.append("Interrupted.")
        about["minutes"] = (time.monotonic() - started) / 60
        page = write_results(self.out, about, self.trials, self.comparisons, self.notes)
        print(format_markdown(about, self.trials, self.comparisons, self.notes))
        print(f"the table is {page}", flush=True)
        if "Interrupted." in self.notes:
            self._end_at_once()
        wrong = any(result.problems for result in (*self.trials, *self.comparisons))
        return int(wrong or not self.comparisons)

    def _end_at_once(self) -> None:
        """Kills the commands that are running, unmounts their file systems, and exits without waiting for threads."""
        Command.is_closed = True
        for command in list(Command.running):
            command.end()
        sweeps.unmount_all(self.out)
        os._exit(130)

    def make_kills(self) -> None:
        """Kills sweeps, and sends other signals."""
        kinds = [kind for kind in sweeps.KILLS if self.library is not None or kind not in sweeps.AT_OPERATION]
        faults = [kinds[number % len(kinds)] for number in range(self.kills)]
        faults += [kind for kind in sweeps.SIGNALS for _ in range(-(-self.kills // 10))]
        self._chance.shuffle(faults)
        self._disturb_sweeps("kills", faults)

    def make_full(self) -> None:
        """Fills the disk of sweeps."""
        number = -(-self.kills // 8)
        if self.library is not None:
            self._disturb_sweeps("full", [sweeps.FULL] * number)
        if sweeps.can_mount(self.out):
            self._disturb_sweeps("small", [sweeps.SMALL] * number)
        else:
            self.notes.append("This process may not mount file systems: none was too small.")

    def make_models(self) -> None:
        """Kills the training of recognisers, and fills its disk."""
        bar = self.bars.add_task("models: undisturbed training")
        undisturbed = models.run_undisturbed(self.out / "models" / "undisturbed", self.library)
        faults = models.plan_faults(undisturbed, -(-self.kills // 4), self._chance)

        def disturb(number: int, queue: FaultQueue, chance: random.Random, report: Report) -> Comparison | None:
            where = self.out / "models" / f"{number:03}"
            return models.disturb_training(undisturbed, where, queue, chance, self.library, report)

        self._make("models", bar, faults, disturb)

    def make_dask(self) -> None:
        """Kills workers, schedulers, and commands that have a cluster of their own."""
        if find_spec("distributed") is None:
            self.notes.append("Dask is not installed: no cluster was killed.")
            return
        bar = self.bars.add_task("dask: undisturbed sweep")
        undisturbed = self._run_undisturbed(cluster.TASK)
        faults = [fault for fault in cluster.FAULTS for _ in range(-(-self.kills // 25))]

        def disturb(number: int, queue: FaultQueue, chance: random.Random, report: Report) -> Comparison | None:
            return cluster.disturb_cluster(undisturbed, self.out / "dask" / f"{number:03}", queue, chance, report)

        self._make("dask", bar, faults, disturb)

    def _disturb_sweeps(self, name: str, faults: list[str]) -> None:
        bar = self.bars.add_task(f"{name}: undisturbed sweeps")
        undisturbed = [self._run_undisturbed(task) for task in sweeps.TASKS]

        def disturb(number: int, queue: FaultQueue, chance: random.Random, report: Report) -> Comparison | None:
            sweep = undisturbed[number % len(undisturbed)]
            where = self.out / name / f"{sweep.task}-{number:03}"
            return sweeps.disturb_sweep(sweep, where, queue, chance, self.library, report)

        self._make(name, bar, faults, disturb)

    def _run_undisturbed(self, task: str) -> sweeps.Undisturbed:
        """The undisturbed sweep of a task, which all scenarios share."""
        if task not in self._undisturbed:
            self._undisturbed[task] = sweeps.run_undisturbed(task, self.out / "undisturbed" / task, self.library)
        return self._undisturbed[task]

    def _make(self, name: str, bar: TaskID, faults: list[str], disturb: Disturb) -> None:
        """Calls `disturb` in several threads until all faults are made."""
        queue = FaultQueue(faults, tries=3 * len(faults))
        self.bars.update(bar, description=f"{name}: faults", total=len(faults))
        lock = threading.Lock()
        numbers = count()

        def report(trial: Trial) -> None:
            with lock:
                self.trials.append(trial)
                # a bar is shown on a terminal only
                if not self.bars.console.is_terminal:
                    done = sum(other.problems == [] for other in self.trials)
                    print(f"{done} of {len(self.trials)} fine: {trial}", flush=True)
            self.bars.advance(bar)

        def work(seed: int) -> None:
            chance = random.Random(seed)
            while queue.has_more():
                with lock:
                    number = next(numbers)
                comparison = disturb(number, queue, chance, report)
                if comparison is not None:
                    with lock:
                        self.comparisons.append(comparison)

        pool = ThreadPoolExecutor(self.jobs)
        for future in [pool.submit(work, self._chance.randrange(2**31)) for _ in range(self.jobs)]:
            future.result()


if __name__ == "__main__":
    sys.exit(main())
