"""The layers equal the specification, in one call, in chunks and step by step."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import USABLE, schedules
from support.rnn_pairs import MAKERS, join
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence, pad_sequence

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, LSTMState, Schedule, State, clockwork_reference

PERIODS = pytest.mark.parametrize("periods", [[1, 2, 4, 8], [2, 3, 7], [5]], ids=str)
SCHEDULE_FORMS = "schedule must be a Schedule, its text form, a sequence of periods, a number of modules or None"


CELLS = pytest.mark.parametrize("cell", ["tanh", "peepholes", "gru"])


def make(periods, hidden_size=9, input_size=2, cell="tanh", **options):
    return MAKERS[cell](input_size, hidden_size, schedule=periods, dtype=torch.float64, **options)


def split(rnn, h):
    """A state (..., parts N) in the form in which the layer takes it: for an LSTM (h, c)."""
    return h.chunk(2, dim=-1) if rnn.cell == "lstm" else h


def draw_state(rnn, *batch):
    """A random state (layers * directions, *batch, parts N), h and c of an LSTM side by side."""
    parts = 2 if rnn.cell == "lstm" else 1
    shape = rnn.num_layers * rnn.num_directions, *batch, parts * rnn.hidden_size
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


def specified(rnn, x, h, t0):
    """Return output and final states of one sequence (T, I), computed by the specification from states `h`."""
    final = []
    for layer in range(rnn.num_layers):
        outputs = []
        for direction in range(rnn.num_directions):
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            weights = [getattr(rnn, name + suffix, None) for name in ("weight_ih", "weight_hh", "bias", "weight_ch")]
            h0 = h[len(final)][None]
            sequence = x.flip(0) if direction else x
            clock = 0 if direction else t0
            arguments = *weights[:3], h0, rnn.schedule, clock, rnn.cell, weights[3]
            states = clockwork_reference(sequence[:, None], *arguments)[:, 0]
            final.append(states[-1] if len(states) else h0[0])
            output = states[:, : rnn.hidden_size]
            outputs.append(output.flip(0) if direction else output)
        x = torch.cat(outputs, dim=-1)
    return x, torch.stack(final)


def gradients(loss, rnn, *tensors):
    return torch.autograd.grad(loss, [*rnn.parameters(), *tensors], allow_unused=True, materialize_grads=True)


@settings(max_examples=90)
@given(
    schedule=schedules(longest=6, modules=4, size=3),
    num_layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    bias=st.booleans(),
    cell=st.sampled_from(tuple(MAKERS)),
    t0=st.integers(0, 20),
    lengths=st.lists(st.integers(1, 15), min_size=1, max_size=4),
    input_size=st.integers(0, 3),
    backend=st.sampled_from(USABLE),
    seed=st.integers(0, 1000),
)
def test_ragged_batches_equal_the_specification(
    schedule, num_layers, bidirectional, bias, cell, t0, lengths, input_size, backend, seed, close
):
    torch.manual_seed(seed)
    rnn = MAKERS[cell](
        input_size,
        schedule.hidden_size,
        num_layers,
        bias=bias,
        bidirectional=bidirectional,
        dtype=torch.float64,
        schedule=schedule,
        backend=backend,
    )
    sequences = [torch.randn(length, input_size, dtype=torch.float64, requires_grad=True) for length in lengths]
    h = draw_state(rnn, len(lengths))
    expected = [specified(rnn, x, h[:, b], t0) for b, x in enumerate(sequences)]
    h_expected = torch.stack([final for _, final in expected], dim=1)
    loss = sum(output.square().sum() for output, _ in expected) + h_expected.sin().sum()
    gradients_expected = gradients(loss, rnn, h, *sequences)

    def check(output, hidden):
        h_n = join(hidden)
        for b, length in enumerate(lengths):
            close(output[:length, b], expected[b][0])
            assert (output[length:, b] == 0).all()
        close(h_n, h_expected)
        found = gradients(output.square().sum() + h_n.sin().sum(), rnn, h, *sequences)
        for value, right in zip(found, gradients_expected, strict=True):
            close(value, right)

    # the padding is NaN, so the test fails if it is read
    padded = pad_sequence(sequences, padding_value=torch.nan)
    check(*rnn(padded, split(rnn, h), t0=t0, lengths=lengths))
    if input_size == 0:
        # torch cannot pack sequences without features
        return
    output, h_n = rnn(pack_sequence(sequences, enforce_sorted=False), split(rnn, h), t0=t0)
    assert output.unsorted_indices is not None
    check(pad_packed_sequence(output)[0], h_n)


# the specification takes long, and the other layers share the code around it
SPLIT = [*product(["tanh"], USABLE), ("peepholes", "auto"), ("gru", "auto")]


@PERIODS
@pytest.mark.parametrize(("cell", "backend"), SPLIT)
def test_a_sequence_split_anywhere_equals_one_call(periods, cell, backend, close):
    rnn = make(periods, num_layers=2, cell=cell, backend=backend)
    x = torch.randn(2 * periods[-1] + 3, 2, 2, dtype=torch.float64, requires_grad=True)
    h = draw_state(rnn, 2)
    for t0 in (0, 5):
        whole, hidden = rnn(x, split(rnn, h), t0=t0)
        h_whole = join(hidden)
        gradients_whole = gradients(whole.square().sum() + h_whole.sin().sum(), rnn, x, h)
        for cut in range(x.shape[0] + 1):
            first, h_first = rnn(x[:cut], split(rnn, h), t0=t0)
            second, hidden = rnn(x[cut:], h_first, t0=t0 + cut)
            h_second = join(hidden)
            close(torch.cat((first, second)), whole)
            close(h_second, h_whole)
            found = gradients(torch.cat((first, second)).square().sum() + h_second.sin().sum(), rnn, x, h)
            for value, right in zip(found, gradients_whole, strict=True):
                close(value, right)


@PERIODS
@pytest.mark.parametrize("cell", MAKERS)
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bias": False}], ids=str)
def test_steps_equal_one_call(periods, cell, options, close):
    rnn = make(periods, num_layers=2, cell=cell, **options)
    x = torch.randn(2 * periods[-1] + 3, 2, 2, dtype=torch.float64, requires_grad=True)
    sequence = x.transpose(0, 1) if rnn.batch_first else x
    whole, hidden = rnn(sequence)
    h_whole = join(hidden)
    gradients_whole = gradients(whole.square().sum() + h_whole.sin().sum(), rnn, x)
    state, outputs = None, []
    for x_t in x.unbind(0):
        y, state = rnn.step(x_t, state)
        outputs.append(y)
    output = torch.stack(outputs, dim=1 if rnn.batch_first else 0)
    close(output, whole)
    close(join(state[:-1]), h_whole)
    assert state.t == x.shape[0]
    found = gradients(output.square().sum() + join(state[:-1]).sin().sum(), rnn, x)
    for value, right in zip(found, gradients_whole, strict=True):
        close(value, right)


@CELLS
def test_step_continues_from_the_state_of_forward(close, cell):
    rnn = make([2, 3, 7], cell=cell)
    x = torch.randn(20, 4, 2, dtype=torch.float64)
    whole, _ = rnn(x)
    _, hidden = rnn(x[:11])
    y, state = rnn.step(x[11], (*(hidden if rnn.cell == "lstm" else (hidden,)), 11))
    close(y, whole[11])
    output, _ = rnn(x[12:], state[:-1] if rnn.cell == "lstm" else state.h, t0=state.t)
    close(output, whole[12:])


@CELLS
def test_unbatched_steps_equal_one_call(close, cell):
    rnn = make([1, 3], num_layers=2, cell=cell)
    x = torch.randn(9, 2, dtype=torch.float64)
    whole, hidden = rnn(x)
    state = None
    for t, x_t in enumerate(x):
        y, state = rnn.step(x_t, state)
        close(y, whole[t])
    close(join(state[:-1]), join(hidden))
    assert state.h.shape == (2, 9)


def test_step_applies_dropout_in_training_only(close):
    rnn = make([1, 2], num_layers=2, dropout=1.0, bias=False)
    x = torch.randn(3, 2, dtype=torch.float64)
    y, state = rnn.step(x)
    assert (y == 0).all()
    assert (state.h[0] != 0).any()
    assert (rnn.eval().step(x)[0] != 0).any()


@CELLS
@pytest.mark.parametrize("grad", [False, True])
def test_step_does_not_change_the_state_that_it_is_given(cell, grad):
    rnn = make([2, 4], cell=cell)
    ones = torch.ones(1, 3, 9, dtype=torch.float64)
    before = LSTMState(ones, ones.clone(), 1) if rnn.cell == "lstm" else State(ones, 1)
    with torch.set_grad_enabled(grad):
        y, after = rnn.step(torch.zeros(3, 2, dtype=torch.float64), before)
    with torch.no_grad():
        y.zero_()
    for state in (before, after):
        assert all((part == 1).all() for part in state[:-1])


def test_times_may_be_numpy_integers(close):
    rnn, x = make(np.int64(3)), torch.randn(5, 2, 2, dtype=torch.float64)
    close(rnn(x, t0=np.int64(3))[0], rnn(x, t0=3)[0])
    assert type(rnn.step(x[0], (torch.zeros(1, 2, 9, dtype=torch.float64), np.int32(3)))[1].t) is int


@CELLS
def test_a_very_late_start_equals_one_at_the_same_phase(close, cell):
    rnn, x = make([1, 2, 8], cell=cell), torch.randn(20, 2, 2, dtype=torch.float64)
    for lengths in (None, [20, 7]):
        found, expected = rnn(x, t0=2**80 + 3, lengths=lengths), rnn(x, t0=3, lengths=lengths)
        close(found[0], expected[0])
        close(join(found[1]), join(expected[1]))


@CELLS
def test_forbidden_weights_are_loaded_as_zeros(cell):
    dense, rnn = make([1], cell=cell), make([1, 2, 4], cell=cell)
    with pytest.warns(UserWarning, match="names no schedule, and has weights from fast modules to slow ones"):
        rnn.load_state_dict(dict(dense.named_parameters()))
    allowed = torch.from_numpy(rnn.schedule.mask()).repeat(len(rnn.weight_hh_l0) // 9, 1)
    assert (rnn.weight_hh_l0[~allowed] == 0).all()
    assert torch.equal(rnn.weight_hh_l0[allowed], dense.weight_hh_l0[allowed])


# torch itself warns about complex modules
@pytest.mark.filterwarnings("ignore:Complex modules:UserWarning")
def test_complex_weights_are_refused():
    rnn = make([1, 2]).to(torch.complex128)
    with pytest.raises(ValueError, match="weights should be of a real floating point type, got: torch.complex128"):
        rnn(torch.zeros(3, 1, 2, dtype=torch.complex128))


@CELLS
def test_step_holds_states_to_the_bit(cell):
    rnn = make([3, 4], cell=cell)
    hidden = torch.randn(2 if rnn.cell == "lstm" else 1, 1, 2, 9, dtype=torch.float64)
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            _, after = rnn.step(torch.randn(2, 2, dtype=torch.float64), (*hidden, 5))
        assert torch.equal(torch.stack(after[:-1]), hidden)
        assert after.t == 6


@CELLS
def test_dropout_is_applied_between_layers_only(close, cell):
    rnn = make([1, 2], num_layers=2, dropout=1.0, bias=False, cell=cell)
    x = torch.randn(5, 1, 2, dtype=torch.float64)
    silent, _ = rnn(torch.zeros_like(x))
    output, hidden = rnn(x)
    close(output, silent)
    assert (join(hidden)[0] != 0).any()
    assert not torch.equal(rnn.eval()(x)[0], silent)


@CELLS
def test_all_layers_share_one_clock(close, cell):
    rnn = make([2, 4], num_layers=2, cell=cell)
    x = torch.randn(9, 1, 2, dtype=torch.float64)
    output, _ = rnn(x, t0=1)
    expected, _ = specified(rnn, x[:, 0], 0 * draw_state(rnn), 1)
    close(output[:, 0], expected)
    # nothing is due at t = 1, so the second layer still holds its initial state
    assert (output[0] == 0).all()
    assert (output[1] != 0).any()


@CELLS
def test_a_layer_without_inputs_generates_a_sequence(close, cell):
    rnn = make([1, 2, 4], input_size=0, cell=cell)
    output, _ = rnn(torch.empty(20, 3, 0, dtype=torch.float64))
    assert output.shape == (20, 3, 9)
    assert (output[1:] != output[:-1]).any(dim=-1).all()
    assert torch.equal(output[:, 0], output[:, 1])
    y, _ = rnn.step(torch.empty(3, 0, dtype=torch.float64))
    close(y, output[0])


@CELLS
def test_an_empty_chunk_changes_nothing(cell):
    rnn = make([1, 2], cell=cell)
    h = draw_state(rnn, 2)
    output, hidden = rnn(torch.empty(0, 2, 2, dtype=torch.float64), split(rnn, h), t0=3)
    assert output.shape == (0, 2, 9)
    assert torch.equal(join(hidden), h)


def test_the_reverse_clock_counts_from_the_end(close):
    rnn = make([1, 4], bidirectional=True)
    x = torch.randn(7, 1, 2, dtype=torch.float64)
    output, h_n = rnn(x, t0=2)
    # in the reverse direction all modules execute at the last step, for any t0
    names = ("weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_l0_reverse")
    weights = [getattr(rnn, name) for name in names]
    reverse = clockwork_reference(x.flip(0), *weights, torch.zeros(1, 9, dtype=torch.float64), rnn.schedule)
    close(output[..., 9:], reverse.flip(0))
    close(h_n[1], reverse[-1])


def test_conversion_to_torchs_rnn_and_back_keeps_outputs_and_parameters(close):
    layer = make([1], num_layers=2, bidirectional=True, batch_first=True).eval()
    rnn = layer.to_rnn()
    x = torch.randn(3, 8, 2, dtype=torch.float64)
    h = torch.randn(4, 3, 9, dtype=torch.float64)
    for found, expected in zip(rnn(x, h), layer(x, h), strict=True):
        close(found, expected)
    back = ClockworkRNN.from_rnn(rnn)
    assert not rnn.training
    assert not back.training
    assert back.schedule == layer.schedule
    for found, expected in zip(back.parameters(), layer.parameters(), strict=True):
        close(found.detach(), expected.detach())
    with pytest.raises(ValueError, match=r"one module of period 1 .* got periods \(1, 2\)"):
        make([1, 2]).to_rnn()
    with pytest.raises(TypeError, match="takes a torch.nn.RNN, got LSTM"):
        ClockworkRNN.from_rnn(torch.nn.LSTM(2, 3))
    with pytest.raises(TypeError, match="takes a torch.nn.LSTM, got RNN"):
        ClockworkLSTM.from_lstm(rnn)
    with pytest.raises(TypeError, match="takes a torch.nn.GRU, got RNN"):
        ClockworkGRU.from_gru(rnn)
    for cell, convert in (("lstm", ClockworkLSTM.to_lstm), ("gru", ClockworkGRU.to_gru)):
        with pytest.raises(ValueError, match=rf"only .* period 1 is a torch.nn.{cell.upper()}, got periods \(1, 2\)"):
            convert(make([1, 2], cell=cell))


@pytest.mark.parametrize(
    ("schedule", "periods", "sizes"),
    [
        (None, (1, 2, 4, 8, 16, 32, 64, 128), (2, 1, 1, 1, 1, 1, 1, 1)),
        (3, (1, 2, 4), (3, 3, 3)),
        ([4, 1, 4], (1, 4), (3, 6)),
        (range(2, 5), (2, 3, 4), (3, 3, 3)),
        (Schedule((7, 2), (1, 8)), (2, 7), (8, 1)),
    ],
    ids=str,
)
def test_every_form_of_the_schedule_argument_gives_its_schedule(schedule, periods, sizes):
    assert make(schedule).schedule == Schedule(periods, sizes)
    assert ClockworkRNN(1, 3).schedule.periods == (1, 2, 4)


@pytest.mark.parametrize("cell", MAKERS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bias": False, "dropout": 0.5, "backend": "torch"}], ids=str)
def test_repr_evaluates_to_an_equal_layer(options, cell):
    rnn = MAKERS[cell](3, 8, schedule=Schedule((2, 7), (5, 3)), **options)
    assert "schedule='2:5,7:3'" in repr(rnn)
    again = eval(repr(rnn))
    assert again.schedule == rnn.schedule
    assert repr(again) == repr(rnn)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"schedule": [1, 0]}, ValueError, "periods must be positive integers, got 0"),
        ({"schedule": [1, -2]}, ValueError, "periods must be positive integers, got -2"),
        ({"schedule": [1, 2.0]}, ValueError, "periods must be positive integers, got 2.0"),
        ({"schedule": [True, 2]}, ValueError, "periods must be positive integers, got True"),
        ({"schedule": []}, ValueError, "a schedule needs at least one module, got no periods"),
        ({"schedule": 10}, ValueError, "10 modules need at least 10 units, got hidden_size=9"),
        ({"schedule": range(1, 12)}, ValueError, "11 modules need at least 11 units, got hidden_size=9"),
        ({"schedule": 0}, ValueError, "the number of modules must be a positive integer, got 0"),
        ({"schedule": True}, ValueError, "the number of modules must be a positive integer, got True"),
        ({"schedule": Schedule((1,), (8,))}, ValueError, "the schedule has 8 units, but hidden_size=9"),
        ({"schedule": "1:8"}, ValueError, "the schedule has 8 units, but hidden_size=9"),
        ({"schedule": "9"}, ValueError, "a schedule is written period:size,period:size,..., got '9'"),
        ({"schedule": 2.5}, TypeError, f"{SCHEDULE_FORMS}, got 2.5"),
        ({"schedule": {1: 9}}, TypeError, f"{SCHEDULE_FORMS}, got {{1: 9}}"),
        ({"dtype": torch.complex64}, ValueError, "dtype should be a real floating point type, got: torch.complex64"),
        (
            {"backend": ["torch"]},
            ValueError,
            "Unknown backend ['torch']. Select from 'auto', 'cpu', 'cuda', 'cudnn', 'torch', 'reference'.",
        ),
        (
            {"backend": "triton"},
            ValueError,
            "Unknown backend 'triton'. Select from 'auto', 'cpu', 'cuda', 'cudnn', 'torch', 'reference'.",
        ),
        ({"input_size": -1}, ValueError, "input_size must be zero or greater"),
    ],
    ids=str,
)
def test_bad_constructor_arguments_are_refused_with_the_reason(options, error, message):
    with pytest.raises(error) as caught:
        ClockworkRNN(**{"input_size": 2, "hidden_size": 9, **options})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"t0": -1}, ValueError, "t0 must be zero or greater, got -1"),
        ({"t0": 1.0}, TypeError, "t0 should be an int or a tensor of integers, got: float"),
        ({"t0": True}, TypeError, "t0 should be an int or a tensor of integers, got: bool"),
        ({"t0": None}, TypeError, "t0 should be an int or a tensor of integers, got: NoneType"),
        ({"lengths": [5, 0]}, ValueError, "lengths must lie between 1 and the 5 steps of the input, got 0"),
        ({"lengths": [6, 1]}, ValueError, "lengths must lie between 1 and the 5 steps of the input, got 6"),
        ({"lengths": [-3, 9]}, ValueError, "lengths must lie between 1 and the 5 steps of the input, got -3"),
        ({"lengths": [5]}, ValueError, "lengths must have one entry per sequence, shape (2,), got (1,)"),
        ({"lengths": 5}, ValueError, "lengths must have one entry per sequence, shape (2,), got ()"),
        ({"lengths": [1.0, 2.0]}, TypeError, "lengths must be integers, got torch.float32"),
        ({"lengths": "ab"}, TypeError, "lengths must be integers, got 'ab'"),
        (
            {"hx": (torch.zeros(1, 2, 9), 3)},
            TypeError,
            "hx should be a Tensor or a State, got: tuple: pass State(h, t), or h as hx and t as t0",
        ),
        ({"hx": [0.0]}, TypeError, "hx should be a Tensor or a State, got: list"),
        ({"lengths": [True, True]}, TypeError, "lengths must be integers, got torch.bool"),
        (
            {"hx": torch.zeros(1, 2, 9)},
            RuntimeError,
            "hx dtype (torch.float32) does not match input dtype (torch.float64). Convert hx: hx.to(torch.float64)",
        ),
    ],
    ids=str,
)
def test_bad_call_arguments_are_refused_with_the_reason(options, error, message):
    rnn = make([1, 2])
    with pytest.raises(error) as caught:
        rnn(torch.zeros(5, 2, 2, dtype=torch.float64), **options)
    assert str(caught.value) == message


def test_bad_inputs_are_refused_with_the_reason():
    rnn = make([1, 2])
    for input in (None, [[1.0, 2.0]], torch.zeros(3, 1, 2).numpy()):
        with pytest.raises(TypeError, match=f"should be a Tensor or a PackedSequence, got: {type(input).__name__}"):
            rnn(input)
    packed = pack_sequence([torch.zeros(3, 2, dtype=torch.float64)])
    with pytest.raises(ValueError, match="has lengths of its own"):
        rnn(packed, lengths=[3])
    with pytest.raises(ValueError, match="an unbatched input has its own length"):
        rnn(torch.zeros(3, 2, dtype=torch.float64), lengths=[3])
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 1, 9\), got \[1, 2, 9\]"):
        rnn(packed, torch.zeros(1, 2, 9, dtype=torch.float64))
    with pytest.raises(TypeError, match="takes 2 positional arguments|takes from 2 to 3 positional arguments"):
        rnn(torch.zeros(3, 1, 2, dtype=torch.float64), None, 3)


def test_bad_steps_are_refused_with_the_reason():
    rnn = make([1, 2])
    x, h = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(1, 3, 9, dtype=torch.float64)
    with pytest.raises(ValueError, match="step: Expected input to be 1D or 2D, got 3D"):
        rnn.step(x[None])
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 3, 9\), got \[1, 1, 9\]"):
        rnn.step(x, (h[:, :1], 0))
    with pytest.raises(ValueError, match=r"state.t must be zero or greater, got -1"):
        rnn.step(x, (h, -1))
    with pytest.raises(TypeError, match=r"state should be what step returned, or State\(h, t\), got: Tensor"):
        rnn.step(x, h)
    with pytest.raises(RuntimeError, match=r"state.h should be \(num_layers, B, N\) for an input of 2 dimensions"):
        rnn.step(x, (h[0], 0))
    with pytest.raises(TypeError, match=r"state.t should be an int or a tensor of integers, got: float"):
        rnn.step(x, (h, 1.0))
    with pytest.raises(ValueError, match="does not match weight dtype"):
        rnn.step(x.float())
    with pytest.raises(TypeError, match="step: input should be a Tensor, got: ndarray"):
        rnn.step(x.numpy())
    with pytest.raises(RuntimeError, match="a bidirectional layer reads a sequence from its end"):
        make([1, 2], bidirectional=True).step(x)


@CELLS
def test_step_equals_forward_under_autocast(close, cell):
    rnn = MAKERS[cell](2, 9, num_layers=2, schedule=[1, 2])
    x = torch.randn(6, 3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        output, hidden = rnn(x)
        state = None
        for t, x_t in enumerate(x):
            y, state = rnn.step(x_t, state)
            assert y.dtype == state.h.dtype == output.dtype == join(hidden).dtype == torch.bfloat16
            close(y, output[t])


@CELLS
def test_autocast_keeps_float64(close, cell):
    rnn = make([1, 2], cell=cell)
    x = torch.randn(6, 3, 2, dtype=torch.float64)
    expected, _ = rnn(x)
    with torch.autocast("cpu", torch.bfloat16):
        found, _ = rnn(x)
    close(found, expected)
