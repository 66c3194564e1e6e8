"""Models: the three networks that the paper compares, with one hidden layer and a linear readout each.

    cw     Clockwork RNN; periods 1, 2, 4, ...
    srn    simple recurrent network (Elman): a Clockwork RNN with one module of period 1
    lstm   Long Short-Term Memory, with peephole connections unless they are refused

Every parameter begins as a draw from normal(0, 0.1), but for the bias of LSTM's forget gates, which begins as 5.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .. import init
from ..layer import ClockworkRNN
from ..readout import Readout
from ..schedule import Schedule

KINDS = ("cw", "srn", "lstm")
METHODS = ("srn", "lstm", "cw")
SIZES = (100, 250, 500, 1000)
HIDDEN = {
    "srn": {100: 9, 250: 15, 500: 22, 1000: 31},
    "lstm": {100: 4, 250: 7, 500: 10, 1000: 15},
    "cw": {100: 11, 250: 19, 500: 27, 1000: 40},
}


def hidden_for(
    method: str, size: int, *, input_size: int = 0, output_size: int = 1, modules: int = 9, peepholes: bool = True
) -> int:
    """Shim."""
    _check_kind(method)
    if size in HIDDEN[method]:
        return HIDDEN[method][size]
    hidden = modules if method == "cw" else 1
    if parameter_count(method, hidden, modules=modules, peepholes=peepholes) > size:
        raise ValueError(f"size {size} is too small for {method}")
    while parameter_count(method, hidden + 1, modules=modules, peepholes=peepholes) <= size:
        hidden += 1
    return hidden


def build(
    kind: str,
    hidden_size: int,
    input_size: int = 0,
    output_size: int = 1,
    *,
    modules: int = 9,
    peepholes: bool = True,
    forget_bias: float = 5.0,
    seed: int = 0,
) -> "Network":
    """A network with its initial weights, the same for the same seed.

    Args:
        kind: "cw", "srn" or "lstm"
        hidden_size: hidden units, or cells of an LSTM
        input_size: features of the input, 0 if there is none
        output_size: linear outputs
        modules: modules of a Clockwork RNN; the others have none
        peepholes: whether an LSTM's gates see its cells
        forget_bias: initial bias of an LSTM's forget gates
        seed: of the initial weights

    >>> build("cw", 40)(torch.zeros(320, 1, 0)).shape
    torch.Size([320, 1, 1])
    """
    _check_kind(kind)
    layer: ClockworkRNN | LSTM
    if kind == "lstm":
        layer = LSTM(input_size, hidden_size, peepholes=peepholes)
    else:
        layer = ClockworkRNN(input_size, hidden_size, schedule=modules if kind == "cw" else 1)
    network = Network(layer, output_size)
    init.paper_(network, generator=torch.Generator().manual_seed(seed))
    if isinstance(layer, LSTM):
        nn.init.constant_(layer.bias[hidden_size : 2 * hidden_size], forget_bias)
    return network


def parameter_count(
    kind: str, hidden_size: int, input_size: int = 0, output_size: int = 1, *, modules: int = 9, peepholes: bool = True
) -> int:
    """The parameters of such a network, as the paper counts them: the periods of a Clockwork RNN are included.

    >>> [parameter_count("cw", 40), parameter_count("srn", 31), parameter_count("lstm", 15, peepholes=False)]
    [980, 1024, 976]
    """
    _check_kind(kind)
    if kind == "cw":
        return Schedule.exponential(hidden_size, modules).parameter_count(input_size, output_size)
    # one bias per unit
    layer = hidden_size * (input_size + hidden_size + 1)
    if kind == "lstm":
        # an input and three gates, each a layer of its own; every gate sees the cell
        layer = 4 * layer + 3 * hidden_size * peepholes
    return layer + output_size * (hidden_size + 1)


class Network(nn.Module):
    """A hidden layer and its linear readout at every time step."""

    def __init__(self, layer: "ClockworkRNN | LSTM", output_size: int) -> None:
        super().__init__()
        self.layer = layer
        self.readout = Readout(layer.hidden_size, output_size)

    def forward(self, input: Tensor) -> Tensor:
        """The outputs (T, B, O) for the input (T, B, I)."""
        hidden = self.layer.ticks(input)[0] if isinstance(self.layer, ClockworkRNN) else self.layer(input)
        output: Tensor = self.readout(hidden)
        return output


class LSTM(nn.Module):
    """Long Short-Term Memory whose gates see the cells, which `torch.nn.LSTM` does not offer.

    .. code-block:: none

        i(t) = sigmoid( W_i x(t) + U_i h(t-1) + p_i * c(t-1) + b_i )        input gate
        f(t) = sigmoid( W_f x(t) + U_f h(t-1) + p_f * c(t-1) + b_f )        forget gate
        g(t) = tanh   ( W_g x(t) + U_g h(t-1)                + b_g )        input
        c(t) = f(t) * c(t-1) + i(t) * g(t)                                  cell
        o(t) = sigmoid( W_o x(t) + U_o h(t-1) + p_o * c(t)   + b_o )        output gate
        h(t) = o(t) * tanh(c(t))

    Variables: weight_ih (4 N, I) and weight_hh (4 N, N) are W and U, bias (4 N) is b, in torch's order i, f, g, o;
    weight_ch (3, N) is p_i, p_f, p_o, or None without peepholes. The initial state is zero.
    """

    def __init__(self, input_size: int, hidden_size: int, *, peepholes: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_size, hidden_size))
        self.weight_ch = nn.Parameter(torch.empty(3, hidden_size)) if peepholes else None
        self.bias = nn.Parameter(torch.empty(4 * hidden_size))
        init.paper_(self)

    def forward(self, input: Tensor) -> Tensor:
        """The hidden states (T, B, N) for the input (T, B, I)."""
        drive = F.linear(input, self.weight_ih, self.bias)
        h, _ = _LSTMScan.apply(drive, self.weight_hh, self.weight_ch)  # type: ignore[no-untyped-call]
        hidden: Tensor = h
        return hidden


class _LSTMScan(torch.autograd.Function):
    """The recurrence of an LSTM: the states h and c, (T, B, N) each, for the drive W x + b, (T, B, 4 N).

    A net of 15 cells costs what its operations cost to call. Written by hand, a step takes ten of them forward
    and five back, and slices nothing: all that does not depend on the next step is computed for all time at once.
    """

    @staticmethod
    def forward(drive: Tensor, weight_hh: Tensor, weight_ch: Tensor | None) -> tuple[Tensor, Tensor]:
        N = weight_hh.shape[1]
        p_i, p_f, p_o = _peepholes(weight_hh, weight_ch)
        # i and f see the cell by the same product that lets them see h
        seen = F.pad(torch.cat((torch.diag(p_i), torch.diag(p_f)), dim=1), (0, 2 * N))
        weight = torch.cat((weight_hh.T, seen))
        # in place, because a slice costs more than what is done with it
        state = drive.new_zeros(drive.shape[1], 2 * N)
        gates = drive.new_empty(drive.shape[1], 4 * N)
        h, c = state.split(N, dim=1)
        i_and_f, g, o = gates.split((2 * N, N, N), dim=1)
        i, f = i_and_f.split(N, dim=1)
        states = []
        for a in drive.unbind(0):
            torch.addmm(a, state, weight, out=gates)
            i_and_f.sigmoid_()
            g.tanh_()
            c.mul_(f).addcmul_(i, g)
            o.addcmul_(p_o, c).sigmoid_()
            torch.mul(o, torch.tanh(c), out=h)
            states.append(state.clone())
        h, c = torch.stack(states).split(N, dim=-1)
        return h.contiguous(), c.contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, h_gradient: Tensor, c_gradient: Tensor) -> tuple[Tensor | None, ...]:
        drive, weight_hh, weight_ch, h, c = ctx.saved_tensors
        p_i, p_f, p_o = _peepholes(weight_hh, weight_ch)
        h_before, c_before = (F.pad(state[:-1], (0, 0, 0, 0, 1, 0)) for state in (h, c))

        # the gates once more, for all time at once
        z_i, z_f, z_g, z_o = (drive + F.linear(h_before, weight_hh)).chunk(4, dim=-1)
        i, f = torch.sigmoid(z_i + p_i * c_before), torch.sigmoid(z_f + p_f * c_before)
        g, o, squashed = torch.tanh(z_g), torch.sigmoid(z_o + p_o * c), torch.tanh(c)

        # what the preactivations' gradients are of c's (i, f, g) and of h's (o)
        slope_i, slope_f, slope_g = g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)
        slope_o = squashed * o * (1 - o)
        slopes = torch.cat((slope_i, slope_f, slope_g, slope_o), dim=-1).unbind(0)
        # c(t) acts on h(t), and on c(t + 1): directly, and through the gates that see it
        on_h = (o * (1 - squashed * squashed) + slope_o * p_o).unbind(0)
        on_c = (f + slope_i * p_i + slope_f * p_f).unbind(0)

        h_gradients, c_gradients = h_gradient.unbind(0), c_gradient.unbind(0)
        weight = weight_hh.contiguous()
        dh, carried = h_gradients[-1], c_gradients[-1]
        dz = []
        for t in reversed(range(len(slopes))):
            dc = torch.addcmul(carried, dh, on_h[t])
            dz.append(torch.cat((dc, dc, dc, dh), dim=1) * slopes[t])
            if t > 0:
                dh = torch.addmm(h_gradients[t - 1], dz[-1], weight)
                carried = torch.addcmul(c_gradients[t - 1], dc, on_c[t])
        drive_gradient = torch.stack(dz[::-1])

        weight_hh_gradient = drive_gradient.flatten(0, 1).T @ h_before.flatten(0, 1)
        if weight_ch is None:
            return drive_gradient, weight_hh_gradient, None
        dz_i, dz_f, _, dz_o = drive_gradient.chunk(4, dim=-1)
        weight_ch_gradient = torch.stack((dz_i * c_before, dz_f * c_before, dz_o * c)).sum(dim=(1, 2))
        return drive_gradient, weight_hh_gradient, weight_ch_gradient


def _peepholes(weight_hh: Tensor, weight_ch: Tensor | None) -> tuple[Tensor, ...]:
    """p_i, p_f and p_o, (N,) each; an LSTM without peepholes is one whose peepholes are zero."""
    return (weight_hh.new_zeros(3, weight_hh.shape[1]) if weight_ch is None else weight_ch).unbind(0)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
