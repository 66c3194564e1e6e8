"""Loading: the series of a table and the forecaster for it, from the arguments of a function or a command."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pandas.tseries.frequencies import to_offset
from sklearn.exceptions import ConvergenceWarning

from ...estimators.forecaster import FEWEST_STEPS, ClockworkForecaster
from ...estimators.saving import LAYERS
from ...estimators.series import MISSING
from ...estimators.table_files import TableError
from ...estimators.tables import TableFile, check_targets_vary, read_table, split_table
from ...estimators.time_axis import SeriesError, TimeAxis, format_time, read_axis
from ...estimators.training import TrainingError, TrainingProgress, select_device
from ...schedule import Schedule
from ...untrusted import escape_controls, shorten
from ..errors import ArgumentError, ExperimentError
from ..file_names import check_path, replace_undecodable
from ..limits import LARGEST_EPOCHS, check_count
from ..progress import Progress, ProgressCallback
from ..report.numbers import join_words
from ..sweep.interrupts import interrupts

LARGEST_HORIZON = 10_000
"""The most steps to forecast."""

LARGEST_HIDDEN_SIZE = 10_000
"""The most hidden units."""

LARGEST_SEED = 2**32 - 1
"""The largest seed that numpy takes."""

UNITS = {
    "h": "hour", "min": "minute", "s": "second", "ms": "millisecond", "D": "day", "B": "working day", "W": "week",
    "MS": "month", "ME": "month", "M": "month", "QS": "quarter", "QE": "quarter", "Q": "quarter", "YS": "year",
    "YE": "year", "Y": "year",
}  # fmt: skip
"""The names of frequencies of pandas, without the day at which a week or a year begins."""


@dataclass(frozen=True, eq=False)
class LoadedSeries:
    """The targets and covariates of a table."""

    table: TableFile
    y: Any
    """The targets: a Series, or a DataFrame if there are several."""
    X: Any
    """The covariates as a DataFrame, which may go on after the last target; None if there are none."""
    axis: TimeAxis
    """The times of the steps."""

    @property
    def steps(self) -> int:
        """The number of steps from the first target to the last."""
        return int(self.axis.locate(self.y.index[-1:], 0)[0]) + 1

    @property
    def name(self) -> str:
        """The name of the file, for people to read."""
        return replace_undecodable(self.table.path.name)

    def __str__(self) -> str:
        names = join_words(list(self.table.targets))
        first, last = format_time(self.y.index[0]), format_time(self.y.index[-1])
        text = f"{names} in {self.name}: {self.steps} steps from {first} to {last}"
        return f"{text}, {describe_frequency(self.axis)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the facts for JSON."""
        return {
            "data": replace_undecodable(str(self.table.path.resolve())),
            "time": None if self.y.index.name is None else str(self.y.index.name),
            "targets": list(self.table.targets),
            "covariates": list(self.table.covariates),
            "steps": self.steps,
            "first": str(self.y.index[0]),
            "last": str(self.y.index[-1]),
            "frequency": str(self.axis.frequency),
        }


def load_series(
    data: str | os.PathLike[str],
    *,
    targets: Sequence[str] | None,
    covariates: Sequence[str],
    missing: str,
    horizon: int,
    **options: str | None,
) -> LoadedSeries:
    """Return the series of a file that a forecaster can be fitted to.

    Args:
        data: the file
        targets: the columns to forecast; None for the only one
        covariates: the columns that are known in advance
        missing: how to treat missing values
        horizon: the number of steps to forecast
        options: time, time_format, timezone and encoding, as `read_table` takes them

    Raises an ExperimentError that names the line or the column if there is none.
    """
    if missing not in MISSING:
        raise ArgumentError("missing", f"expected one of {', '.join(MISSING)}, got {missing!r}")
    path = check_path("data", data)
    with name_problems(path):
        table = read_table(path, targets=targets, covariates=covariates, **options)
        y, X = split_table(table, missing=missing)
        check_targets_vary(table)
        series = LoadedSeries(table, y, X, read_axis(y.index, "y"))
    if series.steps < horizon + FEWEST_STEPS:
        raise ExperimentError(
            f"{escape_controls(str(path))}: there are {series.steps} steps, but a horizon of {horizon} needs at least "
            f"{horizon + FEWEST_STEPS}: give more rows, or a shorter horizon"
        )
    return series


