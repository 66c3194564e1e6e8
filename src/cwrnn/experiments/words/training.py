"""Classification: networks learn to tell sequences apart, the paper's second task, many runs at once.

    loss = - log softmax(W_out h(T) + b_out)[label]        one update per sequence, with Nesterov momentum

The decision is that of the last time step. In every epoch each network sees every training sequence once, in an order
and with noise on the inputs that are its own. After it the mean cross entropy of the training set without noise is
taken, and when that has not fallen for `patience` epochs the training ends; what is kept is the network of the epoch
in which it was lowest.

Runs that are trained together share nothing but the time that they take: with the CPU kernel each gives the bits that
it gives alone, on any number of threads.
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
from ..generation import training
from ..generation.training import PATIENCE, Result, descend
from ..networks import build as models
from ..networks.replicas import Replicas

Labelled = tuple[NDArray[np.float32], int]
"""A sequence (T, I), and the number of its class."""

EPOCHS = 1000
"""At most; the patience ends a training long before."""
USUAL_EPOCHS = 100
"""About as many as that takes."""


@dataclass(frozen=True)
class Settings(training.Settings):
    """The hyper-parameters of a run."""

    learning_rate: float
    """Of the gradient of one sequence's cross entropy."""
    epochs: int = EPOCHS
    """At most so many; in each, one update for every training sequence."""
    momentum: float = 0.9
    modules: int = models.WORD_MODULES
    noise: float = 0.6
    """Standard deviation of what is added to the inputs while training."""
    patience: int = 5
    """Epochs without a lower cross entropy of the training set after which it ends."""
    inputs: int = 13
    outputs: int = 25

    @property
    def usual_epochs(self) -> int:
        """About as many as a run makes."""
        return min(self.epochs, USUAL_EPOCHS)


