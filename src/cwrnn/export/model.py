"""The model that is exported: its layers, its readout and its labels as plain arrays, whatever it was made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..cells import CELLS
from ..experiments.errors import ExperimentError
from ..experiments.words.features import FeatureSettings
from ..experiments.words.recogniser.model import KIND as WORDS
from ..experiments.words.recogniser.model import Recogniser
from ..layer import AnyLayer, ClockworkLayer
from ..network import Network
from ..saved import SavedNetwork
from ..schedule import Schedule
from ..tensor_files import quote

Array = NDArray[np.float32]


class ExportError(ExperimentError):
    """A model that cannot be exported, or an export that its target cannot hold; the message says why."""


@dataclass(frozen=True, eq=False)
class ModelLayer:
    """One layer with clocks. The arrays have the shapes and the order of the layer's parameters (`reference.py`)."""

    cell: str
    """"tanh", "relu", "lstm" or "gru"."""
    schedule: Schedule
    """The periods and sizes of its modules."""
    weight_ih: Array
    """The input weights, (gates N, I)."""
    weight_hh: Array
    """The recurrent weights, (gates N, N), zero where a fast module would speak to a slow one."""
    bias: Array | None
    """The biases, (biases N), or None if the layer has none."""
    weight_ch: Array | None
    """The peepholes of an LSTM, (3 N), or None if the layer has none."""

    @property
    def inputs(self) -> int:
        """The number of inputs of the layer."""
        return int(self.weight_ih.shape[1])

    @property
    def units(self) -> int:
        """The number of hidden units."""
        return self.schedule.hidden_size


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a recogniser: how sound becomes the input of the network."""

    settings: FeatureSettings
    """The settings of the frames and their channels."""
    mean: NDArray[np.float64]
    """The numbers that are subtracted from every frame, (channels)."""
    deviation: NDArray[np.float64]
    """The numbers that every frame is divided by, (channels)."""


@dataclass(frozen=True, eq=False)
class Model:
    """A network as all targets of the export take it: float32 on the CPU, every number finite."""

    layers: tuple[ModelLayer, ...]
    """The layers, from the one that reads the input on."""
    readout_weight: Array | None = None
    """The weights of the readout, (outputs, N), or None if the output of the last layer is the result."""
    readout_bias: Array | None = None
    """The biases of the readout, (outputs), or None if it has none."""
    softmax: bool = False
    """True if the readout goes through a softmax.

    C and WebAssembly return the numbers before the softmax, which have the same order. ONNX returns the logarithms of
    the probabilities, as `Network` does.
    """
    labels: tuple[str, ...] = ()
    """The name of each output; empty if outputs have none."""
    features: Features | None = None
    """The features of a recogniser, or None for a network that reads numbers."""
    batch_first: bool = False
    """True if sequences are (B, T, features) and not (T, B, features)."""

    @property
    def inputs(self) -> int:
        """The number of inputs at every step."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """The number of outputs: those of the readout, or the units of the last layer."""
        return self.layers[-1].units if self.readout_weight is None else int(self.readout_weight.shape[0])


Exportable = str | Path | SavedNetwork | Recogniser | Network | ClockworkLayer[Any, Any]
"""What can be exported: a file, a saved network, a recogniser, or a network or layer in memory."""


def read_model(source: Exportable) -> Model:
    """The model in a file or in memory.

    Args:
        source: the file of a saved network or recogniser, or one of these in memory, a `Network`, or a layer without
            a readout

    Raises an ExportError if it cannot be exported, and a ModelError if the file cannot be read.

    >>> from cwrnn import ClockworkRNN
    >>> model = read_model(Network(ClockworkRNN(3, 16, schedule=4), output_size=2))
    >>> model.inputs, model.outputs, model.layers[0].schedule.periods
    (3, 2, (1, 2, 4, 8))
    """
    if isinstance(source, (str, Path)):
        source = SavedNetwork.load(Path(source))
    if isinstance(source, SavedNetwork) and source.kind == WORDS:
        source = Recogniser(source)
    if isinstance(source, Recogniser):
        network = source.saved.network
        tensors = source.saved.tensors
        features = Features(source.settings, tensors["features.mean"], tensors["features.deviation"])
        return _read_network(network, labels=source.words, features=features)
    if isinstance(source, SavedNetwork):
        if source.tensors:
            names = ", ".join(map(quote, source.tensors))
            raise ExportError(
                f"a network of the kind {quote(source.kind)} is exported without its extra tensors, so it must have "
                f"none, got {names}: export `SavedNetwork.network`, and apply them outside of the program"
            )
        return _read_network(source.network)
    if isinstance(source, Network):
        return _read_network(source)
    if isinstance(source, ClockworkLayer):
        return Model(_read_layers(source), batch_first=source.batch_first)
    raise ExportError(
        "only a ClockworkRNN, a ClockworkLSTM, a ClockworkGRU, a Network of one of them, a SavedNetwork, a Recogniser "
        f"or a file of one of the last two can be exported, got a {type(source).__name__}"
    )


def _read_network(network: Network, **extras: Any) -> Model:
    if not isinstance(network.layer, ClockworkLayer):
        raise ExportError(f"only networks of layers with clocks can be exported, got a {type(network.layer).__name__}")
    readout = network.readout
    weight, bias = (_read_array(f"{name} of the readout", getattr(readout, name)) for name in ("weight", "bias"))
    layers = _read_layers(network.layer)
    extras |= {"softmax": network.softmax, "batch_first": network.layer.batch_first}
    return Model(layers, weight, bias, **extras)


def _read_layers(layer: AnyLayer) -> tuple[ModelLayer, ...]:
    if layer.bidirectional:
        raise ExportError("a bidirectional layer reads a sequence from its end, so it has no step to export")
    parameters: Mapping[str, Any] = dict(layer.named_parameters())
    mask = np.tile(layer.schedule.mask(), (CELLS[layer.cell].gates, 1))
    layers = []
    for number in range(layer.num_layers):
        weight_ih, weight_hh, bias, weight_ch = (
            _read_array(f"{name} of layer {number}", parameters.get(f"{name}_l{number}"))
            for name in ("weight_ih", "weight_hh", "bias", "weight_ch")
        )
        if weight_ih is None or weight_hh is None:
            raise ExportError(f"layer {number} has no plain weights: remove parametrisations before the export")
        layers.append(ModelLayer(layer.cell, layer.schedule, weight_ih, weight_hh * mask, bias, weight_ch))
    return tuple(layers)


def _read_array(name: str, tensor: torch.Tensor | None) -> Array | None:
    """The numbers of a parameter in float32; None if the network does not have it."""
    if tensor is None:
        return None
    if tensor.is_meta:
        raise ExportError(f"the {name} is on the device meta, where tensors have no numbers: load the weights first")
    array: Array = tensor.detach().to("cpu", torch.float32).contiguous().numpy().copy()
    if not np.isfinite(array).all():
        raise ExportError(f"the {name} has values that are not finite in float32")
    return array
