"""The command line about clocks: `cwrnn clocks compare` holds series of periods side by side, `evolve` finds some."""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from ..environment import environment
from ..experiments import task as tasks
from ..experiments.clocks import comparison as series
from ..experiments.clocks import evolution
from ..experiments.clocks.judging import Judge
from ..experiments.errors import ExperimentError
from ..experiments.json_safe import make_json_safe
from ..experiments.report.drawing import count as counted
from ..experiments.report.drawing import percent, short, write
from ..experiments.sweep.driver import open_sweep
from ..experiments.sweep.run import Run
from ..experiments.sweep.store import FILE
from ..schedule import Schedule
from . import clocks_options, options
from .clocks_options import DataOption, ModulesOption, SizeOption, Task, TaskName
from .console import (
    exit_if_failed,
    format_command,
    format_duration,
    guard_output,
    handle_errors,
    make_console,
    make_error_console,
    print_failures,
    show_progress,
)
from .options import EngineName

COMPARE_EXAMPLES = """examples:

\b
cwrnn clocks compare                                         on the bundled music
cwrnn clocks compare --task words --size 2500 --runs 10      on the bundled words
cwrnn clocks compare --data squares:3,7,21x20 --schedule 1:4,3:4,7:4,21:4 --modules 4 --size 240
cwrnn clocks compare --series exponential-2,fibonacci --data song.flac

exit codes: 0 every run has a record and none failed, 1 some failed or an error, 2 wrong usage, 130 interrupted
"""

EVOLVE_EXAMPLES = """examples:

\b
cwrnn clocks evolve --data squares:3,7,21 --modules 4 --size 240   planted periods are found again
cwrnn clocks evolve --data song.flac --generations 30              for a piece of music
cwrnn clocks evolve --task words --size 1000 --sizes               for words, and the sizes of the modules too
cwrnn clocks evolve --data song.flac --resume                      go on after an interruption

exit codes: 0 a schedule was found and no run failed, 1 some failed or an error, 2 wrong usage, 130 interrupted
"""

COMPARED = "Where the store and the picture (figures/clocks.svg and .png) go; `cwrnn report DIR` makes a page of them."
EVOLVED = (
    "Where the store goes, and in the end schedule.txt with what was found; `cwrnn report DIR` makes a page of it."
)

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Other clocks than 1, 2, 4, ...")


EpochsOption = Annotated[
    int | None, typer.Option("--epochs", min=1, metavar="N", help="Of each training.", show_default="the paper's")
]
RateOption = Annotated[
    float | None, typer.Option("--learning-rate", metavar="R", help="Of the weights.", show_default="the paper's")
]


