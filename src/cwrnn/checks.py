"""Checks: the arguments that a layer refuses. Mistakes that torch's layers refuse raise their own error messages."""

import math
import numbers
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import TransformType, get_interpreter_stack
from torch.nn import Parameter
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .cells import NONLINEARITIES

INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
"""The dtypes of lengths and clocks."""

LATEST = 2**62
"""The largest clock of a tensor, and of a stream in a pool. No sequence reaches the end of 64 bits from there."""


def check_nonlinearity(nonlinearity: Any) -> None:
    """Refuses a nonlinearity that torch.nn.RNN refuses, with its message."""
    if nonlinearity not in tuple(NONLINEARITIES):
        raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")


def check_arguments(
    input_size: Any,
    hidden_size: Any,
    num_layers: Any,
    bias: Any,
    batch_first: Any,
    dropout: Any,
    dtype: torch.dtype | None,
) -> None:
    """Refuses the arguments that torch's layers refuse, with their messages, except that input_size may be 0."""
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Real) or not 0 <= float(dropout) <= 1:
        raise ValueError(
            "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"
        )
    if not isinstance(bias, bool):
        raise TypeError(f"bias should be of type bool, got: {type(bias).__name__}")
    if not isinstance(batch_first, bool):
        raise TypeError(f"batch_first should be of type bool, got: {type(batch_first).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if not isinstance(value, int):
            raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
    if input_size < 0:
        raise ValueError("input_size must be zero or greater")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if isinstance(dtype, torch.dtype) and dtype.is_complex:
        raise ValueError(f"dtype should be a real floating point type, got: {dtype}")
    if float(dropout) > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )


def list_parts(hx: Any, parts: int) -> list[Tensor] | None:
    """The tensors of the state that a call begins with: h, or h and c; None if hx is None. Refuses anything else."""
    if hx is None:
        return None
    if parts == 1:
        if isinstance(hx, Tensor):
            return [hx]
        hint = ": pass State(h, t), or h as hx and t as t0" if isinstance(hx, tuple) else ""
        raise TypeError(f"hx should be a Tensor or a State, got: {type(hx).__name__}{hint}")
    if isinstance(hx, (tuple, list)) and len(hx) == 2 and all(isinstance(part, Tensor) for part in hx):
        return list(hx)
    hint = ": pass LSTMState(h, c, t), or (h, c) as hx and t as t0" if isinstance(hx, (tuple, list)) else ""
    raise TypeError(f"hx should be a pair of Tensors (h_0, c_0) or an LSTMState, got: {type(hx).__name__}{hint}")


def check_input(input: Any, hidden: list[Tensor] | None, input_size: int, weight: Tensor, cell: str) -> None:
    """Refuses an input whose type, shape, dtype or device does not fit the layer or the tensors of its state."""
    if isinstance(input, PackedSequence):
        features, expected_dim = input.data, 2
    elif not isinstance(input, Tensor):
        raise TypeError(f"input should be a Tensor or a PackedSequence, got: {type(input).__name__}")
    else:
        features, expected_dim = input, input.dim()
        if input.dim() not in (2, 3):
            layer, tensor = ("RNN", " tensor") if cell in NONLINEARITIES else (cell.upper(), "")
            raise ValueError(f"{layer}: Expected input to be 2D or 3D, got {input.dim()}D{tensor} instead")
        if hidden is not None and any(part.dim() != input.dim() for part in hidden):
            kind = "batched 3-D" if input.dim() == 3 else "unbatched 2-D"
            found = ", ".join(f"{part.dim()}-D" for part in hidden)
            raise RuntimeError(
                f"For {kind} input, hx should also be {input.dim()}-D but got {found} tensor"
                if len(hidden) == 1
                else f"For {kind} input, hx and cx should also be {input.dim()}-D but got ({found}) tensors"
            )
    check_features(features, expected_dim, input_size, weight)


def check_features(features: Tensor, expected_dim: int, input_size: int, weight: Tensor) -> None:
    """Refuses features whose number, dtype or device does not fit the weights."""
    castable = is_autocast_on(features.device) and features.dtype.is_floating_point
    if weight.dtype.is_complex:
        raise ValueError(f"weights should be of a real floating point type, got: {weight.dtype}")
    if features.dtype != weight.dtype and not castable:
        raise ValueError(
            f"RNN input dtype ({features.dtype}) does not match weight dtype ({weight.dtype}). "
            f"Convert input: input.to({weight.dtype}), or convert model: model.to({features.dtype})"
        )
    if features.dim() != expected_dim:
        raise RuntimeError(f"input must have {expected_dim} dimensions, got {features.dim()}")
    if features.shape[-1] != input_size:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {input_size}, got {features.shape[-1]}"
        )
    if features.device != weight.device:
        raise RuntimeError(
            "Input and parameter tensors are not at the same device, "
            f"found input tensor at {features.device} and parameter tensor at {weight.device}"
        )


