"""The gated cells: torch's own layers with one module of period 1, and one step at a time."""

import pytest
import torch
from hypothesis import given, settings
from support.network_cases import cases, evaluate
from torch import nn

from cwrnn import Schedule, clockwork_reference
from cwrnn.cells import CELLS
from cwrnn.step import clockwork_step

GATED = ("lstm", "gru")


def weights_of(layer: nn.LSTM | nn.GRU) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return weight_ih, weight_hh and the one bias of our layers, from a layer of torch."""
    N = layer.hidden_size
    b_ih, b_hh = layer.bias_ih_l0, layer.bias_hh_l0
    if isinstance(layer, nn.LSTM):
        return layer.weight_ih_l0, layer.weight_hh_l0, b_ih + b_hh
    gates = b_ih[: 2 * N] + b_hh[: 2 * N]
    return layer.weight_ih_l0, layer.weight_hh_l0, torch.cat((gates, b_ih[2 * N :], b_hh[2 * N :]))


def test_one_module_of_period_1_is_torchs_lstm(close):
    layer, x = nn.LSTM(3, 5, dtype=torch.float64), torch.randn(9, 2, 3, dtype=torch.float64)
    h, c = torch.randn(2, 2, 5, dtype=torch.float64)
    states = clockwork_reference(x, *weights_of(layer), torch.cat((h, c), dim=-1), Schedule((1,), (5,)), 0, "lstm")
    output, (h_n, c_n) = layer(x, (h[None], c[None]))
    close(states[..., :5], output)
    close(states[-1], torch.cat((h_n[0], c_n[0]), dim=-1))


def test_one_module_of_period_1_is_torchs_gru(close):
    layer, x = nn.GRU(3, 5, dtype=torch.float64), torch.randn(9, 2, 3, dtype=torch.float64)
    h = torch.randn(2, 5, dtype=torch.float64)
    states = clockwork_reference(x, *weights_of(layer), h, Schedule((1,), (5,)), 0, "gru")
    close(states, layer(x, h[None])[0])


@settings(max_examples=60)
@given(case=cases(GATED))
def test_steps_equal_the_specification(case, close):
    def run(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, weight_ch):
        h = case.zeros() if h0 is None else h0
        output = [input.new_zeros((0, *h.shape))]
        for step, x in enumerate(input):
            _, h, _ = clockwork_step(x, weight_ih, weight_hh, bias, h, schedule, t0 + step, cell, weight_ch=weight_ch)
            output.append(h[None])
        return Stepped(torch.cat(output), h, schedule.hidden_size)

    actual, expected = evaluate(case, run), evaluate(case)
    for name, value in expected.items():
        close(actual[name], value, msg=lambda text, name=name: f"{name} of {case}: {text}")


class Stepped:
    """The states of single steps, behind the names of a Pass."""

    def __init__(self, states, state, N):
        self.states, self.state, self.N = states, state, N

    def hold(self):
        return self.states[..., : self.N]

    def final(self):
        return self.state


@pytest.mark.parametrize("cell", GATED)
def test_a_module_that_does_not_tick_holds_its_whole_state_to_the_bit(cell):
    schedule = Schedule((1, 3), (2, 2))
    gates, biases, parts = CELLS[cell]
    weights = torch.randn(4 * gates, 2), torch.randn(4 * gates, 4), torch.randn(4 * biases)
    states = clockwork_reference(torch.randn(7, 1, 2), *weights, torch.zeros(1, 4 * parts), schedule, 0, cell)
    for part in states.split(4, dim=-1):
        slow = part[:, 0, 2:]
        assert [torch.equal(slow[t], slow[t - 1]) for t in range(1, 7)] == [True, True, False, True, True, False]
