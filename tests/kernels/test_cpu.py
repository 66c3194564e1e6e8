"""The CPU kernel beyond the battery of all backends: sizes that fill its tiles, lengths, replicas, threads, steps."""

import ctypes
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import network_cases as cases
from support.network_cases import Case, schedules
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from cwrnn import ClockworkRNN, Readout, Schedule, State, clockwork_reference
from cwrnn.backends import BACKENDS, select_backend
from cwrnn.kernels.cpu import loader, sequence, stepping

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

ISAS = loader.executable_isas()
DTYPES = [torch.float32, torch.float64]


@pytest.fixture
def calls(monkeypatch):
    """The calls that reach the library: name and words."""
    seen = []

    def spy(name, dtype, words):
        seen.append((name, list(words)))
        return loader.invoke(name, dtype, words)

    monkeypatch.setattr(sequence, "invoke", spy)
    monkeypatch.setattr(stepping, "invoke", spy)
    return seen


def evaluate(case: Case, lengths, hold: bool, run) -> dict[str, torch.Tensor]:
    """Output, final state and gradients of `run` on a batch of sequences of different lengths."""
    tensors = case.tensors()
    output, final = run(tensors, lengths, hold)
    generator = torch.Generator().manual_seed(case.seed + 1)
    loss = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for value in (output, final):
        loss = loss + (value * torch.randn(value.shape, generator=generator, dtype=torch.float64)).sum()
    wanted = [tensor for tensor in tensors if tensor is not None]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
    return {"output": output, "final": final} | {str(i): gradient for i, gradient in enumerate(gradients)}


def by_kernel(case: Case):
    def run(tensors, lengths, hold):
        done = BACKENDS["cpu"].run(*tensors, case.schedule, case.t0, case.nonlinearity, lengths, hold)
        return done.hold(), done.final()

    return run


def by_specification(case: Case):
    def run(tensors, lengths, hold):
        input, weight_ih, weight_hh, bias, h0 = tensors
        h0 = case.zeros() if h0 is None else h0
        outputs, finals = [], []
        for b, length in enumerate(lengths.tolist()):
            arguments = weight_ih, weight_hh, bias, h0[b : b + 1], case.schedule, case.t0, case.nonlinearity
            output = clockwork_reference(input[:length, b : b + 1], *arguments)
            finals.append(output[-1])
            outputs.append(nn.functional.pad(output, (0, 0, 0, 0, 0, case.T - length)))
        return torch.cat(outputs, dim=1), torch.cat(finals)

    return run


