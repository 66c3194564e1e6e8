"""`cwrnn report` makes the page of a store again."""

from pathlib import Path
from typing import Annotated

import typer

from .console import guard_output, handle_errors, show_progress
from .options import parse_path


def report(
    folder: Annotated[
        Path,
        typer.Argument(parser=parse_path, metavar="DIR", help="The folder of a store: the --out of another command."),
    ],
) -> None:
    """Write the page and its figures again, from the store alone."""
    with handle_errors(option_names={"folder": "DIR"}):
        # imported here because it imports matplotlib, which is slow
        from ..experiments.report.page import write_report

        with show_progress(lines=False) as progress:
            written = write_report(folder, progress=progress)
        with guard_output():
            print(written)
