"""Dilated RNN: a stack of layers whose recurrence skips 1, 2, 4, ... steps (Chang et al. 2017).

    h_l(t) = GRU( h_{l-1}(t), h_l(t - 2^l) )      for layers l = 0, 1, ..., L-1, with h_{-1}(t) = x(t)

States before the first step are zero. Where a module of the Clockwork RNN is computed at every P_i-th step, a dilated
layer is computed at every step, as 2^l interleaved sequences that never meet inside the layer. These sequences run
side by side, as a batch. The paper fuses the states of neighbouring steps if the lowest dilation is more than 1; here
it is 1, so the readout reads the top layer.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from .model_layer import ModelLayer
from .unclocked import UnclockedLayer

LAYERS = 6
"""The number of layers: dilations 1 to 32."""


class DilatedRNN(ModelLayer):
    """Six layers of `units` GRU cells each, with dilations 1, 2, 4, ..., 32; the states are those of the top layer.

    >>> import torch
    >>> DilatedRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        self.layers = nn.ModuleList(
            UnclockedLayer("gru", units if layer else input_size, units) for layer in range(LAYERS)
        )

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The lowest layer, which reads the input, and those above it."""
        upper = UnclockedLayer.count_parameters("gru", units, units)
        return UnclockedLayer.count_parameters("gru", input_size, units) + (LAYERS - 1) * upper

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of every layer once: dilation saves no computation."""
        upper = UnclockedLayer.count_multiply_adds("gru", units, units)
        return UnclockedLayer.count_multiply_adds("gru", input_size, units) + (LAYERS - 1) * upper

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units) of the top layer."""
        T, B, _ = input.shape
        longest = 1 << (LAYERS - 1)
        # every layer divides the steps among its interleaved sequences; the steps at the end that fill up are cut off
        states = F.pad(input, (0, 0, 0, 0, 0, -T % longest))
        steps = len(states)
        for layer, recurrence in enumerate(self.layers):
            dilation = 1 << layer
            interleaved = states.reshape(steps // dilation, dilation * B, states.shape[2])
            states = recurrence(interleaved).reshape(steps, B, self.hidden_size)
        return states[:T]
