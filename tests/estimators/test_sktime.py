"""The adapters keep sktime's contract: its whole battery."""

import numpy as np
import pandas as pd
import pytest
from sktime.utils.estimator_checks import check_estimator
from support.made_sequences import make_classes

from cwrnn.estimators import ClockworkClassifier, ClockworkForecaster
from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.sktime import SktimeClassifier, SktimeForecaster, SktimeRegressor

FORECASTER = ClockworkForecaster(hidden_size=8, max_epochs=2, random_state=0)


@pytest.mark.parametrize("kind", [SktimeClassifier, SktimeRegressor, SktimeForecaster])
@pytest.mark.filterwarnings(
    "ignore:Forecasters' predict_proba requires skpro",
    # sktime itself concatenates forecasts in a way that pandas 3 warns of
    "ignore:(?s).*when not directly calling concat",
)
def test_battery(kind):
    results = check_estimator(kind, verbose=False)
    assert len(results) > 100
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_a_panel_is_read_as_its_sequences():
    X, y = make_classes(24, seed=0, shortest=5, longest=9)
    panel = [pd.DataFrame(sequence) for sequence in X]
    estimator = ClockworkClassifier(hidden_size=8, max_epochs=3, random_state=0)
    adapted = SktimeClassifier(estimator).fit(panel, y)
    np.testing.assert_array_equal(adapted.predict_proba(panel), estimator.fit(X, y).predict_proba(X))
    assert adapted.clone().set_params(estimator__hidden_size=5).estimator.hidden_size == 5


def test_forecasts_are_those_of_the_forecaster():
    y = make_load_series(days=20)
    past, new = y[:-24], y[-24:]
    adapted = SktimeForecaster(FORECASTER).fit(past, fh=[1, 5, 12])
    plain = ClockworkForecaster(**FORECASTER.get_params() | {"horizon": 12}).fit(past)
    assert_same_forecasts(adapted, plain)
    # observations that it knows already are left out
    adapted.update(y[-30:])
    plain.update(new)
    assert adapted.predict().index[0] == y.index[-1] + pd.Timedelta("1h")
    assert_same_forecasts(adapted, plain)


def assert_same_forecasts(adapted, plain):
    pd.testing.assert_series_equal(
        adapted.predict(), plain.predict().iloc[[0, 4, 11]], check_freq=False, check_names=False
    )
    interval = adapted.predict_interval(coverage=0.6)
    np.testing.assert_allclose(interval, plain.predict_interval(coverage=0.6).iloc[[0, 4, 11]])


def test_a_horizon_beyond_that_of_fit_is_refused():
    y = make_load_series(days=20)
    adapted = SktimeForecaster(FORECASTER).fit(y, fh=[1, 2])
    adapted._set_cutoff(y.index[-3:-2])
    with pytest.raises(ValueError, match="fh must lie within the 2 steps from .* on, got"):
        adapted._predict(adapted.fh, None)
