"""The GPU kernel of a single time step: it equals the specification, in one launch. An emulator runs it on the CPU."""

from contextlib import contextmanager
from threading import Thread

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import emulated_gpu
from support.network_cases import Case, schedules
from support.rnn_pairs import MAKERS
from torch.autograd import forward_ad
from torch.func import vmap
from torch.nn import Parameter
from torch.utils.flop_counter import FlopCounterMode

from cwrnn import ClockworkRNN, Schedule, State, clockwork_reference
from cwrnn.backends import BACKENDS
from cwrnn.kernels.gpu import stepping
from cwrnn.step import clockwork_step

emulated = pytest.mark.skipif(not emulated_gpu.has_compiler(), reason="there is no compiler for the emulator")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")

CELLS = {"tanh": "tanh", "relu": "relu", "lstm": "lstm", "peepholes": "lstm", "gru": "gru"}
PROGRAM = "compute_step"


@contextmanager
def emulate(seed=0, enough_warps=stepping.ENOUGH_WARPS):
    """Run the steps of the backend "cuda" on the CPU, at most 8 blocks at once; yield the emulator."""
    with emulated_gpu.emulating(seed, slots=8, large=False) as emulator, pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "refuse_programs", lambda: None)
        patch.setattr(stepping, "ENOUGH_WARPS", enough_warps)
        patch.setitem(BACKENDS, "cuda", BACKENDS["cuda"]._replace(refuse=lambda device, dtype: None))
        yield emulator


def forbid(weight_hh, schedule):
    """A copy of the weights with NaN in the blocks that nothing may read."""
    allowed = torch.from_numpy(schedule.mask()).repeat(weight_hh.shape[0] // schedule.hidden_size, 1)
    return weight_hh.detach().clone().masked_fill_(~allowed, torch.nan)


def as_parameters(*weights):
    return [None if weight is None else Parameter(weight.detach(), requires_grad=False) for weight in weights]


def prepare(case, dtype=torch.float32):
    """The input, the arguments of a step between the input and h, the first state, and weight_ch, all without NaN."""
    tensors = [None if tensor is None else tensor.detach() for tensor in (*case.tensors(dtype), case.weight_ch(dtype))]
    input, weight_ih, weight_hh, bias, h, weight_ch = tensors
    return input, [weight_ih, weight_hh, bias], h, weight_ch


def specify(input, weights, h0, schedule, t0, cell, weight_ch):
    """The states of the specification in float64."""
    exact = [None if tensor is None else tensor.double() for tensor in (input, *weights, h0)]
    return clockwork_reference(*exact, schedule, t0, cell, None if weight_ch is None else weight_ch.double())


@emulated
@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=25)
@given(
    schedule=schedules(longest=6, size=7),
    B=st.sampled_from([1, 9]),
    I=st.integers(0, 5),
    t0=st.integers(0, 20),
    bias=st.booleans(),
    contiguous=st.booleans(),
    seed=st.integers(0, 100),
)
@torch.no_grad()
def test_steps_equal_the_specification(maker, schedule, B, I, t0, bias, contiguous, seed, close):
    T = schedule.periods[-1] + 2
    case = Case(
        schedule, T, B, I, t0, bias=bias, cell=CELLS[maker], peepholes=maker == "peepholes", contiguous=contiguous,
        seed=seed,
    )  # fmt: skip
    input, weights, h, weight_ch = prepare(case)
    expected = specify(input, weights, h, schedule, t0, case.cell, weight_ch).float()
    weights[1] = forbid(weights[1], schedule)
    *weights, weight_ch = as_parameters(*weights, weight_ch)
    messages = None
    with emulate(seed) as emulator:
        for t, (x_t, right) in enumerate(zip(input, expected, strict=True), t0):
            y, h, messages = stepping.step(x_t, *weights, h, schedule, t, case.cell, messages, weight_ch)
            close(h, right)
            assert torch.equal(y, h[:, : schedule.hidden_size])
            assert y.data_ptr() != h.data_ptr()
            # prepared only once: parameters that are contiguous need no copies
            assert (messages is not None) == all(weight is None or weight.is_contiguous() for weight in weights)
    assert [name for name, *_ in emulator.launched] == [PROGRAM] * T


