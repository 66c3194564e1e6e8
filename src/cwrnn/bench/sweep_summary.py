"""The summary of a sweep: how many lines were timed, the lowest ratios, and all lines that are slower than torch."""

from collections.abc import Mapping, Sequence
from typing import Any

from .gpu_timing import WAYS
from .ratios import KINDS, PASSES, compute_ratios, format_kind, make_key

Row = Mapping[str, Any]
"""A row of a sweep as plain data."""
RIVALS = ("cuda", "cudnn")
"""The backends of the GPU among which `auto` chooses."""

CLEARLY_LESS = 0.95
"""A rival is faster if it takes less than this share of the time."""


def format_summary(rows: Sequence[Row], left_out: int) -> str:
    """The summary as text.

    Args:
        rows: the rows as plain data
        left_out: the number of lines that were not started
    """
    lines = [_count_lines(rows, left_out), "", *_format_lowest(rows), ""]
    faults = [row for row in rows if has_error(row)]
    if faults:
        lines.append(f"lines with an error: {len(faults)}")
        lines += [f"  {describe_size(row)}  {row['note']}" for row in faults]
    left = _list_faster_rivals(rows)
    if left:
        lines += [f"lines that another backend would run in less time: {len(left)}, worst first", *left, ""]
    slow = _list_slow(rows)
    return "\n".join([*lines, f"lines below 1.0: {len(slow)}{', worst first' if slow else ''}", *slow])


def _list_faster_rivals(rows: Sequence[Row]) -> list[str]:
    """A text for every row that a rival runs in less time than the backend of the row, forward or with backward."""
    faster = []
    for row in rows:
        ratios = sorted(
            (row[rival] / row[own], backend, PASSES[name])
            for name in PASSES
            for backend in RIVALS
            for own, rival in [(make_key(name, "back_to_back"), make_key(name, "back_to_back", backend))]
            if row.get(own) and row.get(rival)
        )
        if ratios and ratios[0][0] < CLEARLY_LESS:
            ratio, backend, passed = ratios[0]
            faster.append((ratio, f"{describe_size(row)}  {backend} in place of {row['backend']}, {passed}"))
    return [f"  {ratio:6.3f}  {text}" for ratio, text in sorted(faster)]


def _list_slow(rows: Sequence[Row]) -> list[str]:
    """A text for every row with a ratio below 1: its lowest ratio, and how many of its ratios are below 1."""
    slow = []
    for row in rows:
        below = sorted((ratio, kind) for kind, ratio in compute_ratios(row).items() if ratio < 1)
        if below:
            ratio, kind = below[0]
            slow.append((ratio, f"{describe_size(row)}  {format_kind(kind)}; {len(below)} of {len(KINDS)} below"))
    return [f"  {ratio:6.3f}  {text}" for ratio, text in sorted(slow)]


def describe_size(row: Row) -> str:
    """The size, dtype and layer of a row in one line.

    >>> describe_size({"n": 64, "modules": 8, "T": 100, "B": 1, "inputs": 64, "dtype": "fp32", "layer": "GRU"})
    'GRU    64 units, 8 modules,  100 steps, batch   1, fp32'
    """
    return (
        f"{row['layer']:4s} {row['n']:4d} units, {row['modules']} modules, {row['T']:4d} steps, batch {row['B']:3d}, "
        f"{row['dtype']}"
    )


def _count_lines(rows: Sequence[Row], left_out: int) -> str:
    incomplete = [row for row in rows if len(compute_ratios(row)) < len(KINDS)]
    complete = len(rows) - len(incomplete)
    memory = sum(_lacks_only_memory(row) for row in incomplete)
    own = sum("cwrnn: memory" in row["note"] for row in incomplete if _lacks_only_memory(row))
    return (
        f"{len(rows) + left_out} lines: {complete} timed, {memory} that need more memory than there is "
        f"(cwrnn does in {own}), {len(rows) - complete - memory} with an error, {left_out} left out"
    )


def has_error(row: Row) -> bool:
    """True if a layer of the row failed, other than for memory."""
    return row["note"] is not None and not _lacks_only_memory(row)


def _lacks_only_memory(row: Row) -> bool:
    note = row["note"]
    return note is not None and all(part.split(": ", 1)[-1] == "memory" for part in note.split("; "))


def _format_lowest(rows: Sequence[Row]) -> list[str]:
    found = [compute_ratios(row) for row in rows]
    lines = [f"{'lowest ratio':16s} " + " ".join(f"{way.replace('_', ' '):>12s}" for way in WAYS)]
    for name, shown in PASSES.items():
        lowest = [min((ratios[name, way] for ratios in found if (name, way) in ratios), default=None) for way in WAYS]
        lines.append(f"{shown:16s} " + " ".join(f"{'-' if low is None else f'{low:.3f}':>12s}" for low in lowest))
    return lines
