"""Music: the target sequences of the paper's first task, from the bundle, sound files or columns of tables.

    bundle          five snippets of one song come with the package, 320 samples each: 7 ms at 44.1 kHz
    FILE            WAV, FLAC, OGG or another format of libsndfile: any sample rate, channels mixed to one
    FOLDER          all such files in it, sorted by name
    FILE.csv        a column of a table, also of FILE.npy and FILE.npz (`tables`)

A sequence has `length` samples from `offset` seconds on, or rows from row `offset` on, scaled to [-1, 1]. (The paper
prints 44.1 Hz, but 320 samples are 7 ms only at 44.1 kHz.) The file snippets/COPYRIGHT names the author and the licence
of the bundled song.
"""

import io
import stat
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...untrusted import escape_controls, open_regular_file
from .. import paper
from ..errors import ArgumentError, DataError
from ..file_names import check_path, replace_undecodable
from ..sweep.run import Dataset
from ..tables import Table, TableError, is_table, open_table

BUNDLE = "bundle"
SUFFIXES = (".flac", ".oga", ".ogg", ".wav")
"""The endings of files that are read from a folder."""
BLOCK = 65536
"""Samples to read at once, at most."""
LOUDEST = 1e300
"""The largest sample. Scaling of larger ones could overflow."""


class MusicError(DataError):
    """A sequence cannot be read. The message names the file and the reason."""


def load_sequences(
    sources: Iterable[str | Path | Table] = (BUNDLE,),
    *,
    offset: float = 0.0,
    length: int | None = None,
    target: str | None = None,
) -> list[Dataset]:
    """The sequences of all sources, in their order; those of a folder and of the bundle are sorted by name.

    Args:
        sources: "bundle", files, folders, tables
        offset: seconds from the start of each sound file, rows from the start of each table
        length: samples or rows. Default: the paper's 320, or all rows of a table that has fewer
        target: the column of each table. Default: the only one

    >>> [dataset.samples.shape for dataset in load_sequences()]
    [(320,), (320,), (320,), (320,), (320,)]
    """
    if not 0 <= offset < float("inf"):
        raise MusicError(f"expected a number of seconds, 0 or more, got {offset}", "offset")
    if length is not None and length < 2:
        raise MusicError(f"expected at least 2 samples, got {length}", "length")
    sources = list(sources)
    if target is not None and not any(map(is_table, sources)):
        raise ArgumentError("target", f"there is no table among the data that could have a column {target!r}")
    sequences: dict[str, Dataset] = {}
    for source in sources:
        if is_table(source):
            datasets = [read_column(open_table(source), target=target, offset=offset, length=length)]
        else:
            assert not isinstance(source, Table)
            datasets = _load(source, offset, paper.GENERATION_SAMPLES if length is None else length)
        for dataset in datasets:
            if dataset.name in sequences:
                other = sequences[dataset.name].source
                raise MusicError(f"two sequences have the name {dataset.name!r}: {other} and {dataset.source}")
            sequences[dataset.name] = dataset
    if not sequences:
        raise MusicError("no data: name a file, a folder, or 'bundle'")
    return list(sequences.values())


def read_column(table: Table, *, target: str | None = None, offset: float = 0.0, length: int | None = None) -> Dataset:
    """The sequence in a column of a table.

    Args:
        table: the table
        target: the name of the column. Default: the only one
        offset: the first row, counted from 0
        length: rows. Default: the paper's 320, or all if there are fewer

    >>> read_column(Table.from_columns({"load": [3, 4, 5, 4]}, name="town"), offset=1).samples.tolist()
    [-1.0, 1.0, -1.0]
    """
    column = table.choose_target(target)
    values = table.select([column], "target")[:, 0]
    # a whole number, but possibly too large for an integer
    start = int(min(np.rint(offset), len(values)))
    wanted = max(2, min(paper.GENERATION_SAMPLES, len(values) - start)) if length is None else length
    samples = values[start : start + wanted]
    place = f"{table.source}, column {column!r}"
    if len(samples) < wanted:
        raise TableError(
            f"{place}: too short: {wanted} rows from row {offset:.15g} on are needed, {len(samples)} are there"
        )
    if not samples.max() > samples.min():
        raise TableError(f"{place}: constant in the rows {start} to {start + wanted - 1}: there is nothing to learn")
    source = f"{place}, rows {start} to {start + wanted - 1}"
    return Dataset(escape_controls(f"{table.name} {column}"), 1, scale(samples), source)


