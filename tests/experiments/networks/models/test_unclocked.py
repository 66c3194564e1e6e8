"""The layer without clocks against torch's own layers."""

import pytest
import torch
from support.model_checks import make_input

from cwrnn.experiments.networks.models.unclocked import UnclockedLayer


@pytest.mark.parametrize(("cell", "kind"), [("tanh", torch.nn.RNN), ("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)])
def test_layer_is_that_of_torch(cell, kind):
    layer, expected = UnclockedLayer(cell, 3, 5).double(), kind(3, 5).double()
    with torch.no_grad():
        expected.weight_ih_l0.copy_(layer.weight_ih)
        expected.weight_hh_l0.copy_(layer.weight_hh)
        expected.bias_hh_l0.zero_()
        expected.bias_ih_l0.copy_(layer.bias[: len(expected.bias_ih_l0)])
        if cell == "gru":
            expected.bias_hh_l0[10:] = layer.bias[15:]
    input, direction = make_input(40, 2, 3).requires_grad_(), make_input(40, 2, 5, seed=1)
    states, wanted = layer(input), expected(input)[0]
    torch.testing.assert_close(states, wanted)
    gradients = torch.autograd.grad((states * direction).sum(), (input, layer.weight_ih, layer.weight_hh, layer.bias))
    x, weight_ih, weight_hh, bias_ih, bias_hh = torch.autograd.grad(
        (wanted * direction).sum(), (input, *expected.parameters())
    )
    # torch's second bias of gate n is the fourth part of ours; elsewhere only the sum of both biases counts
    bias = torch.cat((bias_ih, bias_hh[10:])) if cell == "gru" else bias_ih
    torch.testing.assert_close(gradients, (x, weight_ih, weight_hh, bias))


@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm", "gru"])
def test_parameters_are_counted(cell):
    layer = UnclockedLayer(cell, 3, 5)
    assert UnclockedLayer.count_parameters(cell, 3, 5) == sum(p.numel() for p in layer.state_dict().values())


@pytest.mark.parametrize(("cell", "gates"), [("tanh", 1), ("relu", 1), ("lstm", 4), ("gru", 3)])
def test_every_weight_of_a_matrix_is_multiplied_once(cell, gates):
    assert UnclockedLayer.count_multiply_adds(cell, 3, 5) == gates * (5 * 3 + 5 * 5)
