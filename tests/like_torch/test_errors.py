"""Our layers raise the errors of torch's for the same mistakes, with the same messages."""

import re
from functools import partial

import pytest
import torch
from support.rnn_pairs import CLOCKWORK, FORMS, LENGTHS, TORCHS, B, I, N, T, arrange_input, call
from torch import nn

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, LSTMState, State


def check_refusal(make, kind, text, call):
    """Check that `call(make)` raises `kind` with `text`.

    Older versions of torch's layers may accept the call, or word the error differently.
    """
    error = refusal(call, make)
    if make in TORCHS.values() and torch.__version__ < (2, 13):
        assert error is None or type(error) is kind, error
    else:
        assert type(error) is kind, error
        assert str(error) == text


def refusal(call, *arguments):
    try:
        call(*arguments)
    except Exception as error:
        return error
    return None


UNCHECKED = "torch.nn.LSTM does not check a packed sequence"
DROPOUT = "dropout should be a number in range [0, 1] representing the probability of an element being zeroed"


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"hidden_size": 0}, ValueError, "hidden_size must be greater than zero"),
        ({"hidden_size": -1}, ValueError, "hidden_size must be greater than zero"),
        ({"hidden_size": 5.0}, TypeError, "hidden_size should be of type int, got: float"),
        ({"hidden_size": "5"}, TypeError, "hidden_size should be of type int, got: str"),
        ({"hidden_size": None}, TypeError, "hidden_size should be of type int, got: NoneType"),
        ({"input_size": 3.0}, TypeError, "input_size should be of type int, got: float"),
        ({"input_size": "10"}, TypeError, "input_size should be of type int, got: str"),
        ({"num_layers": 0}, ValueError, "num_layers must be greater than zero"),
        ({"num_layers": -1}, ValueError, "num_layers must be greater than zero"),
        ({"bias": 0}, TypeError, "bias should be of type bool, got: int"),
        ({"bias": 1}, TypeError, "bias should be of type bool, got: int"),
        ({"bias": "True"}, TypeError, "bias should be of type bool, got: str"),
        ({"batch_first": 0}, TypeError, "batch_first should be of type bool, got: int"),
        ({"batch_first": 1}, TypeError, "batch_first should be of type bool, got: int"),
        ({"batch_first": "False"}, TypeError, "batch_first should be of type bool, got: str"),
        ({"dropout": 1.5}, ValueError, DROPOUT),
        ({"dropout": -0.1}, ValueError, DROPOUT),
        ({"dropout": float("nan")}, ValueError, DROPOUT),
        ({"dropout": True}, ValueError, DROPOUT),
        ({"dropout": False}, ValueError, DROPOUT),
        ({"dropout": torch.tensor(0.5)}, ValueError, DROPOUT),
        (
            {"dtype": torch.int64},
            RuntimeError,
            "Only Tensors of floating point and complex dtype can require gradients",
        ),
    ],
    ids=str,
)
def test_wrong_constructor_arguments_are_refused_in_torchs_words(make, arguments, kind, text):
    check_refusal(
        make, kind, text, lambda make: make(**{"input_size": I, "hidden_size": N, "num_layers": 2} | arguments)
    )


@pytest.mark.parametrize("nonlinearity", ["garbage", "Tanh", None, ["tanh"]], ids=str)
@pytest.mark.parametrize("make", [nn.RNN, partial(ClockworkRNN, schedule=1)], ids=["RNN", "ClockworkRNN"])
def test_wrong_nonlinearities_are_refused_in_torchs_words(make, nonlinearity):
    text = f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'."
    check_refusal(make, ValueError, text, lambda make: make(I, N, nonlinearity=nonlinearity))


@pytest.mark.parametrize("make", [nn.GRU, partial(ClockworkGRU, schedule=1)], ids=["GRU", "ClockworkGRU"])
def test_a_gru_takes_no_proj_size(make):
    with pytest.raises((ValueError, TypeError), match="proj_size"):
        make(I, N, proj_size=2)


DIMENSIONS = "Expected input to be 2D or 3D, got {}D"
FEATURES = "input.size(-1) must be equal to input_size. Expected 3, got {}"
HIDDEN = "Expected hidden size {}, got {}"
STATE_BATCHED = "For batched 3-D input, hx should also be 3-D but got {}-D tensor"
STATE_UNBATCHED = "For unbatched 2-D input, hx should also be 2-D but got {}-D tensor"


