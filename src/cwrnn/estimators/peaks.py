"""Peaks of the spectrum: the rhythms that stand out from the noise around them.

A peak is no rhythm of its own if another rhythm explains it:

    overtone    its frequency is a multiple of the rhythm's: it only belongs to the shape of the rhythm's wave
    sideband    it stands beside such a multiple and has a mirror image on the other side: the rhythm's strength changes
                over time, as that of a day does over the seasons
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CYCLES_OF_A_PEAK = 4
"""A peak must repeat this often: slower waves cannot be told from a trend or a random walk."""

SHORTEST_SERIES = 16
"""The fewest steps in which a peak is looked for."""

CHANCE = 3e-4
"""The nominal probability of a peak in noise. In 100 steps, whose background is known badly, it is some percent."""

SMALLEST_SHARE = 0.005
"""The smallest share of the variance, or of that of the differences, that makes a peak worth a clock."""

RESOLUTION = 1.5
"""Two waves whose frequencies differ by less than so many bins cannot be told apart."""

FEWEST_RESOLVED = 12
"""If a cycle fits more often than this into the data, its overtones lie so far apart that few other peaks meet one."""

SMALLEST_MIRROR = 0.25
"""The smallest power of the mirror image of a sideband, as a share of that of the sideband."""


class Peak(NamedTuple):
    """A rhythm that stands out of the spectrum."""

    period: int
    """Its period in steps."""
    share: float
    """Its share of the variance, after the trend."""


def find_peaks(sequences: Sequence[NDArray[np.float64]], known: Iterable[int] = ()) -> list[Peak]:
    """The rhythms of sequences (T, channels), the strongest first.

    A peak must stand out from the spectrum around it, both before and after differencing, because noise is flat in the
    one case and a random walk in the other. Overtones of a stronger or a known rhythm are left out, and sidebands of a
    known one.

    Args:
        sequences: arrays (T, channels) of any lengths; NaN is a gap
        known: periods that the calendar suggests: a peak that cannot be told from one of them has its period
    """
    T = max(len(sequence) for sequence in sequences)
    channels = [channel for sequence in sequences for channel in _clean(sequence)]
    if T < SHORTEST_SERIES or not channels:
        return []
    power = _average_power(channels, T)
    steepened = _average_power([np.diff(channel) for channel in channels], T)
    first, last = CYCLES_OF_A_PEAK, T // 3
    threshold = _threshold(len(sequences), T)
    stands_out = np.ones(len(power), dtype=bool)
    for spectrum in (power, steepened):
        stands_out &= spectrum > threshold * _background(spectrum, len(sequences))
    correlation = _correlate(channels, T)
    known = sorted(known)
    peaks: list[Peak] = []
    for k in sorted(range(first, last + 1), key=lambda k: (-power[k], k)):
        if not (stands_out[k] and power[k] >= power[k - 1] and power[k] > power[k + 1]):
            continue
        period = _refine(k, T, known, correlation)
        is_strong = max(_share(power, k), _share(steepened, k)) >= SMALLEST_SHARE
        rhythms = [*known, *(peak.period for peak in peaks)]
        is_explained = any(_is_overtone(k, T, rhythm, power) for rhythm in rhythms) or any(
            _belongs_to_cycle(k, T, cycle, power) for cycle in known
        )
        is_new = period in known or not is_explained
        if is_strong and is_new and all(peak.period != period for peak in peaks):
            peaks.append(Peak(period, _share(power, k)))
    return peaks


def _clean(sequence: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The channels of a sequence that vary: without gaps, without trend, with a variance of 1."""
    channels = []
    T = len(sequence)
    times = np.arange(T, dtype=np.float64)
    for channel in sequence.T:
        present = ~np.isnan(channel)
        if present.sum() < SHORTEST_SERIES:
            continue
        # a gap is bridged after the trend is gone
        slope, level = np.polyfit(times[present] / T, channel[present] / _magnitude(channel[present]), 1)
        rest = channel / _magnitude(channel[present]) - level - slope * times / T
        rest = np.interp(times, times[present], rest[present])
        deviation = rest.std()
        if deviation > 1e-9:
            channels.append((rest - rest.mean()) / deviation)
    return channels


def _magnitude(values: NDArray[np.float64]) -> float:
    """The largest absolute value, or 1 if all are zero."""
    return float(np.abs(values).max()) or 1.0


