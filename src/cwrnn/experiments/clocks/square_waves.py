"""Planted sequences: sums of square waves that switch every so many steps, with noise. What clocks are best is known.

squares:3,7,21          a sequence whose three waves switch every 3, 7 and 21 steps
squares:3,7,21x20       twenty of them, which differ in their noise: that of the seeds 0 to 19
squares:3,7,21x20+2     twenty with other noise: that of the seeds 2 to 21
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..generation.music import AudioError, scaled
from ..sweep.run import Dataset

PREFIX = "squares:"
STEPS = 210
NOISE = 0.1
"""Standard deviation; that of each wave is 1."""


@dataclass(frozen=True, eq=False)
class Planted(Dataset):
    """A sequence of which is known what it is made of."""

    periods: tuple[int, ...]
    """After so many steps each of its waves switches."""
    clean: NDArray[np.float64]
    """(T,): the samples without their noise."""


def waves(periods: Sequence[int], steps: int = STEPS) -> NDArray[np.float64]:
    """(steps,): the sum of waves between 1 and -1, each of which switches every so many steps.

    >>> waves([2, 3], 7).tolist()
    [2.0, 2.0, 0.0, -2.0, 0.0, 0.0, 0.0]
    """
    t = np.arange(steps)
    each = [1.0 - 2.0 * (t // period % 2) for period in periods]
    return np.asarray(np.sum(each, axis=0))


def squares(periods: Sequence[int], seed: int = 0, *, steps: int = STEPS, noise: float = NOISE) -> Planted:
    """Such waves with noise, as a data set.

    >>> planted = squares([3, 7])
    >>> float(np.std(planted.samples - planted.clean) / np.std(planted.clean)) < 0.1
    True
    """
    name = f"squares {'-'.join(map(str, periods))} #{seed}"
    clean = waves(periods, steps)
    noisy = clean + noise * np.random.default_rng(seed).standard_normal(steps)
    source = f"square waves that switch every {', '.join(map(str, periods))} steps, noise of {noise:g}, seed {seed}"
    samples = scaled(noisy)
    # moved and stretched as the samples were
    slope = (samples.max() - samples.min()) / (noisy.max() - noisy.min())
    return Planted(name, 1, samples, source, tuple(periods), samples.mean() + slope * (clean - noisy.mean()))


def load(source: str) -> list[Planted]:
    """The data sets that a source names, as above."""
    found = re.fullmatch(PREFIX + r"(\d{1,6}(?:,\d{1,6})*)(?:x(\d{1,4}))?(?:\+(\d{1,6}))?", source)
    periods = [int(word) for word in found[1].split(",")] if found else []
    count, first = (int(found[2] or 1), int(found[3] or 0)) if found else (0, 0)
    if not periods or min(periods) < 1 or count < 1:
        raise AudioError(f"expected {PREFIX}PERIOD,PERIOD,... or {PREFIX}PERIOD,...xCOUNT+SEED, got {source!r}")
    steps = max(STEPS, 4 * max(periods))
    if steps > 100_000:
        raise AudioError(f"{source}: periods must be at most 25000")
    return [squares(periods, seed, steps=steps) for seed in range(first, first + count)]
