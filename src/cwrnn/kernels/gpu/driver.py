"""CUDA programs: compiled by NVRTC, which torch brings along, when they are first needed; started through the driver.

A program is a function of a `.cu` file in `cuda/`. Constants, such as the size of the largest module, are macros of the
compiler. All other arguments are one structure of 64-bit integers, `Call`, as those of the CPU kernel: Python writes
addresses, sizes and strides into an array, and a launch takes a few microseconds.
"""

import ctypes
from array import array
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch

FOLDER = Path(__file__).parent / "cuda"
HEADERS = ("primitives.cuh", "modules.cuh", "small.cuh")
ELEMENTS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""The numbers of the dtypes in cuda/primitives.cuh."""
Constants = tuple[tuple[str, int], ...]
"""The macros of a program, by name."""


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
        _load_libraries()
    except OSError as error:
        return f"NVRTC or the CUDA driver cannot be loaded: {error}"
    return None


@lru_cache(maxsize=1024)
def load_program(file: str, name: str, constants: Constants, threads: int, shared: int, device: int) -> Program:
    """The program `name` of a file in `cuda/`, compiled with `constants`, on the CUDA device with that number.

    Raises a RuntimeError with the compiler's messages if it cannot be compiled.
    """
    compiler, driver = _load_libraries()
    # loading needs the device's context, which torch makes
    torch.cuda.init()
    with torch.cuda.device(device):
        make_current(device)
        binary = _compile(compiler, file, constants, torch.cuda.get_device_capability(device))
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _check(driver, driver.cuModuleLoadData(ctypes.byref(module), binary), f"loading {file}")
        _check(driver, driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()), f"finding {name}")
        if shared > _SHARED_BY_DEFAULT:
            changed = driver.cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
            _check(driver, changed, f"{shared} bytes of shared memory for {name}")
    assert function.value is not None
    return Program(function.value, shared, threads)


def launch(program: Program, columns: int, rows: int, call: "array[int]", stream: int) -> None:
    """Starts `columns` times `rows` blocks of the program on a stream of the current device."""
    arguments = (ctypes.c_void_p * 1)(call.buffer_info()[0])
    sizes = columns, rows, 1, program.threads, 1, 1, program.shared
    code = _launcher()(program.handle, *sizes, stream, arguments, None)
    if code == _NO_CONTEXT:
        # a thread in which torch has not used the device yet
        make_current(torch.cuda.current_device())
        code = _launcher()(program.handle, *sizes, stream, arguments, None)
    if code != 0:
        _, driver = _load_libraries()
        _check(driver, code, "launching a CUDA program")


def current_stream(device: torch.device) -> int:
    """The address of the current stream of a CUDA device."""
    return torch._C._cuda_getCurrentRawStream(device.index)


_NO_CONTEXT = 201
_SHARED_BY_DEFAULT = 48 * 1024
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


@cache
def _launcher() -> Callable[..., int]:
    _, driver = _load_libraries()
    function = driver.cuLaunchKernel
    number, pointer = ctypes.c_uint, ctypes.c_void_p
    function.argtypes = [pointer, *[number] * 7, pointer, pointer, pointer]
    return function  # type: ignore[no-any-return]


@cache
def _load_libraries() -> tuple[Any, Any]:
    """NVRTC and the driver. torch links a library to both, which knows where they lie."""
    driver = ctypes.CDLL("nvcuda.dll" if _is_windows() else "libcuda.so.1")
    major = (torch.version.cuda or "").split(".")[0]
    folder = Path(torch.__file__).parent / "lib"
    names = (
        sorted(str(file) for file in folder.glob("nvrtc64_*.dll") if "builtins" not in file.name)
        if _is_windows()
        else [str(folder / "libcaffe2_nvrtc.so"), f"libnvrtc.so.{major}", "libnvrtc.so"]
    )
    problems = []
    for name in names:
        try:
            compiler = ctypes.CDLL(name)
            compiler.nvrtcVersion  # noqa: B018
        except (OSError, AttributeError) as error:
            problems.append(str(error))
        else:
            return compiler, driver
    raise OSError("; ".join(problems) or "there is no NVRTC")


def _is_windows() -> bool:
    import os

    return os.name == "nt"


def _compile(compiler: Any, file: str, constants: Constants, capability: tuple[int, int]) -> bytes:
    """The machine code of a file for a device, or PTX if the compiler does not know the device."""
    sources = [(FOLDER / name).read_bytes() for name in HEADERS]
    program = ctypes.c_void_p()
    count = len(HEADERS)
    code = compiler.nvrtcCreateProgram(
        ctypes.byref(program), (FOLDER / file).read_bytes(), file.encode(), count,
        (ctypes.c_char_p * count)(*sources), (ctypes.c_char_p * count)(*(name.encode() for name in HEADERS)),
    )  # fmt: skip
    _check_compiler(compiler, code, file)
    own = capability[0] * 10 + capability[1]
    known = _list_architectures(compiler)
    virtual = own not in known
    target = max((one for one in known if one <= own), default=own) if virtual else own
    options = [
        f"--gpu-architecture={'compute' if virtual else 'sm'}_{target}",
        "--std=c++17",
        "--extra-device-vectorization",
        *(f"-D{name}={value}" for name, value in constants),
    ]
    code = compiler.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    )
    if code != 0:
        size = ctypes.c_size_t()
        compiler.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetProgramLog(program, log)
        raise RuntimeError(f"{file} cannot be compiled with {dict(constants)}: {log.value.decode()}")
    size, kind = ctypes.c_size_t(), "PTX" if virtual else "CUBIN"
    _check_compiler(compiler, getattr(compiler, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)), file)
    binary = ctypes.create_string_buffer(size.value)
    _check_compiler(compiler, getattr(compiler, f"nvrtcGet{kind}")(program, binary), file)
    compiler.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw


def _list_architectures(compiler: Any) -> list[int]:
    count = ctypes.c_int()
    compiler.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    values = (ctypes.c_int * count.value)()
    compiler.nvrtcGetSupportedArchs(values)
    return list(values)


def _check_compiler(compiler: Any, code: int, file: str) -> None:
    if code != 0:
        compiler.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC refuses {file}: {compiler.nvrtcGetErrorString(code).decode()}")


def _check(driver: Any, code: int, what: str) -> None:
    if code != 0:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {(text.value or b'unknown error').decode()} ({code})")


def make_current(device: int) -> None:
    """Gives this thread the context of a CUDA device if it has none, as before torch's first work in a new thread."""
    _, driver = _load_libraries()
    context, number = ctypes.c_void_p(), ctypes.c_int()
    _check(driver, driver.cuCtxGetCurrent(ctypes.byref(context)), "asking for a context")
    if not context.value:
        _check(driver, driver.cuDeviceGet(ctypes.byref(number), device), f"finding CUDA device {device}")
        _check(driver, driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number), "retaining a context")
        _check(driver, driver.cuCtxSetCurrent(context), "entering a context")
