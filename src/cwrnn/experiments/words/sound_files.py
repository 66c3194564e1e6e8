"""Sound files: decoding them, refusing those that are cut short, and cutting words out of them.

WAV, FLAC, OGG, and NIST SPHERE as TIMIT has it. libsndfile decodes the first three. It shortens a file that ends before
its header says, without an error, so the end of every file is checked here; the other formats that libsndfile knows are
refused, because no such check exists for them.
"""

import io
import os
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...untrusted import read_regular_file, shorten
from ..errors import ExperimentError
from .clips import Clip
from .features import SAMPLE_RATES, FeatureSettings, mfcc, resample

QUIET = 1e-4
"""A clip is silent if no sample is further from the mean. Full scale is 1: three steps of 16 bits, -80 dB."""

UNKNOWN_SIZE = 0x7FFFF000
"""Programs that write a sound file to a pipe put this number or a larger one into the size field of its header."""

BLOCK = 65536
"""Numbers to read at once from a file whose size is unknown or large."""

LARGEST_FILE = 2**32
"""The most bytes of a sound file: 4 GiB, as much as a WAV file can have."""

LONGEST_SOUND, SAMPLES_PER_BYTE = 2**23, 16
"""The most samples of a sound file, all channels together: 8.7 minutes of one channel at 16 kHz, or so many for each
byte if that is more. Speech does not compress so far; a small file that would fill the memory does."""

LONGEST_WORD, MOST_OPERATIONS = 2**22, 2**25
"""The most samples of a word, 4.4 minutes at 16 kHz, and the most multiply-adds of its features, almost twice as many
as the default settings need for so long a word. A model file of others may have settings that need many more."""

LOUDEST = 2.0**31
"""The largest sample. Full scale is 1, but some programs write integers of up to 32 bits as floating-point numbers."""

SPHERE = b"NIST_1A\n"

LONGEST_SPHERE_HEADER = 65536
"""The most bytes of a SPHERE header. The LDC writes 1024."""

FORMATS = ("WAV", "WAVEX", "FLAC", "OGG")
"""The formats of libsndfile whose ends are checked; WAVEX is a WAV with a longer header."""

FIRST_BYTES = (
    (b"RIFF", "WAV"), (b"RIFX", "WAV"), (b"fLaC", "FLAC"), (b"OggS", "OGG"),
    (b"FORM", "AIFF"), (b".snd", "AU"), (b"caff", "CAF"), (b"RF64", "RF64"), (b"riff", "W64"),
)  # fmt: skip
"""The first bytes of a sound file and the name of its format, for the formats of FORMATS and some others."""


class SoundError(ExperimentError, ValueError):
    """A sound cannot be used. The message says why, without the name of the file."""


