import os
import pickle
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from support.sound_files import RATE, folders, listed, manifest, sphere, voice, write

from cwrnn.experiments.words import bundle, corpus
from cwrnn.experiments.words import sound_files as clips
from cwrnn.experiments.words.bundle import read_about, read_bundle, write_bundle
from cwrnn.experiments.words.corpus import Corpus, CorpusError, Utterance
from cwrnn.experiments.words.features import FeatureSettings, mfcc, resample


def load(source, **options):
    return corpus.load(str(source), **{"cache": False, **options})


def small(words=("a", "b", "c"), clusters=None, synthetic=False):
    random = np.random.default_rng(0)
    return Corpus(
        name="small",
        source="made up",
        utterances=tuple(
            Utterance(word, f"s{i}", split, random.normal(3, 2, (5 + i, 13)).astype(np.float32), f"{word}{i}")
            for word in words
            for i, split in enumerate(("train", "test", "train"))
        ),
        settings=FeatureSettings(),
        synthetic=synthetic,
        clusters=clusters or dict.fromkeys(words, 1),
    )


def changed(whole, i, **changes):
    """`whole` with one utterance changed."""
    each = list(whole.utterances)
    each[i] = replace(each[i], **changes)
    return replace(whole, utterances=tuple(each))


# the corpus


def test_words_are_ordered_by_cluster_then_as_they_come():
    assert small(clusters={"c": 2, "b": 1, "a": 2}).words == ("b", "c", "a")


def test_normalised_over_training_only():
    whole = small()
    train, test = whole.normalised("train"), whole.normalised("test")
    frames = np.concatenate([sequence for sequence, _ in train])
    np.testing.assert_allclose(frames.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(frames.std(axis=0), 1, atol=1e-6)
    assert abs(np.concatenate([sequence for sequence, _ in test]).mean()) > 1e-3
    assert {sequence.dtype for sequence, _ in train + test} == {np.dtype(np.float32)}
    # what is for testing changes nothing of what is for training
    other = changed(whole, 1, features=whole.utterances[1].features * 100)
    for (one, _), (two, _) in zip(train, other.normalised("train"), strict=True):
        np.testing.assert_array_equal(one, two)
    mean = np.concatenate([each.features for each in whole.train]).mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(whole.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(test[0][0] * whole.deviation + whole.mean, whole.test[0].features, rtol=1e-4)


def test_labels_and_order():
    whole = small(clusters={"c": 1, "b": 1, "a": 1})
    assert [label for _, label in whole.normalised("train")] == [2, 2, 1, 1, 0, 0]
    assert [len(sequence) for sequence, _ in whole.normalised("train")] == [5, 7, 5, 7, 5, 7]
    assert [each.source for each in whole.test] == ["a1", "b1", "c1"]
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'dev'"):
        whole.normalised("dev")


def test_the_digest_is_of_all_that_decides():
    whole = small()
    same = [
        small(),
        replace(whole, name="other", source="elsewhere", synthetic=True),
        changed(whole, 0, source="elsewhere"),
        small(clusters={"a": 1, "b": 2, "c": 2}),
    ]
    assert {each.digest for each in same} == {whole.digest}
    features = whole.utterances[0].features.copy()
    features[0, 0] += 1e-4
    others = [
        changed(whole, 0, features=features),
        changed(whole, 0, speaker="s9"),
        changed(whole, 2, split="test"),
        changed(whole, 0, word="b"),
        replace(whole, settings=replace(whole.settings, filters=24)),
        replace(whole, utterances=whole.utterances[::-1]),
        small(clusters={"b": 1, "a": 1, "c": 1}),
    ]
    assert len({each.digest for each in [whole, *others]}) == 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: small(words=("a",)), "small: at least two words are needed, got 1"),
        (lambda: changed(small(), 1, split="train"), "small: the word 'a' has no example for testing"),
        (lambda: small(clusters={"a": 1, "b": 1, "c": 1, "d": 1}), "'d' has no example for training"),
        (lambda: changed(small(), 4, split="dev"), "b1: the split must be 'train' or 'test', got 'dev'"),
        (lambda: changed(small(), 4, word=""), "b1: the word is empty"),
        (lambda: changed(small(), 4, word="z"), "b1: the word 'z' has no cluster"),
        (lambda: changed(small(), 4, features=np.zeros((0, 13), np.float32)), r"b1: .* T >= 1, got \(0, 13\)"),
        (lambda: changed(small(), 4, features=np.zeros((4, 12), np.float32)), r"b1: .*\(T, 13\).*got \(4, 12\)"),
        (lambda: changed(small(), 4, features=np.full((4, 13), np.nan, np.float32)), "b1: the features are not finite"),
    ],
)
def test_what_makes_no_sense(make, message):
    with pytest.raises(CorpusError, match=message):
        make()


