"""Tensors as kernels read them: dense memory whose shape, dtype and device were checked.

A kernel reads and writes memory by shapes and strides. It must never be given a tensor whose elements lie elsewhere
than its strides say (`dense`, `whole`), whose shape, dtype or device differs from the expected one (`check_shapes`,
`check_network`), or that has no memory (`with_memory`).
"""

from typing import Any, overload

import torch
from torch import Tensor

from ..cells import CELLS, PEEPHOLES

LOW_ADDRESS = 1 << 36
"""A first element below this address may be an offset into memory that does not exist: ask `with_memory`."""


def pointer(tensor: Tensor | None) -> int:
    """The address of the tensor's first element, or 0 for None."""
    return 0 if tensor is None else tensor.data_ptr()


def with_memory(**tensors: Tensor | None) -> list[Any]:
    """The tensors in their order, with zeros in memory of their own in place of those that are zero and have no memory.

    torch makes such zeros in forward-mode AD. Raises a RuntimeError that names a tensor whose storage was freed, as
    FSDP does between two uses of a weight.
    """
    return [
        tensor if tensor is None or tensor.data_ptr() >= LOW_ADDRESS else _allocate(name, tensor)
        for name, tensor in tensors.items()
    ]


def _allocate(name: str, tensor: Tensor) -> Tensor:
    if tensor.numel() == 0:
        return tensor
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.untyped_storage().data_ptr() == 0:
        raise RuntimeError(
            f"{name} has a non-zero number of elements, but its data is not allocated: its storage was freed, or was "
            "never filled"
        )
    return tensor


@overload
def dense(tensor: Tensor, dims: int) -> Tensor: ...


@overload
def dense(tensor: Tensor | None, dims: int) -> Tensor | None: ...


def dense(tensor: Tensor | None, dims: int) -> Tensor | None:
    """`tensor`, or a copy if its last `dims` dimensions are not contiguous, or if it is a negated view."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    tensor = _resolve(tensor)
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
    return _resolve(tensor).contiguous()


def _resolve(tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided:
        raise RuntimeError(f"the kernel reads dense tensors only, got one with the layout {tensor.layout}")
    # torch copies a tensor whose storage was freed without a check
    return _allocate("a tensor", tensor).resolve_neg()


def check_shapes(dtype: torch.dtype, **tensors: tuple[Tensor | None, tuple[int, ...]]) -> None:
    """Raises a ValueError that names the first tensor whose shape or dtype is not the expected one."""
    for name, (tensor, shape) in tensors.items():
        if tensor is not None and (tensor.shape != shape or tensor.dtype != dtype):
            raise ValueError(f"{name} must be {dtype} {shape}, got {tensor.dtype} {tuple(tensor.shape)}")


def check_network(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor | None,
    N: int,
    cell: str = "tanh",
    weight_ch: Tensor | None = None,
) -> None:
    """Raises an error if parameters or state do not fit a layer of N units, or lie on another device than the input."""
    gates, biases, parts = CELLS[cell]
    _check_parameter("weight_ih", weight_ih, (gates * N, input.shape[-1]), input.device)
    _check_parameter("weight_hh", weight_hh, (gates * N, N), input.device)
    if bias is not None:
        _check_parameter("bias", bias, (biases * N,), input.device)
    if weight_ch is not None:
        if cell != "lstm":
            raise ValueError(f"only the cell 'lstm' has peepholes, and weight_ch was given to {cell!r}")
        _check_parameter("weight_ch", weight_ch, (PEEPHOLES * N,), input.device)
    if h is not None and h.shape[-2:] != (input.shape[-2], parts * N):
        raise ValueError(f"the state must be {(input.shape[-2], parts * N)}, got {tuple(h.shape[-2:])}")


def _check_parameter(name: str, tensor: Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} must be {shape}, got {tuple(tensor.shape)}")
    if tensor.device != device:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, "
            f"found input tensor at {device} and {name} at {tensor.device}"
        )
