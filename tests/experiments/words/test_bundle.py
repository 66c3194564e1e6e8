"""The bundled words, and how the script that made them draws its voices; neither needs a synthesiser."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from cwrnn.experiments.words.bundle import FILE, bundled, read_about

SCRIPT = Path(__file__).parents[3] / "tools" / "synthesise_words.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("synthesise_words", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def corpus():
    return bundled()


def test_the_bundle_has_the_papers_words_and_says_what_it_is(corpus, script):
    assert corpus.words == tuple(word for cluster in script.CLUSTERS for word in cluster)
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


def test_the_features_have_a_sane_scale(corpus):
    lengths = [len(each.features) for each in corpus.utterances]
    assert min(lengths) >= 25
    assert max(lengths) <= 150
    frames = np.concatenate([each.features for each in corpus.utterances])
    assert np.isfinite(frames).all()
    assert np.abs(frames).max() < 200
    assert (corpus.deviation[:12] > 10).all()
    assert (corpus.deviation[:12] < 40).all()
    # a word is as loud as speech, and no silence surrounds it
    assert 1 < corpus.deviation[12] < 5
    energy = np.array([each.features[:, 12].max() - each.features[:, 12].mean() for each in corpus.utterances])
    assert (energy < 8).all()


def test_no_two_utterances_are_the_same(corpus):
    assert len({each.features.tobytes() for each in corpus.utterances}) == 175


def test_the_bundle_is_what_the_script_draws(corpus, script):
    drawn = [
        (word, voice.speaker, "test" if testing else "train", f"synthetic: {voice.about}")
        for word, voices in script.draw(0).items()
        for voice, testing in voices
    ]
    assert drawn == [(each.word, each.speaker, each.split, each.source) for each in corpus.utterances]


def test_a_seed_decides_the_draw(script):
    assert script.draw(1) == script.draw(1)
    assert script.draw(1) != script.draw(2)


@pytest.mark.parametrize("seed", range(5))
def test_nobody_says_a_word_twice_and_the_engines_are_mixed(script, seed):
    drawn = script.draw(seed)
    for voices in drawn.values():
        assert len({voice.person for voice, _ in voices}) == 7
        assert Counter(voice.engine for voice, _ in voices) == script.PER_WORD
        assert [testing for _, testing in voices] == [False] * 5 + [True] * 2
    # an accent of a variant is heard in one word only
    formants = [voice.name for voices in drawn.values() for voice, _ in voices if voice.engine == "espeak-ng"]
    assert len(set(formants)) == len(formants) == 125


def test_the_split_does_not_depend_on_the_engine(script):
    words = [voices for seed in range(40) for voices in script.draw(seed).values()]
    counts = Counter((voice.engine, testing) for voices in words for voice, testing in voices)
    for engine, number in script.PER_WORD.items():
        # 1000 words: 2/7, give or take four standard deviations
        share = counts[engine, True] / (1000 * number)
        assert abs(share - 2 / 7) < 4 * np.sqrt(2 / 7 * 5 / 7 / (1000 * number))


def test_a_larger_speaker_is_lower_and_slower(script):
    tone = np.sin(2 * np.pi * 500 * np.arange(22_050) / 22_050)
    larger = script.resized(tone, 22_050, 1.25)
    assert len(larger) == 20_000
    # 1.25 s, in bins of 0.8 Hz
    assert 0.8 * np.abs(np.fft.rfft(larger)).argmax() == pytest.approx(400)


def test_without_the_tools_the_packages_are_named(script, tmp_path, monkeypatch):
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
