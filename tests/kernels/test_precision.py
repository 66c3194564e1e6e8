"""Half precision on the CPU: the kernel computes in float32, and the layer rounds its results."""

import pytest
import torch
from support.rnn_pairs import make_pair, named_gradients
from torch import nn

from cwrnn import ClockworkRNN, Readout
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture(params=["autocast", "parameters"])
def way(request):
    """Half precision by autocast, or by parameters of that dtype."""
    return request.param


def prepare(way, dtype, *modules):
    """The modules and a context in which they compute in `dtype`."""
    if way == "parameters":
        for module in modules:
            module.to(dtype)
    return torch.autocast("cpu", dtype=dtype, enabled=way == "autocast")


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_precision_is_as_exact_as_torchs(way, dtype, nonlinearity, calls):
    exact, _ = make_pair(4, 16, 2, nonlinearity, bidirectional=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in exact.parameters():
            parameter.copy_(parameter.to(dtype))
    rnn = nn.RNN(4, 16, 2, nonlinearity, bidirectional=True)
    rnn.load_state_dict(exact.state_dict())
    ours = ClockworkRNN.from_rnn(rnn)
    errors = []
    x = torch.randn(20, 3, 4).to(dtype).double().requires_grad_()
    output, h_n = exact(x)
    wanted = named_gradients(exact, output.sin().sum() + h_n.sum(), {"input": x})
    for layer in (rnn, ours):
        with prepare(way, dtype, layer):
            own = x.detach().to(layer.weight_hh_l0.dtype).requires_grad_()
            y, h = layer(own)
        assert y.dtype == h.dtype == dtype
        gradients = named_gradients(layer, y.sin().sum() + h.sum(), {"input": own})
        for name, gradient in gradients.items():
            assert gradient.dtype == layer.weight_hh_l0.dtype, name
        found = {"output": y, "h_n": h, **gradients}
        right = {"output": output, "h_n": h_n, **wanted}
        errors.append({name: (found[name].double() - value).norm() / value.norm() for name, value in right.items()})
    theirs, own = errors
    rounding = torch.finfo(dtype).eps
    for name, error in own.items():
        assert error <= theirs[name] + rounding, name
    assert [name for name, _ in calls].count("forward") == 4


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_readout_of_ticks_has_half_precision_too(way, dtype, calls, close):
    rnn, readout, x = ClockworkRNN(4, 16, schedule=4), Readout(16, 3), torch.randn(20, 3, 4)
    expected = readout(rnn(x)[0])
    calls.clear()
    with prepare(way, dtype, rnn, readout):
        x = x.to(rnn.weight_hh_l0.dtype)
        ticks, h_n = rnn.ticks(x)
        output = readout(ticks)
        assert torch.equal(ticks.hold(), rnn(x)[0])
    assert output.dtype == h_n.dtype == dtype
    close(output, expected.to(dtype))
    output.sum().backward()
    assert rnn.weight_hh_l0.grad.dtype == rnn.weight_hh_l0.dtype
    assert [name for name, _ in calls] == ["forward", "forward", "backward"]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_step_has_half_precision_too(way, dtype, close):
    rnn, x = ClockworkRNN(4, 16, 2, schedule=4), torch.randn(9, 3, 4)
    with prepare(way, dtype, rnn), torch.no_grad():
        x = x.to(rnn.weight_hh_l0.dtype)
        output, _ = rnn(x)
        state = None
        for x_t, right in zip(x, output, strict=True):
            y, state = rnn.step(x_t, state)
            assert y.dtype == state.h.dtype == dtype
            close(y, right)


def test_autocast_does_not_round_the_weights(calls):
    rnn, x = ClockworkRNN(4, 16, schedule=4), torch.randn(20, 3, 4)
    expected, _ = rnn(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = rnn(x)
    assert torch.equal(output, expected.bfloat16())


def test_the_named_kernel_takes_half_precision():
    rnn = ClockworkRNN(4, 16, schedule=4, backend="cpu").half()
    assert rnn(torch.randn(5, 2, 4).half())[0].dtype == torch.float16
