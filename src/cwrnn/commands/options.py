"""Options that several commands share, and the values of their texts. The functions of the experiments check them."""

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.errors import ArgumentError
from ..experiments.file_names import check_path
from ..experiments.limits import (
    LARGEST_DRAWS,
    LARGEST_EPOCHS,
    LARGEST_LENGTH,
    LARGEST_RUNS,
    LARGEST_SEED,
    LARGEST_WORKERS,
)
from ..experiments.networks.methods import METHODS, MODELS
from ..experiments.paper import GENERATION_SAMPLES
from ..experiments.paper import METHODS as PAPER_METHODS
from ..experiments.sweep.driver import DASK, LOCAL
from ..experiments.task import clock_tasks


def parse_path(text: str) -> Path:
    """The path that an option names; a BadParameter, which names the option, if no file or folder can have it."""
    try:
        return check_path("path", text)
    except ArgumentError as error:
        raise typer.BadParameter(error.message) from error


class EngineName(str, Enum):
    """The engines that train."""

    LOCAL = LOCAL
    DASK = DASK


DEFAULT_METHODS = ",".join(PAPER_METHODS)
TASK_NAMES = "|".join(task.name for task in clock_tasks())

Methods = Annotated[
    str,
    typer.Option(
        "--methods",
        metavar="LIST",
        help=f"The networks to train, some of {','.join(METHODS)}, and of the models of other papers: "
        f"{', '.join(MODELS)}.",
    ),
]
Search = Annotated[
    bool,
    typer.Option(
        "--search",
        help="Search for the learning rate of each method with the lowest error on the training data, instead of "
        "repeating the paper. Test errors have no part in the choice.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", min=0, max=LARGEST_SEED, metavar="N", help="Seed of the first run; the next ones count from there."
    ),
]
LearningRate = Annotated[
    str | None,
    typer.Option(
        "--learning-rate",
        metavar="R",
        help="One number, or one per method: srn=1e-4,cw=3e-4. With --search, the list of numbers to try.",
        show_default="the paper's; ours for the methods that it does not have",
    ),
]
Peepholes = Annotated[
    bool,
    typer.Option("--peepholes/--no-peepholes", help="Whether LSTMs have peephole connections, from cells to gates."),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="SPEC",
        help="The modules of the networks with clocks, period:size,period:size,... as `cwrnn clocks` prints them. "
        "Replaces --sizes for these networks.",
        show_default="even modules with periods 1, 2, 4, ...",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="For a table: the column to learn. Columns without names are called 0, 1, 2, ...",
        show_default="the only column",
    ),
]
Inputs = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        metavar="LIST",
        help="For a table: the columns that networks read, with commas between them.",
        show_default="none",
    ),
]
Offset = Annotated[
    float,
    typer.Option(
        "--offset",
        min=0.0,
        metavar="SECONDS",
        help="Where in each sound file the sequence begins; in a table, the row, counted from 0.",
    ),
]
Length = Annotated[
    int | None,
    typer.Option(
        "--length",
        min=2,
        max=LARGEST_LENGTH,
        metavar="SAMPLES",
        help="Length of each sequence: samples, or rows of a table.",
        show_default=f"{GENERATION_SAMPLES}, or all of a shorter table",
    ),
]
Words = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="The recordings: bundle (the paper's 25 words, synthetic speech), timit:PATH, nltk-timit:PATH, or "
        "folder:PATH with WORD/SPEAKER.wav or a manifest.csv.",
    ),
]
Vocabulary = Annotated[
    str | None,
    typer.Option("--words", metavar="LIST", help="Use only these words.", show_default="all words of the source"),
]
Draws = Annotated[
    int,
    typer.Option(
        "--draws",
        min=1,
        max=LARGEST_DRAWS,
        metavar="N",
        help="Draws of the speakers. Each draw chooses seven speakers of every word by a seed of its own, five for "
        "training and two for the test; with several, a test over the draws compares the methods. With 1, the speakers "
        "are always the same, and folder:PATH uses all of them.",
    ),
]
WordEpochs = Annotated[
    int,
    typer.Option(
        "--epochs",
        min=1,
        max=LARGEST_EPOCHS,
        metavar="N",
        help="The most epochs. Training ends earlier, when the error stops falling.",
    ),
]
Noise = Annotated[
    float,
    typer.Option(
        "--noise", min=0.0, metavar="SIGMA", help="Standard deviation of the noise on the inputs during training."
    ),
]
Engine = Annotated[
    EngineName, typer.Option("--engine", help="Where to train: on the cores of this machine, or on a Dask cluster.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Address of a Dask cluster that you trust: its messages are pickled. Without this option, "
        "--engine dask starts a cluster on this machine that nobody else can use.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, max=LARGEST_WORKERS, metavar="N", help="Number of processes.", show_default="one per core"
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Continue the store in DIR: runs that it has are not trained again.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object. Everything else goes to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]


def make_out_option(
    default: Path, search_default: Path | None = None, help: str = "Folder for the store, the figures and the page."
) -> object:
    """The option --out with this help and these defaults."""
    shown = str(default) if search_default is None else f"{default}; --search: {search_default}"
    return typer.Option("--out", parser=parse_path, metavar="DIR", help=help, show_default=shown)


def make_sizes_option(quick: Sequence[int], paper: Sequence[int], search: Sequence[int]) -> object:
    """The option --sizes with these defaults."""
    shown = _join(quick) + ("" if quick == paper else f"; --paper: {_join(paper)}") + f"; --search: {_join(search)}"
    return typer.Option("--sizes", metavar="LIST", help="Numbers of parameters of the networks.", show_default=shown)


def make_runs_option(combination: str, quick: int, paper: int, search: int) -> object:
    """The option --runs with these defaults."""
    return typer.Option(
        "--runs",
        min=1,
        max=LARGEST_RUNS,
        metavar="N",
        help=f"Trainings with different initial weights for each {combination}.",
        show_default=f"{quick}; --paper: {paper}; --search: {search}",
    )


def make_paper_option(runs: int) -> object:
    """The option --paper, which stands for so many runs."""
    return typer.Option("--paper", help=f"Train as much as the paper: {runs} runs.")


def parse_methods(text: str) -> list[str]:
    """The methods of a list.

    >>> parse_methods("cw, SRN")
    ['cw', 'srn']
    """
    return [word.strip().lower() for word in text.split(",")]


def parse_words(text: str | None) -> list[str] | None:
    """The words of a list; None if there is none."""
    return None if text is None else [word.strip() for word in text.split(",")]


def parse_sizes(text: str | None) -> list[int] | None:
    """The numbers of parameters of a list; None if there is none.

    >>> parse_sizes("100,250")
    [100, 250]
    """
    try:
        return None if text is None else [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ArgumentError("sizes", f"expected numbers of parameters, such as 100,250, got {text!r}") from error


def parse_learning_rate(text: str | None) -> float | dict[str, float] | list[float] | None:
    """One learning rate, one for each method, or a list of them; None if there is none.

    >>> parse_learning_rate("1e-3"), parse_learning_rate("srn=1e-4,cw=0.1"), parse_learning_rate("0.1,0.2")
    (0.001, {'srn': 0.0001, 'cw': 0.1}, [0.1, 0.2])
    """
    if text is None:
        return None
    parts = text.split(",")
    try:
        if "=" not in text:
            rates = [float(part) for part in parts]
            return rates if len(rates) > 1 else rates[0]
        pairs = [part.rpartition("=") for part in parts]
        by_method = {method.strip(): float(number) for method, _, number in pairs}
    except ValueError as error:
        raise ArgumentError(
            "learning_rate", f"expected numbers above 0, or METHOD=NUMBER,METHOD=NUMBER, got {text!r}"
        ) from error
    if len(by_method) < len(pairs):
        raise ArgumentError("learning_rate", f"names a method twice: {text!r}")
    return by_method


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
