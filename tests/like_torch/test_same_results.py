"""Our layers with one module of period 1 give the results of torch's, in every form of input."""

import copy
from itertools import product

import pytest
import torch
from support.rnn_pairs import (
    CELLS,
    CLOCKWORK,
    FORMS,
    LENGTHS,
    B,
    I,
    N,
    T,
    arrange_input,
    arrange_state,
    as_hidden,
    call,
    is_lstm,
    join,
    make_pair,
    named_gradients,
    randn,
    run,
    values,
)
from torch import nn
from torch.nn.utils.rnn import PackedSequence


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("num_layers", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_outputs_and_states_have_torchs_shapes(make, form, num_layers, bidirectional):
    layer = make(I, N, num_layers, batch_first=form == "batch_first", bidirectional=bidirectional)
    directions = 2 if bidirectional else 1
    input = arrange_input(form, torch.randn(T, B, I))
    output, hidden = layer(input)
    features = N * directions
    if form in LENGTHS:
        assert isinstance(output, PackedSequence)
        assert output.data.shape == (sum(LENGTHS[form]), features)
        for field in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            actual, expected = getattr(output, field), getattr(input, field)
            assert (actual is None) == (expected is None)
            assert expected is None or torch.equal(actual, expected)
    else:
        shape = {"batched": (T, B, features), "batch_first": (B, T, features), "unbatched": (T, features)}[form]
        assert output.shape == shape
    assert isinstance(hidden, tuple) == is_lstm(layer)
    for state in hidden if is_lstm(layer) else (hidden,):
        assert state.shape == ((num_layers * directions, N) if form == "unbatched" else (num_layers * directions, B, N))
        assert state.is_contiguous()


class Measured(torch.Tensor):
    """A subclass of Tensor."""


def test_outputs_have_the_tensor_type_of_the_input(make):
    layer, x = make(I, N), torch.randn(T, B, I)
    for kind in (torch.Tensor, Measured):
        for enabled in (True, False):
            with torch.set_grad_enabled(enabled):
                output, hidden = layer(x.as_subclass(kind))
            for value in (output, *(hidden if is_lstm(layer) else (hidden,))):
                assert type(value) is kind


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_an_empty_batch_gives_empty_outputs_and_zero_gradients(make, batch_first, given):
    layer = make(I, N, 3, bidirectional=True, batch_first=batch_first)
    x = torch.randn((0, T, I) if batch_first else (T, 0, I), requires_grad=True)
    output, h_n = call(layer, x, torch.randn(6, 0, N) if given else None)
    assert output.shape == ((0, T, 2 * N) if batch_first else (T, 0, 2 * N))
    assert h_n.shape == (6, 0, 2 * N if is_lstm(layer) else N)
    (output.sum() + h_n.sum()).backward()
    assert x.grad.shape == x.shape
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter.grad, torch.zeros_like(parameter)), name


@pytest.mark.parametrize("given", [False, True], ids=["zeros", "hx"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("num_layers", "bias", "bidirectional"), list(product([1, 3], [True, False], [False, True])))
@pytest.mark.parametrize("kind", CELLS)
def test_outputs_and_gradients_equal_torchs(close, num_layers, kind, bias, bidirectional, form, given):
    batch_first = form == "batch_first"
    options = {"bias": bias, "batch_first": batch_first, "bidirectional": bidirectional}
    rnn, ours = make_pair(I, N, num_layers, kind=kind, **options)
    x = randn(T, B, I, requires_grad=True)
    hx = randn(num_layers * (2 if bidirectional else 1), B, N, requires_grad=True) if given else None
    inputs = {"input": x} | ({"hx": hx} if given else {})
    arguments = arrange_input(form, x), arrange_state(form, hx)

    (expected, expected_h, _), (output, h_n, _) = run(rnn, *arguments), run(ours, *arguments)
    close(values(output), values(expected))
    close(h_n, expected_h)
    if form in LENGTHS:
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


def test_torchs_two_biases_have_the_same_gradient(close, kind):
    """Therefore one bias is enough, apart from the gate n of a GRU."""
    rnn, ours = make_pair(kind=kind)
    x = randn(T, B, I)
    for layer in (rnn, ours):
        run(layer, x)[-1].backward()
    gates = 2 * N if kind == "GRU" else len(ours.bias_l0)
    close(rnn.bias_ih_l0.grad[:gates], ours.bias_l0.grad[:gates])
    close(rnn.bias_hh_l0.grad[:gates], ours.bias_l0.grad[:gates])


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1), (1, 4, 3, 5), (2, 1, 3, 5), (9, 2, 1, 4), (9, 2, 4, 1), (40, 3, 17, 33)], ids=str
)
def test_odd_sizes_equal_torch(close, sizes, kind):
    steps, batch, features, units = sizes
    rnn, ours = make_pair(features, units, kind=kind)
    x, hx = randn(steps, batch, features, requires_grad=True), randn(1, batch, units, requires_grad=True)
    (*expected, expected_loss), (*actual, loss) = run(rnn, x, hx), run(ours, x, hx)
    for a, e in zip(actual, expected, strict=True):
        close(a, e)
    wanted = named_gradients(rnn, expected_loss, {"input": x, "hx": hx})
    for name, gradient in named_gradients(ours, loss, {"input": x, "hx": hx}).items():
        close(gradient, wanted[name])