@pytest.mark.parametrize(
    ("options", "input_shape", "hx_shape", "kind", "text"),
    [
        ({}, (), None, ValueError, DIMENSIONS.format(0)),
        ({}, (I,), None, ValueError, DIMENSIONS.format(1)),
        ({}, (T, B, 2, I), None, ValueError, DIMENSIONS.format(4)),
        ({}, (T, B, I + 1), None, RuntimeError, FEATURES.format(I + 1)),
        ({}, (T, B, I - 1), None, RuntimeError, FEATURES.format(I - 1)),
        ({}, (T, B, 0), None, RuntimeError, FEATURES.format(0)),
        ({}, (T, I + 1), None, RuntimeError, FEATURES.format(I + 1)),
        ({"batch_first": True}, (B, T, I + 1), None, RuntimeError, FEATURES.format(I + 1)),
        ({}, (T, B, I + 1), (1, B, N + 1), RuntimeError, FEATURES.format(I + 1)),
        ({}, (T, B, I), (2, B, N), RuntimeError, HIDDEN.format((1, B, N), [2, B, N])),
        ({}, (T, B, I), (0, B, N), RuntimeError, HIDDEN.format((1, B, N), [0, B, N])),
        ({}, (T, B, I), (1, B + 1, N), RuntimeError, HIDDEN.format((1, B, N), [1, B + 1, N])),
        ({}, (T, B, I), (1, 1, N), RuntimeError, HIDDEN.format((1, B, N), [1, 1, N])),
        ({}, (T, B, I), (1, B, N + 1), RuntimeError, HIDDEN.format((1, B, N), [1, B, N + 1])),
        ({}, (T, B + 1, I), (1, B, N), RuntimeError, HIDDEN.format((1, B + 1, N), [1, B, N])),
        ({}, (T, B, I), (B, N), RuntimeError, STATE_BATCHED.format(2)),
        ({}, (T, B, I), (N,), RuntimeError, STATE_BATCHED.format(1)),
        ({}, (T, B, I), (1, B, N, 1), RuntimeError, STATE_BATCHED.format(4)),
        ({}, (T, I), (1, 1, N), RuntimeError, STATE_UNBATCHED.format(3)),
        ({}, (T, I), (N,), RuntimeError, STATE_UNBATCHED.format(1)),
        ({}, (T, I), (2, N), RuntimeError, HIDDEN.format((1, 1, N), [2, 1, N])),
        ({}, (T, I), (1, N + 1), RuntimeError, HIDDEN.format((1, 1, N), [1, 1, N + 1])),
        ({"batch_first": True}, (B, T, I), (B, 1, N), RuntimeError, HIDDEN.format((1, B, N), [B, 1, N])),
        ({"batch_first": True}, (T, I), (2, N), RuntimeError, HIDDEN.format((1, 1, N), [2, 1, N])),
        ({"num_layers": 3}, (T, B, I), (1, B, N), RuntimeError, HIDDEN.format((3, B, N), [1, B, N])),
        ({"bidirectional": True}, (T, B, I), (1, B, N), RuntimeError, HIDDEN.format((2, B, N), [1, B, N])),
        (
            {"num_layers": 3, "bidirectional": True},
            (T, B, I),
            (3, B, N),
            RuntimeError,
            HIDDEN.format((6, B, N), [3, B, N]),
        ),
    ],
    ids=str,
)
def test_wrong_shapes_are_refused_in_torchs_words(make, options, input_shape, hx_shape, kind, text):
    hx = None if hx_shape is None else torch.zeros(hx_shape)
    name = type(make(I, N)).__name__.removeprefix("Clockwork")
    if text.startswith("Expected input"):
        text = f"{name}: {text}{' tensor' if name == 'RNN' else ''} instead"
    check_refusal(make, kind, word(name, text), lambda make: call(make(I, N, **options), torch.zeros(input_shape), hx))


def word(name, text):
    """The error about a state in the words of nn.LSTM, for a state whose h and c are both wrong in the same way."""
    if name == "LSTM":
        text = text.replace("Expected hidden size", "Expected hidden[0] size")
        text = re.sub(
            "hx should also be (.*) but got (.*) tensor", r"hx and cx should also be \1 but got (\2, \2) tensors", text
        )
    return text


