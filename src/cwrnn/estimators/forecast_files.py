"""Forecasters in files: everything that a fitted forecaster needs, in one safetensors file.

    tensors     the parameters of the network (float32), the state of its stream (float32), the last seasons of the
                series, the scaling, the calibration of the intervals and the loss curves (float64)
    metadata    the parameters of the estimator, the times, columns and seasons of the series, the layer, its clocks,
                and the course of the training

Loading executes nothing from the file, and checks all of it before anything is built. A ModelError names what is wrong.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..readout import Readout
from ..schedule import Schedule
from ..step import LSTMState, State
from ..tensor_files import FormatError, name_problems
from ..untrusted import shorten
from .clocks import Clock, Clocks
from .features import Features
from .forecast_network import LINES, ForecastNetwork
from .forecaster import ClockworkForecaster
from .history import PROFILES, History
from .intervals import COVERAGES, LARGEST_GROWTH, Calibration
from .saving import (
    check_fields,
    check_tensor,
    describe_layer,
    list_arrays,
    read_model,
    restore_layer,
    restore_linear,
    write_model,
)
from .series import LARGEST
from .stream import Stream
from .time_axis import TimeAxis

KIND = "ClockworkForecaster"
"""The class that a file names."""

FIELDS: dict[str, type | tuple[type, ...]] = {
    "parameters": dict, "axis": dict, "columns": list, "covariates": list, "is_frame": bool, "seasons": list,
    "horizon": int, "start": int, "layer": dict, "clocks": list, "coverage": (float, type(None)),
    "held_out_errors": list, "best_epoch": int, "epochs": int, "stopped": str, "fit_seconds": float,
}  # fmt: skip
"""The fields of the metadata and their types."""

FEATURES = ("mean", "deviation", "scales", "spreads", "covariate_mean", "covariate_deviation")
"""The arrays of Features."""


def save_forecaster(forecaster: ClockworkForecaster, path: str | Path) -> None:
    """Writes a fitted forecaster to a file, completely or not at all; an existing file is replaced.

    Raises a ValueError if a column has a name that is neither a text nor an integer.
    """
    check_is_fitted(forecaster)
    stream, features = forecaster.stream_, forecaster.features_
    state = stream.state
    fields = {
        "parameters": {name: _make_plain(value) for name, value in forecaster.get_params(deep=False).items()},
        "axis": forecaster.axis_.to_dict(),
        "columns": _list_names("columns of y", forecaster.columns_),
        "covariates": _list_names("columns of X", forecaster.covariates_),
        "is_frame": forecaster.is_frame_,
        "seasons": list(features.seasons),
        "horizon": features.horizon,
        "start": stream.history.start,
        "layer": describe_layer(forecaster.network_.layer),  # type: ignore[arg-type]
        "clocks": forecaster.clocks_.to_dict(),
        "coverage": None if math.isnan(forecaster.coverage_) else forecaster.coverage_,
        "held_out_errors": [
            [None if math.isnan(error) else error for error in errors] for errors in forecaster.held_out_errors_
        ],
        "best_epoch": forecaster.best_epoch_,
        "epochs": forecaster.n_iter_,
        "stopped": forecaster.stopped_,
        "fit_seconds": float(forecaster.fit_seconds_),
    }
    arrays: dict[str, NDArray[Any]] = {
        f"network.{name}": array for name, array in list_arrays(forecaster.network_).items()
    }
    for name, tensor in zip("hc", state[:-1], strict=False):
        arrays[f"state.{name}"] = np.ascontiguousarray(tensor.numpy(), "<f4")
    arrays["stream.outputs"] = np.ascontiguousarray(stream.outputs.numpy(), "<f4")
    numbers = {f"features.{name}": getattr(features, name) for name in FEATURES}
    numbers |= {f"history.{name}": getattr(stream.history, name) for name in ("values", "profiles", "covariates")}
    numbers |= {f"calibration.{name}": getattr(stream.calibration, name) for name in ("factors", "growth")}
    numbers["loss_curve"] = np.array(forecaster.loss_curve_)
    numbers["validation_curve"] = np.array(forecaster.validation_curve_)
    arrays |= {name: np.ascontiguousarray(array, "<f8") for name, array in numbers.items()}
    write_model(path, KIND, fields, arrays)


def load_forecaster(path: str | Path) -> ClockworkForecaster:
    """The forecaster in a file; raises a ModelError that names the problem if there is one."""
    with name_problems(Path(path)):
        fields, arrays = read_model(path, KIND)
        fields = check_fields("its metadata", fields, FIELDS)
        return _restore(fields, arrays)


def _restore(fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ClockworkForecaster:
    """The forecaster with these fields and arrays, all of which are checked first."""
    forecaster = _restore_parameters(fields["parameters"])
    forecaster.columns_ = _check_names("columns", fields["columns"])
    forecaster.covariates_ = _check_names("covariates", fields["covariates"])
    if not forecaster.columns_ or (not fields["is_frame"] and len(forecaster.columns_) > 1):
        raise FormatError(f"its columns make no sense: {shorten(str(fields['columns']))}")
    features = _restore_features(fields, arrays, len(forecaster.columns_), len(forecaster.covariates_))
    network = _restore_network(fields["layer"], arrays, features)
    history = _restore_history(fields["start"], arrays, features)
    forecaster.is_frame_ = fields["is_frame"]
    forecaster.features_, forecaster.network_ = features, network
    forecaster.n_parameters_ = network.count_parameters()
    forecaster.seasons_ = features.seasons
    forecaster.schedule_ = network.layer.schedule  # type: ignore[assignment]
    try:
        forecaster.axis_ = TimeAxis.from_dict(fields["axis"])
        # the last step must be a time that pandas can have
        forecaster.axis_.index(history.end, features.horizon)
    except Exception as error:
        # pandas has many errors for times that it cannot have
        raise FormatError(f"its times make no sense: {shorten(str(error), 200)}") from error
    forecaster.clocks_ = _restore_clocks(fields["clocks"])
    forecaster.stream_ = Stream(
        network,
        features,
        _restore_calibration(float(forecaster.coverage), arrays, features),
        history,
        _restore_state(network, arrays, history.end),
        _restore_outputs(network, arrays),
    )
    forecaster.coverage_ = math.nan if fields["coverage"] is None else float(fields["coverage"])
    forecaster.held_out_errors_ = _restore_errors(fields["held_out_errors"], features.channels)
    for name in ("loss_curve", "validation_curve"):
        curve = check_tensor(arrays, name, (arrays[name].size if name in arrays else 0,), "<f8")
        setattr(forecaster, f"{name}_", curve.tolist())
    forecaster.best_epoch_, forecaster.n_iter_ = fields["best_epoch"], fields["epochs"]
    forecaster.stopped_, forecaster.fit_seconds_ = fields["stopped"], float(fields["fit_seconds"])
    return forecaster


def _restore_parameters(parameters: dict[str, Any]) -> ClockworkForecaster:
    """An estimator with the parameters of a file."""
    known = ClockworkForecaster().get_params(deep=False)
    if set(parameters) != set(known):
        wrong = sorted(set(parameters) ^ set(known))
        raise FormatError(f"its parameters differ from those of a {KIND} in {shorten(str(wrong))}")
    forecaster = ClockworkForecaster(**parameters)
    try:
        forecaster._check_parameters()
        forecaster._choose_schedule(Clocks((Clock(1),)))
    except (TypeError, ValueError) as error:
        raise FormatError(shorten(str(error), 200)) from error
    return forecaster


def _restore_features(
    fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], channels: int, covariates: int
) -> Features:
    seasons, horizon = fields["seasons"], fields["horizon"]
    is_rising = all(type(season) is int and season >= 1 for season in seasons) and sorted(set(seasons)) == seasons
    if not seasons or not is_rising or any(seasons[-1] % season for season in seasons):
        raise FormatError(f"seasons must be rising divisors of the last one, got {shorten(str(seasons))}")
    if not 1 <= horizon <= 2**20:
        raise FormatError(f"horizon must be at least 1, got {horizon}")
    shapes = ((channels,), (channels,), (seasons[-1], channels), (len(seasons), channels), (covariates,), (covariates,))
    parts = []
    for name, shape in zip(FEATURES, shapes, strict=True):
        array = check_tensor(arrays, f"features.{name}", shape, "<f8").astype(np.float64)
        smallest = -LARGEST if name in ("mean", "covariate_mean") else 1 / LARGEST
        if not ((array >= smallest) & (array <= LARGEST)).all():
            raise FormatError(f"the tensor 'features.{name}' must be between {smallest:g} and {LARGEST:g}")
        parts.append(array)
    return Features(tuple(seasons), horizon, *parts)


def _restore_network(layer: Any, arrays: Mapping[str, NDArray[Any]], features: Features) -> ForecastNetwork:
    prefix = "network."
    shape = (features.horizon, features.channels, features.candidate_count)
    weights, changes = (check_tensor(arrays, f"{prefix}{name}", shape) for name in ("weights", "changes"))
    restored = restore_layer(layer, arrays, f"{prefix}layer.")
    if restored.input_size != features.input_size or restored.num_layers != 1 or restored.bidirectional:
        raise FormatError(f"its layer must read {features.input_size} inputs in one direction, got {restored}")
    network = ForecastNetwork(restored, features.horizon, features.channels, features.candidate_count)
    outputs = features.channels * (LINES * features.horizon + features.candidate_count * network.knots)
    network.readout = restore_linear(arrays, f"{prefix}readout.", restored.hidden_size, outputs, make=Readout)
    with torch.no_grad():
        network.weights.copy_(torch.from_numpy(weights.astype(np.float32)))
        network.changes.copy_(torch.from_numpy(changes.astype(np.float32)))
    return network.eval()


def _restore_history(start: int, arrays: Mapping[str, NDArray[Any]], features: Features) -> History:
    values = arrays.get("history.values")
    rows = len(values) if values is not None and values.ndim else 0
    if start < 0 or rows < 1 or (start > 0 and rows < features.season):
        raise FormatError(f"its history makes no sense: {rows} rows from step {start} on")
    shapes = {
        "values": (rows, features.channels),
        "profiles": (rows, features.channels, PROFILES),
        "covariates": (rows, len(features.covariate_mean)),
    }
    parts = {
        name: check_tensor(arrays, f"history.{name}", shape, "<f8").astype(np.float64) for name, shape in shapes.items()
    }
    for name, array in parts.items():
        if (np.abs(array) > LARGEST).any():
            raise FormatError(f"the tensor 'history.{name}' must be between {-LARGEST:g} and {LARGEST:g}")
    return History(features.season, start, **parts)


def _restore_state(network: ForecastNetwork, arrays: Mapping[str, NDArray[Any]], t: int) -> State | LSTMState:
    layer = network.layer
    names = ("h", "c") if getattr(layer, "cell", "") == "lstm" else ("h",)
    shape = (1, int(layer.hidden_size))  # type: ignore[arg-type]
    parts = [torch.from_numpy(check_tensor(arrays, f"state.{name}", shape).astype(np.float32)) for name in names]
    return LSTMState(parts[0], parts[1], t) if len(parts) == 2 else State(parts[0], t)


def _restore_outputs(network: ForecastNetwork, arrays: Mapping[str, NDArray[Any]]) -> torch.Tensor:
    """The readouts after the last observations, of which there are at most as many as steps ahead."""
    found = arrays.get("stream.outputs")
    rows = len(found) if found is not None and found.ndim else 0
    if found is not None and not 1 <= rows <= network.horizon:
        raise FormatError(f"the tensor 'stream.outputs' must have 1 to {network.horizon} rows, got {rows}")
    outputs = check_tensor(arrays, "stream.outputs", (rows, network.readout.out_features))
    return torch.from_numpy(outputs.astype(np.float32))


def _restore_calibration(coverage: float, arrays: Mapping[str, NDArray[Any]], features: Features) -> Calibration:
    shape = (features.horizon, features.channels)
    factors = check_tensor(arrays, "calibration.factors", (len(COVERAGES), *shape), "<f8").astype(np.float64)
    growth = check_tensor(arrays, "calibration.growth", shape, "<f8").astype(np.float64)
    if (np.diff(factors, axis=0) < 0).any() or (factors < 0).any() or (np.abs(growth) > LARGEST_GROWTH).any():
        raise FormatError("the factors of its intervals must increase from 0 and stay near their start")
    return Calibration(coverage, factors, growth)


def _restore_clocks(values: list[Any]) -> Clocks:
    clocks = []
    for value in values:
        fields = check_fields("clocks", value, {"period": int, "cycle": str, "share": float})
        clocks.append(Clock(fields["period"], fields["cycle"], float(fields["share"])))
    return Clocks(tuple(clocks))


def _restore_errors(values: list[Any], channels: int) -> list[tuple[float, float]]:
    """The errors on the held-out end: a pair for each channel, or none at all."""
    for pair in values:
        if (
            not isinstance(pair, list)
            or len(pair) != 2
            or any(type(error) not in (float, type(None)) for error in pair)
        ):
            raise FormatError(f"held_out_errors must be pairs of numbers, got {shorten(str(values))}")
    if len(values) not in (0, channels):
        raise FormatError(f"held_out_errors must have {channels} pairs or none, got {len(values)}")
    first, second = ([math.nan if pair[i] is None else pair[i] for pair in values] for i in (0, 1))
    return list(zip(first, second, strict=True))


def _list_names(what: str, names: Sequence[Any]) -> list[str | int]:
    """Names for JSON; refuses others than texts and integers."""
    for name in names:
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            raise ValueError(f"the {what} must be texts or integers to be saved, got {name!r}")
    return [name if isinstance(name, str) else int(name) for name in names]


def _check_names(what: str, names: list[Any]) -> tuple[str | int, ...]:
    if any(type(name) not in (str, int) for name in names) or len(set(names)) < len(names):
        raise FormatError(f"{what} must be different texts or integers, got {shorten(str(names))}")
    return tuple(names)


def _make_plain(value: Any) -> Any:
    """A parameter of the estimator for JSON; a generator of random numbers is not kept."""
    if isinstance(value, Schedule):
        return value.spec
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_make_plain(item) for item in value]
    return value if isinstance(value, (str, int, float, type(None))) else None
