"""Many small LSTMs at once in C (lstm.c): S networks, each of which reads a sequence of its own.

`experiments/networks/lstm.py` has the equations, and the plain loop that this kernel must equal. Only first derivatives
exist. A network gives the same bits alone as among others, on any number of threads.
"""

from array import array
from typing import Any

import torch
from torch import Tensor

from ..tensors import check_shapes, dense, pointer, with_memory
from .blocks import empty
from .loader import invoke

# where the members of the structure `Lstm` in cpu.h stand in an array of 64-bit integers
(
    FIELD_S, FIELD_T, FIELD_I, FIELD_N, FIELD_THREADS,
    FIELD_INPUT, FIELD_INPUT_S, FIELD_INPUT_T, FIELD_WEIGHT_IH, FIELD_WEIGHT_IH_S, FIELD_WEIGHT_HH, FIELD_WEIGHT_HH_S,
    FIELD_WEIGHT_CH, FIELD_WEIGHT_CH_S, FIELD_BIAS, FIELD_BIAS_S, FIELD_LENGTHS,
    FIELD_KEPT, FIELD_KEPT_SIZE, FIELD_HIDDEN, FIELD_G_HIDDEN, FIELD_G_HIDDEN_S,
    FIELD_G_INPUT, FIELD_G_WEIGHT_IH, FIELD_G_WEIGHT_HH, FIELD_G_WEIGHT_CH, FIELD_G_BIAS,
) = range(27)  # fmt: skip
FIELDS = 27


def run(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ch: Tensor | None,
    bias: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """The hidden states (S, T, N), zero beyond a sequence's end.

    Args:
        input: (S, T, I)
        weight_ih: (S, 4 N, I), gates in the order i, f, g, o
        weight_hh: (S, 4 N, N)
        weight_ch: (S, 3, N), the peepholes of i, f, o; None without peepholes
        bias: (S, 4 N)
        lengths: (S,) int64, how many steps of each sequence are read; None for all
    """
    S, _, I = input.shape
    N = weight_hh.shape[-1]
    check_shapes(
        input.dtype,
        weight_ih=(weight_ih, (S, 4 * N, I)),
        weight_hh=(weight_hh, (S, 4 * N, N)),
        weight_ch=(weight_ch, (S, 3, N)),
        bias=(bias, (S, 4 * N)),
    )
    check_shapes(torch.int64, lengths=(lengths, (S,)))
    hidden: Tensor = _LstmFunction.apply(input, weight_ih, weight_hh, weight_ch, bias, lengths)  # type: ignore[no-untyped-call]
    return hidden


class _LstmFunction(torch.autograd.Function):
    """The hidden states of many LSTMs, for autograd."""

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        weight_ch: Tensor | None,
        bias: Tensor,
        lengths: Tensor | None,
    ) -> Tensor:
        input, weight_ih, weight_hh, weight_ch, bias, lengths = with_memory(
            input=dense(input, 1), weight_ih=dense(weight_ih, 2), weight_hh=dense(weight_hh, 2),
            weight_ch=dense(weight_ch, 2), bias=dense(bias, 1), lengths=dense(lengths, 1),
        )  # fmt: skip
        S, T, _ = input.shape
        N = weight_hh.shape[2]
        fields = _describe_networks(input, weight_ih, weight_hh, weight_ch, bias, lengths)
        size = torch.empty(1, dtype=torch.int64)
        fields[FIELD_KEPT_SIZE] = size.data_ptr()
        invoke("lstm_size", input.dtype, fields)
        kept, hidden = empty(input, (int(size),)), empty(input, (S, T, N))
        fields[FIELD_KEPT] = kept.data_ptr()
        fields[FIELD_HIDDEN] = hidden.data_ptr()
        invoke("lstm_forward", input.dtype, fields)
        ctx.save_for_backward(input, weight_ih, weight_hh, weight_ch, bias, lengths, kept)
        return hidden

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_hidden: Tensor) -> tuple[Tensor | None, ...]:
        input, weight_ih, weight_hh, weight_ch, bias, lengths, kept = ctx.saved_tensors
        input, weight_ih, weight_hh, weight_ch, bias, lengths, kept, g_hidden = with_memory(
            input=input, weight_ih=weight_ih, weight_hh=weight_hh, weight_ch=weight_ch, bias=bias, lengths=lengths,
            kept=kept, gradient_of_output=dense(g_hidden, 2),
        )  # fmt: skip
        input_wanted, *_ = ctx.needs_input_grad
        g_input = empty(kept, input.shape) if input_wanted else None
        g_weight_ih, g_weight_hh = empty(kept, weight_ih.shape), empty(kept, weight_hh.shape)
        g_weight_ch = None if weight_ch is None else empty(kept, weight_ch.shape)
        g_bias = empty(kept, bias.shape)
        fields = _describe_networks(input, weight_ih, weight_hh, weight_ch, bias, lengths)
        fields[FIELD_KEPT] = kept.data_ptr()
        fields[FIELD_G_HIDDEN] = g_hidden.data_ptr()
        fields[FIELD_G_HIDDEN_S] = g_hidden.stride(0)
        fields[FIELD_G_INPUT] = pointer(g_input)
        fields[FIELD_G_WEIGHT_IH] = g_weight_ih.data_ptr()
        fields[FIELD_G_WEIGHT_HH] = g_weight_hh.data_ptr()
        fields[FIELD_G_WEIGHT_CH] = pointer(g_weight_ch)
        fields[FIELD_G_BIAS] = g_bias.data_ptr()
        invoke("lstm_backward", input.dtype, fields)
        return g_input, g_weight_ih, g_weight_hh, g_weight_ch, g_bias, None


def _describe_networks(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ch: Tensor | None,
    bias: Tensor,
    lengths: Tensor | None,
) -> "array[int]":
    """The fields that forward and backward share; the others are zero. The tensors must be dense."""
    fields = array("q", [0] * FIELDS)
    fields[FIELD_S], fields[FIELD_T], fields[FIELD_I] = input.shape
    fields[FIELD_N] = weight_hh.shape[2]
    fields[FIELD_THREADS] = torch.get_num_threads()
    fields[FIELD_INPUT] = input.data_ptr()
    fields[FIELD_INPUT_S], fields[FIELD_INPUT_T], _ = input.stride()
    fields[FIELD_WEIGHT_IH] = weight_ih.data_ptr()
    fields[FIELD_WEIGHT_IH_S] = weight_ih.stride(0)
    fields[FIELD_WEIGHT_HH] = weight_hh.data_ptr()
    fields[FIELD_WEIGHT_HH_S] = weight_hh.stride(0)
    fields[FIELD_WEIGHT_CH] = pointer(weight_ch)
    fields[FIELD_WEIGHT_CH_S] = 0 if weight_ch is None else weight_ch.stride(0)
    fields[FIELD_BIAS] = bias.data_ptr()
    fields[FIELD_BIAS_S] = bias.stride(0)
    fields[FIELD_LENGTHS] = pointer(lengths)
    return fields
