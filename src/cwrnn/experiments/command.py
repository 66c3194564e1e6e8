"""The command line: `cwrnn reproduce generation` trains, `cwrnn report` draws what was trained."""

import json
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .. import __version__
from ..extras import require
from . import audio, engine, generation
from .cluster import ClusterError, dask
from .figures import NAMES
from .generation import Row
from .models import METHODS, SIZES
from .progress import Estimate, duration, shown
from .runs import FAILED, Dataset, Record, Run, cores, environment
from .store import Store, StoreError
from .training import EPOCHS, LEARNING_RATES

LARGEST = 10**9
"""Parameters of a network, at most; a number that the store could not hold is refused with it."""


@dataclass(frozen=True)
class Scale:
    """How much is run unless options say otherwise."""

    runs: int
    sizes: tuple[int, ...]
    out: str


QUICK = Scale(runs=6, sizes=SIZES, out="out/generation")
PAPER = Scale(runs=100, sizes=SIZES, out="out/generation")
SEARCH = Scale(runs=2, sizes=(max(SIZES),), out="out/search")

EXAMPLES = """examples:

\b
cwrnn reproduce generation                                   the result in two minutes
cwrnn reproduce generation --paper --out out/paper           all of the paper's 6000 runs
cwrnn reproduce generation --paper --out out/paper --resume  go on after an interruption
cwrnn reproduce generation --data song.flac --offset 12.5    a piece of music of your own
cwrnn reproduce generation --data snippets/*.wav --runs 20   several
cwrnn reproduce generation --methods lstm --no-peepholes --out out/plain
cwrnn reproduce generation --search --data song.flac         which learning rate is best
cwrnn reproduce generation --paper --engine dask --scheduler tcp://host:8786 --out out/paper

exit codes: 0 every run has a record and none failed, 1 some failed or an error, 2 wrong usage, 130 interrupted
"""

# plain help and plain errors: the same words on a terminal, in a pipe and in a log
app = typer.Typer(
    name="cwrnn", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
reproduce = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(reproduce, name="reproduce", help="Repeat an experiment of the paper.")


class EngineName(str, Enum):
    """Who trains."""

    LOCAL = "local"
    DASK = "dask"


class _CommandError(Exception):
    """Ends the command with exit code 1; the message has been printed or is this error's."""


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
    methods: Annotated[str, typer.Option(metavar="LIST", help="Which networks.")] = ",".join(METHODS),
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
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Updates of each network.")] = EPOCHS,
    paper: Annotated[bool, typer.Option("--paper", help="As much as the paper: 6000 runs.")] = False,
    search: Annotated[bool, typer.Option("--search", help="Search the best learning rate of each method.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, max=2**62, metavar="N", help="Of the first run; the next ones count from there.")
    ] = 0,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="R",
            help="A number, or one per method: srn=1e-4,cw=3e-4. With --search: the list of those to try.",
            show_default="the paper's",
        ),
    ] = None,
    peepholes: Annotated[bool, typer.Option(help="Whether the gates of the LSTM see its cells.")] = True,
    offset: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="Where in the sound to begin.")] = 0.0,
    length: Annotated[int, typer.Option(min=2, metavar="SAMPLES", help="How much of it to learn.")] = audio.LENGTH,
    engine_name: Annotated[
        EngineName, typer.Option("--engine", help="This machine's cores, or a Dask cluster.")
    ] = EngineName.LOCAL,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Of an existing Dask cluster; without it, one is made on this machine."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Processes.", show_default="one per core")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Where store and page go.", show_default=f"{QUICK.out}; --search: {SEARCH.out}"
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the store that is in DIR.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and all else to stderr.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show progress.")] = False,
) -> None:
    """Networks learn to generate snippets of music: the paper's first task (section 4.1).

    Trains SRN, LSTM and CW-RNN of about equally many parameters, prints what came out beside what the paper says, and
    writes a page with figures and sound.
    """
    if paper and search:
        raise typer.BadParameter(
            "is of no use with --search: name what you want more of, e.g. --runs", param_hint="--paper"
        )
    if scheduler is not None and engine_name is not EngineName.DASK:
        raise typer.BadParameter("needs --engine dask", param_hint="--scheduler")
    if workers is not None and scheduler is not None:
        raise typer.BadParameter("is the cluster's to decide", param_hint="--workers")
    if not math.isfinite(offset):
        raise typer.BadParameter(f"expected a number of seconds, got {offset}", param_hint="--offset")
    scale = SEARCH if search else PAPER if paper else QUICK
    chosen = _methods(methods)
    datasets = _datasets([*(data or []), *(more or [])] or [audio.BUNDLE], offset, length)
    options: dict[str, Any] = {
        "methods": chosen,
        "sizes": scale.sizes if sizes is None else _sizes(sizes),
        "runs": scale.runs if runs is None else runs,
        "epochs": epochs,
        "seed": seed,
        "peepholes": peepholes,
    }
    try:
        if search:
            planned = generation.plan_search(datasets, rates=_grid(learning_rate), **options)
        else:
            planned = generation.plan(datasets, learning_rates=_rates(learning_rate, chosen), **options)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--sizes") from error

    folder = Path(scale.out) if out is None else out
    count = cores() if workers is None else workers
    train: engine.Engine = partial(engine.local, workers=count)
    if engine_name is EngineName.DASK:
        train = partial(dask, workers=count, scheduler=scheduler)
    stderr = _console(stderr=True, soft_wrap=True)
    with _ends(stderr, _resuming(context.obj)), _open(folder, resume, context.obj) as store:
        started = time.monotonic()
        _train(store, datasets, planned, train, count, stderr, quiet)
        seconds = time.monotonic() - started
        records = _select(store, planned)
        rows = generation.summarise(records)
        best = generation.best_rates(records) if search else {}
        page = _write_page(store, folder)

        console = stderr if as_json else _console()
        with _printing():
            if not (as_json and quiet):
                console.print(_search_table(rows, best) if search else _table(rows, datasets, options))
            _mention_failures(records, stderr)
            console.print(f"\n{_told(page)}", soft_wrap=True)
        if as_json:
            found = _summary(rows, best, store, page, records, datasets, seconds)
            with _printing():
                print(json.dumps(found, allow_nan=False))
        if any(record.status == FAILED for record in records):
            raise typer.Exit(1)


