"""Training of sequence generation, the paper's first task: networks without input learn a sequence, many at once.

    loss = 1/2 sum over t of (y(t) - target(t))^2            stochastic gradient descent with Nesterov momentum

The paper minimises the mean squared error, but its learning rates fit the sum over the sequence: on the bundled
snippets 1 and 3, a Clockwork RNN of 40 units reaches an NMSE of 0.08 and 0.23 with the mean after the paper's number of
epochs, and of 0.001 and 0.015 with the sum; the paper's NMSE is 0.007.

Runs that are trained together do not influence each other: with the CPU kernel each gives the same bits as alone, on
any number of threads.

A network whose hidden layer is fixed (an echo state network) is fitted by least squares, which counts as one epoch.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...network import Network
from .. import paper
from ..networks.build import build_network, load_weights
from ..networks.descent import SECONDS_BETWEEN_REPORTS, descend
from ..networks.least_squares import RIDGES, fit_readout, has_fixed_layer
from ..networks.replicas import Replicas
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings

POINTS = 200
"""The approximate number of points that are kept of a learning curve."""

HOPELESS = 10.0
"""A run whose NMSE ends above this has diverged, even if its loss is finite. The target's mean has an NMSE of 1."""


@dataclass(frozen=True)
class GenerationSettings(TrainingSettings):
    """The hyper-parameters of a run that learns a sequence. An epoch is one update, which sees the whole sequence."""

    epochs: int = paper.GENERATION_EPOCHS
    momentum: float = paper.GENERATION_MOMENTUM
    modules: int = paper.GENERATION_MODULES

    @property
    def inputs(self) -> int:
        """The network receives no input."""
        return paper.GENERATION_INPUTS

    @property
    def outputs(self) -> int:
        """One output: the sample."""
        return paper.GENERATION_OUTPUTS


def nmse(output: NDArray[Any], target: NDArray[Any]) -> float:
    """The squared error divided by the variance of the target: 1 for an output that is the target's mean.

    >>> nmse(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    0.5
    """
    if output.shape != target.shape:
        raise ValueError(f"output and target must have one shape, got {output.shape} and {target.shape}")
    return float(np.square(np.subtract(output, target, dtype=np.float64)).sum()) / _variation(target)


def train_many(
    method: str,
    hidden: int,
    targets: ArrayLike,
    seeds: Sequence[int],
    settings: TrainingSettings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[TrainingResult]:
    """The results of S networks that are trained at once, each with its own target and initial weights.

    A run has diverged if its loss ceased to be finite, or if its NMSE ends above `HOPELESS`. The curve has the NMSE
    after some of the updates; the output is the sequence (T,) that the network generates.

    Args:
        method: one of ALL_METHODS
        hidden: hidden units, or cells of an LSTM
        targets: (S, T)
        seeds: (S,): network i has the initial weights that `build_network` draws with seed i
        settings: the hyper-parameters of all runs
        progress: called about ten times a second with the updates made, and at the end; if it raises, training stops

    >>> wave = np.sin(np.arange(40) / 3)
    >>> results = train_many("cw", 12, [wave, -wave], [0, 0], GenerationSettings(3e-3, epochs=100, modules=4))
    >>> all(result.error < 0.5 for result in results)
    True
    """
    targets = _checked(targets, seeds, settings)
    if len(seeds) == 0:
        return []
    networks = [_build(method, hidden, settings, int(seed)) for seed in seeds]
    if has_fixed_layer(networks[0]):
        results = [_fit(network, target) for network, target in zip(networks, targets, strict=True)]
        if progress is not None:
            progress(1)
        return results
    with torch.enable_grad():
        return _SequenceTraining(Replicas(networks), targets, settings).run(progress)


def load_network(method: str, hidden: int, weights: Mapping[str, ArrayLike], settings: TrainingSettings) -> Network:
    """The network with these weights."""
    return load_weights(_build(method, hidden, settings), weights)


def generate(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], steps: int, settings: TrainingSettings
) -> NDArray[np.float32]:
    """(steps,): the sequence that a network with these weights generates."""
    replicas = Replicas([load_network(method, hidden, weights, settings)])
    with torch.no_grad():
        return replicas.outputs(torch.zeros(1, steps, 0))[0, :, 0].numpy()


