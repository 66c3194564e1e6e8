"""Adapters for aeon: the classifier and the regressor with aeon's contract, for its pipelines and benchmarks.

    from cwrnn.estimators import ClockworkClassifier
    from cwrnn.estimators.aeon import AeonClassifier
    AeonClassifier(ClockworkClassifier(cell="gru")).fit(X_train, y_train).predict(X_test)

They need aeon, which `pip install 'cwrnn[aeon]'` installs.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..extras import require
from .classifier import ClockworkClassifier
from .regressor import ClockworkRegressor

require("aeon", extra="aeon", purpose="cwrnn.estimators.aeon")

from aeon.classification.base import BaseClassifier  # noqa: E402
from aeon.regression.base import BaseRegressor  # noqa: E402

TAGS = {
    "X_inner_type": "np-list",
    "algorithm_type": "deeplearning",
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "python_dependencies": "torch",
}
"""The tags of both adapters. An np-list is a list of arrays, (channels, time) each."""


class AeonClassifier(BaseClassifier):  # type: ignore[misc]
    """A ClockworkClassifier as a classifier of aeon.

    Args:
        estimator: the classifier, which is cloned before it is fitted. Default: ClockworkClassifier()

    Attributes:
        estimator_: the fitted ClockworkClassifier

    >>> from cwrnn.estimators import ClockworkClassifier
    >>> from cwrnn.estimators.aeon import AeonClassifier
    >>> from aeon.testing.data_generation import make_example_3d_numpy
    >>> X, y = make_example_3d_numpy(n_cases=20, n_channels=2, n_timepoints=12, random_state=0)
    >>> estimator = ClockworkClassifier(hidden_size=16, max_epochs=5, random_state=0)
    >>> AeonClassifier(estimator).fit(X, y).predict(X).shape
    (20,)
    """

    _tags = TAGS

    def __init__(self, estimator: ClockworkClassifier | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "AeonClassifier":
        self.estimator_ = clone(ClockworkClassifier() if self.estimator is None else self.estimator)
        self.estimator_.fit(_list_sequences(X), y)
        return self

    def _predict(self, X: Any) -> NDArray[Any]:
        labels: NDArray[Any] = self.estimator_.predict(_list_sequences(X))
        return labels

    def _predict_proba(self, X: Any) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = self.estimator_.predict_proba(_list_sequences(X))
        return probabilities

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which aeon tests the estimator."""
        small: dict[str, Any] = {"hidden_size": 8, "max_epochs": 1, "random_state": 0}
        return [
            {"estimator": ClockworkClassifier(**small)},
            {"estimator": ClockworkClassifier(cell="gru", bidirectional=True, **small)},
        ]


class AeonRegressor(BaseRegressor):  # type: ignore[misc]
    """A ClockworkRegressor as a regressor of aeon.

    Args:
        estimator: the regressor, which is cloned before it is fitted. Default: ClockworkRegressor()

    Attributes:
        estimator_: the fitted ClockworkRegressor

    >>> from cwrnn.estimators import ClockworkRegressor
    >>> from cwrnn.estimators.aeon import AeonRegressor
    >>> from aeon.testing.data_generation import make_example_3d_numpy
    >>> X, y = make_example_3d_numpy(n_cases=20, n_timepoints=12, regression_target=True, random_state=0)
    >>> estimator = ClockworkRegressor(hidden_size=16, max_epochs=5, random_state=0)
    >>> AeonRegressor(estimator).fit(X, y).predict(X).shape
    (20,)
    """

    _tags = TAGS

    def __init__(self, estimator: ClockworkRegressor | None = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> "AeonRegressor":
        self.estimator_ = clone(ClockworkRegressor() if self.estimator is None else self.estimator)
        self.estimator_.fit(_list_sequences(X), y)
        return self

    def _predict(self, X: Any) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self.estimator_.predict(_list_sequences(X))
        return values

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Parameters with which aeon tests the estimator."""
        small: dict[str, Any] = {"hidden_size": 8, "max_epochs": 1, "random_state": 0}
        return [
            {"estimator": ClockworkRegressor(**small)},
            {"estimator": ClockworkRegressor(cell="lstm", loss="absolute_error", **small)},
        ]


def _list_sequences(X: Any) -> list[NDArray[np.float64]]:
    """The sequences (time, channels) of an np-list."""
    return [np.asarray(channels, dtype=np.float64).T for channels in X]
