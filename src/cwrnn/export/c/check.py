"""`check_c`: compile the C program of a network, compare it with Python, and measure what it costs."""

import ctypes
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...experiments.limits import LARGEST_LENGTH, check_count
from ...experiments.progress import Progress, ProgressCallback
from ...experiments.text_table import format_table
from ..model import Exportable, ExportError, Model, read_model
from ..rivals import make_rivals
from ..running import compute_outputs
from .calibration import Calibrating, QuantisationReport
from .compilers import LIBRARY, compile_program, find_compiler
from .cost import Cost, measure_cost
from .identifiers import check_name
from .integer_plan import IntegerPlan, plan_integers
from .integers import compute_outputs as compute_integers
from .integers import quantise_inputs
from .plan import Plan, plan_network
from .quantisation import LARGEST_STATE, Ranges, quantise
from .source import check_numbers, plan_program, render_program

TOLERANCE = 1e-5
"""The largest difference from Python, as a share of the largest output, or of 1 if that is smaller."""
CHAOS = 10.0
"""A network that amplifies rounding errors may differ by this many times the difference of the same network in float32
in Python."""
LARGEST_RIVAL_CELL = 4.0
"""The range of the cells of an LSTM that a network in int8 is compared with: its cost does not depend on it."""
STEPS = 10_000
"""How many steps are compared."""

DRIVER = """#include "{name}.h"
uint32_t size_of_state(void);
void run(void *state, uint32_t steps, const {input} *input, const uint8_t *idle, {output} *output);
uint32_t size_of_state(void)
{{
    return (uint32_t)sizeof({name}_state);
}}
void run(void *state, uint32_t steps, const {input} *input, const uint8_t *idle, {output} *output)
{{
    {name}_reset(({name}_state *)state);
    while (steps-- > 0) {{
        uint8_t times = *idle++;
        while (times-- > 0)
            {name}_idle(({name}_state *)state);
        {name}_step(({name}_state *)state, input);
        {name}_output((const {name}_state *)state, output);
        input += {NAME}_INPUTS;
        output += {NAME}_OUTPUTS;
    }}
}}
"""
"""A function that makes all steps of a stream, with calls of idle between them."""


@dataclass(frozen=True)
class CCheck:
    """A program that was compared with Python and measured. `print` shows a table, `to_dict` returns it for JSON."""

    compiler: str
    """The compiler of the program that was compared."""
    steps: int
    """How many steps were compared."""
    difference: float
    """The largest difference of an output from Python's: in float64, or for int8 in the same integers."""
    costs: tuple[Cost, ...]
    """The cost of the network, and of networks without clocks."""
    quantisation: QuantisationReport | None = None
    """How far the network in int8 is from float32; None for float32."""

    def to_dict(self) -> dict[str, Any]:
        """Returns all numbers, which JSON can hold."""
        quantisation = None if self.quantisation is None else asdict(self.quantisation)
        return {**self.__dict__, "costs": [asdict(cost) for cost in self.costs], "quantisation": quantisation}

    def __str__(self) -> str:
        has_instructions = self.costs[0].mean_instructions is not None
        headers = ["network", "units", "parameters", "multiply-adds\nmean", "\nworst"]
        headers += ["instructions\nmean", "\nworst"] if has_instructions else []
        headers += ["flash\nbytes", "RAM\nbytes"]
        differs = f"differs from Python by at most {self.difference:.1e}"
        caption = (
            f"Compiled with {self.compiler}, the program "
            f"{differs if self.quantisation is None else 'computes the same integers as Python'} over "
            f"{self.steps:,} steps. Work is per step and without the readout. RAM is that of one stream. "
        )
        caption += (
            "Instructions are those of an emulated Cortex-M4F (zig cc -O2)."
            if has_instructions
            else "Flash is without code. To count instructions: pip install 'cwrnn[export]'."
        )
        return format_table("Cost of the network, and of networks without clocks", headers,
                            [cost.format() for cost in self.costs], caption)  # fmt: skip


