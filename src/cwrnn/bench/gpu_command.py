"""The regimes of the GPU on the command line: what they print, and the record that they leave in a file."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import gpu, sweep
from .record_file import RecordFile
from .sweep_file import index_rows
from .sweep_summary import format_summary, has_error
from .timing import show_progress

REGIMES = ("gpu", "sweep")


class GpuOptions(NamedTuple):
    """The options of the command line that the regimes of the GPU read."""

    layer: str
    backend: str
    device: torch.device
    cases: Sequence[sweep.Case]
    """The cases of the sweep, of which `part` takes a share."""
    part: sweep.Part
    seconds: float
    rivals: bool
    json: Path | None
    earlier: dict[str, Any] | None = None
    """What the file of the sweep contains that this one resumes, or None."""


def measure_on_gpu(chosen: Sequence[str], options: GpuOptions, environment: dict[str, Any]) -> Any:
    """Measures the chosen regimes, prints the numbers as they come, and returns all of them as plain data.

    The JSON file grows with them, so a process that is killed leaves what it has measured.
    """
    earlier = options.earlier or {}
    record: dict[str, Any] = {
        **earlier,
        "environment": earlier.get("environment", {}) | describe_choices(environment, options.backend, options.rivals),
        "unit": "seconds, medians",
        **{regime: [] for regime in chosen},
    }
    if earlier:
        record["sweep"] = list(earlier["sweep"])
    file = RecordFile(options.json, record)
    try:
        for regime in chosen:
            if regime == "gpu":
                _measure_sizes(options, record, record[regime], file)
            else:
                _measure_sweep(options, record, record[regime], file)
    finally:
        file.write()
    return record


def describe_choices(environment: dict[str, Any], backend: str, rivals: bool) -> dict[str, Any]:
    """The environment of a record: the machine, and what was chosen to be measured."""
    return environment | {"backend": backend, "rivals": rivals}


def _measure_sizes(options: GpuOptions, record: dict[str, Any], rows: list[Any], file: RecordFile) -> None:
    rates, bandwidth = gpu.measure_ceilings(options.device)
    print(
        "peak "
        + ", ".join(f"{name} {rate / 1e12:.0f}" for name, rate in rates.items())
        + " TMAC/s (trillion multiply-adds per second of a matrix product of torch); "
        + f"a copy moves {bandwidth / 1e12:.1f} TB/s"
    )
    record["environment"] |= {"peaks": rates, "bandwidth": bandwidth}
    print(f"\n{gpu.make_head(gpu.OTHERS)}", flush=True)
    for row in gpu.measure(gpu.SIZES, options.layer, gpu.OTHERS, options.backend, options.device):
        rows.append(row.record())
        print(gpu.format_row(row, rates), flush=True)
        file.write_if_due()
    print(gpu.LEGEND)


def _measure_sweep(options: GpuOptions, record: dict[str, Any], rows: list[Any], file: RecordFile) -> None:
    part = options.part.select(options.cases)
    failed = [row for row in rows if has_error(row)]
    cases = sweep.leave_out(part, [row for row in rows if not has_error(row)], options.layer)
    # lines with an error are timed again, but last: one of them may have ended the sweep
    cases.sort(key=lambda case: sweep.leave_out([case], failed, options.layer) != [case])
    kept, left, done = len(rows) - len(failed), _count_lines(cases), 0
    progress = _Progress(left, options.seconds)
    record["sweep_part"] = {"part": str(options.part), "lines": _count_lines(part), "left_out": left}
    if options.earlier is not None:
        print(f"{kept} lines of {options.json} are kept, {left} are left")
    if options.device.type == "cuda":
        for text in sweep.prepare(cases, options.layer, options.backend, options.device, progress.has_time):
            show_progress(text)
        show_progress("")
        torch.cuda.empty_cache()
    print(f"\n{sweep.HEAD}", flush=True)
    progress.show(0)
    for case in sweep.measure_sweep(
        cases, options.layer, options.backend, options.device, progress.has_time, options.rivals
    ):
        show_progress("")
        new = [row.record() for row in case]
        # a line with an error keeps its place
        rows[:] = (index_rows(rows) | index_rows(new)).values()
        for row in case:
            print(sweep.format_line(row), flush=True)
        done += len(new)
        record["sweep_part"]["left_out"] = left - done
        file.write_if_due()
        progress.show(done)
    show_progress("")
    own = [row for row in rows if row["layer"] == options.layer]
    print(f"{sweep.LEGEND}\n\n{format_summary(own, record['sweep_part']['left_out'])}", flush=True)


def _count_lines(cases: Sequence[sweep.Case]) -> int:
    return sum(len(case.list_sizes()) for case in cases)


class _Progress:
    """How far a sweep is, and whether it may start another case."""

    def __init__(self, lines: int, seconds: float) -> None:
        self._lines, self._seconds = lines, seconds
        self._start = time.monotonic()

    def has_time(self) -> bool:
        """False once the sweep has used its seconds."""
        return time.monotonic() - self._start < self._seconds

    def show(self, done: int) -> None:
        """Shows the number of the next line and an estimate of the time that remains, on a terminal."""
        text = f"line {min(done + 1, self._lines)} of {self._lines}"
        if done:
            used = time.monotonic() - self._start
            left = min(used / done * (self._lines - done), max(0.0, self._seconds - used))
            text += f", about {left:.0f} s remain"
        show_progress(text)