def read_sequence(
    path: Path, *, offset: float = 0.0, length: int = paper.GENERATION_SAMPLES, source: str | None = None
) -> Dataset:
    """The sequence of one file. `source` says where it comes from; the path unless given."""
    soundfile = require("soundfile", extra="experiments", purpose="reading audio")
    try:
        # opened here because soundfile guesses the format from the file name, and calls a missing file a system error
        with io.BufferedReader(open_regular_file(path)) as file, soundfile.SoundFile(file) as sound:
            sample_rate, frames = int(sound.samplerate), int(sound.frames)
            # a whole number, but possibly too large for an integer
            start = float(np.rint(offset * sample_rate))
            if start > 0:
                sound.seek(int(min(start, frames)))
            samples = _read_samples(sound, length)
    except OSError as error:
        raise MusicError(f"{path}: cannot be read: {error.strerror}") from error
    except (RuntimeError, ValueError) as error:
        # the whole message names the file object, not the path
        reason = getattr(error, "error_string", error)
        raise MusicError(f"{path}: not a sound file that can be read ({reason})") from error
    if len(samples) < length:
        raise MusicError(
            f"{path}: too short: {length} samples from {offset:g} s on (sample {start:.15g}) are needed, "
            f"{len(samples)} are there"
        )
    if not np.isfinite(samples).all():
        raise MusicError(f"{path}: has samples that are not finite in this part")
    if np.abs(samples).max() > LOUDEST:
        raise MusicError(f"{path}: has samples above {LOUDEST:g} in this part, which cannot be scaled")
    mixed = samples.mean(axis=1)
    if not mixed.max() > mixed.min():
        raise MusicError(f"{path}: silent or constant in this part: there is nothing to learn")
    where = f"{path}" if source is None else source
    where += f", from {offset:g} s on" if offset else ""
    return Dataset(replace_undecodable(path.stem), sample_rate, scale(mixed), replace_undecodable(where))


def scale(signal: NDArray[np.float64]) -> NDArray[np.float64]:
    """`signal` shifted and scaled to fill the interval [-1, 1], as in section 4.1 of the paper.

    >>> scale(np.array([0.0, 1.0, 4.0])).tolist()
    [-1.0, -0.5, 1.0]
    """
    low, high = float(signal.min()), float(signal.max())
    if not high > low:
        raise ValueError(f"signal must be finite and not constant, got values from {low} to {high}")
    # this form reaches both ends exactly
    return ((signal - low) - (high - signal)) / (high - low)


def _load(source: str | Path, offset: float, length: int) -> list[Dataset]:
    if source == BUNDLE:
        with as_file(files(__package__) / "snippets") as folder:
            return [
                read_sequence(path, offset=offset, length=length, source=f"the bundled snippet {path.name}")
                for path in _find_sound_files(folder)
            ]
    if source == "":
        # Path("") is the current folder
        raise MusicError("expected a file, a folder or 'bundle', got ''")
    path = check_path("data", source)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise MusicError(f"{path}: there is no such file or folder") from error
    except OSError as error:
        raise MusicError(f"{path}: cannot be read: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        paths = _find_sound_files(path)
        if not paths:
            raise MusicError(f"{path}: no sound in this folder: no file ends in {', '.join(SUFFIXES)}")
        return [read_sequence(file, offset=offset, length=length) for file in paths]
    if not stat.S_ISREG(mode):
        # a pipe would wait for a writer, and a device may have no end
        raise MusicError(f"{path}: is not a regular file")
    return [read_sequence(path, offset=offset, length=length)]


def _read_samples(sound: Any, length: int) -> NDArray[np.float64]:
    """The next `length` samples, (n, channels), or fewer at the end of the file.

    They are read in blocks: a damaged header may promise more samples than the memory can hold.
    """
    blocks, missing = [np.zeros((0, sound.channels))], length
    while missing and len(block := sound.read(min(missing, BLOCK), dtype="float64", always_2d=True)):
        blocks.append(block)
        missing -= len(block)
    return np.concatenate(blocks)


def _find_sound_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES and path.is_file())
    except OSError as error:
        raise MusicError(f"{folder}: cannot be read: {error.strerror}") from error