@app.command("compare", epilog=COMPARE_EXAMPLES)
def compare(
    context: typer.Context,
    task: Task = TaskName.GENERATION,
    data: DataOption = None,
    names: Annotated[
        str, typer.Option("--series", metavar="LIST", help="Which; the first is what the others are held against.")
    ] = ",".join(series.SERIES),
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            metavar="SPEC",
            help="A schedule of your own beside them, of --size parameters at most; may be repeated.",
        ),
    ] = None,
    size: SizeOption = None,
    modules: ModulesOption = None,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Initial weights, for each series and sequence.")] = 20,
    epochs: EpochsOption = None,
    learning_rate: RateOption = None,
    seed: options.Seed = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.out("out/clocks", COMPARED)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Networks with other series of periods than the paper's, all of about as many parameters.

    Prints what came of every series and whether it differs from the first one by more than chance, and draws it.
    """
    options.check_engine(engine_name, scheduler, workers)
    chosen = _series(names)
    datasets = clocks_options.load(task, data, quiet)
    limit, count = clocks_options.budget(task, size), clocks_options.module_count(task, modules)
    own = {f"own {spec}": _own(spec, limit, series.shape(datasets[0])) for spec in schedule or []}
    with clocks_options.blamed():
        planned = series.plan(
            task.value,
            datasets,
            names=chosen,
            size=limit,
            modules=count,
            runs=runs,
            epochs=epochs,
            seed=seed,
            learning_rate=clocks_options.check_rate(learning_rate),
            own=own,
        )
    folder, stderr = out or Path("out/clocks"), make_error_console()
    with (
        handle_errors(context.obj),
        open_sweep(
            folder,
            engine=engine_name.value,
            scheduler=scheduler,
            workers=workers,
            resume=resume,
            command=format_command(context.obj),
        ) as sweep,
        show_progress(quiet=quiet, store=folder / FILE) as progress,
    ):
        store = sweep.store
        started = time.monotonic()
        every = list({run.key: run for group in planned.values() for run in group}.values())
        series.keep(store, planned)
        sweep.train(datasets, every, progress=progress)
        records = sweep.select(every)
        found = series.compare(series.by_series(planned, records))
        drawn = _draw(found, task, folder)
        measure = partial(percent, unit="") if task is TaskName.WORDS else short
        with guard_output():
            if not (as_json and quiet):
                (stderr if as_json else make_console()).print(_table(found, measure, task), soft_wrap=False)
            if as_json:
                print(json.dumps(make_json_safe({
                    "task": tasks.CLOCKS[task.value], "series": [_described(each) for each in found],
                    "size": limit, "modules": count, "runs": runs, "seed": seed, **_trained(every[0]),
                    "data": [each.name for each in datasets], "seconds": time.monotonic() - started,
                    "store": str(store.path.resolve()), "figures": [str(path.resolve()) for path in drawn],
                    "environment": environment(),
                }), allow_nan=False))  # fmt: skip
            else:
                print(f"\nThe picture is {drawn[-1].resolve()}")
            print_failures(records)
        exit_if_failed(records)


@app.command("evolve", epilog=EVOLVE_EXAMPLES)
def evolve(
    context: typer.Context,
    task: Task = TaskName.GENERATION,
    data: DataOption = None,
    size: SizeOption = None,
    modules: ModulesOption = None,
    longest: Annotated[
        int | None,
        typer.Option(
            min=2, max=2**20, metavar="P", help="The longest period.", show_default="2^(modules - 1), 32 at least"
        ),
    ] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Evolve the modules' shares of the units too.")] = False,
    generations: Annotated[int, typer.Option(min=1, metavar="N", help="How long.")] = 15,
    population: Annotated[int, typer.Option(min=4, metavar="N", help="Candidates of each generation.")] = 12,
    runs: Annotated[int, typer.Option(min=1, metavar="N", help="Initial weights by which a candidate is judged.")] = 3,
    epochs: EpochsOption = None,
    learning_rate: RateOption = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, metavar="N", help="Of the search, and of its networks.")] = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.out("out/evolution", EVOLVED)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find the periods by evolution: many candidates are trained, the better ones lead to the next.

    Ends with a schedule that every other command takes as --schedule. Candidates are judged by the median error of
    their networks, of words by the training set's cross entropy: the test set has no say in it. A run that diverges
    counts as the worst.
    """
    options.check_engine(engine_name, scheduler, workers)
    datasets = clocks_options.load(task, data, quiet)
    limit, count = clocks_options.budget(task, size), clocks_options.module_count(task, modules)
    shape = series.shape(datasets[0])
    with clocks_options.blamed():
        space = evolution.Space(count, longest or min(2**20, max(32, 2 ** (count - 1))), limit, *shape, sizes)
        space.decode(space.start)
    folder, stderr = out or Path("out/evolution"), make_error_console()
    rate = clocks_options.check_rate(learning_rate)

    def plan(schedule: Schedule) -> list[Run]:
        kind = tasks.CLOCKS[task.value]
        return [
            run for each in datasets for run in series.plan_schedule(kind, each, schedule, runs, epochs, seed, rate)
        ]

    with (
        handle_errors(context.obj),
        open_sweep(
            folder,
            engine=engine_name.value,
            scheduler=scheduler,
            workers=workers,
            resume=resume,
            command=format_command(context.obj),
        ) as sweep,
        show_progress(quiet=quiet, lines=False) as progress,
    ):
        store = sweep.store
        started = time.monotonic()
        sweep.add_data(datasets)
        judge = Judge(sweep, datasets, plan, progress)
        if not quiet:
            networks = counted(runs * len(datasets), "network")
            stderr.print(
                f"{generations} generations of {population} candidates, {networks} each; the store is {store.path}"
            )
        last = None
        took: list[float] = []
        found = evolution.evolve(space, judge, generations=generations, population=population, seed=seed)
        for number in range(1, generations + 1):
            judge.begin(f"generation {number} of {generations}")
            began = time.monotonic()
            last = next(found)
            if judge.trained:
                took.append(time.monotonic() - began)
            if not quiet:
                left = (generations - number) * sum(took) / len(took) if took else 0.0
                stderr.print(_told(last, judge, time.monotonic() - started, left))
        assert last is not None
        if last.best_error >= evolution.WORST:
            print_failures(judge.failures)
            raise ExperimentError(
                "no candidate is of use: of each, half of the runs or more diverged or failed; try a lower "
                "--learning-rate"
            )
        (folder / "schedule.txt").write_text(f"{last.best.spec}\n", encoding="utf-8")
        with guard_output():
            if as_json:
                print(json.dumps(make_json_safe({
                    "schedule": last.best.spec, "periods": last.best.periods, "sizes": last.best.sizes,
                    "error": last.best_error, "parameters": last.best.parameter_count(*shape),
                    "task": tasks.CLOCKS[task.value], "size": limit, "modules": count, "runs": runs, "seed": seed,
                    **_trained(plan(last.best)[0]), "generations": generations, "population": population,
                    "failed": len(judge.failures), "seconds": time.monotonic() - started,
                    "store": str(store.path.resolve()), "environment": environment(),
                }), allow_nan=False))  # fmt: skip
            else:
                print(f"The best schedule is {last.best.spec}")
                print(f"Its error is {last.best_error:.3g}; the median of {runs * len(datasets)} networks.")
                print(f"\nTo use it:\n  cwrnn reproduce {task.value} --methods cw --schedule {last.best.spec}")
            print_failures(judge.failures)
        if judge.failures:
            raise typer.Exit(1)