def check_c(
    model: Exportable,
    *,
    name: str = "network",
    numbers: str = "float32",
    calibration: Calibrating | None = None,
    steps: int = STEPS,
    progress: ProgressCallback | None = None,
) -> CCheck:
    """Compiles the C program of a network, compares its outputs with Python's, and measures its cost.

    The program runs on this machine over a stream of random inputs, with calls of idle between its steps. With the
    extra `export` its instructions are counted on an emulated Cortex-M4F, beside those of an RNN of as many units and
    of an RNN, an LSTM and a GRU of as many parameters. Nothing is left on the disk.

    Args:
        model: a file of a saved network or a recogniser, or one of these, a `Network` or a layer in memory
        name: the name that every function of the program begins with
        numbers: "float32" or "int8"
        calibration: for int8, inputs as the network will meet them, as `to_c` takes them
        steps: how many steps are compared
        progress: called while the costs are measured

    Raises:
        ArgumentError: `name`, `numbers`, `calibration` or `steps` cannot be used
        ExportError: the model cannot be exported, there is no compiler, or the program differs from Python
        ImportError: an extra is not installed, such as `export`
        ModelError: the file `model` is not a saved network

    Example::

        print(cwrnn.export.check_c("words.safetensors"))
    """
    check_name(name)
    check_numbers(numbers, calibration)
    check_count("steps", steps, LARGEST_LENGTH)
    read = read_model(model)
    compiler = find_compiler()
    plan, quantisation = plan_program(read, numbers, calibration)
    networks: dict[str, Model | IntegerPlan] = {"this network": read, **make_rivals(read)}
    if isinstance(plan, IntegerPlan):
        networks = {"this network": plan, **quantise_rivals(plan)}
    report = progress or (lambda progress: None)
    report(Progress("comparing with Python", 0, len(networks) + 1, 0.0))
    if isinstance(plan, IntegerPlan):
        steps, difference = compare_integers(plan, name, compiler, steps)
    else:
        steps, difference = compare_with_python(read, name, compiler, steps)
    costs = []
    is_countable = can_count()
    for done, (title, network) in enumerate(networks.items(), 1):
        total = len(networks) + 1
        report(Progress("counting instructions", done, total, done / total))
        costs.append(measure_cost(network, title, count=is_countable))
    return CCheck(" ".join(compiler), steps, difference, tuple(costs), quantisation)


def quantise_rivals(plan: IntegerPlan) -> dict[str, IntegerPlan]:
    """Networks without clocks in int8, by their descriptions.

    Their cost does not depend on ranges. With those of the network, their random weights might not fit int8, so the
    sum of their inputs is at most 1.
    """
    inputs = plan.model.inputs
    ranges = Ranges((1 / max(inputs, 1),) * inputs, hidden=1.0, cells=LARGEST_RIVAL_CELL)
    return {title: plan_integers(quantise(rival, ranges)) for title, rival in make_rivals(plan.model).items()}


def can_count() -> bool:
    """True if everything is installed that counts instructions."""
    return all(importlib.util.find_spec(package) for package in ("elftools", "unicorn", "ziglang"))


