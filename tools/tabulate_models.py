"""Puts the runs of several stores side by side: a table of methods and tasks in Markdown, and all runs as JSON.

Each store becomes a column. A cell has the mean error of the runs that finished and the median of their seconds; the
lowest error of a column is bold. Shares are in percent. In the JSON, runs of `cwrnn evaluate` also have the error of
the validation part after the last update.

Run it as ``python tools/tabulate_models.py out/permuted out/adding --json docs/where-a-clock-pays/models.json``.
"""

import argparse
import json
import sqlite3
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from cwrnn.experiments.evaluation.task import EVALUATIONS
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.report.drawing import NAMES
from cwrnn.experiments.sweep.run import FINISHED

COLUMNS = ("task", "data", "method", "size", "hidden", "parameters", "schedule", "seed", "status", "error", "epochs",
           "seconds", "settings", "environment")  # fmt: skip
"""What is kept of a run."""
SHARES = {"words", "copy", "sequential-mnist", "permuted-mnist"}
"""The tasks whose errors are shares."""
VALIDATED = {task.name for task in EVALUATIONS}
"""The tasks that have a validation part."""

Runs = list[dict[str, Any]]


def read_runs(folder: Path) -> Runs:
    """Return the runs of the store in a folder, in the order of method, data and seed."""
    with sqlite3.connect(f"file:{folder / 'runs.sqlite'}?mode=ro", uri=True) as connection:
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)}, key FROM runs ORDER BY method, data, seed").fetchall()
        curves = dict(connection.execute("SELECT key, data FROM arrays WHERE name = 'curve'"))
    runs = []
    for *values, key in rows:
        run = dict(zip(COLUMNS, values, strict=True))
        run.update({name: json.loads(run[name]) for name in ("settings", "environment")})
        if run["task"] in VALIDATED and run["status"] == FINISHED:
            # the validation error is the last number of the curve's last row
            run["validation"] = float(np.frombuffer(curves[key], "<f4")[-1])
        runs.append(run)
    return runs


def format_cell(runs: Runs, lowest: float) -> str:
    """Return the mean error and the median seconds of the runs that finished, and how many did not."""
    errors = [run["error"] for run in runs if run["status"] == FINISHED]
    if not errors:
        return "diverged" if runs else "none"
    mean = fmean(errors)
    text = f"{100 * mean:.1f} %" if runs[0]["task"] in SHARES else f"{mean:.2g}" if mean < 1 else f"{mean:.2f}"
    text = f"**{text}**" if mean == lowest else text
    lost = f", {len(runs) - len(errors)} of {len(runs)} diverged" if len(errors) < len(runs) else ""
    return f"{text} ({median(run['seconds'] for run in runs if run['status'] == FINISHED):,.3g} s{lost})"


def make_table(stores: dict[str, Runs]) -> str:
    """Return the table: a row for each method that has a run, a column for each store."""
    known = [
        method for method in ALL_METHODS if any(run["method"] == method for runs in stores.values() for run in runs)
    ]
    cells = {name: {method: [run for run in runs if run["method"] == method] for method in known}
             for name, runs in stores.items()}  # fmt: skip
    lowest = {}
    for name, groups in cells.items():
        finished = [[run["error"] for run in runs if run["status"] == FINISHED] for runs in groups.values()]
        lowest[name] = min(fmean(errors) for errors in finished if errors)
    rows = [["", *stores], ["---"] * (len(stores) + 1)]
    rows += [[NAMES[method], *(format_cell(cells[name][method], lowest[name]) for name in stores)] for method in known]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Print the table, and write the runs."""
    parser = argparse.ArgumentParser(description="Put the runs of several stores side by side.")
    parser.add_argument("stores", nargs="+", type=Path, help="folders that cwrnn evaluate or cwrnn reproduce wrote")
    parser.add_argument("--json", type=Path, help="the file for all runs")
    asked = parser.parse_args()
    stores = {folder.name: read_runs(folder) for folder in asked.stores}
    print(make_table(stores))
    if asked.json:
        lines = (json.dumps(run) for runs in stores.values() for run in runs)
        asked.json.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
