"""Tables as plain text, for the results that print themselves."""

import textwrap
from collections.abc import Sequence

NARROWEST = 60
"""The caption is wrapped at the width of the table, or at this if the table is narrower."""


def format_table(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], caption: str, *, left: int = 1, gap: int = 2
) -> str:
    """Return a table as text. Cells may have several lines.

    Args:
        title: the first line
        headers: one for each column
        rows: the cells of each row
        caption: the text below the table
        left: number of columns whose cells are aligned to the left; the others are aligned to the right
        gap: spaces between two columns

    >>> print(format_table("Errors", ["series", "median"], [["linear", "0.5"], ["random", "0.25"]], "Lower is better."))
    Errors
    <BLANKLINE>
    series  median
    --------------
    linear     0.5
    random    0.25
    <BLANKLINE>
    Lower is better.
    """
    cells = [[cell.split("\n") for cell in row] for row in (headers, *rows)]
    widths = [max(len(line) for row in cells for line in row[column]) for column in range(len(headers))]
    header, *body = [_format_row(row, widths, left, gap, top=number > 0) for number, row in enumerate(cells)]
    rule = "-" * (sum(widths) + gap * (len(widths) - 1))
    lines = textwrap.wrap(caption, max(NARROWEST, len(rule)))
    return "\n".join([title, "", header, rule, *body, "", *lines])


def _format_row(row: Sequence[Sequence[str]], widths: Sequence[int], left: int, gap: int, *, top: bool) -> str:
    """Format the lines of one row; cells with fewer lines than others are at the top, or at the bottom."""
    height = max(map(len, row))
    padded = [[*cell, *empty] if top else [*empty, *cell] for cell in row for empty in [[""] * (height - len(cell))]]
    return "\n".join(
        (" " * gap)
        .join(
            text.ljust(width) if column < left else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        for line in zip(*padded, strict=True)
    )
