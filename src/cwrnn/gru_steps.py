"""A module of a GRU that hears slower modules, tick by tick: where one layer of cuDNN for all modules would take longer
(gru_at_once.py).

A message m to gate n stands inside the product with the reset gate, where cuDNN takes no input:

    r = s(a^r + W^r h + m^r)     z = s(a^z + W^z h + m^z)     n = tanh(a^n + r (W^n h + m^n))     h <- n + z (h - n)

torch has this cell as one operator on CUDA devices. It takes the sums `a` of the input and the sums `W h + m` of the
states apart. Here `a` has the biases of the input, and m the bias inside the reset product. Both are known for all
ticks before the first one: `a` is one product, and m one for each slower module, over the rows of its states that are
heard. So a tick is two launches, the product W h, which is added in place to m, and the cell. Backward takes three. The
gradient of W is one product over all ticks.

Unlike cuDNN, these products use tf32 only where torch allows it to matrix products (torch.backends.cuda.matmul).

torch's cell cannot be differentiated twice. Derivatives of gradients are those of `scan`, which computes the same ticks
with ordinary operations.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .cells import add_message
from .held import HeldSignal, accumulate
from .kernels.autograd import Outputs, need_cascade, spread
from .kernels.eligibility import is_plain_eager, wants_gradient
from .kernels.tensors import whole
from .scan import scan

_tick: Any = torch.ops.aten._thnn_fused_gru_cell.default
_pull_back: Any = torch.ops.aten._thnn_fused_gru_cell_backward.default


def run_steps(
    input: Tensor,
    slower: Sequence[HeldSignal],
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    period: int,
    start: int,
) -> tuple[Tensor, Tensor]:
    """The output (n, B, K) and the final state (1, B, K) of a module that hears others. For plain eager calls only.

    Args:
        input: (n, B, I), x at the ticks start + period, start + 2 period, ..., at least one
        slower: the states of all slower modules, at least one, the fastest of them first
        weight_ih: (3 K, ...), the weights of x and of the states of the slower modules
        weight_hh: (3 K, K)
        bias: (4 K), or None
        h0: (B, K), the state before the first tick; None is zero
        period: that of the module
        start: the last tick before the first of these
    """
    K, widths = weight_hh.shape[1], [signal.values.shape[-1] for signal in slower]
    to_units, *from_slower = weight_ih.split((input.shape[-1], *widths), dim=1)
    own, inner = (None, None) if bias is None else bias.split((3 * K, K))
    inputs = F.linear(input, to_units, own)
    messages = _hear(slower, from_slower, inner, start + period - 1, period, input.shape[0])
    h0 = input.new_zeros((input.shape[1], K)) if h0 is None else whole(h0)
    if wants_gradient((inputs, messages, weight_hh, h0)):
        outputs: tuple[Tensor, Tensor] = _Steps.apply(inputs, messages, weight_hh, h0)  # type: ignore[no-untyped-call]
        return outputs
    output, final, _ = _compute(inputs, messages, weight_hh, h0, keep=False)
    return output, final


def _hear(
    slower: Sequence[HeldSignal], weights: Sequence[Tensor], bias: Tensor | None, first: int, step: int, count: int
) -> Tensor:
    """(count, B, 3 K): the messages of slower modules at times first, first + step, ..., in memory of their own.

    `weights` (3 K, ...) are those of their states. `bias` (K), that inside the reset product, is a part of the sum.
    """
    last = first + (count - 1) * step
    # a part of one of the products
    inner = None if bias is None else F.pad(bias, (2 * len(bias), 0))
    messages: list[HeldSignal] = []
    for (values, period, start), weight in reversed(list(zip(slower, weights, strict=True))):
        # all of these rows are heard, because a slower module holds each of them for longer than `step`. The others
        # must have no product: their gradient is 0, and 0 times infinity is NaN
        begin, end = (first - start) // period, (last - start) // period + 1
        heard = F.linear(values[begin:end], weight, inner)
        messages = accumulate(messages, HeldSignal(heard, period, start + begin * period))
        inner = None
    one, *others = [message.at(first, step, count) for message in messages]
    return sum(others, start=one)


def _compute(
    inputs: Tensor, messages: Tensor, weight_hh: Tensor, h0: Tensor, keep: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """The output, the final state (1, B, K), and if `keep`, what the cell leaves at each tick for the gradients.

    Overwrites `messages`.
    """
    weight = whole(weight_hh).T
    h, states, kept = h0, [], []
    for a, m in zip(inputs.unbind(0), messages.unbind(0), strict=True):
        # in place, because addmm copies m first if its result is another tensor
        h, workspace = _tick(a, m.addmm_(h, weight), h)
        states.append(h)
        if keep:
            kept.append(workspace)
    return torch.stack(states), h[None], kept


class _Steps(torch.autograd.Function):
    """The ticks with gradients: those of the fused cell, or those of `scan` if anything must see how they are made."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, messages: Tensor, weight_hh: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        output, final, kept = _compute(inputs, messages.clone(), weight_hh, h0, keep=True)
        ctx.save_for_backward(inputs, messages, weight_hh, h0, output, *kept)
        ctx.set_materialize_grads(False)
        return output, final

    @staticmethod
    def backward(ctx: Any, g_output: Tensor | None, g_final: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad
        if g_output is None and g_final is None:
            return (None,) * len(wanted)
        inputs, messages, weight_hh, h0, output, *kept = ctx.saved_tensors
        gradients = Outputs(g_final, None, g_output)
        if torch.is_grad_enabled() or need_cascade(gradients) or not is_plain_eager((g_output, g_final)):
            return _differentiate_scan(wanted, (inputs, messages, weight_hh, h0), g_output, g_final)
        to_inputs, to_hidden, g_h0 = _run_back(kept, weight_hh, g_output, g_final)
        g_weight = None
        g_messages = torch.stack(to_hidden) if wanted[1] or wanted[2] else None
        if wanted[2] and g_messages is not None:
            before = torch.cat((h0[None], output[:-1]))
            g_weight = g_messages.flatten(0, 1).T @ before.flatten(0, 1)
        computed = torch.stack(to_inputs) if wanted[0] else None, g_messages, g_weight, g_h0
        return tuple(gradient if want else None for gradient, want in zip(computed, wanted, strict=True))


def _run_back(
    kept: Sequence[Tensor], weight_hh: Tensor, g_output: Tensor | None, g_final: Tensor | None
) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """The gradients of the sums of the input and of the sums of the states, tick by tick, and of the initial state."""
    weight = whole(weight_hh)
    arriving: Any = None if g_final is None else whole(g_final)[0]
    arrivals: list[Tensor | None] = [None] * len(kept)
    if g_output is not None:
        *earlier, last = whole(g_output).unbind(0)
        arriving = last if arriving is None else arriving + last
        arrivals[1:] = earlier
    to_inputs, to_hidden = [], []
    for workspace, arrival in zip(reversed(kept), reversed(arrivals), strict=True):
        to_input, to_sums, arriving, _, _ = _pull_back(arriving, workspace, False)
        to_inputs.append(to_input)
        to_hidden.append(to_sums)
        arriving.addmm_(to_sums, weight)
        if arrival is not None:
            arriving += arrival
    return to_inputs[::-1], to_hidden[::-1], arriving


def _differentiate_scan(
    wanted: Sequence[bool], operands: Sequence[Tensor], g_output: Tensor | None, g_final: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The wanted gradients of sums of the input, messages, weight_hh and h0, by differentiating `scan`."""

    def run(*leaves: Tensor) -> tuple[Tensor, Tensor]:
        chosen = spread(leaves, wanted)
        inputs, messages, weight_hh, h0 = (
            leaf if want else operand for want, leaf, operand in zip(wanted, chosen, operands, strict=True)
        )
        drive = add_message("gru", F.pad(inputs, (0, weight_hh.shape[1])), messages)
        states = scan(drive, weight_hh, h0, "gru")
        return states[1:], states[-1:]

    pair: Any = torch.func.vjp(run, *(operand for want, operand in zip(wanted, operands, strict=True) if want))
    outputs, pull_back = pair
    cotangents = (
        torch.zeros_like(value) if gradient is None else gradient
        for value, gradient in zip(outputs, (g_output, g_final), strict=True)
    )
    return tuple(spread(pull_back(tuple(cotangents)), wanted))