@pytest.mark.parametrize("make", [nn.LSTM, partial(ClockworkLSTM, schedule=1)], ids=["LSTM", "ClockworkLSTM"])
@pytest.mark.parametrize(
    ("input_shape", "shapes", "text"),
    [
        ((T, B, I), ((1, B, N), (1, B, N + 1)), "Expected hidden[1] size (1, 4, 5), got [1, 4, 6]"),
        ((T, B, I), ((1, B, N), (2, B, N)), "Expected hidden[1] size (1, 4, 5), got [2, 4, 5]"),
        ((T, B, I), ((1, B, N + 1), (1, B, N + 1)), "Expected hidden[0] size (1, 4, 5), got [1, 4, 6]"),
        (
            (T, B, I),
            ((1, B, N), (B, N)),
            "For batched 3-D input, hx and cx should also be 3-D but got (3-D, 2-D) tensors",
        ),
        (
            (T, I),
            ((1, 1, N), (1, N)),
            "For unbatched 2-D input, hx and cx should also be 2-D but got (3-D, 2-D) tensors",
        ),
        ((T, I), ((1, N), (2, N)), "Expected hidden[1] size (1, 1, 5), got [2, 1, 5]"),
    ],
    ids=str,
)
def test_wrong_cell_states_are_refused_in_torchs_words(make, input_shape, shapes, text):
    hidden = tuple(torch.zeros(shape) for shape in shapes)
    check_refusal(make, RuntimeError, text, lambda make: make(I, N)(torch.zeros(input_shape), hidden))


@pytest.mark.parametrize(
    ("features", "hx_shape", "text"),
    [
        ((I + 1,), None, FEATURES.format(I + 1)),
        ((2, I), None, "input must have 2 dimensions, got 3"),
        ((), None, "input must have 2 dimensions, got 1"),
        ((I,), (1, B + 1, N), HIDDEN.format((1, B, N), [1, B + 1, N])),
        ((I,), (1, B - 1, N), HIDDEN.format((1, B, N), [1, B - 1, N])),
        ((I,), (2, B, N), HIDDEN.format((1, B, N), [2, B, N])),
        ((I,), (1, B, N - 1), HIDDEN.format((1, B, N), [1, B, N - 1])),
        ((I,), (B, N), HIDDEN.format((1, B, N), [B, N])),
    ],
    ids=str,
)
def test_wrong_shapes_of_packed_sequences_are_refused_in_torchs_words(make, features, hx_shape, text):
    input = arrange_input("packed", torch.zeros(T, B, *features))
    hx = None if hx_shape is None else torch.zeros(hx_shape)
    if make is nn.LSTM:
        pytest.skip(UNCHECKED)
    name = type(make(I, N)).__name__.removeprefix("Clockwork")
    check_refusal(make, RuntimeError, word(name, text), lambda make: call(make(I, N), input, hx))


DTYPE = (
    "RNN input dtype ({0}) does not match weight dtype ({1}). "
    "Convert input: input.to({1}), or convert model: model.to({0})"
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("dtype", "weight_dtype"),
    [
        (torch.float64, torch.float32),
        (torch.float32, torch.float64),
        (torch.bfloat16, torch.float32),
        (torch.int64, torch.float32),
    ],
    ids=str,
)
def test_wrong_dtypes_are_refused_in_torchs_words(make, form, dtype, weight_dtype):
    if make is nn.LSTM and form in LENGTHS:
        pytest.skip(UNCHECKED)
    input = arrange_input(form, torch.zeros(T, B, I, dtype=dtype))
    layer = partial(make, I, N, batch_first=form == "batch_first", dtype=weight_dtype)
    text = DTYPE.format(dtype, weight_dtype)
    check_refusal(make, ValueError, text, lambda make: layer()(input))


def test_wrong_dtypes_on_the_meta_device_are_refused_in_torchs_words(make):
    """The message is the same on a device without autocast."""

    def call(make):
        make(I, N, device="meta")(torch.zeros(T, B, I, dtype=torch.float64, device="meta"))

    check_refusal(make, ValueError, DTYPE.format(torch.float64, torch.float32), call)


DEVICE = "Input and {0} tensors are not at the same device, found input tensor at {1} and {0} tensor at {2}"


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (("cpu", "meta", "meta"), DEVICE.format("parameter", "meta", "cpu")),
        (("meta", "cpu", "cpu"), DEVICE.format("parameter", "cpu", "meta")),
        (("cpu", "cpu", "meta"), DEVICE.format("hidden", "cpu", "meta")),
        (("meta", "meta", "cpu"), DEVICE.format("hidden", "meta", "cpu")),
    ],
    ids=str,
)
def test_wrong_devices_are_refused_in_torchs_words(make, devices, batched, text):
    weights, input, hx = devices
    shape, hx_shape = ((T, B, I), (1, B, N)) if batched else ((T, I), (1, N))

    def make_and_call(make):
        call(make(I, N, device=weights), torch.zeros(shape, device=input), torch.zeros(hx_shape, device=hx))

    check_refusal(make, RuntimeError, text, make_and_call)


