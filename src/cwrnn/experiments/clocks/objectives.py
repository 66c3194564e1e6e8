"""Objectives: what S networks with learned clocks are trained on at once, and how their errors are measured.

sequences     loss = 1/2 NMSE, where the target has mean 0 and variance 1          one update per epoch
words         loss = - log softmax(W_out h(T) + b_out)[label], mean of a batch     one update per batch
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from .. import paper
from ..generation.training import nmse
from ..sweep.run import Dataset
from ..task import Data
from ..words.clips import TEST, TRAIN
from ..words.corpus import Corpus
from ..words.training import Labelled, Padded
from .square_waves import SquareWaves
from .training import ComputeOutputs, Errors, NetworkBatch, Objective

BATCH = 25
"""Number of words in an update."""


class SequenceObjective:
    """Each network generates one sequence; all sequences have the same length."""

    inputs, outputs, updates = 0, 1, 1

    def __init__(self, data: Sequence[Dataset]) -> None:
        self.data = data
        # normalised, so that the size of the gradients does not depend on how loud a sequence is
        targets = np.stack([(dataset.samples - dataset.samples.mean()) / dataset.samples.std() for dataset in data])
        self.targets = torch.from_numpy(targets).float()  # (S, T)
        self.example = torch.zeros(self.targets.shape[1], 1, 0)

    def losses(self, networks: NetworkBatch) -> Iterator[Tensor]:
        """Yield the losses (S,) of the one update of an epoch."""
        S, T = self.targets.shape
        outputs = networks.read(networks.states(torch.zeros(T, S, 1, 0)))[..., 0]  # (T, S, draws)
        yield 0.5 * (outputs - self.targets.T[:, :, None]).square().mean((0, 2))

    def measure_errors(self, network: int, compute: ComputeOutputs) -> Errors:
        """Return the NMSE against the samples and, for square waves, the NMSE against the waves without noise."""
        data = self.data[network]
        output = data.samples.mean() + data.samples.std() * compute(self.example)[:, 0, 0].numpy()
        train = nmse(output, data.samples)
        return Errors(train, nmse(output, data.clean) if isinstance(data, SquareWaves) else train)

    def name_data(self, network: int) -> str:
        """Return the name of the network's sequence."""
        return name_target(self.data[network])


class WordObjective:
    """Networks tell words apart: the output at the last frame of a word decides.

    Every network hears the words in an order of its own and with noise of its own, as in `words.training`.
    """

    def __init__(self, corpus: Corpus, noise: float = paper.WORDS_NOISE) -> None:
        self.inputs, self.outputs = corpus.settings.channels, len(corpus.words)
        self.corpus, self.noise = corpus, noise
        self.train, self.test = (_pad(corpus.normalised(split)) for split in (TRAIN, TEST))
        self.updates = math.ceil(len(corpus.train) / BATCH)
        self.example = self.train[0][:, :BATCH]

    def losses(self, networks: NetworkBatch) -> Iterator[Tensor]:
        """Yield the losses (S,) of every batch; each network goes through all words in an order of its own."""
        input, lengths, labels = self.train
        orders = torch.from_numpy(np.stack([generator.permutation(len(labels)) for generator in networks.generators]))
        for order in orders.split(BATCH, dim=1):  # (S, B)
            longest = lengths[order].amax(dim=1).tolist()
            frames = input[: max(longest), order]  # (T, S, B, I)
            noise = np.zeros(frames.shape, dtype=np.float32)
            for network, (T, generator) in enumerate(zip(longest, networks.generators, strict=True)):
                # as long as the network's own words, so that a network is the same alone and among others
                noise[:T, network] = generator.standard_normal((T, *frames.shape[2:]), dtype=np.float32)
            states = networks.states(frames + self.noise * torch.from_numpy(noise))
            words = order.repeat(1, states.shape[2] // order.shape[1])  # (S, draws * B)
            last = (lengths[words] - 1)[None, :, :, None].expand(1, *states.shape[1:])
            outputs = networks.read(states.gather(0, last)[0])  # (S, draws * B, O)
            yield nn.functional.cross_entropy(outputs.mT, labels[words], reduction="none").mean(1)

    def measure_errors(self, network: int, compute: ComputeOutputs) -> Errors:
        """Return the cross entropy of the training set and the error rate on the test set."""
        train, test = (
            compute(input)[lengths - 1, torch.arange(len(lengths))] for input, lengths, _ in (self.train, self.test)
        )
        entropy = nn.functional.cross_entropy(train.double(), self.train[2])
        return Errors(float(entropy), float((test.argmax(-1) != self.test[2]).double().mean()))

    def name_data(self, network: int) -> str:
        """Return the name of the corpus, which all networks learn."""
        return self.corpus.name


def name_target(data: Data) -> str:
    """Return the name of what is learned; square waves that differ only in their noise have the same name.

    >>> from .square_waves import make_square_waves
    >>> name_target(make_square_waves([3, 7], seed=5))
    'squares 3, 7'
    """
    return f"squares {', '.join(map(str, data.periods))}" if isinstance(data, SquareWaves) else data.name


def make_objectives(data: Sequence[Data], runs: int, seed: int) -> list[tuple[Objective, list[int]]]:
    """Return the objectives for the data, each with the seeds of its networks.

    Sequences of the same length share an objective and are learned at once.

    Args:
        data: sequences, or one corpus
        runs: number of networks for each sequence, or for the corpus
        seed: seed of the first network; the next networks count from there
    """
    if isinstance(data[0], Corpus):
        return [(WordObjective(data[0]), list(range(seed, seed + runs)))]
    rows = [dataset for dataset in data if isinstance(dataset, Dataset) for _ in range(runs)]
    groups: dict[int, list[int]] = {}
    for row, dataset in enumerate(rows):
        groups.setdefault(len(dataset.samples), []).append(row)
    return [
        (SequenceObjective([rows[row] for row in group]), [seed + row for row in group]) for group in groups.values()
    ]


def _pad(sequences: Sequence[Labelled]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input (T, B, I), which is zero beyond the end of a word, the lengths (B,) and the labels (B,)."""
    padded = Padded(sequences)
    return padded.input.transpose(0, 1), padded.lengths, padded.labels
