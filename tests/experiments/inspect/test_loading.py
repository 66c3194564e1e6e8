"""Which network is inspected, with which data."""

import contextlib
import dataclasses
import re
import shutil
import sqlite3

import numpy as np
import pytest
from support.inspected_networks import (
    make_sequence_store,
    make_word_store,
    read_records,
    save_recogniser,
)
from support.made_corpora import make_corpus

from cwrnn.experiments.errors import ExperimentError
from cwrnn.experiments.inspect.inspected import InspectionError
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.inspect.measuring import measure_network
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.words import inspected
from cwrnn.experiments.words.bundle import load_bundled_corpus
from cwrnn.experiments.words.inspected import SpokenWord
from cwrnn.saved import ModelError, SavedNetwork


def test_default_is_the_best_clockwork_rnn_of_the_largest_size(sequence_store):
    largest = [each for each in read_records(sequence_store) if (each.run.method, each.run.size) == ("cw", 250)]
    best = min(largest, key=lambda record: record.error)
    found = load_network(sequence_store)
    assert found.facts["run"] == best.key[:12]
    np.testing.assert_array_equal(found.layer.weight_hh_l0.detach().numpy(), best.weights["layer.weight_hh_l0"])
    inspected = measure_network(found)
    # computed from the weights, it is the error in the store
    assert inspected.intact["nmse"] == pytest.approx(best.error, rel=1e-5)
    assert inspected.schedule.spec == best.schedule


def test_srn_is_loaded_if_there_is_no_clockwork_rnn(tmp_path):
    found = load_network(make_sequence_store(tmp_path, methods=["srn"], sizes=[100], runs=1))
    assert (found.name, found.layer.schedule.periods) == ("SRN", (1,))


def test_run_is_found_by_its_key(sequence_store):
    wanted = next(each for each in read_records(sequence_store) if each.run.method == "srn")
    assert load_network(sequence_store, run=wanted.key[:10]).facts["run"] == wanted.key[:12]


def test_words_are_measured_as_in_training(word_store):
    best = min((each for each in read_records(word_store, "words") if each.run.size == 700 and each.run.method == "cw"),
               key=lambda r: r.error)  # fmt: skip
    found = load_network(word_store)
    assert found.facts["run"] == best.key[:12]
    intact = measure_network(found).intact
    labels = [make_corpus().words.index(each.word) for each in make_corpus().test]
    assert intact["error"] == pytest.approx(best.error)
    expected = -best.output[np.arange(len(labels)), labels].mean()
    assert intact["cross_entropy"] == pytest.approx(float(expected), rel=1e-5)


def test_chosen_word_is_shown(word_store):
    found = load_network(word_store, word="word2")
    assert isinstance(found.display, SpokenWord)
    assert found.display.words[found.display.label] == "word2"
    corpus = make_corpus()
    expected = next(each for each in corpus.test if each.word == "word2")
    assert found.display.speaker == expected.speaker
    np.testing.assert_allclose(
        found.inputs[found.shown], (expected.features - corpus.mean) / corpus.deviation, rtol=1e-5, atol=1e-6
    )


def test_other_data_are_normalised_as_the_training_data(word_store, monkeypatch):
    other = make_corpus(seed=5)
    asked = {}
    monkeypatch.setattr(inspected, "load_corpus", lambda source, **options: asked.update(options) or other)
    found = load_network(word_store, data="folder:elsewhere")
    trained = make_corpus()
    assert asked["words"] == trained.words
    expected = (other.test[0].features - trained.mean) / trained.deviation
    np.testing.assert_allclose(found.inputs[0], expected, rtol=1e-5, atol=1e-6)


