"""The recurrence of one module over its ticks, as an operator `LSTM` or `GRU`.

A tick of a small module takes a tenth of the time that it takes in a `Scan` (`recurrence.py`), whose body has a dozen
operators. But not every `Scan` can be replaced:

* `RNN` is slower than a `Scan` in onnxruntime.
* A message can enter an operator only as a further input, behind that of the layer, whose weights are an identity
  matrix. That product has gates K by gates K weights at every tick, which is more than the recurrence itself has. The
  operator `LSTM` is therefore used for modules of at most SMALL units.
* The message to gate n of a GRU stands inside the reset product (`reference.py`), where the operator `GRU` adds a
  constant only. It is therefore used for modules that hear no other module.
"""

from collections.abc import Sequence

from .graph import Graph
from .weights import Weights

SMALL = 64
"""The most units of a module that runs as an operator `LSTM`."""


def fits_operator(weights: Weights, i: int) -> bool:
    """True if module i runs as an operator, False if it runs as a `Scan`.

    A module without input and messages has nothing that an operator could read.
    """
    heard = i < weights.schedule.modules - 1
    if weights.cell == "lstm":
        return weights.schedule.sizes[i] <= SMALL and (heard or weights.inputs > 0)
    return weights.cell == "gru" and not heard and weights.inputs > 0


def add_operator(
    graph: Graph, weights: Weights, i: int, input: str | None, messages: Sequence[str], states: Sequence[str]
) -> tuple[str, list[str]]:
    """The hidden states (n, B, K) of module i at all n ticks, and the state (B, K) after them: h, or h and c.

    Args:
        graph: the graph
        weights: the weights of the layer
        i: the number of the module
        input: (n, B, I), or None if there is none
        messages: (n, B, gates K), those that the module hears
        states: (B, K), h before the first tick, and for an LSTM c
    """
    units, size = weights.schedule.slices[i], weights.schedule.sizes[i]
    heard = [graph.sum(*messages)] if messages else []
    read = graph.concat([*([] if input is None else [input]), *heard], axis=2)
    before = [graph.unsqueeze(state, 0) for state in states]
    # no lengths of sequences: all have n ticks
    arguments = [read, *weights.operator_weights(units, bool(heard)), "", *before]
    attributes = {"linear_before_reset": 1}
    if weights.cell == "lstm":
        attributes = {}
        peepholes = weights.operator_peepholes(units)
        arguments += [peepholes] if peepholes else []
    output, *final = graph.add_all(weights.cell.upper(), arguments, 1 + len(states), hidden_size=size, **attributes)
    return graph.squeeze(output, 1), [graph.squeeze(state, 0) for state in final]
