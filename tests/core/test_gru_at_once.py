"""A GRU of several modules on the backend "cudnn" as one layer: gate z holds the modules that do not tick.

The battery (tests/core/test_battery.py) and tests/core/test_cudnn.py compare such networks too. An emulation of cuDNN
runs on the CPU; tests/kernels/test_cudnn_gpu.py runs cuDNN itself.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import emulated_cudnn
from support.network_cases import Case, by_backend, evaluate, evaluate_lengths, schedules, specify_lengths

from cwrnn import Schedule, clockwork_reference, cudnn, cudnn_layer
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


def run(tensors, schedule, t0=1):
    return cudnn.run(*tensors, schedule, t0, "gru")


def specify(tensors, schedule, t0=1):
    return clockwork_reference(*tensors, schedule, t0, "gru")


@settings(max_examples=150)
@given(data=st.data())
def test_any_schedule_phase_and_lengths_equal_the_specification(close, data):
    common = data.draw(st.sampled_from([1, 1, 2, 3]))
    drawn = data.draw(schedules(longest=9, modules=4))
    case = Case(
        Schedule(tuple(common * period for period in drawn.periods), drawn.sizes),
        T=data.draw(st.integers(1, 40)),
        B=data.draw(st.integers(1, 4)),
        I=data.draw(st.integers(0, 9)),
        t0=data.draw(st.integers(0, 40)),
        bias=data.draw(st.booleans()),
        cell="gru",
        contiguous=data.draw(st.booleans()),
        initial=data.draw(st.booleans()),
        # with large inputs, gate z would open if it were held by less than they add up to
        scale=data.draw(st.sampled_from([1.0, 30.0, 1e3])),
        seed=data.draw(st.integers(0, 100)),
    )
    lengths = torch.full((case.B,), case.T)
    if data.draw(st.booleans()):
        lengths = torch.tensor(data.draw(st.lists(st.integers(1, case.T), min_size=case.B, max_size=case.B)))
    found = evaluate_lengths(case, lengths, True, by_backend(cudnn.run, case))
    expected = evaluate_lengths(case, lengths, True, specify_lengths(case))
    for name, value in expected.items():
        close(found[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@SCHEDULES
def test_modules_that_do_not_tick_hold_their_state_bit_for_bit(schedule, dtype):
    tensors = [tensor.detach() for tensor in Case(schedule, T=30, B=2, I=3, t0=1, cell="gru", scale=3).tensors(dtype)]
    done = run(tensors, schedule)
    states = torch.cat((tensors[4][None], done.hold()))
    for period, units in zip(schedule.periods, schedule.slices, strict=True):
        own = states[..., units]
        changed = (own[1:] != own[:-1]).flatten(1).any(1)
        ticks = torch.arange(1, 31) % period == 0
        assert not changed[~ticks].any()
        assert changed[ticks].any()


@SCHEDULES
def test_all_modules_are_one_call_that_is_as_wide_as_cudnn_likes(schedule, layers):
    evaluate(Case(schedule, T=24, B=2, I=3, t0=1, cell="gru"), cudnn.run)
    (x, weight_ih, weight_hh, *_) = layers[0]
    assert len(layers) == 1
    # a step of the layer is every common multiple of the periods' greatest common divisor from clock 1 to 24
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
    done = run((x, weight_ih, spoilt, *others), COPRIME)
    close(done.hold(), expected["output"])
    (gradient,) = torch.autograd.grad(done.hold().sum(), spoilt)
    assert (gradient[~allowed] == 0).all()
    assert gradient.isfinite().all()
    assert torch.equal(clear_forbidden(spoilt, COPRIME), torch.where(allowed, weight_hh, 0.0))


@SCHEDULES
@pytest.mark.parametrize("wanted", range(5))
def test_each_gradient_alone_equals_the_specification(schedule, wanted, close):
    tensors = [tensor.detach() for tensor in Case(schedule, T=25, B=2, I=3, t0=1, cell="gru").tensors()]
    tensors[wanted].requires_grad_()
    results = []
    done, states = run(tensors, schedule), specify(tensors, schedule)
    for output, final in ((done.hold(), done.final()), (states, states[-1])):
        results += torch.autograd.grad(output.square().sum() + final.sin().sum(), tensors[wanted])
    close(*results)


@SCHEDULES
def test_second_derivatives_equal_the_specification(schedule, close):
    """The gradient of a gradient's norm, as in a gradient penalty."""
    tensors = Case(schedule, T=25, B=2, I=3, t0=1, cell="gru").tensors()
    results = []
    for states in (run(tensors, schedule).hold(), specify(tensors, schedule)):
        first = torch.autograd.grad(states.square().sum(), tensors, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first) + states.sum(), tensors))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


@SCHEDULES
def test_the_states_of_modules_are_those_of_the_cascade(schedule, close):
    tensors = [tensor.detach() for tensor in Case(schedule, T=25, B=2, I=3, t0=5, cell="gru").tensors()]
    done, expected = run(tensors, schedule, 5), cudnn.cascade(*tensors, schedule, 5, "gru")
    for found, right in zip(done.modules, expected.modules, strict=True):
        close(found.values, right.values)
        assert found[1:] == right[1:]
    weight = torch.randn(4, schedule.hidden_size, dtype=torch.float64)
    close(done.linear(weight), expected.linear(weight))
    rounded = done.to(torch.float32)
    assert {signal.values.dtype for signal in rounded.modules} == {torch.float32}
    close(rounded.hold(), done.hold().float())


def test_before_the_first_tick_the_initial_state_is_held(close):
    case = Case(Schedule((10, 20), (3, 2)), T=5, B=2, I=3, t0=1, cell="gru")
    found, expected = evaluate(case, cudnn.run), evaluate(case)
    for name, value in expected.items():
        close(found[name], value)


def test_a_late_clock_is_that_of_the_same_phase():
    x, *others = (tensor.detach() for tensor in Case(COPRIME, T=20, B=2, I=3, t0=0, cell="gru").tensors())
    expected, late = run((x, *others), COPRIME, 5), run((x, *others), COPRIME, 42 * 2**80 + 5)
    assert torch.equal(late.hold(), expected.hold())
    assert torch.equal(late.final(), expected.final())


def test_without_a_tick_there_are_gradients_of_zero():
    case = Case(Schedule((10, 20), (3, 2)), T=5, B=2, I=3, t0=1, cell="gru", initial=False)
    tensors = case.tensors()
    run(tensors, case.schedule).hold().sum().backward()
    assert all(tensor is None or tensor.grad is None or not tensor.grad.any() for tensor in tensors)
    assert tensors[1].grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("periods", [(1, 2, 4), (1, 64, 256)], ids=str)
def test_long_sequences_are_as_exact_as_the_specification_in_half_precision(dtype, periods):
    """The emulated layer rounds held states at every step; these must not drift."""
    case = Case(Schedule(periods, (40, 30, 30)), T=300, B=4, I=8, t0=1, cell="gru")
    found, rounded, exact = evaluate(case, cudnn.run, dtype), evaluate(case, None, dtype), evaluate(case)
    for name, right in exact.items():
        distances = [(value[name].double() - right).norm() / right.norm() for value in (found, rounded)]
        assert distances[0] < 1.5 * distances[1], (name, distances)


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
