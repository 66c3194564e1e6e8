"""Activation checkpointing and hooks on saved tensors work with our layers as with torch's."""

from functools import partial
from itertools import product

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, B, I, T, as_hidden, call, is_lstm, join, randn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from cwrnn import Readout

# the specification of the gated cells takes long, and records plain operations like that of the first
BACKENDS = pytest.mark.parametrize(
    ("kind", "backend"),
    [("RNN", "auto"), ("RNN", "torch"), ("RNN", "reference"), *product(["LSTM", "GRU"], ["auto", "torch"])],
)


def make_calls(backend, kind):
    """Make functions of x and hx that return tensors, and all leaves that they depend on except x and hx."""
    layer = CLOCKWORK[kind](I, 4, 2, schedule=(1, 3), dtype=torch.float64, backend=backend)
    readout = Readout(4, 2, dtype=torch.float64)
    lengths = torch.tensor([T, 3, 1, 5])

    def read_ticks(x, hx):
        ticks, hidden = layer.ticks(x, as_hidden(layer, hx), t0=2)
        return readout(ticks), join(hidden)

    calls = {
        "forward": lambda x, hx: call(layer, x, hx, t0=2),
        "lengths": lambda x, hx: call(layer, x, hx, lengths=lengths),
        "ticks": read_ticks,
    }
    return calls, [*layer.parameters(), *readout.parameters()]


def differentiate(outputs, leaves, order=1):
    loss = sum((output.sin().sum() for output in outputs), start=torch.zeros((), dtype=torch.float64))
    for _ in range(order - 1):
        first = torch.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
        loss = sum((g.square().sum() for g in first if g is not None), start=torch.zeros((), dtype=torch.float64))
    return torch.autograd.grad(loss, leaves, materialize_grads=True)


def select(policy):
    return {"context_fn": partial(create_selective_checkpoint_contexts, lambda ctx, op, *a, **k: policy(op))}


def save_own(op):
    return CheckpointPolicy.MUST_SAVE if op.namespace == "cwrnn" else CheckpointPolicy.PREFER_RECOMPUTE


OPTIONS = {
    "reentrant": {"use_reentrant": True},
    "plain": {"use_reentrant": False},
    "save all": {"use_reentrant": False, **select(lambda op: CheckpointPolicy.MUST_SAVE)},
    "save operators of cwrnn": {"use_reentrant": False, **select(save_own)},
    "recompute all": {"use_reentrant": False, **select(lambda op: CheckpointPolicy.PREFER_RECOMPUTE)},
}


@pytest.mark.parametrize(("option", "early_stop"), [*((option, True) for option in OPTIONS), ("recompute all", False)])
@BACKENDS
def test_checkpointed_gradients_equal_plain_ones(close, backend, option, early_stop, kind):
    calls, parameters = make_calls(backend, kind)
    for compute in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        leaves = [x, hx, *parameters]
        expected = differentiate(compute(x, hx), leaves)
        for leaf in leaves:
            leaf.grad = None
        with set_checkpoint_early_stop(early_stop):
            outputs = checkpoint(compute, x, hx, **OPTIONS[option])
        # checkpoint with use_reentrant=True allows `backward` only
        sum(output.sin().sum() for output in outputs).backward()
        for leaf, gradient in zip(leaves, expected, strict=True):
            close(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, gradient)


@pytest.mark.parametrize("option", ["plain", "recompute all"])
@BACKENDS
def test_second_order_gradients_of_checkpoints_equal_plain_ones(close, backend, option, kind):
    """Selective checkpointing runs the operators, whose gradients must be differentiable as well."""
    calls, parameters = make_calls(backend, kind)
    for compute in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        leaves = [x, hx, *parameters]
        expected = differentiate(compute(x, hx), leaves, order=2)
        actual = differentiate(checkpoint(compute, x, hx, **OPTIONS[option]), leaves, order=2)
        for gradient, plain in zip(actual, expected, strict=True):
            close(gradient, plain)


@BACKENDS
def test_batched_gradients_of_a_selective_checkpoint_equal_single_ones(close, backend, kind):
    calls, parameters = make_calls(backend, kind)
    x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
    for compute in calls.values():
        output, _ = checkpoint(compute, x, hx, **OPTIONS["recompute all"])
        directions = randn(3, *output.shape)
        leaves = [x, hx, *parameters[:-2]]
        options = {"retain_graph": True}
        batched = torch.autograd.grad(output, leaves, directions, is_grads_batched=True, **options)
        for s, direction in enumerate(directions):
            for value, single in zip(batched, torch.autograd.grad(output, leaves, direction, **options), strict=True):
                close(value[s], single)


def unpack_once():
    """Hooks that raise an error if a saved tensor is unpacked twice."""

    def unpack(packed):
        assert packed, "a saved tensor is unpacked twice"
        return packed.pop()

    return saved_tensors_hooks(lambda tensor: [tensor], unpack)


@pytest.mark.parametrize("hooks", [unpack_once, save_on_cpu], ids=["unpack once", "save on cpu"])
@BACKENDS
def test_hooks_see_every_saved_tensor_once(close, backend, hooks, kind):
    calls, parameters = make_calls(backend, kind)
    for compute in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        expected = differentiate(compute(x, hx), [x, hx, *parameters])
        with hooks():
            outputs = compute(x, hx)
        for gradient, plain in zip(differentiate(outputs, [x, hx, *parameters]), expected, strict=True):
            close(gradient, plain)


@BACKENDS
def test_errors_of_autograd_are_those_of_torch(close, backend, kind):
    layer = CLOCKWORK[kind](I, 4, schedule=(1, 3), dtype=torch.float64, backend=backend)
    x = randn(T, B, I)
    output, _ = layer(x)
    output.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.sum().backward()
    for changed in (x, layer.weight_hh_l0):
        expected = torch.autograd.grad(layer(x)[0].sum(), layer.parameters())
        output, _ = layer(x)
        with torch.no_grad():
            changed.add_(1)
        try:
            found, message = torch.autograd.grad(output.sum(), layer.parameters()), None
        except RuntimeError as error:
            found, message = expected, str(error)
        # a backend that copies the gates of its modules has the values before the change
        assert kind != "RNN" if message is None else "modified" in message
        for gradient, right in zip(found, expected, strict=True):
            close(gradient, right)


@BACKENDS
def test_outputs_may_be_changed_in_place(close, backend, kind):
    layer = CLOCKWORK[kind](I, 4, schedule=(1, 3), dtype=torch.float64, backend=backend)
    x = randn(T, B, I, requires_grad=True)

    def list_outputs():
        output, hidden = layer(x)
        return [output, *(hidden if is_lstm(layer) else (hidden,))]

    for place in range(len(list_outputs())):
        (expected,) = torch.autograd.grad(2 * list_outputs()[place].sum(), x)
        output = list_outputs()[place]
        output.mul_(2)
        close(torch.autograd.grad(output.sum(), x)[0], expected)
