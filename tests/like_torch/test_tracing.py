"""torch.jit and torch.fx trace models that hold a layer, and torch.export saves them, as with torch.nn.RNN."""

import io

import pytest
import torch
from torch import nn

from cwrnn import ClockworkRNN, LearnedClockworkRNN, State


class Model(nn.Module):
    """A layer and a readout; `call` calls the layer."""

    def __init__(self, layer, call=lambda layer, x: layer(x)):
        super().__init__()
        self.rnn, self.readout, self.call = layer, nn.Linear(8, 2), call

    def forward(self, x):
        output, _ = self.call(self.rnn, x)
        return self.readout(output)


def make_layer(**options):
    return ClockworkRNN(3, 8, schedule=[1, 2, 4], **options)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}], ids=str)
def test_a_traced_layer_can_be_saved(options, close):
    rnn, x = make_layer(**options), torch.randn(9, 2, 3)
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(rnn, (x,)), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    other = torch.randn(9, 2, 3)
    for found, expected in zip(loaded(other), rnn(other), strict=True):
        close(found, expected)
    loaded(other)[0].sum().backward()
    rnn(other)[0].sum().backward()
    for (name, found), expected in zip(loaded.named_parameters(), rnn.parameters(), strict=True):
        close(found.grad, expected.grad, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x: layer(x),
        lambda layer, x: layer(x, torch.ones(1, 2, 8)),
        lambda layer, x: layer(x, t0=3),
        lambda layer, x: layer(x, lengths=[4, 9]),
        lambda layer, x: layer(x, State(torch.ones(1, 2, 8), 3)),
        lambda layer, x: layer(x, return_state=True),
    ],
    ids=["plain", "state", "clock", "lengths", "stream", "return_state"],
)
def test_fx_records_the_layer_as_one_node(call):
    model = Model(make_layer(), call)
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


@pytest.mark.parametrize("kind", [ClockworkRNN, LearnedClockworkRNN])
def test_fx_does_not_trace_a_layer_alone(kind):
    with pytest.raises(TypeError, match=f"torch.fx cannot trace a {kind.__name__} alone: trace a model that holds it"):
        torch.fx.symbolic_trace(kind(3, 8))


def test_an_exported_program_can_be_saved_and_loaded(tmp_path, close):
    model, x = Model(make_layer()), torch.randn(9, 2, 3)
    torch.export.save(torch.export.export(model, (x,)), tmp_path / "program.pt2")
    close(torch.export.load(tmp_path / "program.pt2").module()(x), model(x))


def test_an_exported_program_takes_and_returns_a_state(tmp_path, close):
    rnn, x = make_layer(), torch.randn(9, 2, 3)
    torch.export.save(torch.export.export(rnn, (x, State(torch.zeros(1, 2, 8), 3))), tmp_path / "program.pt2")
    start = State(torch.randn(1, 2, 8), 3)
    output, state = torch.export.load(tmp_path / "program.pt2").module()(x, start)
    close(output, rnn(x, start)[0])
    assert (type(state), state.t) == (State, 12)
