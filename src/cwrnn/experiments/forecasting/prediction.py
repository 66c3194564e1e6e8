"""`make_forecast`: forecast the next steps of a series with a model from a file, and draw them."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...estimators.forecaster import ClockworkForecaster
from ...estimators.series import MISSING
from ...estimators.tables import TableFile, check_times, cut_table, read_table, split_table
from ...estimators.time_axis import format_time
from ...untrusted import escape_controls
from ...writing import write_files
from ..errors import ArgumentError, ExperimentError
from ..file_names import check_new_file, check_path, replace_undecodable
from ..json_safe import make_json_safe
from ..report.numbers import join_words
from .loading import describe_frequency, name_problems

PRINTED = 12
"""The most steps that a printed forecast shows."""

SHOWN_HORIZONS = 4
"""The steps of the history in a picture, in horizons, at least; a season is always shown."""

PICTURES = (".png", ".svg")
"""The formats of a picture."""


@dataclass(frozen=True, eq=False)
class Forecast:
    """The result of `make_forecast`. Printing it shows a table."""

    forecaster: ClockworkForecaster
    """The forecaster, which stands at the end of the data."""
    frame: Any
    """A DataFrame with the times of the forecast as its index: for every target its median, and the lower and the upper
    end of its interval in columns such as load_lower and load_upper."""
    history: Any
    """A DataFrame of the targets before the forecast."""
    data: Path
    """The file with the history."""
    new_steps: int
    """The number of steps in the file that the model had not seen."""
    coverage: float
    """The coverage of the intervals."""
    out: Path | None = None
    """The CSV file with the forecast."""
    picture: Path | None = None
    """The picture."""

    @property
    def targets(self) -> list[str]:
        """The names of the targets."""
        return list(self.history.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the forecast for JSON."""
        measured = self.forecaster.coverage_
        numbers: dict[str, Any] = make_json_safe(
            {
                "data": replace_undecodable(str(self.data.resolve())),
                "new_steps": self.new_steps,
                "last": str(self.history.index[-1]) if len(self.history) else None,
                "times": [str(time) for time in self.frame.index],
                "forecast": {
                    name: {
                        "median": self.frame[name].tolist(),
                        "lower": self.frame[f"{name}_lower"].tolist(),
                        "upper": self.frame[f"{name}_upper"].tolist(),
                    }
                    for name in self.targets
                },
                "coverage": self.coverage,
                "measured_coverage": measured if self.coverage == self.forecaster.coverage else math.nan,
                "out": None if self.out is None else replace_undecodable(str(self.out.resolve())),
                "picture": None if self.picture is None else replace_undecodable(str(self.picture.resolve())),
            }
        )
        return numbers

    def __str__(self) -> str:
        steps = "no step" if self.new_steps == 0 else "1 step" if self.new_steps == 1 else f"{self.new_steps} steps"
        index = self.frame.index
        ahead = "the next step" if len(index) == 1 else f"the next {len(index)} steps"
        lines = [
            f"{replace_undecodable(self.data.name)} has {steps} that the model had not seen",
            f"{ahead} of {join_words(self.targets)}, {describe_frequency(self.forecaster.axis_)}, with "
            f"{100 * self.coverage:g} % intervals{self._describe_coverage()}:",
            "",
            *self.frame.head(PRINTED).to_string(float_format=lambda number: f"{number:.5g}").split("\n"),
        ]
        if len(index) > PRINTED:
            lines.append(f"... until {format_time(index[-1])}")
        lines.append("")
        if self.out is not None:
            lines.append(f"The forecast is {self.out}")
        if self.picture is not None:
            lines.append(f"The picture is {self.picture}")
        return "\n".join(escape_controls(replace_undecodable(line)).rstrip() for line in lines).rstrip()

    def _describe_coverage(self) -> str:
        measured = self.forecaster.coverage_
        if math.isnan(measured) or self.coverage != self.forecaster.coverage:
            return ""
        return f" (they covered {100 * measured:.1f} % of the held-out values)"


def make_forecast(
    model: str | os.PathLike[str],
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    picture: str | os.PathLike[str] | None = None,
    coverage: float | None = None,
    missing: str | None = None,
    time_format: str | None = None,
    encoding: str | None = None,
    update: bool = False,
) -> Forecast:
    """Forecast the steps after the end of a file, with a model that `fit_forecaster` wrote.

    Rows that are newer than those the model has seen update its state; its weights stay as they are. Older rows only
    appear in the picture.

    Args:
        model: the file of the model
        data: a CSV or Parquet file with the columns that the model was fitted to. If it has covariates, rows with them
            must go on until the last step of the forecast, with nothing in the columns of the targets
        out: the CSV file to write; None to write none
        picture: a PNG or SVG file with history, forecast and interval; None to draw none
        coverage: the coverage of the intervals; None for that of the model
        missing: how to treat missing values: "error", "interpolate" or "hold"; None for that of the model
        time_format: the format of the times; None to infer it
        encoding: the encoding of a CSV file; None for UTF-8
        update: write the model again, with its state after the data

    Raises:
        ArgumentError: an argument has a value that cannot be used
        ModelError: the file `model` is not a saved forecaster
        ExperimentError: the data cannot be used; the message names the line or the column

    Example::

        forecast = cwrnn.experiments.make_forecast("model.safetensors", "load.csv", picture="forecast.png")
        print(forecast.frame)
    """
    paths = {"out": out, "picture": picture}
    targets = {name: check_path(name, path) for name, path in paths.items() if path is not None}
    _check_files(targets)
    if coverage is not None and not 0 < coverage < 1:
        raise ArgumentError("coverage", f"expected a share above 0 and below 1, such as 0.8, got {coverage}")
    if missing is not None and missing not in MISSING:
        raise ArgumentError("missing", f"expected one of {', '.join(MISSING)}, got {missing!r}")
    forecaster = ClockworkForecaster.load(check_path("model", model))
    if missing is not None:
        forecaster.missing = missing
    path = check_path("data", data)
    with name_problems(path):
        table = _read_data(forecaster, path, time_format, encoding)
        new_steps = _follow_data(forecaster, table)
        X = _find_future(forecaster, table)
        coverage = forecaster.coverage if coverage is None else coverage
        frame = _join_forecast(forecaster, X, coverage)
    history = table.frame[list(table.targets)]
    forecast = Forecast(
        forecaster,
        frame,
        history[history.index < frame.index[0]],
        path,
        new_steps,
        coverage,
        targets.get("out"),
        targets.get("picture"),
    )
    _write(forecast)
    if update:
        forecaster.save(check_path("model", model))
    return forecast


