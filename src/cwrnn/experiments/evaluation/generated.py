"""Generated examples: tasks whose sequences are drawn at random, as many as are wanted.

    training      EPOCH_UPDATES batches of fresh sequences in every epoch, from the generator of the run
    validation    PART_SEQUENCES sequences from a generator of their own
    test          PART_SEQUENCES sequences from a generator of their own

The seed of a fixed part is a hash of the data set and the part, so it has 256 bits and no run has it by chance. Every
sequence takes the same number of draws, one sequence after the other, so the batch size does not change the sequences.
All draws are numbers of `Generator.random`.
"""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...untrusted import shorten
from ..errors import ArgumentError
from .examples import PARTS, Batch, Examples

EPOCH_UPDATES = 100
"""The batches of an epoch."""
PART_SEQUENCES = 1000
"""The sequences of the validation part, and those of the test part."""


class GeneratedExamples(Examples):
    """The examples of a task whose sequences are drawn at random."""

    scheme: ClassVar[int]
    """The version of the way in which draws become sequences."""

    @property
    @abstractmethod
    def draws(self) -> int:
        """The random numbers that one sequence takes."""

    @abstractmethod
    def make_batch(self, numbers: NDArray[np.float64]) -> Batch:
        """The sequences that random numbers make.

        Args:
            numbers: (B, draws), each from 0 to below 1
        """

    @property
    def digest(self) -> str:
        """The hash of everything that decides the numbers."""
        about = {
            **self.describe(),
            "kind": self.kind,
            "scheme": self.scheme,
            "epoch_updates": EPOCH_UPDATES,
            "part_sequences": PART_SEQUENCES,
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    def count_updates(self, batch: int) -> int:
        """The updates of one epoch, which do not depend on the size of a batch."""
        return EPOCH_UPDATES

    def make_epoch(self, batch: int, generator: np.random.Generator) -> Iterator[Batch]:
        """One epoch: batches of fresh sequences, drawn one batch at a time."""
        return (self.make_batch(generator.random((batch, self.draws))) for _ in range(EPOCH_UPDATES))

    def make_part(self, part: str, batch: int) -> Iterator[Batch]:
        """All sequences of the validation or of the test part, always the same, in batches of at most this many."""
        if part not in PARTS:
            raise ArgumentError("part", f"expected one of {', '.join(PARTS)}, got {part!r}")
        generator = np.random.default_rng(
            int.from_bytes(hashlib.sha256(f"{self.digest} {part}".encode()).digest(), "big")
        )
        return (
            self.make_batch(generator.random((min(batch, PART_SEQUENCES - start), self.draws)))
            for start in range(0, PART_SEQUENCES, batch)
        )

    def pack_numbers(self) -> bytes:
        """No bytes: `describe` suffices to draw the same sequences again."""
        return b""


def require_no_numbers(about: dict[str, Any], numbers: bytes) -> None:
    """Raises a ValueError unless a store kept an object and no numbers.

    >>> require_no_numbers({}, b"")
    """
    if not isinstance(about, dict):
        raise ValueError(f"expected an object that describes the examples, got {shorten(repr(about))}")
    if numbers:
        raise ValueError(f"expected no numbers, got {len(numbers)} bytes")
