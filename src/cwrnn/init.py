"""Initial values: the distributions that the paper draws its parameters from, and biases that make gated cells hold.

>>> import torch, cwrnn
>>> rnn = cwrnn.init.paper_(cwrnn.ClockworkRNN(13, 104), generator=torch.Generator().manual_seed(0))
>>> round(rnn.weight_ih_l0.std().item(), 2)
0.1
"""

import torch
from torch import nn

from .layer import ClockworkLayer


@torch.no_grad()
def paper_(module: nn.Module, std: float = 0.1, generator: torch.Generator | None = None) -> nn.Module:
    """Draws every parameter of `module` from normal(0, std), as section 4 of the paper does, and returns `module`.

    Weights from fast modules to slow ones, which a Clockwork RNN does not have, stay zero.

    Args:
        module: any module, such as a layer or a network
        std: the standard deviation. Default: 0.1, that of the paper
        generator: the source of random numbers. Default: torch's global one

    >>> import cwrnn
    >>> rnn = paper_(cwrnn.ClockworkRNN(0, 40, schedule=9), generator=torch.Generator().manual_seed(0))
    >>> rnn.weight_hh_l0[-1, 0].item()
    0.0
    """
    for parameter in module.parameters():
        parameter.normal_(0.0, std, generator=generator)
    for layer in module.modules():
        if isinstance(layer, ClockworkLayer):
            layer.clear_forbidden_weights()
    return module


@torch.no_grad()
def forget_bias_(module: nn.Module, value: float = 1.0) -> nn.Module:
    """Sets the biases that decide how long the gated cells in `module` remember, and returns `module`.

    These are the biases of the forget gates f of a ClockworkLSTM and of the update gates z of a ClockworkGRU. At a
    tick, a unit keeps about the share 1 / (1 + exp(-value)) of its state. Layers without such gates or without biases
    stay as they are.

    Args:
        module: any module, such as a layer or a network
        value: the bias. Default: 1.0

    >>> import cwrnn
    >>> lstm = forget_bias_(cwrnn.ClockworkLSTM(3, 8), 5.0)
    >>> lstm.bias_l0[8:16].tolist()
    [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0]
    """
    for layer in module.modules():
        if isinstance(layer, ClockworkLayer) and layer.cell in ("lstm", "gru"):
            N = layer.hidden_size
            for name, parameter in layer.named_parameters(recurse=False):
                if name.startswith("bias"):
                    # gate 1 of both: i, f, g, o and r, z, n
                    parameter[N : 2 * N] = value
    return module
