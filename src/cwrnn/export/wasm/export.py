"""The export to WebAssembly: a module, its wrapper in JavaScript, and a page that runs it.

    NAME.wasm    the network, compiled from the C code of `to_c`: the same bits, no imports
    NAME.js      an ES module that loads it: step, output, reset, several streams
    NAME.html    a page that runs it without a network connection; the module and the wrapper are inside

All three are written, or none.
"""

import base64
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ... import __version__
from ...experiments.file_names import replace_undecodable
from ...experiments.report.numbers import format_count
from ..c.calibration import Calibrating, QuantisationReport
from ..c.identifiers import check_name
from ..c.integer_plan import IntegerPlan
from ..c.plan import Plan
from ..c.source import check_numbers, plan_program, render_program
from ..folder import check_folder, write_folder
from ..model import Exportable, Model, read_model
from .compiler import compile_module
from .templates import make_template_environment, read_file, read_style

SCRIPTS = ("chart.js", "sound.js", "page.js")
"""The files of the page's script, after the wrapper."""


@dataclass(frozen=True)
class WasmExport:
    """A network that was exported to WebAssembly. `print` shows the files, and `to_dict` returns them for JSON."""

    name: str
    """The name of the files."""
    numbers: str
    """The kind of its numbers."""
    files: tuple[Path, ...]
    """The module, the wrapper and the page."""
    inputs: int
    """The number of inputs at every step."""
    outputs: int
    """The number of outputs."""
    size: int
    """The bytes of the module."""
    quantisation: QuantisationReport | None = None
    """For int8, how far the outputs are from those in float32."""

    def to_dict(self) -> dict[str, Any]:
        """Returns the export, which JSON can hold."""
        paths = [replace_undecodable(str(path.resolve())) for path in self.files]
        quantisation = None if self.quantisation is None else asdict(self.quantisation)
        return {**self.__dict__, "files": paths, "quantisation": quantisation}

    def __str__(self) -> str:
        return "\n".join(
            [
                *(replace_undecodable(str(path)) for path in self.files),
                f"{format_count(self.inputs, 'input')}, {format_count(self.outputs, 'output')}, {self.numbers}",
                f"{self.name}.wasm has {self.size:,} bytes; open {self.name}.html in a browser to try it",
                *([str(self.quantisation)] if self.quantisation is not None else []),
            ]
        )


def to_wasm(
    model: Exportable,
    out: str | PathLike[str],
    *,
    name: str = "network",
    numbers: str = "float32",
    calibration: Calibrating | None = None,
) -> WasmExport:
    """Writes a network as NAME.wasm, NAME.js and NAME.html into a new folder.

    The module is the C program of `to_c`, and computes the same bits. NAME.js loads it in browsers and in Node.js.
    NAME.html runs it without a network connection: numbers or, for a recogniser, sound.

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        out: the folder to write, which must not exist or be empty
        name: the name of the files, a C identifier
        numbers: "float32", or "int8" for weights of 8 bits
        calibration: for int8, inputs as the network will meet them, as `to_c` takes them

    Raises:
        ArgumentError: `out`, `name`, `numbers` or `calibration` cannot be used
        ExportError: the model cannot be exported, or there is no compiler
        ModelError: the file `model` is not a saved network
        ImportError: the extra `export` is missing

    Example::

        result = cwrnn.export.to_wasm("words.safetensors", "site/words", name="words")
        print(result)
    """
    check_name(name)
    check_numbers(numbers, calibration)
    folder = check_folder(out)
    network = read_model(model)
    plan, report = plan_program(network, numbers, calibration)
    module = compile_network(plan, name)
    contents: dict[str, str | bytes] = {
        f"{name}.wasm": module,
        f"{name}.js": render_wrapper(network, name),
        f"{name}.html": render_page(network, name, module),
    }
    files = write_folder(folder, contents)
    return WasmExport(name, numbers, files, network.inputs, network.outputs, len(module), report)


def compile_network(plan: Plan | IntegerPlan, name: str) -> bytes:
    """Returns the module of a network: its C program, and the functions that JavaScript calls."""
    template = make_template_environment().get_template("exports.c.j2")
    exports = template.render(_describe(plan.model, name), is_integer=isinstance(plan, IntegerPlan))
    # the name of an exported network has no hyphen
    return compile_module({**render_program(plan, name), "wasm-exports.c": exports})


def render_wrapper(model: Model, name: str) -> str:
    """Returns the wrapper in JavaScript."""
    return str(make_template_environment().get_template("wrapper.js.j2").render(_describe(model, name)))


def render_page(model: Model, name: str, module: bytes) -> str:
    """Returns the page, which holds the module and the wrapper."""
    settings = None if model.features is None else model.features.settings
    values = _describe(model, name)
    data = {key: values[key] for key in ("name", "inputs", "outputs", "softmax", "periods")} | {
        "labels": list(model.labels) or [f"output {number}" for number in range(1, model.outputs + 1)],
        "rate": settings and settings.rate,
        "window": settings and settings.window,
        "step": settings and settings.step,
        "wasm": base64.b64encode(module).decode(),
    }
    script = "\n".join([render_wrapper(model, name), *map(read_file, SCRIPTS)])
    template = make_template_environment().get_template("page.html.j2")
    return str(template.render(values, data=data, script=script, style=read_style(), size=len(module)))


def _describe(model: Model, name: str) -> dict[str, Any]:
    """Returns the values that templates print."""
    return {
        "name": name,
        "version": __version__,
        "description": describe_network(model),
        "inputs": model.inputs,
        "outputs": model.outputs,
        "labels": list(model.labels),
        "softmax": model.softmax,
        "periods": list(model.layers[0].schedule.periods),
        "features": model.features,
        "rate": None if model.features is None else model.features.settings.rate,
    }


def describe_network(model: Model) -> str:
    """Returns the network in words, with the numbers of its inputs, units, modules and outputs."""
    layer = model.layers[0]
    kind = {"lstm": "Clockwork LSTM", "gru": "Clockwork GRU"}.get(layer.cell, "Clockwork RNN")
    what = f"a {kind} that tells {model.outputs} words apart" if model.features is not None else f"a {kind}"
    layers = f"{len(model.layers)} layers of " if len(model.layers) > 1 else ""
    parts = [
        format_count(model.inputs, "input"),
        f"{layers}{format_count(layer.units, 'unit')} in {format_count(layer.schedule.modules, 'module')}",
        format_count(model.outputs, "output"),
    ]
    return f"{what}: {', '.join(parts)}"
