"""A NARX network reads its own states of 1, 2, 4, ..., 32 steps ago."""

import numpy as np
import pytest
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.narx import NARXRNN

UNITS = 5
STEPS = 2 * 32 + 30


def run_by_hand(layer, input):
    """The states of one sequence (T, I), with one product per delay."""
    weight_ih, weight_hh, bias = numpy_weights(layer, "weight_ih", "weight_hh", "bias")
    matrices = {2**k: weight_hh[:, k * UNITS : (k + 1) * UNITS] for k in range(6)}
    states = []
    for t, x in enumerate(input):
        total = weight_ih @ x + bias
        for delay, matrix in matrices.items():
            if delay <= t:
                total = total + matrix @ states[t - delay]
        states.append(np.tanh(total))
    return np.array(states)


def test_layer_keeps_the_contract():
    check_model_layer(NARXRNN)


def test_states_follow_the_equation_beyond_twice_the_longest_delay():
    layer, input = make_layer(NARXRNN, 3, UNITS), make_input(STEPS, 2, 3)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


@pytest.mark.parametrize("k", range(6))
def test_matrix_is_used_first_after_its_delay(k):
    layer, input = make_layer(NARXRNN, 3, UNITS), make_input(STEPS, 1, 3)
    states = layer(input).detach()
    with torch.no_grad():
        layer.weight_hh[:, k * UNITS : (k + 1) * UNITS] += 0.5
    changed = (layer(input).detach() != states).any(-1).any(-1)
    assert int(changed.nonzero()[0]) == 2**k


def test_gradients_are_those_of_the_states():
    check_gradients_numerically(make_layer(NARXRNN, 2, 2), make_input(9, 2, 2))
