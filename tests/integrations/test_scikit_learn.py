"""The estimators pass scikit-learn's battery with their default parameters too, which takes a minute."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from cwrnn.estimators import ClockworkClassifier, ClockworkRegressor

pytestmark = pytest.mark.integrations

REASON = "sample_weight is not equivalent to removing/repeating samples: repeated samples are drawn into other batches."


@parametrize_with_checks(
    [ClockworkClassifier(), ClockworkRegressor()],
    expected_failed_checks=lambda estimator: {"check_sample_weight_equivalence_on_dense_data": REASON},
)
def test_battery(estimator, check):
    check(estimator)
