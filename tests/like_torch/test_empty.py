"""Empty batches, sequences and inputs have outputs and gradients of the right shapes, on every backend."""

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, as_hidden, call, is_lstm, join, randn

from cwrnn import LSTMState, Readout, State

N = 4
SHAPES = [(0, 2, 3), (5, 0, 3), (5, 2, 0), (0, 0, 3)]


def make_calls(layer, readout, x, hx):
    T, B, _ = x.shape

    def read_ticks(**options):
        ticks, hidden = layer.ticks(x, as_hidden(layer, hx), t0=1, **options)
        return readout(ticks), join(hidden)

    def step():
        hidden = as_hidden(layer, hx)
        first, state = layer.step(x[0], LSTMState(*hidden, 0) if is_lstm(layer) else State(hidden, 0))
        second, state = layer.step(x[0], state)
        return first, second, *state[:-1]

    calls = [lambda: call(layer, x), lambda: call(layer, x, hx, t0=1), read_ticks]
    if T > 0:
        lengths = torch.full((B,), T)
        calls += [lambda: call(layer, x, hx, lengths=lengths), lambda: read_ticks(lengths=lengths), step]
    return calls


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("periods", [(1, 2), (2, 3)], ids=str)
@pytest.mark.parametrize("backend", ["auto", "torch", "reference"])
def test_empty_tensors_have_gradients(backend, periods, shape, kind):
    _, B, I = shape
    layer = CLOCKWORK[kind](I, N, schedule=periods, backend=backend, dtype=torch.float64)
    readout = Readout(N, 2, dtype=torch.float64)
    x, hx = randn(*shape, requires_grad=True), randn(1, B, N, requires_grad=True)
    leaves = [x, hx, *layer.parameters(), *readout.parameters()]
    for compute in make_calls(layer, readout, x, hx):
        loss = sum(output.sin().sum() for output in compute())
        first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True)
        assert [gradient.shape for gradient in first] == [leaf.shape for leaf in leaves]
        if B == 0:
            assert all(gradient.count_nonzero() == 0 for gradient in first)
        second = sum(gradient.square().sum() for gradient in first)
        if second.requires_grad:
            for gradient in torch.autograd.grad(second, leaves, materialize_grads=True):
                assert gradient.isfinite().all()
        with torch.no_grad():
            for expected, output in zip(compute(), compute(), strict=True):
                assert output.shape == expected.shape
