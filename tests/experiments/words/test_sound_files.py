"""Sound files: decoded as libsndfile decodes them, and refused if they are cut short or damaged."""

import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from support.sound_files import SAMPLE_RATE, encode_sphere, make_voice, write_flac_without_count, write_sound

from cwrnn.experiments.words import sound_files
from cwrnn.experiments.words.features import FeatureSettings
from cwrnn.experiments.words.sound_files import LONGEST_WORD, LOUDEST, SoundError, decode_sound, extract_features


@pytest.mark.parametrize("kind", ["flac", "ogg", "wav"])
@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_file_that_ends_early_is_refused(tmp_path, kind, part):
    path = write_sound(tmp_path / f"a.{kind}", make_voice(1, 60_000), format=kind.upper())
    decode_sound(path.read_bytes())
    with pytest.raises(SoundError, match="truncated|ends or breaks off|lost sync"):
        decode_sound(path.read_bytes()[: int(path.stat().st_size * part)])


def test_ogg_file_without_its_last_page_is_refused(tmp_path):
    data = write_sound(tmp_path / "a.ogg", make_voice(1, 60_000), format="OGG").read_bytes()
    with pytest.raises(SoundError, match="truncated: the last page is missing"):
        decode_sound(data[: data.rfind(b"OggS")])


def test_ogg_file_with_other_bytes_between_its_pages_is_refused(tmp_path, monkeypatch):
    """libsndfile would search in these bytes, which takes seconds for a megabyte."""
    data = write_sound(tmp_path / "a.ogg", make_voice(1, 60_000), format="OGG").read_bytes()
    assert len(decode_sound(data + b"a tag at the end")[1]) == 60_000
    monkeypatch.setattr(sound_files, "require", None)
    second = data.find(b"OggS", 1)
    for junk in (b"OggS" * 1000, b"x" * 1000):
        with pytest.raises(SoundError, match="other bytes between the pages|the last page is missing"):
            decode_sound(data[:second] + junk + data[second:])


@pytest.mark.parametrize("kind", ["AIFF", "AU", "CAF", "MP3", "RF64", "W64"])
def test_formats_whose_end_cannot_be_checked_are_refused(tmp_path, kind):
    if kind not in soundfile.available_formats():
        pytest.skip("not here")
    data = write_sound(tmp_path / "a", make_voice(1, 60_000), format=kind).read_bytes()
    with pytest.raises(SoundError, match=f"the format is {kind}, expected WAV, FLAC, OGG or SPHERE"):
        decode_sound(data)


@pytest.mark.parametrize("options", [{"format": "WAVEX"}, {"format": "WAV", "endian": "BIG"}])
def test_wavex_and_big_endian_wav_are_read(tmp_path, options):
    data = write_sound(tmp_path / "a", make_voice(1), subtype="PCM_16", **options).read_bytes()
    assert len(decode_sound(data)[1]) == 4800
    with pytest.raises(SoundError, match="truncated: the header promises 9600 bytes of sound"):
        decode_sound(data[:5000])


def test_wav_chunk_of_odd_size_is_padded_by_one_byte(tmp_path):
    data = write_sound(tmp_path / "a.wav", make_voice(1)).read_bytes()
    data = data[:36] + b"note" + struct.pack("<I", 3) + b"abc\0" + data[36:]
    assert len(decode_sound(data)[1]) == 4800
    with pytest.raises(SoundError, match="truncated: the header promises 9600 bytes of sound, the file has 9599"):
        decode_sound(data[:-1])


def test_wav_file_from_a_pipe_has_no_size(tmp_path):
    """The header was written before the length was known."""
    data = bytearray(write_sound(tmp_path / "a.wav", make_voice(1)).read_bytes())
    for size in (0xFFFFFFFF, 0x7FFFFFFF):
        struct.pack_into("<I", data, 40, size)
        rate, samples = decode_sound(bytes(data))
        assert (rate, len(samples)) == (SAMPLE_RATE, 4800)


