"""Windows and their network: batches share a clock, only steps after the warm-up teach, and gates weigh candidates."""

import numpy as np
import pytest
import torch

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.estimators.features import fit_features
from cwrnn.estimators.forecast_network import (
    WEIGHT_RATE,
    ForecastNetwork,
    compute_pinball,
    regress_medians,
    run_layer,
)
from cwrnn.estimators.history import History
from cwrnn.estimators.windows import Windows, split_series

SEASON, HORIZON, T = 12, 5, 600


@pytest.fixture
def windows():
    rng = np.random.default_rng(0)
    values = np.sin(2 * np.pi * np.arange(T) / SEASON)[:, None] + 0.3 * rng.normal(size=(T, 1))
    features = fit_features(values, np.empty((T, 0)), (4, SEASON), HORIZON)
    history = History.begin(SEASON, 1).extend(values)
    train_end = split_series(T, SEASON, HORIZON)
    return Windows(features, history, np.ones((T, 1), dtype=bool), train_end, 0.8, torch.device("cpu"))


@pytest.fixture
def network(windows):
    inputs, K = windows.inputs.shape[1], windows.candidates.shape[-1]
    return ForecastNetwork(ClockworkRNN(inputs, 6, schedule=[1, 4]), HORIZON, 1, K)


def watch(network, monkeypatch):
    """The arguments of all calls of a network."""
    calls = []
    forward = network.forward

    def remember(inputs, candidates, t0, steps):
        calls.append((inputs, candidates, t0, steps))
        return forward(inputs, candidates, t0, steps)

    monkeypatch.setattr(network, "forward", remember)
    return calls


def test_the_windows_of_a_batch_share_their_clock(windows, network, monkeypatch):
    calls = watch(network, monkeypatch)
    network.train()
    phases = set()
    for _ in range(20):
        windows.compute_loss(network, 8)
        inputs, candidates, t0, steps = calls.pop()
        phases.add(t0)
        assert 0 <= t0 < SEASON
        assert inputs.shape[0] == windows.length
        assert inputs.shape[1] > 1
        # the last two inputs are the sine and the cosine of the season
        angle = torch.tensor(2 * np.pi * t0 / SEASON)
        expected = np.sqrt(2) * torch.stack([angle.sin(), angle.cos()]).float()
        torch.testing.assert_close(inputs[0, :, -2:], expected.expand(inputs.shape[1], 2), rtol=1e-4, atol=1e-4)
        assert int(steps.min()) >= windows.warm_up > 0
        assert len(set(steps.tolist())) == len(steps) == (windows.length - windows.warm_up) // 16
        assert candidates.shape[0] == len(steps)
    assert len(phases) > 5


def test_windows_lie_in_the_training_part(windows, network, monkeypatch):
    # the inputs of the step before the last forecast that ends in the training part
    last = windows.inputs[windows.train_end - HORIZON]
    calls = watch(network, monkeypatch)
    network.train()
    for _ in range(200):
        windows.compute_loss(network, 4)
    ends = torch.cat([inputs[-1] for inputs, *_ in calls])
    steps = [int((windows.inputs - end).abs().sum(dim=1).argmin()) for end in ends]
    assert max(steps) <= windows.train_end - HORIZON
    assert max(steps) > windows.train_end - HORIZON - 2 * SEASON
    assert torch.isfinite(last).all()


def test_the_held_out_loss_is_that_of_a_stream(windows, network):
    network.eval()
    torch.nn.init.normal_(network.readout.weight, std=0.1)
    with torch.no_grad():
        loss = windows.compute_loss(network, 1)
        lines = network.read(run_layer(network.layer, windows.inputs[:, None], 0), windows.candidates[:, None])[:, 0]
    rows = slice(windows.held_out.start, windows.held_out.stop, 4)
    losses = compute_pinball(lines[rows], windows.targets[rows], 0.8) * windows.importance[rows, ..., None]
    # the state was warmed up over two seasons only
    torch.testing.assert_close(loss, losses.mean(), rtol=0.02, atol=0)
    assert windows.held_out == range(windows.train_end, T - HORIZON)


