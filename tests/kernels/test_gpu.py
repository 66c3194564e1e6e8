"""The GPU kernel: what the battery of all backends does not ask. Run by `make gpu`."""

import warnings

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from cwrnn import ClockworkRNN, Readout, Schedule, clockwork_reference
from cwrnn import backends as recurrence
from cwrnn.backends import BACKENDS, choose
from cwrnn.kernels import autograd as function
from cwrnn.kernels.gpu import launch as kernel

CUDA = torch.device("cuda")
COMPACTED = "RNN module weights are not part of single contiguous chunk"
"""What torch says of its own layers of half precision."""
HALVES = (torch.bfloat16, torch.float16)


def tensors(schedule, T, B, I, dtype=torch.float64, seed=0):
    N = schedule.hidden_size
    generator = torch.Generator().manual_seed(seed)
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    scales = 1.0, 0.3, N**-0.5, 0.1, 0.5
    return [(value * scale).to(CUDA, dtype) for value, scale in zip(values, scales, strict=True)]


def gradients(function, values, cotangent):
    leaves = [value.detach().requires_grad_() for value in values]
    output = function(*leaves)
    return output.detach(), *torch.autograd.grad(output, leaves, cotangent.to(output.dtype))


def distance(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


def forget():
    """All tables that were kept; and their memory is given to others, who write into it."""
    kernel._plan_of.cache_clear()
    kernel._items.cache_clear()
    for size in (2**i for i in range(1, 16)):
        [torch.full((size,), -1, dtype=torch.int64, device=CUDA) for _ in range(20)]


def hold(schedule, t0=0):
    return lambda *values: function.run(*values, schedule, t0, "tanh").hold()


def test_refuses_what_it_cannot_do():
    assert kernel.refuse(torch.device("cpu"), torch.float32) == "it runs on CUDA devices only"
    assert kernel.refuse(CUDA, torch.float64) == "it takes float32, bfloat16 and float16 only"


def test_sizes_that_suit():
    assert kernel.unsuited(Schedule((1, 2), (512, 3))) is None
    assert kernel.unsuited(Schedule((1, 2), (513, 3))) == "it takes modules of at most 512 units, and one has 513"


def test_modules_that_do_not_suit(monkeypatch):
    anywhere = BACKENDS["triton"]._replace(refuse=lambda device, dtype: None)
    monkeypatch.setattr(recurrence, "BACKENDS", {"triton": anywhere, "torch": BACKENDS["torch"]})

    def chosen(dtype, *sizes, name="auto"):
        return choose(name, torch.device("cpu"), dtype, Schedule(tuple(range(1, len(sizes) + 1)), sizes))

    assert [chosen(torch.float32, size, 3) for size in (128, 129)] == ["triton", "torch"]
    torch.backends.cudnn.allow_tf32 = True
    assert [chosen(torch.float32, size, 3) for size in (256, 257)] == ["triton", "torch"]
    assert [chosen(torch.float16, size) for size in (320, 321)] == ["triton", "torch"]
    assert [chosen(torch.float16, size, 3) for size in (512, 513)] == ["triton", "torch"]
    # who chooses it gets it, where it can run at all
    assert chosen(torch.float32, 512, name="triton") == "triton"
    with pytest.raises(RuntimeError, match="at most 512 units, and one has 513. Usable here: 'auto', 'torch'."):
        chosen(torch.float32, 513, name="triton")


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "rnn"), reason="this torch has one switch for all of cuDNN")
def test_the_switch_of_recurrent_layers(monkeypatch):
    for value in ("tf32", "ieee"):
        monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", value)
        assert kernel._precision(torch.float32, 129) == value
        assert kernel._precision(torch.float32, 128) == {"tf32": "tf32x3", "ieee": "ieee"}[value]
        assert kernel._precision(torch.bfloat16, 129) == "ieee"


