"""Corpora: spoken words with their speakers, divided into training and test, as features.

Utterance       one word, said once
Corpus          all of them: the labels, the normalisation and the hash of what decides a training
CorpusError     what is wrong with a corpus: one line for each bad file
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .features import FeatureSettings

TRAIN, TEST = SPLITS = ("train", "test")


class CorpusError(ValueError):
    """A corpus cannot be had; the message has one line for everything that is wrong with it.

    >>> print(CorpusError("my words", ["a.wav: silent", "b.wav: empty"]))
    my words: 2 problems:
      a.wav: silent
      b.wav: empty
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source, self.problems = source, tuple(problems)
        one = len(self.problems) == 1
        text = self.problems[0] if one else "\n  ".join((f"{len(self.problems)} problems:", *self.problems))
        super().__init__(f"{source}: {text}")

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        return type(self), (self.source, self.problems)


@dataclass(frozen=True, eq=False)
class Utterance:
    """One word, said once."""

    word: str
    speaker: str
    split: str
    """train or test."""
    features: NDArray[np.float32]
    """(T, 13), not normalised."""
    source: str
    """The file, in words."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Spoken words, divided into training and test; one that makes no sense is refused with a CorpusError."""

    name: str
    source: str
    """Where it comes from, in words."""
    utterances: tuple[Utterance, ...]
    """In the order in which a training goes through them before they are shuffled."""
    settings: FeatureSettings
    synthetic: bool
    """Whether no human said the words."""
    clusters: Mapping[str, int]
    """Each word's cluster, from 1 on; words of one cluster sound alike. In the order of the words."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise CorpusError(self.name, problems)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The labels: by cluster, and within a cluster in the order of `clusters`."""
        return tuple(sorted(self.clusters, key=lambda word: self.clusters[word]))

    @cached_property
    def train(self) -> tuple[Utterance, ...]:
        """The utterances for training."""
        return tuple(each for each in self.utterances if each.split == TRAIN)

    @cached_property
    def test(self) -> tuple[Utterance, ...]:
        """The utterances for testing."""
        return tuple(each for each in self.utterances if each.split == TEST)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """(13,): each channel's, over all frames for training."""
        return np.asarray(self._frames.mean(axis=0))

    @cached_property
    def deviation(self) -> NDArray[np.float64]:
        """(13,): each channel's standard deviation, over all frames for training."""
        return np.asarray(self._frames.std(axis=0))

    @cached_property
    def digest(self) -> str:
        """The hash of all that decides a training: labels, division, speakers, features and their settings."""
        about = {
            "words": self.words,
            "settings": asdict(self.settings),
            "utterances": [[each.word, each.speaker, each.split, len(each.features)] for each in self.utterances],
        }
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
        for each in self.utterances:
            digest.update(np.ascontiguousarray(each.features, dtype="<f4").tobytes())
        return digest.hexdigest()

    def normalised(self, split: str) -> list[tuple[NDArray[np.float32], int]]:
        """The sequences of "train" or "test", and the numbers of their words, in the order of `utterances`.

        Each channel has mean 0 and variance 1 over the frames for training, in both of them.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        label = {word: i for i, word in enumerate(self.words)}
        return [
            (((each.features - self.mean) / self.deviation).astype(np.float32), label[each.word])
            for each in (self.train if split == TRAIN else self.test)
        ]

    @property
    def _frames(self) -> NDArray[np.float64]:
        return np.concatenate([each.features for each in self.train]).astype(np.float64)

    def _problems(self) -> list[str]:
        """What keeps it from being a corpus; what depends on something else is only asked when that is right."""
        problems = []
        shape = f"(T, {self.settings.channels})"
        for each in self.utterances:
            if each.split not in SPLITS:
                problems.append(f"{each.source}: the split must be 'train' or 'test', got {each.split!r}")
            if not each.word:
                problems.append(f"{each.source}: the word is empty")
            elif each.word not in self.clusters:
                problems.append(f"{each.source}: the word {each.word!r} has no cluster")
            if each.features.ndim != 2 or each.features.shape[1] != self.settings.channels or not len(each.features):
                problems.append(f"{each.source}: the features must be {shape}, T >= 1, got {each.features.shape}")
            elif not np.isfinite(each.features).all():
                problems.append(f"{each.source}: the features are not finite")
        if problems:
            return problems
        if len(self.clusters) < 2:
            problems.append(f"at least two words are needed, got {len(self.clusters)}")
        counts = Counter((each.word, each.split) for each in self.utterances)
        for word in self.clusters:
            for split, purpose in ((TRAIN, "training"), (TEST, "testing")):
                if not counts[word, split]:
                    problems.append(f"the word {word!r} has no example for {purpose}")
        if problems:
            return problems
        low, high = self._frames.min(axis=0), self._frames.max(axis=0)
        return [f"channel {i + 1} of the features is constant in training" for i in np.flatnonzero(low == high)]
