"""Faults at a chosen file operation: builds `faults.c`, and reads how far it counted."""

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

COUNT = struct.Struct("QQ32s256s")
"""The file that a command and its faults share: operations, whether the fault came, the operation and its path."""
BEFORE, HALF, FULL = "before", "half", "full"


@dataclass(frozen=True)
class Count:
    """How far a command came."""

    operations: int
    has_hit: bool
    operation: str
    """The operation that was hit, with the name of the file."""
    folder: str
    """The folder of that file."""


def build_library(folder: Path) -> Path | None:
    """Compiles `faults.c` into the folder; None where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    library = folder / "faults.so"
    source = Path(__file__).with_name("faults.c")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def plan_fault(library: Path, folder: Path, count: Path, fault: str = "none", at: int = 0) -> dict[str, str]:
    """The environment of a command whose file operations below `folder` are counted, and hit by a fault."""
    count.write_bytes(bytes(COUNT.size))
    return {
        "LD_PRELOAD": str(library),
        "CHAOS_FOLDER": str(folder),
        "CHAOS_COUNT": str(count),
        "CHAOS_FAULT": fault,
        "CHAOS_AT": str(at),
    }


def read_count(count: Path) -> Count:
    """The count of a command that has ended."""
    operations, hit, name, path = COUNT.unpack(count.read_bytes())
    folder, _, file = path.rstrip(b"\0").decode(errors="replace").rpartition("/")
    return Count(operations, bool(hit), f"{name.rstrip(bytes(1)).decode()} {file}".strip(), folder)
