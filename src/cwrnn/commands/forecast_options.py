"""Options that the commands about forecasts share."""

from pathlib import Path
from typing import Annotated

import typer

from ..experiments.limits import LARGEST_EPOCHS
from .options import parse_path

Data = Annotated[
    Path,
    typer.Argument(
        parser=parse_path, metavar="DATA", help="A CSV or Parquet file; its first line has the names of the columns."
    ),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="The column to forecast. May be repeated.",
        show_default="the only column beside times and covariates",
    ),
]
Covariates = Annotated[
    str | None,
    typer.Option(
        "--covariates",
        metavar="LIST",
        help="Columns that are known in advance, such as a calendar or a weather forecast.",
        show_default=False,
    ),
]
Horizon = Annotated[int, typer.Option("--horizon", min=1, metavar="N", help="How many steps to forecast.")]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        metavar="COLUMN",
        help="The column of the times: dates, or whole numbers.",
        show_default="the first column of dates",
    ),
]
TimeFormat = Annotated[
    str | None,
    typer.Option(
        "--time-format",
        metavar="FORMAT",
        help="The format of the times, such as '%d/%m/%Y %H:%M'.",
        show_default="ISO 8601, or one that fits all times",
    ),
]
Timezone = Annotated[
    str | None,
    typer.Option(
        "--timezone",
        metavar="ZONE",
        help="The time zone of the times, such as Europe/Berlin: when the clocks go back, an hour occurs twice.",
        show_default="none, or that of the file",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="The encoding of a CSV file.", show_default="UTF-8"),
]
Missing = Annotated[
    str,
    typer.Option(
        "--missing",
        metavar="error|interpolate|hold",
        help="What to do about missing values and times: refuse them, draw a line between their neighbours, or keep "
        "the last value.",
    ),
]
Cell = Annotated[
    str | None,
    typer.Option(
        "--cell",
        metavar="rnn|lstm|gru",
        help="The cells of the network, with clocks.",
        show_default="lstm",
    ),
]
HiddenSize = Annotated[
    int | None,
    typer.Option(
        "--hidden-size",
        min=1,
        metavar="N",
        help="The number of hidden units.",
        show_default="40",
    ),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="SPEC",
        help="The periods of the modules, as in 1,24,168, or their periods and sizes, as in 1:32,24:16.",
        show_default="clocks that the data suggest",
    ),
]
Coverage = Annotated[
    float, typer.Option("--coverage", metavar="SHARE", help="The share of values that intervals should cover.")
]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        min=1,
        max=LARGEST_EPOCHS,
        metavar="N",
        help="The most epochs of a training.",
        show_default="40",
    ),
]
Seed = Annotated[
    int, typer.Option("--seed", min=0, metavar="N", help="Seed of the initial weights and of the batches.")
]
Device = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto takes a GPU if there is one; or cpu, cuda, cuda:1, ...")
]

OPTION_NAMES = {"data": "DATA", "model": "MODEL", "targets": "--target", "test_size": "--test"}
"""The names of the options, by the names of arguments that differ from them."""


def split_list(text: str | None) -> list[str]:
    """The entries of a list that commas separate.

    >>> split_list("warm, holiday"), split_list(None)
    (['warm', 'holiday'], [])
    """
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]
