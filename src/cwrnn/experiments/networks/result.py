"""The result of one training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of one run. A run that diverged has a result too. Each task says how it measures the error."""

    status: str
    """"finished" or "diverged"."""
    error: float
    """The error of the final network; NaN if the run diverged."""
    best_error: float
    """The error of the network when its training loss was lowest; NaN if the loss never was finite."""
    best_epoch: int
    """The number of epochs before the training loss was lowest."""
    epochs: int
    """The number of epochs that were made; fewer than the settings allow if the run diverged or stopped early."""
    curve: NDArray[np.float32]
    """(n, columns): the epochs made, and what the task measures at that point."""
    output: NDArray[np.float32]
    """The output of the final network or, if the run diverged, of the best one."""
    weights: dict[str, NDArray[np.float32]]
    """The weights of the network that made the output, by parameter name."""
    seconds: float
    """The run's share of the time of all runs that were trained with it."""