def _average_power(channels: Sequence[NDArray[np.float64]], T: int) -> NDArray[np.float64]:
    """The mean spectrum of all channels on the frequencies k / T, under Hann's window, which stops leakage."""
    powers = [np.abs(np.fft.rfft(channel * np.hanning(len(channel) + 2)[1:-1], T)) ** 2 for channel in channels]
    mean: NDArray[np.float64] = np.mean(powers, axis=0)
    return mean


def _correlate(channels: Sequence[NDArray[np.float64]], T: int) -> NDArray[np.float64]:
    """The autocorrelation at every lag below T, averaged over all channels."""
    total = np.zeros(T)
    for channel in channels:
        spectrum = np.fft.rfft(channel, 2 * T)
        products = np.fft.irfft(np.abs(spectrum) ** 2, 2 * T)[:T]
        total[: len(channel)] += products[: len(channel)] / np.arange(len(channel), 0, -1)
    return total / len(channels)


def _threshold(count: int, T: int) -> float:
    """The height of a peak above noise of mean 1, in the mean of `count` spectra of T steps.

    A spectrum of noise is exponentially distributed, and the mean of several has lighter tails.
    """
    surprise = math.log(max(T // 2, 2) / CHANCE)
    return min(surprise, 1 + math.sqrt(2 * surprise / count) + surprise / count)


def _background(power: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The mean of the noise around every frequency, over an octave, or over 17 bins if that is more.

    It is computed from the lower third of the bins, so that the four bins of a wave do not count.
    """
    last = len(power) - 1
    # the lower third of a mean of exponential distributions, after Wilson and Hilferty
    third = (1 - 1 / (9 * count) - 0.4307 / (3 * math.sqrt(count))) ** 3
    centers = sorted({*range(1, min(16, last)), *np.geomspace(1, last, 128).round().astype(int).tolist()})
    levels = []
    for center in centers:
        first = max(1, min(round(center / math.sqrt(2)), center - 8))
        around = power[first : max(round(center * math.sqrt(2)), center + 8) + 1]
        levels.append(np.quantile(around, 1 / 3) / third)
    level: NDArray[np.float64] = np.interp(np.arange(len(power)), centers, levels)
    return level


def _refine(k: int, T: int, known: Sequence[int], correlation: NDArray[np.float64]) -> int:
    """The period of a peak at frequency k / T: a known one within the resolution, or the best correlated one."""
    shortest, longest = T / (k + RESOLUTION), T / (k - RESOLUTION)
    fitting = [period for period in known if shortest < period < longest]
    if fitting:
        return min(fitting, key=lambda period: abs(T / period - k))
    lags = range(math.ceil(T / (k + 1)), min(math.floor(T / (k - 1)), T - 1) + 1)
    return max(lags, key=lambda lag: (correlation[lag : max(T // 2, lag + 1) : lag].mean(), -lag), default=round(T / k))


def _share(power: NDArray[np.float64], k: int) -> float:
    """The share of the variance at frequency k / T: Hann's window spreads a wave over four bins."""
    return float(power[max(k - 2, 1) : k + 3].sum() / power[1:].sum())


def _is_overtone(k: int, T: int, rhythm: int, power: NDArray[np.float64]) -> bool:
    """Whether a peak at frequency k / T only belongs to the shape of a rhythm's wave.

    Its frequency is then a multiple of the rhythm's, as far as T steps can tell. A strong multiple without those
    below it is a rhythm of its own, as a day is beside a week.
    """
    base = T / rhythm
    n = round(k / base)
    if n < 1 or abs(k - n * base) > RESOLUTION:
        return False
    below = [power[round(i * base)] for i in range(2, n)]
    return not below or power[k] < 0.5 * power[round(base)] or power[k] < 4 * max(below)


def _belongs_to_cycle(k: int, T: int, cycle: int, power: NDArray[np.float64]) -> bool:
    """Whether a peak at frequency k / T is an overtone of a cycle of the calendar, or a sideband of one.

    A wave that fits n times into a week repeats itself every week, however strong it is. A wave whose strength changes
    has sidebands on both sides of its frequency, which are weaker than itself; a rhythm of its own has no mirror image.
    """
    base = T / cycle
    carrier = max(1, round(k / base)) * base
    if abs(k - carrier) <= RESOLUTION:
        return base > FEWEST_RESOLVED
    mirror = round(2 * carrier - k)
    if not 1 <= mirror < len(power) - 1:
        return False
    image = power[mirror - 1 : mirror + 2].max()
    return bool(power[round(carrier)] > power[k] and image >= SMALLEST_MIRROR * power[k])
