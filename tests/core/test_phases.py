"""Sequences with clocks of their own: a batch of them equals each of them alone, on every backend."""

import copy
import io
import pickle
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import USABLE, schedules
from support.rnn_pairs import CLOCKWORK, MAKERS, as_hidden, is_lstm, join
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from cwrnn import LearnedClockworkRNN, LSTMState, Readout, Schedule, State
from cwrnn.phases import group_by_phase

CPU = torch.device("cpu")


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def make_state(layer, h, t):
    return LSTMState(*as_hidden(layer, h), t) if is_lstm(layer) else State(h, t)


def cut(state, b):
    """The state of sequence b alone, as a batch of one with an int for its clock."""
    return type(state)(*(part[:, b : b + 1] for part in state[:-1]), int(state.t[b]))


class Call(NamedTuple):
    """The results of a call: the output of every sequence, the final state, and the gradient of everything."""

    outputs: list[Tensor]
    hidden: Tensor
    t: Tensor
    gradients: dict[str, Tensor]


def evaluate(layer, run, x, h, weights) -> Call:
    """Call `run`, which returns a list of outputs, a joined state and clocks, and weigh its results at random."""
    named = {"input": x, "h": h, **dict(layer.named_parameters())}
    outputs, hidden, t = run()
    loss = (hidden * weights[1]).sum()
    for b, output in enumerate(outputs):
        loss = loss + (output * weights[0][: len(output), b, : output.shape[-1]]).sum()
    gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True, materialize_grads=True)
    return Call(outputs, hidden, t, dict(zip(named, gradients, strict=True)))


def check_calls(found: Call, expected: Call, close) -> None:
    for one, other in zip(found.outputs, expected.outputs, strict=True):
        close(one, other)
    close(found.hidden, expected.hidden)
    assert found.t.tolist() == expected.t.tolist()
    for name, gradient in expected.gradients.items():
        close(found.gradients[name], gradient, msg=lambda text, name=name: f"{name}: {text}")


@st.composite
def batches(draw):
    """A layer, its clocks, the lengths of its sequences or None, and how to call it."""
    B, T = draw(st.integers(1, 5)), draw(st.integers(0, 14))
    lengths = st.none() if T == 0 else st.none() | st.lists(st.integers(1, T), min_size=B, max_size=B)
    # clocks that are near each other share phases; those that are far have phases of their own
    clock = st.integers(0, 3) | st.integers(0, 40) | st.integers(2**60, 2**60 + 9)
    return {
        "maker": draw(st.sampled_from(list(MAKERS))),
        "schedule": draw(schedules()),
        "layers": draw(st.integers(1, 2)),
        "T": T,
        "clocks": draw(st.lists(clock, min_size=B, max_size=B)),
        "lengths": draw(lengths),
        "readout": draw(st.booleans()),
        "packed": draw(st.booleans()),
        "seed": draw(st.integers(0, 100)),
    }


