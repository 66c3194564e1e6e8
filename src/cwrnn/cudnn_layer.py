"""One layer of cuDNN: the recurrence of units that all tick at every step, with its gradients.

This is what `torch.nn.RNN`, `LSTM` and `GRU` call. cuDNN reads all weights from one vector. torch's layers keep their
parameters in such a vector; here they are copied into one at every call (`pack_weights`), which takes as long as a few
ticks.

cuDNN's gradients have no derivatives. Derivatives of gradients are those of the cascade.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .cells import CELLS
from .kernels.autograd import Operands, Outputs, Recurrence, differentiate_cascade, need_cascade, spread
from .kernels.eligibility import is_plain_eager, wants_gradient
from .kernels.tensors import whole
from .schedule import Schedule

MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers of the cells. Its gates stand in the order of torch's, and ours."""
SATURATED = 2.0**15
"""An input that makes a gate exactly 1; its negative makes it 0. Every dtype, tf32 too, holds it exactly. The sum of
all other inputs of the gate must be much smaller."""

_differentiate: Any = torch.ops.aten._cudnn_rnn_backward.default
_ask_for_graph: Any = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)


def run_module(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    cell: str,
    packed: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The output (n, B, K) and the final state (1, B, parts K) of a module that ticks at each of n > 0 steps.

    An initial state of None is zero. `packed` are the weights in a row, if they are known. For plain eager calls only.
    """
    output, *ends = run_parts(input, weight_ih, weight_hh, bias, h0, cell, packed)
    return output, ends[0] if len(ends) == 1 else torch.cat(ends, dim=-1)


def run_parts(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    cell: str,
    packed: Tensor | None,
) -> tuple[Tensor, ...]:
    """`run_module` with the parts of the final state apart: output, h, and the c of an LSTM."""
    if wants_gradient((input, weight_ih, weight_hh, bias, h0)):
        outputs: tuple[Tensor, ...] = _Module.apply(  # type: ignore[no-untyped-call]
            input, weight_ih, weight_hh, bias, h0, cell, packed
        )
        return outputs
    outputs, _ = _compute(input, weight_ih, weight_hh, bias, h0, cell, packed, train=False)
    return outputs


def pack_weights(weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None, zeros: Tensor | None = None) -> Tensor:
    """All weights of a module in a row, as cuDNN reads them: weight_ih, weight_hh, and torch's two biases.

    The bias of a module is the first of the two, and the second is zero, except for its last third for a GRU: the bias
    inside the reset product. `zeros` are at least twice as many as rows, if the caller has them.
    """
    rows, K = weight_hh.shape
    zeros = weight_hh.new_zeros(2 * rows) if zeros is None else zeros
    matrices = weight_ih.reshape(-1), weight_hh.reshape(-1)
    if bias is None:
        return torch.cat((*matrices, zeros[: 2 * rows]))
    if len(bias) > rows:
        return torch.cat((*matrices, bias[:rows], zeros[: 2 * K], bias[rows:]))
    return torch.cat((*matrices, bias, zeros[:rows]))


def _compute(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    cell: str,
    packed: Tensor | None,
    train: bool,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """`run_parts`, and what the gradients need: what cuDNN keeps, the packed weights, h0, and the c0 of an LSTM."""
    (rows, K), B = weight_hh.shape, input.shape[1]
    zeros = None
    if h0 is None:
        # one launch for all zeros of the call
        zeros = input.new_zeros(max(B * K, 2 * rows))
        hx = zeros[: B * K].view(1, B, K)
        cx = hx if cell == "lstm" else None
    else:
        hx, *others = _split_parts(h0, cell)
        cx = others[0] if others else None
    packed = pack_weights(weight_ih, weight_hh, bias, zeros) if packed is None else packed
    output, h, c, reserve, _ = torch._cudnn_rnn(
        whole(input), _list_weights(weight_ih, weight_hh, packed), 4, packed, hx, cx,
        MODES[cell], K, 0, 1, False, 0.0, train, False, (), None,
    )  # fmt: skip
    if cx is None:
        return (output, h), (reserve, packed, hx)
    return (output, h, c), (reserve, packed, hx, cx)


def _split_parts(state: Tensor, cell: str) -> list[Tensor]:
    """The parts of a state (B, parts K), each (1, B, K): h, and the c of an LSTM."""
    return [whole(part)[None] for part in state.chunk(CELLS[cell].parts, dim=-1)]


def _list_weights(weight_ih: Tensor, weight_hh: Tensor, packed: Tensor) -> list[Tensor]:
    """The four weights of torch's layer. cuDNN takes their numbers from `packed`, and torch their shapes from here."""
    either_bias = packed[-weight_hh.shape[0] :]
    return [weight_ih, weight_hh, either_bias, either_bias]


class _Module(torch.autograd.Function):
    """`run_module` with gradients: those of cuDNN, or those of the cascade if anything must see how they are made."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        cell: str,
        packed: Tensor | None,
    ) -> tuple[Tensor, ...]:
        outputs, kept = _compute(input, weight_ih, weight_hh, bias, h0, cell, packed, train=True)
        ctx.cell = cell
        ctx.save_for_backward(input, weight_ih, weight_hh, bias, h0, outputs[0], *kept)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(
        ctx: Any, g_output: Tensor | None, g_h: Tensor | None, g_c: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        if g_output is None and g_h is None and g_c is None:
            return (None,) * 7
        *wanted, _, _ = ctx.needs_input_grad
        input, weight_ih, weight_hh, bias, h0, output, reserve, packed, hx, *cx = ctx.saved_tensors
        arriving = Outputs(g_h, g_c, g_output)
        if torch.is_grad_enabled() or need_cascade(arriving) or not is_plain_eager(arriving):
            operands = Operands(input, weight_ih, weight_hh, bias, h0, None)
            gradients = Outputs(_join_parts(g_h, g_c) if cx else g_h, None, g_output)
            return *_differentiate_cascade(wanted, operands, ctx.cell, gradients), None, None
        # cuDNN writes into it
        reserve = reserve.clone() if _keeps_graph() else reserve
        want_weights = any(wanted[1:4])
        g_input, g_hx, g_cx, g_weights = _differentiate(
            whole(input), _list_weights(weight_ih, weight_hh, packed), 4, packed, hx, cx[0] if cx else None,
            output, g_output, g_h, g_c,
            MODES[ctx.cell], weight_hh.shape[1], 0, 1, False, 0.0, True, False, (), None, reserve,
            (wanted[0], wanted[4], wanted[4] and len(cx) > 0, want_weights),
        )  # fmt: skip
        own: Any = g_weights if want_weights else [None] * 4
        g_ih, g_hh, g_bias, g_second = own
        if wanted[3] and ctx.cell == "gru":
            g_bias = torch.cat((g_bias, g_second[2 * weight_hh.shape[1] :]))
        g_h0 = torch.cat((g_hx, g_cx), dim=-1) if cx and wanted[4] else g_hx
        computed = g_input, g_ih, g_hh, g_bias, g_h0[0] if wanted[4] else None
        return *(gradient if want else None for gradient, want in zip(computed, wanted, strict=True)), None, None


def _join_parts(g_h: Tensor | None, g_c: Tensor | None) -> Tensor | None:
    """The gradient of a final state (1, B, 2 K) from those of its parts; None is zero."""
    known: Any = g_c if g_h is None else g_h
    if known is None:
        return None
    return torch.cat([torch.zeros_like(known) if gradient is None else gradient for gradient in (g_h, g_c)], dim=-1)


def _differentiate_cascade(
    wanted: Sequence[bool], operands: Operands, cell: str, gradients: Outputs
) -> list[Tensor | None]:
    """The wanted gradients of `run_module`, as gradients of a cascade of one module that ticks at each step."""
    schedule = Schedule((1,), (operands.weight_hh.shape[1],))
    no_kernel: Any = None
    recurrence = Recurrence(no_kernel, schedule, 0, cell, True)
    computed = differentiate_cascade((*wanted, False), recurrence, operands, None, gradients)
    return spread(computed, wanted)


def _keeps_graph() -> bool:
    """True if the backward pass that is under way may be repeated (retain_graph=True)."""
    return _ask_for_graph is None or _ask_for_graph()
