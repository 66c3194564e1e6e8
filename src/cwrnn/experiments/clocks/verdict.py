"""The verdict on clocks that were found: whether they are better than the series 1, 2, 4, ..., and how to use them."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from ...schedule import Schedule
from ..networks.build import schedule_parameter_count
from ..networks.methods import METHODS
from ..task import find_task
from .request import Selection, Source
from .series import PAPER_SERIES
from .square_waves import PREFIX

NMSE, ERROR_RATE, CROSS_ENTROPY = "NMSE", "error rate", "cross entropy"

SCHEDULE_FILE = "schedule.txt"
"""The file with the best schedule that was found, in the folder of the results."""


@dataclass(frozen=True)
class Verdict:
    """The median error of clocks that were found, beside the median error of the series 1, 2, 4, ...

    >>> print(Verdict("learned", Schedule.exponential(16, 4), 0.014, 0.00023, NMSE))
    The learned clocks are worse than 1, 2, 4, 8: median NMSE 0.014 against 0.00023. Use the series.
    """

    clocks: str
    """How they were found: "learned" or "evolved"."""
    series: Schedule
    """The schedule of the series."""
    error: float
    """The median error of the clocks that were found; infinite if half of the networks or more did not finish."""
    series_error: float
    """The median error of the series; infinite if half of the networks or more did not finish."""
    measure: str
    """The name of the errors: "NMSE", "error rate" or "cross entropy"."""

    @property
    def better(self) -> bool:
        """True if the clocks that were found have a lower error than the series."""
        return self.error < self.series_error

    @property
    def worse(self) -> bool:
        """True if the clocks that were found have a higher error than the series."""
        return self.error > self.series_error

    def __str__(self) -> str:
        periods = ", ".join(map(str, self.series.periods))
        errors = _format_errors(self.error, self.series_error, percent=self.measure == ERROR_RATE)
        medians = f"median {self.measure} {errors[0]} against {errors[1]}"
        if self.worse:
            return f"The {self.clocks} clocks are worse than {periods}: {medians}. Use the series."
        if self.better:
            return f"The {self.clocks} clocks are better than {periods}: {medians}."
        return f"The {self.clocks} clocks are as good as {periods}: {medians}."

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the sentence."""
        return {
            "series": self.series.spec,
            "error": self.error,
            "series error": self.series_error,
            "measure": self.measure,
            "better": self.better,
            "worse": self.worse,
            "sentence": str(self),
        }


def format_use(
    task: str,
    sources: Sequence[Source],
    schedule: Schedule,
    *,
    shape: tuple[int, int],
    modules: int,
    out: str | PathLike[str] | None = None,
    method: str = "cw",
    selection: Selection | None = None,
) -> str:
    """Return a command that trains networks with a schedule on the same data, or a line of Python if there is none.

    `cwrnn reproduce` takes every source except square waves and inputs of a table, for which `cwrnn clocks compare` is
    the command. A command line cannot name data that were passed as objects.

    Args:
        task: the name of the task
        sources: where the data come from
        schedule: the schedule to use
        shape: number of inputs and of outputs of the networks
        modules: number of modules of the series that the schedule is compared with
        out: the folder for the networks that the command trains; None for the default of the command
        method: the method of the networks
        selection: the part of the data

    >>> format_use("generation", ["my song.wav"], Schedule((1, 5), (3, 4)), shape=(0, 1), modules=2)
    "cwrnn reproduce generation --data 'my song.wav' --methods cw --schedule 1:3,5:4"
    """
    python = f'cwrnn.{METHODS[method].layer}({shape[0]}, {schedule.hidden_size}, schedule="{schedule.spec}")'
    texts = [fspath(source) for source in sources if isinstance(source, (str, PathLike))]
    if len(texts) < len(sources):
        return python
    data = [argument for text in texts for argument in ("--data", text)]
    data += (selection or Selection()).arguments
    options = ["--schedule", schedule.spec, *([] if out is None else ["--out", fspath(out)])]
    if find_task(task).has_reproduction and not any(text.startswith(PREFIX) for text in texts):
        return shlex.join(["cwrnn", "reproduce", task, *data, "--methods", method, *options])
    try:
        # the series has at least one unit in each module
        least = schedule_parameter_count(method, Schedule.exponential(modules, modules), *shape)
    except ValueError:
        return python
    size = max(least, schedule_parameter_count(method, schedule, *shape))
    chosen = [] if method == "cw" else ["--method", method]
    series = ["--series", PAPER_SERIES, "--modules", str(modules), "--size", str(size)]
    return shlex.join(["cwrnn", "clocks", "compare", *chosen, *data, *series, *options])


def _format_errors(*errors: float, percent: bool) -> list[str]:
    """Format errors with two digits, or with as many as it takes to tell them apart.

    >>> _format_errors(0.99976, 0.99971, percent=False), _format_errors(0.5, float("inf"), percent=True)
    (['0.9998', '0.9997'], ['50.0 %', 'none (half of the networks or more did not finish)'])
    """
    texts: list[str] = []
    for digits in range(2, 18):
        texts = [_format_error(error, digits, percent) for error in errors]
        if len(set(texts)) == len(set(errors)):
            break
    return texts


def _format_error(error: float, digits: int, percent: bool) -> str:
    if not math.isfinite(error):
        return "none (half of the networks or more did not finish)"
    return f"{100 * error:.{digits - 1}f} %" if percent else f"{error:#.{digits}g}"
