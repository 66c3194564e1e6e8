"""Translations for torch.onnx.export: models of users that contain our layers.

torch records a layer as one operator, `cwrnn::recurrence`. Its translation is an ONNX function with the graph of the
model for whole sequences, whose weights are inputs.
"""

import hashlib
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
import torch

from ...cells import CELLS
from ...extras import require
from ...schedule import Schedule
from ..model import ExportError
from .cascade import Signal, add_layer, hold
from .clocks import Clocks
from .graph import Graph, require_onnx
from .weights import Weights

DOMAIN = "cwrnn"
"""The domain of the functions."""

TORCH_OPSET = 18
"""The version of the operators in torch's own translations; torch converts the whole model to another one if asked."""


def get_onnx_translations() -> dict[Any, Callable[..., Any]]:
    """The translations of our operators, for the argument `custom_translation_table` of `torch.onnx.export`.

    A model must have float32 layers and call them without `lengths`. The number of steps, the batch and `t0` may be
    dynamic. Only where a `Readout` reads the ticks of a layer, as in a `Network`, the number of steps is fixed;
    `to_onnx` exports such a network for all lengths. Needs the extra `onnx`.

        torch.onnx.export(model, (x,), dynamo=True, custom_translation_table=get_onnx_translations())
    """
    require("onnxscript", extra="onnx", purpose="torch.onnx.export")
    return {torch.ops.cwrnn.recurrence.default: _translate_recurrence}


def _translate_recurrence(
    input: Any,
    weight_ih: Any,
    weight_hh: Any,
    bias: Any,
    h0: Any,
    lengths: Any,
    periods: Sequence[int],
    sizes: Sequence[int],
    t0: Any,
    nonlinearity: str,
    hold: bool,
    keep_ticks: bool = True,
    weight_ch: Any = None,
) -> list[Any]:
    """The outputs of `cwrnn::recurrence` as values of the graph that torch is building."""
    ir = require("onnx_ir", extra="onnx", purpose="torch.onnx.export")
    recorder = require("onnxscript.evaluator", extra="onnx", purpose="torch.onnx.export").default()
    if lengths is not None:
        raise ExportError("a layer cannot be exported to ONNX with lengths or packed sequences")
    if input.dtype != ir.DataType.FLOAT:
        raise ExportError(f"only float32 layers can be exported to ONNX, got {input.dtype}: convert the model first")
    values = {"input": input, "weight_ih": weight_ih, "weight_hh": weight_hh, "bias": bias, "h0": h0,
              "weight_ch": weight_ch, "t0": None if isinstance(t0, int) else t0}  # fmt: skip
    present = {name: value for name, value in values.items() if value is not None}
    schedule = Schedule(tuple(periods), tuple(sizes))
    graph, outputs = _build_graph(present, nonlinearity, schedule, int(weight_ih.shape[1]), t0, hold, keep_ticks)
    helper = require_onnx("onnx.helper")
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.constants]
    nodes, opset = [*constants, *graph.nodes], helper.make_opsetid("", TORCH_OPSET)
    function = helper.make_function(DOMAIN, "recurrence", list(present), outputs, nodes, [opset])
    # torch puts the nodes of a function in place of its call, but the name must not stand for two different functions
    function.name = f"recurrence_{hashlib.sha256(function.SerializeToString(deterministic=True)).hexdigest()[:16]}"
    recorder.functions[DOMAIN, function.name, ""] = ir.serde.deserialize_function(function)
    call = ir.Node(DOMAIN, function.name, list(present.values()), num_outputs=len(outputs))
    recorder.nodes.append(call)
    return list(call.outputs)


def _build_graph(
    present: Container[str], cell: str, schedule: Schedule, inputs: int, t0: Any, held: bool, keep_ticks: bool
) -> tuple[Graph, list[str]]:
    """The graph of the recurrence and its outputs, which are those of the operator.

    Args:
        present: the operands that the call has
        cell: the name of the cell
        schedule: the schedule of the layer
        inputs: the number of inputs of the layer
        t0: the clock at the first step, unless it is an operand
        held: if True, the output at every step is wanted
        keep_ticks: if True, the states at the ticks are wanted
    """
    graph = Graph()
    clocks = Clocks(graph, "input", "t0" if "t0" in present else graph.integer(t0))
    bias, weight_ch = (name if name in present else None for name in ("bias", "weight_ch"))
    weights = Weights(graph, cell, schedule, inputs, "weight_ih", "weight_hh", bias, weight_ch)
    N, parts = schedule.hidden_size, CELLS[cell].parts
    initial = "h0"
    if initial not in present:
        shape = graph.concat([graph.unsqueeze(clocks.batch, 0), graph.integers(parts * N)], axis=0)
        initial = graph.add("Expand", graph.constant(np.float32(0)), shape)
    modules, final = add_layer(graph, clocks, weights, "input", graph.split(initial, [N] * parts, axis=1))
    outputs = [graph.unsqueeze(graph.concat(final, axis=1), 0)]
    if keep_ticks:
        rows = [_take_ticks(graph, clocks, module) for module in modules]
        outputs.append(graph.concat(rows, axis=0))
    if held:
        outputs.append(graph.concat([hold(graph, clocks, module) for module in modules], axis=2))
    if keep_ticks and CELLS[cell].gates > 1:
        # only gradients need the gates of a layer, and an exported model has none
        outputs.append(graph.add("Identity", outputs[0]))
    return graph, outputs


def _take_ticks(graph: Graph, clocks: Clocks, module: Signal) -> str:
    """The states of a module before its first tick and at all ticks in a row."""
    end = graph.unsqueeze(graph.add("Add", clocks.ticks(module.period), graph.integer(1)), 0)
    rows = graph.add("Slice", module.values, graph.integers(0), end, graph.integers(0))
    return graph.add("Reshape", rows, graph.integers(-1))
