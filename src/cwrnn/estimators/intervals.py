"""Intervals: lines of a network become quantiles whose coverage was measured on data that it did not train on.

Between and beyond the three lines, a quantile lies where a normal distribution on each side of the middle would have
it. Then it is moved outward by a margin, in units of the scale, so that the interval covers as many of the held-out
observations as it should (conformalised quantile regression; Romano, Patterson and Candès, 2019). The margins of
several coverages and all steps ahead are kept; between them they are interpolated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

COVERAGES = tuple(round(0.02 * i, 2) for i in range(50))
"""The coverages whose margins are kept: 0, 0.02, ..., 0.98."""

FEWEST_PER_STEP = 100
"""With fewer observations, all steps ahead share their margins."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The margins of all intervals."""

    coverage: float
    """The coverage of the interval between the outer lines of the network."""
    margins: NDArray[np.float64]
    """(coverages, H, channels), in units of the scale."""

    def compute_quantiles(self, lines: NDArray[np.float64], levels: Sequence[float]) -> NDArray[np.float64]:
        """(..., H, C, levels): the quantiles of lines (..., H, C, 3), increasing with the level."""
        middle = lines[..., 1]
        quantiles = []
        for level in sorted(levels):
            inner = abs(2 * level - 1)
            low, high = spread_lines(lines, self.coverage, inner)
            margin = self._interpolate(inner)
            moved = np.minimum(low - margin, middle) if level < 0.5 else np.maximum(high + margin, middle)
            quantiles.append(moved if level != 0.5 else middle)
        rising = np.maximum.accumulate(np.stack(quantiles, axis=-1), axis=-1)
        order = np.argsort(np.argsort(np.asarray(levels), kind="stable"), kind="stable")
        result: NDArray[np.float64] = rising[..., order]
        return result

    def _interpolate(self, coverage: float) -> NDArray[np.float64]:
        """(H, C): the margin of an interval."""
        place = min(coverage, COVERAGES[-1]) * 50
        below = min(int(place), len(COVERAGES) - 2)
        share = place - below
        margin: NDArray[np.float64] = (1 - share) * self.margins[below] + share * self.margins[below + 1]
        return margin


def calibrate(
    lines: NDArray[np.float64], targets: NDArray[np.float64], seen: NDArray[np.bool_], coverage: float
) -> Calibration:
    """The margins at which intervals cover the targets.

    Args:
        lines: (n, H, C, 3)
        targets: (n, H, C)
        seen: (n, H, C), False for targets that are unknown
        coverage: the coverage of the outer lines

    >>> targets = np.random.default_rng(0).normal(size=(9000, 1, 1))
    >>> lines = np.broadcast_to([-0.1, 0.0, 0.1], (9000, 1, 1, 3))  # far too narrow
    >>> calibration = calibrate(lines, targets, np.ones(targets.shape, dtype=bool), coverage=0.8)
    >>> calibration.compute_quantiles(lines[0], [0.1, 0.9]).round(1).tolist()
    [[[-1.3, 1.3]]]
    """
    margins = np.zeros((len(COVERAGES), *targets.shape[1:]))
    for i, wanted in enumerate(COVERAGES[1:], start=1):
        low, high = spread_lines(lines, coverage, wanted)
        scores = np.where(seen, np.maximum(low - targets, targets - high), np.nan)
        for c in range(targets.shape[2]):
            margins[i, :, c] = _find_margins(scores[:, :, c], wanted)
    return Calibration(coverage, margins)


def measure_coverage(
    lines: NDArray[np.float64], targets: NDArray[np.float64], seen: NDArray[np.bool_], coverage: float
) -> float:
    """The share of targets inside intervals that were calibrated on other targets: each half serves the other.

    NaN if there are fewer than two observations.
    """
    half = len(targets) // 2
    inside, count = 0, 0
    for known, tested in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
        if not seen[known].any() or not seen[tested].any():
            return float("nan")
        calibration = calibrate(lines[known], targets[known], seen[known], coverage)
        ends = calibration.compute_quantiles(lines[tested], [(1 - coverage) / 2, (1 + coverage) / 2])
        covered = (targets[tested] >= ends[..., 0]) & (targets[tested] <= ends[..., 1])
        inside += int(covered[seen[tested]].sum())
        count += int(seen[tested].sum())
    return inside / count


def spread_lines(
    lines: NDArray[np.float64], coverage: float, wanted: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The ends (..., H, C) of intervals of another coverage than that of the outer lines (..., H, C, 3)."""
    ratio = NormalDist().inv_cdf((1 + wanted) / 2) / NormalDist().inv_cdf((1 + coverage) / 2) if wanted < 1 else 10.0
    middle = lines[..., 1]
    low = middle + ratio * np.minimum(lines[..., 0] - middle, 0)
    high = middle + ratio * np.maximum(lines[..., 2] - middle, 0)
    return low, high


def _find_margins(scores: NDArray[np.float64], coverage: float) -> NDArray[np.float64]:
    """(H,): the margins below which the scores (n, H) lie with the probability `coverage`; NaN scores do not count."""
    if np.isnan(scores).all():
        return np.zeros(scores.shape[1])
    fewest = int((~np.isnan(scores)).sum(axis=0).min())
    if fewest < FEWEST_PER_STEP:
        level = min(1.0, coverage * (1 + 1 / max(fewest, 1)))
        return np.full(scores.shape[1], np.nanquantile(scores, level))
    margins: NDArray[np.float64] = np.nanquantile(scores, min(1.0, coverage * (1 + 1 / fewest)), axis=0)
    return margins
