"""Options that the commands about clocks share."""

from enum import Enum
from typing import Annotated

import typer

from ..experiments import paper
from ..experiments.reproduction import LARGEST_SIZE


class ClocksTask(str, Enum):
    """The tasks that networks learn."""

    GENERATION = "generation"
    WORDS = "words"


TaskOption = Annotated[
    ClocksTask,
    typer.Option("--task", help="What networks learn: to generate a sequence, or to tell spoken words apart."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="As in `cwrnn reproduce`; or squares:3,7,21x20 for twenty sequences of square waves that switch every 3, "
        "7 and 21 steps, with noise; squares:3,7,21x20+2 for noise of the seeds from 2 on. May be repeated.",
        show_default="bundle",
    ),
]
EpochsOption = Annotated[
    int | None,
    typer.Option("--epochs", min=1, metavar="N", help="Epochs of each training.", show_default="the paper's"),
]
LearningRateOption = Annotated[
    float | None,
    typer.Option("--learning-rate", metavar="R", help="Learning rate of the weights.", show_default="the paper's"),
]
ModulesOption = Annotated[
    int | None,
    typer.Option(
        "--modules",
        min=1,
        max=64,
        metavar="N",
        help="Number of modules.",
        show_default=f"{paper.GENERATION_MODULES}, words: {paper.WORDS_MODULES}",
    ),
]


def make_size_option(help: str) -> object:
    """Return the option --size with this help."""
    default = f"{paper.GENERATION_SIZES[-1]}, words: {paper.WORDS_SIZES[2]}"
    return typer.Option("--size", min=1, max=LARGEST_SIZE, metavar="N", help=help, show_default=default)


SizeOption = Annotated[int | None, make_size_option("Number of parameters of every network, at most.")]
