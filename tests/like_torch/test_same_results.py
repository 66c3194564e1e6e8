"""ClockworkRNN with one module of period 1 is torch.nn.RNN: one battery for both, and each compared with the other."""

import copy
import pickle
from itertools import product

import pytest
import torch
from support.rnn_pairs import (
    GUISES,
    LENGTHS,
    B,
    I,
    N,
    T,
    dress,
    dress_state,
    make_pair,
    named_gradients,
    randn,
    run,
    values,
)
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import PackedSequence

from cwrnn import ClockworkRNN


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("guise", GUISES)
def test_shapes(make, guise, num_layers, bidirectional):
    layer = make(I, N, num_layers, batch_first=guise == "batch_first", bidirectional=bidirectional)
    directions = 2 if bidirectional else 1
    input = dress(guise, torch.randn(T, B, I))
    output, h_n = layer(input)
    features = N * directions
    if guise in LENGTHS:
        assert isinstance(output, PackedSequence)
        assert output.data.shape == (sum(LENGTHS[guise]), features)
        for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            actual, expected = getattr(output, field), getattr(input, field)
            assert (actual is None) == (expected is None)
            assert expected is None or torch.equal(actual, expected)
    else:
        shape = {"batched": (T, B, features), "batch_first": (B, T, features), "unbatched": (T, features)}[guise]
        assert output.shape == shape
    assert h_n.shape == ((num_layers * directions, N) if guise == "unbatched" else (num_layers * directions, B, N))


class Measured(torch.Tensor):
    """A tensor of a kind of its own."""


def test_output_is_of_the_inputs_kind(make):
    layer, x = make(I, N), torch.randn(T, B, I)
    for kind in (torch.Tensor, Measured):
        assert [type(value) for value in layer(x.as_subclass(kind))] == [kind, kind]
        with torch.no_grad():
            assert [type(value) for value in layer(x.as_subclass(kind))] == [kind, kind]


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_empty_batch(make, batch_first, given):
    layer = make(I, N, 3, bidirectional=True, batch_first=batch_first)
    x = torch.randn((0, T, I) if batch_first else (T, 0, I), requires_grad=True)
    output, h_n = layer(x, torch.randn(6, 0, N) if given else None)
    assert output.shape == ((0, T, 2 * N) if batch_first else (T, 0, 2 * N))
    assert h_n.shape == (6, 0, N)
    (output.sum() + h_n.sum()).backward()
    assert x.grad.shape == x.shape
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
@pytest.mark.parametrize("guise", GUISES)
@pytest.mark.parametrize(
    ("num_layers", "nonlinearity", "bias", "bidirectional"),
    list(product([1, 3], ["tanh", "relu"], [True, False], [False, True])),
)
def test_equal(close, num_layers, nonlinearity, bias, bidirectional, guise, given):
    batch_first = guise == "batch_first"
    rnn, ours = make_pair(I, N, num_layers, nonlinearity, bias, batch_first, bidirectional=bidirectional)
    x = randn(T, B, I, requires_grad=True)
    hx = randn(num_layers * (2 if bidirectional else 1), B, N, requires_grad=True) if given else None
    inputs = {"input": x} | ({"hx": hx} if given else {})
    arguments = dress(guise, x), dress_state(guise, hx)

    (expected, expected_h, _), (output, h_n, _) = run(rnn, *arguments), run(ours, *arguments)
    close(values(output), values(expected))
    close(h_n, expected_h)
    if guise in LENGTHS:
        assert torch.equal(output.batch_sizes, expected.batch_sizes)

    output_weights, h_weights = randn(values(output).shape), randn(h_n.shape)
    losses = {
        "output": lambda output, h_n: (values(output) * output_weights).sum(),
        "h_n": lambda output, h_n: (h_n * h_weights).sum(),
        "both": lambda output, h_n: (values(output).sin() * output_weights).sum() + (h_n.cos() * h_weights).sum(),
    }
    for through, loss in losses.items():
        actual = named_gradients(ours, loss(output, h_n), inputs)
        wanted = named_gradients(rnn, loss(expected, expected_h), inputs)
        assert actual.keys() == wanted.keys()
        for name, gradient in wanted.items():
            close(actual[name], gradient, msg=lambda text, at=f"{name} through {through}": f"{at}: {text}")


