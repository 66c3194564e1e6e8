"""The model for whole sequences, or chunks of a stream.

    input   (T, B, I), or (B, T, I) with batch_first     output  (T, B, O), or (B, T, O)
    h_0     (layers, B, N)                               h_n     (layers, B, N)
    c_0     (layers, B, N), of an LSTM only              c_n     (layers, B, N), of an LSTM only
    t0      the clock at the first step, an int64

T must be at least 1. All axes of time and batch are dynamic.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ... import __version__
from ...cells import CELLS
from ..model import ExportError, Model
from .cascade import add_layer, add_readout, hold
from .clocks import Clocks
from .graph import Graph, describe_tensor, require_onnx
from .weights import Weights

STATES = "h", "c"
"""The parts of a state, in the names of inputs and outputs."""

LARGEST = 2**31 - 1
"""The largest file in bytes: a limit of protobuf."""


def build_sequence(model: Model, name: str, opset: int) -> Any:
    """The ONNX model of a network that reads whole sequences."""
    graph = Graph()
    sequence = graph.add("Transpose", "input", perm=[1, 0, 2]) if model.batch_first else "input"
    clocks = Clocks(graph, sequence, "t0")
    states = list_states(model)
    initial = [_split_layers(graph, f"{state}_0", len(model.layers)) for state in states]
    finals: list[list[str]] = []
    value = sequence
    for number, layer in enumerate(model.layers):
        modules, final = add_layer(
            graph, clocks, Weights.of_layer(graph, layer), value, [part[number] for part in initial]
        )
        finals.append([graph.unsqueeze(part, 0) for part in final])
        if number == len(model.layers) - 1 and model.readout_weight is not None:
            value = add_readout(graph, clocks, modules, model.readout_weight, layer.schedule.sizes)
        else:
            value = graph.concat([hold(graph, clocks, module) for module in modules], axis=2)
    if model.readout_bias is not None:
        value = graph.add("Add", value, graph.constant(model.readout_bias))
    if model.softmax:
        value = graph.add("LogSoftmax", value, axis=-1)
    graph.rename(graph.add("Transpose", value, perm=[1, 0, 2]) if model.batch_first else value, "output")
    for state, parts in zip(states, zip(*finals, strict=True), strict=True):
        graph.rename(graph.concat(parts, axis=0), f"{state}_n")

    axes = ["batch", "time"] if model.batch_first else ["time", "batch"]
    hidden: list[int | str] = [len(model.layers), "batch", model.layers[-1].units]
    inputs = [
        describe_tensor("input", "FLOAT", [*axes, model.inputs]),
        *(describe_tensor(f"{state}_0", "FLOAT", hidden) for state in states),
        describe_tensor("t0", "INT64", []),
    ]
    outputs = [
        describe_tensor("output", "FLOAT", [*axes, model.outputs]),
        *(describe_tensor(f"{state}_n", "FLOAT", hidden) for state in states),
    ]
    return make_model(graph, name, opset, inputs, outputs, describe_model(model))


def list_states(model: Model) -> tuple[str, ...]:
    """The parts of the model's state: ("h",), or ("h", "c") for an LSTM."""
    return STATES[: CELLS[model.layers[0].cell].parts]


def describe_model(model: Model) -> dict[str, str]:
    """The metadata of the file: the cell, the schedule, and the labels as JSON if there are any."""
    layer = model.layers[0]
    labels = {"labels": json.dumps(model.labels, ensure_ascii=False)} if model.labels else {}
    return {"cell": layer.cell, "schedule": layer.schedule.spec, **labels}


def make_model(
    graph: Graph, name: str, opset: int, inputs: Sequence[Any], outputs: Sequence[Any], metadata: Mapping[str, str]
) -> Any:
    """The ONNX model of a graph; raises an ExportError if it is larger than a file can be."""
    helper = require_onnx("onnx.helper")
    body = helper.make_graph(graph.nodes, name, inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(body, opset_imports=opsets, producer_name="cwrnn", producer_version=__version__)
    # the newest version of the format would shut out older runtimes without need
    model.ir_version = helper.find_min_ir_version_for(opsets)
    helper.set_model_props(model, dict(metadata))
    if model.ByteSize() > LARGEST:
        raise ExportError(f"an ONNX file has at most {LARGEST} bytes, but this network needs {model.ByteSize()}")
    return model


def _split_layers(graph: Graph, value: str, layers: int) -> list[str]:
    """The state (B, N) of each layer, from that of all layers (layers, B, N)."""
    return [graph.add("Gather", value, graph.integer(number), axis=0) for number in range(layers)]
