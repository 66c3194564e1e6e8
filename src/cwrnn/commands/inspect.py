"""The command line of the inspection: `cwrnn inspect` makes a page about one trained network."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ExperimentError
from ..experiments.file_names import replace_undecodable
from ..experiments.inspect import loading as subject
from ..experiments.networks.descent import use_one_thread
from ..experiments.words.corpus import CorpusError
from ..saved import ModelError
from . import options
from .console import format_page_path, guard_output, handle_errors, show_counts

EXAMPLES = """examples:

\b
cwrnn inspect out/generation                        the best Clockwork RNN of a store
cwrnn inspect out/generation --run 3f9c             another network, by the first digits of its run's key
cwrnn inspect out/reproduce --task words --word making
cwrnn inspect words.safetensors                     what cwrnn words train wrote, with the bundled words
cwrnn inspect words.safetensors --data folder:recordings --out page.html

exit codes: 0 the page is written, 1 an error, 2 wrong usage, 130 interrupted
"""


class TaskName(str, Enum):
    """What a network was trained for."""

    GENERATION = "generation"
    WORDS = "words"


def inspect(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The --out of `cwrnn reproduce`, or what `cwrnn words train` wrote."),
    ],
    task: Annotated[
        TaskName | None, typer.Option("--task", help="Of a store that has networks of both.", show_default=False)
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="KEY",
            help="Of a store: the run, by the first digits of its key.",
            show_default="the best Clockwork RNN of the largest size",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            metavar="SOURCE",
            help="Who says the words: bundle, timit:PATH, nltk-timit:PATH or folder:PATH.",
            show_default="the store's; of a file: bundle",
        ),
    ] = None,
    word: Annotated[
        str | None, typer.Option("--word", metavar="WORD", help="Which to draw.", show_default="the first")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="PAGE", help="Where the page goes.", show_default="inspect.html, beside the network"
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Look inside one trained network: write a page about what its modules do.

    Activations over time, spectra held against the clocks, how far back each module remembers, what the output loses
    without it, the weights as a heat map, and multiply-adds: how the network allocates its resources.
    """
    if out is not None and out.is_dir():
        raise typer.BadParameter(f"{out} is a folder: name a file", param_hint="--out")
    with handle_errors(), use_one_thread():
        try:
            with show_counts("reading the words", quiet=quiet) as show:
                chosen = None if task is None else task.value
                found = subject.load(
                    model, task=chosen, run=run, data=data, word=word, progress=lambda p: show(p.done, p.total)
                )
        except (subject.SubjectError, ModelError, CorpusError) as error:
            raise ExperimentError(replace_undecodable(str(error))) from error
        # matplotlib takes its time to load: not before it is needed
        from ..experiments.inspect import page as portrait

        page = (model if model.is_dir() else model.parent) / "inspect.html" if out is None else out
        inspected = portrait.inspect(found)
        portrait.write(found, inspected, page)
        with guard_output():
            if as_json:
                numbers = portrait.numbers(found, inspected)
                print(json.dumps({**numbers, "page": replace_undecodable(str(page.resolve()))}, allow_nan=False))
            else:
                print("\n".join([*portrait.sentences(inspected), format_page_path(page)]))