@pytest.mark.parametrize("kind", CELLS)
def test_float32_equals_torch(close, kind):
    rnn, ours = make_pair(8, 32, 2, kind=kind, dtype=torch.float32)
    x = randn(50, 4, 8, dtype=torch.float32, requires_grad=True)
    hx = randn(2, 4, 32, dtype=torch.float32, requires_grad=True)
    (*expected, expected_loss), (*actual, loss) = run(rnn, x, hx), run(ours, x, hx)
    for a, e in zip(actual, expected, strict=True):
        assert a.dtype == torch.float32
        close(a, e)
    wanted = named_gradients(rnn, expected_loss, {"input": x, "hx": hx})
    for name, gradient in named_gradients(ours, loss, {"input": x, "hx": hx}).items():
        close(gradient, wanted[name])


def test_saturated_units_equal_torch(close, kind):
    """Far beyond where exp overflows, tanh and the logistic function are 1 and their slopes are 0."""
    rnn, ours = make_pair(kind=kind)
    x = (1e3 * randn(T, B, I)).requires_grad_()
    (expected, _, expected_loss), (output, _, loss) = run(rnn, x), run(ours, x)
    close(output, expected)
    wanted = named_gradients(rnn, expected_loss, {"input": x})
    for name, gradient in named_gradients(ours, loss, {"input": x}).items():
        close(gradient, wanted[name])


def test_nan_stays_in_its_sequence(make):
    x = torch.randn(T, B, I)
    x[2, 1] = float("nan")
    output, h_n = call(make(I, N), x)
    expected = torch.zeros(T, B, dtype=torch.bool)
    expected[2:, 1] = True
    assert torch.equal(output.isnan().all(-1), expected)
    assert torch.equal(output.isnan().any(-1), expected)
    assert torch.equal(h_n[0].isnan().any(-1), expected[-1])


def test_conversion_to_torch_and_back_keeps_the_outputs(close, kind):
    rnn, ours = make_pair(I, N, 2, kind=kind, batch_first=True, bidirectional=True)
    x = randn(B, T, I)
    converted = getattr(ours, f"to_{kind.lower()}")()
    for again in (converted, getattr(CLOCKWORK[kind], f"from_{kind.lower()}")(converted)):
        close(again(x)[0], rnn(x)[0])


def strided(x):
    """Return `x` with other strides, as a view of a larger tensor of NaN."""
    memory = torch.full([2 * size for size in reversed(x.shape)], float("nan"), dtype=x.dtype)
    view = memory[tuple(slice(None, None, 2) for _ in x.shape)].permute(*reversed(range(x.dim())))
    return view.copy_(x)


@pytest.mark.parametrize("batch_first", [False, True])
def test_strides_do_not_change_the_results(make, close, batch_first):
    layer = make(I, N, 2, batch_first=batch_first, dtype=torch.float64)
    other = copy.deepcopy(layer)
    for name, parameter in list(other.named_parameters()):
        setattr(other, name, nn.Parameter(strided(parameter.detach())))
        assert not getattr(other, name).is_contiguous()
    x, hx = randn(B, T, I) if batch_first else randn(T, B, I), randn(2, B, N)
    gradients = randn(*x.shape[:2], N), randn(2, B, 2 * N if is_lstm(layer) else N)
    results = []
    for each, view in ((layer, torch.clone), (other, strided)):
        leaves = [view(x).requires_grad_(), view(hx).requires_grad_(), *each.parameters()]
        output, h_n = call(each, *leaves[:2])
        results.append([output, h_n, *torch.autograd.grad((output, h_n), leaves, [view(g) for g in gradients])])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_expanded_tensors_give_the_same_results(make, close):
    """Inputs and gradients may have a stride of 0."""
    layer = make(I, N, dtype=torch.float64)
    x, hx = randn(1, 1, I).expand(T, B, I), randn(1, 1, N).expand(1, B, N)
    results = []
    for each in (x, x.contiguous()):
        output, h_n = call(layer, each, hx if each is x else hx.contiguous())
        weights = torch.ones((), dtype=torch.float64).expand_as(output)
        gradients = torch.autograd.grad(output, layer.parameters(), weights if each is x else weights.contiguous())
        results.append([output, h_n, *gradients])
    for actual, expected in zip(*results, strict=True):
        close(actual, expected)


def test_calls_do_not_change_their_arguments(make):
    layer = make(I, N, 2, bidirectional=True)
    x, hx = torch.randn(T, B, I), torch.randn(4, B, N)
    before = x.clone(), hx.clone()
    call(layer, x, hx)
    assert torch.equal(x, before[0])
    assert torch.equal(hx, before[1])


