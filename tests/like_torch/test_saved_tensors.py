"""Activation checkpointing and hooks on saved tensors work with ClockworkRNN as with torch.nn.RNN."""

from functools import partial

import pytest
import torch
from support.rnn_pairs import B, I, T, randn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

from cwrnn import ClockworkRNN, Readout

BACKENDS = ["auto", "torch", "reference"]


def make_calls(backend):
    """Make functions of x and hx that return tensors, and all leaves that they depend on except x and hx."""
    layer = ClockworkRNN(I, 4, 2, schedule=(1, 3), dtype=torch.float64, backend=backend)
    readout = Readout(4, 2, dtype=torch.float64)
    lengths = torch.tensor([T, 3, 1, 5])

    def read_ticks(x, hx):
        ticks, h_n = layer.ticks(x, hx, t0=2)
        return readout(ticks), h_n

    calls = {
        "forward": lambda x, hx: layer(x, hx, t0=2),
        "lengths": lambda x, hx: layer(x, hx, lengths=lengths),
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
@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpointed_gradients_equal_plain_ones(close, backend, option, early_stop):
    calls, parameters = make_calls(backend)
    for call in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        leaves = [x, hx, *parameters]
        expected = differentiate(call(x, hx), leaves)
        for leaf in leaves:
            leaf.grad = None
        with set_checkpoint_early_stop(early_stop):
            outputs = checkpoint(call, x, hx, **OPTIONS[option])
        # checkpoint with use_reentrant=True allows `backward` only
        sum(output.sin().sum() for output in outputs).backward()
        for leaf, gradient in zip(leaves, expected, strict=True):
            close(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad, gradient)


@pytest.mark.parametrize("option", ["plain", "recompute all"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_second_order_gradients_of_checkpoints_equal_plain_ones(close, backend, option):
    """Selective checkpointing runs the operators, whose gradients must be differentiable as well."""
    calls, parameters = make_calls(backend)
    for call in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        leaves = [x, hx, *parameters]
        expected = differentiate(call(x, hx), leaves, order=2)
        actual = differentiate(checkpoint(call, x, hx, **OPTIONS[option]), leaves, order=2)
        for gradient, plain in zip(actual, expected, strict=True):
            close(gradient, plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_batched_gradients_of_a_selective_checkpoint_equal_single_ones(close, backend):
    calls, parameters = make_calls(backend)
    x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
    for call in calls.values():
        output, _ = checkpoint(call, x, hx, **OPTIONS["recompute all"])
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
@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_see_every_saved_tensor_once(close, backend, hooks):
    calls, parameters = make_calls(backend)
    for call in calls.values():
        x, hx = randn(T, B, I, requires_grad=True), randn(2, B, 4, requires_grad=True)
        expected = differentiate(call(x, hx), [x, hx, *parameters])
        with hooks():
            outputs = call(x, hx)
        for gradient, plain in zip(differentiate(outputs, [x, hx, *parameters]), expected, strict=True):
            close(gradient, plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_errors_of_autograd_are_those_of_torch(backend):
    layer = ClockworkRNN(I, 4, schedule=(1, 3), dtype=torch.float64, backend=backend)
    x = randn(T, B, I)
    output, _ = layer(x)
    output.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.sum().backward()
    for changed in (x, layer.weight_hh_l0):
        output, _ = layer(x)
        with torch.no_grad():
            changed.add_(1)
        with pytest.raises(RuntimeError, match="modified (by an inplace operation|inplace)"):
            output.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_may_be_changed_in_place(close, backend):
    layer = ClockworkRNN(I, 4, schedule=(1, 3), dtype=torch.float64, backend=backend)
    x = randn(T, B, I, requires_grad=True)
    for place in (0, 1):
        (expected,) = torch.autograd.grad(2 * layer(x)[place].sum(), x)
        output = layer(x)[place]
        output.mul_(2)
        close(torch.autograd.grad(output.sum(), x)[0], expected)
