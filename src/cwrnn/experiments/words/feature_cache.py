"""The features of many clips, computed once and kept in a cache on disk.

A cache file holds the features of one list of clips. Its name is a hash of the bytes of all their sound files, of the
places in them, of the feature settings, and of the versions that computed them, so a changed recording never finds old
features. Every file is read in any case; the cache only saves the computing.

    features    (sum of T, 13) float32, the clips one after the other
    lengths     (n,) int64, the number of frames of each clip
    digest      (32,) uint8, the SHA-256 of the name of the file, the lengths and the features

A cache file that is damaged in any way gives a warning, its features are computed anew, and it is written again.
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...untrusted import escape_controls
from ..array_files import ArrayFileError, read_arrays, write_arrays
from ..file_names import replace_undecodable
from ..progress import Progress, ProgressCallback
from .clips import Clip
from .features import FeatureSettings, describe_engine
from .sound_files import SoundError, cut_clip, decode_sound, extract_features, read_sound_file

FORMAT = 2
"""The version of the format of cache files. Files of other versions have other names, and are not read."""


def load_features(
    clips: Sequence[Clip],
    settings: FeatureSettings,
    *,
    cache: Path | None,
    progress: ProgressCallback | None = None,
) -> tuple[list[NDArray[np.float32]], list[str]]:
    """Return the features (T, 13) of each clip, and a list of all problems. With problems there are no features.

    Args:
        clips: the words
        settings: the settings of the features
        cache: the folder of the cache; None for no cache
        progress: called after every clip
    """
    clips_of: dict[Path, list[int]] = {}
    for i, clip in enumerate(clips):
        clips_of.setdefault(clip.path, []).append(i)
    digests, problems = _hash_files(clips, clips_of)
    problems += _find_duplicates(clips, digests)
    file = None if cache is None or not clips else cache / f"{_make_key(clips, digests, settings)}.npz"
    if file is not None and not problems:
        cached = _read_cache_file(file, len(clips), settings)
        if cached is not None:
            _report(progress, len(clips), len(clips))
            return cached, []
    features: dict[int, NDArray[np.float32]] = {}
    done = 0
    for path, numbers in clips_of.items():
        if not digests[numbers[0]]:
            # _hash_files has reported it
            continue
        try:
            data = read_sound_file(path)
            if hashlib.sha256(data).hexdigest() != digests[numbers[0]]:
                raise SoundError("the file has changed while it was read")
            sample_rate, samples = decode_sound(data)
        except OSError as error:
            problems += [f"{clips[i].source}: cannot be read: {error.strerror}" for i in numbers]
            continue
        except SoundError as error:
            problems += [f"{clips[i].source}: {error}" for i in numbers]
            continue
        for i in numbers:
            try:
                features[i] = extract_features(cut_clip(samples, sample_rate, clips[i]), sample_rate, settings)
            except SoundError as error:
                problems.append(f"{clips[i].source}: {error}")
            done += 1
            _report(progress, done, len(clips))
    if problems:
        return [], problems
    ordered = [features[i] for i in range(len(clips))]
    if file is not None:
        _write_cache_file(file, ordered)
    return ordered, []


def _report(progress: ProgressCallback | None, done: int, total: int) -> None:
    if progress is not None:
        progress(Progress("reading the words", done, total, done / total))


def _hash_files(clips: Sequence[Clip], clips_of: dict[Path, list[int]]) -> tuple[list[str], list[str]]:
    """Return the hash of each clip's file, empty if it cannot be read, and what is wrong with the files."""
    digests, problems = [""] * len(clips), []
    for path, numbers in clips_of.items():
        try:
            digest = hashlib.sha256(read_sound_file(path)).hexdigest()
        except OSError as error:
            problems += [f"{clips[i].source}: cannot be read: {error.strerror}" for i in numbers]
            continue
        for i in numbers:
            digests[i] = digest
    return digests, problems


def _find_duplicates(clips: Sequence[Clip], digests: Sequence[str]) -> list[str]:
    """Return a problem for each recording that appears twice, under whatever names."""
    problems = []
    first: dict[tuple[str, int, int | None], Clip] = {}
    for clip, digest in zip(clips, digests, strict=True):
        other = first.setdefault((digest, clip.start, clip.end), clip)
        if digest and other is not clip:
            problems.append(f"{clip.source} ({clip.word}): the same recording as {other.source} ({other.word})")
    return problems


def _make_key(clips: Sequence[Clip], digests: Sequence[str], settings: FeatureSettings) -> str:
    contents = {
        "clips": [
            [digest, clip.start, clip.end, clip.sample_rate] for clip, digest in zip(clips, digests, strict=True)
        ],
        "settings": asdict(settings),
        "versions": [__version__, describe_engine()],
        "format": FORMAT,
    }
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()


def _read_cache_file(file: Path, count: int, settings: FeatureSettings) -> list[NDArray[np.float32]] | None:
    """Return the features in a cache file, or None if it is missing or, with a warning, damaged."""
    try:
        arrays = read_arrays(file, {"features": "<f4", "lengths": "<i8", "digest": "|u1"})
        frames, lengths = arrays["features"], arrays["lengths"]
        if arrays["digest"].tobytes() != _digest(file, frames, lengths):
            raise ArrayFileError("its contents do not match its checksum")
        right = lengths.shape == (count,) and (lengths > 0).all() and lengths.sum() == len(frames)
        if not right or frames.shape != (len(frames), settings.channels):
            raise ArrayFileError("its features are those of other words")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ArrayFileError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        name = escape_controls(replace_undecodable(str(file)))
        warnings.warn(f"{name}: this cache file is damaged, the features are computed anew: {reason}", stacklevel=2)
        return None
    return np.split(frames, np.cumsum(lengths)[:-1])


def _write_cache_file(file: Path, features: Sequence[NDArray[np.float32]]) -> None:
    """Write the features to a cache file; a folder that cannot be written to is no error."""
    frames = np.concatenate(features).astype("<f4", copy=False)
    lengths = np.array([len(part) for part in features], dtype="<i8")
    digest = np.frombuffer(_digest(file, frames, lengths), np.uint8)
    with suppress(OSError):
        write_arrays(file, {"features": frames, "lengths": lengths, "digest": digest}, compress=False)


def _digest(file: Path, frames: NDArray[np.float32], lengths: NDArray[np.int64]) -> bytes:
    digest = hashlib.sha256(file.name.encode("utf-8", "surrogateescape"))
    for array in (lengths, frames):
        digest.update(np.ascontiguousarray(array).data)
    return digest.digest()
