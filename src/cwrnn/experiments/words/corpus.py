"""Corpora: spoken words with their speakers, divided into training and test, as features.

Utterance       one word, spoken once
Corpus          all utterances, with the labels, the normalisation, and a hash of everything that decides a training
load_corpus     a corpus from the package, from TIMIT or from a folder of recordings
CorpusError     a corpus cannot be loaded: one line for each problem
WordsError      the words that the caller chose are not in the corpus
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ...cache_folder import find_cache_folder
from ...untrusted import escape_controls
from .. import paper
from ..errors import ArgumentError
from ..file_names import replace_undecodable
from ..progress import ProgressCallback
from .clips import SPLITS, TEST, TRAIN, SourceContents
from .feature_cache import load_features
from .features import FeatureSettings
from .folder import read_folder
from .timit import read_timit

BUNDLE = "bundle"
SOURCES = (BUNDLE, "timit:PATH", "nltk-timit:PATH", "folder:PATH")

MOST_PROBLEMS = 1000
"""The most problems in one message."""


class CorpusError(ArgumentError):
    """A corpus cannot be loaded. The message has one line for each problem, up to MOST_PROBLEMS.

    >>> print(CorpusError("my words", ["a.wav: silent", "b.wav: empty"]))
    my words: 2 problems:
      a.wav: silent
      b.wav: empty
    """

    def __init__(self, source: str, problems: Sequence[str], argument: str = "data") -> None:
        self.source, self.problems = source, tuple(problems)
        lines = [escape_controls(replace_undecodable(problem)) for problem in self.problems[:MOST_PROBLEMS]]
        if len(self.problems) > len(lines):
            lines.append(f"and {len(self.problems) - len(lines)} more")
        text = lines[0] if len(self.problems) == 1 else "\n  ".join((f"{len(self.problems)} problems:", *lines))
        super().__init__(argument, f"{escape_controls(replace_undecodable(source))}: {text}")

    def __str__(self) -> str:
        # the source says more than the name of the argument
        return self.message

    def __reduce__(self) -> tuple[type, tuple[str, tuple[str, ...]]]:
        return type(self), (self.source, self.problems)


class WordsError(CorpusError):
    """The words that the caller chose cannot be used, although the corpus can."""

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        super().__init__(source, problems, "words")


@dataclass(frozen=True, eq=False)
class Utterance:
    """One word, spoken once."""

    word: str
    speaker: str
    split: str
    """"train" or "test"."""
    features: NDArray[np.float32]
    """(T, 13), not normalised."""
    source: str
    """The file and the place in it, for people to read."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """Spoken words, divided into training and test. Contents that cannot be trained on raise a CorpusError."""

    kind: ClassVar[str] = "words"
    name: str
    source: str
    """Where the words come from, for people to read."""
    utterances: tuple[Utterance, ...]
    """The recordings, in the order in which training reads them before it shuffles them."""
    settings: FeatureSettings
    synthetic: bool
    """True if a program spoke the words."""
    clusters: Mapping[str, int]
    """The cluster of each word, from 1 on, in the order of the words; words of one cluster sound alike."""
    draw: int = 0
    """The seed that chose the speakers of each word from those of the source (`draws.py`)."""

    def __post_init__(self) -> None:
        problems = self._find_problems()
        if problems:
            raise CorpusError(self.name, problems)

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The labels: by cluster, and within a cluster in the order of `clusters`."""
        return tuple(sorted(self.clusters, key=lambda word: self.clusters[word]))

    @property
    def pool(self) -> str:
        """The name of the corpus whose speakers were drawn from; the corpora of all draws share it."""
        return self.name.removesuffix(name_draw(self.draw))

    @cached_property
    def train(self) -> tuple[Utterance, ...]:
        """The utterances for training."""
        return tuple(utterance for utterance in self.utterances if utterance.split == TRAIN)

    @cached_property
    def test(self) -> tuple[Utterance, ...]:
        """The utterances for testing."""
        return tuple(utterance for utterance in self.utterances if utterance.split == TEST)

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each channel over all training frames, (13,)."""
        return np.asarray(self._training_frames.mean(axis=0))

    @cached_property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation of each channel over all training frames, (13,)."""
        return np.asarray(self._training_frames.std(axis=0))

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides a training: labels, split, speakers, features and their settings."""
        about = {
            "words": self.words,
            "settings": asdict(self.settings),
            "utterances": [
                [utterance.word, utterance.speaker, utterance.split, len(utterance.features)]
                for utterance in self.utterances
            ],
        }
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())
        for utterance in self.utterances:
            digest.update(np.ascontiguousarray(utterance.features, dtype="<f4").tobytes())
        return digest.hexdigest()

    def normalised(self, split: str) -> list[tuple[NDArray[np.float32], int]]:
        """Return the sequences (T, 13) of "train" or "test" with their labels, in the order of `utterances`.

        The mean and the standard deviation of the training frames normalise both splits.
        """
        if split not in SPLITS:
            raise ValueError(f"split must be 'train' or 'test', got {split!r}")
        label = {word: i for i, word in enumerate(self.words)}
        return [
            (((utterance.features - self.mean) / self.deviation).astype(np.float32), label[utterance.word])
            for utterance in (self.train if split == TRAIN else self.test)
        ]

    @property
    def _training_frames(self) -> NDArray[np.float64]:
        return np.concatenate([utterance.features for utterance in self.train]).astype(np.float64)

    def _find_problems(self) -> list[str]:
        """Return every reason why the corpus cannot be trained on; later checks need the earlier ones to pass."""
        problems = []
        shape = f"(T, {self.settings.channels})"
        for utterance in self.utterances:
            source, word, features = utterance.source, utterance.word, utterance.features
            if utterance.split not in SPLITS:
                problems.append(f"{source}: the split must be 'train' or 'test', got {utterance.split!r}")
            if not word:
                problems.append(f"{source}: the word is empty")
            elif word not in self.clusters:
                problems.append(f"{source}: the word {word!r} has no cluster")
            if features.ndim != 2 or features.shape[1] != self.settings.channels or not len(features):
                problems.append(f"{source}: the features must be {shape}, T >= 1, got {features.shape}")
            elif not np.isfinite(features).all():
                problems.append(f"{source}: the features are not finite")
        if problems:
            return problems
        if len(self.clusters) < 2:
            problems.append(f"at least two words are needed, got {len(self.clusters)}")
        counts = Counter((utterance.word, utterance.split) for utterance in self.utterances)
        for word in self.clusters:
            for split, purpose in ((TRAIN, "training"), (TEST, "testing")):
                if not counts[word, split]:
                    problems.append(f"the word {word!r} has no example for {purpose}")
        if problems:
            return problems
        low, high = self._training_frames.min(axis=0), self._training_frames.max(axis=0)
        return [f"channel {i + 1} of the features is constant in training" for i in np.flatnonzero(low == high)]


def name_draw(draw: int) -> str:
    """Return the end of the name of a corpus whose speakers were drawn.

    >>> name_draw(3)
    ', draw 3'
    """
    return f", draw {draw}"


def load_corpus(
    source: str = BUNDLE,
    *,
    words: Sequence[str] | None = None,
    speakers: int = paper.WORDS_TRAINING_EXAMPLES + paper.WORDS_TEST_EXAMPLES,
    test: int = paper.WORDS_TEST_EXAMPLES,
    all_speakers: bool = False,
    cache: Path | Literal[False] | None = None,
    progress: ProgressCallback | None = None,
) -> Corpus:
    """Return the corpus of a source, or raise a CorpusError that lists all of its problems.

    Args:
        source: "bundle" (the paper's 25 words in synthetic speech), "timit:PATH", "nltk-timit:PATH" or "folder:PATH";
            a path of an existing folder alone is also a folder
        words: only these words, in this order; None for all words of the source, or the paper's words of TIMIT
        speakers: for TIMIT, the number of examples of each word, each by another speaker
        test: how many examples of each word are for testing, unless the source has a split of its own
        all_speakers: True for the examples of all speakers of TIMIT, to draw from (`draws.py`); `speakers` is then the
            least number for each word. A source with a split of its own is refused
        cache: the folder in which to keep computed features; None for this user's cache, False for none
        progress: called after every utterance

    >>> corpus = load_corpus(words=["making", "walking"])
    >>> corpus.words, len(corpus.train), len(corpus.test)
    (('making', 'walking'), 10, 4)
    """
    if words is not None and source.startswith(("timit:", "nltk-timit:")):
        words = [word.lower() for word in words]
    if words is not None:
        _check_words(words)
    if not 1 <= test < speakers:
        raise CorpusError("speakers", [f"expected 1 <= test < speakers, got test={test}, speakers={speakers}"])
    if source == BUNDLE:
        # `bundle` imports this module
        from .bundle import load_bundled_corpus

        return load_bundled_corpus() if words is None else select_words(load_bundled_corpus(), words)
    settings = FeatureSettings()
    contents = _read_source(source, words, speakers, test, settings, all_speakers)
    if all_speakers and contents.has_split and not contents.problems:
        raise ArgumentError(
            "draws",
            f"{source} has a column split, which decides once and for all who is in training and who in test: expected "
            "1, or recordings without this column",
        )
    if len(contents.problems) > MOST_PROBLEMS:
        # more than a person reads: what is wrong with the sounds is not looked for
        raise CorpusError(source, contents.problems)
    folder = find_cache_folder("words") if cache is None else cache or None
    features, problems = load_features(contents.clips, settings, cache=folder, progress=progress)
    if contents.problems or problems or contents.missing_words:
        # if the source has problems, they may be the reason why words are missing
        error = CorpusError if contents.problems or problems else WordsError
        raise error(source, contents.problems + contents.missing_words + problems)
    return Corpus(
        name=contents.name,
        source=contents.source,
        utterances=tuple(
            Utterance(clip.word, clip.speaker, clip.split, frames, clip.source)
            for clip, frames in zip(contents.clips, features, strict=True)
        ),
        settings=settings,
        synthetic=False,
        clusters=contents.clusters,
    )


def _check_words(words: Sequence[str]) -> None:
    if len(set(words)) < len(words) or len(words) < 2 or not all(words):
        raise WordsError(
            "words", [f"expected two or more different words, got {', '.join(map(repr, words)) or 'none'}"]
        )


def _read_source(
    source: str,
    words: Sequence[str] | None,
    speakers: int,
    test: int,
    settings: FeatureSettings,
    all_speakers: bool,
) -> SourceContents:
    kind, _, rest = source.partition(":")
    # no shell expands ~ after a colon
    path = Path(os.path.expanduser(rest))
    if rest and kind == "folder":
        return read_folder(path, words=words, test=test)
    if rest and kind in ("timit", "nltk-timit"):
        return read_timit(
            path,
            sample=kind == "nltk-timit",
            words=words,
            speakers=speakers,
            test=test,
            settings=settings,
            all_speakers=all_speakers,
        )
    if source and os.path.isdir(source):
        return read_folder(Path(source), words=words, test=test)
    raise CorpusError(repr(source), [f"expected {', '.join(SOURCES)} or an existing folder"])


def select_words(corpus: Corpus, words: Sequence[str]) -> Corpus:
    """Return the corpus with only these words, by cluster and within a cluster in this order.

    Raises a WordsError if the corpus lacks a word.

    >>> select_words(load_corpus(), ["subway", "making"]).words
    ('making', 'subway')
    """
    _check_words(words)
    missing = [word for word in words if word not in corpus.clusters]
    if missing:
        raise WordsError(corpus.name, [f"there is no example of the word {word!r}" for word in missing])
    fewer = len(words) < len(corpus.clusters)
    return replace(
        corpus,
        source=f"{len(words)} of the words of {corpus.source}" if fewer else corpus.source,
        utterances=tuple(utterance for utterance in corpus.utterances if utterance.word in words),
        clusters={word: corpus.clusters[word] for word in words},
    )