@pytest.mark.parametrize("samples", [5000, 65536, 150_000])
def test_flac_file_without_a_sample_count_is_read_to_its_end(tmp_path, samples):
    expected, _ = soundfile.read(write_sound(tmp_path / "a.flac", make_voice(1, samples)))
    data = write_flac_without_count(tmp_path / "a.flac", make_voice(1, samples))
    rate, found = decode_sound(data)
    assert rate == SAMPLE_RATE
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(SoundError, match="not a sound file that can be read"):
        decode_sound(data[: len(data) * 9 // 10])


@pytest.mark.parametrize("order", ["01", "10"])
def test_sphere_is_read_in_both_byte_orders(order):
    rate, samples = decode_sound(encode_sphere(make_voice(1), order=order))
    assert rate == SAMPLE_RATE
    np.testing.assert_allclose(samples, make_voice(1), atol=1 / 32768)


def test_sphere_is_read_as_libsndfile_reads_it(tmp_path):
    (tmp_path / "a.sph").write_bytes(encode_sphere(make_voice(1)))
    expected, rate = soundfile.read(tmp_path / "a.sph")
    assert rate == SAMPLE_RATE
    np.testing.assert_array_equal(decode_sound(encode_sphere(make_voice(1)))[1], expected)


def test_sphere_channels_are_mixed():
    _, samples = decode_sound(encode_sphere(np.stack([make_voice(1), make_voice(2)], axis=1)))
    np.testing.assert_allclose(samples, (make_voice(1) + make_voice(2)) / 2, atol=1 / 32768)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode_sphere(make_voice(1), count=4801), "truncated: the header promises 4801 samples, the file has 4800"),
        (encode_sphere(make_voice(1))[:1000], "truncated: the SPHERE header is not complete"),
        (b"NIST_1A\nnonsense", "truncated: the SPHERE header is not complete"),
        (
            encode_sphere(make_voice(1), coding="pcm,embedded-shorten-v2.00"),
            "shorten: convert it with the tool sph2pipe",
        ),
        (encode_sphere([])[:1024] + b"ajkg\x02", "shorten: convert it with the tool sph2pipe"),
        (
            encode_sphere(make_voice(1), coding="ulaw"),
            "SPHERE of 2 bytes per sample, coded ulaw: expected 2 bytes, coded pcm",
        ),
        (encode_sphere(make_voice(1), **{"sample_n_bytes -i": 1}), "SPHERE of 1 bytes per sample"),
        (encode_sphere(make_voice(1), order="02"), "the SPHERE header is invalid"),
        (encode_sphere(make_voice(1), count="many"), "the SPHERE header is invalid"),
        (encode_sphere(make_voice(1), count=-1), "the SPHERE header is invalid"),
        (
            encode_sphere(make_voice(1)).replace(b"sample_rate", b"sample_pace"),
            "the SPHERE header is invalid .*sample_rate",
        ),
        (encode_sphere([]), "the file has no samples"),
    ],
)
def test_bad_sphere_is_refused(data, message):
    with pytest.raises(SoundError, match=message):
        decode_sound(data)


@pytest.mark.parametrize(
    "header",
    [
        b"a -i " + b" " * 60_000,
        b"sample_count -i 1" + b" " * 60_000 + b"x",
        b"a" * 60_000,
        b"\n" * 60_000,
        b"sample_rate -i " + b"9" * 60_000 + b"\nsample_n_bytes -i 2",
        b"sample_n_bytes -i 2\nsample_rate -i 16000\nsample_count -i 1_0\n",
        b"sample_n_bytes -i 2\nsample_rate -i 16000\nsample_count -i 1\nchannel_count -i 0\n",
        b"sample_n_bytes -i 2\nsample_rate -i 16000\nsample_count -i 1\nchannel_count -i " + b"9" * 18,
    ],
)
def test_sphere_header_that_never_ends_is_refused(header):
    with pytest.raises(SoundError, match="SPHERE|truncated"):
        decode_sound(b"NIST_1A\n  65536\n" + header.ljust(70_000) + bytes(100))


def test_long_sphere_header_is_refused_unread(monkeypatch):
    """The size of the header is bounded, and its lines are split once: a pattern took quadratic time."""
    monkeypatch.setattr(sound_files, "_parse_sphere_header", None)
    with pytest.raises(SoundError, match="truncated: the SPHERE header is not complete"):
        decode_sound(b"NIST_1A\n1000000\n" + b"a -i " + b" " * 1_100_000)


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "has samples that are not finite: sample 4321 is nan"),
        (-np.inf, "has samples that are not finite: sample 4321 is -inf"),
        (1e30, r"has samples that are too large: sample 4321 is 1e\+30, but full scale is 1"),
        (-3e9, r"has samples that are too large: sample 4321 is -3e\+09, but full scale is 1"),
    ],
)
def test_sample_that_cannot_be_used_is_named(tmp_path, subtype, value, message):
    samples = np.stack([make_voice(1), make_voice(2)], axis=1)
    samples[4321, 1] = value
    data = write_sound(tmp_path / "a.wav", samples, subtype=subtype).read_bytes()
    with pytest.raises(SoundError, match=message):
        decode_sound(data)


