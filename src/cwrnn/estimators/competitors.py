"""Competitors: the models beside which a backtest places a forecaster.

seasonal naive              the value one season ago, with the intervals of its own errors
nn.LSTM, nn.GRU             torch's layers in the same network and recipe, of equal parameters, for the same time
... by the same rule        the same, as many epochs and as patient as the forecaster, whatever time that takes
... until it stops          the same, until they stop improving at three learning rates
MSTL, AutoETS               of statsforecast, fitted once and updated at every origin
LightGBM                    three regressions of quantiles on the same candidates and inputs, for all steps ahead
"""

import dataclasses
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ..cells import CELLS
from ..extras import require
from ..gru import ClockworkGRU
from ..lstm import ClockworkLSTM
from .backtest import BacktestData, ModelForecasts
from .features import Features, fit_features
from .forecast_network import KNOTS, LINES, ForecastNetwork
from .forecaster import ClockworkForecaster
from .history import History
from .training import TrainingCallback, TrainingCurve, TrainingSettings
from .windows import Windows

EXTRA = "competitors"
"""The extra of cwrnn that installs statsforecast and LightGBM."""

RATES = (1.0, 1 / 3, 1 / 9)
"""The learning rates of a network that trains until it stops improving, as shares of the usual one."""

PATIENCE = 26
"""The number of epochs without a lower loss after which such a network goes on to the next learning rate."""

MOST_EPOCHS = 10_000
"""The most epochs at each of these rates."""

MOST_ROWS = 200_000
"""The most rows that LightGBM is fitted to."""

TREES = 400
"""The number of trees of LightGBM."""

MOST_STEPS = 5_000
"""The most steps that statsforecast's models see at an origin."""


def list_competitors() -> list[str]:
    """The names of all competitors that are installed."""
    return [name for name in COMPETITORS if PACKAGES.get(name) is None or importlib.util.find_spec(PACKAGES[name])]


def resolve_competitors(names: Sequence[str] | str) -> list[str]:
    """The names of competitors; "all" is all that are installed. Refuses unknown ones."""
    if isinstance(names, str):
        names = list_competitors() if names == "all" else [names]
    for name in names:
        if name not in COMPETITORS:
            raise ValueError(f"competitors must be 'all' or among {', '.join(COMPETITORS)}; got {name!r}")
        if PACKAGES.get(name) is not None:
            require(PACKAGES[name], extra=EXTRA, purpose=f"the competitor {name}")
    return list(names)


def run_competitor(name: str, data: BacktestData, forecaster: ClockworkForecaster) -> ModelForecasts:
    """The forecasts of a competitor of a fitted forecaster."""
    return COMPETITORS[name](name, data, forecaster)


def forecast_origins(forecaster: ClockworkForecaster, data: BacktestData, name: str) -> ModelForecasts:
    """The forecasts of a forecaster that was fitted to the training part, updated from origin to origin."""
    stream = forecaster.stream_
    quantiles = []
    for origin in data.origins:
        if origin > stream.steps:
            new = slice(stream.steps, origin)
            stream.observe(data.values[new], data.covariates[new], data.observed[new])
        lines = stream.forecast(data.covariates[origin : origin + data.horizon])
        quantiles.append(stream.convert(stream.calibration.compute_quantiles(lines, data.levels)))
    return ModelForecasts(
        name,
        np.stack(quantiles),
        forecaster.fit_seconds_,
        forecaster.n_parameters_,
        tuple(forecaster.loss_curve_),
        tuple(forecaster.validation_curve_),
    )


