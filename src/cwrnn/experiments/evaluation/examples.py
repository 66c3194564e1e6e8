"""Examples: the data of the evaluation tasks, sequences in batches, of which networks answer the last steps.

    input    (T, B, I)           what the network reads
    target   (A, B) or (A, B, O) what it must answer at the last A steps: a class, or O numbers

Each task has a subclass. Training never sees the validation part, which chooses settings, nor the test part, whose
error is reported.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor

VALIDATION, TEST = PARTS = ("validation", "test")
"""The parts of the data that are not learned."""


class Batch(NamedTuple):
    """Sequences of one length, and the answers at their last steps."""

    input: Tensor
    """(T, B, I), float32."""
    target: Tensor
    """(A, B) int64: classes; or (A, B, O) float32: numbers. The first axis is the last A steps."""


class Examples(ABC):
    """The data set of one evaluation task. It is a value that other processes receive: keep it small to send."""

    kind: ClassVar[str]
    """The kind of data set, as stores know it: the name of the task."""
    has_classes: ClassVar[bool]
    """Whether networks answer with classes (cross entropy is minimised) or with numbers (the squared error is)."""
    name: str
    """The name, by which runs and stores know the data set."""
    source: str
    """Where the data set comes from, for people to read."""

    @property
    @abstractmethod
    def digest(self) -> str:
        """The hash of everything that decides the numbers."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """I, the features of the input at every step."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """O, the outputs of a network: the number of classes, or of numbers."""

    @property
    @abstractmethod
    def length(self) -> int:
        """T, the steps of a sequence of the training part."""

    @abstractmethod
    def count_updates(self, batch: int) -> int:
        """The updates of one epoch with batches of this many sequences."""

    @abstractmethod
    def make_epoch(self, batch: int, generator: np.random.Generator) -> Iterator[Batch]:
        """One epoch: `count_updates` batches of training sequences, in an order or with numbers of the generator."""

    @abstractmethod
    def make_part(self, part: str, batch: int) -> Iterator[Batch]:
        """All sequences of the validation or of the test part, always the same, in batches of at most this many."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a store keeps of it besides name, source and digest: JSON values."""

    @abstractmethod
    def pack_numbers(self) -> bytes:
        """The numbers that a store keeps of it; empty if `describe` suffices to make or find them again."""

    @classmethod
    @abstractmethod
    def restore(cls, name: str, source: str, about: dict[str, Any], numbers: bytes) -> "Examples":
        """The examples that a store kept. A ValueError or KeyError if the values make no sense."""