@emulated
@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=20)
@given(schedule=schedules(size=7), B=st.sampled_from([1, 7]), I=st.integers(0, 3), data=st.data())
@torch.no_grad()
def test_every_sequence_has_its_own_clock(maker, schedule, B, I, data, close):
    case = Case(schedule, 1, B, I, 0, cell=CELLS[maker], peepholes=maker == "peepholes")
    input, weights, h, weight_ch = prepare(case)
    clocks = torch.tensor(data.draw(st.lists(st.integers(0, 2**40), min_size=B, max_size=B)))
    alone = [
        specify(input[:, [b]], weights, h[[b]], schedule, t, case.cell, weight_ch)[0]
        for b, t in enumerate(clocks.tolist())
    ]
    dtype = data.draw(st.sampled_from([torch.int64, torch.int32])) if clocks.max() < 2**31 else torch.int64
    arguments = input[0], *weights, h, schedule, clocks.to(dtype), case.cell, None, weight_ch
    with emulate() as emulator:
        y, after, _ = stepping.step(*arguments)
    close(after, torch.cat(alone).float())
    assert torch.equal(y, after[:, : schedule.hidden_size])
    assert len(emulator.launched) == 1


@emulated
@pytest.mark.parametrize("tensor_of_clocks", [False, True])
@pytest.mark.parametrize("cell", ["tanh", "lstm"])
@torch.no_grad()
def test_modules_hold_their_state_bit_for_bit(cell, tensor_of_clocks):
    schedule, B = Schedule((1, 2, 3), (3, 5, 9)), 9
    case = Case(schedule, 1, B, 2, 0, cell=cell)
    input, weights, h, weight_ch = prepare(case)
    # no number, and numbers that arithmetic would change
    bits = h.view(torch.int32)
    bits[:, 3] = 0x7FA00001
    bits[:, 8], bits[:, 9] = -(2**31), 1
    weights[1][:3, [3, 8, 9]] = 0
    clocks = [1, 2, 3, 4, 5, 7, 9, 11, 13] if tensor_of_clocks else [5] * B
    t = torch.tensor(clocks) if tensor_of_clocks else 5
    with emulate():
        _, after, _ = stepping.step(input[0], *weights, h, schedule, t, cell, None, weight_ch)
    for b, clock in enumerate(clocks):
        for i, units in enumerate(schedule.slices):
            for part in range(h.shape[1] // 17):
                own = slice(17 * part + units.start, 17 * part + units.stop)
                before, now = bits[b, own], after.view(torch.int32)[b, own]
                assert torch.equal(before, now) == (i not in schedule.due(clock))


@emulated
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("aligned", [True, False])
@torch.no_grad()
def test_bits_depend_neither_on_the_batch_nor_on_the_units_of_a_warp(dtype, aligned, close):
    # the second module begins between two multiples of 16 bytes; warps of four units end beyond their module
    schedule = Schedule((1, 2, 4), (13, 22, 269) if aligned else (13, 22, 270))
    case = Case(schedule, 1, 9, 40, 0, scale=0.5)
    input, weights, h, _ = prepare(case, dtype)
    expected = specify(input, weights, h, schedule, 4, "tanh", None)[0]
    weights[1] = forbid(weights[1], schedule)
    found = []
    for enough_warps, rows in ((10**6, slice(9)), (300, slice(9)), (1, slice(9)), (10**6, slice(1)), (10**6, slice(3))):
        with emulate(enough_warps=enough_warps):
            found.append(stepping.step(input[0, rows], *weights, h[rows], schedule, 4, "tanh")[0])
        close(found[-1], expected[rows].to(dtype))
    for other in found[1:]:
        assert torch.equal(other, found[0][: len(other)])


@emulated
@pytest.mark.parametrize(("maker", "dtype"), [("peepholes", torch.bfloat16), ("gru", torch.float16)])
@torch.no_grad()
def test_gated_cells_in_half_precision(maker, dtype, close):
    schedule = Schedule((1, 3), (24, 32))
    case = Case(schedule, 7, 3, 16, 2, cell=CELLS[maker], peepholes=maker == "peepholes", scale=0.5)
    input, weights, h, weight_ch = prepare(case, dtype)
    expected = specify(input, weights, h, schedule, 2, case.cell, weight_ch).to(dtype)
    with emulate():
        for t, (x_t, right) in enumerate(zip(input, expected, strict=True), 2):
            _, h, _ = stepping.step(x_t, *weights, h, schedule, t, case.cell, None, weight_ch)
            close(h, right)


@emulated
@torch.no_grad()
def test_an_infinite_input_stays_outside_of_a_grus_reset_product():
    schedule = Schedule((1,), (4,))
    input, weights, h, _ = prepare(Case(schedule, 1, 2, 8, 0, cell="gru"))
    input[0, 0, 3] = torch.inf
    # the input reaches gate n only
    weights[0][:8, 3] = 0.0
    weights[0] = weights[0].contiguous()
    input[0, 1, 5] = torch.nan
    expected, _, _ = clockwork_step(input[0], *weights, h, schedule, 0, "gru")
    with emulate():
        y, _, _ = stepping.step(input[0], *weights, h, schedule, 0, "gru")
    torch.testing.assert_close(y, expected, equal_nan=True)


@emulated
@torch.no_grad()
def test_relu_passes_on_what_is_not_a_number():
    schedule = Schedule((1,), (2,))
    input = torch.tensor([[torch.nan], [-1.0], [2.0]])
    weights = torch.ones(2, 1), torch.zeros(2, 2), None
    with emulate():
        y, _, _ = stepping.step(input, *weights, torch.zeros(3, 2), schedule, 0, "relu")
    assert torch.equal(y[1:], torch.tensor([[0.0, 0.0], [2.0, 2.0]]))
    assert y[0].isnan().all()


@emulated
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("layers", [1, 2])
@torch.no_grad()
def test_a_layer_steps_in_one_launch(maker, layers, close):
    layer = MAKERS[maker](3, 10, num_layers=layers, schedule=(1, 2, 5), backend="cuda")
    plain = MAKERS[maker](3, 10, num_layers=layers, schedule=(1, 2, 5), backend="torch")
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(8, 2, 3)
    expected, state = plain(x)[0], None
    with emulate() as emulator, pytest.MonkeyPatch.context() as patch:
        prepared = []
        make = stepping.PreparedStep.__init__
        patch.setattr(
            stepping.PreparedStep, "__init__", lambda self, *args: (prepared.append(self), make(self, *args))[1]
        )
        for x_t, right in zip(x, expected, strict=True):
            y, state = layer.step(x_t, state)
            close(y, right)
    assert [name for name, *_ in emulator.launched] == [PROGRAM] * layers * 8
    assert len(prepared) == layers


class Stream:
    """A stream of the emulated layer after five steps."""

    def __init__(self):
        self.layer = ClockworkRNN(4, 4, schedule=(1, 2), backend="cuda")
        self.state = None
        self.step(5)

    def step(self, count=1):
        """Make some steps, each of which must equal plain PyTorch."""
        layer = self.layer
        for _ in range(count):
            x = torch.randn(2, 4, dtype=layer.weight_hh_l0.dtype)
            h = torch.zeros(1, 2, 4) if self.state is None else self.state.h
            t = 0 if self.state is None else self.state.t
            weights = layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_l0
            right, _, _ = clockwork_step(x, *weights, h[0], layer.schedule, t, layer.cell)
            y, self.state = layer.step(x, self.state)
            torch.testing.assert_close(y, right)


@emulated
@torch.no_grad()
def test_a_stream_notices_every_change():
    with emulate() as emulator:
        stream = Stream()
        layer = stream.layer
        for parameter in layer.parameters():
            parameter.mul_(0.5)
            stream.step()
            parameter.data = torch.randn_like(parameter)
            stream.step()
        # the same memory in another order
        layer.weight_hh_l0.data = layer.weight_hh_l0.data.t()
        stream.step(2)
        layer.weight_hh_l0 = Parameter(torch.randn(4, 4))
        stream.step(2)
        layer.nonlinearity = "relu"
        stream.step(2)
        layer.schedule = Schedule((1, 3), (1, 3))
        stream.step(4)
        stream.state = State(torch.randn(1, 2, 4), 3)
        stream.step(2)
        stream.state = stream.state._replace(t=torch.tensor([4, 9]))
        stream.step(3)
        launches = len(emulator.launched)
        assert launches == 26
        layer.double()
        stream.state = State(stream.state.h.double(), 12)
        stream.step(2)
        assert len(emulator.launched) == launches
        with pytest.raises(ValueError, match="does not match weight dtype"):
            layer.float().step(torch.randn(2, 4, dtype=torch.float64), stream.state)


@emulated
# torch's own, when forward mode is first used
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_other_calls_take_the_plain_path():
    schedule = Schedule((1, 2), (3, 4))
    input, weights, h, _ = prepare(Case(schedule, 1, 2, 3, 0))
    x = input[0]

    def run(x=x, h=h, weights=weights, schedule=schedule, t=2):
        return stepping.step(x, *weights, h, schedule, t, "tanh")

    with emulate() as emulator:
        wanted = x.clone().requires_grad_()
        output, _, messages = run(wanted)
        assert output.grad_fn is not None
        assert messages is None
        torch.autograd.gradcheck(
            lambda x, h: run(x, h, [weight.double() for weight in weights])[:2],
            (x.double().requires_grad_(), h.double().requires_grad_()),
        )
        with torch.no_grad():
            vmap(lambda x, h: run(x, h)[:2])(x[:, None], h[:, None])
            with forward_ad.dual_level():
                tangent = forward_ad.unpack_dual(run(forward_ad.make_dual(x, x))[0]).tangent
            assert tangent is not None
            with torch.autocast("cpu", dtype=torch.bfloat16):
                run()
            with FlopCounterMode(display=False) as counter:
                run()
            assert counter.get_total_flops() == 2 * 2 * (3 * 7 + 4 * 4 + 3 * 7)
            assert run(x.double(), h.double(), [weight.double() for weight in weights])[0].dtype == torch.float64
            run(t=2**63)
            run(x[:0], h[:0])
            many = Schedule(tuple(range(1, 130)), (1,) * 129)
            run(x, torch.zeros(2, 129), (torch.zeros(129, 3), torch.zeros(129, 129), None), many)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(stepping, "refuse_programs", lambda: "there is no NVRTC")
                run()
            torch.compile(run, backend="eager")(x)
        assert emulator.launched == []
        # gradients are on, but nothing wants one
        run()
        assert len(emulator.launched) == 1


@emulated
@torch.no_grad()
def test_the_door_refuses_what_does_not_fit():
    schedule = Schedule((1, 2), (3, 4))
    input, weights, h, _ = prepare(Case(schedule, 1, 2, 3, 0))
    x, parameters = input[0], as_parameters(*weights)

    def run(x=x, h=h, weights=weights, t=2, messages=None):
        return stepping.step(x, *weights, h, schedule, t, "tanh", messages)

    with emulate() as emulator:
        with pytest.raises(ValueError, match=r"weight_hh must be \(7, 7\), got \(6, 7\)"):
            run(weights=[weights[0], weights[1][:6], weights[2]])
        with pytest.raises(ValueError, match=r"the state must be \(2, 7\), got \(2, 6\)"):
            run(h=h[:, :6])
        with pytest.raises(ValueError, match=r"state must be torch.float32 \(2, 7\), got torch.float64 \(2, 7\)"):
            run(h=h.double())
        with pytest.raises(ValueError, match=r"bias must be torch.float32 \(7,\), got torch.float16 \(7,\)"):
            run(weights=[*weights[:2], weights[2].half()])
        with pytest.raises(
            RuntimeError, match="not at the same device, found input tensor at cpu and weight_ih at meta"
        ):
            run(weights=[weights[0].to("meta"), *weights[1:]])
        with pytest.raises(RuntimeError, match="found input tensor at cpu and hidden tensor at meta"):
            run(h=h.to("meta"))
        with pytest.raises(ValueError, match=r"the clocks must be integers of shape \(2,\), got torch.int64 \(3,\)"):
            run(t=torch.tensor([1, 2, 3]))
        assert emulator.launched == []
        _, _, messages = run(weights=parameters)
        with pytest.raises(ValueError, match=r"the state must be \(2, 7\), got \(3, 7\)"):
            run(h=torch.zeros(3, 7), weights=parameters, messages=messages)


@emulated
@torch.no_grad()
def test_many_modules():
    for modules in (8, 9, 32, 33, 128):
        schedule = Schedule(tuple(range(1, modules + 1)), (1,) * modules)
        input, weights, h, _ = prepare(Case(schedule, 1, 1, 1, 0))
        with emulate() as emulator:
            y, _, _ = stepping.step(input[0], *weights, h, schedule, 12, "relu")
        torch.testing.assert_close(y, clockwork_step(input[0], *weights, h, schedule, 12, "relu")[0])
        assert len(emulator.launched) == 1


def test_programs_that_cannot_be_compiled_are_refused_with_a_reason():
    stepping.refuse_programs.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping.driver, "refuse", lambda: "there is no NVRTC")
        assert stepping.refuse_programs() == "there is no NVRTC"
    stepping.refuse_programs.cache_clear()


