"""The command `cwrnn inspect` writes a page about one trained network."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.inspect.network import find_default_page, inspect_network
from ..experiments.limits import LARGEST_LENGTH
from . import options
from .console import handle_errors, print_result, show_progress

EXAMPLES = """examples:

\b
cwrnn inspect out/generation                        the best network with clocks of a store
cwrnn inspect out/generation --run 3f9c             another network, by the first digits of its run's key
cwrnn inspect out/reproduce --task words --word making
cwrnn inspect words.safetensors                     a recogniser, with the bundled words
cwrnn inspect words.safetensors --data folder:recordings --out page.html
cwrnn inspect net.safetensors --data load.csv --inputs temperature,wind --target load

exit codes: 0 the page is written, 1 an error, 2 wrong usage, 130 interrupted
"""


def inspect(
    model: Annotated[
        Path,
        typer.Argument(
            parser=options.parse_path,
            metavar="MODEL",
            help="The --out of `cwrnn reproduce` or `cwrnn clocks`, the file that `cwrnn words train` wrote, or "
            "another saved network (cwrnn.saved).",
        ),
    ],
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar=options.TASK_NAMES,
            help="The task, for a store that has networks of several.",
            show_default=False,
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="KEY",
            help="For a store: the run, by the first digits of its key.",
            show_default="the best of the largest size; a CW-RNN, else CW-LSTM, CW-GRU or any",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="For a network that tells words apart, where to take test words from: bundle, timit:PATH, "
            "nltk-timit:PATH or folder:PATH. For any other saved network, and for one that reads a table: a CSV, .npy "
            "or .npz file.",
            show_default="the data in the store; for a recogniser: bundle",
        ),
    ] = None,
    inputs: options.Inputs = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="COLUMN",
            help="For a table: the column that the output is compared with.",
            show_default="that of the training; for a file none: the change of the output is shown",
        ),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            min=2,
            max=LARGEST_LENGTH,
            metavar="ROWS",
            help="For a table: the rows of each sequence.",
            show_default="as in training; for a file 320, or all of a shorter table",
        ),
    ] = None,
    word: Annotated[
        str | None,
        typer.Option("--word", metavar="WORD", help="The word that the figures show.", show_default="the first"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            parser=options.parse_path,
            metavar="PAGE",
            help="The page to write.",
            show_default="inspect.html, beside the network",
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Look inside one trained network, and write a page about what each of its modules does.

    The page shows the states over time, how fast each module changes compared with its clock, how far back it
    remembers, what the output loses without it, the weights, and the multiply-adds: how the network allocates its
    resources.

    In Python: cwrnn.experiments.inspect_network; and cwrnn.inspect(model, data) for any model of yours.
    """
    with handle_errors(option_names={"model": "MODEL"}):
        with show_progress(quiet=quiet, lines=False) as progress:
            result = inspect_network(
                model,
                task=task,
                run=run,
                data=data,
                word=word,
                inputs=options.parse_words(inputs),
                target=target,
                length=length,
                out=find_default_page(model) if out is None else out,
                progress=progress,
            )
        print_result(result, as_json=as_json)
