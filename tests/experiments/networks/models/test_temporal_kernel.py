"""The traces of a Temporal-Kernel RNN are sums over all past steps, weighted by exponential kernels."""

import math

import numpy as np
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.temporal_kernel import TemporalKernelRNN

UNITS = 6
STEPS = 2 * 128 + 20


def run_by_hand(layer, input):
    """The states of one sequence (T, I), with the kernels written out: every step looks at all steps before it."""
    weight_ih, weight_hh, bias, decay = numpy_weights(layer, "weight_ih", "weight_hh", "bias", "decay")
    rate = 1 / (1 + np.exp(-decay))
    h = np.zeros((len(input), UNITS))
    for t, x in enumerate(input):
        lags = np.arange(1, t + 1)[:, None]
        kernel = (1 - rate) * rate ** (lags - 1)
        h[t] = np.tanh(weight_ih @ x + bias + weight_hh @ (kernel * h[t - lags[:, 0]]).sum(0))
    return h


def test_layer_keeps_the_contract():
    check_model_layer(TemporalKernelRNN, products=1)


def test_states_follow_the_equation_beyond_twice_the_longest_time_constant():
    layer, input = make_layer(TemporalKernelRNN, 3, UNITS), make_input(STEPS, 2, 3)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_decays_start_with_time_constants_from_1_to_128_steps():
    constants = -1 / torch.sigmoid(make_layer(TemporalKernelRNN, 0, 8).decay.detach()).log()
    # the layer is made in float32
    torch.testing.assert_close(constants, 2.0 ** torch.arange(8, dtype=torch.float64), rtol=1e-4, atol=0)


def test_single_unit_has_a_finite_decay():
    torch.testing.assert_close(torch.sigmoid(TemporalKernelRNN(1, 1).decay).item(), math.exp(-1), rtol=1e-5, atol=0)


def test_gradients_are_those_of_the_states():
    check_gradients_numerically(make_layer(TemporalKernelRNN, 2, 3), make_input(9, 2, 2))
