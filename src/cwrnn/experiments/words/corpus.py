"""Corpora: spoken words with their speakers, divided into training and test, as features.

Utterance       one word, said once
Corpus          all of them: the labels, the normalisation and the hash of what decides a training
CorpusError     what is wrong with a corpus: one line for each bad file
WordsError      what is wrong with the words that were asked for
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from . import folder, timit
from .features import FeatureSettings
from .sound_files import SPLITS, TEST, TRAIN, Found, Progress, features, printable, user_cache

BUNDLE = "bundle"
SOURCES = (BUNDLE, "timit:PATH", "nltk-timit:PATH", "folder:PATH")


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
        super().__init__(printable(f"{source}: {text}"))

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        return type(self), (self.source, self.problems)


class WordsError(CorpusError):
    """The words that were asked for are at fault, not the corpus."""


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


def load(
    source: str = BUNDLE,
    *,
    words: Sequence[str] | None = None,
    speakers: int = 7,
    test: int = 2,
    cache: Path | Literal[False] | None = None,
    progress: Progress | None = None,
) -> Corpus:
    """The corpus of a source, complete, or a CorpusError that lists all that is wrong with it.

    Args:
        source: see above
        words: these only, in this order; else the source's own, and of TIMIT the paper's
        speakers: of TIMIT: examples of each word, each by another speaker
        test: how many of them are for testing, unless the source has a division of its own
        cache: a folder for features, so that they are computed once; None: this user's; False: none
        progress: called with the utterances done, and all of them
    """
    if words is not None and source.startswith(("timit:", "nltk-timit:")):
        words = [word.lower() for word in words]
    if words is not None and (len(set(words)) < len(words) or len(words) < 2 or not all(words)):
        raise WordsError(
            "words", [f"expected two or more different words, got {', '.join(map(repr, words)) or 'none'}"]
        )
    if not 1 <= test < speakers:
        raise CorpusError("speakers", [f"expected 1 <= test < speakers, got test={test}, speakers={speakers}"])
    if source == BUNDLE:
        # it is built on this module
        from .bundle import bundled

        return bundled() if words is None else _only(bundled(), words)
    settings = FeatureSettings()
    found = _find(source, words, speakers, test, settings)
    folder_of_cache = user_cache() if cache is None else cache or None
    heard, problems = features(found.clips, settings, cache=folder_of_cache, progress=progress)
    if found.problems or problems or found.lacking:
        # a source that cannot be read may be why a word is not there
        kind = CorpusError if found.problems or problems else WordsError
        raise kind(source, found.problems + found.lacking + problems)
    return Corpus(
        name=found.name,
        source=found.source,
        utterances=tuple(
            Utterance(clip.word, clip.speaker, clip.split, each, clip.source)
            for clip, each in zip(found.clips, heard, strict=True)
        ),
        settings=settings,
        synthetic=False,
        clusters=found.clusters,
    )


def _find(source: str, words: Sequence[str] | None, speakers: int, test: int, settings: FeatureSettings) -> Found:
    kind, _, rest = source.partition(":")
    # no shell does this after a colon
    path = Path(os.path.expanduser(rest))
    if rest and kind == "folder":
        return folder.find(path, words=words, test=test)
    if rest and kind in ("timit", "nltk-timit"):
        sample = kind == "nltk-timit"
        return timit.find(path, sample=sample, words=words, speakers=speakers, test=test, settings=settings)
    if source and Path(source).is_dir():
        return folder.find(Path(source), words=words, test=test)
    raise CorpusError(repr(source), [f"expected {', '.join(SOURCES)} or an existing folder"])


def _only(corpus: Corpus, words: Sequence[str]) -> Corpus:
    lacking = [word for word in words if word not in corpus.clusters]
    if lacking:
        raise WordsError(corpus.name, [f"there is no example of the word {word!r}" for word in lacking])
    some = len(words) < len(corpus.clusters)
    return replace(
        corpus,
        source=f"{len(words)} of the words of {corpus.source}" if some else corpus.source,
        utterances=tuple(each for each in corpus.utterances if each.word in words),
        clusters={word: corpus.clusters[word] for word in words},
    )