@pytest.mark.parametrize("periods", [(1, 2, 4, 12), (2, 3, 7, 9)], ids=["nested", "coprime"])
def test_items_cover_every_block_once(periods):
    schedule = Schedule(periods, (70, 3, 64, 130))
    plan = kernel._plan(schedule, 5, 100, 9, torch.device("cpu"))
    items, blocks = kernel._items(schedule, plan.ticks, 9, 65, True, True, torch.device("cpu"))
    N, I = schedule.hidden_size, 65
    times = {0: torch.zeros(N, N), 1: torch.zeros(N, I)}
    for of_input, j, u, v, first, last in blocks.tolist():
        units = schedule.slices[j]
        rows = slice(u, min(u + kernel.BLOCK, units.stop))
        if of_input:
            times[1][rows, v : v + kernel.BLOCK] += 1
        else:
            times[0][rows, units.start + v : min(units.start + v + kernel.BLOCK, units.stop)] += 1
        # its items: one after the other, all lines
        parts = items[first:last].tolist()
        assert all(part[:4] == [of_input, j, u, v] for part in parts)
        lines = (plan.ticks[j] + (not of_input)) * 9
        assert [part[4] for part in parts] == list(range(0, lines, kernel.LINES))
        assert [part[5] for part in parts] == [*[part[4] for part in parts[1:]], lines]
    assert torch.equal(times[0] > 0, torch.from_numpy(schedule.mask()))
    assert times[0].max() == 1
    assert (times[1] == 1).all()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnDevice:
    @pytest.mark.parametrize(
        ("schedule", "T", "B", "I"),
        [
            pytest.param(Schedule.exponential(1024, 8), 300, 20, 64, id="eight modules of 128"),
            pytest.param(Schedule.exponential(512, 2), 70, 3, 33, id="two of 256: weights read at every tick"),
            pytest.param(Schedule((1, 3, 6), (130, 1, 17)), 50, 9, 7, id="unequal"),
            pytest.param(Schedule((2, 3, 7, 9), (64, 5, 33, 2)), 90, 17, 70, id="coprime"),
            pytest.param(Schedule((1,), (96,)), 40, 130, 5, id="one module"),
            pytest.param(Schedule((1, 2), (1, 1)), 5000, 1, 0, id="two units, many steps"),
        ],
    )
    def test_equals_specification(self, schedule, T, B, I):
        values = tensors(schedule, T, B, I)
        cotangent = torch.randn(T, B, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = gradients(lambda *leaves: clockwork_reference(*leaves, schedule, 3), values, cotangent)
        found = gradients(hold(schedule, 3), [value.float() for value in values], cotangent)
        for value, right in zip(found, exact, strict=True):
            if right.numel() > 0:
                assert distance(value, right) < 1e-5

    @pytest.mark.parametrize(
        ("dtype", "N"),
        [(torch.float32, 48), (torch.float32, 128), (torch.float32, 256), *((dtype, 128) for dtype in HALVES)],
    )
    def test_no_less_exact_than_torch(self, dtype, N):
        """One module of period 1 is a torch.nn.RNN: further from the truth than that, nothing may be."""
        torch.backends.cudnn.allow_tf32 = True
        T, B, I = 200, 16, 32
        schedule = Schedule((1,), (N,))
        values = tensors(schedule, T, B, I, dtype)
        cotangent = torch.randn(T, B, N, dtype=torch.float64, device=CUDA)
        exact = gradients(
            lambda *leaves: clockwork_reference(*leaves, schedule), [value.double() for value in values], cotangent
        )
        found = gradients(hold(schedule), values, cotangent)
        rnn = torch.nn.RNN(I, N, device=CUDA, dtype=dtype)
        rnn.bias_hh_l0.data.zero_()

        def torchs(x, weight_ih, weight_hh, bias, h0):
            parameters = {"weight_ih_l0": weight_ih, "weight_hh_l0": weight_hh, "bias_ih_l0": bias}
            return functional_call(rnn, parameters, (x, h0[None]))[0]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", COMPACTED)
            theirs = gradients(torchs, values, cotangent)
        ours, others = (
            [distance(value, right) for value, right in zip(each, exact, strict=True)] for each in (found, theirs)
        )
        # in half precision both are that of the states, rounded: they differ by chance
        allowed = 1.0 if dtype == torch.float32 else 1.1
        assert all(own <= allowed * other for own, other in zip(ours, others, strict=True)), (ours, others)

    @pytest.mark.parametrize(
        "schedule",
        [
            Schedule.exponential(256, 4),
            pytest.param(Schedule((1, 2, 6), (256, 200, 7)), id="half of the weights in shared memory"),
            pytest.param(Schedule((2, 3), (200, 256)), id="the same, coprime"),
        ],
    )
    def test_tf32_follows_torchs_switch(self, schedule):
        values = tensors(schedule, 64, 9, 16)
        cotangent = torch.randn(64, 9, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = gradients(lambda *leaves: clockwork_reference(*leaves, schedule), values, cotangent)
        strict = gradients(hold(schedule), [value.float() for value in values], cotangent)
        torch.backends.cudnn.allow_tf32 = True
        fast = gradients(hold(schedule), [value.float() for value in values], cotangent)
        for near, found, right in zip(strict, fast, exact, strict=True):
            assert distance(near, right) < 2e-6 < 1e-5 < distance(found, right) < 3e-3

    def test_same_bits_in_every_run(self):
        schedule = Schedule.exponential(256, 8)
        values = tensors(schedule, 500, 40, 16, torch.bfloat16)
        cotangent = torch.randn(500, 40, 256, device=CUDA)
        first = gradients(hold(schedule), values, cotangent)
        for _ in range(5):
            assert all(map(torch.equal, gradients(hold(schedule), values, cotangent), first))

    def test_lengths(self):
        rnn = ClockworkRNN(5, 48, schedule=6, device=CUDA)
        slow = ClockworkRNN(5, 48, schedule=6, backend="torch", device=CUDA)
        slow.load_state_dict(rnn.state_dict())
        lengths = torch.tensor([70, 1, 33, 64])
        x = torch.randn(70, 4, 5, device=CUDA)
        for b, length in enumerate(lengths):
            x[length:, b] = torch.nan
        for found, right in zip(rnn(x, lengths=lengths), slow(x, lengths=lengths), strict=True):
            torch.testing.assert_close(found, right)
        for layer in (rnn, slow):
            output, h_n = layer(x, lengths=lengths)
            (output.square().sum() + h_n.sin().sum()).backward()
        for found, right in zip(rnn.parameters(), slow.parameters(), strict=True):
            torch.testing.assert_close(found.grad, right.grad, rtol=1e-4, atol=1e-4)

    def test_replicas(self):
        networks = [ClockworkRNN(3, 40, schedule=5, device=CUDA) for _ in range(4)]
        parameters, _ = stack_module_state(networks)
        x = torch.randn(4, 33, 6, 3, device=CUDA)

        def loss(parameters, x):
            output, h_n = functional_call(networks[0], parameters, (x,))
            return output.square().sum() + h_n.sum()

        found = vmap(torch.func.grad(loss))(parameters, x)
        for s, network in enumerate(networks):
            network.zero_grad()
            output, h_n = network(x[s])
            (output.square().sum() + h_n.sum()).backward()
            for name, parameter in network.named_parameters():
                torch.testing.assert_close(found[name][s], parameter.grad, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
    def test_is_the_default(self, dtype):
        assert choose("auto", CUDA, dtype) == "triton"
        assert choose("auto", CUDA, torch.float64) == "torch"

    def test_large_modules_are_left_to_matrix_products(self):
        rnn = ClockworkRNN(2, 600, schedule=1, device=CUDA)
        x = torch.randn(3, 2, 2, device=CUDA)
        assert rnn(x)[0].shape == (3, 2, 600)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.compile(rnn, fullgraph=True)(x)[0].shape == (3, 2, 600)
        rnn.backend = "triton"
        with pytest.raises(RuntimeError, match="one has 600. Usable here: 'auto', 'torch', 'reference'"):
            rnn(x)

    @pytest.mark.parametrize(
        "schedule",
        [Schedule.exponential(66, 33), Schedule(tuple(range(1, 34)), tuple(1 + j % 3 for j in range(33)))],
        ids=["nested, the slowest beyond 32 bits", "coprime"],
    )
    def test_many_modules(self, schedule):
        values = tensors(schedule, 70, 9, 3)
        cotangent = torch.randn(70, 9, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = gradients(lambda *leaves: clockwork_reference(*leaves, schedule, 2**33 - 20), values, cotangent)
        found = gradients(hold(schedule, 2**33 - 20), [value.float() for value in values], cotangent)
        for value, right in zip(found, exact, strict=True):
            assert distance(value, right) < 1e-5

    @pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
    @pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
    @pytest.mark.parametrize("tf32", [False, True])
    def test_not_a_number_stays_none(self, dtype, nonlinearity, tf32):
        torch.backends.cudnn.allow_tf32 = tf32
        schedule = Schedule.exponential(64, 4)
        input, *others = tensors(schedule, 40, 20, 5, dtype)
        # as the device makes it: all bits set
        input[17, 3, 2] = torch.zeros((), device=CUDA).div(0)
        others[3][9, 40] = torch.inf
        found = function.run(input, *others, schedule, 0, nonlinearity).hold()
        exact = clockwork_reference(input.double(), *(value.double() for value in others), schedule, 0, nonlinearity)
        assert torch.equal(found.isnan(), exact.isnan())
        assert 0 < found.isnan().sum() < found.numel() / 10

    def test_other_stream(self):
        """The tables were made on one stream, are read on another, and are forgotten before."""
        schedule = Schedule.exponential(64, 4)
        values = tensors(schedule, 100, 9, 5, torch.float32)
        cotangent = torch.randn(100, 9, 64, device=CUDA)
        right = gradients(hold(schedule), values, cotangent)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            found = gradients(hold(schedule), values, cotangent)
        forget()
        found[0].record_stream(torch.cuda.current_stream())
        torch.cuda.synchronize()
        assert all(map(torch.equal, found, right))

    @pytest.mark.parametrize("dtype", HALVES)
    def test_autocast(self, dtype):
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        x = torch.randn(20, 3, 5, device=CUDA)
        with torch.autocast("cuda", dtype=dtype):
            output, _ = rnn(x)
            output.float().square().sum().backward()
        assert output.dtype == dtype
        assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in rnn.parameters())

    def test_compiled_training_step(self):
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        readout = Readout(64, 2).to(CUDA)
        x, target = torch.randn(50, 3, 5, device=CUDA), torch.randn(50, 3, 2, device=CUDA)

        def loss(x, target):
            return (readout(rnn.ticks(x)[0]) - target).square().mean() + rnn(x)[0].mean()

        parameters = [*rnn.parameters(), *readout.parameters()]
        right = torch.autograd.grad(loss(x, target), parameters)
        # torch's own compiler warns of its own ways
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x, target), parameters)
        for value, expected in zip(found, right, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)

    def test_compiled_into_cuda_graphs(self):
        """The mode "reduce-overhead", which records every step and plays it back."""
        torch.use_deterministic_algorithms(False)
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        lengths = torch.tensor([50, 20, 1], device=CUDA)
        # the tables are made by the first run, in memory that is lent for the graphs
        forget()

        def loss(x, lengths):
            output, h_n = rnn(x, lengths=lengths)
            return output.square().mean() + h_n.sum() + rnn(x)[0].mean()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = torch.compile(loss, fullgraph=True, mode="reduce-overhead")
            for _ in range(5):
                x = torch.randn(50, 3, 5, device=CUDA)
                found = torch.autograd.grad(compiled(x, lengths), list(rnn.parameters()))
                right = torch.autograd.grad(loss(x, lengths), list(rnn.parameters()))
                for value, expected in zip(found, right, strict=True):
                    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)

    def test_cuda_graph_of_a_training_step(self):
        torch.use_deterministic_algorithms(False)
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        optimiser = torch.optim.SGD(rnn.parameters(), lr=0.01)
        x = torch.randn(50, 3, 5, device=CUDA)
        lengths = torch.tensor([50, 7, 33], device=CUDA)

        def loss_of():
            output, h_n = rnn(x, lengths=lengths)
            return output.square().mean() + h_n.square().mean() + rnn(x)[0].square().mean()

        def step():
            optimiser.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
            optimiser.step()
            return loss

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        forget()
        losses = []
        for _ in range(5):
            graph.replay()
            losses.append(loss.item())
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0]
        # other sequences of other lengths, in the same place
        x.copy_(torch.randn_like(x))
        lengths.copy_(torch.tensor([1, 50, 20]))
        expected = loss_of().item()
        graph.replay()
        assert loss.item() == pytest.approx(expected, rel=1e-5)

    def test_memory_of_a_training_step(self):
        torch.use_deterministic_algorithms(False)
        n, T, B, I = 1024, 8192, 16, 64
        x = torch.randn(T, B, I, device=CUDA, dtype=torch.bfloat16)

        def peak(step, modules):
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            step().float().square().mean().backward()
            for module in modules:
                module.zero_grad(set_to_none=True)
            return torch.cuda.max_memory_allocated() - before

        clockwork = ClockworkRNN(I, n, schedule=8, device=CUDA, dtype=torch.bfloat16)
        readout = Readout(n, 1).to(CUDA, torch.bfloat16)
        dense, linear = (
            torch.nn.RNN(I, n, device=CUDA, dtype=torch.bfloat16),
            torch.nn.Linear(n, 1, device=CUDA, dtype=torch.bfloat16),
        )
        ours = peak(lambda: readout(clockwork.ticks(x)[0]), (clockwork, readout))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", COMPACTED)
            theirs = peak(lambda: linear(dense(x)[0]), (dense, linear))
        assert ours <= theirs / 2
