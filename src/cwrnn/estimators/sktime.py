"""Adapters for sktime: the estimators with sktime's contract, for its pipelines, evaluation and panels of series.

    from cwrnn.estimators import ClockworkClassifier
    from cwrnn.estimators.sktime import SktimeClassifier
    SktimeClassifier(ClockworkClassifier(cell="gru")).fit(X_train, y_train).predict(X_test)

They need sktime, which `pip install 'cwrnn[sktime]'` installs.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone

from ..extras import require
from .classifier import ClockworkClassifier
from .forecaster import ClockworkForecaster
from .regressor import ClockworkRegressor

require("sktime", extra="sktime", purpose="cwrnn.estimators.sktime")

from sktime.classification.base import BaseClassifier  # noqa: E402
from sktime.forecasting.base import BaseForecaster  # noqa: E402
from sktime.regression.base import BaseRegressor  # noqa: E402

PANEL_TAGS = {
    "authors": "cwrnn",
    "maintainers": "cwrnn",
    "python_dependencies": ["torch", "scikit-learn"],
    "X_inner_mtype": "df-list",
    "capability:multivariate": True,
    "capability:unequal_length": True,
}
"""The tags of the classifier and the regressor. A df-list is a list of DataFrames, (time, channels) each."""


class SktimeClassifier(BaseClassifier):  # type: ignore[misc]
    """A ClockworkClassifier as a classifier of sktime.

    Args:
        estimator: the classifier, which is cloned before it is fitted. Default: ClockworkClassifier()

    Attributes:
        estimator_: the fitted ClockworkClassifier

    >>> from cwrnn.estimators import ClockworkClassifier
    >>> from cwrnn.estimators.sktime import SktimeClassifier
    >>> from sktime.datasets import load_unit_test
    >>> X, y = load_unit_test(split="train")
    >>> estimator = ClockworkClassifier(hidden_size=16, max_epochs=5, random_state=0)
    >>> SktimeClassifier(estimator).fit(X, y).predict(X).shape
    (20,)
    """

    _tags = PANEL_TAGS | {"capability:predict_proba": True, "capability:multioutput": False}

    def __init__(self, estimator: ClockworkClassifier | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "SktimeClassifier":
        self.estimator_ = clone(ClockworkClassifier() if self.estimator is None else self.estimator)
        self.estimator_.fit(_list_arrays(X), y)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.estimator_.predict(_list_arrays(X))
        return labels

    def _predict_proba(self, X: Any) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = self.estimator_.predict_proba(_list_arrays(X))
        return probabilities

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which sktime tests the estimator."""
        small: dict[str, Any] = {"hidden_size": 8, "max_epochs": 1, "random_state": 0}
        return [
            {"estimator": ClockworkClassifier(**small)},
            {"estimator": ClockworkClassifier(cell="gru", bidirectional=True, **small)},
        ]


