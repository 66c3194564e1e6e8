"""Stream: a trained network that follows a series, one observation at a time, and forecasts from where it stands.

It keeps the state of the layer and the last seasons of the series. An observation costs one step of the layer, however
many came before it. After the same observations, a stream that got them one by one has the same state as one that got
them all at once, up to the rounding of float32.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..layer import AnyLayer
from ..step import LSTMState, State
from .features import Features
from .forecast_network import ForecastNetwork
from .history import History


class Stream:
    """The state of a series in a network.

    Args:
        network: the network, whose layer has clocks
        features: the features of the series
        history: the observations so far, or at least those that `History.tail` keeps
        state: the state of the layer after them; None before the first observation
    """

    def __init__(
        self, network: ForecastNetwork, features: Features, history: History, state: State | LSTMState | None
    ) -> None:
        self.network, self.features, self.history, self.state = network, features, history, state

    @property
    def steps(self) -> int:
        """The number of observations so far."""
        return self.history.end

    def observe(self, values: NDArray[np.float64], covariates: NDArray[np.float64]) -> None:
        """Takes the next observations (n, channels) and their covariates (n, covariates), one step for each."""
        layer: AnyLayer = self.network.layer  # type: ignore[assignment]
        longer = self.history.extend(values, covariates)
        inputs = torch.from_numpy(self.features.compute_inputs(longer, self.history.end, len(values)))
        state: Any = self.state
        with torch.no_grad():
            for row in inputs:
                _, state = layer.step(row, state)
        self.history, self.state = longer.tail(), state

    def forecast(self, covariates: NDArray[np.float64]) -> NDArray[np.float64]:
        """(H, C, 3): the lines of the next steps, in units of the scale, with their covariates (H, covariates)."""
        if self.state is None:
            raise ValueError("a stream forecasts after its first observation")
        candidates = self.features.compute_candidates(self.history.foresee(covariates), self.steps - 1, 1)[0]
        with torch.no_grad():
            lines = self.network.read(self.state.h[-1], torch.from_numpy(candidates))
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