@pytest.mark.parametrize(
    ("refused", "kind", "match"),
    [
        (lambda make: make(I, N, "a"), TypeError, "num_layers should be of type int, got: str"),
        (lambda make: make(I, N, 2.0), TypeError, "num_layers should be of type int, got: float"),
        (lambda make: make(I, N, dropout="a"), ValueError, "dropout should be a number"),
        (lambda make: make(I, N, dtype="float"), TypeError, "dtype"),
        (lambda make: call(make(I, N), torch.zeros(T, B, I), torch.zeros(1, B, N).double()), RuntimeError, "hx dtype"),
    ],
    ids=["num_layers str", "num_layers float", "dropout str", "dtype str", "hx dtype"],
)
def test_errors_name_the_argument_where_torchs_do_not(make, refused, kind, match):
    """torch raises an error of the same type from deep inside, with a message about something else."""
    with pytest.raises(kind, match=None if make in TORCHS.values() else match) as caught:
        refused(make)
    assert type(caught.value) is kind


@pytest.mark.parametrize("batch", [B - 1, B + 1])
def test_a_state_of_the_wrong_batch_is_refused_for_an_unsorted_sequence(batch, kind):
    """torch's layers permute the state before they check it, so they silently accept one that is too large."""
    layer = CLOCKWORK[kind](I, N, schedule=1)
    with pytest.raises(RuntimeError, match=r"Expected hidden(\[0\])? size \(1, 4, 5\), got \[1, [35], 5\]"):
        call(layer, arrange_input("unsorted", torch.zeros(T, B, I)), torch.zeros(1, batch, N))


@pytest.mark.parametrize(
    ("hx", "message"),
    [
        (torch.zeros(1, B, N), "got: Tensor"),
        ((torch.zeros(1, B, N),), "got: tuple: pass LSTMState(h, c, t), or (h, c) as hx and t as t0"),
        ((torch.zeros(1, B, N), torch.zeros(1, B, N), 3), "got: tuple: pass LSTMState(h, c, t), or (h, c) as hx"),
        ((torch.zeros(1, B, N), None), "got: tuple"),
        (State(torch.zeros(1, B, N), 3), "got: State"),
        (3, "got: int"),
    ],
    ids=str,
)
def test_a_state_that_is_no_pair_is_refused_by_an_lstm(hx, message):
    with pytest.raises(
        TypeError, match=re.escape("hx should be a pair of Tensors (h_0, c_0) or an LSTMState, " + message)
    ):
        ClockworkLSTM(I, N)(torch.zeros(T, B, I), hx)


@pytest.mark.parametrize("layer", [ClockworkRNN, ClockworkGRU])
def test_the_state_of_an_lstm_is_refused_by_other_layers(layer):
    h = torch.zeros(1, B, N)
    for hx in ((h, h), LSTMState(h, h, 3)):
        with pytest.raises(TypeError, match=f"hx should be a Tensor or a State, got: {type(hx).__name__}"):
            layer(I, N)(torch.zeros(T, B, I), hx)
    with pytest.raises(TypeError, match=r"state should be what step returned, or State\(h, t\), got: LSTMState"):
        layer(I, N).step(torch.zeros(B, I), LSTMState(h, h, 3))
    with pytest.raises(TypeError, match=r"state should be what step returned, or LSTMState\(h, c, t\), got: State"):
        ClockworkLSTM(I, N).step(torch.zeros(B, I), State(h, 3))


def test_a_cell_state_of_another_dtype_is_refused():
    h = torch.zeros(1, B, N)
    with pytest.raises(RuntimeError, match=r"cx dtype \(torch.float64\) does not match input dtype \(torch.float32\)"):
        ClockworkLSTM(I, N)(torch.zeros(T, B, I), (h, h.double()))


def test_wrong_keyword(make):
    with pytest.raises(TypeError, match="unexpected keyword argument 'layers'"):
        make(I, N, layers=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'h0'"):
        make(I, N)(torch.zeros(T, B, I), h0=torch.zeros(1, B, N))


def test_negative_input_size(kind):
    """torch's words are "must be greater than zero", but zero is no error here."""
    with pytest.raises(ValueError, match="input_size must be zero or greater"):
        CLOCKWORK[kind](-1, N, schedule=1)


@pytest.mark.parametrize("grad", [True, False], ids=["with gradients", "without gradients"])
def test_an_input_of_another_dtype_than_weight_ih_is_refused_with_and_without_a_state(grad, kind):
    layer = CLOCKWORK[kind](3, 8, schedule=2)
    layer.weight_ih_l0.data = layer.weight_ih_l0.data.double()
    for hx in (None, torch.zeros(1, 2, 8)):
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match="does not match weight dtype"):
            call(layer, torch.randn(5, 2, 3), hx)
