"""Sounds for tests of corpora, and corpora of them."""

import csv

import numpy as np
import soundfile

RATE = 16000


def voice(seed, samples=4800, rate=RATE):
    """A sound that is like no other."""
    random = np.random.default_rng(seed)
    times = np.arange(samples) / rate
    tones = sum(np.sin(2 * np.pi * f * times + p) for f, p in zip(random.uniform(100, 3000, 4), range(4), strict=True))
    return 0.1 * tones * np.hanning(samples) + random.normal(0, 0.01, samples)


def write(path, samples, rate=RATE, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **options)
    return path


def folders(root, words=("yes", "no"), speakers=7):
    """WORD/SPEAKER.wav"""
    for i, word in enumerate(words):
        for j in range(speakers):
            write(root / word / f"s{j}.wav", voice(100 * i + j, 4000 + 100 * j))
    return root


def manifest(root, rows, columns=None, encoding="utf-8"):
    columns = columns or list(rows[0])
    with (root / "manifest.csv").open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return root


def listed(root, **options):
    """A manifest of four words, which are parts of one file for each speaker."""
    rows = []
    for j in range(3):
        sounds = [voice(1000 + 10 * j + i, 4000) for i in range(4)]
        write(root / "wav" / f"{j}.wav", np.concatenate(sounds))
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
    manifest(root, rows, **options)
    return rows


def sphere(samples, rate=RATE, order="01", count=None, coding="pcm", size=1024, **more):
    """NIST SPHERE, as the LDC writes it."""
    data = np.rint(np.asarray(samples) * 32768).clip(-32768, 32767).astype("<i2" if order == "01" else ">i2")
    channels = 1 if data.ndim == 1 else data.shape[1]
    fields = {
        "database_id -s5": "TIMIT",
        "database_version -s3": "1.0",
        "utterance_id -s8": "cjf0_sa1",
        "channel_count -i": channels,
        "sample_count -i": len(data) if count is None else count,
        "sample_rate -i": rate,
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