@pytest.mark.parametrize("layer", [ClockworkLSTM(3, 8), torch.nn.GRU(3, 8)])
def test_the_output_equals_its_definition(layer):
    H, C, K, R = 10, 2, 4, 6
    network = ForecastNetwork(layer, H, C, K)
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter)
    inputs, candidates = torch.randn(7, 3, 3), torch.randn(7, 3, H, C, K)
    hidden = run_layer(layer, inputs, 0)
    output = hidden @ network.readout.weight.T + network.readout.bias
    lines = output[..., : 3 * H * C].reshape(7, 3, H, C, 3)
    gates = output[..., 3 * H * C :].reshape(7, 3, R, C, K)
    knots = torch.linspace(0, R - 1, H)
    expected = torch.empty(7, 3, H, C, 3)
    for h in range(H):
        low = min(int(knots[h]), R - 2)
        share = knots[h] - low
        gate = (1 - share) * gates[:, :, low] + share * gates[:, :, low + 1]
        weights = network.weights[h] + WEIGHT_RATE * network.changes[h] + gate
        expected[:, :, h] = lines[:, :, h] + (weights * candidates[:, :, h]).sum(-1, keepdim=True)
    torch.testing.assert_close(network(inputs, candidates), expected, rtol=1e-4, atol=1e-4)
    ahead = torch.tensor([0, 4, 9])
    rows = torch.tensor([1, 3, 5])
    pairs = network.combine_pairs(output[rows, 0], candidates[rows, 0, ahead], ahead)
    torch.testing.assert_close(pairs, expected[rows, 0, ahead], rtol=1e-4, atol=1e-4)


def test_training_begins_with_the_median_regression(windows, network):
    weights = windows.regress()
    network.set_weights(weights)
    assert WEIGHT_RATE == 0.1
    lines = network(windows.inputs[:, None], windows.candidates[:, None])[:, 0]
    expected = (weights * windows.candidates).sum(-1)
    torch.testing.assert_close(lines[..., 1], expected)
    torch.testing.assert_close(lines[..., 2] - lines[..., 0], torch.full_like(expected, 2))


@pytest.mark.parametrize("kind", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
def test_weights_learn_at_the_rate_of_their_slower_module(kind):
    network = ForecastNetwork(kind(7, 5, schedule="1:2,4:2,16:1"), HORIZON, 1, 10)
    shares, layer = network.find_rate_shares(), network.layer
    expected = torch.tensor([1.0, 1.0, 0.5, 0.5, 0.25])
    ends = torch.minimum(expected[:, None], expected)
    for parameter, share in shares.items():
        assert torch.equal(share.expand_as(parameter), share)
    for unit in range(5):
        assert (shares[layer.weight_ih_l0].unflatten(0, (-1, 5))[:, unit] == expected[unit]).all()
        assert (shares[layer.bias_l0].unflatten(0, (-1, 5))[:, unit] == expected[unit]).all()
        assert (shares[layer.weight_hh_l0].unflatten(0, (-1, 5))[:, unit] == ends[unit]).all()
        assert (shares[network.readout.weight][:, unit] == expected[unit]).all()
    assert {id(parameter) for parameter in shares} == {id(p) for p in (*layer.parameters(), network.readout.weight)}


def test_layers_of_torch_learn_at_the_whole_rate():
    assert ForecastNetwork(torch.nn.LSTM(7, 5), HORIZON, 1, 10).find_rate_shares() == {}


def test_a_median_regression_ignores_outliers():
    generator = torch.Generator().manual_seed(0)
    candidates = torch.randn(2000, 1, 1, 2, generator=generator)
    targets = 3 * candidates[..., 0]
    targets[:200] = -20 * candidates[:200, ..., 0]
    # least squares would find less than 0.7
    weights = regress_medians(candidates, targets, torch.ones(2000, 1, 1)).squeeze()
    assert 1.5 < weights[0] < 3
    assert abs(weights[1]) < 0.2
    # what has no importance does not count
    importance = torch.ones(2000, 1, 1)
    importance[:200] = 0
    assert regress_medians(candidates, targets, importance).squeeze()[0] > weights[0]


def test_pinball_losses_are_least_at_their_quantiles():
    targets = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    places = torch.linspace(-2, 2, 81)
    losses = [compute_pinball(place.expand(20_000, 3), targets, 0.8).mean(dim=0) for place in places]
    best = places[torch.stack(losses).argmin(dim=0)]
    torch.testing.assert_close(best, torch.tensor([-1.2816, 0.0, 1.2816]), rtol=0, atol=0.06)
