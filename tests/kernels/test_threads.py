"""The CPU kernel on several threads and in several processes."""

import ctypes
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from support.python_processes import run_python

from cwrnn import ClockworkRNN
from cwrnn.kernels.cpu import loader, lstm, sequence

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")


def train_once(rnn, x, weight):
    """The output, and the gradients of all parameters."""
    output, h_n = rnn(x)
    rnn.zero_grad()
    ((output * weight).sum() + h_n.sum()).backward()
    return [output.detach(), *(p.grad.clone() for p in rnn.parameters())]


@pytest.mark.parametrize(("N", "B"), [(90, 1), (90, 9), (90, 64), (400, 1), (400, 9)])
def test_the_number_of_threads_does_not_change_a_bit(isa, N, B, calls):
    torch.manual_seed(1)
    rnn = ClockworkRNN(5, N, schedule=6)
    x, weight = torch.randn(150, B, 5), torch.randn(150, B, N)
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        results.append(train_once(rnn, x, weight))
    assert {fields[sequence.FIELD_THREADS] for _, fields in calls} == {1, 2, 3, 8}
    for others in results[1:]:
        for value, first in zip(others, results[0], strict=True):
            assert torch.equal(value, first)


@pytest.fixture
def set_flush_denormal():
    """The function of torch of that name, whose effect ends with the test."""
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot flush denormal numbers")
    yield torch.set_flush_denormal
    torch.set_flush_denormal(False)


def train_layer(x, rnn):
    """The output of a layer, and the gradients of its parameters."""
    output, _ = rnn(x)
    return output.detach(), *torch.autograd.grad(output, list(rnn.parameters()), torch.ones_like(output))


def train_lstms(x, *parameters):
    """The states of many LSTMs, and the gradients of their parameters."""
    hidden = lstm.run(x, *parameters)
    return hidden.detach(), *torch.autograd.grad(hidden, parameters, torch.ones_like(hidden))


def weights(*shape):
    """Random parameters of one network each for 64 networks."""
    return torch.randn(64, *shape).mul_(0.1).requires_grad_()


@pytest.mark.parametrize("kind", ["layer", "lstms"])
def test_all_threads_flush_denormal_numbers_as_the_caller_does(kind, set_flush_denormal):
    x = torch.randn(64, 64, 16) * 1e-39
    train = {
        "layer": partial(train_layer, x, ClockworkRNN(16, 90, schedule=6, nonlinearity="relu", bias=False)),
        "lstms": partial(train_lstms, x, weights(80, 16), weights(80, 20), weights(3, 20), weights(80)),
    }[kind]

    def compute(threads, flush):
        torch.set_num_threads(threads)
        set_flush_denormal(flush)
        # as integers, because a thread that flushes denormal numbers finds them equal to zero
        return [value.view(torch.int32) for value in train()]

    kept, flushed = compute(1, False), compute(1, True)
    # LSTMs always flush them
    assert kind == "lstms" or not torch.equal(kept[0], flushed[0])
    assert kind == "lstms" or not torch.equal(kept[1], flushed[1])
    # the threads are torch's own: a call leaves their mode as it was
    for flush in (False, True, False):
        for value, expected in zip(compute(2, flush), flushed if flush else kept, strict=True):
            assert torch.equal(value, expected)


def test_several_python_threads_can_train_at_once():
    torch.manual_seed(1)
    rnn = ClockworkRNN(4, 64, schedule=5)
    inputs = [torch.randn(80, 16, 4) for _ in range(12)]
    expected = [train_once(rnn, x, torch.ones(())) for x in inputs]
    barrier = threading.Barrier(4)

    def run(own):
        torch.set_num_threads(2)
        layer = pickle.loads(pickle.dumps(rnn))
        barrier.wait()
        return [train_once(layer, x, torch.ones(())) for x in own]

    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(run, [inputs[i : i + 3] for i in range(0, 12, 3)])
        found = [result for part in parts for result in part]
    for values, wanted in zip(found, expected, strict=True):
        for value, right in zip(values, wanted, strict=True):
            assert torch.equal(value, right)


def test_calls_release_the_interpreter_lock():
    assert isinstance(loader._Loaded.library, ctypes.CDLL)
    assert not isinstance(loader._Loaded.library, ctypes.PyDLL)


FORK = """
import os, sys, torch, warnings
from cwrnn import ClockworkRNN
warnings.simplefilter("ignore")
torch.set_num_threads(2)
rnn, x, gradient = ClockworkRNN(8, 128, schedule=4), torch.randn(200, 32, 8), torch.ones(200, 32, 128)
def train():
    # only the kernel computes here: in a child, torch itself would wait for threads of its parent
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


def test_a_forked_child_does_not_wait_for_threads_of_its_parent():
    result = run_python(FORK)
    assert result.returncode == 0, result.stderr


class _LayerOutputs(torch.utils.data.Dataset):
    def __init__(self, rnn, x):
        self.rnn, self.x = rnn, x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.rnn(self.x[i])[0]


# Python warns of fork from 3.12 on
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_workers_of_a_data_loader_can_run_a_layer():
    rnn, x = ClockworkRNN(8, 64, schedule=4), torch.randn(4, 100, 32, 8)
    torch.set_num_threads(2)
    with torch.no_grad():
        expected = torch.stack([rnn(sequences)[0] for sequences in x])
    batches = torch.utils.data.DataLoader(
        _LayerOutputs(rnn, x), batch_size=2, num_workers=2, multiprocessing_context="fork"
    )
    assert torch.equal(torch.cat(list(batches)), expected)
