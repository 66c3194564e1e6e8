"""Data of the evaluation tasks: folders of idx files, texts, and the examples that a store kept."""

import functools
import gzip
import json
import os
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from support.made_images import encode_idx, make_arrays

from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.evaluation.adding import AddingExamples, make_adding
from cwrnn.experiments.evaluation.characters import LEAST_LENGTH, TextExamples, read_text
from cwrnn.experiments.evaluation.copying import CopyExamples, make_copying
from cwrnn.experiments.evaluation.examples import Examples
from cwrnn.experiments.evaluation.images import FILES, PermutedImages, SequentialImages, read_images
from cwrnn.untrusted import parse_json

from ..door import Door, require
from ..mutation import LARGEST, mutate_bytes, mutate_json, mutate_text, overwrite_integer
from ..trees import mutate_tree, write_tree

KINDS: dict[str, type[Examples]] = {
    kind.kind: kind for kind in (AddingExamples, CopyExamples, SequentialImages, PermutedImages, TextExamples)
}
LONGEST = 2000
"""The longest sequences that are made: longer ones only take longer."""
TEXT = "Call me Ishmael. Some years ago\n— never mind how long, precisely — "
"""What the texts repeat."""


@functools.cache
def list_files() -> tuple[bytes, ...]:
    """Return the four files of a folder of images."""
    return tuple(encode_idx(make_arrays(rows=2, columns=3)[name]) for name in FILES)


def make_images_case(random: Random) -> bytes:
    """Return a folder of idx files with a few changes, as JSON."""
    files = list(list_files())
    i = random.randrange(len(files))
    kind = random.random()
    if kind < 0.4:
        files[i] = overwrite_integer(random, files[i], random.randrange(16))
    elif kind < 0.6:
        files[i] = mutate_bytes(random, files[i], list_files())
    elif kind < 0.65:
        files[i] = random.choice(list_files())
    entries: list[list[Any]] = []
    for name, data in zip(FILES, files, strict=True):
        if random.random() < 0.3:
            name, data = f"{name}.gz", gzip.compress(data, mtime=0)
            if random.random() < 0.2:
                data = mutate_bytes(random, data)
        if random.random() < 0.1:
            name = name.replace("-idx", ".idx")
        entries.append([name, "text", data.decode("latin-1")])
    if random.random() < 0.3:
        entries = mutate_tree(random, entries)
    return json.dumps({"permuted": random.random() < 0.5, "entries": entries}).encode()


def read_folder(case: bytes, folder: Path) -> None:
    """Write the folder, read its images, and restore them."""
    request = json.loads(case)
    write_tree(folder / "images", request.get("entries"))
    (folder / "images").mkdir(exist_ok=True)
    examples = read_images(folder / "images", permuted=bool(request.get("permuted")))
    use(examples)
    use(type(examples).restore(examples.name, examples.source, examples.describe(), examples.pack_numbers()))


@functools.cache
def list_texts() -> tuple[bytes, ...]:
    """Return texts that are long enough, and one that is not."""
    text = TEXT * (LEAST_LENGTH // len(TEXT) + 1)
    return text.encode(), b"\xef\xbb\xbf" + text.encode(), text[:LEAST_LENGTH].encode(), TEXT.encode()


def make_text_case(random: Random) -> bytes:
    """Return a text with a few changes."""
    data = random.choice(list_texts())
    if random.random() < 0.4:
        return mutate_bytes(random, data, list_texts())
    if random.random() < 0.3:
        # many different characters
        first = random.choice((0, 0x80, 0x4E00, 0x10000))
        data += "".join(map(chr, range(first, first + random.choice((10, 430, 520, 2000))))).encode()
        return data
    return mutate_text(random, data.decode()).encode("utf-8", "surrogatepass")[:LARGEST]


def read_text_file(case: bytes, folder: Path) -> None:
    """Read the bytes as a text, and restore it."""
    path = folder / "text"
    path.write_bytes(case)
    examples = read_text(path)
    use(examples)
    restored = TextExamples.restore(examples.name, examples.source, examples.describe(), examples.pack_numbers())
    require(restored.digest == examples.digest, "another text was restored")


@functools.cache
def list_stored() -> tuple[tuple[str, str, bytes], ...]:
    """Return what a store keeps of examples: kind, JSON and numbers."""
    text = TextExamples("text", "text", list_texts()[0].decode())
    images = [
        kind("images", "images", os.path.abspath(os.sep + "nowhere"), ("0" * 64,) * len(FILES), 2, 3, 48)
        for kind in (SequentialImages, PermutedImages)
    ]
    every = (make_adding(20), make_copying(5), text, *images)
    return tuple((one.kind, json.dumps(one.describe()), one.pack_numbers()) for one in every)


def make_stored_case(random: Random) -> bytes:
    """Return kind, JSON and numbers of examples with a few changes; lines, of which the last one is the numbers."""
    kind, about, numbers = random.choice(list_stored())
    if random.random() < 0.1:
        kind = random.choice(list(KINDS))
    if random.random() < 0.7:
        about = mutate_json(random, about)
    if random.random() < 0.3:
        choices = (mutate_bytes(random, numbers), zlib.compress(mutate_bytes(random, list_texts()[0])), b"", b"x")
        numbers = random.choice(choices)
    return b"\n".join((kind.encode(), about.replace("\n", " ").encode("utf-8", "surrogatepass"), numbers))


def restore_examples(case: bytes, folder: Path) -> None:
    """Restore the examples as a store does, and use them."""
    kind, _, rest = case.partition(b"\n")
    about, _, numbers = rest.partition(b"\n")
    examples = KINDS.get(kind.decode("latin-1"), AddingExamples).restore("name", "source", parse_json(about), numbers)
    json.dumps(examples.describe(), allow_nan=False)
    require(len(examples.digest) == 64, "a digest that is none")
    require(examples.length > 0 and examples.count_updates(7) > 0, "no steps or no updates")
    if examples.length <= LONGEST:
        use(examples)


def use(examples: Examples) -> None:
    """Make some batches of every part."""
    examples.name.encode(), examples.source.encode()
    json.dumps(examples.describe(), allow_nan=False)
    if examples.length > LONGEST:
        return
    batches = [next(iter(examples.make_epoch(5, np.random.default_rng(0))))]
    batches += [next(iter(examples.make_part(part, 5))) for part in ("validation", "test")]
    for batch in batches:
        require(batch.input.shape[2] == examples.inputs, "inputs of another size")
        require(bool(torch.isfinite(batch.input).all()), "inputs that are not finite")
        if examples.has_classes:
            require(0 <= int(batch.target.min()) <= int(batch.target.max()) < examples.outputs, "a class that is none")


DOORS = (
    Door("images", "read_images", (ArgumentError,), make_images_case, read_folder),
    Door("text", "read_text", (ArgumentError,), make_text_case, read_text_file),
    Door("examples", "Examples.restore", (ValueError, KeyError), make_stored_case, restore_examples),
)
