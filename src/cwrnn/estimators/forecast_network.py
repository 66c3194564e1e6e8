"""ForecastNetwork: a layer that reads a series step by step, and weighs the candidates for its next steps.

    lines(t, h)     = readout of the layer's state: a lower, a middle and an upper line for every step ahead
    gates(t, h, k)  = readout of the layer's state, at some knots of the horizon, with straight lines between them
    output(t, h)    = lines(t, h) + sum over k of (weights(h, k) + gates(t, h, k)) * candidates(t, h, k)

All are in units of the scale, as differences from the base (features.py). The weights begin as a median regression in
closed form, and the readout at zero, so that training begins with a good linear forecast.

A module of period P changes its state at one of P steps, so a window tells it P times less. AdamW would move its
weights as far as all others and learn single weeks by heart; they learn at 1 / sqrt(P) of the learning rate.
"""

from typing import cast

import torch
from torch import Tensor, nn

from ..layer import ClockworkLayer
from ..readout import Readout

LINES = 3
"""The lower end, the middle and the upper end of an interval."""

KNOTS = 6
"""The most knots of the horizon at which gates are computed."""

WEIGHT_RATE = 0.1
"""The candidates' weights learn at this share of the learning rate, because they begin near their best values."""

RIDGE = 0.3
"""The penalty of the squared weights per observation, in units of the scale."""

ROUNDS = 4
"""The rounds of reweighted least squares in a median regression."""

SMALLEST_RESIDUAL = 0.1
"""Residuals below this weigh the same in a median regression."""


