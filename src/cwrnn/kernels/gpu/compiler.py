"""Compiles the CUDA programs by NVRTC, which torch brings along, and keeps the machine code for the next process.

To compile a program takes a second or more, so its machine code is kept in a cache on disk. The name of a file there is
a hash of everything that the code depends on: the sources, the constants that they read, the options, and the versions
of torch and of the compiler. So a changed program never finds old code. Old files stay until the folder is deleted.

    digest    32 bytes, the SHA-256 of the name of the file and the code
    code      a cubin, or PTX for a device that this NVRTC does not know

If a file is damaged, its program is compiled and written again. The GPU runs what lies in the folder. So a folder of
another user, or one in which others may write, is not used: every process then compiles its programs and keeps none.
The same holds for a single file. The environment variable CWRNN_CUDA_CACHE names another folder; if it is empty,
nothing is kept.
"""

import ctypes
import hashlib
import logging
import os
import re
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch

from ...cache_folder import find_cache_folder
from ...writing import write_files

logger = logging.getLogger("cwrnn")

FOLDER = Path(__file__).parent / "cuda"
VARIABLE = "CWRNN_CUDA_CACHE"
DIGEST = hashlib.sha256().digest_size
Constants = tuple[tuple[str, int], ...]
"""The macros of a program, by name."""

