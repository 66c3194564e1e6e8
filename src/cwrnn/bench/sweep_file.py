"""The rows of sweeps, read from the JSON files that sweeps wrote.

A file may come from somebody else. All fields that the tables and a later sweep use are checked.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ..untrusted import escape_controls, parse_json, read_regular_file, shorten
from .gpu import DTYPES
from .layers import OUR_LAYERS
from .ratios import KINDS, make_key
from .sweep_summary import RIVALS

Row = dict[str, Any]

LARGEST_FILE = 2**24
"""The most bytes of a file. A sweep of all lines with rivals writes about 2 MB."""

_SIZES = ("n", "modules", "T", "B", "inputs")
_LINE = ("layer", "dtype", *_SIZES)
"""The fields by which a line is known."""

_Check = tuple[Callable[[Any], bool], str]


def _check_choice(names: Iterable[str]) -> _Check:
    names = tuple(names)
    return lambda value: value in names, f"one of {', '.join(names)}"


_REQUIRED: dict[str, _Check] = {
    "layer": _check_choice(OUR_LAYERS),
    "dtype": _check_choice(DTYPES),
    **dict.fromkeys(_SIZES, (lambda value: type(value) is int and value > 0, "a whole number above 0")),
    "backend": (lambda value: isinstance(value, str), "a text"),
    "note": (lambda value: value is None or isinstance(value, str), "a text or null"),
}
_OPTIONAL: dict[str, _Check] = dict.fromkeys(
    (make_key(*kind, layer) for kind in KINDS for layer in ("cwrnn", *OUR_LAYERS, *RIVALS)),
    (lambda value: value is None or (type(value) in (int, float) and value > 0), "a number above 0 or null"),
)
"""The checks of fields: whether a value is right, and what it must be. A row has seconds only of what was timed."""


_ENVIRONMENT = ("device", "torch", "CUDA", "cuDNN", "cwrnn", "backend", "rivals")
"""The fields of an environment that must be the same in a sweep that is resumed."""


def read_rows(files: Iterable[Path]) -> list[Row]:
    """The rows of all files, each line once: that of the last file that has it. A terminal obeys none of their texts.

    Raises a ValueError for a file that is not of a sweep, and an OSError for one that cannot be read.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    for path in files:
        rows |= index_rows(_check_rows(path, _read_record(path).get("sweep")))
    return list(rows.values())


def index_rows(rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    """The rows by their lines: of several rows of a line, the last one."""
    return {tuple(row[field] for field in _LINE): row for row in rows}


def read_sweep(path: Path, environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a file contains that a sweep in this environment wrote, with checked rows.

    Raises a ValueError for a file of anything else, and an OSError for one that cannot be read.
    """
    record = _read_record(path)
    rows, found = _check_rows(path, record.get("sweep")), record.get("environment")
    if not isinstance(found, dict):
        raise ValueError(f"{path} does not say where it was measured")
    for field in _ENVIRONMENT:
        if found.get(field) != environment.get(field):
            raise ValueError(
                f"{path} was measured with {shorten(repr(found.get(field)))} as {field}, and this sweep has "
                f"{environment.get(field)!r}"
            )
    return record | {"sweep": list(index_rows(rows).values())}


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = parse_json(read_regular_file(path, LARGEST_FILE))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from None
    return record if isinstance(record, dict) else {}


def _check_rows(path: Path, rows: Any) -> list[Row]:
    """The rows of a file with texts that a terminal can show. Raises a ValueError if one of them is wrong."""
    if not isinstance(rows, list):
        raise ValueError(f"{path} has no rows of a sweep")
    for number, row in enumerate(rows, 1):
        fault = _find_fault(row)
        if fault is not None:
            raise ValueError(f"{path}: row {number} of the sweep {fault}")
    return [
        row | {field: escape_controls(row[field]) for field in ("backend", "note") if row[field] is not None}
        for row in rows
    ]


def _find_fault(row: Any) -> str | None:
    """Why a value is not a row of a sweep, or None."""
    if not isinstance(row, dict):
        return "is not an object"
    for field, (is_right, expected) in (_REQUIRED | _OPTIONAL).items():
        if field in row and not is_right(row[field]):
            return f"has {shorten(repr(row[field]))} as {field}, which must be {expected}"
        if field not in row and field in _REQUIRED:
            return f"has no {field}"
    if row["modules"] > row["n"]:
        return f"has {row['modules']} modules, but {row['n']} units"
    return None
