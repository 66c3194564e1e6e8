"""Clips: which part of which file is which word, and how it becomes features.

What is wrong is collected, never raised one by one: whoever has a folder full of recordings wants one list.
"""

import hashlib
import io
import json
import os
import re
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import __version__
from ...extras import require
from .features import RATES, FeatureSettings, engine, mfcc, resample

TRAIN, TEST = SPLITS = ("train", "test")

PAPER_WORDS = (
    ("making", "walking", "cooking", "looking", "working"),
    ("biblical", "cyclical", "technical", "classical", "critical"),
    ("tradition", "addition", "audition", "recognition", "competition"),
    ("musicians", "discussions", "regulations", "accusations", "conditions"),
    ("subway", "leeway", "freeway", "highway", "hallway"),
)
"""The paper's 25 words, by cluster."""

Progress = Callable[[int, int], None]
"""Called with the clips done, and all of them."""

QUIET = 1e-4
"""A clip that is never louder, at full scale 1, is silent: three steps of 16 bits, -80 dB."""

UNKNOWN = 0x7FFFF000
"""The sizes from here on stand in the headers of files that were written to a pipe."""

BLOCK = 65536
"""Samples that are read at once from such a file."""

SPHERE = b"NIST_1A\n"

FORMATS = ("WAV", "WAVEX", "FLAC", "OGG")
"""Those of libsndfile's whose ends are checked; WAVEX is a WAV with a longer header."""


class SoundError(ValueError):
    """What is wrong with a file, without its name."""


@dataclass(frozen=True)
class Clip:
    """One word in a file."""

    word: str
    speaker: str
    split: str
    path: Path
    source: str
    """The file and the place in it, in words."""
    start: int = 0
    """In samples."""
    end: int | None = None
    """One beyond the last sample; None: the file's end."""
    rate: int | None = None
    """The samples per second that start and end count in; None: the file's own."""


@dataclass
class Found:
    """What a source has: the clips, and what is wrong with it."""

    name: str
    source: str
    """Where it comes from, in words."""
    clips: list[Clip] = field(default_factory=list)
    clusters: dict[str, int] = field(default_factory=dict)
    """In the order of the words."""
    problems: list[str] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    """What is wrong with the words that were asked for, rather than with the source."""


def clusters_of(words: Iterable[str]) -> dict[str, int]:
    """Each word's cluster: the paper's, if all words are the paper's, else 1.

    >>> clusters_of(["critical", "making"]), clusters_of(["making", "yes"])
    ({'critical': 2, 'making': 1}, {'making': 1, 'yes': 1})
    """
    papers = {word: i for i, cluster in enumerate(PAPER_WORDS, start=1) for word in cluster}
    words = tuple(words)
    known = all(word in papers for word in words)
    return {word: papers[word] if known else 1 for word in words}


def features(
    clips: Sequence[Clip], settings: FeatureSettings, *, cache: Path | None, progress: Progress | None = None
) -> tuple[list[NDArray[np.float32]], list[str]]:
    """The features of each clip, each (T, 13), and all that is wrong with them; if anything is, there are no features.

    Every file is read, to its end: the cache is asked for exactly these bytes, and only spares the computing.
    """
    clips_of: dict[Path, list[int]] = {}
    for i, clip in enumerate(clips):
        clips_of.setdefault(clip.path, []).append(i)
    problems: list[str] = []
    digests = [""] * len(clips)
    for path, places in clips_of.items():
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            problems += [f"{clips[i].source}: cannot be read: {error.strerror}" for i in places]
            continue
        for i in places:
            digests[i] = digest
    problems += _twice(clips, digests)
    file = None if cache is None else cache / f"{_key(clips, digests, settings)}.npz"
    if file is not None and clips and not problems:
        known = _remembered(file, len(clips), settings)
        if known is not None:
            if progress is not None:
                progress(len(clips), len(clips))
            return known, []
    found: dict[int, NDArray[np.float32]] = {}
    done = 0
    for path, places in clips_of.items():
        try:
            rate, samples = sound(path.read_bytes())
        except OSError:
            # told above
            continue
        except SoundError as error:
            problems += [f"{clips[i].source}: {error}" for i in places]
            continue
        for i in places:
            try:
                found[i] = _part(samples, rate, clips[i], settings)
            except SoundError as error:
                problems.append(f"{clips[i].source}: {error}")
            done += 1
            if progress is not None:
                progress(done, len(clips))
    if problems:
        return [], problems
    result = [found[i] for i in range(len(clips))]
    if file is not None and clips:
        _remember(file, result)
    return result, []


