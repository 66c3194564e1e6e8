"""The LSTM: the plain loop that defines it, and the kernel that must equal it."""

import platform
from array import array

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn.experiments.networks.lstm import plain, run
from cwrnn.kernels.cpu import loader, lstm

KERNEL = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")
SIZES = [
    # S, T, I, N: one of everything; odd ones; whole vectors; beyond one block and one span of steps
    (1, 1, 0, 1),
    (3, 20, 2, 4),
    (16, 16, 16, 16),
    (19, 33, 3, 15),
    (33, 40, 13, 26),
]


class LSTM(nn.Module):
    """A layer of LSTM cells.

    Variables: weight_ih (4 N, I) and weight_hh (4 N, N) are W and U, bias (4 N) is b, in torch's order i, f, g, o;
    weight_ch (3, N) is p_i, p_f, p_o, or None without peepholes.
    """

    def __init__(self, input_size: int, hidden_size: int, *, peepholes: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.weight_ch = nn.Parameter(torch.empty(3, hidden_size)) if peepholes else None
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.1)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The hidden states (T, B, N) for the input (T, B, I)."""
        # one network on B sequences is B networks that share their weights
        B = input.shape[1]
        weights = self.weight_ih, self.weight_hh, self.weight_ch, self.bias
        shared = [None if weight is None else weight.expand(B, *weight.shape) for weight in weights]
        return run(input.transpose(0, 1), *shared).transpose(0, 1)


@pytest.fixture(params=["plain", pytest.param("kernel", marks=KERNEL)])
def layer(request, monkeypatch):
    """The layer, computed by the kernel and by the plain loop."""
    if request.param == "plain":
        monkeypatch.setattr(loader._Loaded, "missing", "it is not wanted")
    return LSTM


def networks(S, T, I, N, peepholes, dtype=torch.float64, scale=1.0):
    """Input and weights of S networks, all with gradients; None in place of peepholes that are not wanted."""
    shapes = (S, T, I), (S, 4 * N, I), (S, 4 * N, N), (S, 3, N), (S, 4 * N)
    tensors = [(scale * torch.randn(shape, dtype=dtype)).requires_grad_() for shape in shapes]
    if not peepholes:
        tensors[3] = None
    return tensors


def evaluate(run, tensors, lengths, cotangent):
    hidden = run(*tensors, lengths)
    sources = [tensor for tensor in tensors if tensor is not None]
    return [hidden, *torch.autograd.grad(hidden, sources, cotangent)]


def test_without_peepholes_it_equals_torchs_lstm(layer, close):
    lstm, expected = layer(3, 5, peepholes=False).double(), nn.LSTM(3, 5).double()
    assert lstm.weight_ch is None
    # beyond normal(0, 0.1), where the gates do not move
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=1.0)
    with torch.no_grad():
        expected.weight_ih_l0.copy_(lstm.weight_ih)
        expected.weight_hh_l0.copy_(lstm.weight_hh)
        expected.bias_ih_l0.copy_(lstm.bias)
        expected.bias_hh_l0.zero_()
    x = torch.randn(30, 4, 3, dtype=torch.float64, requires_grad=True)
    outputs = lstm(x), expected(x)[0]
    close(*outputs)
    cotangent = torch.randn_like(outputs[0])
    parameters = [lstm.weight_ih, lstm.weight_hh, lstm.bias]
    twins = [expected.weight_ih_l0, expected.weight_hh_l0, expected.bias_ih_l0]
    gradients = torch.autograd.grad(outputs[0], [x, *parameters], cotangent)
    for actual, wanted in zip(gradients, torch.autograd.grad(outputs[1], [x, *twins], cotangent), strict=True):
        close(actual, wanted)


def test_with_peepholes_it_equals_the_equations(layer, close):
    lstm = layer(2, 3).double()
    for parameter in lstm.parameters():
        nn.init.normal_(parameter, std=1.0)
    x = torch.randn(12, 4, 2, dtype=torch.float64, requires_grad=True)

    W, U, b = (value.unflatten(0, (4, 3)) for value in (lstm.weight_ih, lstm.weight_hh, lstm.bias))
    p = lstm.weight_ch
    h = c = torch.zeros(4, 3, dtype=torch.float64)
    expected = []
    for x_t in x:
        zi, zf, zg, zo = (x_t @ W[k].T + h @ U[k].T + b[k] for k in range(4))
        c = torch.sigmoid(zf + p[1] * c) * c + torch.sigmoid(zi + p[0] * c) * torch.tanh(zg)
        h = torch.sigmoid(zo + p[2] * c) * torch.tanh(c)
        expected.append(h)

    output, expected = lstm(x), torch.stack(expected)
    close(output, expected)
    cotangent = torch.randn_like(output)
    sources = [x, *lstm.parameters()]
    assert len(sources) == 5
    gradients = torch.autograd.grad(output, sources, cotangent)
    for actual, wanted in zip(gradients, torch.autograd.grad(expected, sources, cotangent), strict=True):
        close(actual, wanted)


@KERNEL
@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_kernel_equals_the_plain_loop(isa, size, ragged, peepholes, close):
    S, T, _, N = size
    tensors = networks(*size, peepholes)
    lengths = torch.randint(1, T + 1, (S,)) if ragged else None
    cotangent = torch.randn(S, T, N, dtype=torch.float64)
    found, expected = (evaluate(run, tensors, lengths, cotangent) for run in (lstm.run, plain))
    assert len(found) == 5 + peepholes
    for value, right in zip(found, expected, strict=True):
        close(value, right)


@KERNEL
def test_steps_beyond_the_end_of_a_sequence_are_not_read(isa):
    tensors = networks(5, 9, 2, 3, True)
    lengths = torch.tensor([9, 0, 3, 1, 7])
    with torch.no_grad():
        for s, length in enumerate(lengths):
            tensors[0][s, length:] = torch.nan
    cotangent = torch.randn(5, 9, 3, dtype=torch.float64)
    for s, length in enumerate(lengths):
        cotangent[s, length:] = torch.nan
    for value in evaluate(lstm.run, tensors, lengths, cotangent):
        assert value.isfinite().all()


@KERNEL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_network_gives_the_same_bits_alone(isa, dtype):
    tensors = networks(37, 50, 3, 7, True, dtype)
    lengths = torch.randint(1, 51, (37,))
    cotangent = torch.randn(37, 50, 7, dtype=dtype)
    together = evaluate(lstm.run, tensors, lengths, cotangent)
    for s in (0, 1, 15, 16, 36):
        own = slice(s, s + 1)
        alone = evaluate(lstm.run, [tensor[own] for tensor in tensors], lengths[own], cotangent[own])
        for value, right in zip(alone, together, strict=True):
            assert torch.equal(value, right[own])


@KERNEL
def test_the_number_of_threads_does_not_change_a_bit(isa):
    tensors = networks(90, 40, 2, 10, True, torch.float32)
    cotangent = torch.randn(90, 40, 10)
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        results.append(evaluate(lstm.run, tensors, None, cotangent))
    for others in results[1:]:
        for value, right in zip(others, results[0], strict=True):
            assert torch.equal(value, right)


@KERNEL
def test_nan_stays_in_its_network(isa):
    tensors = networks(20, 30, 2, 5, True)
    with torch.no_grad():
        tensors[2][3, 0, 0] = torch.nan
        tensors[4][7] = torch.inf
    cotangent = torch.randn(20, 30, 5, dtype=torch.float64)
    sound = [s for s in range(20) if s not in (3, 7)]
    for value in evaluate(lstm.run, tensors, None, cotangent):
        assert value[sound].isfinite().all()
        assert not value[3].isfinite().all()


@KERNEL
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gates_are_exact_to_some_units_in_the_last_place(isa, dtype):
    """One cell, one step: h = sigmoid(z_o) tanh(sigmoid(z_i) tanh(z_g)), with all but z_o at one."""
    bound = 80 if dtype == torch.float32 else 700
    z = torch.cat([torch.linspace(-bound, bound, 40_001, dtype=dtype), torch.randn(20_000, dtype=dtype)])
    S = len(z)
    bias = torch.full((S, 4), 1000.0, dtype=dtype)
    bias[:, 3] = z
    zero = z.new_zeros(S, 1, 0), z.new_zeros(S, 4, 0), z.new_zeros(S, 4, 1), None
    with torch.no_grad():
        h = lstm.run(*zero, bias).flatten().numpy()
    exact = np.tanh(np.longdouble(1)) / (1 + np.exp(-z.numpy().astype(np.longdouble)))
    ulp = np.spacing(exact.astype(h.dtype)).astype(np.longdouble)
    assert np.max(np.abs(h - exact) / ulp) < 4
    odd = torch.tensor([torch.inf, -torch.inf, torch.nan], dtype=dtype)
    bias = torch.full((3, 4), 1000.0, dtype=dtype)
    bias[:, 3] = odd
    with torch.no_grad():
        h = lstm.run(*(None if tensor is None else tensor[:3] for tensor in zero), bias).flatten()
    assert h[0] == np.tanh(h.numpy().dtype.type(1))
    assert 0 <= h[1] < 1e-37
    assert h[2].isnan()


@KERNEL
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="other processors are not slower for denormal numbers"
)
def test_denormal_numbers_count_as_zero_only_inside_the_kernel(isa):
    tensors = networks(3, 6, 2, 4, True, torch.float32)
    small = torch.full((3, 6, 4), 1e-40)
    _, *gradients = evaluate(lstm.run, tensors, None, small)
    for gradient in gradients:
        assert (gradient == 0).all()
    assert (small * 0.5 > 0).all()


@KERNEL
def test_kernel_refuses_tensors_that_do_not_fit():
    tensors = networks(2, 4, 3, 5, True)
    with pytest.raises(ValueError, match=r"bias must be torch.float64 \(2, 20\), got torch.float64 \(2, 19\)"):
        lstm.run(*tensors[:4], tensors[4][:, :19])
    with pytest.raises(ValueError, match=r"weight_hh must be torch.float64 \(2, 20, 5\), got torch.float32"):
        lstm.run(*tensors[:2], tensors[2].float(), *tensors[3:])
    with pytest.raises(ValueError, match=r"lengths must be torch.int64 \(2,\), got torch.int64 \(3,\)"):
        lstm.run(*tensors, torch.tensor([1, 2, 3]))


def test_vmap_takes_the_plain_loop():
    layer, x = LSTM(2, 3).double(), torch.randn(4, 5, 1, 2, dtype=torch.float64)
    with torch.no_grad():
        found = torch.func.vmap(layer)(x)
        for value, one in zip(found, x, strict=True):
            torch.testing.assert_close(value, layer(one))


def test_a_sequence_without_steps_has_no_states():
    assert LSTM(2, 3)(torch.zeros(0, 4, 2)).shape == (0, 4, 3)


@KERNEL
@pytest.mark.parametrize(("T", "I"), [(2**31, 2**30), (2**58, 1), (2**62, 0), (1, 2**62)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sizes_beyond_64_bits_do_not_wrap_around(isa, T, I, dtype):
    """An expanded axis has any number of steps: the memory for them must not appear small."""
    size = torch.zeros(1, dtype=torch.int64)
    fields = array("q", [0] * lstm.FIELDS)
    fields[lstm.FIELD_S], fields[lstm.FIELD_T], fields[lstm.FIELD_I], fields[lstm.FIELD_N] = 1, T, I, 1
    fields[lstm.FIELD_THREADS], fields[lstm.FIELD_KEPT_SIZE] = 1, size.data_ptr()
    loader.invoke("lstm_size", dtype, fields)
    assert int(size) >= min(T * I, 2**60)
    assert int(size) >= min(T * 4, 2**60)
