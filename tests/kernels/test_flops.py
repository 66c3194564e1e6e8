"""torch's FLOP counter counts the multiply-adds of the cascade, on every backend."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cwrnn import ClockworkRNN, Readout
from cwrnn.inspection.cost import count_operations
from cwrnn.kernels.cpu import loader
from cwrnn.schedule import Schedule

T, B, I = 12, 3, 5
SCHEDULES = [Schedule((1,), (6,)), Schedule((1, 2, 4), (3, 2, 4)), Schedule((2, 3), (4, 3))]


def count(call, backward=True):
    """Counts the operations of a call that returns a tensor, and of its backward."""
    with FlopCounterMode(display=False) as counter:
        output = call()
    forward = counter.get_total_flops()
    with counter:
        output.sum().backward() if backward else None
    return forward, counter.get_total_flops()


def count_by_hand(schedule, input_size, steps):
    """Counts the multiply-adds of one sequence over the clock `steps`, message by message."""
    total = 0
    for units, period in zip(schedule.slices, schedule.periods, strict=True):
        size, faster = units.stop - units.start, units.start
        total += size * faster  # the initial state sends a message
        for t in steps:
            if t % period == 0:
                total += size * input_size + size * size + size * faster
    return total


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("t0", [0, 5])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.spec)
def test_a_layer_counts_its_multiply_adds(schedule, t0, backend):
    layer = ClockworkRNN(I, schedule.hidden_size, schedule=schedule, backend=backend)
    x = torch.randn(T, B, I, requires_grad=True)
    expected = 2 * B * count_by_hand(schedule, I, range(t0, t0 + T))
    assert count(lambda: layer(x, t0=t0)[0]) == (expected, 2 * expected)
    if t0 == 0:
        # the initial state sends its message before the first tick
        first = sum((units.stop - units.start) * units.start for units in schedule.slices)
        assert expected == 2 * B * (T * count_operations(schedule, I, 0).total.sum() + first)


@pytest.mark.parametrize("frozen", [[], ["weight_ih_l0"], ["bias_l0"]], ids=str)
def test_a_layer_counts_the_gradients_that_are_wanted(frozen):
    schedule = Schedule((1, 2, 4), (3, 2, 4))
    layers = [ClockworkRNN(I, 9, schedule=schedule, backend=backend) for backend in ("auto", "torch")]
    for layer in layers:
        for name in frozen:
            getattr(layer, name).requires_grad_(False)
    x = torch.randn(T, B, I)
    first, second = (count(lambda layer=layer: layer(x)[0]) for layer in layers)
    assert first == second


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_readout_of_ticks_adds_its_products(backend):
    schedule, outputs = Schedule((1, 2, 4), (3, 2, 4)), 2
    layer = ClockworkRNN(I, 9, schedule=schedule, backend=backend)
    readout = Readout(9, outputs)
    x = torch.randn(T, B, I, requires_grad=True)
    recurrence = B * count_by_hand(schedule, I, range(T))
    # one product per tick, and one for the initial state
    products = B * outputs * (13 * 3 + 7 * 2 + 4 * 4)
    forward = 2 * (recurrence + products)
    assert count(lambda: readout(layer.ticks(x)[0])) == (forward, 2 * forward)


@pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")
def test_the_kernel_does_not_count_the_padding():
    schedule = Schedule((1, 2), (3, 2))
    layer = ClockworkRNN(I, 5, schedule=schedule, backend="auto")
    lengths = [12, 7, 1]
    forward, _ = count(lambda: layer(torch.randn(T, B, I), lengths=lengths)[0], backward=False)
    assert forward == 2 * sum(count_by_hand(schedule, I, range(length)) for length in lengths)


def test_layers_and_directions_add_up():
    schedule = Schedule((1, 2), (3, 2))
    layer = ClockworkRNN(I, 5, 2, bidirectional=True, schedule=schedule)
    forward, _ = count(lambda: layer(torch.randn(T, B, I))[0], backward=False)
    assert forward == 4 * B * sum(count_by_hand(schedule, features, range(T)) for features in (I, 10))


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("second_order", [False, True])
def test_a_counter_of_backward_alone_counts_it(close, backend, second_order):
    schedule = Schedule((1, 2), (3, 2))
    layer = ClockworkRNN(I, 5, schedule=schedule, backend=backend, dtype=torch.float64)
    x = torch.randn(T, B, I, requires_grad=True, dtype=torch.float64)
    output, _ = layer(x)
    leaves = [x, *layer.parameters()]
    with FlopCounterMode(display=False) as counter:
        gradients = torch.autograd.grad(output.sum(), leaves, create_graph=second_order)
    assert counter.get_total_flops() == 4 * B * count_by_hand(schedule, I, range(T))
    expected = torch.autograd.grad(layer(x)[0].sum(), leaves, create_graph=second_order)
    for gradient, plain in zip(gradients, expected, strict=True):
        close(gradient, plain)
    if second_order:
        penalties = (sum(g.square().sum() for g in found) for found in (gradients, expected))
        for gradient, plain in zip(*(torch.autograd.grad(penalty, leaves) for penalty in penalties), strict=True):
            close(gradient, plain)
