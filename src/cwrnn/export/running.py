"""The outputs of a model in Python: what every exported program is compared with."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..network import LAYERS
from .model import Array, Model, ModelLayer


def compute_outputs(model: Model, input: Array, dtype: Any = np.float64) -> NDArray[np.float64]:
    """The outputs of a stream that starts with a state of zero.

    Args:
        model: the network
        input: (T, inputs)
        dtype: the numbers to compute with. Default: float64

    Returns (T, outputs), before a softmax.
    """
    hidden = torch.from_numpy(input.astype(dtype)).unsqueeze(1)
    with torch.no_grad():
        for layer in model.layers:
            hidden = _build_layer(layer).to(hidden.dtype)(hidden)[0]
    output = hidden.squeeze(1).numpy()
    # a network may explode: its outputs are then not finite, which is for the caller to see
    with np.errstate(over="ignore", invalid="ignore"):
        if model.readout_weight is not None:
            output = output @ model.readout_weight.astype(dtype).T
        if model.readout_bias is not None:
            output = output + model.readout_bias.astype(dtype)
    return output.astype(np.float64)


def _build_layer(layer: ModelLayer) -> nn.Module:
    options: dict[str, object] = {}
    if layer.cell in ("tanh", "relu"):
        options["nonlinearity"] = layer.cell
    if layer.cell == "lstm":
        options["peepholes"] = layer.weight_ch is not None
    bias = layer.bias is not None
    built: nn.Module = LAYERS[layer.cell](layer.inputs, layer.units, schedule=layer.schedule, bias=bias, **options)
    arrays = {name: getattr(layer, name) for name in ("weight_ih", "weight_hh", "bias", "weight_ch")}
    tensors: dict[str, Tensor] = {
        f"{name}_l0": torch.from_numpy(array) for name, array in arrays.items() if array is not None
    }
    built.load_state_dict(tensors)
    return built
