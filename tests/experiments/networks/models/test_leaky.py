"""Leaky units follow their equation, unit by unit."""

import numpy as np
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.leaky import LeakyRNN

SIZES = [2, 2, 2, 2, 1, 1, 1, 1]
"""12 units in 8 modules; the remainder goes to the fast ones."""


def run_by_hand(layer, input):
    """The states of one sequence (T, I), one unit at a time."""
    weight_ih, weight_hh, bias = numpy_weights(layer, "weight_ih", "weight_hh", "bias")
    constants = [2**module for module, size in enumerate(SIZES) for _ in range(size)]
    h, states = np.zeros(12), []
    for x in input:
        previous = h.copy()
        for i, P in enumerate(constants):
            new = np.tanh(weight_ih[i] @ x + bias[i] + weight_hh[i] @ previous)
            h[i] = (1 - 1 / P) * previous[i] + new / P
        states.append(h.copy())
    return np.array(states)


def test_layer_keeps_the_contract():
    check_model_layer(LeakyRNN, products=1)


def test_states_follow_the_equation():
    layer, input = make_layer(LeakyRNN, 3, 12), make_input(300, 2, 3)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_gradients_are_those_of_the_states():
    check_gradients_numerically(make_layer(LeakyRNN, 2, 3), make_input(7, 2, 2))
