"""Tables: CSV files with series, changed in their cells, lines, separators and bytes; Parquet files of any types.

The bytes of Parquet files are not changed: pyarrow reads them, and asks for 2 GB of memory if a page says so.
"""

import functools
import io
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.series import MISSING
from cwrnn.estimators.table_files import TableError
from cwrnn.estimators.tables import TableFile, check_targets_vary, read_table, split_table

from ..door import Door, require
from ..mutation import NUMBERS, TEXTS, mutate_bytes, mutate_text

TIMES = (
    "2024-03-01", "2024-03-01 05:00", "2024-03-01T05:00:00Z", "2024-03-01T05:00+01:00", "2024-10-27 02:30", "1/2/2024",
    "31.12.1999 23:59", "20240301", "1700000000", "9999-12-31", "0001-01-01", "1677-01-01", "2262-04-12", "24:00",
    "2024-W05", "2024-02-30", "now", "NaT", "+10000-01-01", "2024-03-01 25:00", "Mar 1, 2024", "-1", "1e3",
)  # fmt: skip
"""Texts that are times, or nearly so."""

OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"time": "time", "targets": ["load"], "covariates": ["warm"]},
    {"time": "time", "targets": ["load", "warm"], "timezone": "Europe/Berlin"},
    {"time": "warm", "targets": ["load"]},
    {"time": "time", "targets": ["load"], "time_format": "%d/%m/%Y %H:%M", "encoding": "latin-1"},
)
"""The options with which every file is read."""


def make_frame(frequency: str, rows: int) -> pd.DataFrame:
    """Return a table of some rows."""
    load = make_load_series(days=3)[:rows]
    index = pd.date_range("2024-03-01", periods=rows, freq=frequency, name="time")
    return pd.DataFrame({"load": load.to_numpy(), "warm": np.arange(rows)}, index)


@functools.cache
def list_texts() -> tuple[str, ...]:
    """Return the texts of valid CSV files."""
    hourly, monthly = make_frame("h", 30), make_frame("MS", 14)
    local = pd.DataFrame(
        {"load": np.arange(30.0)}, pd.date_range("2024-10-26 12:00", periods=30, freq="h", name="time")
    )
    return (
        hourly[["load"]].to_csv(),
        hourly.to_csv(sep=";", decimal=","),
        monthly.to_csv(date_format="%d/%m/%Y %H:%M"),
        local.tz_localize("Europe/Berlin", ambiguous=False).to_csv(),
        hourly.tz_localize("UTC").to_csv(sep="\t", quoting=1),
    )


def make_parquet(random: Random) -> bytes:
    """Return a Parquet file whose columns have any types and values."""
    rows = random.choice((1, 2, 3, 30))
    columns = {}
    for name in random.sample(("time", "load", "warm", "", "a", "__index_level_0__"), random.randrange(1, 6)):
        columns[name] = make_column(random, rows, is_time=name == "time" and random.random() < 0.7)
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression=random.choice(("snappy", "zstd", "none")))
    return file.getvalue()


