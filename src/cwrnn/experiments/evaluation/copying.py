"""The copy memory task: remember ten letters over a delay, and repeat them at the end.

    steps    0 ... 9      10 ... delay + 9    delay + 10    delay + 11 ... delay + 19
    input    s_0 ... s_9  blank ... blank     marker        blank ... blank
    target                                    s_0           s_1        ...        s_9

    s_i ~ U{0, ..., 7}

Inputs are one-hot, of 10 symbols: the letters 0 to 7, the blank 8 and the marker 9. The answers are the last 10 steps,
of 8 classes: the letters alone, because a blank is never an answer. The task is that of Arjovsky, Shah and Bengio
(Unitary evolution recurrent neural networks, 2016) and of Bai, Kolter and Koltun (An empirical evaluation of generic
convolutional and recurrent networks, 2018), with their delay + 20 steps, apart from two points: the marker stands at
the first step that is answered, in place of the step before it, and only the 10 answers count, where they average over
the blanks before them, too. A network that remembers nothing has a cross entropy of BASELINE = log 8 nats in each
answer.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..limits import LARGEST_LENGTH, check_count
from .examples import Batch
from .generated import GeneratedExamples, require_no_numbers

REPEATED = 10
"""The letters of a sequence, each of which is answered once."""
LETTERS = 8
"""The different letters, which are the classes."""
BLANK, MARKER = LETTERS, LETTERS + 1
"""The input symbols that are no letters."""
SYMBOLS = LETTERS + 2
"""The different input symbols."""
BASELINE = math.log(LETTERS)
"""The cross entropy in nats of a network that remembers nothing."""


@dataclass(frozen=True, eq=False)
class CopyExamples(GeneratedExamples):
    """The copy memory task with one delay. Raises an ArgumentError for a delay that it cannot have."""

    kind: ClassVar[str] = "copy"
    has_classes: ClassVar[bool] = True
    scheme: ClassVar[int] = 1
    name: str
    source: str
    delay: int
    """The blanks between the letters and the marker."""

    def __post_init__(self) -> None:
        check_count("delay", self.delay, LARGEST_LENGTH)

    @property
    def inputs(self) -> int:
        """I = 10: the letters, the blank and the marker, one-hot."""
        return SYMBOLS

    @property
    def outputs(self) -> int:
        """O = 8: the letters."""
        return LETTERS

    @property
    def length(self) -> int:
        """T = delay + 20."""
        return self.delay + 2 * REPEATED

    @property
    def draws(self) -> int:
        """The random numbers that one sequence takes: one for each of its letters."""
        return REPEATED

    def make_batch(self, numbers: NDArray[np.float64]) -> Batch:
        """The sequences that random numbers (B, 10) make: input (T, B, 10) and target (10, B)."""
        letters = torch.from_numpy((numbers.T * LETTERS).astype(np.int64))
        symbols = torch.full((self.length, len(numbers)), BLANK)
        symbols[:REPEATED] = letters
        symbols[REPEATED + self.delay] = MARKER
        input = torch.zeros(*symbols.shape, SYMBOLS).scatter_(2, symbols[:, :, None], 1.0)
        return Batch(input, letters)

    def describe(self) -> dict[str, Any]:
        """The delay."""
        return {"delay": self.delay}

    @classmethod
    def restore(cls, name: str, source: str, about: dict[str, Any], numbers: bytes) -> "CopyExamples":
        """The examples that a store kept. A ValueError or KeyError if the values make no sense."""
        require_no_numbers(about, numbers)
        return cls(name, source, about["delay"])


def make_copying(delay: int) -> CopyExamples:
    """Returns the copy memory task with this many blanks before the letters must be repeated.

    >>> examples = make_copying(100)
    >>> batch = next(examples.make_part("test", 50))
    >>> tuple(batch.input.shape), tuple(batch.target.shape)
    ((120, 50, 10), (10, 50))
    >>> bool((batch.input[:10].argmax(2) == batch.target).all())
    True
    """
    delay = check_count("delay", delay, LARGEST_LENGTH)
    return CopyExamples(f"copy {delay}", f"the copy memory task, delay of {delay} steps", delay)
