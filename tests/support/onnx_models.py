"""Layers of all cells, and their exports to ONNX in onnxruntime."""

import numpy as np
import onnxruntime
import torch

from cwrnn.export.model import read_model
from cwrnn.export.onnx.sequence import build_sequence
from cwrnn.network import LAYERS, Network


def make_layer(cell, inputs, schedule, layers=1, **options):
    """Return a layer that runs the specification, with weights that let modules differ."""
    if cell == "relu":
        options["nonlinearity"] = "relu"
    torch.manual_seed(options.pop("seed", 0))
    layer = LAYERS[cell](inputs, schedule.hidden_size, layers, schedule=schedule, backend="reference", **options)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / schedule.hidden_size**0.5)
        for name, parameter in layer.named_parameters():
            if name.startswith("weight_hh"):
                parameter.mul_(torch.from_numpy(schedule.mask()).repeat(parameter.shape[0] // parameter.shape[1], 1))
    return layer


def open_session(model):
    """Return a session of onnxruntime that runs a model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def open_export(source, opset=17):
    """Return a session of the model for whole sequences."""
    return open_session(build_sequence(read_model(source), "network", opset))


def draw_state(layer, B):
    """Return a random state: [h], or [h, c] for an LSTM."""
    shape = layer.num_layers, B, layer.hidden_size
    return [torch.randn(shape) for _ in range(2 if layer.cell == "lstm" else 1)]


def run_export(session, input, state, t0):
    """Return the output and the final state of an export as tensors."""
    names = [f"{name}_0" for name in ("h", "c")[: len(state)]]
    states = {name: part.numpy() for name, part in zip(names, state, strict=True)}
    return [
        torch.from_numpy(value) for value in session.run(None, {"input": input.numpy(), "t0": np.array(t0), **states})
    ]


def run_network(network, input, state, t0):
    """Return the output and the final state of a layer or a network, computed by the specification."""
    layer = network.layer if isinstance(network, Network) else network
    hx = state[0] if len(state) == 1 else tuple(state)
    with torch.no_grad():
        output, after = layer(input, hx, t0=t0)
        if layer is not network:
            output = network.readout(output)
            output = output.log_softmax(-1) if network.softmax else output
    return [output, *(after if isinstance(after, tuple) else (after,))]
