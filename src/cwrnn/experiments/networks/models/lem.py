"""Long expressive memory (Rusch et al. 2022, LEM): gates that are time steps, one for each of two coupled states.

    d(t)  = dt sigmoid( W_1 y(t-1) + V_1 x(t) + b_1 )
    d'(t) = dt sigmoid( W_2 y(t-1) + V_2 x(t) + b_2 )
    z(t)  = (1 - d(t))  z(t-1) + d(t)  tanh( W_z y(t-1) + V_z x(t) + b_z )
    y(t)  = (1 - d'(t)) y(t-1) + d'(t) tanh( W_y z(t)   + V_y x(t) + b_y )

y is the state that a readout reads. dt, the longest step, is the authors' for sequential MNIST. In torchrecurrent's
LEMCell (0.2.5), y(t) reads z(t-1) where the paper and the authors' code have z(t). So the equations are computed here;
a step of that cell equals ours if it is given z(t).
"""

import math

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer

DT = 0.21
"""The authors' longest step for sequential MNIST; for permuted sequential MNIST it is 0.31."""


class LongExpressiveMemory(ModelLayer):
    """A layer of two coupled states whose units learn their time steps; its states are y.

    >>> LongExpressiveMemory(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        bound = 1.0 / math.sqrt(units)
        # in all of these, the rows are those of d', d, z and y, in the order of the authors' cell
        self.weight_ih = nn.Parameter(torch.empty(4 * units, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * units, units).uniform_(-bound, bound))
        self.weight_zh = nn.Parameter(torch.empty(units, units).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * units).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Four matrices each for the input and the states, and four biases."""
        return 4 * units * (input_size + units + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of a matrix once, and four products per unit: dt and the step, for z and for y."""
        return 4 * units * (input_size + units + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states y (T, B, units)."""
        N = self.hidden_size
        drive = input @ self.weight_ih.T + self.bias
        to_gates, to_y = drive.split([3 * N, N], dim=-1)
        W, W_y = self.weight_hh.T, self.weight_zh.T
        y = z = drive.new_zeros(*drive.shape[1:-1], N)
        states = []
        for gates, v in zip(to_gates.unbind(0), to_y.unbind(0), strict=True):
            steps, candidate = (gates + y @ W).split([2 * N, N], dim=-1)
            step_y, step_z = (DT * torch.sigmoid(steps)).split(N, dim=-1)
            z = torch.lerp(z, torch.tanh(candidate), step_z)
            y = torch.lerp(y, torch.tanh(v + z @ W_y), step_y)
            states.append(y)
        return torch.stack(states) if states else to_y