def make_forecaster(
    *,
    horizon: int,
    cell: str | None,
    hidden_size: int | None,
    schedule: str | Schedule | None,
    coverage: float,
    missing: str,
    epochs: int | None,
    seed: int,
    device: str,
) -> ClockworkForecaster:
    """Return a forecaster with these parameters; an ArgumentError names one that cannot be used."""
    check_count("horizon", horizon, LARGEST_HORIZON)
    check_count("seed", seed, LARGEST_SEED, least=0)
    if cell is not None and cell not in LAYERS:
        raise ArgumentError("cell", f"expected one of {', '.join(LAYERS)}, got {cell!r}")
    if not 0 < coverage < 1:
        raise ArgumentError("coverage", f"expected a share above 0 and below 1, such as 0.8, got {coverage}")
    try:
        select_device(device)
    except ValueError as error:
        raise ArgumentError("device", str(error)) from error
    parameters: dict[str, Any] = {} if cell is None else {"cell": cell}
    if hidden_size is not None:
        parameters["hidden_size"] = check_count("hidden_size", hidden_size, LARGEST_HIDDEN_SIZE)
    if epochs is not None:
        parameters["max_epochs"] = check_count("epochs", epochs, LARGEST_EPOCHS)
    if schedule is not None:
        parameters |= _choose_schedule(schedule, hidden_size)
    return ClockworkForecaster(
        horizon, coverage=coverage, missing=missing, random_state=seed, device=device, **parameters
    )


def _choose_schedule(schedule: str | Schedule, hidden_size: int | None) -> dict[str, Any]:
    """Return the parameters schedule and hidden_size."""
    try:
        if isinstance(schedule, str) and re.fullmatch(r"\d+(,\d+)*", schedule):
            units = ClockworkForecaster().hidden_size if hidden_size is None else hidden_size
            chosen = Schedule.from_periods(units, [int(period) for period in schedule.split(",")])
        else:
            chosen = Schedule.parse(schedule) if isinstance(schedule, str) else schedule
            Schedule.resolve(chosen, chosen.hidden_size if hidden_size is None else hidden_size)
    except ValueError as error:
        raise ArgumentError("schedule", shorten(str(error), 300)) from error
    check_count("schedule", chosen.hidden_size, LARGEST_HIDDEN_SIZE)
    return {"schedule": chosen, "hidden_size": chosen.hidden_size}


@contextmanager
def name_problems(path: Path) -> Iterator[None]:
    """Turns the errors about a table and its series into an ExperimentError that names the file."""
    try:
        yield
    except TableError as error:
        raise ExperimentError(replace_undecodable(str(error))) from error
    except (FloatingPointError, SeriesError, TrainingError) as error:
        reason = re.sub(r"^y(_new)?:? ", "", str(error))
        raise ExperimentError(f"{escape_controls(replace_undecodable(str(path)))}: {reason}") from error


@contextmanager
def collect_notes() -> Iterator[list[str]]:
    """Yields a list that gets the warnings about the training as texts, when the context ends."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield notes
    notes += [str(warning.message) for warning in caught if issubclass(warning.category, ConvergenceWarning)]
    for warning in caught:
        if not issubclass(warning.category, ConvergenceWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def follow_training(progress: ProgressCallback | None) -> Callable[[TrainingProgress], None]:
    """Returns a function for the parameter `verbose` of an estimator that reports its training."""

    def report(training: TrainingProgress) -> None:
        interrupts.check()
        if progress is not None:
            progress(Progress("training", training.epoch, training.max_epochs, training.fraction))

    return report


def describe_frequency(axis: TimeAxis) -> str:
    """Returns the time between two steps in words.

    >>> import pandas as pd
    >>> describe_frequency(TimeAxis("dates", "30min", pd.Timestamp("2024-03-01")))
    'one every 30 minutes'
    """
    if axis.kind == "numbers":
        return "one every step" if axis.frequency == 1 else f"one every {axis.frequency} steps"
    offset = to_offset(axis.calendar)
    unit = UNITS.get(offset.rule_code.split("-")[0])
    if unit is None:
        return f"with the frequency {axis.frequency!r}"
    return f"one every {unit}" if offset.n == 1 else f"one every {offset.n} {unit}s"
