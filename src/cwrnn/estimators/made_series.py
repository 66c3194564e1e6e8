"""Made series: a load with daily and weekly cycles, for examples and tests."""

from typing import Any

import numpy as np
import pandas as pd


def make_load_series(
    days: int = 120, *, frequency: str = "h", noise: float = 1.0, seed: int = 0, start: str = "2024-01-01"
) -> Any:
    """A made electricity load as a Series of pandas: two peaks a day, less at the weekend, weather and noise.

    Args:
        days: the number of days
        frequency: the time between two steps, at most a day. Default: "h"
        noise: the size of weather and noise; 0 for a series that repeats itself every week
        seed: the seed of the noise
        start: the first time

    >>> load = make_load_series(days=14)
    >>> len(load), load.name
    (336, 'load')
    >>> bool((load.groupby(load.index.day_of_week).mean().iloc[:5] > load[load.index.day_of_week == 6].mean()).all())
    True
    """
    index = pd.date_range(start, periods=days, freq="D")
    index = pd.date_range(index[0], index[-1] + pd.Timedelta("1D"), freq=frequency, inclusive="left", name="time")
    generator = np.random.default_rng(seed)
    hour = (index.hour + index.minute / 60).to_numpy(dtype=np.float64)
    day = index.day_of_week.to_numpy()
    morning, evening = (np.exp(-0.5 * ((hour - peak) / width) ** 2) for peak, width in ((8.5, 2.0), (19.0, 2.5)))
    level = np.choose(np.minimum(day, 6), [1.0, 1.02, 1.02, 1.01, 0.98, 0.85, 0.78])
    load = 40 + level * (30 + 18 * morning * np.where(day < 5, 1.0, 0.4) + 24 * evening)
    weather = _wander(generator, len(index), memory=0.98)
    return pd.Series(load + noise * (2.5 * weather + generator.normal(size=len(index))), index, name="load")


def _wander(generator: np.random.Generator, count: int, memory: float) -> Any:
    """A series (count,) of variance 1 that forgets slowly: each value is `memory` times the one before, plus noise."""
    values = np.sqrt(1 - memory**2) * generator.normal(size=count)
    for i in range(1, count):
        values[i] += memory * values[i - 1]
    return values
