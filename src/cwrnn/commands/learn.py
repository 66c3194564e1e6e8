"""The command `cwrnn clocks learn`: networks find their periods by gradient descent, beside the exponential series."""

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.table import Table

from ..environment import environment
from ..experiments.clocks import comparison as series
from ..experiments.clocks import learning
from ..experiments.clocks.learning import Outcome, Sequences, Settings, Words
from ..experiments.clocks.square_waves import Planted
from ..experiments.errors import ExperimentError
from ..experiments.json_safe import make_json_safe
from ..experiments.report.drawing import NMSE, PERCENT, percent, short, write
from ..experiments.sweep.batches import use_one_thread
from ..experiments.sweep.interrupts import interrupts
from ..experiments.sweep.run import Data, Dataset
from ..experiments.words.corpus import Corpus
from . import clocks_options, options
from .clocks_options import DataOption, ModulesOption, Task, TaskName
from .console import guard_output, handle_errors, make_console, make_error_console, show_counts

EPOCHS = {TaskName.GENERATION: 1000, TaskName.WORDS: 200}
RATES = {TaskName.GENERATION: 0.02, TaskName.WORDS: 0.01}

NUMBERS, SPEC = "learned.json", "schedule.txt"

EXPONENTIAL = (
    "Parameters of the exponential networks, at most. Learned ones begin with as many; modules that find the same "
    "period become one, which has some more."
)

EXAMPLES = """examples:

\b
cwrnn clocks learn --data squares:3,7,21x40 --runs 1 --modules 4 --size 200   planted periods
cwrnn clocks learn --data song.flac --longest 64             for a piece of music
cwrnn clocks learn --task words --size 1000 --runs 10        for the bundled words
cwrnn clocks learn --json --out out/mine                     all numbers, also in out/mine/learned.json

It takes minutes, and an interrupted training is lost: there is no --resume.

exit codes: 0 a schedule was found, 1 an error, 2 wrong usage, 130 interrupted
"""


@dataclass(frozen=True)
class Found:
    """The networks of both kinds, on the same data."""

    exponential: Sequence[Outcome]
    learned: Sequence[Outcome]
    shape: tuple[int, int]
    """Inputs and outputs."""

    @property
    def kinds(self) -> dict[str, Sequence[Outcome]]:
        """By name, the exponential series first."""
        return {"exponential": self.exponential, "learned": self.learned}

    @property
    def data(self) -> list[str]:
        """What was learned."""
        return list(dict.fromkeys(outcome.data for outcome in self.learned))


