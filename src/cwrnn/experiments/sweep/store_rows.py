"""The rows of a store: records and arrays as SQLite keeps them. Reading executes nothing: text, numbers and JSON."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..task import find_task
from .run import FAILED, STATUSES, Record, Run

RUN_COLUMNS = ("task", "data", "digest", "method", "size", "hidden", "seed")
"""Fields of a `Run` that have a column of their own."""
RECORD_COLUMNS = (
    "parameters", "schedule", "status", "error", "best_error", "best_epoch", "epochs", "seconds", "traceback",
    "finished_at",
)  # fmt: skip
"""Fields of a `Record` that have a column of their own."""
COLUMNS = ("key", *RUN_COLUMNS, "settings", "environment", *RECORD_COLUMNS)
ORDER = ("data", "method", "size", "hidden", "settings", "seed", "key")
"""The columns by which records are sorted."""
WEIGHT = "weight:"
"""The prefix of a parameter's name in the table of arrays."""


def pack_record(record: Record) -> tuple[Any, ...]:
    """The row of a record in the table of runs, in the order of COLUMNS."""
    values = {name: getattr(record.run, name) for name in RUN_COLUMNS}
    # SQLite stores NaN as NULL
    values |= {name: getattr(record, name) for name in RECORD_COLUMNS}
    values["key"] = record.key
    values["settings"] = json.dumps(asdict(record.run.settings), sort_keys=True)
    values["environment"] = json.dumps(dict(record.environment), sort_keys=True)
    return tuple(values[name] for name in COLUMNS)


def unpack_record(row: tuple[Any, ...], arrays: Mapping[str, NDArray[Any]]) -> Record:
    """The record of a row, with its arrays by name. A ValueError if they do not fit together."""
    values = dict(zip(COLUMNS, row, strict=True))
    key, status = values["key"], values["status"]
    settings = find_task(values["task"]).settings(**json.loads(values["settings"]))
    run = Run(**{name: values[name] for name in RUN_COLUMNS}, settings=settings)
    if run.key != key:
        raise ValueError(f"the run {key} is not the one that its row describes")
    if status not in STATUSES:
        raise ValueError(f"the status of the run {key} is {status!r}, not one of {', '.join(STATUSES)}")
    weights = {name.removeprefix(WEIGHT): value for name, value in arrays.items() if name.startswith(WEIGHT)}
    for name, is_there in (("weights", weights), ("output", "output" in arrays), ("curve", "curve" in arrays)):
        if status != FAILED and not is_there:
            raise ValueError(f"the run {key} has {status}, but without {name}")
    environment = json.loads(values["environment"])
    if not isinstance(environment, dict):
        raise ValueError(f"the environment of the run {key} is {environment!r}, not an object")
    values |= {name: math.nan for name in ("error", "best_error") if values[name] is None}
    return Record(
        run=run,
        curve=arrays.get("curve"),
        output=arrays.get("output"),
        weights=None if status == FAILED else weights,
        environment=environment,
        **{name: values[name] for name in RECORD_COLUMNS},
    )


def order_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The sort key of a row of the table of runs."""
    return tuple(row[COLUMNS.index(name)] for name in ORDER)


def pack_arrays(record: Record) -> Iterator[tuple[str, str, str, str, bytes]]:
    """The rows of a record in the table of arrays."""
    named = {"curve": record.curve, "output": record.output}
    named |= {WEIGHT + name: value for name, value in (record.weights or {}).items()}
    for name, value in named.items():
        if value is not None:
            dtype = np.dtype(value.dtype).newbyteorder("<").str
            yield record.key, name, dtype, json.dumps(value.shape), np.ascontiguousarray(value, dtype=dtype).tobytes()


def unpack_array(data: bytes, dtype: str, shape: str) -> NDArray[Any]:
    """The array of a row."""
    kind = np.dtype(dtype)
    if kind.kind != "f":
        raise ValueError(f"an array of {dtype!r}, where only floating point numbers are kept")
    return np.frombuffer(data, dtype=kind).reshape(json.loads(shape))