@pytest.mark.parametrize("backend", USABLE)
@settings(max_examples=40)
@given(batch=batches())
def test_a_batch_of_clocks_equals_each_sequence_alone(backend, batch, close):
    torch.manual_seed(batch["seed"])
    schedule, L, T, B = batch["schedule"], batch["layers"], batch["T"], len(batch["clocks"])
    options = {"num_layers": L, "schedule": schedule, "dtype": torch.float64, "backend": backend}
    layer = MAKERS[batch["maker"]](2, schedule.hidden_size, **options)
    readout = Readout(schedule.hidden_size, 2, dtype=torch.float64)
    x, h = randn(T, B, 2).requires_grad_(), randn(L, B, schedule.hidden_size).requires_grad_()
    lengths, clocks = batch["lengths"], torch.tensor(batch["clocks"])
    ends = lengths or [T] * B
    weights = randn(T, B, schedule.hidden_size), randn(L, B, schedule.hidden_size * (1 + is_lstm(layer)))
    packed = batch["packed"] and T > 0

    def read(input, state, **options):
        if not batch["readout"]:
            return layer(input, state, **options)
        ticks, state = layer.ticks(input, state, **options)
        return readout(ticks), state

    def run_batch():
        state = make_state(layer, h, clocks)
        if packed:
            sequences = [x[:end, b] for b, end in enumerate(ends)]
            output, after = read(pack_sequence(sequences, enforce_sorted=False), state)
            output, _ = pad_packed_sequence(output)
        else:
            output, after = read(x, state, lengths=lengths)
        return [output[:end, b] for b, end in enumerate(ends)], join(after[:-1]), after.t

    def run_alone():
        whole = make_state(layer, h, clocks)
        calls = [read(x[:end, b : b + 1], cut(whole, b)) for b, end in enumerate(ends)]
        states = torch.cat([join(state[:-1]) for _, state in calls], dim=1)
        return [output[:, 0] for output, _ in calls], states, torch.tensor([state.t for _, state in calls])

    check_calls(*(evaluate(layer, run, x, h, weights) for run in (run_batch, run_alone)), close)


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("layers", [1, 2])
def test_a_step_of_clocks_equals_each_sequence_alone(backend, maker, layers, close):
    layer = MAKERS[maker](2, 9, num_layers=layers, schedule=(1, 2, 3), dtype=torch.float64, backend=backend)
    x, h, clocks = randn(5, 2).requires_grad_(), randn(layers, 5, 9).requires_grad_(), torch.tensor([0, 1, 2, 3, 7])
    weights = randn(1, 5, 9), randn(layers, 5, 9 * (1 + is_lstm(layer)))

    def run_batch():
        y, after = layer.step(x, make_state(layer, h, clocks))
        return list(y[:, None]), join(after[:-1]), after.t

    def run_alone():
        whole = make_state(layer, h, clocks)
        calls = [layer.step(x[b : b + 1], cut(whole, b)) for b in range(5)]
        states = torch.cat([join(state[:-1]) for _, state in calls], dim=1)
        return [y for y, _ in calls], states, torch.tensor([state.t for _, state in calls])

    check_calls(*(evaluate(layer, run, x, h, weights) for run in (run_batch, run_alone)), close)


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("form", ["padded", "batch_first", "packed"])
def test_sequences_of_different_lengths_go_on(backend, form, close, kind):
    """Whole = split anywhere = one step at a time, wherever each sequence was split."""
    layer = CLOCKWORK[kind](2, 9, 2, schedule=(1, 2, 5), dtype=torch.float64, backend=backend,
                            batch_first=form == "batch_first")  # fmt: skip
    whole = [randn(length, 2) for length in (13, 20, 9, 16)]
    parts = [4, 11, 1, 9], [6, 3, 5, 2], [1, 4, 1, 3]

    def run(sequences, state):
        if form == "packed":
            output, state = layer(pack_sequence(sequences, enforce_sorted=False), state, return_state=True)
            return pad_packed_sequence(output)[0], state
        lengths = [len(sequence) for sequence in sequences]
        x = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=form == "batch_first")
        output, state = layer(x, state, lengths=lengths, return_state=True)
        return output.transpose(0, 1) if form == "batch_first" else output, state

    state, places = None, [0, 0, 0, 0]
    outputs = [[], [], [], []]
    with torch.no_grad():
        for lengths in parts:
            output, state = run([x[at : at + n] for x, at, n in zip(whole, places, lengths, strict=True)], state)
            for b, n in enumerate(lengths):
                outputs[b].append(output[:n, b])
                places[b] += n
            assert torch.as_tensor(state.t).tolist() == places
        # every sequence has some steps left
        for step in range(2):
            y, state = layer.step(torch.stack([x[at + step] for x, at in zip(whole, places, strict=True)]), state)
            for b in range(4):
                outputs[b].append(y[b : b + 1])
        for b, x in enumerate(whole):
            expected, after = layer(x[: places[b] + 2].unsqueeze(int(form != "batch_first")), return_state=True)
            close(torch.cat(outputs[b]), expected.squeeze(int(form != "batch_first")))
            close(join(cut(state, b)[:-1]), join(after[:-1]))
            assert (state.t[b], type(after.t)) == (after.t, int)


