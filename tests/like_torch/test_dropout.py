"""Dropout of our layers is that of torch's."""

import copy

import pytest
import torch
from support.rnn_pairs import (
    LAYERS,
    B,
    I,
    N,
    T,
    call,
    make_pair,
    randn,
    run,
)
from torch import nn


def test_full_dropout_separates_the_layers(make, close):
    """With a probability of 1, the second layer reads zeros and gives the first layer no gradient."""
    layer = make(I, N, 2, dropout=1.0, dtype=torch.float64)
    x = randn(T, B, I)
    output, h_n = call(layer, x)
    other, _ = layer(randn(T, B, I))
    assert torch.equal(output, other)
    assert not torch.equal(h_n[0], torch.zeros_like(h_n[0]))
    output.sum().backward()
    assert torch.equal(layer.weight_hh_l0.grad, torch.zeros_like(layer.weight_hh_l0))
    assert not torch.equal(layer.weight_hh_l1.grad, torch.zeros_like(layer.weight_hh_l1))
    evaluated, _ = layer.eval()(x)
    assert not torch.equal(evaluated, layer(randn(T, B, I))[0])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_draws_the_same_numbers_as_torch(close, bidirectional, kind):
    rnn, ours = make_pair(I, N, 3, kind=kind, dropout=0.5, bidirectional=bidirectional)
    x = randn(T, B, I)
    results = []
    for layer in (rnn, ours, copy.deepcopy(ours).eval()):
        torch.manual_seed(1)
        output, h_n, loss = run(layer, x)
        results.append((output, h_n, torch.autograd.grad(loss, layer.weight_ih_l0)[0]))
    for expected, actual, evaluated in zip(*results, strict=True):
        close(actual, expected)
        assert not torch.equal(actual, evaluated)


@pytest.mark.parametrize("make", [LAYERS["RNN"], LAYERS["ClockworkRNN"]], ids=["RNN", "ClockworkRNN"])
def test_dropout_zeroes_the_given_share_and_scales_the_rest(make, close):
    """The second layer copies the first: a share of p is zero, and the rest is multiplied by 1 / (1 - p)."""
    p, units = 0.3, 200
    layer = make(1, units, 2, "relu", False, dropout=p)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1)
        layer.weight_ih_l1.copy_(torch.eye(units))
        layer.weight_hh_l0.zero_()
        layer.weight_hh_l1.zero_()
    output, h_n = layer(torch.ones(50, 1, 1))
    kept = output != 0
    # the tolerance is five standard deviations of 10,000 draws
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=5 * (p * (1 - p) / 10_000) ** 0.5)
    close(output[kept], torch.full_like(output[kept], 1 / (1 - p)))
    close(h_n[0], torch.ones_like(h_n[0]))


def test_dropout_depends_on_the_seed_in_training_only(make):
    layer = make(I, N, 2, dropout=0.5)
    x = torch.randn(T, B, I)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(layer(x)[0])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_the_dropout_attribute_may_be_changed(make):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    expected = layer(x)[0]
    layer.dropout = 0.5
    assert not torch.equal(layer(x)[0], expected)
    layer.dropout = 0.0
    assert torch.equal(layer(x)[0], expected)


def test_dropout_of_one_layer_warns(make):
    text = (
        r"dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
        r"greater than 1, but got dropout=0\.5 and num_layers=1"
    )
    with pytest.warns(UserWarning, match=text) as caught:
        layer = make(I, N, dropout=0.5)
    if not isinstance(layer, nn.RNNBase):
        assert caught[0].filename == __file__
    x = torch.randn(T, B, I)
    assert torch.equal(layer(x)[0], layer.eval()(x)[0])
