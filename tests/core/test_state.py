"""The state of a stream: how it goes through forward, step, files, devices and the containers of torch."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, as_hidden, is_lstm, join
from torch import _weights_only_unpickler
from torch.nn.utils.rnn import pack_sequence
from torch.utils import _pytree

from cwrnn import LearnedClockworkRNN, LSTMState, Schedule, State, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.step import RunningLSTMState, RunningState

HAS_KERNEL = BACKENDS["cpu"].refuse(torch.device("cpu"), torch.float64) is None
USABLE = [name for name in BACKENDS if name in ("torch", "reference") or (name == "cpu" and HAS_KERNEL)]


def make(periods=(1, 2, 4), kind="RNN", **options):
    return CLOCKWORK[kind](2, 9, schedule=periods, dtype=torch.float64, **options)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def make_state(rnn, h, t):
    """The state of the layer's type with h, and for an LSTM a c that is made from it."""
    return LSTMState(*as_hidden(rnn, h), t) if is_lstm(rnn) else State(h, t)


def make_running(rnn, x):
    """A state that `step` returned, with messages if there is a kernel."""
    with torch.no_grad():
        return rnn.step(x)[1]


@pytest.mark.parametrize("form", ["batched", "batch_first", "unbatched", "layers"])
@pytest.mark.parametrize("method", ["forward", "ticks"])
def test_a_stream_of_chunks_and_steps_needs_no_clock(form, method, close, kind):
    options = {"batch_first": {"batch_first": True}, "layers": {"num_layers": 2}}.get(form, {})
    rnn = make((2, 3), kind, **options)
    state_type = LSTMState if kind == "LSTM" else State
    x = randn(20, 2) if form == "unbatched" else randn(20, 3, 2)
    time = int(form == "batch_first")
    cut = (lambda start, stop: x[start:stop].transpose(0, 1)) if time else (lambda start, stop: x[start:stop])

    def run(chunk, *arguments, **options):
        if method == "forward":
            return rnn(chunk, *arguments, **options)
        ticks, state = rnn.ticks(chunk, *arguments, **options)
        return ticks.hold(), state

    whole, h_n = run(cut(0, 20))
    first, state = run(cut(0, 7), return_state=True)
    assert type(state) is state_type
    assert type(state.t) is int
    assert state.t == 7
    second, state = run(cut(7, 7), state)
    assert (second.shape[time], state.t) == (0, 7)
    outputs = [first]
    for t in range(7, 9):
        y, state = rnn.step(x[t], state)
        outputs.append(y.unsqueeze(time))
    last, state = run(cut(9, 20), state)
    assert type(state) is state_type
    assert state.t == 20
    close(torch.cat([*outputs, last], dim=time), whole)
    close(join(state[:-1]), join(h_n))


def test_a_learned_layer_continues_a_stream(close):
    for batch_first in (False, True):
        rnn = LearnedClockworkRNN(2, 9, modules=3, candidates=5, batch_first=batch_first, dtype=torch.float64)
        x = randn(3, 12, 2) if batch_first else randn(12, 3, 2)
        first, rest = x.split((5, 7), dim=int(batch_first))
        whole, h_n = rnn(x)
        output, state = rnn(first, return_state=True)
        assert state.t == 5
        more, state = rnn(rest, state)
        assert state.t == 12
        close(torch.cat((output, more), dim=int(batch_first)), whole)
        close(state.h, h_n)
        with pytest.raises(ValueError, match="hx is a State, which has its own clock t=12"):
            rnn(x, state, t0=0)
        close(torch.tensor(rnn.harden(x, state)[1].moved), torch.tensor(rnn.harden(x, state.h, t0=12)[1].moved))
    assert rnn(randn(4, 2), return_state=True)[1].t == 4


