"""Stream: a trained network that follows a series, one observation at a time, and forecasts from where it stands.

It keeps the state of the layer, the last seasons of the series and its last forecasts, by which new observations move
the intervals. An observation costs one step of the layer, however many came before it. After the same observations, a
stream that got them one by one has the same state as one that got them all at once, up to the rounding of float32.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..layer import AnyLayer
from ..step import LSTMState, State
from .features import Features
from .forecast_network import ForecastNetwork
from .history import History
from .intervals import Calibration, score


class Stream:
    """The state of a series in a network.

    Args:
        network: the network, whose layer has clocks
        features: the features of the series
        calibration: the calibration of the intervals
        history: the observations so far, or at least those that `History.tail` keeps
        state: the state of the layer after them
        outputs: (at most H, O), the readout of the layer's state after the last H observations
    """

    def __init__(
        self,
        network: ForecastNetwork,
        features: Features,
        calibration: Calibration,
        history: History,
        state: State | LSTMState,
        outputs: Tensor,
    ) -> None:
        self.network, self.features, self.calibration = network, features, calibration
        self.history, self.state, self.outputs = history, state, outputs

    @property
    def steps(self) -> int:
        """The number of observations so far."""
        return self.history.end

    def observe(
        self, values: NDArray[np.float64], covariates: NDArray[np.float64], observed: NDArray[np.bool_] | None = None
    ) -> None:
        """Takes the next observations, one step of the layer for each.

        Args:
            values: (n, channels)
            covariates: (n, covariates)
            observed: (n, channels), False for values that were missing and filled, which move no interval
        """
        layer: AnyLayer = self.network.layer  # type: ignore[assignment]
        longer = self.history.extend(values, covariates)
        inputs = torch.from_numpy(self.features.compute_inputs(longer, self.history.end, len(values)))
        seen = np.ones(values.shape, dtype=bool) if observed is None else observed
        state: Any = self.state
        with torch.no_grad():
            for i, row in enumerate(inputs):
                self._follow(longer, self.history.end + i, seen[i])
                hidden, state = layer.step(row, state)
                output = self.network.readout(hidden)[None]
                self.outputs = torch.cat([self.outputs, output])[-self.features.horizon :]
        self.history, self.state = longer.tail(self.features.horizon), state

    def forecast(self, covariates: NDArray[np.float64]) -> NDArray[np.float64]:
        """(H, C, 3): the lines of the next steps, in units of the scale, with their covariates (H, covariates)."""
        candidates = self.features.compute_candidates(self.history.foresee(covariates), self.steps - 1, 1)[0]
        with torch.no_grad():
            lines = self.network.combine(self.outputs[-1], torch.from_numpy(candidates))
        if not torch.isfinite(lines).all():
            # a file may have any weights
            raise FloatingPointError("the forecasts are not finite numbers: the weights of the network are too large")
        return lines.double().numpy()

    def convert(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """(H, C, ...): numbers in units of the scale as values of the series."""
        base = self.features.compute_base(self.history, self.steps - 1, 1)[0]
        scale = self.features.compute_scales(self.steps - 1, 1)[0]
        # before the first season is over, there is no naive forecast but the last value
        base = np.where(np.isnan(base), self.history.values[-1], base)
        extra = (1,) * (numbers.ndim - base.ndim)
        converted: NDArray[np.float64] = base.reshape(base.shape + extra) + scale.reshape(scale.shape + extra) * numbers
        return converted

    def _follow(self, history: History, step: int, seen: NDArray[np.bool_]) -> None:
        """Moves the intervals after the observation of a step, which the last forecasts were about."""
        ahead = np.arange(1, len(self.outputs) + 1)
        origins = step - ahead
        candidates = torch.from_numpy(self.features.compute_pairs(history, origins, ahead))
        lines = self.network.combine_pairs(self.outputs.flip(0), candidates, torch.from_numpy(ahead - 1))
        m = self.features.season
        base = history.look_up(history.values, step + self.features.find_offsets(m, ahead) - ahead)
        targets = (history.values[step - history.start] - base) / self.features.scales[step % m]
        scores = np.full((self.features.horizon, self.features.channels), np.nan)
        known = torch.where(torch.isfinite(lines), lines, torch.nan).double().numpy()
        scores[: len(ahead)] = np.where(seen, score(known, targets), np.nan)
        self.calibration = self.calibration.follow(scores)
