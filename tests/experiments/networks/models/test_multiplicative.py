"""The input of a Multiplicative RNN chooses its recurrent matrix."""

import math

import numpy as np
import pytest
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.multiplicative import MultiplicativeRNN

UNITS = 5
STEPS = 60


def run_by_hand(layer, input):
    """The states of one sequence (T, I), with the recurrent tensor written out: input by unit by unit."""
    fx, fh, hf, hx, bias = numpy_weights(layer, "weight_fx", "weight_fh", "weight_hf", "weight_hx", "bias")
    tensor = [sum(np.outer(hf[:, f], fh[f]) * fx[f, k] for f in range(UNITS)) for k in range(input.shape[1])]
    h, states = np.zeros(UNITS), []
    for x in input:
        matrix = sum(value * part for value, part in zip(x, tensor, strict=True)) if len(x) else hf @ fh
        h = np.tanh(matrix @ h + hx @ x + bias)
        states.append(h)
    return np.array(states)


def test_layer_keeps_the_contract():
    check_model_layer(MultiplicativeRNN, products=1)


@pytest.mark.parametrize("input_size", [0, 1, 3])
def test_states_follow_the_equation(input_size):
    layer, input = make_layer(MultiplicativeRNN, input_size, UNITS), make_input(STEPS, 2, input_size)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_step_without_input_forgets_the_state():
    layer, input = make_layer(MultiplicativeRNN, 3, UNITS), make_input(STEPS, 1, 3)
    input[20] = 0.0
    torch.testing.assert_close(layer(input)[20, 0], layer.bias.tanh())


def test_recurrent_matrix_starts_with_the_variance_of_a_simple_network():
    units = 200
    layer, input = make_layer(MultiplicativeRNN, 4, units), make_input(20, 4)
    factors = input @ layer.weight_fx.T
    matrices = layer.weight_hf * factors[:, None] @ layer.weight_fh
    assert math.isclose(matrices.var().item(), 1 / (3 * units), rel_tol=0.2)


@pytest.mark.parametrize("input_size", [0, 2])
def test_gradients_are_those_of_the_states(input_size):
    check_gradients_numerically(make_layer(MultiplicativeRNN, input_size, 3), make_input(6, 2, input_size))
