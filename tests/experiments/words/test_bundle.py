"""Bundles: the file format, the bundled words, and how their script draws voices. No synthesiser is needed."""

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.made_corpora import make_small_corpus

from cwrnn.experiments.paper import WORDS_VOCABULARY
from cwrnn.experiments.words import bundle
from cwrnn.experiments.words.bundle import FILE, load_bundled_corpus, read_about, read_bundle, write_bundle
from cwrnn.experiments.words.corpus import CorpusError, load_corpus

SCRIPT = Path(__file__).parents[3] / "tools" / "synthesise_words.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("synthesise_words", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look up their module by name
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def corpus():
    return load_bundled_corpus()


def test_bundle_is_read_as_it_was_written(tmp_path):
    whole = make_small_corpus(clusters={"c": 2, "b": 1, "a": 2}, synthetic=True)
    write_bundle(tmp_path / "a.npz", whole, {"voices": ["ü"], "tools": {}})
    again = read_bundle(tmp_path / "a.npz")
    assert (again.name, again.source, again.synthetic) == ("small", "made up", True)
    assert (again.words, again.clusters, again.settings) == (whole.words, whole.clusters, whole.settings)
    assert again.digest == whole.digest
    assert [each.source for each in again.utterances] == [each.source for each in whole.utterances]
    assert read_about(tmp_path / "a.npz")["voices"] == ["ü"]
    write_bundle(tmp_path / "b.npz", again, {"tools": {}, "voices": ["ü"]})
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_bundle_is_the_default_source(tmp_path, monkeypatch):
    write_bundle(tmp_path / "a.npz", make_small_corpus(), {})
    monkeypatch.setattr(bundle, "FILE", tmp_path / "a.npz")
    assert load_corpus().digest == make_small_corpus().digest
    some = load_corpus("bundle", words=["c", "a"])
    assert some.words == ("c", "a")
    assert {each.word for each in some.utterances} == {"a", "c"}
    assert some.source == "2 of the words of made up"
    assert load_corpus("bundle", words=["c", "a", "b"]).source == "made up"
    with pytest.raises(CorpusError, match="there is no example of the word 'z'"):
        load_corpus("bundle", words=["a", "z"])


def test_file_that_is_no_bundle_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    with pytest.raises(CorpusError, match=r"a\.npz: cannot be read: No such file"):
        read_bundle(path)
    write_bundle(path, make_small_corpus(), {})
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": 1}, "its name must be of type str"),
        ({"synthetic": 1}, "its synthetic must be of type bool"),
        ({"clusters": [["a", 1], ["b", 1], ["c", "1"]]}, "its clusters must be pairs of a word and a number"),
        ({"clusters": [["a", 1], ["b", 1], ["c", None]]}, "its clusters must be pairs of a word and a number"),
        ({"clusters": [["a", 1], ["b", 1], "cd"]}, "its clusters must be pairs of a word and a number"),
        ({"clusters": [["a", 1], ["b", 1], ["b", 1]]}, "its clusters name a word twice"),
        ({"utterances": [1] * 9}, "an utterance must have a word, a speaker"),
        ({"utterances": [{"word": ["a"], "speaker": "", "split": "", "source": ""}] * 9}, "which are texts"),
        ({"utterances": [{"word": "a", "speaker": "", "split": "train", "more": ""}] * 9}, "which are texts"),
        ({"settings": {"lifter": 1e300}}, "lifter must be from 0"),
        ({"settings": {"lifter": "22"}}, "its settings cannot have 'lifter' = '22'"),
        ({"settings": {"rate": 16000.5}}, "its settings cannot have 'rate' = 16000.5"),
        ({"settings": {"dither": 1}}, "its settings cannot have 'dither' = 1"),
        ({"voices": "\ud800"}, "half of a surrogate pair"),
        ({"voices": 10**400}, "does not fit into 64 bits"),
    ],
)
def test_bundle_whose_description_makes_no_sense_is_refused(tmp_path, changes, message):
    path = tmp_path / "a.npz"
    write_bundle(path, make_small_corpus(), {})
    arrays = dict(np.load(path))
    about = json.dumps(json.loads(bytes(arrays["about"])) | changes)
    np.savez(path, **arrays | {"about": np.frombuffer(about.encode(), np.uint8)})
    with pytest.raises(CorpusError, match=f"not a bundle of spoken words .*{message}"):
        read_bundle(path)


def test_bundle_whose_lengths_are_no_numbers_of_frames_is_refused(tmp_path):
    path = tmp_path / "a.npz"
    write_bundle(path, make_small_corpus(), {})
    arrays = dict(np.load(path))
    for lengths in (-arrays["lengths"], arrays["lengths"].astype("<f4"), arrays["lengths"].reshape(3, 3)):
        np.savez(path, **arrays | {"lengths": lengths})
        with pytest.raises(CorpusError, match="not a bundle of spoken words .*(its lengths are not|lengths must be)"):
            read_bundle(path)