class TorchForecaster(ClockworkForecaster):
    """A forecaster with a layer of torch in place of the one with clocks; all else is the same."""

    kind = "LSTM"
    """"LSTM" or "GRU"."""
    parameters = 0
    """The number of parameters that the network should have."""
    is_patient = False
    """Whether it trains until it stops improving."""

    def _make_layer(self, features: Features) -> nn.Module:
        sizes = range(1, 4096)
        units = min(sizes, key=lambda size: abs(self._count_parameters(features, size) - self.parameters))
        layer: nn.Module = getattr(nn, self.kind)(features.input_size, units)
        return layer

    def _count_parameters(self, features: Features, units: int) -> int:
        """The number of parameters of a network with so many hidden units."""
        gates = CELLS[self.kind.lower()].gates
        K, channels, horizon = features.candidate_count, features.channels, features.horizon
        outputs = channels * (LINES * horizon + K * min(horizon, KNOTS))
        layer = gates * units * (features.input_size + units + 2)
        return layer + outputs * (units + 1) + horizon * channels * K

    def _finish_layer(self, layer: nn.Module) -> nn.Module:
        if isinstance(layer, nn.LSTM):
            return ClockworkLSTM.from_lstm(layer)
        assert isinstance(layer, nn.GRU)
        return ClockworkGRU.from_gru(layer)

    def _train(
        self,
        network: ForecastNetwork,
        windows: Windows,
        settings: TrainingSettings,
        seed: int,
        progress: TrainingCallback | None,
    ) -> TrainingCurve:
        if not self.is_patient:
            return super()._train(network, windows, settings, seed, progress)
        curves = []
        for number, share in enumerate(RATES):
            slower = dataclasses.replace(
                settings,
                learning_rate=share * settings.learning_rate,
                rate_shape="constant",
                max_epochs=MOST_EPOCHS,
                patience=PATIENCE,
            )
            curves.append(super()._train(network, windows, slower, seed + number, progress))
        return join_curves(curves)


def join_curves(curves: Sequence[TrainingCurve]) -> TrainingCurve:
    """The course of trainings that followed each other."""
    epochs = sum(curve.epochs for curve in curves[:-1])
    return TrainingCurve(
        train=tuple(loss for curve in curves for loss in curve.train),
        validation=tuple(loss for curve in curves for loss in curve.validation),
        best_epoch=epochs + curves[-1].best_epoch,
        stopped=curves[-1].stopped,
        seconds=sum(curve.seconds for curve in curves),
    )


def _run_seasonal_naive(name: str, data: BacktestData, forecaster: ClockworkForecaster) -> ModelForecasts:
    train = data.values[: data.train_end]
    season = forecaster.seasons_[-1]
    features = fit_features(train, np.empty((len(train), 0)), (season,), data.horizon)
    history = History.begin(season, data.values.shape[1]).extend(data.values)
    steps = np.arange(data.train_end - data.horizon)
    errors = history.look_up(history.values, steps[:, None] + np.arange(1, data.horizon + 1))
    errors = errors - features.compute_base(history, 0, len(steps))
    base = np.concatenate([features.compute_base(history, origin - 1, 1) for origin in data.origins])
    ends = np.nanquantile(errors, [data.levels[0], data.levels[2]], axis=0)
    return ModelForecasts(name, np.stack([base + ends[0], base, base + ends[1]], axis=-1), 0.0)


def _make_torch_runner(kind: str, *, is_timed: bool = False, is_patient: bool = False) -> "Runner":
    def run(name: str, data: BacktestData, forecaster: ClockworkForecaster) -> ModelForecasts:
        rival = TorchForecaster(**forecaster.get_params())
        rival.kind, rival.parameters, rival.is_patient = kind, forecaster.n_parameters_, is_patient
        rival.set_params(max_seconds=max(forecaster.fit_seconds_, 1e-3) if is_timed else None)
        rival.fit(data.frame(0, data.train_end), data.frame_covariates(0, data.train_end))
        return forecast_origins(rival, data, name)

    return run


def _make_statsforecast_runner(kind: str) -> "Runner":
    def run(name: str, data: BacktestData, forecaster: ClockworkForecaster) -> ModelForecasts:
        models = require("statsforecast.models", extra=EXTRA, purpose=f"the competitor {kind}")
        seasons = [season for season in forecaster.seasons_ if season > 1] or [1]
        level = round(100 * data.coverage, 6)
        quantiles = np.empty((len(data.origins), data.horizon, data.values.shape[1], 3))
        started = time.perf_counter()
        seconds = 0.0
        with warnings.catch_warnings():
            # models warn about seasons that they cannot have
            warnings.simplefilter("ignore")
            for channel in range(data.values.shape[1]):
                model = models.MSTL(seasons) if kind == "MSTL" else models.AutoETS(season_length=seasons[0])
                model.fit(data.values[max(0, data.train_end - MOST_STEPS) : data.train_end, channel])
                seconds = time.perf_counter() - started
                for i, origin in enumerate(data.origins):
                    known = data.values[max(0, origin - MOST_STEPS) : origin, channel]
                    found = model.forward(known, h=data.horizon, level=[level])
                    for line, key in enumerate((f"lo-{level:g}", "mean", f"hi-{level:g}")):
                        quantiles[i, :, channel, line] = _find(found, key, level)
        return ModelForecasts(name, quantiles, seconds)

    return run


