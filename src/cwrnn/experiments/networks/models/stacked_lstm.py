"""A stack of two LSTMs: time scales by depth (Graves 2013; El Hihi and Bengio 1995).

For each layer l, which reads the states of the layer below, x_l(t) = h_{l-1}(t), and x_1(t) = x(t):

    i(t) = sigmoid( W_i x_l(t) + U_i h_l(t-1) + b_i )       input gate
    f(t) = sigmoid( W_f x_l(t) + U_f h_l(t-1) + b_f )       forget gate
    g(t) = tanh   ( W_g x_l(t) + U_g h_l(t-1) + b_g )       input
    o(t) = sigmoid( W_o x_l(t) + U_o h_l(t-1) + b_o )       output gate
    c_l(t) = f(t) * c_l(t-1) + i(t) * g(t)
    h_l(t) = o(t) * tanh(c_l(t))

A Clockwork RNN gives its modules different periods; here the upper layer can only learn to be slower. The cells are
those of torch.nn.LSTM, without Graves' peepholes and skip connections. b_f is 1 at the start.
"""

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer
from .unclocked import UnclockedLayer

LAYERS = 2
"""The number of layers."""
FORGET_BIAS = 1.0
"""The bias of the forget gates at the start."""


class StackedLSTM(ModelLayer):
    """Two LSTM layers, one above the other, with `units` cells each; the states are those of the upper one.

    >>> StackedLSTM(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        self.layers = nn.ModuleList(
            UnclockedLayer("lstm", units if layer else input_size, units) for layer in range(LAYERS)
        )
        with torch.no_grad():
            for layer in self.layers:
                # gates i, f, g, o
                layer.get_parameter("bias")[units : 2 * units] = FORGET_BIAS

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Both layers: four gates, each with two matrices and a bias."""
        upper = UnclockedLayer.count_parameters("lstm", units, units)
        return UnclockedLayer.count_parameters("lstm", input_size, units) + (LAYERS - 1) * upper

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of both layers once."""
        upper = UnclockedLayer.count_multiply_adds("lstm", units, units)
        return UnclockedLayer.count_multiply_adds("lstm", input_size, units) + (LAYERS - 1) * upper

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units) of the upper layer."""
        states = input
        for layer in self.layers:
            states = layer(states)
        return states