@pytest.mark.parametrize("isa_", ISAS)
@settings(max_examples=40)
@given(data=st.data())
def test_sizes_that_fill_tiles_and_sequences_that_end(isa_, close, data):
    schedule = data.draw(schedules(longest=9, modules=4, size=40))
    case = Case(
        schedule,
        T=data.draw(st.integers(1, 23)),
        B=data.draw(st.sampled_from([1, 2, 3, 5, 8, 9, 17, 33])),
        I=data.draw(st.sampled_from([0, 1, 3, 16, 19])),
        t0=data.draw(st.integers(0, 20)),
        bias=data.draw(st.booleans()),
        nonlinearity=data.draw(st.sampled_from(("tanh", "relu"))),
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
        found = evaluate(case, lengths, hold, by_kernel(case))
    finally:
        loader.use_isa(usual)
    expected = evaluate(case, lengths, hold, by_specification(case))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


@pytest.mark.parametrize("units", [150, 300])
def test_many_units_many_sequences(isa, units, close):
    """Beyond one chunk, one group, one block of everything; and weights that all threads share."""
    torch.set_num_threads(2)
    case = Case(Schedule.exponential(units, 3), T=9, B=70, I=20, t0=1)
    lengths = torch.full((70,), 9)
    found, expected = (evaluate(case, lengths, True, by(case)) for by in (by_kernel, by_specification))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_more_sequences_than_are_summed_up_apart(close):
    case = Case(Schedule((1, 2), (3, 2)), T=3, B=530, I=1, t0=0)
    found, expected = (cases.evaluate(case, run) for run in (BACKENDS["cpu"].run, None))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_what_lies_beyond_the_end_is_not_read(isa):
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
    # nor is it left as it was found: others multiply it by zero
    ticks, _ = rnn.ticks(x, lengths=lengths)
    assert all(module.values.isfinite().all() for module in ticks.passes[0].modules)


# ---- tanh ----


def kernel_tanh(x: torch.Tensor) -> torch.Tensor:
    one = torch.ones(1, 1, dtype=x.dtype)
    done = BACKENDS["cpu"].run(
        x.view(1, -1, 1), one, one * 0, None, x.new_zeros(x.numel(), 1), Schedule((1,), (1,)), 0, "tanh"
    )
    return done.final().flatten()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tanh(isa, dtype):
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


def test_nan_stays_where_it_arises(isa):
    """A fast module that has become NaN does not reach a slower one."""
    rnn = ClockworkRNN(1, 10, schedule=Schedule((1, 2), (5, 5)))
    x = torch.zeros(6, 2, 1)
    x[3, 0] = torch.nan  # only the fast module ticks there
    with torch.no_grad():
        output, _ = rnn(x)
    assert output[3:, 0, :5].isnan().all()
    assert output[:, 0, 5:].isfinite().all()
    assert output[:, 1].isfinite().all()


# ---- the same bits ----


def gradients_of(rnn, x, weight):
    output, h_n = rnn(x)
    rnn.zero_grad()
    ((output * weight).sum() + h_n.sum()).backward()
    return [output.detach(), *(p.grad.clone() for p in rnn.parameters())]


@pytest.mark.parametrize(("N", "B"), [(90, 1), (90, 9), (90, 64), (400, 1), (400, 9)])
def test_threads_do_not_change_a_bit(isa, N, B, calls):
    torch.manual_seed(1)
    rnn = ClockworkRNN(5, N, schedule=6)
    x, weight = torch.randn(150, B, 5), torch.randn(150, B, N)
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        results.append(gradients_of(rnn, x, weight))
    assert {words[sequence.WORD_THREADS] for _, words in calls} == {1, 2, 3, 8}
    for others in results[1:]:
        for value, first in zip(others, results[0], strict=True):
            assert torch.equal(value, first)


@pytest.mark.parametrize("hold", [True, False])
def test_replicas_are_the_same_alone(isa, hold, calls):
    """vmap over stacked parameters is one call of the kernel, and gives every network the bits that it has alone."""
    torch.manual_seed(1)
    networks = [ClockworkRNN(3, 20, schedule=(1, 2, 4, 8)) for _ in range(7)]
    readouts = [Readout(20, 2) for _ in range(7)]
    parameters, _ = stack_module_state(networks)
    readout_parameters, _ = stack_module_state(readouts)
    x = torch.randn(30, 4, 3)

    def loss(parameters, readout_parameters):
        if hold:
            value, h_n = functional_call(networks[0], parameters, (x,))
        else:
            ticks, h_n = functional_call(_Ticks(networks[0]), {f"rnn.{k}": v for k, v in parameters.items()}, (x,))
            value = functional_call(readouts[0], readout_parameters, (ticks,))
        return value.square().sum() + h_n.sum()

    losses = vmap(loss)(parameters, readout_parameters)
    found = torch.autograd.grad(losses.sum(), list(parameters.values()))
    assert [(name, words[sequence.WORD_S]) for name, words in calls] == [("forward", 7), ("backward", 7)]
    for s in range(7):
        own = {name: p.detach().requires_grad_() for name, p in networks[s].named_parameters()}
        expected = torch.autograd.grad(loss(own, dict(readouts[s].named_parameters())), list(own.values()))
        for value, alone in zip(found, expected, strict=True):
            if hold:
                assert torch.equal(value[s], alone)
            else:
                # the readout is a product of torch's, whose order is its own
                torch.testing.assert_close(value[s], alone, rtol=1e-4, atol=1e-5)


class _Ticks(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x):
        return self.rnn.ticks(x)


def test_a_sequence_is_the_same_alone(isa):
    rnn = ClockworkRNN(3, 50, schedule=4)
    x = torch.randn(40, 37, 3)
    with torch.no_grad():
        output, _ = rnn(x)
        for b in (0, 17, 36):
            assert torch.equal(output[:, b : b + 1], rnn(x[:, b : b + 1])[0])


def test_a_stream_is_the_same_in_parts(isa):
    rnn = ClockworkRNN(3, 50, schedule=4)
    x = torch.randn(40, 5, 3)
    with torch.no_grad():
        output, h_n = rnn(x)
        for split in (1, 2, 7, 8, 39):
            first, h = rnn(x[:split])
            second, h = rnn(x[split:], h, t0=split)
            assert torch.equal(torch.cat((first, second)), output)
            assert torch.equal(h, h_n)


def test_nested_vmap(close):
    networks = [[ClockworkRNN(2, 9, schedule=(1, 2, 4), dtype=torch.float64) for _ in range(3)] for _ in range(2)]
    stacked = [stack_module_state(row)[0] for row in networks]
    parameters = {name: torch.stack([row[name] for row in stacked]) for name in stacked[0]}
    x = torch.randn(13, 2, 2, dtype=torch.float64)

    def call(parameters, x):
        return functional_call(networks[0][0], parameters, (x,))[0]

    found = vmap(vmap(call, in_dims=(0, None)), in_dims=(0, None))(parameters, x)
    for i, row in enumerate(networks):
        for j, network in enumerate(row):
            close(found[i, j], network(x)[0])


def test_vmap_over_lengths(close):
    rnn = ClockworkRNN(2, 9, schedule=(1, 2, 4), dtype=torch.float64)
    x = torch.randn(13, 4, 2, dtype=torch.float64)
    lengths = torch.tensor([[13, 2, 5, 1], [7, 7, 13, 8]])

    def call(lengths):
        h0 = torch.zeros(4, 9, dtype=torch.float64)
        weights = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_l0
        return BACKENDS["cpu"].run(x, *weights, h0, rnn.schedule, 0, "tanh", lengths).hold()

    found = vmap(call)(lengths)
    for i in range(2):
        close(found[i], rnn(x, lengths=lengths[i])[0])


# ---- threads and processes ----


def test_several_python_threads_at_once():
    torch.manual_seed(1)
    rnn = ClockworkRNN(4, 64, schedule=5)
    inputs = [torch.randn(80, 16, 4) for _ in range(12)]
    expected = [gradients_of(rnn, x, torch.ones(())) for x in inputs]
    barrier = threading.Barrier(4)

    def run(own):
        torch.set_num_threads(2)
        layer = pickle.loads(pickle.dumps(rnn))
        barrier.wait()
        return [gradients_of(layer, x, torch.ones(())) for x in own]

    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(run, [inputs[i : i + 3] for i in range(0, 12, 3)])
        found = [result for part in parts for result in part]
    for values, wanted in zip(found, expected, strict=True):
        for value, right in zip(values, wanted, strict=True):
            assert torch.equal(value, right)


def test_the_lock_of_python_is_released():
    assert isinstance(loader._Loaded.library, ctypes.CDLL)
    assert not isinstance(loader._Loaded.library, ctypes.PyDLL)


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


FORK = """
import os, sys, torch, warnings
from cwrnn import ClockworkRNN
warnings.simplefilter("ignore")
torch.set_num_threads(2)
rnn, x, gradient = ClockworkRNN(8, 128, schedule=4), torch.randn(200, 32, 8), torch.ones(200, 32, 128)
def train():
    # nothing but the kernel: in a child torch itself would wait for its parent's threads, were there work for them
    rnn.zero_grad()
    rnn(x)[0].backward(gradient)
    return rnn.weight_hh_l0.grad
before = train()
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(train(), before) else 3)
_, status = os.waitpid(child, 0)
assert torch.equal(train(), before)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_fork():
    """A child has none of its parent's threads, and must not wait for them."""
    result = python(FORK)
    assert result.returncode == 0, result.stderr


class _Outputs(torch.utils.data.Dataset):
    def __init__(self, rnn, x):
        self.rnn, self.x = rnn, x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.rnn(self.x[i])[0]


# what Python itself says about fork, from 3.12 on
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_data_loader_workers():
    rnn, x = ClockworkRNN(8, 64, schedule=4), torch.randn(4, 100, 32, 8)
    torch.set_num_threads(2)
    with torch.no_grad():
        expected = torch.stack([rnn(each)[0] for each in x])
    loader = torch.utils.data.DataLoader(_Outputs(rnn, x), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert torch.equal(torch.cat(list(loader)), expected)


# ---- which kernel ----


def test_environment_forces_an_instruction_set():
    code = "from cwrnn.kernels.cpu import loader; print(loader.current_isa())"
    for isa in ISAS:
        assert python(code, CWRNN_CPU_ISA=isa).stdout.strip() == isa
    assert python(code, CWRNN_CPU_ISA="").stdout.strip() == ISAS[0]
    result = python(code, CWRNN_CPU_ISA="avx1024")
    assert result.stdout.strip() == ISAS[0]
    assert "CWRNN_CPU_ISA=avx1024 is ignored: the CPU kernel cannot use 'avx1024' here. Select from" in result.stderr


def test_without_the_compiled_part(monkeypatch, tmp_path):
    built = loader.LIBRARY
    monkeypatch.setattr(loader._Loaded, "missing", None)
    monkeypatch.setattr(loader._Loaded, "library", loader._Loaded.library)
    monkeypatch.setattr(loader, "LIBRARY", tmp_path / "libcpu.so")
    loader._load()
    assert select_backend("auto", torch.device("cpu"), torch.float32).name == "torch"
    with pytest.raises(RuntimeError, match="its compiled part is missing: the package was installed without a"):
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))
    monkeypatch.setattr(loader, "LIBRARY", built)
    monkeypatch.setattr(loader, "ABI", loader.ABI + 1)
    loader._load()
    with pytest.raises(RuntimeError, match="its compiled part is that of another version: install the package again"):
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))
    monkeypatch.setattr(loader, "LIBRARY", tmp_path / "libcpu.so")
    loader.LIBRARY.write_bytes(b"not a library")
    loader._load()
    with pytest.raises(RuntimeError, match="its compiled part cannot be loaded"), torch.no_grad():
        ClockworkRNN(2, 4, backend="cpu")(torch.randn(3, 1, 2))


