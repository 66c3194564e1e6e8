"""Reproduction: from the runs that are asked for to the table and the page, whatever the task.

parts -> what the store has no record of is trained -> tables, page, --json
"""

import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from ...commands import tables
from ...commands.options import EngineName
from ...environment import cores, environment
from ...extras import require
from ..file_names import replace_undecodable
from ..report.statistics import Row, best_rates, summarise
from . import dask_engine as cluster
from . import workers as engine
from .dask_engine import ClusterError
from .progress import Estimate, duration, shown
from .run import FAILED, Data, Record, Run
from .store import Store, StoreError


class CommandError(Exception):
    """Ends the command with exit code 1; the message is this error's."""


@dataclass(frozen=True)
class Part:
    """What is asked for of one task, or of its search."""

    data: Sequence[Data]
    planned: Sequence[Run]
    table: Callable[[Sequence[Row], dict[tuple[str, int], float]], Table]
    """Of the rows, and the best rates if it is a search."""
    search: bool = False


@dataclass(frozen=True)
class Order:
    """How it is to be carried out."""

    folder: Path
    train: engine.Engine
    staying: Callable[[], AbstractContextManager[engine.Engine]]
    """The same with workers that stay from sweep to sweep."""
    workers: int
    arguments: Sequence[str]
    """Of the command."""
    resume: bool
    as_json: bool
    quiet: bool


def make_order(
    context: typer.Context,
    folder: str | Path,
    engine_name: EngineName,
    scheduler: str | None,
    workers: int | None,
    resume: bool,
    as_json: bool,
    quiet: bool,
) -> Order:
    """The order that the options of a command make."""
    count = cores() if workers is None else workers
    train: engine.Engine = partial(engine.local, workers=count)
    staying = partial(engine.staying, count)
    if engine_name is EngineName.DASK:
        train = partial(cluster.dask, workers=count, scheduler=scheduler)
        staying = partial(cluster.staying, count, scheduler)
    return Order(Path(folder), train, staying, count, context.obj, resume, as_json, quiet)


def carry_out(parts: Sequence[Part], order: Order) -> None:
    """Trains, prints the tables and writes the page; ends with exit code 1 if a run failed."""
    stderr = console(stderr=True, soft_wrap=True)
    with ends(stderr, resuming(order.arguments)), opened(order) as store:
        started = time.monotonic()
        data = [each for part in parts for each in part.data]
        planned = [run for part in parts for run in part.planned]
        train_missing(store, data, planned, order, stderr, quiet=order.quiet)
        seconds = time.monotonic() - started
        found = [_Found.of(store, part) for part in parts]
        page = write_page(store, order.folder)

        shown_on = stderr if order.as_json else console()
        records = [record for each in found for record in each.records]
        with printing():
            if not (order.as_json and order.quiet):
                for part, each in zip(parts, found, strict=True):
                    shown_on.print(part.table(each.rows, each.best))
                    shown_on.print()
            mention_failures(records, stderr)
            shown_on.print(told(page), soft_wrap=True)
        if order.as_json:
            summary = {
                "seconds": seconds,
                "store": str(store.path.resolve()),
                "page": str(page.resolve()),
                "environment": environment(),
            }
            summaries = [each.summary(part) for part, each in zip(parts, found, strict=True)]
            # one task is told at the top, as the only one
            whole = summaries[0] | summary if len(parts) == 1 else {"tasks": summaries} | summary
            with printing():
                print(json.dumps(whole, allow_nan=False))
        if any(record.status == FAILED for record in records):
            raise typer.Exit(1)


@dataclass(frozen=True)
class _Found:
    """What a part came to."""

    records: Sequence[Record]
    rows: Sequence[Row]
    best: dict[tuple[str, int], float]

    @classmethod
    def of(cls, store: Store, part: Part) -> "_Found":
        records = select(store, part.planned)
        return cls(records, summarise(records), best_rates(records) if part.search else {})

    def summary(self, part: Part) -> dict[str, Any]:
        return {
            "task": self.records[0].run.task,
            "rows": tables.described(self.rows, self.best),
            "runs": len(self.records),
            "failed": sum(record.status == FAILED for record in self.records),
            "data": [data.name for data in part.data],
        }


