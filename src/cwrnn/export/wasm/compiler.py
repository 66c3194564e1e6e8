"""The compiler of WebAssembly: zig, which the extra `export` installs, or clang with the target wasm32.

The module stands alone: it has no imports, no libraries and no names other than those of its exported functions.
"""

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ..c.compilers import compile_program, find_zig
from ..model import ExportError

STACK = 2**16
"""Bytes of the stack. It lies below the data, so a stack that overflows stops the program and changes no number."""

OPTIONS = (
    "-ffreestanding",
    "-nostdlib",
    # no loop becomes a call of memcpy or memset, which only a library has
    "-mbulk-memory",
    # rows of matrices lie side by side, as the parts of vectors: less than half of the time
    "-msimd128",
    "-Wl,--no-entry",
    "-Wl,--strip-all",
    f"-Wl,-z,stack-size={STACK}",
)
"""The options of the compiler, besides those of every exported program."""


def compile_module(sources: Mapping[str, str]) -> bytes:
    """Return the WebAssembly module of C files.

    Args:
        sources: the contents of each file by its name; those that end in .c are compiled, the others included

    Raises an ExportError if there is no compiler, or if it refuses the files.
    """
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="cwrnn-wasm-") as name:
        folder = Path(name)
        for file, text in sources.items():
            (folder / file).write_text(text, encoding="utf-8")
        programs = [folder / file for file in sources if file.endswith(".c")]
        return compile_program(compiler, programs, folder / "module.wasm", *OPTIONS).read_bytes()


def find_compiler() -> list[str]:
    """Return the command of a C compiler that makes WebAssembly, with its target; an ExportError if there is none."""
    if importlib.util.find_spec("ziglang") is not None:
        return [*find_zig(), "-target", "wasm32-freestanding"]
    if (zig := shutil.which("zig")) is not None:
        return [zig, "cc", "-target", "wasm32-freestanding"]
    if (clang := shutil.which("clang")) is not None and shutil.which("wasm-ld") is not None and _has_target(clang):
        return [clang, "--target=wasm32", "-Wl,--stack-first"]
    raise ExportError(
        "WebAssembly needs a C compiler with the target wasm32: pip install 'cwrnn[export]' installs zig, and clang "
        "with wasm-ld works too"
    )


def _has_target(clang: str) -> bool:
    process = subprocess.run([clang, "--print-targets"], capture_output=True, text=True, check=False)
    return "wasm32" in process.stdout