def test_is_the_default_for_what_it_can():
    device = torch.device("cpu")
    assert [select_backend("auto", device, dtype).name for dtype in DTYPES] == ["cpu", "cpu"]
    assert select_backend("auto", device, torch.bfloat16).name == "torch"
    with pytest.raises(RuntimeError, match="cannot run on cpu with torch.float16: it takes float32 and float64 only"):
        ClockworkRNN(2, 4, backend="cpu").half()(torch.randn(3, 1, 2).half())
    assert BACKENDS["cpu"].refuse(torch.device("cuda"), torch.float32) == "it runs on the CPU only"


@pytest.mark.parametrize("lengths", [None, torch.tensor([5, 2, 9])])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("hold", [True, False])
# torch's own testing tools
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_operator(lengths, bias, hold):
    case = Case(Schedule((1, 2, 4), (3, 2, 4)), T=9, B=3, I=2, t0=5, bias=bias)
    arguments = *case.tensors(), lengths, list(case.schedule.periods), list(case.schedule.sizes), 5, "tanh", hold
    torch.library.opcheck(torch.ops.cwrnn.recurrence.default, arguments)


def test_operator_refuses_what_does_not_fit():
    case = Case(Schedule((1, 2), (3, 2)), T=9, B=3, I=2, t0=5)
    tensors = [tensor.detach() for tensor in case.tensors()]
    settings = [1, 2], [3, 2], 5, "tanh", True
    operator = torch.ops.cwrnn.recurrence
    with pytest.raises(ValueError, match=r"lengths must lie between 1 and the 9 steps of the input, got \[2, 10, 9\]"):
        operator(*tensors, torch.tensor([2, 10, 9]), *settings)
    with pytest.raises(ValueError, match="lengths must be torch.int64"):
        operator(*tensors, torch.tensor([2, 1, 9], dtype=torch.int32), *settings)
    with pytest.raises(ValueError, match=r"weight_ih must have the shape \(5, 2\), got \(5, 1\)"):
        operator(tensors[0], tensors[1][:, :1], *tensors[2:], None, *settings)
    with pytest.raises(RuntimeError, match="it takes float32 and float64 only"):
        operator(*(tensor.half() for tensor in tensors), None, *settings)


