"""`fit_forecaster`: fit a forecaster to a table, and write it to one file."""

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...estimators.clocks import Clocks
from ...estimators.forecaster import ClockworkForecaster
from ...estimators.windows import split_series
from ...schedule import Schedule
from ...untrusted import escape_controls
from ..file_names import check_new_file, check_path, replace_undecodable
from ..json_safe import make_json_safe
from ..networks.descent import use_one_thread
from ..progress import ProgressCallback
from ..report.numbers import join_words
from .loading import LoadedSeries, collect_notes, follow_training, load_series, make_forecaster, name_problems


@dataclass(frozen=True, eq=False)
class FittedForecaster:
    """The result of `fit_forecaster`: the forecaster, its clocks and its errors. Printing it shows a report."""

    forecaster: ClockworkForecaster
    series: LoadedSeries
    """The series that it was fitted to."""
    notes: Sequence[str] = ()
    """Warnings about the training."""
    model: Path | None = None
    """The file that it was written to."""
    curve: Path | None = None
    """The picture of its loss curve, if one was drawn."""

    @property
    def held_out_steps(self) -> int:
        """The number of steps at the end of the series that were not trained on."""
        forecaster, T = self.forecaster, self.series.steps
        if not forecaster.held_out_errors_:
            return 0
        return T - split_series(T, forecaster.seasons_[-1], forecaster.horizon, forecaster.validation_fraction)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON; numbers that do not exist are None."""
        forecaster = self.forecaster
        errors = dict(zip(self.series.table.targets, forecaster.held_out_errors_, strict=False))
        numbers: dict[str, Any] = make_json_safe(
            {
                **self.series.to_dict(),
                "horizon": forecaster.horizon,
                "cell": forecaster.cell,
                "clocks": list_clocks(forecaster.clocks_),
                "schedule": forecaster.schedule_.spec,
                "seasons": forecaster.seasons_,
                "parameters": forecaster.n_parameters_,
                "seed": forecaster.random_state,
                "epochs": forecaster.n_iter_,
                "best_epoch": forecaster.best_epoch_,
                "stopped": forecaster.stopped_,
                "seconds": forecaster.fit_seconds_,
                "held_out": {
                    "steps": self.held_out_steps,
                    "mae": {name: error for name, (error, _) in errors.items()},
                    "naive_mae": {name: naive for name, (_, naive) in errors.items()},
                    "coverage": forecaster.coverage_,
                },
                "coverage": forecaster.coverage,
                "loss_curve": forecaster.loss_curve_,
                "validation_curve": forecaster.validation_curve_,
                "notes": list(self.notes),
                "model": _write_path(self.model),
                "curve": _write_path(self.curve),
            }
        )
        return numbers

    def __str__(self) -> str:
        forecaster = self.forecaster
        lines = [str(self.series), "", "The clocks for this series:", *str(forecaster.clocks_).split("\n"), ""]
        lines.append(describe_modules(forecaster.seasons_, forecaster.schedule_))
        layer = type(forecaster.network_.layer).__name__
        epochs = "1 epoch" if forecaster.n_iter_ == 1 else f"{forecaster.n_iter_} epochs"
        lines += [
            f"{layer} with {forecaster.n_parameters_} parameters: trained in {forecaster.fit_seconds_:.1f} s, {epochs}",
            *self._describe_errors(),
            *(f"note: {note}" for note in self.notes),
        ]
        if self.curve is not None:
            lines.append(f"The loss curve is {self.curve}")
        if self.model is not None:
            command = ["cwrnn", "forecast", "predict", str(self.model), str(self.series.table.path)]
            lines += [f"The model is {self.model}", "To forecast:", f"  {shlex.join(command)}"]
        return "\n".join(escape_controls(replace_undecodable(line)) for line in lines)

    def _describe_errors(self) -> list[str]:
        """Return the errors on the held-out end in sentences."""
        forecaster = self.forecaster
        if not forecaster.held_out_errors_:
            return ["The series is too short to hold out an end: error and coverage are not measured."]
        lines = [f"on the last {self.held_out_steps} steps, which were held out to choose the epoch:"]
        for name, (error, naive) in zip(self.series.table.targets, forecaster.held_out_errors_, strict=True):
            less = f" ({100 * (1 - error / naive):.0f} % less)" if 0 < error < naive else ""
            lines.append(f"  {name}: mean absolute error {error:.4g}{less}; {name_naive(forecaster)} {naive:.4g}")
        if not math.isnan(forecaster.coverage_):
            wanted, found = 100 * forecaster.coverage, 100 * forecaster.coverage_
            lines.append(f"  {found:.1f} % of the values lie inside their {wanted:g} % intervals")
        return lines


def fit_forecaster(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    horizon: int = 24,
    time: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    encoding: str | None = None,
    missing: str = "error",
    cell: str | None = None,
    hidden_size: int | None = None,
    schedule: str | Schedule | None = None,
    coverage: float = 0.8,
    epochs: int | None = None,
    seed: int = 0,
    device: str = "auto",
    curve: bool = False,
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> FittedForecaster:
    """Fit a forecaster to a CSV or Parquet file, and return it with its errors on the end that it held out.

    Args:
        data: the file; its first line has the names of the columns
        out: the safetensors file to write, with everything that `make_forecast` needs; None to write none
        targets: the columns to forecast; None for the only column beside the times and the covariates
        covariates: the columns that are known in advance
        horizon: the number of steps to forecast
        time: the column of the times; None for the first column that has some
        time_format: the format of the times, such as "%d/%m/%Y %H:%M"; None to infer it
        timezone: the time zone of the times, such as "Europe/Berlin"; None for none, or that of the file
        encoding: the encoding of a CSV file; None for UTF-8
        missing: "error" refuses missing values and times; "interpolate" or "hold" fills them
        cell: "rnn", "lstm" or "gru", all with clocks; None for that of ClockworkForecaster
        hidden_size: the number of hidden units; None for that of ClockworkForecaster
        schedule: periods such as "1,24,168", periods and sizes such as "1:32,24:16", or a Schedule; None for clocks
            that the calendar and the spectrum suggest
        coverage: the coverage of the intervals
        epochs: the number of epochs, at most; None for that of ClockworkForecaster
        seed: the seed of the initial weights and the batches
        device: "auto" takes a GPU if there is one; or the name of a device of torch
        curve: draw the loss curve into a picture beside `out`
        force: replace the file `out` if it exists
        progress: called after every batch; an exception in it stops the training

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ExperimentError: the data cannot be used; the message names the line or the column

    Example::

        fitted = cwrnn.experiments.fit_forecaster("load.csv", "model.safetensors", targets=["load"])
        print(fitted)
        print(fitted.forecaster.predict())
    """
    model = None if out is None else check_path("out", out)
    if model is not None:
        check_new_file("out", model, force)
    forecaster = make_forecaster(
        horizon=horizon,
        cell=cell,
        hidden_size=hidden_size,
        schedule=schedule,
        coverage=coverage,
        missing=missing,
        epochs=epochs,
        seed=seed,
        device=device,
    )
    series = load_series(
        data,
        targets=targets,
        covariates=covariates,
        missing=missing,
        horizon=horizon,
        time=time,
        time_format=time_format,
        timezone=timezone,
        encoding=encoding,
    )
    forecaster.verbose = follow_training(progress)
    with name_problems(series.table.path), collect_notes() as notes, use_one_thread():
        forecaster.fit(series.y, series.X)
    forecaster.verbose = False
    picture = None
    if model is not None:
        forecaster.save(model)
        if curve:
            # importing matplotlib takes long
            from .figures import draw_loss_curve, write_picture

            picture = model.with_name(f"{model.stem}-loss.png")
            write_picture(draw_loss_curve(forecaster), picture)
    return FittedForecaster(forecaster, series, tuple(notes), model, picture)


def list_clocks(clocks: Clocks) -> list[dict[str, Any]]:
    """Return the period, the cycle, the share and the source of every clock, for JSON."""
    return [{**values, "source": clock.source} for values, clock in zip(clocks.to_dict(), clocks.clocks, strict=True)]


def describe_modules(seasons: Sequence[int], schedule: Schedule) -> str:
    """Return the seasons of a forecaster and the modules of its network in a line.

    >>> describe_modules((24,), Schedule((1, 24), (6, 2)))
    'season: 24 steps; modules (period:units): 1:6,24:2'
    """
    known = [str(season) for season in seasons if season > 1]
    steps = "none" if not known else f"{join_words(known)} steps"
    return f"season{'s' if len(known) > 1 else ''}: {steps}; modules (period:units): {schedule.spec}"


def name_naive(forecaster: ClockworkForecaster) -> str:
    """Return the seasonal naive forecast of a fitted forecaster in words."""
    season = forecaster.seasons_[-1]
    cycle = next((clock.cycle for clock in forecaster.clocks_.clocks if clock.period == season), "")
    if season == 1:
        return "the last value"
    return f"the value one {cycle} before" if cycle else f"the value {season} steps before"


def _write_path(path: Path | None) -> str | None:
    """Return a path for JSON."""
    return None if path is None else replace_undecodable(str(path.resolve()))
