"""The recurrence of one module over its ticks, as a `Scan` whose body is a tick of the cell.

Elementary operators in a `Scan` can do what the operator `GRU` cannot: the message to gate n of a GRU stands inside the
reset product (`reference.py`), but the operator has no input that is added there. They are also faster than the
operator `RNN` in onnxruntime, and they need no product of the messages with an identity matrix, by which alone they
could enter the operators `RNN` and `LSTM`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..model import Array
from .graph import Graph, describe_tensor

ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}
"""The operators of the Elman cells."""


class Module(NamedTuple):
    """The weights of one module with K units: arrays for each gate, in the order of the cell's gates."""

    cell: str
    units: int
    weight_hh: Sequence[Array]
    """(K, K) for each gate, to be multiplied from the left by the state."""
    weight_ch: Sequence[Array]
    """(K) for the gates i, f and o of an LSTM with peepholes; empty without them."""


def add_recurrence(graph: Graph, module: Module, drive: Sequence[str], states: Sequence[str]) -> tuple[str, list[str]]:
    """The hidden states (n, B, K) at all n ticks, and the state (B, K) after them: h, or h and c.

    Args:
        graph: the graph
        module: the weights of the module
        drive: (n, B, K) for each gate; for a GRU those of r, z and n, and the part inside the reset product
        states: (B, K), h before the first tick, and for an LSTM c
    """
    body = Graph(parent=graph)
    before = [body.name("before") for _ in states]
    inputs = [body.name("drive") for _ in drive]
    messages = [body.add("MatMul", before[0], body.constant(weight)) for weight in module.weight_hh]
    after = add_tick(body, module.cell, inputs, messages, before, module.weight_ch)
    # an output of the body must not be both a state and a row
    row = body.add("Identity", after[0])

    def describe(names: Sequence[str]) -> list[object]:
        return [describe_tensor(name, "FLOAT", ["batch", module.units]) for name in names]

    tick = graph.helper.make_graph(body.nodes, body.name("tick"), describe([*before, *inputs]), describe([*after, row]))
    *final, output = graph.add_all("Scan", [*states, *drive], len(states) + 1, body=tick, num_scan_inputs=len(inputs))
    return output, final


def add_tick(
    graph: Graph,
    cell: str,
    drive: Sequence[str],
    messages: Sequence[str],
    before: Sequence[str],
    weight_ch: Sequence[Array],
) -> list[str]:
    """The state (B, K) of K units after one tick: h, or h and c.

    Args:
        graph: the graph
        cell: the name of the cell
        drive: (B, K) for each gate; for a GRU those of r, z and n, and the part inside the reset product
        messages: (B, K) for each gate, which the drive does not contain
        before: (B, K), h before the tick, and for an LSTM c
        weight_ch: (K) for the gates i, f and o of an LSTM with peepholes; empty without them
    """
    if cell in ACTIVATIONS:
        return [graph.add(ACTIVATIONS[cell], graph.add("Add", messages[0], drive[0]))]
    if cell == "gru":
        r, z = (graph.add("Sigmoid", graph.add("Add", messages[gate], drive[gate])) for gate in (0, 1))
        inside = graph.add("Mul", r, graph.add("Add", messages[2], drive[3]))
        n = graph.add("Tanh", graph.add("Add", drive[2], inside))
        # (1 - z) n + z h
        return [graph.add("Add", n, graph.add("Mul", z, graph.add("Sub", before[0], n)))]
    c = before[1]
    i, f, g, o = (graph.add("Add", message, own) for message, own in zip(messages, drive, strict=True))
    if weight_ch:
        p_i, p_f, p_o = (graph.constant(peephole) for peephole in weight_ch)
        i, f = (graph.add("Add", gate, graph.add("Mul", c, p)) for gate, p in ((i, p_i), (f, p_f)))
    kept = graph.add("Mul", graph.add("Sigmoid", f), c)
    c = graph.add("Add", kept, graph.add("Mul", graph.add("Sigmoid", i), graph.add("Tanh", g)))
    if weight_ch:
        o = graph.add("Add", o, graph.add("Mul", c, p_o))
    return [graph.add("Mul", graph.add("Sigmoid", o), graph.add("Tanh", c)), c]


def take_gates(array: Array, gates: int, units: slice, columns: slice | None = None) -> list[Array]:
    """The rows of `units` of each gate of a gate-major array, and of these the `columns`.

    >>> take_gates(np.arange(8), 2, slice(1, 3))
    [array([1, 2]), array([5, 6])]
    """
    parts = [part[units] for part in np.split(array, gates)]
    return parts if columns is None else [part[:, columns] for part in parts]
