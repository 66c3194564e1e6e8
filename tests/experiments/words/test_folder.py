"""Folders of recordings and manifests: what they mean, and one report of everything that is wrong with them."""

import os

import numpy as np
import pytest
import soundfile
from support.sound_files import (
    SAMPLE_RATE,
    make_voice,
    write_flac_without_count,
    write_listed_words,
    write_manifest,
    write_sound,
    write_word_folders,
)

from cwrnn.experiments.words import sound_files
from cwrnn.experiments.words.corpus import CorpusError, load_corpus
from cwrnn.experiments.words.features import mfcc, resample


def load_without_cache(source, **options):
    return load_corpus(str(source), **{"cache": False, **options})


def test_folder_of_word_folders_is_a_corpus(tmp_path):
    whole = load_without_cache(write_word_folders(tmp_path / "mine", ("yes", "no")))
    assert (whole.name, whole.source) == ("mine", f"recordings in {tmp_path / 'mine'}")
    assert (whole.words, whole.clusters, whole.synthetic) == (("no", "yes"), {"no": 1, "yes": 1}, False)
    assert (len(whole.train), len(whole.test)) == (10, 4)
    for each in whole.utterances:
        samples, _ = soundfile.read(tmp_path / "mine" / each.word / f"{each.speaker}.wav")
        np.testing.assert_array_equal(each.features, mfcc(samples))
        assert each.source == f"{each.word}/{each.speaker}.wav"
    assert load_without_cache(f"folder:{tmp_path / 'mine'}").digest == whole.digest
    assert load_without_cache(tmp_path / "mine", words=["yes", "no"]).words == ("yes", "no")


def test_split_never_changes(tmp_path):
    whole = load_without_cache(write_word_folders(tmp_path))
    assert {f"{each.word} {each.speaker}" for each in whole.test} == {"no s1", "no s5", "yes s0", "yes s3"}
    assert len(load_without_cache(tmp_path, test=3).test) == 6
    # another word in the folder changes nothing
    write_word_folders(tmp_path, ("maybe",))
    more = load_without_cache(tmp_path, words=["no", "yes"])
    assert more.digest == whole.digest


def test_words_of_the_paper_have_its_clusters(tmp_path):
    whole = load_without_cache(write_word_folders(tmp_path, ("critical", "making", "subway")))
    assert (whole.words, whole.clusters) == (
        ("making", "critical", "subway"),
        {"critical": 2, "making": 1, "subway": 5},
    )


def test_files_that_are_no_recordings_are_ignored(tmp_path):
    expected = load_without_cache(write_word_folders(tmp_path)).digest
    (tmp_path / ".git").mkdir()
    (tmp_path / "README").write_text("mine")
    (tmp_path / "yes" / "notes.txt").write_text("mine")
    (tmp_path / "yes" / "._s0.wav").write_text("a Mac's")
    assert load_without_cache(tmp_path).digest == expected


@pytest.mark.parametrize("kind", ["flac", "ogg", "WAV"])
def test_flac_ogg_and_upper_case_wav_are_read(tmp_path, kind):
    write_word_folders(tmp_path)
    (tmp_path / "yes" / "s3.wav").unlink()
    write_sound(tmp_path / "yes" / f"s3.{kind}", np.stack([make_voice(3), make_voice(3)], axis=1), format=kind.upper())
    (found,) = (each for each in load_without_cache(tmp_path).utterances if each.source == f"yes/s3.{kind}")
    assert np.abs(found.features - mfcc(make_voice(3))).mean() < (3 if kind == "ogg" else 0.05)


