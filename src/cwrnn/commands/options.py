"""Options of the command line that its commands share, and what is made of their texts."""

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..experiments.networks.build import METHODS
from ..experiments.sweep import driver
from ..schedule import Schedule
from .console import handle_errors

LARGEST = 10**9
"""Parameters of a network, at most; a number that the store could not hold is refused with it."""


class EngineName(str, Enum):
    """Who trains."""

    LOCAL = "local"
    DASK = "dask"


Methods = Annotated[str, typer.Option("--methods", metavar="LIST", help="Which networks.")]
ALL_METHODS = ",".join(METHODS)
Search = Annotated[bool, typer.Option("--search", help="Search the best learning rate of each method.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**62, metavar="N", help="Of the first run; the next ones count from there.")
]
LearningRate = Annotated[
    str | None,
    typer.Option(
        "--learning-rate",
        metavar="R",
        help="A number, or one per method: srn=1e-4,cw=3e-4. With --search: the list of those to try.",
        show_default="the paper's",
    ),
]
Peepholes = Annotated[
    bool, typer.Option("--peepholes/--no-peepholes", help="Whether the gates of the LSTM see its cells.")
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="SPEC",
        help="The modules of the CW-RNN, period:size,period:size,... as `cwrnn clocks` prints them, in place of its "
        "sizes.",
        show_default="even modules of periods 1, 2, 4, ...",
    ),
]
Words = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="SOURCE",
        help="Who says the words: bundle (the paper's 25, synthetic), timit:PATH, nltk-timit:PATH, or folder:PATH "
        "with WORD/SPEAKER.wav or a manifest.csv.",
    ),
]
Vocabulary = Annotated[
    str | None, typer.Option("--words", metavar="LIST", help="These words only.", show_default="the source's")
]
WordEpochs = Annotated[
    int, typer.Option("--epochs", min=1, metavar="N", help="At most; training ends when the error ceases to fall.")
]
Noise = Annotated[
    float,
    typer.Option("--noise", min=0.0, metavar="SIGMA", help="Standard deviation of what is added to the inputs."),
]
Engine = Annotated[EngineName, typer.Option("--engine", help="This machine's cores, or a Dask cluster.")]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Of an existing Dask cluster; without it, one is made on this machine.",
    ),
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, metavar="N", help="Processes.", show_default="one per core")
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the store that is in DIR.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and all else to stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Do not show progress.")]


def out(default: str, told: str = "Where store and page go.") -> object:
    """The option --out, and what it says of itself."""
    return typer.Option("--out", metavar="DIR", help=told, show_default=default)


Out = Path | None


def check_engine(engine: EngineName, scheduler: str | None, workers: int | None) -> None:
    """Refuses an engine, a scheduler and workers that do not fit together."""
    with handle_errors():
        driver.check_engine(engine.value, scheduler, workers)


def check_scale(paper: bool, search: bool) -> None:
    """Likewise."""
    if paper and search:
        raise typer.BadParameter(
            "is of no use with --search: name what you want more of, e.g. --runs", param_hint="--paper"
        )


def check_noise(noise: float) -> None:
    """Likewise."""
    if not math.isfinite(noise):
        raise typer.BadParameter(f"expected a standard deviation, got {noise}", param_hint="--noise")


def methods(text: str) -> tuple[str, ...]:
    """The methods of a list, in the paper's order, whatever the user's."""
    names = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",")))
    for name in names:
        if name not in METHODS:
            raise typer.BadParameter(f"expected some of {', '.join(METHODS)}, got {name!r}", param_hint="--methods")
    return tuple(name for name in METHODS if name in names)


def sizes(text: str) -> tuple[int, ...]:
    """The numbers of parameters of a list."""
    try:
        values = sorted({int(word) for word in text.split(",")})
    except ValueError:
        values = [0]
    if values[0] < 1:
        raise typer.BadParameter(f"expected numbers of parameters, such as 100,250, got {text!r}", param_hint="--sizes")
    if values[-1] > LARGEST:
        raise typer.BadParameter(f"expected at most {LARGEST} parameters, got {values[-1]}", param_hint="--sizes")
    return tuple(values)


def schedule(text: str | None) -> Schedule | None:
    """The modules that a user names."""
    try:
        return None if text is None else Schedule.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--schedule") from error


def rates(text: str | None, methods: Sequence[str], usual: Mapping[str, float]) -> dict[str, float]:
    """The learning rate of each method."""
    if text is None:
        return dict(usual)
    expected = f"expected one number, or METHOD=NUMBER with one of {', '.join(methods)}"
    if "=" not in text:
        if "," in text:
            raise typer.BadParameter(f"{expected}; a list is for --search", param_hint="--learning-rate")
        return dict.fromkeys(methods, _rate(text, text))
    found: dict[str, float] = {}
    for word in text.split(","):
        method, _, number = word.rpartition("=")
        value = _rate(number, text)
        method = method.strip()
        if method not in methods:
            raise typer.BadParameter(f"{expected}, got {word!r}", param_hint="--learning-rate")
        if method in found:
            raise typer.BadParameter(f"names {method} twice: {text!r}", param_hint="--learning-rate")
        found[method] = value
    return {**usual, **found}


def grid(text: str | None, usual: Sequence[float]) -> tuple[float, ...]:
    """The learning rates that a search tries."""
    return tuple(usual) if text is None else tuple(sorted({_rate(word, text) for word in text.split(",")}))


def _rate(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise typer.BadParameter(f"expected numbers above 0, got {text!r}", param_hint="--learning-rate")
    return value