def test_saved_recogniser_is_inspected_with_the_bundled_words(tmp_path):
    found = load_network(save_recogniser(tmp_path / "words.safetensors"))
    assert len(found.inputs) == len(load_bundled_corpus().test)
    np.testing.assert_array_equal(found.inputs[3], load_bundled_corpus().normalised("test")[3][0])
    assert "trained on" not in found.facts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "xyz"}, "no run with a key that begins with 'xyz'"),
        ({"run": ""}, "runs with a key that begins with ''"),
        ({"task": "words"}, "there are no runs of the task words"),
        ({"data": "bundle"}, "data is for networks that tell words apart"),
        ({"word": "making"}, "word is for networks that tell words apart"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(sequence_store, options, message):
    with pytest.raises(InspectionError, match=re.escape(message)):
        load_network(sequence_store, **options)


def test_every_method_is_loaded(tmp_path):
    """Without a Clockwork RNN, the default is another method with clocks, or else one without."""
    store = make_sequence_store(tmp_path, methods=["gru", "cw-gru", "lstm", "cw-lstm"], sizes=[100], runs=1)
    found = load_network(store)
    assert (found.name, found.layer.schedule.modules) == ("CW-LSTM", 4)
    assert "CW-LSTM of 5 units" in found.description
    for record in read_records(store):
        found = load_network(store, run=record.key)
        assert found.name == METHODS[record.run.method].label
        assert measure_network(found).intact["nmse"] == pytest.approx(record.error, rel=1e-4)


def test_unknown_word_is_refused(word_store):
    with pytest.raises(InspectionError, match="word must be one of word0, word1, word2, word3, got 'word9'"):
        load_network(word_store, word="word9")


def test_task_must_be_chosen_in_a_store_of_both(tmp_path):
    make_word_store(make_sequence_store(tmp_path, methods=["cw"], sizes=[100], runs=1))
    with pytest.raises(InspectionError, match="choose the task generation or words"):
        load_network(tmp_path)
    assert load_network(tmp_path, task="words").task == "words"
    assert load_network(tmp_path, task="generation").task == "generation"


def test_recogniser_has_no_task_or_run_to_choose(tmp_path):
    path = save_recogniser(tmp_path / "words.safetensors")
    for name in ("task", "run"):
        with pytest.raises(InspectionError, match=f"there is no {name} to choose"):
            load_network(path, **{name: "words"})


def test_words_with_other_feature_settings_are_refused(word_store, monkeypatch):
    corpus = make_corpus()
    other = dataclasses.replace(corpus, settings=dataclasses.replace(corpus.settings, step=5.0))
    monkeypatch.setattr(inspected, "load_corpus", lambda source, **options: other)
    with pytest.raises(InspectionError, match="not those that the network was trained with"):
        load_network(word_store, data="bundle")


def test_network_of_absurd_numbers_is_refused(tmp_path):
    path = save_recogniser(tmp_path / "model")
    saved = SavedNetwork.load(path)
    saved.tensors["features.deviation"][:] = 1e-300
    saved.save(path)
    with pytest.raises(InspectionError, match="are not finite: the numbers in its file are too large"):
        measure_network(load_network(path))


def test_paths_that_no_file_can_have_are_refused(tmp_path):
    for name in ("a" * 5000, "a\0b"):
        with pytest.raises(ModelError, match="cannot be read: (File name too long|the name has a NUL byte)"):
            load_network(tmp_path / name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("DELETE FROM arrays WHERE name = 'weight:layer.weight_hh_l0'", "do not fit its network"),
        ("UPDATE datasets SET kind = 'smells'", "a kind that this version does not know"),
        ("UPDATE datasets SET about = '{\"rate\": []}'", "must be a positive integer"),
        (f"UPDATE datasets SET about = '{'[' * 10**5}'", "the store is broken"),
    ],
)
def test_a_damaged_store_is_refused(sequence_store, tmp_path, damage, message):
    shutil.copy(sequence_store / "runs.sqlite", tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.sqlite")) as connection, connection:
        # without digests, as in a store of an earlier version, nothing else notices the damage
        connection.execute("DROP TABLE digests")
        connection.execute(damage)
    with pytest.raises(ExperimentError, match=message):
        load_network(tmp_path)