def test_torch_has_one_gradient_for_two_biases(close):
    """Why named_gradients may leave torch's second bias out."""
    rnn, ours = make_pair()
    x = randn(T, B, I)
    for layer in (rnn, ours):
        run(layer, x)[-1].backward()
    close(rnn.bias_ih_l0.grad, ours.bias_l0.grad)
    close(rnn.bias_hh_l0.grad, ours.bias_l0.grad)


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (1, 4, 3, 5), (2, 1, 3, 5), (9, 2, 1, 4), (9, 2, 4, 1), (40, 3, 17, 33)], ids=str
)
def test_equal_at_odd_sizes(close, sizes):
    steps, batch, features, units = sizes
    rnn, ours = make_pair(features, units)
    x, hx = randn(steps, batch, features, requires_grad=True), randn(1, batch, units, requires_grad=True)
    (*expected, expected_loss), (*actual, loss) = run(rnn, x, hx), run(ours, x, hx)
    for a, e in zip(actual, expected, strict=True):
        close(a, e)
    wanted = named_gradients(rnn, expected_loss, {"input": x, "hx": hx})
    for name, gradient in named_gradients(ours, loss, {"input": x, "hx": hx}).items():
        close(gradient, wanted[name])


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_equal_in_float32(close, nonlinearity):
    rnn, ours = make_pair(8, 32, 2, nonlinearity, dtype=torch.float32)
    x = randn(50, 4, 8, dtype=torch.float32, requires_grad=True)
    hx = randn(2, 4, 32, dtype=torch.float32, requires_grad=True)
    (*expected, expected_loss), (*actual, loss) = run(rnn, x, hx), run(ours, x, hx)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32
        close(a, e)
    wanted = named_gradients(rnn, expected_loss, {"input": x, "hx": hx})
    for name, gradient in named_gradients(ours, loss, {"input": x, "hx": hx}).items():
        close(gradient, wanted[name])


def test_saturated(close):
    """Far beyond where exp overflows, tanh is 1 and its slope is 0."""
    rnn, ours = make_pair()
    x = (1e3 * randn(T, B, I)).requires_grad_()
    (expected, _, expected_loss), (output, _, loss) = run(rnn, x), run(ours, x)
    close(output, expected)
    wanted = named_gradients(rnn, expected_loss, {"input": x})
    for name, gradient in named_gradients(ours, loss, {"input": x}).items():
        close(gradient, wanted[name])


def test_not_a_number_stays_in_its_sequence(make):
    x = torch.randn(T, B, I)
    x[2, 1] = float("nan")
    output, h_n = make(I, N)(x)
    expected = torch.zeros(T, B, dtype=torch.bool)
    expected[2:, 1] = True
    assert torch.equal(output.isnan().all(-1), expected)
    assert torch.equal(output.isnan().any(-1), expected)
    assert torch.equal(h_n[0].isnan().any(-1), expected[-1])


def test_converts_both_ways(close):
    rnn, ours = make_pair(I, N, 2, "relu", batch_first=True, bidirectional=True)
    x = randn(B, T, I)
    for again in (ours.to_rnn(), ClockworkRNN.from_rnn(ours.to_rnn())):
        close(again(x)[0], rnn(x)[0])


def strided(x):
    """x with other strides, in the same place of a larger memory."""
    memory = torch.full([2 * size for size in reversed(x.shape)], float("nan"), dtype=x.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in x.shape)].permute(*reversed(range(x.dim())))
    return view.copy_(x)


@pytest.mark.parametrize("batch_first", [False, True])
def test_noncontiguous(make, close, batch_first):
    layer = make(I, N, 2, batch_first=batch_first, dtype=torch.float64)
    other = copy.deepcopy(layer)
    for name, parameter in list(other.named_parameters()):
        setattr(other, name, nn.Parameter(strided(parameter.detach())))
        assert not getattr(other, name).is_contiguous()
    x, hx = randn(B, T, I) if batch_first else randn(T, B, I), randn(2, B, N)
    gradients = randn(*x.shape[:2], N), randn(2, B, N)
    results = []
    for each, view in ((layer, torch.clone), (other, strided)):
        leaves = [view(x).requires_grad_(), view(hx).requires_grad_(), *each.parameters()]
        output, h_n = each(*leaves[:2])
        results.append([output, h_n, *torch.autograd.grad((output, h_n), leaves, [view(g) for g in gradients])])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_expanded(make, close):
    """Inputs and gradients with a stride of 0."""
    layer = make(I, N, dtype=torch.float64)
    x, hx = randn(1, 1, I).expand(T, B, I), randn(1, 1, N).expand(1, B, N)
    results = []
    for each in (x, x.contiguous()):
        output, h_n = layer(each, hx if each is x else hx.contiguous())
        weights = torch.ones((), dtype=torch.float64).expand_as(output)
        gradients = torch.autograd.grad(output, layer.parameters(), weights if each is x else weights.contiguous())
        results.append([output, h_n, *gradients])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_arguments_are_left_alone(make):
    layer = make(I, N, 2, bidirectional=True)
    x, hx = torch.randn(T, B, I), torch.randn(4, B, N)
    before = x.clone(), hx.clone()
    layer(x, hx)
    assert torch.equal(x, before[0])
    assert torch.equal(hx, before[1])


