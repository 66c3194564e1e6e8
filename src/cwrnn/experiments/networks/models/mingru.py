"""Minimal GRU (Feng et al. 2024, "Were RNNs all we needed?", minGRU): gates and candidates that read the input only.

    x_1(t) = V x(t) + c
    x_2(t) = x_1(t) + h_1(t)
    x_3(t) = x_2(t) + h_2(t),   the state that a readout reads, with for k = 1, 2

    h_k(t) = (1 - z_k(t)) h_k(t-1) + z_k(t) g( U_k x_k(t) ),   z_k(t) = sigmoid( W_k x_k(t) )
    g(a)   = a + 1/2 if a >= 0, else sigmoid(a)

Gates and candidates do not read h(t-1), so many steps of a layer are computed at once, as a sum in log space. The gates
of one layer cannot depend on the past; those of the second can. Residual connections join the layers, as in the
language model of the package minGRU-pytorch, which has the layers, without biases. That model's normalisation and the
networks between its layers are left out. A layer without input is driven by the bias c.
"""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from ....extras import require
from .model_layer import ModelLayer

LAYERS = 2
"""The minimal GRUs, one above the other."""
BLOCK = 128
"""The steps that are computed at once. The sum in log space loses digits as it grows: with all of 5000 steps at once,
gradients in float32 are wrong by 2 %, with blocks of 128 by 0.001 %. The speed is the same."""
WIDE = 2048
"""The values per step, sequences times units, from which a plain loop over all steps is faster on a CPU."""


class MinimalGRU(ModelLayer):
    """Two minimal GRUs with residual connections; its states are the sum of the projected input and both layers.

    >>> MinimalGRU(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    packages: ClassVar[tuple[str, ...]] = ("minGRU_pytorch",)

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        package = require("minGRU_pytorch", extra="models", purpose="the method mingru")
        # not nn.Linear, which warns about an input of size 0
        bound = 1.0 / math.sqrt(max(input_size, 1))
        self.weight_ih = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))
        self.layers = nn.ModuleList(package.minGRU(units) for _ in range(LAYERS))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The projection with its bias, and a candidate's and a gate's matrix per layer."""
        return units * (input_size + 1) + LAYERS * 2 * units * units

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of a matrix once, and the gate, as a step by step evaluation takes them."""
        return units * input_size + LAYERS * units * (2 * units + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The sum of the projected input and of both layers' states (T, B, units)."""
        x = input @ self.weight_ih.T + self.bias
        is_wide = x.device.type == "cpu" and x.shape[1] * self.hidden_size >= WIDE
        run = _run_in_steps if is_wide else _run_in_blocks
        for layer in self.layers:
            x = x + run(layer, x)
        return x


def _run_in_steps(layer: nn.Module, input: Tensor) -> Tensor:
    """The states (T, B, units) of a minimal GRU, one step after the other."""
    candidates, gates = layer.get_submodule("to_hidden_and_gate")(input).chunk(2, dim=-1)
    candidates = torch.where(candidates >= 0, candidates + 0.5, candidates.sigmoid())
    h = input.new_zeros(input.shape[1:])
    states = []
    for candidate, gate in zip(candidates.unbind(0), gates.sigmoid().unbind(0), strict=True):
        h = torch.lerp(h, candidate, gate)
        states.append(h)
    return torch.stack(states) if states else input


def _run_in_blocks(layer: nn.Module, input: Tensor) -> Tensor:
    """The states (T, B, units) of a minimal GRU, whose state is handed from block to block."""
    hidden = None
    blocks = []
    # the package's layers want (B, T, units)
    for block in input.transpose(0, 1).split(BLOCK, dim=1):
        states, hidden = layer(block, hidden, return_next_prev_hidden=True)
        # the layer takes the logarithm, whose gradient at 0 is not a number
        hidden = hidden.clamp_min(torch.finfo(hidden.dtype).tiny)
        blocks.append(states)
    return torch.cat(blocks, dim=1).transpose(0, 1)
