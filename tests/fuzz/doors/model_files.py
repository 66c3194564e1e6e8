"""Model files: safetensors with our JSON inside. Most cases have a right checksum, so that later checks see them.

8 bytes     the length of the header
header      JSON: __metadata__ with our JSON as a text in it; dtype, shape and place of each tensor
data        the numbers of all tensors
"""

import contextlib
import functools
import hashlib
import json
import math
import tempfile
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from support.inspected_networks import save_recogniser
from support.made_corpora import make_small_corpus
from support.sound_files import make_voice

from cwrnn import ClockworkRNN
from cwrnn.experiments.words.recogniser.model import Recogniser
from cwrnn.experiments.words.recogniser.recognition import recognise_stream
from cwrnn.experiments.words.sound_files import SoundError
from cwrnn.network import Network
from cwrnn.saved import ModelError, SavedNetwork

from ..door import Door, require
from ..mutation import FLOATS, INTEGERS, NOT_FINITE, TEXTS, make_json_value, mutate_bytes, mutate_json

FLOAT_TYPES = {"F32": "<f4", "F64": "<f8"}
TYPES = ("F16", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "", "f32", *FLOAT_TYPES)


class Parts(NamedTuple):
    """The parts of a model file."""

    about: str
    """Our JSON, without the checksum."""
    tensors: list[tuple[str, str, list[int], bytes]]
    """Name, dtype, shape and bytes of each tensor."""


@functools.cache
def list_samples() -> tuple[bytes, ...]:
    """Return valid files: a network that generates, an SRN, and a recogniser."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng():
        torch.manual_seed(0)
        path = Path(folder, "model")
        files = []
        for kind, method, schedule in (("generation", "cw", [1, 2, 4]), ("generation", "srn", 1)):
            SavedNetwork(kind, method, Network(ClockworkRNN(0, 6, schedule=schedule), 1), about={"a": [1, "b"]}).save(
                path
            )
            files.append(path.read_bytes())
        files.append(save_recogniser(path, make_small_corpus()).read_bytes())
    return tuple(files)


def split_file(data: bytes) -> Parts:
    """Return the parts of a valid file."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    about = json.loads(header.pop("__metadata__")["cwrnn"])
    del about["sha256"]
    body = data[8 + length :]
    tensors = [
        (name, entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()
    ]
    return Parts(json.dumps(about, ensure_ascii=False), tensors)


def join_file(parts: Parts) -> bytes:
    """Return the file with these parts, with a right checksum if there can be one."""
    about, tensors = parts
    # what is no JSON object has no checksum
    with contextlib.suppress(RecursionError, TypeError, ValueError):
        # escaped twice, or safetensors refuses half of a surrogate pair before the package sees it
        about = json.dumps(json.loads(about) | {"sha256": compute_checksum(parts)})
    header: dict[str, object] = {"__metadata__": {"cwrnn": about}}
    place = 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in tensors)


