"""The multiply-adds of the cascade, counted while it runs, are those that Schedule.operations counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cwrnn import ClockworkRNN, Readout, Schedule
from cwrnn.held import HeldSignal, accumulate


def multiply_adds(function) -> float:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function()
    return counter.get_total_flops() / 2


@pytest.mark.parametrize(
    "schedule", [Schedule.exponential(64, 8), Schedule.exponential(60, 6, base=3), Schedule((2, 3, 7), (20, 9, 30))]
)
@pytest.mark.parametrize("input_size", [0, 5])
def test_the_recurrence_costs_what_the_schedule_counts(schedule, input_size):
    T, B = 2048, 2
    rnn = ClockworkRNN(input_size, schedule.hidden_size, schedule=schedule, backend="torch")
    found = multiply_adds(lambda: rnn.ticks(torch.randn(T, B, input_size))) / (T * B)
    # every module also sends the message of its initial state once
    assert found == pytest.approx(schedule.operations(input_size).cascade, rel=0.01)


def test_the_readout_costs_two_modules_per_output():
    T, B, N, O = 2048, 2, 64, 3
    rnn, readout = ClockworkRNN(1, N, schedule=8), Readout(N, O)
    ticks, _ = rnn.ticks(torch.randn(T, B, 1))
    per_output = multiply_adds(lambda: readout(ticks)) / (T * B * O)
    # 2 k instead of N
    assert per_output == pytest.approx(2 * N / 8, rel=0.02)


def test_training_costs_three_times_the_forward_pass():
    T, B, N = 2048, 2, 64
    rnn = ClockworkRNN(3, N, schedule=8, backend="torch")
    x = torch.randn(T, B, 3, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        rnn(x)[0].sum().backward()
    assert counter.get_total_flops() / 2 / (T * B) == pytest.approx(3 * rnn.schedule.operations(3).cascade, rel=0.02)


def test_messages_of_nested_clocks_telescope():
    """Signals whose clocks nest are added up into one; others stay apart."""

    def signal(period):
        return HeldSignal(torch.zeros(5, 1, 1), period, -period)

    assert [s.period for s in accumulate([signal(8)], signal(4))] == [4]
    assert [s.period for s in accumulate([signal(7), signal(8)], signal(4))] == [7, 4]


def test_long_periods_cost_nothing():
    """The size of a result depends on the steps that are asked for, not on how long a module holds."""
    signal = HeldSignal(torch.zeros(2, 1, 1), 1 << 40, -(1 << 40))
    assert signal.at(0, 1, 10).shape == (10, 1, 1)
    rnn = ClockworkRNN(1, 41, schedule=41)
    x = torch.randn(10, 2, 1)
    specified = ClockworkRNN(1, 41, schedule=41, backend="reference")
    specified.load_state_dict(rnn.state_dict())
    torch.testing.assert_close(rnn(x, t0=5)[0], specified(x, t0=5)[0])