def _find(found: dict[str, Any], key: str, level: float) -> NDArray[np.float64]:
    """A forecast of statsforecast, whose keys write a level as it was given."""
    values: NDArray[np.float64] = np.asarray(found[key] if key in found else found[f"{key[:3]}{level}"])
    return values


def _run_lightgbm(name: str, data: BacktestData, forecaster: ClockworkForecaster) -> ModelForecasts:
    lightgbm = require("lightgbm", extra=EXTRA, purpose="the competitor LightGBM")
    features, H = forecaster.features_, data.horizon
    history = History.begin(features.season, features.channels, data.covariates.shape[1])
    history = history.extend(data.values, data.covariates)
    first, last = features.season, data.train_end - H
    chosen = np.unique(np.linspace(first, last - 1, max(1, min(last - first, MOST_ROWS // H))).round().astype(int))
    origins = np.array(data.origins) - 1
    scales = np.concatenate([features.compute_scales(int(origin), 1) for origin in origins])
    base = np.concatenate([features.compute_base(history, int(origin), 1) for origin in origins])
    quantiles = np.empty((len(origins), H, features.channels, 3))
    seconds = 0.0
    for channel in range(features.channels):
        X, y = _make_rows(features, history, chosen, channel)
        tests, _ = _make_rows(features, history, origins, channel)
        for line, level in enumerate(data.levels):
            started = time.perf_counter()
            model = lightgbm.LGBMRegressor(
                objective="quantile",
                alpha=level,
                n_estimators=TREES,
                learning_rate=0.05,
                random_state=0,
                verbose=-1,
                n_jobs=1,
            )
            model.fit(X, y)
            seconds += time.perf_counter() - started
            found = np.asarray(model.predict(tests)).reshape(len(origins), H)
            quantiles[:, :, channel, line] = base[:, :, channel] + scales[:, :, channel] * found
    return ModelForecasts(name, quantiles, seconds)


def _make_rows(
    features: Features, history: History, steps: NDArray[np.int64], channel: int
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """The features (steps * H, ...) and targets of LightGBM: one row for each step and each step ahead."""
    H, m = features.horizon, features.season
    candidates = np.concatenate([features.compute_candidates(history, int(step), 1) for step in steps])[:, :, channel]
    inputs = np.concatenate([features.compute_inputs(history, int(step), 1) for step in steps])
    ahead = np.broadcast_to(np.arange(1, H + 1), (len(steps), H))
    phases = [(steps[:, None] + ahead) % season for season in features.seasons]
    rows = np.concatenate(
        [candidates, np.repeat(inputs[:, None], H, axis=1), np.stack([ahead, *phases], axis=-1)], axis=-1
    )
    future = steps[:, None] + ahead
    known = np.minimum(future, history.end - 1)
    base = np.concatenate([features.compute_base(history, int(step), 1) for step in steps])[:, :, channel]
    targets = (history.values[known, channel] - base) / features.scales[future % m, channel]
    return rows.reshape(len(steps) * H, -1).astype(np.float32), targets.ravel()


Runner = Callable[[str, BacktestData, ClockworkForecaster], ModelForecasts]

COMPETITORS: dict[str, Runner] = {
    "seasonal naive": _run_seasonal_naive,
    "nn.LSTM": _make_torch_runner("LSTM", is_timed=True),
    "nn.GRU": _make_torch_runner("GRU", is_timed=True),
    "nn.LSTM by the same rule": _make_torch_runner("LSTM"),
    "nn.GRU by the same rule": _make_torch_runner("GRU"),
    "nn.LSTM until it stops": _make_torch_runner("LSTM", is_patient=True),
    "nn.GRU until it stops": _make_torch_runner("GRU", is_patient=True),
    "MSTL": _make_statsforecast_runner("MSTL"),
    "AutoETS": _make_statsforecast_runner("AutoETS"),
    "LightGBM": _run_lightgbm,
}
"""All competitors by their names."""

PACKAGES = {"MSTL": "statsforecast", "AutoETS": "statsforecast", "LightGBM": "lightgbm"}
"""The packages that competitors need."""
