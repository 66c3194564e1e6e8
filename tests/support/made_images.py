"""Folders of small images in the format of MNIST."""

import gzip
from pathlib import Path

import numpy as np

TRAINING, TRAINING_LABELS, TEST, TEST_LABELS = NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def encode_idx(array):
    """Return an array of bytes as an idx file."""
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def make_arrays(count=48, rows=3, columns=4, seed=0):
    """Return the arrays of the four files by name: images of random pixels, all different, and random labels.

    The first two pixels of an image are its number, and 100 more for a test image.
    """
    generator = np.random.default_rng(seed)
    arrays = {}
    for images, labels, many, first in ((TRAINING, TRAINING_LABELS, count, 0), (TEST, TEST_LABELS, 10, 100)):
        arrays[images] = generator.integers(256, size=(many, rows, columns), dtype=np.uint8)
        arrays[images][:, 0, 0] = first + np.arange(many) // 256
        arrays[images][:, 0, 1] = np.arange(many) % 256
        arrays[labels] = generator.integers(10, size=many, dtype=np.uint8)
    return arrays


def write_images(folder, arrays=None, *, point=False, compress=False):
    """Write the files of a folder, and return it.

    Args:
        folder: the folder, which is made
        arrays: the arrays by name. Default: those of `make_arrays`
        point: whether a point stands before `idx` in the names
        compress: whether the files are compressed
    """
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    for name, array in (arrays or make_arrays()).items():
        name = name.replace("-idx", ".idx") if point else name
        data = encode_idx(array)
        (folder / (f"{name}.gz" if compress else name)).write_bytes(gzip.compress(data) if compress else data)
    return folder
