"""A corpus: labels, normalisation, hash, refusals; and the sources that it can be loaded from."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.made_corpora import make_small_corpus
from support.sound_files import write_word_folders

from cwrnn.experiments.words.corpus import CorpusError, load_corpus


def load_without_cache(source, **options):
    return load_corpus(str(source), **{"cache": False, **options})


def change_utterance(whole, i, **changes):
    """Return a corpus with one utterance changed."""
    each = list(whole.utterances)
    each[i] = replace(each[i], **changes)
    return replace(whole, utterances=tuple(each))


def test_words_are_ordered_by_cluster_then_by_appearance():
    assert make_small_corpus(clusters={"c": 2, "b": 1, "a": 2}).words == ("b", "c", "a")


def test_training_frames_alone_normalise_both_splits():
    whole = make_small_corpus()
    train, test = whole.normalised("train"), whole.normalised("test")
    frames = np.concatenate([sequence for sequence, _ in train])
    np.testing.assert_allclose(frames.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(frames.std(axis=0), 1, atol=1e-6)
    assert abs(np.concatenate([sequence for sequence, _ in test]).mean()) > 1e-3
    assert {sequence.dtype for sequence, _ in train + test} == {np.dtype(np.float32)}
    # the test words change nothing in the training words
    other = change_utterance(whole, 1, features=whole.utterances[1].features * 100)
    for (one, _), (two, _) in zip(train, other.normalised("train"), strict=True):
        np.testing.assert_array_equal(one, two)
    mean = np.concatenate([each.features for each in whole.train]).mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(whole.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(test[0][0] * whole.deviation + whole.mean, whole.test[0].features, rtol=1e-4)


def test_sequences_have_the_labels_and_the_order_of_the_utterances():
    whole = make_small_corpus(clusters={"c": 1, "b": 1, "a": 1})
    assert [label for _, label in whole.normalised("train")] == [2, 2, 1, 1, 0, 0]
    assert [len(sequence) for sequence, _ in whole.normalised("train")] == [5, 7, 5, 7, 5, 7]
    assert [each.source for each in whole.test] == ["a1", "b1", "c1"]
    with pytest.raises(ValueError, match="split must be 'train' or 'test', got 'dev'"):
        whole.normalised("dev")


def test_digest_depends_on_everything_that_decides_a_training():
    whole = make_small_corpus()
    same = [
        make_small_corpus(),
        replace(whole, name="other", source="elsewhere", synthetic=True),
        change_utterance(whole, 0, source="elsewhere"),
        make_small_corpus(clusters={"a": 1, "b": 2, "c": 2}),
    ]
    assert {each.digest for each in same} == {whole.digest}
    features = whole.utterances[0].features.copy()
    features[0, 0] += 1e-4
    others = [
        change_utterance(whole, 0, features=features),
        change_utterance(whole, 0, speaker="s9"),
        change_utterance(whole, 2, split="test"),
        change_utterance(whole, 0, word="b"),
        replace(whole, settings=replace(whole.settings, filters=24)),
        replace(whole, utterances=whole.utterances[::-1]),
        make_small_corpus(clusters={"b": 1, "a": 1, "c": 1}),
    ]
    assert len({each.digest for each in [whole, *others]}) == 8


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_small_corpus(words=("a",)), "small: at least two words are needed, got 1"),
        (
            lambda: change_utterance(make_small_corpus(), 1, split="train"),
            "small: the word 'a' has no example for testing",
        ),
        (lambda: make_small_corpus(clusters={"a": 1, "b": 1, "c": 1, "d": 1}), "'d' has no example for training"),
        (
            lambda: change_utterance(make_small_corpus(), 4, split="dev"),
            "b1: the split must be 'train' or 'test', got 'dev'",
        ),
        (lambda: change_utterance(make_small_corpus(), 4, word=""), "b1: the word is empty"),
        (lambda: change_utterance(make_small_corpus(), 4, word="z"), "b1: the word 'z' has no cluster"),
        (
            lambda: change_utterance(make_small_corpus(), 4, features=np.zeros((0, 13), np.float32)),
            r"b1: .* T >= 1, got \(0, 13\)",
        ),
        (
            lambda: change_utterance(make_small_corpus(), 4, features=np.zeros((4, 12), np.float32)),
            r"b1: .*\(T, 13\).*got \(4, 12\)",
        ),
        (
            lambda: change_utterance(make_small_corpus(), 4, features=np.full((4, 13), np.nan, np.float32)),
            "b1: the features are not finite",
        ),
    ],
)
def test_corpus_that_cannot_be_trained_on_is_refused(make, message):
    with pytest.raises(CorpusError, match=message):
        make()


def test_constant_channel_is_refused():
    whole = make_small_corpus()
    flat = [each.features * (np.arange(13) != 4) + 0.1 for each in whole.utterances]
    parts = [replace(each, features=part.astype(np.float32)) for each, part in zip(whole.utterances, flat, strict=True)]
    with pytest.raises(CorpusError, match="small: channel 5 of the features is constant in training"):
        replace(whole, utterances=tuple(parts))


def test_error_can_be_pickled():
    error = pickle.loads(pickle.dumps(CorpusError("here", ["one", "two"])))
    assert str(error) == "here: 2 problems:\n  one\n  two"


@pytest.mark.parametrize("kind", ["folder", "timit", "nltk-timit"])
def test_missing_folder_is_reported(tmp_path, kind):
    with pytest.raises(CorpusError, match=f"{kind}:.*nowhere: there is no such folder"):
        load_without_cache(f"{kind}:{tmp_path}/nowhere")


def test_tilde_after_the_colon_is_the_home_folder(tmp_path, monkeypatch):
    """No shell expands ~ after a colon."""
    write_word_folders(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load_without_cache("folder:~/mine").utterances) == 14


@pytest.mark.parametrize("source", ["", "nowhere", "timit", "timit:", "ldc:/somewhere", "folder:"])
def test_unknown_source_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match="expected bundle, timit:PATH, nltk-timit:PATH, folder:PATH or an existing"):
        load_without_cache(source)


@pytest.mark.parametrize("words", [[], ["a"], ["a", "a"], ["a", ""]])
def test_fewer_than_two_different_words_are_refused(words):
    with pytest.raises(CorpusError, match="expected two or more different words, got"):
        load_without_cache("bundle", words=words)


@pytest.mark.parametrize(("speakers", "test"), [(2, 2), (7, 0), (0, -1)])
def test_split_without_training_or_test_is_refused(speakers, test):
    with pytest.raises(CorpusError, match="expected 1 <= test < speakers, got"):
        load_without_cache("bundle", speakers=speakers, test=test)
