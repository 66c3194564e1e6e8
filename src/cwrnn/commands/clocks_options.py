"""Options that the commands about clocks have in common, and what they mean."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Annotated

import typer

from ..experiments import task as tasks
from ..experiments.clocks import comparison as series
from ..experiments.clocks import square_waves as planted
from ..experiments.generation import music as audio
from ..experiments.networks.build import MODULES, SIZES, WORD_MODULES, WORD_SIZES
from ..experiments.sweep.run import Data
from ..experiments.words import corpus as corpora
from . import options
from .loading import load_corpus, load_sequences


class TaskName(str, Enum):
    """What is learnt."""

    GENERATION = tasks.GENERATION
    WORDS = tasks.WORDS


Task = Annotated[
    TaskName, typer.Option("--task", help="What is learnt: to generate a sequence, or to tell words apart.")
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="As in `cwrnn reproduce`; or squares:3,7,21x20: twenty sequences of square waves that switch every 3, 7 "
        "and 21 steps, with noise; squares:3,7,21x20+2: with noise of the seeds from 2 on.",
        show_default="bundle",
    ),
]


def size(told: str) -> object:
    """The option --size, and what it says of itself."""
    shown = f"{SIZES[-1]}, words: {WORD_SIZES[2]}"
    return typer.Option("--size", min=1, max=options.LARGEST, metavar="N", help=told, show_default=shown)


SizeOption = Annotated[int | None, size("Parameters of every network, at most.")]
ModulesOption = Annotated[
    int | None,
    typer.Option(
        "--modules", min=1, max=64, metavar="N", help="How many.", show_default=f"{MODULES}, words: {WORD_MODULES}"
    ),
]


@contextmanager
def blamed() -> Iterator[None]:
    """What cannot be planned is the fault of the budget, or of the modules."""
    try:
        yield
    except ValueError as error:
        hint = "--size" if isinstance(error, series.BudgetError) else "--modules"
        raise typer.BadParameter(str(error), param_hint=hint) from error


def load(task: TaskName, sources: Sequence[str] | None, quiet: bool) -> list[Data]:
    """The sequences, or the one corpus, that --data names."""
    if task is TaskName.WORDS:
        if sources and len(sources) > 1:
            raise typer.BadParameter("one source of words is enough", param_hint="--data")
        return [load_corpus((sources or [corpora.BUNDLE])[0], None, quiet)]
    found: list[Data] = []
    for source in sources or [audio.BUNDLE]:
        if source.startswith(planted.PREFIX):
            try:
                found += planted.load(source)
            except audio.AudioError as error:
                raise typer.BadParameter(str(error), param_hint="--data") from error
        else:
            found += load_sequences([source], 0.0, audio.LENGTH)
    for name, times in Counter(each.name for each in found).items():
        if times > 1:
            raise typer.BadParameter(f"two sequences have the name {name!r}", param_hint="--data")
    return found


def budget(task: TaskName, size: int | None) -> int:
    """Parameters, at most."""
    return size or (WORD_SIZES[2] if task is TaskName.WORDS else SIZES[-1])


def module_count(task: TaskName, modules: int | None) -> int:
    """The paper's unless given."""
    return modules or (WORD_MODULES if task is TaskName.WORDS else MODULES)


def check_rate(value: float | None) -> float | None:
    """The value of --learning-rate."""
    if value is not None and not 0 < value <= 1e30:
        raise typer.BadParameter(f"expected a number above 0, up to 1e30, got {value}", param_hint="--learning-rate")
    return value