def make_column(random: Random, rows: int, is_time: bool) -> Any:
    """Return an array of pyarrow: times, numbers, texts or something else, with or without missing values."""
    numbers: list[Any] = [random.choice((i, i, i, 2**40, -1)) for i in range(rows)]
    if is_time:
        kinds = [pyarrow.timestamp(unit, zone) for unit in ("s", "us", "ns") for zone in (None, "Europe/Berlin")]
        kind = random.choice([*kinds, pyarrow.date32(), pyarrow.string()])
        numbers = [3600 * number for number in range(rows)] if random.random() < 0.8 else numbers
    else:
        kind = random.choice((pyarrow.float64(), pyarrow.float32(), pyarrow.int64(), pyarrow.bool_(), pyarrow.string(),
                              pyarrow.binary(), pyarrow.list_(pyarrow.int64()), pyarrow.decimal128(20, 3),
                              pyarrow.dictionary(pyarrow.int32(), pyarrow.string())))  # fmt: skip
    if random.random() < 0.4:
        numbers[random.randrange(rows)] = None
    if pyarrow.types.is_date(kind) or pyarrow.types.is_boolean(kind):
        numbers = [None if number is None else number % 2**20 for number in numbers]
    if pyarrow.types.is_boolean(kind):
        numbers = [None if number is None else bool(number % 2) for number in numbers]
    elif pyarrow.types.is_floating(kind) and random.random() < 0.3:
        numbers[0] = random.choice((float("nan"), float("inf"), 1e300))
    elif pyarrow.types.is_list(kind):
        numbers = [[number] for number in numbers]
    elif not (pyarrow.types.is_temporal(kind) or pyarrow.types.is_primitive(kind) or pyarrow.types.is_decimal(kind)):
        texts = [random.choice((str(number), *TIMES)) for number in numbers]
        if random.random() < 0.5:
            texts = [f"2024-03-{1 + i % 30:02}" for i in range(rows)]
        numbers = [text.encode() for text in texts] if pyarrow.types.is_binary(kind) else texts
    try:
        return pyarrow.array(numbers, kind)
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array(numbers)


def make_case(random: Random) -> bytes:
    """Return a file with a few changes."""
    kind = random.random()
    if kind < 0.3:
        return make_parquet(random)
    text = random.choice(list_texts())
    if kind < 0.75:
        text = mutate_cells(random, text)
    if kind > 0.65:
        text = mutate_text(random, text)
    data = text.encode(random.choice(("utf-8",) * 6 + ("utf-8-sig", "utf-16", "latin-1", "utf-16-le")), "replace")
    return mutate_bytes(random, data) if random.random() < 0.2 else data


def mutate_cells(random: Random, text: str) -> str:
    """Return CSV with other cells, and with lines that are doubled, moved or left out."""
    separator = next(separator for separator in ("\t", ";", ",") if separator in text.split("\n")[0])
    lines = text.rstrip("\n").split("\n")
    for _ in range(random.choice((1, 1, 2, 5))):
        row = random.randrange(len(lines))
        change = random.randrange(6)
        if change == 0:
            lines.insert(random.randrange(len(lines)), lines[row])
        elif change == 1 and len(lines) > 1:
            del lines[row]
        else:
            cells = lines[row].split(separator)
            values = TIMES if random.random() < 0.4 else NUMBERS if random.random() < 0.6 else TEXTS
            cells[random.randrange(len(cells))] = random.choice(values)
            lines[row] = separator.join(cells)
    return "\n".join(lines) + "\n"


def read_file(case: bytes, folder: Path) -> None:
    """Read the file with all options, and split the tables that come out."""
    path = folder / "table"
    path.write_bytes(case)
    refused: TableError | None = None
    accepted = 0
    for options in OPTIONS:
        try:
            table = read_table(path, **options)
        except TableError as error:
            refused = error
            continue
        for missing in MISSING:
            try:
                check_series(table, *split_table(table, missing=missing))
                check_targets_vary(table)
                accepted += 1
            except TableError as error:
                refused = error
    if not accepted and refused is not None:
        str(refused).encode()
        raise refused


def check_series(table: TableFile, y: Any, X: Any) -> None:
    """Refuse times that do not increase, and numbers that are not finite."""
    require(len(table.places) == len(table.frame), "not every row has a line")
    require(y.index.is_monotonic_increasing and y.index.is_unique, "times that do not increase")
    require(not np.isinf(y.to_numpy()).any(), "an infinite target")
    require(X is None or bool(np.isfinite(X.to_numpy()).all()), "a covariate that is not finite")
    require(X is None or len(X) >= 1, "no covariates")


DOORS = (Door("table", "read_table, split_table", (TableError,), make_case, read_file, seconds=4.0),)
