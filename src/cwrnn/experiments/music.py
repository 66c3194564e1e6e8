"""Music: the target sequences of the paper's first task.

Five snippets of one song come with the package, 320 samples each: 7 ms at 44.1 kHz. The paper says 44.1 Hz, but
320 samples are 7 ms only at a thousand times that. snippets/COPYRIGHT says whose song it is.
"""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from ..extras import require

SAMPLE_RATE = 44100


def names() -> tuple[str, ...]:
    """The names of the bundled snippets, in their order in the song.

    >>> len(names())
    5
    """
    found = (entry.name for entry in (files(__package__) / "snippets").iterdir())
    return tuple(sorted(name.removesuffix(".wav") for name in found if name.endswith(".wav")))


def load(name: str) -> NDArray[np.float64]:
    """The snippet `name`, (320,), scaled to [-1, 1].

    >>> load(names()[0]).shape
    (320,)
    """
    if name not in names():
        raise ValueError(f"name must be one of {', '.join(names())}, got {name!r}")
    soundfile = require("soundfile", extra="experiments", purpose="reading music")
    with (files(__package__) / "snippets" / f"{name}.wav").open("rb") as file:
        samples, _ = soundfile.read(file, dtype="float64")
    return scaled(samples)


def scaled(signal: NDArray[np.float64]) -> NDArray[np.float64]:
    """`signal` moved and stretched so that it fills the interval [-1, 1], as the paper's section 4.1 has it.

    >>> scaled(np.array([0.0, 1.0, 4.0])).tolist()
    [-1.0, -0.5, 1.0]
    """
    low, high = float(signal.min()), float(signal.max())
    if not high > low:
        raise ValueError(f"signal must be finite and not constant, got values from {low} to {high}")
    # written so that both ends are hit exactly
    return ((signal - low) - (high - signal)) / (high - low)