def compute_checksum(parts: Parts) -> str:
    """Return the checksum as `tensor_files.py` defines it."""
    arrays = {name: (FLOAT_TYPES.get(dtype, dtype), shape, data) for name, dtype, shape, data in parts.tensors}
    shapes = {name: [dtype, shape] for name, (dtype, shape, _) in arrays.items()}
    digest = hashlib.sha256(json.dumps([json.loads(parts.about), shapes], sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(arrays[name][2])
    return digest.hexdigest()


def make_case(random: Random, samples: tuple[bytes, ...]) -> bytes:
    """Return a model file with a few changes."""
    sample = random.choice(samples)
    kind = random.random()
    if kind < 0.15:
        return mutate_bytes(random, sample, list_samples())
    about, tensors = split_file(sample)
    tensors = list(tensors)
    if kind < 0.6:
        about = mutate_json(random, about)
    for _ in range(random.choice((0, 1, 2)) if kind < 0.6 else random.choice((1, 1, 2))):
        i = random.randrange(len(tensors))
        tensors[i] = mutate_tensor(random, *tensors[i])
    file = join_file(Parts(about, tensors))
    if random.random() < 0.1:
        length = int.from_bytes(file[:8], "little")
        header = mutate_json(random, file[8 : 8 + length].decode()).encode("utf-8", "surrogatepass")
        file = len(header).to_bytes(8, "little") + header + file[8 + length :]
    return file


def mutate_tensor(
    random: Random, name: str, dtype: str, shape: list[int], data: bytes
) -> tuple[str, str, list[int], bytes]:
    """Return a tensor with another name, dtype or shape, or with other numbers."""
    kind = random.randrange(6)
    if kind == 0:
        return random.choice((name + "x", *TEXTS)), dtype, shape, data
    if kind == 1:
        return name, random.choice(TYPES), shape, data
    if kind == 2:
        shape = [*shape]
        shape.insert(random.randrange(len(shape) + 1), random.choice((0, 1, -1, *INTEGERS)))
        return name, dtype, shape, data if 0 not in shape or random.random() < 0.2 else b""
    if kind == 3:
        # the same number of elements in another shape
        size = math.prod(shape)
        shapes = [[size], [size, 1], [1] * random.choice((1, 33, 65, 200)) + [size], [1, size], []]
        return name, dtype, random.choice(shapes), data
    if kind == 4:
        shape = [random.choice(INTEGERS) for _ in range(random.choice((1, 2, 3)))]
        return name, dtype, shape if 0 in shape else [0, *shape], b""
    kind_of_number = np.dtype(FLOAT_TYPES.get(dtype, "u1"))
    # a tensor that has got another dtype may end within a number
    numbers = np.frombuffer(data[: len(data) - len(data) % kind_of_number.itemsize], kind_of_number).copy()
    if dtype in FLOAT_TYPES and len(numbers):
        # all numbers, or some
        chosen = slice(None) if random.random() < 0.3 else [random.randrange(len(numbers)) for _ in range(3)]
        number = random.choice((*FLOATS, *NOT_FINITE)) * random.choice((1, -1))
        with np.errstate(over="ignore"):
            numbers[chosen] = np.asarray(number).astype(numbers.dtype)
    return name, dtype, shape, numbers.tobytes()


def load_network(case: bytes, folder: Path) -> None:
    """Load the file, save the network, and load it again."""
    path = folder / "model.safetensors"
    path.write_bytes(case)
    saved = SavedNetwork.load(path)
    saved.save(folder / "again")
    require(SavedNetwork.load(folder / "again").schedule == saved.schedule, "saved again, it has another schedule")


def load_recogniser(case: bytes, folder: Path) -> None:
    """Load the file, and recognise a sound with it."""
    path = folder / "model.safetensors"
    path.write_bytes(case)
    recogniser = Recogniser.load(path)
    sound = make_voice(0, 3000)
    rate = recogniser.settings.rate
    candidates = recogniser.recognise(sound, rate)
    check_candidates(candidates)
    stream = recognise_stream(recogniser, [sound[:1000], sound[1000:]], sample_rate=rate)
    check_candidates(stream.decision.candidates)
    str(stream).encode()
    json.dumps(stream.to_dict(), allow_nan=False)


def check_candidates(candidates: list[tuple[str, float]]) -> None:
    """Refuse probabilities that are none."""
    require(bool(candidates), "no words")
    require(all(0 <= probability <= 1 for _, probability in candidates), f"not probabilities: {candidates[:3]}")


def make_recogniser_case(random: Random) -> bytes:
    """Return the file of a recogniser with a few changes, half of them in its words, clusters and features."""
    sample = list_samples()[2]
    if random.random() < 0.5:
        return make_case(random, (sample,))
    about, tensors = split_file(sample)
    values = json.loads(about)
    if random.random() < 0.3:
        # a word must have the same name in both places, or the file is refused for that alone
        word, name = random.choice(values["about"]["words"]), random.choice(TEXTS)
        values["about"]["words"] = [name if other == word else other for other in values["about"]["words"]]
        values["about"]["clusters"][name] = values["about"]["clusters"].pop(word)
        return join_file(Parts(json.dumps(values), tensors))
    name = random.choice(("words", "clusters", "features"))
    part = mutate_json(random, json.dumps(values["about"][name]))
    if name == "features" and random.random() < 0.5:
        settings = {key: json.dumps(value) for key, value in values["about"]["features"].items()}
        # a number of the right kind goes further than other values
        huge = random.choice(("1" + "0" * 400, "1e308", "1e300", "1000000000000", "1e-300", "0", "-1"))
        settings[random.choice(list(settings))] = random.choice((huge, huge, make_json_value(random)))
        part = "{" + ", ".join(f'"{key}": {value}' for key, value in settings.items()) + "}"
    values["about"][name] = "PART"
    return join_file(Parts(json.dumps(values).replace('"PART"', part), tensors))


def make_network_case(random: Random) -> bytes:
    """Return the file of any network with a few changes."""
    return make_case(random, list_samples())


DOORS = (
    Door("model", "SavedNetwork.load", (ModelError,), make_network_case, load_network),
    Door(
        "recogniser",
        "Recogniser.load, recognise_stream",
        (ModelError, SoundError),
        make_recogniser_case,
        load_recogniser,
    ),
)