# without an emulator: these run on a CUDA device only


def make_layers(maker, N, layers=1, dtype=torch.float32, **options):
    """The same layer with the backends "cuda" and "torch" on the device."""
    options = {"num_layers": layers, "schedule": 5, "device": "cuda", "dtype": dtype} | options
    layer, plain = (MAKERS[maker](12, N, backend=backend, **options) for backend in ("cuda", "torch"))
    plain.load_state_dict(layer.state_dict())
    return layer, plain


@contextmanager
def count_launches():
    """Yield a list that grows by the name of the program at every launch."""
    launched = []
    launch = stepping.driver.launch
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping.driver, "launch", lambda *args: (launched.append(args), launch(*args))[1])
        yield launched


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize(("N", "B", "layers"), [(1024, 1, 1), (333, 64, 1), (1024, 64, 1), (100, 5, 3), (7, 2, 2)])
@torch.no_grad()
def test_layers_on_the_gpu_equal_plain_pytorch(maker, N, B, layers, dtype, close):
    layer, plain = make_layers(maker, N, layers, dtype)
    x = torch.randn(20, B, 12, device="cuda", dtype=dtype)
    ours = None
    with count_launches() as launched:
        for x_t in x:
            before = ours
            y, ours = layer.step(x_t, before)
            # both continue from one state, so that roundings do not add up
            right, theirs = plain.step(x_t, before)
            close(y, right)
            for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
                close(mine, other)
    assert len(launched) == 20 * layers


