"""The CPU kernel of a step in which every sequence has its own clock: it equals each of them alone, to the bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import schedules
from support.rnn_pairs import MAKERS, is_lstm, join

from cwrnn import ClockworkRNN, LSTMState, State
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")


def make_state(layer, h, t):
    return LSTMState(h, h.flip(-1), t) if is_lstm(layer) else State(h, t)


def run(layer, x, state):
    """The outputs of all steps, and the last state."""
    outputs = []
    with torch.no_grad():
        for x_t in x:
            y, state = layer.step(x_t, state)
            outputs.append(y)
    return torch.stack(outputs), state


@pytest.mark.parametrize("isa_", loader.executable_isas())
@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=12)
@given(
    schedule=schedules(size=20),
    B=st.sampled_from([1, 2, 31, 32, 33, 70]),
    I=st.integers(0, 3),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 100),
)
def test_clocks_of_their_own_give_the_bits_of_each_sequence_alone(isa_, maker, schedule, B, I, bias, dtype, seed):
    torch.manual_seed(seed)
    T, N = schedule.periods[-1] + 2, schedule.hidden_size
    layer = MAKERS[maker](I, N, schedule=schedule, bias=bias, dtype=dtype)
    x, h, clocks = torch.randn(T, B, I, dtype=dtype), torch.randn(1, B, N, dtype=dtype), torch.randint(0, 30, (B,))
    usual = loader.current_isa()
    loader.use_isa(isa_)
    torch.set_num_threads(2)
    try:
        found, state = run(layer, x, make_state(layer, h, clocks))
        for b in {0, B // 2, B - 1}:
            own = slice(b, b + 1)
            expected, after = run(layer, x[:, own], make_state(layer, h[:, own], int(clocks[b])))
            assert torch.equal(found[:, own], expected)
            assert torch.equal(join(state[:-1])[:, own], join(after[:-1]))
            assert state.t[b] == after.t
    finally:
        loader.use_isa(usual)


class ClockedStream:
    """Forty sequences after some steps, each with its own clock, and their continuation."""

    def __init__(self):
        self.layer = ClockworkRNN(2, 24, schedule=(1, 2, 4, 8), dtype=torch.float64)
        self.x = torch.randn(30, 40, 2, dtype=torch.float64)
        start = State(torch.randn(1, 40, 24, dtype=torch.float64), torch.arange(40))
        _, self.state = run(self.layer, self.x[:3], start)

    def run(self, state, steps=9):
        return run(self.layer, self.x[3 : 3 + steps], state)[0]

    @torch.no_grad()
    def expected(self, state, steps=9):
        return self.layer(self.x[3 : 3 + steps], State(state.h.clone(), state.t.clone()))[0]


@pytest.fixture
def stream():
    return ClockedStream()


def test_clocks_reach_the_kernel(stream, calls, close):
    close(stream.run(stream.state), stream.expected(stream.state))
    assert [name for name, _ in calls if name.startswith("step")] == ["step_rows"] * 9


def test_the_state_of_one_sequence_changes(stream, close):
    expected = stream.expected(stream.state)
    close(stream.run(stream.state), expected)
    # once more from the same state: the messages since then belong to other states
    close(stream.run(stream.state), expected)
    _, state = run(stream.layer, stream.x[:1], stream.state)
    state.h[0, 7].mul_(0.5)
    state.t[9] += 3
    close(stream.run(state), stream.expected(state))


@pytest.mark.parametrize("change", [lambda weight: weight.mul_(0.9), lambda weight: weight.data.mul_(0.9)])
def test_changed_weights_are_noticed(stream, change, close):
    _, state = run(stream.layer, stream.x[:1], stream.state)
    with torch.no_grad():
        change(stream.layer.weight_hh_l0)
    close(stream.run(state), stream.expected(state))


def test_clocks_in_any_memory_are_read(stream, close):
    expected = stream.expected(stream.state)
    strided = torch.stack((stream.state.t, torch.full((40,), -5)), dim=1)[:, 0]
    for clocks in (strided, stream.state.t.to(torch.int32), stream.state.t.to(torch.uint8)):
        close(stream.run(State(stream.state.h, clocks)), expected)


def test_clocks_are_left_as_they_are(stream):
    clocks = stream.state.t.clone()
    given = State(stream.state.h.clone(), stream.state.t)
    _, after = run(stream.layer, stream.x[:1], given)
    assert torch.equal(given.t, clocks)
    assert torch.equal(after.t, clocks + 1)