@app.command("report")
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of what was run.")],
) -> None:
    """Draw figures and page again, from the store alone."""
    stderr = _console(stderr=True, soft_wrap=True)
    with _ends(stderr, None), Store.read(folder) as store:
        if not store.keys():
            raise _CommandError(f"{store.path}: there are no runs yet")
        page = _write_page(store, store.path.parent)
        with _printing():
            print(_told(page))


def _train(
    store: Store,
    datasets: Sequence[Dataset],
    planned: Sequence[Run],
    train: engine.Engine,
    workers: int,
    stderr: Console,
    quiet: bool,
) -> None:
    # those whose names are there first: if one has other samples now, none has been added
    named = store.names()
    for dataset in sorted(datasets, key=lambda dataset: dataset.name not in named):
        store.add_dataset(dataset)
    there = store.keys(failed=False)
    todo = [run for run in planned if run.key not in there]
    if not quiet:
        known = f", {len(planned) - len(todo)} of them there already" if len(todo) < len(planned) else ""
        stderr.print(f"{len(planned)} runs{known}; the store is {store.path}")
    if not todo:
        return
    # all that is needed at the end, before time is spent on training
    for package in ("matplotlib", "jinja2"):
        require(package, extra="experiments", purpose="the page")
    batches = engine.make_batches(todo, datasets, workers)
    started = time.monotonic()
    with shown(Estimate(batches), quiet=quiet) as observe:
        engine.sweep(store, batches, train, observe)
    if not quiet:
        stderr.print(f"{len(todo)} runs took {duration(time.monotonic() - started)}")


def _select(store: Store, planned: Sequence[Run]) -> list[Record]:
    """The records of what was asked for; the store may hold others."""
    wanted = {run.key for run in planned}
    records = [record for record in store.records(planned[0].task) if record.key in wanted]
    if len(records) != len(wanted):
        raise _CommandError(f"{len(wanted) - len(records)} of {len(wanted)} runs have no record: add --resume")
    return records


def _write_page(store: Store, folder: Path) -> Path:
    # matplotlib takes its time to load: not before it is needed
    from .report import write

    return write(store, folder)


