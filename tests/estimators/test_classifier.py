"""The classifier remembers what a network without clocks forgets, and treats all forms of input alike."""

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from support.made_sequences import make_blobs, make_classes

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule
from cwrnn.estimators import ClockworkClassifier, training

TINY = {"hidden_size": 8, "max_epochs": 3, "random_state": 0}


def pad(sequences):
    """An array (n, T, channels) with NaN from the ends of the sequences on."""
    longest = max(map(len, sequences))
    padded = np.full((len(sequences), longest, sequences[0].shape[1]), np.nan)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return padded


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_clocks_remember_the_first_of_100_steps(cell):
    X, y = make_classes(64, seed=0)
    X_test, y_test = make_classes(100, seed=1)
    options = {"cell": cell, "hidden_size": 32, "max_epochs": 30, "random_state": 0}
    with_clocks = ClockworkClassifier(**options).fit(X, y)
    without = ClockworkClassifier(schedule=[1], **options).fit(X, y)
    assert with_clocks.schedule_.periods == (1, 2, 4, 8, 16, 32, 64)
    # chance is 0.25
    assert with_clocks.score(X_test, y_test) > 0.95
    assert without.score(X_test, y_test) < 0.5


def test_a_rhythm_in_the_data_becomes_a_clock():
    random = np.random.default_rng(0)
    phases = random.uniform(size=(40, 1))
    X = np.sin(2 * np.pi * (np.arange(200) / 25 + phases)) + 0.3 * random.normal(size=(40, 200))
    classifier = ClockworkClassifier(**TINY).fit(X, phases[:, 0] > 0.5)
    assert 25 in classifier.schedule_.periods


@pytest.mark.parametrize(("schedule", "periods", "sizes"), [
    ([1, 5], (1, 5), (4, 4)),
    (2, (1, 2), (4, 4)),
    ("1:3,7:5", (1, 7), (3, 5)),
    (Schedule((1, 7), (3, 5)), (1, 7), (3, 5)),
])  # fmt: skip
def test_a_given_schedule_is_used(schedule, periods, sizes):
    X, y = make_blobs(12)
    classifier = ClockworkClassifier(schedule=schedule, **TINY).fit(X, y)
    assert classifier.schedule_ == classifier.network_.layer.schedule == Schedule(periods, sizes)


def test_the_schedule_may_say_how_many_units_there_are():
    X, y = make_blobs(12)
    options = {"max_epochs": 1}
    assert ClockworkClassifier(schedule="1:3,7:2", **options).fit(X, y).network_.layer.hidden_size == 5
    assert ClockworkClassifier(schedule=[1, 7], **options).fit(X, y).network_.layer.hidden_size == 128
    assert ClockworkClassifier(**options).fit(X, y).network_.layer.hidden_size == 128


def test_lists_and_padded_arrays_give_the_same_bits():
    X, y = make_classes(24, seed=0, shortest=5, longest=12)
    ragged, padded = (ClockworkClassifier(**TINY).fit(form, y) for form in (X, pad(X)))
    assert ragged.loss_curve_ == padded.loss_curve_
    expected = ragged.predict_proba(X)
    np.testing.assert_array_equal(padded.predict_proba(pad(X)), expected)
    np.testing.assert_array_equal(padded.predict_proba(X), expected)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_sequence_is_classified_alike_alone_and_among_longer_ones(cell):
    X, y = make_classes(24, seed=0, shortest=1, longest=12)
    classifier = ClockworkClassifier(cell=cell, bidirectional=True, num_layers=2, **TINY).fit(X, y)
    together = classifier.predict_proba(X)
    alone = np.concatenate([classifier.predict_proba([sequence]) for sequence in X])
    np.testing.assert_allclose(together, alone, rtol=1e-5)


def test_a_table_and_its_array_with_one_channel_give_the_same_bits():
    X, y = make_blobs(20)
    table, cube = (ClockworkClassifier(**TINY).fit(form, y) for form in (X, X[:, :, None]))
    np.testing.assert_array_equal(table.predict_proba(X), cube.predict_proba(X))


@pytest.mark.parametrize(("options", "layer"), [
    ({"cell": "rnn"}, ClockworkRNN), ({"cell": "lstm"}, ClockworkLSTM), ({"cell": "gru"}, ClockworkGRU),
])  # fmt: skip
def test_options_reach_the_network(options, layer):
    X, y = make_blobs(12)
    options = {**TINY, **options, "num_layers": 2, "bidirectional": True, "dropout": 0.25}
    network = ClockworkClassifier(**options).fit(X, y).network_
    assert isinstance(network.layer, layer)
    assert (network.layer.num_layers, network.layer.bidirectional, network.layer.dropout) == (2, True, 0.25)
    assert network.dropout.p == 0.25
    assert network.readout.in_features == 16


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_readout_reads_the_last_layer_at_both_ends(cell):
    X, y = make_classes(6, seed=0, shortest=5, longest=5)
    options = {"cell": cell, "num_layers": 2, "bidirectional": True, "device": "cpu", **TINY}
    network = ClockworkClassifier(**options).fit(X, y).network_
    input = torch.from_numpy(np.stack(X, axis=1)).float()
    with torch.no_grad():
        output, _ = network.layer(input)
        state = network.read(input)
        torch.testing.assert_close(state, torch.cat([output[-1, :, :8], output[0, :, 8:]], dim=1))
        torch.testing.assert_close(network(input), network.readout(state))


