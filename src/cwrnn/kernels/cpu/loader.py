"""The compiled library that holds all CPU kernels, called through ctypes.

The library is built when the package is built; without a C compiler there is none, and `refuse` gives that as its
reason. It holds every kernel for several instruction sets. Importing this module takes the best one that this processor
has. The environment variable CWRNN_CPU_ISA forces one: "baseline", "avx2" or "avx512".
"""

import ctypes
import os
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LIBRARY = Path(__file__).with_name("libcpu.so")
VARIABLE = "CWRNN_CPU_ISA"
ISAS = ("avx512", "avx2", "baseline")
"""The instruction sets, in order of preference. Every processor of the architecture has "baseline"."""

DTYPES = {torch.float32: "f32", torch.float64: "f64"}
ABI = 7
"""The number of the binary interface in cpu.h. A library with another number is not called."""

CELL_NUMBERS = {"tanh": 0, "relu": 1, "lstm": 2, "gru": 3}
"""The numbers of the cells in cpu.h."""

OUT_OF_MEMORY, OTHER_WEIGHTS = 1, 2
"""The results of a call that did not succeed, as in cpu.h."""

FUNCTIONS = (
    *("forward", "backward", "step_sizes", "step_pack", "step", "step_rows"),
    *("lstm_size", "lstm_forward", "lstm_backward"),
    *("readout_forward", "readout_backward"),
)


class _Loaded:
    """The library, and its functions for the instruction set in use."""

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
    """Switches to the kernels for `isa`, or for None to the best instruction set of this processor."""
    library, usable = _Loaded.library, executable_isas()
    assert library is not None
    if isa is not None and isa not in usable:
        raise ValueError(f"the CPU kernel cannot use {isa!r} here. Select from {', '.join(map(repr, usable))}.")
    _Loaded.isa = isa or usable[0]
    _Loaded.functions = {}
    for name in FUNCTIONS:
        for dtype, suffix in DTYPES.items():
            function = getattr(library, f"cwrnn_{name}_{suffix}_{_Loaded.isa}")
            function.argtypes = [ctypes.c_void_p]
            _Loaded.functions[name, dtype] = function


def get_library() -> ctypes.CDLL | None:
    """The library, or None if it is missing or cannot be called."""
    return _Loaded.library if _Loaded.missing is None else None


def current_isa() -> str | None:
    """The instruction set in use, or None if there is no library."""
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
    """Makes the library use torch's own team of OpenMP threads, if torch was built with OpenMP."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        # ctypes also finds symbols of the libraries that this one links to: this is the runtime that torch uses
        parallel = ctypes.CDLL(str(path)).GOMP_parallel
    except (OSError, AttributeError):
        return
    library.cwrnn_borrow(ctypes.cast(parallel, ctypes.c_void_p))


def refuse(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the CPU kernels cannot run on `device` with `dtype`, or None if they can."""
    if device.type != "cpu":
        return "it runs on the CPU only"
    if dtype not in DTYPES:
        return "it takes float32 and float64 only"
    return _Loaded.missing


def invoke(name: str, dtype: torch.dtype, fields: "array[int]") -> bool:
    """Calls the function `name` of the library with a structure of 64-bit integers (cpu.h).

    Returns False if a step found other weights than those that were packed.
    """
    # fields and tensors live until the call returns, because the caller holds them
    address, _ = fields.buffer_info()
    result = _Loaded.functions[name, dtype](address)
    if result == OUT_OF_MEMORY:
        raise MemoryError("the CPU kernel could not allocate its working memory")
    return result != OTHER_WEIGHTS


_load()
