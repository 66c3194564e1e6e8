"""Sound files in all formats that libsndfile writes, and NIST SPHERE; and raw samples as a stream."""

import functools
import io
import json
import tempfile
from pathlib import Path
from random import Random

import numpy as np
import soundfile
from support.inspected_networks import save_recogniser
from support.made_corpora import make_small_corpus
from support.sound_files import encode_sphere, make_voice, write_flac_without_count

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.generation.music import MusicError, load_sequences
from cwrnn.experiments.words.features import FeatureSettings
from cwrnn.experiments.words.recogniser.model import Recogniser
from cwrnn.experiments.words.recogniser.recognition import recognise, recognise_stream
from cwrnn.experiments.words.sound_files import SoundError, decode_sound, extract_features

from ..door import Door, require
from ..mutation import INTEGERS, LARGEST, NUMBERS, TEXTS, mutate_bytes, overwrite_integer
from .model_files import check_candidates

FORMATS = (
    ("WAV", "PCM_16"), ("WAV", "PCM_U8"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "DOUBLE"), ("WAV", "ULAW"),
    ("WAV", "IMA_ADPCM"), ("WAV", "MS_ADPCM"), ("WAV", "GSM610"), ("WAVEX", "PCM_16"), ("WAVEX", "FLOAT"), ("FLAC",
    "PCM_16"),
    ("FLAC", "PCM_24"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("AIFF", "PCM_16"), ("AU", "PCM_16"), ("CAF", "PCM_16"),
    ("W64", "PCM_16"), ("RF64", "PCM_16"), ("MP3", "MPEG_LAYER_III"), ("NIST", "PCM_16"), ("VOC", "PCM_16"),
)  # fmt: skip


@functools.cache
def list_samples() -> tuple[bytes, ...]:
    """Return valid sound files of all formats, with one or two channels."""
    files = []
    for i, (format, coding) in enumerate(FORMATS):
        if coding not in soundfile.available_subtypes(format) or format not in soundfile.available_formats():
            continue
        sound = make_voice(i, 1200)
        if i % 3 == 0 and coding != "GSM610":
            sound = np.stack([sound, -sound / 2], axis=1)
        for endian in ("FILE", "BIG") if (format, coding) == ("WAV", "FLOAT") else ("FILE",):
            file = io.BytesIO()
            soundfile.write(file, sound, 16000, format=format, subtype=coding, endian=endian)
            files.append(remove_chance(file.getvalue()))
    files += [encode_sphere(make_voice(i, 1200), order=order) for i, order in enumerate(("01", "10"))]
    with tempfile.TemporaryDirectory() as folder:
        files.append(write_flac_without_count(Path(folder, "sound.flac"), make_voice(0, 1200)))
    # highly compressed: some seconds of silence and a click
    file = io.BytesIO()
    soundfile.write(file, np.concatenate([np.zeros(60_000), [0.5]]), 16000, format="FLAC")
    return (*files, file.getvalue())


def remove_chance(data: bytes) -> bytes:
    """Return a sound file without what differs each time: the date in PEAK, and the number of an OGG stream."""
    place = data.find(b"PEAK")
    if place >= 0:
        data = data[: place + 12] + bytes(4) + data[place + 16 :]
    if not data.startswith(b"OggS"):
        return data
    pages = []
    for part in data.split(b"OggS")[1:]:
        page = bytearray(b"OggS" + part)
        # the number of the stream, and the checksum that is computed as if it were 0
        page[14:18] = bytes(4)
        page[22:26] = bytes(4)
        page[22:26] = compute_ogg_checksum(page).to_bytes(4, "little")
        pages.append(bytes(page))
    return b"".join(pages)


def compute_ogg_checksum(page: bytes | bytearray) -> int:
    """Return the checksum of a page: CRC-32 with the polynomial 0x04C11DB7, the highest bit first."""
    checksum = 0
    for byte in page:
        checksum ^= byte << 24
        for _ in range(8):
            checksum = (checksum << 1 ^ 0x04C11DB7 if checksum & 2**31 else checksum << 1) & 0xFFFFFFFF
    return checksum


@functools.cache
def make_recogniser() -> Recogniser:
    """Return a recogniser of three words."""
    with tempfile.TemporaryDirectory() as folder:
        return Recogniser.load(save_recogniser(Path(folder, "model"), make_small_corpus()))


def make_case(random: Random) -> bytes:
    """Return a sound file with a few changes: in its header, in its numbers, or anywhere."""
    if random.random() < 0.15:
        # the only format that is decoded by the package itself
        return mutate_sphere(
            random, random.choice([file for file in list_samples() if file.startswith(b"NIST_1A\n   1024")])
        )
    sample = random.choice(list_samples())
    kind = random.random()
    if sample.startswith((b"RIFF", b"RIFX")) and kind < 0.5:
        return mutate_riff(random, sample)
    return mutate_bytes(random, sample, list_samples())


def mutate_sphere(random: Random, sample: bytes) -> bytes:
    """Return a SPHERE file whose header has other lines or values, of any length; its size is mostly right."""
    header, _, _ = sample[:1024].partition(b"end_head")
    lines = header.decode("latin-1").split("\n")
    for _ in range(random.choice((1, 1, 2))):
        i = random.randrange(2, len(lines) - 1)
        name, _, value = lines[i].rpartition(" ")
        kind = random.choice((0, 1, 2, 3, 4, 4, 4, 5))
        if kind <= 1:
            lines[i] = f"{name} {random.choice((*NUMBERS, *TEXTS))}"
        elif kind == 2:
            del lines[i]
        elif kind == 3:
            lines.insert(i, random.choice(lines))
        elif kind == 4:
            filler = random.choice((" ", "\r", "a", "a -i ", " -", "\n", "a -i 1\n", "0", "\t"))
            lines[i] = (
                name
                + " "
                + filler * (random.choice((10, 1000, 60_000, 60_000, 900_000)) // len(filler))
                + random.choice(("", value))
            )
        else:
            lines[i] = lines[i].replace("-i", random.choice(("-s3", "-r", "", "-i -i")))
    text = "\n".join(lines) + random.choice(("end_head\n", "end_head\n", "end_head\n", ""))
    size = max(1024, len(text) // 1024 * 1024 + 1024)
    shown = random.choice((size, size, size, size, *INTEGERS))
    # the size in the second line: seven places, or more if it needs them
    text = "\n".join([text.split("\n")[0], f"{shown:>7}", *text.split("\n")[2:]])
    return (text.encode("latin-1", "replace").ljust(size) + sample[1024:])[:LARGEST]


def mutate_riff(random: Random, sample: bytes) -> bytes:
    """Return a RIFF file with other sizes, other values in its format, or other samples."""
    data, place = sample, 12
    chunks = []
    order = "big" if sample.startswith(b"RIFX") else "little"
    while place + 8 <= len(sample):
        size = int.from_bytes(sample[place + 4 : place + 8], order)  # type: ignore[arg-type]
        chunks.append((place, size))
        place += 8 + size + size % 2
    for _ in range(random.choice((1, 1, 2, 3))):
        start, size = random.choice(chunks)
        kind = random.randrange(5)
        if kind == 0:
            data = overwrite_integer(random, data, start + 4)
        elif kind == 1:
            # format, channels, rate, bytes per second, bytes per frame, bits
            data = overwrite_integer(random, data, 20 + random.choice((0, 2, 4, 8, 12, 14, 16)))
        elif kind == 2:
            numbers = np.array(
                [random.choice((1e30, -3e38, 1e9, 1e-40, float("nan"), float("inf"), 100.0))],
                ">f4" if order == "big" else "<f4",
            )
            at = start + 8 + 4 * random.randrange(size // 4 + 1)
            data = data[:at] + numbers.tobytes() * random.choice((1, 1, 50)) + data[at + 4 :]
        elif kind == 3:
            data = data[:start] + sample[start : start + 8 + size] * random.choice((1, 2, 50)) + data[start:]
        else:
            data = data[: start + 8 + random.randrange(size + 1)]
    return data[:LARGEST]


def recognise_file(case: bytes, folder: Path) -> None:
    """Decode the bytes, and recognise them as a file, with and without its silence."""
    # relative: the name of a temporary folder may contain any letters
    path = Path("sound.wav")
    path.write_bytes(case)
    for trim in (False, True):
        result = recognise(make_recogniser(), path, trim=trim)
        json.dumps(result.to_dict(), allow_nan=False).encode()
        if result.files[0].error is None:
            require("nan" not in str(result), f"prints {result}")
            check_candidates(result.files[0].candidates)
    sample_rate, samples = decode_sound(case)
    require(bool(np.isfinite(samples).all()), "samples that are not finite")
    features = extract_features(samples, sample_rate, FeatureSettings())
    require(bool(np.isfinite(features).all()), "features that are not finite")


def read_music(case: bytes, folder: Path) -> None:
    """Read the bytes as a file of music. Its first byte chooses the part that is read."""
    path = folder / "sound.wav"
    path.write_bytes(case[1:])
    offset, length = ((0.0, 320), (0.0, 2), (0.01, 20), (1e300, 20), (0.0, 10**9), (1e-320, 100), (24.9, 20))[
        case[0] % 7
    ]
    for data in load_sequences([path], offset=offset, length=length):
        require(bool((np.abs(data.samples) <= 1).all()), "samples beyond [-1, 1]")


def make_stream_case(random: Random) -> bytes:
    """Return JSON: the sample rate, the sizes of the chunks, and raw samples as text."""
    data = (make_voice(random.randrange(9), 900) * 3e4).astype("<i2").tobytes()
    if random.random() < 0.6:
        data = mutate_bytes(random, data, list_samples())[:6000]
    if random.random() < 0.2:
        data = random.choice(list_samples())[:2000]
    rate = random.choice((None, None, 8000, 16000, 16000, 16000, 44100, 192_000, 0, -1, 7999, 2**63, 10**400))
    if random.random() < 0.02:
        # no common divisor: the filter is long
        rate = random.choice((8001, 191_999))
    return json.dumps(
        {"rate": rate, "chunk": random.choice((1, 2, 3, 77, 1000, 10**9)), "data": data.decode("latin-1")}
    ).encode()


def recognise_chunks(case: bytes, folder: Path) -> None:
    """Recognise raw samples that arrive in chunks."""
    request = json.loads(case)
    data = str(request["data"]).encode("latin-1", "replace")
    chunk = max(request["chunk"], len(data) // 50, 1)
    chunks = [data[place : place + chunk] for place in range(0, len(data), chunk)]
    result = recognise_stream(make_recogniser(), chunks, sample_rate=request["rate"])
    check_candidates(result.decision.candidates)
    json.dumps(result.to_dict(), allow_nan=False)


DOORS = (
    Door("sound", "recognise, decode_sound", (SoundError,), make_case, recognise_file),
    Door("music", "load_sequences", (MusicError,), lambda random: bytes([random.randrange(7)]) + make_case(random),
    read_music),
    Door("stream", "recognise_stream", (SoundError, ArgumentError), make_stream_case, recognise_chunks),
)  # fmt: skip
