"""The CUDA programs on the CPU: g++ compiles them with the functions of `kernels/emulator`; every thread is a fiber."""

import ctypes
import hashlib
import re
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


_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def _list_included(file):
    """The file and the headers in its folder that it includes."""
    files = [file]
    for name in re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE):
        if (file.parent / name).exists():
            files += _list_included(file.parent / name)
    return files


@cache
def _compile(file, constants, folder):
    """The library of a file with these constants; kept in the folder for temporary files until its sources change."""
    included = _list_included(folder / file)
    sources = [*included, *sorted(EMULATOR.iterdir())]
    # constants that the file does not read need no library of their own
    words = {word for source in sources for word in re.findall(r"\w+", _COMMENT.sub("", source.read_text()))}
    constants = [(name, value) for name, value in constants if name in words]
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
