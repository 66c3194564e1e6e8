"""The models for one step of a stream: one for each module that may be the slowest one due.

    input   (B, I)                                       output  (B, O)
    h       (layers, B, N)                               h_n     (layers, B, N)
    c       (layers, B, N), of an LSTM only              c_n     (layers, B, N), of an LSTM only
    due     (units,), bool: the units whose modules are due

A model multiplies the weights of its slowest module and of all faster ones, and of no other. Usually they are all due.
If periods do not divide each other, some may not be, and the model has the input `due`: it computes all of them, and
those that are not due keep their state. So a schedule of G modules needs G models, whatever its periods are. If the
fastest module does not tick at every step, one more model computes the output of a state alone.
"""

from typing import Any

from ...schedule import Schedule
from ..model import Model, ModelLayer
from .graph import Graph, describe_tensor
from .recurrence import add_tick
from .sequence import list_states, make_model
from .weights import Weights


def needs_mask(schedule: Schedule, slowest: int) -> bool:
    """True if a module that is faster than `slowest` may not be due when `slowest` is.

    >>> needs_mask(Schedule((1, 2, 4), (1, 1, 1)), 2), needs_mask(Schedule((1, 2, 3), (1, 1, 1)), 2)
    (False, True)
    """
    return any(schedule.periods[slowest] % period for period in schedule.periods[: slowest + 1])


def build_step(model: Model, slowest: int | None, name: str, opset: int) -> Any:
    """The ONNX model of a step at which module `slowest` is the slowest one due; None if no module is due."""
    graph = Graph()
    schedule = model.layers[0].schedule
    mask = "due" if slowest is not None and needs_mask(schedule, slowest) else None
    states = list_states(model)
    value, afters = "input", []
    for number, layer in enumerate(model.layers):
        before = [graph.add("Gather", state, graph.integer(number), axis=0) for state in states]
        after = before if slowest is None else _add_layer_step(graph, layer, slowest, value, before, mask)
        afters.append([graph.unsqueeze(part, 0) for part in after])
        value = after[0]
    if model.readout_weight is not None:
        value = graph.add("MatMul", value, graph.constant(model.readout_weight.T))
    if model.readout_bias is not None:
        value = graph.add("Add", value, graph.constant(model.readout_bias))
    if model.softmax:
        value = graph.add("LogSoftmax", value, axis=-1)
    graph.rename(value, "output")
    for state, parts in zip(states, zip(*afters, strict=True), strict=True):
        graph.rename(graph.concat(parts, axis=0), f"{state}_n")

    hidden: list[int | str] = [len(model.layers), "batch", schedule.hidden_size]
    inputs = [describe_tensor(state, "FLOAT", hidden) for state in states]
    if slowest is not None:
        inputs.insert(0, describe_tensor("input", "FLOAT", ["batch", model.inputs]))
    if mask is not None:
        inputs.append(describe_tensor(mask, "BOOL", [schedule.slices[slowest or 0].stop]))
    outputs = [
        describe_tensor("output", "FLOAT", ["batch", model.outputs]),
        *(describe_tensor(f"{state}_n", "FLOAT", hidden) for state in states),
    ]
    return make_model(graph, name, opset, inputs, outputs, {})


def _add_layer_step(
    graph: Graph, layer: ModelLayer, slowest: int, input: str, before: list[str], mask: str | None
) -> list[str]:
    """The state (B, N) of a layer after the step: h, or h and c."""
    weights = Weights.of_layer(graph, layer)
    count = layer.schedule.slices[slowest].stop
    units = slice(0, count)
    drive = weights.bias_gates(units)
    if layer.inputs:
        for gate, weight in enumerate(weights.input_gates(units)):
            drive[gate] = graph.sum(graph.add("MatMul", input, weight), drive[gate])
    messages = [
        graph.add("MatMul", before[0], weight) for weight in weights.recurrent_gates(units, slice(0, layer.units))
    ]
    parts = [
        graph.split(state, [count, layer.units - count] if count < layer.units else [count], 1) for state in before
    ]
    after = add_tick(graph, layer.cell, drive, messages, [part[0] for part in parts], weights.peepholes(units))
    if mask is not None:
        after = [graph.add("Where", mask, new, part[0]) for new, part in zip(after, parts, strict=True)]
    return [graph.concat([new, *part[1:]], axis=1) for new, part in zip(after, parts, strict=True)]
