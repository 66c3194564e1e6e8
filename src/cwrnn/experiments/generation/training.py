"""Training: networks learn to generate sequences from no input, the paper's first task, many runs at once.

    loss = 1/2 sum over t of (y(t) - target(t))^2            stochastic gradient descent with Nesterov momentum

The paper says mean squared error, but its learning rates fit the sum over the sequence: with the mean, a Clockwork
RNN of 40 units comes down to an NMSE of 0.08 and 0.23 on the bundled snippets 1 and 3 in the paper's 2000 epochs,
with the sum to 0.001 and 0.015, and the paper's is 0.007.

Runs that are trained together share nothing but the time that they take: with the CPU kernel each gives the bits that
it gives alone, on any number of threads.
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
from ..networks import build as models
from ..networks.replicas import Replicas

LEARNING_RATES = {"srn": 3e-4, "lstm": 3e-5, "cw": 3e-4}
MOMENTUM = 0.95
EPOCHS = 2000

POINTS = 200
"""Of a learning curve that is kept, about."""

HOPELESS = 10.0
"""An NMSE above which a run has diverged, even if its loss is a number: ten times the error of the target's mean."""

PATIENCE = 0.1
"""Seconds from one report of progress to the next, at least."""


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters of a run."""

    learning_rate: float
    """Of the gradient of the summed error."""
    epochs: int = EPOCHS
    """Updates; each sees the whole sequence."""
    momentum: float = MOMENTUM
    modules: int = models.MODULES
    """Of a Clockwork RNN; the others have none."""
    peepholes: bool = True
    """Whether an LSTM's gates see its cells."""
    forget_bias: float = 5.0
    """Initial bias of an LSTM's forget gates."""
    deviation: float = 0.1
    """Standard deviation of the initial weights."""
    schedule: str | None = None
    """The modules of a Clockwork RNN, as `Schedule.parse` reads them; None: even ones with periods 1, 2, 4, ..."""

    @property
    def inputs(self) -> int:
        """Features of the input at every step."""
        return 0

    @property
    def outputs(self) -> int:
        """Of the network at every step."""
        return 1

    @property
    def usual_epochs(self) -> int:
        """About as many as a run makes, as far as that is known before."""
        return self.epochs


@dataclass(frozen=True)
class Result:
    """What became of one run. A run that diverged is a result too."""

    status: str
    """"finished", or "diverged": the loss ceased to be finite, or the NMSE is above `HOPELESS` in the end."""
    error: float
    """The NMSE of the final output; NaN if the run diverged."""
    best_error: float
    """The NMSE of the output when the loss was lowest; NaN if it never was finite."""
    best_epoch: int
    """Updates before the loss was lowest."""
    epochs: int
    """Updates made: fewer than asked for if its loss ceased to be finite."""
    curve: NDArray[np.float32]
    """(n, 2): updates made, and the NMSE then; about 200 points, the first and the last that are finite among them."""
    output: NDArray[np.float32]
    """(T,): what the network generates in the end, or if it diverged at its best; NaN if it never was finite."""
    weights: dict[str, NDArray[np.float32]]
    """By parameter name, of the network that generates the output."""
    seconds: float
    """The run's share of the time of all that were trained with it."""


