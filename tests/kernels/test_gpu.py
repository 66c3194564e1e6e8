"""Tests of the GPU kernel that the battery of all backends does not contain. `make gpu` runs both on a CUDA device."""

import ctypes
import warnings
from array import array
from types import SimpleNamespace

import pytest
import torch
from torch.func import functional_call, stack_module_state, vmap

from cwrnn import (
    ClockworkGRU,
    ClockworkLSTM,
    ClockworkRNN,
    Readout,
    Schedule,
    StreamPool,
    backends,
    clockwork_reference,
)
from cwrnn.backends import BACKENDS, select_backend
from cwrnn.kernels.gpu import driver, gradients, launch, tables

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
COMPACTED = "RNN module weights are not part of single contiguous chunk"
"""The warning of torch's own layers in half precision."""
HALVES = (torch.bfloat16, torch.float16)
TF32 = "tf32"
DISTANCES = {torch.float32: 1e-5, TF32: 3e-3, torch.bfloat16: 1.2e-2, torch.float16: 1.5e-3}
"""How far results may be from the exact ones: in half precision, twice as far as those of plain PyTorch are."""
SIZES = {
    "modules in one block": Schedule.exponential(200, 3),
    "eight modules": Schedule.exponential(1024, 8),
    "one module in several blocks": Schedule((1,), (600,)),
    "four modules in several blocks": Schedule.exponential(2048, 4),
    "coprime": Schedule((2, 3, 7), (130, 33, 270)),
}
"""Networks that run by each of the programs of simple cells."""


def make_tensors(schedule, T, B, I, dtype=torch.float64, seed=0):
    """Random input, weight_ih, weight_hh, bias and h0 on the device."""
    N = schedule.hidden_size
    generator = torch.Generator().manual_seed(seed)
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    scales = 1.0, 0.3, N**-0.5, 0.1, 0.5
    return [(value * scale).to(CUDA, dtype) for value, scale in zip(values, scales, strict=True)]


def differentiate(function, values, cotangent):
    """The output of `function`, and its gradients by all `values`."""
    leaves = [value.detach().requires_grad_() for value in values]
    output = function(*leaves)
    return output.detach(), *torch.autograd.grad(output, leaves, cotangent.to(output.dtype))


def measure_distance(found, exact):
    """The relative distance of a tensor from the exact one."""
    return ((found.double() - exact).norm() / exact.norm()).item()


def drop_tables():
    """Drop all tables that are kept, and overwrite their memory if it was freed."""
    for function in (tables._make_plan, launch._prepare_forward, launch._prepare_backward, gradients._prepare):
        function.cache_clear()
    for size in (2**i for i in range(1, 16)):
        [torch.full((size,), -1, dtype=torch.int64, device=CUDA) for _ in range(20)]


def run_kernel(schedule, t0=0):
    """A function of the tensors that computes the output of the kernel."""
    return lambda *values: BACKENDS["cuda"].run(*values, schedule, t0, "tanh").hold()


def test_it_refuses_other_devices_and_dtypes():
    assert launch.refuse(torch.device("cpu"), torch.float32) == "it runs on CUDA devices only"
    assert launch.refuse(CUDA, torch.float64) == "it takes float32, bfloat16 and float16 only"


@pytest.mark.parametrize(
    ("dtype", "cell", "largest"),
    [
        (torch.bfloat16, "tanh", 2048),
        (torch.float16, "lstm", 1024),
        (torch.float16, "gru", 1280),
        (torch.float32, "relu", 1024),
        (torch.float32, "lstm", 256),
        (TF32, "tanh", 2048),
        (TF32, "gru", 640),
    ],
)
def test_modules_beyond_the_largest_are_refused(monkeypatch, dtype, cell, largest):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", dtype == TF32)
    name = {TF32: "torch.float32 with tf32", torch.float32: "torch.float32 without tf32"}.get(dtype, str(dtype))
    dtype = torch.float32 if dtype == TF32 else dtype
    assert launch.refuse_schedule(Schedule((1, 2), (largest, 3)), CPU, dtype, cell) is None
    kind = {"lstm": "LSTM ", "gru": "GRU "}.get(cell, "")
    assert (
        launch.refuse_schedule(Schedule((1, 2), (largest + 1, 3)), CPU, dtype, cell)
        == f"in {name} it takes {kind}modules of at most {largest} units, and one has {largest + 1}"
    )


