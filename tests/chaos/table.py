"""The results as a table in Markdown, and as JSON."""

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .trial import Comparison, Trial


def describe_machine(seed: int) -> dict[str, Any]:
    """The circumstances of the trials."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": commit or "unknown",
        "machine": f"{platform.system()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seed": seed,
    }


def format_markdown(
    about: dict[str, Any], trials: Sequence[Trial], comparisons: Sequence[Comparison], notes: Iterable[str]
) -> str:
    """Two tables, of the faults and of the comparisons, and the problems one by one."""
    lines = [
        f"{len(trials)} faults on {about['date']}, commit {about['commit']}, {about['machine']}, seed {about['seed']}, "
        f"{about['minutes']:.0f} minutes.",
        "",
        "| command | fault | times | what it hit | problems |",
        "|---|---|---|---|---|",
    ]
    for command, fault in dict.fromkeys((trial.command, trial.fault) for trial in trials):
        chosen = [trial for trial in trials if (trial.command, trial.fault) == (command, fault)]
        counts = Counter(trial.phase for trial in chosen).most_common()
        phases = ", ".join(f"{phase} {count}" for phase, count in counts)
        wrong = sum(bool(trial.problems) for trial in chosen)
        lines.append(f"| `{command}` | {fault} | {len(chosen)} | {phases} | {wrong} |")
    lines += ["", "| command | brought to its end | faults, median and most | not equal |", "|---|---|---|---|"]
    for command in dict.fromkeys(comparison.command for comparison in comparisons):
        chosen_ends = [comparison for comparison in comparisons if comparison.command == command]
        made = sorted(comparison.faults for comparison in chosen_ends)
        wrong = sum(bool(comparison.problems) for comparison in chosen_ends)
        lines.append(f"| `{command}` | {len(made)} | {made[len(made) // 2]}, {made[-1]} | {wrong} |")
    lines += ["", *(f"* {note}" for note in notes)]
    for trial in trials:
        about_trial = f"`{trial.command}`, {trial.fault} at {trial.at}"
        lines += [f"* {about_trial}: {problem} ({trial.folder})" for problem in trial.problems]
    for comparison in comparisons:
        lines += [f"* `{comparison.command}`: {problem} ({comparison.folder})" for problem in comparison.problems]
    return "\n".join(lines).rstrip() + "\n"


def write_results(
    folder: Path,
    about: dict[str, Any],
    trials: Sequence[Trial],
    comparisons: Sequence[Comparison],
    notes: Sequence[str],
) -> Path:
    """Writes chaos.json and chaos.md into the folder, and returns the path of the second."""
    results = {
        **about,
        "notes": list(notes),
        "trials": [asdict(trial) for trial in trials],
        "comparisons": [asdict(comparison) for comparison in comparisons],
    }
    (folder / "chaos.json").write_text(json.dumps(results, indent=1) + "\n")
    page = folder / "chaos.md"
    page.write_text(format_markdown(about, trials, comparisons, notes))
    return page
