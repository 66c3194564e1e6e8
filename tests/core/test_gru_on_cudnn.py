"""A GRU of several modules on the backend "cudnn", as one layer and tick by tick.

tests/core/test_gru_at_once.py and tests/core/test_gru_steps.py test what only one of the two ways has. Emulations of
cuDNN and of torch's fused cell run on the CPU; tests/kernels/test_cudnn_gpu.py runs both on a GPU.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import emulated_cudnn
from support.network_cases import Case, by_backend, evaluate, evaluate_lengths, schedules, specify_lengths

from cwrnn import Schedule, clockwork_reference, cudnn

emulated_cudnn.install()

TWO, COPRIME, EVEN = Schedule((1, 2), (3, 2)), Schedule((2, 3, 7), (2, 3, 1)), Schedule((4, 6, 12), (2, 3, 2))
SCHEDULES = pytest.mark.parametrize("schedule", [TWO, COPRIME, EVEN], ids=str)


@pytest.fixture(autouse=True, scope="module", params=[True, False], ids=["at once", "tick by tick"])
def _way(request):
    """Lets every network run as one layer, or none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn, "is_layer_faster", lambda *_: request.param)
        yield


def run(tensors, schedule, t0=1):
    return cudnn.run(*tensors, schedule, t0, "gru")


def specify(tensors, schedule, t0=1):
    return clockwork_reference(*tensors, schedule, t0, "gru")


@settings(max_examples=80)
@given(data=st.data())
def test_any_schedule_phase_and_lengths_equal_the_specification(close, data):
    common = data.draw(st.sampled_from([1, 1, 2, 3]))
    drawn = data.draw(schedules(longest=9, modules=4))
    case = Case(
        Schedule(tuple(common * period for period in drawn.periods), drawn.sizes),
        # some are more than twice as long as the longest period, which is 27
        T=data.draw(st.sampled_from([58, 31, 12, 1])),
        B=data.draw(st.integers(1, 4)),
        I=data.draw(st.sampled_from([3, 8, 1, 0])),
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


def test_second_derivatives_of_the_final_state_by_some_arguments_equal_the_specification(close):
    tensors = [tensor.detach() for tensor in Case(TWO, T=7, B=2, I=3, t0=1, cell="gru").tensors()]
    wanted = [tensors[i].requires_grad_() for i in (0, 3)]
    results = []
    for final in (run(tensors, TWO).final(), specify(tensors, TWO)[-1]):
        first = torch.autograd.grad(final.square().sum(), wanted, create_graph=True)
        results.append(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))
    for found, expected in zip(*results, strict=True):
        close(found, expected)


def test_batched_gradients_equal_single_ones(close):
    tensors = Case(TWO, T=5, B=2, I=1, t0=1, cell="gru").tensors()
    output = run(tensors, TWO).hold()
    rows = torch.randn(3, *output.shape, dtype=torch.float64)
    batched = torch.autograd.grad(output, tensors, rows, is_grads_batched=True, retain_graph=True)
    mapped = torch.func.vmap(lambda row: torch.autograd.grad(output, tensors, row, retain_graph=True))(rows)
    for b, row in enumerate(rows):
        single = torch.autograd.grad(output, tensors, row, retain_graph=True)
        for found, other, expected in zip(batched, mapped, single, strict=True):
            close(found[b], expected)
            close(other[b], expected)


def test_backward_can_be_repeated_if_the_graph_is_kept():
    tensors = Case(COPRIME, T=16, B=2, I=3, t0=1, cell="gru").tensors()
    loss = run(tensors, COPRIME).hold().sum()
    results = [torch.autograd.grad(loss, tensors, retain_graph=keep) for keep in (True, True, False)]
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, tensors)


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


@pytest.mark.parametrize("wanted", range(4))
def test_without_a_tick_there_are_gradients_of_zero(wanted):
    case = Case(Schedule((10, 20), (3, 2)), T=5, B=2, I=3, t0=1, cell="gru", initial=False)
    tensors = [tensor if tensor is None else tensor.detach() for tensor in case.tensors()]
    tensors[wanted].requires_grad_()
    run(tensors, case.schedule).hold().sum().backward()
    assert torch.equal(tensors[wanted].grad, torch.zeros_like(tensors[wanted]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("periods", [(1, 2, 4), (1, 64, 256)], ids=str)
def test_long_sequences_are_as_exact_as_the_specification_in_half_precision(dtype, periods):
    """The emulated layer rounds held states at every step; they must not drift."""
    case = Case(Schedule(periods, (40, 30, 30)), T=300, B=4, I=8, t0=1, cell="gru")
    found, rounded, exact = evaluate(case, cudnn.run, dtype), evaluate(case, None, dtype), evaluate(case)
    for name, right in exact.items():
        distances = [(value[name].double() - right).norm() / right.norm() for value in (found, rounded)]
        assert distances[0] < 1.5 * distances[1], (name, distances)