@contextmanager
def _open(folder: Path, resume: bool, arguments: Sequence[str]) -> Iterator[Store]:
    """The store in `folder`, made if there is none; one that has records is not touched without --resume."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder {folder}: {error.strerror}", param_hint="--out") from error
    command = audio.storable(shlex.join(["cwrnn", *arguments]))
    with Store.open(folder, create=True, command=command) as store:
        if not resume and store.keys():
            raise typer.BadParameter(
                f"{folder} has {len(store.keys())} runs already: add --resume to go on with them, "
                "or choose another folder",
                param_hint="--out",
            )
        yield store


@contextmanager
def _ends(stderr: Console, again: str | None) -> Iterator[None]:
    """What ends the command, in words and as an exit code."""
    try:
        with engine.interrupts.remembered():
            yield
            engine.interrupts.check()
    except KeyboardInterrupt:
        stderr.print("Interrupted. What was finished is in the store." if again else "Interrupted.")
        if again:
            stderr.print(f"To go on:\n  {again}")
        raise typer.Exit(130) from None
    except (StoreError, engine.EngineError, ClusterError, _CommandError, ImportError) as error:
        stderr.print(f"cwrnn: {error}")
        raise typer.Exit(1) from error
    except BrokenPipeError:
        # who read has read enough: no news
        raise
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        stderr.print(f"cwrnn: {where}{error.strerror or error}")
        if again:
            stderr.print(f"What was trained is in the store. To go on:\n  {again}")
        raise typer.Exit(1) from error


@contextmanager
def _printing() -> Iterator[None]:
    """What cannot be printed is an error that says so."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # or Python would try again to write what is left, at its very end
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise OSError(error.errno, error.strerror, "standard output") from error


