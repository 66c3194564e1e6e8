"""Estimators with scikit-learn's contract: networks with clocks that train themselves.

    from cwrnn.estimators import ClockworkForecaster
    forecaster = ClockworkForecaster(horizon=24).fit(series)
    print(forecaster.predict(), forecaster.predict_interval())

They need scikit-learn and pandas, which `pip install 'cwrnn[estimators]'` installs.
"""

from importlib import import_module
from typing import Any

from ..extras import require

for _package in ("sklearn", "pandas"):
    require(_package, extra="estimators", purpose="cwrnn.estimators")

_MODULES: dict[str, str] = {
    "ClockworkClassifier": "classifier",
    "ClockworkForecaster": "forecaster",
    "ClockworkRegressor": "regressor",
    "SeriesError": "time_axis",
    "propose_clocks": "clocks",
    "propose_schedule": "clocks",
}
"""The module of every public name. Modules are imported when a name is first used."""

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
