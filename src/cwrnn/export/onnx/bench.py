"""Times exported networks in onnxruntime, side by side with dense layers of the same size.

    python -m cwrnn.export.onnx.bench                             sequences and steps: some minutes
    python -m cwrnn.export.onnx.bench 1024,8,1024,1,32            sequences: units, modules, steps, batch, inputs
    python -m cwrnn.export.onnx.bench --layer LSTM --repeats 9 --json out/onnx.json

A dense layer runs in two ways: as the operator RNN, LSTM or GRU, and as the export of our layer with one module of
period 1, which computes the same. Before anything is timed, its output is compared with that of torch. Everything runs
on one thread, and times are those of the processor: other jobs on the machine do not count. Each number is the median
of several turns, and everything that is compared takes its turns side by side.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...bench.layers import CELL_NAMES, OUR_LAYERS, SIZE_HEAD, TORCH_LAYERS, Size
from ...bench.timing import SHORTEST, describe_machine, format_load, median_ratio
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
    """Median seconds of one step: the modules that are due, all modules, and a dense layer."""

    units: int
    layer: str
    due: float
    all_modules: float
    dense: float

    def __str__(self) -> str:
        times = " ".join(f"{value * 1e6:11.1f}" for value in self[2:])
        return f"{self.units:5d} {self.layer:5s} | {times}"


HEAD = (
    f"{SIZE_HEAD} {'layer':5s} | {'export ms':>9s} {'operator':>9s} {'dense':>9s} | times faster than\n"
    f"{'':38s} | {'':29s} | {'operator':>8s} {'dense':>8s}"
)
LEGEND = "operator: RNN, LSTM or GRU of ONNX; dense: the export of our layer with one module of period 1"
STEP_HEAD = f"units layer | {'due us':>11s} {'all modules':>11s} {'dense':>11s}   one step of one sequence"


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


def measure_sequences(sizes: Sequence[Size], layer: str, repeats: int) -> Iterator[SequenceRow]:
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
            _prepare(build_sequence(read_model(ours), "clocks", 17), fed, ours(x)[0]),
            _prepare(build_operator(theirs), {"input": x.numpy()}, theirs(x)[0]),
            _prepare(build_sequence(read_model(plain), "dense", 17), fed, theirs(x)[0]),
        ]
        export, operator, dense = time_turns(functions, repeats)
        ratios = median_ratio(operator, export), median_ratio(dense, export)
        yield SequenceRow(
            size, layer, statistics.median(export), statistics.median(operator), statistics.median(dense), *ratios
        )


def measure_steps(units: int, layer: str, repeats: int) -> StepRow:
    """Times a stream step by step: `OnnxStepper`, the same with all modules at every step, and a dense layer."""
    torch.manual_seed(0)
    inputs, modules = 32, 8
    x = torch.randn(STEPS, 1, inputs)
    ours, plain = (OUR_LAYERS[layer](inputs, units, schedule=count) for count in (modules, 1))
    with tempfile.TemporaryDirectory() as folder:
        for name, exported in (("clocks", ours), ("dense", plain)):
            to_onnx(exported, Path(folder) / name)
        stepper, everything, dense = (OnnxStepper(Path(folder) / name) for name in ("clocks", "clocks", "dense"))
    # the model of the slowest module computes all modules; a mask would select those that are due
    everything._sessions = everything._sessions[-1:] * modules

    def run(stream: OnnxStepper) -> NDArray[np.float32]:
        stream.reset()
        return np.stack([stream.step(step) for step in x.numpy()])

    _check(run(stepper), ours(x)[0])
    _check(run(dense), plain(x)[0])
    turns = time_turns([partial(run, stream) for stream in (stepper, everything, dense)], repeats)
    return StepRow(units, layer, *(statistics.median(seconds) / STEPS for seconds in turns))


def time_turns(functions: Sequence[Callable[[], Any]], repeats: int) -> list[list[float]]:
    """The seconds of the processor that one call takes in each of the turns, for every function.

    A turn has as many calls as fit into SHORTEST seconds, at least three, and counts with their median.
    """
    counts = []
    for function in functions:
        function()
        counts.append(max(3, min(1000, round(SHORTEST / _time_call(function)))))
    turns: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, count, medians in zip(functions, counts, turns, strict=True):
            medians.append(statistics.median(_time_call(function) for _ in range(count)))
    return turns


def _time_call(function: Callable[[], Any]) -> float:
    start = time.process_time()
    function()
    return max(time.process_time() - start, 1e-9)


def _states(layer: str) -> str:
    return "hc" if CELL_NAMES[layer] == "lstm" else "h"


def _prepare(model: Any, fed: dict[str, Any], expected: torch.Tensor) -> Callable[[], Any]:
    """A function that runs a model, after its output was compared with that of torch."""
    runtime = require_onnx("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
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
    parser.add_argument("--repeats", type=int, default=7, help="turns to take the median of; default: 7")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    machine = describe_machine(CPU) | {"onnxruntime": require_onnx("onnxruntime").__version__}
    machine["threads"] = 1
    print(
        ", ".join(f"{name} {value}" for name, value in machine.items() if name not in ("CPU kernel", "cores", "load"))
    )
    print(format_load(machine["load"], machine["cores"], 1))
    record: dict[str, Any] = {
        "environment": machine,
        "unit": "seconds of the processor, medians",
        "sequences": [],
        "steps": [],
    }
    try:
        print(f"\n{HEAD}", flush=True)
        for row in measure_sequences(options.sizes or SIZES, options.layer, options.repeats):
            record["sequences"].append(row.record())
            print(row, flush=True)
        print(LEGEND)
        if not options.sizes:
            print(f"\n{STEP_HEAD}", flush=True)
            for units in STEP_UNITS:
                step = measure_steps(units, options.layer, options.repeats)
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
