"""The console of all commands: printing, progress, and errors as messages and exit codes.

0    all is well
1    an error, or a run that failed
2    wrong usage
130  interrupted
"""

import json
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from ..experiments.errors import ArgumentError, ExperimentError
from ..experiments.file_names import replace_undecodable
from ..experiments.progress import Progress, ProgressCallback
from ..experiments.sweep.driver import TRAINING
from ..experiments.sweep.interrupts import interrupts
from ..experiments.sweep.run import FAILED, Record
from ..saved import ModelError
from ..untrusted import escape_controls

FRACTION_BETWEEN_LINES = 0.05
"""The share of the work between two plain lines of progress."""
SECONDS_BETWEEN_UPDATES = 0.2
"""The time between two updates of a progress bar."""


def make_console(**options: Any) -> Console:
    """A console that prints text as it is: brackets and colons in a path are no markup."""
    return Console(highlight=False, markup=False, emoji=False, **options)


def make_error_console() -> Console:
    """The console of standard error. Long lines are not wrapped, so that commands and paths can be copied."""
    return make_console(stderr=True, soft_wrap=True)


@contextmanager
def handle_errors(
    resumable_arguments: Sequence[str] | None = None, option_names: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Prints the errors of a command and exits with their exit codes.

    Args:
        resumable_arguments: the arguments of a command that has a store, which can go on with --resume; None for a
            command that has none
        option_names: the names of the options, by the names of arguments that differ from them
    """
    stderr = make_error_console()
    resume = None if resumable_arguments is None else format_resume_command(resumable_arguments)
    try:
        with interrupts.remember():
            yield
            interrupts.check()
    except KeyboardInterrupt:
        stderr.print("Interrupted. The runs that were finished are in the store." if resume else "Interrupted.")
        if resume:
            stderr.print(f"To go on:\n  {resume}")
        raise typer.Exit(130) from None
    except ArgumentError as error:
        name = (option_names or {}).get(error.argument, f"--{error.argument.replace('_', '-')}")
        raise typer.BadParameter(_make_printable(error.message), param_hint=name) from error
    except (ExperimentError, ModelError, ImportError) as error:
        stderr.print(f"cwrnn: {_make_printable(str(error))}")
        raise typer.Exit(1) from error
    except BrokenPipeError:
        # the reader of the output has read enough: no error
        raise
    except OSError as error:
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        stderr.print(f"cwrnn: {escape_controls(replace_undecodable(where))}{error.strerror or error}")
        if resume:
            stderr.print(f"The runs that were trained are in the store. To go on:\n  {resume}")
        raise typer.Exit(1) from error


def _make_printable(message: str) -> str:
    """A message for a terminal: its lines are those of this package, but the characters in them may be a user's."""
    return "\n".join(map(escape_controls, replace_undecodable(message).split("\n")))


@contextmanager
def guard_output() -> Iterator[None]:
    """Turns a failure to write to standard output into an OSError that says so.

    Characters that the encoding of standard output lacks are written as escapes. A closed output is no error.
    """
    try:
        with _escape_unknown_characters(sys.stdout):
            yield
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # or Python would try again, when it exits, to write the rest
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise OSError(error.errno, error.strerror, "standard output") from error


@contextmanager
def _escape_unknown_characters(stream: Any) -> Iterator[None]:
    """Lets a stream write an escape for every character that its encoding lacks, where it would raise an error."""
    if getattr(stream, "errors", None) != "strict" or not hasattr(stream, "reconfigure"):
        yield
        return
    stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        stream.reconfigure(errors="strict")


class Result(Protocol):
    """The result of an experiment: it prints itself as text, and as JSON."""

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""


def print_result(result: Result, *, as_json: bool, aside: object = None) -> None:
    """Prints the result of an experiment on standard output, as text or as one line of JSON.

    Args:
        result: the result
        as_json: True for JSON
        aside: with JSON, goes to standard error as text; None for nothing
    """
    if as_json:
        if aside is not None:
            make_error_console().print(str(aside))
        print_json(result.to_dict())
    else:
        with guard_output():
            print(result)


def print_json(values: Any) -> None:
    """Prints one line of JSON on standard output."""
    with guard_output():
        print(json.dumps(values, allow_nan=False))


def format_command(arguments: Sequence[str]) -> str:
    """The command with these arguments, as a store keeps it."""
    return replace_undecodable(shlex.join(["cwrnn", *arguments]))


def format_resume_command(arguments: Sequence[str]) -> str:
    """The command that goes on where the command with these arguments ended."""
    complete = [*arguments, *([] if "--resume" in arguments else ["--resume"])]
    if Path(sys.argv[0]).name == "__main__.py":
        return shlex.join([sys.executable, "-m", "cwrnn", *complete])
    on_path = shutil.which("cwrnn")
    is_this_one = on_path is not None and Path(on_path).resolve() == Path(sys.argv[0]).resolve()
    return shlex.join(["cwrnn" if is_this_one else sys.argv[0], *complete])


def print_failures(records: Sequence[Record]) -> None:
    """Prints how many of the runs failed, and the traceback of the first."""
    failures = [record for record in records if record.status == FAILED]
    if not failures:
        return
    run, reason = failures[0].run, failures[0].traceback or ""
    make_error_console().print(
        f"{len(failures)} runs failed; --resume tries them again. The first one, {run.method} of size {run.size} "
        f"on {run.data} with seed {run.seed}:\n{reason}"
    )


def exit_if_failed(records: Sequence[Record]) -> None:
    """Exits with code 1 if a run failed."""
    if any(record.status == FAILED for record in records):
        raise typer.Exit(1)


@contextmanager
def show_progress(
    *, quiet: bool = False, unit: str = "runs", lines: bool = True, store: Path | None = None, plan: str = ""
) -> Iterator[ProgressCallback]:
    """A callback that shows progress on stderr: as a bar on a terminal, elsewhere in plain lines.

    Plain lines are only printed for progress that comes with an estimate of the time that is left.

    Args:
        quiet: show nothing
        unit: the noun for what is counted
        lines: whether to print plain lines where there is no terminal
        store: if given, the first report prints how many runs there are and where they are kept, and the end prints
            how long they took
        plan: the planned work, printed before the first report; empty for nothing
    """
    stderr = make_error_console()
    if quiet:
        yield lambda progress: None
        return
    started = time.monotonic()
    first: Progress | None = None
    last: Progress | None = None
    with _show_bar(stderr, unit) if stderr.is_terminal else _show_lines(stderr, unit, lines) as show:

        def report(progress: Progress) -> None:
            nonlocal first, last, plan, started
            if plan:
                stderr.print(plan)
                plan = ""
            if store is not None and progress.activity == TRAINING:
                if first is None:
                    first, started = progress, time.monotonic()
                    there = f", {progress.done} of them there already" if progress.done else ""
                    stderr.print(f"{progress.total} {unit}{there}; the store is {replace_undecodable(str(store))}")
                last = progress
            show(progress)

        yield report
    if first is not None and last is not None and last.done > first.done:
        stderr.print(f"{last.done - first.done} {unit} took {format_duration(time.monotonic() - started)}")


@contextmanager
def _show_bar(stderr: Console, unit: str) -> Iterator[ProgressCallback]:
    """Shows one bar at a time: the next activity takes the place of the one before."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TaskProgressColumn(),
        TextColumn("{task.fields[counted]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
    )
    with Bars(*columns, console=stderr, transient=True) as bars:
        bar: TaskID | None = None
        activity, updated = "", -math.inf

        def show(progress: Progress) -> None:
            nonlocal bar, activity, updated
            if bar is None or progress.activity != activity:
                if bar is not None:
                    bars.remove_task(bar)
                activity, updated = progress.activity, -math.inf
                bar = bars.add_task(activity, total=1.0, counted="", left="")
            is_last = progress.fraction >= 1.0
            if is_last or time.monotonic() - updated >= SECONDS_BETWEEN_UPDATES:
                updated = time.monotonic()
                left = progress.seconds_left
                text = "" if left is None or is_last else f"about {format_duration(left)} left"
                counted = f"{progress.done} of {progress.total}" + (f" {unit}" if activity == TRAINING else "")
                bars.update(bar, completed=progress.fraction, counted=counted, left=text)

        yield show


@contextmanager
def _show_lines(
    stderr: Console, unit: str, lines: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[ProgressCallback]:
    activity, started, shown = "", clock(), -FRACTION_BETWEEN_LINES

    def show(progress: Progress) -> None:
        nonlocal activity, started, shown
        if progress.activity != activity:
            activity, started, shown = progress.activity, clock(), -FRACTION_BETWEEN_LINES
        if not lines or progress.seconds_left is None:
            return
        # the first estimate, then one line for each share of the work, and the last
        if progress.fraction == 1.0 or progress.fraction - shown >= FRACTION_BETWEEN_LINES:
            shown = progress.fraction
            gone, left = format_duration(clock() - started), format_duration(progress.seconds_left)
            stderr.print(
                f"{100 * progress.fraction:3.0f} %  {progress.done} of {progress.total} {unit}, {gone} gone, "
                f"about {left} left"
            )

    yield show


def format_duration(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> format_duration(59.6), format_duration(3661)
    ('1:00', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
