"""A layer in a graph that torch.fx traces: one node, as a layer of torch is."""

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.fx import Proxy

from .step import UNSET_CLOCK


def is_symbolic(input: Any) -> bool:
    """Whether torch.fx traces the call, so that `input` stands for a tensor that is not there yet."""
    return isinstance(input, Proxy)


def record_call(layer: nn.Module, input: Any, hx: Any, options: Mapping[str, Any]) -> Any:
    """Records a call of `layer` as one node of the graph that torch.fx traces, and returns what stands for its result.

    torch.fx does so by itself with layers of torch, and enters all others. Options that have their default value are
    left out. Like a torch.nn.RNN, a layer cannot be traced alone.
    """
    tracer = input.tracer
    if tracer.root is layer:
        name = type(layer).__name__
        raise TypeError(f"torch.fx cannot trace a {name} alone: trace a model that holds it, where it is one node")
    defaults = None, False, UNSET_CLOCK
    given = {name: value for name, value in options.items() if not any(value is default for default in defaults)}
    return tracer.create_proxy("call_module", tracer.path_of_module(layer), (input, hx), given)
