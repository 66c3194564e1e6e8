"""Training of spoken words, the paper's second task: networks learn to tell sequences apart, many at once.

    loss = - log softmax(W_out h(T) + b_out)[label]        one update per sequence, with Nesterov momentum

The network decides at the last time step. In every epoch each network sees every training sequence once, in an order
and with noise of its own. After each epoch the mean cross entropy of the noise-free training set is measured. Training
ends when it has not fallen for `patience` epochs; the network of the epoch in which it was lowest is kept.

Runs that are trained together do not influence each other: with the CPU kernel each gives the same bits as alone, on
any number of threads.

A network whose hidden layer is fixed (an echo state network) is fitted by least squares to its states at the ends of
the training sequences, without noise, which counts as one epoch. Its outputs are scores and no probabilities, so its
cross entropy says little; the most probable class is the one with the largest score.
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
from .. import paper
from ..errors import ArgumentError
from ..networks.build import build_network, load_weights
from ..networks.descent import SECONDS_BETWEEN_REPORTS, descend
from ..networks.least_squares import fit_readout, has_fixed_layer
from ..networks.replicas import Replicas
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings

Labelled = tuple[NDArray[np.float32], int]
"""A sequence (T, I), and the number of its class."""

MOST_EPOCHS = 1000
"""A limit that no training reaches: the patience ends it long before. The paper has none."""
USUAL_EPOCHS = 100
"""The approximate number of epochs of a training."""


@dataclass(frozen=True)
class WordSettings(TrainingSettings):
    """The hyper-parameters of a run that learns words. An epoch has one update for every training sequence."""

    epochs: int = MOST_EPOCHS
    momentum: float = paper.WORDS_MOMENTUM
    modules: int = paper.WORDS_MODULES
    noise: float = paper.WORDS_NOISE
    """The standard deviation of the noise that is added to the inputs during training."""
    patience: int = paper.WORDS_PATIENCE
    """Training ends after this many epochs without a lower cross entropy of the training set."""
    inputs: int = paper.WORDS_INPUTS
    outputs: int = paper.WORDS_OUTPUTS

    @property
    def usual_epochs(self) -> int:
        """The approximate number of epochs that a run makes."""
        return min(self.epochs, USUAL_EPOCHS)


def train_many(
    method: str,
    hidden: int,
    train: Sequence[Labelled],
    test: Sequence[Labelled],
    seeds: Sequence[int],
    settings: WordSettings,
    *,
    progress: Callable[[int], None] | None = None,
) -> list[TrainingResult]:
    """The results of S networks that are trained at once, each with its own initial weights, order and noise.

    The error is the share of the test sequences whose most probable class is wrong. The curve has, for every epoch, the
    mean cross entropy of the training set and the error on training and test set. The output is (test sequences,
    classes): the logarithms of the probabilities. A run whose cross entropy ceases to be finite has diverged.

    Args:
        method: one of ALL_METHODS
        hidden: hidden units, or cells of an LSTM
        train: the sequences that are learned
        test: the sequences that only measure the error
        seeds: (S,): network i has the initial weights that `build_network` draws with seed i
        settings: the hyper-parameters of all runs
        progress: called about ten times a second with the epochs made, and at the end; if it raises, training stops

    >>> up, down = np.linspace(-1, 1, 20, dtype=np.float32)[:, None], np.linspace(1, -1, 15, dtype=np.float32)[:, None]
    >>> settings = WordSettings(0.03, epochs=20, modules=2, noise=0.1, inputs=1, outputs=2)
    >>> [result] = train_many("cw", 4, [(up, 0), (down, 1)] * 5, [(up, 0), (down, 1)], [0], settings)
    >>> result.error
    0.0
    """
    _check(train, settings, "training")
    _check(test, settings, "test")
    if len(seeds) == 0:
        return []
    networks = [build_untrained(method, hidden, settings, int(seed)) for seed in seeds]
    learned, tested = Padded(train), Padded(test)
    if has_fixed_layer(networks[0]):
        results = [_fit(network, learned, tested) for network in networks]
        if progress is not None:
            progress(1)
        return results
    with torch.enable_grad():
        return _WordTraining(Replicas(networks), learned, tested, seeds, settings).run(progress)


def build_untrained(method: str, hidden: int, settings: WordSettings, seed: int = 0) -> Network:
    """The network of a run, with its initial weights."""
    return build_network(
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


def load_network(method: str, hidden: int, weights: Mapping[str, ArrayLike], settings: WordSettings) -> Network:
    """The network with these weights."""
    return load_weights(build_untrained(method, hidden, settings), weights)


def follow(
    method: str, hidden: int, weights: Mapping[str, ArrayLike], features: NDArray[np.float32], settings: WordSettings
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The states and decisions of a network at every step of a sequence (T, I).

    Returns:
        states: (T, hidden); units of fast modules come first
        log_probabilities: (T, classes): the decision if the sequence ended at that step
    """
    replicas = Replicas([load_network(method, hidden, weights, settings)])
    input = torch.from_numpy(np.array(features, dtype=np.float32))[None]
    with torch.no_grad():
        return replicas.states(input)[0].numpy(), replicas.outputs(input)[0].numpy()