def test_a_constant_channel():
    whole = small()
    flat = [each.features * (np.arange(13) != 4) + 0.1 for each in whole.utterances]
    parts = [replace(each, features=part.astype(np.float32)) for each, part in zip(whole.utterances, flat, strict=True)]
    with pytest.raises(CorpusError, match="small: channel 5 of the features is constant in training"):
        replace(whole, utterances=tuple(parts))


def test_an_error_goes_to_another_process():
    error = pickle.loads(pickle.dumps(CorpusError("here", ["one", "two"])))
    assert str(error) == "here: 2 problems:\n  one\n  two"


# the bundle


def test_a_bundle_is_the_corpus(tmp_path):
    whole = small(clusters={"c": 2, "b": 1, "a": 2}, synthetic=True)
    write_bundle(tmp_path / "a.npz", whole, {"voices": ["ü"], "tools": {}})
    again = read_bundle(tmp_path / "a.npz")
    assert (again.name, again.source, again.synthetic) == ("small", "made up", True)
    assert (again.words, again.clusters, again.settings) == (whole.words, whole.clusters, whole.settings)
    assert again.digest == whole.digest
    assert [each.source for each in again.utterances] == [each.source for each in whole.utterances]
    assert read_about(tmp_path / "a.npz")["voices"] == ["ü"]
    write_bundle(tmp_path / "b.npz", again, {"tools": {}, "voices": ["ü"]})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_the_bundle_is_the_default(tmp_path, monkeypatch):
    write_bundle(tmp_path / "a.npz", small(), {})
    monkeypatch.setattr(bundle, "FILE", tmp_path / "a.npz")
    assert corpus.load().digest == small().digest
    some = corpus.load("bundle", words=["c", "a"])
    assert some.words == ("c", "a")
    assert {each.word for each in some.utterances} == {"a", "c"}
    assert some.source == "2 of the words of made up"
    assert corpus.load("bundle", words=["c", "a", "b"]).source == "made up"
    with pytest.raises(CorpusError, match="there is no example of the word 'z'"):
        corpus.load("bundle", words=["a", "z"])