def test_other_sample_rates_are_resampled(tmp_path):
    write_word_folders(tmp_path)
    write_sound(tmp_path / "yes" / "s3.wav", make_voice(3, 14000, 44100), 44100, subtype="FLOAT")
    (found,) = (each for each in load_without_cache(tmp_path).utterances if each.source == "yes/s3.wav")
    expected = mfcc(resample(make_voice(3, 14000, 44100), 44100, SAMPLE_RATE))
    np.testing.assert_allclose(found.features, expected, atol=1e-2)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_manifest_names_words_places_splits_and_clusters(tmp_path, encoding):
    rows = write_listed_words(tmp_path, encoding=encoding)
    whole = load_without_cache(tmp_path)
    assert whole.words == ("north", "east", "up", "down")
    assert whole.clusters == {"north": 1, "up": 2, "east": 1, "down": 2}
    assert (len(whole.train), len(whole.test)) == (8, 4)
    for row, each in zip(rows, whole.utterances, strict=True):
        samples, _ = soundfile.read(tmp_path / row["file"])
        np.testing.assert_array_equal(each.features, mfcc(samples[row["start"] : row["end"]]))
        assert (each.word, each.speaker, each.split) == (row["word"], row["speaker"], row["split"])
    some = load_without_cache(tmp_path, words=["down", "north"])
    assert (some.words, len(some.utterances)) == (("north", "down"), 6)


def test_manifest_columns_may_be_left_out(tmp_path):
    rows = write_listed_words(tmp_path, columns=["file", "word", "speaker", "start", "end"])
    whole = load_without_cache(tmp_path, test=1)
    assert (len(whole.train), len(whole.test)) == (8, 4)
    assert whole.words == ("north", "up", "east", "down")
    # without start and end, a word is a whole file
    parts = []
    for i, row in enumerate(rows):
        write_sound(tmp_path / f"{i}.wav", make_voice(i))
        parts.append({**row, "file": f"{i}.wav", "start": "", "end": ""})
    write_manifest(tmp_path, parts)
    assert [len(each.features) for each in load_without_cache(tmp_path).utterances] == [28] * 12


def test_speaker_may_repeat_a_word_only_if_the_manifest_has_splits(tmp_path):
    rows = write_listed_words(tmp_path)
    write_manifest(tmp_path, [{**row, "speaker": "me"} for row in rows])
    assert len(load_without_cache(tmp_path).utterances) == 12
    write_manifest(
        tmp_path, [{**row, "speaker": "me"} for row in rows], columns=["word", "speaker", "file", "start", "end"]
    )
    with pytest.raises(CorpusError, match="line 6, wav/1.wav: the speaker 'me' says 'north' in .*line 2"):
        load_without_cache(tmp_path, test=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"word": ""}, "manifest.csv line 3: the word is empty"),
        ({"speaker": " "}, "line 3: the speaker is empty"),
        ({"file": ""}, "line 3: the file is empty"),
        ({"file": "wav/9.wav"}, "line 3: wav/9.wav: there is no such file"),
        ({"file": "wav"}, "line 3: wav: there is no such file"),
        ({"file": "../elsewhere.wav"}, "line 3: ../elsewhere.wav: the file must lie in the manifest's folder"),
        ({"file": "/elsewhere.wav"}, "must lie in the manifest's folder"),
        ({"split": "dev"}, "line 3: the split must be 'train' or 'test', got 'dev'"),
        ({"split": ""}, "got ''"),
        ({"start": 8000}, "line 3: start must be before end, got 8000 and 8000"),
        ({"start": -1}, "line 3: start and end must be whole numbers of samples, got '-1' and '8000'"),
        ({"end": "1.5"}, "got '4000' and '1.5'"),
        ({"end": 16001}, "line 3, wav/0.wav: the word is at samples 4000 to 16001, but the file has 16000"),
        ({"start": 16000, "end": ""}, "the word is at samples 16000 to 16000, but the file has 16000"),
        ({"end": 4399}, "line 3, wav/0.wav: too short: 24.9 ms, expected at least one window of 25 ms"),
        ({"cluster": "x"}, "line 3: the cluster must be a whole number from 1 on, got 'x'"),
        ({"cluster": 0}, "got '0'"),
        ({"cluster": 1}, "line 7: the word 'up' is in cluster 2 here, but in 1 before"),
        ({"start": 0, "end": 4000}, r"line 3, .* \(up\): the same recording as .*line 2, .* \(north\)"),
    ],
)
def test_bad_row_is_reported_with_its_line(tmp_path, change, message):
    rows = write_listed_words(tmp_path)
    rows[1] = {**rows[1], **change}
    with pytest.raises(CorpusError, match=message):
        load_without_cache(write_manifest(tmp_path, rows))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"word,file\na,b\n", "no column speaker; the columns are word, file"),
        (b"", "no column word, speaker, file; the columns are none"),
        (b"word,speaker,file\n", "no rows"),
        (b"word,speaker,file\na,b,c,d\n", "line 2: more fields than columns"),
        (b"word,speaker,file\na\n", "line 2: the speaker is empty"),
        (b'word,speaker,file\n"a,b,c\n', "line 2: unexpected end of data"),
        ("wörd".encode("latin-1"), "not UTF-8"),
    ],
)
def test_bad_manifest_is_reported(tmp_path, data, message):
    (tmp_path / "manifest.csv").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        load_without_cache(tmp_path)


