"""Coupled oscillators (Rusch and Mishra 2021, coRNN): units that swing, driven and coupled by a tanh.

    z(t) = z(t-1) + dt ( tanh( W y(t-1) + W' z(t-1) + V x(t) + b ) - gamma y(t-1) - epsilon z(t-1) )
    y(t) = y(t-1) + dt z(t)

y is the position of each oscillator and the state that a readout reads; z is its velocity. dt, gamma (the square of the
frequency) and epsilon (the damping) are the authors' for sequential MNIST. The damping is explicit, as in their code.
The cell is torchrecurrent's, with one bias as in the paper. Its steps take 1.3 times as long as a loop that multiplies
the input by V once for all steps (784 steps, 128 sequences, 150 units), which is not worth a second implementation.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from ....extras import require
from .model_layer import ModelLayer

DT, GAMMA, EPSILON = 0.042, 2.7, 4.7
"""The authors' step, stiffness and damping for sequential MNIST; for permuted sequential MNIST 0.076, 0.4 and 8."""


class CoupledOscillators(ModelLayer):
    """A layer of coupled, damped and driven oscillators; its states are their positions.

    >>> CoupledOscillators(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    packages: ClassVar[tuple[str, ...]] = ("torchrecurrent",)

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, units
        package = require("torchrecurrent", extra="models", purpose="the method cornn")
        biases = {"recurrent_bias": False, "cell_bias": False}
        self.cell = package.coRNNCell(input_size, units, dt=DT, gamma=GAMMA, epsilon=EPSILON, **biases)
        # the cell adds these zeros, but they are no weights that a file should hold
        for name in ("bias_hh", "bias_ch"):
            self.cell.register_buffer(name, torch.zeros(units), persistent=False)
        # as the authors: the package's biases of zero would leave a layer without input at rest
        bound = 1.0 / math.sqrt(input_size + 2 * units)
        for parameter in self.cell.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The matrices V, W and W', and a bias."""
        return units * (input_size + 2 * units + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of a matrix once, and four products per oscillator: dt twice, gamma and epsilon."""
        return units * (input_size + 2 * units + 4)

    def forward(self, input: Tensor) -> Tensor:
        """The positions (T, B, units)."""
        y = z = input.new_zeros(*input.shape[1:-1], self.hidden_size)
        positions = []
        for x in input.unbind(0):
            y, z = self.cell(x, (y, z))
            positions.append(y)
        return torch.stack(positions) if positions else input.new_zeros(0, *y.shape)