def test_what_is_no_bundle(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(CorpusError, match=r"a\.npz: cannot be read: No such file"):
        read_bundle(path)
    write_bundle(path, small(), {})
    data = path.read_bytes()
    for bad in (b"", b"no", data[:500], data[:-40]):
        path.write_bytes(bad)
        with pytest.raises(CorpusError, match="not a bundle of spoken words"):
            read_bundle(path)
    for arrays in (
        {"features": np.zeros((3, 13), np.float32), "lengths": np.array([4]), "about": np.zeros(2, np.uint8)},
        {"features": np.array([object()])},
        {"features": np.zeros((3, 13)), "lengths": np.array([4]), "about": np.frombuffer(b'{"a": 1}', np.uint8)},
        {"features": np.zeros((3, 13)), "lengths": np.array([4]), "about": np.frombuffer(b'{"utterances": [1]}', "u1")},
    ):
        np.savez(path, **arrays)
        with pytest.raises(CorpusError, match="not a bundle of spoken words"):
            read_bundle(path)


@pytest.mark.parametrize("name", ["features", "lengths"])
def test_a_bundle_with_something_left_over(tmp_path, name):
    write_bundle(tmp_path / "a.npz", small(), {})
    arrays = dict(np.load(tmp_path / "a.npz"))
    arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(CorpusError, match=r"not a bundle of spoken words \(its lengths do not match\)"):
        read_bundle(tmp_path / "a.npz")


# folders


def test_folders_of_words(tmp_path):
    whole = load(folders(tmp_path / "mine", ("yes", "no")))
    assert (whole.name, whole.source) == ("mine", f"recordings in {tmp_path / 'mine'}")
    assert (whole.words, whole.clusters, whole.synthetic) == (("no", "yes"), {"no": 1, "yes": 1}, False)
    assert (len(whole.train), len(whole.test)) == (10, 4)
    for each in whole.utterances:
        samples, _ = soundfile.read(tmp_path / "mine" / each.word / f"{each.speaker}.wav")
        np.testing.assert_array_equal(each.features, mfcc(samples))
        assert each.source == f"{each.word}/{each.speaker}.wav"
    assert load(f"folder:{tmp_path / 'mine'}").digest == whole.digest
    assert load(tmp_path / "mine", words=["yes", "no"]).words == ("yes", "no")


def test_the_division_is_the_same_for_ever(tmp_path):
    whole = load(folders(tmp_path))
    assert {f"{each.word} {each.speaker}" for each in whole.test} == {"no s1", "no s5", "yes s0", "yes s3"}
    assert len(load(tmp_path, test=3).test) == 6
    # another word changes nothing
    folders(tmp_path, ("maybe",))
    more = load(tmp_path, words=["no", "yes"])
    assert more.digest == whole.digest


def test_the_papers_words_have_the_papers_clusters(tmp_path):
    whole = load(folders(tmp_path, ("critical", "making", "subway")))
    assert (whole.words, whole.clusters) == (
        ("making", "critical", "subway"),
        {"critical": 2, "making": 1, "subway": 5},
    )


def test_other_files_are_none_of_ours(tmp_path):
    expected = load(folders(tmp_path)).digest
    (tmp_path / ".git").mkdir()
    (tmp_path / "README").write_text("mine")
    (tmp_path / "yes" / "notes.txt").write_text("mine")
    (tmp_path / "yes" / "._s0.wav").write_text("a Mac's")
    assert load(tmp_path).digest == expected


@pytest.mark.parametrize("kind", ["flac", "ogg", "WAV"])
def test_formats(tmp_path, kind):
    folders(tmp_path)
    (tmp_path / "yes" / "s3.wav").unlink()
    write(tmp_path / "yes" / f"s3.{kind}", np.stack([voice(3), voice(3)], axis=1), format=kind.upper())
    (found,) = (each for each in load(tmp_path).utterances if each.source == f"yes/s3.{kind}")
    assert np.abs(found.features - mfcc(voice(3))).mean() < (3 if kind == "ogg" else 0.05)


def test_other_rates(tmp_path):
    folders(tmp_path)
    write(tmp_path / "yes" / "s3.wav", voice(3, 14000, 44100), 44100, subtype="FLOAT")
    (found,) = (each for each in load(tmp_path).utterances if each.source == "yes/s3.wav")
    expected = mfcc(resample(voice(3, 14000, 44100), 44100, RATE))
    np.testing.assert_allclose(found.features, expected, atol=1e-2)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_a_manifest(tmp_path, encoding):
    rows = listed(tmp_path, encoding=encoding)
    whole = load(tmp_path)
    assert whole.words == ("north", "east", "up", "down")
    assert whole.clusters == {"north": 1, "up": 2, "east": 1, "down": 2}
    assert (len(whole.train), len(whole.test)) == (8, 4)
    for row, each in zip(rows, whole.utterances, strict=True):
        samples, _ = soundfile.read(tmp_path / row["file"])
        np.testing.assert_array_equal(each.features, mfcc(samples[row["start"] : row["end"]]))
        assert (each.word, each.speaker, each.split) == (row["word"], row["speaker"], row["split"])
    some = load(tmp_path, words=["down", "north"])
    assert (some.words, len(some.utterances)) == (("north", "down"), 6)


def test_a_manifest_without_the_rest(tmp_path):
    rows = listed(tmp_path, columns=["file", "word", "speaker", "start", "end"])
    whole = load(tmp_path, test=1)
    assert (len(whole.train), len(whole.test)) == (8, 4)
    assert whole.words == ("north", "up", "east", "down")
    # whole files
    parts = []
    for i, row in enumerate(rows):
        write(tmp_path / f"{i}.wav", voice(i))
        parts.append({**row, "file": f"{i}.wav", "start": "", "end": ""})
    manifest(tmp_path, parts)
    assert [len(each.features) for each in load(tmp_path).utterances] == [28] * 12


def test_a_speaker_may_come_twice_where_the_manifest_divides(tmp_path):
    rows = listed(tmp_path)
    manifest(tmp_path, [{**row, "speaker": "me"} for row in rows])
    assert len(load(tmp_path).utterances) == 12
    manifest(tmp_path, [{**row, "speaker": "me"} for row in rows], columns=["word", "speaker", "file", "start", "end"])
    with pytest.raises(CorpusError, match="line 6, wav/1.wav: the speaker 'me' says 'north' in .*line 2"):
        load(tmp_path, test=1)


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
        ({"end": 16001}, "line 3, wav/0.wav: samples 4000 to 16001 are asked for, the file has 16000"),
        ({"start": 16000, "end": ""}, "samples 16000 to 16000 are asked for, the file has 16000"),
        ({"end": 4399}, "line 3, wav/0.wav: too short: 24.9 ms, one window is 25 ms"),
        ({"cluster": "x"}, "line 3: the cluster must be a whole number from 1 on, got 'x'"),
        ({"cluster": 0}, "got '0'"),
        ({"cluster": 1}, "line 7: the word 'up' is in cluster 2 here, and in 1 before"),
        ({"start": 0, "end": 4000}, r"line 3, .* \(up\): the same recording as .*line 2, .* \(north\)"),
    ],
)
def test_a_row_that_makes_no_sense(tmp_path, change, message):
    rows = listed(tmp_path)
    rows[1] = {**rows[1], **change}
    with pytest.raises(CorpusError, match=message):
        load(manifest(tmp_path, rows))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"word,file\na,b\n", "no column speaker; there are word, file"),
        (b"", "no column word, speaker, file; there are none"),
        (b"word,speaker,file\n", "no rows"),
        (b"word,speaker,file\na,b,c,d\n", "line 2: more fields than columns"),
        (b"word,speaker,file\na\n", "line 2: the speaker is empty"),
        (b'word,speaker,file\n"a,b,c\n', "line 2: unexpected end of data"),
        ("wörd".encode("latin-1"), "not UTF-8"),
    ],
)
def test_what_is_no_manifest(tmp_path, data, message):
    (tmp_path / "manifest.csv").write_bytes(data)
    with pytest.raises(CorpusError, match=message):
        load(tmp_path)