class ForecastNetwork(nn.Module):
    """The forecasts of all steps ahead, from the inputs and candidates at every step.

    Args:
        layer: a layer with clocks, or one of torch's
        horizon: H, the number of steps to forecast
        channels: C, the number of series
        candidates: K, the number of candidates for each of them

    >>> from cwrnn import ClockworkRNN
    >>> network = ForecastNetwork(ClockworkRNN(9, 16, schedule=4), horizon=24, channels=1, candidates=10)
    >>> network(torch.randn(50, 8, 9), torch.randn(50, 8, 24, 1, 10)).shape
    torch.Size([50, 8, 24, 1, 3])
    """

    def __init__(self, layer: nn.Module, horizon: int, channels: int, candidates: int) -> None:
        super().__init__()
        self.layer = layer
        self.horizon, self.channels, self.candidates = horizon, channels, candidates
        self.knots = min(horizon, KNOTS)
        outputs = channels * (LINES * horizon + candidates * self.knots)
        self.readout = Readout(cast(int, layer.hidden_size), outputs)
        self.weights = nn.Parameter(torch.zeros(horizon, channels, candidates), requires_grad=False)
        self.changes = nn.Parameter(torch.zeros(horizon, channels, candidates))
        self.basis: Tensor
        self.register_buffer("basis", _make_basis(horizon, self.knots), persistent=False)
        nn.init.zeros_(self.readout.weight)
        with torch.no_grad():
            self.readout.bias.zero_()
            self.readout.bias[: LINES * horizon * channels] = torch.tensor([-1.0, 0.0, 1.0]).repeat(horizon * channels)

    def forward(self, inputs: Tensor, candidates: Tensor, t0: int = 0, steps: Tensor | None = None) -> Tensor:
        """The lines (n, B, H, C, 3) at some steps of sequences (T, B, I).

        Args:
            inputs: (T, B, I)
            candidates: (n, B, H, C, K) at those steps
            t0: the clock of the first step
            steps: the n steps, counted from 0. Default: all T
        """
        hidden = run_layer(self.layer, inputs, t0)
        return self.read(hidden if steps is None else hidden[steps], candidates)

    def read(self, hidden: Tensor, candidates: Tensor) -> Tensor:
        """The lines (..., H, C, 3) from the output (..., N) of the layer and the candidates (..., H, C, K)."""
        return self.combine(self.readout(hidden), candidates)

    def combine(self, output: Tensor, candidates: Tensor) -> Tensor:
        """The lines (..., H, C, 3) from the readout (..., O) and the candidates (..., H, C, K)."""
        lines, gates = self._split(output)
        weights = (self.basis @ gates).unflatten(-1, (self.channels, self.candidates)) + self.combine_weights()
        combined: Tensor = lines + (weights * candidates).sum(-1, keepdim=True)
        return combined

    def combine_pairs(self, output: Tensor, candidates: Tensor, ahead: Tensor) -> Tensor:
        """The lines (n, C, 3) of n pairs of a readout (n, O) and a step ahead, counted from 0, with its candidates."""
        lines, gates = self._split(output)
        gates = (self.basis[ahead, None] @ gates)[:, 0].unflatten(-1, (self.channels, self.candidates))
        weights = gates + self.combine_weights()[ahead]
        rows = torch.arange(len(ahead), device=ahead.device)
        combined: Tensor = lines[rows, ahead] + (weights * candidates).sum(-1, keepdim=True)
        return combined

    def _split(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """The lines (..., H, C, 3) and the gates (..., knots, C * K) in a readout (..., O)."""
        count = LINES * self.horizon * self.channels
        lines, gates = output[..., :count], output[..., count:]
        lines = lines.unflatten(-1, (self.horizon, self.channels, LINES))
        return lines, gates.unflatten(-1, (self.knots, self.channels * self.candidates))

    def combine_weights(self) -> Tensor:
        """(H, C, K): the weights of the candidates without the gates."""
        return self.weights + WEIGHT_RATE * self.changes

    def set_weights(self, weights: Tensor) -> None:
        """Sets the weights (H, C, K) of the candidates."""
        with torch.no_grad():
            self.weights.copy_(weights)
            self.changes.zero_()

    def find_rate_shares(self) -> dict[Tensor, Tensor]:
        """The shares of the learning rate at which weights learn: 1 / sqrt(P), P the period of the slower end.

        The other parameters, and layers of torch, learn at the whole rate.
        """
        layer = self.layer
        if not isinstance(layer, ClockworkLayer):
            return {}
        schedule, weight = layer.schedule, self.readout.weight
        periods = torch.tensor(schedule.periods, dtype=weight.dtype, device=weight.device)
        shares = periods.rsqrt().repeat_interleave(torch.tensor(schedule.sizes, device=weight.device))  # (N,)
        found: dict[Tensor, Tensor] = {weight: shares.expand_as(weight)}
        for parameter in layer.parameters():
            # a row for each gate of each unit
            rows = shares.repeat(len(parameter) // len(shares))
            found[parameter] = rows if parameter.dim() == 1 else rows[:, None].expand_as(parameter)
            if parameter is layer.weight_hh_l0:
                found[parameter] = torch.minimum(found[parameter], shares)
        return found

    def count_parameters(self) -> int:
        """The number of parameters that exist: weights from fast modules to slow ones are not counted."""
        layer = self.layer
        own = sum(parameter.numel() for parameter in layer.parameters())
        if isinstance(layer, ClockworkLayer):
            own = layer.count_parameters()
        return own + sum(parameter.numel() for parameter in self.readout.parameters()) + self.weights.numel()


def run_layer(layer: nn.Module, inputs: Tensor, t0: int) -> Tensor:
    """The output (T, B, N) of a layer with clocks from the clock t0 on, or of one of torch's layers."""
    output: Tensor = layer(inputs, t0=t0)[0] if isinstance(layer, ClockworkLayer) else layer(inputs)[0]
    return output


def regress_medians(candidates: Tensor, targets: Tensor, importance: Tensor) -> Tensor:
    """(H, C, K): the weights of candidates (n, H, C, K) whose sum comes closest to targets (n, H, C).

    It minimises the weighted sum of absolute errors plus a ridge penalty, by iteratively reweighted least squares.

    >>> candidates = torch.randn(1000, 1, 1, 2)
    >>> targets = candidates @ torch.tensor([2.0, -1.0])
    >>> weights = regress_medians(candidates, targets, torch.ones(1000, 1, 1)).squeeze()
    >>> [round(weight, 1) for weight in weights.tolist()]
    [1.8, -0.9]
    """
    count, horizon, channels, K = candidates.shape
    weights = torch.zeros(horizon, channels, K, dtype=torch.float64)
    penalty = RIDGE * torch.eye(K, dtype=torch.float64)
    for h in range(horizon):
        for c in range(channels):
            X, y, w = candidates[:, h, c].double(), targets[:, h, c].double(), importance[:, h, c].double()
            current = w
            for _ in range(ROUNDS):
                weighted = X * current[:, None]
                weights[h, c] = torch.linalg.solve(weighted.T @ X / count + penalty, weighted.T @ y / count)
                current = w / (y - X @ weights[h, c]).abs().clamp(min=SMALLEST_RESIDUAL)
    return weights.float()


def compute_pinball(lines: Tensor, targets: Tensor, coverage: float) -> Tensor:
    """The pinball losses (..., 3) of lines (..., 3) that should be the quantiles of an interval with this coverage."""
    levels = torch.tensor([(1 - coverage) / 2, 0.5, (1 + coverage) / 2], dtype=lines.dtype, device=lines.device)
    errors = targets.unsqueeze(-1) - lines
    return torch.maximum(levels * errors, (levels - 1) * errors)


def _make_basis(horizon: int, knots: int) -> Tensor:
    """(H, knots): the shares of the knots in each step ahead, which lie on straight lines between the knots."""
    if knots == 1:
        return torch.ones(horizon, 1)
    places = torch.linspace(0, knots - 1, horizon)
    return (1 - (places[:, None] - torch.arange(knots)).abs()).clamp(min=0)
