"""A recogniser decides as in training, frame by frame as at once, and refuses files that do not fit."""

import copy
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.made_recognisers import SCHEDULE, WORDS
from support.sound_files import make_voice

from cwrnn.experiments.words.features import mfcc, resample
from cwrnn.experiments.words.recogniser.model import Recogniser, trim_silence
from cwrnn.experiments.words.sound_files import SoundError, decode_sound
from cwrnn.saved import ModelError, SavedNetwork


def test_recogniser_decides_as_in_training(corpus, recordings, trained):
    """Features, normalisation and network are those of the training."""
    for each, expected in zip(corpus.test, trained.result.output, strict=True):
        word, speaker = each.word, each.speaker
        sample_rate, samples = decode_sound((recordings / word / f"{speaker}.wav").read_bytes())
        found = dict(trained.recogniser.recognise(samples, sample_rate))
        np.testing.assert_allclose([found[word] for word in corpus.words], np.exp(expected), rtol=1e-5)


def test_candidates_are_sorted_by_probability(recogniser):
    ranked = recogniser.recognise(make_voice(1), 16000)
    assert sorted(word for word, _ in ranked) == sorted(WORDS)
    values = [value for _, value in ranked]
    assert values == sorted(values, reverse=True)
    assert sum(values) == pytest.approx(1)
    assert values[0] > values[-1]


def test_recogniser_is_loaded_as_it_was_saved(recogniser, model):
    after = Recogniser.load(model)
    samples = make_voice(2)
    assert after.recognise(samples, 16000) == recogniser.recognise(samples, 16000)
    assert (after.words, after.clusters, after.settings) == (recogniser.words, recogniser.clusters, recogniser.settings)
    assert after.training == recogniser.training
    assert after.saved.schedule == SCHEDULE


@pytest.mark.parametrize("sample_rate", [16000, 8000, 44100])
@pytest.mark.parametrize("chunk", [1, 7, 160, 1024, 10**6])
def test_stream_decides_as_the_whole_sound(recogniser, sample_rate, chunk):
    samples = make_voice(5, 2500 if chunk == 1 else 9000, sample_rate)
    listener = recogniser.listen(sample_rate)
    decisions = []
    for start in range(0, len(samples), chunk):
        decisions += listener.accept(samples[start : start + chunk])
    decisions += listener.finish()
    whole = resample(samples, sample_rate, 16000)
    assert len(decisions) == len(mfcc(whole))
    expected = recogniser.recognise(samples, sample_rate)
    assert listener.decision == decisions[-1]
    assert (decisions[-1].word, decisions[-1].probability) == decisions[-1].candidates[0]
    assert decisions[-1].word == expected[0][0]
    found = dict(decisions[-1].candidates)
    np.testing.assert_allclose([found[word] for word, _ in expected], [p for _, p in expected], rtol=1e-5)
    assert [d.time for d in decisions[:2]] == pytest.approx([0.025, 0.035])
    # the decision in the middle is that of the sound up to there
    middle = len(decisions) // 2
    so_far = recogniser.recognise(whole[: 400 + 160 * middle], 16000)
    found = dict(decisions[middle].candidates)
    np.testing.assert_allclose([found[word] for word, _ in so_far], [p for _, p in so_far], rtol=1e-5)


def test_two_streams_do_not_disturb_each_other(recogniser):
    one, other = recogniser.listen(), recogniser.listen()
    samples = make_voice(6), make_voice(7)
    for start in range(0, 4800, 480):
        one.accept(samples[0][start : start + 480])
        other.accept(samples[1][start : start + 480])
    for listener, each in zip((one, other), samples, strict=True):
        word, probability = recogniser.recognise(each, 16000)[0]
        assert listener.decision.word == word
        assert listener.decision.probability == pytest.approx(probability, rel=1e-5)


def test_silent_and_short_sounds_are_refused(recogniser):
    for samples, reason in ((np.zeros(0), "no samples"), (np.zeros(16000), "silent"), (np.ones(8) / 9, "silent")):
        with pytest.raises(SoundError, match=reason):
            recogniser.recognise(samples, 16000)
    with pytest.raises(SoundError, match="too short: 10 ms, expected at least one window of 25 ms"):
        recogniser.recognise(make_voice(1, 160), 16000)
    with pytest.raises(SoundError, match="the sample rate is 4000 Hz"):
        recogniser.recognise(make_voice(1), 4000)
    listener = recogniser.listen()
    assert listener.accept(np.zeros(399)) == listener.finish() == []
    assert listener.decision is None
    with pytest.raises(ValueError, match="the sample rate is 4000 Hz"):
        recogniser.listen(4000)


@pytest.mark.parametrize("value", [np.nan, 1e30])
def test_sample_that_cannot_be_used_is_named(recogniser, value):
    samples = make_voice(1)
    samples[3210] = value
    with pytest.raises(SoundError, match=f"sample 3210 is {re.escape(format(value, 'g'))}"):
        recogniser.recognise(samples, 16000)
    listener = recogniser.listen()
    listener.accept(samples[:3000])
    with pytest.raises(SoundError, match=f"sample 3210 is {re.escape(format(value, 'g'))}"):
        listener.accept(samples[3000:])


@pytest.mark.parametrize("change", ["readout", "deviation", "mean"])
def test_probability_that_is_not_finite_is_refused(recogniser, change):
    saved = copy.deepcopy(recogniser.saved)
    if change == "readout":
        # one of them is infinite, whatever the sign of the state
        saved.network.readout.weight.copy_(torch.tensor([3e38, -3e38, 1.0])[:, None])
        saved.network.readout.bias.fill_(3e38)
    else:
        saved.tensors[f"features.{change}"][:] = 1e-300 if change == "deviation" else 1e300
    absurd = Recogniser(saved)
    with pytest.raises(SoundError, match="the network computes probabilities that are not finite"):
        absurd.recognise(make_voice(1), 16000)
    with pytest.raises(SoundError, match="the network computes probabilities that are not finite"):
        absurd.listen().accept(make_voice(1))