def _check_files(targets: dict[str, Path]) -> None:
    """Refuse files that could not be written, before the model is loaded."""
    for name, path in targets.items():
        check_new_file(name, path, force=True)
    if len(set(targets.values())) < len(targets):
        raise ArgumentError("picture", "expected another file than that of the forecast")
    if "picture" in targets and targets["picture"].suffix.lower() not in PICTURES:
        name = escape_controls(replace_undecodable(targets["picture"].name))
        raise ArgumentError("picture", f"expected a file that ends in {' or '.join(PICTURES)}, got {name}")


def _read_data(forecaster: ClockworkForecaster, path: Path, time_format: str | None, encoding: str | None) -> TableFile:
    """Return the table of a file, with the columns and the time zone of a forecaster."""
    axis = forecaster.axis_
    zone = getattr(axis.first, "tz", None)
    table = read_table(
        path,
        targets=[str(column) for column in forecaster.columns_],
        covariates=[str(column) for column in forecaster.covariates_],
        time=None if axis.name is None else str(axis.name),
        time_format=time_format,
        timezone=None if zone is None else str(zone),
        encoding=encoding,
    )
    if not axis.fits(table.frame.index):
        raise table.error(
            f"the times must be like those of the model, such as {format_time(axis.first)}, got "
            f"{format_time(table.frame.index[0])}"
        )
    check_times(table)
    return table


def _follow_data(forecaster: ClockworkForecaster, table: TableFile) -> int:
    """Give the rows of a table that a forecaster has not seen to it, and return the number of their steps."""
    axis, start = forecaster.axis_, forecaster.stream_.steps
    index = table.frame.index
    newer = cut_table(table, int((index < axis.label(start)).sum()))
    observed = newer.frame[list(newer.targets)].notna().to_numpy().any(axis=1)
    if not observed.any():
        return 0
    newer = cut_table(newer, 0, int(np.flatnonzero(observed)[-1]) + 1)
    y, X = split_table(newer, missing=forecaster.missing, axis=axis, start=start)
    forecaster.update(y, X)
    return forecaster.stream_.steps - start


def _find_future(forecaster: ClockworkForecaster, table: TableFile) -> Any:
    """Return the covariates of the steps to forecast; None if the forecaster has none."""
    if not table.covariates:
        return None
    wanted = forecaster.axis_.index(forecaster.stream_.steps, forecaster.horizon)
    X = table.frame[list(table.covariates)].reindex(wanted)
    absent = X.isna().to_numpy()
    if absent.any():
        row = int(np.argmax(absent.any(axis=1)))
        name = table.covariates[int(np.argmax(absent[row]))]
        raise table.error(
            f"has no value at {format_time(wanted[row])}: a covariate must be known for all {len(wanted)} steps to "
            f"forecast, until {format_time(wanted[-1])}",
            column=name,
        )
    return X


def _join_forecast(forecaster: ClockworkForecaster, X: Any, coverage: float) -> Any:
    """Return medians and intervals side by side."""
    median = forecaster.predict(X)
    ends = forecaster.predict_interval(X, coverage=coverage)
    columns = {}
    for column in forecaster.columns_:
        name = str(column)
        columns[name] = median[column] if forecaster.is_frame_ else median
        for end in ("lower", "upper"):
            columns[f"{name}_{end}"] = ends[(column, end)] if forecaster.is_frame_ else ends[end]
    frame = pd.DataFrame(columns)
    if not np.isfinite(frame.to_numpy()).all():
        raise ExperimentError("the forecast is not finite: the new values may be far from those of the training")
    return frame


def _write(forecast: Forecast) -> None:
    """Write the forecast and its picture, both or none."""
    contents: dict[Path, bytes] = {}
    if forecast.out is not None:
        contents[forecast.out] = forecast.frame.to_csv(lineterminator="\n", float_format="%.7g").encode()
    if forecast.picture is not None:
        # importing matplotlib takes long
        from ..report.drawing import render
        from .figures import draw_forecast

        figure = draw_forecast(forecast.frame, _cut_history(forecast), forecast.coverage, forecast.forecaster.axis_)
        contents[forecast.picture] = render(figure, forecast.picture.suffix.lower()[1:])
    write_files(contents)


def _cut_history(forecast: Forecast) -> Any:
    """Return the end of the history that a picture shows."""
    forecaster = forecast.forecaster
    steps = max(SHOWN_HORIZONS * forecaster.horizon, forecaster.seasons_[-1])
    return forecast.history.iloc[-steps:]
