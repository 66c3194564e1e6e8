"""Minimal GRUs follow the paper's equations, step by step, in blocks of any length."""

import sys

import numpy as np
import pytest
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models import mingru
from cwrnn.experiments.networks.models.mingru import MinimalGRU


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def g(a):
    return a + 0.5 if a >= 0 else sigmoid(a)


def run_by_hand(layer, input):
    """The states of one sequence (T, I), one unit at a time."""
    V, c, *both = numpy_weights(layer, "weight_ih", "bias", *(f"layers.{k}.to_hidden_and_gate.weight" for k in (0, 1)))
    x = [V @ value + c for value in input]
    for weight in both:
        N = len(weight) // 2
        h, sums = np.zeros(N), []
        for value in x:
            for i in range(N):
                z = sigmoid(weight[N + i] @ value)
                h[i] = (1 - z) * h[i] + z * g(weight[i] @ value)
            sums.append(value + h)
        x = sums
    return np.array(x)


def test_layer_keeps_the_contract():
    check_model_layer(MinimalGRU, products=2)


@pytest.mark.parametrize(("input_size", "T"), [(3, 300), (0, 300), (3, 1), (3, 2), (3, 128), (3, 129)])
def test_states_follow_the_equations(input_size, T):
    layer, input = make_layer(MinimalGRU, input_size, 12), 3 * make_input(T, 2, input_size)
    states = layer(input)
    for b in range(2):
        torch.testing.assert_close(states[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_long_sequences_keep_their_gradients_in_float32():
    layer, input = make_layer(MinimalGRU, 3, 12), make_input(5000, 1, 3)

    def weigh(layer, input):
        layer.zero_grad()
        layer(input).square().mean().backward()
        return torch.cat([parameter.grad.flatten().double() for parameter in layer.parameters()])

    expected = weigh(layer, input)
    difference = weigh(layer.float(), input.float()) - expected
    assert difference.norm() < 1e-4 * expected.norm()


def test_closed_gates_give_no_nan():
    layer, input = make_layer(MinimalGRU, 0, 4).float(), torch.zeros(300, 1, 0)
    with torch.no_grad():
        layer.bias.fill_(1.0)
        # candidates and gates of exp(-400), which is 0 in float32
        layer.layers[0].to_hidden_and_gate.weight.fill_(-100.0)
    layer(input).sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad.isfinite().all()


def test_gradients_are_those_of_the_states(monkeypatch):
    monkeypatch.setattr(mingru, "BLOCK", 3)
    check_gradients_numerically(make_layer(MinimalGRU, 2, 3), make_input(7, 2, 2))


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minGRU_pytorch", None)
    with pytest.raises(ImportError, match=r"the method mingru needs minGRU_pytorch: pip install 'cwrnn\[models\]'"):
        MinimalGRU(3, 4)
    assert MinimalGRU.packages == ("minGRU_pytorch",)