@pytest.fixture
def fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
def test_a_graph_cannot_look_at_lengths_but_the_operator_does():
    rnn = ClockworkRNN(2, 8, schedule=3)
    compiled = torch.compile(lambda x, lengths: rnn(x, lengths=lengths)[0], backend="eager")
    x = torch.randn(9, 2, 2)
    with pytest.raises(ValueError, match="lengths must lie between 1 and the 9 steps"):
        compiled(x, torch.tensor([2**33, 3]))


@pytest.mark.filterwarnings("ignore")  # torch.jit is on its way out, and says so in many ways
def test_trace():
    rnn, x = ClockworkRNN(2, 8, schedule=3), torch.randn(9, 2, 2)
    with torch.no_grad():
        traced = torch.jit.trace(rnn, (x,))
        y = torch.randn(9, 2, 2)
        torch.testing.assert_close(traced(y)[0], rnn(y)[0])


def test_tensor_subclasses():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        rnn, x = ClockworkRNN(2, 8, schedule=3), torch.empty(9, 2, 2)
    # outside the mode: there is no memory behind them
    assert rnn(x)[0].shape == (9, 2, 8)
    assert rnn.step(x[0])[0].shape == (2, 8)


def check_inference(rnn, x) -> None:
    """Without gradient mode the same comes out as with it, to the last bit."""
    expected = rnn(x, t0=7)
    with torch.no_grad():
        found = rnn(x, t0=7)
    assert not any(value.requires_grad for value in found)
    torch.testing.assert_close(found, tuple(value.detach() for value in expected), rtol=0, atol=0)
    rnn.backend = "torch"  # both might be wrong in the same way
    torch.testing.assert_close(found, tuple(value.detach() for value in rnn(x, t0=7)))
    rnn.backend = "auto"


