"""The command line of the fuzzer."""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table

from .campaign import Tally, prepare, run_campaign
from .door import Door
from .doors.table import DOORS
from .findings import FOLDER, list_findings, read_finding
from .processes import Worker
from .worker import Verdict

EXAMPLES = """examples:
  make fuzz                                        all doors, for two minutes
  make fuzz SECONDS=600 SEED=7                     longer, with other cases
  PYTHONPATH=tests python -m fuzz --doors sound,model
  PYTHONPATH=tests python -m fuzz --replay tests/fuzz/findings/sound/hang-0123456789.gz
  PYTHONPATH=tests python -m fuzz --replay tests/fuzz/findings

exit codes: 0 nothing broke, 1 something did, 2 wrong usage
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the fuzzer, and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m fuzz",
        description="Try to break every door of cwrnn: files, folders, texts, calls and command lines. A case that "
        "breaks one is shrunk, and kept in tests/fuzz/findings, which the tests replay.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="time for all doors; default: 120")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="the same seed makes the same cases; default: 0"
    )
    parser.add_argument("--doors", default="", metavar="LIST", help=f"default: all; {', '.join(DOORS)}")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="run this finding only, or all findings in a folder"
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.doors.split(",") if name]
    unknown = [name for name in names if name not in DOORS]
    if unknown:
        parser.error(f"--doors: there is no door {', '.join(unknown)}; the doors are {', '.join(DOORS)}")
    if options.replay is not None:
        if not options.replay.exists():
            parser.error(f"--replay: there is no file {options.replay}")
        return replay(options.replay)
    doors = {name: DOORS[name] for name in names or DOORS}
    return fuzz(doors, options.seed, options.seconds)


def fuzz(doors: dict[str, Door], seed: int, seconds: float) -> int:
    """Run a campaign, print what came of it, and return the exit code."""
    console = Console()
    started = time.monotonic()
    workers = max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    with Live(console=console, transient=True, auto_refresh=False) as live:
        shown = 0.0

        def show(tallies: list[Tally]) -> None:
            nonlocal shown
            if console.is_terminal and time.monotonic() - shown > 0.5:
                shown = time.monotonic()
                gone = time.monotonic() - started
                live.update(make_table(tallies, f"{gone:.0f} of {seconds:.0f} s, {workers} processes"), refresh=True)

        tallies = run_campaign(doors, seed, seconds, workers, show)
    cases = sum(tally.cases for tally in tallies)
    console.print(make_table(tallies, f"{cases} cases with seed {seed} in {time.monotonic() - started:.0f} s"))
    for tally in tallies:
        for path, case, verdict in tally.findings:
            print_finding(tally.door.name, path, case, verdict)
        for verdict in tally.unrepeated:
            failure = f"{verdict.kind} {verdict.name} {verdict.place}"
            print(f"{tally.door.name}: seen once, but not again when its case ran alone: {failure}")
    count = sum(len(tally.findings) for tally in tallies)
    print(f"{count} findings" if count else "nothing broke")
    return 1 if count else 0


def make_table(tallies: Sequence[Tally], title: str) -> Table:
    """Return the table of doors, with cases, rates, errors and findings."""
    table = Table(
        "door", "cases", "per second", "accepted, and refused with", "findings", title=title, title_justify="left"
    )
    for tally in tallies:
        outcomes = ", ".join(f"{name} {count}" for name, count in tally.outcomes.most_common() if name != "failed")
        rate = f"{tally.cases / tally.seconds:.0f}" if tally.seconds else ""
        table.add_row(tally.door.name, str(tally.cases), rate, outcomes, str(len(tally.failures) or ""))
    return table


def print_finding(door: str, path: Path, case: bytes, verdict: Verdict) -> None:
    """Print a finding, and how to see it again."""
    relative = os.path.relpath(path)
    print(f"\n{door}: {verdict.kind} {verdict.name} in {verdict.place or 'no function of cwrnn'}")
    print("  " + verdict.text.strip().replace("\n", "\n  "))
    print(f"  {len(case)} bytes: {case[:200]!r}{'...' if len(case) > 200 else ''}")
    print(f"  again: PYTHONPATH=tests python -m fuzz --replay {relative}")


def replay(path: Path) -> int:
    """Run one finding or all findings of a folder, and return the exit code."""
    paths = list(list_findings(path)) if path.is_dir() else [path]
    if path.is_dir() and not paths and path.resolve() != FOLDER:
        paths = sorted(file for file in path.iterdir() if file.is_file())
    prepare(DOORS)
    worker = Worker(DOORS)
    broken = 0
    try:
        for each in paths:
            name, case = read_finding(each)
            verdict = worker.run_case(DOORS[name], case)
            if verdict.is_failure:
                broken += 1
                print_finding(name, each, case, verdict)
    finally:
        worker.close()
    print(
        f"{broken} of {len(paths)} findings still break the package" if broken else f"{len(paths)} findings: all mended"
    )
    return 1 if broken else 0