def test_the_same_recording_under_two_words(tmp_path):
    folders(tmp_path)
    (tmp_path / "yes" / "s0.wav").write_bytes((tmp_path / "no" / "s5.wav").read_bytes())
    with pytest.raises(CorpusError, match=r"yes/s0.wav \(yes\): the same recording as no/s5.wav \(no\)"):
        load(tmp_path)


def cut(path, to):
    path.write_bytes(path.read_bytes()[:to])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(b""), "the file is empty"),
        (lambda path: write(path, np.zeros(0)), "the file has no samples"),
        (lambda path: write(path, np.zeros(4000)), "silent"),
        (lambda path: write(path, np.full(4000, 0.5)), "silent"),
        (lambda path: write(path, voice(1)[:, None] * [1, -1]), "silent"),
        (lambda path: cut(path, 5000), "truncated: 8600 bytes of sound are promised, 4956 are there"),
        (lambda path: cut(path, 30), "not a sound file that can be read"),
        (lambda path: write(path, voice(1), 4000), "its rate is 4000 Hz, and must be from 8000 to 192000 Hz"),
        (lambda path: write(path, voice(1), 400_000), "its rate is 400000 Hz"),
        (lambda path: path.write_text("no sound at all"), "not a sound file that can be read"),
        (lambda path: write(path, np.full(4000, np.nan), subtype="FLOAT"), "has samples that are not finite"),
        (lambda path: write(path, voice(1)[:399]), "too short: 24.9 ms, one window is 25 ms"),
        (lambda path: (path.unlink(), path.symlink_to("nowhere")), "cannot be read: No such file"),
    ],
)
def test_a_bad_file(tmp_path, damage, message):
    folders(tmp_path)
    damage(tmp_path / "yes" / "s3.wav")
    with pytest.raises(CorpusError, match=rf"yes/s3.wav: {message}") as refused:
        load(tmp_path)
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("kind", ["flac", "ogg", "wav"])
@pytest.mark.parametrize("part", [0.5, 0.9, 0.99])
def test_a_file_that_ends_early(tmp_path, kind, part):
    path = write(tmp_path / f"a.{kind}", voice(1, 60_000), format=kind.upper())
    clips.sound(path.read_bytes())
    with pytest.raises(clips.SoundError, match="truncated|ends or breaks off|lost sync"):
        clips.sound(path.read_bytes()[: int(path.stat().st_size * part)])


