"""Coupled oscillators follow the paper's equations, one oscillator at a time."""

import sys

import numpy as np
import pytest
import torch
from support.model_checks import check_gradients_numerically, check_model_layer, make_input, make_layer, numpy_weights

from cwrnn.experiments.networks.models.cornn import CoupledOscillators


def run_by_hand(layer, input):
    """The positions of one sequence (T, I), one oscillator at a time."""
    dt, gamma, epsilon = 0.042, 2.7, 4.7
    V, W, W_z, b = numpy_weights(layer, "cell.weight_ih", "cell.weight_hh", "cell.weight_ch", "cell.bias_ih")
    y, z, positions = np.zeros(len(b)), np.zeros(len(b)), []
    for x in input:
        old_y, old_z = y.copy(), z.copy()
        for i in range(len(b)):
            force = np.tanh(W[i] @ old_y + W_z[i] @ old_z + V[i] @ x + b[i])
            z[i] = old_z[i] + dt * force - dt * gamma * old_y[i] - dt * epsilon * old_z[i]
            y[i] = old_y[i] + dt * z[i]
        positions.append(y.copy())
    return np.array(positions)


def test_layer_keeps_the_contract():
    check_model_layer(CoupledOscillators, products=4)


@pytest.mark.parametrize("input_size", [3, 0])
def test_positions_follow_the_equations(input_size):
    layer, input = make_layer(CoupledOscillators, input_size, 12), 3 * make_input(300, 2, input_size)
    positions = layer(input)
    assert positions.abs().max() > 0.01
    for b in range(2):
        torch.testing.assert_close(positions[:, b], torch.from_numpy(run_by_hand(layer, input[:, b].numpy())))


def test_oscillators_without_forces_swing_and_stop():
    layer = make_layer(CoupledOscillators, 1, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
        layer.cell.weight_ih.fill_(100.0)
    pushed = torch.zeros(2000, 1, 1, dtype=torch.float64)
    pushed[0] = 1.0
    y = layer(pushed)[:, 0, 0]
    # with tanh = 1 at the first step only; the roots of r^2 + (dt epsilon + dt^2 gamma - 2) r + 1 - dt epsilon
    roots = np.roots([1.0, 0.042 * 4.7 + 0.042**2 * 2.7 - 2.0, 1.0 - 0.042 * 4.7])
    t = np.arange(1, 2001)
    expected = 0.042**2 * (roots[0] ** t - roots[1] ** t) / (roots[0] - roots[1])
    torch.testing.assert_close(y, torch.from_numpy(expected.real), rtol=1e-6, atol=1e-12)


def test_initial_weights_are_those_of_the_authors():
    layer = CoupledOscillators(3, 100)
    for name, parameter in layer.named_parameters():
        bound = 1 / np.sqrt(203)
        assert parameter.abs().max() <= bound, name
        torch.testing.assert_close(parameter.std().item(), bound / np.sqrt(3), rtol=0.2, atol=0)


def test_gradients_are_those_of_the_positions():
    check_gradients_numerically(make_layer(CoupledOscillators, 2, 3), make_input(7, 2, 2))


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchrecurrent", None)
    with pytest.raises(ImportError, match=r"the method cornn needs torchrecurrent: pip install 'cwrnn\[models\]'"):
        CoupledOscillators(3, 4)
    assert CoupledOscillators.packages == ("torchrecurrent",)