class SktimeRegressor(BaseRegressor):  # type: ignore[misc]
    """A ClockworkRegressor as a regressor of sktime.

    Args:
        estimator: the regressor, which is cloned before it is fitted. Default: ClockworkRegressor()

    Attributes:
        estimator_: the fitted ClockworkRegressor

    >>> from cwrnn.estimators import ClockworkRegressor
    >>> from cwrnn.estimators.sktime import SktimeRegressor
    >>> from sktime.datasets import load_unit_test
    >>> X, y = load_unit_test(split="train")
    >>> estimator = ClockworkRegressor(hidden_size=16, max_epochs=5, random_state=0)
    >>> SktimeRegressor(estimator).fit(X, y.astype(float)).predict(X).shape
    (20,)
    """

    _tags = PANEL_TAGS | {"capability:multioutput": False}

    def __init__(self, estimator: ClockworkRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "SktimeRegressor":
        self.estimator_ = clone(ClockworkRegressor() if self.estimator is None else self.estimator)
        self.estimator_.fit(_list_arrays(X), y)
        return self

    def _predict(self, X: Any) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.estimator_.predict(_list_arrays(X))
        return values

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which sktime tests the estimator."""
        small: dict[str, Any] = {"hidden_size": 8, "max_epochs": 1, "random_state": 0}
        return [
            {"estimator": ClockworkRegressor(**small)},
            {"estimator": ClockworkRegressor(cell="lstm", loss="absolute_error", **small)},
        ]


class SktimeForecaster(BaseForecaster):  # type: ignore[misc]
    """A ClockworkForecaster as a forecaster of sktime.

    The horizon of the ClockworkForecaster is the last step of the forecasting horizon that `fit` gets. `update` takes
    new observations in constant time, whether `update_params` is True or not: the weights stay as they are.

    Args:
        estimator: the forecaster, which is cloned before it is fitted; its horizon does not count.
            Default: ClockworkForecaster()

    Attributes:
        estimator_: the fitted ClockworkForecaster

    >>> from cwrnn.estimators import ClockworkForecaster
    >>> from cwrnn.estimators.sktime import SktimeForecaster
    >>> from sktime.datasets import load_airline
    >>> y = load_airline()
    >>> forecaster = SktimeForecaster(ClockworkForecaster(hidden_size=16, max_epochs=5, random_state=0))
    >>> forecaster.fit(y, fh=[1, 2, 12]).predict().index.astype(str).tolist()
    ['1961-01', '1961-02', '1961-12']
    """

    _tags = {
        "authors": "cwrnn",
        "maintainers": "cwrnn",
        "python_dependencies": ["torch", "scikit-learn"],
        "y_inner_mtype": ["pd.Series", "pd.DataFrame"],
        "X_inner_mtype": "pd.DataFrame",
        "requires-fh-in-fit": True,
        "capability:multivariate": True,
        "capability:exogenous": True,
        "capability:non_contiguous_X": False,
        "capability:categorical_in_X": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": False,
        "capability:update": True,
    }
    # the state of the forecaster is all that it needs: new observations take constant time and memory
    _config = {"remember_data": False}

    def __init__(self, estimator: ClockworkForecaster | None = None) -> None:
        self.estimator = estimator
        super().__init__()
        # sktime expects these if a user switches `remember_data` on
        self._X = self._y = None

    def _fit(self, y: Any, X: Any, fh: Any) -> "SktimeForecaster":
        self.estimator_ = clone(ClockworkForecaster() if self.estimator is None else self.estimator)
        horizon = int(max(fh.to_relative(self.cutoff)))
        self.estimator_.set_params(horizon=horizon).fit(y, X)
        return self

    def _predict(self, fh: Any, X: Any) -> Any:
        return self._select(self.estimator_.predict(X), fh)

    def _predict_quantiles(self, fh: Any, X: Any, alpha: list[float]) -> Any:
        quantiles = self._select(self.estimator_.predict_quantiles(alpha, X), fh)
        quantiles.columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return quantiles

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> "SktimeForecaster":
        forecaster = self.estimator_
        new = y[y.index >= forecaster.axis_.label(forecaster.stream_.steps)]
        if len(new):
            forecaster.update(new, None if X is None else X.loc[new.index])
        return self

    def _select(self, forecasts: Any, fh: Any) -> Any:
        """The forecasts at the times of a forecasting horizon."""
        times = fh.to_absolute_index(self.cutoff)
        absent = ~times.isin(forecasts.index)
        if absent.any():
            raise ValueError(
                f"fh must lie within the {len(forecasts)} steps from {forecasts.index[0]} on, got {times[absent][0]}"
            )
        return forecasts.loc[times]

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which sktime tests the estimator."""
        small: dict[str, Any] = {"hidden_size": 8, "max_epochs": 1, "random_state": 0}
        return [{"estimator": ClockworkForecaster(**small)}, {"estimator": ClockworkForecaster(cell="gru", **small)}]


def _list_arrays(X: Any) -> list[NDArray[np.float64]]:
    """The sequences (time, channels) of a df-list."""
    return [frame.to_numpy(dtype=np.float64) for frame in X]
