"""Tables: what came out, for a terminal, and as --json prints it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from rich import box
from rich.table import Table

from ..experiments.report.drawing import NAMES
from ..experiments.report.numbers import format_error, format_percent
from ..experiments.report.statistics import SummaryRow


def generation(rows: Sequence[SummaryRow], sequences: int, runs: int, epochs: int) -> Table:
    """The errors of the first task beside the paper's."""
    table = _empty_table(
        "Sequence generation: the error of what was learnt by heart",
        f"NMSE over the runs that finished: {sequences} sequence{'s' if sequences > 1 else ''} times {runs} initial "
        f"weights, {epochs} epochs. 0 is perfect, 1 is what the mean achieves; ± is the standard deviation. "
        "Paper: mean and deviation over 100 runs of its largest networks, on other music (table 3).",
    )
    _fill(table, rows, "NMSE", format_error, str)
    return table


def words(rows: Sequence[SummaryRow], source: str, runs: int) -> Table:
    """The errors of the second task beside the paper's, in percent."""
    table = _empty_table(
        "Spoken words: how many of the test set are taken for another one",
        f"Errors in percent over the runs that finished: {runs} initial weights each; ± is the standard deviation. "
        f"The words are {source}. Paper: mean and deviation over 100 runs of its largest networks, on words of TIMIT "
        "(table 3).",
    )
    written = partial(format_percent, unit="")
    _fill(table, rows, "error %", written, lambda part: written(float(part)))
    return table


def search(rows: Sequence[SummaryRow], best: Mapping[tuple[str, int], float], paper: Mapping[str, float]) -> Table:
    """What came of every learning rate."""
    in_percent = bool(rows) and rows[0].settings.outputs > 1
    table = _empty_table(
        "The search for the learning rate",
        "The median is that of the runs that finished. The best rate (*) has the lowest median where a run that "
        "diverged counts as infinitely bad."
        + (" Errors are those of the test set: what is chosen by them has seen it." if in_percent else ""),
    )
    error = "median\nerror %" if in_percent else "median\nNMSE"
    for header in ("\nsize", "learning\nrate", "\nruns", error, "\ndiverged", "\nbest", "\npaper's"):
        table.add_column(header, justify="right")
    for row in rows:
        rate = row.settings.learning_rate
        table.add_row(
            NAMES[row.method],
            str(row.size),
            f"{rate:g}",
            str(row.runs),
            format_percent(row.median, unit="") if in_percent else format_error(row.median),
            f"{100 * row.diverged / row.runs:.0f} %",
            "*" if best.get((row.method, row.size)) == rate else "",
            "*" if math.isclose(paper[row.method], rate) else "",
        )
    return table


def described(rows: Sequence[SummaryRow], best: Mapping[tuple[str, int], float]) -> list[dict[str, Any]]:
    """The rows for JSON: a number that is not there is None."""
    found = []
    for row in rows:
        values = asdict(row)
        values |= values.pop("settings")
        values |= {name: _finite(getattr(row, name)) for name in ("mean", "std", "median", "best")}
        if best:
            values["chosen"] = best.get((row.method, row.size)) == row.settings.learning_rate
        found.append(values)
    return found


def _empty_table(title: str, caption: str) -> Table:
    # nine columns in the 80 characters of a log
    table = Table(title=title, caption=caption, caption_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("\nmethod")
    return table


def _fill(
    table: Table,
    rows: Sequence[SummaryRow],
    measure: str,
    written: Callable[[float], str],
    quoted: Callable[[str], str],
) -> None:
    headers = ("\nsize", "hidden\nunits", "para-\nmeters", "\nruns", f"{measure}\nmean ± std", "\nmedian", "\ndiverged")
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True)
    failures = any(row.failed for row in rows)
    if failures:
        table.add_column("\nfailed", justify="right")
    table.add_column(f"paper's {measure}\nmean ± std", justify="right", no_wrap=True)
    for row in rows:
        cells = [NAMES[row.method], row.size, row.hidden, row.parameters, row.runs]
        cells += [f"{written(row.mean)} ± {written(row.std)}", written(row.median), row.diverged]
        paper = "" if row.paper is None else " ± ".join(map(quoted, row.paper.split(" ± ")))
        cells += [row.failed] * failures + [paper]
        table.add_row(*map(str, cells))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
