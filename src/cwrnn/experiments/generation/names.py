"""Names for people: of the bundled snippets, of which stores keep the names of their files, and of what is learned."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from ..sweep.run import Dataset


class Wording(NamedTuple):
    """The words for what the networks of a page learn."""

    noun: str
    piece: str
    pieces: str
    title: str


MUSIC = Wording("music", "piece of music", "pieces", "Music from memory")
SEQUENCES = Wording("sequence", "sequence", "sequences", "Sequences from memory")


def choose_wording(datasets: Iterable[Dataset]) -> Wording:
    """Returns the words for music, unless one of the data sets is no sound."""
    return MUSIC if all(dataset.has_duration for dataset in datasets) else SEQUENCES


def readable_name(name: str) -> str:
    """Returns the name of a data set as pages show it.

    >>> [readable_name("bundle3_sectoid_chaosland"), readable_name("my song")]
    ['snippet 3', 'my song']
    """
    return re.sub(r"^bundle(\d+)_sectoid_chaosland$", r"snippet \1", name)