def states(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], steps: int, settings: TrainingSettings
) -> NDArray[np.float32]:
    """(steps, hidden): the hidden states of a network while it generates. Units of fast modules come first."""
    replicas = Replicas([load_network(method, hidden, weights, settings)])
    with torch.no_grad():
        return replicas.states(torch.zeros(1, steps, 0))[0].numpy()


def _fit(network: Network, target: NDArray[np.float64]) -> TrainingResult:
    """The result of a network with a fixed hidden layer, whose readout is fitted to the target (T,)."""
    began = time.perf_counter()
    input = torch.zeros(1, len(target), 0)
    with torch.no_grad():
        initial = Replicas([network])
        states, first_output = initial.states(input)[0], initial.outputs(input)[0, :, 0].numpy()
        # a sequence that is learned by heart has no examples to choose a ridge by: the smallest is taken
        fit_readout(network, [(states, torch.from_numpy(target)[:, None])], ridges=RIDGES[:1])
        output = Replicas([network]).outputs(input)[0, :, 0].numpy()
    error = nmse(output, target)
    return TrainingResult(
        status="finished",
        error=error,
        best_error=error,
        best_epoch=1,
        epochs=1,
        curve=np.array([(0, nmse(first_output, target)), (1, error)], dtype=np.float32),
        output=output,
        weights={name: value.numpy().copy() for name, value in network.state_dict().items()},
        seconds=time.perf_counter() - began,
    )


class _SequenceTraining:
    """The runs that are being trained, and the losses and best networks of all."""

    def __init__(self, replicas: Replicas, targets: NDArray[np.float64], settings: TrainingSettings) -> None:
        S, T = targets.shape
        self.settings = settings
        self.replicas = replicas
        self.exact_targets = targets
        self.runs = np.arange(S)
        """The numbers of the runs that are being trained; the following tensors have one row for each."""
        self.targets = torch.from_numpy(targets.astype(np.float32))
        self.velocity = torch.zeros_like(replicas.values)
        self.best = np.full(S, np.inf, dtype=np.float32)
        self.best_values = replicas.values.clone()
        self.best_outputs = torch.full((S, T), math.nan)
        self.losses = np.full((settings.epochs + 1, S), np.nan, dtype=np.float32)
        """The losses of all runs: before every update, and after the last."""
        self.seconds = np.zeros(S)
        self.results: list[TrainingResult | None] = [None] * S

    def run(self, progress: Callable[[int], None] | None) -> list[TrainingResult]:
        """Trains until all runs have made their updates or have diverged."""
        epochs = self.settings.epochs
        reported = accounted = time.perf_counter()
        for epoch in range(epochs + 1):
            outputs = self.replicas.outputs(self.targets.new_empty(*self.targets.shape, 0)).squeeze(2)
            errors = outputs.detach() - self.targets
            finite = self._remember(epoch, outputs.detach(), errors)
            if epoch < epochs and finite.any():
                self._update(outputs, errors)
            now = time.perf_counter()
            if epoch == epochs or not finite.all():
                self.seconds[self.runs] += (now - accounted) / len(self.runs)
                accounted = now
                for row in range(len(self.runs)):
                    if epoch == epochs or not finite[row]:
                        self._finish(row, epoch, outputs.detach())
                self._keep(torch.from_numpy(np.flatnonzero(finite)))
            if progress is not None and (
                now - reported > SECONDS_BETWEEN_REPORTS or epoch == epochs or len(self.runs) == 0
            ):
                progress(epoch)
                reported = now
            if len(self.runs) == 0:
                break
        return [result for result in self.results if result is not None]

    def _remember(self, epoch: int, outputs: Tensor, errors: Tensor) -> NDArray[np.bool_]:
        """Remembers the losses, and the networks that are better than before. Returns which losses are finite."""
        losses = (0.5 * sum_of_squares(errors)).numpy()
        self.losses[epoch, self.runs] = losses
        finite: NDArray[np.bool_] = np.isfinite(losses)
        better = finite & (losses < self.best)
        if better.any():
            self.best = np.where(better, losses, self.best)
            rows = torch.from_numpy(better)[:, None]
            self.best_values = torch.where(rows, self.replicas.values, self.best_values)
            self.best_outputs = torch.where(rows, outputs, self.best_outputs)
        return finite

    def _update(self, outputs: Tensor, errors: Tensor) -> None:
        """Makes one step of descent. The derivative of the loss with respect to the output is the error."""
        gradients = torch.autograd.grad(outputs, list(self.replicas.parameters.values()), errors)
        gradient = torch.cat([part.flatten(1) for part in gradients], dim=1)
        descend(self.replicas.values, gradient, self.velocity, self.settings.learning_rate, self.settings.momentum)

    def _keep(self, rows: Tensor) -> None:
        """Goes on with the runs of these rows only."""
        self.runs = self.runs[rows.numpy()]
        self.best = self.best[rows.numpy()]
        self.replicas.keep(rows)
        self.targets, self.velocity = self.targets[rows], self.velocity[rows]
        self.best_values, self.best_outputs = self.best_values[rows], self.best_outputs[rows]

    def _finish(self, row: int, epochs: int, outputs: Tensor) -> None:
        run = self.runs[row]
        target, losses = self.exact_targets[run], self.losses[: epochs + 1, run]
        is_lost = not math.isfinite(losses[-1])
        diverged = is_lost or not nmse(outputs[row].numpy(), target) <= HOPELESS
        best_output = self.best_outputs[row].numpy().copy()
        output = best_output if diverged else outputs[row].numpy().copy()
        values = self.best_values[row] if diverged else self.replicas.values[row]
        self.results[run] = TrainingResult(
            status="diverged" if diverged else "finished",
            error=math.nan if diverged else nmse(output, target),
            best_error=nmse(best_output, target),
            best_epoch=0 if math.isinf(self.best[row]) else int(np.nanargmin(losses)),
            epochs=epochs,
            curve=_curve(losses[:-1] if is_lost else losses, target, self.settings.epochs),
            output=output,
            weights=self.replicas.weights(values),
            seconds=float(self.seconds[run]),
        )


