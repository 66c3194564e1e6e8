"""Initial values: the distributions that the paper draws its parameters from.

>>> import torch, cwrnn
>>> rnn = cwrnn.init.paper_(cwrnn.ClockworkRNN(13, 104), generator=torch.Generator().manual_seed(0))
>>> round(rnn.weight_ih_l0.std().item(), 2)
0.1
"""

import torch
from torch import nn

from .rnn import ClockworkRNN


@torch.no_grad()
def paper_(module: nn.Module, std: float = 0.1, generator: torch.Generator | None = None) -> nn.Module:
    """Draws every parameter of `module` from normal(0, std), as section 4 of the paper does, and returns `module`.

    Weights from fast modules to slow ones, which a Clockwork RNN does not have, stay zero.

    Args:
        module: any module, such as a layer or a network
        std: the standard deviation. Default: 0.1, that of the paper
        generator: the source of random numbers. Default: torch's global one

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
