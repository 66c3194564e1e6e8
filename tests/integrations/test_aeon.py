"""The adapters keep aeon's contract: its whole battery. `make integrations` installs aeon apart from the others."""

import doctest

import numpy as np
import pytest
from support.made_sequences import make_classes

pytest.importorskip("aeon")

from aeon.testing.estimator_checking import parametrize_with_checks

import cwrnn.estimators.aeon
from cwrnn.estimators import ClockworkClassifier
from cwrnn.estimators.aeon import AeonClassifier, AeonRegressor

pytestmark = pytest.mark.integrations


@parametrize_with_checks([AeonClassifier, AeonRegressor])
def test_battery(check):
    check()


def test_a_collection_is_read_as_its_sequences():
    X, y = make_classes(24, seed=0, shortest=5, longest=9)
    collection = [sequence.T for sequence in X]
    estimator = ClockworkClassifier(hidden_size=8, max_epochs=3, random_state=0)
    adapted = AeonClassifier(estimator).fit(collection, y)
    np.testing.assert_array_equal(adapted.predict_proba(collection), estimator.fit(X, y).predict_proba(X))
    np.testing.assert_array_equal(adapted.predict(collection), estimator.predict(X))
    assert adapted.clone().set_params(estimator__hidden_size=5).estimator.hidden_size == 5


def test_examples_of_the_documentation():
    results = doctest.testmod(cwrnn.estimators.aeon)
    assert (results.attempted, results.failed) == (12, 0)
