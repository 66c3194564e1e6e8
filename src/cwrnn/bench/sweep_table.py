"""Prints Markdown tables of sweeps: the worst and the median ratio of each number of units and modules.

    python -m cwrnn.bench --device cuda sweep --part 1/2 --json out/1.json
    python -m cwrnn.bench --device cuda sweep --part 2/2 --json out/2.json
    python -m cwrnn.bench.sweep_table out/1.json out/2.json
    python -m cwrnn.bench.sweep_table --apart out/*.json

There is one table for each cell and dtype. A ratio says how many times faster cwrnn is than the layer of torch with the
same cell. A cell of a table has the worst and the median ratio of all batches, numbers of steps, passes (forward,
forward+backward) and ways of timing (back to back, synchronised). If several files have the same line, the last file
counts.
"""

import argparse
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from .layers import OUR_LAYERS
from .ratios import KINDS, compute_ratios, format_kind
from .sweep import CASES
from .sweep_file import Row, read_rows
from .sweep_summary import format_summary

Kind = tuple[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables and returns the exit code: 0 done, 1 a file that cannot be read."""
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.bench.sweep_table", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="what --json of the benchmark wrote")
    parser.add_argument("--apart", action="store_true", help="a table for each pass and way of timing")
    options = parser.parse_args(arguments)
    try:
        rows = read_rows(options.files)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    print(format_tables(rows, apart=options.apart))
    return 0


def format_tables(rows: Sequence[Row], *, apart: bool = False) -> str:
    """The summary and the tables of each cell as Markdown."""
    blocks = []
    for layer in OUR_LAYERS:
        own = [row for row in rows if row["layer"] == layer]
        if not own:
            continue
        left_out = max(0, sum(len(case.list_sizes()) for case in CASES) - len(own))
        blocks.append(f"## {layer}\n\n```\n{format_summary(own, left_out)}\n```")
        for dtype in sorted({row["dtype"] for row in own}):
            chosen = [row for row in own if row["dtype"] == dtype]
            for kinds in [[kind] for kind in KINDS] if apart else [KINDS]:
                shown = f", {format_kind(kinds[0])}" if apart else ""
                blocks.append(f"{layer}, {dtype}{shown}: worst / median\n\n{format_table(chosen, kinds)}")
    return "\n\n".join(blocks)


def format_table(rows: Sequence[Row], kinds: Sequence[Kind] = KINDS) -> str:
    """A Markdown table of the worst and the median ratio: a line for each number of units, a column for modules.

    >>> row = {"layer": "RNN", "n": 64, "modules": 2, "forward": 0.1, "forward_rnn": 0.25}
    >>> print(format_table([row, row | {"forward_rnn": 0.35}]))
    | units | 2 modules |
    |---|---|
    | 64 | 2.50 / 3.00 |
    """
    modules = sorted({row["modules"] for row in rows})
    lines = [
        "| units | " + " | ".join(f"{count} module{'s' if count > 1 else ''}" for count in modules) + " |",
        "|---" * (len(modules) + 1) + "|",
    ]
    for units in sorted({row["n"] for row in rows}):
        cells = [
            _format_cell([row for row in rows if (row["n"], row["modules"]) == (units, count)], kinds)
            for count in modules
        ]
        lines.append(f"| {units} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _format_cell(rows: Sequence[Row], kinds: Sequence[Kind]) -> str:
    ratios = [ratio for row in rows for kind, ratio in compute_ratios(row).items() if kind in kinds]
    if not ratios:
        return "-"
    # rounded down, so that no ratio below 1 is shown as 1.00
    return f"{math.floor(min(ratios) * 100) / 100:.2f} / {statistics.median(ratios):.2f}"


if __name__ == "__main__":
    sys.exit(main())