def nmse(output: NDArray[Any], target: NDArray[Any]) -> float:
    """The squared error over the variance of the target: 1 for an output that is the target's mean.

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
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """What became of S networks, each with its own target and initial weights, trained at once.

    Args:
        method: "srn", "lstm" or "cw"
        hidden: hidden units, or cells of an LSTM
        targets: (S, T)
        seeds: S of them: the initial weights are those of `models.build` with that seed
        settings: of all runs
        progress: called now and then with the updates made, and at the end; if it raises, training stops

    >>> wave = np.sin(np.arange(40) / 3)
    >>> results = train_many("cw", 12, [wave, -wave], [0, 0], Settings(3e-3, epochs=100, modules=4))
    >>> all(result.error < 0.5 for result in results)
    True
    """
    targets = _checked(targets, seeds, settings)
    if len(seeds) == 0:
        return []
    replicas = Replicas([_build(method, hidden, settings, int(seed)) for seed in seeds])
    with torch.enable_grad():
        return _Training(replicas, targets, settings).run(progress)


def load(method: str, hidden: int, weights: Mapping[str, ArrayLike], settings: Settings) -> Network:
    """The network with those weights."""
    network = _build(method, hidden, settings)
    network.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in weights.items()})
    return network


def generate(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], steps: int, settings: Settings
) -> NDArray[np.float32]:
    """(steps,): what a network with those weights generates."""
    replicas = Replicas([load(method, hidden, weights, settings)])
    with torch.no_grad():
        return replicas.outputs(torch.zeros(1, steps, 0))[0, :, 0].numpy()


def states(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], steps: int, settings: Settings
) -> NDArray[np.float32]:
    """(steps, hidden): the hidden states of such a network while it generates; those of fast modules come first."""
    replicas = Replicas([load(method, hidden, weights, settings)])
    with torch.no_grad():
        return replicas.states(torch.zeros(1, steps, 0))[0].numpy()


class _Training:
    """The runs that are under way, and what is remembered of all."""

    def __init__(self, replicas: Replicas, targets: NDArray[np.float64], settings: Settings) -> None:
        S, T = targets.shape
        self.settings = settings
        self.replicas = replicas
        self.wanted = targets
        self.runs = np.arange(S)
        """The numbers of the runs that are under way; the tensors that follow have a row for each of them."""
        self.targets = torch.from_numpy(targets.astype(np.float32))
        self.velocity = torch.zeros_like(replicas.values)
        self.best = np.full(S, np.inf, dtype=np.float32)
        self.best_values = replicas.values.clone()
        self.best_outputs = torch.full((S, T), math.nan)
        self.losses = np.full((settings.epochs + 1, S), np.nan, dtype=np.float32)
        """Of all runs: before every update, and after the last."""
        self.seconds = np.zeros(S)
        self.results: list[Result | None] = [None] * S

    def run(self, progress: Callable[[int], None] | None) -> list[Result]:
        """Trains until all have made their updates, or have diverged."""
        epochs = self.settings.epochs
        reported = counted = time.perf_counter()
        for epoch in range(epochs + 1):
            outputs = self.replicas.outputs(self.targets.new_empty(*self.targets.shape, 0)).squeeze(2)
            errors = outputs.detach() - self.targets
            finite = self._note(epoch, outputs.detach(), errors)
            if epoch < epochs and finite.any():
                self._update(outputs, errors)
            now = time.perf_counter()
            if epoch == epochs or not finite.all():
                self.seconds[self.runs] += (now - counted) / len(self.runs)
                counted = now
                for row in range(len(self.runs)):
                    if epoch == epochs or not finite[row]:
                        self._finish(row, epoch, outputs.detach())
                self._keep(torch.from_numpy(np.flatnonzero(finite)))
            if progress is not None and (now - reported > PATIENCE or epoch == epochs or len(self.runs) == 0):
                progress(epoch)
                reported = now
            if len(self.runs) == 0:
                break
        return [result for result in self.results if result is not None]

    def _note(self, epoch: int, outputs: Tensor, errors: Tensor) -> NDArray[np.bool_]:
        """Which losses are finite; remembers them, and the networks that are better than before."""
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
        """One step of descent. The derivative of the loss by the output is the error."""
        gradients = torch.autograd.grad(outputs, list(self.replicas.parameters.values()), errors)
        gradient = torch.cat([each.flatten(1) for each in gradients], dim=1)
        descend(self.replicas.values, gradient, self.velocity, self.settings.learning_rate, self.settings.momentum)

    def _keep(self, rows: Tensor) -> None:
        """Goes on with some of the runs only."""
        self.runs = self.runs[rows.numpy()]
        self.best = self.best[rows.numpy()]
        self.replicas.keep(rows)
        self.targets, self.velocity = self.targets[rows], self.velocity[rows]
        self.best_values, self.best_outputs = self.best_values[rows], self.best_outputs[rows]

    def _finish(self, row: int, epochs: int, outputs: Tensor) -> None:
        run = self.runs[row]
        target, losses = self.wanted[run], self.losses[: epochs + 1, run]
        lost = not math.isfinite(losses[-1])
        diverged = lost or not nmse(outputs[row].numpy(), target) <= HOPELESS
        best_output = self.best_outputs[row].numpy().copy()
        output = best_output if diverged else outputs[row].numpy().copy()
        values = self.best_values[row] if diverged else self.replicas.values[row]
        self.results[run] = Result(
            status="diverged" if diverged else "finished",
            error=math.nan if diverged else nmse(output, target),
            best_error=nmse(best_output, target),
            best_epoch=0 if math.isinf(self.best[row]) else int(np.nanargmin(losses)),
            epochs=epochs,
            curve=_curve(losses[:-1] if lost else losses, target, self.settings.epochs),
            output=output,
            weights=self.replicas.weights(values),
            seconds=float(self.seconds[run]),
        )


def sum_of_squares(errors: Tensor) -> Tensor:
    """(S,): the squares of (S, T) added up in an order that depends on T alone, whatever S is: halves on halves."""
    squares = errors.square()
    size = 1
    while size < squares.shape[1]:
        size *= 2
    squares = torch.nn.functional.pad(squares, (0, size - squares.shape[1]))
    while size > 1:
        size //= 2
        squares = squares[:, :size] + squares[:, size:]
    return squares[:, 0]


def descend(values: Tensor, gradient: Tensor, velocity: Tensor, rate: float, momentum: float) -> None:
    """Changes values and velocity as `torch.optim.SGD(nesterov=True)` does, and the gradient too.

    torch multiplies and adds in one operation, and does not promise that the numbers that fill no vector, whose place
    depends on how many networks there are, are rounded like the others. Here they are two operations.
    """
    velocity.mul_(momentum).add_(gradient)
    gradient.add_(velocity * momentum)
    values.sub_(gradient.mul_(rate))


def _build(method: str, hidden: int, settings: Settings, seed: int = 0) -> Network:
    return models.build(
        method,
        hidden,
        modules=settings.modules,
        schedule=settings.schedule,
        peepholes=settings.peepholes,
        forget_bias=settings.forget_bias,
        deviation=settings.deviation,
        seed=seed,
    ).float()


def _checked(targets: ArrayLike, seeds: Sequence[int], settings: Settings) -> NDArray[np.float64]:
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
    """The squared error of the target's mean."""
    variation = float(np.square(target - target.mean(), dtype=np.float64).sum())
    if not variation > 0:
        raise ValueError("target must not be constant: it has no variance to compare with")
    return variation


def _curve(losses: NDArray[np.float32], target: NDArray[np.float64], epochs: int) -> NDArray[np.float32]:
    """Some of the losses as NMSE, with the epochs before them: the first, the last, and every so many between."""
    if len(losses) == 0:
        return np.empty((0, 2), dtype=np.float32)
    steps = np.unique([*range(0, len(losses), math.ceil(epochs / POINTS)), len(losses) - 1])
    return np.column_stack((steps, losses[steps] / (0.5 * _variation(target)))).astype(np.float32)
