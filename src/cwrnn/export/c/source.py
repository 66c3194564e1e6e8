"""`to_c`: a network as one header and one source in C99, which need no library."""

import textwrap
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...cells import CELLS
from ...experiments.errors import ArgumentError
from ...experiments.file_names import replace_undecodable
from ...experiments.report.numbers import format_count
from ..folder import check_folder, write_folder
from ..model import Exportable, Model, read_model
from .calibration import Calibrating, QuantisationReport, quantise_model
from .features import make_tables, measure_frames, render_features
from .identifiers import check_name
from .integer_plan import IntegerPlan, plan_integers
from .integer_source import render_integer_network
from .plan import Plan, plan_network
from .template_values import collect_values
from .templates import render

NUMBERS = ("float32", "int8")
"""The kinds of numbers that a network can be exported with."""
WIDTH = 116
"""The most characters of a line of a comment."""


@dataclass(frozen=True)
class CExport:
    """A network that was exported to C. `print` shows the files and the counts, and `to_dict` returns them for JSON."""

    name: str
    """The name that every function begins with."""
    numbers: str
    """The kind of its numbers."""
    files: tuple[Path, ...]
    """The header and the source."""
    inputs: int
    outputs: int
    mean_multiply_adds: float
    """Multiply-adds of a step on average, without the readout."""
    worst_multiply_adds: int
    """Multiply-adds of the step with the most work, without the readout."""
    readout_multiply_adds: int
    """Multiply-adds of the readout, each time that it is asked for."""
    constant_bytes: int
    """Read-only memory for weights and biases; the code comes on top."""
    state_bytes: int
    """Memory of one stream."""
    feature_constant_bytes: int = 0
    """Read-only memory for the tables of the features of a recogniser."""
    feature_state_bytes: int = 0
    """Memory of the features of one stream."""
    quantisation: QuantisationReport | None = None
    """How far the network in int8 is from float32; None for float32."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, which JSON can hold."""
        paths = [replace_undecodable(str(path.resolve())) for path in self.files]
        quantisation = None if self.quantisation is None else asdict(self.quantisation)
        return {**self.__dict__, "files": paths, "quantisation": quantisation}

    def __str__(self) -> str:
        return "\n".join(
            [
                *(replace_undecodable(str(path)) for path in self.files),
                f"{format_count(self.inputs, 'input')}, {format_count(self.outputs, 'output')}, {self.numbers}",
                f"multiply-adds per step: {self.mean_multiply_adds:,.0f} on average, {self.worst_multiply_adds:,} at "
                "most" + (f"; readout: {self.readout_multiply_adds:,}" if self.readout_multiply_adds else ""),
                f"flash: {self.constant_bytes:,} bytes and the code; RAM: {self.state_bytes:,} bytes for each stream",
                *(
                    [
                        f"features: {self.feature_constant_bytes:,} bytes of flash and the code; RAM: "
                        f"{self.feature_state_bytes:,} bytes for each stream"
                    ]
                    if self.feature_state_bytes
                    else []
                ),
                *([str(self.quantisation)] if self.quantisation is not None else []),
            ]
        )