def test_outputs_may_be_changed_in_place(make, close):
    """What backward needs is not what the caller holds."""
    layer = make(I, N, dtype=torch.float64)
    x, hx = randn(T, B, I), randn(1, B, N)
    output, h_n = layer(x, hx)
    expected = torch.autograd.grad((3 * output).sum() + (2 * h_n).sum(), layer.parameters())
    output, h_n = layer(x, hx)
    output.mul_(3)
    h_n.mul_(2)
    for actual, wanted in zip(torch.autograd.grad(output.sum() + h_n.sum(), layer.parameters()), expected, strict=True):
        close(actual, wanted)


def test_backward_twice(make):
    layer = make(I, N, 2)
    output, _ = layer(torch.randn(T, B, I))
    first = torch.autograd.grad(output.sum(), layer.parameters(), retain_graph=True)
    second = torch.autograd.grad(output.sum(), layer.parameters())
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.sum().backward()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_without_gradients(make, close, context):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    with context():
        output, h_n = layer(x)
    assert not output.requires_grad
    assert not h_n.requires_grad
    assert output.is_inference() == (context is torch.inference_mode)
    expected, expected_h = layer(x)
    close(output, expected.detach())
    close(h_n, expected_h.detach())


@pytest.mark.parametrize("guise", ["batched", "batch_first", "unbatched"])
def test_state_is_carried_over_chunks(make, close, guise):
    batch_first = guise == "batch_first"
    layer = make(I, N, 3, batch_first=batch_first, dtype=torch.float64)
    x, h = dress(guise, randn(T, B, I)), dress_state(guise, randn(3, B, N))
    expected, expected_h = layer(x, h)
    chunks = []
    for chunk in x.split((1, 4, 2), dim=1 if batch_first else 0):
        output, h = layer(chunk, h)
        chunks.append(output)
    close(torch.cat(chunks, dim=1 if batch_first else 0), expected)
    close(h, expected_h)


@pytest.mark.parametrize("guise", GUISES)
def test_state_is_zero_unless_given(make, guise):
    layer = make(I, N, 2, batch_first=guise == "batch_first", bidirectional=True)
    input = dress(guise, torch.randn(T, B, I))
    zeros = dress_state(guise, torch.zeros(4, B, N))
    expected, expected_h = layer(input, zeros)
    for output, h_n in (layer(input), layer(input, None), layer(input, hx=None)):
        assert torch.equal(values(output), values(expected))
        assert torch.equal(h_n, expected_h)
    other, other_h = layer(input, zeros + 1)
    assert not torch.equal(values(other), values(expected))
    assert not torch.equal(other_h, expected_h)


def test_final_state_is_the_last_output(make):
    output, h_n = make(I, N, 2, bidirectional=True)(torch.randn(T, B, I))
    assert torch.equal(h_n[2], output[-1, :, :N])
    assert torch.equal(h_n[3], output[0, :, N:])


