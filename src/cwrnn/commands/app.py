"""The command line: `cwrnn reproduce` trains, `cwrnn report` draws what was trained, `cwrnn inspect` looks into it.

`cwrnn words` trains and uses a recogniser.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from rich.table import Table

from .. import __version__
from ..environment import environment
from ..experiments import paper as the_paper
from ..experiments.generation import music as audio
from ..experiments.generation import plan as generation
from ..experiments.generation.task import GENERATION
from ..experiments.report.statistics import SummaryRow, best_rates, summarise
from ..experiments.sweep.driver import Sweep, open_sweep
from ..experiments.sweep.run import FAILED, Dataset, Record, Run
from ..experiments.sweep.store import Store
from ..experiments.sweep.store_file import FILE
from ..experiments.task import Data
from ..experiments.words import corpus as corpora
from ..experiments.words import plan as words
from ..experiments.words import training as classification
from ..experiments.words.corpus import Corpus
from ..experiments.words.task import WORDS
from ..extras import require
from . import bench as bench_command
from . import (
    clocks as clocks_command,
)
from . import (
    inspect as inspect_command,
)
from . import (
    options,
    tables,
)
from . import (
    report as report_command,
)
from . import (
    words as words_command,
)
from .console import (
    exit_if_failed,
    format_command,
    format_page_path,
    guard_output,
    handle_errors,
    make_console,
    make_error_console,
    print_failures,
    print_json,
    show_progress,
)
from .loading import load_corpus, load_sequences
from .options import ALL_METHODS, EngineName


@dataclass(frozen=True)
class Part:
    """The runs of one task, or of its search."""

    data: Sequence[Data]
    planned: Sequence[Run]
    table: Callable[[Sequence[SummaryRow], dict[tuple[str, int], float]], Table]
    """Makes the table of the rows and, for a search, of the best learning rates."""
    search: bool = False


@dataclass(frozen=True)
class Order:
    """How the runs are to be trained and shown."""

    context: typer.Context
    folder: Path
    engine: EngineName
    scheduler: str | None
    workers: int | None
    resume: bool
    as_json: bool
    quiet: bool


def carry_out(parts: Sequence[Part], order: Order) -> None:
    """Trains, prints the tables and writes the page; exits with code 1 if a run failed."""
    with handle_errors(order.context.obj):
        started = time.monotonic()
        for package in ("matplotlib", "jinja2"):
            require(package, extra="experiments", purpose="the page")
        with (
            open_sweep(
                order.folder,
                engine=order.engine.value,
                scheduler=order.scheduler,
                workers=order.workers,
                resume=order.resume,
                command=format_command(order.context.obj),
            ) as sweep,
            show_progress(quiet=order.quiet, store=order.folder / FILE) as progress,
        ):
            data = [dataset for part in parts for dataset in part.data]
            sweep.train(data, [run for part in parts for run in part.planned], progress=progress)
            outcomes = [_Outcome.of(sweep, part) for part in parts]
            page = write_page(sweep.store, order.folder)
        records = [record for outcome in outcomes for record in outcome.records]
        shown_on = make_error_console() if order.as_json else make_console()
        with guard_output():
            if not (order.as_json and order.quiet):
                for part, outcome in zip(parts, outcomes, strict=True):
                    shown_on.print(part.table(outcome.rows, outcome.best), soft_wrap=False)
                    shown_on.print()
            print_failures(records)
            shown_on.print(format_page_path(page), soft_wrap=True)
        if order.as_json:
            summary = {
                "seconds": time.monotonic() - started,
                "store": str((order.folder / FILE).resolve()),
                "page": str(page.resolve()),
                "environment": environment(),
            }
            summaries = [outcome.summary(part) for part, outcome in zip(parts, outcomes, strict=True)]
            # a single task stands at the top
            print_json(summaries[0] | summary if len(parts) == 1 else {"tasks": summaries} | summary)
        exit_if_failed(records)


@dataclass(frozen=True)
class _Outcome:
    """The records of a part, and its table."""

    records: Sequence[Record]
    rows: Sequence[SummaryRow]
    best: dict[tuple[str, int], float]

    @classmethod
    def of(cls, sweep: Sweep, part: Part) -> "_Outcome":
        records = sweep.select(part.planned)
        return cls(records, summarise(records), best_rates(records) if part.search else {})

    def summary(self, part: Part) -> dict[str, Any]:
        return {
            "task": self.records[0].run.task,
            "rows": tables.described(self.rows, self.best),
            "runs": len(self.records),
            "failed": sum(record.status == FAILED for record in self.records),
            "data": [data.name for data in part.data],
        }


def write_page(store: Store, folder: Path) -> Path:
    """Writes the page of the store into the folder."""
    # importing matplotlib takes long
    from ..experiments.report.page import write_store_report

    return write_store_report(store, folder).page


@dataclass(frozen=True)
class Scale:
    """How much is run unless options say otherwise."""

    runs: int
    sizes: tuple[int, ...]
    out: str


QUICK = Scale(runs=6, sizes=the_paper.GENERATION_SIZES, out="out/generation")
PAPER = Scale(runs=100, sizes=the_paper.GENERATION_SIZES, out="out/generation")
SEARCH = Scale(runs=2, sizes=(max(the_paper.GENERATION_SIZES),), out="out/search")

WORDS_QUICK = Scale(runs=4, sizes=(min(the_paper.WORDS_SIZES), max(the_paper.WORDS_SIZES)), out="out/words")
WORDS_PAPER = Scale(runs=100, sizes=the_paper.WORDS_SIZES, out="out/words")
WORDS_SEARCH = Scale(runs=2, sizes=(max(the_paper.WORDS_SIZES),), out="out/words-search")

BOTH = "out/reproduce"

CODES = (
    "exit codes: 0 every run has a record and none failed, 1 some failed or an error, 2 wrong usage, 130 interrupted"
)

EXAMPLES = f"""examples:

