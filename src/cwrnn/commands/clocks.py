"""The commands about clocks: `cwrnn clocks compare`, `choose`, `evolve` and `learn`."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.clocks.comparison import compare_clocks
from ..experiments.clocks.evolution import GenerationReport, evolve_clocks
from ..experiments.clocks.learning import learn_clocks
from ..experiments.clocks.series import SERIES
from ..experiments.limits import LARGEST_EPOCHS, LARGEST_GENERATIONS, LARGEST_POPULATION, LARGEST_RUNS
from ..experiments.sweep.store_file import FILE
from . import clock_choice, options
from .clocks_options import (
    DataOption,
    EpochsOption,
    LearningRateOption,
    MethodOption,
    ModulesOption,
    SizeOption,
    TaskOption,
    format_defaults,
    make_size_option,
)
from .console import (
    exit_if_failed,
    format_command,
    format_duration,
    handle_errors,
    make_error_console,
    print_failures,
    print_result,
    show_progress,
)
from .options import EngineName

COMPARE_EXAMPLES = """examples:

\b
cwrnn clocks compare                                         on the bundled music
cwrnn clocks compare --task words --size 2500 --runs 10      on the bundled words
cwrnn clocks compare --series exponential-2,fibonacci --data song.flac
cwrnn clocks compare --method cw-lstm --series exponential-2,linear   LSTMs with clocks
cwrnn clocks compare --data load.csv --target load            networks that generate a column of a table
cwrnn clocks compare --data load.csv --inputs temperature,wind --target load   networks that read other columns
cwrnn clocks compare --data squares:3,7,21x20 --schedule 1:4,3:4,7:4,21:4 --modules 4 --size 240

exit codes: 0 every run has a record and none failed, 1 failed runs or another error, 2 wrong usage, 130 interrupted
"""

EVOLVE_EXAMPLES = """examples:

\b
cwrnn clocks evolve --data squares:3,7,21 --modules 4 --size 240   finds the periods of the square waves
cwrnn clocks evolve --data song.flac --generations 30              for a piece of music
cwrnn clocks evolve --task words --size 1000 --sizes               for words, and the sizes of the modules too
cwrnn clocks evolve --data song.flac --resume                      continues after an interruption
cwrnn clocks evolve --data song.flac --method cw-gru               for GRUs with clocks
cwrnn clocks evolve --data load.csv --inputs temperature,wind --target load --longest 200

exit codes: 0 a schedule was found and no run failed, 1 failed runs or another error, 2 wrong usage, 130 interrupted
"""

LEARN_EXAMPLES = """examples:

\b
cwrnn clocks learn --data squares:3,7,21x40 --runs 1 --modules 4 --size 200   on square waves
cwrnn clocks learn --data song.flac --longest 64             for a piece of music
cwrnn clocks learn --task words --size 1000 --runs 10        for the bundled words
cwrnn clocks learn --data load.npz --inputs x.0,x.1 --target load
cwrnn clocks learn --json --out out/mine                     all numbers, also in out/mine/learned.json

Learning takes minutes. It cannot be resumed: an interrupted training is lost.

exit codes: 0 a schedule was found, 1 an error, 2 wrong usage, 130 interrupted
"""

COMPARE_FOLDER, EVOLVE_FOLDER, LEARN_FOLDER = (Path("out", name) for name in ("clocks", "evolution", "learned"))

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Compare, choose, evolve or learn periods other than 1, 2, 4, ..."
)
app.command("choose", epilog=clock_choice.EXAMPLES)(clock_choice.choose)


@app.command("compare", epilog=COMPARE_EXAMPLES)
def compare(
    context: typer.Context,
    task: TaskOption = None,
    data: DataOption = None,
    target: options.Target = None,
    inputs: options.Inputs = None,
    offset: options.Offset = 0.0,
    length: options.Length = None,
    series: Annotated[
        str,
        typer.Option("--series", metavar="LIST", help="Series to compare; the others are compared with the first."),
    ] = ",".join(SERIES),
    method: MethodOption = "cw",
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            "--schedule",
            metavar="SPEC",
            help="A schedule of your own to compare too, period:size,period:size,... with at most --size parameters. "
            "May be repeated.",
        ),
    ] = None,
    size: SizeOption = None,
    modules: ModulesOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, max=LARGEST_RUNS, metavar="N", help="Networks for each series and sequence.")
    ] = 20,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    seed: options.Seed = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[
        Path | None,
        options.make_out_option(
            COMPARE_FOLDER,
            help="Folder for the store and the figure (figures/clocks.svg and .png). `cwrnn report DIR` makes a page "
            "of it.",
        ),
    ] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare series of periods, all with the same number of modules and at most --size parameters.

    Prints the errors of every series, and whether they differ from the first one's by more than chance; draws them.
    """
    folder = out or COMPARE_FOLDER
    with handle_errors(context.obj, {"schedules": "--schedule"}):
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = compare_clocks(
                task,
                data,
                target=target,
                inputs=options.parse_words(inputs),
                offset=offset,
                length=length,
                series=[name.strip().lower() for name in series.split(",")],
                schedules=schedule or [],
                method=method,
                size=size,
                modules=modules,
                runs=runs,
                epochs=epochs,
                learning_rate=learning_rate,
                seed=seed,
                out=folder,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
            )
        print_result(result, as_json=as_json, aside=None if quiet else result)
        print_failures(result.failures)
        exit_if_failed(result.failures)


