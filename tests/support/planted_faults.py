"""Faults of the CUDA programs that the checks of the emulator must report, each in a copy of the sources."""

import shutil
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from cwrnn.kernels.gpu import compiler


class Fault(NamedTuple):
    """Changes of files: (file, old, new). The report of the checks must then match `report`."""

    name: str
    report: str
    changes: tuple[tuple[str, str, str], ...]


@contextmanager
def planting(fault, folder):
    """Makes the driver read copies of the CUDA files in `folder` that have the fault."""
    copies = folder / "cuda"
    shutil.copytree(compiler.FOLDER, copies)
    for file, old, new in fault.changes:
        text = (copies / file).read_text()
        assert text.count(old) == 1, f"{file} contains {old!r} {text.count(old)} times; it must contain it once"
        (copies / file).write_text(text.replace(old, new))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "FOLDER", copies)
        yield