def test_clocks_of_any_integer_dtype_and_one_number_are_taken(close):
    rnn, x, h = CLOCKWORK["RNN"](2, 9, schedule=(1, 2, 5), dtype=torch.float64), randn(6, 2, 2), randn(1, 2, 9)
    expected, after = rnn(x, State(h, torch.tensor([3, 4])))
    assert after.t.dtype == torch.int64
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        found, state = rnn(x, h, t0=torch.tensor([3, 4], dtype=dtype), return_state=True)
        close(found, expected)
        assert (state.t.dtype, state.t.tolist()) == (torch.int64, [9, 10])
    # the clock of one sequence, taken from such a state, is a number
    y, state = rnn.step(x[0, 1], State(h[:, 1], torch.tensor(4)))
    close(y, expected[0, 1])
    assert (state.t, type(state.t)) == (5, int)


def test_a_bidirectional_layer_takes_clocks_for_its_forward_direction(close, kind):
    layer = CLOCKWORK[kind](2, 9, schedule=(1, 2, 5), dtype=torch.float64, bidirectional=True)
    x = randn(7, 3, 2)
    output, hidden = layer(x, t0=torch.tensor([0, 3, 11]), lengths=[7, 4, 5])
    for b, (t0, length) in enumerate([(0, 7), (3, 4), (11, 5)]):
        expected, after = layer(x[:length, b : b + 1], t0=t0)
        close(output[:length, b], expected[:, 0])
        close(join(hidden)[:, b], join(after)[:, 0])


@pytest.mark.parametrize(
    ("t", "error", "message"),
    [
        (torch.tensor([1.0, 2.0]), TypeError, r"should be an int or a tensor of integers, got: torch.float32"),
        (torch.tensor([True, False]), TypeError, r"should be an int or a tensor of integers, got: torch.bool"),
        (torch.tensor([1, 2, 3]), ValueError, r"must have one clock per sequence, shape \(2,\), got \(3,\)"),
        (torch.tensor([[1], [2]]), ValueError, r"must have one clock per sequence, shape \(2,\), got \(2, 1\)"),
        (torch.tensor([4, -1]), ValueError, r"must be zero or greater, got -1"),
        (torch.tensor(-3), ValueError, r"must be zero or greater, got -3"),
        (torch.tensor(True), TypeError, r"should be an int or a tensor of integers, got: torch.bool"),
        (torch.tensor([4, 2**62 + 1]), ValueError, r"must be at most 2\*\*62, got 4611686018427387905"),
        ([1, 2], TypeError, r"should be an int or a tensor of integers, got: list"),
        (np.array([1, 2]), TypeError, r"should be an int or a tensor of integers, got: ndarray"),
        (True, TypeError, r"should be an int or a tensor of integers, got: bool"),
    ],
    ids=str,
)
def test_clocks_that_do_not_fit_are_refused(t, error, message):
    rnn, x, h = CLOCKWORK["RNN"](2, 9), torch.randn(5, 2, 2), torch.randn(1, 2, 9)
    for name, call in {
        "t0": lambda: rnn(x, h, t0=t),
        "hx.t": lambda: rnn.ticks(x, State(h, t)),
        "state.t": lambda: rnn.step(x[0], State(h, t)),
    }.items():
        with pytest.raises(error, match=f"^{name} {message}"):
            call()


def test_clocks_of_an_unbatched_input_are_refused():
    rnn, x, h = CLOCKWORK["RNN"](2, 9), torch.randn(5, 2), torch.randn(1, 9)
    for call in (lambda t: rnn(x, t0=t), lambda t: rnn(x, State(h, t)), lambda t: rnn.step(x[0], State(h, t))):
        with pytest.raises(ValueError, match=r"must be a single clock for an unbatched input, got shape \(1,\)"):
            call(torch.tensor([3]))


