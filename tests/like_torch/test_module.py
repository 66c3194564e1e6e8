"""Our layers as modules: parameters, state dicts, copies, dtypes and devices, as torch's layers have them."""

import copy
import pickle

import pytest
import torch
from support.rnn_pairs import (
    CLOCKWORK,
    B,
    I,
    N,
    T,
    arrange_input,
    call,
    is_lstm,
    make_pair,
    randn,
)
from torch import nn
from torch.func import functional_call
from torch.nn.utils import parametrizations, prune

from cwrnn import ClockworkLSTM

NAMES = [
    "weight_ih_l0", "weight_hh_l0", "bias_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_l0_reverse",
    "weight_ih_l1", "weight_hh_l1", "bias_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_l1_reverse",
]  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
def test_parameters_have_torchs_names_and_shapes(bias, kind):
    rnn, ours = make_pair(I, N, 2, kind=kind, bias=bias, bidirectional=True)
    names = [name for name, _ in ours.named_parameters()]
    assert names == [name for name in NAMES if bias or not name.startswith("bias")]
    shapes = {name.replace("bias_ih", "bias"): p.shape for name, p in rnn.named_parameters() if "bias_hh" not in name}
    assert list(shapes) == names
    if kind == "GRU":
        # d, the bias inside the reset product, is the fourth part
        shapes |= {name: (4 * N,) for name in shapes if name.startswith("bias")}
    assert {name: p.shape for name, p in ours.named_parameters()} == shapes
    assert [p.data_ptr() for p in ours.parameters()] == [getattr(ours, name).data_ptr() for name in names]
    assert list(ours.state_dict()) == [*names, "_extra_state"]
    assert list(ours.buffers()) == []


def test_positional_arguments_have_torchs_order(make):
    has_nonlinearity = hasattr(make(I, N), "nonlinearity")
    nonlinearity = ["relu"] if has_nonlinearity else []
    # device and dtype are given by name: all layers of torch take the argument before them for an LSTM's proj_size
    layer = make(I, N, 2, *nonlinearity, False, True, 0.5, True, device="cpu", dtype=torch.float64)
    found = {name: getattr(layer, name) for name in ("input_size", "hidden_size", "num_layers", "bias")}
    assert found == {"input_size": I, "hidden_size": N, "num_layers": 2, "bias": False}
    assert not has_nonlinearity or layer.nonlinearity == "relu"
    assert (layer.batch_first, layer.dropout, layer.bidirectional) == (True, 0.5, True)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    assert {p.device.type for p in layer.parameters()} == {"cpu"}
    assert layer(torch.zeros(B, T, I, dtype=torch.float64))[0].shape == (B, T, 2 * N)


def test_an_lstm_takes_proj_size_where_torch_does():
    assert ClockworkLSTM(I, N, 2, False, True, 0.5, True, 0, "cpu", torch.float64).weight_hh_l0.dtype == torch.float64
    with pytest.raises(ValueError, match="proj_size must be 0: a ClockworkLSTM has no projections, got 2"):
        ClockworkLSTM(I, N, 2, False, True, 0.5, True, 2)
    with pytest.raises(ValueError, match="no projections, got a torch.nn.LSTM with proj_size=2"):
        ClockworkLSTM.from_lstm(nn.LSTM(I, N, proj_size=2))
    for wrong in (None, 0.0, True):
        with pytest.raises(TypeError, match="proj_size should be of type int, got: "):
            ClockworkLSTM(I, N, proj_size=wrong)


def test_peepholes_are_parameters_that_torch_does_not_have(close):
    lstm = ClockworkLSTM(I, N, 2, schedule=1, peepholes=True, dtype=torch.float64)
    assert [tuple(lstm.get_parameter(f"weight_ch_l{k}").shape) for k in range(2)] == [(3 * N,)] * 2
    with pytest.raises(ValueError, match="a torch.nn.LSTM has no peepholes"):
        lstm.to_lstm()
    with pytest.raises(TypeError, match="peepholes should be of type bool, got: int"):
        ClockworkLSTM(I, N, peepholes=1)
    theirs = nn.LSTM(I, N, 2, dtype=torch.float64)
    with pytest.raises(RuntimeError, match='Missing key.*"weight_ch_l0", "weight_ch_l1"'):
        lstm.load_state_dict(theirs.state_dict())
    with torch.no_grad():
        for k in range(2):
            lstm.get_parameter(f"weight_ch_l{k}").zero_()
    lstm.load_state_dict(theirs.state_dict(), strict=False)
    x = randn(T, B, I)
    close(lstm(x)[0], theirs(x)[0])


def test_initial_values_are_uniform_and_depend_on_the_seed(make):
    layer = make(30, 100)
    before = [p.detach().clone() for p in layer.parameters()]
    layer.reset_parameters()
    for old, new in zip(before, layer.parameters(), strict=True):
        assert not torch.equal(old, new)
        # uniform between -1 / sqrt(N) and 1 / sqrt(N), which has a standard deviation of 1 / sqrt(3 N)
        assert new.abs().max() <= 0.1
        assert new.std().item() == pytest.approx(0.1 / 3**0.5, rel=0.25)
    torch.manual_seed(3)
    first = make(I, N)
    torch.manual_seed(3)
    for a, b in zip(first.parameters(), make(I, N).parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_saved_state_dict_restores_the_outputs(make, tmp_path):
    layer, other = make(I, N, 2, bidirectional=True), make(I, N, 2, bidirectional=True)
    x = torch.randn(T, B, I)
    expected = layer(x)[0]
    assert not torch.equal(other(x)[0], expected)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    result = other.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True), strict=True)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert torch.equal(other(x)[0], expected)


