"""The stacked LSTM against its equations, step by step."""

import numpy as np
import torch
from support.model_checks import check_model_layer, make_input, make_layer

from cwrnn.experiments.networks.models.stacked_lstm import StackedLSTM


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def run_lstm(inputs, weight_ih, weight_hh, bias):
    """The states of one LSTM for one sequence."""
    N = weight_hh.shape[1]
    h, c, states = np.zeros(N), np.zeros(N), []
    for x in inputs:
        i, f, g, o = (weight_ih @ x + weight_hh @ h + bias).reshape(4, N)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        states.append(h)
    return states


def test_layer_keeps_the_contract():
    check_model_layer(StackedLSTM)


def test_states_follow_the_equations():
    layer, input = make_layer(StackedLSTM, 3, 5), make_input(50, 2, 3)
    weights = {name: value.numpy() for name, value in layer.state_dict().items()}
    states = layer(input)
    for b in range(2):
        sequence = input[:, b].numpy()
        for place in range(2):
            own = (weights[f"layers.{place}.{name}"] for name in ("weight_ih", "weight_hh", "bias"))
            sequence = run_lstm(sequence, *own)
        torch.testing.assert_close(states[:, b], torch.tensor(np.array(sequence)))


def test_gradients_are_those_of_the_states():
    layer = make_layer(StackedLSTM, 2, 3)
    names = list(layer.state_dict())

    def run(input, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (input,))

    torch.autograd.gradcheck(run, (make_input(5, 2, 2).requires_grad_(), *layer.parameters()))


def test_forget_gates_start_open():
    layer = StackedLSTM(3, 5)
    for place in range(2):
        bias = layer.get_parameter(f"layers.{place}.bias").reshape(4, 5)
        assert (bias[1] == 1).all()
        assert (bias[[0, 2, 3]].abs() < 0.5).all()


def test_multiply_adds_of_two_layers():
    assert StackedLSTM.count_multiply_adds(3, 5) == 4 * 5 * (3 + 5) + 4 * 5 * (5 + 5)
