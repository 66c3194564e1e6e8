"""`to_c`: a network as one header and one source in C99, which need no library."""

import textwrap
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...cells import CELLS
from ...experiments.errors import ArgumentError
from ...experiments.file_names import replace_undecodable
from ...experiments.report.numbers import format_count
from ...extras import require
from ..folder import check_folder, write_folder
from ..model import Exportable, Model, read_model
from .identifiers import check_name
from .literals import format_floats, format_text
from .plan import Plan, plan_network

NUMBERS = ("float32",)
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

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, which JSON can hold."""
        return {**self.__dict__, "files": [replace_undecodable(str(path.resolve())) for path in self.files]}

    def __str__(self) -> str:
        return "\n".join(
            [
                *(replace_undecodable(str(path)) for path in self.files),
                f"{format_count(self.inputs, 'input')}, {format_count(self.outputs, 'output')}, {self.numbers}",
                f"multiply-adds per step: {self.mean_multiply_adds:,.0f} on average, {self.worst_multiply_adds:,} at "
                "most" + (f"; readout: {self.readout_multiply_adds:,}" if self.readout_multiply_adds else ""),
                f"flash: {self.constant_bytes:,} bytes and the code; RAM: {self.state_bytes:,} bytes for each stream",
            ]
        )


def to_c(model: Exportable, out: str | PathLike[str], *, name: str = "network", numbers: str = "float32") -> CExport:
    """Writes a network as NAME.h and NAME.c into a new folder.

    The source is C99 and needs no library and no memory but its state. With contraction of floating-point expressions
    switched off, it computes the same bits on every machine.

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        out: the folder to write, which must not exist or be empty
        name: a C identifier, with which the names of both files and of all functions begin
        numbers: "float32"

    Raises:
        ArgumentError: `out`, `name` or `numbers` cannot be used
        ExportError: the model cannot be exported
        ModelError: the file `model` is not a saved network

    Example::

        result = cwrnn.export.to_c("words.safetensors", "firmware/words", name="word_model")
        print(result)
    """
    check_name(name)
    check_numbers(numbers)
    folder = check_folder(out)
    plan = plan_network(read_model(model))
    texts = render_network(plan, name)
    return CExport(
        name=name,
        numbers=numbers,
        files=write_folder(folder, texts),
        inputs=plan.model.inputs,
        outputs=plan.model.outputs,
        mean_multiply_adds=plan.mean_multiply_adds,
        worst_multiply_adds=plan.worst_multiply_adds,
        readout_multiply_adds=plan.readout_multiply_adds,
        constant_bytes=plan.constant_bytes,
        state_bytes=plan.state_bytes,
    )


def check_numbers(numbers: str) -> None:
    """Raises an ArgumentError unless networks can be exported with this kind of numbers."""
    if numbers not in NUMBERS:
        raise ArgumentError("numbers", f"expected one of {', '.join(NUMBERS)}, got {numbers!r}")


def render_network(plan: Plan, name: str) -> dict[str, str]:
    """The contents of header and source, by the names of the files."""
    jinja2 = require("jinja2", extra="export", purpose="the export to C")
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda file: (files("cwrnn.export.c") / file).read_text(encoding="utf-8")),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"floats": format_floats, "text": format_text}
    model, cell = plan.model, CELLS[plan.cell]
    layers = len(model.layers)
    inputs = f"{name.upper()}_INPUTS" if layers == 1 else "self->inputs"
    values = {
        "name": name,
        "NAME": name.upper(),
        "model": model,
        "plan": plan,
        "modules": plan.modules,
        "layers": layers,
        "rows": plan.rows,
        "gates": cell.gates,
        "biases": cell.biases,
        "inputs": inputs,
        "reads_input": layers > 1 or model.inputs > 0,
        "source": "input" if layers == 1 else "self->layer ? state->hidden + self->source : input",
        "message_offset": _format_message_offset(plan, inputs.replace("self", "listener")),
        "size": _choose_size(plan),
        "readout_bias": np.zeros(model.outputs) if model.readout_bias is None else model.readout_bias,
        "readout_weights": None if model.readout_weight is None else plan.readout_weights,
        "head": describe_network(plan, name),
    }
    return {f"{name}.{kind}": environment.get_template(f"network.{kind}.j2").render(values) for kind in ("h", "c")}


def _format_message_offset(plan: Plan, inputs: str) -> str:
    """The place of a module's first message matrix among its numbers, as an expression in C."""
    cell = CELLS[plan.cell]
    own = cell.biases + 3 * plan.peepholes
    if plan.model.inputs == 0 and len(plan.model.layers) == 1:
        return f"{own}u * listener->units"
    if cell.gates == 1:
        return f"listener->units * (1u + {inputs})"
    return f"listener->units * ({own}u + GATES * {inputs})"


def _choose_size(plan: Plan) -> str:
    """The type that holds every size and every place of the tables."""
    largest = max(plan.sums, plan.units, *(module.inputs for module in plan.modules))
    return "uint16_t" if largest < 2**16 else "uint32_t"


def describe_network(plan: Plan, name: str) -> list[str]:
    """The lines of the comment at the top of both files: what the network is, and how to call it."""
    model: Model = plan.model
    cells = {"tanh": "tanh units", "relu": "ReLU units", "lstm": "LSTM cells", "gru": "GRU cells"}[plan.cell]
    peepholes = " with peepholes" if plan.peepholes else ""
    lines = [
        f"{name}: a Clockwork RNN of {cells}{peepholes}, {format_count(model.inputs, 'input')}, "
        f"{format_count(model.outputs, 'output')}, float32",
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
        f"Flash: {plan.constant_bytes:,} bytes of constants, and the code. RAM: {plan.state_bytes:,} bytes per stream.",
        "",
        "How to call it:",
        "",
        f"    static {name}_state state;",
        *([f"    float input[{name.upper()}_INPUTS];"] if model.inputs else []),
        f"    float output[{name.upper()}_OUTPUTS];",
        "",
        f"    {name}_reset(&state);",
        "    for (;;) {",
        f"        {name}_idle(&state); // optional: does a part of the step before its input is there",
        *(["        ... // wait for the input"] if model.inputs else []),
        f"        {name}_step(&state, {'input' if model.inputs else '0'});",
        f"        {name}_output(&state, output); // whenever the outputs are needed",
        "    }",
    ]
    return [part for line in lines for part in (textwrap.wrap(line, WIDTH) if len(line) > WIDTH else [line])]
