"""A GRU of several modules on the backend "cudnn" as one layer: gate z holds the modules that do not tick.

tests/core/test_gru_on_cudnn.py compares the results. An emulation of cuDNN runs on the CPU;
tests/kernels/test_cudnn_gpu.py runs cuDNN itself.
"""

import pytest
import torch
from support import emulated_cudnn
from support.network_cases import Case, evaluate

from cwrnn import Schedule, cudnn, cudnn_layer
from cwrnn.gru_at_once import clear_forbidden, is_layer_faster, join_input

emulated_cudnn.install()

TWO, COPRIME, EVEN = Schedule((1, 2), (3, 2)), Schedule((2, 3, 7), (2, 3, 1)), Schedule((4, 6, 12), (2, 3, 2))
SCHEDULES = pytest.mark.parametrize("schedule", [TWO, COPRIME, EVEN], ids=str)


@pytest.fixture
def layers(monkeypatch):
    """The arguments of all layers of cuDNN that run."""
    calls, usual = [], cudnn_layer._compute
    monkeypatch.setattr(cudnn_layer, "_compute", lambda *a, **options: (calls.append(a), usual(*a, **options))[1])
    return calls


@SCHEDULES
def test_all_modules_are_one_call_that_is_as_wide_as_cudnn_likes(schedule, layers):
    evaluate(Case(schedule, T=24, B=2, I=3, t0=1, cell="gru"), cudnn.run)
    (x, weight_ih, weight_hh, *_) = layers[0]
    assert len(layers) == 1
    # the steps of the layer from clock 1 to 24: with the periods 4, 6 and 12 every second one
    assert x.shape == (12 if schedule is EVEN else 24, 2, 8)
    assert weight_ih.shape == (3 * schedule.hidden_size, 8)
    assert weight_hh.shape == (3 * schedule.hidden_size, schedule.hidden_size)


def test_the_input_says_which_modules_hold():
    x, weight_ih = torch.randn(6, 1, 2), torch.randn(3 * 7, 2)
    joined, weights = join_input(x, weight_ih, EVEN, 4)
    assert torch.equal(joined[..., :2], x)
    # at the clocks 4, 6, 8, 10, 12 and 14
    assert (joined[:, 0, 2:].T / 2**15).tolist() == [
        [0, 1, 0, 1, 0, 1],
        [1, 0, 1, 1, 0, 1],
        [1, 1, 1, 1, 0, 1],
        [0] * 6,
        [0] * 6,
        [0] * 6,
    ]
    assert torch.equal(weights[:, :2], weight_ih)
    r, z, n = weights[:, 2:].unflatten(0, (3, 7))
    assert not r.any()
    assert torch.equal(n, z)
    assert (z / 2**15).T.tolist() == [
        [1, 1, 0, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 1],
        *[[0] * 7] * 3,
    ]


def test_a_module_that_ticks_at_every_step_needs_no_input():
    joined, weights = join_input(torch.ones(4, 1, 15), torch.ones(15, 15), TWO, 7)
    assert (joined[:, 0, 15:].T / 2**15).tolist() == [[1, 0, 1, 0]]
    assert weights.shape == (15, 16)


def test_forbidden_weights_are_not_read(close):
    case = Case(COPRIME, T=20, B=2, I=3, t0=1, cell="gru")
    expected = evaluate(case)
    allowed = torch.from_numpy(COPRIME.mask()).repeat(3, 1)
    x, weight_ih, weight_hh, *others = case.tensors()
    spoilt = torch.where(allowed, weight_hh, torch.nan).detach().requires_grad_()
    done = cudnn.run(x, weight_ih, spoilt, *others, COPRIME, 1, "gru")
    close(done.hold(), expected["output"])
    (gradient,) = torch.autograd.grad(done.hold().sum(), spoilt)
    assert (gradient[~allowed] == 0).all()
    assert gradient.isfinite().all()
    assert torch.equal(clear_forbidden(spoilt, COPRIME), torch.where(allowed, weight_hh, 0.0))


@pytest.mark.parametrize(
    ("layer", "ticks", "B", "dtype", "periods", "sizes"),
    [
        # milliseconds of torch's layer and of ticks on an H200, forward and forward + backward added up, for the lines
        # of benchmarks/gpu_backends.json in which the backend "cudnn" ran a GRU of several modules
        (43.1, 71.2, 256, torch.bfloat16, (1, 2), (1024, 1024)),
        (104.6, 174.3, 64, torch.float32, (1, 2), (1024, 1024)),
        (117.4, 93.9, 256, torch.bfloat16, (1, 2), (2048, 2048)),
        (111.1, 172.4, 16, torch.bfloat16, (1, 2), (2048, 2048)),
        (127.8, 135.9, 64, torch.bfloat16, (1, 2), (2048, 2048)),
        (117.4, 122.2, 256, torch.bfloat16, (1, 2, 4, 8), (1024,) * 4),
        (278.0, 523.3, 256, torch.float32, (1, 2), (2048, 2048)),
        (197.8, 211.9, 16, torch.float32, (1, 2), (2048, 2048)),
        (278.0, 316.9, 256, torch.float32, (1, 2, 4, 8), (1024,) * 4),
        (197.8, 201.7, 16, torch.float32, (1, 2, 4, 8), (1024,) * 4),
    ],
)
def test_the_estimate_chooses_as_the_measured_times_do(layer, ticks, B, dtype, periods, sizes):
    with torch.backends.cudnn.flags(allow_tf32=True):
        assert is_layer_faster(B, dtype, Schedule(periods, sizes)) == (layer < ticks)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
def test_the_estimate_prefers_ticks_where_a_layer_would_mostly_multiply_for_nothing(dtype):
    assert not is_layer_faster(64, dtype, Schedule.exponential(8192, 8))
    assert is_layer_faster(64, dtype, Schedule.exponential(512, 2))
    # networks of 128 units: a step of the layer takes 15 us, and a tick 40
    assert is_layer_faster(1, dtype, Schedule((1, 9), (64, 64)))
    # the layer runs at every third step, or at every one
    assert is_layer_faster(1, dtype, Schedule((6, 9), (64, 64)))
    assert not is_layer_faster(1, dtype, Schedule((6, 11), (64, 64)))


@pytest.mark.parametrize(("in_layer", "in_products", "chosen"), [
    (True, False, True), (False, False, False), (True, True, False), (False, True, False),
])  # fmt: skip
def test_the_estimate_asks_where_tf32_is_allowed(in_layer, in_products, chosen):
    """Where both ways have it, or neither, ticks multiply less. torch's default is the first line."""
    usual = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = in_products
    try:
        with torch.backends.cudnn.flags(allow_tf32=in_layer):
            assert is_layer_faster(256, torch.float32, Schedule((1, 2), (2048, 2048))) == chosen
    finally:
        torch.backends.cuda.matmul.allow_tf32 = usual
