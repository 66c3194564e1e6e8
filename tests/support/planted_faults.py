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


def change_programs(fault):
    """The texts of the CUDA files that have the fault, by their names."""
    texts = {}
    for file, old, new in fault.changes:
        text = texts.get(file) or (compiler.FOLDER / file).read_text()
        count = text.count(old)
        assert count == 1, f"{fault.name}: {file} contains {old!r} {count} times; it must contain it once"
        texts[file] = text.replace(old, new)
    return texts


@contextmanager
def planting(fault, folder):
    """Makes the driver read copies of the CUDA files in `folder` that have the fault."""
    copies = folder / "cuda"
    shutil.copytree(compiler.FOLDER, copies)
    for file, text in change_programs(fault).items():
        (copies / file).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "FOLDER", copies)
        yield
