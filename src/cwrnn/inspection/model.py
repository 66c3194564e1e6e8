"""A layer inside a model of any kind: the sequences that it reads, and what the model's output loses without a module.

    find_layer      the layer of a model, by its name
    record_layer    runs the model on data, and returns the input sequences of its layer and a `Respond`

While the model runs, `forward` and `ticks` of the layer are replaced: first by functions that keep the input, then by
functions that put a constant in the place of a module's states. Everything before and after the layer is the model's
own (`feeding`).
"""

import inspect as signatures
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..held import HeldSignal, Pass, PhasedPass, SignalPass, Ticks
from ..layer import AnyLayer, ClockworkLayer
from ..learned import LearnedClockworkRNN
from ..sequences import arrange
from ..step import LSTMState, State, check_start
from .feeding import Loss, Outcome, RefusedCallError, Runner, list_feeds
from .silence import Replacement, Respond, silence_readers
from .states import copy_layer

Call = Callable[..., tuple[Any, Any]]
"""`forward` or `ticks` of a layer."""
Handle = Callable[[Call, tuple[Any, ...], dict[str, Any]], tuple[Any, Any]]
"""Answers a call of a layer: takes the function, its arguments and its options."""


@dataclass(frozen=True, eq=False)
class RecordedLayer:
    """A layer inside a model, and the sequences that it read while the model ran on data."""

    layer: AnyLayer
    name: str
    """Its name inside the model; empty if it is the model."""
    inputs: Sequence[NDArray[np.float64]]
    """The sequences (T, I), in the order in which they were read."""
    respond: Respond
    """Runs the model again, and returns its errors: the `CHANGE` of its output or, with a loss, its `LOSS`."""


def find_layer(model: nn.Module, name: str | None = None) -> tuple[str, AnyLayer]:
    """The layer with clocks of a model, and its name there.

    Raises a ValueError if there is none or if there are several and none is named, and a TypeError if `model` is no
    module.

    Args:
        model: a layer, or any module that contains one
        name: the name of the layer, as `named_modules` gives it. Default: the only one

    >>> from cwrnn import ClockworkRNN
    >>> model = nn.ModuleDict({"encoder": nn.Sequential(ClockworkRNN(3, 8)), "head": nn.Linear(8, 1)})
    >>> find_layer(model)[0]
    'encoder.0'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    layers = {found: module for found, module in model.named_modules() if isinstance(module, ClockworkLayer)}
    names = ", ".join(map(repr, layers))
    if not layers:
        learned = any(isinstance(module, LearnedClockworkRNN) for module in model.modules())
        hint = "; harden() turns its LearnedClockworkRNN into a ClockworkRNN" if learned else ""
        raise ValueError(f"model: there is no ClockworkRNN, ClockworkLSTM or ClockworkGRU in it{hint}")
    if name is None:
        if len(layers) > 1:
            raise ValueError(f"layer: the model has {len(layers)} layers with clocks: choose one of {names}")
        name = next(iter(layers))
    if name not in layers:
        raise ValueError(f"layer: expected one of {names}, got {name!r}")
    layer = layers[name]
    if layer.num_layers != 1 or layer.bidirectional:
        raise ValueError(
            f"layer: inspection takes one layer of one direction, but {name!r} has num_layers={layer.num_layers}, "
            f"bidirectional={layer.bidirectional}"
        )
    return name, layer


def record_layer(
    model: nn.Module,
    data: Any,
    *,
    layer: str | None = None,
    loss: Loss | None = None,
    sequences: int = 32,
) -> RecordedLayer:
    """Runs a model on data, and returns its layer with the sequences that this read.

    Args:
        model: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction, or a module that has one
        data: what the model runs on: a tensor or an array, which is its argument; an iterable of batches such as a
            DataLoader, each a tensor, a pair of an input and a target, or a dictionary of arguments; or a function
            that takes the model, runs it, and returns its output
        layer: the name of the layer in the model. Default: the only one
        loss: computes the error from the output and the target of each batch. Default: the error is the change of the
            output
        sequences: the most sequences to return; no further batches are read when there are as many

    >>> from cwrnn import ClockworkRNN
    >>> rnn = ClockworkRNN(3, 8, schedule=[1, 4])
    >>> recorded = record_layer(rnn, np.random.randn(20, 5, 3))
    >>> len(recorded.inputs), recorded.inputs[0].shape, recorded.respond(None)
    (5, (20, 3), {'change': 0.0})
    """
    if sequences < 1:
        raise ValueError(f"sequences: expected at least 1, got {sequences}")
    # the module inside a compiled one: its compiled code would not call the functions that replace the layer's
    model = getattr(model, "_orig_mod", model)
    name, found = find_layer(model, layer)
    kept: list[NDArray[np.float64]] = []

    def keep(call: Call, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
        kept.extend(_list_sequences(found, call, arguments, options))
        return call(*arguments, **options)

    runner = Runner(model, list_feeds(data, found, loss is not None), loss)
    with _stand_in(found, keep):
        runner.run_until(lambda: len(kept) >= sequences)
    if not kept:
        raise ValueError(f"data: the model never called its layer {name!r} on them, or only on sequences of no steps")
    inputs = kept[:sequences]
    if not all(np.isfinite(sequence).all() for sequence in inputs):
        raise ValueError(f"data: the layer {name!r} reads numbers that are not finite")

    def run(replacement: Replacement | None) -> list[Outcome]:
        with _stand_in(found, _Copy(found, replacement)):
            return runner.run()

    # by a copy of the layer too: another backend would differ in the last bits
    intact = run(None)

    def respond(replacement: Replacement | None) -> Mapping[str, float]:
        return runner.compare(intact if replacement is None else run(replacement), intact)

    return RecordedLayer(found, name, inputs, respond)


@contextmanager
def _stand_in(layer: AnyLayer, handle: Handle) -> Iterator[None]:
    """Let `handle` answer the calls of the layer's `forward` and `ticks`."""

    def make(call: Call) -> Call:
        return lambda *arguments, **options: handle(call, arguments, options)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise RefusedCallError("model: it calls step of its layer, but inspection needs whole sequences in one call")

    stand_ins = {"forward": make(layer.forward), "ticks": make(layer.ticks), "step": refuse}
    # instance attributes hide the methods of the class
    vars(layer).update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del vars(layer)[name]