def to_c(
    model: Exportable,
    out: str | PathLike[str],
    *,
    name: str = "network",
    numbers: str = "float32",
    calibration: Calibrating | None = None,
) -> CExport:
    """Writes a network as NAME.h and NAME.c into a new folder.

    The source is C99 and needs no library and no memory but its state. With contraction of floating-point expressions
    switched off, it computes the same bits on every machine. The files of a recogniser also compute its features from
    a stream of samples.

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        out: the folder to write, which must not exist or be empty
        name: a C identifier, with which the names of both files and of all functions begin
        numbers: "float32", or "int8" for weights of 8 bits and steps without floating point
        calibration: for int8, inputs as the network will meet them, which set the ranges of its integers: an array
            (T, inputs) or (T, B, inputs), several arrays (T, inputs), or a .npy, .npz or CSV file of them. For a
            recogniser also sounds (n,) at the rate of its features, or a corpus such as "folder:PATH". Default: for a
            recogniser the words that come with the package

    Raises:
        ArgumentError: `out`, `name`, `numbers` or `calibration` cannot be used
        ExportError: the model cannot be exported
        ImportError: an extra is not installed, such as `export`
        ModelError: the file `model` is not a saved network

    Example::

        result = cwrnn.export.to_c("words.safetensors", "firmware/words", name="word_model")
        print(result)
    """
    check_name(name)
    check_numbers(numbers, calibration)
    folder = check_folder(out)
    plan, report = plan_program(read_model(model), numbers, calibration)
    texts = render_program(plan, name)
    whole, features = find_plan(plan), plan.model.features
    return CExport(
        name=name,
        numbers=numbers,
        files=write_folder(folder, texts),
        inputs=plan.model.inputs,
        outputs=plan.model.outputs,
        mean_multiply_adds=whole.mean_multiply_adds,
        worst_multiply_adds=whole.worst_multiply_adds,
        readout_multiply_adds=whole.readout_multiply_adds,
        constant_bytes=plan.constant_bytes,
        state_bytes=plan.state_bytes,
        feature_constant_bytes=0 if features is None else make_tables(features).nbytes,
        feature_state_bytes=0 if features is None else measure_frames(features.settings).state_bytes,
        quantisation=report,
    )


def plan_program(
    model: Model, numbers: str, calibration: Calibrating | None = None
) -> tuple[Plan | IntegerPlan, QuantisationReport | None]:
    """The plan of a model with these numbers, and for int8 how far it is from float32."""
    if numbers == "float32":
        return plan_network(model), None
    # what no plan can hold is refused before the calibration is read
    plan_network(model)
    quantised, report = quantise_model(model, calibration)
    return plan_integers(quantised), report


def find_plan(plan: Plan | IntegerPlan) -> Plan:
    """The plan of the network in float32, which has the same modules and as many multiply-adds."""
    return plan.plan if isinstance(plan, IntegerPlan) else plan


def render_program(plan: Plan | IntegerPlan, name: str) -> dict[str, str]:
    """The contents of header and source, by the names of the files."""
    if isinstance(plan, IntegerPlan):
        return render_integer_network(plan, name, describe_network(plan, name))
    return render_network(plan, name)


def check_numbers(numbers: str, calibration: Calibrating | None = None) -> None:
    """Raises an ArgumentError unless networks can be exported with this kind of numbers and a calibration."""
    if numbers not in NUMBERS:
        raise ArgumentError("numbers", f"expected one of {', '.join(NUMBERS)}, got {numbers!r}")
    if numbers != "int8" and calibration is not None:
        raise ArgumentError("calibration", f"only int8 is calibrated, got the numbers {numbers}")


def render_network(plan: Plan, name: str) -> dict[str, str]:
    """The contents of header and source, by the names of the files."""
    model, cell = plan.model, CELLS[plan.cell]
    shared = collect_values(plan, name, plan.sums)
    inputs = shared["inputs"].replace("self", "listener")
    values = {
        **shared,
        "plan": plan,
        "modules": plan.modules,
        "rows": plan.rows,
        "gates": cell.gates,
        "biases": cell.biases,
        "message_offset": _format_message_offset(plan, inputs),
        "readout_bias": np.zeros(model.outputs) if model.readout_bias is None else model.readout_bias,
        "readout_weights": None if model.readout_weight is None else plan.readout_weights,
        "head": describe_network(plan, name),
    }
    features = render_features(name, model.features)
    return {f"{name}.{kind}": render(f"network.{kind}.j2", **values, features=features[kind]) for kind in ("h", "c")}


