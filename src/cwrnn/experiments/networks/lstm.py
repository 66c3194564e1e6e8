"""Many LSTMs without clocks at once: S networks, each on a sequence of its own.

    i(t) = sigmoid( W_i x(t) + U_i h(t-1) + p_i * c(t-1) + b_i )        input gate
    f(t) = sigmoid( W_f x(t) + U_f h(t-1) + p_f * c(t-1) + b_f )        forget gate
    g(t) = tanh   ( W_g x(t) + U_g h(t-1)                + b_g )        input
    c(t) = f(t) * c(t-1) + i(t) * g(t)                                  cell
    o(t) = sigmoid( W_o x(t) + U_o h(t-1) + p_o * c(t)   + b_o )        output gate
    h(t) = o(t) * tanh(c(t))

Without peepholes there are no p. The initial state is zero. `ClockworkLSTM` with one module of period 1 computes the
same; its kernel takes up to five times as long for networks as small as the paper's (docs/log.md).
"""

import torch
from torch import Tensor

from ...kernels.cpu import loader
from ...kernels.cpu import lstm as kernel
from ...kernels.eligibility import is_plain_eager


def run(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ch: Tensor | None,
    bias: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """The hidden states (S, T, N) of S networks, each on a sequence of its own, zero beyond that sequence's end.

    The arguments are those of `plain`, which runs where the kernel cannot.
    """
    tensors = input, weight_ih, weight_hh, weight_ch, bias, lengths
    if loader.refuse(input.device, input.dtype) is not None or not is_plain_eager(tensors):
        return plain(*tensors)
    return kernel.run(*tensors)


def plain(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    weight_ch: Tensor | None,
    bias: Tensor,
    lengths: Tensor | None = None,
) -> Tensor:
    """The hidden states (S, T, N), by the equations above. The kernel must match it.

    Args:
        input: (S, T, I)
        weight_ih: (S, 4 N, I)
        weight_hh: (S, 4 N, N)
        weight_ch: (S, 3, N), or None
        bias: (S, 4 N)
        lengths: (S,): how many steps of each sequence are read; all if None

    >>> plain(torch.zeros(2, 5, 3), torch.zeros(2, 16, 3), torch.zeros(2, 16, 4), None, torch.zeros(2, 16)).shape
    torch.Size([2, 5, 4])
    """
    S, T, _ = input.shape
    N = weight_hh.shape[-1]
    if weight_ch is None:
        weight_ch = weight_hh.new_zeros(S, 3, N)
    p_i, p_f, p_o = weight_ch.unbind(1)
    h = c = input.new_zeros(S, N)
    states = []
    for t in range(T):
        x = input[:, t] if lengths is None else torch.where((t < lengths)[:, None], input[:, t], 0)
        drive = (weight_ih * x[:, None]).sum(-1) + (weight_hh * h[:, None]).sum(-1) + bias
        z_i, z_f, z_g, z_o = drive.chunk(4, dim=-1)
        c = torch.sigmoid(z_f + p_f * c) * c + torch.sigmoid(z_i + p_i * c) * torch.tanh(z_g)
        h = torch.sigmoid(z_o + p_o * c) * torch.tanh(c)
        states.append(h if lengths is None else torch.where((t < lengths)[:, None], h, 0))
    return torch.stack(states, dim=1) if states else input.new_zeros(S, 0, N)