@pytest.mark.parametrize("bias", [True, False])
def test_inference_goes_straight_to_the_kernel(isa, bias, monkeypatch, calls):
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


ODD = {
    "nothing": lambda rnn, x: x,
    "weights that lie otherwise": _transpose_weights,
    "weights that are computed": _parametrize("weight_hh_l0"),
    "weights of the input that are computed": _parametrize("weight_ih_l0"),
    "a bias that is computed": _parametrize("bias_l0"),
    "a bias of another dtype": _convert_bias,
    "half precision": _halve,
    "an input that lies otherwise": lambda rnn, x: x.transpose(0, 1),
    "an input of which every other step counts": lambda rnn, x: x[::2],
    "a negated input": lambda rnn, x: torch._neg_view(x),
    "a parameter as input": lambda rnn, x: nn.Parameter(x),
    "no steps": lambda rnn, x: x[:0],
    "one sequence without a batch": lambda rnn, x: x[:, 0],
}
"""How a layer, or the input that is returned, may differ from what goes straight to the kernel."""


@pytest.mark.parametrize("change", ODD.values(), ids=ODD)
def test_inference_of_odd_tensors(change):
    rnn, x = ClockworkRNN(3, 20, schedule=(1, 2, 5)), torch.randn(6, 6, 3)
    check_inference(rnn, change(rnn, x))


# torch's own forward mode goes through torch.jit
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_inference_that_others_look_at(close):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(6, 4, 3)
    expected = rnn(x)[0].detach()
    with torch.no_grad():
        close(vmap(lambda each: rnn(each)[0], in_dims=1, out_dims=1)(x.unsqueeze(2)).squeeze(2), expected)
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
def test_parameters_that_do_not_fit(way, name, change, message):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(6, 4, 3)
    setattr(rnn, name, nn.Parameter(change(getattr(rnn, name).detach())))
    with torch.set_grad_enabled(way == "training"), pytest.raises((ValueError, RuntimeError), match=message):
        rnn.step(x[0]) if way == "step" else rnn(x)


@torch.no_grad()
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_l0"])
def test_a_stream_whose_parameters_no_longer_fit(name):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(4, 3)
    _, state = rnn.step(x)
    parameter = getattr(rnn, name)
    parameter.data = parameter.data[:-1].clone()
    with pytest.raises(ValueError, match="must be"):
        rnn.step(x, state)


@torch.no_grad()
def test_a_schedule_that_no_longer_fits():
    rnn, other, x = ClockworkRNN(3, 8, schedule=(1, 2)), ClockworkRNN(3, 16, schedule=(1, 2)), torch.randn(6, 4, 3)
    rnn.schedule = other.schedule
    with pytest.raises(ValueError, match=r"weight_ih must be \(16, 3\), got \(8, 3\)"):
        rnn(x)
    rnn._parameters.update(other._parameters)
    for run in (rnn.ticks, lambda x: rnn.step(x[0]), lambda x: rnn(x, torch.zeros(1, 4, 8))):
        with pytest.raises(ValueError, match=r"the state must be \(4, 16\), got \(4, 8\)"):
            run(x)


