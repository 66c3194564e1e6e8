"""Connections with a memory: the Temporal-Kernel RNN (Sutskever & Hinton 2010).

    h(t) = tanh( W x(t) + b + sum over k = 1, 2, ... of U K(k) h(t - k) ),    h(t) = 0 for t < 0

In the general form every connection has a kernel of its own over all past steps, and a step costs as much as all
steps before it. This layer has the efficient form: the kernels are exponential, with one decay per unit that sends,

    K(k) = diag( (1 - lambda) lambda^(k-1) ),
    S(t) = lambda S(t-1) + (1 - lambda) h(t-1),    h(t) = tanh( W x(t) + b + U S(t) ),    S(0) = 0

so that each unit has a trace S of its past, and a step costs the same at all times. The factor 1 - lambda makes the
sum of a kernel 1. A leaky unit (`leaky.py`) shows its slow trace to the readout; here the readout sees the fast h.

The decays are trained: lambda = sigmoid(decay). At first lambda = exp(-1 / tau) with time constants tau that are spread
evenly in their logarithms over the units, from 1 step to 128 steps: the periods of a Clockwork RNN of 8 modules.
"""

import math

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer

LONGEST = 128.0
"""The longest initial time constant in steps."""


class TemporalKernelRNN(ModelLayer):
    """A simple recurrent layer that reads exponential traces of its past states.

    >>> TemporalKernelRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        bound = 1.0 / math.sqrt(units)
        self.weight_ih = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(units, units).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))
        constants = torch.logspace(0.0, math.log2(LONGEST), units, base=2.0)
        # sigmoid(decay) = exp(-1 / constants)
        self.decay = nn.Parameter(-torch.expm1(1.0 / constants).log())

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Two matrices, a bias and the decays."""
        return units * (input_size + units + 2)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of the matrices once, and the decays."""
        return units * (input_size + units + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.weight_ih.T + self.bias
        weight = self.weight_hh.T
        # 1 - lambda, without the rounding of the subtraction
        share = torch.sigmoid(-self.decay)
        h = trace = drive.new_zeros(drive.shape[1:])
        states = []
        for z in drive.unbind(0):
            trace = torch.lerp(trace, h, share)
            h = torch.tanh(torch.addmm(z, trace, weight))
            states.append(h)
        return torch.stack(states) if states else drive
