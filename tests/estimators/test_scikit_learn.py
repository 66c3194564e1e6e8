"""The estimators keep scikit-learn's contract: its whole battery, and its tools around them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.made_sequences import make_blobs, make_classes, make_targets

from cwrnn.estimators import ClockworkClassifier, ClockworkRegressor

SMALL = {"hidden_size": 8, "max_epochs": 10}
BOTH = [ClockworkClassifier, ClockworkRegressor]

EXPECTED_FAILURES = {
    # https://scikit-learn.org/stable/developers/develop.html: estimators that draw batches at random cannot pass it,
    # and scikit-learn expects the same failure of its own, such as SGDClassifier
    "check_sample_weight_equivalence_on_dense_data": (
        "sample_weight is not equivalent to removing/repeating samples: repeated samples are drawn into other batches."
    ),
}


@parametrize_with_checks([kind(**SMALL) for kind in BOTH], expected_failed_checks=lambda estimator: EXPECTED_FAILURES)
def test_battery(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("options", [{}, {"class_weight": {0: 1, 1: 2}}, {"loss": "absolute_error"}], ids=str)
def test_parameters_come_back(kind, options):
    if set(options) <= set(kind().get_params()):
        options = {"cell": "gru", "schedule": [1, 4], "random_state": 3, **options}
        copy = clone(kind(**options))
        assert copy.get_params() == kind().get_params() | options
        assert copy.set_params(hidden_size=7).hidden_size == 7


@pytest.mark.parametrize("options", [{}, {"early_stopping": True}, {"dropout": 0.2, "num_layers": 2}], ids=str)
@pytest.mark.parametrize("kind", BOTH)
def test_the_same_random_state_gives_the_same_bits(kind, options):
    X, y = make_blobs()
    fits = [kind(hidden_size=8, max_epochs=4, random_state=seed, **options).fit(X, y) for seed in (0, 0, 1)]
    outputs = [fit._compute_outputs(X) for fit in fits]
    assert np.array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])
    assert fits[0].loss_curve_ == fits[1].loss_curve_
    assert fits[0].validation_curve_ == fits[1].validation_curve_
    state = np.random.RandomState(0)
    kind(hidden_size=8, max_epochs=1, random_state=state).fit(X, y)
    # the state has moved on, as that of scikit-learn's estimators does
    assert state.randint(2**31 - 1) != np.random.RandomState(0).randint(2**31 - 1)


def test_a_grid_is_searched_over_lists_of_sequences():
    X, y = make_classes(24, seed=0, shortest=5, longest=9)
    search = GridSearchCV(
        ClockworkClassifier(max_epochs=3, random_state=0), {"hidden_size": [4, 8], "cell": ["rnn", "gru"]}, cv=2
    )
    search.fit(X, y)
    assert set(search.best_params_) == {"hidden_size", "cell"}
    assert search.predict(X).shape == (24,)


def test_pipelines_and_cross_validation():
    X, y = make_blobs(60)
    pipeline = make_pipeline(StandardScaler(), ClockworkClassifier(hidden_size=16, max_epochs=25, random_state=0))
    assert cross_val_score(pipeline, X, y, cv=2).min() > 0.9
    scorer = make_scorer(lambda y, prediction: -np.abs(y - prediction).max())
    X, y = make_targets(40, seed=0, steps=5)
    cube = np.stack([X, X], axis=2)
    assert len(cross_val_score(ClockworkRegressor(**SMALL), cube, y, cv=2, scoring=scorer)) == 2


@pytest.mark.parametrize("kind", BOTH)
def test_pickles(kind):
    X, y = make_blobs()
    estimator = kind(hidden_size=8, max_epochs=2, random_state=0).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(estimator)).predict(X), estimator.predict(X))


@pytest.mark.parametrize("kind", BOTH)
def test_a_sequence_without_weight_is_as_good_as_none(kind):
    X, y = make_classes(40, seed=0, shortest=5, longest=9)
    y = np.unique(y, return_inverse=True)[1]
    kept = np.arange(40) % 4 != 0
    options = {"hidden_size": 8, "max_epochs": 4, "random_state": 0}
    weighted = kind(**options).fit(X, y, sample_weight=kept.astype(float))
    without = kind(**options).fit([x for x, keep in zip(X, kept, strict=True) if keep], y[kept])
    np.testing.assert_allclose(weighted._compute_outputs(X), without._compute_outputs(X), rtol=1e-4, atol=1e-5)
    twice = kind(**options).fit(X, y, sample_weight=2.0 * kept)
    np.testing.assert_array_equal(weighted._compute_outputs(X), twice._compute_outputs(X))


def test_a_heavy_class_is_predicted_more_often():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 5)), np.arange(60) % 2
    options = {"hidden_size": 8, "max_epochs": 5, "random_state": 0}
    plain = ClockworkClassifier(**options).fit(X, y).predict_proba(X)[:, 1].mean()
    by_class = ClockworkClassifier(**options, class_weight={0: 1, 1: 20}).fit(X, y).predict_proba(X)[:, 1].mean()
    by_sample = ClockworkClassifier(**options).fit(X, y, sample_weight=1 + 19 * y).predict_proba(X)[:, 1].mean()
    assert by_class > plain + 0.2
    assert by_class == by_sample
    z = ClockworkRegressor(**options).fit(X, y, sample_weight=1 + 19 * y).predict(X).mean()
    assert z > ClockworkRegressor(**options).fit(X, y).predict(X).mean() + 0.2


@pytest.mark.parametrize(("options", "message"), [
    ({"cell": "srn"}, "cell must be one of rnn, lstm, gru, got 'srn'"),
    ({"hidden_size": 0}, "hidden_size must be an integer of at least 1, got 0"),
    ({"num_layers": 1.5}, "num_layers must be an integer of at least 1, got 1.5"),
    ({"num_layers": None}, "num_layers must be an integer of at least 1, got None"),
    ({"dropout": 1.0}, "dropout must be a number from 0 to below 1, got 1.0"),
    ({"validation_fraction": 0.0}, "validation_fraction must be a number above 0 and below 1, got 0.0"),
    ({"validation_fraction": float("nan")}, "validation_fraction must be a number above 0 and below 1, got nan"),
    ({"early_stopping": "yes"}, "early_stopping must be True, False or 'auto', got 'yes'"),
    ({"batch_size": "all"}, "batch_size must be an integer of at least 1 or 'auto', got 'all'"),
    ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
    ({"learning_rate": -1}, "learning_rate must be above 0, got -1"),
    ({"schedule": "1:3,2:3", "hidden_size": 7}, "the schedule has 6 units, but hidden_size=7"),
    ({"schedule": "often"}, "a schedule is written period:size"),
    ({"schedule": [0, 1]}, "periods must be positive"),
    ({"device": "toaster"}, "device must be 'auto' or the name of a device"),
])  # fmt: skip
@pytest.mark.parametrize("kind", BOTH)
def test_parameters_that_make_no_sense_are_refused_by_fit(kind, options, message):
    X, y = make_blobs(12)
    with pytest.raises(ValueError, match=message):
        kind(**options).fit(X, y)


@pytest.mark.parametrize(("y", "weights", "message"), [
    (None, None, "requires y to be passed, but the target y is None"),
    ([1, 2], None, r"Found input variables with inconsistent numbers of samples: \[12, 2\]"),
    ([np.nan] * 12, None, "Input y contains NaN"),
    (np.arange(12) % 2, [1.0, 2.0], "inconsistent numbers of samples"),
    (np.arange(12) % 2, -np.ones(12), "Negative values in data passed to `sample_weight`"),
    (np.arange(12) % 2, np.zeros(12), "Sample weights must contain at least one non-zero number"),
    (np.arange(12) % 2, np.full(12, np.nan), "Input sample_weight contains NaN"),
    (np.arange(12) % 2, np.ones((12, 2)), "Sample weights must be 1D array"),
])  # fmt: skip
@pytest.mark.parametrize("kind", BOTH)
def test_bad_targets_and_weights_are_refused(kind, y, weights, message):
    X, _ = make_blobs(12)
    for form in (X, list(X)):
        with pytest.raises(ValueError, match=message):
            kind().fit(form, y, sample_weight=weights)


@pytest.mark.parametrize("kind", BOTH)
def test_an_estimator_without_fit_says_so(kind, tmp_path):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        kind().predict([[1.0]])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        kind().save(tmp_path / "model")


def test_names_of_columns_are_checked():
    X, y = make_blobs(12)
    frame = pd.DataFrame(X, columns=[f"hour {i}" for i in range(X.shape[1])])
    classifier = ClockworkClassifier(hidden_size=4, max_epochs=1).fit(frame, y)
    assert classifier.feature_names_in_.tolist() == list(frame)
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[frame.columns[::-1]])
    classifier.fit(X, y)
    assert not hasattr(classifier, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 3 features, but ClockworkClassifier is expecting 6 features"):
        classifier.predict(frame.iloc[:, :3].to_numpy())