@torch.no_grad()
def test_step_under_another_default_device(close):
    rnn, x = ClockworkRNN(3, 8, schedule=(1, 2)), torch.randn(4, 3)
    with torch.device("meta"):
        found, _ = rnn.step(x)
    close(found, rnn(x[None])[0][0])


@torch.no_grad()
def test_inference_of_what_does_not_fit():
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
def test_jacobian_without_gradient_mode(close):
    rnn = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64)
    plain = ClockworkRNN(2, 4, schedule=(1, 2), dtype=torch.float64, backend="torch")
    plain.load_state_dict(rnn.state_dict())
    x, tangent = torch.randn(5, 1, 2, dtype=torch.float64), torch.randn(5, 1, 4, dtype=torch.float64)
    with torch.no_grad():
        found, expected = (torch.func.jacrev(lambda x, at=at: at(x)[0])(x) for at in (rnn, plain))
    close(found, expected)
    # forward mode through what reverse mode left behind
    found, expected = (
        torch.func.jvp(torch.func.vjp(lambda x, at=at: at(x)[0], x)[1], (tangent,), (tangent.sin(),))[1][0]
        for at in (rnn, plain)
    )
    close(found, expected)


def test_many_modules_on_a_small_stack():
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


# ---- step by step ----


@pytest.mark.parametrize("isa_", ISAS)
@settings(max_examples=40)
@given(
    schedule=schedules(size=20),
    B=st.sampled_from([1, 2, 9]),
    I=st.integers(0, 3),
    t0=st.integers(0, 20),
    nonlinearity=st.sampled_from(("tanh", "relu")),
    bias=st.booleans(),
    seed=st.integers(0, 100),
)
def test_steps_equal_the_specification(isa_, schedule, B, I, t0, nonlinearity, bias, seed, close):
    T = 2 * schedule.periods[-1] + 1
    case = Case(schedule, T, B, I, t0, bias=bias, nonlinearity=nonlinearity, seed=seed)
    options = {"nonlinearity": nonlinearity, "bias": bias, "dtype": torch.float64}
    layer = ClockworkRNN(I, schedule.hidden_size, schedule=schedule, **options)
    input, weight_ih, weight_hh, b, h0 = (None if x is None else x.detach() for x in case.tensors())
    expected = clockwork_reference(input, weight_ih, weight_hh, b, h0, schedule, t0, nonlinearity)
    usual = loader.current_isa()
    loader.use_isa(isa_)
    try:
        with torch.no_grad():
            parameters = (weight_ih, weight_hh, b)[: 3 if bias else 2]
            for parameter, value in zip(layer.parameters(), parameters, strict=True):
                parameter.copy_(value)
            state = State(h0.unsqueeze(0), t0)
            for x_t, right in zip(input, expected, strict=True):
                y, state = layer.step(x_t, state)
                close(y, right)
                close(state.h[0], right)
    finally:
        loader.use_isa(usual)
    assert state.t == t0 + case.T


class Stream:
    """A stream that has run a while, and its continuation by the specification."""

    def __init__(self, **options):
        self.layer = ClockworkRNN(2, 24, schedule=(1, 2, 4, 8), dtype=torch.float64, **options)
        self.x = torch.randn(40, 3, 2, dtype=torch.float64)
        self.state = None
        with torch.no_grad():
            for x_t in self.x[:11]:
                _, self.state = self.layer.step(x_t, self.state)

    @torch.no_grad()
    def run(self, state, steps=12):
        outputs = []
        for x_t in self.x[11 : 11 + steps]:
            y, state = self.layer.step(x_t, state)
            outputs.append(y)
        return torch.stack(outputs)

    @torch.no_grad()
    def expected(self, state, steps=12):
        return self.layer(self.x[11 : 11 + steps], state[0].clone(), t0=state[1])[0]


@pytest.fixture
def stream():
    return Stream()