def test_outputs_that_are_not_finite_are_an_error():
    X, y = make_blobs(12)
    classifier = ClockworkClassifier(**TINY).fit(X, y)
    with torch.no_grad():
        classifier.network_.readout.bias.fill_(torch.inf)
    with pytest.raises(FloatingPointError, match="the outputs are not finite numbers"):
        classifier.predict(X)


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, 7], [-0.5, 2.0], [False, True], np.array(["no", "yes"], dtype=object)],
    ids=str,
)
def test_labels_of_any_type(labels):
    X, numbers = make_blobs(40)
    y = np.asarray(labels)[(numbers > 0).astype(int)]
    if np.asarray(labels).dtype == float:
        # scikit-learn takes numbers with a fraction for the target of a regression
        with pytest.raises(ValueError, match="Unknown label type: continuous"):
            ClockworkClassifier(**TINY).fit(X, y)
        return
    classifier = ClockworkClassifier(hidden_size=16, max_epochs=20, random_state=0).fit(X, y)
    assert classifier.classes_.tolist() == list(labels)
    assert classifier.predict(X).dtype == y.dtype
    assert classifier.score(X, y) > 0.9
    probabilities = classifier.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(probabilities), classifier.predict_log_proba(X), rtol=1e-6, atol=1e-12)


def test_sequences_are_held_out_in_equal_shares_of_each_class():
    _, y = make_blobs(60)
    classifier = ClockworkClassifier(early_stopping=True, validation_fraction=0.2)
    train, held_out = classifier._hold_out(60, y, np.random.RandomState(0))
    assert np.bincount(y[held_out]).tolist() == [4, 4, 4]
    assert sorted([*train.tolist(), *held_out.tolist()]) == list(range(60))
    # of a class with a single sequence, none is held out
    train, held_out = classifier._hold_out(11, np.array([0] * 10 + [1]), np.random.RandomState(0))
    assert 10 in train
    assert len(held_out) == 2


@pytest.mark.parametrize(("n", "early_stopping", "is_held_out"), [
    (99, "auto", False), (102, "auto", True), (30, True, True), (300, False, False), (3, True, False),
])  # fmt: skip
def test_when_sequences_are_held_out(n, early_stopping, is_held_out):
    X, y = make_blobs(n)
    classifier = ClockworkClassifier(early_stopping=early_stopping, **TINY).fit(X, y)
    assert bool(classifier.validation_curve_) == is_held_out
    assert len(classifier.loss_curve_) == classifier.n_iter_ == 3


def test_training_stops_when_the_held_out_loss_no_longer_falls():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 5)), random.integers(2, size=60)
    classifier = ClockworkClassifier(
        hidden_size=16, learning_rate=0.05, rate_shape="constant", early_stopping=True, patience=2, random_state=0
    ).fit(X, y)
    assert classifier.stopped_ == "patience"
    assert classifier.n_iter_ == classifier.best_epoch_ + 2 < 100
    assert min(classifier.validation_curve_) == classifier.validation_curve_[classifier.best_epoch_ - 1]


def test_a_training_that_diverges_warns_and_keeps_its_best_weights(monkeypatch):
    X, y = make_blobs(12)
    losses = iter([0.5, 0.4, float("nan")])
    monkeypatch.setattr(training._Loop, "_train_epoch", lambda self, items, total: next(losses))
    with pytest.warns(ConvergenceWarning, match=r"not finite in epoch 3: .* epoch 2 were kept; learning_rate=0\.005"):
        classifier = ClockworkClassifier(hidden_size=8).fit(X, y)
    assert (classifier.stopped_, classifier.loss_curve_) == ("diverged", [0.5, 0.4])


def test_unscaled_input_is_left_alone():
    X, y = make_blobs(12)
    classifier = ClockworkClassifier(scale=False, **TINY).fit(X, y)
    assert (classifier.scaling_.mean.tolist(), classifier.scaling_.deviation.tolist()) == ([0], [1])
    scaled = ClockworkClassifier(**TINY).fit(X, y)
    assert scaled.scaling_.mean == pytest.approx(X.mean())
    assert scaled.scaling_.deviation == pytest.approx(X.std())
    # another unit of measurement changes nothing
    other = ClockworkClassifier(**TINY).fit(1000 * X + 5, y)
    np.testing.assert_allclose(other.predict_proba(1000 * X + 5), scaled.predict_proba(X), rtol=1e-3, atol=1e-4)


def test_a_progress_bar_is_drawn(capsys):
    X, y = make_blobs(12)
    ClockworkClassifier(verbose=True, **TINY).fit(X, y)
    assert "ClockworkClassifier, epoch 3 of at most 3" in capsys.readouterr().err


def test_predictions_come_in_batches(monkeypatch):
    X, y = make_classes(12, seed=0, shortest=5, longest=9)
    classifier = ClockworkClassifier(**TINY).fit(X, y)
    expected = classifier.predict_proba(X)
    monkeypatch.setattr("cwrnn.estimators.sequence_estimator.MOST_STEPS", 20)
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-6)


def test_a_second_fit_forgets_the_first():
    X, y = make_blobs(12)
    classifier = ClockworkClassifier(**TINY)
    once = classifier.fit(X, y).predict_proba(X)
    classifier.fit([sequence[:, None] for sequence in X[:, :3]], y > 0)
    assert (classifier.n_features_in_, classifier.n_steps_, len(classifier.classes_)) == (1, None, 2)
    np.testing.assert_array_equal(classifier.fit(X, y).predict_proba(X), once)