def test_same_recording_under_two_words_is_refused(tmp_path):
    write_word_folders(tmp_path)
    (tmp_path / "yes" / "s0.wav").write_bytes((tmp_path / "no" / "s5.wav").read_bytes())
    with pytest.raises(CorpusError, match=r"yes/s0.wav \(yes\): the same recording as no/s5.wav \(no\)"):
        load_without_cache(tmp_path)


def cut(path, to):
    path.write_bytes(path.read_bytes()[:to])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: write_sound(path, np.zeros(0)), "the file has no samples"),
        (lambda path: write_sound(path, np.zeros(4000)), "silent"),
        (lambda path: write_sound(path, np.full(4000, 0.5)), "silent"),
        (lambda path: write_sound(path, make_voice(1)[:, None] * [1, -1]), "silent"),
        (lambda path: cut(path, 5000), "truncated: the header promises 8600 bytes of sound, the file has 4956"),
        (lambda path: cut(path, 30), "not a sound file that can be read"),
        (lambda path: write_sound(path, make_voice(1), 4000), "the sample rate is 4000 Hz, expected 8000 to 192000 Hz"),
        (lambda path: write_sound(path, make_voice(1), 400_000), "the sample rate is 400000 Hz"),
        (lambda path: path.write_text("no sound at all"), "not a sound file that can be read"),
        (lambda path: write_sound(path, np.full(4000, np.nan), subtype="FLOAT"), "has samples that are not finite"),
        (
            lambda path: write_sound(path, make_voice(1)[:399]),
            "too short: 24.9 ms, expected at least one window of 25 ms",
        ),
        (lambda path: (path.unlink(), path.symlink_to("nowhere")), "cannot be read: No such file"),
    ],
)
def test_bad_file_is_one_problem(tmp_path, damage, message):
    write_word_folders(tmp_path)
    damage(tmp_path / "yes" / "s3.wav")
    with pytest.raises(CorpusError, match=rf"yes/s3.wav: {message}") as refused:
        load_without_cache(tmp_path)
    assert len(refused.value.problems) == 1


def test_file_that_promises_too_much_is_one_problem(tmp_path, monkeypatch):
    write_word_folders(tmp_path)
    write_flac_without_count(tmp_path / "yes" / "s3.wav", make_voice(1))
    # as if no size were unknown
    monkeypatch.setattr(sound_files, "UNKNOWN_SIZE", 2**64)
    write_sound(tmp_path / "no" / "s1.wav", np.zeros(4000))
    with pytest.raises(CorpusError, match="too long: the header promises 9223372036854775807 samples") as refused:
        load_without_cache(tmp_path)
    assert len(refused.value.problems) == 2