def test_dropout_of_everything(make, close):
    """The second layer hears nothing of the first, and gives it no gradient."""
    layer = make(I, N, 2, dropout=1.0, dtype=torch.float64)
    x = randn(T, B, I)
    output, h_n = layer(x)
    other, _ = layer(randn(T, B, I))
    assert torch.equal(output, other)
    assert not torch.equal(h_n[0], torch.zeros_like(h_n[0]))
    output.sum().backward()
    assert torch.equal(layer.weight_hh_l0.grad, torch.zeros_like(layer.weight_hh_l0))
    assert not torch.equal(layer.weight_hh_l1.grad, torch.zeros_like(layer.weight_hh_l1))
    evaluated, _ = layer.eval()(x)
    assert not torch.equal(evaluated, layer(randn(T, B, I))[0])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_dropout_draws_as_torch_does(close, bidirectional):
    rnn, ours = make_pair(I, N, 3, dropout=0.5, bidirectional=bidirectional)
    x = randn(T, B, I)
    results = []
    for layer in (rnn, ours, copy.deepcopy(ours).eval()):
        torch.manual_seed(1)
        output, h_n, loss = run(layer, x)
        results.append((output, h_n, torch.autograd.grad(loss, layer.weight_ih_l0)[0]))
    for expected, actual, evaluated in zip(*results, strict=True):
        close(actual, expected)
        assert not torch.equal(actual, evaluated)


def test_dropout_has_its_probability(make, close):
    """Weights that copy: relu of the layer below, of which p is zeroed and the rest grows by 1 / (1 - p)."""
    p, units = 0.3, 200
    layer = make(1, units, 2, "relu", False, dropout=p)
    with torch.no_grad():
        layer.weight_ih_l0.fill_(1)
        layer.weight_ih_l1.copy_(torch.eye(units))
        layer.weight_hh_l0.zero_()
        layer.weight_hh_l1.zero_()
    output, h_n = layer(torch.ones(50, 1, 1))
    kept = output != 0
    # 10,000 draws: five standard deviations
    assert kept.float().mean().item() == pytest.approx(1 - p, abs=5 * (p * (1 - p) / 10_000) ** 0.5)
    close(output[kept], torch.full_like(output[kept], 1 / (1 - p)))
    close(h_n[0], torch.ones_like(h_n[0]))


def test_dropout_by_seed(make):
    layer = make(I, N, 2, dropout=0.5)
    x = torch.randn(T, B, I)
    outputs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outputs.append(layer(x)[0])
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])


def test_dropout_may_be_changed(make):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    expected = layer(x)[0]
    layer.dropout = 0.5
    assert not torch.equal(layer(x)[0], expected)
    layer.dropout = 0.0
    assert torch.equal(layer(x)[0], expected)


def test_dropout_of_one_layer_warns(make):
    text = (
        r"dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
        r"greater than 1, but got dropout=0\.5 and num_layers=1"
    )
    with pytest.warns(UserWarning, match=text) as caught:
        layer = make(I, N, dropout=0.5)
    if isinstance(layer, ClockworkRNN):
        assert caught[0].filename == __file__
    x = torch.randn(T, B, I)
    assert torch.equal(layer(x)[0], layer.eval()(x)[0])


def test_no_input(close):
    """A network without inputs is one whose inputs are zero."""
    rnn, ours = make_pair()
    generator = ClockworkRNN(0, N, schedule=1, dtype=torch.float64)
    generator.load_state_dict(ours.state_dict() | {"weight_ih_l0": torch.empty(N, 0)})
    hx = randn(1, B, N)
    expected, expected_h = rnn(torch.zeros(T, B, I, dtype=torch.float64), hx)
    output, h_n = generator(randn(T, B, 0), hx)
    close(output, expected)
    close(h_n, expected_h)
    output.sum().backward()
    assert generator.weight_ih_l0.grad.shape == (N, 0)


