"""`cwrnn bench`: forwards its arguments to the benchmark, which has a command line of its own."""

import typer

from ..bench.command import main


def bench(context: typer.Context) -> None:
    """Time the layer against torch.nn.RNN, LSTM and GRU."""
    raise typer.Exit(main(context.args, program="cwrnn bench"))


def add_to(app: typer.Typer) -> None:
    """Adds the command to `app`, such that all its arguments, `--help` included, reach the benchmark."""
    app.command(
        "bench",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(bench)
