"""A layer without clocks, of which other models are built: one module of period 1, computed by the fastest backend.

`cwrnn.reference` has the equations of the cells tanh, LSTM and GRU. torch's layers compute the same, but they refuse
an input without features or without steps, `torch.func.vmap` cannot run them, and training them takes longer on a CPU.
The parameters are those of a `ClockworkLayer`; the state_dict has no schedule, because there is only one.
"""

import math

import torch
from torch import Tensor, nn

from ....backends import select_backend
from ....cells import CELLS
from ....schedule import Schedule


class UnclockedLayer(nn.Module):
    """A recurrent layer that maps (T, B, I) to its states (T, B, units), from a state of zeros.

    Args:
        cell: "tanh", "relu", "lstm" or "gru"
        input_size: I, which may be 0
        units: the number of units

    >>> UnclockedLayer("gru", 3, 8)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 8])
    """

    def __init__(self, cell: str, input_size: int, units: int) -> None:
        super().__init__()
        self.cell = cell
        self.schedule = Schedule((1,), (units,))
        gates, biases, _ = CELLS[cell]
        bound = 1.0 / math.sqrt(units)
        self.weight_ih = nn.Parameter(torch.empty(gates * units, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(gates * units, units).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(biases * units).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(cell: str, input_size: int, units: int) -> int:
        """The weights and biases of a layer with this cell and these sizes."""
        gates, biases, _ = CELLS[cell]
        return units * (gates * (input_size + units) + biases)

    @staticmethod
    def count_multiply_adds(cell: str, input_size: int, units: int) -> int:
        """The multiply-adds of one step of one sequence: every weight once."""
        return CELLS[cell].gates * units * (input_size + units)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units) for the input (T, B, I)."""
        backend = select_backend("auto", input.device, input.dtype, self.schedule, self.cell, input.shape[1])
        weights = self.weight_ih, self.weight_hh, self.bias
        return backend.run(input, *weights, None, self.schedule, 0, self.cell, None, True, None).hold()