def _console(**options: Any) -> Console:
    """Prints what it is given: brackets and colons in a path are no markup."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def _told(page: Path) -> str:
    return f"The page is {audio.storable(str(page.resolve()))}"


def _resuming(arguments: Sequence[str]) -> str:
    """The command that goes on where this one ended."""
    words = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    if Path(sys.argv[0]).name == "__main__.py":
        return shlex.join([sys.executable, "-m", "cwrnn", *words])
    found = shutil.which("cwrnn")
    here = found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve()
    return shlex.join(["cwrnn" if here else sys.argv[0], *words])


def _mention_failures(records: Sequence[Record], stderr: Console) -> None:
    failures = [record for record in records if record.status == FAILED]
    if not failures:
        return
    run, reason = failures[0].run, failures[0].traceback or ""
    stderr.print(
        f"{len(failures)} runs failed, and are tried again with --resume. The first, {run.method} of size {run.size} "
        f"on {run.data} with seed {run.seed}:\n{reason}"
    )


def _empty_table(title: str, caption: str) -> Table:
    # nine columns in the 80 characters of a log
    table = Table(title=title, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("\nmethod")
    return table


def _table(rows: Sequence[Row], datasets: Sequence[Dataset], options: dict[str, Any]) -> Table:
    sequences = f"{len(datasets)} sequence{'s' if len(datasets) > 1 else ''}"
    table = _empty_table(
        "Sequence generation: the error of what was learnt by heart",
        f"NMSE over the runs that finished: {sequences} times {options['runs']} initial weights, "
        f"{options['epochs']} epochs. 0 is perfect, 1 is what the mean achieves; ± is the standard deviation. "
        "Paper: mean and deviation over 100 runs of its largest networks, on other music (table 3).",
    )
    for header in ("\nsize", "hidden\nunits", "para-\nmeters", "\nruns", "NMSE\nmean ± std", "\nmedian", "\ndiverged"):
        table.add_column(header, justify="right", no_wrap=True)
    failures = any(row.failed for row in rows)
    if failures:
        table.add_column("\nfailed", justify="right")
    table.add_column("paper's NMSE\nmean ± std", justify="right", no_wrap=True)
    for row in rows:
        cells = [NAMES[row.method], row.size, row.hidden, row.parameters, row.runs]
        cells += [f"{_short(row.mean)} ± {_short(row.std)}", _short(row.median), row.diverged]
        cells += [row.failed] * failures + [row.paper or ""]
        table.add_row(*map(str, cells))
    return table


def _search_table(rows: Sequence[Row], best: dict[tuple[str, int], float]) -> Table:
    table = _empty_table(
        "The search for the learning rate",
        "The median is that of the runs that finished. The best rate (*) has the lowest median where a run that "
        "diverged counts as infinitely bad.",
    )
    for header in ("\nsize", "learning\nrate", "\nruns", "median\nNMSE", "\ndiverged", "\nbest", "\npaper's"):
        table.add_column(header, justify="right")
    for row in rows:
        rate = row.settings.learning_rate
        table.add_row(
            NAMES[row.method],
            str(row.size),
            f"{rate:g}",
            str(row.runs),
            _short(row.median),
            f"{100 * row.diverged / row.runs:.0f} %",
            "*" if best.get((row.method, row.size)) == rate else "",
            "*" if math.isclose(LEARNING_RATES[row.method], rate) else "",
        )
    return table


def _summary(
    rows: Sequence[Row],
    best: dict[tuple[str, int], float],
    store: Store,
    page: Path,
    records: Sequence[Record],
    datasets: Sequence[Dataset],
    seconds: float,
) -> dict[str, Any]:
    """What --json prints: a number that is not there is None."""
    described = []
    for row in rows:
        values = asdict(row)
        values |= values.pop("settings")
        values |= {name: _finite(getattr(row, name)) for name in ("mean", "std", "median", "best")}
        if best:
            values["chosen"] = best.get((row.method, row.size)) == row.settings.learning_rate
        described.append(values)
    return {
        "task": records[0].run.task,
        "rows": described,
        "runs": len(records),
        "failed": sum(record.status == FAILED for record in records),
        "data": [dataset.name for dataset in datasets],
        "seconds": seconds,
        "store": str(store.path.resolve()),
        "page": str(page.resolve()),
        "environment": environment(),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(nmse: float) -> str:
    """Two digits that matter."""
    if not math.isfinite(nmse):
        return "-"
    return f"{nmse:.2g}" if abs(nmse) < 0.1 else f"{nmse:.2f}" if abs(nmse) < 1000 else f"{nmse:.0e}"


def _datasets(sources: Sequence[str], offset: float, length: int) -> list[Dataset]:
    try:
        return audio.load(sources, offset=offset, length=length)
    except audio.AudioError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from error


def _methods(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for name in names:
        if name not in METHODS:
            raise typer.BadParameter(f"expected some of {', '.join(METHODS)}, got {name!r}", param_hint="--methods")
    # the paper's order, whatever the user's
    return tuple(name for name in METHODS if name in names)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        values = sorted({int(word) for word in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise typer.BadParameter(f"expected numbers of parameters, such as 100,250, got {text!r}", param_hint="--sizes")
    if values[-1] > LARGEST:
        raise typer.BadParameter(f"expected at most {LARGEST} parameters, got {values[-1]}", param_hint="--sizes")
    return tuple(values)


def _rates(text: str | None, methods: Sequence[str]) -> dict[str, float]:
    """The learning rate of each method."""
    if text is None:
        return dict(LEARNING_RATES)
    expected = f"expected one number, or METHOD=NUMBER with one of {', '.join(methods)}"
    if "=" not in text:
        if "," in text:
            raise typer.BadParameter(f"{expected}; a list is for --search", param_hint="--learning-rate")
        return dict.fromkeys(methods, _rate(text, text))
    rates: dict[str, float] = {}
    for word in text.split(","):
        method, _, number = word.rpartition("=")
        value = _rate(number, text)
        method = method.strip()
        if method not in methods:
            raise typer.BadParameter(f"{expected}, got {word!r}", param_hint="--learning-rate")
        if method in rates:
            raise typer.BadParameter(f"names {method} twice: {text!r}", param_hint="--learning-rate")
        rates[method] = value
    return LEARNING_RATES | rates


def _grid(text: str | None) -> tuple[float, ...]:
    """The learning rates that a search tries."""
    return generation.RATES if text is None else tuple(sorted({_rate(word, text) for word in text.split(",")}))


def _rate(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"expected numbers above 0, got {text!r}", param_hint="--learning-rate")
    return value
