"""Intervals: quantiles rise with their level, and cover as many new values as they should."""

import math

import numpy as np
import pytest

from cwrnn.estimators.intervals import COVERAGES, Calibration, calibrate, measure_coverage, spread_lines


def make_lines(n, H, width, seed=0, noise=1.0):
    """Lines around a median that is right, for targets with a deviation of `noise`."""
    rng = np.random.default_rng(seed)
    middle = rng.normal(size=(n, H, 1))
    targets = middle + noise * rng.normal(size=(n, H, 1))
    return np.stack([middle - width, middle, middle + width], axis=-1), targets, np.ones(targets.shape, dtype=bool)


@pytest.mark.parametrize("width", [0.01, 1.2816, 5.0])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.951])
def test_new_values_are_covered_whatever_the_lines(width, coverage):
    lines, targets, seen = make_lines(4000, 3, width)
    calibration = calibrate(lines, targets, seen, coverage=0.8)
    new_lines, new_targets, _ = make_lines(4000, 3, width, seed=1)
    ends = calibration.compute_quantiles(new_lines, [(1 - coverage) / 2, (1 + coverage) / 2])
    covered = ((new_targets >= ends[..., 0]) & (new_targets <= ends[..., 1])).mean()
    assert abs(covered - coverage) < 0.015


def test_every_step_ahead_has_its_margin():
    lines, targets, seen = make_lines(1000, 2, 1.0)
    targets[:, 1] *= 5
    margins = calibrate(lines, targets, seen, coverage=0.8).margins[COVERAGES.index(0.8), :, 0]
    assert margins[1] > margins[0] + 3
    few = calibrate(lines[:50], targets[:50], seen[:50], coverage=0.8).margins[COVERAGES.index(0.8), :, 0]
    assert few[0] == few[1]


def test_quantiles_rise_with_their_level():
    rng = np.random.default_rng(0)
    lines = rng.normal(size=(50, 4, 2, 3))  # lower and upper ends in any order
    calibration = Calibration(0.8, rng.normal(size=(len(COVERAGES), 4, 2)))
    levels = [0.9, 0.05, 0.5, 0.1, 0.999, 0.3]
    quantiles = calibration.compute_quantiles(lines, levels)
    assert quantiles.shape == (50, 4, 2, 6)
    assert (np.diff(quantiles[..., np.argsort(levels)], axis=-1) >= 0).all()
    np.testing.assert_array_equal(calibration.compute_quantiles(lines, [0.5])[..., 0], lines[..., 1])


def test_the_outer_lines_are_the_interval_of_their_coverage():
    lines, _, _ = make_lines(5, 2, 1.3)
    low, high = spread_lines(lines, 0.8, 0.8)
    np.testing.assert_allclose(low, lines[..., 0])
    np.testing.assert_allclose(high, lines[..., 2])
    low, high = spread_lines(lines, 0.8, 0.95)
    np.testing.assert_allclose(high - lines[..., 1], 1.3 * 1.959964 / 1.281552, rtol=1e-5)


def test_coverage_is_measured_on_other_values_than_those_of_the_calibration():
    lines, targets, seen = make_lines(2000, 2, 0.3)
    assert abs(measure_coverage(lines, targets, seen, 0.8) - 0.8) < 0.03
    # the second half is twice as noisy: intervals from one half do not fit the other
    targets[1000:] = lines[1000:, ..., 1] + 3 * (targets[1000:] - lines[1000:, ..., 1])
    measured = measure_coverage(lines, targets, seen, 0.8)
    calibration = calibrate(lines, targets, seen, 0.8)
    ends = calibration.compute_quantiles(lines, [0.1, 0.9])
    inside = ((targets >= ends[..., 0]) & (targets <= ends[..., 1])).mean()
    assert abs(inside - 0.8) < 0.01
    assert measured < 0.72


def test_values_that_are_missing_do_not_count():
    lines, targets, seen = make_lines(1000, 2, 1.0)
    expected = calibrate(lines, targets, seen, 0.8).margins
    wrong = np.concatenate([targets, np.full((500, 2, 1), 1e6)])
    more = calibrate(
        np.concatenate([lines, lines[:500]]), wrong, np.concatenate([seen, np.zeros((500, 2, 1), bool)]), 0.8
    )
    np.testing.assert_array_equal(more.margins, expected)
    nothing = np.zeros(seen.shape, dtype=bool)
    assert (calibrate(lines, targets, nothing, 0.8).margins == 0).all()
    assert math.isnan(measure_coverage(lines, targets, nothing, 0.8))
    assert math.isnan(measure_coverage(lines[:1], targets[:1], seen[:1], 0.8))
