"""Networks without clocks, which an exported network is compared with: they have one module of period 1."""

from collections.abc import Callable

import numpy as np

from ..cells import CELLS, PEEPHOLES
from ..schedule import Schedule
from .model import Array, Model, ModelLayer


def count_parameters(model: Model) -> int:
    """The number of weights and biases of a model, without forbidden weights."""
    layers = sum(
        CELLS[layer.cell].gates * (layer.schedule.recurrent_parameter_count() + layer.units * layer.inputs)
        + (0 if layer.bias is None else layer.bias.size)
        + (0 if layer.weight_ch is None else PEEPHOLES * layer.units)
        for layer in model.layers
    )
    return layers + sum(array.size for array in (model.readout_weight, model.readout_bias) if array is not None)


def make_rivals(model: Model) -> dict[str, Model]:
    """Networks of as many layers, inputs and outputs with random weights, by their descriptions.

    They are an RNN with the units of the model, and an RNN, an LSTM and a GRU whose numbers of parameters are closest
    to that of the model.
    """
    parameters = count_parameters(model)

    def fit(cell: str) -> Model:
        return _find_closest(lambda units: _make_network(model, cell, units), parameters)

    return {
        "RNN, same units": _make_network(model, "tanh", model.layers[-1].units),
        "RNN, same parameters": fit("tanh"),
        "LSTM, same parameters": fit("lstm"),
        "GRU, same parameters": fit("gru"),
    }


def _find_closest(make: Callable[[int], Model], parameters: int) -> Model:
    fewer, more = 1, 2
    while count_parameters(make(more)) <= parameters:
        fewer, more = more, 2 * more
    while more - fewer > 1:
        middle = (fewer + more) // 2
        fewer, more = (middle, more) if count_parameters(make(middle)) <= parameters else (fewer, middle)
    return min((make(fewer), make(more)), key=lambda model: abs(count_parameters(model) - parameters))


def _make_network(model: Model, cell: str, units: int) -> Model:
    """A network of the shape of `model` with another cell and other units, and random weights."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> Array:
        weights: Array = (generator.standard_normal(shape) / np.sqrt(units)).astype(np.float32)
        return weights

    gates, biases, _ = CELLS[cell]
    layers = tuple(
        ModelLayer(
            cell=cell,
            schedule=Schedule((1,), (units,)),
            weight_ih=draw(gates * units, model.inputs if number == 0 else units),
            weight_hh=draw(gates * units, units),
            bias=None if model.layers[0].bias is None else draw(biases * units),
            weight_ch=None,
        )
        for number in range(len(model.layers))
    )
    if model.readout_weight is None:
        return Model(layers)
    readout_bias = None if model.readout_bias is None else draw(model.outputs)
    return Model(layers, draw(model.outputs, units), readout_bias)