def learn(
    task: Task = TaskName.GENERATION,
    data: DataOption = None,
    size: Annotated[int | None, clocks_options.size(EXPONENTIAL)] = None,
    modules: ModulesOption = None,
    longest: Annotated[int, typer.Option(min=2, max=4096, metavar="P", help="The longest period.")] = 32,
    runs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Networks of each kind, for every sequence; for words, in all.")
    ] = 8,
    epochs: Annotated[
        int | None,
        typer.Option("--epochs", min=2, metavar="N", help="Of each training.", show_default="1000, words: 200"),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option("--learning-rate", metavar="R", help="Of the weights.", show_default="0.02, words: 0.01"),
    ] = None,
    seed: Annotated[
        int,
        typer.Option("--seed", min=0, max=2**31, metavar="N", help="Of the first network; the next count from there."),
    ] = 0,
    out: Annotated[Path | None, options.out("out/learned", "Where numbers, picture and schedule go.")] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the periods by gradient descent: networks whose clocks are learned, beside those of the exponential series.

    Both kinds have the same modules, initial weights and updates. Prints the errors of both, how far they moved when
    the clocks were made hard, and the periods that were found; ends with the schedule of the network whose training
    error is the smallest share of the exponential series' on the same data, which every other command takes as
    --schedule.
    """
    folder = out or Path("out/learned")
    for name in (NUMBERS, SPEC):
        if (folder / name).exists():
            raise typer.BadParameter(f"{folder} has a {name} already: choose another folder", param_hint="--out")
    datasets = clocks_options.load(task, data, quiet)
    limit, count = clocks_options.budget(task, size), clocks_options.module_count(task, modules)
    shape = series.shape(datasets[0])
    with clocks_options.blamed():
        usual = series.at_budget(series.series(series.PAPERS, count), count, limit, *shape)
    settings = Settings(
        hidden=usual.hidden_size,
        modules=count,
        longest=longest,
        epochs=epochs or EPOCHS[task],
        learning_rate=clocks_options.check_rate(learning_rate) or RATES[task],
    )
    with handle_errors(), use_one_thread():
        started = time.monotonic()
        try:
            (folder / "figures").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ExperimentError(f"--out {folder}: {error.strerror}") from error
        with show_counts("training", quiet=quiet) as show:
            found = train(datasets, runs, settings, seed, show)
        chosen = learning.best(found.learned, found.exponential)
        if not math.isfinite(chosen.hard.train):
            raise ExperimentError("no network could be trained: all of them diverged; try a lower --learning-rate")
        drawn = _draw(found, datasets, task, folder)
        numbers = {
            "task": task.value, "data": [each.name for each in datasets], "settings": vars(settings),
            "schedule": chosen.schedule.spec, "parameters": chosen.schedule.parameter_count(*shape),
            "clocks": [_described(name, of, found) for name, of in found.kinds.items()],
            "planted": _planted(found, datasets), "networks": [
                {"clocks": name} | _network(outcome, found) for name, of in found.kinds.items() for outcome in of
            ],
            "seconds": time.monotonic() - started, "figures": [str(path.resolve()) for path in drawn],
            "environment": environment(),
        }  # fmt: skip
        text = json.dumps(make_json_safe(numbers), allow_nan=False)
        (folder / NUMBERS).write_text(f"{text}\n", encoding="utf-8")
        (folder / SPEC).write_text(f"{chosen.schedule.spec}\n", encoding="utf-8")
        with guard_output():
            if not (as_json and quiet):
                shown_on = make_error_console() if as_json else make_console()
                for part in _told(found, datasets, task):
                    shown_on.print(part, soft_wrap=isinstance(part, str))
            if as_json:
                print(text)
            else:
                print(f"\nThe best schedule is {chosen.schedule.spec}, of {numbers['parameters']} parameters:")
                print("its training error is the smallest share of the exponential series' on the same data.")
                print(f"To use it:\n  cwrnn reproduce {task.value} --methods cw --schedule {chosen.schedule.spec}")
                print(f"The picture is {drawn[-1].resolve()}")


def train(data: Sequence[Data], runs: int, settings: Settings, seed: int, show: Callable[[int, int], None]) -> Found:
    """The networks of both kinds, each with initial weights of its own; sequences of one length are learned at once."""
    tasks = _tasks(data, runs, seed)
    total = 2 * settings.epochs * sum(task.updates for task, _ in tasks)
    done = 0

    def progress() -> None:
        nonlocal done
        done += 1
        show(done, total)
        interrupts.check()

    exponential, learned = (
        [
            outcome
            for task, seeds in tasks
            for outcome in learning.train(task, settings, seeds, learned=kind, progress=progress)
        ]
        for kind in (False, True)
    )
    return Found(exponential, learned, series.shape(data[0]))


def _tasks(data: Sequence[Data], runs: int, seed: int) -> list[tuple[learning.Task, list[int]]]:
    """What is to be learned, and the seeds of the networks."""
    if isinstance(data[0], Corpus):
        return [(Words(data[0]), list(range(seed, seed + runs)))]
    every = [each for each in data if isinstance(each, Dataset) for _ in range(runs)]
    groups: dict[int, list[int]] = {}
    for row, each in enumerate(every):
        groups.setdefault(len(each.samples), []).append(row)
    return [(Sequences([every[row] for row in rows]), [seed + row for row in rows]) for rows in groups.values()]


def _told(found: Found, data: Sequence[Data], task: TaskName) -> Iterable[Table | str]:
    """What came out, for a terminal."""
    yield _table(found, task)
    counts = Counter(outcome.schedule.periods for outcome in found.learned)
    yield "\nPeriods that were found:"
    for periods, times in counts.most_common(10):
        yield f"  {times:3d} x  {', '.join(map(str, periods))}"
    if len(counts) > 10:
        yield f"  and {len(counts) - 10} more, in {NUMBERS}"
    for each in _planted(found, data):
        yield (
            f"{each['period']} was planted: found by {each['found']} of {each['networks']} networks, explained by "
            f"{each['explained']}; of the exponential series by {each['exponential explained']}"
        )


def _table(found: Found, task: TaskName) -> Table:
    words = task is TaskName.WORDS
    written = percent if words else short
    table = Table(
        title="Learned clocks beside the exponential series",
        caption=("Errors in percent of the test set" if words else "NMSE, of planted sequences against the waves "
        "without noise") + "; hardened: by how much the error changed at most when clocks were made integer periods. "
        "Modules that found the same period are one larger module with more weights.",
        caption_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False,
    )  # fmt: skip
    table.add_column("\ndata")
    table.add_column("\nclocks")
    measure = "error %" if words else "NMSE"
    for header in ("net-\nworks", "para-\nmeters", f"median\n{measure}", "\nmean", "\nworst", "hard-\nened"):
        table.add_column(header, justify="right", no_wrap=True)
    groups = [[name] for name in found.data] + ([found.data] if len(found.data) > 1 else [])
    for names in groups:
        for kind, outcomes in found.kinds.items():
            of = [outcome for outcome in outcomes if outcome.data in names]
            said = _described(kind, of, found)
            low, high = said["parameters"]
            table.add_row(
                names[0] if len(names) == 1 else "all",
                kind,
                str(len(of)),
                str(low) if low == high else f"{low}-{high}",
                *(written(said[key]) for key in ("median", "mean", "worst")),
                f"{100 * said['hardened']:.2f} %",
            )
    return table


def _described(kind: str, outcomes: Sequence[Outcome], found: Found) -> dict[str, Any]:
    errors = np.array([outcome.hard.reported for outcome in outcomes])
    # one that diverged is the worst
    errors = np.where(np.isfinite(errors), errors, np.inf)
    counts = [outcome.schedule.parameter_count(*found.shape) for outcome in outcomes]
    return {
        "clocks": kind, "networks": len(outcomes), "parameters": [min(counts), max(counts)],
        "median": float(np.median(errors)), "mean": float(errors.mean()), "worst": float(errors.max()),
        "hardened": max(outcome.changed for outcome in outcomes),
    }  # fmt: skip


def _network(outcome: Outcome, found: Found) -> dict[str, Any]:
    return {
        "data": outcome.data, "seed": outcome.seed, "schedule": outcome.schedule.spec,
        "parameters": outcome.schedule.parameter_count(*found.shape), "error": outcome.hard.reported,
        "error before hardening": outcome.soft.reported, "training error": outcome.hard.train,
    }  # fmt: skip


def _planted(found: Found, data: Sequence[Data]) -> list[dict[str, Any]]:
    """For every planted period: how many of the networks that heard it found it, and how many explain it."""
    heard = {Sequences([each]).name(0): each.periods for each in data if isinstance(each, Planted)}
    rows = []
    for period in sorted({period for periods in heard.values() for period in periods}):
        names = {name for name, periods in heard.items() if period in periods}
        usual, learned = (
            [outcome.schedule.periods for outcome in of if outcome.data in names] for of in found.kinds.values()
        )
        rows.append({
            "period": period, "networks": len(learned), "found": sum(period in each for each in learned),
            "explained": sum(learning.explained(period, each) for each in learned),
            "exponential explained": sum(learning.explained(period, each) for each in usual),
        })  # fmt: skip
    return rows


def _draw(found: Found, data: Sequence[Data], task: TaskName, folder: Path) -> list[Path]:
    # matplotlib takes its time to load: not before it is needed
    from ..experiments.clocks.learning_figures import learned_plot

    planted = sorted({period for each in data if isinstance(each, Planted) for period in each.periods})
    figure = learned_plot(found.exponential, found.learned, PERCENT if task is TaskName.WORDS else NMSE, planted)
    return list(write(figure, folder / "figures", "learned").values())
