"""The adapters keep sktime's contract: its whole battery."""

import numpy as np
import pytest
from sktime.utils.estimator_checks import check_estimator
from support.made_sequences import make_classes

from cwrnn.estimators import ClockworkClassifier
from cwrnn.estimators.sktime import SktimeClassifier, SktimeRegressor


@pytest.mark.parametrize("kind", [SktimeClassifier, SktimeRegressor])
@pytest.mark.filterwarnings("default")
def test_battery(kind):
    results = check_estimator(kind, verbose=False)
    assert len(results) > 100
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}


def test_a_panel_is_read_as_its_sequences():
    import pandas as pd

    X, y = make_classes(24, seed=0, shortest=5, longest=9)
    panel = [pd.DataFrame(sequence) for sequence in X]
    estimator = ClockworkClassifier(hidden_size=8, max_epochs=3, random_state=0)
    adapted = SktimeClassifier(estimator).fit(panel, y)
    np.testing.assert_array_equal(adapted.predict_proba(panel), estimator.fit(X, y).predict_proba(X))
    assert adapted.clone().set_params(estimator__hidden_size=5).estimator.hidden_size == 5
