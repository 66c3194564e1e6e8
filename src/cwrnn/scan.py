"""The recurrence of one module on its own clock: a small network of one cell, tick after tick.

    states[0] = h0,    states[n] = update( drive[n - 1], W states[n - 1], states[n - 1] )

This is the only part of a Clockwork RNN that cannot be computed for all time at once. Its gradient is written by hand,
because a graph of one node per tick would keep every state twice and form the gradient of W tick by tick. For tanh:

    a'[n]  = f'(states[n]) * ( gradient[n] + W^T a'[n + 1] )         gradient of drive[n - 1], backwards in time
    W'     = sum over n of a'[n] states[n - 1]^T                     one matrix product
    h0'    = gradient[0] + W^T a'[1]

The gates of a gated cell are computed again from the states, for all ticks at once, with one matrix product.
Backward is made of ordinary operations, so that it can be differentiated again.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .cells import CELLS, NONLINEARITIES, add_message, update
from .checks import is_functionalized


def scan(drive: Tensor, weight: Tensor, h0: Tensor, cell: str, weight_ch: Tensor | None = None) -> Tensor:
    """The states of one module, (n + 1, B, parts K): h0, then one state for each of its n ticks.

    Args:
        drive: (n, B, biases K), the sum of the inputs and of the messages from slower modules, with the biases
        weight: (gates K, K)
        h0: (B, parts K)
        cell: the name of the cell
        weight_ch: (3 K), the peepholes of an LSTM, or None
    """
    if torch.compiler.is_compiling():
        if torch._C._are_functorch_transforms_active():
            # operators have no rules for torch.func: the graph records the derivative of the plain loop
            return _forward(drive, weight, h0, cell, weight_ch)
        # one node of the graph however long the sequence, instead of one per tick
        compiled: Tensor = _scan_operator(drive, weight, h0, cell, weight_ch)
        return compiled
    if torch._C._get_tracing_state() is not None:
        # a trace with an autograd function in it cannot be saved
        return _forward(drive, weight, h0, cell, weight_ch)
    if is_functionalized():
        return _forward(drive, weight, h0, cell, weight_ch)
    if forward_ad._current_level >= 0:
        # torch differentiates tangents again only if ordinary operations compute them
        return _forward(drive, weight, h0, cell, weight_ch)
    states: Tensor = _Scan.apply(drive, weight, h0, cell, weight_ch)  # type: ignore[no-untyped-call]
    return states


def _forward(drive: Tensor, weight: Tensor, h0: Tensor, cell: str, weight_ch: Tensor | None) -> Tensor:
    weight = weight.T.contiguous()
    states = [h0]
    if cell in NONLINEARITIES:
        f = NONLINEARITIES[cell]
        for a in drive.unbind(0):
            states.append(f(torch.addmm(a, states[-1], weight)))
    else:
        K = weight.shape[0]
        for a in drive.unbind(0):
            states.append(update(cell, a, states[-1][..., :K] @ weight, states[-1], weight_ch))
    return torch.stack(states)


Gradients = tuple[Tensor, Tensor, Tensor, Tensor | None]
"""The gradients of drive, weight, h0 and weight_ch."""


def _backward(
    gradient: Tensor, states: Tensor, weight: Tensor, cell: str, drive: Tensor | None, weight_ch: Tensor | None
) -> Gradients:
    if cell in NONLINEARITIES:
        return *_backward_elman(gradient, states, weight, cell), None
    assert drive is not None
    return _BACKWARDS[cell](gradient, states, weight, drive, weight_ch)


def _backward_elman(gradient: Tensor, states: Tensor, weight: Tensor, cell: str) -> tuple[Tensor, Tensor, Tensor]:
    weight = weight.contiguous()
    gradients = gradient.unbind(0)
    factors = _factors(states[1:], cell).unbind(0)
    arriving = gradients[-1]
    drive_gradients = []
    for n in reversed(range(len(factors))):
        drive_gradients.append(_differentiate(arriving, factors[n], cell))
        arriving = torch.addmm(gradients[n], drive_gradients[-1], weight)
    if not drive_gradients:
        return torch.zeros_like(states[1:]), torch.zeros_like(weight), arriving.clone()
    drive_gradient = torch.stack(drive_gradients[::-1])
    return drive_gradient, _multiply_pairs(drive_gradient, states[:-1]), arriving


def _factors(states: Tensor, cell: str) -> Tensor:
    """The factors that `_differentiate` needs for the states: of tanh its slopes, of relu the states themselves."""
    return 1 - states * states if cell == "tanh" else states


def _differentiate(change: Tensor, factors: Tensor, cell: str) -> Tensor:
    """`change` times the derivative of f, by the factors of the states."""
    # torch's own rule: a change passes where the state is NaN, and becomes 0 and not NaN where an infinite one stops
    return change * factors if cell == "tanh" else torch.ops.aten.threshold_backward(change, factors, 0)


def _backward_lstm(
    gradient: Tensor, states: Tensor, weight: Tensor, drive: Tensor, weight_ch: Tensor | None
) -> Gradients:
    weight = weight.contiguous()
    h, c = states.chunk(2, dim=-1)
    before, after = c[:-1], c[1:]
    i, f, g, o = (drive + h[:-1] @ weight.T).chunk(4, dim=-1)
    if weight_ch is not None:
        p_i, p_f, p_o = weight_ch.chunk(3, dim=-1)
        i, f, o = i + p_i * before, f + p_f * before, o + p_o * after
    # the sigmoid of a contiguous tensor is rounded in another way: i, f and o are contiguous with peepholes as without
    i, f, g, o = i.contiguous().sigmoid(), f.contiguous().sigmoid(), g.tanh(), o.contiguous().sigmoid()
    squashed = after.tanh()
    # the derivatives of a tick: of the sums of i, f and g by c, of the sum of o by h, and of c by h
    by_i, by_f, by_g = g * (i * (1 - i)), before * (f * (1 - f)), i * (1 - g * g)
    by_o, by_c = squashed * (o * (1 - o)), o * (1 - squashed * squashed)
    g_h, g_c = gradient.chunk(2, dim=-1)
    arriving_h, arriving_c = g_h[-1], g_c[-1]
    changes = []
    for n in reversed(range(len(drive))):
        d_o = arriving_h * by_o[n]
        d_c = arriving_c + arriving_h * by_c[n]
        d_c = d_c if weight_ch is None else d_c + p_o * d_o
        d_i, d_f = d_c * by_i[n], d_c * by_f[n]
        changes.append(torch.cat((d_i, d_f, d_c * by_g[n], d_o), dim=-1))
        arriving_c = g_c[n] + d_c * f[n]
        arriving_c = arriving_c if weight_ch is None else arriving_c + p_i * d_i + p_f * d_f
        arriving_h = torch.addmm(g_h[n], changes[-1], weight)
    h0_gradient = torch.cat((arriving_h, arriving_c), dim=-1)
    if not changes:
        return torch.zeros_like(drive), torch.zeros_like(weight), h0_gradient, _zeros_like(weight_ch)
    change = torch.stack(changes[::-1])
    if weight_ch is None:
        return change, _multiply_pairs(change, h[:-1]), h0_gradient, None
    d_i, d_f, _, d_o = change.chunk(4, dim=-1)
    seen = torch.cat((d_i * before, d_f * before, d_o * after), dim=-1)
    return change, _multiply_pairs(change, h[:-1]), h0_gradient, seen.sum((0, 1))


def _backward_gru(
    gradient: Tensor, states: Tensor, weight: Tensor, drive: Tensor, weight_ch: Tensor | None
) -> Gradients:
    weight = weight.contiguous()
    before = states[:-1]
    r, z, n, d = add_message("gru", drive, before @ weight.T).chunk(4, dim=-1)
    r, z = torch.sigmoid(r), torch.sigmoid(z)
    n = torch.tanh(n + r * d)
    # the derivatives of a tick: of the sum of z and of the argument of tanh by h, of the sum of r by that argument
    by_z, by_n, by_r = (before - n) * (z * (1 - z)), (1 - z) * (1 - n * n), d * (r * (1 - r))
    gradients = gradient.unbind(0)
    arriving = gradients[-1]
    to_drive, to_message = [], []
    for k in reversed(range(len(drive))):
        d_z, d_n = arriving * by_z[k], arriving * by_n[k]
        d_r, d_d = d_n * by_r[k], d_n * r[k]
        to_drive.append(torch.cat((d_r, d_z, d_n, d_d), dim=-1))
        to_message.append(torch.cat((d_r, d_z, d_d), dim=-1))
        arriving = torch.addmm(gradients[k] + arriving * z[k], to_message[-1], weight)
    if not to_drive:
        return torch.zeros_like(drive), torch.zeros_like(weight), arriving.clone(), None
    weight_gradient = _multiply_pairs(torch.stack(to_message[::-1]), before)
    return torch.stack(to_drive[::-1]), weight_gradient, arriving, None


_BACKWARDS = {"lstm": _backward_lstm, "gru": _backward_gru}


def _multiply_pairs(changes: Tensor, states: Tensor) -> Tensor:
    """The gradient of the weights: the sum over all ticks and sequences of `changes` (n, B, J) times `states`."""
    # reshape and not flatten, which torch.autograd.grad(is_grads_batched=True) cannot map
    return changes.reshape(-1, changes.shape[-1]).T @ states.reshape(-1, states.shape[-1])


def _zeros_like(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else torch.zeros_like(tensor)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Saves the tensors that `_backward` needs; the drive is needed to compute gates again."""
    drive, weight, _, ctx.cell, weight_ch = inputs
    ctx.save_for_backward(output, weight, None if ctx.cell in NONLINEARITIES else drive, weight_ch)


