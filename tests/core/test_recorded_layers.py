"""A layer inside any model is found, its real inputs are kept, and modules are silenced where the model reads them."""

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import DataLoader, TensorDataset

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, LearnedClockworkRNN
from cwrnn.inspection import Replacement, compute_states, find_layer, inspect, inspect_layer, record_layer
from cwrnn.network import Network

KINDS = [ClockworkRNN, ClockworkLSTM, ClockworkGRU]


class Encoder(nn.Module):
    """A model of a user: something before the layer, something after it, dropout and a choice of calls."""

    def __init__(self, kind=ClockworkRNN, form="forward", **options):
        super().__init__()
        self.before = nn.Linear(3, 4)
        self.inner = nn.ModuleDict({"rnn": kind(4, 6, schedule="1:2,2:2,4:2", **options)})
        self.after = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 2))
        self.form = form

    def forward(self, x):
        rnn, x = self.inner["rnn"], self.before(x).tanh()
        if self.form == "ticks":
            return self.after(rnn.ticks(x)[0].hold())
        if self.form == "final":
            hidden = rnn(x)[1]
            return self.after((hidden[0] if isinstance(hidden, tuple) else hidden)[0])
        if self.form == "state":
            return self.after(rnn(x, return_state=True)[1].h[0])
        return self.after(rnn(x)[0])


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def silence_by_hand(model, x, replacement):
    """The output of the model with one module at a constant, computed step by step from the definition."""
    rnn = model.inner["rnn"]
    inputs = model.before(x).tanh()
    units = rnn.schedule.slices[replacement.module]
    outputs, state = [], None
    h = torch.zeros(1, x.shape[1], 6)
    for t, step in enumerate(inputs):
        if (state is not None and replacement.everywhere) or t == 0:
            h = h.clone()
            if replacement.everywhere:
                h[..., units] = replacement.value.float()
            parts = (h,) if rnn.cell != "lstm" else (h, torch.zeros_like(h) if state is None else state.c)
            state = rnn._state_type(*parts, t)
        y, state = rnn.step(step, state)
        h = state.h
        outputs.append(y)
    states = torch.stack(outputs)
    states[..., units] = replacement.value.float()
    return model.after(states)


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_silenced_module_is_a_constant_for_the_rest_of_the_model(kind, everywhere):
    model, x = Encoder(kind).eval(), torch.randn(12, 5, 3)
    recorded = record_layer(model, x)
    assert recorded.respond(None) == {"change": 0.0}
    with torch.no_grad():
        before = model(x)
        for module in range(3):
            replacement = Replacement(module, torch.tensor([0.3, -0.6]).double(), everywhere)
            after = silence_by_hand(model, x, replacement)
            expected = float((after - before).square().mean() / before.var(correction=0))
            assert recorded.respond(replacement)["change"] == pytest.approx(expected, rel=1e-4)


def test_the_layer_reads_what_the_model_gives_it(kind):
    model, x = Encoder(kind), torch.randn(12, 5, 3)
    recorded = record_layer(model, x)
    assert recorded.name == "inner.rnn"
    assert recorded.layer is model.inner["rnn"]
    expected = model.before(x).tanh().detach().double().numpy()
    assert len(recorded.inputs) == 5
    for place, sequence in enumerate(recorded.inputs):
        np.testing.assert_array_equal(sequence, expected[:, place])


def test_the_model_is_left_as_it_was(kind):
    model, x = Encoder(kind), torch.randn(12, 5, 3)
    model.after.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state, modes = torch.get_rng_state(), [module.training for module in model.modules()]
    recorded = record_layer(model, x)
    inspect_layer(recorded.layer, recorded.inputs, recorded.respond)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert not {"forward", "ticks", "step"} & set(vars(recorded.layer))
    with pytest.raises(ValueError, match="cannot run on them"):
        record_layer(model, torch.randn(12, 5, 9))
    assert not {"forward", "ticks", "step"} & set(vars(recorded.layer))


