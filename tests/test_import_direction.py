"""Imports go one way, from the schedule to the commands; kernels and optional packages have few importers."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cwrnn

SOURCE = Path(cwrnn.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# a file or folder imports itself and those before it
ORDER = [
    "extras", "writing", "untrusted", "cache_folder", "schedule", "cells", "reference",
    "checks", "sequences", "held", "phases", "scan", "step", "cascade",
    "kernels", "cudnn_layer", "gru_at_once", "gru_steps", "cudnn", "backends", "environment",
    "state_dicts", "parameters", "fx_tracing", "layer", "rnn", "lstm", "gru", "streams",
    "readout", "init", "soft_clocks", "learned",
    "network", "tensor_files", "saved_states", "saved", "inspection", "__init__",
    "estimators", "bench", "experiments", "export", "commands", "__main__",
]  # fmt: skip

KERNEL_IMPORTERS = {
    "backends.py",
    # it decides as the kernels do which calls it takes, and is differentiated again as they are
    "cudnn.py",
    "cudnn_layer.py",
    "gru_at_once.py",
    "gru_steps.py",
    # they compute an LSTM and many networks at once, for which the layer and its backends have no place
    "experiments/networks/lstm.py",
    "experiments/networks/replicas.py",
}


LAZY = {"cwrnn.experiments.inspect.model.inspect"}
"""Names of the package that are imported when they are first used; only type checkers see the import."""


def imported_names(path: Path) -> Iterator[str]:
    """The full name of everything that a file imports, such as "cwrnn.layer.ClockworkRNN" or "typer"."""
    package = ["cwrnn", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(parents + ([node.module] if node.module else []))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def test_files_import_only_what_comes_before_them():
    assert len(FILES) > 80
    wrong = []
    for path in FILES:
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        allowed = {*ORDER[: ORDER.index(room) + 1], "__version__"} - ({"bench"} if room == "experiments" else set())
        for name in imported_names(path):
            is_lazy = room == "__init__" and name in LAZY
            if name.split(".")[0] == "cwrnn" and name.split(".")[1] not in allowed and not is_lazy:
                wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_few_files_import_kernels():
    importers = {
        path.relative_to(SOURCE).as_posix()
        for path in FILES
        if SOURCE / "kernels" not in path.parents
        and any(name.startswith("cwrnn.kernels") for name in imported_names(path))
    }
    assert importers == KERNEL_IMPORTERS


def test_only_commands_import_typer():
    importers = [path for path in FILES if any(name.split(".")[0] == "typer" for name in imported_names(path))]
    assert importers
    assert all(SOURCE / "commands" in path.parents for path in importers)


def test_importing_cwrnn_imports_no_optional_package():
    names = ("scipy", "typer", "matplotlib", "sklearn", "pandas")
    code = f"import sys, cwrnn; print([name for name in {names} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