class Padded:
    """Sequences of different lengths as one tensor (B, T, I) that is zero beyond their ends."""

    def __init__(self, sequences: Sequence[Labelled]) -> None:
        self.lengths = torch.tensor([len(features) for features, _ in sequences])
        self.labels = torch.tensor([label for _, label in sequences])
        self.input = torch.nn.utils.rnn.pad_sequence(
            [torch.from_numpy(np.array(features, dtype=np.float32)) for features, _ in sequences], batch_first=True
        )

    def __len__(self) -> int:
        return len(self.labels)


class _Epoch:
    """The frames that S networks see in an epoch: all of them, in an order and with noise of each network's own."""

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
            ordered = lengths[order]
            seen[row] += frames[np.arange(total) + np.repeat(ends[order] - ordered.cumsum(), ordered)]
        self._frames = torch.from_numpy(seen).flatten(0, 1)
        self._lengths = lengths[self.orders]
        self._starts = self._lengths.cumsum(1) - self._lengths + total * np.arange(S)[:, None]
        self._labels = data.labels.numpy()[self.orders]

    def sequence(self, number: int) -> tuple[Tensor, Tensor, Tensor]:
        """The input (S, T, I), length (S,) and label (S,) of the `number`-th sequence of every network."""
        lengths = self._lengths[:, number]
        places = self._starts[:, number, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)
        input = self._frames[torch.from_numpy(places)]
        return input, torch.from_numpy(lengths), torch.from_numpy(self._labels[:, number])


@dataclass(frozen=True)
class _Evaluation:
    """The decisions of all networks on a set of sequences."""

    log_probabilities: Tensor
    """(S, B, O)"""
    losses: NDArray[np.float32]
    """(S,): the mean cross entropy."""
    errors: NDArray[np.float64]
    """(S,): the share of the sequences whose most probable class is wrong."""


def _evaluate(replicas: Replicas, data: Padded) -> _Evaluation:
    S = len(replicas.values)
    input = data.input.transpose(0, 1)
    with torch.no_grad():
        decisions = replicas.decide(input.expand(S, *input.shape), data.lengths.expand(S, -1))
    right = decisions[:, torch.arange(len(data)), data.labels]
    errors = (decisions.argmax(-1) != data.labels).double().mean(1).numpy()
    return _Evaluation(decisions, -right.double().mean(1).numpy().astype(np.float32), errors)


def _fit(network: Network, train: Padded, test: Padded) -> TrainingResult:
    """The result of a network with a fixed hidden layer, whose readout is fitted to the training sequences."""
    began = time.perf_counter()
    initial = Replicas([network])
    evaluations = [(_evaluate(initial, train), _evaluate(initial, test))]
    with torch.no_grad():
        [states] = initial.final_states(train.input.transpose(0, 1)[None], train.lengths[None])
    fit_readout(network, [(states, train.labels)], classes=network.readout.out_features)
    fitted = Replicas([network])
    evaluations.append((_evaluate(fitted, train), _evaluate(fitted, test)))
    curve = [
        (epoch, float(of_train.losses[0]), float(of_train.errors[0]), float(of_test.errors[0]))
        for epoch, (of_train, of_test) in enumerate(evaluations)
    ]
    return TrainingResult(
        status="finished",
        error=curve[1][3],
        best_error=curve[1][3],
        best_epoch=1,
        epochs=1,
        curve=np.array(curve, dtype=np.float32),
        output=evaluations[1][1].log_probabilities[0].numpy(),
        weights={name: value.numpy().copy() for name, value in network.state_dict().items()},
        seconds=time.perf_counter() - began,
    )