def test_step_reaches_the_kernel(stream, calls):
    stream.run(stream.state, steps=3)
    assert [name for name, _ in calls] == ["step"] * 3
    # a state of the user's own is as good, and says everything anew
    stream.run(State(stream.state.h, 11), steps=2)
    assert [words[stepping.WORD_KNOWN] for name, words in calls if name == "step"] == [11, 12, 13, 0, 1]


def test_step_notices_a_changed_state(stream, close):
    expected = stream.expected(stream.state)
    close(stream.run(stream.state), expected)
    # once more from where it stood: what was said since belongs to other states
    close(stream.run(stream.state), expected)
    with torch.no_grad():
        _, state = stream.layer.step(stream.x[10], stream.state)
    state.h[0, 1].mul_(0.5)  # of one sequence, in place, under what is remembered
    close(stream.run(state), stream.expected(state))
    other = stream.state._replace(h=torch.randn_like(stream.state.h))
    close(stream.run(other), stream.expected(other))
    later = stream.state._replace(t=stream.state.t + 1)
    close(stream.run(later), stream.expected(later))


@torch.no_grad()
def test_step_notices_weights_of_another_dtype():
    layer, x, state = ClockworkRNN(2, 24, schedule=(1, 2, 4, 8)), torch.randn(3, 2), None
    for parameter in layer.parameters():
        parameter.zero_()  # the same in every dtype
    for _ in range(3):
        _, state = layer.step(x, state)
    layer.double()  # its parameters are the same objects
    with pytest.raises(ValueError, match="does not match weight dtype"):
        layer.step(x, state)


def test_step_notices_changed_weights(stream, close):
    with torch.no_grad():
        for parameter in stream.layer.parameters():
            parameter.mul_(0.7)
            close(stream.run(stream.state, steps=3), stream.expected(stream.state, steps=3))
    stream.layer.load_state_dict(Stream().layer.state_dict())
    close(stream.run(stream.state), stream.expected(stream.state))
    optimizer = torch.optim.SGD(stream.layer.parameters(), lr=0.1)
    stream.layer(stream.x)[0].square().sum().backward()
    optimizer.step()
    close(stream.run(stream.state), stream.expected(stream.state))
    with torch.no_grad():
        _, state = stream.layer.step(stream.x[10], stream.state)
        stream.layer.weight_hh_l0[1, 23] += 1  # one weight of many: autograd counts that
        expected = stream.layer(stream.x[:9], state.h, t0=state.t)[0]
        for x_t, right in zip(stream.x[:9], expected, strict=True):
            y, state = stream.layer.step(x_t, state)
            close(y, right)
    # autograd counts none of these, and the state goes on
    for change in (
        lambda weight: torch.optim.SGD([weight], lr=0.1, fused=True).step(),
        lambda weight: weight.data.normal_(0, 0.1),
        lambda weight: np.copyto(weight.detach().numpy(), np.random.default_rng(0).normal(0, 0.1, weight.shape)),
        lambda weight: setattr(weight, "data", torch.randn_like(weight) * 0.1),
    ):
        for parameter in stream.layer.parameters():
            change(parameter)
            with torch.no_grad():
                expected = stream.layer(stream.x[:1], state.h, t0=state.t)[0][0]
                y, state = stream.layer.step(stream.x[0], state)
            close(y, expected)
    stream.layer.double().weight_hh_l0.data = torch.randn(24, 24, dtype=torch.float64) * 0.1
    close(stream.run(stream.state), stream.expected(stream.state))


def test_step_notices_another_layer(stream, close):
    """Parameters that are shared by layers with other clocks, another nonlinearity, another backend."""
    for options in ({"schedule": (1, 3, 5)}, {"schedule": 24}, {"nonlinearity": "relu"}, {"backend": "torch"}):
        other = ClockworkRNN(2, 24, dtype=torch.float64, **{"schedule": (1, 2, 4, 8)} | options)
        for name, parameter in stream.layer.named_parameters():
            setattr(other, name, parameter)
        with torch.no_grad():
            _, state = stream.layer.step(stream.x[10], stream.state)
            expected = other(stream.x[:5], state.h, t0=state.t)[0]
            for x_t, right in zip(stream.x[:5], expected, strict=True):
                y, state = other.step(x_t, state)
                close(y, right)
        close(stream.run(stream.state), stream.expected(stream.state))
    # or one that was changed
    for name, value in (
        ("schedule", Schedule((1, 2, 6), (8, 8, 8))),
        ("nonlinearity", "relu"),
        ("backend", "reference"),
    ):
        with torch.no_grad():
            _, state = stream.layer.step(stream.x[10], stream.state)
        setattr(stream.layer, name, value)
        close(stream.run(state), stream.expected(state))