def check_step(input: Any) -> None:
    """Refuses an input that is not (B, I) or (I,), the input of one time step."""
    if not isinstance(input, Tensor):
        raise TypeError(f"step: input should be a Tensor, got: {type(input).__name__}")
    if input.dim() not in (1, 2):
        raise ValueError(
            f"step: Expected input to be 1D or 2D, got {input.dim()}D tensor instead: one step is (B, I) or (I,)"
        )


def check_hidden(hidden: list[Tensor], x: Tensor, expected: tuple[int, int, int]) -> None:
    """Refuses tensors of a state that do not fit the input x, or whose shape is not `expected`."""
    for part, h in enumerate(hidden):
        if h.device != x.device:
            raise RuntimeError(
                "Input and hidden tensors are not at the same device, "
                f"found input tensor at {x.device} and hidden tensor at {h.device}"
            )
        if h.shape != expected:
            name = "hidden" if len(hidden) == 1 else f"hidden[{part}]"
            raise RuntimeError(f"Expected {name} size {expected}, got {list(h.shape)}")
        if h.dtype != x.dtype and not (is_autocast_on(x.device) and h.dtype.is_floating_point):
            name = ("hx", "cx")[part]
            raise RuntimeError(
                f"{name} dtype ({h.dtype}) does not match input dtype ({x.dtype}). Convert {name}: {name}.to({x.dtype})"
            )


def check_state(state: Any, input: Tensor, parts: int) -> tuple[list[Tensor], int | Tensor]:
    """The tensors and the clock of a stream's state; refuses a state that does not fit the input of one step."""
    if not isinstance(state, tuple) or len(state) != parts + 1 or not all(isinstance(h, Tensor) for h in state[:-1]):
        form = "State(h, t)" if parts == 1 else "LSTMState(h, c, t)"
        raise TypeError(f"state should be what step returned, or {form}, got: {type(state).__name__}")
    *hidden, t = state
    for name, h in zip("hc", hidden, strict=False):
        if h.dim() != input.dim() + 1:
            shape = "(num_layers, B, N)" if input.dim() == 2 else "(num_layers, N)"
            raise RuntimeError(
                f"state.{name} should be {shape} for an input of {input.dim()} dimensions, got {list(h.shape)}"
            )
    t = check_clock("state.t", t)
    if type(t) is not int and isinstance(t, Tensor):
        check_clocks("state.t", t, input.shape[0] if input.dim() == 2 else None)
    return hidden, t


def check_clock(name: str, t: Any) -> "int | Tensor":
    """`t` as an int, or as a tensor of int64 that has a clock for each sequence; refuses anything else.

    The clock counts from 0, so negative times are refused; `check_clocks` looks at the numbers of a tensor.
    """
    # to ask an int whether it is a Tensor takes as long as the rest of a short call's checks
    if type(t) is int and t >= 0:
        return t
    if isinstance(t, Tensor):
        if t.dtype not in INTEGERS:
            raise TypeError(f"{name} should be an int or a tensor of integers, got: {t.dtype}")
        if t.dim() > 0:
            # a conversion that changes nothing would hide the numbers under torch.func, which wraps every result
            return t if t.dtype is torch.int64 else t.to(torch.int64)
        t = int(t)
    elif isinstance(t, np.integer):
        t = int(t)
    if isinstance(t, bool) or not isinstance(t, (int, torch.SymInt)):
        raise TypeError(f"{name} should be an int or a tensor of integers, got: {type(t).__name__}")
    if t < 0:
        raise ValueError(f"{name} must be zero or greater, got {t}")
    return t  # type: ignore[return-value]


def check_clocks(name: str, clocks: Tensor, batch: int | None) -> None:
    """Refuses a tensor of clocks that has not one clock, from 0 to LATEST, for each of `batch` sequences.

    `batch` is None for an unbatched input. The numbers are not looked at inside a graph.
    """
    if batch is None:
        raise ValueError(f"{name} must be a single clock for an unbatched input, got shape {tuple(clocks.shape)}")
    if clocks.shape != (batch,):
        raise ValueError(f"{name} must have one clock per sequence, shape ({batch},), got {tuple(clocks.shape)}")
    if batch > 0 and can_read_clocks(clocks):
        earliest, latest = int(clocks.min()), int(clocks.max())
        if earliest < 0:
            raise ValueError(f"{name} must be zero or greater, got {earliest}")
        if latest > LATEST:
            raise ValueError(f"{name} must be at most 2**62, got {latest}")