def test_learned_clocks_share_one_clock():
    with pytest.raises(TypeError, match="share one clock, an int; got a tensor"):
        LearnedClockworkRNN(2, 9)(torch.randn(5, 2, 2), t0=torch.tensor([1, 2]))


def test_sequences_that_tick_together_are_one_group():
    clocks = torch.arange(1000)
    assert len(group_by_phase(clocks, (1, 2, 4, 8), 100, CPU)) == 8
    # one step has as many groups as there are sets of modules that are due
    assert len(group_by_phase(clocks, (1, 2, 4, 8), 1, CPU)) == 4
    # the least common multiple of these periods is far beyond 64 bits
    long = tuple(2**40 - odd for odd in (1, 3, 5, 7, 9))
    assert len(group_by_phase(clocks, (1, *long), 50, CPU)) == 2
    groups = group_by_phase(torch.tensor([5, 1, 9, 2]), (4,), 3, CPU)
    assert [(t0, rows.tolist()) for t0, rows in groups] == [(5, [0, 1, 2]), (2, [3])]
    assert [(t0, rows.tolist()) for t0, rows in group_by_phase(clocks[:0], (4,), 3, CPU)] == [(0, [])]


def test_no_sequences_have_clocks(kind):
    layer, none = CLOCKWORK[kind](2, 9), torch.zeros(0, dtype=torch.int64)
    output, state = layer(torch.randn(5, 0, 2), t0=none, return_state=True)
    assert (output.shape, state.t.shape) == ((5, 0, 9), (0,))
    with torch.no_grad():
        y, state = layer.step(torch.randn(0, 2), state)
    assert (y.shape, state.t.shape) == ((0, 9), (0,))


def test_a_graph_steps_every_clock(close, kind):
    """A compiled and an exported step take the clocks as data: one program serves all times."""

    class Stepper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = CLOCKWORK[kind](3, 8, schedule=[1, 2, 4])

        def forward(self, x, state):
            return self.layer.step(x, state)

    stepper, x = Stepper(), torch.randn(4, 3)
    torch._dynamo.reset()
    programs = [torch.compile(stepper, fullgraph=True, backend="eager")]
    start = make_state(stepper.layer, torch.randn(1, 4, 8), torch.tensor([0, 1, 2, 3]))
    programs.append(torch.export.export(stepper, (x, start)).module())
    for clocks in ([0, 1, 2, 3], [8, 3, 6, 5]):
        state = start._replace(t=torch.tensor(clocks))
        expected, after = stepper(x, state)
        for program in programs:
            found, found_after = program(x, state)
            close(found, expected)
            close(join(found_after[:-1]), join(after[:-1]))
            assert found_after.t.tolist() == [t + 1 for t in clocks]


def test_a_graph_of_whole_sequences_takes_one_clock():
    rnn, x = CLOCKWORK["RNN"](3, 8), torch.randn(5, 2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, t0: rnn(x, t0=t0), backend="eager")
    with pytest.raises(RuntimeError, match="t0 is a tensor, .* cannot be read here .*: pass one clock as an int"):
        compiled(x, torch.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="t0 is a tensor, .* cannot be read here"):
        vmap(lambda t0: rnn(x, t0=t0)[0])(torch.tensor([[1, 2], [3, 4]]))


@pytest.mark.parametrize("lengths", [[5, 2], [5, 5]])
def test_a_graph_returns_the_clocks_of_lengths(lengths, close, kind):
    rnn, x = CLOCKWORK[kind](3, 8), torch.randn(5, 2, 3)
    torch._dynamo.reset()
    compiled = torch.compile(rnn, fullgraph=True, backend="eager")
    found, state = compiled(x, t0=4, lengths=torch.tensor(lengths), return_state=True)
    close(found, rnn(x, t0=4, lengths=lengths)[0])
    assert state.t.tolist() == [4 + length for length in lengths]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("form", ["t0", "state"])
