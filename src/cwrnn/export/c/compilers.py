"""Compilers of C: that of the machine, or zig from PyPI, which compiles for every machine."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..model import ExportError

FLAGS = ("-std=c99", "-O2", "-ffp-contract=off")
"""The options of every program. Without contraction, the result has the same bits on every machine."""
# a system other than Linux does not load a library that is not linked with its own
LIBRARY = ("-shared", "-fPIC", *(("-nostdlib",) if sys.platform == "linux" else ()))
"""The options of a library that Python loads."""


def find_zig() -> list[str]:
    """The command that compiles C with zig; an ImportError that names the extra if zig is not installed."""
    if importlib.util.find_spec("ziglang") is None:
        raise ImportError("compiling for another machine needs ziglang: pip install 'cwrnn[export]'")
    return [sys.executable, "-m", "ziglang", "cc"]


def find_compiler() -> list[str]:
    """The command that compiles C for this machine: $CC, else gcc, clang or cc, else zig.

    Raises an ExportError if there is none.
    """
    chosen = os.environ.get("CC")
    if chosen:
        try:
            command = shlex.split(chosen)
        except ValueError as error:
            raise ExportError(f"the environment variable CC is no command: {error}: {chosen!r}") from error
        if not command or shutil.which(command[0]) is None:
            raise ExportError(f"the environment variable CC names no compiler that can be found: {chosen!r}")
        return command
    for name in ("gcc", "clang", "cc"):
        if shutil.which(name):
            return [name]
    if importlib.util.find_spec("ziglang") is None:
        raise ExportError(
            "the check needs a C compiler: install gcc or clang, name one in the environment variable CC, or "
            "pip install 'cwrnn[export]', which has zig"
        )
    return find_zig()


def compile_program(compiler: Sequence[str], sources: Sequence[Path], program: Path, *options: str) -> Path:
    """Compiles sources to a program, and returns its path.

    Raises an ExportError that contains the compiler's output if it fails.
    """
    command = [*compiler, *FLAGS, *options, *map(str, sources), "-o", str(program)]
    # zig keeps what it compiles in a folder of the user; here it belongs to the program
    cache = str(program.parent / "zig-cache")
    environment = os.environ | {"ZIG_LOCAL_CACHE_DIR": cache, "ZIG_GLOBAL_CACHE_DIR": cache}
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if result.returncode != 0:
        output = (result.stderr.strip() or result.stdout.strip()) or "it printed nothing"
        raise ExportError(f"{shlex.join(command)} failed with exit status {result.returncode}:\n{output}")
    return program