def test_a_file_without_its_last_page(tmp_path):
    data = write(tmp_path / "a.ogg", voice(1, 60_000), format="OGG").read_bytes()
    with pytest.raises(clips.SoundError, match="truncated: its last page is missing"):
        clips.sound(data[: data.rfind(b"OggS")])


@pytest.mark.parametrize("kind", ["AIFF", "AU", "CAF", "MP3", "RF64", "W64"])
def test_formats_that_are_not_read(tmp_path, kind):
    if kind not in soundfile.available_formats():
        pytest.skip("not here")
    data = write(tmp_path / "a", voice(1, 60_000), format=kind).read_bytes()
    with pytest.raises(clips.SoundError, match=f"the format {kind}: WAV, FLAC, OGG and SPHERE are read"):
        clips.sound(data)


@pytest.mark.parametrize("options", [{"format": "WAVEX"}, {"format": "WAV", "endian": "BIG"}])
def test_other_kinds_of_wav(tmp_path, options):
    data = write(tmp_path / "a", voice(1), subtype="PCM_16", **options).read_bytes()
    assert len(clips.sound(data)[1]) == 4800
    with pytest.raises(clips.SoundError, match="truncated: 9600 bytes of sound are promised"):
        clips.sound(data[:5000])


def test_a_chunk_of_odd_size(tmp_path):
    """One byte fills it up."""
    data = write(tmp_path / "a.wav", voice(1)).read_bytes()
    data = data[:36] + b"note" + struct.pack("<I", 3) + b"abc\0" + data[36:]
    assert len(clips.sound(data)[1]) == 4800
    with pytest.raises(clips.SoundError, match="truncated: 9600 bytes of sound are promised, 9599 are there"):
        clips.sound(data[:-1])


def test_a_file_from_a_pipe(tmp_path):
    """Its header cannot know how long it is."""
    data = bytearray(write(tmp_path / "a.wav", voice(1)).read_bytes())
    for size in (0xFFFFFFFF, 0x7FFFFFFF):
        struct.pack_into("<I", data, 40, size)
        rate, samples = clips.sound(bytes(data))
        assert (rate, len(samples)) == (RATE, 4800)


