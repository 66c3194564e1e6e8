"""The echo state network: its states are those of reservoirpy, and it never trains."""

import numpy as np
import pytest
import torch
from support.model_checks import check_model_layer, make_layer

from cwrnn.experiments.networks.build import build_network, load_weights
from cwrnn.experiments.networks.models import echo_state
from cwrnn.experiments.networks.models.echo_state import (
    DEGREE,
    FREE_RADIUS,
    INPUT_SCALING,
    LEAK,
    RADIUS,
    EchoStateNetwork,
)

nodes = pytest.importorskip("reservoirpy.nodes")


def to_dense(layer):
    """The recurrent weights (units, units), with zeros for the connections that do not exist."""
    matrix = torch.zeros(layer.hidden_size, layer.hidden_size, dtype=layer.weight_hh.dtype)
    return matrix.scatter_(1, layer.sources, layer.weight_hh)


def test_layer_keeps_the_contract():
    check_model_layer(EchoStateNetwork, products=1, trains=False)


@pytest.mark.parametrize(("input_size", "leak"), [(3, LEAK), (0, 1.0)])
def test_states_are_those_of_reservoirpy(input_size, leak):
    layer = make_layer(EchoStateNetwork, input_size, 20)
    reservoir = nodes.Reservoir(
        W=to_dense(layer).numpy(),
        # reservoirpy takes no empty input
        Win=layer.weight_ih.numpy() if input_size else np.zeros((20, 1)),
        bias=layer.bias.numpy(),
        lr=leak,
    )
    input = torch.randn(30, 1, input_size, dtype=torch.float64)
    expected = reservoir.run(input[:, 0].numpy() if input_size else np.zeros((30, 1)))
    torch.testing.assert_close(layer(input)[:, 0], torch.from_numpy(expected))


@pytest.mark.parametrize(("input_size", "radius"), [(2, RADIUS), (0, FREE_RADIUS)])
@pytest.mark.parametrize("units", [1, 5, 60, 600])
def test_spectral_radius_and_degree_are_those_of_the_head(input_size, radius, units):
    matrix = to_dense(make_layer(EchoStateNetwork, input_size, units))
    assert torch.linalg.eigvals(matrix).abs().max().item() == pytest.approx(radius, rel=0.02 if units > 500 else 1e-5)
    assert (matrix.count_nonzero(1) == min(units, DEGREE)).all()


def test_the_wiring_does_not_depend_on_the_seed_so_that_the_weights_restore_a_network():
    one, other = (build_network("esn", 30, 2, 3, seed=seed) for seed in (0, 1))
    torch.testing.assert_close(one.layer.sources, other.layer.sources)
    assert (one.layer.weight_hh != other.layer.weight_hh).all()
    loaded = load_weights(other, {name: value.numpy().copy() for name, value in one.state_dict().items()})
    input = torch.randn(9, 2, 2)
    torch.testing.assert_close(loaded(input), one(input), rtol=0, atol=0)


def test_an_echo_state_network_with_input_forgets_where_it_started(monkeypatch):
    def measure_differences():
        layer = make_layer(EchoStateNetwork, 2, 40)
        input = torch.randn(4000, 1, 2, dtype=torch.float64)
        other = input.clone()
        other[:100] = 5 * torch.randn(100, 1, 2, dtype=torch.float64)
        difference = (layer(other) - layer(input)).abs().amax((1, 2))
        return difference[99], difference[-1]

    early, late = measure_differences()
    assert early > INPUT_SCALING
    assert late < 1e-6 * early
    monkeypatch.setattr(echo_state, "RADIUS", 1.5)
    early, late = measure_differences()
    assert late > early


@pytest.mark.parametrize(
    ("input_size", "name", "other"),
    [(2, "BIAS_SCALING", "FREE_BIAS_SCALING"), (0, "FREE_BIAS_SCALING", "BIAS_SCALING")],
)
def test_layers_with_and_without_input_have_a_bound_of_the_bias_each(monkeypatch, input_size, name, other):
    monkeypatch.setattr(echo_state, name, 0.7)
    monkeypatch.setattr(echo_state, other, 0.0)
    bias = make_layer(EchoStateNetwork, input_size, 200).bias
    assert 0.6 < bias.abs().max() <= 0.7


def test_most_networks_without_input_keep_moving(monkeypatch):
    def count_moving():
        layers = [make_layer(EchoStateNetwork, 0, 80, seed) for seed in range(8)]
        states = [layer(torch.zeros(600, 1, 0, dtype=torch.float64))[-100:, 0] for layer in layers]
        return sum(bool(last.std(0).mean() > 0.01) for last in states)

    assert count_moving() >= 6
    monkeypatch.setattr(echo_state, "FREE_RADIUS", 0.95)
    assert count_moving() == 0
