"""Characters: predict the next character of a text from those before it.

    text          | training, 90 %                      | validation, 5 % | test, 5 % |
    x_t, y_t      character t, one-hot; character t + 1
    error         bits per character: the cross entropy, with logarithms to base 2

    training      windows of WINDOW characters at random places; every step is answered
    validation    windows of 2 * WARM characters, the next of which begins WARM characters later;
    and test      the last WARM steps are answered

        |----- warm -----|--- answered ---|
                         |----- warm -----|--- answered ---|
                                          |----- warm -----|--- answered ---|

So every answer of validation and test has at least WARM characters before it, and no character is answered twice. The
parts share no characters. The vocabulary is that of the whole text.
"""

import hashlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...untrusted import escape_controls, read_regular_file, shorten
from ..errors import ArgumentError, DataError
from ..file_names import check_path, replace_undecodable
from .compression import decompress
from .examples import PARTS, Batch, Examples

WINDOW = 256
"""The characters of a training window."""
WARM = 256
"""The steps of a validation or test window before its answers, and the steps that are answered."""
TRAINING_SHARE, VALIDATION_SHARE = 90, 5
"""The shares of the text, in per cent. The rest is the test part."""
LEAST_WINDOWS = 10
"""The least windows of each part."""
LEAST_LENGTH = ((LEAST_WINDOWS + 1) * WARM + 1) * 100 // VALIDATION_SHARE
"""The least characters of a text, so that each part has its least windows."""
MOST_CHARACTERS = 512
"""The most different characters."""
LARGEST_TEXT = 2**27
"""The most bytes of a text in UTF-8: 128 MiB."""
SCHEME = 1
"""The version of the way in which a text becomes sequences."""

BUNDLE = "bundle"
"""The source that names the text that comes with the package."""
FILE = files(__package__) / "texts" / "moby_dick.txt.gz"
"""The text that comes with the package."""