def without_a_count(path, samples):
    """A FLAC from a pipe: the 36 bits that count its samples are 0."""
    data = bytearray(write(path, samples, format="FLAC").read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    return bytes(data)


@pytest.mark.parametrize("samples", [5000, 65536, 150_000])
def test_a_flac_without_a_count(tmp_path, samples):
    expected, _ = soundfile.read(write(tmp_path / "a.flac", voice(1, samples)))
    data = without_a_count(tmp_path / "a.flac", voice(1, samples))
    rate, found = clips.sound(data)
    assert rate == RATE
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(clips.SoundError, match="not a sound file that can be read"):
        clips.sound(data[: len(data) * 9 // 10])


def test_what_numpy_refuses_is_one_line_of_the_report(tmp_path, monkeypatch):
    folders(tmp_path)
    without_a_count(tmp_path / "yes" / "s3.wav", voice(1))
    # as if nothing were too many
    monkeypatch.setattr(clips, "UNKNOWN", 2**64)
    write(tmp_path / "no" / "s1.wav", np.zeros(4000))
    with pytest.raises(CorpusError, match="not a sound file that can be read") as refused:
        load(tmp_path)
    assert len(refused.value.problems) == 2


def test_all_that_is_wrong_in_one_report(tmp_path):
    folders(tmp_path, ("yes", "no", "perhaps"))
    (tmp_path / "no" / "s1.wav").write_text("no sound")
    write(tmp_path / "no" / "s2.wav", np.zeros(4000))
    cut(tmp_path / "yes" / "s6.wav", 5000)
    write(tmp_path / "yes" / "s6.flac", voice(5))
    for path in (tmp_path / "perhaps").iterdir():
        path.unlink()
    with pytest.raises(CorpusError) as refused:
        load(tmp_path, words=["no", "yes", "perhaps", "never"])
    # it is not the words alone
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


def test_too_few_speakers(tmp_path):
    folders(tmp_path, speakers=2)
    with pytest.raises(CorpusError, match="the word 'no' has 2 speakers: 2 for testing leave none to learn"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["folder", "timit", "nltk-timit"])
def test_no_such_folder(tmp_path, kind):
    with pytest.raises(CorpusError, match=f"{kind}:.*nowhere: there is no such folder"):
        load(f"{kind}:{tmp_path}/nowhere")


def test_the_home_folder(tmp_path, monkeypatch):
    """Which a shell does not put in the place of ~ after a colon."""
    folders(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load("folder:~/mine").utterances) == 14


def test_an_empty_folder(tmp_path):
    with pytest.raises(CorpusError, match=r"no manifest.csv and no folders of words in it: expected WORD/SPEAKER.wav"):
        load(tmp_path)


@pytest.mark.parametrize("source", ["", "nowhere", "timit", "timit:", "ldc:/somewhere", "folder:"])
def test_what_is_no_source(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match="expected bundle, timit:PATH, nltk-timit:PATH, folder:PATH or an existing"):
        load(source)


@pytest.mark.parametrize("words", [[], ["a"], ["a", "a"], ["a", ""]])
def test_what_are_no_words(words):
    with pytest.raises(CorpusError, match="expected two or more different words, got"):
        load("bundle", words=words)


@pytest.mark.parametrize(("speakers", "test"), [(2, 2), (7, 0), (0, -1)])
def test_what_is_no_division(speakers, test):
    with pytest.raises(CorpusError, match="expected 1 <= test < speakers, got"):
        load("bundle", speakers=speakers, test=test)


def test_names_that_are_not_utf_8(tmp_path):
    folders(tmp_path)
    try:
        (tmp_path / "yes" / "s3.wav").rename(tmp_path / "yes" / os.fsdecode(b"\xff.wav"))
    except OSError:
        pytest.skip("no such names here")
    with pytest.raises(CorpusError, match=r"yes/\?.wav: word and speaker must be UTF-8"):
        load(tmp_path)


# the cache


def forbidden(*_, **__):
    raise AssertionError("computed")


def test_features_are_computed_once(tmp_path, monkeypatch):
    root, cache = folders(tmp_path / "mine"), tmp_path / "cache"
    calls = []
    whole = load(root, cache=cache, progress=lambda *done: calls.append(done))
    assert calls == [(i, 14) for i in range(1, 15)]
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(clips, "mfcc", forbidden)
    calls.clear()
    assert load(root, cache=cache, progress=lambda *done: calls.append(done)).digest == whole.digest
    assert calls == [(14, 14)]
    # another content under the same name, size and time
    path = root / "yes" / "s3.wav"
    data, times = bytearray(path.read_bytes()), path.stat()
    data[3001] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(AssertionError, match="computed"):
        load(root, cache=cache)


@pytest.mark.parametrize("settings", [{"filters": 24}, {"step": 5.0}])
def test_the_cache_knows_the_settings(tmp_path, settings):
    root, cache = folders(tmp_path / "mine"), tmp_path / "cache"
    clip = clips.Clip("yes", "s0", "train", root / "yes" / "s0.wav", "a")
    for each in (FeatureSettings(), replace(FeatureSettings(), **settings)) * 2:
        (found,), _ = clips.features([clip], each, cache=cache)
        np.testing.assert_array_equal(found, mfcc(soundfile.read(clip.path)[0], each))


@pytest.mark.parametrize("place", [{"start": 100}, {"end": 3000}])
def test_the_cache_knows_the_place(tmp_path, place):
    clip = clips.Clip("yes", "s0", "train", write(tmp_path / "a.wav", voice(1)), "a")
    for each in (clip, replace(clip, **place)) * 2:
        (found,), _ = clips.features([each], FeatureSettings(), cache=tmp_path / "cache")
        np.testing.assert_array_equal(found, mfcc(soundfile.read(clip.path)[0][each.start : each.end]))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no"),
        lambda path: cut(path, 1000),
        lambda path: np.savez(path, features=np.zeros((3, 13), np.float32), lengths=np.array([3])),
        lambda path: np.savez(path, features=np.zeros((14, 13)), lengths=np.ones(14, int)),
        lambda path: np.savez(path, features=np.zeros((14, 12), np.float32), lengths=np.ones(14, int)),
        lambda path: np.savez(path, features=np.zeros((77, 13), np.float32), lengths=np.arange(14) - 1),
        lambda path: np.savez(path, features=np.array([object()])),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_a_broken_cache_is_ignored_and_written_anew(tmp_path, damage):
    root, cache = folders(tmp_path / "mine"), tmp_path / "cache"
    whole = load(root, cache=cache)
    (path,) = cache.iterdir()
    data = path.read_bytes()
    damage(path)
    assert load(root, cache=cache).digest == whole.digest
    assert list(cache.iterdir()) == [path]
    assert path.is_dir() or path.read_bytes() == data


def test_where_the_cache_is(tmp_path, monkeypatch):
    root = folders(tmp_path / "mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    corpus.load(str(root), cache=False)
    assert not (tmp_path / "cache").exists()
    corpus.load(str(root))
    assert len(list((tmp_path / "cache" / "cwrnn" / "words").iterdir())) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert clips.user_cache() == tmp_path / ".cache" / "cwrnn" / "words"


def test_a_cache_that_cannot_be_written(tmp_path):
    root = folders(tmp_path / "mine")
    (tmp_path / "cache").write_text("a file")
    assert len(load(root, cache=tmp_path / "cache").utterances) == 14


def test_what_is_wrong_is_not_remembered(tmp_path):
    root, cache = folders(tmp_path / "mine"), tmp_path / "cache"
    write(root / "yes" / "s3.wav", np.zeros(4000))
    for _ in range(2):
        with pytest.raises(CorpusError, match="silent"):
            load(root, cache=cache)


# NIST SPHERE


@pytest.mark.parametrize("order", ["01", "10"])
def test_sphere(order):
    rate, samples = clips.sound(sphere(voice(1), order=order))
    assert rate == RATE
    np.testing.assert_allclose(samples, voice(1), atol=1 / 32768)


def test_sphere_as_libsndfile_reads_it(tmp_path):
    (tmp_path / "a.sph").write_bytes(sphere(voice(1)))
    expected, rate = soundfile.read(tmp_path / "a.sph")
    assert rate == RATE
    np.testing.assert_array_equal(clips.sound(sphere(voice(1)))[1], expected)


def test_sphere_of_two_channels():
    _, samples = clips.sound(sphere(np.stack([voice(1), voice(2)], axis=1)))
    np.testing.assert_allclose(samples, (voice(1) + voice(2)) / 2, atol=1 / 32768)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (sphere(voice(1), count=4801), "truncated: 4801 samples are promised, 4800 are there"),
        (sphere(voice(1))[:1000], "truncated: its SPHERE header is not complete"),
        (b"NIST_1A\nnonsense", "truncated: its SPHERE header is not complete"),
        (sphere(voice(1), coding="pcm,embedded-shorten-v2.00"), "shorten: convert it with the tool sph2pipe"),
        (sphere([])[:1024] + b"ajkg\x02", "shorten: convert it with the tool sph2pipe"),
        (sphere(voice(1), coding="ulaw"), "SPHERE of 2 bytes per sample, coded ulaw: 16-bit pcm is read"),
        (sphere(voice(1), **{"sample_n_bytes -i": 1}), "SPHERE of 1 bytes per sample"),
        (sphere(voice(1), order="02"), "its SPHERE header makes no sense"),
        (sphere(voice(1), count="many"), "its SPHERE header makes no sense"),
        (sphere(voice(1), count=-1), "its SPHERE header makes no sense"),
        (sphere(voice(1)).replace(b"sample_rate", b"sample_pace"), "its SPHERE header makes no sense .*sample_rate"),
        (sphere([]), "the file has no samples"),
    ],
)
def test_what_is_no_sphere(data, message):
    with pytest.raises(clips.SoundError, match=message):
        clips.sound(data)


@given(
    st.sampled_from(["sphere", "RIFF", "RIFX", "NIST_1A\n", "OggS", "fLaC", ""]),
    st.binary(max_size=200),
    st.integers(0),
)
def test_no_bytes_do_harm(kind, data, place):
    """Whatever a file holds, it is a sound or a SoundError."""
    whole = bytearray(sphere(voice(1, 100)) if kind == "sphere" else kind.encode() + data)
    if kind == "sphere":
        place %= len(whole)
        whole[place : place + len(data)] = data
    try:
        _, samples = clips.sound(bytes(whole))
    except clips.SoundError:
        return
    assert samples.ndim == 1
    assert np.isfinite(samples).all()
