"""The files of an export to ONNX: one model for whole sequences, those for single steps, and what loads these."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ...experiments.file_names import replace_undecodable
from ...experiments.limits import check_count
from ...experiments.progress import Progress, ProgressCallback
from ...experiments.report.numbers import format_count
from ..c.identifiers import check_name
from ..folder import check_folder, write_folder
from ..model import Exportable, Model, read_model
from . import stepper
from .checking import compare_files, list_cases
from .graph import require_onnx
from .sequence import build_sequence
from .step import build_step

OPSETS = 14, 17
"""The oldest opset that has all operators, and the default, which runtimes since 2022 can read."""


@dataclass(frozen=True)
class OnnxExport:
    """A network that was exported to ONNX. `print` shows the files, and `to_dict` returns all facts for JSON."""

    name: str
    """The name that the files begin with."""
    opset: int
    """The version of the operators."""
    files: tuple[Path, ...]
    """The model for whole sequences, those for single steps, their description and the file of OnnxStepper."""
    inputs: int
    """The number of inputs at every step."""
    outputs: int
    """The number of outputs."""
    bytes: int
    """The size of all files."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, which JSON can hold."""
        return {**self.__dict__, "files": [replace_undecodable(str(path.resolve())) for path in self.files]}

    def __str__(self) -> str:
        names = [replace_undecodable(str(path)) for path in self.files]
        counts = f"{format_count(self.inputs, 'input')}, {format_count(self.outputs, 'output')}"
        return "\n".join([*names, f"{counts}, opset {self.opset}, {self.bytes:,} bytes"])


@dataclass(frozen=True)
class OnnxCheck:
    """An export that was compared with the specification. `print` shows the error, `to_dict` returns it for JSON."""

    runtime: str
    """The runtime that ran the models, with its version."""
    error: float
    """The largest difference from the specification in float64, relative to the largest number."""
    steps: int
    """How many steps were compared, as sequences and one by one."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, which JSON can hold."""
        return {**self.__dict__}

    def __str__(self) -> str:
        return (
            f"In {self.runtime}, the models differ from Python by at most {self.error:.1e} over {self.steps:,} steps, "
            "as sequences and one by one."
        )


def to_onnx(
    model: Exportable,
    out: str | PathLike[str],
    *,
    name: str = "network",
    opset: int = OPSETS[1],
    check: bool = False,
) -> OnnxExport:
    """Writes a network as ONNX models into a new folder.

        NAME.onnx           whole sequences, or chunks of a stream: all modules at once
        NAME_step_I.onnx    one time step at which module I is the slowest one due
        NAME_hold.onnx      the output at a step without a tick, if there are such steps
        NAME.json           the schedule and the labels
        stepper.py          OnnxStepper, which runs the models of single steps

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        out: the folder, which must be new or empty
        name: a C identifier as for `to_c`, with which the names of the files begin
        opset: the version of ONNX's operators, at least 14
        check: if True, the models are compared with Python before they are written, as by `check_onnx`

    Raises:
        ArgumentError: an argument cannot be used
        ExportError: the model cannot be exported, or the check fails
        ModelError: the file `model` is not a saved network
        ImportError: the extra `onnx` is missing

    >>> from cwrnn import ClockworkRNN
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export = to_onnx(ClockworkRNN(3, 8, schedule=[1, 2]), Path(folder) / "exported", check=True)
    >>> [file.name for file in export.files]
    ['network.onnx', 'network_step_0.onnx', 'network_step_1.onnx', 'network.json', 'stepper.py']
    """
    opset = _check_arguments(name, opset)
    folder = check_folder(out)
    read = read_model(model)
    contents = _build_files(read, name, opset)
    if check:
        _compare(read, contents, name)
    files = write_folder(folder, contents)
    return OnnxExport(name, opset, files, read.inputs, read.outputs, sum(map(len, contents.values())))


def check_onnx(
    model: Exportable,
    *,
    name: str = "network",
    opset: int = OPSETS[1],
    progress: ProgressCallback | None = None,
) -> OnnxCheck:
    """Compares the ONNX models of a network with Python, and leaves nothing on the disk.

    `onnx.checker` reads every model. Then onnxruntime runs sequences of several lengths, from several times of the
    clock and in several batches, and the same sequences step by step.

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        name: a C identifier as for `to_c`, with which the names of the files would begin
        opset: the version of ONNX's operators, at least 14
        progress: called before the comparison

    Raises:
        ArgumentError: `name` or `opset` cannot be used
        ExportError: the model cannot be exported, or an ONNX model differs from Python
        ModelError: the file `model` is not a saved network
        ImportError: the extra `onnx` is missing

    >>> from cwrnn import ClockworkRNN
    >>> check_onnx(ClockworkRNN(3, 8, schedule=[1, 2])).error < 1e-5
    True
    """
    opset = _check_arguments(name, opset)
    read = read_model(model)
    if progress is not None:
        progress(Progress("comparing with Python", 0, 1, 0.0))
    error = _compare(read, _build_files(read, name, opset), name)
    version = require_onnx("onnxruntime").__version__
    return OnnxCheck(f"onnxruntime {version}", error, sum(T * B for T, B, _ in list_cases(read)))


def _check_arguments(name: str, opset: int) -> int:
    """The opset as a plain integer; an ArgumentError if it or the name cannot be used."""
    check_name(name)
    return check_count("opset", opset, require_onnx("onnx.defs").onnx_opset_version(), least=OPSETS[0])


def _compare(model: Model, contents: Mapping[str, bytes], name: str) -> float:
    """The error of files that are not written yet."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), contents)
        return compare_files(model, folder, name)


def _build_files(model: Model, name: str, opset: int) -> dict[str, bytes]:
    """The contents of all files, by their names."""
    schedule = model.layers[0].schedule
    files = {f"{name}.onnx": build_sequence(model, name, opset).SerializeToString()}
    for i in range(schedule.modules):
        files[f"{name}_step_{i}.onnx"] = build_step(model, i, name, opset).SerializeToString()
    if schedule.periods[0] > 1:
        files[f"{name}_hold.onnx"] = build_step(model, None, name, opset).SerializeToString()
    description = {
        "cell": model.layers[0].cell,
        "periods": schedule.periods,
        "sizes": schedule.sizes,
        "layers": len(model.layers),
        "inputs": model.inputs,
        "outputs": model.outputs,
        "labels": model.labels,
    }
    files[f"{name}.json"] = (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode()
    files["stepper.py"] = Path(stepper.__file__).read_bytes()
    return files
