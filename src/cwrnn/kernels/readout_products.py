"""The products of a readout with the states at the ticks, as a function that autograd knows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from .cpu.blocks import empty
from .eligibility import is_plain_eager


def multiply_states(ticks: Tensor, weight: Tensor, shapes: Sequence[tuple[int, int]]) -> tuple[Tensor, ...]:
    """The products of `weight` (O, N) with the states of every module, whose shapes (n B, K) are `shapes`.

    The states lie in a row in `ticks`.
    """
    products: tuple[Tensor, ...] = _ProductsFunction.apply(ticks, weight, shapes)  # type: ignore[no-untyped-call]
    return products


class _ProductsFunction(torch.autograd.Function):
    """`multiply_states` for autograd.

    By itself, autograd would compute a gradient for the states of each module and then copy all of them into one
    tensor.
    """

    @staticmethod
    def forward(ctx: Any, ticks: Tensor, weight: Tensor, shapes: Sequence[tuple[int, int]]) -> Any:
        ctx.save_for_backward(ticks, weight)
        ctx.shapes = shapes
        parts = zip(_split_states(ticks, shapes), _split_columns(weight, shapes), strict=True)
        return tuple(values @ column.T for values, column in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ticks, weight = ctx.saved_tensors
        ticks_wanted, weight_wanted, _ = ctx.needs_input_grad
        states, columns = _split_states(ticks, ctx.shapes), _split_columns(weight, ctx.shapes)
        # double backward and vmap need traceable operations
        if torch.is_grad_enabled() or not is_plain_eager() or any(map(is_legacy_batchedtensor, gradients)):
            by_module = [(g @ column).reshape(-1) for g, column in zip(gradients, columns, strict=True)]
            by_column = [g.T @ values for g, values in zip(gradients, states, strict=True)]
            return torch.cat(by_module), torch.cat(by_column, dim=1), None
        g_ticks = empty(ticks, ticks.shape) if ticks_wanted else None
        g_weight = torch.empty_like(weight) if weight_wanted else None
        if g_ticks is not None:
            for g, column, to in zip(gradients, columns, _split_states(g_ticks, ctx.shapes), strict=True):
                torch.mm(g, column, out=to)
        if g_weight is not None:
            for g, values, to in zip(gradients, states, _split_columns(g_weight, ctx.shapes), strict=True):
                torch.mm(g.T, values, out=to)
        return g_ticks, g_weight, None


def _split_states(ticks: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    parts = ticks.split([rows * size for rows, size in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _split_columns(weight: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    return list(weight.split([size for _, size in shapes], dim=1))