def test_derivatives_of_torch_func_take_clocks(backend, form, close):
    rnn = CLOCKWORK["RNN"](2, 6, schedule=(1, 2, 5), dtype=torch.float64, backend=backend)
    x, tangent, clocks, h = randn(4, 3, 2), randn(4, 3, 2), torch.tensor([0, 3, 8]), randn(1, 3, 6)

    def run(x):
        return (rnn(x, h, t0=clocks) if form == "t0" else rnn(x, State(h, clocks)))[0].sin().sum()

    own = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(run(own), own, create_graph=True)
    close(torch.func.grad(run)(x), expected)
    close(torch.func.jacrev(run)(x), expected)
    close(torch.func.jvp(run, (x,), (tangent,))[1], (expected * tangent).sum())
    (product,) = torch.autograd.grad((expected * tangent).sum(), own)
    close(torch.einsum("abcdef,def->abc", torch.func.hessian(run)(x), tangent), product)


def test_replicas_share_clocks(close):
    layers = [CLOCKWORK["RNN"](2, 9, schedule=(1, 2, 5), dtype=torch.float64) for _ in range(3)]
    x, clocks = randn(7, 4, 2), torch.tensor([0, 3, 8, 1])
    parameters, buffers = torch.func.stack_module_state(layers)
    found = vmap(lambda *state: functional_call(layers[0], state, (x,), {"t0": clocks})[0])(parameters, buffers)
    for own, layer in zip(found, layers, strict=True):
        close(own, layer(x, t0=clocks)[0])


def test_a_state_with_clocks_is_copied_and_stored(tmp_path, kind):
    layer = CLOCKWORK[kind](2, 9)
    _, state = layer(torch.randn(5, 2, 2), t0=torch.tensor([3, 8]), return_state=True)
    assert not state.detach().h.requires_grad
    assert state.detach().t is state.to(torch.float64).t is state.to("meta").t is state.t
    state = state.detach()
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    with torch.no_grad():
        running = layer.step(torch.randn(2, 2), state)[1]
    assert running.t.tolist() == [9, 14]
    assert repr(running).startswith(f"{type(state).__name__}(h=tensor(")
    for expected, copied in [
        (state, torch.load(file, weights_only=True)),
        (state, pickle.loads(pickle.dumps(state))),
        (running, pickle.loads(pickle.dumps(running))),
        (running, copy.deepcopy(running)),
    ]:
        assert isinstance(copied, type(state))
        for one, other in zip(copied, expected, strict=True):
            assert torch.equal(one, other)


def test_one_phase_is_not_gathered(monkeypatch):
    rnn, x = CLOCKWORK["RNN"](2, 9, schedule=(1, 2)), torch.randn(5, 3, 2)
    called = []
    monkeypatch.setattr("cwrnn.held.PhasedPass.__init__", lambda *arguments: called.append(arguments))
    output, state = rnn(x, t0=torch.tensor([1, 3, 7]), return_state=True)
    assert torch.equal(output, rnn(x, t0=1)[0])
    assert (called, state.t.tolist()) == ([], [6, 8, 12])


def test_a_schedule_of_many_clocks_is_exact(close):
    """Thousands of different clocks, and a module that hardly ever ticks."""
    rnn = CLOCKWORK["RNN"](2, 6, schedule=Schedule((1, 3, 2**40 - 1), (2, 2, 2)), dtype=torch.float64)
    clocks = torch.cat((torch.arange(50), torch.arange(2**40 - 20, 2**40 + 20)))
    x, h = randn(12, 90, 2), randn(1, 90, 6)
    output, _ = rnn(x, State(h, clocks))
    for b in range(0, 90, 7):
        close(output[:, b : b + 1], rnn(x[:, b : b + 1], h[:, b : b + 1], t0=int(clocks[b]))[0])
