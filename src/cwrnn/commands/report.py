"""`cwrnn report` makes the page of a store again."""

from pathlib import Path
from typing import Annotated

import typer

from .console import guard_output, handle_errors


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The --out of what was run.")],
) -> None:
    """Draw figures and page again, from the store alone."""
    with handle_errors():
        # importing matplotlib takes long
        from ..experiments.report.page import write_report

        written = write_report(folder)
        with guard_output():
            print(written)
