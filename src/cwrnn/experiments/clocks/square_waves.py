"""Sequences made of square waves, with noise. Their periods are planted, so the best clocks for them are known.

squares:3,7,21          one sequence, the sum of three waves that switch every 3, 7 and 21 steps
squares:3,7,21x20       twenty such sequences, whose noise has the seeds 0 to 19
squares:3,7,21x20+2     twenty such sequences, whose noise has the seeds 2 to 21
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..generation.music import MusicError, scale
from ..sweep.run import Dataset

PREFIX = "squares:"
STEPS = 210
"""The length of a sequence; sequences with periods above 52 steps are longer."""
NOISE = 0.1
"""Standard deviation of the noise. The standard deviation of each wave is 1."""
MOST_STEPS = 100_000


@dataclass(frozen=True, eq=False)
class SquareWaves(Dataset):
    """A sum of square waves with noise."""

    periods: tuple[int, ...]
    """For each wave, the number of steps after which it switches."""
    waves: NDArray[np.float64]
    """(T,): the samples without their noise."""

    @property
    def target_name(self) -> str:
        """The name of the waves, whatever their noise.

        >>> make_square_waves([3, 7], seed=5).target_name
        'squares 3, 7'
        """
        return f"squares {', '.join(map(str, self.periods))}"

    @property
    def clean(self) -> NDArray[np.float64]:
        """(T,): the samples without their noise."""
        return self.waves


def sum_square_waves(periods: Sequence[int], steps: int = STEPS) -> NDArray[np.float64]:
    """Return the sum (steps,) of waves that alternate between 1 and -1, one for each of `periods`.

    >>> sum_square_waves([2, 3], 7).tolist()
    [2.0, 2.0, 0.0, -2.0, 0.0, 0.0, 0.0]
    """
    t = np.arange(steps)
    waves = [1.0 - 2.0 * (t // period % 2) for period in periods]
    return np.asarray(np.sum(waves, axis=0))


def make_square_waves(
    periods: Sequence[int], seed: int = 0, *, steps: int = STEPS, noise: float = NOISE
) -> SquareWaves:
    """Return a data set with the sum of square waves and noise, scaled to [-1, 1].

    >>> data = make_square_waves([3, 7])
    >>> float(np.std(data.samples - data.clean) / np.std(data.clean)) < 0.1
    True
    """
    name = f"squares {'-'.join(map(str, periods))} #{seed}"
    clean = sum_square_waves(periods, steps)
    noisy = clean + noise * np.random.default_rng(seed).standard_normal(steps)
    source = f"square waves that switch every {', '.join(map(str, periods))} steps, noise of {noise:g}, seed {seed}"
    samples = scale(noisy)
    # the clean waves are moved and stretched exactly as the samples were
    slope = (samples.max() - samples.min()) / (noisy.max() - noisy.min())
    return SquareWaves(name, 1, samples, source, tuple(periods), samples.mean() + slope * (clean - noisy.mean()))


def load_square_waves(source: str) -> list[SquareWaves]:
    """Return the data sets that a source such as "squares:3,7,21x20" names.

    >>> [data.name for data in load_square_waves("squares:3,7x2")]
    ['squares 3-7 #0', 'squares 3-7 #1']
    """
    match = re.fullmatch(PREFIX + r"(\d{1,6}(?:,\d{1,6})*)(?:x(\d{1,4}))?(?:\+(\d{1,6}))?", source)
    periods = [int(number) for number in match[1].split(",")] if match else []
    count, first = (int(match[2] or 1), int(match[3] or 0)) if match else (0, 0)
    if not periods or min(periods) < 1 or count < 1:
        raise MusicError(f"expected {PREFIX}PERIOD,PERIOD,... or {PREFIX}PERIOD,...xCOUNT+SEED, got {source!r}")
    steps = max(STEPS, 4 * max(periods))
    if steps > MOST_STEPS:
        raise MusicError(f"expected periods of at most {MOST_STEPS // 4} steps, got {source!r}")
    return [make_square_waves(periods, seed, steps=steps) for seed in range(first, first + count)]