def test_step_of_odd_tensors(stream, close):
    x = torch.view_as_complex(torch.randn(3, 2, 2, dtype=torch.float64)).conj().imag  # minus its memory
    h = torch.randn(30, dtype=torch.float64).unfold(0, 24, 1)[:3].unsqueeze(0)  # rows that overlap
    bias = nn.Parameter(torch.randn(48, dtype=torch.float64)[::2], requires_grad=False)
    stream.layer.bias_l0 = bias
    with torch.no_grad():
        for _ in range(3):
            expected = stream.layer(x.clone().unsqueeze(0), h.contiguous(), t0=5)[0][0]
            y, state = stream.layer.step(x, State(h, 5))
            close(y, expected)
            close(state.h[0], expected)
            close(stream.layer(x.unsqueeze(0), h, t0=5)[0][0], expected)
            bias.add_(1)


def test_step_of_weights_that_do_not_last(stream, close):
    nn.utils.parametrizations.weight_norm(stream.layer, "weight_ih_l0")
    close(stream.run(stream.state), stream.expected(stream.state))
    with torch.inference_mode():
        close(stream.run(stream.state), stream.expected(stream.state))


def test_step_of_two_layers_and_of_one_alone(close):
    stream = Stream(num_layers=2)
    close(stream.run(stream.state), stream.expected(stream.state))
    single = Stream()
    state = State(single.state.h[:, 0], 11)
    outputs = []
    with torch.no_grad():
        for x_t in single.x[11:23, 0]:
            y, state = single.layer.step(x_t, state)
            assert y.shape == (24,)
            outputs.append(y)
    close(torch.stack(outputs), single.expected(single.state)[:, 0])


def test_step_output_is_not_the_state(stream):
    with torch.no_grad():
        for _ in range(2):
            y, stream.state = stream.layer.step(stream.x[11], stream.state)
            before = stream.state.h.clone()
            y.zero_()
            assert torch.equal(stream.state.h, before)


def test_state_is_a_plain_value(stream):
    h, t = stream.state
    assert t == 11
    assert isinstance(stream.state, State)
    again = pickle.loads(pickle.dumps(stream.state))
    assert type(again) is State
    assert torch.equal(again.h, h)


def test_step_of_another_input_is_refused(stream):
    with torch.no_grad():
        with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size"):
            stream.layer.step(torch.randn(3, 5, dtype=torch.float64), stream.state)
        with pytest.raises(ValueError, match="does not match weight dtype"):
            stream.layer.step(torch.randn(3, 2), stream.state)
        with pytest.raises(RuntimeError, match="Expected hidden size"):
            stream.layer.step(torch.randn(4, 2, dtype=torch.float64), stream.state)


def test_step_in_inference_mode(stream, close):
    expected = stream.expected(stream.state)
    with torch.inference_mode():
        close(stream.run(stream.state), expected)


def test_step_with_gradient_goes_on_from_the_kernel(stream, close):
    expected = stream.layer(stream.x[11:14], stream.state.h, t0=11)[0]
    state = stream.state
    outputs = []
    for x_t in stream.x[11:14]:
        y, state = stream.layer.step(x_t, state)
        outputs.append(y)
    close(torch.stack(outputs), expected)
    loss = torch.stack(outputs).square().sum()
    gradients = torch.autograd.grad(loss, list(stream.layer.parameters()))
    wanted = torch.autograd.grad(expected.square().sum(), list(stream.layer.parameters()))
    for gradient, right in zip(gradients, wanted, strict=True):
        close(gradient, right)


def test_many_streams_share_the_packed_weights(stream):
    states = [State(torch.randn(1, 3, 24, dtype=torch.float64), t) for t in range(5)]
    with torch.no_grad():
        after = [stream.layer.step(stream.x[0], state)[1] for state in states]
    assert len({id(state.messages[0].packed) for state in after}) == 1