@dataclass(frozen=True, eq=False)
class TextExamples(Examples):
    """A text. Raises a DataError if it is too short or has too few or too many different characters."""

    kind: ClassVar[str] = "characters"
    has_classes: ClassVar[bool] = True
    name: str
    source: str
    text: str

    def __post_init__(self) -> None:
        if not 2 <= len(self.vocabulary) <= MOST_CHARACTERS:
            raise DataError(
                f"{self.source}: expected a text of 2 to {MOST_CHARACTERS} different characters, got "
                f"{len(self.vocabulary)}"
            )
        if len(self.text) < LEAST_LENGTH:
            raise DataError(
                f"{self.source}: expected at least {LEAST_LENGTH} characters, got {len(self.text)}: the validation and "
                f"the test part, {VALIDATION_SHARE} % each, need {LEAST_WINDOWS} windows"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields without the codes of the characters, which are made again."""
        return {name: value for name, value in vars(self).items() if name != "_codes"}

    @cached_property
    def digest(self) -> str:
        """The hash of the text and of the windows."""
        about = f"{self.kind} {SCHEME} {WINDOW} {WARM} {TRAINING_SHARE} {VALIDATION_SHARE} "
        return hashlib.sha256(about.encode() + self.text.encode()).hexdigest()

    @cached_property
    def vocabulary(self) -> str:
        """The different characters of the text, sorted. A class is the place of its character."""
        return "".join(sorted(set(self.text)))

    @property
    def inputs(self) -> int:
        """I: the number of different characters."""
        return len(self.vocabulary)

    @property
    def outputs(self) -> int:
        """O: the number of different characters."""
        return len(self.vocabulary)

    @property
    def length(self) -> int:
        """T, the characters of a training window."""
        return WINDOW

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """The first place of each part, and the one after its last."""
        first = len(self.text) * TRAINING_SHARE // 100
        second = len(self.text) * (TRAINING_SHARE + VALIDATION_SHARE) // 100
        return {"training": (0, first), "validation": (first, second), "test": (second, len(self.text))}

    def count_windows(self, part: str) -> int:
        """The windows of the validation or of the test part."""
        start, end = self.bounds[part]
        # a window has one character more than steps: the last answer
        return max(0, (end - start - 1) // WARM - 1)

    def count_updates(self, batch: int) -> int:
        """The updates of one epoch: batches of windows that have together as many characters as the training part."""
        return -(-self.bounds["training"][1] // (batch * WINDOW))

    def make_epoch(self, batch: int, generator: np.random.Generator) -> Iterator[Batch]:
        """One epoch: batches of windows at random places of the training part, drawn one batch at a time."""
        codes, places = self._codes, self.bounds["training"][1] - WINDOW
        return (
            self._make_batch(codes, generator.integers(places, size=batch), WINDOW, WINDOW)
            for _ in range(self.count_updates(batch))
        )

    def make_part(self, part: str, batch: int) -> Iterator[Batch]:
        """All windows of the validation or of the test part, in their order, in batches of at most this many."""
        if part not in PARTS:
            raise ArgumentError("part", f"expected one of {', '.join(PARTS)}, got {part!r}")
        codes = self._codes
        starts = self.bounds[part][0] + WARM * np.arange(self.count_windows(part))
        return (
            self._make_batch(codes, starts[first : first + batch], 2 * WARM, WARM)
            for first in range(0, len(starts), batch)
        )

    def describe(self) -> dict[str, Any]:
        """The size of the text."""
        return {"bytes": len(self.text.encode())}

    def pack_numbers(self) -> bytes:
        """The text, compressed."""
        return zlib.compress(self.text.encode())

    @classmethod
    def restore(cls, name: str, source: str, about: dict[str, Any], numbers: bytes) -> "TextExamples":
        """The examples that a store kept. A ValueError or KeyError if the values make no sense."""
        if not isinstance(about, dict):
            raise ValueError(f"expected an object that describes the text, got {shorten(repr(about))}")
        size = about["bytes"]
        if type(size) is not int or not 0 < size <= LARGEST_TEXT:
            raise ValueError(f"expected a text of 1 to {LARGEST_TEXT} bytes, got {shorten(repr(size))}")
        text = decompress(numbers, size + 1)
        if len(text) != size:
            raise ValueError(f"expected a text of {size} bytes, got {len(text) if len(text) < size else 'more'}")
        return cls(name, source, text.decode())

    @cached_property
    def _codes(self) -> Tensor:
        """(n,) int16: the class of every character."""
        table = np.zeros(ord(self.vocabulary[-1]) + 1, np.int16)
        table[[ord(character) for character in self.vocabulary]] = np.arange(len(self.vocabulary))
        codes = np.empty(len(self.text), np.int16)
        # in pieces, because UTF-32 needs four times the memory of most texts
        step = 2**20
        for start in range(0, len(self.text), step):
            piece = self.text[start : start + step]
            codes[start : start + step] = table[np.frombuffer(piece.encode("utf-32-le"), "<u4")]
        return torch.from_numpy(codes)

    def _make_batch(self, codes: Tensor, starts: NDArray[np.int64], steps: int, answered: int) -> Batch:
        """Returns the windows of this many steps that begin at these places; the last `answered` steps are answered."""
        places = torch.arange(steps + 1)[:, None] + torch.from_numpy(starts)
        classes = codes[places].long()
        input = torch.zeros(steps, len(starts), self.inputs).scatter_(2, classes[:-1, :, None], 1.0)
        return Batch(input, classes[-answered:])


def read_text(source: str | os.PathLike[str]) -> TextExamples:
    """Returns the text of a file, or the one that comes with the package.

    Raises a DataError if the file cannot be read, is too large or is not UTF-8, and if the text cannot be learned.

    Args:
        source: the path of a text file in UTF-8, or "bundle" for Moby-Dick

    >>> examples = read_text("bundle")
    >>> examples.text[:37], len(examples.text), examples.outputs
    ('CHAPTER 1. Loomings.\\n\\nCall me Ishmael', 1191295, 81)
    """
    if source == BUNDLE:
        text = decompress(FILE.read_bytes(), LARGEST_TEXT).decode()
        return TextExamples("Moby-Dick", "Herman Melville: Moby-Dick (1851)", text)
    path = check_path("data", source)
    shown = escape_controls(replace_undecodable(str(path)))
    try:
        data = read_regular_file(path, LARGEST_TEXT)
    except FileNotFoundError as error:
        raise DataError(
            f"{shown}: there is no such file; {BUNDLE!r} is the text that comes with the package"
        ) from error
    except OSError as error:
        raise DataError(f"{shown}: cannot be read: {error.strerror}") from error
    try:
        # without the mark that some editors write before the text
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown}: the text is not UTF-8: byte {error.start} does not fit") from error
    return TextExamples(escape_controls(replace_undecodable(path.stem)), shown, text)
