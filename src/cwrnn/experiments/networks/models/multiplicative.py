"""The Multiplicative RNN, whose input chooses the recurrent matrix (Sutskever, Martens & Hinton 2011).

    f(t) = (W_fx x(t)) * (W_fh h(t-1))
    h(t) = tanh( W_hf f(t) + W_hx x(t) + b ),    h(-1) = 0

The recurrent matrix of a step is W_hf diag(W_fx x(t)) W_fh: a tensor of three axes, input by unit by unit, in a
factored form with as many factors as units. If there is no input (I = 0), it has no factors to choose from: each is 1,
and the recurrent matrix is W_hf W_fh at all steps. There is no bias within W_fx x(t), as in the paper, whose inputs are
one-hot: a step whose input is all zeros has no recurrent matrix, and forgets the state.
"""

import math

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer


class MultiplicativeRNN(ModelLayer):
    """A simple recurrent layer with a recurrent matrix that depends on the input, in factored form.

    >>> MultiplicativeRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        bound = 1.0 / math.sqrt(units)
        # a factor of an input of variance 1 has variance 1, and the recurrent matrix then has the variance of a matrix
        # that is drawn with `bound`: with `bound` for all three, it would start close to zero
        bound_fx = math.sqrt(3.0 / max(input_size, 1))
        bound_factor = 3.0**0.25 * bound
        self.weight_fx = nn.Parameter(torch.empty(units, input_size).uniform_(-bound_fx, bound_fx))
        self.weight_fh = nn.Parameter(torch.empty(units, units).uniform_(-bound_factor, bound_factor))
        self.weight_hf = nn.Parameter(torch.empty(units, units).uniform_(-bound_factor, bound_factor))
        self.weight_hx = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Two matrices of the input, two of the state, and a bias."""
        return units * (2 * input_size + 2 * units + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of the matrices once, and the products of the factors."""
        return units * (2 * input_size + 2 * units + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.weight_hx.T + self.bias
        factors = input @ self.weight_fx.T
        if not input.shape[-1]:
            # a sum of no products is 0
            factors = factors + 1.0
        to_factors, from_factors = self.weight_fh.T, self.weight_hf.T
        h = drive.new_zeros(drive.shape[1:])
        states = []
        for z, factor in zip(drive.unbind(0), factors.unbind(0), strict=True):
            h = torch.tanh(torch.addmm(z, factor * (h @ to_factors), from_factors))
            states.append(h)
        return torch.stack(states) if states else drive