@pytest.mark.parametrize("guise", ["batched", "batch_first", "unbatched"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_no_steps(guise, bidirectional):
    """torch.nn.RNN refuses a sequence without steps; a stream may have nothing to say."""
    layer = ClockworkRNN(I, N, 3, batch_first=guise == "batch_first", bidirectional=bidirectional, schedule=1)
    directions = 2 if bidirectional else 1
    hx = torch.randn(3 * directions, B, N, requires_grad=True)
    output, h_n = layer(dress(guise, torch.zeros(0, B, I)), dress_state(guise, hx))
    features = directions * N
    assert (
        output.shape
        == {"batched": (0, B, features), "batch_first": (B, 0, features), "unbatched": (0, features)}[guise]
    )
    assert torch.equal(h_n, dress_state(guise, hx))
    h_n.sum().backward()
    assert torch.equal(dress_state(guise, hx.grad), torch.ones_like(h_n))


NAMES = [
    "weight_ih_l0", "weight_hh_l0", "bias_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_l0_reverse",
    "weight_ih_l1", "weight_hh_l1", "bias_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_l1_reverse",
]  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
def test_parameters(bias):
    rnn, ours = make_pair(I, N, 2, bias=bias, bidirectional=True)
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name in NAMES if bias or not name.startswith("bias")]
    shapes = {name.replace("bias_ih", "bias"): p.shape for name, p in rnn.named_parameters() if "bias_hh" not in name}
    assert list(shapes) == names
    assert {name: p.shape for name, p in ours.named_parameters()} == shapes
    assert [p.data_ptr() for p in ours.parameters()] == [getattr(ours, name).data_ptr() for name in names]
    assert list(ours.state_dict()) == names
    assert list(ours.buffers()) == []


def test_positional_arguments(make):
    # what torch documents as the ninth, the device, is where torch.nn.RNN takes an LSTM's proj_size
    layer = make(I, N, 2, "relu", False, True, 0.5, True, device="cpu", dtype=torch.float64)
    found = {name: getattr(layer, name) for name in ("input_size", "hidden_size", "num_layers", "nonlinearity", "bias")}
    assert found == {"input_size": I, "hidden_size": N, "num_layers": 2, "nonlinearity": "relu", "bias": False}
    assert (layer.batch_first, layer.dropout, layer.bidirectional) == (True, 0.5, True)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert {p.device.type for p in layer.parameters()} == {"cpu"}
    assert layer(torch.zeros(B, T, I, dtype=torch.float64))[0].shape == (B, T, 2 * N)


def test_initial_values(make):
    layer = make(30, 100)
    before = [p.detach().clone() for p in layer.parameters()]
    layer.reset_parameters()
    for old, new in zip(before, layer.parameters(), strict=True):
        assert not torch.equal(old, new)
        # uniform in +-1 / sqrt(N), whose standard deviation is a 1 / sqrt(3) of that
        assert new.abs().max() <= 0.1
        assert new.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.25)
    torch.manual_seed(3)
    first = make(I, N)
    torch.manual_seed(3)
    for a, b in zip(first.parameters(), make(I, N).parameters(), strict=True):
        assert torch.equal(a, b)


def test_state_dict(make, tmp_path):
    layer, other = make(I, N, 2, bidirectional=True), make(I, N, 2, bidirectional=True)
    x = torch.randn(T, B, I)
    expected = layer(x)[0]
    assert not torch.equal(other(x)[0], expected)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    result = other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert torch.equal(other(x)[0], expected)


def test_wrong_state_dict(make):
    layer = make(I, N)
    state = layer.state_dict()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight_hh_l0"'):
        layer.load_state_dict({name: value for name, value in state.items() if name != "weight_hh_l0"})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "weight_hh_l1"'):
        layer.load_state_dict(state | {"weight_hh_l1": state["weight_hh_l0"]})
    with pytest.raises(RuntimeError, match="size mismatch for weight_ih_l0"):
        layer.load_state_dict(state | {"weight_ih_l0": torch.zeros(N, I + 1)})


def test_torch_state_dict_is_no_state_dict_of_ours():
    """torch's two biases are one here: from_rnn adds them, load_state_dict must not drop one."""
    rnn, ours = make_pair()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "bias_l0"'):
        ours.load_state_dict(rnn.state_dict())


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["deepcopy", "pickle"]
)
def test_copies_are_independent(make, duplicate):
    layer = make(I, N, 2, "relu", batch_first=True, dropout=0.5).eval()
    x = torch.randn(B, T, I)
    # nothing that a call leaves behind stands in the way of a copy
    expected = layer(x)[0]
    expected.sum().backward()
    layer.zero_grad()
    twin = duplicate(layer)
    assert torch.equal(twin(x)[0], expected)
    assert repr(twin) == repr(layer)
    assert not twin.training
    optimizer = torch.optim.SGD(twin.parameters(), lr=1.0)
    twin(x)[0].sum().backward()
    optimizer.step()
    assert not torch.equal(twin(x)[0], expected)
    assert torch.equal(layer(x)[0], expected)
    assert all(parameter.grad is None for parameter in layer.parameters())


