"""Leaky units with a time constant per module: a soft clock (Mozer 1992, reduced descriptions; Jaeger et al. 2007).

    h_i(t) = (1 - 1/P_i) h_i(t-1) + 1/P_i tanh( W_ih[i] x(t) + b[i] + sum over j of W_hh[i, j] h_j(t-1) )

Where a module of the Clockwork RNN holds its state for P_i steps, a leaky module follows its input with the time
constant P_i. There are up to 8 modules with time constants 1, 2, 4, ..., and every module reads all others.
"""

import math

import torch
from torch import Tensor, nn

from ....schedule import Schedule
from .model_layer import ModelLayer

MODULES = 8
"""The most modules."""


class LeakyRNN(ModelLayer):
    """A simple recurrent layer whose modules have time constants of 1, 2, 4, ... steps.

    >>> LeakyRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        schedule = Schedule.exponential(units, min(MODULES, units))
        constants = torch.repeat_interleave(torch.tensor(schedule.periods), torch.tensor(schedule.sizes))
        self.register_buffer("share", 1.0 / constants, persistent=False)
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
        """Every weight once, and the leak."""
        return units * (input_size + units + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.weight_ih.T + self.bias
        share = self.get_buffer("share").to(input.dtype)
        h = drive.new_zeros(drive.shape[1:])
        states = []
        for z in drive.unbind(0):
            h = torch.lerp(h, torch.tanh(z + h @ self.weight_hh.T), share)
            states.append(h)
        return torch.stack(states) if states else drive
