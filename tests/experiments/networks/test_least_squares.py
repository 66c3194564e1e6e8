"""The readout of a fixed layer is the solution of the least-squares problem, with the ridge that was chosen."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn.experiments.networks.build import build_network
from cwrnn.experiments.networks.least_squares import RIDGES, fit_readout, has_fixed_layer
from cwrnn.experiments.networks.methods import MODELS
from cwrnn.experiments.networks.models.table import find_layer_class
from cwrnn.network import Network

N, O = 7, 2


def make_examples(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, N, generator=generator) + 3
    targets = torch.randn(count, O, generator=generator) - 1
    return states, targets


def make_network(outputs=O):
    return Network(nn.RNN(1, N), outputs)


def solve_with_numpy(states, targets, ridge):
    """The weights (O, N) and the bias (O,): the ridge as additional examples, which the bias does not see."""
    states, targets = states.double().numpy(), targets.double().numpy()
    scale = math.sqrt(ridge * np.square(states).sum() / N)
    rows = np.vstack([np.column_stack([states, np.ones(len(states))]), scale * np.eye(N, N + 1)])
    solution = np.linalg.lstsq(rows, np.vstack([targets, np.zeros((N, targets.shape[1]))]), rcond=None)[0]
    return solution[:N].T, solution[N]


def assert_solution(network, states, targets, ridge):
    weight, bias = solve_with_numpy(states, targets, ridge)
    np.testing.assert_allclose(network.readout.weight.detach().numpy(), weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network.readout.bias.detach().numpy(), bias, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ridge", [1e-9, 1e-2, 1.0])
@pytest.mark.parametrize("batch", [1, 9, 40])
def test_the_readout_is_that_of_numpy(ridge, batch):
    states, targets = make_examples(40)
    network = make_network()
    assert fit_readout(network, zip(states.split(batch), targets.split(batch), strict=True), ridges=[ridge]) == ridge
    assert_solution(network, states, targets, ridge)


def test_steps_and_sequences_are_all_examples():
    states, targets = make_examples(40)
    network = make_network()
    fit_readout(network, [(states.view(8, 5, N), targets.view(8, 5, O))], ridges=[0.1])
    assert_solution(network, states, targets, 0.1)


def test_the_ridge_is_the_best_on_every_fifth_example_and_all_examples_are_fitted():
    states, noise = make_examples(45)
    targets = states[:, :O] + 2 * noise
    held = torch.arange(45) % 5 == 4
    errors = []
    for ridge in RIDGES:
        weight, bias = solve_with_numpy(states[~held], targets[~held], ridge)
        errors.append(np.square(states[held].numpy() @ weight.T + bias - targets[held].numpy()).sum())
    expected = RIDGES[int(np.argmin(errors))]
    assert expected not in (RIDGES[0], RIDGES[-1]), "the example must make a difference"
    for batch in (45, 7):
        network = make_network()
        assert fit_readout(network, zip(states.split(batch), targets.split(batch), strict=True)) == expected
        assert_solution(network, states, targets, expected)


def test_classes_are_one_hot_targets_and_the_ridge_makes_the_fewest_errors():
    states, noise = make_examples(60, seed=6)
    labels = (states[:, :3] + noise[:, :1]).argmax(1)
    targets = nn.functional.one_hot(labels, 3)
    held = torch.arange(60) % 5 == 4
    errors, squares = [], []
    for ridge in RIDGES:
        weight, bias = solve_with_numpy(states[~held], targets[~held], ridge)
        outputs = states[held].numpy() @ weight.T + bias
        errors.append((outputs.argmax(1) != labels[held].numpy()).sum())
        squares.append(np.square(outputs - targets[held].numpy()).sum())
    assert np.argmin(errors) != np.argmin(squares), "the example must make a difference"
    network = make_network(3)
    ridge = fit_readout(network, [(states, labels)], classes=3)
    assert ridge == RIDGES[int(np.argmin(errors))]
    assert_solution(network, states, targets, ridge)
    assert (network.readout(states).argmax(1) == labels).double().mean() > 0.8


def test_few_examples_are_all_fitted_with_the_first_ridge():
    states, targets = make_examples(4)
    network = make_network()
    assert fit_readout(network, [(states, targets)]) == RIDGES[0]
    assert_solution(network, states, targets, RIDGES[0])


def test_states_of_zeros_leave_the_mean():
    network = make_network()
    fit_readout(network, [(torch.zeros(10, N), torch.arange(20.0).view(10, 2))])
    torch.testing.assert_close(network.readout.weight.detach(), torch.zeros(O, N))
    torch.testing.assert_close(network.readout.bias.detach(), torch.tensor([9.0, 10.0]))


def test_no_examples_and_numbers_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="batches must have at least one example, got none"):
        fit_readout(make_network(), [])
    states, targets = make_examples(10)
    states[3, 2] = math.nan
    network = make_network()
    before = network.readout.weight.clone()
    with pytest.raises(ValueError, match="batches must have finite states and targets"):
        fit_readout(network, [(states, targets)])
    assert torch.equal(network.readout.weight, before)


@pytest.mark.parametrize("method", MODELS)
def test_the_table_says_which_layers_are_fixed(method):
    assert MODELS[method].is_fixed == find_layer_class(MODELS[method]).is_fixed


def test_only_models_can_be_fixed():
    assert has_fixed_layer(build_network("esn", 4))
    assert not has_fixed_layer(build_network("leaky", 4))
    assert not has_fixed_layer(build_network("cw", 12))
    assert not has_fixed_layer(make_network())