def test_trim_silence_leaves_the_word_and_a_margin():
    word = np.sin(np.arange(4800))
    for rate in (16000, 8000):
        silence = 0.001 * np.sin(np.arange(rate))
        found = trim_silence(np.concatenate([silence, word, silence]), rate)
        assert len(found) == pytest.approx(4800 + 0.04 * rate, abs=0.021 * rate)
        margin = round(0.02 * rate)
        np.testing.assert_array_equal(found[margin : margin + 4800], word)
    np.testing.assert_array_equal(trim_silence(word, 16000), word)
    np.testing.assert_array_equal(trim_silence(word[:100], 16000), word[:100])
    np.testing.assert_array_equal(trim_silence(np.zeros(500), 16000), np.zeros(500))


def edit_model(model, about=None, tensors=None, **changes):
    """Write a model that is valid as a saved network, but has other contents."""
    old = SavedNetwork.load(model)
    about = {**old.about, **(about or {})}
    about = {name: value for name, value in about.items() if value is not ...}
    values = {**old.tensors, **(tensors or {})}
    values = {name: value for name, value in values.items() if value is not ...}
    SavedNetwork(changes.get("kind", old.kind), old.method, changes.get("network", old.network), values, about).save(
        model
    )


FEATURES = {"rate": 16000, "window": 25.0, "step": 10.0, "preemphasis": 0.97, "cepstra": 12, "filters": 26,
            "lifter": 22.0, "high": 8000.0}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "generation"}, "a network of the kind 'generation', expected a recogniser of words"),
        ({"about": {"words": ...}}, "the words must be a list of texts, got"),
        ({"about": {"words": ["yes", "no", 3]}}, "the words must be a list of texts, got"),
        ({"about": {"words": ["yes", "no", "no"]}}, "the words must be two or more different ones, got"),
        ({"about": {"words": ["yes", "no", "\x1b[2J"]}}, r"the word '\x1b[2J' has control characters"),
        ({"about": {"words": ["yes", "no", "nay"]}}, "the clusters must be a number from 1 on for each word, got"),
        (
            {"about": {"words": ["yes", "no"], "clusters": {"yes": 1, "no": 1}}},
            "expected a softmax of 2 words, the network has 3 outputs",
        ),
        ({"about": {"clusters": {"yes": 1, "no": 0, "née": 1}}}, "the clusters must be"),
        ({"about": {"features": ...}}, "the feature settings must be rate, window"),
        ({"about": {"features": FEATURES | {"dither": 1}}}, "the feature settings must be rate, window"),
        ({"about": {"features": FEATURES | {"rate": "16000"}}}, "the feature setting rate must be of type int"),
        ({"about": {"features": FEATURES | {"rate": 16000.5}}}, "the feature setting rate must be of type int"),
        ({"about": {"features": FEATURES | {"window": True}}}, "the feature setting window must be of type float"),
        (
            {"about": {"features": FEATURES | {"rate": 1}}},
            "feature settings cannot be used: rate must be from 8000",
        ),
        (
            {"about": {"features": FEATURES | {"lifter": 2**62}}},
            "lifter must be from 0 (none) to 10000, got 4.61169e+18",
        ),
        ({"about": {"features": FEATURES | {"filters": 2**62}}}, "expected 1 <= cepstra < filters <= 1024"),
        ({"about": {"features": FEATURES | {"window": 2**62}}}, "expected 0 < step <= window <= 1000 ms"),
        ({"about": {"features": FEATURES | {"high": -1.0}}}, "high must be above 0"),
        ({"about": {"words": ["yes", "no", []]}}, "the words must be a list of texts, got"),
        ({"about": {"clusters": {"yes": 1, "no": 1.0, "née": 1}}}, "the clusters must be"),
        ({"about": {"features": FEATURES | {"cepstra": 11}}}, "expected 12 inputs, as the features have, got 13"),
        ({"tensors": {"features.mean": ...}}, "expected the tensors features.mean and features.deviation"),
        ({"tensors": {"more": np.ones(1)}}, "expected the tensors features.mean and features.deviation"),
        ({"tensors": {"features.mean": np.zeros(12)}}, "must be (13,)"),
        ({"tensors": {"features.deviation": np.zeros(13)}}, "the deviation above 0"),
    ],
)
def test_model_whose_parts_do_not_fit_is_refused(model, changes, message):
    edit_model(model, **changes)
    with pytest.raises(ModelError) as caught:
        Recogniser.load(model)
    assert str(caught.value).startswith(f"{model}: ")
    assert message in str(caught.value)


def test_words_that_utf_8_cannot_hold_are_refused(recogniser):
    """A file with such a word is refused before, but a recogniser in memory is not read from a file."""
    words = [*WORDS[:-1], "a\udcffb"]
    about = {**recogniser.saved.about, "words": words, "clusters": dict.fromkeys(words, 1)}
    with pytest.raises(ModelError, match=re.escape(r"the word 'a\udcffb' has half of a surrogate pair")):
        Recogniser(replace(recogniser.saved, about=about))


def test_edited_model_without_a_change_is_loaded(model):
    """The test above fails for the contents that it changes, not for the way it changes them."""
    edit_model(model, {"features": FEATURES})
    Recogniser.load(model)
