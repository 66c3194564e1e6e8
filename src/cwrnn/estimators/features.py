"""Features: what a forecaster reads at every step of a series, and the naive forecasts that it corrects.

    m               the season: the longest of the rhythms, such as a week; s the shorter ones, such as a day
    L_s(h)          s * ceil(h / s): the last step of the same phase as t + h that is known at t is t + h - L_s(h)
    base(t, h)      y(t + h - L_m(h)), the seasonal naive forecast: the same hour last week
    scale(p)        the mean of |y(t) - y(t - m)| at the phase p = t mod m, times 1.25
    d(t)            (y(t) - y(t - m)) / scale(t), the change against the last season
    candidates      other naive forecasts, as differences from the base in units of the scale:
                    for each s      d(t + h - L_s), the error of the base yesterday; the same one s earlier;
                                    y(t + h - L_s) - base, the forecast of yesterday; the same one s earlier
                    for m           d(t + h - L_m); each profile - base; d(t), the error now, and that of each profile
                    for covariates  the change of x and of x^2 since the step of the base
    inputs          y; its difference from each season; its distance from the profiles, and their next values; sine and
                    cosine of each season; covariates

A forecast is base + scale * (network + sum of weights * candidates). Values that lie before the series are 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .history import PROFILES, WEIGHTS, History

MEAN_TO_DEVIATION = 1.25
"""The standard deviation of a normal distribution divided by its mean absolute deviation."""

PRIOR = 4.0
"""The scale of a phase is drawn to the mean of all phases with the weight of so many observations."""

LARGEST_INPUT = 8.0
"""Inputs are clipped here."""

LARGEST_CANDIDATE = 6.0
"""Candidates are clipped here, in units of the scale."""

LARGEST_COVARIATE = 1e6
"""Covariates are clipped here before they are squared, in units of their standard deviation."""

STEPS_AT_ONCE = 4096
"""The number of steps whose candidates are computed at once, to limit memory."""


@dataclass(frozen=True, eq=False)
class Features:
    """The scaling of a series, learned from its training part, and all features that follow from it."""

    seasons: tuple[int, ...]
    """The rhythms of the series in increasing order; the last is m. (1,) for a series without rhythm."""
    horizon: int
    """H, the number of steps to forecast."""
    mean: NDArray[np.float64]
    """(channels,)"""
    deviation: NDArray[np.float64]
    """(channels,), the standard deviation."""
    scales: NDArray[np.float64]
    """(m, channels), the scale of every phase."""
    spreads: NDArray[np.float64]
    """(seasons, channels), the standard deviation of the difference from each season in units of the scale."""
    covariate_mean: NDArray[np.float64]
    """(covariates,)"""
    covariate_deviation: NDArray[np.float64]
    """(covariates,)"""

    @property
    def season(self) -> int:
        """m, the longest season."""
        return self.seasons[-1]

    @property
    def channels(self) -> int:
        """The number of series that are forecast together."""
        return len(self.mean)

    @property
    def input_size(self) -> int:
        """The number of inputs at every step."""
        waves = 2 * sum(season > 1 for season in self.seasons)
        return self.channels * (1 + len(self.seasons) + 2 * len(WEIGHTS)) + waves + len(self.covariate_mean)

    @property
    def candidate_count(self) -> int:
        """K, the number of candidates for every step, horizon and channel."""
        return 4 * (len(self.seasons) - 1) + 2 + 2 * PROFILES + 2 * len(self.covariate_mean)

    def compute_inputs(self, history: History, first: int, count: int) -> NDArray[np.float32]:
        """(count, input_size): the inputs of the steps from `first` on."""
        steps = np.arange(first, first + count)
        y = history.look_up(history.values, steps)
        scale = self.scales[steps % self.season]
        parts = [(y - self.mean) / self.deviation]
        for season, spread in zip(self.seasons, self.spreads, strict=True):
            parts.append((y - history.look_up(history.values, steps - season)) / scale / spread)
        means = history.profiles[:, :, : len(WEIGHTS)]
        before = history.look_up(means, steps - self.season)
        following = history.look_up(means, steps + 1 - self.season)
        parts.append(((y[:, :, None] - before) / scale[:, :, None]).reshape(count, -1))
        parts.append(((following - self.mean[:, None]) / self.deviation[:, None]).reshape(count, -1))
        for season in self.seasons:
            if season > 1:
                angle = 2 * np.pi * (steps[:, None] % season) / season
                parts += [np.sqrt(2) * np.sin(angle), np.sqrt(2) * np.cos(angle)]
        parts.append(self._scale_covariates(history.look_up(history.covariates, steps)))
        return _bound(np.concatenate(parts, axis=1), LARGEST_INPUT)

    def compute_candidates(self, history: History, first: int, count: int) -> NDArray[np.float32]:
        """(count, H, channels, K): the candidates at the steps from `first` on."""
        ahead = np.arange(1, self.horizon + 1)
        candidates = np.empty((count, self.horizon, self.channels, self.candidate_count), dtype=np.float32)
        for begin in range(0, count, STEPS_AT_ONCE):
            part = candidates[begin : begin + STEPS_AT_ONCE]
            part[...] = self.compute_pairs(history, first + begin + np.arange(len(part))[:, None], ahead)
        return candidates

    def compute_base(self, history: History, first: int, count: int) -> NDArray[np.float64]:
        """(count, H, channels): the seasonal naive forecasts at the steps from `first` on; NaN if there are none."""
        steps = np.arange(first, first + count)[:, None]
        return history.look_up(history.values, steps + self.find_offsets(self.season, np.arange(1, self.horizon + 1)))

    def compute_scales(self, first: int, count: int) -> NDArray[np.float64]:
        """(count, H, channels): the scales of all forecasts at the steps from `first` on."""
        steps = np.arange(first, first + count)[:, None] + np.arange(1, self.horizon + 1)
        found: NDArray[np.float64] = self.scales[steps % self.season]
        return found

    def compute_pairs(
        self, history: History, steps: NDArray[np.int64], ahead: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """(..., channels, K): the candidates at some steps for some steps ahead of each, arrays of any shape (...)."""
        m = self.season
        steps, ahead = np.broadcast_arrays(steps, ahead)
        known = steps + self.find_offsets(m, ahead)
        base = history.look_up(history.values, known)
        scale = self.scales[(steps + ahead) % m]
        parts = []
        for season in self.seasons[:-1]:
            latest = steps + self.find_offsets(season, ahead)
            for age in (0, season):
                parts.append(self._compute_changes(history, latest - age))
                parts.append((history.look_up(history.values, latest - age) - base) / scale)
        parts.append(self._compute_changes(history, known))
        profiles = history.look_up(history.profiles, known)
        parts += [(profiles[..., i] - base) / scale for i in range(PROFILES)]
        current = history.look_up(history.values, steps)
        usual = history.look_up(history.profiles, steps - m)
        for past in (history.look_up(history.values, steps - m), *np.moveaxis(usual, -1, 0)):
            parts.append((current - past) / self.scales[steps % m])
        if self.covariate_mean.size:
            future, past = (
                self._scale_covariates(history.look_up(history.covariates, places)) for places in (steps + ahead, known)
            )
            for change in (future - past, (future**2 - past**2) / 2):
                parts += [np.broadcast_to(change[..., None, i], base.shape) for i in range(change.shape[-1])]
        return _bound(np.stack(parts, axis=-1), LARGEST_CANDIDATE)

    def find_offsets(self, season: int, ahead: NDArray[np.int64]) -> NDArray[np.int64]:
        """h - L(h) for steps ahead h: the last known step of the same phase of a season, counted from t."""
        return ahead + -(-ahead // season) * -season

    def _compute_changes(self, history: History, steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """d at some steps, with an axis of channels."""
        m = self.season
        change = history.look_up(history.values, steps) - history.look_up(history.values, steps - m)
        return change / self.scales[steps % m]

    def _scale_covariates(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.clip((values - self.covariate_mean) / self.covariate_deviation, -LARGEST_COVARIATE, LARGEST_COVARIATE)


def fit_features(
    values: NDArray[np.float64], covariates: NDArray[np.float64], seasons: Sequence[int], horizon: int
) -> Features:
    """The features whose scaling is learned from values (T, channels) and covariates (T, covariates).

    >>> t = np.arange(48.0)[:, None]
    >>> features = fit_features(np.sin(t), np.empty((48, 0)), (1, 12), horizon=6)
    >>> features.input_size, features.candidate_count
    (9, 14)
    """
    seasons = tuple(seasons)
    m = seasons[-1]
    scales = _fit_scales(values, m)
    by_step = scales[np.arange(len(values)) % m]
    spreads = [_deviate((values[season:] - values[:-season]) / by_step[season:]) for season in seasons]
    return Features(
        seasons, horizon, values.mean(axis=0), _deviate(values), scales, np.stack(spreads),
        covariates.mean(axis=0), _deviate(covariates),
    )  # fmt: skip


def _fit_scales(values: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """(m, channels): the scale of every phase, smoothed over three neighbouring phases."""
    changes = np.abs(values[m:] - values[:-m])
    mean = changes.mean(axis=0)
    # a series that repeats itself exactly has no changes, but other differences
    mean = np.where(mean > 1e-9 * np.abs(values).max(axis=0), mean, _deviate(values) / MEAN_TO_DEVIATION)
    phases = np.arange(m, len(values)) % m
    total, count = np.zeros((m, values.shape[1])), np.zeros((m, 1))
    np.add.at(total, phases, changes)
    np.add.at(count, phases, 1)
    totals, counts = (
        np.mean([np.roll(part, shift, axis=0) for shift in (-1, 0, 1)], axis=0) for part in (total, count)
    )
    scales: NDArray[np.float64] = MEAN_TO_DEVIATION * (totals + PRIOR * mean) / (counts + PRIOR)
    return scales


def _deviate(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The standard deviation of every column, or 1 if a column is constant."""
    deviation = values.std(axis=0)
    usual: NDArray[np.float64] = np.where(deviation > 1e-12 * np.abs(values).max(axis=0, initial=0), deviation, 1.0)
    return usual


def _bound(values: NDArray[np.float64], largest: float) -> NDArray[np.float32]:
    """Values clipped to +-largest, with 0 for those that do not exist."""
    return np.nan_to_num(np.clip(values, -largest, largest), nan=0.0).astype(np.float32)
