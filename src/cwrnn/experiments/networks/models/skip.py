"""Skip RNN: a layer that learns at which steps to update its state (Campos et al. 2018).

    u(t)    = round(v(t))                                       1: update, 0: hold
    s(t)    = u(t) S(s(t-1), x(t)) + (1 - u(t)) s(t-1)          the state
    d(t)    = sigmoid( W_p s(t) + b_p )                         how much an update comes nearer
    v(t+1)  = u(t) d(t) + (1 - u(t)) ( v(t) + min(d(t), 1 - v(t)) )

v(0) = 1, so the first step is an update. b_p = 1 at the start, so that untrained layers update at almost every step.
The gradient passes `round` as if it were the identity (straight-through). S is a GRU, one of the paper's cells, in
torch's form:

    r = sigmoid( W_r x(t) + b_r + U_r s(t-1) )
    z = sigmoid( W_z x(t) + b_z + U_z s(t-1) )
    n = tanh( W_n x(t) + b_n + r (U_n s(t-1) + b_d) )
    S = (1 - z) n + z s(t-1)

A module of the Clockwork RNN holds its state for a fixed number of steps; here the whole layer does, for as long as it
has learned. The paper's price per update, lambda, is added to the loss: lambda times the number of updates of a
sequence, averaged over the sequences.
"""

import math

import torch
from torch import Tensor, nn

from .model_layer import ModelLayer, attach_loss


class SkipRNN(ModelLayer):
    """A GRU that learns to skip updates of its state.

    Args:
        input_size: I, which may be 0
        units: the number of units
        price: what an update adds to the loss, the paper's lambda. Default: 0

    >>> SkipRNN(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int, price: float = 0.0) -> None:
        super().__init__()
        if not price >= 0:
            raise ValueError(f"price must be at least 0, got {price}")
        self.hidden_size = units
        self.price = price
        bound = 1.0 / math.sqrt(units)
        self.weight_ih = nn.Parameter(torch.empty(3 * units, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(3 * units, units).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(4 * units).uniform_(-bound, bound))
        self.weight_p = nn.Parameter(torch.empty(1, units).uniform_(-bound, bound))
        self.bias_p = nn.Parameter(torch.ones(1))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The GRU with its four biases per unit, and W_p and b_p."""
        return units * (3 * (input_size + units) + 4) + units + 1

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """An upper bound: every weight once, as if every step were an update.

        `measure_updates` says how many steps are updates.
        """
        return 3 * units * (input_size + units) + units

    @torch.no_grad()
    def measure_updates(self, input: Tensor) -> float:
        """The share of steps of the input (T, B, I) at which the state is updated; 0 if there are no steps.

        >>> layer = SkipRNN(3, 16)
        >>> _ = layer.bias_p.data.fill_(-2.5)
        >>> _ = layer.weight_p.data.zero_()
        >>> layer.measure_updates(torch.zeros(15, 2, 3))  # sigmoid(-2.5) is 0.076: 7 steps to 0.5
        0.2
        """
        updates = self._run(input)[1]
        return updates.sum().item() / max(updates.numel(), 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        states, updates = self._run(input)
        if self.price == 0:
            return states
        return attach_loss(states, self.price * updates.sum() / max(updates.shape[1], 1))

    def _run(self, input: Tensor) -> tuple[Tensor, Tensor]:
        """The states (T, B, units) and the updates u (T, B, 1)."""
        N = self.hidden_size
        bias, bias_d = self.bias.split((3 * N, N))
        drive_gates, drive_n = (input @ self.weight_ih.T + bias).split((2 * N, N), dim=-1)
        s = drive_n.new_zeros(drive_n.shape[1:])
        v = drive_n.new_ones(drive_n.shape[1], 1)
        states, updates = [], []
        for to_gates, to_n in zip(drive_gates.unbind(0), drive_n.unbind(0), strict=True):
            gates, n = (s @ self.weight_hh.T).split((2 * N, N), dim=-1)
            r, z = torch.sigmoid(to_gates + gates).chunk(2, dim=-1)
            n = torch.tanh(torch.addcmul(to_n, r, n + bias_d))
            # exactly 0 or 1, with the gradient of v
            u = v + (v.round() - v).detach()
            s = torch.lerp(s, torch.lerp(n, s, z), u)
            d = torch.sigmoid(s @ self.weight_p.T + self.bias_p)
            # v + min(d, 1 - v) is min(v + d, 1)
            v = torch.lerp((v + d).clamp(max=1.0), d, u)
            states.append(s)
            updates.append(u)
        if not states:
            return drive_n, drive_n[..., :1]
        return torch.stack(states), torch.stack(updates)
