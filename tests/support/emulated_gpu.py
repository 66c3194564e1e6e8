"""The CUDA programs on the CPU: g++ compiles them with the functions of `kernels/emulator`; every thread is a fiber.

While `checking` lasts, programs are compiled with the checks of `kernels/emulator/checks.cpp`. A launch that breaks the
rules of a GPU then raises an AssertionError: a race, an access outside of the memory that was passed, or undefined
behaviour.
"""

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import pytest
import torch

from cwrnn.kernels.gpu import compiler, driver, gradients, launch, scan, small, stepping

from .passed_memory import PassedMemory

EMULATOR = Path(__file__).parents[1] / "kernels" / "emulator"
CHECKS, LAUNCH = EMULATOR / "checks.cpp", EMULATOR / "launch.h"
FOUND = 3
OPTIONS = (
    # the programs read arrays of numbers as vectors, which nvcc lets them do
    "-std=c++17", "-O1", "-fno-strict-aliasing", "-fPIC", "-fno-gnu-unique", "-DEMULATED",
    "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function",
)  # fmt: skip
WATCHED = (
    "-DCHECKED", "-g1", "-fsanitize=thread,undefined", "-fno-sanitize=null,object-size,pointer-overflow",
    "-Wno-tsan",
)  # fmt: skip
"""Options of a program whose accesses are watched. What is left out, the checks themselves find."""
PROBLEMS = {1: "all threads wait for ever", 2: "a block wrote beyond its shared memory"}


def has_compiler() -> bool:
    """True if the emulated programs can be compiled here."""
    import platform

    return shutil.which("g++") is not None and platform.machine() == "x86_64"


class EmulatedProgram(NamedTuple):
    """A program compiled for the CPU."""

    library: ctypes.CDLL
    name: str
    shared: int
    threads: int
    memory: PassedMemory | None
    """What the program may access; None if nothing is checked."""


def load_program(file, name, constants, threads, shared, device=0):
    """Stands in for `driver.load_program`."""
    memory = _checked_memory[-1]
    library = _compile(file, constants, compiler.FOLDER, memory is not None)
    return EmulatedProgram(library, name, shared, threads, memory)


_checked_memory = [None]
"""The memory that the innermost `checking` knows."""


@contextmanager
def checking():
    """Makes the programs that are loaded now check what they do; all programs that were loaded are forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        memory = PassedMemory()
        patch.setattr(torch.Tensor, "data_ptr", memory.follow(torch.Tensor.data_ptr))
        patch.setattr(torch, "empty", memory.make_empty(torch.empty))
        patch.setattr(scan, "_place", memory.place)
        _checked_memory.append(memory)
        forget_programs()
        try:
            yield
        finally:
            _checked_memory.pop()
            forget_programs()


def forget_programs():
    """Drops all programs that were loaded."""
    for module in (launch, scan, gradients, small, stepping):
        for function in vars(module).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()


class Emulator:
    """Stands in for `driver.launch`. `slots` blocks run at once, in an order that `seed` shuffles."""

    def __init__(self, slots=10_000, seed=0):
        self.slots, self.seed = slots, seed
        self.launched = []

    def launch(self, program, columns, rows, call, stream=0):
        """Runs the blocks of the program; raises an AssertionError if they wait for ever."""
        self.launched.append((program.name, columns, rows))
        if program.memory is not None:
            bounds = program.memory.list_bounds(call)
            program.library.checks_allow((ctypes.c_int64 * len(bounds))(*bounds), len(bounds) // 2)
        function = ctypes.cast(getattr(program.library, program.name), ctypes.c_void_p)
        code = program.library.emulate(
            function, ctypes.c_void_p(call.buffer_info()[0]), ctypes.c_int64(columns), ctypes.c_int64(rows),
            program.threads, program.shared, self.slots, self.seed,
        )  # fmt: skip
        assert code == 0, f"{program.name}: {_explain(program.library, code)}"


@contextmanager
def emulating(seed=1, slots=10_000, *, large=True):
    """Lets programs run on an emulated device with the shared memory of an H200; yields it.

    With `large`, the programs of large networks compute small networks too.
    """
    device = Emulator(slots, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "load_program", load_program)
        patch.setattr(driver, "launch", device.launch)
        patch.setattr(launch, "_count_shared_bytes", lambda device: 227 * 1024)
        if large:
            patch.setattr(small, "takes", lambda schedule, cell, dtype: False)
        forget_programs()
        try:
            yield device
        finally:
            forget_programs()


def _explain(library, code):
    """What went wrong, with lines of the sources in the place of addresses."""
    if code != FOUND:
        return PROBLEMS.get(code, code)
    library.checks_report.restype = ctypes.c_char_p
    report = library.checks_report().decode()
    return re.sub(r"<([0-9a-f]+)>", lambda match: f"({_find_line(library, match[1])})", report)


def _find_line(library, address):
    """The line of the program at an address, and the lines that call the functions around it."""
    command = ["addr2line", "-i", "-e", library._name, address]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [line.split(" ")[0] for line in printed.splitlines() if str(EMULATOR) not in line]
    return " in ".join(line.rpartition("/")[2] for line in lines) or "?"


@cache
def _compile(file, constants, folder, checked):
    """The library of a file with these constants; kept in the folder for temporary files until its sources change."""
    sources = [*compiler.list_sources(folder / file), *sorted(EMULATOR.glob("*.h"))]
    constants = compiler.choose_constants(constants, sources)
    library = _name_file(".so", (OPTIONS, constants, checked and WATCHED), [*sources, *[CHECKS] * checked])
    if not library.exists():
        text = f'#include "{folder / file}"\n'
        options = [
            "-x", "c++", *OPTIONS, f"-I{EMULATOR}", f"-I{folder}", *(f"-D{name}={value}" for name, value in constants)
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as work:
            if checked:
                # what starts the threads is watched, too; the checks stand in for gcc's libraries
                text += f'#include "{LAUNCH}"\n'
                options += WATCHED
                shared = _compile_once(CHECKS, ("-std=c++17", "-O2", "-fPIC", "-DCHECKED", "-Wall"))
            else:
                # it calls nothing that depends on the elements
                shared = _compile_once(LAUNCH, ("-x", "c++", *OPTIONS, "-DELEMENT=0"))
            _run(["g++", *options, "-c", "-", "-o", f"{work}/program.o"], text)
            _run(["g++", "-shared", f"{work}/program.o", str(shared), "-o", f"{work}/program.so"])
            shutil.move(f"{work}/program.so", library)
    return ctypes.CDLL(str(library))


def _compile_once(file, options):
    """The compiled file, which all programs share."""
    compiled = _name_file(".o", (file.name, options), [file, *sorted(EMULATOR.glob("*.h"))])
    with _compiling:
        if not compiled.exists():
            with tempfile.TemporaryDirectory() as work:
                _run(["g++", *options, "-c", str(file), "-o", f"{work}/shared.o"])
                shutil.move(f"{work}/shared.o", compiled)
    return compiled


_compiling = Lock()


def _name_file(ending, settings, sources):
    """A file in the folder for temporary files, whose name follows from settings and from the content of sources."""
    digest = hashlib.sha256(repr(settings).encode())
    for source in sources:
        digest.update(source.read_bytes())
    cache_folder = Path(tempfile.gettempdir()) / "cwrnn-emulated"
    cache_folder.mkdir(exist_ok=True)
    return cache_folder / f"{digest.hexdigest()[:32]}{ending}"


def _run(command, text=""):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