def test_equal_lengths_end_at_one_clock(close, kind):
    rnn, x = make(kind=kind), randn(8, 3, 2)
    _, state = rnn(x, lengths=[5, 5, 5], return_state=True)
    assert state.t == 5
    _, packed_state = rnn(pack_sequence(list(x[:5].unbind(1))), return_state=True)
    assert packed_state.t == 5
    close(join(packed_state[:-1]), join(state[:-1]))
    assert rnn(randn(4, 0, 2), lengths=[], return_state=True)[1].t == 4


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda rnn, x, s: rnn(x, s, t0=0), ValueError, r"own clock t=3: pass it without t0, or hx.h with t0=0"),
        (lambda rnn, x, s: rnn.ticks(x, s, t0=3), ValueError, r"own clock t=3: pass it without t0"),
        (lambda rnn, x, s: rnn(x, State(s.h, -1)), ValueError, r"hx.t must be zero or greater, got -1"),
        (
            lambda rnn, x, s: rnn(x, State(s.h, 1.0)),
            TypeError,
            r"hx.t should be an int or a tensor of integers, got: float",
        ),
        (lambda rnn, x, s: rnn(x, State([0.0], 1)), TypeError, r"hx should be a Tensor or a State, got: list"),
        (lambda rnn, x, s: rnn(x, State(s.h[:, :1], 1)), RuntimeError, r"Expected hidden size"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(make(), randn(5, 2, 2), State(randn(1, 2, 9), 3))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda rnn, x, s: rnn(x, s, t0=0), ValueError, r"hx is an LSTMState, .* or \(hx.h, hx.c\) with t0=0"),
        (lambda rnn, x, s: rnn(x, LSTMState(s.h, s.c, -1)), ValueError, r"hx.t must be zero or greater, got -1"),
        (lambda rnn, x, s: rnn(x, LSTMState(s.h, [0.0], 1)), TypeError, r"hx should be a pair of Tensors"),
        (lambda rnn, x, s: rnn(x, LSTMState(s.h, s.c[:, :1], 1)), RuntimeError, r"Expected hidden\[1\] size"),
        (lambda rnn, x, s: rnn.step(x[0], LSTMState(s.h, s.c[0], 1)), RuntimeError, r"state.c should be \(num_layers"),
        (lambda rnn, x, s: rnn.step(x[0], (s.h, 1)), TypeError, r"or LSTMState\(h, c, t\), got: tuple"),
    ],
)
def test_a_state_that_does_not_fit_an_lstm_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(make(kind="LSTM"), randn(5, 2, 2), LSTMState(randn(1, 2, 9), randn(1, 2, 9), 3))


def test_a_bidirectional_layer_has_no_stream(kind):
    rnn = make(kind=kind, bidirectional=True)
    for options in ({"return_state": True}, {"hx": make_state(rnn, randn(2, 2, 9), 3)}):
        with pytest.raises(RuntimeError, match="reads a sequence from its end, so its stream cannot be continued"):
            rnn(randn(5, 2, 2), **options)


def test_detach_ends_the_history_and_to_converts(kind):
    rnn, x = make(kind=kind), randn(5, 2, 2)
    state = rnn(x, return_state=True)[1]
    assert all(part.requires_grad for part in state[:-1])
    assert (type(state.detach()), state.detach().t) == (type(state), 5)
    assert not any(part.requires_grad for part in state.detach()[:-1])
    assert {part.dtype for part in state.to(torch.float32)[:-1]} == {torch.float32}
    assert state.to(torch.float32).t == 5
    assert all(part.is_meta for part in state.to(device="meta")[:-1])
    assert state.to("cpu") is state
    # where there is nothing to do, the messages of the last step stay
    running = make_running(rnn, x[0])
    assert running.detach() is running
    assert running.to("cpu") is running


