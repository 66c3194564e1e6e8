"""Features: what a network hears of a spoken word, 13 numbers every 10 ms.

    samples -> 25 ms windows, every 10 ms -> 12 mel-frequency cepstral coefficients and the log energy

The paper (section 4.2) gives the two times, the pre-emphasis of 0.97 and the 13 channels, and leaves the rest open. The
rest is as HTK has it, whose numbers these were: Hamming window, 26 triangular filters that are evenly spaced in mel,
lifter 22, and the log energy last, taken before pre-emphasis and window. Samples count as 16-bit integers do, and no
energy counts less than 1, so that digital silence is merely quiet. Two things are Kaldi's: filters add up powers, not
magnitudes, and each window loses its mean. Nothing is dithered: the same samples give the same numbers.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require

RATES = (8000, 192_000)
"""The lowest and the highest rate that are resampled: below, most of what tells consonants apart is gone."""

FULL_SCALE = 32768.0
"""What a sample of 1.0 counts: 16-bit integers, as HTK reads them."""


@dataclass(frozen=True)
class FeatureSettings:
    """All that decides the numbers.

    >>> FeatureSettings().channels
    13
    """

    rate: int = 16000
    """Samples per second."""
    window: float = 25.0
    """Milliseconds that one frame sees."""
    step: float = 10.0
    """Milliseconds from one frame to the next."""
    preemphasis: float = 0.97
    cepstra: int = 12
    filters: int = 26
    lifter: float = 22.0
    high: float = 8000.0
    """Hertz: where the last filter ends; the first begins at 0."""

    def __post_init__(self) -> None:
        low, high = RATES
        if not low <= self.rate <= high:
            raise ValueError(f"rate must be from {low} to {high} Hz, got {self.rate}")
        if not 0 < self.step <= self.window <= 1000:
            raise ValueError(f"expected 0 < step <= window <= 1000 ms, got step={self.step}, window={self.window}")
        if self.rate * self.step < 1000:
            raise ValueError(f"step must be at least one sample, {1000 / self.rate:g} ms, got {self.step}")
        if not 0 <= self.preemphasis <= 1:
            raise ValueError(f"preemphasis must be from 0 to 1, got {self.preemphasis}")
        if not 1 <= self.cepstra < self.filters:
            raise ValueError(f"expected 1 <= cepstra < filters, got cepstra={self.cepstra}, filters={self.filters}")
        if not 0 <= self.lifter < math.inf:
            raise ValueError(f"lifter must be 0 (none) or more, got {self.lifter}")
        if not 0 < self.high <= self.rate / 2:
            raise ValueError(f"high must be above 0 and at most {self.rate / 2:g} Hz, got {self.high}")
        # the transform is as long as the next power of two; the first filter is the narrowest
        apart = self.rate / 2 ** math.ceil(math.log2(self.shortest))
        mels = 1127 * math.log1p(self.high / 700)
        if not 700 * math.expm1(2 * mels / (self.filters + 1) / 1127) > apart:
            raise ValueError(
                f"{self.filters} filters up to {self.high:g} Hz are too many for frequencies {apart:g} Hz apart"
            )

    @property
    def channels(self) -> int:
        """The numbers in a frame: the cepstra, and the energy."""
        return self.cepstra + 1

    @property
    def shortest(self) -> int:
        """The samples of one window: fewer make no frame."""
        return int(self.rate * self.window / 1000)


class Stream:
    """The frames of a sound as it comes in: the same as `mfcc` of all of it, however it is cut.

    >>> stream, sound = Stream(), np.sin(np.arange(800) / 5)
    >>> [stream.accept(sound[:300]).shape, stream.accept(sound[300:]).shape, stream.finish().shape]
    [(0, 13), (3, 13), (0, 13)]
    """

    def __init__(self, settings: FeatureSettings | None = None) -> None:
        self.settings = settings or FeatureSettings()
        self._online = _online(self.settings)
        self._given = 0
        self._finished = False

    def accept(self, samples: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
        """The frames that `samples` complete, (n, 13).

        Args:
            samples: (n,), floating point in [-1, 1], at the rate of the settings
        """
        if self._finished:
            raise ValueError("this stream is finished: make another for the next sound")
        # a list crosses over faster than an array
        self._online.accept_waveform(self.settings.rate, _checked(samples).tolist())
        return self._new()

    def finish(self) -> NDArray[np.float32]:
        """The frames that the end of the sound completes: none, for a frame is a whole window; then nothing follows."""
        self._finished = True
        self._online.input_finished()
        return self._new()

    def _new(self) -> NDArray[np.float32]:
        ready = self._online.num_frames_ready
        # copies: the next line frees what they are views of, for a stream may go on for ever
        frames = [self._online.get_frame(i).copy() for i in range(self._given, ready)]
        self._online.pop(ready - self._given)
        self._given = ready
        return np.array(frames, dtype=np.float32).reshape(-1, self.settings.channels)


def mfcc(samples: NDArray[np.floating[Any]], settings: FeatureSettings | None = None) -> NDArray[np.float32]:
    """The frames of a whole sound, (T, 13): cepstra 1 to 12, then the log energy.

    T = 1 + (n - 400) // 160 for n samples at 16 kHz; a sound shorter than a window has no frame.

    Args:
        samples: (n,), floating point in [-1, 1], at the rate of the settings

    >>> mfcc(np.sin(np.arange(16000) / 5)).shape
    (98, 13)
    """
    return Stream(settings).accept(samples)


def mel_spectrogram(
    features: NDArray[np.floating[Any]], settings: FeatureSettings | None = None
) -> NDArray[np.float64]:
    """What the frames (T, 13) tell of the logarithms of the mel filters' energies, (T, 26): a smoothed spectrogram.

    The cepstra are turned back, without the finer detail that they have lost; the level, which they do not tell, is
    that of the log energy, but for a constant.

    >>> mel_spectrogram(mfcc(np.sin(np.arange(16000) / 5))).argmax(axis=1)[:3]
    array([5, 5, 5])
    """
    settings = settings or FeatureSettings()
    order = np.arange(1, settings.cepstra + 1)
    lifter = 1 + settings.lifter / 2 * np.sin(np.pi * order / settings.lifter) if settings.lifter else 1.0
    filters = np.arange(settings.filters) + 0.5
    waves = np.sqrt(2 / settings.filters) * np.cos(np.pi / settings.filters * np.outer(order, filters))
    found: NDArray[np.float64] = (features[:, :-1] / lifter) @ waves + features[:, -1:]
    return found


def mel_frequency(filter: NDArray[np.integer[Any]] | int, settings: FeatureSettings | None = None) -> Any:
    """The Hertz at the centre of a filter, by its number from 0 on.

    >>> [round(float(mel_frequency(number))) for number in (0, 12, 25)]
    [68, 1655, 7225]
    """
    settings = settings or FeatureSettings()
    mels = 1127 * math.log1p(settings.high / 700)
    return 700 * np.expm1((np.asarray(filter) + 1) * mels / (settings.filters + 1) / 1127)


def resample(samples: NDArray[np.floating[Any]], rate: int, to: int) -> NDArray[np.float64]:
    """`samples` at the rate `to` instead of `rate`; rates outside of RATES are refused.

    >>> resample(np.zeros(441), 44100, 16000).shape
    (160,)
    """
    _check_rates(rate, to)
    if rate == to:
        return np.asarray(samples, dtype=np.float64)
    signal = require("scipy.signal", extra="experiments", purpose="resampling")
    common = math.gcd(rate, to)
    result: NDArray[np.float64] = signal.resample_poly(
        np.asarray(samples, dtype=np.float64), to // common, rate // common
    )
    return result


class Resampler:
    """The samples of a sound at another rate as it comes in: the same as `resample` of all of it, however it is cut.

    >>> resampler = Resampler(44100, 16000)
    >>> [len(resampler.accept(np.zeros(300))), len(resampler.accept(np.zeros(141))), len(resampler.finish())]
    [99, 51, 10]
    """

    def __init__(self, rate: int, to: int) -> None:
        _check_rates(rate, to)
        common = math.gcd(rate, to)
        self._up, self._down = to // common, rate // common
        # the filter of scipy.signal.resample_poly: output m is the sum over n of filter[half + m down - n up] input[n]
        slower = max(self._up, self._down)
        self._half = 10 * slower if rate != to else 0
        self._filter = np.ones(1)
        if self._half:
            signal = require("scipy.signal", extra="experiments", purpose="resampling")
            self._filter = self._up * signal.firwin(2 * self._half + 1, 1 / slower, window=("kaiser", 5.0))
        self._kept = np.zeros(0)
        self._first = 0
        """The number of the first sample that is kept."""
        self._given = 0

    def accept(self, samples: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """The samples at the new rate that `samples`, (n,), complete."""
        self._kept = np.concatenate([self._kept, np.asarray(samples, dtype=np.float64)])
        # the last output that hears no sample beyond those that are there
        return self._until(((self._first + len(self._kept) - 1) * self._up - self._half) // self._down + 1)

    def finish(self) -> NDArray[np.float64]:
        """The samples that the end of the sound completes: silence follows it."""
        return self._until(-(-(self._first + len(self._kept)) * self._up // self._down))

    def _until(self, end: int) -> NDArray[np.float64]:
        number = np.arange(self._given, max(end, self._given)) * self._down
        heard = -((self._half - number) // self._up)[:, None] + np.arange(2 * self._half // self._up + 1)
        place = self._half + number[:, None] - heard * self._up
        inside = (place >= 0) & (heard >= self._first) & (heard < self._first + len(self._kept))
        # what is outside counts nothing, wherever it is looked up
        weights = np.where(inside, self._filter[np.where(inside, place, 0)], 0.0)
        found = np.zeros(0)
        if len(self._kept):
            found = (weights * self._kept[np.where(inside, heard - self._first, 0)]).sum(axis=1)
        self._given += len(number)
        over = max(0, -((self._half - self._given * self._down) // self._up) - self._first)
        self._kept, self._first = self._kept[over:], self._first + min(over, len(self._kept))
        return np.asarray(found)


def engine() -> str:
    """What computes the features, and its version: another may give other last digits."""
    return f"kaldi-native-fbank {_engine().__version__}"


def _check_rates(*rates: int) -> None:
    low, high = RATES
    for rate in rates:
        if not low <= rate <= high:
            raise ValueError(f"the rate is {rate} Hz, and must be from {low} to {high} Hz")


def _engine() -> Any:
    return require("kaldi_native_fbank", extra="experiments", purpose="computing the features of speech")


def _checked(samples: NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    if samples.ndim != 1 or not np.issubdtype(samples.dtype, np.floating):
        raise ValueError(f"samples must be floating point of shape (n,), got {samples.dtype} of {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite")
    return (samples * FULL_SCALE).astype(np.float32)


def _online(settings: FeatureSettings) -> Any:
    knf = _engine()
    options = knf.MfccOptions()
    frame, mel = options.frame_opts, options.mel_opts
    frame.samp_freq, frame.frame_length_ms, frame.frame_shift_ms = settings.rate, settings.window, settings.step
    frame.preemph_coeff, frame.dither, frame.window_type = settings.preemphasis, 0.0, "hamming"
    mel.num_bins, mel.low_freq, mel.high_freq = settings.filters, 0.0, settings.high
    # no filter's energy below 1
    mel.htk_mode = True
    # the coefficients and, in the place of the zeroth, the log energy, which goes last
    options.num_ceps, options.use_energy, options.raw_energy, options.htk_compat = settings.channels, True, True, True
    options.cepstral_lifter, options.energy_floor = settings.lifter, 1.0
    return knf.OnlineMfcc(options)
