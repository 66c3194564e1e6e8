"""Initial values: the paper's distributions, orthogonal recurrent weights, and biases that make gated cells hold.

>>> import torch, cwrnn
>>> rnn = cwrnn.init.paper_(cwrnn.ClockworkRNN(13, 104), generator=torch.Generator().manual_seed(0))
>>> round(rnn.weight_ih_l0.std().item(), 2)
0.1
"""

import torch
from torch import nn

from .cells import NONLINEARITIES
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
def orthogonal_(module: nn.Module, gain: float = 1.0, generator: torch.Generator | None = None) -> nn.Module:
    """Draws the weights of every module to itself as orthogonal matrices times `gain`, and returns `module`.

    It changes the recurrent weights of simple cells: layers `ClockworkRNN` and `torch.nn.RNN` in `module`. A state that
    an orthogonal matrix multiplies keeps its length, so gradients reach far back from the start. Weights between
    modules, of the input and biases stay as they are, and so do gated cells, which have gates for this.

    Args:
        module: any module, such as a layer or a network
        gain: the factor of the orthogonal matrices. Default: 1.0
        generator: the source of random numbers. Default: torch's global one

    >>> import cwrnn
    >>> rnn = orthogonal_(cwrnn.ClockworkRNN(3, 8, schedule=[1, 2]))
    >>> slow = rnn.weight_hh_l0[4:, 4:]
    >>> torch.allclose(slow @ slow.T, torch.eye(4), atol=1e-5)
    True
    """
    for layer in module.modules():
        if isinstance(layer, ClockworkLayer):
            slices = layer.schedule.slices if layer.cell in NONLINEARITIES else ()
        else:
            slices = (slice(0, layer.hidden_size),) if isinstance(layer, nn.RNN) else ()
        for name, parameter in layer.named_parameters(recurse=False) if slices else ():
            if name.startswith("weight_hh"):
                for rows in slices:
                    # torch's own orthogonal_ of old versions takes no generator
                    normal = torch.empty_like(parameter[rows, rows]).normal_(generator=generator)
                    q, r = torch.linalg.qr(normal)
                    parameter[rows, rows] = gain * q * r.diagonal().sign()
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
