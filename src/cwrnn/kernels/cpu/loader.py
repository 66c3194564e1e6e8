"""The compiled library that holds all kernels, called through ctypes, and when memory may be handed to it.

It is built when the package is; without a C compiler there is none, and `refuse` says so. It holds every kernel for
several instruction sets, of which the best that this processor has is taken when this module is imported. The
environment variable CWRNN_CPU_ISA, "baseline", "avx2" or "avx512", forces one.
"""

import ctypes
import os
import warnings
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

LIBRARY = Path(__file__).with_name("libcpu.so")
VARIABLE = "CWRNN_CPU_ISA"
ISAS = ("avx512", "avx2", "baseline")
"""The instruction sets, in order of preference. "baseline" is what every processor of the architecture has."""

DTYPES = {torch.float32: "f32", torch.float64: "f64"}
ORDINARY = frozenset({Tensor, Parameter, type(None)})
"""Types of tensors that are what their memory says, and the type of one that is not there."""
ABI = 5
"""That of cpu.h: a library that was built for another one is not called."""

OUT_OF_MEMORY, OTHER_WEIGHTS = 1, 2

NAMES = (
    *("forward", "backward", "step_sizes", "step_pack", "step"),
    *("lstm_size", "lstm_forward", "lstm_backward"),
    *("readout_forward", "readout_backward"),
)


class _Loaded:
    """The library, and the functions of the instruction set in use."""

    library: ctypes.CDLL | None = None
    isa: str | None = None
    missing: str | None = "it was not loaded"
    functions: dict[tuple[str, torch.dtype], Callable[[Any], int]] = {}


def executable_isas() -> tuple[str, ...]:
    """The instruction sets that the library was built for and this processor has, the best first."""
    library = _Loaded.library
    if library is None:
        return ()
    return tuple(
        isa for isa in ISAS if hasattr(library, f"cwrnn_forward_f32_{isa}") and library.cwrnn_has(isa.encode())
    )


def use_isa(isa: str | None = None) -> None:
    """Takes the kernel for that instruction set, or for the best that there is."""
    library, usable = _Loaded.library, executable_isas()
    assert library is not None
    if isa is not None and isa not in usable:
        raise ValueError(f"the CPU kernel cannot use {isa!r} here. Select from {', '.join(map(repr, usable))}.")
    _Loaded.isa = isa or usable[0]
    _Loaded.functions = {}
    for name in NAMES:
        for dtype, suffix in DTYPES.items():
            function = getattr(library, f"cwrnn_{name}_{suffix}_{_Loaded.isa}")
            function.argtypes = [ctypes.c_void_p]
            _Loaded.functions[name, dtype] = function


def compiled() -> ctypes.CDLL | None:
    """The library itself; None if there is none that can be called."""
    return _Loaded.library if _Loaded.missing is None else None


def current_isa() -> str | None:
    """The instruction set in use; None if there is no kernel."""
    return _Loaded.isa


def _load() -> None:
    if not LIBRARY.exists():
        _Loaded.missing = "its compiled part is missing: the package was installed without a C compiler"
        return
    try:
        _Loaded.library = ctypes.CDLL(str(LIBRARY))
        abi = _Loaded.library.cwrnn_abi()
    except (OSError, AttributeError) as error:
        _Loaded.missing = f"its compiled part cannot be loaded: {error}"
        return
    if abi != ABI:
        _Loaded.missing = "its compiled part is that of another version: install the package again"
        return
    _Loaded.missing = None
    _borrow_threads(_Loaded.library)
    forced = os.environ.get(VARIABLE) or None
    try:
        use_isa(forced)
    except ValueError as error:
        warnings.warn(f"{VARIABLE}={forced} is ignored: {error}", RuntimeWarning, stacklevel=2)
        use_isa()


def _borrow_threads(library: ctypes.CDLL) -> None:
    """Hands the kernel torch's own team of OpenMP threads, if that is what torch has."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # a symbol is looked up in what a library was linked to as well: this is the runtime that torch itself uses
        parallel = ctypes.CDLL(str(path)).GOMP_parallel
    except (OSError, AttributeError):
        return
    library.cwrnn_borrow(ctypes.cast(parallel, ctypes.c_void_p))


def refuse(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernel cannot run on that device with that dtype; None if it can."""
    if device.type != "cpu":
        return "it runs on the CPU only"
    if dtype not in DTYPES:
        return "it takes float32 and float64 only"
    return _Loaded.missing


# ---- the calls ----


def invoke(name: str, dtype: torch.dtype, words: "list[int] | array[int]") -> bool:
    """Calls the library; False if a step found other weights than those that were packed."""
    # the words live until the call returns, and so do the caller's tensors
    call = words if isinstance(words, array) else array("q", words)
    result = _Loaded.functions[name, dtype](call.buffer_info()[0])
    if result == OUT_OF_MEMORY:
        raise MemoryError("the CPU kernel could not allocate its working memory")
    return result != OTHER_WEIGHTS


def pointer(tensor: Tensor | None) -> int:
    """Where the tensor's first element lies; 0 if there is none."""
    return 0 if tensor is None else tensor.data_ptr()


@overload
def dense(tensor: Tensor, dims: int) -> Tensor: ...


@overload
def dense(tensor: Tensor | None, dims: int) -> Tensor | None: ...


def dense(tensor: Tensor | None, dims: int) -> Tensor | None:
    """`tensor`, copied unless its last `dims` dimensions are contiguous and it is what its memory says."""
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
    """`tensor`, copied unless all of it is contiguous."""
    if tensor is None or (tensor.is_contiguous() and not tensor.is_neg()):
        return tensor
    return tensor.resolve_neg().contiguous()


def check_shapes(dtype: torch.dtype, **tensors: tuple[Tensor | None, tuple[int, ...]]) -> None:
    """A ValueError that names the tensor whose shape or dtype is not the expected one: memory is read by them."""
    for name, (tensor, shape) in tensors.items():
        if tensor is not None and (tensor.shape != shape or tensor.dtype != dtype):
            raise ValueError(f"{name} must be {dtype} {shape}, got {tensor.dtype} {tuple(tensor.shape)}")


def check_network(
    input: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None, h: Tensor | None, N: int
) -> None:
    """A clear error if parameters or state do not fit N units, or lie elsewhere: memory is read by them."""
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


# ---- who watches ----


def is_watched(tensors: Iterable[Tensor | None] = ()) -> bool:
    """Whether anything must see what happens to the tensors, other than autograd; without them, to any tensor.

    Who names none must look at their types.
    """
    # all in one, because a step of a small network takes no longer than a few calls
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._get_tracing_state() is not None
        or _have_stand_ins(tensors)
    )


def is_captured(tensors: Iterable[Tensor | None]) -> bool:
    """Whether what runs is being recorded or replaced, so that only operators may be called."""
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0 or _have_stand_ins(tensors)


def _have_stand_ins(tensors: Iterable[Tensor | None]) -> bool:
    """Whether one of them is of a subclass that may have no memory of its own."""
    for tensor in tensors:
        kind: Any = type(tensor)
        if kind not in ORDINARY and kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
            return True
    return False


def has_tangents() -> bool:
    """Whether derivatives are taken in forward mode."""
    return forward_ad._current_level >= 0


def wants_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether autograd will want to go back to one of the tensors."""
    if not torch.is_grad_enabled():
        return False
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


_load()