def test_a_state_dict_that_does_not_fit_is_refused(make):
    layer = make(I, N)
    state = layer.state_dict()
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "weight_hh_l0"'):
        layer.load_state_dict({name: value for name, value in state.items() if name != "weight_hh_l0"})
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: "weight_hh_l1"'):
        layer.load_state_dict(state | {"weight_hh_l1": state["weight_hh_l0"]})
    with pytest.raises(RuntimeError, match="size mismatch for weight_ih_l0"):
        layer.load_state_dict(state | {"weight_ih_l0": torch.zeros(N, I + 1)})


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["deepcopy", "pickle"]
)
def test_copies_are_independent(make, duplicate):
    layer = make(I, N, 2, batch_first=True, dropout=0.5).eval()
    x = torch.randn(B, T, I)
    # a layer can also be copied after a call and a backward pass
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
def test_conversion_to_float64_keeps_the_outputs(make, close, convert):
    layer = make(I, N, 2)
    x = torch.randn(T, B, I)
    expected, expected_h = call(layer, x)
    assert convert(layer) is layer
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    output, h_n = call(layer, x.double())
    assert output.dtype == h_n.dtype == torch.float64
    close(output.float(), expected)
    close(h_n.float(), expected_h)


@pytest.fixture
def swapped():
    """Let torch convert a module by swapping its parameters for new ones."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@pytest.mark.usefixtures("swapped")
def test_parameters_can_be_swapped_after_a_call_and_a_step(make):
    layer, x = make(I, N), torch.randn(T, B, I)
    with torch.no_grad():
        layer(x)
        if not isinstance(layer, nn.RNNBase):
            layer.step(x[0])
    weight = layer.weight_hh_l0
    assert layer.double()(x.double())[0].dtype == torch.float64
    assert layer.weight_hh_l0 is weight


@pytest.mark.usefixtures("swapped")
def test_parameters_can_be_swapped_by_loading_after_a_step(kind):
    layer, other, x = CLOCKWORK[kind](I, N), CLOCKWORK[kind](I, N), torch.randn(B, I)
    with torch.no_grad():
        layer.step(x)
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer.step(x)[0], other.step(x)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_equals_rounded_float32(make, close, dtype):
    layer = make(I, N, 2)
    x, hx = torch.randn(T, B, I), torch.randn(2, B, N)
    expected, expected_h = call(layer, x, hx)
    layer = layer.half() if dtype == torch.float16 else layer.bfloat16()
    output, h_n = call(layer, x.to(dtype), hx.to(dtype))
    assert output.dtype == h_n.dtype == dtype
    close(output, expected.to(dtype))
    close(h_n, expected_h.to(dtype))
    output.sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {dtype}
    assert all(p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("form", ["batched", "batch_first", "unbatched"])
def test_the_meta_device_gives_shapes_without_values(make, form):
    layer = make(I, N, 2, batch_first=form == "batch_first", bidirectional=True, device="meta")
    output, h_n = call(layer, arrange_input(form, torch.empty(T, B, I, device="meta")))
    shape = {"batched": (T, B, 2 * N), "batch_first": (B, T, 2 * N), "unbatched": (T, 2 * N)}[form]
    assert (output.shape, output.device.type) == (shape, "meta")
    units = 2 * N if is_lstm(layer) else N
    assert (h_n.shape, h_n.device.type) == ((4, units) if form == "unbatched" else (4, B, units), "meta")
    real = layer.to_empty(device="cpu")
    real.reset_parameters()
    assert real(arrange_input(form, torch.randn(T, B, I)))[0].isfinite().all()


def test_frozen_parameters_get_no_gradient(make, close):
    layer = make(I, N, dtype=torch.float64)
    x = randn(T, B, I, requires_grad=True)
    expected = torch.autograd.grad(layer(x)[0].sum(), [x, layer.weight_hh_l0])
    assert layer.requires_grad_(False) is layer
    assert not layer(x.detach())[0].requires_grad
    close(torch.autograd.grad(layer(x)[0].sum(), x)[0], expected[0])
    layer.weight_hh_l0.requires_grad_()
    output, h_n = call(layer, x.detach())
    assert h_n.requires_grad
    output.sum().backward()
    close(layer.weight_hh_l0.grad, expected[1])
    assert layer.weight_ih_l0.grad is None


def test_train_and_eval_switch_the_mode(make):
    layer = make(I, N)
    assert layer.training
    assert not layer.eval().training
    assert layer.train().training


def test_repr_is_torchs_plus_the_schedule(kind):
    for options in ({}, {"num_layers": 3, "bias": False, "batch_first": True, "dropout": 0.5, "bidirectional": True}):
        rnn, ours = make_pair(kind=kind, **options)
        sizes = repr(rnn).removeprefix(f"{kind}(").removesuffix(")")
        assert sizes.startswith(f"{I}, {N}")
        assert repr(ours) == f"Clockwork{kind}({sizes}, schedule='1:{N}')"


def test_functional_call_uses_the_given_parameters(make, close):
    layer, other = make(I, N, dtype=torch.float64), make(I, N, dtype=torch.float64)
    x = randn(T, B, I)
    parameters = {name: p.detach().clone().requires_grad_() for name, p in other.named_parameters()}
    output, _ = functional_call(layer, parameters, (x,))
    close(output, other(x)[0])
    gradients = torch.autograd.grad(output.sum(), list(parameters.values()))
    for gradient, expected in zip(gradients, torch.autograd.grad(other(x)[0].sum(), other.parameters()), strict=True):
        close(gradient, expected)


@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0"])
def test_weight_norm_trains_the_magnitude_of_a_weight(make, close, name):
    """The layer then uses a weight that is computed, and is no parameter."""
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
    assert magnitude.grad.count_nonzero() == len(getattr(layer, name))


def test_pruned_weights_get_no_gradient(make):
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
