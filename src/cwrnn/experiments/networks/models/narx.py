"""NARX networks: recurrent connections with several delays (Lin, Horne, Tino & Giles 1996).

    h(t) = tanh( W x(t) + b + sum over k of U_k h(t - 2^k) ),    k = 0, ..., 5,    h(t) = 0 for t < 0

NARX stands for non-linear auto-regressive model with exogenous inputs. In the form of Lin et al. the output is fed
back; here it is the hidden layer, as the Clockwork paper describes the network: "additional sets of recurrent
connections with time lags of 2, 3 .. k time steps", which "introduce many additional parameters" and make the network
"run k times slower". Delays that are powers of two reach back 32 steps with 6 matrices instead of 32, and are the
periods of the Clockwork RNN (DiPietro et al. 2017 choose them for their NARX networks as well).
"""

import math

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer

DELAYS = (1, 2, 4, 8, 16, 32)
"""The delays in steps; each has a matrix of its own."""


class NARXRNN(ModelLayer):
    """A simple recurrent layer that reads its states of 1, 2, 4, 8, 16 and 32 steps ago.

    >>> NARXRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        bound = 1.0 / math.sqrt(units)
        # a unit reads six states: with the bound of a single one their sum would be too large
        bound_hh = 1.0 / math.sqrt(len(DELAYS) * units)
        self.weight_ih = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        # the matrices U_k stand side by side, for one product per step
        self.weight_hh = nn.Parameter(torch.empty(units, len(DELAYS) * units).uniform_(-bound_hh, bound_hh))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The matrix of the input, one for each delay, and a bias."""
        return units * (input_size + len(DELAYS) * units + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of the matrices once."""
        return units * (input_size + len(DELAYS) * units)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.weight_ih.T + self.bias
        weight = self.weight_hh.T
        longest = max(DELAYS)
        # the states by time, after as many zeros as the longest delay
        states = [drive.new_zeros(drive.shape[1:])] * longest
        for t, z in enumerate(drive.unbind(0), start=longest):
            delayed = torch.cat([states[t - delay] for delay in DELAYS], -1)
            states.append(torch.tanh(torch.addmm(z, delayed, weight)))
        return torch.stack(states[longest:]) if len(states) > longest else drive
