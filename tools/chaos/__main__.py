"""The command line of chaos: plans the faults, makes them, and prints a table of the results."""

import argparse
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import sweeps
from .faults import build_library
from .table import describe_machine, format_markdown, write_results
from .trial import Comparison, FaultQueue, Trial

SCENARIOS = ("kills", "full", "models", "dask")

EXAMPLES = """\
scenarios:
  kills   `cwrnn reproduce` of each task: SIGKILL to all its processes, to the main one, to a worker, and before or in
          the middle of a file operation; then SIGTERM, Ctrl-C and SIGSTOP, a tenth as often each
  full    the same commands on a disk that is full from a file operation on, and on a small file system (as root)
  models  `cwrnn words train`: the same faults, on the model file and the cache of features
  dask    `cwrnn reproduce --engine dask`: a worker is killed, the scheduler is killed, the command is killed

examples:
  python -m tools.chaos                             everything, 200 kills of sweeps: 20 to 40 minutes on two cores
  python -m tools.chaos --kills 10                  the short version: 3 to 5 minutes
  python -m tools.chaos --only dask --only full     two scenarios
  python -m tools.chaos --seed 7 --out out/chaos-7  draw other times; keep the evidence elsewhere

The folder --out gets chaos.md (the table), chaos.json (every fault), and for each problem the folder of its command:
the store as it was left, and the logs of all commands that worked on it. Do not change or commit the source while this
runs: records hold the commit.

exit codes: 0 everything is equal, 1 there is a problem, 2 wrong usage
"""


def main() -> int:
    """Makes all faults, and returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m tools.chaos",
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
        with Progress(*columns) as self.bars:
            for scenario in self.scenarios:
                getattr(self, f"make_{scenario}")()
        about["minutes"] = (time.monotonic() - started) / 60
        page = write_results(self.out, about, self.trials, self.comparisons, self.notes)
        print(format_markdown(about, self.trials, self.comparisons, self.notes))
        print(f"the table is {page}")
        wrong = any(result.problems for result in (*self.trials, *self.comparisons))
        return int(wrong or not self.comparisons)

    def make_kills(self) -> None:
        """Kills sweeps, and sends other signals."""
        kinds = [kind for kind in sweeps.KILLS if self.library is not None or kind not in sweeps.AT_OPERATION]
        faults = [kinds[number % len(kinds)] for number in range(self.kills)]
        faults += [signal for signal in sweeps.SIGNALS for _ in range(-(-self.kills // 10))]
        self._chance.shuffle(faults)
        self._disturb_sweeps("kills", faults)

    def make_full(self) -> None:
        """Fills the disk of sweeps."""
        count = -(-self.kills // 8)
        if self.library is not None:
            self._disturb_sweeps("full", [sweeps.FULL] * count)
        if sweeps.can_mount(self.out):
            self._disturb_sweeps("small", [sweeps.SMALL] * count)
        else:
            self.notes.append("This process may not mount file systems: none was too small.")

    def _disturb_sweeps(self, name: str, faults: list[str]) -> None:
        queue = FaultQueue(faults, tries=3 * len(faults))
        bar = self.bars.add_task(f"{name}: undisturbed sweeps", total=len(faults))
        undisturbed = [sweeps.run_undisturbed(task, self.out / name, self.library) for task in sweeps.TASKS]
        self.bars.update(bar, description=f"{name}: faults")
        lock = threading.Lock()
        numbers = iter(range(10**6))

        def report(trial: Trial) -> None:
            with lock:
                self.trials.append(trial)
            self.bars.advance(bar)

        def work(seed: int) -> None:
            chance = random.Random(seed)
            while True:
                with lock:
                    number = next(numbers)
                if not queue.has_more():
                    return
                sweep = undisturbed[number % len(undisturbed)]
                where = self.out / name / f"{sweep.task}-{number:03}"
                comparison = sweeps.disturb_sweep(sweep, where, queue, chance, self.library, report)
                with lock:
                    self.comparisons.append(comparison)

        self._work(work)

    def _work(self, work: Callable[[int], None]) -> None:
        """Calls the function in several threads, each with a seed of its own."""
        seeds = [self._chance.randrange(2**31) for _ in range(self.jobs)]
        with ThreadPoolExecutor(self.jobs) as pool:
            for future in [pool.submit(work, seed) for seed in seeds]:
                future.result()


if __name__ == "__main__":
    sys.exit(main())