@pytest.mark.parametrize("convert", [lambda layer: layer.to(torch.float64), nn.Module.double], ids=["to", "double"])
def test_to_float64(make, close, convert):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    expected, expected_h = layer(x)
    assert convert(layer) is layer
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    output, h_n = layer(x.double())
    assert output.dtype == h_n.dtype == torch.float64
    close(output.float(), expected)
    close(h_n.float(), expected_h)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(make, close, dtype):
    layer = make(I, N, 2)
    x, hx = torch.randn(T, B, I), torch.randn(2, B, N)
    expected, expected_h = layer(x, hx)
    layer = layer.half() if dtype == torch.float16 else layer.bfloat16()
    output, h_n = layer(x.to(dtype), hx.to(dtype))
    assert output.dtype == h_n.dtype == dtype
    close(output, expected.to(dtype))
    close(h_n, expected_h.to(dtype))
    output.sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {dtype}
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("guise", ["batched", "batch_first", "unbatched"])
def test_meta_device(make, guise):
    layer = make(I, N, 2, batch_first=guise == "batch_first", bidirectional=True, device="meta")
    output, h_n = layer(dress(guise, torch.empty(T, B, I, device="meta")))
    shape = {"batched": (T, B, 2 * N), "batch_first": (B, T, 2 * N), "unbatched": (T, 2 * N)}[guise]
    assert (output.shape, output.device.type) == (shape, "meta")
    assert (h_n.shape, h_n.device.type) == ((4, N) if guise == "unbatched" else (4, B, N), "meta")
    real = layer.to_empty(device="cpu")
    real.reset_parameters()
    assert real(dress(guise, torch.randn(T, B, I)))[0].isfinite().all()


def test_frozen(make, close):
    layer = make(I, N, dtype=torch.float64)
    x = randn(T, B, I, requires_grad=True)
    expected = torch.autograd.grad(layer(x)[0].sum(), [x, layer.weight_hh_l0])
    assert layer.requires_grad_(False) is layer
    assert not layer(x.detach())[0].requires_grad
    close(torch.autograd.grad(layer(x)[0].sum(), x)[0], expected[0])
    layer.weight_hh_l0.requires_grad_()
    output, h_n = layer(x.detach())
    assert h_n.requires_grad
    output.sum().backward()
    close(layer.weight_hh_l0.grad, expected[1])
    assert layer.weight_ih_l0.grad is None


def test_train_and_eval(make):
    layer = make(I, N)
    assert layer.training
    assert not layer.eval().training
    assert layer.train().training


def test_repr():
    for options in ({}, {"num_layers": 3, "bias": False, "batch_first": True, "dropout": 0.5, "bidirectional": True}):
        rnn, ours = make_pair(**options)
        sizes = repr(rnn).removeprefix("RNN(").removesuffix(")")
        assert sizes.startswith(f"{I}, {N}")
        assert repr(ours) == f"ClockworkRNN({sizes}, schedule='1:{N}')"


def test_functional_call(make, close):
    layer, other = make(I, N, dtype=torch.float64), make(I, N, dtype=torch.float64)
    x = randn(T, B, I)
    parameters = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    output, _ = functional_call(layer, parameters, (x,))
    close(output, other(x)[0])
    gradients = torch.autograd.grad(output.sum(), list(parameters.values()))
    for gradient, expected in zip(gradients, torch.autograd.grad(other(x)[0].sum(), other.parameters()), strict=True):
        close(gradient, expected)


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_weight_norm(make, close, name):
    """A weight that is computed from others is no parameter."""
    layer = make(I, N, dtype=torch.float64)
    x = randn(T, B, I)
    expected = layer(x)[0]
    parametrizations.weight_norm(layer, name)
    close(layer(x)[0], expected)
    magnitude = layer.parametrizations[name].original0
    with torch.no_grad():
        magnitude.mul_(2)
    assert not torch.equal(layer(x)[0], expected)
    layer(x)[0].sum().backward()
    assert magnitude.grad.count_nonzero() == N


def test_pruned(make):
    layer = make(I, N, dtype=torch.float64)
    x = randn(T, B, I)
    expected = layer(x)[0]
    prune.random_unstructured(layer, "weight_hh_l0", amount=0.5)
    output = layer(x)[0]
    assert not torch.equal(output, expected)
    output.sum().backward()
    assert torch.equal(layer.weight_hh_l0_orig.grad == 0, layer.weight_hh_l0_mask == 0)
    prune.remove(layer, "weight_hh_l0")
    assert torch.equal(layer(x)[0], output)