@pytest.mark.parametrize(
    "take",
    [
        lambda state: state._replace(t=state.t),
        copy.copy,
        copy.deepcopy,
        lambda state: pickle.loads(pickle.dumps(state)),
        lambda state: _pytree.tree_map(lambda value: value, state),
        lambda state: state,
        lambda state: type(state)(*state),
        lambda state: (LSTMState if len(state) == 3 else State)(*state),
        lambda state: state.to(torch.float32).to(torch.float64),
    ],
)
def test_a_state_that_was_copied_continues_the_stream(take, kind):
    rnn, x = make(kind=kind), randn(6, 2, 2)
    state = make_running(rnn, x[0])
    assert isinstance(state, (RunningLSTMState, RunningState)) is HAS_KERNEL
    copied = take(state)
    assert isinstance(copied, LSTMState if kind == "LSTM" else State)
    assert repr(copied).startswith("LSTMState(h=tensor(" if kind == "LSTM" else "State(h=tensor(")
    with torch.no_grad():
        y, after = rnn.step(x[1], copied)
        rest, last = rnn(x[2:], after)
        whole, h_n = rnn(x)
    tolerance = {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(torch.cat((y[None], rest)), whole[1:], **tolerance)
    torch.testing.assert_close(join(last[:-1]), join(h_n), **tolerance)
    assert last.t == 6


@pytest.mark.parametrize("backend", USABLE)
@pytest.mark.parametrize("bias", [False, True])
def test_gradients_are_defined_where_no_module_ticks(backend, bias, close, kind):
    rnn = make((2, 3), kind, backend=backend, bias=bias)
    x, h = randn(2, 2).requires_grad_(), randn(1, 2, 9)
    gradient = randn(1, 2, 9)
    for state in (make_state(rnn, h, 1), make_state(rnn, h.clone().requires_grad_(), 1)):
        y, after = rnn.step(x, state)
        assert torch.equal(join(after[:-1]), join(state[:-1]))
        assert torch.equal(y, state.h[0])
        held, final = rnn(x.unsqueeze(0), state)
        states = [part.sum() for part in (*after[:-1], *final[:-1])]
        for loss in ((after.h * gradient).sum(), (y * gradient[0]).sum(), (held * gradient).sum(), *states):
            for tensor in torch.autograd.grad(loss, [x, *rnn.parameters()], retain_graph=True):
                assert tensor.count_nonzero() == 0
        if state.h.requires_grad:
            close(torch.autograd.grad((after.h * gradient).sum(), state.h)[0], gradient)


@pytest.mark.parametrize(("t0", "T"), [(1, 1), (1, 0)])
@pytest.mark.parametrize("bias", [None, torch.ones(3, requires_grad=True)], ids=["without bias", "with bias"])
def test_the_specification_has_gradients_where_no_module_ticks(t0, T, bias):
    tensors = [torch.randn(shape, requires_grad=True) for shape in ((T, 2, 4), (3, 4), (3, 3))]
    h0 = torch.randn(2, 3)
    output = clockwork_reference(*tensors, bias, h0, Schedule((2, 3), (1, 2)), t0=t0)
    assert torch.equal(output, h0.expand(T, 2, 3))
    operands = [*tensors, *([] if bias is None else [bias])]
    assert all(g.count_nonzero() == 0 for g in torch.autograd.grad(output.sum(), operands))


def test_a_fresh_process_loads_checkpoints_of_weights_only(tmp_path):
    rnn, lstm = make(), make(kind="LSTM")
    state = make_running(rnn, randn(2, 2))
    checkpoint = {"running": state, "state": State(state.h, 7), "schedule": rnn.schedule, "weights": rnn.state_dict()}
    checkpoint |= {"lstm": make_running(lstm, randn(2, 2)), "lstm weights": lstm.state_dict()}
    torch.save(checkpoint, tmp_path / "checkpoint.pt")
    code = (
        "import sys, torch, cwrnn\n"
        "loaded = torch.load(sys.argv[1])\n"
        "names = [type(loaded[name]).__name__ for name in ('running', 'state', 'lstm')]\n"
        "print(names, loaded['state'].t, loaded['schedule'])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "checkpoint.pt")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.stdout.strip() == f"['State', 'State', 'LSTMState'] 7 {rnn.schedule}", result.stderr


def pickle_schedule(attributes):
    """The bytes of a pickle that makes an empty Schedule and sets its attributes, as earlier versions wrote them."""
    return b"\x80\x02ccwrnn.schedule\nSchedule\n)\x81" + pickle.dumps(attributes, protocol=2)[2:-1] + b"b."


@pytest.mark.parametrize(
    "attributes",
    [
        {"periods": (1, 2), "sizes": (4, -5)},
        {"periods": (1, 2), "sizes": (4,)},
        {"periods": (1, 2), "sizes": ("4", 5)},
        {"periods": (1, 2), "hidden_size": 9},
        [1, 2],
    ],
    ids=str,
)
def test_a_forged_schedule_in_a_checkpoint_is_refused(attributes):
    with pytest.raises((ValueError, pickle.UnpicklingError), match="positive integers|equal length|periods and sizes"):
        _weights_only_unpickler.load(io.BytesIO(pickle_schedule(attributes)))


def test_schedules_that_earlier_versions_pickled_load():
    schedule = Schedule((1, 2), (4, 5))
    names = "periods", "sizes", "hidden_size", "slices"
    loaded = pickle.loads(pickle_schedule({name: getattr(schedule, name) for name in names}))
    assert (loaded, loaded.slices, loaded.hidden_size) == (schedule, schedule.slices, 9)
    forged = pickle.loads(pickle_schedule({"periods": (1, 2), "sizes": (4, 5), "hidden_size": 2**60, "slices": ()}))
    assert (forged, forged.slices, forged.hidden_size) == (schedule, schedule.slices, 9)
    assert pickle.loads(pickle.dumps(schedule)) == copy.deepcopy(schedule) == schedule


def test_a_program_with_a_step_can_be_saved(kind):
    class Stepper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = CLOCKWORK[kind](3, 8, schedule=[1, 2, 4])

        def forward(self, x, state):
            return self.layer.step(x, state)

    stepper, x = Stepper(), torch.randn(4, 3)
    _, state = stepper.layer(torch.randn(3, 4, 3), return_state=True)
    state, file = state.detach(), io.BytesIO()
    torch.export.save(torch.export.export(stepper, (x, state)), file)
    file.seek(0)
    output, after = torch.export.load(file).module()(x, state)
    expected, right = stepper(x, state)
    torch.testing.assert_close((output, *after), (expected, *right))
    assert type(after) is type(state)


def test_a_compiled_step_continues_from_a_state_with_messages(kind):
    layer, x = CLOCKWORK[kind](3, 8, schedule=[1, 2, 4]), torch.randn(6, 4, 3)
    torch._dynamo.reset()
    compiled = torch.compile(layer.step, fullgraph=True, backend="eager")
    with torch.no_grad():
        state = None
        for x_t in x[:-1]:
            _, state = layer.step(x_t, state)
        output, after = compiled(x[-1], state)
        expected, right = layer.step(x[-1], state)
    torch.testing.assert_close((output, *after), (expected, *right))