class _Copy:
    """Answers the calls of a layer by a copy of it, in which a constant may replace the states of one module."""

    def __init__(self, layer: AnyLayer, replacement: Replacement | None) -> None:
        weight = layer.weight_hh_l0
        self._replaced = None if replacement is None else replacement.module
        self._units = slice(0) if replacement is None else layer.schedule.slices[replacement.module]
        self._value = weight.new_zeros(0) if replacement is None else replacement.value.to(weight.device, weight.dtype)
        copy = copy_layer(layer)
        if replacement is not None and replacement.everywhere:
            copy = silence_readers(layer, self._units, replacement.value)
        self._layer = copy.to(weight.device, weight.dtype).eval()
        self._layer.batch_first = layer.batch_first

    def __call__(self, call: Call, arguments: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, Any]:
        ticks, hidden = self._layer.ticks(*arguments, **options)
        if self._replaced is not None:
            ticks = Ticks(tuple(map(self._change_pass, ticks.passes)), ticks.layout)
            hidden = self._change_hidden(hidden)
        return ticks if call.__name__ == "ticks" else ticks.hold(), hidden

    def _change_pass(self, run: Pass | PhasedPass) -> SignalPass:
        # every sequence begins at clock 0 (`_list_sequences`), so all of them tick together
        assert isinstance(run, Pass)
        modules = [
            HeldSignal(self._value.to(values.dtype).expand_as(values), period, start)
            if module == self._replaced
            else HeldSignal(values, period, start)
            for module, (values, period, start) in enumerate(run.modules)
        ]
        return SignalPass(run.t0, run.T, run.lengths, tuple(modules), run.cells)

    def _change_hidden(self, hidden: Any) -> Any:
        if isinstance(hidden, (State, LSTMState)):
            return hidden._replace(h=self._change_hidden(hidden.h))
        if isinstance(hidden, tuple):
            h, c = hidden
            return self._change_hidden(h), c
        changed = hidden.clone()
        changed[..., self._units] = self._value.to(changed.dtype)
        return changed


def _list_sequences(
    layer: AnyLayer, call: Call, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[NDArray[np.float64]]:
    """Yield the sequences (T, I) that a call reads; refuses calls that go on with a stream."""
    given = signatures.signature(call).bind(*arguments, **options)
    given.apply_defaults()
    hidden, t0 = check_start(given.arguments["hx"], given.arguments["t0"], layer._state_type)
    parts = [] if hidden is None else [hidden] if isinstance(hidden, Tensor) else list(hidden)
    if bool(torch.as_tensor(t0).any()) or any(bool(part.any()) for part in parts):
        raise RefusedCallError(
            "model: it calls its layer with a state or a clock other than zero, but inspection begins every sequence "
            "at zero"
        )
    x, layout = arrange(given.arguments["input"], given.arguments["lengths"], layer.batch_first)
    steps = [len(x)] * x.shape[1] if layout.lengths is None else layout.lengths.tolist()
    for place, length in enumerate(steps):
        if length > 0:
            yield x[:length, place].detach().double().cpu().numpy()
