"""The regressor learns one number or several from sequences, in the units of the targets."""

import numpy as np
import pytest
from support.made_sequences import make_targets

from cwrnn.estimators import ClockworkRegressor

SMALL = {"hidden_size": 32, "max_epochs": 30, "random_state": 0}


def test_clocks_remember_the_first_of_100_steps():
    X, y = make_targets(64, seed=0)
    X_test, y_test = make_targets(100, seed=1)
    assert ClockworkRegressor(**SMALL).fit(X, y).score(X_test, y_test) > 0.9
    assert ClockworkRegressor(schedule=[1], **SMALL).fit(X, y).score(X_test, y_test) < 0.3


def test_several_targets_in_any_units():
    X, y = make_targets(64, seed=0)
    targets = np.stack([y, 1e6 - 1e5 * y, np.full(64, 7.0)], axis=1)
    regressor = ClockworkRegressor(**SMALL).fit(X, targets)
    assert regressor.n_outputs_ == 3
    predicted = regressor.predict(X)
    assert predicted.shape == (64, 3)
    errors = np.abs(predicted - targets).mean(axis=0)
    assert errors[0] < 0.2
    assert errors[1] < 2e4
    # a constant target stays near its constant
    assert errors[2] < 0.2


@pytest.mark.parametrize("shape", [(64,), (64, 1), (64, 2)])
def test_predictions_have_the_form_of_the_targets(shape):
    X, y = make_targets(64, seed=0, steps=5)
    y = np.broadcast_to(y.reshape(64, *[1] * (len(shape) - 1)), shape)
    assert ClockworkRegressor(hidden_size=4, max_epochs=1).fit(X, y).predict(X).shape == shape


def test_the_absolute_error_cares_less_about_outliers():
    X, y = make_targets(60, seed=0, steps=3)
    y = np.zeros(60)
    y[::10] = 100.0
    medians = ClockworkRegressor(loss="absolute_error", **SMALL).fit(X * 0, y).predict(X * 0)
    means = ClockworkRegressor(**SMALL).fit(X * 0, y).predict(X * 0)
    np.testing.assert_allclose(means, 10, atol=2)
    np.testing.assert_allclose(medians, 0, atol=2)


def test_input_that_is_no_target_is_refused():
    X, y = make_targets(10, seed=0, steps=3)
    with pytest.raises(ValueError, match=r"y must be \(n,\) or \(n, outputs\), got shape \(10, 1, 1\)|dim 3"):
        ClockworkRegressor().fit(X, y[:, None, None])
    with pytest.raises(ValueError, match="loss must be one of squared_error, absolute_error, got 'huber'"):
        ClockworkRegressor(loss="huber").fit(X, y)
    with pytest.raises(ValueError, match="could not convert string to float"):
        ClockworkRegressor().fit(X, ["much"] * 10)
