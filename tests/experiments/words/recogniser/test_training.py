"""Training a recogniser: which network is kept, what the result says, and which arguments are refused."""

import json
from collections import Counter

import numpy as np
import pytest
from support.made_recognisers import SCHEDULE, make_settings
from support.sound_files import make_voice

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.inspect.network import inspect_network
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.words.recogniser.model import Recogniser
from cwrnn.experiments.words.recogniser.training import (
    NothingLearntError,
    fit_recogniser,
    lowest_cross_entropy,
    train_recogniser,
)
from cwrnn.experiments.words.training import train_many
from cwrnn.schedule import Schedule


def test_best_learner_of_the_training_words_is_chosen(corpus, trained):
    data = corpus.normalised("train"), corpus.normalised("test")
    losses = []
    for result, seed in zip(trained.results, [3, 4], strict=True):
        [alone] = train_many("cw", 13, *data, [seed], make_settings(schedule=SCHEDULE.spec))
        assert alone.error == result.error
        losses.append(lowest_cross_entropy(result))
    assert losses[trained.chosen] == min(losses)
    assert losses[0] != losses[1]
    about = trained.recogniser.training
    assert about["seed"] == [3, 4][trained.chosen]
    assert about["cross_entropy"] == min(losses)
    assert about["test_error"] == trained.result.error
    assert about["corpus"]["digest"] == corpus.digest


def test_network_is_that_of_the_experiment(corpus):
    """With the same seed, `words train` and `reproduce words` make the same network."""
    data = corpus.normalised("train"), corpus.normalised("test")
    [result] = train_many("cw", 14, *data, [5], make_settings(epochs=2))
    found = fit_recogniser(corpus, Schedule.exponential(14, 7), make_settings(epochs=2), seeds=[5])
    for name, value in found.recogniser.saved.network.named_parameters():
        np.testing.assert_array_equal(value, result.weights[name])


def test_one_module_of_period_1_is_an_srn(corpus):
    found = fit_recogniser(corpus, Schedule((1,), (5,)), make_settings(epochs=1)).recogniser
    assert found.saved.method == "srn"
    assert len(found.recognise(make_voice(1), 16000)) == 3


@pytest.mark.parametrize("method", [method for method in METHODS if method not in ("srn", "cw")])
def test_every_method_is_trained_saved_and_used(corpus, recordings, tmp_path, method):
    options = {"hidden": 5} if not METHODS[method].has_clocks else {"schedule": "1:3,2:2"}
    path = tmp_path / "model"
    trained = train_recogniser(path, data=corpus, method=method, epochs=2, learning_rate=0.01, **options)
    assert f"{METHODS[method].label}" in str(trained)
    loaded = Recogniser.load(path)
    assert (loaded.saved.method, loaded.saved.schedule) == (method, trained.recogniser.saved.schedule)
    samples = make_voice(1)
    whole = loaded.recognise(samples, 16000)
    assert whole == trained.recogniser.recognise(samples, 16000)
    listener = loaded.listen()
    for chunk in np.array_split(samples, 7):
        listener.accept(chunk)
    listener.finish()
    assert listener.decision.word == whole[0][0]
    assert listener.decision.probability == pytest.approx(whole[0][1], rel=1e-4)
    assert "multiply-adds" in str(inspect_network(path, data=f"folder:{recordings}"))


@pytest.mark.parametrize("learning_rate", [1e3, 1e30, 1e300])
def test_training_that_learns_nothing_is_an_error(corpus, learning_rate):
    with pytest.raises(NothingLearntError, match="nothing was learnt"):
        fit_recogniser(corpus, SCHEDULE, make_settings(learning_rate=learning_rate))


def test_result_has_the_numbers_that_it_prints(corpus, tmp_path):
    reports = []
    trained = train_recogniser(tmp_path / "model", data=corpus, schedule=SCHEDULE, epochs=2, learning_rate=0.01,
                               runs=2, seed=3, progress=reports.append)  # fmt: skip
    decided = [corpus.words[i] for i in trained.result.output.argmax(axis=1)]
    wrong = Counter((each.word, word) for each, word in zip(corpus.test, decided, strict=True) if each.word != word)
    assert {(each.word, each.taken_for): each.count for each in trained.mistakes} == wrong
    assert trained.test_error == sum(wrong.values()) / len(corpus.test)
    text = str(trained)
    assert f"test: {sum(wrong.values())} of 6 taken for another word, {100 * trained.test_error:.1f} %" in text
    assert f"run {trained.chosen + 1} of 2, {trained.cross_entropy:.2g}" in text
    numbers = json.loads(json.dumps(trained.to_dict(), allow_nan=False))
    assert (numbers["test_error"], numbers["schedule"]) == (trained.test_error, SCHEDULE.spec)
    assert numbers["model"] == str(tmp_path / "model")
    assert {report.activity for report in reports} == {"training"}
    assert reports[-1].done == 2


def test_nothing_is_written_without_a_file(corpus, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trained = train_recogniser(data=corpus, words=["no", "yes"], schedule="1:4,2:3", epochs=2, learning_rate=0.01)
    assert trained.recogniser.words == ("no", "yes")
    assert trained.recogniser.saved.schedule.spec == "1:4,2:3"
    assert trained.to_dict()["model"] is None
    assert "To use it" not in str(trained)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "argument", "message"),
    [
        ({"method": "rnn"}, "method", "expected one of srn, lstm, cw, gru, cw-lstm, cw-gru, got 'rnn'"),
        ({"runs": 0}, "runs", "expected 1 to 32, got 0"),
        ({"epochs": 0}, "epochs", "expected at least 1, got 0"),
        ({"seed": -1}, "seed", "expected a number from 0 to 2^62, got -1"),
        ({"noise": -1.0}, "noise", "expected a standard deviation, 0 or more, got -1.0"),
        ({"learning_rate": 0.0}, "learning_rate", "expected a number above 0, got 0.0"),
        ({"size": 100, "schedule": "1:4"}, "schedule", "expected only one of size and schedule"),
        ({"hidden": 3}, "hidden", "3"),
        ({"words": ["yes", "zebra"]}, "words", "there is no example of the word 'zebra'"),
        ({"data": "folder:/nowhere"}, "data", "folder:/nowhere: there is no such folder"),
        ({"data": "bundle", "words": ["making", "zebra"]}, "words", "there is no example of the word 'zebra'"),
    ],
)
def test_bad_argument_is_named(corpus, options, argument, message):
    with pytest.raises(ArgumentError) as refused:
        train_recogniser(**{"data": corpus, **options})
    assert refused.value.argument == argument
    assert message in refused.value.message
