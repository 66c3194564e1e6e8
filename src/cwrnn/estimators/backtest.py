"""Backtests: forecasts of the end of a series from many origins, and the errors of several models on them.

    0 ................... train_end ........................... T
                          origins: every `stride` steps, each with the next `horizon` steps

Every model is fitted once, to the steps before `train_end`. At each origin it knows everything before it: a forecaster
updates its state with the observations in between, and no weights change.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from .clocks import Clocks
from .series import read_covariates, read_series
from .time_axis import SeriesError, TimeAxis

if TYPE_CHECKING:
    from .forecaster import ClockworkForecaster

OWN = "ClockworkForecaster"
"""The name of the forecaster itself in a result."""


@dataclass(frozen=True, eq=False)
class BacktestData:
    """A series, its origins and the steps to forecast."""

    values: NDArray[np.float64]
    """(T, C)"""
    observed: NDArray[np.bool_]
    """(T, C), False where a value was missing."""
    covariates: NDArray[np.float64]
    """(T, covariates)"""
    columns: tuple[Any, ...]
    """The names of the C series."""
    covariate_columns: tuple[Any, ...]
    """The names of the covariates."""
    axis: TimeAxis
    """The times of the steps."""
    is_frame: bool
    """Whether the series was a table of columns."""
    train_end: int
    """The number of steps that models are fitted to."""
    origins: tuple[int, ...]
    """The numbers of steps that are known when a forecast is made."""
    horizon: int
    """H, the number of steps of every forecast."""
    coverage: float
    """The coverage of the intervals."""

    @property
    def actual(self) -> NDArray[np.float64]:
        """(origins, H, C): the values of the forecast steps; NaN where they are missing."""
        steps = np.array(self.origins)[:, None] + np.arange(self.horizon)
        return np.where(self.observed[steps], self.values[steps], np.nan)

    @property
    def levels(self) -> tuple[float, float, float]:
        """The probabilities of the lower end, the median and the upper end."""
        return (1 - self.coverage) / 2, 0.5, (1 + self.coverage) / 2

    def frame(self, first: int, last: int) -> Any:
        """The steps from `first` to `last` as pandas, for `fit`."""
        values = np.where(self.observed, self.values, np.nan)[first:last]
        index = self.axis.index(first, last - first)
        if self.is_frame:
            return pd.DataFrame(values, index, list(self.columns))
        return pd.Series(values[:, 0], index, name=None if self.columns[0] == 0 else self.columns[0])

    def frame_covariates(self, first: int, last: int) -> Any:
        """The covariates of steps as a DataFrame, or None if there are none."""
        if not self.covariate_columns:
            return None
        return pd.DataFrame(
            self.covariates[first:last], self.axis.index(first, last - first), list(self.covariate_columns)
        )


@dataclass(frozen=True, eq=False)
class ModelForecasts:
    """The forecasts of one model at all origins."""

    name: str
    quantiles: NDArray[np.float64]
    """(origins, H, C, 3): lower end, median, upper end; NaN for ends that the model does not have."""
    fit_seconds: float
    """The time of the training."""
    parameters: int | None = None
    """The number of parameters, for networks."""
    loss_curve: tuple[float, ...] = ()
    """The training loss of each epoch, for networks."""
    validation_curve: tuple[float, ...] = ()
    """The loss on the held-out end after each epoch, for networks."""


@dataclass(frozen=True)
class Score:
    """The errors of one model: means over all origins, steps ahead and series."""

    name: str
    mase: float
    """The mean absolute error in units of that of the seasonal naive forecast, one step of a season ahead, on the
    training part (Hyndman and Koehler, 2006)."""
    mae: float
    """The mean absolute error."""
    rmse: float
    """The root of the mean squared error."""
    coverage: float
    """The share of values inside their intervals; NaN if the model has none."""
    width: float
    """The mean width of the intervals in the unit of MASE."""
    fit_seconds: float
    parameters: int | None
    mase_by_step: tuple[float, ...] = field(repr=False)
    """The MASE of every step ahead."""
    mase_by_origin: tuple[float, ...] = field(repr=False)
    """The MASE of every origin; NaN if all its values are missing."""


@dataclass(frozen=True, eq=False)
class BacktestResult:
    """The forecasts and errors of all models of a backtest; printing it shows a table."""

    data: BacktestData
    season: int
    """The season of the naive forecast."""
    unit: NDArray[np.float64]
    """(C,): the mean absolute error of the seasonal naive forecast on the training part, the unit of MASE."""
    forecasts: dict[str, ModelForecasts]
    """The forecasts by the names of the models."""
    clocks: Clocks = field(default_factory=lambda: Clocks(()))
    """The clocks of the forecaster."""

    @property
    def scores(self) -> dict[str, Score]:
        """The errors by the names of the models."""
        return {name: self._score(forecasts) for name, forecasts in self.forecasts.items()}

    @property
    def origins(self) -> Any:
        """The times of the first forecast steps, as an index of pandas."""
        axis, first = self.data.axis, self.data.origins[0]
        rows = np.array(self.data.origins) - first
        return axis.index(first, int(rows[-1]) + 1)[rows]

    def to_dict(self) -> dict[str, Any]:
        """The result as a JSON-serialisable object; numbers that do not exist are None."""
        models = {}
        for name, score in self.scores.items():
            fields = {key: _clean(value) for key, value in vars(score).items() if key != "name"}
            fields["loss_curve"] = list(self.forecasts[name].loss_curve)
            fields["validation_curve"] = list(self.forecasts[name].validation_curve)
            models[name] = fields
        return {
            "steps": len(self.data.values),
            "train_steps": self.data.train_end,
            "horizon": self.data.horizon,
            "season": self.season,
            "coverage": self.data.coverage,
            "columns": [str(column) for column in self.data.columns],
            "origins": [str(origin) for origin in self.origins],
            "models": models,
        }

    def __str__(self) -> str:
        rows = [
            ("model", "MASE", "MAE", "RMSE", f"coverage of {100 * self.data.coverage:g} %", "seconds", "parameters")
        ]
        for score in self.scores.values():
            covered = "-" if math.isnan(score.coverage) else f"{100 * score.coverage:.1f} %"
            rows.append(
                (
                    score.name,
                    f"{score.mase:.3f}",
                    f"{score.mae:.4g}",
                    f"{score.rmse:.4g}",
                    covered,
                    f"{score.fit_seconds:.1f}",
                    "-" if score.parameters is None else str(score.parameters),
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in rows
        ]
        head = (
            f"{len(self.data.origins)} origins, {self.data.horizon} steps ahead, fitted to {self.data.train_end} of "
            f"{len(self.data.values)} steps, season {self.season}"
        )
        return "\n".join([head, *lines])

    def _score(self, forecasts: ModelForecasts) -> Score:
        actual, quantiles = self.data.actual, forecasts.quantiles
        errors = np.abs(actual - quantiles[..., 1])
        scaled = errors / self.unit
        low, high = quantiles[..., 0], quantiles[..., 2]
        known = ~(np.isnan(actual) | np.isnan(low) | np.isnan(high))
        inside = (actual >= low) & (actual <= high)
        # an origin may have no values at all
        rows = [scaled[i] for i in range(len(scaled))]
        return Score(
            name=forecasts.name,
            mase=float(np.nanmean(scaled)),
            mae=float(np.nanmean(errors)),
            rmse=float(np.sqrt(np.nanmean(errors**2))),
            coverage=float(inside[known].mean()) if known.any() else math.nan,
            width=float(((high - low) / self.unit)[known].mean()) if known.any() else math.nan,
            fit_seconds=forecasts.fit_seconds,
            parameters=forecasts.parameters,
            mase_by_step=tuple(_mean(scaled[:, h]) for h in range(self.data.horizon)),
            mase_by_origin=tuple(_mean(row) for row in rows),
        )


BacktestCallback = Callable[[str, int, int], None]
"""Called before each model: its name, its number from 0, and the number of models."""


def run_backtest(
    forecaster: "ClockworkForecaster",
    y: Any,
    X: Any = None,
    *,
    test_size: float | int = 0.2,
    stride: int | None = None,
    competitors: Sequence[str] | str = ("seasonal naive",),
    progress: BacktestCallback | None = None,
) -> BacktestResult:
    """The forecasts of the end of a series by a forecaster and its competitors.

    Args:
        forecaster: the forecaster; a clone of it is fitted, and it stays as it is
        y: the series, as `fit` takes it
        X: its covariates, as `fit` takes them
        test_size: the share of the series at its end that is forecast, or the number of its steps. Default: 0.2
        stride: the number of steps between two origins. Default: the horizon
        competitors: names from `list_competitors`; "all" takes all that are installed. Default: seasonal naive
        progress: called before each model

    >>> from cwrnn.estimators.forecaster import ClockworkForecaster
    >>> from cwrnn.estimators.made_series import make_load_series
    >>> load = make_load_series(days=40)
    >>> result = run_backtest(ClockworkForecaster(horizon=12, max_epochs=2, random_state=0), load)
    >>> list(result.scores), len(result.origins)
    (['ClockworkForecaster', 'seasonal naive'], 16)
    """
    from .competitors import forecast_origins, resolve_competitors, run_competitor

    names = resolve_competitors(competitors)
    data = _read_data(forecaster, y, X, test_size, stride)
    forecasts: dict[str, ModelForecasts] = {}
    if progress is not None:
        progress(OWN, 0, len(names) + 1)
    own = clone(forecaster).fit(data.frame(0, data.train_end), data.frame_covariates(0, data.train_end))
    forecasts[OWN] = forecast_origins(own, data, OWN)
    for number, name in enumerate(names, start=1):
        if progress is not None:
            progress(name, number, len(names) + 1)
        forecasts[name] = run_competitor(name, data, own)
    m = own.seasons_[-1]
    train = data.values[: data.train_end]
    unit = np.abs(train[m:] - train[:-m]).mean(axis=0)
    # a series that repeats itself exactly has no error to compare with
    unit = np.where(unit > 0, unit, train.std(axis=0))
    return BacktestResult(data, m, unit, forecasts, own.clocks_)


def _read_data(
    forecaster: "ClockworkForecaster", y: Any, X: Any, test_size: float | int, stride: int | None
) -> BacktestData:
    """The series of a backtest; refuses one that is too short for it."""
    table = read_series(y, missing=forecaster.missing)
    T, horizon = len(table.values), int(forecaster.horizon)
    covariates = None if X is None else read_covariates(X, table.axis, 0, T, None)
    if isinstance(test_size, bool) or not 0 < test_size < T:
        raise ValueError(f"test_size must be a share below 1, or a number of steps below {T}, got {test_size!r}")
    test = int(T * test_size) if test_size < 1 else int(test_size)
    stride = horizon if stride is None else stride
    if isinstance(stride, bool) or not isinstance(stride, (int, np.integer)) or stride < 1:
        raise ValueError(f"stride must be an integer of at least 1, got {stride!r}")
    if test < horizon:
        raise SeriesError(
            f"y has {T} steps, of which test_size={test_size} leaves {test} to forecast; a horizon of {horizon} needs "
            f"at least {horizon}"
        )
    train_end = T - test
    return BacktestData(
        values=table.values,
        observed=table.observed,
        covariates=np.empty((T, 0)) if covariates is None else covariates.values,
        columns=table.columns,
        covariate_columns=() if covariates is None else covariates.columns,
        axis=table.axis,
        is_frame=table.is_frame,
        train_end=train_end,
        origins=tuple(range(train_end, T - horizon + 1, stride)),
        horizon=horizon,
        coverage=float(forecaster.coverage),
    )


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def _clean(value: Any) -> Any:
    """A value for JSON, which has no NaN."""
    if isinstance(value, tuple):
        return [_clean(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