def test_auto_leaves_modules_to_other_backends(monkeypatch):
    anywhere = BACKENDS["cuda"]._replace(refuse=lambda device, dtype: None)
    monkeypatch.setattr(backends, "BACKENDS", {"cuda": anywhere, "torch": BACKENDS["torch"]})
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: True)

    def choose(name, cell, *sizes, batch=64):
        schedule = Schedule(tuple(range(1, len(sizes) + 1)), sizes)
        return select_backend(name, torch.device("cpu"), torch.float32, schedule, cell, batch).name

    assert [choose("auto", "tanh", size, 3) for size in (1024, 1025)] == ["cuda", "torch"]
    assert [choose("auto", "lstm", size, 3) for size in (256, 257)] == ["cuda", "torch"]
    # modules with too many blocks are layers of cuDNN's, which the next backend stands in for
    for others in ((), (3,)):
        assert [choose("auto", "tanh", 1024, *others, batch=batch) for batch in (64, 65)] == ["cuda", "torch"]
    # a GRU of several modules gains only with twice as many blocks: 16 for each tile of 8 sequences here
    assert [choose("auto", "gru", 256, batch=batch) for batch in (256, 257)] == ["cuda", "torch"]
    assert [choose("auto", "gru", 256, 3, batch=batch) for batch in (512, 513)] == ["cuda", "torch"]
    with torch.backends.cudnn.flags(enabled=False):
        assert choose("auto", "tanh", 1024, batch=4096) == "cuda"
    monkeypatch.setattr(torch.backends.cudnn, "is_available", lambda: False)
    assert choose("auto", "tanh", 1024, batch=4096) == "cuda"
    # an explicit choice is obeyed wherever the kernel can run
    assert choose("cuda", "tanh", 1024, batch=4096) == "cuda"
    with pytest.raises(
        RuntimeError,
        match="without tf32 it takes modules of at most 1024 units, and one has 1025. Usable here: 'auto', 'torch'.",
    ):
        choose("cuda", "tanh", 1025)


@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "rnn"), reason="this torch has one switch for all of cuDNN")
def test_precision_follows_the_switch_of_recurrent_layers(monkeypatch):
    for value, products in (("tf32", 1), ("ieee", 3)):
        monkeypatch.setattr(torch.backends.cudnn.rnn, "fp32_precision", value)
        assert launch._count_products(torch.float32) == products
        assert launch._count_products(torch.bfloat16) == 1


def test_table_of_modules_by_hand():
    """Eleven steps from t = 3: period 2 first ticks at step 1, period 8 at step 5, both counted from the start."""
    plan = tables.make_plan(Schedule((2, 8), (3, 4)), 3, 11, 5, torch.device("cpu"))
    assert [tables.ModuleRow(*row) for row in plan.table.tolist()] == [
        tables.ModuleRow(
            period=2, size=3, first_unit=0, first_tick=1, ticks=5, states=0, g_messages=0,
            first_block=0, fragments=0, message_fragments=0, packed=0, transposed=0,
        ),
        tables.ModuleRow(
            period=8, size=4, first_unit=3, first_tick=5, ticks=1, states=90, g_messages=90,
            first_block=1, fragments=6, message_fragments=0, packed=1, transposed=1,
        ),
    ]  # fmt: skip
    assert (plan.ticks, plan.states_size, plan.g_messages_size) == ((5, 1), 130, 160)


def test_a_table_is_kept_for_every_stream_that_reads_it(monkeypatch):
    kept = []
    table = SimpleNamespace(is_cuda=True, device=CUDA, get_device=lambda: 0, record_stream=kept.append)
    plan = tables.Plan(11, 5, table, (5, 1), 130, 160)
    monkeypatch.setattr(tables, "_make_plan", lambda *_: plan)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    for stream in (0, 7, 0, 7, 9):
        monkeypatch.setattr(tables, "current_stream", lambda device, stream=stream: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device, stream=stream: stream)
        tables.make_plan(Schedule((2, 8), (3, 4)), 3, 11, 5, CUDA)
    assert kept == [0, 7, 9]