def test_float_file_that_is_not_scaled_is_read(tmp_path):
    samples = 32768.0 * make_voice(1)
    data = write_sound(tmp_path / "a.wav", samples, subtype="DOUBLE").read_bytes()
    np.testing.assert_array_equal(decode_sound(data)[1], samples)
    features = extract_features(samples, SAMPLE_RATE, FeatureSettings())
    assert np.isfinite(features).all()
    assert np.isfinite(extract_features(LOUDEST * np.sign(samples), SAMPLE_RATE, FeatureSettings())).all()


@pytest.mark.parametrize("count", ["known", "unknown"])
def test_small_file_of_a_very_long_sound_is_refused(tmp_path, monkeypatch, count):
    monkeypatch.setattr(sound_files, "LONGEST_SOUND", 100_000)
    path, silence = tmp_path / "a.flac", np.zeros(200_000)
    if count == "known":
        data = write_sound(path, silence, format="FLAC").read_bytes()
    else:
        data = write_flac_without_count(path, silence)
    assert len(data) < 6000
    with pytest.raises(SoundError, match="too long: .*a file of this size may have 100000 at most, 6.25 s at 16000"):
        decode_sound(data)
    monkeypatch.setattr(sound_files, "SAMPLES_PER_BYTE", 1000)
    assert len(decode_sound(data)[1]) == 200_000


def test_long_sound_is_mixed_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(sound_files, "LONGEST_SOUND", 1000)
    samples = np.stack([make_voice(1, 70_000), make_voice(2, 70_000)], axis=1)
    data = write_sound(tmp_path / "a.wav", samples, subtype="DOUBLE").read_bytes()
    np.testing.assert_array_equal(decode_sound(data)[1], samples.mean(axis=1))
    samples[66_000, 0] = np.nan
    data = write_sound(tmp_path / "a.wav", samples, subtype="DOUBLE").read_bytes()
    with pytest.raises(SoundError, match="sample 66000 is nan"):
        decode_sound(data)


def test_sound_that_is_too_long_for_a_word_is_refused():
    settings = FeatureSettings()
    samples = np.zeros(LONGEST_WORD + 1)
    message = "too long for a word: 4 min at 16000 Hz; expected at most 4194304 samples, 4 min at 16000 Hz"
    with pytest.raises(SoundError, match=message):
        extract_features(samples, 16000, settings)
    # at a higher rate it has as many samples as the features need
    with pytest.raises(SoundError, match="too long for a word"):
        extract_features(samples[: LONGEST_WORD // 2 + 1], 8000, settings)
    # a frame for every sample
    with pytest.raises(SoundError, match="fewer if the frames of the features are close together"):
        extract_features(samples[: LONGEST_WORD // 20], 16000, FeatureSettings(step=0.0625))


def test_flac_file_with_a_tag_before_it_is_read(tmp_path):
    data = write_sound(tmp_path / "a.flac", make_voice(1)).read_bytes()
    tagged = b"ID3\x04\0\0" + bytes([0, 0, 1, 2]) + bytes(130) + data
    np.testing.assert_array_equal(decode_sound(tagged)[1], decode_sound(data)[1])
    for bad in (b"ID3", b"ID3\x04\0\0" + b"\xff" * 4 + data):
        with pytest.raises(SoundError, match="not a sound file that can be read"):
            decode_sound(bad)


def test_libsndfile_sees_no_format_that_is_not_read(tmp_path, monkeypatch):
    """Its readers of other formats print to standard output."""
    monkeypatch.setattr(sound_files, "require", None)
    for kind in ("AIFF", "AU", "AVR", "CAF", "HTK", "IRCAM", "MAT5", "PAF", "PVF", "RF64", "SDS", "SVX", "VOC", "W64"):
        data = write_sound(tmp_path / "a", make_voice(1), format=kind, subtype="PCM_16").read_bytes()
        with pytest.raises(SoundError, match="the format is|not a sound file that can be read"):
            decode_sound(data)


@given(
    st.sampled_from(["sphere", "RIFF", "RIFX", "NIST_1A\n", "OggS", "fLaC", ""]),
    st.binary(max_size=200),
    st.integers(0),
)
def test_any_bytes_are_a_sound_or_a_sound_error(kind, data, place):
    whole = bytearray(encode_sphere(make_voice(1, 100)) if kind == "sphere" else kind.encode() + data)
    if kind == "sphere":
        place %= len(whole)
        whole[place : place + len(data)] = data
    try:
        _, samples = decode_sound(bytes(whole))
    except SoundError:
        return
    assert samples.ndim == 1
    assert np.isfinite(samples).all()