def train_many(
    method: str,
    hidden: int,
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    seeds: Sequence[int],
    settings: Settings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[Result]:
    """What became of S networks, each with its own initial weights, order and noise, trained at once.

    The error of a result is the share of the test sequences whose class is not the most probable one; its curve has,
    besides epochs and the mean cross entropy of the training set, the shares of errors in training and test set; its
    output is (test sequences, classes): the logarithms of the probabilities.

    Args:
        method: "srn", "lstm" or "cw"
        hidden: hidden units, or cells of an LSTM
        train: what is learnt
        test: what is only looked at
        seeds: S of them: the initial weights are those of `models.build` with that seed
        settings: of all runs
        progress: called now and then with the epochs made, and at the end; if it raises, training stops

    >>> up, down = np.linspace(-1, 1, 20, dtype=np.float32)[:, None], np.linspace(1, -1, 15, dtype=np.float32)[:, None]
    >>> settings = Settings(0.03, epochs=20, modules=2, noise=0.1, inputs=1, outputs=2)
    >>> [result] = train_many("cw", 4, [(up, 0), (down, 1)] * 5, [(up, 0), (down, 1)], [0], settings)
    >>> result.error
    0.0
    """
    _check(train, settings, "training")
    _check(test, settings, "test")
    if len(seeds) == 0:
        return []
    replicas = Replicas([build(method, hidden, settings, int(seed)) for seed in seeds])
    with torch.enable_grad():
        return _Training(replicas, Padded(train), Padded(test), seeds, settings).run(progress)


def build(method: str, hidden: int, settings: Settings, seed: int = 0) -> Network:
    """The network of such a run, with its initial weights."""
    return models.build(
        method,
        hidden,
        settings.inputs,
        settings.outputs,
        softmax=True,
        modules=settings.modules,
        schedule=settings.schedule,
        peepholes=settings.peepholes,
        forget_bias=settings.forget_bias,
        deviation=settings.deviation,
        seed=seed,
    ).float()


def load(method: str, hidden: int, weights: Mapping[str, ArrayLike], settings: Settings) -> Network:
    """The network with those weights."""
    network = build(method, hidden, settings)
    network.load_state_dict({name: torch.tensor(np.asarray(value)) for name, value in weights.items()})
    return network


def follow(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], features: NDArray[np.float32], settings: Settings
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What such a network does while it hears a sequence (T, I).

    Returns:
        states: (T, hidden); those of fast modules come first
        log_probabilities: (T, classes): what it would decide if the sequence ended there
    """
    replicas = Replicas([load(method, hidden, weights, settings)])
    input = torch.from_numpy(np.array(features, dtype=np.float32))[None]
    with torch.no_grad():
        return replicas.states(input)[0].numpy(), replicas.outputs(input)[0].numpy()


class Padded:
    """Sequences of different lengths as one tensor (B, T, I), zero beyond their ends."""

    def __init__(self, sequences: Sequence[Labelled]) -> None:
        self.lengths = torch.tensor([len(features) for features, _ in sequences])
        self.labels = torch.tensor([label for _, label in sequences])
        self.input = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(np.array(features, dtype=np.float32)) for features, _ in sequences], batch_first=True
        )

    def __len__(self) -> int:
        return len(self.labels)


class _Epoch:
    """What S networks see in an epoch: for each of them all frames, in an order and with noise of its own."""

    def __init__(self, data: Padded, generators: Sequence[np.random.Generator], noise: float) -> None:
        S, B = len(generators), len(data)
        lengths, input = data.lengths.numpy(), data.input.numpy()
        frames = input[np.arange(input.shape[1]) < lengths[:, None]]
        ends = lengths.cumsum()
        total = int(ends[-1])
        self.orders = np.empty((S, B), dtype=np.int64)
        seen = np.empty((S, total, input.shape[2]), dtype=np.float32)
        for row, generator in enumerate(generators):
            order = self.orders[row] = generator.permutation(B)
            generator.standard_normal(out=seen[row], dtype=np.float32)
            seen[row] *= np.float32(noise)
            # the frames of the first sequence, then those of the second, ...
            mine = lengths[order]
            seen[row] += frames[np.arange(total) + np.repeat(ends[order] - mine.cumsum(), mine)]
        self._frames = torch.from_numpy(seen).flatten(0, 1)
        self._lengths = lengths[self.orders]
        self._starts = self._lengths.cumsum(1) - self._lengths + total * np.arange(S)[:, None]
        self._labels = data.labels.numpy()[self.orders]

    def sequence(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of every network's sequence of that number: the input (S, T, I), the length (S,) and the label (S,)."""
        lengths = self._lengths[:, number]
        places = self._starts[:, number, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        input = self._frames[torch.from_numpy(places)]
        return input, torch.from_numpy(lengths), torch.from_numpy(self._labels[:, number])


@dataclass(frozen=True)
class _Judged:
    """How all networks do on a set of sequences."""

    log_probabilities: Tensor
    """(S, B, O)"""
    losses: NDArray[np.float32]
    """(S,): the mean cross entropy."""
    errors: NDArray[np.float64]
    """(S,): the share that is taken for something else."""


class _Training:
    """The runs that are under way, and what is remembered of all."""

    def __init__(
        self, replicas: Replicas, train: Padded, test: Padded, seeds: Sequence[int], settings: Settings
    ) -> None:
        S = len(seeds)
        self.settings = settings
        self.replicas = replicas
        self.train, self.test = train, test
        self.runs = np.arange(S)
        """The numbers of the runs that are under way; what follows has a row for each of them."""
        # not the generator of the initial weights, and another one for every seed
        self.generators = [np.random.default_rng([int(seed), 2]) for seed in seeds]
        self.velocity = torch.zeros_like(replicas.values)
        self.best = np.full(S, np.inf, dtype=np.float32)
        self.best_epoch = np.zeros(S, dtype=np.int64)
        self.best_values = replicas.values.clone()
        self.best_outputs = torch.full((S, len(test), settings.outputs), math.nan)
        self.curves: list[list[tuple[float, float, float, float]]] = [[] for _ in range(S)]
        """Of all runs: epochs, cross entropy and error of the training set, error of the test set."""
        self.seconds = np.zeros(S)
        self.results: list[Result | None] = [None] * S

    def run(self, progress: Callable[[int], None] | None) -> list[Result]:
        """Trains until the patience with all is at an end, or their epochs are, or they have diverged."""
        reported = counted = time.perf_counter()
        for epoch in range(self.settings.epochs + 1):
            finite = self._note(epoch)
            waited = epoch - self.best_epoch >= self.settings.patience
            over = ~finite | waited | (epoch == self.settings.epochs)
            if over.any():
                now = time.perf_counter()
                self.seconds[self.runs] += (now - counted) / len(self.runs)
                counted = now
                for row in np.flatnonzero(over):
                    self._finish(int(row), epoch, bool(finite[row]))
                self._keep(np.flatnonzero(~over))
            now = time.perf_counter()
            if progress is not None and (now - reported > PATIENCE or len(self.runs) == 0):
                progress(epoch)
                reported = now
            if len(self.runs) == 0:
                break
            self._learn()
        return [result for result in self.results if result is not None]

    def _learn(self) -> None:
        """One epoch."""
        epoch = _Epoch(self.train, self.generators, self.settings.noise)
        rows = torch.arange(len(self.runs))
        for number in range(len(self.train)):
            input, lengths, labels = epoch.sequence(number)
            outputs = self.replicas.decide(input[:, :, None], lengths[:, None])[:, 0]
            losses = -outputs[rows, labels]
            self._update(losses)

    def _update(self, losses: Tensor) -> None:
        gradients = torch.autograd.grad(losses.sum(), list(self.replicas.parameters.values()))
        gradient = torch.cat([each.flatten(1) for each in gradients], dim=1)
        descend(self.replicas.values, gradient, self.velocity, self.settings.learning_rate, self.settings.momentum)

    def _note(self, epoch: int) -> NDArray[np.bool_]:
        """Which losses are finite; remembers how the networks do, and those that are better than before."""
        train, test = self._judge(self.train), self._judge(self.test)
        finite: NDArray[np.bool_] = np.isfinite(train.losses)
        better = finite & (train.losses < self.best)
        for row in np.flatnonzero(finite):
            point = epoch, float(train.losses[row]), float(train.errors[row]), float(test.errors[row])
            self.curves[self.runs[row]].append(point)
        if better.any():
            self.best = np.where(better, train.losses, self.best)
            self.best_epoch = np.where(better, epoch, self.best_epoch)
            rows = torch.from_numpy(better)
            self.best_values = torch.where(rows[:, None], self.replicas.values, self.best_values)
            self.best_outputs = torch.where(rows[:, None, None], test.log_probabilities, self.best_outputs)
        return finite

    def _judge(self, data: Padded) -> _Judged:
        with torch.no_grad():
            S = len(self.runs)
            input = data.input.transpose(0, 1)
            found = self.replicas.decide(input.expand(S, *input.shape), data.lengths.expand(S, -1))
        right = found[:, torch.arange(len(data)), data.labels]
        errors = (found.argmax(-1) != data.labels).double().mean(1).numpy()
        return _Judged(found, -right.double().mean(1).numpy().astype(np.float32), errors)

    def _keep(self, rows: NDArray[np.int64]) -> None:
        """Goes on with some of the runs only."""
        self.runs, self.best, self.best_epoch = self.runs[rows], self.best[rows], self.best_epoch[rows]
        self.generators = [self.generators[row] for row in rows]
        kept = torch.from_numpy(rows)
        self.replicas.keep(kept)
        self.velocity, self.best_values = self.velocity[kept], self.best_values[kept]
        self.best_outputs = self.best_outputs[kept]

    def _finish(self, row: int, epochs: int, finite: bool) -> None:
        run = self.runs[row]
        curve = np.array(self.curves[run], dtype=np.float32).reshape(-1, 4)
        best = int(self.best_epoch[row])
        error = self.curves[run][best][3] if math.isfinite(self.best[row]) else math.nan
        self.results[run] = Result(
            status="finished" if finite else "diverged",
            error=error if finite else math.nan,
            best_error=error,
            best_epoch=best,
            epochs=epochs,
            curve=curve,
            output=self.best_outputs[row].numpy().copy(),
            weights=self.replicas.weights(self.best_values[row]),
            seconds=float(self.seconds[run]),
        )


def _check(sequences: Sequence[Labelled], settings: Settings, name: str) -> None:
    if settings.epochs < 1:
        raise ValueError(f"epochs must be at least 1, got {settings.epochs}")
    if settings.patience < 1:
        raise ValueError(f"patience must be at least 1 epoch, got {settings.patience}")
    if not (settings.noise >= 0 and math.isfinite(settings.noise)):
        raise ValueError(f"noise must be a standard deviation, 0 or more, got {settings.noise}")
    if not sequences:
        raise ValueError(f"there are no {name} sequences")
    for features, label in sequences:
        if features.ndim != 2 or len(features) == 0 or features.shape[1] != settings.inputs:
            raise ValueError(
                f"{name} sequences must be (T, {settings.inputs}) with T at least 1, got shape {features.shape}"
            )
        if not np.isfinite(features).all():
            raise ValueError(f"{name} sequences must be finite")
        if not 0 <= label < settings.outputs:
            raise ValueError(f"labels must lie between 0 and {settings.outputs - 1}, got {label}")
