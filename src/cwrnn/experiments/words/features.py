"""Features: a spoken word as the input of a network, 13 numbers every 10 ms.

    samples -> 25 ms windows, every 10 ms -> 12 mel-frequency cepstral coefficients and the log energy

The paper (section 4.2) gives the two times, the pre-emphasis of 0.97 and the 13 channels, and leaves the rest open. The
rest follows HTK, which computed the paper's features: a Hamming window, 26 triangular filters that are evenly spaced in
mel, a lifter of 22, and the log energy last, taken before pre-emphasis and window. Samples are scaled to the range of
16-bit integers, and no energy is less than 1, so digital silence has finite features. Two details follow Kaldi: the
filters sum powers, not magnitudes, and the mean of each window is subtracted. There is no dither: the same samples
always give the same numbers.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from .. import paper

SAMPLE_RATES = (8000, 192_000)
"""The lowest and the highest sample rate, in Hz. Below 8000 Hz most of the difference between consonants is lost."""

LARGEST_LIFTER = 10_000
"""The largest lifter. HTK and Kaldi use 22."""

MOST_FILTERS = 1024
"""The most filters. HTK and Kaldi use 20 to 80."""

CHUNK = 2**18
"""Samples to hand to the library that computes the features at once, at most."""

FULL_SCALE = 32768.0
"""The number for a sample of 1.0: HTK reads samples as 16-bit integers."""


@dataclass(frozen=True)
class FeatureSettings:
    """The settings of the features. Files store them under these names.

    >>> FeatureSettings().channels
    13
    """

    rate: int = 16000
    """Samples per second."""
    window: float = paper.WORDS_FRAME_WINDOW
    """Milliseconds of sound in one frame."""
    step: float = paper.WORDS_FRAME_STEP
    """Milliseconds from one frame to the next."""
    preemphasis: float = paper.WORDS_PREEMPHASIS
    cepstra: int = paper.WORDS_CEPSTRA
    filters: int = 26
    lifter: float = 22.0
    high: float = 8000.0
    """The frequency in Hz where the last filter ends; the first begins at 0."""

    def __post_init__(self) -> None:
        low, high = SAMPLE_RATES
        if not low <= self.rate <= high:
            raise ValueError(f"rate must be from {low} to {high} Hz, got {self.rate}")
        if not 0 < self.step <= self.window <= 1000:
            raise ValueError(f"expected 0 < step <= window <= 1000 ms, got step={self.step}, window={self.window}")
        if self.rate * self.step < 1000:
            raise ValueError(f"step must be at least one sample, {1000 / self.rate:g} ms, got {self.step}")
        if not 0 <= self.preemphasis <= 1:
            raise ValueError(f"preemphasis must be from 0 to 1, got {self.preemphasis}")
        if not 1 <= self.cepstra < self.filters <= MOST_FILTERS:
            raise ValueError(
                f"expected 1 <= cepstra < filters <= {MOST_FILTERS}, got cepstra={self.cepstra}, filters={self.filters}"
            )
        if not 0 <= self.lifter <= LARGEST_LIFTER:
            raise ValueError(f"lifter must be from 0 (none) to {LARGEST_LIFTER}, got {self.lifter:.6g}")
        if not 0 < self.high <= self.rate / 2:
            raise ValueError(f"high must be above 0 and at most {self.rate / 2:g} Hz, got {self.high}")
        # the transform is as long as the next power of two; the first filter is the narrowest
        resolution = self.rate / 2 ** math.ceil(math.log2(self.shortest))
        mels = 1127 * math.log1p(self.high / 700)
        if not 700 * math.expm1(2 * mels / (self.filters + 1) / 1127) > resolution:
            raise ValueError(
                f"{self.filters} filters up to {self.high:g} Hz are too many for frequencies {resolution:g} Hz apart"
            )

    @property
    def channels(self) -> int:
        """The numbers in a frame: the cepstra and the energy."""
        return self.cepstra + 1

    def count_operations(self, samples: int) -> float:
        """Return about how many multiply-adds the features of so many samples at `rate` need, without the transform."""
        return samples * 1000 / (self.rate * self.step) * (self.shortest + self.channels * self.filters)

    @property
    def shortest(self) -> int:
        """The number of samples in one window. A shorter sound has no frame."""
        return int(self.rate * self.window / 1000)


class FeatureStream:
    """Computes the frames of a sound that arrives in chunks. The frames do not depend on how the sound is cut.

    >>> stream, sound = FeatureStream(), np.sin(np.arange(800) / 5)
    >>> [stream.accept(sound[:300]).shape, stream.accept(sound[300:]).shape, stream.finish().shape]
    [(0, 13), (3, 13), (0, 13)]
    """

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        self.settings = settings or FeatureSettings()
        self._online = _make_online_mfcc(self.settings)
        self._frames_given = 0
        self._finished = False

    def accept(self, samples: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """Return the frames, (n, 13), that end within `samples`.

        Args:
            samples: the next samples, (n,), floating point in [-1, 1], at the sample rate of the settings
        """
        if self._finished:
            raise ValueError("this stream is finished: make another for the next sound")
        scaled = _scale(samples)
        for start in range(0, len(scaled), CHUNK):
            # pybind converts a list faster than an array; a list needs eight times as much memory
            self._online.accept_waveform(self.settings.rate, scaled[start : start + CHUNK].tolist())
        return self._take_frames()

    def finish(self) -> NDArray[np.float32]:
        """End the sound, and return the frames that are left: (0, 13), because every frame is a whole window."""
        self._finished = True
        self._online.input_finished()
        return self._take_frames()

    def _take_frames(self) -> NDArray[np.float32]:
        ready = self._online.num_frames_ready
        # copies, because `pop` frees the memory of the frames, so that a stream may go on for ever
        frames = [self._online.get_frame(i).copy() for i in range(self._frames_given, ready)]
        self._online.pop(ready - self._frames_given)
        self._frames_given = ready
        return np.array(frames, dtype=np.float32).reshape(-1, self.settings.channels)


def mfcc(samples: NDArray[np.floating[Any]], settings: FeatureSettings | None = None) -> NDArray[np.float32]:
    """Return the frames of a whole sound, (T, 13): cepstra 1 to 12, then the log energy.

    At 16 kHz, n samples have T = 1 + (n - 400) // 160 frames; a sound shorter than a window has none.

    Args:
        samples: (n,), floating point in [-1, 1], at the sample rate of the settings
        settings: the settings of the features

    >>> mfcc(np.sin(np.arange(16000) / 5)).shape
    (98, 13)
    """
    return FeatureStream(settings).accept(samples)


def mel_spectrogram(
    features: NDArray[np.floating[Any]], settings: FeatureSettings | None = None
) -> NDArray[np.float64]:
    """Return a smoothed spectrogram, (T, 26), from the frames (T, 13): the logarithms of the mel filters' energies.

    It inverts the cosine transform. The cepstra lack the finer detail and the level; the level is taken from the log
    energy, up to a constant.

    >>> mel_spectrogram(mfcc(np.sin(np.arange(16000) / 5))).argmax(axis=1)[:3]
    array([5, 5, 5])
    """
    settings = settings or FeatureSettings()
    order = np.arange(1, settings.cepstra + 1)
    lifter = 1 + settings.lifter / 2 * np.sin(np.pi * order / settings.lifter) if settings.lifter else 1.0
    filters = np.arange(settings.filters) + 0.5
    waves = np.sqrt(2 / settings.filters) * np.cos(np.pi / settings.filters * np.outer(order, filters))
    spectrogram: NDArray[np.float64] = (features[:, :-1] / lifter) @ waves + features[:, -1:]
    return spectrogram


def mel_frequency(filter: NDArray[np.integer[Any]] | int, settings: FeatureSettings | None = None) -> Any:
    """Return the frequency in Hz at the centre of a filter; filters are numbered from 0.

    >>> [round(float(mel_frequency(number))) for number in (0, 12, 25)]
    [68, 1655, 7225]
    """
    settings = settings or FeatureSettings()
    mels = 1127 * math.log1p(settings.high / 700)
    return 700 * np.expm1((np.asarray(filter) + 1) * mels / (settings.filters + 1) / 1127)


def resample(samples: NDArray[np.floating[Any]], sample_rate: int, to: int) -> NDArray[np.float64]:
    """Return `samples`, which are at `sample_rate`, at the sample rate `to`.

    Raises a ValueError if either rate is outside of SAMPLE_RATES.

    >>> resample(np.zeros(441), 44100, 16000).shape
    (160,)
    """
    _check_sample_rates(sample_rate, to)
    if sample_rate == to:
        return np.asarray(samples, dtype=np.float64)
    signal = require("scipy.signal", extra="experiments", purpose="resampling")
    common = math.gcd(sample_rate, to)
    result: NDArray[np.float64] = signal.resample_poly(
        np.asarray(samples, dtype=np.float64), to // common, sample_rate // common
    )
    return result


class Resampler:
    """Resamples a sound that arrives in chunks. The result is that of `resample`, however the sound is cut.

    >>> resampler = Resampler(44100, 16000)
    >>> [len(resampler.accept(np.zeros(300))), len(resampler.accept(np.zeros(141))), len(resampler.finish())]
    [99, 51, 10]
    """

    def __init__(self, sample_rate: int, to: int) -> None:
        _check_sample_rates(sample_rate, to)
        common = math.gcd(sample_rate, to)
        self._up, self._down = to // common, sample_rate // common
        # the filter of scipy.signal.resample_poly: output m is the sum over n of filter[half + m down - n up] input[n]
        slower = max(self._up, self._down)
        self._half = 10 * slower if sample_rate != to else 0
        self._filter = np.ones(1)
        if self._half:
            signal = require("scipy.signal", extra="experiments", purpose="resampling")
            self._filter = self._up * signal.firwin(2 * self._half + 1, 1 / slower, window=("kaiser", 5.0))
        self._kept = np.zeros(0)
        self._first = 0
        """The number of the first sample in `_kept`."""
        self._outputs_given = 0

    def accept(self, samples: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Return the samples at the new rate that `samples`, (n,), complete."""
        self._kept = np.concatenate([self._kept, np.asarray(samples, dtype=np.float64)])
        # up to the last output whose filter needs no later sample
        return self._compute_until(((self._first + len(self._kept) - 1) * self._up - self._half) // self._down + 1)

    def finish(self) -> NDArray[np.float64]:
        """End the sound, and return the samples that are left. Silence follows the end."""
        return self._compute_until(-(-(self._first + len(self._kept)) * self._up // self._down))

    def _compute_until(self, end: int) -> NDArray[np.float64]:
        """Return the outputs that follow those returned before, up to `end`; drop the inputs no longer needed."""
        at = np.arange(self._outputs_given, max(end, self._outputs_given)) * self._down
        inputs = -((self._half - at) // self._up)[:, None] + np.arange(2 * self._half // self._up + 1)
        place = self._half + at[:, None] - inputs * self._up
        inside = (place >= 0) & (inputs >= self._first) & (inputs < self._first + len(self._kept))
        # inputs outside of the sound have weight 0, whatever is looked up for them
        weights = np.where(inside, self._filter[np.where(inside, place, 0)], 0.0)
        outputs = np.zeros(0)
        if len(self._kept):
            outputs = (weights * self._kept[np.where(inside, inputs - self._first, 0)]).sum(axis=1)
        self._outputs_given += len(at)
        unneeded = max(0, -((self._half - self._outputs_given * self._down) // self._up) - self._first)
        self._kept, self._first = self._kept[unneeded:], self._first + min(unneeded, len(self._kept))
        return np.asarray(outputs)


def describe_engine() -> str:
    """Return the name and version of the library that computes the features; another may differ in the last digits."""
    return f"kaldi-native-fbank {_import_engine().__version__}"


def _check_sample_rates(*sample_rates: int) -> None:
    low, high = SAMPLE_RATES
    for sample_rate in sample_rates:
        if not low <= sample_rate <= high:
            raise ValueError(f"the sample rate is {sample_rate} Hz, expected {low} to {high} Hz")


def _import_engine() -> Any:
    return require("kaldi_native_fbank", extra="experiments", purpose="computing the features of speech")


def _scale(samples: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"samples must be floating point of shape (n,), got {samples.dtype} of {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite")
    return (samples * FULL_SCALE).astype(np.float32)


def _make_online_mfcc(settings: FeatureSettings) -> Any:
    knf = _import_engine()
    options = knf.MfccOptions()
    frame, mel = options.frame_opts, options.mel_opts
    frame.samp_freq, frame.frame_length_ms, frame.frame_shift_ms = settings.rate, settings.window, settings.step
    frame.preemph_coeff, frame.dither, frame.window_type = settings.preemphasis, 0.0, "hamming"
    mel.num_bins, mel.low_freq, mel.high_freq = settings.filters, 0.0, settings.high
    # no filter has an energy below 1
    mel.htk_mode = True
    # the log energy replaces the zeroth coefficient and goes last
    options.num_ceps, options.use_energy, options.raw_energy, options.htk_compat = settings.channels, True, True, True
    options.cepstral_lifter, options.energy_floor = settings.lifter, 1.0
    return knf.OnlineMfcc(options)
