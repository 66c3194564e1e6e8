"""Skip RNN against its equations, step by step, with the straight-through gradient."""

import pytest
import torch
from support.model_checks import check_model_layer, make_input, make_layer

from cwrnn.experiments.networks.models.skip import SkipRNN


class Binarize(torch.autograd.Function):
    """Rounds, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, v):
        return torch.round(v)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def run_skip(sequence, layer):
    """The states and the updates for one sequence (T, I)."""
    N = layer.hidden_size
    W_r, W_z, W_n = layer.weight_ih.reshape(3, N, -1)
    U_r, U_z, U_n = layer.weight_hh.reshape(3, N, N)
    b_r, b_z, b_n, b_d = layer.bias.reshape(4, N)
    s, v = torch.zeros(N, dtype=sequence.dtype), torch.ones((), dtype=sequence.dtype)
    states, updates = [], []
    for x in sequence:
        r = torch.sigmoid(W_r @ x + b_r + U_r @ s)
        z = torch.sigmoid(W_z @ x + b_z + U_z @ s)
        n = torch.tanh(W_n @ x + b_n + r * (U_n @ s + b_d))
        candidate = (1 - z) * n + z * s
        u = Binarize.apply(v)
        s = u * candidate + (1 - u) * s
        d = torch.sigmoid(layer.weight_p[0] @ s + layer.bias_p[0])
        v = u * d + (1 - u) * (v + torch.minimum(d, 1 - v))
        states.append(s)
        updates.append(u)
    return torch.stack(states), torch.stack(updates)


def make_skipping_layer(price=0.0):
    """A layer that updates at some steps and holds at others, for different numbers of steps."""
    layer = make_layer(SkipRNN, 3, 5)
    layer.price = price
    with torch.no_grad():
        layer.bias_p.fill_(-1.0)
        layer.weight_p.mul_(5)
        layer.weight_ih.mul_(2)
    return layer


def measure_gaps(updates):
    return set(updates.nonzero().flatten().diff().tolist())


def test_layer_keeps_the_contract():
    check_model_layer(SkipRNN)


def test_states_follow_the_equations():
    layer, input = make_skipping_layer(), make_input(60, 3, 3)
    states = layer(input)
    expected = [run_skip(input[:, b], layer) for b in range(3)]
    torch.testing.assert_close(states, torch.stack([own for own, _ in expected], dim=1))
    updates = torch.stack([own for _, own in expected], dim=1)
    # without skips of several lengths, the comparison would say little
    assert len(set.union(*(measure_gaps(own) for own in updates.T))) >= 3
    assert layer.measure_updates(input) == pytest.approx(updates.mean().item())
    held = updates[1:] == 0
    assert (states[1:][held] == states[:-1][held]).all()


@pytest.mark.parametrize("price", [0.0, 0.3])
def test_gradients_are_straight_through(price):
    layer, input = make_skipping_layer(price), make_input(60, 3, 3).requires_grad_()
    states, direction = layer(input), make_input(60, 3, 5, seed=1)
    wanted = [input, *layer.parameters()]
    actual = torch.autograd.grad((states * direction).sum(), wanted)
    loss = torch.zeros((), dtype=torch.float64)
    for b in range(3):
        own, updates = run_skip(input[:, b], layer)
        loss = loss + (own * direction[:, b]).sum() + price * updates.sum() / 3
    expected = torch.autograd.grad(loss, wanted)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)
    # the update probability is trained through the rounding only
    assert (expected[-1] != 0).all()


def test_states_do_not_depend_on_the_price():
    input = make_input(30, 2, 3)
    torch.testing.assert_close(make_skipping_layer(0.3)(input), make_skipping_layer()(input), rtol=0, atol=0)


def test_price_reduces_updates():
    layer, input = make_skipping_layer(price=1.0), make_input(60, 4, 3)
    before = layer.measure_updates(input)
    descent = torch.optim.SGD(layer.parameters(), lr=0.05)
    for _ in range(5):
        descent.zero_grad()
        (0 * layer(input)).sum().backward()
        descent.step()
    assert layer.measure_updates(input) < before


@pytest.mark.parametrize(("bias", "gap"), [(-2.5, 7), (-0.5, 2), (0.5, 1)])
def test_constant_increments_update_at_constant_steps(bias, gap):
    # an update every ceil(0.5 / sigmoid(bias)) steps
    layer = make_layer(SkipRNN, 3, 5)
    with torch.no_grad():
        layer.weight_p.zero_()
        layer.bias_p.fill_(bias)
    changes = layer(make_input(43, 1, 3)).diff(dim=0).abs().amax(dim=(1, 2))
    assert (changes.nonzero().flatten() + 1).tolist() == list(range(gap, 43, gap))


def test_new_layer_updates_at_first():
    layer = SkipRNN(3, 5)
    assert layer.bias_p.item() == 1
    assert layer.measure_updates(torch.randn(1, 4, 3)) == 1
    assert layer.measure_updates(torch.randn(0, 4, 3)) == 0


def test_multiply_adds_if_all_steps_update():
    assert SkipRNN.count_multiply_adds(3, 5) == 3 * 5 * (3 + 5) + 5


def test_negative_price_is_refused():
    with pytest.raises(ValueError, match="price must be at least 0, got -1"):
        SkipRNN(3, 5, price=-1)
