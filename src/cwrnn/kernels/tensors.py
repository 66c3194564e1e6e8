"""Tensors as kernels read them: dense memory whose shape, dtype and device were checked.

A kernel reads and writes memory by shapes and strides. It must never be given a tensor whose elements lie elsewhere
than its strides say (`dense`, `whole`), or whose shape, dtype or device differs from the expected one (`check_shapes`,
`check_network`).
"""

from typing import overload

import torch
from torch import Tensor


def pointer(tensor: Tensor | None) -> int:
    """The address of the tensor's first element, or 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


@overload
def dense(tensor: Tensor, dims: int) -> Tensor: ...


@overload
def dense(tensor: Tensor | None, dims: int) -> Tensor | None: ...


def dense(tensor: Tensor | None, dims: int) -> Tensor | None:
    """`tensor`, or a copy if its last `dims` dimensions are not contiguous, or if it is a negated view."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    tensor = tensor.resolve_neg()
    size = 1
    for d in range(1, dims + 1):
        if tensor.shape[-d] != 1 and tensor.stride(-d) != size:
            return tensor.contiguous()
        size *= tensor.shape[-d]
    return tensor


@overload
def whole(tensor: Tensor) -> Tensor: ...


@overload
def whole(tensor: Tensor | None) -> Tensor | None: ...


def whole(tensor: Tensor | None) -> Tensor | None:
    """`tensor`, or a copy if it is not contiguous as a whole, or if it is a negated view."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    return tensor.resolve_neg().contiguous()


def check_shapes(dtype: torch.dtype, **tensors: tuple[Tensor | None, tuple[int, ...]]) -> None:
    """Raises a ValueError that names the first tensor whose shape or dtype is not the expected one."""
    for name, (tensor, shape) in tensors.items():
        if tensor is not None and (tensor.shape != shape or tensor.dtype != dtype):
            raise ValueError(f"{name} must be {dtype} {shape}, got {tensor.dtype} {tuple(tensor.shape)}")


def check_network(
    input: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None, h: Tensor | None, N: int
) -> None:
    """Raises an error if parameters or state do not fit a layer of N units, or lie on another device than the input."""
    _check_parameter("weight_ih", weight_ih, (N, input.shape[-1]), input.device)
    _check_parameter("weight_hh", weight_hh, (N, N), input.device)
    if bias is not None:
        _check_parameter("bias", bias, (N,), input.device)
    if h is not None and h.shape[-2:] != (input.shape[-2], N):
        raise ValueError(f"the state must be {(input.shape[-2], N)}, got {tuple(h.shape[-2:])}")


def _check_parameter(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {shape}, got {tuple(tensor.shape)}")
    if tensor.device != device:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, "
            f"found input tensor at {device} and {name} at {tensor.device}"
        )