@app.command("evolve", epilog=EVOLVE_EXAMPLES)
def evolve(
    context: typer.Context,
    task: TaskOption = None,
    data: DataOption = None,
    target: options.Target = None,
    inputs: options.Inputs = None,
    offset: options.Offset = 0.0,
    length: options.Length = None,
    method: MethodOption = "cw",
    size: SizeOption = None,
    modules: ModulesOption = None,
    longest: Annotated[
        int | None,
        typer.Option(
            "--longest",
            min=2,
            max=2**20,
            metavar="P",
            help="The longest period.",
            show_default="2^(modules - 1), 32 at least",
        ),
    ] = None,
    sizes: Annotated[bool, typer.Option("--sizes", help="Evolve the sizes of the modules too.")] = False,
    generations: Annotated[
        int, typer.Option("--generations", min=1, max=LARGEST_GENERATIONS, metavar="N", help="Number of generations.")
    ] = 15,
    population: Annotated[
        int,
        typer.Option("--population", min=4, max=LARGEST_POPULATION, metavar="N", help="Candidates in each generation."),
    ] = 12,
    runs: Annotated[
        int,
        typer.Option("--runs", min=1, max=LARGEST_RUNS, metavar="N", help="Networks for each candidate and sequence."),
    ] = 3,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    seed: Annotated[
        int, typer.Option("--seed", min=0, max=2**31, metavar="N", help="Seed of the search and of its first network.")
    ] = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[
        Path | None,
        options.make_out_option(
            EVOLVE_FOLDER,
            help="Folder for the store, and for schedule.txt with the best schedule. `cwrnn report DIR` makes a page "
            "of it.",
        ),
    ] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find periods by evolution: many candidates are trained, and the better ones shape the next generation.

    Prints the best schedule, which every other command takes as --schedule, whether it is better than the series
    1, 2, 4, ..., and a command that uses it on the same data. A candidate is judged by the median error of its
    networks; for words by the cross entropy of the training set, and with --inputs by the NMSE of the validation part,
    so that the test set does not choose. A run that diverges counts as the worst.
    """
    folder, stderr = out or EVOLVE_FOLDER, make_error_console()

    def print_generation(report: GenerationReport) -> None:
        left = f", about {format_duration(report.seconds_left)} left" if report.seconds_left else ""
        if not quiet:
            stderr.print(f"{report}; {format_duration(report.seconds)} gone{left}")

    with handle_errors(context.obj):
        plan = f"up to {generations} generations of {population} candidates, {runs} networks each for every sequence"
        with show_progress(quiet=quiet, lines=False, plan=plan) as progress:
            result = evolve_clocks(
                task,
                data,
                target=target,
                inputs=options.parse_words(inputs),
                offset=offset,
                length=length,
                method=method,
                size=size,
                modules=modules,
                longest=longest,
                sizes=sizes,
                generations=generations,
                population=population,
                runs=runs,
                epochs=epochs,
                learning_rate=learning_rate,
                seed=seed,
                out=folder,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
                on_generation=print_generation,
            )
        print_result(result, as_json=as_json, aside=None if quiet else result)
        print_failures(result.failures)
        exit_if_failed(result.failures)


@app.command("learn", epilog=LEARN_EXAMPLES)
def learn(
    task: TaskOption = None,
    data: DataOption = None,
    target: options.Target = None,
    inputs: options.Inputs = None,
    offset: options.Offset = 0.0,
    length: options.Length = None,
    size: Annotated[
        int | None,
        make_size_option(
            "Number of parameters of the networks with the series 1, 2, 4, ..., at most. The others start with as "
            "many; modules that learn the same period become one module with more weights."
        ),
    ] = None,
    modules: ModulesOption = None,
    longest: Annotated[int, typer.Option("--longest", min=2, max=4096, metavar="P", help="The longest period.")] = 32,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            min=1,
            max=LARGEST_RUNS,
            metavar="N",
            help="Networks of each kind for every sequence; for words and tables, in all.",
        ),
    ] = 8,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=2,
            max=LARGEST_EPOCHS,
            metavar="N",
            help="Epochs of each training.",
            show_default=format_defaults(lambda task: task.learned_epochs),
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            metavar="R",
            help="Learning rate of the weights.",
            show_default=format_defaults(lambda task: task.learned_rate),
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", min=0, max=2**31, metavar="N", help="Seed of the first network; the next count from there."
        ),
    ] = 0,
    out: Annotated[
        Path | None, options.make_out_option(LEARN_FOLDER, help="Folder for learned.json, schedule.txt and the figure.")
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Find periods by gradient descent, and train networks with the series 1, 2, 4, ... in the same way.

    Both kinds of networks have the same modules, initial weights and updates. Prints the errors of both, how much they
    changed when the clocks became integer periods, the periods that were learned, and which kind is better. The best
    schedule, which every other command takes as --schedule, is that of the network whose training error is the
    smallest share of the series' on the same data.
    """
    with handle_errors():
        plan = f"{2 * runs} networks, half of them with learned clocks, for every sequence; for words, in all"
        with show_progress(quiet=quiet, lines=False, plan=plan) as progress:
            result = learn_clocks(
                task,
                data,
                target=target,
                inputs=options.parse_words(inputs),
                offset=offset,
                length=length,
                size=size,
                modules=modules,
                longest=longest,
                runs=runs,
                epochs=epochs,
                learning_rate=learning_rate,
                seed=seed,
                out=out or LEARN_FOLDER,
                progress=progress,
            )
        print_result(result, as_json=as_json, aside=None if quiet else result)
