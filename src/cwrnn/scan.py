"""The recurrence of one module on its own clock: a small Elman network, tick after tick.

    states[0] = h0,    states[n] = f( drive[n - 1] + W states[n - 1] )

This is the only part of a Clockwork RNN that cannot be computed for all time at once. Its gradient is written by hand,
because a graph of one node per tick would keep every state twice and form the gradient of W tick by tick:

    a'[n]  = f'(states[n]) * ( gradient[n] + W^T a'[n + 1] )         gradient of drive[n - 1], backwards in time
    W'     = sum over n of a'[n] states[n - 1]^T                     one matrix product
    h0'    = gradient[0] + W^T a'[1]

Backward is made of ordinary operations, so that it can be differentiated again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .checks import is_functionalized
from .reference import NONLINEARITIES


def scan(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str) -> Tensor:
    """The states of one module, (n + 1, B, K): h0, then one state for each of its n ticks.

    Args:
        drive: (n, B, K), the sum of the inputs and of the messages from slower modules, with the bias
        weight: (K, K)
        h0: (B, K)
        nonlinearity: "tanh" or "relu"
    """
    if torch.compiler.is_compiling():
        if torch._C._are_functorch_transforms_active():
            # operators have no rules for torch.func: the graph records the derivative of the plain loop
            return _forward(drive, weight, h0, nonlinearity)
        # one node of the graph however long the sequence, instead of one per tick
        compiled: Tensor = _scan_operator(drive, weight, h0, nonlinearity)
        return compiled
    if torch._C._get_tracing_state() is not None:
        # a trace with an autograd function in it cannot be saved
        return _forward(drive, weight, h0, nonlinearity)
    if is_functionalized():
        return _forward(drive, weight, h0, nonlinearity)
    if forward_ad._current_level >= 0:
        # torch differentiates tangents again only if ordinary operations compute them
        return _forward(drive, weight, h0, nonlinearity)
    states: Tensor = _Scan.apply(drive, weight, h0, nonlinearity)  # type: ignore[no-untyped-call]
    return states


def _forward(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str) -> Tensor:
    f = NONLINEARITIES[nonlinearity]
    weight = weight.T.contiguous()
    states = [h0]
    for a in drive.unbind(0):
        states.append(f(torch.addmm(a, states[-1], weight)))
    return torch.stack(states)


def _backward(gradient: Tensor, states: Tensor, weight: Tensor, nonlinearity: str) -> tuple[Tensor, Tensor, Tensor]:
    weight = weight.contiguous()
    gradients = gradient.unbind(0)
    factors = _factors(states[1:], nonlinearity).unbind(0)
    arriving = gradients[-1]
    drive_gradients = []
    for n in reversed(range(len(factors))):
        drive_gradients.append(_differentiate(arriving, factors[n], nonlinearity))
        arriving = torch.addmm(gradients[n], drive_gradients[-1], weight)
    if not drive_gradients:
        return torch.zeros_like(states[1:]), torch.zeros_like(weight), arriving.clone()
    drive_gradient = torch.stack(drive_gradients[::-1])
    # reshape and not flatten, which torch.autograd.grad(is_grads_batched=True) cannot map
    K = weight.shape[0]
    weight_gradient = drive_gradient.reshape(-1, K).T @ states[:-1].reshape(-1, K)
    return drive_gradient, weight_gradient, arriving


def _factors(states: Tensor, nonlinearity: str) -> Tensor:
    """The factors that `_differentiate` needs for the states: of tanh its slopes, of relu the states themselves."""
    return 1 - states * states if nonlinearity == "tanh" else states


def _differentiate(change: Tensor, factors: Tensor, nonlinearity: str) -> Tensor:
    """`change` times the derivative of f, by the factors of the states."""
    # torch's own rule: a change passes where the state is NaN, and becomes 0 and not NaN where an infinite one stops
    return change * factors if nonlinearity == "tanh" else torch.ops.aten.threshold_backward(change, factors, 0)


class _Scan(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str) -> Tensor:
        return _forward(drive, weight, h0, nonlinearity)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, weight, _, ctx.nonlinearity = inputs
        ctx.save_for_backward(output, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        return *_backward(gradient, states, weight, ctx.nonlinearity), None


@torch.library.custom_op("cwrnn::scan", mutates_args=())
def _scan_operator(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str) -> Tensor:
    return _forward(drive, weight, h0, nonlinearity)


@_scan_operator.register_fake
def _(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str) -> Tensor:
    return drive.new_empty((drive.shape[0] + 1, *drive.shape[1:]))


@torch.library.custom_op("cwrnn::scan_backward", mutates_args=())
def _scan_backward_operator(
    gradient: Tensor, states: Tensor, weight: Tensor, nonlinearity: str
) -> tuple[Tensor, Tensor, Tensor]:
    return _backward(gradient, states, weight, nonlinearity)


@_scan_backward_operator.register_fake
def _(gradient: Tensor, states: Tensor, weight: Tensor, nonlinearity: str) -> tuple[Tensor, Tensor, Tensor]:
    return (
        states.new_empty((states.shape[0] - 1, *states.shape[1:])),
        weight.new_empty(weight.shape),
        states.new_empty(states.shape[1:]),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, weight, _, ctx.nonlinearity = inputs
    ctx.save_for_backward(output, weight)


def _operator_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    return *_scan_backward_operator(gradient, *ctx.saved_tensors, ctx.nonlinearity), None


_scan_operator.register_autograd(_operator_backward, setup_context=_setup_context)