def _told(found: evolution.Generation, judge: Judge, gone: float, left: float) -> str:
    """What a generation came to."""
    known = found.best_error < evolution.WORST
    best = f"best {found.best_error:.3g} with {found.best.spec}" if known else "none is of use"
    time_left = f", about {format_duration(left)} left" if left else ""
    return "; ".join(filter(None, [f"{judge.step}: {best}", judge.lost(), f"{format_duration(gone)} gone{time_left}"]))


def _series(text: str) -> list[str]:
    names = list(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for name in names:
        if name not in series.SERIES:
            raise typer.BadParameter(
                f"expected some of {', '.join(series.SERIES)}, got {name!r}", param_hint="--series"
            )
    return names


def _own(text: str, size: int, shape: tuple[int, int]) -> Schedule:
    found = options.schedule(text)
    assert found is not None
    parameters = found.parameter_count(*shape)
    if parameters > size:
        raise typer.BadParameter(
            f"{text} has {parameters} parameters, and --size allows {size}: all are compared at one budget",
            param_hint="--schedule",
        )
    return found


def _trained(run: Run) -> dict[str, Any]:
    return {"epochs": run.settings.epochs, "learning_rate": run.settings.learning_rate}


def _table(found: Sequence[series.Compared], written: Any, task: TaskName) -> Table:
    measure = "error %" if task is TaskName.WORDS else "NMSE"
    table = Table(
        title="Clocks: what came of every series of periods",
        caption=f"better: how probable it is that a run has a lower error than one of {found[0].name} on the same "
        "data; p: of so large a difference by chance (ranks within each data set, corrected by Holm's method). Runs "
        "that diverged count as the worst there. random is one draw.",
        caption_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False,
    )  # fmt: skip
    # a schedule is one long word
    table.add_column("\nseries", overflow="fold")
    for header in ("para-\nmeters", f"median\n{measure}", "\nmean", "di-\nverged", "\nbetter", "\np"):
        table.add_column(header, justify="right", no_wrap=True)
    for each in found:
        runs = each.box.finished + each.box.diverged + each.box.failed
        table.add_row(
            each.name,
            str(each.parameters),
            written(each.box.median),
            written(each.box.mean),
            f"{each.box.diverged} of {runs}",
            "" if each.better is None else f"{100 * each.better:.0f} %",
            "" if each.p is None else f"{each.p:.2g}",
        )
    return table


def _draw(found: Sequence[series.Compared], task: TaskName, folder: Path) -> list[Path]:
    # matplotlib takes its time to load: not before it is needed
    from ..experiments.clocks.figures import series_plot

    figure = series_plot(found, "error rate" if task is TaskName.WORDS else "NMSE")
    return list(write(figure, folder / "figures", "clocks").values())


def _described(each: series.Compared) -> dict[str, Any]:
    box_ = each.box
    return {
        "name": each.name, "schedules": each.schedules, "parameters": each.parameters, "finished": box_.finished,
        "diverged": box_.diverged, "failed": box_.failed, "mean": box_.mean, "median": box_.median,
        "best": box_.minimum, "better": each.better, "p": each.p,
    }  # fmt: skip