\b
cwrnn reproduce generation                                   the result in two minutes
cwrnn reproduce generation --paper --out out/paper           all of the paper's 6000 runs
cwrnn reproduce generation --paper --out out/paper --resume  go on after an interruption
cwrnn reproduce generation --data song.flac --offset 12.5    a piece of music of your own
cwrnn reproduce generation --data snippets/*.wav --runs 20   several
cwrnn reproduce generation --methods lstm --no-peepholes --out out/plain
cwrnn reproduce generation --search --data song.flac         which learning rate is best
cwrnn reproduce generation --paper --engine dask --scheduler tcp://host:8786 --out out/paper

{CODES}
"""

WORDS_EXAMPLES = f"""examples:

\b
cwrnn reproduce words                                        the result in a minute
cwrnn reproduce words --paper --out out/words-paper          all of the paper's 1500 runs
cwrnn reproduce words --data timit:/corpora/TIMIT            the paper's own data
cwrnn reproduce words --data nltk-timit:/nltk_data/corpora/timit --words she,had,your,dark,suit
cwrnn reproduce words --data folder:recordings --sizes 10000 --runs 20
cwrnn reproduce words --search --methods lstm                which learning rate is best

{CODES}
"""

# plain help and plain errors: the same words on a terminal, in a pipe and in a log
app = typer.Typer(
    name="cwrnn", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
reproduce = typer.Typer(rich_markup_mode=None)
app.add_typer(reproduce, name="reproduce")
app.add_typer(clocks_command.app, name="clocks")
app.add_typer(words_command.app, name="words")
app.command("report")(report_command.report)
app.command("inspect", epilog=inspect_command.EXAMPLES)(inspect_command.inspect)
bench_command.add_to(app)


def run(arguments: Sequence[str]) -> int:
    """The exit code of `cwrnn` with these arguments."""
    try:
        app(args=list(arguments), prog_name="cwrnn", obj=list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _version(wanted: bool) -> None:
    if wanted:
        print(f"cwrnn {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """The Clockwork RNN's experiments."""


@reproduce.callback(invoke_without_command=True)
def reproduce_both(
    context: typer.Context,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.out(BOTH)] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Repeat an experiment of the paper; without a name, both of them in small, on one page."""
    if context.invoked_subcommand is not None:
        if (workers, out, resume, as_json, quiet) != (None, None, False, False, False):
            raise typer.BadParameter(f"options go behind the name: cwrnn reproduce {context.invoked_subcommand} ...")
        return
    datasets = load_sequences([audio.BUNDLE], 0.0, the_paper.GENERATION_SAMPLES)
    corpus = load_corpus(corpora.BUNDLE, None, quiet)
    parts = [
        _generation_part(datasets, generation.plan(datasets, sizes=QUICK.sizes, runs=QUICK.runs), QUICK.runs),
        _words_part(corpus, words.plan(corpus, sizes=WORDS_QUICK.sizes, runs=WORDS_QUICK.runs), WORDS_QUICK.runs),
    ]
    order = Order(context, Path(BOTH) if out is None else out, EngineName.LOCAL, None, workers, resume, as_json, quiet)
    carry_out(parts, order)


@reproduce.command("generation", epilog=EXAMPLES)
def reproduce_generation(
    context: typer.Context,
    more: Annotated[
        list[str] | None,
        # what the shell makes of --data *.wav; told there
        typer.Argument(metavar="DATA", hidden=True),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="bundle|FILE|FOLDER",
            help="What to learn: the five bundled snippets, a WAV, FLAC or OGG file, all in a folder; more may follow, "
            "as in --data *.wav, and it may be repeated.",
            show_default="bundle",
        ),
    ] = None,
    methods: options.Methods = ALL_METHODS,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST", help="Parameters of the networks.", show_default="100,250,500,1000; --search: 1000"
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Initial weights, for each method, size and sequence.",
            show_default=f"{QUICK.runs}; --paper: {PAPER.runs}; --search: {SEARCH.runs}",
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Updates of each network.")
    ] = the_paper.GENERATION_EPOCHS,
    paper: Annotated[bool, typer.Option("--paper", help="As much as the paper: 6000 runs.")] = False,
    search: options.Search = False,
    seed: options.Seed = 0,
    learning_rate: options.LearningRate = None,
    peepholes: options.Peepholes = True,
    schedule: options.ScheduleOption = None,
    offset: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="Where in the sound to begin.")] = 0.0,
    length: Annotated[
        int, typer.Option(min=2, metavar="SAMPLES", help="How much of it to learn.")
    ] = the_paper.GENERATION_SAMPLES,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.out(f"{QUICK.out}; --search: {SEARCH.out}")] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Networks learn to generate snippets of music: the paper's first task (section 4.1).

    Trains SRN, LSTM and CW-RNN of about equally many parameters, prints what came out beside what the paper says, and
    writes a page with figures and sound.
    """
    options.check_scale(paper, search)
    options.check_engine(engine_name, scheduler, workers)
    if not math.isfinite(offset):
        raise typer.BadParameter(f"expected a number of seconds, got {offset}", param_hint="--offset")
    scale = SEARCH if search else PAPER if paper else QUICK
    chosen = options.methods(methods)
    datasets = load_sequences([*(data or []), *(more or [])] or [audio.BUNDLE], offset, length)
    count = scale.runs if runs is None else runs
    asked: dict[str, Any] = {
        "methods": chosen,
        "sizes": scale.sizes if sizes is None else options.sizes(sizes),
        "runs": count,
        "epochs": epochs,
        "seed": seed,
        "peepholes": peepholes,
        "schedule": options.schedule(schedule),
    }
    planned = _planned(
        generation,
        datasets,
        search,
        learning_rate,
        GENERATION.learning_rates,
        GENERATION.searched_learning_rates,
        asked,
    )
    part = _generation_part(datasets, planned, count, search=search)
    folder = Path(scale.out) if out is None else out
    carry_out([part], Order(context, folder, engine_name, scheduler, workers, resume, as_json, quiet))


@reproduce.command("words", epilog=WORDS_EXAMPLES)
def reproduce_words(
    context: typer.Context,
    data: options.Words = corpora.BUNDLE,
    vocabulary: options.Vocabulary = None,
    methods: options.Methods = ALL_METHODS,
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Parameters of the networks.",
            show_default=f"{','.join(map(str, WORDS_QUICK.sizes))}; "
            f"--paper: {','.join(map(str, the_paper.WORDS_SIZES))}; --search: {WORDS_SEARCH.sizes[0]}",
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Initial weights, for each method and size.",
            show_default=f"{WORDS_QUICK.runs}; --paper: {WORDS_PAPER.runs}; --search: {WORDS_SEARCH.runs}",
        ),
    ] = None,
    epochs: options.WordEpochs = classification.MOST_EPOCHS,
    paper: Annotated[bool, typer.Option("--paper", help="As much as the paper: 1500 runs.")] = False,
    search: options.Search = False,
    seed: options.Seed = 0,
    learning_rate: options.LearningRate = None,
    peepholes: options.Peepholes = True,
    schedule: options.ScheduleOption = None,
    noise: options.Noise = the_paper.WORDS_NOISE,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.out(f"{WORDS_QUICK.out}; --search: {WORDS_SEARCH.out}")] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Networks learn to tell spoken words apart: the paper's second task (section 4.2).

    Trains SRN, LSTM and CW-RNN of about equally many parameters, prints how many words of the test set each takes for
    another one beside what the paper says, and writes a page with figures. The bundled words are synthetic speech.
    """
    options.check_scale(paper, search)
    options.check_engine(engine_name, scheduler, workers)
    options.check_noise(noise)
    scale = WORDS_SEARCH if search else WORDS_PAPER if paper else WORDS_QUICK
    chosen = options.methods(methods)
    corpus = load_corpus(data, vocabulary, quiet)
    count = scale.runs if runs is None else runs
    asked: dict[str, Any] = {
        "methods": chosen,
        "sizes": scale.sizes if sizes is None else options.sizes(sizes),
        "runs": count,
        "epochs": epochs,
        "seed": seed,
        "peepholes": peepholes,
        "schedule": options.schedule(schedule),
        "noise": noise,
    }
    planned = _planned(words, corpus, search, learning_rate, WORDS.learning_rates, WORDS.searched_learning_rates, asked)
    part = _words_part(corpus, planned, count, search=search)
    folder = Path(scale.out) if out is None else out
    carry_out([part], Order(context, folder, engine_name, scheduler, workers, resume, as_json, quiet))


def _planned(
    task: ModuleType,
    data: Any,
    search: bool,
    learning_rate: str | None,
    usual: Mapping[str, float],
    searched: Sequence[float],
    asked: Mapping[str, Any],
) -> list[Run]:
    """The runs that the options ask for of a task, or of the search of its learning rate."""
    rates = options.rates(None if search else learning_rate, asked["methods"], usual)
    grid = options.grid(learning_rate if search else None, searched)
    planned: list[Run]
    try:
        planned = (
            task.plan_search(data, learning_rates=grid, **asked)
            if search
            else task.plan(data, learning_rates=rates, **asked)
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--sizes") from error
    return planned


def _generation_part(datasets: Sequence[Dataset], planned: Any, runs: int, *, search: bool = False) -> Part:
    if search:
        return Part(datasets, planned, partial(tables.search, paper=the_paper.GENERATION_LEARNING_RATES), search=True)
    epochs = planned[0].settings.epochs
    return Part(datasets, planned, lambda rows, _: tables.generation(rows, len(datasets), runs, epochs))


def _words_part(corpus: Corpus, planned: Any, runs: int, *, search: bool = False) -> Part:
    if search:
        return Part([corpus], planned, partial(tables.search, paper=the_paper.WORDS_LEARNING_RATES), search=True)
    return Part([corpus], planned, lambda rows, _: tables.words(rows, corpus.source, runs))
