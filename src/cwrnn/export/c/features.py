"""The features of a recogniser in C: its frames from a stream of 16-bit samples, with the numbers of `FeatureStream`.

`features.c.j2` says what is computed. Everything that depends only on the settings becomes a table here, in float64,
and is rounded once to float32. The tables fold what can be folded: the lifter and the deviation into the cosine
transform, and a factor of 1/2 that the transform of real numbers needs into the window.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...experiments.words.features import FeatureSettings
from ..model import ExportError, Features
from .literals import format_floats
from .templates import render

LONGEST_WINDOW = 2**16 - 1
"""The most samples of a window: their sum is a 32-bit integer."""

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class FeatureTables:
    """The constants of the features, as `features.c.j2` names them."""

    window: Floats
    """(window), half of the Hamming window."""
    places: Integers
    """(pairs), the place of each pair of samples in the input of the transform."""
    turns: Floats
    """The factors of the transform behind its first pass, 6 for each angle."""
    split: Floats
    """(pairs), cos and -sin of the angles that split the spectrum."""
    rise: Floats
    """The weight of the rising filter for each frequency from 1 on."""
    ends: Integers
    """(filters + 1), the first frequency behind each rise; the last filter does not rise but falls."""
    cosines: Floats
    """(cepstra, filters)."""
    offsets: Floats
    """(cepstra + 1)."""
    energy_scale: float
    """The factor of the log energy."""

    @property
    def nbytes(self) -> int:
        """The bytes of all tables in C."""
        integers = len(self.places) * _count_bytes(len(self.places) - 1) + len(self.ends) * _count_bytes(self.ends[-1])
        return integers + sum(
            4 * floats.size for floats in (self.window, self.turns, self.split, self.rise, self.cosines, self.offsets)
        )


class FrameSize(NamedTuple):
    """The lengths of a frame."""

    window: int
    """The samples of a window."""
    step: int
    """The samples from one window to the next."""
    transform: int
    """The points of the Fourier transform."""

    @property
    def state_bytes(self) -> int:
        """The memory of the features of one stream."""
        # samples of two bytes are followed by a count of four
        return (2 * self.window + 3) // 4 * 4 + 4 + 4 * self.transform


def measure_frames(settings: FeatureSettings) -> FrameSize:
    """The lengths of a frame. Raises an ExportError for a window that is too long."""
    # in float32, as kaldi-native-fbank computes them: a length that is no integer is rounded down
    samples = np.float32(settings.rate) * np.float32(0.001)
    window, step = int(samples * np.float32(settings.window)), int(samples * np.float32(settings.step))
    if window > LONGEST_WINDOW:
        raise ExportError(
            f"the features have windows of {window} samples, but C can have {LONGEST_WINDOW} at most: "
            f"{settings.window:g} ms at {settings.rate} Hz"
        )
    return FrameSize(window, step, 2 ** math.ceil(math.log2(window)))


def make_tables(features: Features) -> FeatureTables:
    """The constants of the features. Raises an ExportError if the normalisation is out of the range of float32."""
    settings = features.settings
    window, _, points = measure_frames(settings)
    pairs = points // 2
    hamming = 0.54 - 0.46 * np.cos(2 * np.pi / (window - 1) * np.arange(window))
    angles = np.pi / pairs * np.arange(1, pairs // 2 + 1)
    rise, ends = _make_rises(settings.rate / points, pairs, settings.filters, settings.high)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        order = np.arange(1, settings.cepstra + 1)[:, None]
        lifter = 1 + settings.lifter / 2 * np.sin(np.pi * order / settings.lifter) if settings.lifter else 1.0
        waves = np.cos(np.pi / settings.filters * order * (np.arange(settings.filters) + 0.5))
        cosines = np.sqrt(2 / settings.filters) * lifter * waves / features.deviation[:-1, None]
        # a cosine takes sums or differences of filters that mirror each other; the middle one mirrors itself
        half = (settings.filters + 1) // 2
        cosines[:, half - 1] /= 2 if settings.filters % 2 else 1
        cosines = _round(cosines[:, :half])
        offsets = _round(-features.mean / features.deviation)
        energy_scale = float(np.float32(1 / features.deviation[-1]))
    if not all(np.isfinite(numbers).all() for numbers in (cosines, offsets, energy_scale)):
        raise ExportError("the mean divided by the deviation of the features is too large for float32")
    return FeatureTables(
        window=_round(hamming / 2),
        places=np.argsort(_order_input(pairs)),
        turns=_round(_make_turns(pairs)),
        split=_round(np.stack([np.cos(angles), -np.sin(angles)], axis=1).ravel()),
        rise=_round(rise),
        ends=ends,
        cosines=cosines,
        offsets=offsets,
        energy_scale=energy_scale,
    )


def render_features(name: str, features: Features | None) -> dict[str, str]:
    """The parts of header ("h") and source ("c") for features; empty if there are none.

    Raises an ExportError if C cannot compute them.
    """
    if features is None:
        return {"h": "", "c": ""}
    tables = make_tables(features)
    values = _describe(name, features) | {
        "tables": tables,
        "factor": format_floats(_round(np.array(features.settings.preemphasis))).strip(),
        "energy_scale": format_floats(_round(np.array(tables.energy_scale))).strip(),
        "passes": _list_passes(len(tables.places)),
        "place_type": f"uint{8 * _count_bytes(len(tables.places) - 1)}_t",
        "end_type": f"uint{8 * _count_bytes(tables.ends[-1])}_t",
    }
    return {kind: render(f"features.{kind}.j2", **values) for kind in ("h", "c")}


def _describe(name: str, features: Features) -> dict[str, Any]:
    settings = features.settings
    window, step, points = measure_frames(settings)
    return {
        "name": name,
        "NAME": name.upper(),
        "inputs": settings.channels,
        "rate": settings.rate,
        "window": window,
        "step": step,
        "milliseconds_of_window": f"{settings.window:g}",
        "milliseconds_of_step": f"{settings.step:g}",
        "transform": points,
        "pairs": points // 2,
        "preemphasis": settings.preemphasis,
        "filters": settings.filters,
        "cepstra": settings.cepstra,
        "lifter": f"{settings.lifter:g}",
        "high": f"{settings.high:g}",
    }


def _count_bytes(largest: int) -> int:
    """The bytes of the smallest unsigned type that holds a number.

    >>> _count_bytes(255), _count_bytes(256)
    (1, 2)
    """
    return 1 if largest < 2**8 else 2


def _list_passes(pairs: int) -> list[tuple[int, int]]:
    """The passes of the transform with radix 4: the span of each, and the place of its first turn.

    If the number of pairs is no power of 4, a pass of radix 2 comes before them.

    >>> _list_passes(64), _list_passes(32)
    ([(1, 0), (4, 0), (16, 18)], [(2, 0), (8, 6)])
    """
    passes, place, span = [], 0, 1 if math.log2(pairs) % 2 == 0 else 2
    while span < pairs:
        passes.append((span, place))
        place, span = place + 6 * (span - 1), 4 * span
    return passes


def _order_input(pairs: int) -> Integers:
    """The order of the input for which the transform gives its output from the lowest frequency to the highest.

    >>> _order_input(8).tolist()
    [0, 4, 1, 5, 2, 6, 3, 7]
    """
    spans = [span for span, _ in _list_passes(pairs)]
    order = np.arange(spans[0])
    for _ in spans:
        order = np.concatenate([4 * order + part for part in range(4)])
    return order


def _make_turns(pairs: int) -> NDArray[np.float64]:
    """The turns of all passes, in the order of their use; the first number of every span is not turned."""
    turns = []
    for span, _ in _list_passes(pairs):
        angles = np.pi / (2 * span) * np.outer(np.arange(1, span), [1, 2, 3])
        turns.append(np.stack([np.cos(angles), -np.sin(angles)], axis=-1).ravel())
    return np.concatenate(turns)


def _make_rises(width: float, pairs: int, filters: int, high: float) -> tuple[NDArray[np.float64], Integers]:
    """The weights of the rising filters, for frequencies that are `width` Hz apart, and the ends of the rises."""
    # in units of the distance of two peaks: filter i rises from i to i + 1 and falls to i + 2
    peaks = np.log1p(width * np.arange(1, pairs) / 700) / np.log1p(high / 700) * (filters + 1)
    covered = peaks[peaks < filters + 1]
    rises = np.ceil(covered).astype(np.int64) - 1
    ends = 1 + np.searchsorted(rises, np.arange(filters + 1), side="right")
    return covered - rises, ends


def _round(numbers: NDArray[np.float64]) -> Floats:
    rounded: Floats = numbers.astype(np.float32)
    return rounded
