"""The result of learning clocks: the networks of both kinds, their errors and periods, as text, numbers and figures."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...environment import environment
from ...schedule import Schedule
from ...writing import write_files
from ..json_safe import make_json_safe
from ..report import drawing
from ..report.drawing import write_figure
from ..task import Data, find_task
from ..text_table import format_table
from .request import find_shape
from .square_waves import SquareWaves
from .training import LearningSettings, TrainedNetwork
from .verdict import SCHEDULE_FILE, Verdict

NUMBERS_FILE = "learned.json"

MOST_PERIODS = 10
"""Number of sets of periods that are printed; the file has all of them."""


@dataclass(frozen=True)
class ErrorSummary:
    """The errors of several networks of one kind. A network that diverged counts as infinitely bad."""

    clocks: str
    """Their kind: "exponential" or "learned"."""
    networks: int
    parameters: tuple[int, int]
    """The smallest and the largest number of parameters."""
    median: float
    mean: float
    worst: float
    hardened: float
    """The largest relative change of an error by hardening."""


@dataclass(frozen=True)
class PlantedPeriod:
    """How many networks found a period that is known to be in the data."""

    period: int
    networks: int
    """The number of networks with learned clocks whose data have this period."""
    found: int
    """The number of these networks that have a module with this period."""
    explained: int
    """The number of these networks that have a clock which ticks whenever the wave switches."""
    exponential_explained: int
    """The number of networks with the exponential series that have such a clock."""

    def __str__(self) -> str:
        return (
            f"The period {self.period} is in the data: {self.found} of {self.networks} networks found it; "
            f"{self.explained} have a clock that ticks with it, and {self.exponential_explained} with the exponential "
            "series."
        )


@dataclass(frozen=True, eq=False)
class LearnedClocks:
    """The result of `learn_clocks`. Printing it shows the errors, the periods and whether they beat the series."""

    task: str
    data: tuple[Data, ...]
    settings: LearningSettings
    exponential: tuple[TrainedNetwork, ...]
    """The networks with the exponential series."""
    learned: tuple[TrainedNetwork, ...]
    """The networks that learned their clocks, on the same data and with the same seeds."""
    use: str
    """A command that trains networks with the best schedule on the same data, or a line of Python."""
    seconds: float
    figures: tuple[Path, ...] = ()

    @property
    def best(self) -> TrainedNetwork:
        """The best of the networks that learned their clocks."""
        return choose_best(self.learned, self.exponential)

    @property
    def schedule(self) -> Schedule:
        """The schedule of the best network."""
        return self.best.schedule

    @property
    def verdict(self) -> Verdict:
        """The comparison of the median errors of both kinds."""
        exponential, learned = self.summaries
        series = Schedule.exponential(self.settings.hidden, self.settings.modules)
        return Verdict("learned", series, learned.median, exponential.median, find_task(self.task).error_name)

    @property
    def kinds(self) -> Mapping[str, Sequence[TrainedNetwork]]:
        """The networks by their kind, the exponential series first."""
        return {"exponential": self.exponential, "learned": self.learned}

    @property
    def summaries(self) -> list[ErrorSummary]:
        """The errors of both kinds over all data, the exponential series first."""
        return [self.summarise(kind) for kind in self.kinds]

    @property
    def planted(self) -> list[PlantedPeriod]:
        """For every period of square waves in the data, how many networks found it."""
        periods = {data.target_name: data.periods for data in self.data if isinstance(data, SquareWaves)}
        return [
            self._count_planted(period, {name for name in periods if period in periods[name]})
            for period in sorted({period for planted in periods.values() for period in planted})
        ]

    def summarise(self, kind: str, names: Sequence[str] | None = None) -> ErrorSummary:
        """Summarise the errors of one kind, "exponential" or "learned", over the data of these names or over all."""
        networks = [network for network in self.kinds[kind] if names is None or network.data in names]
        errors = np.array([network.hard.reported for network in networks])
        errors = np.where(np.isfinite(errors), errors, np.inf)
        counts = [self._count_parameters(network) for network in networks]
        return ErrorSummary(
            clocks=kind,
            networks=len(networks),
            parameters=(min(counts), max(counts)),
            median=float(np.median(errors)),
            mean=float(errors.mean()),
            worst=float(errors.max()),
            hardened=max(network.change_by_hardening for network in networks),
        )

    def __str__(self) -> str:
        counts = Counter(network.schedule.periods for network in self.learned)
        lines = [self._format_errors(), "", "The periods of the networks that learned them:"]
        for periods, count in counts.most_common(MOST_PERIODS):
            lines.append(f"  {count:3d} x  {', '.join(map(str, periods))}")
        if len(counts) > MOST_PERIODS:
            lines.append(f"  and {len(counts) - MOST_PERIODS} more, in {NUMBERS_FILE}")
        lines += map(str, self.planted)
        lines += [
            "",
            str(self.verdict),
            f"The best schedule is {self.schedule.spec}, with {self._count_parameters(self.best)} parameters:",
            f"of all networks it has the lowest {find_task(self.task).choice_part} error, relative to the exponential "
            "series.",
            f"To use it{' all the same' if self.verdict.worse else ''}:",
            f"  {self.use}",
        ]
        if self.figures:
            lines.append(f"The picture is {self.figures[-1].resolve()}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that `cwrnn clocks learn --json` prints."""
        planted = [{name.replace("_", " "): value for name, value in asdict(period).items()} for period in self.planted]
        values: dict[str, Any] = make_json_safe({
            "task": self.task,
            "data": [data.name for data in self.data],
            "settings": asdict(self.settings),
            "schedule": self.schedule.spec,
            "parameters": self._count_parameters(self.best),
            "verdict": self.verdict.to_dict(),
            "use": self.use,
            "clocks": [asdict(summary) for summary in self.summaries],
            "planted": planted,
            "networks": [
                self._describe(kind, network) for kind, networks in self.kinds.items() for network in networks
            ],
            "seconds": self.seconds,
            "figures": [str(path.resolve()) for path in self.figures],
            "environment": environment(),
        })  # fmt: skip
        return values

    def draw(self, folder: str | PathLike[str]) -> tuple[Path, ...]:
        """Draw periods and errors into `folder`, as learned.svg and learned.png, and return these paths."""
        # matplotlib takes long to import: not before it is needed
        from .figures import draw_learning

        measure = drawing.PERCENT if self._in_percent else drawing.NMSE
        figure = draw_learning(self.exponential, self.learned, measure, [planted.period for planted in self.planted])
        return tuple(write_figure(figure, Path(folder), "learned"))

    def write(self, folder: str | PathLike[str]) -> None:
        """Write learned.json with all numbers and schedule.txt with the best schedule; a full disk leaves neither."""
        numbers = json.dumps(self.to_dict(), allow_nan=False)
        write_files({
            Path(folder) / NUMBERS_FILE: f"{numbers}\n".encode(),
            Path(folder) / SCHEDULE_FILE: f"{self.schedule.spec}\n".encode(),
        })  # fmt: skip

    @property
    def _in_percent(self) -> bool:
        return find_task(self.task).error_is_a_share

    def _count_parameters(self, network: TrainedNetwork) -> int:
        return network.schedule.parameter_count(*find_shape(self.data[0]))

    def _describe(self, kind: str, network: TrainedNetwork) -> dict[str, Any]:
        return {
            "clocks": kind,
            "data": network.data,
            "seed": network.seed,
            "schedule": network.schedule.spec,
            "parameters": self._count_parameters(network),
            "error": network.hard.reported,
            "error before hardening": network.soft.reported,
            "training error": network.hard.train,
        }

    def _count_planted(self, period: int, names: set[str]) -> PlantedPeriod:
        exponential, learned = (
            [network.schedule.periods for network in networks if network.data in names]
            for networks in self.kinds.values()
        )
        return PlantedPeriod(
            period=period,
            networks=len(learned),
            found=sum(period in periods for periods in learned),
            explained=sum(explains_period(period, periods) for periods in learned),
            exponential_explained=sum(explains_period(period, periods) for periods in exponential),
        )

    def _format_errors(self) -> str:
        """Return the table: a line for each kind on each data set, and on all of them."""
        names = list(dict.fromkeys(network.data for network in self.learned))
        groups: dict[str, list[str]] = {name: [name] for name in names}
        if len(names) > 1:
            groups["all"] = names
        task = find_task(self.task)
        rows = []
        for label, group in groups.items():
            for kind in self.kinds:
                summary = self.summarise(kind, group)
                low, high = summary.parameters
                errors = (summary.median, summary.mean, summary.worst)
                rows.append([
                    label,
                    kind,
                    str(summary.networks),
                    str(low) if low == high else f"{low}-{high}",
                    *map(task.format_error, errors),
                    f"{100 * summary.hardened:.2f} %",
                ])  # fmt: skip
        numbers = ["net-\nworks", "para-\nmeters", f"median\n{task.error_header}", "mean", "worst", "hard-\nened"]
        caption = (
            f"{task.errors_caption}. hardened: the largest change of an error when the clocks became integer periods. "
            "Modules that learn the same period become one larger module, which has more weights."
        )
        return format_table(
            "Learned clocks and the exponential series", ["data", "clocks", *numbers], rows, caption, left=2
        )


def explains_period(period: int, clocks: Sequence[int]) -> bool:
    """Return True if a clock other than 1 ticks whenever a wave of this period switches.

    >>> [explains_period(21, [3, 8]), explains_period(7, [3, 21]), explains_period(7, [1, 2])]
    [True, False, False]
    """
    return any(clock > 1 and period % clock == 0 for clock in clocks)


def choose_best(learned: Sequence[TrainedNetwork], exponential: Sequence[TrainedNetwork]) -> TrainedNetwork:
    """Return the learned network whose training error is the smallest share of the exponential networks'.

    Its error is divided by the median error of the exponential networks on the same data that did not diverge, so that
    easy data do not win. The test set is not used.
    """

    def measure_share(network: TrainedNetwork) -> float:
        errors = [other.hard.train for other in exponential if other.data == network.data]
        median = np.median([error for error in errors if math.isfinite(error)] or [1.0])
        share = float(network.hard.train / median) if median > 0 else network.hard.train
        return share if math.isfinite(share) else math.inf

    return min(learned, key=measure_share)
