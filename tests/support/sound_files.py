"""Made-up sounds, sound files and folders of sound files for tests of corpora."""

import csv

import numpy as np
import soundfile

SAMPLE_RATE = 16000


def make_voice(seed, samples=4800, sample_rate=SAMPLE_RATE):
    """Return the samples of a sound that differs for every seed."""
    random = np.random.default_rng(seed)
    times = np.arange(samples) / sample_rate
    tones = sum(np.sin(2 * np.pi * f * times + p) for f, p in zip(random.uniform(100, 3000, 4), range(4), strict=True))
    return 0.1 * tones * np.hanning(samples) + random.normal(0, 0.01, samples)


def write_sound(path, samples, sample_rate=SAMPLE_RATE, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, sample_rate, **options)
    return path


def write_flac_without_count(path, samples):
    """Write a FLAC file as a pipe would: the 36 bits that count its samples are 0. Return its bytes."""
    data = bytearray(write_sound(path, samples, format="FLAC").read_bytes())
    data[21] &= 0xF0
    data[22:26] = bytes(4)
    path.write_bytes(data)
    return bytes(data)


def write_word_folders(root, words=("yes", "no"), speakers=7):
    """Write recordings as WORD/SPEAKER.wav into `root`, and return it."""
    for i, word in enumerate(words):
        for j in range(speakers):
            write_sound(root / word / f"s{j}.wav", make_voice(100 * i + j, 4000 + 100 * j))
    return root


def write_manifest(root, rows, columns=None, encoding="utf-8"):
    columns = columns or list(rows[0])
    with (root / "manifest.csv").open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return root


def write_listed_words(root, **options):
    """Write a manifest of four words, which are parts of one file for each speaker; return its rows."""
    rows = []
    for j in range(3):
        sounds = [make_voice(1000 + 10 * j + i, 4000) for i in range(4)]
        write_sound(root / "wav" / f"{j}.wav", np.concatenate(sounds))
        for i, word in enumerate(("north", "up", "east", "down")):
            place = {"start": 4000 * i, "end": 4000 * (i + 1)}
            rows.append(
                {
                    "word": word,
                    "speaker": f"s{j}",
                    "file": f"wav/{j}.wav",
                    **place,
                    "split": "test" if j == 1 else "train",
                    "cluster": 1 + i % 2,
                    "note": "ignored",
                }
            )
    write_manifest(root, rows, **options)
    return rows


def encode_sphere(samples, sample_rate=SAMPLE_RATE, order="01", count=None, coding="pcm", size=1024, **more):
    """Return the samples as a NIST SPHERE file, as the LDC writes it."""
    data = np.rint(np.asarray(samples) * 32768).clip(-32768, 32767).astype("<i2" if order == "01" else ">i2")
    channels = 1 if data.ndim == 1 else data.shape[1]
    fields = {
        "database_id -s5": "TIMIT",
        "database_version -s3": "1.0",
        "utterance_id -s8": "cjf0_sa1",
        "channel_count -i": channels,
        "sample_count -i": len(data) if count is None else count,
        "sample_rate -i": sample_rate,
        "sample_min -i": -2191,
        "sample_max -i": 2790,
        "sample_n_bytes -i": 2,
        "sample_byte_format -s2": order,
        "sample_sig_bits -i": 16,
        f"sample_coding -s{len(coding)}": coding,
        **more,
    }
    lines = ["NIST_1A", f"{size:>7}", *(f"{name} {value}" for name, value in fields.items()), "end_head", ""]
    return "\n".join(lines).encode().ljust(size) + data.tobytes()
