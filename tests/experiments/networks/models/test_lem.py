"""Long expressive memory follows the paper's equations, one unit at a time."""

import numpy as np
import pytest
import torch
import torchrecurrent
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.lem import DT, LongExpressiveMemory


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def run_by_hand(layer, input):
    """The states y of one sequence (T, I), one unit at a time."""
    V, W, W_y, b = numpy_weights(layer, "weight_ih", "weight_hh", "weight_zh", "bias")
    N, dt = len(W_y), 0.21
    y, z, states = np.zeros(N), np.zeros(N), []
    for x in input:
        old_y = y.copy()
        for i in range(N):
            step = dt * sigmoid(W[N + i] @ old_y + V[N + i] @ x + b[N + i])
            z[i] = (1 - step) * z[i] + step * np.tanh(W[2 * N + i] @ old_y + V[2 * N + i] @ x + b[2 * N + i])
        for i in range(N):
            step = dt * sigmoid(W[i] @ old_y + V[i] @ x + b[i])
            y[i] = (1 - step) * old_y[i] + step * np.tanh(W_y[i] @ z + V[3 * N + i] @ x + b[3 * N + i])
        states.append(y.copy())
    return np.array(states)


def test_layer_keeps_the_contract():
    check_model_layer(LongExpressiveMemory, products=4)


@pytest.mark.parametrize("input_size", [3, 0])
def test_states_follow_the_equations(input_size):
    layer, input = make_layer(LongExpressiveMemory, input_size, 12), 3 * make_input(300, 2, input_size)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_steps_are_those_of_the_package_given_the_new_z():
    layer, input = make_layer(LongExpressiveMemory, 3, 12), 3 * make_input(40, 2, 3)
    cell = torchrecurrent.LEMCell(3, 12, dt=DT, recurrent_bias=False, cell_bias=False).double()
    with torch.no_grad():
        cell.weight_ih.copy_(layer.weight_ih)
        cell.weight_hh.copy_(layer.weight_hh)
        cell.weight_ch.copy_(layer.weight_zh)
        cell.bias_ih.copy_(layer.bias)
    y = z = torch.zeros(2, 12, dtype=torch.float64)
    states = []
    for x in input:
        # the package's y reads the z that it is given, which the paper has updated by then
        _, z = cell(x, (y, z))
        y, _ = cell(x, (y, z))
        states.append(y)
    torch.testing.assert_close(layer(input), torch.stack(states))


def test_initial_weights_are_those_of_the_authors():
    for name, parameter in LongExpressiveMemory(3, 100).named_parameters():
        assert parameter.abs().max() <= 0.1, name
        torch.testing.assert_close(parameter.std().item(), 0.1 / np.sqrt(3), rtol=0.1, atol=0)


def test_gradients_are_those_of_the_states():
    check_gradients_numerically(make_layer(LongExpressiveMemory, 2, 3), make_input(7, 2, 2))
