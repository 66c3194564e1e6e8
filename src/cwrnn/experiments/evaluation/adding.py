"""The adding problem: remember two numbers of a long sequence, and answer their sum at the end.

    number   0.4  0.9  0.1  0.7  0.3  0.5        uniform in [0, 1]
    marker    0    1    0    0    1    0         one in the first half, one in the second half
    target                             0.9 + 0.3

    x_t = (u_t, m_t)    u_t ~ U[0, 1]    m_a = m_b = 1,  a ~ U{0, ..., T // 2 - 1},  b ~ U{T // 2, ..., T - 1}
    y   = u_a + u_b     at step T - 1

The problem is that of Hochreiter and Schmidhuber (Long short-term memory, 1997), in the form of Le, Jaitly and Hinton
(A simple way to initialize recurrent networks of rectified linear units, 2015) and of Bai, Kolter and Koltun (An
empirical evaluation of generic convolutional and recurrent networks, 2018). The answer 1, the mean of the target, has
the squared error BASELINE = 1/6, twice the variance of a uniform number.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..limits import LARGEST_LENGTH, check_count
from .examples import Batch
from .generated import GeneratedExamples, require_no_numbers

LEAST_LENGTH = 4
"""The least steps of a sequence: two in each half, so that the markers move."""
BASELINE = 1 / 6
"""The mean squared error of the answer 1."""


@dataclass(frozen=True, eq=False)
class AddingExamples(GeneratedExamples):
    """The adding problem at one length. Raises an ArgumentError for a length that it cannot have."""

    kind: ClassVar[str] = "adding"
    has_classes: ClassVar[bool] = False
    scheme: ClassVar[int] = 1
    name: str
    source: str
    steps: int
    """T, the steps of a sequence."""

    def __post_init__(self) -> None:
        check_count("length", self.steps, LARGEST_LENGTH, least=LEAST_LENGTH)

    @property
    def inputs(self) -> int:
        """I = 2: a number and a marker."""
        return 2

    @property
    def outputs(self) -> int:
        """O = 1: the sum."""
        return 1

    @property
    def length(self) -> int:
        """T, the steps of a sequence."""
        return self.steps

    @property
    def draws(self) -> int:
        """The random numbers that one sequence takes: its numbers, and the places of its markers."""
        return self.steps + 2

    def make_batch(self, numbers: NDArray[np.float64]) -> Batch:
        """The sequences that random numbers (B, T + 2) make: input (T, B, 2) and target (1, B, 1)."""
        half = self.steps // 2
        batch = np.arange(len(numbers))
        input = np.zeros((self.steps, len(numbers), 2), np.float32)
        input[:, :, 0] = numbers[:, : self.steps].T
        first = (numbers[:, -2] * half).astype(np.int64)
        second = half + (numbers[:, -1] * (self.steps - half)).astype(np.int64)
        input[first, batch, 1] = input[second, batch, 1] = 1
        target = input[first, batch, 0] + input[second, batch, 0]
        return Batch(torch.from_numpy(input), torch.from_numpy(target[None, :, None]))

    def describe(self) -> dict[str, Any]:
        """The length of a sequence."""
        return {"length": self.steps}

    @classmethod
    def restore(cls, name: str, source: str, about: dict[str, Any], numbers: bytes) -> "AddingExamples":
        """The examples that a store kept. A ValueError or KeyError if the values make no sense."""
        require_no_numbers(about, numbers)
        return cls(name, source, about["length"])


def make_adding(length: int) -> AddingExamples:
    """Returns the adding problem with sequences of this many steps.

    >>> examples = make_adding(100)
    >>> batch = next(examples.make_part("test", 50))
    >>> tuple(batch.input.shape), tuple(batch.target.shape)
    ((100, 50, 2), (1, 50, 1))
    >>> number, marker = batch.input.unbind(-1)
    >>> bool(((number * marker).sum(0) - batch.target[0, :, 0]).abs().max() < 1e-6)
    True
    """
    length = check_count("length", length, LARGEST_LENGTH, least=LEAST_LENGTH)
    return AddingExamples(f"adding {length}", f"the adding problem, {length} steps", length)
