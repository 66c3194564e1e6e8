"""The linear readouts of many networks at once in C (readout.c): each reads the states of its own network.

A network gives the same bits alone as among others, on any number of threads. Only first derivatives exist.
"""

from array import array
from typing import Any

import torch
from torch import Tensor

from ..tensors import check_shapes, dense, whole, with_memory
from .blocks import empty
from .loader import invoke

# where the members of the structure `Linear` in cpu.h stand in an array of 64-bit integers
(
    FIELD_S, FIELD_T, FIELD_N, FIELD_O, FIELD_THREADS,
    FIELD_HIDDEN, FIELD_HIDDEN_S, FIELD_WEIGHT, FIELD_WEIGHT_S, FIELD_BIAS, FIELD_BIAS_S,
    FIELD_OUTPUT, FIELD_G_OUTPUT, FIELD_G_HIDDEN, FIELD_G_WEIGHT, FIELD_G_BIAS,
) = range(16)  # fmt: skip
FIELDS = 16


def run(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The outputs (S, T, O) of the states (S, T, N), by weight (S, O, N) and bias (S, O)."""
    S, _, N = hidden.shape
    O = weight.shape[1]
    check_shapes(hidden.dtype, weight=(weight, (S, O, N)), bias=(bias, (S, O)))
    output: Tensor = _ReadoutFunction.apply(hidden, weight, bias)  # type: ignore[no-untyped-call]
    return output


class _ReadoutFunction(torch.autograd.Function):
    """The readouts of many networks, for autograd."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden, weight, bias = with_memory(hidden=dense(hidden, 2), weight=dense(weight, 2), bias=dense(bias, 1))
        S, T, _ = hidden.shape
        output = empty(hidden, (S, T, weight.shape[1]))
        fields = _describe_readouts(hidden, weight, bias)
        fields[FIELD_OUTPUT] = output.data_ptr()
        invoke("readout_forward", hidden.dtype, fields)
        ctx.save_for_backward(hidden, weight, bias)
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g_output: Tensor) -> tuple[Tensor, ...]:
        hidden, weight, bias = ctx.saved_tensors
        hidden, weight, bias, g_output = with_memory(
            hidden=hidden, weight=weight, bias=bias, gradient_of_output=whole(g_output)
        )
        g_hidden, g_weight, g_bias = (empty(tensor, tensor.shape) for tensor in (hidden, weight, bias))
        fields = _describe_readouts(hidden, weight, bias)
        fields[FIELD_G_OUTPUT] = g_output.data_ptr()
        fields[FIELD_G_HIDDEN] = g_hidden.data_ptr()
        fields[FIELD_G_WEIGHT] = g_weight.data_ptr()
        fields[FIELD_G_BIAS] = g_bias.data_ptr()
        invoke("readout_backward", g_output.dtype, fields)
        return g_hidden, g_weight, g_bias


def _describe_readouts(hidden: Tensor, weight: Tensor, bias: Tensor) -> "array[int]":
    """The fields that forward and backward share; the others are zero. The tensors must be dense."""
    fields = array("q", [0] * FIELDS)
    fields[FIELD_S], fields[FIELD_T], fields[FIELD_N] = hidden.shape
    fields[FIELD_O] = weight.shape[1]
    fields[FIELD_THREADS] = torch.get_num_threads()
    fields[FIELD_HIDDEN] = hidden.data_ptr()
    fields[FIELD_HIDDEN_S] = hidden.stride(0)
    fields[FIELD_WEIGHT] = weight.data_ptr()
    fields[FIELD_WEIGHT_S] = weight.stride(0)
    fields[FIELD_BIAS] = bias.data_ptr()
    fields[FIELD_BIAS_S] = bias.stride(0)
    return fields
