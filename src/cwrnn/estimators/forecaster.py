"""ClockworkForecaster: the next steps of a series, from a network with clocks that fit the series."""

import math
import warnings
from collections.abc import Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import nn

from ..layer import AnyLayer
from ..schedule import Schedule
from .clocks import Clocks, propose_clocks
from .features import Features, fit_features
from .forecast_network import ForecastNetwork
from .history import History
from .intervals import calibrate, measure_coverage, score
from .saving import LAYERS
from .seasons import LONGEST_SEASON, choose_seasons, clock_seasons, schedule_seasons
from .series import Table, check_missing, check_varies, continue_series, read_covariates, read_series
from .stream import Stream
from .time_axis import SeriesError, TimeAxis
from .training import (
    TrainingCallback,
    TrainingCurve,
    TrainingSettings,
    fit_network,
    seed_torch,
    select_device,
    show_training,
)
from .windows import Windows, split_series

if TYPE_CHECKING:
    from .backtest import BacktestResult

BATCHES_PER_EPOCH = 5
"""The number of batches between two measurements of the held-out loss."""

FEWEST_STEPS = 4
"""The fewest steps of a series beside its horizon."""


class ClockworkForecaster(BaseEstimator):  # type: ignore[misc]
    """Forecasts the next steps of one or several series, with intervals.

    A network with clocks reads the series step by step. It corrects the seasonal naive forecast, such as the same hour
    last week, by weighing other naive forecasts, and learns the ends of an interval, whose coverage is then calibrated
    on the end of the series, which is held out. Its weights are means over the training, in which later updates weigh
    more.

    Args:
        horizon: the number of steps to forecast. Default: 24
        cell: "rnn", "lstm" or "gru", with clocks. Default: "lstm"
        hidden_size: the number of hidden units. Default: 40
        schedule: a `Schedule` of `hidden_size` units, or any other form that a layer takes. Default: None, clocks from
            the series: few units for each cycle of its calendar, such as the periods 24 and 168 of hourly data, and for
            each peak of its spectrum that no cycle explains, and the other units for the periods 1, 2 and 4
        seasons: the steps after which values return, such as (24, 168). Default: None, those of the calendar that the
            series is long enough for, or those of its spectrum if it has no calendar
        coverage: the coverage of the intervals. Default: 0.8
        missing: "error" refuses values and rows that are missing; "interpolate" draws a line between their neighbours;
            "hold" keeps the last value. Filled values are never a target. Default: "error"
        learning_rate: the highest learning rate of AdamW. Default: 8e-3
        max_epochs: the number of epochs, at most; an epoch is 5 batches. Default: 40
        batch_size: the number of windows in a batch. Default: 4
        patience: training stops after this many epochs without a lower loss on the held-out end; None for never.
            Default: 12
        validation_fraction: the share of the series at its end that is held out, to keep the best weights and to
            calibrate the intervals; short series hold out up to a quarter. Default: 0.1
        max_seconds: training stops after this time; None for no limit
        random_state: the seed, or a RandomState of numpy. For one seed and one machine, all results have the same bits
        device: "auto" takes a GPU if there is one; or the name of a device of torch
        verbose: if True, a progress bar is drawn; a function is called with a `TrainingProgress` after each batch

    Attributes:
        schedule_: the `Schedule` of the network
        clocks_: the clocks from the series, with their sources; printing them explains seasons and schedule
        seasons_: the seasons of the series
        coverage_: the measured coverage of the intervals: calibrated on the first half of the held-out end, they
            follow the observations of its second half. NaN if the series is too short to hold anything out
        held_out_errors_: for each column, the mean absolute error on the held-out end, and that of the seasonal naive
            forecast; empty if nothing was held out
        loss_curve_, validation_curve_: the training loss, and the loss on the held-out end, of each epoch
        best_epoch_: the epoch after which the means of the weights had the lowest loss on the held-out end
        n_iter_: the number of epochs
        stopped_: the reason why training stopped
        fit_seconds_: the time of the training
        columns_: the columns of the series
        network_: the network, on the CPU
        n_parameters_: the number of its parameters

    >>> import pandas as pd
    >>> from cwrnn.estimators.made_series import make_load_series
    >>> load = make_load_series(days=40)
    >>> forecaster = ClockworkForecaster(horizon=12, max_epochs=2, random_state=0).fit(load)
    >>> forecaster.predict().index[0] == load.index[-1] + pd.Timedelta("1h")
    True
    >>> forecaster.predict_interval().columns.tolist()
    ['lower', 'upper']
    """

    schedule_: Schedule
    clocks_: Clocks
    seasons_: tuple[int, ...]
    features_: Features
    coverage_: float
    held_out_errors_: list[tuple[float, float]]
    network_: ForecastNetwork
    stream_: Stream
    axis_: TimeAxis
    columns_: tuple[Any, ...]
    covariates_: tuple[Any, ...]
    is_frame_: bool
    loss_curve_: list[float]
    validation_curve_: list[float]
    best_epoch_: int
    n_iter_: int
    stopped_: str
    fit_seconds_: float
    n_parameters_: int

    def __init__(
        self,
        horizon: int = 24,
        *,
        cell: str = "lstm",
        hidden_size: int = 40,
        schedule: Any = None,
        seasons: Sequence[int] | None = None,
        coverage: float = 0.8,
        missing: str = "error",
        learning_rate: float = 8e-3,
        max_epochs: int = 40,
        batch_size: int = 4,
        patience: int | None = 12,
        validation_fraction: float = 0.1,
        max_seconds: float | None = None,
        random_state: Any = None,
        device: Any = "auto",
        verbose: bool | int | TrainingCallback = False,
    ) -> None:
        self.horizon = horizon
        self.cell = cell
        self.hidden_size = hidden_size
        self.schedule = schedule
        self.seasons = seasons
        self.coverage = coverage
        self.missing = missing
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, y: Any, X: Any = None) -> "ClockworkForecaster":
        """Trains on a series and returns the forecaster, which then stands at the end of the series.

        Args:
            y: a Series or DataFrame of pandas with a DatetimeIndex, a PeriodIndex or integers, one column for each
                series; or an array (T,) or (T, channels)
            X: covariates that are known in advance, with a row for every step of y; None for none
        """
        settings = self._check_parameters()
        device = select_device(self.device)
        horizon = int(self.horizon)
        table = read_series(y, missing=self.missing)
        check_varies(table)
        T = len(table.values)
        if horizon + FEWEST_STEPS > T:
            raise SeriesError(f"y has {T} steps, but a horizon of {horizon} needs at least {horizon + FEWEST_STEPS}")
        covariates = None if X is None else read_covariates(X, table.axis, 0, T, None)
        known = np.empty((T, 0)) if covariates is None else covariates.values
        self._choose_clocks(table)
        train_end = split_series(T, self.seasons_[-1], horizon, self.validation_fraction)
        features = fit_features(table.values[:train_end], known[:train_end], self.seasons_, horizon)
        history = History.begin(features.season, features.channels, known.shape[1]).extend(table.values, known)
        windows = Windows(features, history, table.observed, train_end, float(self.coverage), device)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with seed_torch(seed, device):
            network = ForecastNetwork(self._make_layer(features), horizon, features.channels, features.candidate_count)
        network.set_weights(windows.regress())
        network.to(device)
        with show_training(self.verbose, type(self).__name__) as progress:
            curve = self._train(network, windows, settings, seed, progress)
        self.n_parameters_ = network.count_parameters()
        network.layer = self._finish_layer(network.layer)
        self.features_, self.network_ = features, network
        self.axis_, self.columns_, self.is_frame_ = table.axis, table.columns, table.is_frame
        self.covariates_ = () if covariates is None else covariates.columns
        self._keep_curve(curve)
        self._follow(windows, history)
        return self

    def predict(self, X: Any = None) -> Any:
        """The medians of the next `horizon` steps: a Series, or a DataFrame if y had columns.

        Args:
            X: the covariates of these steps, if the forecaster was fitted with covariates
        """
        return self._frame(self._compute_quantiles([0.5], X)[:, :, 0])

    def predict_interval(self, X: Any = None, *, coverage: float | None = None) -> Any:
        """The intervals of the next `horizon` steps: a DataFrame with the columns lower and upper.

        If y had columns, the columns of the result are pairs such as ("load", "lower").

        Args:
            X: the covariates of these steps, if the forecaster was fitted with covariates
            coverage: the probability that a value lies inside its interval. Default: that of the forecaster
        """
        coverage = self.coverage if coverage is None else coverage
        _check_share("coverage", coverage)
        ends = self._compute_quantiles([(1 - coverage) / 2, (1 + coverage) / 2], X)
        return self._frame_many(ends, ["lower", "upper"])

    def predict_quantiles(self, levels: Sequence[float] = (0.1, 0.5, 0.9), X: Any = None) -> Any:
        """The quantiles of the next `horizon` steps: a DataFrame with a column for each level.

        If y had columns, the columns of the result are pairs such as ("load", 0.1).

        Args:
            levels: probabilities between 0 and 1
            X: the covariates of these steps, if the forecaster was fitted with covariates
        """
        levels = [float(level) for level in np.atleast_1d(np.asarray(levels, dtype=np.float64))]
        for level in levels:
            _check_share("levels", level)
        if not levels:
            raise ValueError("levels must have at least one probability, got none")
        return self._frame_many(self._compute_quantiles(levels, X), levels)

    def update(self, y: Any, X: Any = None) -> "ClockworkForecaster":
        """Takes new observations, one step of the network for each; the weights stay as they are.

        The cost of an observation does not depend on the number of those before it, and the state is the same as if
        the network had read the whole series again. Intervals grow after observations outside of them, and shrink
        after others, so that their coverage stays as it should be when the series changes.

        Args:
            y: the observations that follow the last one directly
            X: their covariates, if the forecaster was fitted with covariates
        """
        check_is_fitted(self)
        stream = self.stream_
        before = stream.history.values[-1]
        table = continue_series(y, self.axis_, stream.steps, self.columns_, before, missing=self.missing)
        stream.observe(table.values, self._read_covariates(X, len(table.values)), table.observed)
        return self

    def backtest(self, y: Any, X: Any = None, **options: Any) -> "BacktestResult":
        """Forecasts the end of a series from many origins, beside the seasonal naive forecast: see `run_backtest`.

        The forecaster itself stays as it is: a clone is fitted to the first part of the series.
        """
        from .backtest import run_backtest

        return run_backtest(self, y, X, **options)

    def save(self, path: str | Path) -> None:
        """Writes the fitted forecaster to one safetensors file, completely or not at all."""
        from .forecast_files import save_forecaster

        save_forecaster(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "ClockworkForecaster":
        """The forecaster in a file, which stands where it stood when it was saved. Nothing in the file is executed.

        Raises a ModelError that names the problem if the file is not a saved forecaster, or is damaged.
        """
        from .forecast_files import load_forecaster

        return load_forecaster(path)

    def _check_parameters(self) -> TrainingSettings:
        """Refuses values of parameters that make no sense, and returns the settings of the training."""
        for name in ("horizon", "hidden_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")
        if self.cell not in LAYERS:
            raise ValueError(f"cell must be one of {', '.join(LAYERS)}, got {self.cell!r}")
        _check_share("coverage", self.coverage)
        _check_share("validation_fraction", self.validation_fraction)
        check_missing(self.missing)
        return TrainingSettings(
            learning_rate=self.learning_rate,
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            patience=self.patience,
            rate_shape="one-cycle",
            average=True,
            max_seconds=self.max_seconds,
        )

    def _choose_clocks(self, table: Table) -> None:
        """Sets the seasons, the clocks and the schedule."""
        T, calendar = len(table.values), table.axis.calendar
        values = np.where(table.observed, table.values, np.nan)
        proposed = propose_clocks(values, calendar, longest=min(max(1, T // 4), LONGEST_SEASON))
        if self.seasons is None:
            self.seasons_ = choose_seasons(proposed, T, self.horizon)
        else:
            self.seasons_ = self._check_seasons(T)
        self.clocks_ = clock_seasons(proposed, self.seasons_)
        self.schedule_ = self._choose_schedule(self.clocks_)

    def _choose_schedule(self, clocks: Clocks) -> Schedule:
        """The schedule that the parameter gives; refuses one with another number of units."""
        hidden_size = int(self.hidden_size)
        if self.schedule is None:
            return schedule_seasons(clocks, hidden_size)
        return Schedule.resolve(self.schedule, hidden_size)

    def _check_seasons(self, T: int) -> tuple[int, ...]:
        """The seasons that the parameter gives, which must divide each other and fit into the series."""
        try:
            # a schedule refuses what is not positive integers
            seasons = Schedule.from_periods(2**18, self.seasons or ()).periods
        except (TypeError, ValueError) as error:
            message = f"seasons must be a sequence of positive integers, such as (24, 168), got {self.seasons!r}"
            raise type(error)(message) from error
        longest = seasons[-1]
        wrong = [season for season in seasons if longest % season]
        if wrong:
            raise ValueError(f"seasons must divide the longest one, got {tuple(seasons)}")
        if 2 * longest + self.horizon > T:
            raise SeriesError(
                f"y has {T} steps, but a season of {longest} and a horizon of {self.horizon} need at least "
                f"{2 * longest + self.horizon}"
            )
        return seasons

    def _make_layer(self, features: Features) -> nn.Module:
        layer: nn.Module = LAYERS[self.cell](features.input_size, self.schedule_.hidden_size, schedule=self.schedule_)
        return layer

    def _finish_layer(self, layer: nn.Module) -> nn.Module:
        """The trained layer with clocks, which can make single steps."""
        return layer

    def _train(
        self,
        network: ForecastNetwork,
        windows: Windows,
        settings: TrainingSettings,
        seed: int,
        progress: TrainingCallback | None,
    ) -> TrainingCurve:
        """Trains the network in place."""
        items = torch.arange(BATCHES_PER_EPOCH * int(self.batch_size))
        held_out = torch.zeros(1, dtype=torch.int64) if len(windows.held_out) else None
        return fit_network(
            network,
            lambda batch: windows.compute_loss(network, len(batch)),
            items,
            held_out,
            settings,
            seed=seed,
            rate_shares=network.find_rate_shares(),
            progress=progress,
        )

    def _keep_curve(self, curve: TrainingCurve) -> None:
        if curve.stopped == "diverged":
            warnings.warn(
                f"the loss was not finite in epoch {curve.epochs}: the weights of epoch {curve.best_epoch} were kept; "
                f"learning_rate={self.learning_rate} may be too high",
                ConvergenceWarning,
                stacklevel=3,
            )
        # JSON has no numbers that are not finite
        self.loss_curve_ = [loss for loss in curve.train if math.isfinite(loss)]
        self.validation_curve_ = [loss for loss in curve.validation if math.isfinite(loss)]
        self.best_epoch_, self.n_iter_, self.stopped_ = curve.best_epoch, curve.epochs, curve.stopped
        self.fit_seconds_ = curve.seconds

    def _follow(self, windows: Windows, history: History) -> None:
        """Runs the network over the whole series: calibrates the intervals, and keeps the state at the end."""
        network, T = self.network_, history.end
        layer: AnyLayer = network.layer  # type: ignore[assignment]
        # without a held-out end, the training part must do
        rows = slice(windows.held_out.start, windows.held_out.stop)
        if not len(windows.held_out):
            rows = slice(min(self.features_.season, T - self.horizon - 1), T - self.horizon)
        with torch.no_grad():
            hidden, state = layer(windows.inputs, return_state=True)
            lines = network.read(hidden[rows], windows.candidates[rows]).double().cpu().numpy()
            outputs = network.readout(hidden[-self.features_.horizon :]).cpu()
        targets = windows.targets[rows].double().cpu().numpy()
        seen = windows.importance[rows].cpu().numpy() > 0
        scores = np.where(seen, score(lines, targets), np.nan)
        is_measured = len(windows.held_out) > 0
        self.coverage_ = measure_coverage(scores, float(self.coverage)) if is_measured else math.nan
        self.held_out_errors_ = []
        if is_measured:
            scales = self.features_.compute_scales(rows.start, len(targets))
            errors = [np.where(seen, np.abs(part) * scales, np.nan) for part in (targets - lines[..., 1], targets)]
            self.held_out_errors_ = [
                (_mean(errors[0][..., c]), _mean(errors[1][..., c])) for c in range(targets.shape[2])
            ]
        network.cpu()
        calibration = calibrate(scores, float(self.coverage))
        kept = history.tail(self.features_.horizon)
        self.stream_ = Stream(network, self.features_, calibration, kept, state.to("cpu"), outputs)

    def _read_covariates(self, X: Any, count: int) -> NDArray[np.float64]:
        """The covariates (count, covariates) of the next steps."""
        if not self.covariates_:
            if X is not None:
                raise ValueError("X must be None: the forecaster was fitted without covariates")
            return np.empty((count, 0))
        if X is None:
            raise ValueError(
                f"X must have the covariates {', '.join(map(repr, self.covariates_))} of {count} steps, got None"
            )
        return read_covariates(X, self.axis_, self.stream_.steps, count, self.covariates_).values

    def _compute_quantiles(self, levels: Sequence[float], X: Any) -> NDArray[np.float64]:
        """(H, C, levels): the quantiles of the next steps."""
        check_is_fitted(self)
        lines = self.stream_.forecast(self._read_covariates(X, self.features_.horizon))
        return self.stream_.convert(self.stream_.calibration.compute_quantiles(lines, levels))

    def _frame(self, values: NDArray[np.float64]) -> Any:
        """Values (H, C) as a Series or a DataFrame with the times of the next steps."""
        index = self.axis_.index(self.stream_.steps, len(values))
        if self.is_frame_:
            return pd.DataFrame(values, index, list(self.columns_))
        # an unnamed Series has the column 0
        name = self.columns_[0]
        return pd.Series(values[:, 0], index, name=None if name == 0 else name)

    def _frame_many(self, values: NDArray[np.float64], names: Sequence[Any]) -> Any:
        """Values (H, C, names) as a DataFrame with the times of the next steps."""
        index = self.axis_.index(self.stream_.steps, len(values))
        columns = pd.MultiIndex.from_product([self.columns_, names]) if self.is_frame_ else list(names)
        return pd.DataFrame(values.reshape(len(values), -1), index, columns)


def _check_share(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < 1:
        raise ValueError(f"{name} must be a number above 0 and below 1, got {value!r}")


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are known; NaN if there are none."""
    return math.nan if np.isnan(values).all() else float(np.nanmean(values))
