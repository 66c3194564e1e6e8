"""Training: one network learns to generate one sequence from no input, the paper's first task.

    loss = 1/2 sum over t of (y(t) - target(t))^2            stochastic gradient descent with Nesterov momentum

The paper says mean squared error, but its learning rates fit the sum over the sequence: with the mean, a Clockwork
RNN of 40 units comes down to an NMSE of 0.08 and 0.23 on the bundled snippets 1 and 3 in the paper's 2000 epochs,
with the sum to 0.001 and 0.015, and the paper's is 0.007.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .models import Network

MOMENTUM = 0.95
LEARNING_RATES = {"cw": 3e-4, "srn": 3e-4, "lstm": 3e-5}


@dataclass(frozen=True)
class _Old:
    """What became of one run. A run that diverged is a result too."""

    losses: tuple[float, ...]
    """The loss before every update, and after the last; ends with the first that is not finite."""
    output: NDArray[np.float64]
    """(T,): what the network generates in the end; not finite if it diverged."""
    best_output: NDArray[np.float64]
    """(T,): what it generated when its loss was lowest; NaN if that never was finite."""
    nmse: float
    """Of the output; NaN if the run diverged."""
    best_nmse: float
    """Of the best output."""
    best_epoch: int
    """Updates before the loss was lowest."""
    epochs: int
    """Updates made: fewer than asked for if the run diverged."""
    diverged: bool
    """Whether the loss ceased to be finite."""
    seconds: float


def nmse(output: NDArray[np.float64], target: NDArray[np.float64]) -> float:
    """The squared error over the variance of the target: 1 for an output that is the target's mean.

    >>> nmse(np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 3.0]))
    0.5
    """
    if output.shape != target.shape:
        raise ValueError(f"output and target must have one shape, got {output.shape} and {target.shape}")
    variation = float(np.square(target - target.mean()).sum())
    if not variation > 0:
        raise ValueError("target must not be constant: it has no variance to compare with")
    return float(np.square(output - target).sum()) / variation


def train(
    network: Network,
    target: NDArray[np.float64],
    *,
    epochs: int,
    learning_rate: float,
    momentum: float = MOMENTUM,
    progress: Callable[[int, float], None] | None = None,
) -> _Old:
    """What became of `network`, which is changed in place, after `epochs` updates or when it has diverged.

    Args:
        network: without input and with one output, from `models.build`
        target: (T,)
        epochs: updates; each sees the whole sequence
        learning_rate: of the gradient of the summed error
        momentum: Nesterov's
        progress: called before every update and after the last, with the updates made and the NMSE
    """
    if epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {epochs}")
    parameter = next(network.parameters())
    wanted = torch.as_tensor(target).to(parameter)[:, None, None]  # (T, 1, 1)
    nothing = wanted.new_empty(len(target), 1, 0)
    # half the squared error of the target's mean, so that a loss over it is an NMSE
    unit = 0.5 * float(np.square(target - target.mean()).sum())
    optimiser = torch.optim.SGD(network.parameters(), lr=learning_rate, momentum=momentum, nesterov=True)

    losses: list[float] = []
    best_output = output = torch.full_like(wanted, math.nan)
    best = math.inf
    best_epoch = 0
    started = time.perf_counter()
    with _one_thread():
        for epoch in range(epochs + 1):
            output = network(nothing)
            loss = 0.5 * (output - wanted).square().sum()
            losses.append(loss.item())
            if losses[-1] < best:
                best, best_epoch, best_output = losses[-1], epoch, output.detach()
            if progress is not None:
                progress(epoch, losses[-1] / unit)
            if not math.isfinite(losses[-1]):
                break
            if epoch < epochs:
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    seconds = time.perf_counter() - started

    diverged = not math.isfinite(losses[-1])
    final = _sequence(output)
    return _Old(
        losses=tuple(losses),
        output=final,
        best_output=_sequence(best_output),
        nmse=math.nan if diverged else nmse(final, target),
        best_nmse=nmse(_sequence(best_output), target),
        best_epoch=best_epoch,
        epochs=len(losses) - 1,
        diverged=diverged,
        seconds=seconds,
    )


def _sequence(output: Tensor) -> NDArray[np.float64]:
    """(T,) of (T, 1, 1)."""
    return output.detach()[:, 0, 0].double().numpy()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Networks as small as these are slower on two threads than on one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


EPOCHS = 2000


@dataclass(frozen=True)
class Settings:
    """Shim."""

    learning_rate: float
    epochs: int = 2000
    momentum: float = 0.95
    modules: int = 9
    peepholes: bool = True
    forget_bias: float = 5.0
    deviation: float = 0.1


@dataclass(frozen=True)
class Result:
    """Shim."""

    status: str
    nmse: float
    best_nmse: float
    best_epoch: int
    epochs: int
    curve: NDArray[np.float32]
    output: NDArray[np.float32]
    weights: dict[str, NDArray[np.float32]]
    seconds: float


def train_many(
    method: str,
    hidden: int,
    targets: NDArray[np.float64],
    seeds: "list[int]",
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """Shim."""
    from .models import build

    results = []
    for target, seed in zip(targets, seeds, strict=True):
        network = build(
            method,
            hidden,
            modules=settings.modules,
            peepholes=settings.peepholes,
            forget_bias=settings.forget_bias,
            seed=int(seed),
        )
        old = train(
            network,
            target,
            epochs=settings.epochs,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            progress=None if progress is None else lambda epoch, _: progress(epoch // len(seeds)),
        )
        variation = 0.5 * float(np.square(target - target.mean()).sum())
        curve = np.array([(i, loss / variation) for i, loss in enumerate(old.losses)], dtype=np.float32)
        results.append(
            Result(
                "diverged" if old.diverged else "finished",
                old.nmse,
                old.best_nmse,
                old.best_epoch,
                old.epochs,
                curve,
                (old.best_output if old.diverged else old.output).astype(np.float32),
                {name: value.detach().numpy().copy() for name, value in network.named_parameters()},
                old.seconds,
            )
        )
    return results