def decode_sound(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """Return the sample rate and the samples, (n,) in [-1, 1], of the bytes of a sound file.

    Channels are mixed to one. Raises a SoundError for bytes that are no sound file, not all of it, or more than
    LONGEST_SOUND samples in a small file, and for samples that are not finite or larger than LOUDEST.
    """
    if not data:
        raise SoundError("the file is empty")
    try:
        sample_rate, samples = _decode_sphere(data) if data.startswith(SPHERE) else _decode_with_libsndfile(data)
        if not len(samples):
            raise SoundError("the file has no samples")
        check_samples(samples)
        return sample_rate, samples.mean(axis=1)
    except MemoryError as error:
        raise SoundError("its samples do not fit into memory") from error


def read_sound_file(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a sound file. Raises an OSError if it cannot be read, is no regular file or is too large."""
    return read_regular_file(path, LARGEST_FILE)


def check_samples(samples: NDArray[np.floating[Any]], first: int = 0) -> None:
    """Raise a SoundError if a sample is not finite, or so large that its features would not be finite.

    Args:
        samples: (n,) or (n, channels)
        first: the number of the first of these samples in the sound
    """
    # NaN is never within the limits; the whole array is looked at once, and again only to find the place
    if not samples.size or (samples.min() >= -LOUDEST and samples.max() <= LOUDEST):
        return
    place = int(np.flatnonzero(~(np.abs(samples) <= LOUDEST))[0])
    value, number = samples.reshape(-1)[place], first + place * len(samples) // samples.size
    if not np.isfinite(value):
        raise SoundError(f"has samples that are not finite: sample {number} is {value}")
    raise SoundError(f"has samples that are too large: sample {number} is {value:g}, but full scale is 1")


def cut_clip(samples: NDArray[np.float64], sample_rate: int, clip: Clip) -> NDArray[np.float64]:
    """Return the part of a file's samples that is the clip."""
    if clip.sample_rate not in (None, sample_rate):
        raise SoundError(
            f"the sample rate is {sample_rate} Hz, but the transcript counts samples at {clip.sample_rate} Hz"
        )
    end = len(samples) if clip.end is None else clip.end
    if not 0 <= clip.start < end <= len(samples):
        raise SoundError(f"the word is at samples {clip.start} to {end}, but the file has {len(samples)}")
    return samples[clip.start : end]


def extract_features(samples: NDArray[np.float64], sample_rate: int, settings: FeatureSettings) -> NDArray[np.float32]:
    """Return the features (T, 13), T >= 1, of the samples of a word, (n,) with n >= 1.

    Raises a SoundError if the sound is silent, too short or too long, or if its sample rate cannot be used.
    """
    low, high = SAMPLE_RATES
    if not low <= sample_rate <= high:
        raise SoundError(f"the sample rate is {sample_rate} Hz, expected {low} to {high} Hz")
    length = round(len(samples) * max(1.0, settings.rate / sample_rate))
    if length > LONGEST_WORD or settings.count_operations(length) > MOST_OPERATIONS:
        raise SoundError(
            f"too long for a word: {describe_duration(len(samples), sample_rate)}; expected at most "
            f"{LONGEST_WORD} samples, {describe_duration(LONGEST_WORD, max(sample_rate, settings.rate))}, and fewer if "
            "the frames of the features are close together"
        )
    if np.abs(samples - samples.mean()).max() < QUIET:
        raise SoundError("silent")
    resampled = resample(samples, sample_rate, settings.rate)
    if len(resampled) < settings.shortest:
        raise SoundError(describe_too_short(len(resampled), settings.rate, settings))
    return mfcc(resampled, settings)


def describe_too_short(samples: int, sample_rate: int, settings: FeatureSettings) -> str:
    """Return the message for a sound of fewer samples than one window.

    >>> describe_too_short(160, 16000, FeatureSettings())
    'too short: 10 ms, expected at least one window of 25 ms'
    """
    return f"too short: {1000 * samples / sample_rate:.3g} ms, expected at least one window of {settings.window:g} ms"


def describe_duration(samples: int, sample_rate: int) -> str:
    """Return the duration of so many samples as text.

    >>> describe_duration(2**24, 16000), describe_duration(16000, 16000)
    ('17 min at 16000 Hz', '1 s at 16000 Hz')
    """
    seconds = samples / max(1, sample_rate)
    return f"{seconds / 60:.0f} min at {sample_rate} Hz" if seconds > 120 else f"{seconds:.3g} s at {sample_rate} Hz"


def _decode_with_libsndfile(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """Decode WAV, FLAC or OGG. The samples are (n, channels), or (n, 1) if the file is large and mixed in parts."""
    format = _find_format(data)
    if format is None:
        raise SoundError("not a sound file that can be read (it does not begin as WAV, FLAC, OGG or SPHERE)")
    if format not in FORMATS:
        raise SoundError(f"the format is {format}, expected WAV, FLAC, OGG or SPHERE")
    _refuse_truncated(data)
    soundfile = require("soundfile", extra="experiments", purpose="reading audio")
    most = max(LONGEST_SOUND, SAMPLES_PER_BYTE * len(data))
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in FORMATS:
                raise SoundError(f"the format is {file.format}, expected WAV, FLAC, OGG or SPHERE")
            sample_rate, frames = int(file.samplerate), int(file.frames)
            if frames * file.channels <= LONGEST_SOUND:
                samples = file.read(dtype="float64", always_2d=True)
            else:
                promised = frames if frames < UNKNOWN_SIZE else 0
                samples = _read_in_blocks(file, sample_rate, promised, most // file.channels)
    except SoundError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = getattr(error, "error_string", "") or "it ends or breaks off in the middle"
        raise SoundError(f"not a sound file that can be read ({reason})") from error
    if len(samples) < frames < UNKNOWN_SIZE:
        raise SoundError(f"truncated: the header promises {frames} samples, the file has {len(samples)}")
    return sample_rate, samples


def _find_format(data: bytes) -> str | None:
    """Return the format of a sound file by its first bytes, or None if no format that is known has them.

    libsndfile alone would try some twenty more formats, whose readers were not made for hostile files and print their
    complaints to standard output.
    """
    start = 0
    if data.startswith(b"ID3") and len(data) > 10:
        # a tag that some programs put before the sound; its size has 7 bits in each of four bytes
        start = 10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[9:5:-1]))
    for magic, name in FIRST_BYTES:
        if data.startswith(magic, start):
            return name
    return "MP3" if data[start : start + 1] == b"\xff" and data[start + 1 : start + 2] >= b"\xe0" else None


def _read_in_blocks(file: Any, sample_rate: int, frames: int, most: int) -> NDArray[np.float64]:
    """Return the samples, (n, 1), of a sound file that is large, or whose header does not say how large it is.

    Args:
        file: the open file
        sample_rate: samples per second, for messages
        frames: the number of samples that the header promises; 0 if it is unknown
        most: the most samples of each channel
    """
    limit = f"{most} at most, {describe_duration(most, sample_rate)}"
    if frames > most:
        raise SoundError(f"too long: the header promises {frames} samples, but a file of this size may have {limit}")
    # otherwise soundfile seeks to the place that it has read to, which libsndfile cannot do at the end of such a file
    file.seekable = lambda: False
    blocks, count = [np.zeros((0, 1))], 0
    while len(block := file.read(max(1, BLOCK // file.channels), dtype="float64", always_2d=True)):
        count += len(block)
        if count > most:
            raise SoundError(f"too long: a file of this size may have {limit}")
        check_samples(block, count - len(block))
        blocks.append(block.mean(axis=1, keepdims=True))
    return np.concatenate(blocks)


def _refuse_truncated(data: bytes) -> None:
    if data[:4] in (b"RIFF", b"RIFX") and data[8:12] == b"WAVE":
        place, order = 12, "<>"[data[3:4] == b"X"]
        while place + 8 <= len(data):
            name, size = struct.unpack_from(f"{order}4sI", data, place)
            place += 8
            if name == b"data":
                if size < UNKNOWN_SIZE and place + size > len(data):
                    raise SoundError(
                        f"truncated: the header promises {size} bytes of sound, the file has {len(data) - place}"
                    )
                return
            # chunks begin at even places
            place += size + size % 2
    elif data[:4] == b"OggS":
        _check_ogg_pages(data)


def _check_ogg_pages(data: bytes) -> None:
    """Refuse an OGG file that lacks its last page or has anything between its pages.

    A page is 27 bytes, a table of sizes, and as many bytes as the sizes add up to. Byte 5 marks the last page, byte 26
    is the length of the table. libsndfile searches for pages behind anything else, which takes long in a hostile file.
    """
    place, is_last = 0, False
    while data.startswith(b"OggS", place):
        table = place + 27
        length = data[place + 26] if table <= len(data) else 1
        sizes = data[table : table + length]
        if len(sizes) < length or table + length + sum(sizes) > len(data):
            raise SoundError("truncated: the last page is missing")
        is_last = bool(data[place + 5] & 4)
        place = table + length + sum(sizes)
    if data.find(b"OggS", place) >= 0:
        raise SoundError("not a sound file that can be read (there are other bytes between the pages of the OGG file)")
    if not is_last:
        raise SoundError("truncated: the last page is missing")


def _decode_sphere(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """Decode NIST SPHERE: a header of lines "name -type value", padded to the size in its second line, then samples."""
    digits = data[len(SPHERE) : len(SPHERE) + 16].partition(b"\n")[0].strip()
    size = int(digits) if digits.isdigit() else LONGEST_SPHERE_HEADER + 1
    if size > LONGEST_SPHERE_HEADER or len(data) < size:
        raise SoundError("truncated: the SPHERE header is not complete")
    fields = _parse_sphere_header(data[len(SPHERE) : size].decode("latin-1"))
    coding = fields.get("sample_coding", "pcm")
    if "shorten" in coding or data.startswith(b"ajkg", size):
        raise SoundError("compressed with shorten: convert it with the tool sph2pipe (sph2pipe -f wav IN OUT)")
    if coding != "pcm" or fields.get("sample_n_bytes") != "2":
        raise SoundError(
            f"SPHERE of {shorten(fields.get('sample_n_bytes', 'no'))} bytes per sample, coded {shorten(coding)}: "
            "expected 2 bytes, coded pcm"
        )
    order = {"01": "<i2", "10": ">i2"}.get(fields.get("sample_byte_format", "01"))
    numbers = {"channel_count": "1"} | fields
    for name in ("sample_rate", "sample_count", "channel_count"):
        if not re.fullmatch("[0-9]{1,18}", numbers.get(name, "")):
            raise SoundError(f"the SPHERE header is invalid ({name}: {shorten(numbers.get(name, 'missing'))!r})")
    sample_rate, count, channels = (int(numbers[name]) for name in ("sample_rate", "sample_count", "channel_count"))
    if order is None or channels < 1:
        raise SoundError("the SPHERE header is invalid")
    available = (len(data) - size) // (2 * channels)
    if available < count:
        raise SoundError(f"truncated: the header promises {count} samples, the file has {available}")
    if not count:
        return sample_rate, np.zeros((0, 1))
    samples = np.frombuffer(data, dtype=order, count=count * channels, offset=size).reshape(-1, channels)
    return sample_rate, samples.astype(np.float64) / 32768


def _parse_sphere_header(header: str) -> dict[str, str]:
    """Return the fields of a SPHERE header, up to its end or the line "end_head"."""
    fields = {}
    for line in header.partition("end_head")[0].split("\n"):
        name, _, rest = line.partition(" ")
        kind, space, value = rest.partition(" ")
        if name and space and kind.startswith("-"):
            fields[name] = value.rstrip(" \r")
    return fields
