"""The command line `cwrnn`: all commands, and how one is run."""

from collections.abc import Sequence
from typing import Annotated

import typer

from .. import __version__
from . import bench, clocks, evaluate, export, forecast, inspect, report, reproduce, words

# plain help and plain errors: the same text on a terminal, in a pipe and in a log
app = typer.Typer(
    name="cwrnn", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
)
app.add_typer(reproduce.app, name="reproduce")
app.add_typer(clocks.app, name="clocks")
app.add_typer(words.app, name="words")
app.add_typer(forecast.app, name="forecast")
app.command("evaluate", epilog=evaluate.EXAMPLES)(evaluate.evaluate_command)
app.command("report")(report.report)
app.command("inspect", epilog=inspect.EXAMPLES)(inspect.inspect)
app.command("export", epilog=export.EXAMPLES)(export.export)
bench.add_to(app)


def run(arguments: Sequence[str]) -> int:
    """Runs `cwrnn` with these arguments, and returns its exit code."""
    try:
        app(args=list(arguments), prog_name="cwrnn", obj=list(arguments))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cwrnn {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Clockwork RNNs: forecast a table, repeat the paper's experiments, compare networks and clocks, recognise
    words.
    """
