"""Least squares: the readout of a network whose hidden layer is fixed, fitted in one pass over its states.

    W = argmin  sum over n of |W h(n) - y(n)|^2  +  r |W|^2            h(n) = a state, and a 1 for the bias
    W = Y' H (H' H + r I)^-1

H' H and Y' H are sums over the examples (the normal equations), so the states need not be kept. The bias is not
penalised. The ridge r is relative to the mean square of the values of a state. It is chosen by the errors on every
fifth example, with a readout that was fitted to the others; then the readout is fitted to all examples.

A class is fitted as a one-hot target. The most probable class is the largest output, but such outputs are scores and no
probabilities, even behind a softmax.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ...network import Network
from .models.model_layer import ModelLayer

RIDGES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The ridges to choose from, relative to the mean square of the values of a state."""
HELD_OUT = 5
"""One example of so many is held out to choose the ridge."""
MOST_HELD_OUT = 10_000
"""The most examples that are held out: they are kept in memory."""


def has_fixed_layer(network: Network) -> bool:
    """Whether the hidden layer of a network is not trained, so that the readout can be fitted by least squares."""
    return isinstance(network.layer, ModelLayer) and network.layer.is_fixed


def fit_readout(
    network: Network,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    classes: int | None = None,
    ridges: Sequence[float] = RIDGES,
) -> float:
    """Fits the readout of a network to states and targets, and returns the ridge that was chosen.

    The ridge is chosen by the share of wrong classes or by the squared error. With a single ridge, or with fewer
    examples than HELD_OUT, nothing is held out, and the first ridge is taken.

    Args:
        network: its readout is overwritten
        batches: pairs of states (..., N) and targets (..., O), or (...) int64 if they are classes
        classes: the number of classes; None if the targets are numbers
        ridges: the ridges to choose from; the first of equally good ones is taken

    >>> from torch import nn
    >>> network, states = Network(nn.RNN(1, 3), 1), torch.randn(50, 3)
    >>> ridge = fit_readout(network, [(states, states.sum(-1, keepdim=True) + 2)])
    >>> torch.allclose(network.readout.weight, torch.ones(1, 3), atol=1e-4)
    True
    """
    outputs, N = network.readout.weight.shape
    sums, held, seen = _NormalEquations(N, outputs), [], 0
    for states, targets in batches:
        if classes is not None:
            targets = torch.nn.functional.one_hot(targets, classes)
        states, targets = (part.detach().flatten(0, -2).double().cpu() for part in (states, targets))
        is_held = torch.arange(seen, seen + len(states)) % HELD_OUT == HELD_OUT - 1
        is_held &= torch.tensor(len(ridges) > 1 and seen // HELD_OUT < MOST_HELD_OUT)
        sums.add(states[~is_held], targets[~is_held])
        held.append((states[is_held], targets[is_held]))
        seen += len(states)
    if seen == 0:
        raise ValueError("batches must have at least one example, got none")
    kept_states, kept_targets = (torch.cat(parts) for parts in zip(*held, strict=True))
    ridge = ridges[0]
    if len(kept_states):
        solutions = {ridge: sums.solve(ridge) for ridge in ridges}
        ridge = min(
            ridges, key=lambda ridge: _measure(solutions[ridge], kept_states, kept_targets, classes is not None)
        )
        sums.add(kept_states, kept_targets)
    solution = sums.solve(ridge)
    if not solution.isfinite().all():
        raise ValueError("batches must have finite states and targets")
    with torch.no_grad():
        network.readout.weight.copy_(solution[:N].T)
        network.readout.bias.copy_(solution[N])
    return ridge


class _NormalEquations:
    """The sums H' H and H' Y over examples.

    Args:
        N: the values of a state
        outputs: the values of a target
    """

    def __init__(self, N: int, outputs: int) -> None:
        self.left = torch.zeros(N + 1, N + 1, dtype=torch.float64)
        self.right = torch.zeros(N + 1, outputs, dtype=torch.float64)

    def add(self, states: Tensor, targets: Tensor) -> None:
        """Adds examples: states (n, N) and targets (n, O)."""
        rows = _append_one(states)
        self.left += rows.T @ rows
        self.right += rows.T @ targets

    def solve(self, ridge: float) -> Tensor:
        """(N + 1, O): the weights and, in the last row, the bias."""
        left = self.left.clone()
        squares = left.diagonal()[:-1]
        # states that are all zero have no mean square to which the ridge could be relative
        squares += ridge * (squares.mean().item() or 1.0)
        solution: Tensor = torch.linalg.solve(left, self.right)
        return solution


def _append_one(states: Tensor) -> Tensor:
    return torch.cat([states, states.new_ones(len(states), 1)], 1)


def _measure(solution: Tensor, states: Tensor, targets: Tensor, has_classes: bool) -> float:
    """The share of wrong classes, or the mean squared error, of a solution (N + 1, O)."""
    outputs = _append_one(states) @ solution
    if has_classes:
        return float((outputs.argmax(1) != targets.argmax(1)).double().mean())
    return float((outputs - targets).square().mean())
