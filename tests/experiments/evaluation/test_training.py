"""One network is trained on batches of sequences: its loss, its answers, its updates, and the parts of the data."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.made_images import NAMES, TEST, TEST_LABELS, TRAINING, TRAINING_LABELS, write_images

from cwrnn.experiments.evaluation import training
from cwrnn.experiments.evaluation.adding import BASELINE, make_adding
from cwrnn.experiments.evaluation.copying import make_copying
from cwrnn.experiments.evaluation.evaluation import find_evaluation
from cwrnn.experiments.evaluation.examples import Batch, Examples
from cwrnn.experiments.evaluation.images import read_images
from cwrnn.experiments.evaluation.plan import fit_settings
from cwrnn.experiments.evaluation.training import (
    COLUMNS,
    CUT,
    EvaluationSettings,
    answer,
    build_untrained,
    measure_loss,
    train,
)
from cwrnn.experiments.networks.methods import ALL_METHODS
from cwrnn.experiments.networks.models import echo_state
from cwrnn.experiments.networks.models.table import find_layer_class

METHODS = list(ALL_METHODS)
TRAINED = [name for name in METHODS if not (ALL_METHODS[name].model and find_layer_class(ALL_METHODS[name]).is_fixed)]
ADDING, COPY, IMAGES = map(find_evaluation, ("adding", "copy", "sequential-mnist"))


class FakeExamples(Examples):
    """Two inputs and one number to answer, which remembers who asks for what: 5 updates in an epoch."""

    kind, has_classes = "adding", False
    name = source = digest = "fake"
    inputs, outputs, length = 2, 1, 6

    def __init__(self, values=None, targets=None):
        self.asked = []
        self.values = values or {"training": 0.5, "validation": 0.5, "test": 0.5}
        self.targets = targets or {"training": 1.0, "validation": 2.0, "test": 3.0}

    def count_updates(self, batch):
        return 5

    def make(self, part, batch, noise=0.0):
        value = self.values[part]
        return Batch(torch.full((6, batch, 2), value) + noise, torch.full((1, batch, 1), self.targets[part]))

    def make_epoch(self, batch, generator):
        for _ in range(5):
            self.asked.append("training")
            yield self.make("training", batch, generator.random())

    def make_part(self, part, batch):
        self.asked.append(part)
        yield self.make(part, 3)

    def describe(self):
        return {}

    def pack_numbers(self):
        return b""

    @classmethod
    def restore(cls, name, source, about, numbers):
        return cls()


def make_settings(examples, method="cw", size=300, periods=(1, 2), **options):
    settings = EvaluationSettings(
        **{"learning_rate": 1e-3, "epochs": 1, "batch": 4, "inputs": examples.inputs, "outputs": examples.outputs}
        | options
    )
    return fit_settings(method, size, settings, periods)


def run(examples, method="cw", task=ADDING, seed=0, progress=None, **options):
    hidden, settings = make_settings(examples, method, **options)
    return train(method, hidden, examples, task.measure_error, seed, settings, progress=progress)


def same_bits(a, b):
    return a.error == b.error and all(np.array_equal(a.weights[name], b.weights[name]) for name in a.weights)


def test_classes_have_the_cross_entropy_of_the_last_steps():
    network = build_untrained("cw", 8, EvaluationSettings(1e-3, 1, inputs=3, outputs=4, modules=2))
    input, target = torch.randn(7, 5, 3), torch.randint(4, (2, 5))
    probabilities = network(input)[-2:].softmax(-1).detach()
    expected = -np.mean([math.log(probabilities[a, b, target[a, b]]) for a in range(2) for b in range(5)])
    loss = measure_loss(answer(network, Batch(input, target)), target)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_numbers_have_the_mean_squared_error_of_the_last_steps():
    network = build_untrained("cw", 8, EvaluationSettings(1e-3, 1, inputs=3, outputs=2, modules=2))
    input, target = torch.randn(7, 5, 3), torch.randn(3, 5, 2)
    outputs = network(input)[-3:].detach()
    expected = np.mean([(outputs[i] - target[i]).item() ** 2 for i in np.ndindex(3, 5, 2)])
    loss = measure_loss(answer(network, Batch(input, target)), target)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_one_answer_is_the_output_of_the_last_step(method):
    # at the last step, 10, the module of period 2 ticks and that of period 4 holds
    settings = EvaluationSettings(1e-3, 1, inputs=3, outputs=2)
    hidden, settings = fit_settings(method, 900, settings, (1, 2, 4))
    network = build_untrained(method, hidden, settings, seed=1).double()
    input = torch.randn(11, 4, 3, dtype=torch.float64)
    whole = network(input)
    one = answer(network, Batch(input, torch.zeros(1, 4, 2)))
    torch.testing.assert_close(one, whole[-1:])
    torch.testing.assert_close(answer(network, Batch(input, torch.zeros(3, 4, 2))), whole[-3:])
    assert (whole[-1] - whole[-2]).abs().max() > 1e-6


def test_initial_weights_are_those_that_the_head_promises():
    for method in ("srn", "cw"):
        hidden, settings = make_settings(make_adding(8), method, periods=(1, 4))
        layer = build_untrained(method, hidden, settings, seed=3).layer
        slices = layer.schedule.slices if method == "cw" else [slice(None)]
        for rows in slices:
            own = layer.weight_hh_l0[rows, rows]
            torch.testing.assert_close(own @ own.T, torch.eye(len(own)), rtol=0, atol=1e-5)
    lstm = build_untrained("lstm", 5, EvaluationSettings(1e-3, 1, inputs=2)).layer
    assert type(lstm) is torch.nn.LSTM
    assert (lstm.bias_ih_l0 + lstm.bias_hh_l0)[5:10].tolist() == [1.0] * 5
    clockwork = build_untrained("cw-lstm", 6, EvaluationSettings(1e-3, 1, inputs=2, modules=2)).layer
    assert clockwork.bias_l0.view(4, 6)[1].tolist() == [1.0] * 6
    assert type(build_untrained("gru", 5, EvaluationSettings(1e-3, 1, inputs=2)).layer) is torch.nn.GRU


def record_updates(monkeypatch):
    """The learning rate and the norm of the gradient of every update."""
    rates, norms = [], []
    step = torch.optim.Adam.step

    def remember(self, *arguments):
        rates.append(self.param_groups[0]["lr"])
        parameters = [value for group in self.param_groups for value in group["params"]]
        norms.append(torch.stack([value.grad.norm() for value in parameters if value.grad is not None]).norm().item())
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", remember)
    return rates, norms


def test_the_learning_rate_rises_over_a_tenth_of_the_updates_and_falls_to_zero(monkeypatch):
    rates, _ = record_updates(monkeypatch)
    run(make_adding(4), learning_rate=0.03, updates=100)
    assert len(rates) == 100
    rising, falling = rates[:11], rates[10:]
    np.testing.assert_allclose(rising, 0.03 * np.arange(1, 12) / 11)
    # half a cosine over the other nine tenths
    np.testing.assert_allclose(falling, 0.015 * (1 + np.cos(np.pi * np.arange(90) / 90)))
    assert falling[-1] < 1e-3 * max(rates)
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize("updates", [1, 2, 9])
def test_few_updates_have_learning_rates_above_zero(monkeypatch, updates):
    rates, _ = record_updates(monkeypatch)
    run(make_adding(4), learning_rate=0.03, updates=updates)
    assert len(rates) == updates
    assert all(0 < rate <= 0.03 for rate in rates)


def test_the_gradient_is_cut_to_a_norm(monkeypatch):
    _, norms = record_updates(monkeypatch)
    targets = {"training": 100.0, "validation": 0.0, "test": 0.0}
    run(FakeExamples(targets=targets))
    assert len(norms) == 5
    for norm in norms:
        assert norm == pytest.approx(CUT, rel=1e-4)
    norms.clear()
    # a small gradient stays as it is
    targets["training"] = 0.0
    run(FakeExamples(dict.fromkeys(targets, 0.0), targets=targets), learning_rate=1e-9)
    assert 0 < max(norms) < CUT


def test_every_part_of_the_data_has_its_own_use():
    examples = FakeExamples()
    result = run(examples, epochs=2)
    assert examples.asked == [*["training"] * 5, "validation"] * 2 + ["test"]
    # all inputs are nearly the same, so that the answer is one number y: (y - 2)^2 and (y - 3)^2
    validation, test = result.output
    assert result.error == result.best_error == pytest.approx(test)
    assert result.curve[-1, 3] == validation
    assert abs(math.sqrt(test) - math.sqrt(validation)) == pytest.approx(1, abs=1e-4)


def test_validation_and_test_do_not_change_the_weights():
    other = FakeExamples(targets={"training": 1.0, "validation": -7.0, "test": 9.0})
    first, second = run(FakeExamples()), run(other)
    assert all(np.array_equal(first.weights[name], second.weights[name]) for name in first.weights)
    assert first.error != second.error
    changed = run(FakeExamples(targets={"training": 1.5, "validation": 2.0, "test": 3.0}))
    assert any((first.weights[name] != changed.weights[name]).any() for name in first.weights)


@pytest.mark.parametrize("method", ["srn", "cw-lstm", "lru", "esn"])
def test_the_seed_decides_every_bit(method):
    examples = make_adding(6)
    first = run(examples, method, seed=4, updates=3)
    with torch.random.fork_rng():
        torch.manual_seed(99)
        again = run(examples, method, seed=4, updates=3)
    assert same_bits(first, again)
    assert np.array_equal(first.curve[:, 2:], again.curve[:, 2:], equal_nan=True)
    assert not same_bits(first, run(examples, method, seed=5, updates=3))


def test_the_seed_decides_the_order_of_the_examples(monkeypatch):
    """Two seeds that start from the same weights learn other sequences."""
    build = training.build_untrained
    monkeypatch.setattr(
        training, "build_untrained", lambda method, hidden, settings, seed: build(method, hidden, settings)
    )
    examples = make_adding(6)
    first, again, other = (run(examples, seed=seed, updates=3) for seed in (0, 0, 1))
    assert same_bits(first, again)
    assert not same_bits(first, other)


def test_the_warm_up_changes_no_weights():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training._Training, "_warm_up", lambda self, batch: None)
        without = run(make_adding(4), "cw", updates=3, schedule="1:4,2:4", modules=2)
    assert same_bits(without, run(make_adding(4), "cw", updates=3, schedule="1:4,2:4", modules=2))


def test_large_networks_are_measured_in_small_batches(monkeypatch):
    sizes = []

    def remember(network, batch):
        sizes.append(batch.input.shape[1])
        return original(network, batch)

    original = training.answer
    hidden, settings = make_settings(make_adding(4), "srn", updates=1)
    monkeypatch.setattr(training, "answer", remember)
    monkeypatch.setattr(training, "MOST_STATES", 50 * 4 * hidden)
    run(make_adding(4), "srn", updates=1)
    # warm-up and update, then the measurements
    assert sizes[:2] == [settings.batch] * 2
    assert max(sizes[2:]) == 50


def test_global_random_numbers_stay_as_they_are():
    before = torch.random.get_rng_state()
    run(make_adding(4), "srn", updates=1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_curve_has_a_row_for_every_epoch():
    losses = []

    def remember(outputs, target):
        losses.append(original(outputs, target))
        return losses[-1]

    original = training.measure_loss
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "measure_loss", remember)
        result = run(FakeExamples(), epochs=3)
    assert result.curve.shape == (3, len(COLUMNS)) == (3, 4)
    epochs, seconds, loss, validation = result.curve.T
    assert epochs.tolist() == [1, 2, 3]
    assert (np.diff(seconds) > 0).all()
    assert result.seconds == pytest.approx(seconds[-1])
    # the first is that of the warm-up
    del losses[0]
    means = [np.mean([value.item() for value in losses[5 * epoch : 5 * epoch + 5]]) for epoch in range(3)]
    np.testing.assert_allclose(loss, means, rtol=1e-6)
    assert (np.diff(validation) < 0).all()
    assert (result.epochs, result.best_epoch, result.status) == (3, 3, "finished")


@pytest.mark.parametrize(
    ("updates", "rows", "epochs"), [(2, [0.4], 1), (5, [1], 1), (7, [1, 1.4], 2), (99, [1, 2, 3], 3)]
)
def test_updates_may_end_inside_an_epoch(updates, rows, epochs):
    examples = FakeExamples()
    result = run(examples, epochs=3, updates=updates)
    np.testing.assert_allclose(result.curve[:, 0], rows)
    assert result.epochs == epochs
    assert examples.asked.count("training") == min(updates, 15)
    assert examples.asked[-1] == "test"


@pytest.mark.parametrize("method", ["srn", "cw"])
def test_a_loss_that_is_not_finite_is_a_divergence(method):
    result = run(make_adding(6), method, learning_rate=1e30, updates=20)
    assert (result.status, result.best_epoch) == ("diverged", 0)
    assert math.isnan(result.error)
    assert math.isnan(result.best_error)
    assert result.epochs == 1


def test_data_that_are_no_numbers_make_a_divergence_at_the_first_update():
    examples = FakeExamples({"training": math.nan, "validation": 0.0, "test": 0.0})
    result = run(examples)
    assert examples.asked == ["training"]
    assert result.status == "diverged"
    assert result.curve.shape == (0, 4)
    # the weights have not been updated
    assert all(np.isfinite(value).all() for value in result.weights.values())


def test_a_network_whose_last_update_destroys_it_has_diverged(monkeypatch):
    """A class can be chosen even among outputs that are no numbers, so that the error would look fine."""
    step = torch.optim.Adam.step

    def destroy(self, *arguments):
        step(self, *arguments)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.fill_(math.nan)

    monkeypatch.setattr(torch.optim.Adam, "step", destroy)
    result = run(make_copying(1), task=COPY, size=500, updates=1)
    assert result.status == "diverged"
    assert math.isnan(result.error)
    assert np.isnan(result.curve[-1, 3])


def test_a_fixed_layer_is_fitted_and_not_descended(monkeypatch):
    rates, _ = record_updates(monkeypatch)
    # the sum of marked numbers needs products, and units that work in the linear range have none
    for name, value in (("INPUT_SCALING", 0.1), ("BIAS_SCALING", 0.03)):
        monkeypatch.setattr(echo_state, name, value)
    examples = make_adding(8)
    hidden, settings = make_settings(examples, "esn", batch=32, epochs=4)
    before = build_untrained("esn", hidden, settings, seed=2).state_dict()
    reports = []
    result = train("esn", hidden, examples, ADDING.measure_error, 2, settings, progress=reports.append)
    assert rates == []
    assert all(np.array_equal(result.weights[name], before[name]) for name in before if name.startswith("layer."))
    assert not np.array_equal(result.weights["readout.weight"], before["readout.weight"])
    assert result.error < 0.3 * BASELINE
    # one pass, whatever the epochs
    assert (result.epochs, result.curve[:, 0].tolist(), reports) == (1, [1.0], [4.0])


def test_a_fixed_layer_sees_no_more_batches_than_updates():
    examples = FakeExamples()
    result = run(examples, "esn", updates=3)
    assert examples.asked == ["training"] * 3 + ["validation", "test"]
    assert result.curve[:, 0] == pytest.approx([0.6])


def test_a_fixed_layer_can_learn_classes():
    result = run(make_copying(1), "esn", task=COPY, size=3000, batch=32, updates=30)
    assert result.status == "finished"
    assert result.error < 0.8


def test_progress_counts_epochs_up_to_the_last(monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_REPORTS", -1.0)
    reports = []
    run(FakeExamples(), epochs=3, updates=10, progress=reports.append)
    # 10 updates count as all 3 epochs
    np.testing.assert_allclose(reports, [*(0.3 * np.arange(1, 11)), 3.0])


def test_a_progress_that_raises_stops_the_training(monkeypatch):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_REPORTS", -1.0)

    def stop(epochs):
        raise KeyboardInterrupt

    examples = FakeExamples()
    with pytest.raises(KeyboardInterrupt):
        run(examples, progress=stop)
    assert examples.asked == ["training"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_two_updates(method):
    examples = make_adding(8)
    hidden, settings = make_settings(examples, method, updates=2)
    before = build_untrained(method, hidden, settings).state_dict()
    result = train(method, hidden, examples, ADDING.measure_error, 0, settings)
    assert result.status == "finished"
    assert math.isfinite(result.error)
    assert math.isfinite(result.curve[-1, 2]) is (method in TRAINED)
    assert {name: value.shape for name, value in result.weights.items()} == {
        name: tuple(value.shape) for name, value in before.items()
    }
    if method in TRAINED:
        layer = [name for name in before if name.startswith("layer.")]
        assert any((result.weights[name] != before[name].numpy()).any() for name in layer)


def test_a_clockwork_network_learns_to_add():
    result = run(make_adding(8), size=1000, batch=64, epochs=8, learning_rate=1e-2)
    assert result.error < 0.1 * BASELINE
    # it learns on its way, and validation agrees with the test
    validation = result.curve[:, 3]
    assert validation[-1] < 0.5 * validation[0]
    assert validation[-1] == pytest.approx(result.error, rel=0.3)


def test_a_clockwork_network_learns_images(tmp_path):
    """The class of an image of 2 * 2 pixels is twice the first pixel and the third, which are black or white."""
    generator = np.random.default_rng(0)
    arrays = {}
    for images, labels, count in ((TRAINING, TRAINING_LABELS, 240), (TEST, TEST_LABELS, 60)):
        white = generator.integers(2, size=(count, 2, 2), dtype=np.uint8)
        arrays[images], arrays[labels] = 255 * white, 2 * white[:, 0, 0] + white[:, 1, 0]
    assert set(arrays) == set(NAMES)
    examples = read_images(write_images(tmp_path / "images", arrays), permuted=False)
    result = run(examples, task=IMAGES, size=600, batch=20, epochs=15, learning_rate=2e-2)
    assert result.error == 0.0
    untrained = run(examples, task=IMAGES, size=600, batch=20, updates=1, learning_rate=1e-9)
    assert untrained.error > 0.5


def test_settings_count_updates():
    examples = make_adding(4)
    settings = EvaluationSettings(learning_rate=1e-3, epochs=3)
    assert settings.count_updates(examples) == 300
    assert replace(settings, updates=7).count_updates(examples) == 7
    assert replace(settings, updates=1000).count_updates(examples) == 300
    assert settings.usual_epochs == 3
