"""`cwrnn.inspect`: look inside a layer of any model, on any data, and write a page about what its modules do."""

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ...extras import require
from ...inspection import Array
from ...inspection.model import RecordedLayer, record_layer
from ...network import Network
from ..report.drawing import COLOURS, MUTED, fit_label
from ..report.numbers import format_count
from .columns import CHANGE_FACT
from .inspected import InspectedNetwork
from .network import NetworkInspection, finish_inspection

STROKES = ("-", "-", (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)))
"""The strokes of the features of the input that are drawn: those that change most."""


@dataclass(frozen=True, eq=False)
class LayerInput:
    """The input of a layer inside a model."""

    model: str
    """The name of the model's class."""
    name: str
    """The name of the layer in the model; empty if it is the model."""
    scope = "all sequences"
    signal = None
    caption = "The top panel shows the input of the layer, as the model computes it."

    @property
    def purpose(self) -> str:
        """The place of the layer."""
        return f"in {self.model}" if self.name else "on its own"

    def draw(self, panel: Any, time: NDArray[Any], input: NDArray[Any], output: Array | None) -> None:
        """Draw the features that change most."""
        order = np.argsort(-input.var(axis=0), kind="stable")
        for place, (feature, stroke) in enumerate(zip(order, STROKES, strict=False)):
            panel.plot(time, input[:, feature], color=MUTED if place else COLOURS["cw"], linewidth=1.0,
                       linestyle=stroke, label=f"feature {feature}")  # fmt: skip
        panel.set_title(fit_label(f"input of {self.name or self.model}", 40), loc="left", fontsize=9)


def inspect(
    model: nn.Module,
    data: Any,
    out: str | PathLike[str] | None = None,
    *,
    layer: str | None = None,
    loss: Callable[[Any, Any], Any] | None = None,
    sequences: int = 32,
) -> NetworkInspection:
    """Look inside a layer of your model: measure what each of its modules does, and write a page about it.

    The model runs on the data as you trained it, and everything that its layer reads is kept. The measurements are the
    states over time, the spectrum of each module compared with its clock, how far back it remembers, how the output of
    the model changes without it, the weights, and the multiply-adds. The model runs about four times for each module,
    in evaluation mode; nothing in it changes.

    Args:
        model: a ClockworkRNN, ClockworkLSTM or ClockworkGRU, or any module that contains one, at any depth. The layer
            has one layer and one direction, and every call of it begins a sequence
        data: what the model runs on: a tensor or an array, which is its argument; an iterable of batches such as a
            DataLoader, each a tensor, a pair of an input and a target, or a dictionary of arguments; or a function
            that takes the model, runs it, and returns its output
        out: the page to write. Default: no page. A page needs the extra `experiments`
        layer: the name of the layer in the model, as `named_modules` gives it. Default: the only one
        loss: computes the error from the output and the target of each batch, as `torch.nn.MSELoss` does. Default: the
            error of a module is the change of the output without it, as a share of the output's variance
        sequences: the most sequences that are measured; no further batches are read when there are as many

    Returns:
        NetworkInspection: ``print(result)`` shows the measurements in sentences, ``result.inspection`` has the numbers,
        ``result.to_dict()`` has them for JSON, and ``result.draw(folder)`` draws the figures.

    Raises:
        TypeError: `model` is no module, or `data` is nothing that it can run on
        ValueError: there is no layer to inspect, or the model cannot run on the data; the message names the argument
        ImportError: a package for the page is missing; the message names the extra

    >>> import torch, cwrnn
    >>> model = nn.Sequential(nn.Linear(3, 4), cwrnn.ClockworkRNN(4, 8, schedule=[1, 4]))
    >>> result = cwrnn.inspect(model, torch.randn(20, 5, 3))
    >>> result.network.description
    "ClockworkRNN '1' of 8 units in Sequential"
    >>> [module.period for module in result.inspection.modules]
    [1, 4]
    """
    if out is not None:
        # before time is spent on measurements
        for package in ("matplotlib", "jinja2"):
            require(package, extra="experiments", purpose="the page")
    return finish_inspection(lambda: describe_recorded(
        model, record_layer(model, data, layer=layer, loss=loss, sequences=sequences), has_loss=loss is not None
    ), out)  # fmt: skip


def describe_recorded(model: nn.Module, recorded: RecordedLayer, *, has_loss: bool) -> InspectedNetwork:
    """Return a layer inside a model as the page takes it. The longest sequence is shown, the first of several."""
    kind, layer = type(recorded.layer).__name__, recorded.layer
    lengths = [len(sequence) for sequence in recorded.inputs]
    steps = str(lengths[0]) if min(lengths) == max(lengths) else f"{min(lengths)} to {max(lengths)}"
    facts = {
        "model": type(model).__name__,
        "layer": f"{recorded.name or kind}: {layer}",
        "looked at with": f"{format_count(len(lengths), 'sequence')} of {steps} steps",
    }
    if not has_loss:
        facts["change of the output"] = CHANGE_FACT
    # only the readout of a Network is known to be all that reads its layer
    readout = model.readout if isinstance(model, Network) and recorded.name == "layer" else None
    return InspectedNetwork(
        task="",
        name=f"{kind} {recorded.name!r}" if recorded.name else kind,
        layer=layer,
        readout=readout,
        inputs=recorded.inputs,
        measure=None,
        shown=int(np.argmax(lengths)),
        display=LayerInput(type(model).__name__, recorded.name),
        facts=facts,
        recorded=recorded.respond,
    )
