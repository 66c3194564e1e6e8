"""Many small LSTMs at once in C (lstm.c): S networks, each of which reads a sequence of its own.

`experiments/networks/lstm.py` defines what they compute and has the plain loop that must give the same. Only first
derivatives exist. A network gives the same bits alone as among others, on any number of threads.
"""

from typing import Any

import torch
from torch import Tensor

from .blocks import empty
from .loader import check_shapes, dense, invoke, pointer


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
        weight_ch: (S, 3, N), the peepholes of i, f, o; None if there are none
        bias: (S, 4 N)
        lengths: (S,) int64: until where each sequence is read, to its end if None
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
    hidden: Tensor = _LSTM.apply(input, weight_ih, weight_hh, weight_ch, bias, lengths)  # type: ignore[no-untyped-call]
    return hidden


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        input, weight_ih, weight_hh, weight_ch, bias, lengths = tensors
        input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
        weight_ch, bias, lengths = dense(weight_ch, 2), dense(bias, 1), dense(lengths, 1)
        S, T, I = input.shape
        N = weight_hh.shape[2]
        words = [
            S, T, I, N, torch.get_num_threads(),
            input.data_ptr(), input.stride(0), input.stride(1),
            weight_ih.data_ptr(), weight_ih.stride(0), weight_hh.data_ptr(), weight_hh.stride(0),
            pointer(weight_ch), 0 if weight_ch is None else weight_ch.stride(0), bias.data_ptr(), bias.stride(0),
            pointer(lengths),
        ]  # fmt: skip
        size = torch.empty(1, dtype=torch.int64)
        invoke("lstm_size", input.dtype, [*words, 0, size.data_ptr(), *[0] * 8])
        kept, hidden = empty(input, (int(size),)), empty(input, (S, T, N))
        invoke("lstm_forward", input.dtype, [*words, kept.data_ptr(), 0, hidden.data_ptr(), *[0] * 7])
        ctx.save_for_backward(input, weight_ih, weight_hh, weight_ch, bias, lengths, kept)
        ctx.words = words
        return hidden

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_hidden: Tensor) -> tuple[Tensor | None, ...]:
        input, weight_ih, weight_hh, weight_ch, bias, _, kept = ctx.saved_tensors
        g_hidden = dense(g_hidden, 2)
        network = weight_ih, weight_hh, weight_ch, bias
        found = [None if tensor is None else empty(kept, tensor.shape) for tensor in network]
        g_input = empty(kept, input.shape) if ctx.needs_input_grad[0] else None
        invoke("lstm_backward", input.dtype, [
            *ctx.words, kept.data_ptr(), 0, 0,
            g_hidden.data_ptr(), g_hidden.stride(0), pointer(g_input), *map(pointer, found),
        ])  # fmt: skip
        return g_input, *found, None