def test_a_launch_passes_every_argument_in_its_full_size(monkeypatch):
    passed = []
    number, address = ctypes.c_uint, ctypes.c_void_p

    @ctypes.CFUNCTYPE(ctypes.c_int, address, *[number] * 7, address, ctypes.POINTER(address), address)
    def start(handle, *arguments):
        *sizes, stream, call, extra = arguments
        passed.append((handle, sizes, stream, list((ctypes.c_int64 * 2).from_address(call[0])), extra))
        return 0

    # as a function of a library, of which ctypes knows no types
    untyped = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(start, address).value)
    monkeypatch.setattr(driver, "_load_driver", lambda: SimpleNamespace(cuLaunchKernel=untyped))
    driver.launch(driver.Program(2**47 + 8, 2**17, 288), 2**31 - 1, 65535, array("q", (-3, 2**62)), 2**46 + 16)
    assert passed == [(2**47 + 8, [2**31 - 1, 65535, 1, 288, 1, 1, 2**17], 2**46 + 16, [-3, 2**62], None)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestOnDevice:
    @pytest.mark.parametrize(
        ("schedule", "T", "B", "I"),
        [
            pytest.param(Schedule.exponential(1024, 8), 300, 20, 64, id="eight modules of 128"),
            pytest.param(Schedule.exponential(512, 2), 70, 3, 33, id="two of 256, each in several blocks"),
            pytest.param(Schedule((1, 3, 6), (130, 1, 17)), 50, 9, 7, id="unequal"),
            pytest.param(Schedule((2, 3, 7, 9), (64, 5, 33, 2)), 90, 17, 70, id="coprime"),
            pytest.param(Schedule((1,), (96,)), 40, 130, 5, id="one module"),
            pytest.param(Schedule((1, 2), (1, 1)), 5000, 1, 0, id="two units, many steps"),
        ],
    )
    def test_it_equals_the_specification(self, schedule, T, B, I):
        values = make_tensors(schedule, T, B, I)
        cotangent = torch.randn(T, B, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = differentiate(lambda *leaves: clockwork_reference(*leaves, schedule, 3), values, cotangent)
        found = differentiate(run_kernel(schedule, 3), [value.float() for value in values], cotangent)
        for value, right in zip(found, exact, strict=True):
            if right.numel() > 0:
                assert measure_distance(value, right) < 1e-5

    @pytest.mark.parametrize(
        ("dtype", "N"),
        [(torch.float32, 48), (torch.float32, 128), (torch.float32, 256), *((dtype, 128) for dtype in HALVES)],
    )
    def test_it_is_no_less_exact_than_torch(self, dtype, N):
        """One module of period 1 is a torch.nn.RNN, and no result may be further from the exact one than torch's."""
        torch.backends.cudnn.allow_tf32 = True
        T, B, I = 200, 16, 32
        schedule = Schedule((1,), (N,))
        values = make_tensors(schedule, T, B, I, dtype)
        cotangent = torch.randn(T, B, N, dtype=torch.float64, device=CUDA)
        exact = differentiate(
            lambda *leaves: clockwork_reference(*leaves, schedule), [value.double() for value in values], cotangent
        )
        found = differentiate(run_kernel(schedule), values, cotangent)
        rnn = torch.nn.RNN(I, N, device=CUDA, dtype=dtype)
        rnn.bias_hh_l0.data.zero_()

        def run_torch(x, weight_ih, weight_hh, bias, h0):
            parameters = {"weight_ih_l0": weight_ih, "weight_hh_l0": weight_hh, "bias_ih_l0": bias}
            return functional_call(rnn, parameters, (x, h0[None]))[0]

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", COMPACTED)
            theirs = differentiate(run_torch, values, cotangent)
        ours, others = (
            [measure_distance(value, right) for value, right in zip(results, exact, strict=True)]
            for results in (found, theirs)
        )
        # in half precision rounding the states dominates, and the two distances differ by chance
        allowed = 1.0 if dtype == torch.float32 else 1.1
        assert all(own <= allowed * other for own, other in zip(ours, others, strict=True)), (ours, others)

    @pytest.mark.parametrize(
        "schedule",
        [
            Schedule.exponential(256, 4),
            pytest.param(Schedule((1, 2, 6), (256, 200, 7)), id="modules in several blocks"),
            pytest.param(Schedule((2, 3), (200, 256)), id="the same, coprime"),
        ],
    )
    def test_tf32_follows_torchs_switch(self, schedule):
        values = make_tensors(schedule, 64, 9, 16)
        cotangent = torch.randn(64, 9, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = differentiate(lambda *leaves: clockwork_reference(*leaves, schedule), values, cotangent)
        strict = differentiate(run_kernel(schedule), [value.float() for value in values], cotangent)
        torch.backends.cudnn.allow_tf32 = True
        fast = differentiate(run_kernel(schedule), [value.float() for value in values], cotangent)
        for near, found, right in zip(strict, fast, exact, strict=True):
            assert measure_distance(near, right) < 2e-6 < 1e-5 < measure_distance(found, right) < 3e-3

    def test_every_run_gives_the_same_bits(self):
        schedule = Schedule.exponential(256, 8)
        values = make_tensors(schedule, 500, 40, 16, torch.bfloat16)
        cotangent = torch.randn(500, 40, 256, device=CUDA)
        first = differentiate(run_kernel(schedule), values, cotangent)
        for _ in range(5):
            assert all(map(torch.equal, differentiate(run_kernel(schedule), values, cotangent), first))

    def test_padding_is_not_read_and_states_end_with_their_sequences(self):
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

    def test_replicas_equal_networks_one_by_one(self):
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
    def test_it_is_the_default(self, dtype):
        assert select_backend("auto", CUDA, dtype).name == "cuda"
        assert select_backend("auto", CUDA, torch.float64).name == "cudnn"

    def test_large_modules_are_left_to_other_backends(self):
        rnn = ClockworkRNN(2, 2100, schedule=1, device=CUDA)
        x = torch.randn(3, 2, 2, device=CUDA)
        assert rnn(x)[0].shape == (3, 2, 2100)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.compile(rnn, fullgraph=True)(x)[0].shape == (3, 2, 2100)
        rnn.backend = "cuda"
        with pytest.raises(RuntimeError, match="one has 2100. Usable here: 'auto', 'cudnn', 'torch', 'reference'"):
            rnn(x)

    @pytest.mark.parametrize(
        "schedule",
        [Schedule.exponential(66, 33), Schedule(tuple(range(1, 34)), tuple(1 + j % 3 for j in range(33)))],
        ids=["nested, the slowest period beyond 32 bits", "coprime"],
    )
    def test_33_modules_equal_the_specification(self, schedule):
        values = make_tensors(schedule, 70, 9, 3)
        cotangent = torch.randn(70, 9, schedule.hidden_size, dtype=torch.float64, device=CUDA)
        exact = differentiate(lambda *leaves: clockwork_reference(*leaves, schedule, 2**33 - 20), values, cotangent)
        found = differentiate(run_kernel(schedule, 2**33 - 20), [value.float() for value in values], cotangent)
        for value, right in zip(found, exact, strict=True):
            assert measure_distance(value, right) < 1e-5

    @pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
    @pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
    @pytest.mark.parametrize("tf32", [False, True])
    def test_nan_stays_nan(self, dtype, nonlinearity, tf32):
        torch.backends.cudnn.allow_tf32 = tf32
        schedule = Schedule.exponential(64, 4)
        input, *others = make_tensors(schedule, 40, 20, 5, dtype)
        # the NaN that the device makes has all bits set
        input[17, 3, 2] = torch.zeros((), device=CUDA).div(0)
        others[3][9, 40] = torch.inf
        found = BACKENDS["cuda"].run(input, *others, schedule, 0, nonlinearity).hold()
        exact = clockwork_reference(input.double(), *(value.double() for value in others), schedule, 0, nonlinearity)
        assert torch.equal(found.isnan(), exact.isnan())
        assert 0 < found.isnan().sum() < found.numel() / 10

    @pytest.mark.parametrize("lengths", [None, [13, 3, 8, 12, 1]], ids=["one length", "lengths"])
    @pytest.mark.parametrize("periods", [(1, 2, 4), (2, 3, 7)], ids=["nested", "coprime"])
    def test_an_infinite_input_spoils_no_gradient_of_weights_from_modules_that_are_not_heard(self, periods, lengths):
        schedule = Schedule(periods, (16, 70, 64))
        lengths = None if lengths is None else torch.tensor(lengths, device=CUDA)
        spoilt = 0
        for step in (0, 8, 10, 11, 12):
            values = [value.abs() for value in make_tensors(schedule, 13, 5, 3)]
            values[0][step] = torch.inf
            leaves = [value.requires_grad_() for value in values]
            # the specification computes one sequence after the other, each for its own length
            loss = sum(
                clockwork_reference(leaves[0][:T, b : b + 1], *leaves[1:4], leaves[4][b : b + 1], schedule, 3, "relu")[
                    :2
                ].sum()
                for b, T in enumerate([13] * 5 if lengths is None else lengths.tolist())
            )
            exact = torch.autograd.grad(loss, leaves)
            leaves = [value.detach().float().requires_grad_() for value in values]
            output = BACKENDS["cuda"].run(*leaves, schedule, 3, "relu", lengths).hold()
            for value, right in zip(torch.autograd.grad(output[:2].sum(), leaves), exact, strict=True):
                finite = right.isfinite()
                assert torch.equal(value.isfinite(), finite)
                torch.testing.assert_close(value[finite].double(), right[finite], rtol=1e-3, atol=1e-3)
                spoilt += int((~finite).sum())
        assert spoilt > 0

    def test_tables_may_be_dropped_while_another_stream_reads_them(self):
        """The tables are made on one stream, and dropped before the other stream has read them."""
        schedule = Schedule.exponential(64, 4)
        values = make_tensors(schedule, 100, 9, 5, torch.float32)
        cotangent = torch.randn(100, 9, 64, device=CUDA)
        right = differentiate(run_kernel(schedule), values, cotangent)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            found = differentiate(run_kernel(schedule), values, cotangent)
        drop_tables()
        found[0].record_stream(torch.cuda.current_stream())
        torch.cuda.synchronize()
        assert all(map(torch.equal, found, right))

    @pytest.mark.parametrize("dtype", HALVES)
    def test_autocast_gives_half_precision_and_float32_gradients(self, dtype):
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        x = torch.randn(20, 3, 5, device=CUDA)
        with torch.autocast("cuda", dtype=dtype):
            output, _ = rnn(x)
            output.float().square().sum().backward()
        assert output.dtype == dtype
        assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in rnn.parameters())

    def test_a_compiled_training_step_has_the_same_gradients(self):
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        readout = Readout(64, 2).to(CUDA)
        x, target = torch.randn(50, 3, 5, device=CUDA), torch.randn(50, 3, 2, device=CUDA)

        def loss(x, target):
            return (readout(rnn.ticks(x)[0]) - target).square().mean() + rnn(x)[0].mean()

        parameters = [*rnn.parameters(), *readout.parameters()]
        right = torch.autograd.grad(loss(x, target), parameters)
        # torch's compiler emits warnings of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = torch.autograd.grad(torch.compile(loss, fullgraph=True)(x, target), parameters)
        for value, expected in zip(found, right, strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)

    def test_a_layer_compiled_into_cuda_graphs_has_the_same_gradients(self):
        """torch.compile's mode "reduce-overhead" records every step and replays it."""
        torch.use_deterministic_algorithms(False)
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        lengths = torch.tensor([50, 20, 1], device=CUDA)
        # the first run makes the tables while torch allocates from the pool of the graphs
        drop_tables()

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

    def test_a_captured_training_step_can_be_replayed(self):
        torch.use_deterministic_algorithms(False)
        rnn = ClockworkRNN(5, 64, schedule=4, device=CUDA)
        optimiser = torch.optim.SGD(rnn.parameters(), lr=0.01)
        x = torch.randn(50, 3, 5, device=CUDA)
        lengths = torch.tensor([50, 7, 33], device=CUDA)

        def compute_loss():
            output, h_n = rnn(x, lengths=lengths)
            return output.square().mean() + h_n.square().mean() + rnn(x)[0].square().mean()

        def step():
            optimiser.zero_grad(set_to_none=True)
            loss = compute_loss()
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
        drop_tables()
        losses = []
        for _ in range(5):
            graph.replay()
            losses.append(loss.item())
        assert losses == sorted(losses, reverse=True)
        assert losses[-1] < losses[0]
        # other sequences of other lengths, in the same memory
        x.copy_(torch.randn_like(x))
        lengths.copy_(torch.tensor([1, 50, 20]))
        expected = compute_loss().item()
        graph.replay()
        assert loss.item() == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("make", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
    def test_memory_behind_the_last_sequence_is_not_read(self, make, close):
        """Gated cells compute whole tiles of sequences, of which the batch is only a part."""
        around = torch.full((9, 64, 3), torch.nan, device=CUDA)
        long = torch.full((64,), 9, device=CUDA)
        around[:, :2] = torch.randn(9, 2, 3)
        long[:2] = torch.tensor([2, 7])
        rnn = make(3, 16, schedule=(1, 3), device=CUDA)
        results = []
        for x, lengths in ((around[:, :2], long[:2]), (around[:, :2].clone(), long[:2].clone())):
            output, _ = rnn(x, lengths=lengths)
            results.append((output.detach(), *torch.autograd.grad(output.sum(), list(rnn.parameters()))))
        for found, right in zip(*results, strict=True):
            assert found.isfinite().all()
            close(found, right)

    @pytest.mark.parametrize("make", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
    def test_every_sequence_has_its_own_clock(self, make, close):
        rnn = make(3, 16, schedule=(1, 3, 4), device=CUDA)
        x, clocks = torch.randn(20, 3, 3, device=CUDA), [5, 0, 7]
        together = rnn(x, t0=torch.tensor(clocks))[0]
        alone = torch.cat([rnn(x[:, b : b + 1], t0=t)[0] for b, t in enumerate(clocks)], dim=1)
        results = []
        for output in (together, alone):
            results.append((output.detach(), *torch.autograd.grad(output.sum(), list(rnn.parameters()))))
        for found, right in zip(*results, strict=True):
            close(found, right)

    @pytest.mark.parametrize("make", [ClockworkRNN, ClockworkLSTM, ClockworkGRU])
    def test_a_pool_steps_every_stream_as_if_it_were_alone(self, make, close):
        rnn = make(3, 16, schedule=(1, 3, 4), device=CUDA)
        pool = StreamPool(rnn)
        x, starts = torch.randn(20, 3, device=CUDA), {"anna": 0, "bert": 5}
        outputs = {key: [] for key in starts}
        for t, x_t in enumerate(x):
            for key, start in starts.items():
                if t == start:
                    pool.open(key)
            keys = list(pool)
            for key, y in zip(keys, pool.step(keys, x_t.expand(len(keys), 3)), strict=True):
                outputs[key].append(y)
        for key, start in starts.items():
            close(torch.stack(outputs[key]), rnn(x[start:])[0].detach())

    def test_a_training_step_needs_at_most_half_the_memory_of_torch(self):
        torch.use_deterministic_algorithms(False)
        n, T, B, I = 1024, 8192, 16, 64
        x = torch.randn(T, B, I, device=CUDA, dtype=torch.bfloat16)

        def measure_peak(step, modules):
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
        ours = measure_peak(lambda: readout(clockwork.ticks(x)[0]), (clockwork, readout))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", COMPACTED)
            theirs = measure_peak(lambda: linear(dense(x)[0]), (dense, linear))
        assert ours <= theirs / 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestSimpleCellsOnDevice:
    """Networks of tanh and relu that are not small: their programs are in gpu/cuda/."""

    @pytest.mark.parametrize("seed", [1, 2, 3])
    @pytest.mark.parametrize("dtype", DISTANCES, ids=str)
    @pytest.mark.parametrize("name", SIZES)
    def test_every_dtype_equals_the_specification(self, name, dtype, seed):
        torch.backends.cudnn.allow_tf32 = dtype == TF32
        schedule, T, B = SIZES[name], 20, 9
        element = torch.float32 if dtype == TF32 else dtype
        values = make_tensors(schedule, T, B, 10, element, seed)
        cotangent = torch.randn(T, B, schedule.hidden_size, device=CUDA).to(element)
        doubles = [value.double() for value in values]
        exact = differentiate(lambda *leaves: clockwork_reference(*leaves, schedule, 3), doubles, cotangent)
        found = differentiate(run_kernel(schedule, 3), values, cotangent)
        distances = [measure_distance(value, right) for value, right in zip(found, exact, strict=True)]
        assert max(distances) < DISTANCES[dtype], distances

    @pytest.mark.parametrize("dtype", DISTANCES, ids=str)
    @pytest.mark.parametrize("name", SIZES)
    def test_every_run_gives_the_same_bits(self, name, dtype):
        torch.backends.cudnn.allow_tf32 = dtype == TF32
        schedule, element = SIZES[name], torch.float32 if dtype == TF32 else dtype
        values = make_tensors(schedule, 100, 40, 10, element)
        cotangent = torch.randn(100, 40, schedule.hidden_size, device=CUDA)
        first = differentiate(run_kernel(schedule), values, cotangent)
        for _ in range(3):
            assert all(map(torch.equal, differentiate(run_kernel(schedule), values, cotangent), first))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    @pytest.mark.parametrize("name", SIZES)
    def test_a_captured_graph_computes_new_numbers(self, name, dtype):
        torch.use_deterministic_algorithms(False)
        schedule = SIZES[name]
        values = make_tensors(schedule, 30, 9, 10, dtype)
        cotangent = torch.randn(30, 9, schedule.hidden_size, device=CUDA)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            differentiate(run_kernel(schedule), values, cotangent)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = differentiate(run_kernel(schedule), values, cotangent)
        drop_tables()
        for seed in (1, 2):
            for value, other in zip(values, make_tensors(schedule, 30, 9, 10, dtype, seed), strict=True):
                value.copy_(other)
            expected = differentiate(run_kernel(schedule), values, cotangent)
            graph.replay()
            assert all(map(torch.equal, results, expected))

    @pytest.mark.parametrize("cell", ["tanh", "relu"])
    def test_two_streams_run_modules_in_several_blocks_at_once(self, cell):
        """Blocks of both launches wait for blocks of their own launch."""
        schedule = Schedule((1, 2), (1024, 1024))
        values = make_tensors(schedule, 50, 64, 10, torch.float32)

        def run():
            return BACKENDS["cuda"].run(*values, schedule, 0, cell).hold()

        right = run()
        streams = [torch.cuda.Stream() for _ in range(4)]
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        found = []
        for _ in range(5):
            for stream in streams:
                with torch.cuda.stream(stream):
                    found.append(run())
        torch.cuda.synchronize()
        assert all(torch.equal(value, right) for value in found)

    def test_more_numbers_than_32_bits_count(self):
        if torch.cuda.get_device_properties(CUDA).total_memory < 60e9:
            pytest.skip("it needs 60 GB of memory")
        torch.use_deterministic_algorithms(False)
        # both the output and the states at the ticks have more than 2^31 numbers
        schedule, T, B = Schedule((1, 3), (248, 8)), 4096, 2100
        input, *weights, h0 = make_tensors(schedule, 1, B, 2, torch.bfloat16)
        input = torch.randn(T, B, 2, device=CUDA, dtype=torch.bfloat16)
        with torch.no_grad():
            done = BACKENDS["cuda"].run(input, *weights, h0, schedule, 0, "tanh")
            output, final = done.hold(), done.final()
            assert output.numel() > 2**31
            assert sum(module.values.numel() for module in done.modules) > 2**31
            del done
            for b in (0, 7, 8, 1051, 2048, 2099):
                alone = BACKENDS["cuda"].run(input[:, b : b + 1], *weights, h0[b : b + 1], schedule, 0, "tanh")
                assert torch.equal(alone.hold()[:, 0], output[:, b])
                assert torch.equal(alone.final()[0], final[b])

    @pytest.mark.parametrize("name", ["modules in one block", "one module in several blocks"])
    def test_a_batch_of_10000_sequences_has_the_gradients_of_its_parts(self, name):
        if torch.cuda.get_device_properties(CUDA).total_memory < 60e9:
            pytest.skip("it needs 60 GB of memory")
        schedule, T, B = SIZES[name], 9, 10_000
        values = make_tensors(schedule, T, B, 10, torch.float32)
        cotangent = torch.randn(T, B, schedule.hidden_size, device=CUDA)
        doubles = [value.double() for value in values]
        exact = differentiate(lambda *leaves: clockwork_reference(*leaves, schedule), doubles, cotangent)
        found = differentiate(run_kernel(schedule), values, cotangent)
        for value, right in zip(found, exact, strict=True):
            assert measure_distance(value, right) < 1e-5
        input, weight_ih, weight_hh, bias, h0 = values
        for b in (0, 15, 9999):
            one = slice(b, b + 1)
            alone = differentiate(
                run_kernel(schedule), [input[:, one], weight_ih, weight_hh, bias, h0[one]], cotangent[:, one]
            )
            # output, and the gradients of the input and of h0
            for place, axis in ((0, 1), (1, 1), (5, 0)):
                assert torch.equal(alone[place], found[place].narrow(axis, b, 1))
