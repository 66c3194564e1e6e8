"""The memory that the CPU kernel keeps for its next outputs, and outputs that are too large for the caches."""

import copy
import gc
import io
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest
import torch
from support.python_processes import run_python

from cwrnn import ClockworkRNN
from cwrnn.kernels import readout_products
from cwrnn.kernels.cpu import blocks, loader, sequence

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")

MB = 1 << 20
SINGLE, DOUBLE = torch.empty(0), torch.empty(0, dtype=torch.float64)


OTHERS = [0]
"""The bytes of blocks that earlier tests still hold."""


@pytest.fixture(autouse=True)
def kept():
    """No block is kept when a test begins, and blocks are kept while it runs; the usual time holds again afterwards."""
    gc.collect()
    blocks.keep_blocks(3600)
    OTHERS[0] = blocks.count_bytes()[1]
    yield
    blocks.keep_blocks(blocks.SECONDS)


def block(megabytes: float) -> torch.Tensor:
    return blocks.empty(SINGLE, (int(megabytes * MB / 4),))


def counted() -> tuple[float, float]:
    """The megabytes that are kept, and those that were lent to this test."""
    kept, lent = blocks.count_bytes()
    return kept / MB, (lent - OTHERS[0]) / MB


def test_the_next_tensor_of_that_size_gets_the_block():
    first = block(8)
    place = first.data_ptr()
    assert counted() == (0, 8)
    del first
    assert counted() == (8, 0)
    second = blocks.empty(DOUBLE, (2, MB // 2))
    assert second.data_ptr() == place
    assert second.shape == (2, MB // 2)
    assert second.dtype == torch.float64
    assert counted() == (0, 8)


def test_a_view_holds_the_block():
    whole = block(4)
    part = whole.fill_(1.0)[5:9]
    del whole
    assert counted() == (0, 4)
    other = block(4).fill_(2.0)
    assert part.sum() == 4
    assert other.data_ptr() != part.data_ptr()


@pytest.mark.parametrize(("first", "second", "lent"), [(7.9, 8, 8), (8, 4.1, 8), (8, 3.7, 3.75), (8, 8.1, 9)])
def test_similar_sizes_share_a_block(first, second, lent):
    block(first)
    tensor = block(second)
    assert counted()[1] == lent
    del tensor


def test_the_smallest_block_that_fits_is_taken():
    tensors = [block(size) for size in (8, 5, 6)]
    places = [tensor.data_ptr() for tensor in tensors]
    del tensors
    assert block(4.5).data_ptr() == places[1]


def test_no_more_is_kept_than_was_lent_at_once():
    del [block(8), block(8)][:]
    assert counted() == (16, 0)
    large = block(12)
    # with a kept block of 8 it would be 20
    assert counted() == (0, 12)
    small = block(2)
    del large
    assert counted() == (12, 2)
    also = block(4)
    # a kept block of 12 that does not fit, and 6, would be more than 16
    assert counted() == (0, 6)
    del small, also
    assert counted() == (6, 0)


def test_small_tensors_lie_in_memory_of_torch():
    before = blocks.count_bytes()
    tensor = blocks.empty(SINGLE, (MB // 2 - 1,))
    assert blocks.count_bytes() == before
    assert tensor.numel() == MB // 2 - 1


@pytest.mark.parametrize("shape", [(1 << 60,), (1 << 40, 1 << 40)])
def test_torch_refuses_shapes_beyond_memory(shape):
    before = blocks.count_bytes()
    with pytest.raises(RuntimeError):
        blocks.empty(DOUBLE, shape)
    assert blocks.count_bytes() == before
    block(8)
    block(12)
    # blocks that were refused do not count as lent
    assert counted() == (12, 0)


def test_a_block_may_have_ten_dimensions():
    assert blocks.empty(SINGLE, (1,) * 9 + (MB,)).dim() == 10


def test_many_threads_may_share_the_blocks():
    errors = []

    def run(number):
        for i in range(200):
            tensor = block(2 + i % 3).fill_(number)
            other = block(2).fill_(-1.0)
            if not (bool((tensor == number).all()) and bool((other == -1).all())):
                errors.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    kept, lent = counted()
    assert lent == 0
    assert 0 < kept <= 4 * 3 * 4


def test_unused_blocks_go_back_to_the_system():
    blocks.keep_blocks(0.001)
    tensor = block(4)
    del tensor
    deadline = time.monotonic() + 60
    while counted() != (0, 0):
        assert time.monotonic() < deadline
    blocks.keep_blocks(0)
    tensor = block(4)
    del tensor
    assert counted() == (0, 0)


def test_the_environment_sets_how_long_blocks_are_kept():
    code = "from cwrnn.kernels.cpu import blocks; t = blocks.empty(blocks.torch.empty(0), (1 << 20,)); "
    code += "del t; "
    code += "print(blocks.count_bytes()[0])"
    environment = {**os.environ, "CWRNN_KEEP_SECONDS": "0"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert result.stdout == "0\n", result.stderr
    assert [blocks._parse_seconds(text) for text in (None, "", "0", "0.5")] == [blocks.SECONDS, blocks.SECONDS, 0, 0.5]
    for wrong in ("soon", "-1", "nan", "inf"):
        with pytest.warns(
            RuntimeWarning, match=f"CWRNN_KEEP_SECONDS={wrong} is ignored: it must be a number of seconds"
        ):
            assert blocks._parse_seconds(wrong) == blocks.SECONDS


AT_THE_END = """
import os, sys, torch
from cwrnn import ClockworkRNN
from cwrnn.kernels.cpu import blocks
torch.set_num_threads(1)
rnn, x = ClockworkRNN(4, 64, schedule=4), torch.randn(512, 32, 4)
def train():
    output, _ = rnn(x)
    output.backward(torch.ones(512, 32, 64))
    return output
output = train()
del output
assert blocks.count_bytes()[0] > 0
child = os.fork()
if child == 0:
    # the child could never give back blocks that it inherits
    assert blocks.count_bytes()[0] == 0
    # this output is freed at the end of the interpreter, which has no threads of its parent
    output = train()
    sys.exit(0)
_, status = os.waitpid(child, 0)
output = train()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_blocks_survive_forks_and_the_end_of_the_interpreter():
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_THE_END], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr


ONE_BLOCK = """
import ctypes, os, sys
library = ctypes.CDLL(LIBRARY)
library.cwrnn_keep(ctypes.c_int64(10**15))
library.cwrnn_lend.restype = ctypes.c_void_p
tensor = library.cwrnn_lend(ctypes.c_int64(32), ctypes.c_int64(1), (ctypes.c_int64 * 1)(1 << 20))
# the structures of DLPack in blocks.c: a tensor of 48 bytes, the context, and the deleter
give_back = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.c_void_p.from_address(tensor + 56).value)
"""


def use_one_block(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Runs `code` in a process that has loaded the library without torch, and has a tensor in a block of 4 MB."""
    return run_python(ONE_BLOCK.replace("LIBRARY", repr(str(loader.LIBRARY))) + code, **environment)


# These functions take the place of those of the C library, for all callers. A wait ends the process: with 42 if the
# condition is timed by the monotonic clock, and if the wait lasts 10^6 seconds by that clock.
CLOCK_SHIM = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>
enum { MANY = 256 };
static struct { pthread_cond_t *condition; clockid_t clock; } made[MANY];
static int number;
int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes) {
    *condition = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    clockid_t clock = CLOCK_REALTIME;
    if (attributes != NULL) pthread_condattr_getclock(attributes, &clock);
    made[number % MANY].condition = condition;
    made[number++ % MANY].clock = clock;
    return 0;
}
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    (void)mutex;
    int i = number - 1;
    while (i >= 0 && made[i % MANY].condition != condition) i--;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const time_t wait = until->tv_sec - now.tv_sec;
    const int right = i >= 0 && made[i % MANY].clock == CLOCK_MONOTONIC && wait > 999000 && wait < 1001000;
    _exit(right ? 42 : 43);
}
"""


@pytest.mark.skipif(shutil.which("cc") is None or sys.platform != "linux", reason="needs Linux and a C compiler")
def test_old_blocks_are_timed_by_a_clock_that_cannot_be_set(tmp_path):
    """The thread that returns old blocks waits by the monotonic clock, in the process and in a forked child."""
    source, shim = tmp_path / "shim.c", tmp_path / "shim.so"
    source.write_text(CLOCK_SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", shim, source], check=True)
    preload = ":".join(filter(None, (os.environ.get("LD_PRELOAD"), str(shim))))
    fork = "child = os.fork()\nif child: os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    for before in ("", fork):
        result = use_one_block(before + "give_back(tensor)\nos.read(os.pipe()[0], 1)", LD_PRELOAD=preload)
        assert result.returncode == 42, result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no mark for libraries that stay")
def test_the_library_stays_when_it_is_closed():
    """Its thread still runs, and tensors still call its deleter."""
    result = use_one_block(
        "import _ctypes\n_ctypes.dlclose(library._handle)\ngive_back(tensor)\n"
        "ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD | os.RTLD_NOW)".replace("LIBRARY", repr(str(loader.LIBRARY)))
    )
    assert result.returncode == 0, result.stderr


@pytest.fixture
def rnn():
    return ClockworkRNN(4, 64, schedule=4)


@pytest.fixture
def x():
    return torch.randn(128, 64, 4)  # an output of 2 MB


def test_an_output_is_an_ordinary_tensor(rnn, x):
    with torch.no_grad():
        output, _ = rnn(x)
    assert counted()[1] == 2
    assert output.is_contiguous()
    assert output.storage_offset() == 0
    assert not output._is_view()
    assert output.untyped_storage().nbytes() == 2 * MB
    expected = output.tolist()
    file = io.BytesIO()
    torch.save(output, file)
    file.seek(0)
    for other in (copy.deepcopy(output), torch.load(file, weights_only=True), output.clone().share_memory_()):
        assert other.tolist() == expected
    shared = output.share_memory_()
    assert shared.is_shared()
    assert shared.tolist() == expected
    with torch.inference_mode():
        assert rnn(x)[0].is_inference()


def test_an_output_may_be_changed_in_place(rnn, x):
    output, _ = rnn(x)
    output.mul_(2.0)
    output[0].zero_()
    output.sum().backward()
    doubled = rnn.weight_ih_l0.grad.clone()
    rnn.zero_grad()
    (2.0 * rnn(x)[0][1:]).sum().backward()
    torch.testing.assert_close(doubled, rnn.weight_ih_l0.grad)


def test_later_calls_do_not_change_an_output(rnn, x):
    with torch.no_grad():
        first, _ = rnn(x)
        copied = first.clone()
        second, _ = rnn(-x)
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, copied)


@pytest.mark.parametrize("hold", [True, False])
@pytest.mark.parametrize("lengths", [False, True])
def test_every_number_of_a_block_is_written(monkeypatch, rnn, hold, lengths):
    """The old content of a block does not show in the results."""
    monkeypatch.setattr(blocks, "LARGE", 1)
    x = torch.randn(20, 9, 4, requires_grad=True)
    ends = torch.tensor([20, 3, 7, 1, 20, 9, 9, 2, 13]) if lengths else None

    def results():
        rnn.zero_grad()
        x.grad = None
        call = rnn if hold else rnn.ticks
        found, h_n = call(x, lengths=ends) if lengths else call(x)
        value = found if hold else found.linear(torch.ones(2, 64))
        (value.square().sum() + h_n.sum()).backward()
        return [value.detach(), h_n.detach(), x.grad, *(p.grad for p in rnn.parameters())]

    usual = results()

    def poisoned(like, shape):
        return blocks.empty(like, shape).fill_(float("nan"))

    for module in (sequence, readout_products):
        monkeypatch.setattr(module, "empty", poisoned)
    for expected, value in zip(usual, results(), strict=True):
        assert torch.equal(value, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_output_larger_than_the_caches_has_the_same_bits_as_in_parts(isa, dtype):
    """Such an output is written past the caches, and backward fetches it ahead of time."""
    torch.set_num_threads(2)
    rnn = ClockworkRNN(1, 64, schedule=4, dtype=dtype)
    B = 64 if dtype == torch.float32 else 32
    x = torch.randn(1024, B, 1, dtype=dtype)
    with torch.no_grad():
        whole, h_n = rnn(x)
        first, state = rnn(x[:512])
        second, last = rnn(x[512:], state, t0=512)
    assert whole.nbytes == 16 * MB
    assert torch.equal(whole, torch.cat((first, second)))
    assert torch.equal(h_n, last)


def test_gradients_of_an_output_larger_than_the_caches_are_the_same_as_in_parts(isa):
    torch.set_num_threads(2)
    rnn = ClockworkRNN(1, 64, schedule=4)
    x, gradient = torch.randn(1024, 64, 1), torch.randn(1024, 64, 64)
    rnn(x)[0].backward(gradient)
    whole = [parameter.grad.clone() for parameter in rnn.parameters()]
    rnn.zero_grad()
    for part in range(0, 64, 16):
        rnn(x[:, part : part + 16])[0].backward(gradient[:, part : part + 16])
    for expected, parameter in zip(whole, rnn.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-4, atol=1e-2)
