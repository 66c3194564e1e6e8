r"""The specification of the Clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014), and of its gated cells.

    for t = t0, t0 + 1, ...
        for each module i with t mod P_i == 0, and each gate k of its cell:
            a^k = W_ih^k[i] x(t) + b^k[i]
            m^k = sum over j >= i of W_hh^k[i, j] h_j(t - 1)
            tanh, relu    h_i(t) = f(a + m)
            lstm          c_i(t) = s(a^f + m^f) c_i(t - 1) + s(a^i + m^i) tanh(a^g + m^g)
                          h_i(t) = s(a^o + m^o) tanh(c_i(t))
                          peepholes add p^i c_i(t - 1) to gate i, p^f c_i(t - 1) to gate f and p^o c_i(t) to gate o
            gru           n = tanh(a^n + s(a^r + m^r) (m^n + d[i])),   z = s(a^z + m^z)
                          h_i(t) = (1 - z) n + z h_i(t - 1)
        every other module holds: h_i(t) = h_i(t - 1) and c_i(t) = c_i(t - 1), bit for bit

s is the logistic function. c never leaves its module. With one module of period 1, these are the layers of torch.nn.

One loop over time and one over modules, nothing clever: this file defines what is true, and everything else in the
package is tested against it. It refuses to be fast.

The letters of the whole code base:

    B   batch                       G    number of modules
    T   time steps of a sequence    P_i  period of module i
    I   inputs                      K_i  units of module i
    N   hidden units                S    replicas: independent networks side by side

Modules are sorted by increasing period. `t` is the absolute clock and counts from 0, so every module ticks at t = 0.
A sequence that continues a stream starts at t = t0. If the sequences of a batch have clocks of their own, each is
computed as if it were alone. Weights and biases of gated cells are gate-major, as torch's.
"""

import torch
from torch import Tensor

from .cells import CELLS, NONLINEARITIES
from .schedule import Schedule


def clockwork_reference(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    schedule: Schedule,
    t0: int = 0,
    cell: str = "tanh",
    weight_ch: Tensor | None = None,
) -> Tensor:
    """The states of a Clockwork RNN at every time step: h (T, B, N), or for the LSTM h and c side by side (T, B, 2 N).

    Args:
        input: (T, B, I); I may be 0
        weight_ih: (gates N, I), with 1 gate for tanh and relu, i, f, g, o for the LSTM, and r, z, n for the GRU
        weight_hh: (gates N, N), of which only the blocks on and above the diagonal of every gate are read
        bias: (gates N), or for the GRU (4 N), b of r, z and n and then d; or None
        h0: (B, N), the state at t0 - 1; for the LSTM (B, 2 N), h and c side by side
        schedule: periods and sizes of the modules
        t0: the clock at the first step of `input`
        cell: "tanh", "relu", "lstm" or "gru"
        weight_ch: (3 N), the peepholes of the LSTM's gates i, f and o, or None

    >>> schedule = Schedule(periods=(1, 2), sizes=(1, 1))
    >>> output = clockwork_reference(
    ...     input=torch.ones(4, 1, 1),
    ...     weight_ih=torch.ones(2, 1),
    ...     weight_hh=torch.tensor([[0.0, 1.0], [0.0, 1.0]]),
    ...     bias=None,
    ...     h0=torch.zeros(1, 2),
    ...     schedule=schedule,
    ...     cell="relu",
    ... )
    >>> output[:, 0].tolist()  # the slow module counts its ticks, and the fast one reads the count one step later
    [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [3.0, 2.0]]
    """
    s, tanh = torch.sigmoid, torch.tanh
    N, gates, slices, modules = schedule.hidden_size, range(CELLS[cell].gates), schedule.slices, range(schedule.modules)
    # eq. (1): the block-rows of module i, one for each gate, which begin at the diagonal
    W_ih = [[weight_ih[_rows(k, i, schedule)] for k in gates] for i in modules]
    W_hh = [[weight_hh[_rows(k, i, schedule), slices[i].start :] for k in gates] for i in modules]
    b = [[0 if bias is None else bias[_rows(k, i, schedule)] for k in range(CELLS[cell].biases)] for i in modules]
    p = [[weight_ch[_rows(k, i, schedule)] for k in range(3)] for i in modules] if weight_ch is not None else []
    h = [h0[..., units] for units in slices]
    c = [h0[..., N + units.start : N + units.stop] for units in slices] if cell == "lstm" else []
    output = []
    for step, x in enumerate(input.unbind(0)):
        t = t0 + step
        previous = list(h)
        for i in modules:
            if t % schedule.periods[i] != 0:
                continue
            a = [x @ W_ih[i][k].T + b[i][k] for k in gates]
            m = [torch.cat(previous[i:], dim=-1) @ W_hh[i][k].T for k in gates]
            if cell == "lstm":
                input_gate, forget_gate, g, output_gate = (a[k] + m[k] for k in gates)
                if p:
                    input_gate, forget_gate = input_gate + p[i][0] * c[i], forget_gate + p[i][1] * c[i]
                c[i] = s(forget_gate) * c[i] + s(input_gate) * tanh(g)
                if p:
                    output_gate = output_gate + p[i][2] * c[i]
                h[i] = s(output_gate) * tanh(c[i])
            elif cell == "gru":
                n = tanh(a[2] + s(a[0] + m[0]) * (m[2] + b[i][3]))
                z = s(a[1] + m[1])
                h[i] = (1 - z) * n + z * previous[i]
            else:
                h[i] = NONLINEARITIES[cell](a[0] + m[0])
        output.append(torch.cat(h + c, dim=-1))
    # a sequence may be empty
    states = torch.stack(output) if output else h0.new_zeros((0, *h0.shape))
    # no units that read everything: where no module ticks, the gradient of every argument is zero, but defined
    nobody = input @ weight_ih[:0].T + h0[..., :N] @ weight_hh[:0].T
    for numbers in (bias, weight_ch):
        nobody = nobody if numbers is None else nobody + numbers[:0]
    return torch.cat((states, nobody), dim=-1)


def _rows(k: int, i: int, schedule: Schedule) -> slice:
    """The rows of module i among all units of gate k."""
    units = schedule.slices[i]
    return slice(k * schedule.hidden_size + units.start, k * schedule.hidden_size + units.stop)
