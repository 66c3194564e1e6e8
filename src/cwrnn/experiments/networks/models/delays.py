"""Modules whose recurrent connections have delays of 1, 2, 4, ... steps (El Hihi & Bengio 1995, hierarchical RNNs).

    h_i(t) = tanh( W_ih[i] x(t) + b[i] + sum over j of W_hh[i, j] h_j(t - 2^j) ),    h_j(t) = 0 for t < 0

There are up to 8 modules, j = 0, ..., 7. A module is read through its own delay, by itself as by all others: a loop
through module j takes 2^j steps, so that an event from n steps ago is n / 2^j applications of tanh away, in the forward
and the backward pass. All modules are computed at every step. The Clockwork RNN computes module j at every 2^j-th step
only, holds it in between, and has no connections from fast to slow modules.

El Hihi and Bengio represent long-term dependencies by variables with a long time scale, in networks with delays and
multiple time scales. This layer has the delays only. It has the connections between all modules, in both directions,
and thus as many weights as a simple recurrent network of the same size.
"""

import math

import torch
from torch import Tensor, nn

from ....schedule import Schedule
from .model_layer import ModelLayer

MODULES = 8
"""The most modules; the longest delay is 128 steps."""


class HierarchicalDelays(ModelLayer):
    """A simple recurrent layer whose modules are read 1, 2, 4, ... steps later.

    >>> HierarchicalDelays(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        schedule = Schedule.exponential(units, min(MODULES, units))
        self.delays, self.sizes = schedule.periods, schedule.sizes
        bound = 1.0 / math.sqrt(units)
        self.weight_ih = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(units, units).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Two matrices and a bias."""
        return units * (input_size + units + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of the matrices once."""
        return units * (input_size + units)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.weight_ih.T + self.bias
        weight = self.weight_hh.T
        zeros = drive.new_zeros(drive.shape[1:]).split(self.sizes, -1)
        # the outputs of each module by time, after as many zeros as its delay
        pasts = [[zero] * delay for zero, delay in zip(zeros, self.delays, strict=True)]
        states = []
        for t, z in enumerate(drive.unbind(0)):
            delayed = torch.cat([past[t] for past in pasts], -1)
            h = torch.tanh(torch.addmm(z, delayed, weight))
            states.append(h)
            for past, part in zip(pasts, h.split(self.sizes, -1), strict=True):
                past.append(part)
        return torch.stack(states) if states else drive