def test_one_report_lists_every_problem(tmp_path):
    write_word_folders(tmp_path, ("yes", "no", "perhaps"))
    (tmp_path / "no" / "s1.wav").write_text("no sound")
    write_sound(tmp_path / "no" / "s2.wav", np.zeros(4000))
    cut(tmp_path / "yes" / "s6.wav", 5000)
    write_sound(tmp_path / "yes" / "s6.flac", make_voice(5))
    for path in (tmp_path / "perhaps").iterdir():
        path.unlink()
    with pytest.raises(CorpusError) as refused:
        load_without_cache(tmp_path, words=["no", "yes", "perhaps", "never"])
    # not a WordsError: the words are not the only problem
    assert refused.type is CorpusError
    lines = str(refused.value).splitlines()
    assert lines[0] == f"{tmp_path}: 6 problems:"
    for problem in (
        "perhaps: no sound in this folder",
        "no example of the word 'never'",
        "no/s1.wav: not a sound file",
        "no/s2.wav: silent",
        "the speaker 's6' says 'yes'",
    ):
        assert sum(problem in line for line in lines) == 1, problem


def test_word_with_too_few_speakers_is_refused(tmp_path):
    write_word_folders(tmp_path, speakers=2)
    with pytest.raises(
        CorpusError, match="the word 'no' has 2 speakers: with 2 for testing, none are left for training"
    ):
        load_without_cache(tmp_path)


def test_empty_folder_is_reported(tmp_path):
    with pytest.raises(CorpusError, match=r"has no manifest.csv and no folders of words: expected WORD/SPEAKER.wav"):
        load_without_cache(tmp_path)


def test_names_that_are_not_utf_8_are_refused(tmp_path):
    write_word_folders(tmp_path)
    try:
        (tmp_path / "yes" / "s3.wav").rename(tmp_path / "yes" / os.fsdecode(b"\xff.wav"))
    except OSError:
        pytest.skip("no such names here")
    with pytest.raises(CorpusError, match=r"yes/\?.wav: the names of word and speaker must be UTF-8"):
        load_without_cache(tmp_path)


def test_manifest_of_many_columns_and_rows_is_read_in_linear_time(tmp_path):
    """Rows of one field did cost as much as the columns are many."""
    write_word_folders(tmp_path)
    (tmp_path / "manifest.csv").write_text("word,speaker,file" + ",x" * 200_000 + "\n" + "a\n" * 200_000)
    with pytest.raises(CorpusError, match=r"line \d+: too many problems, the rest is not read|and 1 more") as refused:
        load_without_cache(tmp_path)
    assert 1000 <= len(refused.value.problems) < 1010
    assert refused.value.problems[-1].endswith(": too many problems, the rest is not read")
    assert len(str(refused.value).splitlines()) < 1010


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "pipe.wav", "folder", "loop.wav", "\x1b[2J.wav"])
def test_manifest_that_names_no_regular_file_is_refused(tmp_path, name):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "loop.wav").symlink_to("loop.wav")
    (tmp_path / "manifest.csv").write_text(f"word,speaker,file\nyes,s0,{name}\n")
    with pytest.raises(CorpusError, match="there is no such file|line contains NUL") as refused:
        load_without_cache(tmp_path)
    assert "\x1b" not in str(refused.value)


def test_pipe_in_a_folder_of_words_is_one_problem(tmp_path):
    write_word_folders(tmp_path)
    os.mkfifo(tmp_path / "yes" / "pipe.wav")
    with pytest.raises(CorpusError, match=r"yes/pipe.wav: cannot be read: it is not a regular file") as refused:
        load_without_cache(tmp_path)
    assert len(refused.value.problems) == 1


def test_manifest_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "manifest.csv")
    with pytest.raises(CorpusError, match="cannot be read: .*manifest.csv: it is not a regular file"):
        load_without_cache(tmp_path)
