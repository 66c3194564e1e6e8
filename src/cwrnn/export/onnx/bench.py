"""Times exported networks in onnxruntime, side by side with dense layers of the same size.

    python -m cwrnn.export.onnx.bench                             sequences and steps: some minutes
    python -m cwrnn.export.onnx.bench 1024,8,1024,1,32            sequences: units, modules, steps, batch, inputs
    python -m cwrnn.export.onnx.bench --layer LSTM --threads 2 --repeats 9 --json out/onnx.json

A dense layer runs in two ways: as the operator RNN, LSTM or GRU, and as the export of our layer with one module of
period 1, which computes the same. Before anything is timed, its output is compared with that of torch. Each number is
the median of several turns, and everything that is compared takes its turns side by side.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...bench.layers import CELL_NAMES, OUR_LAYERS, SIZE_HEAD, TORCH_LAYERS, Size
from ...bench.timing import SHORTEST, describe_machine, format_load, median_ratio, time_turns
from ...writing import write_files
from ..model import read_model
from .files import to_onnx
from .graph import Graph, describe_tensor, require_onnx
from .sequence import build_sequence, make_model
from .stepper import OnnxStepper

SIZES = (Size(128, 8, 1024, 1, 32), Size(1024, 8, 1024, 1, 32), Size(1024, 8, 1024, 16, 32))
STEP_UNITS = (128, 1024)
STEPS = 256
"""Steps of a stream: twice the longest period."""
TOLERANCE = 1e-4
"""The largest difference between onnxruntime and torch."""

CPU = torch.device("cpu")


class SequenceRow(NamedTuple):
    """Median seconds of one call, and the medians over the turns of the ratios of the dense layers to the export."""

    size: Size
    layer: str
    export: float
    operator: float
    dense: float
    operator_ratio: float
    dense_ratio: float

    def record(self) -> dict[str, Any]:
        """The row as plain data, for JSON."""
        return {**self.size.record(), **{name: getattr(self, name) for name in self._fields if name != "size"}}

    def __str__(self) -> str:
        seconds = f"{self.export * 1e3:9.2f} {self.operator * 1e3:9.2f} {self.dense * 1e3:9.2f}"
        return f"{self.size!s} {self.layer:5s} | {seconds} | {self.operator_ratio:8.1f} {self.dense_ratio:8.1f}"


class StepRow(NamedTuple):
    """Median seconds of one step: the modules that are due, all modules, and the operator of a dense layer."""

    units: int
    layer: str
    due: float
    all_modules: float
    operator: float

    def __str__(self) -> str:
        times = " ".join(f"{value * 1e6:11.1f}" for value in self[2:])
        return f"{self.units:5d} {self.layer:5s} | {times}"


HEAD = (
    f"{SIZE_HEAD} {'layer':5s} | {'export ms':>9s} {'operator':>9s} {'dense':>9s} | times faster than\n"
    f"{'':38s} | {'':29s} | {'operator':>8s} {'dense':>8s}"
)
LEGEND = "operator: RNN, LSTM or GRU of ONNX; dense: the export of our layer with one module of period 1"
STEP_HEAD = f"units layer | {'due us':>11s} {'all modules':>11s} {'operator':>11s}   one step of one sequence"


def build_operator(layer: torch.nn.RNNBase) -> Any:
    """The ONNX model of a layer of torch with one operator, for inputs (T, B, I)."""
    weights = [parameter.detach().numpy() for parameter in layer.parameters()]
    # torch's gates in the order of the operator: i, o, f, c of the LSTM, z, r, h of the GRU
    order = {"RNN": [0], "LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}[layer.mode.split("_")[0]]
    W, R, *biases = (np.concatenate([np.split(weight, len(order))[gate] for gate in order]) for weight in weights)
    graph = Graph()
    constants = [graph.constant(array[None]) for array in (W, R, np.concatenate(biases))]
    options = {"linear_before_reset": 1} if len(order) == 3 else {}
    name = layer.mode.split("_")[0]
    output = graph.add(name, "input", *constants, hidden_size=layer.hidden_size, **options)
    graph.rename(graph.squeeze(output, 1), "output")
    inputs = [describe_tensor("input", "FLOAT", ["time", "batch", layer.input_size])]
    outputs = [describe_tensor("output", "FLOAT", ["time", "batch", layer.hidden_size])]
    return make_model(graph, "dense", 17, inputs, outputs, {})


def measure_sequences(sizes: Sequence[Size], layer: str, repeats: int, threads: int) -> Iterator[SequenceRow]:
    """Times whole sequences: our layer, the operator, and our layer without clocks."""
    for size in sizes:
        torch.manual_seed(0)
        x = torch.randn(size.steps, size.batch, size.inputs)
        ours = OUR_LAYERS[layer](size.inputs, size.units, schedule=size.modules)
        theirs: Any = TORCH_LAYERS[layer](size.inputs, size.units)
        # from_rnn, from_lstm or from_gru
        plain = getattr(OUR_LAYERS[layer], f"from_{layer.lower()}")(theirs)
        fed = {"input": x.numpy(), "t0": np.array(0)}
        fed |= {f"{state}_0": np.zeros((1, size.batch, size.units), np.float32) for state in _states(layer)}
        functions = [
            _prepare(build_sequence(read_model(ours), "clocks", 17), fed, threads, ours(x)[0]),
            _prepare(build_operator(theirs), {"input": x.numpy()}, threads, theirs(x)[0]),
            _prepare(build_sequence(read_model(plain), "dense", 17), fed, threads, theirs(x)[0]),
        ]
        export, operator, dense = time_turns(functions, repeats, CPU, SHORTEST)
        ratios = median_ratio(operator, export), median_ratio(dense, export)
        yield SequenceRow(
            size, layer, statistics.median(export), statistics.median(operator), statistics.median(dense), *ratios
        )


def measure_steps(units: int, layer: str, repeats: int, threads: int) -> StepRow:
    """Times a stream step by step: `OnnxStepper`, the same with all modules at every step, and the operator."""
    torch.manual_seed(0)
    inputs, modules = 32, 8
    ours = OUR_LAYERS[layer](inputs, units, schedule=modules)
    theirs: Any = TORCH_LAYERS[layer](inputs, units)
    x = torch.randn(STEPS, 1, inputs)
    with tempfile.TemporaryDirectory() as folder:
        to_onnx(ours, Path(folder) / "out")
        stepper, everything = (OnnxStepper(Path(folder) / "out", threads=threads) for _ in range(2))
    # the model of the slowest module computes all modules; a mask would select those that are due
    everything._sessions = everything._sessions[-1:] * modules

    def run(stream: OnnxStepper) -> NDArray[np.float32]:
        stream.reset()
        return np.stack([stream.step(step) for step in x.numpy()])

    _check(run(stepper), ours(x)[0])
    run_operator = _prepare(build_operator(theirs), {"input": x[:1].numpy()}, threads, theirs(x[:1])[0])

    def run_operators() -> None:
        for _ in range(STEPS):
            run_operator()

    functions: list[Callable[[], Any]] = [lambda: run(stepper), lambda: run(everything), run_operators]
    turns = time_turns(functions, repeats, CPU, SHORTEST)
    return StepRow(units, layer, *(statistics.median(seconds) / STEPS for seconds in turns))


def _states(layer: str) -> str:
    return "hc" if CELL_NAMES[layer] == "lstm" else "h"


def _prepare(model: Any, fed: dict[str, Any], threads: int, expected: torch.Tensor) -> Callable[[], Any]:
    """A function that runs a model, after its output was compared with that of torch."""
    runtime = require_onnx("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    _check(session.run(None, fed)[0], expected)
    return lambda: session.run(None, fed)


def _check(actual: NDArray[Any], expected: torch.Tensor) -> None:
    error = float(np.abs(actual - expected.detach().numpy()).max())
    if not error <= TOLERANCE:
        raise AssertionError(f"onnxruntime differs from torch by {error:.1e} > {TOLERANCE:.0e}; it is not timed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark and returns its exit code: 0 done, 1 a wrong result or a file that cannot be written."""
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.export.onnx.bench", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("sizes", nargs="*", type=Size.parse, metavar="UNITS,MODULES,STEPS,BATCH,INPUTS")
    parser.add_argument("--layer", default="RNN", choices=tuple(OUR_LAYERS), type=str.upper, help="default: RNN")
    parser.add_argument("--threads", type=int, default=1, help="the threads of onnxruntime; default: 1")
    parser.add_argument("--repeats", type=int, default=7, help="turns to take the median of; default: 7")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    if options.threads < 1 or options.repeats < 1:
        parser.error("--threads and --repeats must be at least 1")
    machine = describe_machine(CPU) | {"onnxruntime": require_onnx("onnxruntime").__version__}
    machine["threads"] = options.threads
    print(
        ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("CPU kernel", "cores", "load"))
    )
    print(format_load(machine["load"], machine["cores"], options.threads))
    record: dict[str, Any] = {"environment": machine, "unit": "seconds, medians", "sequences": [], "steps": []}
    try:
        print(f"\n{HEAD}", flush=True)
        for row in measure_sequences(options.sizes or SIZES, options.layer, options.repeats, options.threads):
            record["sequences"].append(row.record())
            print(row, flush=True)
        print(LEGEND)
        if not options.sizes:
            print(f"\n{STEP_HEAD}", flush=True)
            for units in STEP_UNITS:
                step = measure_steps(units, options.layer, options.repeats, options.threads)
                record["steps"].append(step._asdict())
                print(step, flush=True)
        if options.json is not None:
            write_files({options.json: (json.dumps(record, indent=2) + "\n").encode()})
            print(f"written to {options.json}")
    except (AssertionError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
