"""Corpora of spoken words: folders of clips, manifests, and trees like TIMIT's."""

import json
from pathlib import Path
from random import Random
from typing import Any

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.words.corpus import load_corpus

from ..door import Door, require
from ..mutation import NUMBERS, TEXTS, mutate_bytes, mutate_text
from ..trees import mutate_tree, write_tree

COLUMNS = ("word", "speaker", "file", "start", "end", "split", "cluster", "note")


def make_request(random: Random, source: str, entries: list[list[Any]], words: list[str]) -> bytes:
    """Return a folder and the arguments of `load_corpus` as JSON."""
    chosen = random.choice(
        (None, None, None, words[:2], [], ["yes"], ["yes", "yes"], ["yes", random.choice(TEXTS)], ["NO", "yes"])
    )
    numbers = random.choice(((2, 1), (2, 1), (2, 1), (7, 2), (1, 1), (0, 0), (10**9, 1), (3, -1)))
    return json.dumps(
        {"source": source, "words": chosen, "speakers": numbers[0], "test": numbers[1], "entries": entries}
    ).encode()


def load_request(case: bytes, folder: Path) -> None:
    """Write the folder, and load the corpus in it, without and with a cache."""
    request = json.loads(case)
    write_tree(folder / "corpus", request.get("entries"))
    options = {name: request[name] for name in ("speakers", "test") if name in request}
    for cache in (False, folder / "cache", folder / "cache"):
        corpus = load_corpus(
            f"{request.get('source', 'folder')}:{folder / 'corpus'}", words=request.get("words"), cache=cache, **options
        )
        require(len(corpus.words) >= 2 and len(corpus.train) >= 2, "too few words")
        corpus.source.encode(), corpus.name.encode(), corpus.digest.encode()


def make_folder_case(random: Random) -> bytes:
    """Return a folder WORD/SPEAKER.wav with a few changes."""
    words = ["yes", "no"]
    entries = [
        [f"{word}/s{j}{random.choice(('.wav', '.wav', '.flac', '.ogg'))}", "sound", 10 * i + j]
        for i, word in enumerate(words)
        for j in range(2)
    ]
    return make_request(random, "folder", mutate_tree(random, entries) if random.random() < 0.95 else entries, words)


def make_manifest_case(random: Random) -> bytes:
    """Return a folder with a manifest whose cells, columns or bytes are changed."""
    columns = list(COLUMNS)
    if random.random() < 0.3:
        columns = random.sample(COLUMNS, random.randrange(3, len(COLUMNS) + 1))
    rows = [
        {"word": word, "speaker": f"s{j}", "file": f"wav/{10 * i + j}.wav", "start": "0", "end": "700",
         "split": "test" if j else "train", "cluster": "1", "note": "x"}
        for i, word in enumerate(("yes", "no")) for j in range(2)
    ]  # fmt: skip
    for _ in range(random.choice((0, 1, 1, 2))):
        row = random.choice(rows)
        cell = random.choice(
            (
                *NUMBERS,
                *TEXTS,
                "wav/0.wav",
                "wav",
                ".",
                "pipe.wav",
                "loop.wav",
                "zero.wav",
                "/etc/passwd",
                "a" * 200_000,
            )
        )
        row[random.choice(COLUMNS)] = random.choice((cell, '"' + cell, f'"{cell}"', cell + ","))
    lines = [",".join(columns), *(",".join(row[name] for name in columns) for row in rows)]
    text = random.choice(("\n", "\n", "\r\n", "\r")).join(lines)
    if random.random() < 0.3:
        text = mutate_text(random, text)
    data = text.encode("utf-8", "surrogatepass")
    if random.random() < 0.3:
        data = mutate_bytes(random, data)
    if random.random() < 0.1:
        data = random.choice((data.decode("utf-8", "replace").encode("utf-16"), b"\xef\xbb\xbf" + data, b""))
    entries: list[list[Any]] = [["manifest.csv", "text", data.decode("latin-1")]]
    entries += [[f"wav/{10 * i + j}.wav", "sound", 10 * i + j] for i in range(2) for j in range(2)]
    entries += [["pipe.wav", "fifo", None], ["loop.wav", "link", "loop.wav"], ["zero.wav", "link", "/dev/zero"]]
    return make_request(random, "folder", entries, ["yes", "no"])


def make_timit_case(random: Random) -> bytes:
    """Return a tree like TIMIT's, or like NLTK's sample, with a few changes."""
    source = random.choice(("timit", "nltk-timit"))
    entries: list[list[Any]] = []
    for number, speaker in enumerate(("fcjf0", "mdac0")):
        folder = f"dr1-{speaker}" if source == "nltk-timit" else f"TRAIN/DR1/{speaker.upper()}"
        name, suffixes = ("sa1", (".wrd", ".wav")) if source == "nltk-timit" else ("SA1", (".WRD", ".WAV"))
        lines = "0 400 yes\n400 800 no\n"
        if random.random() < 0.5:
            lines = mutate_text(random, lines)
        entries.append([f"{folder}/{name}{suffixes[0]}", "text", lines.encode("utf-8", "replace").decode("latin-1")])
        entries.append([f"{folder}/{name}{suffixes[1]}", "sound", number])
    return make_request(
        random, source, mutate_tree(random, entries) if random.random() < 0.7 else entries, ["yes", "no"]
    )


DOORS = tuple(
    Door(name, f'load_corpus("{source}")', (ArgumentError,), make, load_request)
    for name, source, make in (
        ("clips", "folder:PATH", make_folder_case),
        ("manifest", "folder:PATH", make_manifest_case),
        ("timit", "timit:PATH", make_timit_case),
    )
)
