"""Modules are read through their own delays, by all modules."""

import numpy as np
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.delays import HierarchicalDelays

SIZES = [2, 2, 2, 2, 1, 1, 1, 1]
"""12 units in 8 modules; the remainder goes to the fast ones."""
STEPS = 2 * 128 + 50


def run_by_hand(layer, input):
    """The states of one sequence (T, I), one connection at a time."""
    weight_ih, weight_hh, bias = numpy_weights(layer, "weight_ih", "weight_hh", "bias")
    delays = [2**module for module, size in enumerate(SIZES) for _ in range(size)]
    h = np.zeros((len(input), 12))
    for t, x in enumerate(input):
        for i in range(12):
            total = weight_ih[i] @ x + bias[i]
            for j, delay in enumerate(delays):
                if t - delay >= 0:
                    total += weight_hh[i, j] * h[t - delay, j]
            h[t, i] = np.tanh(total)
    return h


def test_layer_keeps_the_contract():
    check_model_layer(HierarchicalDelays)


def test_states_follow_the_equation_beyond_twice_the_longest_delay():
    layer, input = make_layer(HierarchicalDelays, 3, 12), make_input(STEPS, 2, 3)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_slowest_module_is_heard_first_after_its_delay():
    layer, input = make_layer(HierarchicalDelays, 3, 12), make_input(STEPS, 1, 3)
    states = layer(input).detach()
    with torch.no_grad():
        layer.weight_hh[:, -1] += 0.5
    changed = (layer(input).detach() != states).any(-1).any(-1)
    assert int(changed.nonzero()[0]) == 128


def test_few_units_make_few_modules():
    assert HierarchicalDelays(1, 3).delays == (1, 2, 4)
    assert HierarchicalDelays(1, 12).sizes == tuple(SIZES)


def test_gradients_are_those_of_the_states():
    check_gradients_numerically(make_layer(HierarchicalDelays, 2, 3), make_input(11, 2, 2))
