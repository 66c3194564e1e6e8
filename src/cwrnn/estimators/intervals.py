"""Intervals: lines of a network become quantiles whose coverage was measured on data that it did not train on.

    half widths     the distances of the lower and the upper line from the middle
    score           the distance of a value from the middle, in half widths
    factor(c, h)    the quantile c of the scores of the forecasts h steps ahead, on the end that was held out

The interval of coverage c reaches from the middle to factor(c, h) half widths on both sides (conformal prediction;
Romano, Patterson and Candès, 2019). As new observations come, the factors follow them: after a value outside its
interval all factors of its step ahead grow, after one inside they shrink by so little that both balance at the wanted
coverage (adaptive conformal inference; Gibbs and Candès, 2021).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COVERAGES = tuple(round(0.02 * i, 2) for i in range(51))
"""The coverages whose factors are kept, 0, 0.02, ..., 1; between them, factors are interpolated."""

FEWEST_PER_STEP = 100
"""With fewer observations, all steps ahead share their factors."""

SMALLEST_HALF_WIDTH = 0.01
"""The smallest half width, in units of the scale."""

RATE = 0.03
"""The largest change of the logarithm of the factors after one observation."""

LARGEST_GROWTH = 3.0
"""The largest absolute change of the logarithm of the factors in all: factors stay within 20 times their start."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The factors of all coverages and steps ahead, and how far they have moved since they were measured."""

    coverage: float
    """The coverage of the interval between the outer lines, at which the factors follow new observations."""
    factors: NDArray[np.float64]
    """(coverages, H, channels), increasing with the coverage from 0."""
    growth: NDArray[np.float64]
    """(H, channels): the logarithm of the change of the factors since they were measured."""

    def compute_quantiles(self, lines: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
        """(..., H, C, levels): the quantiles of lines (..., H, C, 3), increasing with the level."""
        low, high = measure_half_widths(lines)
        quantiles = []
        for level in levels:
            factor = self.find_factor(abs(2 * level - 1))
            quantiles.append(lines[..., 1] + (-factor * low if level < 0.5 else factor * high))
        return np.stack(quantiles, axis=-1)

    def find_factor(self, coverage: float) -> NDArray[np.float64]:
        """(H, C): the factors of a coverage."""
        place = coverage * (len(COVERAGES) - 1)
        below = min(int(place), len(COVERAGES) - 2)
        share = place - below
        factor = (1 - share) * self.factors[below] + share * self.factors[below + 1]
        moved: NDArray[np.float64] = factor * np.exp(self.growth)
        return moved

    def follow(self, scores: NDArray[np.float64]) -> "Calibration":
        """The calibration after an observation, whose scores (H, channels) are those of the last H forecasts of it.

        NaN scores change nothing.
        """
        missed = scores > self.find_factor(self.coverage)
        change = np.where(np.isnan(scores), 0.0, RATE * (missed - (1 - self.coverage)))
        return Calibration(self.coverage, self.factors, np.clip(self.growth + change, -LARGEST_GROWTH, LARGEST_GROWTH))


def measure_half_widths(lines: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The distances (..., H, C) of the outer lines (..., H, C, 3) from the middle, below and above."""
    low = np.maximum(lines[..., 1] - lines[..., 0], SMALLEST_HALF_WIDTH)
    high = np.maximum(lines[..., 2] - lines[..., 1], SMALLEST_HALF_WIDTH)
    return low, high


def score(lines: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """The distances of targets (..., H, C) from the middle of lines (..., H, C, 3), in half widths on their side.

    >>> score(np.array([[[-1.0, 0.0, 2.0]]]), np.array([[-3.0]])).item()
    3.0
    """
    low, high = measure_half_widths(lines)
    return np.maximum((lines[..., 1] - targets) / low, (targets - lines[..., 1]) / high)


def calibrate(scores: NDArray[np.float64], coverage: float) -> Calibration:
    """The calibration at which intervals cover as many of the observations as they should.

    Args:
        scores: (n, H, channels); NaN for observations that are unknown
        coverage: the coverage of the outer lines

    >>> targets = np.random.default_rng(0).normal(size=(9000, 1, 1))
    >>> lines = np.broadcast_to([-0.1, 0.0, 0.1], (9000, 1, 1, 3))  # far too narrow
    >>> calibration = calibrate(score(lines, targets), coverage=0.8)
    >>> calibration.compute_quantiles(lines[0], [0.1, 0.9]).round(1).tolist()
    [[[-1.3, 1.3]]]
    """
    _, H, channels = scores.shape
    factors = np.zeros((len(COVERAGES), H, channels))
    for c in range(channels):
        known = ~np.isnan(scores[:, :, c])
        fewest = int(known.sum(axis=0).min())
        if not known.any():
            # nothing is known: the lines stay where they are
            factors[1:, :, c] = 1.0
        elif fewest < FEWEST_PER_STEP:
            pooled = scores[:, :, c][known]
            factors[1:, :, c] = np.quantile(pooled, _raise_levels(fewest))[:, None]
        else:
            factors[1:, :, c] = np.nanquantile(scores[:, :, c], _raise_levels(fewest), axis=0)
    return Calibration(coverage, factors, np.zeros((H, channels)))


def measure_coverage(scores: NDArray[np.float64], coverage: float) -> float:
    """The coverage in use: intervals are calibrated on the first half of the observations and follow the second half.

    Args:
        scores: (n, H, channels) of forecasts that follow each other step by step
        coverage: the wanted coverage

    NaN if one of the halves has no observations.
    """
    half = len(scores) // 2
    if np.isnan(scores[:half]).all() or np.isnan(scores[half:]).all():
        return math.nan
    calibration = calibrate(scores[:half], coverage)
    ahead = np.arange(scores.shape[1])
    inside, count = 0, 0
    for origin in range(half, len(scores)):
        known = ~np.isnan(scores[origin])
        inside += int((scores[origin] <= calibration.find_factor(coverage))[known].sum())
        count += int(known.sum())
        # the next value is now known: it was forecast 1, 2, ..., H steps ahead
        origins = origin - ahead
        calibration = calibration.follow(np.where(origins[:, None] >= 0, scores[np.maximum(origins, 0), ahead], np.nan))
    return inside / count


def _raise_levels(count: int) -> NDArray[np.float64]:
    """The coverages above 0, raised so that a quantile of so few observations covers a new one as often."""
    return np.minimum(1.0, np.array(COVERAGES[1:]) * (1 + 1 / max(count, 1)))
