"""torch.onnx.export exports models that contain our layers, with the translations of cwrnn.export."""

import sys

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

import onnxruntime

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN
from cwrnn.backends import BACKENDS
from cwrnn.export import get_onnx_translations
from cwrnn.network import Network

pytestmark = [
    # without a kernel, torch records the cascade itself and needs no translation
    pytest.mark.skipif(
        BACKENDS["cpu"].refuse(torch.device("cpu"), torch.float32) is not None, reason="needs the CPU kernel"
    ),
    # torch copies its own deprecated classes
    pytest.mark.filterwarnings("ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning"),
]


class Tagger(nn.Module):
    """A user's model: something before and after a layer."""

    def __init__(self, layer):
        super().__init__()
        self.embedding = nn.Linear(2, 3)
        self.layer = layer
        self.head = nn.Linear(layer.hidden_size, 4)

    def forward(self, input):
        output, after = self.layer(self.embedding(input).tanh())
        return self.head(output), *(after if isinstance(after, tuple) else (after,))


class Stream(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, input, h, t0):
        return self.layer(input, h, t0=t0)


def export(model, arguments, **options):
    return torch.onnx.export(
        model.eval(),
        arguments,
        dynamo=True,
        verbose=False,
        custom_translation_table=get_onnx_translations(),
        **options,
    )


def run(program, *arguments):
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    fed = {name: np.asarray(value) for name, value in zip(names, arguments, strict=True)}
    return [torch.from_numpy(value) for value in session.run(None, fed)]


@pytest.mark.parametrize(
    "layer",
    [
        ClockworkRNN(3, 8, 2, schedule="1:3,2:2,5:3"),
        ClockworkLSTM(3, 8, schedule=3, peepholes=True, batch_first=True),
        ClockworkGRU(3, 8, schedule=[2, 3], bias=False),
    ],
    ids=["RNN", "LSTM", "GRU"],
)
def test_a_model_with_a_layer_runs_with_any_length_and_batch(close, layer):
    model = Tagger(layer)
    dynamic = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = export(model, (torch.randn(7, 2, 2),), dynamic_shapes=(dynamic,))
    for shape in ((7, 2, 2), (1, 1, 2), (23, 5, 2)):
        input = torch.randn(shape)
        with torch.no_grad():
            expected = model(input)
        for actual, wanted in zip(run(program, input), expected, strict=True):
            close(actual, wanted)


@pytest.mark.parametrize(
    "layer", [ClockworkRNN(3, 8, schedule=3), ClockworkGRU(3, 8, schedule=[2, 3])], ids=["RNN", "GRU"]
)
def test_a_readout_at_tick_rate_is_exported(close, layer):
    network = Network(layer, 2, softmax=True)
    input = torch.randn(7, 2, 3)
    (actual,) = run(export(network, (input,)), input)
    with torch.no_grad():
        close(actual, network(input))


def test_both_directions_and_a_dynamic_clock_are_exported(close):
    model = Stream(ClockworkGRU(3, 8, 2, schedule=3, bidirectional=True))
    any_length = torch.export.Dim.DYNAMIC
    arguments = torch.randn(9, 2, 3), torch.randn(4, 2, 8), 5
    program = export(model, arguments, dynamic_shapes=({0: any_length, 1: any_length}, {1: any_length}, any_length))
    for T, t0 in ((9, 5), (4, 2), (14, 1)):
        input, h = torch.randn(T, 3, 3), torch.randn(4, 3, 8)
        with torch.no_grad():
            expected = model(input, h, t0)
        for actual, wanted in zip(run(program, input, h, t0), expected, strict=True):
            close(actual, wanted)


class OfLengths(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = ClockworkRNN(3, 8, schedule=2)

    def forward(self, input, lengths):
        return self.layer(input, lengths=lengths)


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (ClockworkRNN(3, 8, schedule=2).double(), (torch.randn(4, 1, 3).double(),), "only float32 layers"),
        (OfLengths(), (torch.randn(4, 2, 3), torch.tensor([4, 2])), "with lengths or packed sequences"),
    ],
    ids=["float64", "lengths"],
)
def test_layers_that_cannot_be_exported_are_refused_with_a_reason(model, arguments, message):
    with pytest.raises(torch.onnx.OnnxExporterError) as caught:
        export(model, arguments)
    reasons, error = [], caught.value
    while error is not None:
        reasons.append(str(error))
        error = error.__cause__
    assert any(message in reason for reason in reasons)


def test_the_error_without_translations_names_the_operator():
    with pytest.raises(torch.onnx.OnnxExporterError, match="No ONNX function found for .*cwrnn.recurrence"):
        torch.onnx.export(ClockworkRNN(3, 8).eval(), (torch.randn(4, 1, 3),), dynamo=True, verbose=False)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"torch.onnx.export needs onnxscript: pip install 'cwrnn\[onnx\]'"):
        get_onnx_translations()
