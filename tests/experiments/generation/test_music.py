"""Sound files become sequences of samples between -1 and 1."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from cwrnn.experiments.generation import music
from cwrnn.experiments.generation.music import MusicError

RATE = 16000


def tone(steps=1000, channels=1, rate=RATE):
    times = np.arange(steps) / rate
    return np.stack([0.3 * np.sin(2 * np.pi * (440 + 100 * c) * times) + 0.1 for c in range(channels)], axis=1)


def write(path, samples=None, rate=RATE, **options):
    soundfile.write(path, tone() if samples is None else samples, rate, **options)
    return path


def test_the_bundle_has_five_sequences_of_320_samples():
    found = music.load_sequences()
    assert [dataset.name for dataset in found] == [f"bundle{i}_sectoid_chaosland" for i in range(1, 6)]
    for dataset in found:
        assert dataset.samples.shape == (320,)
        assert dataset.samples.dtype == np.float64
        assert (dataset.samples.min(), dataset.samples.max()) == (-1.0, 1.0)
        assert dataset.rate == 44100
        assert dataset.source == f"the bundled snippet {dataset.name}.wav"
    assert len({dataset.digest for dataset in found}) == 5


def test_scaling_is_affine():
    signal = np.random.default_rng(0).normal(3.0, 0.1, size=50)
    values = music.scale(signal)
    assert (values.min(), values.max()) == (-1.0, 1.0)
    assert np.corrcoef(signal, values)[0, 1] == pytest.approx(1.0)
    for bad in (np.ones(4), np.array([0.0, np.nan])):
        with pytest.raises(ValueError, match="finite and not constant"):
            music.scale(bad)


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg", "a.WAV", "a.sound"])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_format_is_read_and_its_channels_are_averaged(tmp_path, name, channels):
    kind = {"flac": "FLAC", "ogg": "OGG"}.get(name[2:], "WAV")
    signal = tone(5000, channels)
    path = write(tmp_path / name, signal, format=kind)
    (found,) = music.load_sequences([path], offset=0.1, length=400)
    assert (found.name, found.rate, found.source) == ("a", RATE, f"{path}, from 0.1 s on")
    expected = music.scale(signal.mean(axis=1)[1600:2000])
    # Vorbis is lossy, and 16 bits round
    assert np.abs(found.samples - expected).max() < (0.1 if kind == "OGG" else 1e-3)


@pytest.mark.parametrize("rate", [8000, 44100, 96000])
def test_any_sample_rate_is_read(tmp_path, rate):
    (found,) = music.load_sequences([write(tmp_path / "a.wav", tone(2000, rate=rate), rate)], offset=0.01)
    assert found.rate == rate
    expected = music.scale(tone(2000, rate=rate)[:, 0][round(0.01 * rate) :][:320])
    assert np.abs(found.samples - expected).max() < 1e-3


def test_a_folder_is_its_sounds_by_name(tmp_path):
    for name in ("c.wav", "a.flac", "B.ogg"):
        write(tmp_path / name)
    (tmp_path / "COPYRIGHT").write_text("mine")
    (tmp_path / "d.wav").mkdir()
    write(tmp_path / "d.wav" / "deep.wav")
    assert [dataset.name for dataset in music.load_sequences([tmp_path])] == ["B", "a", "c"]


def test_sources_keep_their_order(tmp_path):
    paths = [write(tmp_path / name) for name in ("z.wav", "a.wav")]
    assert [dataset.name for dataset in music.load_sequences([paths[0], "bundle", paths[1]])][::6] == ["z", "a"]


def test_a_file_may_be_exactly_long_enough(tmp_path):
    path = write(tmp_path / "a.wav", tone(500))
    assert len(music.load_sequences([path], length=500)[0].samples) == 500
    assert len(music.load_sequences([path], offset=100 / RATE, length=400)[0].samples) == 400


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (lambda path: write(path, tone(500)), {"length": 501}, "too short: 501 samples .* needed, 500 are there"),
        (lambda path: write(path, tone(500)), {"offset": 60.0}, "sample 960000.* needed, 0 are there"),
        (lambda path: path.write_text("no music at all"), {}, "not a sound file that can be read"),
        (lambda path: path.touch(), {}, "not a sound file that can be read"),
        (lambda path: write(path, np.zeros(500)), {}, "silent or constant"),
        (lambda path: write(path, np.full(500, 0.25)), {}, "silent or constant"),
        (lambda path: write(path, tone(500) * [[1, -1]]), {}, "silent or constant"),
        (lambda path: write(path, np.full(500, np.nan), subtype="FLOAT"), {}, "not finite"),
        (lambda path: write(path, np.full(500, np.inf), subtype="FLOAT"), {}, "not finite"),
        (lambda path: None, {}, "there is no such file or folder"),
        (lambda path: path.mkdir(), {}, "no sound in this folder"),
        (write, {"offset": -1.0}, "expected a number of seconds, 0 or more, got -1"),
        (write, {"offset": float("nan")}, "expected a number of seconds, 0 or more, got nan"),
        (lambda path: write(path, tone(500)), {"offset": 1e300}, r"\(sample 1.6e\+304\) are needed, 0 are there"),
        (lambda path: write(path, tone(500)), {"offset": 1e308}, "needed, 0 are there"),
        (write, {"length": 1}, "expected at least 2 samples, got 1"),
    ],
)
def test_a_file_that_cannot_be_learned_is_refused_with_the_reason(tmp_path, prepare, options, message):
    path = tmp_path / "a.wav"
    prepare(path)
    with pytest.raises(MusicError, match=message) as refused:
        music.load_sequences([path], **options)
    assert str(path) in str(refused.value) or refused.value.argument in ("offset", "length")


@pytest.mark.parametrize("kind", ["wav", "flac", "ogg"])
def test_a_truncated_file_is_refused(tmp_path, kind):
    """The header of the file promises more samples than there are."""
    path = write(tmp_path / f"a.{kind}", tone(60_000), format=kind.upper())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 4])
    with pytest.raises(MusicError, match=r"too short|not a sound file"):
        music.load_sequences([path], length=50_000)


def test_two_sequences_of_one_name_are_refused(tmp_path):
    (tmp_path / "b").mkdir()
    paths = [write(tmp_path / "a.wav"), write(tmp_path / "b" / "a.flac")]
    with pytest.raises(MusicError, match=r"two sequences have the name 'a': .*a\.wav and .*a\.flac"):
        music.load_sequences(paths)


def test_no_source_is_an_error():
    with pytest.raises(MusicError, match="no data"):
        music.load_sequences([])
    with pytest.raises(MusicError, match="expected a file, a folder or 'bundle', got ''"):
        music.load_sequences([""])


def test_a_path_that_is_too_long_is_an_error(tmp_path):
    """A name that is too long raises an OSError, as a folder without permission does."""
    with pytest.raises(MusicError, match=r"xxx: (cannot be read: File name too long|there is no such file)"):
        music.load_sequences([tmp_path / ("x" * 300)])


def test_a_file_that_is_no_sound_is_named_by_its_path(tmp_path):
    (tmp_path / "a.wav").write_text("no music at all")
    with pytest.raises(MusicError, match=r"a\.wav: not a sound file that can be read \(Format not recognised\.\)$"):
        music.load_sequences([tmp_path / "a.wav"])


def test_a_name_that_is_not_utf_8_is_shown_with_question_marks(tmp_path):
    path = tmp_path / os.fsdecode(b"bad\xff.wav")
    try:
        write(tmp_path / "good.wav").rename(path)
    except OSError:
        pytest.skip("no such names here")
    (found,) = music.load_sequences([path])
    assert (found.name, found.source) == ("bad?", f"{tmp_path}/bad?.wav")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error(tmp_path):
    path = write(tmp_path / "a.wav")
    path.chmod(0)
    with pytest.raises(MusicError, match="cannot be read: Permission denied"):
        music.load_sequences([path])


def test_a_source_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.wav")
    for path in (tmp_path / "pipe.wav", Path("/dev/zero")):
        with pytest.raises(MusicError, match="cannot be read: it is not a regular file"):
            music.read_sequence(path)
    with pytest.raises(MusicError, match="cannot be read: the name has a NUL byte"):
        music.read_sequence(tmp_path / "a\0b")


def test_a_header_that_promises_too_much_does_not_fill_the_memory(tmp_path):
    data = bytearray(write(tmp_path / "a.flac").read_bytes())
    # the number of samples has 36 bits
    data[21] |= 0x0F
    data[22:26] = b"\xff" * 4
    (tmp_path / "a.flac").write_bytes(data)
    assert len(music.read_sequence(tmp_path / "a.flac").samples) == 320
    with pytest.raises(MusicError, match="too short|not a sound file"):
        music.read_sequence(tmp_path / "a.flac", length=10**12)


def test_samples_that_cannot_be_scaled_are_refused(tmp_path):
    loud = tone()
    loud[3], loud[4] = 1e308, -1e308
    with pytest.raises(MusicError, match=r"has samples above 1e\+300 in this part"):
        music.read_sequence(write(tmp_path / "a.wav", loud, subtype="DOUBLE"))