def sound(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """The rate and the samples, (n,) in [-1, 1], of a sound file's bytes; channels are mixed to one.

    WAV, FLAC, OGG, and NIST SPHERE as TIMIT has it. A file that ends before its header says is refused, which
    libsndfile would cut short without a word; the other formats that it knows are not read, for want of such a check.
    """
    if not data:
        raise SoundError("the file is empty")
    if data.startswith(SPHERE):
        rate, samples = _sphere(data)
    else:
        _refuse_truncated(data)
        soundfile = require("soundfile", extra="experiments", purpose="reading audio")
        try:
            with soundfile.SoundFile(io.BytesIO(data)) as file:
                if file.format not in FORMATS:
                    raise SoundError(f"a sound file of the format {file.format}: WAV, FLAC, OGG and SPHERE are read")
                rate, frames = int(file.samplerate), int(file.frames)
                samples = _to_the_end(file) if frames >= UNKNOWN else file.read(dtype="float64", always_2d=True)
        except SoundError:
            raise
        except (MemoryError, RuntimeError, ValueError) as error:
            reason = getattr(error, "error_string", "") or "it ends or breaks off in the middle"
            raise SoundError(f"not a sound file that can be read ({reason})") from error
        if len(samples) < frames < UNKNOWN:
            raise SoundError(f"truncated: {frames} samples are promised, {len(samples)} are there")
    if not len(samples):
        raise SoundError("the file has no samples")
    if not np.isfinite(samples).all():
        raise SoundError("has samples that are not finite")
    return rate, samples.mean(axis=1)


def heard(samples: NDArray[np.float64], rate: int, settings: FeatureSettings) -> NDArray[np.float32]:
    """The features (T, 13), T >= 1, of a word's samples, or a SoundError: silent, too short, or of no usable rate."""
    if np.abs(samples - samples.mean()).max() < QUIET:
        raise SoundError("silent")
    low, high = RATES
    if not low <= rate <= high:
        raise SoundError(f"its rate is {rate} Hz, and must be from {low} to {high} Hz")
    part = resample(samples, rate, settings.rate)
    if len(part) < settings.shortest:
        raise SoundError(f"too short: {1000 * len(part) / settings.rate:.3g} ms, one window is {settings.window:g} ms")
    return mfcc(part, settings)


def user_cache() -> Path | None:
    """Where this user's programs keep what they can compute again; None without a home."""
    folder = os.environ.get("XDG_CACHE_HOME")
    if folder:
        return Path(folder) / "cwrnn" / "words"
    try:
        return Path.home() / ".cache" / "cwrnn" / "words"
    except RuntimeError:
        return None


def printable(text: str) -> str:
    """`text` with a question mark for each byte of a file's name that is not UTF-8.

    >>> printable("caf" + chr(0xDCE9) + ".wav")
    'caf?.wav'
    """
    return text.encode("utf-8", "replace").decode()


def ranked(word: str, speakers: Iterable[str]) -> list[str]:
    """The speakers in an order that is random, and the same for ever: by the hash of word and speaker.

    >>> ranked("making", ["fcjf0", "mdac0", "mpgh0"])
    ['mdac0', 'fcjf0', 'mpgh0']
    """
    return sorted(speakers, key=lambda speaker: hashlib.sha256(f"{word}\n{speaker}".encode()).hexdigest())


def _part(samples: NDArray[np.float64], rate: int, clip: Clip, settings: FeatureSettings) -> NDArray[np.float32]:
    if clip.rate not in (None, rate):
        raise SoundError(f"its rate is {rate} Hz, its transcript counts samples at {clip.rate}")
    end = len(samples) if clip.end is None else clip.end
    if not 0 <= clip.start < end <= len(samples):
        raise SoundError(f"samples {clip.start} to {end} are asked for, the file has {len(samples)}")
    return heard(samples[clip.start : end], rate, settings)


def _twice(clips: Sequence[Clip], digests: Sequence[str]) -> list[str]:
    """The same recording, whatever its name, is one example of one word."""
    problems = []
    first: dict[tuple[str, int, int | None], Clip] = {}
    for clip, digest in zip(clips, digests, strict=True):
        other = first.setdefault((digest, clip.start, clip.end), clip)
        if digest and other is not clip:
            problems.append(f"{clip.source} ({clip.word}): the same recording as {other.source} ({other.word})")
    return problems


def _to_the_end(file: Any) -> NDArray[np.float64]:
    """The samples of a sound file that does not know how many it has."""
    # else soundfile goes to where it has read, which libsndfile cannot at such a file's end
    file.seekable = lambda: False
    blocks = [np.zeros((0, file.channels))]
    while len(block := file.read(BLOCK, dtype="float64", always_2d=True)):
        blocks.append(block)
    return np.concatenate(blocks)


def _refuse_truncated(data: bytes) -> None:
    if data[:4] in (b"RIFF", b"RIFX") and data[8:12] == b"WAVE":
        place, order = 12, "<>"[data[3:4] == b"X"]
        while place + 8 <= len(data):
            name, size = struct.unpack_from(f"{order}4sI", data, place)
            place += 8
            if name == b"data":
                if size < UNKNOWN and place + size > len(data):
                    raise SoundError(f"truncated: {size} bytes of sound are promised, {len(data) - place} are there")
                return
            # chunks begin at even places
            place += size + size % 2
    elif data[:4] == b"OggS":
        # a page: 27 bytes, of which the sixth marks the last page and the last counts the sizes that follow, then as
        # many bytes as these add up to
        page = data[data.rfind(b"OggS") :]
        sizes = page[27 : 27 + page[26]] if len(page) > 26 else b""
        if not sizes or not page[5] & 4 or len(page) < 27 + len(sizes) + sum(sizes):
            raise SoundError("truncated: its last page is missing")


def _sphere(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """NIST SPHERE: a header of lines "name -type value", padded to the size in its second line, then the samples."""
    size = re.match(rb"\s*(\d+)\s*\n", data[len(SPHERE) : len(SPHERE) + 16])
    if size is None or len(data) < int(size[1]):
        raise SoundError("truncated: its SPHERE header is not complete")
    header = data[: int(size[1])].decode("latin-1")
    fields = dict(re.findall(r"^(\w+) -\w+ (.*?)[ \r]*$", header.partition("end_head")[0], re.MULTILINE))
    coding = fields.get("sample_coding", "pcm")
    if "shorten" in coding or data[int(size[1]) :].startswith(b"ajkg"):
        raise SoundError("compressed with shorten: convert it with the tool sph2pipe (sph2pipe -f wav IN OUT)")
    if coding != "pcm" or fields.get("sample_n_bytes") != "2":
        raise SoundError(
            f"SPHERE of {fields.get('sample_n_bytes')} bytes per sample, coded {coding}: 16-bit pcm is read"
        )
    order = {"01": "<i2", "10": ">i2"}.get(fields.get("sample_byte_format", "01"))
    try:
        rate, count = int(fields["sample_rate"]), int(fields["sample_count"])
        channels = int(fields.get("channel_count", "1"))
    except (KeyError, ValueError) as error:
        raise SoundError(f"its SPHERE header makes no sense ({error})") from error
    if order is None or channels < 1 or count < 0:
        raise SoundError("its SPHERE header makes no sense")
    body = data[int(size[1]) :]
    if len(body) < 2 * count * channels:
        raise SoundError(f"truncated: {count} samples are promised, {len(body) // (2 * channels)} are there")
    samples = np.frombuffer(body, dtype=order, count=count * channels).reshape(-1, channels)
    return rate, samples.astype(np.float64) / 32768


def _key(clips: Sequence[Clip], digests: Sequence[str], settings: FeatureSettings) -> str:
    about = {
        "clips": [[digest, clip.start, clip.end, clip.rate] for clip, digest in zip(clips, digests, strict=True)],
        "settings": asdict(settings),
        "versions": [__version__, engine()],
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _remembered(file: Path, count: int, settings: FeatureSettings) -> list[NDArray[np.float32]] | None:
    """What the cache has; None if it has nothing, or nothing that can be right."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            frames, lengths = arrays["features"], arrays["lengths"]
    except (EOFError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile):
        return None
    right = lengths.shape == (count,) and lengths.dtype.kind == "i" and (lengths > 0).all()
    if not right or frames.dtype != np.float32 or frames.shape != (lengths.sum(), settings.channels):
        return None
    return np.split(frames, np.cumsum(lengths)[:-1])


def _remember(file: Path, found: Sequence[NDArray[np.float32]]) -> None:
    """Written beside and moved into place; where nothing can be written, nothing is remembered."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        try:
            with os.fdopen(descriptor, "wb") as opened:
                np.savez(opened, features=np.concatenate(found), lengths=np.array([len(each) for each in found]))
            os.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise
