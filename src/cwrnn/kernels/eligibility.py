"""When a kernel may take a call: nothing but autograd may need to see what happens to the tensors.

A kernel reads and writes memory behind torch's back. torch.compile, torch.func, forward-mode AD, tracing, dispatch
modes and tensor subclasses would not notice what it computes. `is_plain_eager` answers whether any of them is active,
and every caller asks it first; the other functions make finer distinctions for the calls that are not plain.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from ..cells import CELLS, PEEPHOLES
from ..checks import is_autocast_on, is_functionalized

ORDINARY = frozenset({Tensor, Parameter, type(None)})
"""The types of tensors that hold their own memory, and the type of an optional tensor that is absent."""


def is_plain_eager(tensors: Iterable[Tensor | None] = ()) -> bool:
    """True if nothing but autograd needs to see what happens to `tensors`.

    That is: torch.compile, torch.func, forward-mode AD, tracing and dispatch modes are off, and none of `tensors` is of
    a subclass that may have no memory of its own. A caller that passes no tensors must look at their types itself.
    """
    # one expression, because a step of a small network takes no longer than a few function calls
    return not (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or _have_subclasses(tensors)
    )


def is_plain_call(
    input: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias: Any,
    weight_ch: Any,
    input_size: int,
    has_bias: bool,
    has_peepholes: bool,
    hidden_size: int,
    cell: str,
) -> bool:
    """True if a single layer can hand `input` (T, B, I) and its parameters to a backend as they are.

    That is: the call is plain and eager, autocast is off, and all tensors are ordinary ones of one floating-point dtype
    on one device, with the shapes that a layer of `hidden_size` units expects. Strides may be any.
    """
    if (
        type(input) is not Tensor
        or weight_ih is None
        or weight_hh is None
        or (bias is None) == has_bias
        or (weight_ch is None) == has_peepholes
    ):
        return False
    dtype, device, shape = input.dtype, input.device, input.shape
    gates, biases, _ = CELLS[cell]
    rows = gates * hidden_size
    return (
        is_plain_eager()
        and len(shape) == 3
        and shape[2] == input_size
        and type(weight_ih) in ORDINARY
        and type(weight_hh) in ORDINARY
        and weight_ih.shape == (rows, input_size)
        and weight_hh.shape == (rows, hidden_size)
        and dtype.is_floating_point
        and weight_ih.dtype is dtype
        and weight_hh.dtype is dtype
        and weight_ih.device == device
        and weight_hh.device == device
        and (bias is None or _is_fit(bias, (biases * hidden_size,), dtype, device))
        and (weight_ch is None or _is_fit(weight_ch, (PEEPHOLES * hidden_size,), dtype, device))
        and not is_autocast_on(device)
    )


def _is_fit(tensor: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> bool:
    return type(tensor) in ORDINARY and tensor.shape == shape and tensor.dtype is dtype and tensor.device == device


def wants_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """True if autograd records operations on any of `tensors`."""
    if not torch.is_grad_enabled():
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def is_recorded(tensors: Iterable[Tensor | None]) -> bool:
    """True if operations are recorded or replaced (by torch.compile, a dispatch mode or a subclass).

    Only operators may be called then.
    """
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 or _have_subclasses(tensors)


def has_tangents() -> bool:
    """True if forward-mode AD is active."""
    return forward_ad._current_level >= 0


def needs_plain_operations() -> bool:
    """True if a transform is active that neither an operator nor an autograd function can serve.

    These are forward-mode AD, torch.jit.trace (which would record memory, and not the kernel that fills it),
    torch.func inside torch.compile or under a dispatch mode, and torch.func.functionalize.
    """
    return (
        has_tangents()
        or torch._C._get_tracing_state() is not None
        or (
            torch._C._are_functorch_transforms_active()
            and (torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 or is_functionalized())
        )
    )


def _have_subclasses(tensors: Iterable[Tensor | None]) -> bool:
    """True if one of `tensors` is of a subclass that may have no memory of its own."""
    for tensor in tensors:
        kind: Any = type(tensor)
        if kind not in ORDINARY and kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
            return True
    return False
