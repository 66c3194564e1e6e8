"""Options that the commands about clocks share."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ..experiments.limits import LARGEST_EPOCHS, LARGEST_MODULES, LARGEST_SIZE
from ..experiments.networks.methods import CLOCKED
from ..experiments.task import Task, clock_tasks
from .options import TASK_NAMES


def format_defaults(get_default: Callable[[Task[Any]], float]) -> str:
    """The default of each task: "9, words: 7"."""
    first, *others = clock_tasks()
    return ", ".join([str(get_default(first)), *(f"{task.name}: {get_default(task)}" for task in others)])


TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar=TASK_NAMES,
        help="What networks learn: to generate a sequence, to tell spoken words apart, or to return a column of a "
        "table for others that they read.",
        show_default="generation; with --inputs: regression",
    ),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="As in `cwrnn reproduce`; or squares:3,7,21x20 for twenty sequences of square waves that switch every 3, "
        "7 and 21 steps, with noise; squares:3,7,21x20+2 for noise with seeds from 2 on; or a table: a CSV, .npy or "
        ".npz file. May be repeated.",
        show_default="bundle",
    ),
]
MethodOption = Annotated[
    str,
    typer.Option(
        "--method", metavar="|".join(CLOCKED), help="The networks: Clockwork RNNs, or LSTMs or GRUs with clocks."
    ),
]
EpochsOption = Annotated[
    int | None,
    typer.Option(
        "--epochs", min=1, max=LARGEST_EPOCHS, metavar="N", help="Epochs of each training.", show_default="the paper's"
    ),
]
LearningRateOption = Annotated[
    float | None,
    typer.Option(
        "--learning-rate",
        metavar="R",
        help="Learning rate of the weights.",
        show_default="the paper's; ours for cw-lstm and cw-gru",
    ),
]
ModulesOption = Annotated[
    int | None,
    typer.Option(
        "--modules",
        min=1,
        max=LARGEST_MODULES,
        metavar="N",
        help="Number of modules.",
        show_default=format_defaults(lambda task: task.modules),
    ),
]


def make_size_option(help: str) -> object:
    """Return the option --size with this help."""
    shown = format_defaults(lambda task: task.clocks_size)
    return typer.Option("--size", min=1, max=LARGEST_SIZE, metavar="N", help=help, show_default=shown)


SizeOption = Annotated[int | None, make_size_option("Number of parameters of every network, at most.")]