def compare_with_python(model: Model, name: str, compiler: list[str], steps: int) -> tuple[int, float]:
    """The number of steps that were compared, and the largest difference; an ExportError if it is too large.

    Steps after an output that is not finite, or not in float32 in Python, are not compared.
    """
    generator = np.random.default_rng(0)
    input = generator.standard_normal((steps, model.inputs)).astype(np.float32)
    idle = generator.integers(0, 3, steps).astype(np.uint8)
    with load_program(model, name, compiler) as program:
        output = program.run(input, idle)
    exact, rounded = compute_outputs(model, input), compute_outputs(model, input, np.float32)
    is_finite = (np.isfinite(exact) & np.isfinite(rounded)).all(axis=1)
    end = steps if is_finite.all() else int(is_finite.argmin())
    if end == 0:
        raise ExportError("the outputs of the network are not finite, not even in Python")
    exact, rounded, output = exact[:end], rounded[:end], output[:end]
    difference = float(np.abs(output - exact).max())
    allowed = TOLERANCE * max(1.0, float(np.abs(exact).max())) + CHAOS * float(np.abs(rounded - exact).max())
    if not difference <= allowed:
        raise ExportError(
            f"the C program differs from Python by {difference:.1e} over {end} steps, expected at most {allowed:.1e}: "
            f"the compiler {' '.join(compiler)} may have changed its arithmetic"
        )
    return end, difference


def compare_integers(plan: IntegerPlan, name: str, compiler: list[str], steps: int) -> tuple[int, float]:
    """The number of steps that were compared, and the difference, which is 0; an ExportError otherwise."""
    generator = np.random.default_rng(0)
    # of all sizes, up to the largest
    real = generator.uniform(-1.2, 1.2, (steps, plan.model.inputs)) * plan.quantised.input_units * LARGEST_STATE
    input = quantise_inputs(plan.quantised, real.astype(np.float32))
    idle = generator.integers(0, 3, steps).astype(np.uint8)
    with load_program(plan, name, compiler) as program:
        output = program.run(input.astype(np.int16), idle)
    different = (output != compute_integers(plan.quantised, input[:, None])[:, 0]).any(axis=1)
    if different.any():
        raise ExportError(
            f"the C program computes other integers than Python at step {different.argmax()} of {steps}: the compiler "
            f"{' '.join(compiler)} may have changed its arithmetic"
        )
    return steps, 0.0


class Program:
    """A compiled program in the memory of this process."""

    def __init__(self, library: ctypes.CDLL, plan: Plan | IntegerPlan) -> None:
        self._library, self._plan = library, plan

    def run(self, input: NDArray[Any], idle: Any) -> NDArray[Any]:
        """The outputs (T, outputs) for the input (T, inputs), with idle[t] calls of idle before step t."""
        # a multiple of 8 bytes at an address that is one too
        state = (ctypes.c_uint64 * (-(-self._library.size_of_state() // 8)))()
        dtype = np.int32 if isinstance(self._plan, IntegerPlan) else np.float32
        output = np.empty((len(input), self._plan.model.outputs), dtype)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (input, idle, output)]
        self._library.run(state, ctypes.c_uint32(len(input)), *pointers)
        return output


@contextmanager
def load_program(model: Model | IntegerPlan, name: str, compiler: list[str]) -> Iterator[Program]:
    """Compiles the program of a model into a temporary folder and loads it; at the end, both are removed."""
    plan = model if isinstance(model, IntegerPlan) else plan_network(model)
    input, output = ("int16_t", "int32_t") if isinstance(plan, IntegerPlan) else ("float", "float")
    driver = DRIVER.format(name=name, NAME=name.upper(), input=input, output=output)
    # Windows does not remove a library that is loaded
    with tempfile.TemporaryDirectory(prefix="cwrnn-", ignore_cleanup_errors=sys.platform == "win32") as temporary:
        folder = Path(temporary)
        for file, text in render_program(plan, name).items():
            (folder / file).write_text(text, encoding="utf-8")
        # no name of a network has a hyphen
        (folder / "the-driver.c").write_text(driver, encoding="utf-8")
        sources = [folder / f"{name}.c", folder / "the-driver.c"]
        path = compile_program(compiler, sources, folder / "the-program.so", *LIBRARY)
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            chosen = os.environ.get("CC")
            origin = f"CC={chosen}" if chosen else " ".join(compiler)
            raise ExportError(
                f"the program of {origin} does not run on this machine: the check needs a compiler for this machine "
                f"({error})"
            ) from error
        yield Program(library, plan)