def _format_message_offset(plan: Plan, inputs: str) -> str:
    """The place of a module's first message matrix among its numbers, as an expression in C."""
    cell = CELLS[plan.cell]
    own = cell.biases + 3 * plan.peepholes
    if plan.model.inputs == 0 and len(plan.model.layers) == 1:
        return f"{own}u * listener->units"
    if cell.gates == 1:
        return f"listener->units * (1u + {inputs})"
    return f"listener->units * ({own}u + GATES * {inputs})"


def describe_network(program: Plan | IntegerPlan, name: str) -> list[str]:
    """The lines of the comment at the top of both files: what the network is, and how to call it."""
    plan, is_integer = find_plan(program), isinstance(program, IntegerPlan)
    model: Model = plan.model
    cells = {"tanh": "tanh units", "relu": "ReLU units", "lstm": "LSTM cells", "gru": "GRU cells"}[plan.cell]
    peepholes = " with peepholes" if plan.peepholes else ""
    lines = [
        f"{name}: a Clockwork RNN of {cells}{peepholes}, {format_count(model.inputs, 'input')}, "
        f"{format_count(model.outputs, 'output')}, {'int8' if is_integer else 'float32'}",
        "",
    ]
    for number, layer in enumerate(model.layers, 1):
        if len(model.layers) > 1:
            lines.append(f"Layer {number}, which reads {layer.inputs} numbers:")
        # without its count of operations, which is that of another program
        lines += [
            f"{format_count(layer.units, 'unit')} in {format_count(layer.schedule.modules, 'module')}",
            *str(layer.schedule).splitlines()[1:],
            "",
        ]
    readout = f"; readout: {plan.readout_multiply_adds:,}" if plan.readout_multiply_adds else ""
    lines += [
        f"Multiply-adds per step: {plan.mean_multiply_adds:,.0f} on average, {plan.worst_multiply_adds:,} at "
        f"most{readout}",
        f"Flash: {program.constant_bytes:,} bytes of constants, and the code. RAM: {program.state_bytes:,} bytes per "
        "stream.",
        *_describe_features(model),
        "",
        "How to call it:",
        "",
        *(f"    {line}".rstrip() for line in _describe_calls(model, name, is_integer=is_integer)),
    ]
    return [part for line in lines for part in (textwrap.wrap(line, WIDTH) if len(line) > WIDTH else [line])]


def _describe_features(model: Model) -> list[str]:
    if model.features is None:
        return []
    flash, ram = make_tables(model.features).nbytes, measure_frames(model.features.settings).state_bytes
    return [f"The features: {flash:,} bytes of constants, and the code. RAM: {ram:,} bytes per stream."]


def _describe_calls(model: Model, name: str, *, is_integer: bool) -> list[str]:
    """A program that calls the functions of a network, line by line."""
    NAME, inputs, features = name.upper(), model.inputs > 0, model.features is not None
    input = "0" if not inputs else "quantised" if is_integer else "input"
    idle = f"    {name}_idle(&state); // optional: does part of the step before its input arrives"
    return [
        f"static {name}_state state;",
        *([f"static {name}_features features;", "int16_t sample;"] if features else []),
        *([f"float input[{NAME}_INPUTS];"] if inputs else []),
        *([f"int16_t quantised[{NAME}_INPUTS];"] if inputs and is_integer else []),
        f"{'int32_t' if is_integer else 'float'} output[{NAME}_OUTPUTS];",
        "",
        f"{name}_reset(&state);",
        *([f"{name}_features_reset(&features);"] if features else []),
        "for (;;) {",
        *([] if features else [idle]),
        *(["    ... // wait for the input"] if inputs and not features else []),
        *(["    ... // wait for the sample"] if features else []),
        *([f"    if (!{name}_features_accept(&features, sample, input)) continue;"] if features else []),
        *([f"    {name}_quantise(input, quantised);"] if inputs and is_integer else []),
        f"    {name}_step(&state, {input});",
        f"    {name}_output(&state, output); // whenever the outputs are needed",
        # most samples complete no frame, and a single call is enough for all that follow
        *([idle] if features else []),
        "}",
    ]
