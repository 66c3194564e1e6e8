r"""The specification of the Clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014).

    for t = t0, t0 + 1, ...
        for each module i with t mod P_i == 0:
            h_i(t) = f( W_ih[i] x(t) + b[i] + sum over j >= i of W_hh[i, j] h_j(t - 1) )
        every other module holds: h_i(t) = h_i(t - 1), bit for bit

One loop over time and one over modules, nothing clever: this file defines what is true, and everything else in the
package is tested against it. It refuses to be fast.

The letters of the whole code base:

    B   batch                       G    number of modules
    T   time steps of a sequence    P_i  period of module i
    I   inputs                      K_i  units of module i
    N   hidden units                S    replicas: independent networks side by side

Modules are sorted by increasing period. `t` is the absolute clock and counts from 0, so every module ticks at t = 0.
A sequence that continues a stream starts at t = t0.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .schedule import Schedule

NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": torch.tanh, "relu": torch.relu}
"""The function f, by its name in torch."""


def clockwork_reference(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    schedule: Schedule,
    t0: int = 0,
    nonlinearity: str = "tanh",
) -> Tensor:
    """The hidden states of a Clockwork RNN at every time step, (T, B, N).

    Args:
        input: (T, B, I); I may be 0
        weight_ih: (N, I)
        weight_hh: (N, N), of which only the blocks on and above the diagonal are read
        bias: (N,) or None
        h0: (B, N), the hidden state at t0 - 1
        schedule: periods and sizes of the modules
        t0: the clock at the first step of `input`
        nonlinearity: "tanh" or "relu"

    >>> schedule = Schedule(periods=(1, 2), sizes=(1, 1))
    >>> output = clockwork_reference(
    ...     input=torch.ones(4, 1, 1),
    ...     weight_ih=torch.ones(2, 1),
    ...     weight_hh=torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    ...     bias=None,
    ...     h0=torch.zeros(1, 2),
    ...     schedule=schedule,
    ...     nonlinearity="relu",
    ... )
    >>> output[:, 0].tolist()  # the slow module counts its ticks, and the fast one reads the count one step later
    [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [3.0, 2.0]]
    """
    f = NONLINEARITIES[nonlinearity]
    h = list(h0.split(schedule.sizes, dim=-1))
    output = []
    for step, x in enumerate(input.unbind(0)):
        t = t0 + step
        previous = list(h)
        for i, period in enumerate(schedule.periods):
            if t % period != 0:
                continue
            rows = schedule.slices[i]
            # eq. (1): the block-row of module i, which ends at the diagonal
            a = x @ weight_ih[rows].T
            if bias is not None:
                a = a + bias[rows]
            for j in range(i, schedule.modules):
                a = a + previous[j] @ weight_hh[rows, schedule.slices[j]].T
            h[i] = f(a)
        output.append(torch.cat(h, dim=-1))
    # a sequence may be empty
    states = torch.stack(output) if output else h0.new_zeros((0, *h0.shape))
    # no units that read everything: where no module ticks, the gradient of every argument is zero, but defined
    nobody = input @ weight_ih[:0].T + h0 @ weight_hh[:0].T
    return torch.cat((states, nobody if bias is None else nobody + bias[:0]), dim=-1)
