"""The recurrence of one module over its ticks, as a `Scan` whose body is a tick of the cell.

Elementary operators can do what the operator `GRU` cannot: the message to gate n stands inside the reset product
(`reference.py`), and the operator has no input that is added there. In onnxruntime they are also faster than the
operator `RNN`, and for large modules than `LSTM` (`operators.py`).
"""

from collections.abc import Sequence

from .graph import Graph, describe_tensor

ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu"}
"""The operators of the Elman cells."""


def add_recurrence(
    graph: Graph,
    cell: str,
    units: int,
    drive: Sequence[str | None],
    recurrent: Sequence[str],
    states: Sequence[str],
    peepholes: Sequence[str],
) -> tuple[str, list[str]]:
    """The hidden states (n, B, K) at all n ticks, and the state (B, K) after them: h, or h and c.

    Args:
        graph: the graph
        cell: the name of the cell
        units: K
        drive: (n, B, K) for each gate; for a GRU those of r, z and n, and the part inside the reset product, or None
        recurrent: (K, K) for each gate, to be multiplied from the left by the state
        states: (B, K), h before the first tick, and for an LSTM c
        peepholes: (K) for the gates i, f and o of an LSTM with peepholes; empty without them
    """
    body = Graph(parent=graph)
    before = [body.name("before") for _ in states]
    inputs = [None if part is None else body.name("drive") for part in drive]
    messages = [body.add("MatMul", before[0], weight) for weight in recurrent]
    after = add_tick(body, cell, inputs, messages, before, peepholes)
    # an output of the body must not be both a state and a row
    row = body.add("Identity", after[0])

    def describe(names: Sequence[str]) -> list[object]:
        return [describe_tensor(name, "FLOAT", ["batch", units]) for name in names]

    rows = [part for part in drive if part is not None]
    tick = graph.helper.make_graph(
        body.nodes,
        body.name("tick"),
        describe([*before, *(name for name in inputs if name is not None)]),
        describe([*after, row]),
    )
    *final, output = graph.add_all("Scan", [*states, *rows], len(states) + 1, body=tick, num_scan_inputs=len(rows))
    return output, final


def add_tick(
    graph: Graph,
    cell: str,
    drive: Sequence[str | None],
    messages: Sequence[str],
    before: Sequence[str],
    peepholes: Sequence[str],
) -> list[str]:
    """The state (B, K) of K units after one tick: h, or h and c.

    Args:
        graph: the graph
        cell: the name of the cell
        drive: (B, K) for each gate, or None for 0; for a GRU those of r, z and n, and the part inside the reset product
        messages: (B, K) for each gate, which the drive does not contain
        before: (B, K), h before the tick, and for an LSTM c
        peepholes: (K) for the gates i, f and o of an LSTM with peepholes; empty without them
    """
    if cell == "gru":
        r, z = (graph.add("Sigmoid", graph.sum(messages[gate], drive[gate])) for gate in (0, 1))
        inside = graph.add("Mul", r, graph.sum(messages[2], drive[3]))
        n = graph.add("Tanh", graph.sum(inside, drive[2]))
        # (1 - z) n + z h
        return [graph.add("Add", n, graph.add("Mul", z, graph.add("Sub", before[0], n)))]
    gates = [graph.sum(message, own) for message, own in zip(messages, drive, strict=True)]
    if cell in ACTIVATIONS:
        return [graph.add(ACTIVATIONS[cell], gates[0])]
    i, f, g, o = gates
    c = before[1]
    if peepholes:
        i, f = (graph.add("Add", gate, graph.add("Mul", c, p)) for gate, p in ((i, peepholes[0]), (f, peepholes[1])))
    kept = graph.add("Mul", graph.add("Sigmoid", f), c)
    c = graph.add("Add", kept, graph.add("Mul", graph.add("Sigmoid", i), graph.add("Tanh", g)))
    if peepholes:
        o = graph.add("Add", o, graph.add("Mul", c, peepholes[2]))
    return [graph.add("Mul", graph.add("Sigmoid", o), graph.add("Tanh", c)), c]
