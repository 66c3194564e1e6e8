"""Networks learn columns; the validation part ends the training, and the test part only measures."""

import numpy as np
import pytest
import torch
from support.made_columns import make_columns

from cwrnn.experiments.clocks.training import LearningSettings, train_networks
from cwrnn.experiments.generation.training import nmse
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.regression.columns import Columns
from cwrnn.experiments.regression.objective import ColumnObjective
from cwrnn.experiments.regression.training import RegressionSettings, build_untrained, load_network, train_many

SHORT = RegressionSettings(0.01, epochs=8, modules=2, inputs=2)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns(method):
    [result] = train_many(method, 6, make_columns(), [0], RegressionSettings(0.02, epochs=40, modules=2, inputs=2))
    assert result.status == "finished"
    assert result.error < 0.3
    assert result.curve.shape == (result.epochs + 1, 3)
    assert result.error == pytest.approx(float(result.curve[result.best_epoch, 2]), rel=1e-6)
    assert result.best_epoch == int(result.curve[:, 1].argmin())


@pytest.mark.parametrize("method", ["srn", "cw", "cw-lstm"])
def test_a_run_has_the_same_bits_alone_and_among_others(method):
    columns = make_columns()
    together = train_many(method, 6, columns, [3, 4, 5], SHORT)
    [alone] = train_many(method, 6, columns, [4], SHORT)
    np.testing.assert_array_equal(together[1].output, alone.output)
    np.testing.assert_array_equal(together[1].curve, alone.curve)
    for name, value in alone.weights.items():
        np.testing.assert_array_equal(together[1].weights[name], value)
    assert not np.array_equal(together[0].output, together[1].output)


def test_weights_make_the_output():
    columns = make_columns()
    [result] = train_many("cw", 6, columns, [0], SHORT)
    network = load_network("cw", 6, result.weights, SHORT)
    test = columns.parts["test"]
    with torch.no_grad():
        output = network(torch.from_numpy(test.inputs).transpose(0, 1))[..., 0].T.numpy()
    np.testing.assert_allclose(output, result.output, atol=1e-6)
    assert nmse(output, test.targets) == pytest.approx(result.error, rel=1e-5)


def test_updates_are_those_of_adam():
    """One epoch on one sequence at a time, by torch's optimiser."""
    columns = make_columns(rows=60, length=10)
    settings = RegressionSettings(0.01, epochs=1, modules=2, inputs=2)
    [result] = train_many("cw", 6, columns, [7], settings)
    network = build_untrained("cw", 6, settings, 7)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    train = columns.parts["training"]
    for place in np.random.default_rng([7, 2]).permutation(len(train.inputs)):
        output = network(torch.from_numpy(train.inputs[place])[:, None])[:, 0, 0]
        optimiser.zero_grad()
        (0.5 * (output - torch.from_numpy(train.targets[place]).float()).square().mean()).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
    mask = network.layer.schedule.mask()
    if result.best_epoch == 1:
        for name, parameter in network.named_parameters():
            expected = parameter.detach().numpy()
            expected = np.where(mask, expected, 0) if name == "layer.weight_hh_l0" else expected
            np.testing.assert_allclose(result.weights[name], expected, atol=1e-5)
    assert result.best_epoch == 1


def test_test_part_has_no_influence():
    columns = make_columns()
    numbers = columns.target.copy()
    numbers[160:] = np.random.default_rng(1).standard_normal(40)
    other = Columns("", "", columns.inputs, numbers, columns.input_columns, "y", 10)
    [usual], [changed] = (train_many("cw", 6, data, [0], SHORT) for data in (columns, other))
    np.testing.assert_array_equal(usual.curve[:, :2], changed.curve[:, :2])
    for name, value in usual.weights.items():
        np.testing.assert_array_equal(changed.weights[name], value)
    assert usual.error != changed.error


def test_training_ends_when_the_validation_part_does_not_improve():
    columns = make_columns()
    numbers = columns.target.copy()
    # noise that nothing predicts
    numbers[120:160] = np.random.default_rng(1).standard_normal(40)
    data = Columns("", "", columns.inputs, numbers, columns.input_columns, "y", 10)
    settings = RegressionSettings(0.02, epochs=200, modules=2, patience=5, inputs=2)
    for result in train_many("cw", 6, data, [0, 1], settings):
        assert result.epochs == result.best_epoch + 5 < 200


def test_a_clock_that_fits_the_data_is_better():
    """The target is the value of the input at the last multiple of 12, which a module of period 12 holds."""
    x = np.random.default_rng(0).standard_normal((960, 1))
    data = Columns("", "", x, x[np.arange(960) // 12 * 12, 0], ("x",), "y", 48)
    right, wrong = (
        train_many("cw", 8, data, [0, 1], RegressionSettings(0.01, epochs=40, modules=2, schedule=schedule))
        for schedule in ("1:4,12:4", "1:4,8:4")
    )
    assert max(result.error for result in right) < 0.1
    assert min(result.error for result in wrong) > 0.5


def test_runs_that_diverge_are_kept_apart():
    settings = RegressionSettings(1e30, epochs=4, modules=2, inputs=2)
    results = train_many("cw", 6, make_columns(), [0, 1], settings)
    assert {result.status for result in results} == {"diverged"}
    assert all(np.isnan(result.error) for result in results)
    assert all(np.isfinite(value).all() for result in results for value in result.weights.values())


def test_arguments_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="the networks have 1 inputs, but there are 2 columns"):
        train_many("cw", 6, make_columns(), [0], RegressionSettings(0.01))
    with pytest.raises(ValueError, match="epochs and patience must be at least 1"):
        train_many("cw", 6, make_columns(), [0], RegressionSettings(0.01, epochs=0, inputs=2))
    assert train_many("cw", 6, make_columns(), [], SHORT) == []


def test_learned_clocks_learn_columns():
    columns = make_columns()
    settings = LearningSettings(hidden=8, modules=2, longest=4, epochs=60, learning_rate=0.03)
    networks = train_networks(ColumnObjective(columns), settings, [0, 1], learned=True)
    for network in networks:
        assert network.data == "town y"
        assert network.hard.reported == pytest.approx(network.soft.reported, rel=0.01)
    assert min(network.hard.reported for network in networks) < 0.5


def test_draws_of_the_clocks_have_the_targets_of_their_sequences(close):
    """With hard clocks in every draw, all draws are equal, and the loss is that of one of them."""
    from cwrnn.experiments.clocks.training import NetworkBatch

    objective = ColumnObjective(make_columns())
    settings = LearningSettings(hidden=8, modules=2, longest=4, epochs=2, learning_rate=0.03)
    networks, again = (NetworkBatch(objective, settings, [0, 1], learned=False) for _ in range(2))
    single = list(objective.losses(networks))
    whole = again.states
    again.states = lambda x: whole(x).repeat(1, 1, 3, 1)
    for one, other in zip(single, objective.losses(again), strict=True):
        close(one, other)
