"""The linear readouts of many networks at once in C (readout.c), each of the states of its own network.

A network gives the same bits alone as among others, on any number of threads. First derivatives only.
"""

from typing import Any

import torch
from torch import Tensor

from .blocks import empty
from .loader import check_shapes, dense, invoke


def run(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The outputs (S, T, O) of the states (S, T, N), by weight (S, O, N) and bias (S, O)."""
    S, _, N = hidden.shape
    O = weight.shape[1]
    check_shapes(hidden.dtype, weight=(weight, (S, O, N)), bias=(bias, (S, O)))
    output: Tensor = _Readout.apply(hidden, weight, bias)  # type: ignore[no-untyped-call]
    return output


class _Readout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        hidden, weight, bias = dense(tensors[0], 2), dense(tensors[1], 2), dense(tensors[2], 1)
        S, T, N = hidden.shape
        O = weight.shape[1]
        words = [
            S, T, N, O, torch.get_num_threads(),
            hidden.data_ptr(), hidden.stride(0), weight.data_ptr(), weight.stride(0), bias.data_ptr(), bias.stride(0),
        ]  # fmt: skip
        output = empty(hidden, (S, T, O))
        invoke("readout_forward", hidden.dtype, [*words, output.data_ptr(), *[0] * 4])
        ctx.save_for_backward(hidden, weight, bias)
        ctx.words = words
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_output: Tensor) -> tuple[Tensor, ...]:
        found = tuple(empty(tensor, tensor.shape) for tensor in ctx.saved_tensors)
        g_output = g_output.contiguous()
        invoke("readout_backward", g_output.dtype, [
            *ctx.words, 0, g_output.data_ptr(), *(tensor.data_ptr() for tensor in found),
        ])  # fmt: skip
        return found
