"""Many networks at once: torch.func.vmap maps onto the CPU kernel's axis of replicas."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Readout, Schedule
from cwrnn.backends import BACKENDS
from cwrnn.kernels.cpu import loader, sequence

pytestmark = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")


@pytest.mark.parametrize("hold", [True, False])
def test_a_replica_gives_the_same_bits_alone(isa, hold, calls):
    """vmap over stacked parameters makes one call of the kernel, and gives every network the same bits as alone."""
    torch.manual_seed(1)
    networks = [ClockworkRNN(3, 20, schedule=(1, 2, 4, 8)) for _ in range(7)]
    readouts = [Readout(20, 2) for _ in range(7)]
    parameters, _ = stack_module_state(networks)
    readout_parameters, _ = stack_module_state(readouts)
    x = torch.randn(30, 4, 3)

    def loss(parameters, readout_parameters):
        if hold:
            value, h_n = functional_call(networks[0], parameters, (x,))
        else:
            ticks, h_n = functional_call(_Ticks(networks[0]), {f"rnn.{k}": v for k, v in parameters.items()}, (x,))
            value = functional_call(readouts[0], readout_parameters, (ticks,))
        return value.square().sum() + h_n.sum()

    losses = vmap(loss)(parameters, readout_parameters)
    found = torch.autograd.grad(losses.sum(), list(parameters.values()))
    assert [(name, fields[sequence.FIELD_S]) for name, fields in calls] == [("forward", 7), ("backward", 7)]
    for s in range(7):
        own = {name: p.detach().requires_grad_() for name, p in networks[s].named_parameters()}
        expected = torch.autograd.grad(loss(own, dict(readouts[s].named_parameters())), list(own.values()))
        for value, alone in zip(found, expected, strict=True):
            if hold:
                assert torch.equal(value[s], alone)
            else:
                # torch computes the readout, and adds up its products in another order
                torch.testing.assert_close(value[s], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [partial(ClockworkLSTM, peepholes=True), ClockworkGRU], ids=["lstm", "gru"])
def test_a_replica_of_a_gated_network_gives_the_same_bits_alone(make, isa, calls):
    networks = [make(3, 20, schedule=(1, 2, 4, 8)) for _ in range(5)]
    parameters, _ = stack_module_state(networks)
    x = torch.randn(30, 2, 3)

    def loss(parameters):
        output, state = functional_call(networks[0], parameters, (x,))
        last = sum(part.sum() for part in state) if isinstance(state, tuple) else state.sum()
        return output.square().sum() + last

    found = torch.autograd.grad(vmap(loss)(parameters).sum(), list(parameters.values()))
    assert [(name, fields[sequence.FIELD_S]) for name, fields in calls] == [("forward", 5), ("backward", 5)]
    for s, network in enumerate(networks):
        own = {name: p.detach().requires_grad_() for name, p in network.named_parameters()}
        for value, alone in zip(found, torch.autograd.grad(loss(own), list(own.values())), strict=True):
            assert torch.equal(value[s], alone)


class _Ticks(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x):
        return self.rnn.ticks(x)


def test_nested_vmap_equals_single_networks(close):
    networks = [[ClockworkRNN(2, 9, schedule=(1, 2, 4), dtype=torch.float64) for _ in range(3)] for _ in range(2)]
    stacked = [stack_module_state(row)[0] for row in networks]
    parameters = {name: torch.stack([row[name] for row in stacked]) for name in stacked[0]}
    x = torch.randn(13, 2, 2, dtype=torch.float64)

    def call(parameters, x):
        return functional_call(networks[0][0], parameters, (x,))[0]

    found = vmap(vmap(call, in_dims=(0, None)), in_dims=(0, None))(parameters, x)
    for i, row in enumerate(networks):
        for j, network in enumerate(row):
            close(found[i, j], network(x)[0])


def test_vmap_maps_over_lengths(close):
    rnn = ClockworkRNN(2, 9, schedule=(1, 2, 4), dtype=torch.float64)
    x = torch.randn(13, 4, 2, dtype=torch.float64)
    lengths = torch.tensor([[13, 2, 5, 1], [7, 7, 13, 8]])

    def call(lengths):
        h0 = torch.zeros(4, 9, dtype=torch.float64)
        weights = rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_l0
        return BACKENDS["cpu"].run(x, *weights, h0, rnn.schedule, 0, "tanh", lengths).hold()

    found = vmap(call)(lengths)
    for i in range(2):
        close(found[i], rnn(x, lengths=lengths[i])[0])


def test_no_replica_reads_no_weight():
    """Weights that are expanded to no replica have no memory, although their stride says that replicas share them."""
    schedule = Schedule((1, 2, 4, 8), (64,) * 4)
    weight_ih, weight_hh = torch.ones(1, 256, 3).expand(0, 256, 3), torch.ones(1, 256, 256).expand(0, 256, 256)
    input = torch.ones(0, 5, 2, 3)
    final, ticks, held, _ = sequence.forward(input, weight_ih, weight_hh, None, None, None, schedule, 0, "tanh", True)
    assert final.shape == (0, 1, 2, 256)
    gradients = sequence.backward(
        [True] * 6, input, weight_ih, weight_hh, None, None, ticks, None, None, held, schedule, 0, "tanh"
    )
    assert [g.shape[0] for g in gradients] == [0] * 6