@pytest.mark.parametrize("form", ["ticks", "final", "state"])
def test_every_way_to_read_a_layer_is_silenced(kind, form):
    model, x = Encoder(kind, form), torch.randn(12, 5, 3)
    recorded = record_layer(model, x)
    with torch.no_grad():
        model.eval()
        before, by_hand = model(x), []
        for module in range(3):
            replacement = Replacement(module, torch.tensor([0.3, -0.6]).double(), True)
            after = silence_by_hand(model, x, replacement)
            after = after if form == "ticks" else after[-1]
            by_hand.append(float((after - before).square().mean() / before.var(correction=0)))
            assert recorded.respond(replacement)["change"] == pytest.approx(by_hand[-1], rel=1e-4)
    assert max(by_hand) > 1e-4


def test_sequences_of_any_form_are_kept(kind):
    x, lengths = torch.randn(9, 3, 4), torch.tensor([9, 2, 5])
    layer = kind(4, 6, schedule=[1, 2])
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    first = kind(4, 6, schedule=[1, 2], batch_first=True)
    for model, data, expected in (
        (layer, x, [x[:, i] for i in range(3)]),
        (first, x.transpose(0, 1), [x[:, i] for i in range(3)]),
        (layer, x[:, 0], [x[:, 0]]),
        (layer, [x[:, 0], x[:4, 1]], [x[:, 0], x[:4, 1]]),
        (layer, lambda model: model(x, lengths=lengths)[0], [x[: lengths[i], i] for i in range(3)]),
        # a packed batch is sorted by length inside
        (layer, lambda model: model(packed)[0], [x[:, 0], x[:5, 2], x[:2, 1]]),
    ):
        inputs = record_layer(model, data).inputs
        assert [len(sequence) for sequence in inputs] == [len(sequence) for sequence in expected]
        for sequence, tensor in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(sequence, tensor.double().numpy())


def test_padding_stays_zero_when_a_module_is_silenced():
    """The output beyond a sequence's end is zero in the model, so it must be so without a module."""
    layer, x, lengths = ClockworkRNN(4, 6, schedule=[1, 2]), torch.randn(9, 2, 4), torch.tensor([9, 3])
    outputs = []

    def run(model):
        outputs.append(model(x, lengths=lengths)[0])
        return outputs[-1]

    record_layer(layer, run).respond(Replacement(1, torch.ones(3).double(), True))
    assert not outputs[-1][3:, 1].any()
    assert (outputs[-1][:3, 1, 3:] == 1).all()


def test_a_layer_with_a_linear_readout_is_measured_as_a_network():
    """The general way and the special one agree."""
    network = Network(ClockworkRNN(3, 6, schedule="1:2,2:2,4:2"), 2).double()
    x = torch.randn(20, 4, 3, dtype=torch.float64)
    recorded = record_layer(network, x)
    general = inspect_layer(recorded.layer, recorded.inputs, recorded.respond, readout=network.readout)
    before = np.concatenate([output.numpy() for output in network(x).detach().unbind(1)])

    def change(outputs):
        return {"change": float(np.square(np.concatenate(outputs) - before).mean() / before.var())}

    special = inspect(network.layer, network.readout, recorded.inputs, change)
    np.testing.assert_array_equal(general.memory.norms, special.memory.norms)
    np.testing.assert_array_equal(general.weights.output, special.weights.output)
    for one, other in zip(general.modules, special.modules, strict=True):
        for name in ("zero", "mean", "zero_readout", "mean_readout"):
            expected = getattr(other.silenced, name)["change"]
            assert getattr(one.silenced, name)["change"] == pytest.approx(expected, rel=1e-9)


def test_a_layer_without_readout_has_no_output_weights():
    layer = ClockworkRNN(3, 6, schedule=[1, 2])
    inspection = inspect_layer(layer, [np.random.randn(9, 3)], lambda replacement: {"error": 0.0})
    assert np.isnan(inspection.weights.output).all()
    assert not inspection.cost.readout.any()


