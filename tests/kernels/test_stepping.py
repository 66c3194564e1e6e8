"""The CPU kernel of a single time step: it equals the specification, and notices every change."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import Case, schedules
from support.rnn_pairs import MAKERS
from torch import nn

from cwrnn import ClockworkRNN, LSTMState, Schedule, State, clockwork_reference
from cwrnn.kernels.cpu import loader, stepping

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

ISAS = loader.executable_isas()


@pytest.mark.parametrize("isa_", ISAS)
@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=20)
@given(
    schedule=schedules(size=20),
    B=st.sampled_from([1, 2, 9]),
    I=st.integers(0, 3),
    t0=st.integers(0, 20),
    bias=st.booleans(),
    seed=st.integers(0, 100),
)
def test_steps_equal_the_specification(isa_, maker, schedule, B, I, t0, bias, seed, close):
    T, N = 2 * schedule.periods[-1] + 1, schedule.hidden_size
    layer = MAKERS[maker](I, N, schedule=schedule, bias=bias, dtype=torch.float64)
    case = Case(schedule, T, B, I, t0, bias=bias, cell=layer.cell, peepholes=layer.peepholes, seed=seed)
    input, *weights, h0 = case.tensors()
    weight_ch = case.weight_ch()
    expected = clockwork_reference(input, *weights, h0, schedule, t0, layer.cell, weight_ch).detach()
    usual = loader.current_isa()
    loader.use_isa(isa_)
    try:
        with torch.no_grad():
            values = dict(zip(("weight_ih", "weight_hh", "bias", "weight_ch"), (*weights, weight_ch), strict=True))
            for name, parameter in layer.named_parameters():
                parameter.copy_(values[name.removesuffix("_l0")])
            state = State(h0[None], t0) if layer.cell != "lstm" else LSTMState(*h0[None].split(N, dim=-1), t0)
            for x_t, right in zip(input, expected, strict=True):
                y, state = layer.step(x_t, state)
                close(y, right[:, :N])
                close(torch.cat(state[:-1], dim=-1)[0], right)
    finally:
        loader.use_isa(usual)
    assert state.t == t0 + case.T


class SteppedStream:
    """A stream of 11 steps, its continuation by `step`, and the expected one by `forward`."""

    def __init__(self, **options):
        self.layer = ClockworkRNN(2, 24, schedule=(1, 2, 4, 8), dtype=torch.float64, **options)
        self.x = torch.randn(40, 3, 2, dtype=torch.float64)
        self.state = None
        with torch.no_grad():
            for x_t in self.x[:11]:
                _, self.state = self.layer.step(x_t, self.state)

    @torch.no_grad()
    def run(self, state, steps=12):
        outputs = []
        for x_t in self.x[11 : 11 + steps]:
            y, state = self.layer.step(x_t, state)
            outputs.append(y)
        return torch.stack(outputs)

    @torch.no_grad()
    def expected(self, state, steps=12):
        return self.layer(self.x[11 : 11 + steps], state[0].clone(), t0=state[1])[0]


@pytest.fixture
def stream():
    return SteppedStream()


@torch.no_grad()
def test_step_ignores_the_default_device(close):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(4, 3)
    with torch.device("meta"):
        found, _ = rnn.step(x)
    close(found, rnn(x[None])[0][0])


def test_step_reaches_the_kernel(stream, calls):
    stream.run(stream.state, steps=3)
    assert [name for name, _ in calls] == ["step"] * 3
    # a state that the user makes has no messages: all are computed anew
    stream.run(State(stream.state.h, 11), steps=2)
    assert [fields[stepping.FIELD_KNOWN] for name, fields in calls if name == "step"] == [11, 12, 13, 0, 1]


def test_step_notices_a_changed_state(stream, close):
    expected = stream.expected(stream.state)
    close(stream.run(stream.state), expected)
    # once more from the same state: the messages since then belong to other states
    close(stream.run(stream.state), expected)
    with torch.no_grad():
        _, state = stream.layer.step(stream.x[10], stream.state)
    # the state of one sequence changes in place, and no longer fits its messages
    state.h[0, 1].mul_(0.5)
    close(stream.run(state), stream.expected(state))
    other = stream.state._replace(h=torch.randn_like(stream.state.h))
    close(stream.run(other), stream.expected(other))
    later = stream.state._replace(t=stream.state.t + 1)
    close(stream.run(later), stream.expected(later))


@torch.no_grad()
def test_step_notices_weights_of_another_dtype():
    layer, x, state = ClockworkRNN(2, 24, schedule=(1, 2, 4, 8)), torch.randn(3, 2), None
    for parameter in layer.parameters():
        # zero is equal in every dtype
        parameter.zero_()
    for _ in range(3):
        _, state = layer.step(x, state)
    # the parameters stay the same objects
    layer.double()
    with pytest.raises(ValueError, match="does not match weight dtype"):
        layer.step(x, state)


def test_step_notices_changed_weights(stream, close):
    with torch.no_grad():
        for parameter in stream.layer.parameters():
            parameter.mul_(0.7)
            close(stream.run(stream.state, steps=3), stream.expected(stream.state, steps=3))
    stream.layer.load_state_dict(SteppedStream().layer.state_dict())
    close(stream.run(stream.state), stream.expected(stream.state))
    optimizer = torch.optim.SGD(stream.layer.parameters(), lr=0.1)
    stream.layer(stream.x)[0].square().sum().backward()
    optimizer.step()
    close(stream.run(stream.state), stream.expected(stream.state))
    with torch.no_grad():
        _, state = stream.layer.step(stream.x[10], stream.state)
        # autograd counts even the change of a single weight
        stream.layer.weight_hh_l0[1, 23] += 1
        expected = stream.layer(stream.x[:9], state.h, t0=state.t)[0]
        for x_t, right in zip(stream.x[:9], expected, strict=True):
            y, state = stream.layer.step(x_t, state)
            close(y, right)
    # autograd counts none of these changes, and the stream continues
    for change in (
        lambda weight: torch.optim.SGD([weight], lr=0.1, fused=True).step(),
        lambda weight: weight.data.normal_(0, 0.1),
        lambda weight: np.copyto(weight.detach().numpy(), np.random.default_rng(0).normal(0, 0.1, weight.shape)),
        lambda weight: setattr(weight, "data", torch.randn_like(weight) * 0.1),
    ):
        for parameter in stream.layer.parameters():
            change(parameter)
            with torch.no_grad():
                expected = stream.layer(stream.x[:1], state.h, t0=state.t)[0][0]
                y, state = stream.layer.step(stream.x[0], state)
            close(y, expected)
    stream.layer.double().weight_hh_l0.data = torch.randn(24, 24, dtype=torch.float64) * 0.1
    close(stream.run(stream.state), stream.expected(stream.state))


def test_zeros_of_another_sign_are_other_weights(stream, close, monkeypatch):
    with torch.no_grad():
        stream.layer.weight_ih_l0.zero_()
        _, state = stream.layer.step(stream.x[0], stream.state)
        stream.layer.weight_ih_l0.mul_(-1)
        expected = stream.layer(stream.x[1:2], state.h, t0=state.t)[0][0]
        close(stream.layer.step(stream.x[1], state)[0], expected)
        monkeypatch.setattr(stepping.Messages, "step", lambda *arguments: None)
        with pytest.raises(RuntimeError, match="the weights of the layer changed while it made a step"):
            stream.layer.step(stream.x[2], State(state.h, state.t))


def test_step_notices_another_layer(stream, close):
    """Parameters that are shared by layers with other clocks, another nonlinearity, another backend."""
    for options in ({"schedule": (1, 3, 5)}, {"schedule": 24}, {"nonlinearity": "relu"}, {"backend": "torch"}):
        other = ClockworkRNN(2, 24, dtype=torch.float64, **{"schedule": (1, 2, 4, 8)} | options)
        for name, parameter in stream.layer.named_parameters():
            setattr(other, name, parameter)
        with torch.no_grad():
            _, state = stream.layer.step(stream.x[10], stream.state)
            expected = other(stream.x[:5], state.h, t0=state.t)[0]
            for x_t, right in zip(stream.x[:5], expected, strict=True):
                y, state = other.step(x_t, state)
                close(y, right)
        close(stream.run(stream.state), stream.expected(stream.state))
    # the same layer, after a change
    for name, value in (
        ("schedule", Schedule((1, 2, 6), (8, 8, 8))),
        ("nonlinearity", "relu"),
        ("backend", "reference"),
    ):
        with torch.no_grad():
            _, state = stream.layer.step(stream.x[10], stream.state)
        setattr(stream.layer, name, value)
        close(stream.run(state), stream.expected(state))


def test_step_takes_tensors_of_any_layout(stream, close):
    x = torch.view_as_complex(torch.randn(3, 2, 2, dtype=torch.float64)).conj().imag  # minus its memory
    h = torch.randn(30, dtype=torch.float64).unfold(0, 24, 1)[:3].unsqueeze(0)  # rows that overlap
    bias = nn.Parameter(torch.randn(48, dtype=torch.float64)[::2], requires_grad=False)
    stream.layer.bias_l0 = bias
    with torch.no_grad():
        for _ in range(3):
            expected = stream.layer(x.clone().unsqueeze(0), h.contiguous(), t0=5)[0][0]
            y, state = stream.layer.step(x, State(h, 5))
            close(y, expected)
            close(state.h[0], expected)
            close(stream.layer(x.unsqueeze(0), h, t0=5)[0][0], expected)
            bias.add_(1)


def test_step_computes_with_temporary_weights(stream, close):
    nn.utils.parametrizations.weight_norm(stream.layer, "weight_ih_l0")
    close(stream.run(stream.state), stream.expected(stream.state))
    with torch.inference_mode():
        close(stream.run(stream.state), stream.expected(stream.state))


def test_steps_of_two_layers_and_of_one_sequence_equal_forward(close):
    stream = SteppedStream(num_layers=2)
    close(stream.run(stream.state), stream.expected(stream.state))
    single = SteppedStream()
    state = State(single.state.h[:, 0], 11)
    outputs = []
    with torch.no_grad():
        for x_t in single.x[11:23, 0]:
            y, state = single.layer.step(x_t, state)
            assert y.shape == (24,)
            outputs.append(y)
    close(torch.stack(outputs), single.expected(single.state)[:, 0])


def test_step_output_is_not_the_state(stream):
    with torch.no_grad():
        for _ in range(2):
            y, stream.state = stream.layer.step(stream.x[11], stream.state)
            before = stream.state.h.clone()
            y.zero_()
            assert torch.equal(stream.state.h, before)


def test_step_refuses_inputs_that_do_not_fit(stream):
    with torch.no_grad():
        with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size"):
            stream.layer.step(torch.randn(3, 5, dtype=torch.float64), stream.state)
        with pytest.raises(ValueError, match="does not match weight dtype"):
            stream.layer.step(torch.randn(3, 2), stream.state)
        with pytest.raises(RuntimeError, match="Expected hidden size"):
            stream.layer.step(torch.randn(4, 2, dtype=torch.float64), stream.state)


def test_steps_in_inference_mode_equal_forward(stream, close):
    expected = stream.expected(stream.state)
    with torch.inference_mode():
        close(stream.run(stream.state), expected)


def test_step_with_gradients_continues_from_the_kernel(stream, close):
    expected = stream.layer(stream.x[11:14], stream.state.h, t0=11)[0]
    state = stream.state
    outputs = []
    for x_t in stream.x[11:14]:
        y, state = stream.layer.step(x_t, state)
        outputs.append(y)
    close(torch.stack(outputs), expected)
    loss = torch.stack(outputs).square().sum()
    gradients = torch.autograd.grad(loss, list(stream.layer.parameters()))
    wanted = torch.autograd.grad(expected.square().sum(), list(stream.layer.parameters()))
    for gradient, right in zip(gradients, wanted, strict=True):
        close(gradient, right)


@torch.no_grad()
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_l0"])
def test_step_refuses_parameters_that_no_longer_fit(name):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(4, 3)
    _, state = rnn.step(x)
    parameter = getattr(rnn, name)
    parameter.data = parameter.data[:-1].clone()
    with pytest.raises(ValueError, match="must be"):
        rnn.step(x, state)


def test_state_is_a_plain_value(stream):
    h, t = stream.state
    assert t == 11
    assert isinstance(stream.state, State)
    again = pickle.loads(pickle.dumps(stream.state))
    assert type(again) is State
    assert torch.equal(again.h, h)


def test_many_streams_share_the_packed_weights(stream):
    states = [State(torch.randn(1, 3, 24, dtype=torch.float64), t) for t in range(5)]
    with torch.no_grad():
        after = [stream.layer.step(stream.x[0], state)[1] for state in states]
    assert len({id(state.messages[0].packed) for state in after}) == 1