def train_missing(
    store: Store, data: Sequence[Data], planned: Sequence[Run], order: Order, stderr: Console, *, quiet: bool
) -> None:
    """Trains the runs that the store has no record of."""
    add_data(store, data)
    todo = missing(store, planned)
    if not quiet:
        known = f", {len(planned) - len(todo)} of them there already" if len(todo) < len(planned) else ""
        stderr.print(f"{len(planned)} runs{known}; the store is {store.path}")
    if not todo:
        return
    # all that is needed at the end, before time is spent on training
    for package in ("matplotlib", "jinja2"):
        require(package, extra="experiments", purpose="the page")
    started = time.monotonic()
    train(store, data, todo, order, quiet=quiet)
    if not quiet:
        stderr.print(f"{len(todo)} runs took {duration(time.monotonic() - started)}")


def add_data(store: Store, data: Sequence[Data]) -> None:
    """Adds the data sets to the store, all of them or none."""
    # those whose names are there first: if one has other numbers now, none has been added
    named = store.names()
    for each in sorted(data, key=lambda each: each.name not in named):
        store.add_dataset(each)


def missing(store: Store, planned: Sequence[Run]) -> list[Run]:
    """The runs that the store has no record of, and those that failed."""
    there = store.keys(failed=False)
    return [run for run in planned if run.key not in there]


def train(
    store: Store, data: Sequence[Data], runs: Sequence[Run], order: Order, *, quiet: bool, step: str = ""
) -> None:
    """Trains the runs, which may be a step of something larger, and shows how far it is."""
    batches = engine.make_batches(runs, data, order.workers)
    with shown(Estimate(batches), quiet=quiet, step=step) as observe:
        engine.sweep(store, batches, order.train, observe)


def select(store: Store, planned: Sequence[Run]) -> list[Record]:
    """The records of what was asked for; the store may hold others."""
    wanted = {run.key for run in planned}
    records = store.records(planned[0].task, wanted)
    if len(records) != len(wanted):
        raise CommandError(f"{len(wanted) - len(records)} of {len(wanted)} runs have no record: add --resume")
    return records


def write_page(store: Store, folder: Path) -> Path:
    """The page of the store, in the folder."""
    # matplotlib takes its time to load: not before it is needed
    from ..report.page import write

    return write(store, folder)


@contextmanager
def opened(order: Order) -> Iterator[Store]:
    """The store in the order's folder, made if there is none; one that has records is not touched without --resume."""
    folder = order.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(f"cannot make the folder {folder}: {error.strerror}", param_hint="--out") from error
    command = replace_undecodable(shlex.join(["cwrnn", *order.arguments]))
    with Store.open(folder, create=True, command=command) as store:
        if not order.resume and store.keys():
            raise typer.BadParameter(
                f"{folder} has {len(store.keys())} runs already: add --resume to go on with them, "
                "or choose another folder",
                param_hint="--out",
            )
        yield store


@contextmanager
def ends(stderr: Console, again: str | None) -> Iterator[None]:
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
    except (StoreError, engine.EngineError, ClusterError, CommandError, ImportError) as error:
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
def printing() -> Iterator[None]:
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


def console(**options: Any) -> Console:
    """Prints what it is given: brackets and colons in a path are no markup."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def told(page: Path) -> str:
    """Where the page is."""
    return f"The page is {replace_undecodable(str(page.resolve()))}"


def resuming(arguments: Sequence[str]) -> str:
    """The command that goes on where this one ended."""
    words = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    if Path(sys.argv[0]).name == "__main__.py":
        return shlex.join([sys.executable, "-m", "cwrnn", *words])
    found = shutil.which("cwrnn")
    here = found is not None and Path(found).resolve() == Path(sys.argv[0]).resolve()
    return shlex.join(["cwrnn" if here else sys.argv[0], *words])


def mention_failures(records: Sequence[Record], stderr: Console) -> None:
    """Says how many of the runs failed, and why the first one did."""
    failures = [record for record in records if record.status == FAILED]
    if not failures:
        return
    run, reason = failures[0].run, failures[0].traceback or ""
    stderr.print(
        f"{len(failures)} runs failed, and are tried again with --resume. The first, {run.method} of size {run.size} "
        f"on {run.data} with seed {run.seed}:\n{reason}"
    )