_INCLUDE = re.compile(r'^#include "(.*)"', re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def list_sources(file: Path) -> list[Path]:
    """A program's file, and the headers of its folder that it includes, each once."""
    files = [file]
    for name in _INCLUDE.findall(file.read_text()):
        if (file.parent / name).exists():
            files += [one for one in list_sources(file.parent / name) if one not in files]
    return files


def choose_constants(constants: Constants, sources: list[Path]) -> Constants:
    """Those of the constants that the sources name, so that programs which differ in the others are compiled once."""
    words = {word for file in sources for word in re.findall(r"\w+", _COMMENT.sub("", file.read_text()))}
    return tuple((name, value) for name, value in constants if name in words)


class Job(NamedTuple):
    """Everything that the machine code of a program depends on, except the compiler."""

    names: tuple[str, ...]
    """The program's file, and its headers."""
    contents: tuple[bytes, ...]
    options: tuple[str, ...]
    kind: str
    """What the compiler makes: "CUBIN", or "PTX" for a device that it does not know."""


def make_job(file: str, constants: Constants, capability: tuple[int, int]) -> Job:
    """The job to compile a file in `cuda/` for a device of that capability."""
    sources = list_sources(FOLDER / file)
    own, known = capability[0] * 10 + capability[1], _list_architectures(load_compiler())
    target = own if own in known else max((one for one in known if one <= own), default=own)
    options = (
        f"--gpu-architecture={'sm' if own in known else 'compute'}_{target}",
        "--std=c++17",
        "--extra-device-vectorization",
        *(f"-D{name}={value}" for name, value in choose_constants(constants, sources)),
    )
    names, contents = tuple(file.name for file in sources), tuple(file.read_bytes() for file in sources)
    return Job(names, contents, options, "CUBIN" if own in known else "PTX")


def compile_program(file: str, constants: Constants, capability: tuple[int, int]) -> bytes:
    """The machine code of a file in `cuda/` for a device of that capability, from the cache if it has it.

    Raises a RuntimeError with the compiler's messages if the file cannot be compiled.
    """
    job = make_job(file, constants, capability)
    # NVRTC does not tell its patch level, which torch's version stands for
    depends_on = torch.__version__, _find_version(load_compiler()), *job
    key = hashlib.sha256(repr(depends_on).encode()).hexdigest()
    folder = _find_folder(os.environ.get(VARIABLE))
    kept = None if folder is None else folder / f"{key}.bin"
    # several networks that are made at once may share a program
    with _locks.setdefault(key, Lock()):
        code = None if kept is None else _read_code(kept)
        if code is None:
            code, _ = compile_job(job)
            if kept is not None:
                _write_code(kept, code)
    return code


_locks: dict[str, Lock] = {}


@cache
def load_compiler() -> Any:
    """NVRTC. Raises an OSError with the reasons if it cannot be loaded."""
    # a library of torch is linked to it, and knows where it lies
    folder = Path(torch.__file__).parent / "lib"
    major = (torch.version.cuda or "").split(".")[0]
    names = (
        sorted(str(file) for file in folder.glob("nvrtc64_*.dll") if "builtins" not in file.name)
        if os.name == "nt"
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
            return compiler
    raise OSError("; ".join(problems) or "there is no NVRTC")


def compile_job(job: Job) -> tuple[bytes, str]:
    """The machine code, or PTX, and the compiler's messages. Raises a RuntimeError with these if there is no code."""
    compiler, file, headers = load_compiler(), job.names[0], job.names[1:]
    program, count = ctypes.c_void_p(), len(headers)
    created = compiler.nvrtcCreateProgram(
        ctypes.byref(program), job.contents[0], file.encode(), count,
        (ctypes.c_char_p * count)(*job.contents[1:]), (ctypes.c_char_p * count)(*(name.encode() for name in headers)),
    )  # fmt: skip
    _check(compiler, created, file)
    try:
        options = (ctypes.c_char_p * len(job.options))(*(option.encode() for option in job.options))
        failed = compiler.nvrtcCompileProgram(program, len(options), options) != 0
        messages = _get(compiler, "ProgramLog", program, file).rstrip(b"\0").decode(errors="replace")
        if failed:
            raise RuntimeError(f"{file} cannot be compiled with {' '.join(job.options)}: {messages}")
        return _get(compiler, job.kind, program, file), messages
    finally:
        compiler.nvrtcDestroyProgram(ctypes.byref(program))


def _get(compiler: Any, what: str, program: ctypes.c_void_p, file: str) -> bytes:
    """One of a program's texts or codes."""
    size = ctypes.c_size_t()
    _check(compiler, getattr(compiler, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), file)
    text = ctypes.create_string_buffer(size.value)
    _check(compiler, getattr(compiler, f"nvrtcGet{what}")(program, text), file)
    return text.raw


def _list_architectures(compiler: Any) -> list[int]:
    count = ctypes.c_int()
    compiler.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    values = (ctypes.c_int * count.value)()
    compiler.nvrtcGetSupportedArchs(values)
    return list(values)


def _find_version(compiler: Any) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    compiler.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def _check(compiler: Any, code: int, file: str) -> None:
    if code != 0:
        compiler.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC refuses {file}: {compiler.nvrtcGetErrorString(code).decode()}")


@cache
def _find_folder(chosen: str | None) -> Path | None:
    """The folder of the cache, made if it is not there; None if there is none that can be trusted."""
    if chosen == "":
        return None
    folder = find_cache_folder("cuda") if chosen is None else Path(chosen).absolute()
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as error:
        logger.debug("compiled CUDA programs are not kept: %s", error)
        return None
    if not _is_trusted(about):
        logger.debug("compiled CUDA programs are not kept: others own %s or may write there", folder)
        return None
    return folder


def _is_trusted(about: os.stat_result) -> bool:
    """True if a folder or a file belongs to the user, and nobody else may write to it."""
    return os.name == "nt" or (about.st_uid == os.geteuid() and not about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _read_code(file: Path) -> bytes | None:
    """The code in a file of the cache; None if the file is missing or damaged, or if others may have written it."""
    with suppress(OSError), file.open("rb") as opened:
        if not _is_trusted(os.fstat(opened.fileno())):
            logger.debug("%s is not used: others own it or may write to it", file)
            return None
        content = opened.read()
        if content[:DIGEST] == _digest(file, content[DIGEST:]):
            return content[DIGEST:]
        logger.debug("%s is damaged: the program is compiled anew", file)
    return None


def _write_code(file: Path, code: bytes) -> None:
    try:
        # a file that others may write is not used, whatever the umask allows
        write_files({file: _digest(file, code) + code}, private=True)
    except OSError as error:
        logger.debug("a compiled CUDA program is not kept: %s", error)


def _digest(file: Path, code: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + code).digest()
