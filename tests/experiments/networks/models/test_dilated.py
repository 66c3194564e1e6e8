"""The dilated RNN against its equation, step by step."""

import numpy as np
import pytest
import torch
from support.model_checks import check_model_layer, make_input, make_layer

from cwrnn.experiments.networks.models.dilated import DilatedRNN


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def update_gru(x, h, weight_ih, weight_hh, bias):
    """The state of a GRU after one step."""
    N = len(h)
    W_r, W_z, W_n = weight_ih.reshape(3, N, -1)
    U_r, U_z, U_n = weight_hh.reshape(3, N, N)
    b_r, b_z, b_n, b_d = bias.reshape(4, N)
    r = sigmoid(W_r @ x + b_r + U_r @ h)
    z = sigmoid(W_z @ x + b_z + U_z @ h)
    n = np.tanh(W_n @ x + b_n + r * (U_n @ h + b_d))
    return (1 - z) * n + z * h


def run_dilated(sequence, layers):
    """The states of the top layer for one sequence: layer l reads its own state of 2^l steps ago."""
    for place, weights in enumerate(layers):
        delay, states = 2**place, []
        for t, x in enumerate(sequence):
            before = states[t - delay] if t >= delay else np.zeros(weights[1].shape[1])
            states.append(update_gru(x, before, *weights))
        sequence = states
    return np.array(sequence)


def test_layer_keeps_the_contract():
    check_model_layer(DilatedRNN)


# longer than twice the longest dilation, a multiple of it, and shorter than it
@pytest.mark.parametrize("steps", [75, 96, 20, 1])
def test_states_follow_the_equation(steps):
    layer, input = make_layer(DilatedRNN, 3, 4), make_input(steps, 2, 3)
    values = [value.numpy() for value in layer.state_dict().values()]
    layers = [values[start : start + 3] for start in range(0, len(values), 3)]
    assert len(layers) == 6
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.tensor(run_dilated(input[:, b].numpy(), layers)))


def test_gradients_are_those_of_the_states():
    layer = make_layer(DilatedRNN, 1, 1)
    names = list(layer.state_dict())

    def run(input, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (input,))

    torch.autograd.gradcheck(run, (make_input(67, 1, 1).requires_grad_(), *layer.parameters()), fast_mode=True)


def test_multiply_adds_of_six_layers():
    assert DilatedRNN.count_multiply_adds(3, 4) == 3 * 4 * (3 + 4) + 5 * 3 * 4 * (4 + 4)