def test_outputs_may_be_changed_in_place(make, close):
    """Backward keeps its own tensors, so a change of the outputs does not change the gradients."""
    layer = make(I, N, dtype=torch.float64)
    x, hx = randn(T, B, I), randn(1, B, N)
    output, h_n = call(layer, x, hx)
    expected = torch.autograd.grad((3 * output).sum() + (2 * h_n).sum(), layer.parameters())
    output, hidden = layer(x, as_hidden(layer, hx))
    output.mul_(3)
    for state in hidden if is_lstm(layer) else (hidden,):
        state.mul_(2)
    loss = output.sum() + join(hidden).sum()
    for actual, wanted in zip(torch.autograd.grad(loss, layer.parameters()), expected, strict=True):
        close(actual, wanted)


def test_backward_repeats_only_with_a_retained_graph(make):
    layer = make(I, N, 2)
    output, _ = layer(torch.randn(T, B, I))
    first = torch.autograd.grad(output.sum(), layer.parameters(), retain_graph=True)
    second = torch.autograd.grad(output.sum(), layer.parameters())
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        output.sum().backward()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_outputs_without_gradients_equal_those_with_gradients(make, close, context):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    with context():
        output, h_n = call(layer, x)
    assert not output.requires_grad
    assert not h_n.requires_grad
    assert output.is_inference() == (context is torch.inference_mode)
    expected, expected_h = call(layer, x)
    close(output, expected.detach())
    close(h_n, expected_h.detach())


@pytest.mark.parametrize("form", ["batched", "batch_first", "unbatched"])
def test_chunks_that_pass_the_state_on_equal_one_call(make, close, form):
    batch_first = form == "batch_first"
    layer = make(I, N, 3, batch_first=batch_first, dtype=torch.float64)
    x, h = arrange_input(form, randn(T, B, I)), as_hidden(layer, arrange_state(form, randn(3, B, N)))
    expected, expected_h = layer(x, h)
    chunks = []
    for chunk in x.split((1, 4, 2), dim=1 if batch_first else 0):
        output, h = layer(chunk, h)
        chunks.append(output)
    close(torch.cat(chunks, dim=1 if batch_first else 0), expected)
    close(join(h), join(expected_h))


@pytest.mark.parametrize("form", FORMS)
def test_the_initial_state_is_zero_by_default(make, form):
    layer = make(I, N, 2, batch_first=form == "batch_first", bidirectional=True)
    input = arrange_input(form, torch.randn(T, B, I))
    zeros = arrange_state(form, torch.zeros(4, B, N))
    expected, expected_h = call(layer, input, zeros)
    for output, hidden in (layer(input), layer(input, None), layer(input, hx=None)):
        assert torch.equal(values(output), values(expected))
        assert torch.equal(join(hidden), expected_h)
    other, other_h = call(layer, input, zeros + 1)
    assert not torch.equal(values(other), values(expected))
    assert not torch.equal(other_h, expected_h)


def test_the_final_state_is_the_last_output(make):
    output, h_n = call(make(I, N, 2, bidirectional=True), torch.randn(T, B, I))
    assert torch.equal(h_n[2, :, :N], output[-1, :, :N])
    assert torch.equal(h_n[3, :, :N], output[0, :, N:])


def test_a_network_without_inputs_equals_one_with_zero_inputs(close, kind):
    rnn, ours = make_pair(kind=kind)
    generator = CLOCKWORK[kind](0, N, schedule=1, dtype=torch.float64)
    rows = len(ours.weight_ih_l0)
    generator.load_state_dict(ours.state_dict() | {"weight_ih_l0": torch.empty(rows, 0)})
    hx = randn(1, B, N)
    expected, expected_h = call(rnn, torch.zeros(T, B, I, dtype=torch.float64), hx)
    output, h_n = call(generator, randn(T, B, 0), hx)
    close(output, expected)
    close(h_n, expected_h)
    output.sum().backward()
    assert generator.weight_ih_l0.grad.shape == (rows, 0)


@pytest.mark.parametrize("form", ["batched", "batch_first", "unbatched"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_sequence_without_steps_returns_the_initial_state(form, bidirectional, kind):
    """torch's layers refuse such a sequence; ours accept it as an empty chunk of a stream."""
    layer = CLOCKWORK[kind](I, N, 3, batch_first=form == "batch_first", bidirectional=bidirectional, schedule=1)
    directions = 2 if bidirectional else 1
    hx = torch.randn(3 * directions, B, N, requires_grad=True)
    output, hidden = layer(arrange_input(form, torch.zeros(0, B, I)), as_hidden(layer, arrange_state(form, hx)))
    h_n = hidden[0] if is_lstm(layer) else hidden
    features = directions * N
    assert (
        output.shape == {"batched": (0, B, features), "batch_first": (B, 0, features), "unbatched": (0, features)}[form]
    )
    assert torch.equal(join(hidden), join(as_hidden(layer, arrange_state(form, hx))))
    h_n.sum().backward()
    assert torch.equal(arrange_state(form, hx.grad), torch.ones_like(h_n))
