"""History: the observations of a series, and their profiles by the phase of its season.

The phase of step t is t mod m, where m is the season: the hour of the week in hourly data with a season of 168. A
profile is a mean over the last observations of each phase:

    mean of weight a    p(t) = p(t - m) + max(a, 1 / n) (y(t) - p(t - m)),  n the number of observations of the phase
    median of k         p(t) = the median of y(t), y(t - m), ..., y(t - (k - 1) m)

Every profile at t follows from the profiles and observations of the last cycles, so a history that is cut to its tail
goes on exactly as the whole one does, and a new observation costs the same however long the series is.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WEIGHTS = (0.1, 0.3)
"""The weights of the newest observation in the means by phase."""

MEDIANS = (5, 9)
"""The numbers of observations in the medians by phase."""

PROFILES = len(WEIGHTS) + len(MEDIANS)
"""The number of profiles."""


@dataclass(frozen=True, eq=False)
class History:
    """Observations and profiles from step `start` on.

    >>> history = History.begin(season=2, channels=1).extend(np.array([[1.0], [2.0], [5.0]]))
    >>> history.profiles[:, 0, 0]  # the mean of 1 and 5 at the phase 0
    array([1., 2., 3.])
    >>> history.extend(np.ones((30, 1))).tail(horizon=3).start  # nothing depends on the first 10 of 33 steps
    10
    """

    season: int
    """m, the number of steps after which a phase returns."""
    start: int
    """The step of the first row."""
    values: NDArray[np.float64]
    """(n, channels), the observations."""
    profiles: NDArray[np.float64]
    """(n, channels, PROFILES), the profiles after each observation: first the means, then the medians."""
    covariates: NDArray[np.float64]
    """(n or more, covariates): those of the observations, and of steps in the future if they are known."""

    @classmethod
    def begin(cls, season: int, channels: int, covariates: int = 0) -> "History":
        """The history before the first observation."""
        empty = np.empty((0, channels))
        return cls(season, 0, empty, np.empty((0, channels, PROFILES)), np.empty((0, covariates)))

    @property
    def end(self) -> int:
        """The number of steps before the next observation."""
        return self.start + len(self.values)

    def extend(self, values: NDArray[np.float64], covariates: NDArray[np.float64] | None = None) -> "History":
        """The history after more observations (n, channels), with their covariates (n, covariates)."""
        if covariates is None:
            covariates = np.empty((len(values), self.covariates.shape[1]))
        joined = np.concatenate([self.values, values])
        medians = [self._compute_medians(joined, len(values), count) for count in MEDIANS]
        profiles = np.concatenate([self.profiles, np.zeros((*values.shape, PROFILES))])
        profiles[len(self.values) :, :, len(WEIGHTS) :] = np.stack(medians, axis=-1)
        self._fill_means(joined, profiles)
        known = self.covariates[: len(self.values)]
        return History(self.season, self.start, joined, profiles, np.concatenate([known, covariates]))

    def tail(self, horizon: int) -> "History":
        """The history without the rows that neither new observations nor the last `horizon` forecasts depend on."""
        cut = max(0, len(self.values) - (max(MEDIANS) + 1) * self.season - horizon)
        return History(
            self.season,
            self.start + cut,
            self.values[cut:].copy(),
            self.profiles[cut:].copy(),
            self.covariates[cut:].copy(),
        )

    def foresee(self, covariates: NDArray[np.float64]) -> "History":
        """The history with the covariates (n, covariates) of the next steps."""
        known = np.concatenate([self.covariates[: len(self.values)], covariates])
        return History(self.season, self.start, self.values, self.profiles, known)

    def look_up(self, rows: NDArray[np.float64], steps: NDArray[np.int64]) -> NDArray[np.float64]:
        """The rows of an array of this history at some steps; NaN for steps that it does not have."""
        places = steps - self.start
        inside = (places >= 0) & (places < len(rows))
        if len(rows) == 0:
            return np.full((*steps.shape, *rows.shape[1:]), np.nan)
        found: NDArray[np.float64] = rows[np.where(inside, places, 0)]
        found[~inside] = np.nan
        return found

    def _compute_medians(self, joined: NDArray[np.float64], new: int, count: int) -> NDArray[np.float64]:
        """(new, channels): the medians of the last `count` observations of a phase, at the last `new` steps."""
        steps = np.arange(self.end, self.end + new)
        ages = np.arange(count) * self.season
        recent = np.sort(self.look_up(joined, steps[:, None] - ages), axis=1)  # NaN comes last
        present = np.minimum(steps // self.season + 1, count)
        rows = np.arange(new)
        medians: NDArray[np.float64] = (recent[rows, (present - 1) // 2] + recent[rows, present // 2]) / 2
        return medians

    def _fill_means(self, joined: NDArray[np.float64], profiles: NDArray[np.float64]) -> None:
        """Computes the means by phase of the new rows in place, a cycle at a time."""
        weights = np.array(WEIGHTS)
        m, first, last = self.season, len(self.values), len(joined)
        while first < last:
            stop = min(first + m, last)
            cycles = (self.start + np.arange(first, stop)) // m
            observed = joined[first:stop, :, None]
            # a whole history begins with its first cycle, and a tail has more than one cycle
            fresh = cycles == 0
            before = profiles[np.maximum(np.arange(first, stop) - m, 0), :, : len(WEIGHTS)]
            share = np.maximum(weights, 1 / (cycles[:, None, None] + 1))
            mean = np.where(fresh[:, None, None], observed, before + share * (observed - before))
            profiles[first:stop, :, : len(WEIGHTS)] = mean
            first = stop