def test_batches_are_read_until_there_are_enough_sequences():
    read = []

    def batches():
        for i in range(100):
            read.append(i)
            yield torch.randn(6, 4, 3)

    recorded = record_layer(ClockworkRNN(3, 4, schedule=2), batches(), sequences=10)
    assert (len(recorded.inputs), read) == (10, [0, 1, 2])
    # the same three batches again, although the generator is exhausted
    assert recorded.respond(None)["change"] == 0
    assert recorded.respond(Replacement(0, torch.ones(2).double(), False))["change"] > 0


def test_loss_of_pairs_is_the_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (8, 3)), Last(ClockworkRNN(3, 4, schedule=2, batch_first=True)))
    x, y = torch.randn(10, 24), torch.randn(10, 4)
    loader = DataLoader(TensorDataset(x, y), batch_size=5)
    recorded = record_layer(model, loader, loss=nn.MSELoss())
    with torch.no_grad():
        expected = [float(nn.functional.mse_loss(model(x[i : i + 5]), y[i : i + 5])) for i in (0, 5)]
    assert recorded.respond(None) == {"loss": pytest.approx(np.mean(expected), rel=1e-5)}
    shuffled = record_layer(model, DataLoader(TensorDataset(x, y), batch_size=5, shuffle=True), loss=nn.MSELoss())
    assert shuffled.respond(None) == shuffled.respond(None)
    for data, message in (
        (x, "every batch of data must be a pair"),
        ([x], "every batch of data must be a pair"),
        (lambda model: model(x), "a function as data has no targets"),
    ):
        with pytest.raises(ValueError, match=message):
            record_layer(model, data, loss=nn.MSELoss())


class Last(nn.Module):
    """The output of a layer at the last step, of any arguments by name."""

    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x, scale=1.0):
        return self.rnn(scale * x)[0][:, -1]


def test_arguments_may_have_names_and_outputs_may_be_tuples():
    model = Last(ClockworkRNN(3, 4, schedule=2, batch_first=True))
    x = np.random.default_rng(0).standard_normal((2, 5, 3))
    # in float64, as numpy makes it: the dtype of the layer counts
    recorded = record_layer(model, [{"x": x, "scale": 2.0}])
    np.testing.assert_allclose(recorded.inputs[0], 2 * x[0], rtol=1e-6)
    for make in (lambda y: (y, 1), lambda y: {"logits": y}, lambda y: [[y]]):
        assert record_layer(model, lambda model, make=make: make(model(torch.randn(2, 5, 3)))).respond(None)


def test_the_layer_is_chosen_by_its_name():
    model = nn.ModuleDict({"a": ClockworkRNN(3, 4), "b": nn.Sequential(ClockworkLSTM(4, 4))})
    with pytest.raises(
        ValueError, match=re.escape("layer: the model has 2 layers with clocks: choose one of 'a', 'b.0'")
    ):
        find_layer(model)
    assert find_layer(model, "b.0") == ("b.0", model["b"][0])
    with pytest.raises(ValueError, match=re.escape("layer: expected one of 'a', 'b.0', got 'c'")):
        find_layer(model, "c")
    assert find_layer(model["a"]) == ("", model["a"])


class Stepping(nn.Module):
    def __init__(self, call):
        super().__init__()
        self.rnn, self.call = ClockworkRNN(3, 4, schedule=2), call

    def forward(self, x):
        return self.call(self.rnn, x)


