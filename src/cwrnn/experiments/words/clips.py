"""Clips: the words in sound files, with their places, their speakers, and their split into training and test.

The readers of corpora (`folder`, `timit`) make a `SourceContents` of what they find: the clips, and everything that is
wrong. Problems are collected rather than raised, so that one report names every bad file.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .. import paper

TRAIN, TEST = SPLITS = ("train", "test")


@dataclass(frozen=True)
class Clip:
    """One word in a sound file."""

    word: str
    speaker: str
    split: str
    """"train" or "test"."""
    path: Path
    source: str
    """The file and the place in it, for people to read."""
    start: int = 0
    """The first sample."""
    end: int | None = None
    """One beyond the last sample; None for the end of the file."""
    sample_rate: int | None = None
    """The samples per second in which `start` and `end` count; None for those of the file."""


@dataclass
class SourceContents:
    """The clips that a source of words has, and everything that is wrong with it."""

    name: str
    source: str
    """Where the words come from, for people to read."""
    clips: list[Clip] = field(default_factory=list)
    clusters: dict[str, int] = field(default_factory=dict)
    """The cluster of each word, in the order of the words."""
    problems: list[str] = field(default_factory=list)
    """What is wrong with the source."""
    missing_words: list[str] = field(default_factory=list)
    """What is wrong with the words that the caller chose."""
    has_split: bool = False
    """True if the source itself divides its recordings into training and test."""


def assign_clusters(words: Iterable[str]) -> dict[str, int]:
    """Return the cluster of each word: the paper's if all words are the paper's, else 1.

    >>> assign_clusters(["critical", "making"]), assign_clusters(["making", "yes"])
    ({'critical': 2, 'making': 1}, {'making': 1, 'yes': 1})
    """
    clusters = {word: number for number, cluster in enumerate(paper.WORDS_VOCABULARY, start=1) for word in cluster}
    words = tuple(words)
    known = all(word in clusters for word in words)
    return {word: clusters[word] if known else 1 for word in words}


def order_speakers(word: str, speakers: Iterable[str], draw: int = 0) -> list[str]:
    """Return the speakers of a word in a random order that never changes: by the hash of word, speaker and draw.

    Args:
        word: the word
        speakers: its speakers
        draw: the seed of the order. Draw 0 is the order of corpora that are loaded without draws

    >>> order_speakers("making", ["fcjf0", "mdac0", "mpgh0"])
    ['mdac0', 'fcjf0', 'mpgh0']
    >>> order_speakers("making", ["fcjf0", "mdac0", "mpgh0"], draw=1)
    ['mpgh0', 'fcjf0', 'mdac0']
    """
    # the hash of draw 0 is older than the draws
    seed = f"\n{draw}" if draw else ""
    return sorted(speakers, key=lambda speaker: hashlib.sha256(f"{word}\n{speaker}{seed}".encode()).hexdigest())
