"""Tests of the backend "cudnn" on a CUDA device, which `make gpu` runs. All warnings are errors.

The battery (tests/core/test_battery.py) compares small networks, and tests/core/test_cudnn.py the ways of a call.
"""

import math

import pytest
import torch
from support import emulated_cudnn
from torch import nn

from cwrnn import (
    ClockworkGRU,
    ClockworkLSTM,
    ClockworkRNN,
    Schedule,
    clockwork_reference,
    cudnn,
    cudnn_layer,
    gru_steps,
)
from cwrnn.backends import select_backend
from cwrnn.cells import CELLS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CUDA = torch.device("cuda")
TF32 = "tf32"
DISTANCES = {torch.float64: 1e-12, torch.float32: 1e-5, TF32: 5e-3, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""How far results may be from the exact ones, relative to their norm."""
RELU_GRADIENTS = {dtype: (2 / math.pi * distance) ** 0.5 for dtype, distance in DISTANCES.items()} | {
    torch.float64: DISTANCES[torch.float64]
}
"""The same for gradients of relu: a pre-activation with a relative error e has the wrong sign in e / pi of all places,
and then a slope is 0 in the place of 1, or 1 in the place of 0, so that the squared error of a gradient is 2 e / pi of
its square; in float64 no sign is wrong."""
LAYERS = {"tanh": ClockworkRNN, "relu": ClockworkRNN, "lstm": ClockworkLSTM, "gru": ClockworkGRU}
TWO = Schedule((1, 2), (1100, 1100))
THREE = Schedule((1, 2, 4), (1030, 1025, 1026))


@pytest.fixture(autouse=True)
def without_tf32():
    """Let no matrix product use tf32, except where a test allows it."""
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = False


def make_tensors(schedule, T, B, I, cell, dtype, seed=0):
    """Random input, weight_ih, weight_hh, bias and h0 on the device."""
    N, (gates, biases, parts) = schedule.hidden_size, CELLS[cell]
    generator = torch.Generator().manual_seed(seed)
    shapes = (T, B, I), (gates * N, I), (gates * N, N), (biases * N,), (B, parts * N)
    scales = 1.0, I**-0.5, N**-0.5, 0.1, 0.5
    values = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return [(value * scale).to(CUDA, dtype) for value, scale in zip(values, scales, strict=True)]


def evaluate(run, tensors, schedule, cell, cotangents):
    """Output, final state and all gradients of a run."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    output, final = run(leaves, schedule, cell)
    gradients = torch.autograd.grad((output, final), leaves, [own.to(output.dtype) for own in cotangents])
    return [output.detach(), final.detach(), *gradients]


def run_backend(leaves, schedule, cell, t0=3):
    done = cudnn.run(*leaves, schedule, t0, cell)
    return done.hold(), done.final()


def run_specification(leaves, schedule, cell, t0=3):
    states = clockwork_reference(*leaves, schedule, t0, cell)
    return states[..., : schedule.hidden_size], states[-1]


def measure_distances(found, exact):
    """The relative distances of tensors from the exact ones."""
    return [((f.double() - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True)]


def check_against_the_specification(schedule, T, cell, dtype):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype == TF32
    element = torch.float32 if dtype == TF32 else dtype
    tensors = make_tensors(schedule, T, 8, 64, cell, element)
    N, parts = schedule.hidden_size, CELLS[cell].parts
    cotangents = torch.randn(T, 8, N, device=CUDA).to(element), torch.randn(8, parts * N, device=CUDA).to(element)
    doubles = [tensor.double() for tensor in tensors]
    exact = evaluate(run_specification, doubles, schedule, cell, cotangents)
    distances = measure_distances(evaluate(run_backend, tensors, schedule, cell, cotangents), exact)
    assert max(distances[:2]) < DISTANCES[dtype], distances
    assert max(distances[2:]) < (RELU_GRADIENTS if cell == "relu" else DISTANCES)[dtype], distances


@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_one_large_module_equals_the_specification(cell, dtype):
    check_against_the_specification(Schedule((1,), (2048,)), 20, cell, dtype)


@pytest.mark.parametrize("T", [21, 150], ids=["in sequence", "beside each other"])
@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
@pytest.mark.parametrize("cell", ["tanh", "relu", "lstm"])
def test_two_large_modules_equal_the_specification(cell, dtype, T):
    assert (len(cudnn._cut_time(torch.empty(T, 1, 1, device=CUDA), TWO, cell)) > 1) == (T == 150)
    check_against_the_specification(TWO, T, cell, dtype)


def test_three_modules_beside_each_other_equal_the_specification():
    check_against_the_specification(Schedule((2, 3, 7), (1030, 1025, 1026)), 200, "lstm", torch.float32)


@pytest.fixture(params=[True, False], ids=["at once", "tick by tick"])
def runs_at_once(request, monkeypatch):
    """Lets the modules of a GRU run as one layer, or tick by tick."""
    monkeypatch.setattr(cudnn, "is_layer_faster", lambda *_: request.param)
    return request.param


@pytest.fixture
def at_once(monkeypatch):
    """Lets the modules of a GRU run as one layer."""
    monkeypatch.setattr(cudnn, "is_layer_faster", lambda *_: True)


@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
@pytest.mark.parametrize("schedule", [THREE, Schedule((2, 3, 7), (1030, 1025, 1026))], ids=["nested", "coprime"])
def test_three_large_modules_of_a_gru_equal_the_specification(schedule, dtype, runs_at_once):
    check_against_the_specification(schedule, 30, "gru", dtype)


@pytest.mark.parametrize("units", [(3, 2), (64, 64), (1024, 1024)], ids=str)
@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
def test_a_gru_of_any_size_equals_the_specification_as_one_layer(units, dtype, at_once):
    check_against_the_specification(Schedule((2, 6), units), 40, "gru", dtype)


@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
def test_a_gru_as_one_layer_holds_states_for_long(dtype, at_once):
    """Where gate z is not exactly 1, the fast module does not hear the state that the slow one holds for 999 steps."""
    torch.backends.cudnn.allow_tf32 = dtype == TF32
    schedule = Schedule((1, 1000), (64, 64))
    tensors = make_tensors(schedule, 1010, 8, 64, "gru", torch.float32 if dtype == TF32 else dtype)
    exact = run_specification([tensor.double() for tensor in tensors], schedule, "gru")
    distances = measure_distances(run_backend(tensors, schedule, "gru"), exact)
    assert max(distances) < DISTANCES[dtype], distances


@pytest.mark.parametrize("dtype", DISTANCES, ids=str)
def test_large_inputs_of_a_gru_as_one_layer_do_not_tick(dtype, at_once):
    """The input reaches gate z at every step, and could open it."""
    torch.backends.cudnn.allow_tf32 = dtype == TF32
    schedule = Schedule((1, 4), (64, 64))
    x, *others = make_tensors(schedule, 20, 8, 64, "gru", torch.float32 if dtype == TF32 else dtype)
    output, final = run_backend((x * 1e4, *others), schedule, "gru")
    expected, last = run_specification([(x * 1e4).double(), *(own.double() for own in others)], schedule, "gru")
    # nearly every gate is saturated, so a few numbers differ much, by the signs of small sums
    for found, right in ((output, expected), (final, last)):
        assert ((found.double() - right).abs() > 0.05).double().mean() < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_the_fused_cell_of_a_gru_returns_what_its_emulation_returns(dtype):
    """tests/support/emulated_cudnn.py; what the cell leaves for its gradients has an order of its own."""
    wide, narrow = torch.randn(2, 8, 300, device=CUDA).to(dtype), torch.randn(2, 8, 100, device=CUDA).to(dtype)
    h, workspace = gru_steps._tick(*wide, narrow[0])
    expected, own_workspace = emulated_cudnn.run_cell(*wide, narrow[0])
    *found, _, _ = gru_steps._pull_back(narrow[1], workspace, False)
    *gradients, _, _ = emulated_cudnn.run_cell_backward(narrow[1], own_workspace, False)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}.get(dtype, 3e-2)
    for value, right in zip((h, *found), (expected, *gradients), strict=True):
        assert value.shape == right.shape
        torch.testing.assert_close(value, right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("lengths", [[150, 1, 64, 65, 130, 149, 7, 150]])
@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_lengths_equal_sequences_one_by_one(cell, lengths, runs_at_once):
    tensors = make_tensors(TWO, 150, 8, 64, cell, torch.float32)
    done = cudnn.run(*tensors, TWO, 3, cell, torch.tensor(lengths, device=CUDA))
    output, final = done.hold(), done.final()
    for b, length in enumerate(lengths):
        x, h0 = tensors[0][:length, b : b + 1], tensors[4][b : b + 1]
        alone = cudnn.run(x, *tensors[1:4], h0, TWO, 3, cell)
        torch.testing.assert_close(output[:length, b], alone.hold()[:, 0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(final[b], alone.final()[0], rtol=1e-4, atol=1e-4)
        assert (output[length:, b] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", ["tanh", "lstm"])
def test_late_streams_and_reused_memory_change_no_bit(cell, dtype):
    """Whatever one stream has yet to do when another begins, and whatever overwrites the memory that was freed."""
    T, side = 400, cudnn._make_streams(torch.device("cuda", torch.cuda.current_device()), 1)[0]
    tensors = make_tensors(TWO, T, 8, 64, cell, dtype)
    parts = CELLS[cell].parts
    cotangents = torch.randn(T, 8, 2200, device=CUDA), torch.randn(8, parts * 2200, device=CUDA)
    right = evaluate(run_backend, tensors, TWO, cell, cotangents)
    torch.cuda.synchronize()
    for late in (None, side, torch.cuda.current_stream()):
        if late is not None:
            with torch.cuda.stream(late):
                torch.cuda._sleep(100_000_000)
        # the input is made on the caller's stream just before
        found = evaluate(run_backend, [tensor * 1 for tensor in tensors], TWO, cell, cotangents)
        for stream in (side, torch.cuda.current_stream()):
            with torch.cuda.stream(stream):
                [torch.full((size,), torch.nan, device=CUDA) for size in (2**i for i in range(8, 24))]
        torch.cuda.synchronize()
        assert all(map(torch.equal, found, right))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("cell", CELLS)
def test_cudnn_reads_packed_weights_in_their_order(cell, dtype):
    for I, K in ((1, 1), (3, 5), (7, 33), (64, 128), (129, 127), (70, 1100)):
        rows = CELLS[cell].gates * K
        weight_ih, weight_hh, first, second = (
            torch.randn(shape, device=CUDA, dtype=dtype) for shape in ((rows, I), (rows, K), (rows,), (rows,))
        )
        if cell == "gru":
            second[: 2 * K] = 0
            bias = torch.cat((first, second[2 * K :]))
        else:
            second.zero_()
            bias = first
        packed = cudnn_layer.pack_weights(weight_ih, weight_hh, bias)
        parameters = [nn.Parameter(value) for value in (weight_ih, weight_hh, first, second)]
        with torch.no_grad():
            flat = torch._cudnn_rnn_flatten_weight(parameters, 4, I, cudnn_layer.MODES[cell], K, 0, 1, False, False)
        assert torch.equal(packed, flat)


# torch's own layers may warn in half precision
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_one_module_gives_the_bits_of_torch(cell, dtype):
    theirs = {"tanh": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[cell](64, 1536, device=CUDA, dtype=dtype)
    with torch.no_grad():
        # torch has two biases for each gate, and only one of a GRU's second ones is not a part of the first
        theirs.bias_hh_l0[: 3072 if cell == "gru" else None] = 0
    ours = getattr(LAYERS[cell], f"from_{'rnn' if cell == 'tanh' else cell}")(theirs)
    ours.backend = "cudnn"
    x = torch.randn(50, 16, 64, device=CUDA, dtype=dtype)
    results = []
    for layer in (ours, theirs):
        output, _ = layer(x)
        weights = layer.weight_ih_l0, layer.weight_hh_l0
        results.append((output, *torch.autograd.grad(output.float().square().sum(), weights)))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_backward_can_be_repeated_if_the_graph_is_kept(cell, runs_at_once):
    tensors = [tensor.requires_grad_() for tensor in make_tensors(TWO, 150, 8, 64, cell, torch.float32)]
    loss = cudnn.run(*tensors, TWO, 0, cell).hold().square().sum()
    first = torch.autograd.grad(loss, tensors, retain_graph=True)
    second = torch.autograd.grad(loss, tensors, retain_graph=True)
    third = torch.autograd.grad(loss, tensors)
    assert all(map(torch.equal, first, second))
    assert all(map(torch.equal, first, third))


def test_gradients_accumulate_in_parameters():
    layer = ClockworkLSTM(64, 2200, schedule=TWO, backend="cudnn", device=CUDA)
    x = torch.randn(150, 8, 64, device=CUDA)
    loss = layer(x)[0].square().sum()
    expected = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
    for _ in range(2):
        layer(x)[0].square().sum().backward()
    for parameter, gradient in zip(layer.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


@pytest.mark.parametrize("make", [ClockworkRNN, ClockworkGRU])
@pytest.mark.parametrize("schedule", [Schedule((1,), (1100,)), TWO], ids=["one module", "two modules"])
def test_a_captured_training_step_can_be_replayed(schedule, make, runs_at_once):
    torch.use_deterministic_algorithms(False)
    layer = make(16, schedule.hidden_size, schedule=schedule, backend="cudnn", device=CUDA)
    x = torch.randn(150, 8, 16, device=CUDA)

    def differentiate():
        return torch.autograd.grad(layer(x)[0].square().sum(), list(layer.parameters()))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            differentiate()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = differentiate()
    x.copy_(torch.randn_like(x))
    graph.replay()
    for value, right in zip(found, differentiate(), strict=True):
        torch.testing.assert_close(value, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_gives_half_precision_and_float32_gradients(dtype):
    layer = ClockworkRNN(16, 1100, schedule=1, backend="cudnn", device=CUDA)
    x = torch.randn(20, 8, 16, device=CUDA)
    with torch.autocast("cuda", dtype=dtype):
        output, _ = layer(x)
        output.float().square().sum().backward()
    assert output.dtype == dtype
    assert all(p.grad.dtype == torch.float32 and p.grad.isfinite().all() for p in layer.parameters())
    # autocast casts cuDNN's operators to float16, and bfloat16 holds larger numbers
    with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
        assert layer(x * 1e6)[0].isfinite().all()


# torch's compiler emits warnings of its own
@pytest.mark.filterwarnings("ignore")
def test_compiled_and_twice_differentiated_calls_run_by_the_cascade():
    layer = ClockworkRNN(3, 1100, schedule=1, backend="cudnn", device=CUDA)
    x = torch.randn(5, 2, 3, device=CUDA, requires_grad=True)
    plain = layer(x)[0]
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x)[0], plain, rtol=1e-4, atol=1e-4)
    gradient = torch.autograd.grad(plain.sum(), x, create_graph=True)[0]
    slow = ClockworkRNN(3, 1100, schedule=1, backend="torch", device=CUDA)
    slow.load_state_dict(layer.state_dict())
    other = torch.autograd.grad(slow(x)[0].sum(), x, create_graph=True)[0]
    found, right = (torch.autograd.grad(g.square().sum(), x)[0] for g in (gradient, other))
    torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cell", CELLS)
def test_a_step_continues_a_sequence(cell):
    options = {"nonlinearity": "relu"} if cell == "relu" else {}
    layer = LAYERS[cell](16, 1100, schedule=1, backend="cudnn", device=CUDA, **options)
    x = torch.randn(9, 3, 16, device=CUDA)
    with torch.no_grad():
        expected, _ = layer(x)
        _, state = layer(x[:8], return_state=True)
        output, _ = layer.step(x[8], state)
    torch.testing.assert_close(output, expected[8], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_auto_takes_it_for_large_modules(dtype):
    for cell in CELLS:
        assert select_backend("auto", CUDA, dtype, Schedule((1,), (2100,)), cell).name == "cudnn"
        assert select_backend("auto", CUDA, dtype, Schedule((1, 2), (2100, 2100)), cell).name == "cudnn"
    with torch.backends.cudnn.flags(enabled=False):
        assert select_backend("auto", CUDA, dtype, Schedule((1,), (2100,))).name == "torch"
