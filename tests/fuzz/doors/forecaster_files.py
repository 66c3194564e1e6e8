"""A door for the files of forecasters, with changes in their metadata and tensors."""

import functools
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from cwrnn.estimators import ClockworkForecaster
from cwrnn.tensor_files import ModelError

from ..door import Door, require
from .model_files import make_case


@functools.cache
def list_forecaster_samples() -> tuple[bytes, ...]:
    """Return valid files: of one series, and of two series in a time zone with a covariate."""
    random = np.random.default_rng(0)
    values = np.sin(np.arange(80) * np.pi / 4)[:, None] + random.normal(size=(80, 2))
    index = pd.date_range("2024-03-29", periods=80, freq="h", tz="Europe/Berlin")
    table = pd.DataFrame(values, index, ["load", "price"])
    options: dict[str, Any] = {"horizon": 3, "hidden_size": 4, "max_epochs": 1, "random_state": 0, "device": "cpu"}
    forecasters = [
        ClockworkForecaster(**options).fit(values[:, 0]),
        ClockworkForecaster(cell="gru", seasons=(4, 8), **options).fit(table, table[["load"]] ** 2),
    ]
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for forecaster in forecasters:
            # the same bytes in every process
            forecaster.fit_seconds_ = 1.0
            forecaster.save(Path(folder, "model"))
            files.append(Path(folder, "model").read_bytes())
    return tuple(files)


def load_forecaster(case: bytes, folder: Path) -> None:
    """Load the file, forecast, update the forecaster, save it, and load it again."""
    path = folder / "model.safetensors"
    path.write_bytes(case)
    forecaster = ClockworkForecaster.load(path)
    steps = forecaster.features_.horizon

    def list_covariates(count: int) -> Any:
        return np.ones((count, len(forecaster.covariates_))) if forecaster.covariates_ else None

    for _ in range(2):
        forecast = forecaster.predict(list_covariates(steps))
        require(len(forecast) == steps, f"{len(forecast)} steps instead of {steps}")
        require(bool(np.isfinite(forecast.to_numpy()).all()), f"not finite: {forecast.iloc[:3]}")
        ends = forecaster.predict_interval(list_covariates(steps)).to_numpy().reshape(steps, -1, 2)
        require(bool((ends[..., 0] <= ends[..., 1]).all()), f"the ends of intervals cross: {ends[:3]}")
        forecaster.update(np.ones((2, len(forecaster.columns_))), list_covariates(2))
    forecaster.save(folder / "again")
    again = ClockworkForecaster.load(folder / "again")
    found, expected = (model.predict(list_covariates(steps)) for model in (again, forecaster))
    require(found.equals(expected), "saved again, it forecasts something else")


def make_forecaster_case(random: Random) -> bytes:
    """Return the file of a forecaster with a few changes."""
    return make_case(random, list_forecaster_samples())


DOORS = (
    Door(
        "forecaster",
        "ClockworkForecaster.load, predict, update",
        (ModelError, FloatingPointError),
        make_forecaster_case,
        load_forecaster,
    ),
)
