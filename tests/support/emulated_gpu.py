"""The CUDA programs on the CPU: compiled by g++ with the functions of `tests/kernels/emulator`, one fiber per thread."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cwrnn.kernels.gpu import driver

EMULATOR = Path(__file__).parents[1] / "kernels" / "emulator"
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


def load_program(file, name, constants, threads, shared, device=0):
    """Stands in for `driver.load_program`."""
    return EmulatedProgram(_compile(file, constants, driver.FOLDER), name, shared, threads)


class Emulator:
    """Stands in for `driver.launch`. `slots` blocks run at once, in an order that `seed` shuffles."""

    def __init__(self, slots=10_000, seed=0):
        self.slots, self.seed = slots, seed
        self.launched = []

    def launch(self, program, columns, rows, call, stream=0):
        """Runs the blocks of the program; raises an AssertionError if they wait for ever."""
        self.launched.append((program.name, columns, rows))
        function = ctypes.cast(getattr(program.library, program.name), ctypes.c_void_p)
        code = program.library.emulate(
            function, ctypes.c_void_p(call.buffer_info()[0]), ctypes.c_int64(columns), ctypes.c_int64(rows),
            program.threads, program.shared, self.slots, self.seed,
        )  # fmt: skip
        assert code == 0, f"{program.name}: {PROBLEMS.get(code, code)}"


@cache
def _compile(file, constants, folder):
    """The library of a file with these constants; kept in the folder for temporary files until its sources change."""
    sources = [folder / file, *(folder / name for name in driver.HEADERS), *sorted(EMULATOR.iterdir())]
    digest = hashlib.sha256(repr(constants).encode())
    for source in sources:
        digest.update(source.read_bytes())
    cache_folder = Path(tempfile.gettempdir()) / "cwrnn-emulated"
    cache_folder.mkdir(exist_ok=True)
    library = cache_folder / f"{digest.hexdigest()[:32]}.so"
    if not library.exists():
        text = f'#include "{folder / file}"\n#include "{EMULATOR / "launch.h"}"\n'
        with tempfile.TemporaryDirectory() as work:
            made = Path(work) / "program.so"
            command = [
                "g++", "-x", "c++", "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-gnu-unique", "-DEMULATED",
                "-Wall", "-Wno-unknown-pragmas", "-Wno-unused-function", f"-I{EMULATOR}", f"-I{folder}",
                *(f"-D{name}={value}" for name, value in constants), "-", "-o", str(made),
            ]  # fmt: skip
            done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()
            shutil.move(made, library)
    return ctypes.CDLL(str(library))
