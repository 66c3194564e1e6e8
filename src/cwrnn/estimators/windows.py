"""Windows: the parts of a series on which a forecaster trains, and the end that is held out.

    0 ............................. train_end ................. end
    windows with random starts      held out: early stopping, calibration

The windows of a batch begin at the same phase of the season, so that all of them share a clock, and a clock of 24
steps always ticks at the same hour. The first steps of a window only fill the state; of the others, a random part
counts in the loss, because neighbouring steps have nearly the same forecasts.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .features import Features
from .forecast_network import ForecastNetwork, compute_pinball, regress_medians
from .history import History

SEASONS_IN_WINDOW = 6
"""The length of a window in seasons."""

SHORTEST_WINDOW = 96
"""The length of a window in steps, if its seasons are shorter."""

STEPS_PER_LOSS = 16
"""One of so many steps of a window counts in the loss."""

STEPS_PER_CHECK = 4
"""One of so many steps of the held-out end counts in the loss that decides when to stop."""

MOST_REGRESSED = 3000
"""The most steps that the median regression is fitted to."""

HELD_OUT = 0.1
"""The share of the series that is held out."""

MOST_HELD_OUT = 0.25
"""The largest share that is held out of a short series."""

FEWEST_HELD_OUT = 8
"""The fewest forecasts in the end that is held out; a series with fewer holds nothing out."""


class Windows:
    """The tensors of a series on one device, and the losses of a network on its windows.

    Args:
        features: the features, fitted to the training part
        history: the whole series
        observed: (T, channels), False where a value was missing
        train_end: the number of steps to train on; the others are held out
        coverage: the coverage of the interval between the outer lines
        device: the device
    """

    def __init__(
        self,
        features: Features,
        history: History,
        observed: NDArray[np.bool_],
        train_end: int,
        coverage: float,
        device: torch.device,
    ) -> None:
        T, H = history.end, features.horizon
        self.train_end, self.coverage, self.device = train_end, coverage, device
        self.season, self.horizon = features.season, H
        steps = np.arange(T)[:, None] + np.arange(1, H + 1)
        scales = features.compute_scales(0, T)
        targets = (history.look_up(history.values, steps) - features.compute_base(history, 0, T)) / scales
        seen = history.look_up(observed.astype(np.float64), steps)
        importance = np.where(np.isnan(targets) | ~(seen > 0), 0.0, scales / features.scales.mean(axis=0))
        self.inputs = torch.from_numpy(features.compute_inputs(history, 0, T)).to(device)
        self.candidates = torch.from_numpy(features.compute_candidates(history, 0, T)).to(device)
        self.targets = torch.from_numpy(np.nan_to_num(targets).astype(np.float32)).to(device)
        self.importance = torch.from_numpy(importance.astype(np.float32)).to(device)
        # the last step whose forecast lies inside the training part
        last = train_end - H + 1
        self.length = max(min(max(SEASONS_IN_WINDOW * self.season, SHORTEST_WINDOW), last // 2), min(2, last))
        self.warm_up = min(max(self.season, SHORTEST_WINDOW // SEASONS_IN_WINDOW), self.length // 3)
        self.starts = last - self.length + 1

    @property
    def end(self) -> int:
        """T, the number of steps."""
        return len(self.inputs)

    @property
    def held_out(self) -> range:
        """The steps at which the forecasts of the held-out end begin, as far as their targets are known."""
        return range(self.train_end, self.end - self.horizon)

    def regress(self) -> Tensor:
        """(H, C, K): the weights of the candidates by a median regression on the training part."""
        last = self.train_end - self.horizon
        first = min(self.season, last)
        rows = slice(first, last + 1, max(1, (last + 1 - first) // MOST_REGRESSED))
        candidates, targets, importance = (
            tensor[rows].cpu() for tensor in (self.candidates, self.targets, self.importance)
        )
        return regress_medians(candidates, targets, importance)

    def compute_loss(self, network: ForecastNetwork, count: int) -> Tensor:
        """The loss of a batch of random windows, in training; of the held-out end, in evaluation."""
        if not network.training:
            return self._compute_held_out_loss(network)
        # torch's generator decides, which the training has seeded
        starts = torch.randint(self.starts, (count,))
        phase = int(starts[0]) % self.season
        starts = starts - (starts - phase) % self.season
        starts = torch.where(starts < 0, starts + self.season, starts)
        starts = starts[starts < self.starts]
        steps = self.warm_up + torch.randperm(self.length - self.warm_up)[: self._count_loss_steps()].sort().values
        starts, steps = starts.to(self.device), steps.to(self.device)
        rows = torch.arange(self.length, device=self.device)[:, None] + starts
        chosen = rows[steps]
        lines = network(self.inputs[rows], self.candidates[chosen], phase, steps)
        return self._weigh(lines, chosen)

    def _count_loss_steps(self) -> int:
        return max(1, (self.length - self.warm_up) // STEPS_PER_LOSS)

    def _compute_held_out_loss(self, network: ForecastNetwork) -> Tensor:
        first = max(0, self.train_end - 2 * max(self.season, self.warm_up))
        chosen = torch.arange(self.held_out.start, self.held_out.stop, STEPS_PER_CHECK, device=self.device)
        inputs = self.inputs[first : self.held_out.stop, None]
        lines = network(inputs, self.candidates[chosen, None], first, chosen - first)
        return self._weigh(lines, chosen[:, None])

    def _weigh(self, lines: Tensor, rows: Tensor) -> Tensor:
        losses = compute_pinball(lines, self.targets[rows], self.coverage)
        return (losses * self.importance[rows].unsqueeze(-1)).mean()


def split_series(T: int, season: int, horizon: int, share: float = HELD_OUT) -> int:
    """The number of steps to train on: the rest is held out, unless the series is too short for that.

    >>> split_series(4000, 168, 24), split_series(1000, 168, 24), split_series(20, 1, 5)
    (3600, 750, 20)
    """
    held_out = max(int(T * share), min(2 * season, int(T * MOST_HELD_OUT)))
    held_out = min(max(held_out, horizon + FEWEST_HELD_OUT), int(T * MOST_HELD_OUT))
    return T - held_out if held_out >= horizon + FEWEST_HELD_OUT else T
