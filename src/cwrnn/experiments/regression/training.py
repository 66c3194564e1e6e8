"""Training of regression: networks read columns of a table and return another one at every row, many at once.

    loss = mean over t of (y(t) - target(t))^2 of a sequence          one update per sequence, by Adam

In every epoch each network sees every training sequence once, in an order of its own. The gradient of every network is
cut to a norm. After each epoch the NMSE of the validation part is measured. Training ends when it has not fallen for
`patience` epochs; the network of the epoch in which it was lowest is kept, and its error is the NMSE of the test part.

Runs that are trained together do not influence each other: with the CPU kernel each gives the same bits as alone, on
any number of threads.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...network import Network
from ..generation.training import nmse, sum_of_squares
from ..networks.build import build_network, load_weights
from ..networks.descent import SECONDS_BETWEEN_REPORTS
from ..networks.replicas import Replicas
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from .columns import Columns, Sequences

MOST_EPOCHS = 300
USUAL_EPOCHS = 100
"""The approximate number of epochs of a training."""
MODULES = 8
"""Periods 1, 2, 4, ..., 128."""
SECOND_MOMENT = 0.999
"""How slowly Adam forgets the squares of gradients; the momentum of the settings is that of the gradients."""
CUT = 1.0
"""The norm to which the gradient of a network is cut, over all of its parameters."""


@dataclass(frozen=True)
class RegressionSettings(TrainingSettings):
    """The hyper-parameters of a run that learns columns. An epoch has one update for every training sequence."""

    epochs: int = MOST_EPOCHS
    momentum: float = 0.9
    modules: int = MODULES
    patience: int = 30
    """Training ends after this many epochs without a lower NMSE of the validation part."""
    inputs: int = 1
    outputs: int = 1

    @property
    def usual_epochs(self) -> int:
        """The approximate number of epochs that a run makes."""
        return min(self.epochs, USUAL_EPOCHS)


def train_many(
    method: str,
    hidden: int,
    columns: Columns,
    seeds: Sequence[int],
    settings: RegressionSettings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[TrainingResult]:
    """The results of S networks that are trained at once, each with its own initial weights and order.

    The error is the NMSE of the test part. The curve has, for every epoch, the NMSE of the validation part and of the
    test part. The output is (test sequences, T): the prediction of the normalised target. A run whose errors cease to
    be finite has diverged.

    Args:
        method: one of METHODS
        hidden: hidden units, or cells of an LSTM
        columns: the data
        seeds: (S,): network i has the initial weights that `build_network` draws with seed i
        settings: the hyper-parameters of all runs
        progress: called about ten times a second with the epochs made, and at the end; if it raises, training stops

    >>> x = np.random.default_rng(0).standard_normal((100, 1))
    >>> columns = Columns("", "", x, 2 * x[:, 0] + 1, ("x",), "y", 10)
    >>> [result] = train_many("cw", 4, columns, [0], RegressionSettings(0.01, epochs=30, modules=2))
    >>> result.error < 0.1
    True
    """
    if settings.epochs < 1 or settings.patience < 1:
        raise ValueError(f"epochs and patience must be at least 1, got {settings.epochs} and {settings.patience}")
    if settings.inputs != columns.inputs.shape[1]:
        raise ValueError(f"the networks have {settings.inputs} inputs, but there are {columns.inputs.shape[1]} columns")
    if len(seeds) == 0:
        return []
    replicas = Replicas([build_untrained(method, hidden, settings, int(seed)) for seed in seeds])
    with torch.enable_grad():
        return _RegressionTraining(replicas, columns, seeds, settings).run(progress)


def build_untrained(method: str, hidden: int, settings: RegressionSettings, seed: int = 0) -> Network:
    """The network of a run, with its initial weights."""
    return build_network(
        method,
        hidden,
        settings.inputs,
        settings.outputs,
        modules=settings.modules,
        schedule=settings.schedule,
        peepholes=settings.peepholes,
        forget_bias=settings.forget_bias,
        deviation=settings.deviation,
        seed=seed,
    ).float()


def load_network(method: str, hidden: int, weights: Mapping[str, ArrayLike], settings: RegressionSettings) -> Network:
    """The network with these weights."""
    return load_weights(build_untrained(method, hidden, settings), weights)


class _RegressionTraining:
    """The runs that are being trained, and the curves and best networks of all."""

    def __init__(
        self, replicas: Replicas, columns: Columns, seeds: Sequence[int], settings: RegressionSettings
    ) -> None:
        S = len(seeds)
        self.settings, self.replicas = settings, replicas
        self.validation, self.test = columns.parts["validation"], columns.parts["test"]
        train = columns.parts["training"]
        self.inputs, self.targets = torch.from_numpy(train.inputs), torch.from_numpy(train.targets.astype(np.float32))
        self.runs = np.arange(S)
        """The numbers of the runs that are being trained; the following arrays have one row for each."""
        # another generator than that of the initial weights, and another one for every seed
        self.generators = [np.random.default_rng([int(seed), 2]) for seed in seeds]
        self.first, self.second = torch.zeros_like(replicas.values), torch.zeros_like(replicas.values)
        self.updates = 0
        self.best = np.full(S, np.inf)
        self.best_epoch = np.zeros(S, dtype=np.int64)
        self.best_values = replicas.values.clone()
        self.best_outputs = np.full((S, *self.test.targets.shape), np.nan, dtype=np.float32)
        self.curves: list[list[tuple[float, float, float]]] = [[] for _ in range(S)]
        """For each run: epochs, and the NMSE of the validation part and of the test part."""
        self.seconds = np.zeros(S)
        self.results: list[TrainingResult | None] = [None] * S

    def run(self, progress: Callable[[int], None] | None) -> list[TrainingResult]:
        """Trains until every run has run out of patience or epochs, or has diverged."""
        reported = accounted = time.perf_counter()
        for epoch in range(self.settings.epochs + 1):
            finite = self._remember(epoch)
            over = ~finite | (epoch - self.best_epoch >= self.settings.patience) | (epoch == self.settings.epochs)
            now = time.perf_counter()
            if over.any():
                self.seconds[self.runs] += (now - accounted) / len(self.runs)
                accounted = now
                for row in np.flatnonzero(over):
                    self._finish(int(row), epoch, bool(finite[row]))
                self._keep(np.flatnonzero(~over))
            if progress is not None and (now - reported > SECONDS_BETWEEN_REPORTS or len(self.runs) == 0):
                progress(epoch)
                reported = now
            if len(self.runs) == 0:
                break
            self._learn()
        return [result for result in self.results if result is not None]

    def _learn(self) -> None:
        """Makes one epoch."""
        orders = torch.from_numpy(np.stack([generator.permutation(len(self.inputs)) for generator in self.generators]))
        for order in orders.T:
            outputs = self.replicas.outputs(self.inputs[order]).squeeze(2)
            # the derivative of the mean squared error, up to a factor of 2 that the learning rate has
            errors = (outputs.detach() - self.targets[order]) / outputs.shape[1]
            gradients = torch.autograd.grad(outputs, list(self.replicas.parameters.values()), errors)
            self._update(torch.cat([part.flatten(1) for part in gradients], dim=1))

    def _update(self, gradient: Tensor) -> None:
        """Makes one step of Adam."""
        gradient = gradient / (sum_of_squares(gradient).sqrt() / CUT).clamp(min=1.0)[:, None]
        self.updates += 1
        momentum = self.settings.momentum
        self.first.mul_(momentum).add_(gradient, alpha=1 - momentum)
        self.second.mul_(SECOND_MOMENT).addcmul_(gradient, gradient, value=1 - SECOND_MOMENT)
        rate = self.settings.learning_rate / (1 - momentum**self.updates)
        scale = (self.second / (1 - SECOND_MOMENT**self.updates)).sqrt() + 1e-8
        self.replicas.values.sub_(rate * self.first / scale)

    def _remember(self, epoch: int) -> NDArray[np.bool_]:
        """Evaluates the networks, and remembers those that are better than before. Returns which errors are finite."""
        validation, test = self._predict(self.validation), self._predict(self.test)
        errors = np.array([nmse(output, self.validation.targets) for output in validation])
        finite: NDArray[np.bool_] = np.isfinite(errors)
        better = finite & (errors < self.best)
        for row in np.flatnonzero(finite):
            self.curves[self.runs[row]].append((epoch, errors[row], nmse(test[row], self.test.targets)))
        if better.any():
            self.best = np.where(better, errors, self.best)
            self.best_epoch = np.where(better, epoch, self.best_epoch)
            self.best_values = torch.where(torch.from_numpy(better)[:, None], self.replicas.values, self.best_values)
            self.best_outputs = np.where(better[:, None, None], test, self.best_outputs)
        return finite

    def _predict(self, part: Sequences) -> NDArray[np.float32]:
        """(S, n, T): the outputs of all networks on all sequences of a part."""
        S = len(self.runs)
        with torch.no_grad():
            outputs = [
                self.replicas.outputs(sequence.expand(S, -1, -1).contiguous()).squeeze(2)
                for sequence in torch.from_numpy(part.inputs)
            ]
        return torch.stack(outputs, dim=1).numpy()

    def _keep(self, rows: NDArray[np.int64]) -> None:
        """Goes on with the runs of these rows only."""
        self.runs, self.best, self.best_epoch = self.runs[rows], self.best[rows], self.best_epoch[rows]
        self.best_outputs = self.best_outputs[rows]
        self.generators = [self.generators[row] for row in rows]
        kept = torch.from_numpy(rows)
        self.replicas.keep(kept)
        self.first, self.second, self.best_values = self.first[kept], self.second[kept], self.best_values[kept]

    def _finish(self, row: int, epochs: int, finite: bool) -> None:
        run = self.runs[row]
        best = int(self.best_epoch[row])
        error = self.curves[run][best][2] if math.isfinite(self.best[row]) else math.nan
        self.results[run] = TrainingResult(
            status="finished" if finite else "diverged",
            error=error if finite else math.nan,
            best_error=error,
            best_epoch=best,
            epochs=epochs,
            curve=np.array(self.curves[run], dtype=np.float32).reshape(-1, 3),
            output=self.best_outputs[row].astype(np.float32),
            weights=self.replicas.weights(self.best_values[row]),
            seconds=float(self.seconds[run]),
        )
