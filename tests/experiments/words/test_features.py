"""The features match their definition, and a stream of chunks gives the features of the whole."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwrnn.experiments.words.features import (
    FeatureSettings,
    FeatureStream,
    Resampler,
    mel_frequency,
    mel_spectrogram,
    mfcc,
    resample,
)
from cwrnn.experiments.words.recogniser.model import _check_feature_settings
from cwrnn.saved import ModelError


def make_sound(samples=8000, seed=0, sample_rate=16000):
    """Return a tone that rises, in noise."""
    times = np.arange(samples) / sample_rate
    noise = np.random.default_rng(seed).normal(0, 0.02, samples)
    return 0.3 * np.sin(2 * np.pi * (200 + 800 * times) * times) + noise


def convert_to_mel(hertz):
    return 1127 * np.log(1 + hertz / 700)


def compute_by_definition(samples, settings):
    """Return the features as they are defined, in float64: frame by frame, filter by filter."""
    size, step = round(settings.rate * settings.window / 1000), round(settings.rate * settings.step / 1000)
    points = 2 ** int(np.ceil(np.log2(size)))
    window = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(size) / (size - 1))
    edges = np.linspace(0, convert_to_mel(settings.high), settings.filters + 2)
    places = convert_to_mel(np.arange(points // 2) * settings.rate / points)
    filters = np.array(
        [
            np.clip(np.minimum((places - a) / (b - a), (c - places) / (c - b)), 0, None)
            for a, b, c in zip(edges, edges[1:], edges[2:], strict=False)
        ]
    )
    frames = []
    for start in range(0, len(samples) - size + 1, step):
        frame = samples[start : start + size] * 32768
        frame = frame - frame.mean()
        energy = np.log(max(frame @ frame, 1.0))
        frame = frame - settings.preemphasis * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(frame * window, points))[:-1] ** 2
        logs = np.log(np.maximum(filters @ power, 1.0))
        row = []
        for k in range(1, settings.cepstra + 1):
            cosine = np.cos(np.pi * k * (np.arange(settings.filters) + 0.5) / settings.filters)
            lift = 1 + settings.lifter / 2 * np.sin(np.pi * k / settings.lifter) if settings.lifter else 1
            row.append(np.sqrt(2 / settings.filters) * lift * (logs @ cosine))
        frames.append([*row, energy])
    return np.array(frames).reshape(-1, settings.channels)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rate": 8000, "high": 4000.0},
        {"window": 32.0, "step": 16.0, "preemphasis": 0.0},
        {"filters": 20, "cepstra": 8, "lifter": 0.0, "high": 6000.0},
    ],
)
def test_features_match_their_definition(changes):
    settings = replace(FeatureSettings(), **changes)
    found = mfcc(make_sound(), settings)
    expected = compute_by_definition(make_sound(), settings)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=1e-5)


def test_default_settings_are_the_papers():
    assert asdict(FeatureSettings()) == {
        "rate": 16000,
        "window": 25.0,
        "step": 10.0,
        "preemphasis": 0.97,
        "cepstra": 12,
        "filters": 26,
        "lifter": 22.0,
        "high": 8000.0,
    }
    # 25 ms every 10 ms
    assert [len(mfcc(make_sound(n))) for n in (0, 399, 400, 559, 560, 16000)] == [0, 0, 1, 1, 2, 98]


def test_log_energy_is_last():
    quiet, loud = mfcc(make_sound()), mfcc(2 * make_sound())
    np.testing.assert_allclose(loud[:, 12] - quiet[:, 12], np.log(4), atol=1e-3)
    np.testing.assert_allclose(loud[:, :12], quiet[:, :12], atol=0.01)


def test_digital_silence_has_finite_features():
    np.testing.assert_array_equal(mfcc(np.zeros(400))[:, 12], 0)
    np.testing.assert_allclose(mfcc(np.full(400, 0.25)), 0, atol=1e-5)


def test_features_are_repeatable():
    np.testing.assert_array_equal(mfcc(make_sound()), mfcc(make_sound()))


@given(st.lists(st.integers(0, 900), max_size=12), st.sampled_from([0, 1, 399, 400, 3000, 5003]))
def test_stream_gives_the_features_of_the_whole(sizes, total):
    whole = make_sound(total)
    stream = FeatureStream()
    parts = [stream.accept(part) for part in np.split(whole, np.minimum(np.cumsum(sizes, dtype=int), total))]
    parts.append(stream.finish())
    np.testing.assert_array_equal(np.concatenate(parts), mfcc(whole))


def test_stream_returns_a_frame_with_its_last_sample():
    stream = FeatureStream()
    assert len(stream.accept(make_sound(399))) == 0
    assert len(stream.accept(make_sound(1))) == 1


def test_finished_stream_takes_no_more_samples():
    stream = FeatureStream()
    stream.finish()
    with pytest.raises(ValueError, match="this stream is finished"):
        stream.accept(make_sound(400))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(400, dtype=np.int16), r"floating point of shape \(n,\), got int16"),
        (np.zeros((400, 2)), r"got float64 of \(400, 2\)"),
        (np.full(400, np.nan), "must be finite"),
        (np.full(400, -np.inf), "must be finite"),
    ],
)
def test_bad_samples_are_refused(samples, message):
    with pytest.raises(ValueError, match=message):
        mfcc(samples)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate": 7999}, "rate must be from 8000 to 192000 Hz, got 7999"),
        ({"rate": 200_000}, "got 200000"),
        ({"step": 0.0}, "step=0.0"),
        ({"step": 26.0}, "step <= window"),
        ({"step": 0.05}, r"step must be at least one sample, 0\.0625 ms, got 0\.05"),
        ({"window": float("nan")}, "window=nan"),
        ({"preemphasis": 1.5}, "got 1.5"),
        ({"cepstra": 26}, "cepstra=26, filters=26"),
        ({"cepstra": 0}, "cepstra=0"),
        ({"lifter": -1.0}, "lifter must be"),
        ({"high": 8001.0}, "at most 8000 Hz"),
        ({"high": 0.0}, "got 0.0"),
        ({"filters": 200}, r"200 filters up to 8000 Hz are too many for frequencies 31.25 Hz apart"),
    ],
)
def test_bad_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(FeatureSettings(), **changes)


@pytest.mark.parametrize("rate", [16000, 22050, 44100])
def test_step_may_be_one_sample(rate):
    settings = FeatureSettings(rate=rate, step=1000 / rate)
    assert len(mfcc(make_sound()[: settings.shortest + 9], settings)) == 10


def test_model_with_a_step_below_one_sample_is_refused():
    """The library that computes the features would end the process."""
    with pytest.raises(ModelError, match="the feature settings cannot be used: step must be at least one sample"):
        _check_feature_settings({**asdict(FeatureSettings()), "step": 0.05})


@pytest.mark.parametrize("sample_rate", [8000, 11025, 22050, 44100, 48000])
def test_resampled_tone_is_the_same_tone(sample_rate):
    """The ends are left out, because there the filter reaches beyond the sound."""
    times = np.arange(sample_rate // 2) / sample_rate
    found = resample(np.sin(2 * np.pi * 440 * times), sample_rate, 16000)
    expected = np.sin(2 * np.pi * 440 * np.arange(8000) / 16000)
    assert len(found) == len(expected)
    np.testing.assert_allclose(found[500:-500], expected[500:-500], atol=0.01)


def test_resampling_to_the_same_rate_changes_nothing():
    np.testing.assert_array_equal(resample(make_sound(), 16000, 16000), make_sound())


@pytest.mark.parametrize(("rate", "to"), [(4000, 16000), (16000, 4000), (1_000_000, 16000)])
def test_sample_rates_out_of_range_are_refused(rate, to):
    with pytest.raises(ValueError, match=r"the sample rate is (4000|1000000) Hz, expected 8000 to 192000 Hz"):
        resample(make_sound(), rate, to)


@pytest.mark.parametrize("changes", [{}, {"lifter": 0.0}, {"filters": 20, "cepstra": 10}])
def test_spectrogram_has_the_cepstra_of_the_features(changes):
    fft = pytest.importorskip("scipy.fft")
    settings = replace(FeatureSettings(), **changes)
    features = mfcc(make_sound(), settings)
    spectrogram = mel_spectrogram(features, settings)
    assert spectrogram.shape == (len(features), settings.filters)
    # the orthogonal cosine transform, and HTK's lifter
    order = np.arange(1, settings.cepstra + 1)
    lifter = 1 + settings.lifter / 2 * np.sin(np.pi * order / settings.lifter) if settings.lifter else 1
    cepstra = fft.dct(spectrogram, norm="ortho")
    np.testing.assert_allclose(lifter * cepstra[:, 1 : settings.cepstra + 1], features[:, :-1], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(cepstra[:, settings.cepstra + 1 :], 0, atol=1e-9)
    np.testing.assert_allclose(spectrogram.mean(axis=1), features[:, -1], rtol=1e-6)


@pytest.mark.parametrize("hertz", [300.0, 1000.0, 3000.0])
def test_spectrogram_shows_a_tone_at_its_frequency(hertz):
    tone = 0.5 * np.sin(2 * np.pi * hertz * np.arange(8000) / 16000)
    loudest = mel_spectrogram(mfcc(tone)).mean(axis=0).argmax()
    centres = mel_frequency(np.arange(26))
    assert loudest == abs(centres - hertz).argmin()
    np.testing.assert_allclose(np.diff(convert_to_mel(centres)), convert_to_mel(8000) / 27)


def test_resampler_gives_the_samples_of_the_whole():
    random = np.random.default_rng(0)
    for rate in (8000, 11025, 16000, 44100, 48000):
        for length in (0, 1, 17, 3000):
            samples = random.normal(size=length)
            resampler, found, start = Resampler(rate, 16000), [], 0
            while start < length:
                end = start + int(random.integers(0, 400))
                found.append(resampler.accept(samples[start:end]))
                start = end
            found = np.concatenate([*found, resampler.finish()])
            expected = resample(samples, rate, 16000) if length else samples
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="the sample rate is 1 Hz"):
        Resampler(1, 16000)
