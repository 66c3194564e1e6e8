"""Initial values of the paper."""

import torch
from torch import nn

from .layer import ClockworkRNN


@torch.no_grad()
def paper_(module: nn.Module, std: float = 0.1, generator: torch.Generator | None = None) -> nn.Module:
    """`module` with every parameter drawn anew from normal(0, std), the paper's section 4.

    Weights that a Clockwork RNN does not have stay zero.

    >>> rnn = paper_(ClockworkRNN(0, 40, schedule=9), generator=torch.Generator().manual_seed(0))
    >>> rnn.weight_hh_l0[-1, 0].item()
    0.0
    """
    for parameter in module.parameters():
        parameter.normal_(0.0, std, generator=generator)
    for layer in module.modules():
        if isinstance(layer, ClockworkRNN):
            layer.clear_forbidden_weights()
    return module
