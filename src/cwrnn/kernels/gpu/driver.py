"""CUDA programs, loaded and started through the driver.

A program is a function of a `.cu` file in `cuda/`, which compiler.py compiles when it is first needed. Constants, such
as the size of the largest module, are macros of the compiler. All other arguments are one structure of 64-bit integers,
`Call`, as those of the CPU kernel: Python writes addresses, sizes and strides into an array, and a launch takes a few
microseconds.
"""

import ctypes
import os
from array import array
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from .compiler import FOLDER, Constants, choose_constants, compile_program, list_sources, load_compiler

ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The numbers of the dtypes in cuda/primitives.cuh."""


class Program(NamedTuple):
    """A compiled program on one device."""

    handle: int
    shared: int
    """Bytes of shared memory of a block."""
    threads: int
    """Threads of a block."""


def refuse() -> str | None:
    """Why no CUDA program can be compiled here; None if one can be."""
    try:
        load_compiler()
        _load_driver()
    except OSError as error:
        return f"NVRTC or the CUDA driver cannot be loaded: {error}"
    return None


@lru_cache(maxsize=1024)
def load_program(file: str, name: str, constants: Constants, threads: int, shared: int, device: int) -> Program:
    """The program `name` of a file in `cuda/`, compiled with `constants`, on the CUDA device with that number.

    Raises a RuntimeError with the compiler's messages if it cannot be compiled.
    """
    return _load_program(file, name, choose_constants(constants, list_sources(FOLDER / file)), threads, shared, device)


@lru_cache(maxsize=1024)
def _load_program(file: str, name: str, constants: Constants, threads: int, shared: int, device: int) -> Program:
    driver = _load_driver()
    # loading needs the device's context, which torch makes
    torch.cuda.init()
    with torch.cuda.device(device):
        make_current(device)
        code = compile_program(file, constants, torch.cuda.get_device_capability(device))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(driver, driver.cuModuleLoadData(ctypes.byref(module), code), f"loading {file}")
        _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"finding {name}")
        if shared > _SHARED_BY_DEFAULT:
            changed = driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            _check(driver, changed, f"{shared} bytes of shared memory for {name}")
    assert function.value is not None
    return Program(function.value, shared, threads)


def launch(program: Program, columns: int, rows: int, call: "array[int]", stream: int) -> None:
    """Starts `columns` times `rows` blocks of the program on a stream of the current device."""
    handle, shared, threads = program
    # ctypes takes numbers of 32 bits as they are, in less time than with the types of the arguments
    arguments = (
        _address(handle), columns, rows, 1, threads, 1, 1, shared, _address(stream),
        ctypes.byref(_address(call.buffer_info()[0])), None,
    )  # fmt: skip
    start = _load_driver().cuLaunchKernel
    code = start(*arguments)
    if code == _NO_CONTEXT:
        # a thread in which torch has not used the device yet
        make_current(torch.cuda.current_device())
        code = start(*arguments)
    if code != 0:
        _check(_load_driver(), code, "launching a CUDA program")


def launch_on(device: int, program: Program, columns: int, rows: int, call: "array[int]") -> None:
    """`launch` on the current stream of the CUDA device with that number; -1 is the CPU, where tests emulate one."""
    if device < 0:
        launch(program, columns, rows, call, 0)
    elif torch._C._cuda_getDevice() == device:
        launch(program, columns, rows, call, current_stream(device))
    else:
        with torch.cuda.device(device):
            launch(program, columns, rows, call, current_stream(device))


def current_stream(device: int) -> int:
    """The address of the current stream of the CUDA device with that number."""
    return torch._C._cuda_getCurrentRawStream(device)


_NO_CONTEXT = 201
_SHARED_BY_DEFAULT = 48 * 1024
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_address = ctypes.c_void_p


@cache
def _load_driver() -> Any:
    return ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")


def _check(driver: Any, code: int, what: str) -> None:
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()} ({code})")


def make_current(device: int) -> None:
    """Gives this thread the context of a CUDA device if it has none, as before torch's first work in a new thread."""
    driver = _load_driver()
    context, number = ctypes.c_void_p(), ctypes.c_int()
    _check(driver, driver.cuCtxGetCurrent(ctypes.byref(context)), "asking for a context")
    if not context.value:
        _check(driver, driver.cuDeviceGet(ctypes.byref(number), device), f"finding CUDA device {device}")
        _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "retaining a context")
        _check(driver, driver.cuCtxSetCurrent(context), "entering a context")