class _WordTraining:
    """The runs that are being trained, and the curves and best networks of all."""

    def __init__(
        self, replicas: Replicas, train: Padded, test: Padded, seeds: Sequence[int], settings: WordSettings
    ) -> None:
        S = len(seeds)
        self.settings = settings
        self.replicas = replicas
        self.train, self.test = train, test
        self.runs = np.arange(S)
        """The numbers of the runs that are being trained; the following arrays have one row for each."""
        # another generator than that of the initial weights, and another one for every seed
        self.generators = [np.random.default_rng([int(seed), 2]) for seed in seeds]
        self.velocity = torch.zeros_like(replicas.values)
        self.best = np.full(S, np.inf, dtype=np.float32)
        self.best_epoch = np.zeros(S, dtype=np.int64)
        self.best_values = replicas.values.clone()
        self.best_outputs = torch.full((S, len(test), settings.outputs), math.nan)
        self.curves: list[list[tuple[float, float, float, float]]] = [[] for _ in range(S)]
        """For each run: epochs, cross entropy and error of the training set, error of the test set."""
        self.seconds = np.zeros(S)
        self.results: list[TrainingResult | None] = [None] * S

    def run(self, progress: Callable[[int], None] | None) -> list[TrainingResult]:
        """Trains until every run has run out of patience or epochs, or has diverged."""
        reported = accounted = time.perf_counter()
        for epoch in range(self.settings.epochs + 1):
            finite = self._remember(epoch)
            is_impatient = epoch - self.best_epoch >= self.settings.patience
            over = ~finite | is_impatient | (epoch == self.settings.epochs)
            if over.any():
                now = time.perf_counter()
                self.seconds[self.runs] += (now - accounted) / len(self.runs)
                accounted = now
                for row in np.flatnonzero(over):
                    self._finish(int(row), epoch, bool(finite[row]))
                self._keep(np.flatnonzero(~over))
            now = time.perf_counter()
            if progress is not None and (now - reported > SECONDS_BETWEEN_REPORTS or len(self.runs) == 0):
                progress(epoch)
                reported = now
            if len(self.runs) == 0:
                break
            self._learn()
        return [result for result in self.results if result is not None]

    def _learn(self) -> None:
        """Makes one epoch."""
        epoch = _Epoch(self.train, self.generators, self.settings.noise)
        rows = torch.arange(len(self.runs))
        for number in range(len(self.train)):
            input, lengths, labels = epoch.sequence(number)
            outputs = self.replicas.decide(input[:, :, None], lengths[:, None])[:, 0]
            losses = -outputs[rows, labels]
            self._update(losses)

    def _update(self, losses: Tensor) -> None:
        gradients = torch.autograd.grad(losses.sum(), list(self.replicas.parameters.values()))
        gradient = torch.cat([part.flatten(1) for part in gradients], dim=1)
        descend(self.replicas.values, gradient, self.velocity, self.settings.learning_rate, self.settings.momentum)

    def _remember(self, epoch: int) -> NDArray[np.bool_]:
        """Evaluates the networks, and remembers those that are better than before. Returns which losses are finite."""
        train, test = _evaluate(self.replicas, self.train), _evaluate(self.replicas, self.test)
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

    def _keep(self, rows: NDArray[np.int64]) -> None:
        """Goes on with the runs of these rows only."""
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
        self.results[run] = TrainingResult(
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


def check_noise(noise: float) -> None:
    """Raises an ArgumentError if `noise` cannot be a standard deviation."""
    if not (noise >= 0 and math.isfinite(noise)):
        raise ArgumentError("noise", f"expected a standard deviation, 0 or more, got {noise}")


def _check(sequences: Sequence[Labelled], settings: WordSettings, name: str) -> None:
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
