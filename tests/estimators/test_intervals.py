"""Intervals: quantiles rise with their level, and cover as many new values as they should, also after a change."""

import math

import numpy as np
import pytest

from cwrnn.estimators.intervals import (
    COVERAGES,
    LARGEST_GROWTH,
    RATE,
    Calibration,
    calibrate,
    measure_coverage,
    measure_half_widths,
    score,
)


def make_lines(n, H, width, seed=0, noise=1.0):
    """Lines around a median that is right, for targets with a deviation of `noise`."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(n, H, 1))
    targets = middle + noise * rng.normal(size=(n, H, 1))
    return np.stack([middle - width, middle, middle + width], axis=-1), targets


@pytest.mark.parametrize("width", [0.01, 1.2816, 5.0])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.951])
def test_new_values_are_covered_whatever_the_lines(width, coverage):
    calibration = calibrate(score(*make_lines(4000, 3, width)), coverage=0.8)
    lines, targets = make_lines(4000, 3, width, seed=1)
    ends = calibration.compute_quantiles(lines, [(1 - coverage) / 2, (1 + coverage) / 2])
    covered = ((targets >= ends[..., 0]) & (targets <= ends[..., 1])).mean()
    assert abs(covered - coverage) < 0.015


def test_every_step_ahead_has_its_factor():
    lines, targets = make_lines(1000, 2, 1.0)
    targets[:, 1] = lines[:, 1, :, 1] + 5 * (targets[:, 1] - lines[:, 1, :, 1])
    factors = calibrate(score(lines, targets), coverage=0.8).find_factor(0.8)[:, 0]
    np.testing.assert_allclose(factors[1] / factors[0], 5, rtol=0.15)
    few = calibrate(score(lines, targets)[:50], coverage=0.8).find_factor(0.8)[:, 0]
    assert few[0] == few[1]


def test_few_observations_give_wider_intervals():
    # of 9 observations, the largest covers a new one in 90 % of all cases
    scores = np.arange(1.0, 10.0).reshape(9, 1, 1)
    assert calibrate(scores, coverage=0.8).find_factor(0.9).item() == 9
    assert calibrate(scores, coverage=0.8).find_factor(0.5).item() > np.median(scores)


def test_quantiles_rise_with_their_level():
    rng = np.random.default_rng(0)
    lines = rng.normal(size=(50, 4, 2, 3))  # lower and upper ends in any order
    calibration = Calibration(0.8, rng.exponential(size=(len(COVERAGES), 4, 2)).cumsum(axis=0), rng.normal(size=(4, 2)))
    levels = [0.9, 0.05, 0.5, 0.1, 0.999, 0.3]
    quantiles = calibration.compute_quantiles(lines, levels)
    assert quantiles.shape == (50, 4, 2, 6)
    assert (np.diff(quantiles[..., np.argsort(levels)], axis=-1) >= 0).all()
    calibration.factors[0] = 0
    np.testing.assert_array_equal(calibration.compute_quantiles(lines, [0.5])[..., 0], lines[..., 1])


def test_scores_count_half_widths_on_the_side_of_the_value():
    lines = np.array([[[1.0, 2.0, 5.0]]])
    assert score(lines, np.array([[8.0]])).item() == 2.0
    assert score(lines, np.array([[0.0]])).item() == 2.0
    assert score(lines, np.array([[2.0]])).item() == 0.0
    assert np.isnan(score(lines, np.array([[np.nan]]))).item()
    # lines that cross have the smallest half widths
    assert [width.item() for width in measure_half_widths(lines[..., ::-1])] == [0.01, 0.01]


def test_factors_follow_observations():
    calibration = calibrate(score(*make_lines(500, 2, 1.0)), coverage=0.8)
    factor = calibration.find_factor(0.8)
    missed = calibration.follow(np.array([[1e9], [0.0]]))
    np.testing.assert_allclose(missed.growth, [[RATE * 0.8], [-RATE * 0.2]])
    np.testing.assert_allclose(missed.find_factor(0.8), factor * np.exp(missed.growth))
    np.testing.assert_array_equal(calibration.follow(np.full((2, 1), np.nan)).growth, calibration.growth)
    for _ in range(200):
        missed = missed.follow(np.full((2, 1), np.inf))
    np.testing.assert_array_equal(missed.growth, LARGEST_GROWTH)


def test_intervals_recover_after_a_change():
    lines, targets = make_lines(3000, 1, 1.0)
    scores = score(lines, targets)
    scores[1000:] *= 4
    calibration = calibrate(scores[:1000], coverage=0.8)
    fixed = (scores[1000:] <= calibration.find_factor(0.8)).mean()
    inside = []
    for row in scores[1000:]:
        inside.append(row <= calibration.find_factor(0.8))
        calibration = calibration.follow(row)
    assert fixed < 0.4
    assert abs(np.mean(inside[500:]) - 0.8) < 0.02


def test_coverage_is_measured_on_other_values_than_those_of_the_calibration():
    scores = score(*make_lines(2000, 2, 0.3))
    assert abs(measure_coverage(scores, 0.8) - 0.8) < 0.02
    # the second half is noisier: the first intervals do not fit it, and the measured coverage tells
    scores[1000:1050] *= 10
    short = scores[950:1050]
    inside = (short <= calibrate(short, 0.8).find_factor(0.8)).mean()
    assert abs(inside - 0.8) < 0.03
    assert measure_coverage(short, 0.8) < 0.5


def test_values_that_are_missing_do_not_count():
    scores = score(*make_lines(1000, 2, 1.0))
    more = np.concatenate([scores, np.full((500, 2, 1), np.nan)])
    np.testing.assert_array_equal(calibrate(more, 0.8).factors, calibrate(scores, 0.8).factors)
    nothing = np.full((10, 2, 1), np.nan)
    assert (calibrate(nothing, 0.8).find_factor(0.8) == 1).all()
    assert math.isnan(measure_coverage(nothing, 0.8))
    assert math.isnan(measure_coverage(scores[:1], 0.8))
