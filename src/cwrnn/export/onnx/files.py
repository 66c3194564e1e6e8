"""The files of an export to ONNX: one model for whole sequences, those for single steps, and what loads these."""

import json
import re
import tempfile
from os import PathLike
from pathlib import Path

from ...experiments.errors import ArgumentError
from ...writing import write_files
from ..folder import check_folder
from ..model import Exportable, Model, read_model
from . import stepper
from .checking import check_onnx
from .graph import require_onnx
from .sequence import build_sequence
from .step import build_step

OPSETS = 14, 17
"""The oldest opset that has all operators, and the default, which runtimes since 2022 can read."""


def to_onnx(
    source: Exportable,
    out: str | PathLike[str],
    *,
    name: str = "network",
    opset: int = OPSETS[1],
    check: bool = False,
) -> tuple[Path, ...]:
    """Exports a model to ONNX, and returns the files that it has written into the folder `out`.

        NAME.onnx           whole sequences, or chunks of a stream: all modules at once
        NAME_step_I.onnx    one time step at which module I is the slowest one due
        NAME_hold.onnx      the output at a step without a tick, if there are such steps
        NAME.json           the schedule and the labels
        stepper.py          OnnxStepper, which runs the models of single steps

    Args:
        source: the file of a saved network or recogniser, or one of these in memory, a `Network`, or a layer
        out: a new folder
        name: the name of the network, in the names of the files
        opset: the version of ONNX's operators, at least 14
        check: if True, the models are compared with the specification in onnxruntime before they are written

    Raises an ExportError if the model cannot be exported or the check fails, and an ArgumentError if an argument has a
    value that it cannot have. Needs the extra `onnx`.

    >>> from cwrnn import ClockworkRNN
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = to_onnx(ClockworkRNN(3, 8, schedule=[1, 2]), Path(folder) / "exported", check=True)
    >>> [file.name for file in files]
    ['network.onnx', 'network_step_0.onnx', 'network_step_1.onnx', 'network.json', 'stepper.py']
    """
    if not re.fullmatch(r"[A-Za-z_]\w{0,63}", name, re.ASCII):
        raise ArgumentError("name", f"expected at most 64 letters, digits and underscores, got {name!r}")
    newest = require_onnx("onnx.defs").onnx_opset_version()
    if not OPSETS[0] <= opset <= newest:
        raise ArgumentError("opset", f"expected {OPSETS[0]} to {newest}, got {opset}")
    folder = check_folder(out)
    model = read_model(source)
    files = _build_files(model, name, opset)
    if check:
        with tempfile.TemporaryDirectory() as temporary:
            write_files({Path(temporary) / file: content for file, content in files.items()})
            check_onnx(source, temporary, name)
    write_files({folder / file: content for file, content in files.items()})
    return tuple(folder / file for file in files)


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