@pytest.mark.parametrize(
    ("model", "data", "error", "message"),
    [
        (nn.GRU(3, 4), torch.zeros(2, 1, 3), ValueError, "model: there is no ClockworkRNN, ClockworkLSTM or"),
        (LearnedClockworkRNN(3, 4), torch.zeros(2, 1, 3), ValueError, "harden() turns its LearnedClockworkRNN into"),
        (ClockworkRNN(3, 4, num_layers=2), torch.zeros(2, 1, 3), ValueError, "has num_layers=2, bidirectional=False"),
        (ClockworkRNN(3, 4, bidirectional=True), torch.zeros(2, 1, 3), ValueError, "bidirectional=True"),
        ("model", torch.zeros(2, 1, 3), TypeError, "model must be a torch.nn.Module, got str"),
        (ClockworkRNN(3, 4), 7, TypeError, "data must be a tensor, an array, an iterable of batches or a function"),
        (ClockworkRNN(3, 4), "x.csv", TypeError, "got str"),
        (ClockworkRNN(3, 4), [], ValueError, "data: there is no batch"),
        (ClockworkRNN(3, 4), torch.zeros(2, 1, 5), ValueError, "data: the model cannot run on them: input"),
        (ClockworkRNN(3, 4), torch.full((2, 1, 3), torch.nan), ValueError, "not finite"),
        (ClockworkRNN(3, 4, bias=False), torch.zeros(2, 1, 3), ValueError, "the output of the model is constant"),
        (ClockworkRNN(3, 4), torch.zeros(0, 1, 3), ValueError, "must return numbers in a tensor"),
        (Stepping(lambda rnn, x: x), torch.randn(5, 1, 3), ValueError, "the model never called its layer 'rnn'"),
        (Stepping(lambda rnn, x: rnn.step(x[0])[0]), torch.randn(5, 1, 3), ValueError, "model: it calls step of its"),
        (Stepping(lambda rnn, x: rnn(x, t0=3)[0]), torch.randn(5, 1, 3), ValueError, "a state or a clock other than"),
        (Stepping(lambda rnn, x: rnn(x, torch.ones(1, 1, 4))[0]), torch.randn(5, 1, 3), ValueError, "a state or a"),
        (Stepping(lambda rnn, x: rnn(x)[0].argmax(-1)), torch.randn(5, 1, 3), ValueError, "a tensor of torch.int64"),
        (Stepping(lambda rnn, x: rnn(x) and None), torch.randn(5, 1, 3), ValueError, "got NoneType"),
    ],
)  # fmt: skip
def test_what_cannot_be_inspected_is_refused(model, data, error, message):
    with pytest.raises(error, match=re.escape(message)):
        record_layer(model, data)


def test_a_state_of_zero_is_no_state():
    model = Stepping(lambda rnn, x: rnn(x, torch.zeros(1, 1, 4), t0=0)[0])
    assert len(record_layer(model, torch.randn(5, 1, 3)).inputs) == 1


def test_a_subclass_of_a_layer_is_copied_as_its_base():
    class Mine(ClockworkRNN):
        def __init__(self):
            super().__init__(3, 4, schedule=[1, 2])

    layer, x = Mine(), torch.randn(7, 1, 3)
    [states] = compute_states(layer, record_layer(layer, x).inputs)
    np.testing.assert_allclose(states, layer(x)[0].detach()[:, 0], atol=1e-6)


def test_random_models_are_compared_on_the_same_random_numbers():
    """Without a module that matters, the output of a model with noise does not change."""
    model = Stepping(lambda rnn, x: rnn(x)[0][..., :2] + torch.randn(5, 2, 2))
    with torch.no_grad():
        # the fast module reads nothing of the slow one, and the output is the fast module alone
        model.rnn.weight_hh_l0[:2, 2:] = 0
    x = torch.randn(5, 2, 3)
    recorded = record_layer(model, x)
    assert recorded.respond(Replacement(1, torch.ones(2).double(), True)) == {"change": 0.0}
    # and a page does not depend on what the user has drawn before
    replacement = Replacement(0, torch.ones(2).double(), True)
    changes = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        changes.append(record_layer(model, x).respond(replacement)["change"])
    assert changes[0] == changes[1] > 0