def check_start_clocks(clocks: Tensor, batch: int | None, are_given: bool) -> None:
    """`check_clocks` of a call on whole sequences, which also refuses clocks that cannot be read.

    `are_given` is True if they were passed as t0, and False if they are those of a state.
    """
    name = "t0" if are_given else "hx.t"
    check_clocks(name, clocks, batch)
    if not can_read_clocks(clocks):
        raise RuntimeError(
            f"{name} is a tensor, whose numbers decide which modules are computed, and cannot be read here (inside "
            "torch.compile, torch.export, a trace or vmap): pass one clock as an int, or call step, which takes a "
            "tensor everywhere"
        )


def check_lengths(lengths: "Tensor | Sequence[int]", T: int, B: int, device: torch.device) -> Tensor:
    """`lengths` as a (B,) tensor of int64 on `device`; refuses lengths that do not fit T steps and B sequences."""
    # an empty list has no dtype of its own
    empty = B == 0 and not (isinstance(lengths, Tensor) and lengths.numel() > 0)
    try:
        given = torch.as_tensor(lengths, dtype=torch.int64 if empty else None)
    except (TypeError, ValueError) as error:
        raise TypeError(f"lengths must be integers, got {lengths!r}") from error
    if given.dtype not in INTEGERS:
        raise TypeError(f"lengths must be integers, got {given.dtype}")
    if given.shape != (B,):
        raise ValueError(f"lengths must have one entry per sequence, shape ({B},), got {tuple(given.shape)}")
    # a bound that depends on data cannot be checked inside a compiled graph, nor while a CUDA graph is captured
    recorded = torch.compiler.is_compiling() or (given.is_cuda and torch.cuda.is_current_stream_capturing())
    if not recorded and given.numel() > 0 and not given.is_meta:
        shortest, longest = int(given.min()), int(given.max())
        if shortest < 1 or longest > T:
            wrong = shortest if shortest < 1 else longest
            raise ValueError(f"lengths must lie between 1 and the {T} steps of the input, got {wrong}")
    return given.to(device=device, dtype=torch.int64)


def is_functionalized() -> bool:
    """Whether torch.func.functionalize is active, which has no rule for autograd functions."""
    return torch._C._are_functorch_transforms_active() and any(
        interpreter.key() == TransformType.Functionalize for interpreter in get_interpreter_stack() or ()
    )


def is_autocast_on(device: torch.device) -> bool:
    """Whether autocast is on for `device`."""
    kind = device.type
    # the meta device has no autocast, and asking it is an error
    return kind != "meta" and torch.is_autocast_enabled(kind)


def can_read(*tensors: Tensor) -> bool:
    """True if the numbers of `tensors` can be read: outside of graphs, transforms and the capture of CUDA graphs."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    return (
        all(type(tensor) in (Tensor, Parameter) for tensor in tensors)
        and (torch._C._len_torch_dispatch_stack() == 0 or _is_only_counted())
        and not torch._C._are_functorch_transforms_active()
        and (tensors[0].is_cpu or (tensors[0].is_cuda and not torch.cuda.is_current_stream_capturing()))
    )


def can_read_clocks(clocks: Tensor) -> bool:
    """True if the numbers of `clocks` can be read: outside of graphs, and if torch.func does not transform them."""
    if torch._C._are_functorch_transforms_active():
        return not torch._C._functorch.is_functorch_wrapped_tensor(clocks) and not torch.compiler.is_compiling()
    return can_read(clocks)


def _is_only_counted() -> bool:
    """True if the only dispatch modes are torch's FLOP counters, which change nothing."""
    return all(type(mode).__module__ == "torch.utils.flop_counter" for mode in _get_current_dispatch_mode_stack())


def are_known_finite(*tensors: Tensor) -> bool:
    """True if all numbers of `tensors` are finite; False if some are not, or if they cannot be read.

    A CUDA device is waited for, which takes less time than the operations that callers are spared.
    """
    return can_read(*tensors) and all(math.isfinite(_add_up(tensor.detach())) for tensor in tensors)


def _add_up(tensor: Tensor) -> float:
    # the sum of finite numbers of float16 is easily too large for float16
    return tensor.sum(dtype=torch.float32 if tensor.dtype == torch.float16 else None).item()
