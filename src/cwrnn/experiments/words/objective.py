"""The objective of learned clocks on words: S networks tell words apart, and their error rate is measured.

loss = - log softmax(W_out h(T) + b_out)[label], mean of a batch     one update per batch
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from .. import paper
from ..clocks.training import ComputeOutputs, Errors, NetworkBatch
from .clips import TEST, TRAIN
from .corpus import Corpus
from .training import Labelled, Padded

BATCH = 25
"""Number of words in an update."""


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


def _pad(sequences: Sequence[Labelled]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the input (T, B, I), which is zero beyond the end of a word, the lengths (B,) and the labels (B,)."""
    padded = Padded(sequences)
    return padded.input.transpose(0, 1), padded.lengths, padded.labels
