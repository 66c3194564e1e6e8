"""Calls without gradients go to the CPU kernel directly, if nothing must be checked, cast or transformed first."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from cwrnn import ClockworkRNN
from cwrnn.backends import BACKENDS
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")


def check_inference(rnn, x) -> None:
    """Checks that a call gives the same bits without gradient mode as with it, and equals the cascade."""
    expected = rnn(x, t0=7)
    with torch.no_grad():
        found = rnn(x, t0=7)
    assert not any(value.requires_grad for value in found)
    torch.testing.assert_close(found, tuple(value.detach() for value in expected), rtol=0, atol=0)
    # both might be wrong in the same way; `ticks` checks everything, and never takes the direct way
    rnn.backend = "torch"
    ticks, h_n = rnn.ticks(x, t0=7)
    # the cascade computes in half precision, where the kernel computes in float32
    tolerance = {"rtol": 0, "atol": 2e-3} if x.dtype == torch.float16 else {}
    torch.testing.assert_close(found, (ticks.hold().detach(), h_n.detach()), **tolerance)
    rnn.backend = "auto"


@pytest.mark.parametrize("bias", [True, False])
def test_inference_calls_the_kernel_directly(isa, bias, monkeypatch, calls):
    rnn, x = ClockworkRNN(3, 20, schedule=(1, 2, 5), bias=bias), torch.randn(13, 4, 3)
    check_inference(rnn, x)
    calls.clear()
    monkeypatch.setitem(BACKENDS, "cpu", BACKENDS["cpu"]._replace(run=None))
    with torch.no_grad():
        rnn(x, t0=7)
    assert [name for name, _ in calls] == ["forward"]


def _transpose_weights(rnn, x):
    rnn.weight_hh_l0.data = rnn.weight_hh_l0.data.t()
    return x


def _parametrize(name):
    class Doubled(nn.Module):
        def forward(self, value):
            return 2 * value

    def change(rnn, x):
        nn.utils.parametrize.register_parametrization(rnn, name, Doubled())
        return x

    return change


def _convert_bias(rnn, x):
    rnn.bias_l0.data = rnn.bias_l0.data.double()
    return x


def _halve(rnn, x):
    rnn.half()
    return x.half()


CHANGES = {
    "nothing": lambda rnn, x: x,
    "transposed weights": _transpose_weights,
    "computed weights": _parametrize("weight_hh_l0"),
    "computed weights of the input": _parametrize("weight_ih_l0"),
    "a computed bias": _parametrize("bias_l0"),
    "a bias of another dtype": _convert_bias,
    "half precision": _halve,
    "a transposed input": lambda rnn, x: x.transpose(0, 1),
    "every other step of an input": lambda rnn, x: x[::2],
    "a negated input": lambda rnn, x: torch._neg_view(x),
    "a parameter as input": lambda rnn, x: nn.Parameter(x),
    "no steps": lambda rnn, x: x[:0],
    "one sequence without a batch": lambda rnn, x: x[:, 0],
}
"""Changes of a layer, or of the input that is returned, that the direct way must notice."""


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_inference_takes_tensors_of_any_kind(change):
    rnn, x = ClockworkRNN(3, 20, schedule=(1, 2, 5)), torch.randn(6, 6, 3)
    check_inference(rnn, change(rnn, x))


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_inference_works_under_transforms_and_modes(close):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(6, 4, 3)
    expected = rnn(x)[0].detach()
    with torch.no_grad():
        close(vmap(lambda sequence: rnn(sequence)[0], in_dims=1, out_dims=1)(x.unsqueeze(2)).squeeze(2), expected)
        tangent = torch.randn_like(x)
        plain = ClockworkRNN(3, 8, schedule=(1, 2), backend="torch")
        plain.load_state_dict(rnn.state_dict())
        found, wanted = (torch.func.jvp(lambda x, at=at: at(x)[0], (x,), (tangent,))[1] for at in (rnn, plain))
        close(found, wanted)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert rnn(x)[0].dtype == torch.bfloat16
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert type(rnn(x)[0]) is not torch.Tensor
        two = TwoTensor(rnn.weight_hh_l0.detach(), torch.zeros(8, 8))
        close(functional_call(rnn, {"weight_hh_l0": two}, (x,))[0].a, expected)


@pytest.mark.parametrize("way", ["training", "inference", "step"])
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weight_ih_l0", lambda weight: weight.to("meta"), "not at the same device"),
        ("weight_hh_l0", lambda weight: weight.to("meta"), "not at the same device"),
        ("bias_l0", lambda weight: weight.to("meta"), "not at the same device"),
        ("weight_ih_l0", lambda weight: weight[:-1], r"weight_ih must be \(8, 3\), got \(7, 3\)"),
        ("weight_hh_l0", lambda weight: weight[:-1], r"weight_hh must be \(8, 8\), got \(7, 8\)"),
        ("bias_l0", lambda weight: weight[:-1], r"bias must be \(8,\), got \(7,\)"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(way, name, change, message):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(6, 4, 3)
    setattr(rnn, name, nn.Parameter(change(getattr(rnn, name).detach())))
    with torch.set_grad_enabled(way == "training"), pytest.raises((ValueError, RuntimeError), match=message):
        rnn.step(x[0]) if way == "step" else rnn(x)


@torch.no_grad()
def test_a_schedule_that_no_longer_fits_is_refused():
    rnn, other, x = ClockworkRNN(3, 8, schedule=(1, 2)), ClockworkRNN(3, 16, schedule=(1, 2)), torch.randn(6, 4, 3)
    rnn.schedule = other.schedule
    with pytest.raises(ValueError, match=r"weight_ih must be \(16, 3\), got \(8, 3\)"):
        rnn(x)
    rnn._parameters.update(other._parameters)
    h = torch.zeros(1, 4, 8)
    for run in (lambda x: rnn.ticks(x, h), lambda x: rnn.step(x[0]), lambda x: rnn(x, h)):
        with pytest.raises(ValueError, match=r"the state must be \(4, 16\), got \(4, 8\)"):
            run(x)


@torch.no_grad()
def test_inference_refuses_inputs_that_do_not_fit():
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(6, 4, 3)
    with pytest.raises(RuntimeError, match=r"Expected 3, got 2"):
        rnn(x[..., :2])
    with pytest.raises(ValueError, match="does not match weight dtype"):
        rnn(x.double())
    rnn.weight_ih_l0 = nn.Parameter(torch.randn(8, 2))
    with pytest.raises(RuntimeError, match=r"Expected 3, got 2"):
        rnn(x[..., :2])


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_jacobians_without_gradient_mode_equal_the_cascade(close):
    rnn = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64)
    plain = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64, backend="torch")
    plain.load_state_dict(rnn.state_dict())
    x, tangent = torch.randn(5, 1, 2, dtype=torch.float64), torch.randn(5, 1, 4, dtype=torch.float64)
    with torch.no_grad():
        found, expected = (torch.func.jacrev(lambda x, at=at: at(x)[0])(x) for at in (rnn, plain))
    close(found, expected)
    # forward mode over reverse mode
    found, expected = (
        torch.func.jvp(torch.func.vjp(lambda x, at=at: at(x)[0], x)[1], (tangent,), (tangent.sin(),))[1][0]
        for at in (rnn, plain)
    )
    close(found, expected)
