"""Recognising files and streams from Python."""

import io

import numpy as np
import pytest
from support.sound_files import make_voice

from cwrnn.experiments import recognise, recognise_stream
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.words.sound_files import SoundError, decode_sound
from cwrnn.saved import ModelError


def encode_pcm(samples):
    return np.rint(samples * 32768).astype("<i2").tobytes()


def test_files_are_recognised_one_by_one(recogniser, recordings, tmp_path):
    files = [recordings / "yes" / "s0.wav", tmp_path / "nowhere.wav", recordings / "no" / "s1.wav"]
    results, reports = [], []
    recognition = recognise(recogniser, files, top=2, on_file=results.append, progress=reports.append)
    assert list(recognition.files) == results
    assert [(report.done, report.total) for report in reports] == [(1, 3), (2, 3), (3, 3)]
    sample_rate, samples = decode_sound(files[0].read_bytes())
    assert results[0].candidates == recogniser.recognise(samples, sample_rate)[:2]
    assert [each.file for each in recognition.failed] == [str(files[1])]
    assert recognition.to_dict()["files"][1] == {
        "file": str(files[1]),
        "error": "cannot be read: No such file or directory",
    }
    assert str(recognition).splitlines()[0].startswith(f"{files[0]}: {results[0].candidates[0][0]} ")


def test_model_and_file_may_be_paths_in_text(recogniser, recordings, tmp_path):
    recogniser.save(tmp_path / "model")
    file = recordings / "yes" / "s0.wav"
    assert recognise(str(tmp_path / "model"), str(file)) == recognise(recogniser, [file])


def test_file_that_is_no_model_is_an_error(recordings):
    with pytest.raises(ModelError, match="s0.wav: this is not a safetensors file"):
        recognise(recordings / "yes" / "s0.wav", [])


@pytest.mark.parametrize(
    "split",
    [
        lambda data: io.BytesIO(data),
        lambda data: [data[:1], data[1:2], data[2:4001], data[4001:]],
        lambda data: np.array_split(np.frombuffer(data, "<i2") / 32768, 7),
        lambda data: iter([data]),
    ],
    ids=["file", "bytes", "samples", "iterator"],
)
def test_every_kind_of_stream_decides_as_the_whole_sound(recogniser, split):
    data = encode_pcm(make_voice(9))
    decisions = []
    result = recognise_stream(recogniser, split(data), on_decisions=decisions.extend)
    expected = recogniser.recognise(np.frombuffer(data, "<i2") / 32768, 16000)
    assert [word for word, _ in result.decision.candidates] == [word for word, _ in expected]
    np.testing.assert_allclose([p for _, p in result.decision.candidates], [p for _, p in expected], rtol=1e-5)
    assert result.decision == decisions[-1]
    assert result.seconds == 0.3
    assert not result.is_cut
    assert str(result).endswith("in the end")
    assert result.to_dict()["words"][0] == {"word": result.decision.word, "probability": result.decision.probability}


def test_odd_byte_at_the_end_is_left_out(recogniser):
    data = encode_pcm(make_voice(9))
    result = recognise_stream(recogniser, [data, b"x"])
    assert result.is_cut
    assert result.decision == recognise_stream(recogniser, [data]).decision


def test_bad_streams_are_refused(recogniser):
    with pytest.raises(SoundError, match="too short: 10 ms, expected at least one window of 25 ms"):
        recognise_stream(recogniser, [np.zeros(160)])
    with pytest.raises(SoundError, match="this is a sound file, but a stream must be raw samples"):
        recognise_stream(recogniser, [b"RIFF" + bytes(5000)])
    with pytest.raises(ArgumentError, match="sample_rate: expected 8000 to 192000 Hz, got 4000"):
        recognise_stream(recogniser, [], sample_rate=4000)
    with pytest.raises(ArgumentError, match="top: expected at least 1, got 0"):
        recognise_stream(recogniser, [], top=0)
