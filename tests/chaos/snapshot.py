"""The contents of a store as plain values, read by SQL beside the package's own reader, and how two of them differ."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cwrnn.experiments.sweep.store import Store
from cwrnn.experiments.sweep.store_file import FILE
from cwrnn.experiments.task import all_tasks

TIMES = {"seconds", "finished_at"}
"""Columns of a run that differ between two trainings."""
SUMMARY_TIMES = {"created", "seconds"}
"""Entries of summary.json that differ between two sweeps."""
COMMANDS = "commands"
ENDINGS = {".html": b"</html>", ".svg": b"</svg>", ".png": b"IEND\xaeB`\x82"}
"""The last bytes of whole files."""


@dataclass(frozen=True)
class Snapshot:
    """Everything in the folder of a sweep that two sweeps must agree on, and when each run was finished."""

    runs: Mapping[str, Any]
    """By key: all columns that hold no time, and all arrays to the bit."""
    datasets: Mapping[str, Any]
    summary: Mapping[str, Any] | None
    """The numbers of the page without times; None if there is no page."""
    files: frozenset[str]
    finished: Mapping[str, str]
    """When each run was finished, by key; without runs that failed."""


def take_snapshot(folder: Path) -> Snapshot:
    """The contents of a sweep's folder. The folder is not touched: SQLite repairs a copy of the store.

    Raises:
        ValueError: the store, the page or the summary is damaged
    """
    if not folder.is_dir():
        return Snapshot({}, {}, None, frozenset(), {})
    files = frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    runs: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    finished: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as copies:
        for name in files:
            if name.startswith(FILE):
                shutil.copy(folder / name, copies)
        path = Path(copies) / FILE
        if path.exists() and path.stat().st_size > 0:
            with sqlite3.connect(path) as connection:
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
                if tables:
                    runs, datasets, finished = _read_tables(connection)
            connection.close()
            if tables:
                _read_as_cwrnn_does(path, len(runs))
    return Snapshot(runs, datasets, _read_page(folder, files), files, finished)


def compare(expected: Snapshot, actual: Snapshot, *, with_commands: bool = True) -> list[str]:
    """How two finished sweeps differ; empty if they are equal run for run."""
    problems = []
    for name in ("runs", "datasets"):
        wanted, had = getattr(expected, name), getattr(actual, name)
        missing, added = wanted.keys() - had.keys(), had.keys() - wanted.keys()
        changed = [key for key in wanted.keys() & had.keys() if wanted[key] != had[key]]
        problems += [f"{len(missing)} {name} are missing: {sorted(missing)[:3]}"] * bool(missing)
        problems += [f"{len(added)} {name} are too many: {sorted(added)[:3]}"] * bool(added)
        problems += [f"{len(changed)} {name} have other contents: {sorted(changed)[:3]}"] * bool(changed)
    wanted, had = dict(expected.summary or {}), dict(actual.summary or {})
    if not with_commands:
        wanted.pop(COMMANDS, None), had.pop(COMMANDS, None)
    problems += ["summary.json has other numbers"] * (wanted != had)
    problems += [f"files are missing: {sorted(expected.files - actual.files)}"] * bool(expected.files - actual.files)
    problems += [f"files are left behind: {sorted(actual.files - expected.files)}"] * bool(
        actual.files - expected.files
    )
    return problems


def check_kept(before: Snapshot, after: Snapshot) -> list[str]:
    """Which finished runs a disturbance has lost, or let be trained a second time."""
    lost = before.finished.keys() - after.finished.keys()
    again = [key for key in before.finished.keys() - lost if before.finished[key] != after.finished[key]]
    return [f"{len(lost)} finished runs are lost: {sorted(lost)[:3]}"] * bool(lost) + [
        f"{len(again)} finished runs were trained again: {sorted(again)[:3]}"
    ] * bool(again)


def _read_tables(connection: sqlite3.Connection) -> tuple[dict[str, Any], dict[str, Any], dict[str, str]]:
    connection.row_factory = sqlite3.Row
    runs: dict[str, Any] = {}
    finished = {}
    for row in connection.execute("SELECT * FROM runs"):
        values = dict(row)
        if values["key"] in runs:
            raise ValueError(f"the run {values['key']} is there twice")
        runs[values["key"]] = {name: value for name, value in values.items() if name not in TIMES}, {}
        if values["status"] != "failed":
            finished[values["key"]] = values["finished_at"]
    for row in connection.execute("SELECT * FROM arrays"):
        values = dict(row)
        if values["key"] not in runs:
            raise ValueError(f"an array of the run {values['key']}, which is not there")
        runs[values["key"]][1][values["name"]] = (values["dtype"], values["shape"], values["data"])
    datasets = {row["name"]: tuple(row) for row in connection.execute("SELECT * FROM datasets")}
    return runs, datasets, finished


def _read_as_cwrnn_does(path: Path, count: int) -> None:
    """Reads all records with the package's own checks."""
    with Store.read(path) as store:
        records = [record for task in all_tasks() for record in store.records(task.name)]
        store.datasets(), store.corpora()
    if len(records) != count:
        raise ValueError(f"the store has {count} runs, of which {len(records)} can be read")


def _read_page(folder: Path, files: frozenset[str]) -> dict[str, Any] | None:
    """The numbers of a page that is whole; None if there is no page."""
    for name in files:
        ending = ENDINGS.get(Path(name).suffix)
        if ending is not None and not (folder / name).read_bytes().rstrip().endswith(ending):
            raise ValueError(f"{name} is cut off")
    if "summary.json" not in files:
        return None
    numbers: dict[str, Any] = _without_times(json.loads((folder / "summary.json").read_text()))
    return numbers


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(inner) for name, inner in value.items() if name not in SUMMARY_TIMES}
    if isinstance(value, list):
        return [_without_times(inner) for inner in value]
    return value