@on_gpu
@pytest.mark.gpu
@torch.no_grad()
# torch 2.11 warns about every profile that does not keep the events of other cycles
@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
def test_a_step_on_the_gpu_is_one_kernel():
    torch.use_deterministic_algorithms(False)
    layer, _ = make_layers("peepholes", 256)
    x, state = torch.randn(10, 1, 12, device="cuda"), None
    for x_t in x:
        _, state = layer.step(x_t, state)
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for x_t in x:
            _, state = layer.step(x_t, state)
        torch.cuda.synchronize()
    kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert kernels == [PROGRAM] * 10


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
@torch.no_grad()
def test_bits_on_the_gpu_depend_neither_on_the_batch_nor_on_the_units_of_a_warp(cell, dtype):
    schedule = Schedule((1, 2, 4), (13, 22, 989))
    case = Case(schedule, 1, 33, 40, 0, cell=cell, scale=0.3)
    input, weights, h, _ = prepare(case, dtype)
    weights[1] = forbid(weights[1], schedule)
    x, h, *weights = (tensor.cuda() for tensor in (input[0], h, *weights))
    _, expected, _ = stepping.step(x, *weights, h, schedule, 4, cell)
    assert expected.isfinite().all()
    for rows in (slice(1), slice(2), slice(3), slice(30, 33), slice(32, 33)):
        _, after, _ = stepping.step(x[rows], *weights, h[rows], schedule, 4, cell)
        assert torch.equal(after, expected[rows])


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("maker", MAKERS)
@torch.no_grad()
def test_clocks_on_the_gpu(maker, close):
    layer, plain = make_layers(maker, 50)
    parts = 2 if maker in ("lstm", "peepholes") else 1
    hidden = [torch.randn(1, 6, 50, device="cuda") for _ in range(parts)]
    for device in ("cuda", "cpu"):
        t = torch.tensor([0, 3, 8, 16, 7, 2**40], device=device)
        ours = layer._state_type(*hidden, t)
        for x_t in torch.randn(5, 6, 12, device="cuda"):
            before = ours
            y, ours = layer.step(x_t, before)
            right, theirs = plain.step(x_t, before)
            close(y, right)
            assert torch.equal(ours.t, theirs.t)


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("of_tensor", [False, True])
@torch.no_grad()
def test_a_captured_graph_steps(of_tensor, close):
    torch.use_deterministic_algorithms(False)
    layer, plain = make_layers("lstm", 64)
    x, h = torch.randn(3, 12, device="cuda"), torch.randn(2, 1, 3, 64, device="cuda")
    t = torch.tensor([0, 1, 7], device="cuda") if of_tensor else 4
    layer.step(x, layer._state_type(*h, t))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y, state = layer.step(x, layer._state_type(*h, t))
        # the next replay continues
        h.copy_(torch.stack(state[:-1]))
        if of_tensor:
            t.copy_(state.t)
    own_h, own_t = h.clone(), t.clone() if of_tensor else t
    for _ in range(6):
        x.copy_(torch.randn(3, 12))
        right, after = plain.step(x, plain._state_type(*own_h, own_t))
        own_h = torch.stack(after[:-1])
        own_t = after.t if of_tensor else t
        graph.replay()
        close(y, right)
        close(h, own_h)


@on_gpu
@pytest.mark.gpu
def test_a_new_thread_and_another_stream_step(close):
    layer, plain = make_layers("gru", 64)
    x = torch.randn(3, 12, device="cuda")
    with torch.no_grad():
        right, _ = plain.step(x)
        # the memory of the results exists before the thread begins
        layer.step(x)
    found = []

    @torch.no_grad()
    def run():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            found.append(layer.step(x)[0])
        stream.synchronize()

    def run_plainly():
        with torch.no_grad():
            found.append(layer.step(x)[0])

    torch.cuda.synchronize()
    for target in (run_plainly, run):
        thread = Thread(target=target)
        thread.start()
        thread.join()
    assert len(found) == 2
    for y in found:
        close(y, right)


@on_gpu
@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one CUDA device")
@torch.no_grad()
def test_the_device_need_not_be_the_current_one(close):
    layer, plain = make_layers("tanh", 64, device="cuda:1")
    x = torch.randn(3, 12, device="cuda:1")
    close(layer.step(x)[0], plain.step(x)[0])
