"""Arrays in .npz files: bundles of spoken words, and the cache of features."""

import functools
import io
import json
import tempfile
import warnings
import zipfile
from pathlib import Path
from random import Random

import numpy as np
from support.made_corpora import make_small_corpus

from cwrnn.experiments.words.bundle import read_about, read_bundle, write_bundle
from cwrnn.experiments.words.clips import Clip
from cwrnn.experiments.words.corpus import CorpusError
from cwrnn.experiments.words.feature_cache import load_features
from cwrnn.experiments.words.features import FeatureSettings

from ..door import Door, require
from ..mutation import FLOATS, INTEGERS, NOT_FINITE, mutate_bytes, mutate_json
from ..trees import make_sound

DTYPES = (
    "<f4",
    "<f8",
    ">f4",
    "<i4",
    "<i8",
    "<u8",
    "|u1",
    "|O",
    "|b1",
    "<U4",
    "|S3",
    "<M8[s]",
    "<c16",
    "|V8",
    "[('a', '<f4')]",
)


@functools.cache
def make_bundle() -> bytes:
    """Return the file of a small corpus."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "bundle.npz")
        write_bundle(path, make_small_corpus(), {"voices": ["a"]})
        return path.read_bytes()


@functools.cache
def make_cache() -> tuple[str, bytes]:
    """Return the name and the bytes of the cache file of three clips."""
    with tempfile.TemporaryDirectory() as folder:
        load_features(write_clips(Path(folder)), FeatureSettings(), cache=Path(folder, "cache"))
        [file] = Path(folder, "cache").glob("*.npz")
        return file.name, file.read_bytes()


def write_clips(folder: Path) -> list[Clip]:
    """Write three sounds, and return their clips."""
    clips = []
    for number in range(3):
        path = folder / f"{number}.wav"
        path.write_bytes(make_sound(number, ".wav"))
        clips.append(Clip("yes", f"s{number}", "train", path, path.name))
    return clips


def mutate_npz(random: Random, data: bytes) -> bytes:
    """Return an .npz whose arrays have other shapes, dtypes or numbers, or whose bytes are changed."""
    if random.random() < 0.3:
        return mutate_bytes(random, data, (make_bundle(), make_cache()[1]))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for _ in range(random.choice((1, 1, 2))):
        name = random.choice(list(parts))
        kind = random.randrange(7)
        array = read_npy(parts[name])
        if array is None or kind == 0:
            # a second change of the same part may be unable to read the first
            parts[name] = mutate_bytes(random, parts[name])
        elif name == "about.npy" and kind < 5:
            text = array.tobytes().decode("utf-8", "replace")
            parts[name] = write_npy(np.frombuffer(mutate_json(random, text).encode("utf-8", "surrogatepass"), np.uint8))
        elif kind == 1:
            parts[random.choice(("features.npy", "lengths.npy", "about.npy", "../x", "x.npy"))] = parts.pop(name)
        elif kind <= 4:
            shape = random.choice(((), (0,), (3, 13), (random.choice(INTEGERS),), (random.choice(INTEGERS), 13), (-1,
            13),
                                   (0, 2**62), (1,) * 65, (2**24, 13), (3, 13, 1), (True,), (1.5,)))  # fmt: skip
            header = (
                f"{{'descr': {random.choice(DTYPES)!r}, 'fortran_order': {random.random() < 0.2}, 'shape': {shape}, }}"
            )
            if kind == 4:
                header = (
                    "{'descr': '<f4', 'fortran_order': False, 'shape': " + "(" * random.choice((10, 100, 5000)) + "}"
                )
            body = parts[name][10 + int.from_bytes(parts[name][8:10], "little") :]
            parts[name] = (
                b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header.encode() + b"\n" + body
            )
        elif kind == 5:
            array = array.copy()
            if array.size and array.dtype.kind in "fiu":
                number = (
                    random.choice((*FLOATS, *NOT_FINITE)) if array.dtype.kind == "f" else random.choice((-1, 0, 5, 127))
                )
                with np.errstate(over="ignore"):
                    array.flat[random.randrange(array.size)] = np.asarray(number).astype(array.dtype)
            parts[name] = write_npy(array)
        elif random.random() < 0.1:
            # little on the disk, much in memory
            parts[name] = write_npy(np.zeros(2**22, np.uint8))
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name), part, compresslevel=1)
    return file.getvalue()


def read_npy(data: bytes) -> np.ndarray | None:
    """Return the array in an .npy file of our own making; None if a mutation broke it."""
    try:
        return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False) if len(data) < 10**5 else None
    except Exception:
        return None


def write_npy(array: np.ndarray) -> bytes:
    """Return the array as an .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def open_bundle(case: bytes, folder: Path) -> None:
    """Read the bytes as a bundle."""
    path = folder / "bundle.npz"
    path.write_bytes(case)
    corpus = read_bundle(path)
    corpus.digest.encode(), corpus.normalised("train"), corpus.mean
    json.dumps(read_about(path))


def use_cache(case: bytes, folder: Path) -> None:
    """Put the bytes in the place of a cache file. Whatever they are, there are features and no problem."""
    # a damaged cache is computed again, with a warning
    warnings.simplefilter("ignore", UserWarning)
    name, _ = make_cache()
    path = folder / "cache" / name
    path.parent.mkdir()
    path.write_bytes(case)
    features, problems = load_features(write_clips(folder), FeatureSettings(), cache=path.parent)
    require(not problems and len(features) == 3, f"{len(features)} features, {problems}")
    for frames in features:
        require(frames.ndim == 2 and frames.shape[1] == 13 and len(frames) > 0, f"features of shape {frames.shape}")
        require(bool(np.isfinite(frames).all()), "features that are not finite")


DOORS = (
    Door("bundle", "read_bundle", (CorpusError,), lambda random: mutate_npz(random, make_bundle()), open_bundle),
    Door("cache", "load_features", (), lambda random: mutate_npz(random, make_cache()[1]), use_cache),
)