def test_bundle_that_is_no_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(CorpusError, match="cannot be read: it is not a regular file"):
            read_bundle(path)
    with pytest.raises(CorpusError, match="cannot be read: File name too long"):
        read_bundle(tmp_path / ("a" * 5000))


@pytest.mark.parametrize("name", ["features", "lengths"])
def test_bundle_whose_lengths_do_not_match_is_refused(tmp_path, name):
    write_bundle(tmp_path / "a.npz", make_small_corpus(), {})
    arrays = dict(np.load(tmp_path / "a.npz"))
    arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(CorpusError, match=r"not a bundle of spoken words \(its lengths do not match\)"):
        read_bundle(tmp_path / "a.npz")


def test_bundled_words_are_the_papers_and_marked_as_synthetic(corpus, script):
    assert corpus.words == tuple(word for cluster in WORDS_VOCABULARY for word in cluster)
    assert Counter(corpus.clusters.values()) == dict.fromkeys(range(1, 6), 5)
    assert corpus.synthetic
    assert "synthetic" in corpus.source
    assert "synthesised" in corpus.source
    assert set(read_about(FILE)["tools"]) == set(script.PER_WORD)
    assert FILE.stat().st_size < 1_000_000


def test_each_word_has_seven_voices_five_for_training(corpus):
    assert Counter((each.word, each.split) for each in corpus.utterances) == {
        (word, split): number for word in corpus.words for split, number in (("train", 5), ("test", 2))
    }
    assert set(Counter((each.word, each.speaker) for each in corpus.utterances).values()) == {1}


def test_bundled_features_have_a_plausible_scale(corpus):
    lengths = [len(each.features) for each in corpus.utterances]
    assert min(lengths) >= 25
    assert max(lengths) <= 150
    frames = np.concatenate([each.features for each in corpus.utterances])
    assert np.isfinite(frames).all()
    assert np.abs(frames).max() < 200
    assert (corpus.deviation[:12] > 10).all()
    assert (corpus.deviation[:12] < 40).all()
    # words are as loud as speech, without silence around them
    assert 1 < corpus.deviation[12] < 5
    energy = np.array([each.features[:, 12].max() - each.features[:, 12].mean() for each in corpus.utterances])
    assert (energy < 8).all()


def test_no_two_bundled_utterances_are_the_same(corpus):
    assert len({each.features.tobytes() for each in corpus.utterances}) == 175


def test_bundled_voices_are_those_that_the_script_draws(corpus, script):
    drawn = [
        (word, voice.speaker, "test" if testing else "train", f"synthetic: {voice.about}")
        for word, voices in script.draw_voices(0).items()
        for voice, testing in voices
    ]
    assert drawn == [(each.word, each.speaker, each.split, each.source) for each in corpus.utterances]


def test_seed_decides_the_draw(script):
    assert script.draw_voices(1) == script.draw_voices(1)
    assert script.draw_voices(1) != script.draw_voices(2)


@pytest.mark.parametrize("seed", range(5))
def test_no_voice_says_a_word_twice_and_the_engines_are_mixed(script, seed):
    drawn = script.draw_voices(seed)
    for voices in drawn.values():
        assert len({voice.person for voice, _ in voices}) == 7
        assert Counter(voice.engine for voice, _ in voices) == script.PER_WORD
        assert [testing for _, testing in voices] == [False] * 5 + [True] * 2
    # an accent of a variant says one word only
    formants = [voice.name for voices in drawn.values() for voice, _ in voices if voice.engine == "espeak-ng"]
    assert len(set(formants)) == len(formants) == 125


def test_split_does_not_depend_on_the_engine(script):
    words = [voices for seed in range(40) for voices in script.draw_voices(seed).values()]
    counts = Counter((voice.engine, testing) for voices in words for voice, testing in voices)
    for engine, number in script.PER_WORD.items():
        # 1000 words: 2/7, give or take four standard deviations
        share = counts[engine, True] / (1000 * number)
        assert abs(share - 2 / 7) < 4 * np.sqrt(2 / 7 * 5 / 7 / (1000 * number))


def test_larger_speaker_is_lower_and_slower(script):
    tone = np.sin(2 * np.pi * 500 * np.arange(22_050) / 22_050)
    larger = script.resize_speaker(tone, 22_050, 1.25)
    assert len(larger) == 20_000
    # the bins of 1.25 s are 0.8 Hz apart
    assert 0.8 * np.abs(np.fft.rfft(larger)).argmax() == pytest.approx(400)


def test_missing_tools_are_reported_with_their_packages(script, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["synthesise_words.py", "--out", str(tmp_path / "words.npz")])
    with pytest.raises(SystemExit) as caught:
        script.main()
    assert str(caught.value) == (
        "not installed: espeak-ng: espeak-ng; flite: flite; festival: festival\n"
        "on Debian: apt-get install "
        "espeak-ng flite festival festvox-kallpc16k festvox-kdlpc16k festvox-us-slt-hts"
    )
    assert not list(tmp_path.iterdir())
