"""Audio: the target sequences of the paper's first task, from the bundle or from files of one's own.

    bundle          five snippets of one song come with the package, 320 samples each: 7 ms at 44.1 kHz
    FILE            WAV, FLAC, OGG or what else libsndfile reads: any rate, channels mixed to one
    FOLDER          all such files in it, by name

A sequence is `length` samples from `offset` seconds on, scaled to [-1, 1]. (The paper says 44.1 Hz, but 320 samples
are 7 ms only at a thousand times that.) snippets/COPYRIGHT says whose song the bundle is.
"""

from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ..file_names import replace_undecodable
from ..sweep.run import Dataset

LENGTH = 320
BUNDLE = "bundle"
SUFFIXES = (".flac", ".oga", ".ogg", ".wav")
"""What is taken from a folder."""


class AudioError(ValueError):
    """A sequence cannot be had; the message names the file, and says why."""


def load(sources: Iterable[str | Path] = (BUNDLE,), *, offset: float = 0.0, length: int = LENGTH) -> list[Dataset]:
    """The sequences of all sources, in their order; those of a folder and the bundle by name.

    Args:
        sources: "bundle", files, folders
        offset: seconds from the start of each file
        length: samples

    >>> [dataset.samples.shape for dataset in load()]
    [(320,), (320,), (320,), (320,), (320,)]
    """
    if not 0 <= offset < float("inf"):
        raise AudioError(f"offset must be zero or more seconds, got {offset}")
    if length < 2:
        raise AudioError(f"length must be at least 2 samples, got {length}")
    found: dict[str, Dataset] = {}
    for source in sources:
        for dataset in _load(source, offset, length):
            if dataset.name in found:
                raise AudioError(
                    f"two sequences have the name {dataset.name!r}: {found[dataset.name].source} and {dataset.source}"
                )
            found[dataset.name] = dataset
    if not found:
        raise AudioError("no data: name a file, a folder, or 'bundle'")
    return list(found.values())


def read(path: Path, *, offset: float = 0.0, length: int = LENGTH, source: str | None = None) -> Dataset:
    """The sequence of one file; `source` says where it comes from, if not from a file of that name."""
    soundfile = require("soundfile", extra="experiments", purpose="reading audio")
    try:
        # opened here, because soundfile judges a file by its name's ending, and calls a missing one a system error
        with path.open("rb") as file, soundfile.SoundFile(file) as sound:
            rate, frames = int(sound.samplerate), int(sound.frames)
            # a whole number, but one that may be too large for an integer
            start = float(np.rint(offset * rate))
            if start > 0:
                sound.seek(int(min(start, frames)))
            samples = sound.read(length, dtype="float64", always_2d=True)
    except OSError as error:
        raise AudioError(f"{path}: cannot be read: {error.strerror}") from error
    except RuntimeError as error:
        # the whole message names the opened file as Python does, not as the user did
        reason = getattr(error, "error_string", error)
        raise AudioError(f"{path}: not a sound file that can be read ({reason})") from error
    if len(samples) < length:
        raise AudioError(
            f"{path}: too short: {length} samples from {offset:g} s on (sample {start:.15g}) are asked for, "
            f"{len(samples)} are there"
        )
    if not np.isfinite(samples).all():
        raise AudioError(f"{path}: has samples that are not finite in the part that is asked for")
    mixed = samples.mean(axis=1)
    if not mixed.max() > mixed.min():
        raise AudioError(f"{path}: silent or constant in the part that is asked for: there is nothing to learn")
    where = f"{path}" if source is None else source
    where += f", from {offset:g} s on" if offset else ""
    return Dataset(replace_undecodable(path.stem), rate, scaled(mixed), replace_undecodable(where))


def scaled(signal: NDArray[np.float64]) -> NDArray[np.float64]:
    """`signal` moved and stretched so that it fills the interval [-1, 1], as the paper's section 4.1 has it.

    >>> scaled(np.array([0.0, 1.0, 4.0])).tolist()
    [-1.0, -0.5, 1.0]
    """
    low, high = float(signal.min()), float(signal.max())
    if not high > low:
        raise ValueError(f"signal must be finite and not constant, got values from {low} to {high}")
    # written so that both ends are hit exactly
    return ((signal - low) - (high - signal)) / (high - low)


def _load(source: str | Path, offset: float, length: int) -> list[Dataset]:
    if source == BUNDLE:
        with as_file(files(__package__) / "snippets") as folder:
            return [
                read(path, offset=offset, length=length, source=f"the bundled snippet {path.name}")
                for path in _sounds(folder)
            ]
    if source == "":
        # a Path would make the current folder of it
        raise AudioError("expected a file, a folder or 'bundle', got ''")
    path = Path(source)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:
        raise AudioError(f"{path}: cannot be read: {error.strerror}") from error
    if is_folder:
        paths = _sounds(path)
        if not paths:
            raise AudioError(f"{path}: no sound in this folder: no file ends in {', '.join(SUFFIXES)}")
        return [read(each, offset=offset, length=length) for each in paths]
    if not is_there:
        raise AudioError(f"{path}: there is no such file or folder")
    return [read(path, offset=offset, length=length)]


def _sounds(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and not path.is_dir())
    except OSError as error:
        raise AudioError(f"{folder}: cannot be read: {error.strerror}") from error