def sum_of_squares(errors: Tensor) -> Tensor:
    """(S,): the sums of the squares of (S, T), added in an order that depends on T alone: halves on halves."""
    squares = errors.square()
    size = 1
    while size < squares.shape[1]:
        size *= 2
    squares = torch.nn.functional.pad(squares, (0, size - squares.shape[1]))
    while size > 1:
        size //= 2
        squares = squares[:, :size] + squares[:, size:]
    return squares[:, 0]


def _build(method: str, hidden: int, settings: TrainingSettings, seed: int = 0) -> Network:
    return build_network(
        method,
        hidden,
        modules=settings.modules,
        schedule=settings.schedule,
        peepholes=settings.peepholes,
        forget_bias=settings.forget_bias,
        deviation=settings.deviation,
        seed=seed,
    ).float()


def _checked(targets: ArrayLike, seeds: Sequence[int], settings: TrainingSettings) -> NDArray[np.float64]:
    if settings.epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {settings.epochs}")
    targets = np.asarray(targets, dtype=np.float64)
    if targets.ndim != 2 or len(targets) != len(seeds):
        raise ValueError(f"targets must be (S, T) for S = {len(seeds)} seeds, got shape {targets.shape}")
    if not np.isfinite(targets).all():
        raise ValueError("targets must be finite")
    for target in targets:
        _variation(target)
    return targets


def _variation(target: NDArray[Any]) -> float:
    """The squared error of an output that is the target's mean."""
    variation = float(np.square(target - target.mean(), dtype=np.float64).sum())
    if not variation > 0:
        raise ValueError("target must not be constant: it has no variance to compare with")
    return variation


def _curve(losses: NDArray[np.float32], target: NDArray[np.float64], epochs: int) -> NDArray[np.float32]:
    """(n, 2): epochs and NMSE of about `POINTS` of the losses, which include the first and the last."""
    if len(losses) == 0:
        return np.empty((0, 2), dtype=np.float32)
    steps = np.unique([*range(0, len(losses), math.ceil(epochs / POINTS)), len(losses) - 1])
    return np.column_stack((steps, losses[steps] / (0.5 * _variation(target)))).astype(np.float32)