class _Scan(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(drive: Tensor, weight: Tensor, h0: Tensor, cell: str, weight_ch: Tensor | None) -> Tensor:
        return _forward(drive, weight, h0, cell, weight_ch)

    setup_context = staticmethod(_save)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, drive, weight_ch = ctx.saved_tensors
        g_drive, g_weight, g_h0, g_weight_ch = _backward(gradient, states, weight, ctx.cell, drive, weight_ch)
        return g_drive, g_weight, g_h0, None, g_weight_ch


@torch.library.custom_op("cwrnn::scan", mutates_args=())
def _scan_operator(
    drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str, weight_ch: Tensor | None = None
) -> Tensor:
    return _forward(drive, weight, h0, nonlinearity, weight_ch)


@_scan_operator.register_fake
def _(drive: Tensor, weight: Tensor, h0: Tensor, nonlinearity: str, weight_ch: Tensor | None = None) -> Tensor:
    return drive.new_empty((drive.shape[0] + 1, *h0.shape))


@torch.library.custom_op("cwrnn::scan_backward", mutates_args=())
def _scan_backward_operator(
    gradient: Tensor,
    states: Tensor,
    weight: Tensor,
    nonlinearity: str,
    drive: Tensor | None = None,
    weight_ch: Tensor | None = None,
) -> list[Tensor]:
    gradients = _backward(gradient, states, weight, nonlinearity, drive, weight_ch)
    return [tensor for tensor in gradients if tensor is not None]


@_scan_backward_operator.register_fake
def _(
    gradient: Tensor,
    states: Tensor,
    weight: Tensor,
    nonlinearity: str,
    drive: Tensor | None = None,
    weight_ch: Tensor | None = None,
) -> list[Tensor]:
    width = CELLS[nonlinearity].biases * weight.shape[1]
    gradients = [
        states.new_empty((states.shape[0] - 1, *states.shape[1:-1], width)),
        weight.new_empty(weight.shape),
        states.new_empty(states.shape[1:]),
    ]
    return gradients if weight_ch is None else [*gradients, weight_ch.new_empty(weight_ch.shape)]


def _operator_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    states, weight, drive, weight_ch = ctx.saved_tensors
    gradients = _scan_backward_operator(gradient, states, weight, ctx.cell, drive, weight_ch)
    g_drive, g_weight, g_h0, *g_weight_ch = gradients
    return g_drive, g_weight, g_h0, None, g_weight_ch[0] if g_weight_ch else None


_scan_operator.register_autograd(
    _operator_backward, setup_context=lambda ctx, inputs, output: _save(ctx, inputs, output)
)
