"""The CPU kernel of whole sequences, beyond the battery of all backends: sizes of its tiles, lengths, exact tanh."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.network_cases import Case, by_backend, evaluate, evaluate_lengths, schedules, specify_lengths

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule
from cwrnn.backends import BACKENDS
from cwrnn.cells import CELLS
from cwrnn.kernels.cpu import loader

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

ISAS = loader.executable_isas()
DTYPES = [torch.float32, torch.float64]
SINGLE = [(ClockworkRNN, 1), (ClockworkRNN, 2), (ClockworkLSTM, 1), (ClockworkGRU, 1)]
"""The layers, and the periods of their fastest modules, whose passes of a single sequence are compared with others."""


def by_kernel(case: Case):
    """The run of `evaluate_lengths` with the kernel."""
    return by_backend(BACKENDS["cpu"].run, case)


@pytest.mark.parametrize("isa_", ISAS)
@pytest.mark.parametrize("cell", CELLS)
@settings(max_examples=20)
@given(data=st.data())
def test_any_sizes_and_lengths_equal_the_specification(isa_, cell, close, data):
    schedule = data.draw(schedules(longest=9, modules=4, size=40))
    case = Case(
        schedule,
        T=data.draw(st.integers(1, 23)),
        B=data.draw(st.sampled_from([1, 2, 3, 5, 8, 9, 17, 33])),
        I=data.draw(st.sampled_from([0, 1, 3, 16, 19])),
        t0=data.draw(st.integers(0, 20)),
        bias=data.draw(st.booleans()),
        cell=cell,
        peepholes=data.draw(st.booleans()),
        initial=data.draw(st.booleans()),
        seed=data.draw(st.integers(0, 100)),
    )
    generator = torch.Generator().manual_seed(case.seed)
    lengths = torch.randint(1, case.T + 1, (case.B,), generator=generator)
    if data.draw(st.booleans()):
        lengths = torch.full((case.B,), case.T)
    hold = data.draw(st.booleans())
    usual = loader.current_isa()
    loader.use_isa(isa_)
    try:
        found = evaluate_lengths(case, lengths, hold, by_kernel(case))
    finally:
        loader.use_isa(usual)
    expected = evaluate_lengths(case, lengths, hold, specify_lengths(case))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


@pytest.mark.parametrize("units", [150, 300])
def test_large_networks_and_batches_equal_the_specification(isa, units, close):
    """More than one chunk, group and block of every kind, with weights that all threads share."""
    torch.set_num_threads(2)
    case = Case(Schedule.exponential(units, 3), T=9, B=70, I=20, t0=1)
    lengths = torch.full((70,), 9)
    found, expected = (evaluate_lengths(case, lengths, True, by(case)) for by in (by_kernel, specify_lengths))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_gradients_of_a_large_batch_are_summed_completely(close):
    case = Case(Schedule((1, 2), (3, 2)), T=3, B=530, I=1, t0=0)
    found, expected = (evaluate(case, run) for run in (BACKENDS["cpu"].run, None))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_steps_beyond_the_end_of_a_sequence_are_not_read(isa):
    rnn = ClockworkRNN(3, 20, schedule=(1, 2, 4))
    x = torch.randn(12, 5, 3)
    lengths = torch.tensor([12, 3, 1, 7, 12])
    for b, length in enumerate(lengths):
        x[length:, b] = torch.nan
    x.requires_grad_()
    output, h_n = rnn(x, lengths=lengths)
    assert output.isfinite().all()
    assert h_n.isfinite().all()
    output.square().sum().backward()
    for b, length in enumerate(lengths):
        assert (output[length:, b] == 0).all()
        assert (x.grad[length:, b] == 0).all()
        assert (x.grad[:length, b] != 0).all()
    # the states there are written as well: a later product with zero must not give NaN
    ticks, _ = rnn.ticks(x, lengths=lengths)
    assert all(module.values.isfinite().all() for module in ticks.passes[0].modules)


def kernel_tanh(x: torch.Tensor) -> torch.Tensor:
    one = torch.ones(1, 1, dtype=x.dtype)
    done = BACKENDS["cpu"].run(
        x.view(1, -1, 1), one, one * 0, None, x.new_zeros(x.numel(), 1), Schedule((1,), (1,)), 0, "tanh"
    )
    return done.final().flatten()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tanh_is_exact_to_three_units_in_the_last_place(isa, dtype):
    generator = torch.Generator().manual_seed(0)
    smallest, epsilon = torch.finfo(dtype).smallest_normal, torch.finfo(dtype).eps
    x = torch.cat([
        torch.arange(2000, dtype=dtype) * (smallest * epsilon),  # the denormal numbers next to zero
        *(edge * (1 + torch.arange(-2000, 2000, dtype=dtype) * epsilon) for edge in (0.55, 9)),  # where formulas meet
        torch.logspace(np.log10(smallest), 2, 40_000, dtype=torch.float64).to(dtype),
        torch.rand(40_000, generator=generator, dtype=torch.float64).to(dtype) * 12,
        torch.tensor([0.0, smallest / 2, 1e30], dtype=dtype),
    ])  # fmt: skip
    y = kernel_tanh(x)
    exact = np.tanh(x.numpy().astype(np.longdouble))
    ulp = np.spacing(np.abs(exact).astype(y.numpy().dtype)).astype(np.longdouble)
    assert np.max(np.abs(y.numpy() - exact) / ulp) < (2.5 if dtype == torch.float32 else 3)
    assert (kernel_tanh(-x) == -y).all()
    assert (y.abs() <= 1).all()
    assert (y[x > 20] == 1).all()
    odd = kernel_tanh(torch.tensor([torch.inf, -torch.inf, torch.nan, -torch.nan], dtype=dtype))
    assert odd[:2].tolist() == [1, -1]
    assert odd[2:].isnan().all()


def test_nan_of_a_fast_module_does_not_reach_a_slower_one(isa):
    rnn = ClockworkRNN(1, 10, schedule=Schedule((1, 2), (5, 5)))
    x = torch.zeros(6, 2, 1)
    x[3, 0] = torch.nan  # only the fast module ticks there
    with torch.no_grad():
        output, _ = rnn(x)
    assert output[3:, 0, :5].isnan().all()
    assert output[:, 0, 5:].isfinite().all()
    assert output[:, 1].isfinite().all()


def test_a_sequence_gives_the_same_bits_alone(isa):
    rnn = ClockworkRNN(3, 50, schedule=4)
    x = torch.randn(40, 37, 3)
    with torch.no_grad():
        output, _ = rnn(x)
        for b in (0, 17, 36):
            assert torch.equal(output[:, b : b + 1], rnn(x[:, b : b + 1])[0])


@pytest.mark.parametrize("sizes", [(96, 64, 32, 128), (5, 170, 3, 90, 31)], ids=["whole vectors", "shared vectors"])
@pytest.mark.parametrize(("make", "fastest"), SINGLE, ids=lambda value: getattr(value, "__name__", str(value)))
def test_a_sequence_through_a_large_network_gives_the_same_bits_alone(isa, make, fastest, sizes, close):
    """A single sequence runs module by module, a batch step by step. There are more steps than a span has."""
    torch.set_num_threads(2)
    periods = tuple(fastest * 2**i for i in range(len(sizes)))
    rnn = make(7, sum(sizes), schedule=Schedule(periods, sizes), dtype=torch.float64)
    x = torch.randn(530 * fastest, 2, 7, dtype=torch.float64)
    h0 = [torch.randn(1, 2, sum(sizes), dtype=torch.float64) for _ in range(2 if make is ClockworkLSTM else 1)]
    found, weight = {}, torch.randn(len(x), 1, sum(sizes), dtype=torch.float64)
    for rows in (1, 2):
        state = tuple(part[:, :rows].contiguous() for part in h0)
        output, final = rnn(x[:, :rows], state if len(state) > 1 else state[0], t0=3)
        final = final if isinstance(final, tuple) else (final,)
        gradients = torch.autograd.grad((output[:, :1] * weight).mean(), list(rnn.parameters()))
        found[rows] = (output[:, :1], *(part[:, :1] for part in final), *gradients)
    states = 1 + len(h0)
    for alone, among in zip(found[1][:states], found[2][:states], strict=True):
        assert torch.equal(alone, among)
    for alone, among in zip(found[1][states:], found[2][states:], strict=True):
        close(alone, among)
    with torch.no_grad():  # then no ticks and no gates are kept
        assert torch.equal(rnn(x[:, :1], t0=3)[0], rnn(x, t0=3)[0][:, :1])


def test_a_stream_gives_the_same_bits_in_chunks(isa):
    rnn = ClockworkRNN(3, 50, schedule=4)
    x = torch.randn(40, 5, 3)
    with torch.no_grad():
        output, h_n = rnn(x)
        for split in (1, 2, 7, 8, 39):
            first, h = rnn(x[:split])
            second, h = rnn(x[split:], h, t0=split)
            assert torch.equal(torch.cat((first, second)), output)
            assert torch.equal(h, h_n)


def test_many_modules_fit_on_a_small_stack():
    done = []
    threading.stack_size(256 * 1024)
    try:
        rnn = ClockworkRNN(1, 1500, schedule=range(1, 1501))
        x = torch.randn(3, 1, 1)
        thread = threading.Thread(target=lambda: (rnn(x)[0].sum().backward(), done.append(True)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert done
