"""torch.jit and torch.fx trace models that hold a layer, and torch.export saves them, as with torch's layers."""

import io
from itertools import product

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, as_hidden, is_lstm, join
from torch import nn

from cwrnn import LearnedClockworkRNN, LSTMState, State


class Model(nn.Module):
    """A layer and a readout; `call` calls the layer."""

    def __init__(self, layer, call=lambda layer, x: layer(x)):
        super().__init__()
        self.rnn, self.readout, self.call = layer, nn.Linear(8, 2), call

    def forward(self, x):
        output, _ = self.call(self.rnn, x)
        return self.readout(output)


def make_layer(kind="RNN", **options):
    return CLOCKWORK[kind](3, 8, schedule=[1, 2, 4], **options)


def make_state(layer, h):
    """The state of a stream after three steps."""
    return LSTMState(*as_hidden(layer, h), 3) if is_lstm(layer) else State(h, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *product(["RNN"], [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}]),
        ("LSTM", {"peepholes": True}),
        ("GRU", {}),
    ],
    ids=str,
)
def test_a_traced_layer_can_be_saved(kind, options, close):
    rnn, x = make_layer(kind, **options), torch.randn(9, 2, 3)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(rnn, (x,)), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    other = torch.randn(9, 2, 3)
    for found, expected in zip(loaded(other), rnn(other), strict=True):
        close(join(found), join(expected))
    loaded(other)[0].sum().backward()
    rnn(other)[0].sum().backward()
    for (name, found), expected in zip(loaded.named_parameters(), rnn.parameters(), strict=True):
        close(found.grad, expected.grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x: layer(x),
        lambda layer, x: layer(x, as_hidden(layer, torch.ones(1, 2, 8))),
        lambda layer, x: layer(x, t0=3),
        lambda layer, x: layer(x, lengths=[4, 9]),
        lambda layer, x: layer(x, make_state(layer, torch.ones(1, 2, 8))),
        lambda layer, x: layer(x, return_state=True),
    ],
    ids=["plain", "state", "clock", "lengths", "stream", "return_state"],
)
def test_fx_records_the_layer_as_one_node(call, kind):
    model = Model(make_layer(kind), call)
    traced = torch.fx.symbolic_trace(model)
    assert [node.target for node in traced.graph.nodes if node.op == "call_module"] == ["rnn", "readout"]
    for T in (9, 12):
        x = torch.randn(T, 2, 3)
        assert torch.equal(traced(x), model(x))


def test_fx_records_a_layer_as_torchs_own(make):
    """Inside containers, and twice in one graph."""
    layer = make(3, 8)
    model = nn.Sequential(Model(layer), nn.Linear(2, 3), Model(layer))
    traced = torch.fx.symbolic_trace(model)
    x = torch.randn(9, 2, 3)
    assert torch.equal(traced(x), model(x))
    targets = [node.target for node in traced.graph.nodes if node.op == "call_module"]
    assert targets == ["0.rnn", "0.readout", "1", "0.rnn", "2.readout"]


def test_fx_records_a_learned_layer_as_one_node():
    model, x = Model(LearnedClockworkRNN(3, 8)), torch.randn(9, 2, 3)
    assert torch.equal(torch.fx.symbolic_trace(model)(x), model(x))


@pytest.mark.parametrize("layer", [*CLOCKWORK.values(), LearnedClockworkRNN])
def test_fx_does_not_trace_a_layer_alone(layer):
    with pytest.raises(TypeError, match=f"torch.fx cannot trace a {layer.__name__} alone: trace a model that holds it"):
        torch.fx.symbolic_trace(layer(3, 8))


def test_an_exported_program_can_be_saved_and_loaded(tmp_path, close, kind):
    model, x = Model(make_layer(kind)), torch.randn(9, 2, 3)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "program.pt2")
    close(torch.export.load(tmp_path / "program.pt2").module()(x), model(x))


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_an_exported_program_takes_and_returns_a_state(tmp_path, close, kind):
    rnn, x = make_layer(kind), torch.randn(9, 2, 3)
    torch.export.save(torch.export.export(rnn, (x, make_state(rnn, torch.zeros(1, 2, 8)))), tmp_path / "program.pt2")
    start = make_state(rnn, torch.randn(1, 2, 8))
    output, state = torch.export.load(tmp_path / "program.pt2").module()(x, start)
    expected, after = rnn(x, start)
    close(output, expected)
    close(join(state[:-1]), join(after[:-1]))
    assert (type(state), state.t) == (type(start), 12)
