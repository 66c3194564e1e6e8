"""Sound files: decoding them, refusing those that are cut short, and cutting words out of them.

WAV, FLAC, OGG, and NIST SPHERE as TIMIT has it. libsndfile decodes the first three. It shortens a file that ends before
its header says, without an error, so the end of every file is checked here; the other formats that libsndfile knows are
refused, because no such check exists for them.
"""

import io
import re
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ..errors import ExperimentError
from .clips import Clip
from .features import SAMPLE_RATES, FeatureSettings, mfcc, resample

QUIET = 1e-4
"""A clip is silent if no sample is further from the mean. Full scale is 1: three steps of 16 bits, -80 dB."""

UNKNOWN_SIZE = 0x7FFFF000
"""Programs that write a sound file to a pipe put this number or a larger one into the size field of its header."""

BLOCK = 65536
"""Samples to read at once from a file whose size is unknown."""

SPHERE = b"NIST_1A\n"

FORMATS = ("WAV", "WAVEX", "FLAC", "OGG")
"""The formats of libsndfile whose ends are checked; WAVEX is a WAV with a longer header."""


class SoundError(ExperimentError, ValueError):
    """A sound cannot be used. The message says why, without the name of the file."""


def decode_sound(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """Return the sample rate and the samples, (n,) in [-1, 1], of the bytes of a sound file.

    Channels are mixed to one. Raises a SoundError for bytes that are no sound file, or not all of it.
    """
    if not data:
        raise SoundError("the file is empty")
    sample_rate, samples = _decode_sphere(data) if data.startswith(SPHERE) else _decode_with_libsndfile(data)
    if not len(samples):
        raise SoundError("the file has no samples")
    if not np.isfinite(samples).all():
        raise SoundError("has samples that are not finite")
    return sample_rate, samples.mean(axis=1)


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

    Raises a SoundError if the sound is silent or too short, or if its sample rate cannot be used.
    """
    if np.abs(samples - samples.mean()).max() < QUIET:
        raise SoundError("silent")
    low, high = SAMPLE_RATES
    if not low <= sample_rate <= high:
        raise SoundError(f"the sample rate is {sample_rate} Hz, expected {low} to {high} Hz")
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


def _decode_with_libsndfile(data: bytes) -> tuple[int, NDArray[np.float64]]:
    _refuse_truncated(data)
    soundfile = require("soundfile", extra="experiments", purpose="reading audio")
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in FORMATS:
                raise SoundError(f"the format is {file.format}, expected WAV, FLAC, OGG or SPHERE")
            sample_rate, frames = int(file.samplerate), int(file.frames)
            samples = _read_to_the_end(file) if frames >= UNKNOWN_SIZE else file.read(dtype="float64", always_2d=True)
    except SoundError:
        raise
    except (MemoryError, RuntimeError, ValueError) as error:
        reason = getattr(error, "error_string", "") or "it ends or breaks off in the middle"
        raise SoundError(f"not a sound file that can be read ({reason})") from error
    if len(samples) < frames < UNKNOWN_SIZE:
        raise SoundError(f"truncated: the header promises {frames} samples, the file has {len(samples)}")
    return sample_rate, samples


def _read_to_the_end(file: Any) -> NDArray[np.float64]:
    """Return the samples of a sound file whose header does not say how many it has."""
    # otherwise soundfile seeks to the place that it has read to, which libsndfile cannot do at the end of such a file
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
                if size < UNKNOWN_SIZE and place + size > len(data):
                    raise SoundError(
                        f"truncated: the header promises {size} bytes of sound, the file has {len(data) - place}"
                    )
                return
            # chunks begin at even places
            place += size + size % 2
    elif data[:4] == b"OggS":
        # a page is 27 bytes, a table of sizes, and as many bytes as the sizes add up to; byte 5 marks the last page,
        # byte 26 is the length of the table
        page = data[data.rfind(b"OggS") :]
        sizes = page[27 : 27 + page[26]] if len(page) > 26 else b""
        if not sizes or not page[5] & 4 or len(page) < 27 + len(sizes) + sum(sizes):
            raise SoundError("truncated: the last page is missing")


def _decode_sphere(data: bytes) -> tuple[int, NDArray[np.float64]]:
    """Decode NIST SPHERE: a header of lines "name -type value", padded to the size in its second line, then samples."""
    size = re.match(rb"\s*(\d+)\s*\n", data[len(SPHERE) : len(SPHERE) + 16])
    if size is None or len(data) < int(size[1]):
        raise SoundError("truncated: the SPHERE header is not complete")
    header = data[: int(size[1])].decode("latin-1")
    fields = dict(re.findall(r"^(\w+) -\w+ (.*?)[ \r]*$", header.partition("end_head")[0], re.MULTILINE))
    coding = fields.get("sample_coding", "pcm")
    if "shorten" in coding or data[int(size[1]) :].startswith(b"ajkg"):
        raise SoundError("compressed with shorten: convert it with the tool sph2pipe (sph2pipe -f wav IN OUT)")
    if coding != "pcm" or fields.get("sample_n_bytes") != "2":
        raise SoundError(
            f"SPHERE of {fields.get('sample_n_bytes')} bytes per sample, coded {coding}: expected 2 bytes, coded pcm"
        )
    order = {"01": "<i2", "10": ">i2"}.get(fields.get("sample_byte_format", "01"))
    try:
        sample_rate, count = int(fields["sample_rate"]), int(fields["sample_count"])
        channels = int(fields.get("channel_count", "1"))
    except (KeyError, ValueError) as error:
        raise SoundError(f"the SPHERE header is invalid ({error})") from error
    if order is None or channels < 1 or count < 0:
        raise SoundError("the SPHERE header is invalid")
    body = data[int(size[1]) :]
    if len(body) < 2 * count * channels:
        raise SoundError(f"truncated: the header promises {count} samples, the file has {len(body) // (2 * channels)}")
    samples = np.frombuffer(body, dtype=order, count=count * channels).reshape(-1, channels)
    return sample_rate, samples.astype(np.float64) / 32768
