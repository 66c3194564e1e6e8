"""Saved networks: a trained network in one safetensors file, with everything that is needed to use it.

    tensors     the parameters of the network, and extra arrays such as the normalisation of features
    metadata    `cwrnn`, a JSON object: version, kind, method, schedule, inputs, outputs and softmax of the network;
                cell, unless it is "tanh", and peepholes, if there are any;
                about, an object with extra metadata, such as the data that the network was trained on; sha256

Loading executes no code from the file. A ModelError refuses a file that has another format, is damaged or does not make
sense. The sha256 covers all tensors and all metadata, so every change is detected. Saving a network twice gives the
same bytes.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .cells import CELLS, PEEPHOLES
from .extras import require
from .gru import ClockworkGRU
from .layer import AnyLayer, ClockworkLayer
from .lstm import ClockworkLSTM
from .network import Network
from .rnn import ClockworkRNN
from .schedule import Schedule
from .untrusted import escape_controls, parse_json, read_regular_file, shorten
from .writing import write_files

KEY = "cwrnn"
"""The key of our JSON object in the metadata of the file."""

VERSION = 1
"""The version of the format, which loading requires."""

LARGEST_FILE = 2**32
"""The most bytes of a file: 4 GiB, the parameters of a layer of 32,000 units."""

LONGEST_HEADER = 2**24
"""The longest header in bytes: 16 MiB, enough for the labels of 100,000 words."""

MOST_DIMENSIONS = 8
"""The most dimensions of a tensor."""

DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
"""The dtypes in a file, by their names in safetensors: float32 for parameters, float64 for extra arrays."""


METHODS = {
    "srn": ("tanh", "relu"), "lstm": ("lstm",), "gru": ("gru",),
    "cw": ("tanh", "relu"), "cw-lstm": ("lstm",), "cw-gru": ("gru",),
}  # fmt: skip
"""The cells of every method. A method whose name does not begin with "cw" has one module of period 1."""

LAYERS: dict[str, Callable[..., AnyLayer]] = {
    "tanh": ClockworkRNN,
    "relu": partial(ClockworkRNN, nonlinearity="relu"),
    "lstm": ClockworkLSTM,
    "gru": ClockworkGRU,
}
"""The layers by the names of their cells."""


class ModelError(ValueError):
    """A file is not a saved network, or not one of the kind that is needed; the message begins with its path."""


@dataclass(frozen=True, eq=False)
class SavedNetwork:
    """A trained network with the metadata that is needed to use it.

    >>> import tempfile
    >>> network = Network(ClockworkRNN(0, 12, schedule=[1, 2, 4]), output_size=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "wave.safetensors"
    ...     SavedNetwork("generation", "cw", network, about={"sequence": "wave"}).save(path)
    ...     saved = SavedNetwork.load(path)
    >>> saved.kind, saved.schedule.periods, saved.about
    ('generation', (1, 2, 4), {'sequence': 'wave'})
    """

    kind: str
    """The task of the network: "words" or "generation"."""
    method: str
    """The method of the network: "srn", "lstm" or "gru", or with clocks "cw", "cw-lstm" or "cw-gru"."""
    network: Network
    """The network in float32. Its layer is a ClockworkRNN, ClockworkLSTM or ClockworkGRU, which has a single module of
    period 1 if the method has no clocks."""
    tensors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Extra arrays for this kind of network, such as the normalisation of features."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Extra metadata, JSON-serialisable."""

    def __post_init__(self) -> None:
        layer = self.network.layer
        if not isinstance(layer, ClockworkLayer):
            raise TypeError(
                "only a ClockworkRNN, a ClockworkLSTM or a ClockworkGRU with its readout can be saved, "
                f"got a {type(layer).__name__}"
            )
        options = {"num_layers": layer.num_layers, "bidirectional": layer.bidirectional, "bias": layer.bias}
        for (name, value), stored in zip(options.items(), (1, False, True), strict=True):
            if value != stored:
                raise ValueError(f"only a layer with {name}={stored} can be saved, got {name}={value}")
        if not _fits(self.method, layer.cell, layer.schedule):
            raise ValueError(
                f"there is no {self.method!r} with the cell {layer.cell!r} and the schedule {layer.schedule.spec}"
            )

    @property
    def layer(self) -> AnyLayer:
        """The hidden layer."""
        assert isinstance(self.network.layer, ClockworkLayer)
        return self.network.layer

    @property
    def schedule(self) -> Schedule:
        """The schedule of the hidden layer."""
        return self.layer.schedule

    @property
    def inputs(self) -> int:
        """The number of features of the input at every step."""
        return self.layer.input_size

    @property
    def outputs(self) -> int:
        """The number of outputs at every step."""
        return self.network.readout.out_features

    def save(self, path: Path) -> None:
        """Writes the network to `path`, completely or not at all; an existing file is replaced.

        Raises a ValueError if `about` is not JSON that `load` would read, and an OSError if the file cannot be written.
        """
        parameters = {name: value.detach().cpu().numpy() for name, value in self.network.named_parameters()}
        metadata: dict[str, Any] = {
            "version": VERSION,
            "kind": self.kind,
            "method": self.method,
            "schedule": self.schedule.spec,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "softmax": self.network.softmax,
            "about": dict(self.about),
        }
        if self.layer.cell != "tanh":
            metadata["cell"] = self.layer.cell
        if self.layer.peepholes:
            metadata["peepholes"] = True
        arrays = {name: np.ascontiguousarray(value, "<f4") for name, value in parameters.items()}
        arrays |= {name: np.ascontiguousarray(value, "<f8") for name, value in self.tensors.items()}
        text = json.dumps(metadata | {"sha256": _digest(metadata, arrays)}, ensure_ascii=False, allow_nan=False)
        parse_json(text)
        safetensors = require("safetensors.numpy", extra="experiments", purpose="saving networks")
        write_files({path: safetensors.save(arrays, {KEY: text})})

    @classmethod
    def load(cls, path: Path) -> "SavedNetwork":
        """The network saved in `path`; raises a ModelError that names the problem if there is one."""
        name = escape_controls(str(path))
        try:
            return _assemble(*_read_file(path))
        except OSError as error:
            raise ModelError(f"{name}: cannot be read: {error.strerror or error}") from error
        except _FormatError as error:
            raise ModelError(f"{name}: {escape_controls(str(error))}") from error


class _FormatError(Exception):
    """A problem with a file; the message does not name the file."""


class _Entry(NamedTuple):
    """The place of a tensor in a file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    """The first byte after the header."""
    end: int
    """One beyond the last byte."""


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The metadata and the arrays of a file whose checksum is right."""
    data = read_regular_file(path, LARGEST_FILE)
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= LONGEST_HEADER:
        raise _FormatError("this is not a safetensors file" if data else "empty")
    header = data[8 : 8 + length]
    if not header.startswith(b"{"):
        raise _FormatError("this is not a safetensors file")
    if len(header) < length:
        raise _FormatError("damaged: the file ends within its header")
    entries = _parse_object(header, "its header")
    texts = entries.pop("__metadata__", None)
    if not isinstance(texts, dict) or not isinstance(texts.get(KEY), str):
        raise _FormatError("a safetensors file, but not a network saved by cwrnn")
    metadata = _parse_object(texts[KEY], "its metadata")
    if metadata.get("version") != VERSION:
        version = shorten(repr(metadata.get("version")))
        raise _FormatError(f"saved in version {version} of the format; this cwrnn reads version {VERSION}")
    arrays = _cut_arrays(entries, memoryview(data)[8 + length :])
    if metadata.pop("sha256", None) != _digest(metadata, arrays):
        raise _FormatError("damaged: its contents do not match its checksum")
    return metadata, arrays


def _cut_arrays(entries: Mapping[str, Any], data: memoryview) -> dict[str, NDArray[Any]]:
    """The arrays that the header of a file describes: they fill `data` without a gap, as safetensors demands."""
    places = {name: _check_entry(name, entry) for name, entry in entries.items()}
    arrays, end = {}, 0
    for name, place in sorted(places.items(), key=lambda item: (item[1].start, item[1].end)):
        if place.start != end:
            raise _FormatError(f"damaged: the tensor {_quote(name)} does not begin where the one before it ends")
        end = place.end
        if end > len(data):
            raise _FormatError(f"damaged: the file ends within the tensor {_quote(name)}")
        arrays[name] = np.frombuffer(data[place.start : end], place.dtype).reshape(place.shape)
    if end != len(data):
        raise _FormatError(f"damaged: {len(data) - end} bytes follow the last tensor")
    return arrays


def _check_entry(name: str, entry: Any) -> _Entry:
    """The place of a tensor, from an entry of the header whose numbers make sense."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise _FormatError(f"damaged: the tensor {_quote(name)} must have a dtype, a shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise _FormatError(f"the tensor {_quote(name)} is {shorten(str(dtype))}, expected one of {', '.join(DTYPES)}")
    for numbers in (shape, offsets):
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise _FormatError(f"damaged: the tensor {_quote(name)} has a shape or offsets that are not numbers")
    if len(shape) > MOST_DIMENSIONS:
        raise _FormatError(f"the tensor {_quote(name)} has {len(shape)} dimensions, expected at most {MOST_DIMENSIONS}")
    # without its zeros: numpy refuses a shape whose other dimensions alone would be too large
    if math.prod(max(size, 1) for size in shape) > LARGEST_FILE:
        raise _FormatError(f"the tensor {_quote(name)} has a shape that no file can have: {shorten(str(shape))}")
    if len(offsets) != 2 or offsets[1] - offsets[0] != math.prod(shape) * DTYPES[dtype].itemsize:
        raise _FormatError(f"damaged: the offsets of the tensor {_quote(name)} do not fit its shape")
    return _Entry(DTYPES[dtype], tuple(shape), *offsets)


def _quote(name: str) -> str:
    """A name from a file, for a message."""
    return shorten(ascii(name))


def _assemble(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedNetwork:
    """The network with this metadata and these arrays, all of which are checked before anything is built."""
    types = {
        "version": int,
        "kind": str,
        "method": str,
        "schedule": str,
        "inputs": int,
        "outputs": int,
        "softmax": bool,
        "about": dict,
    } | {name: kind for name, kind in {"cell": str, "peepholes": bool}.items() if name in metadata}
    for name, kind in types.items():
        if type(metadata.get(name)) is not kind:
            raise _FormatError(f"{name} must be of type {kind.__name__}, got {shorten(repr(metadata.get(name)))}")
    if set(metadata) != set(types):
        raise _FormatError(f"its metadata has unknown keys: {shorten(str(sorted(set(metadata) - set(types))))}")
    try:
        schedule = Schedule.parse(metadata["schedule"])
    except ValueError as error:
        raise _FormatError(shorten(str(error), 200)) from error
    method, inputs, outputs = metadata["method"], metadata["inputs"], metadata["outputs"]
    cell, peepholes = metadata.get("cell", "tanh"), metadata.get("peepholes", False)
    if not _fits(method, cell, schedule):
        raise _FormatError(
            f"there is no {_quote(method)} with the cell {_quote(cell)} and the schedule {shorten(schedule.spec)}"
        )
    if peepholes and cell != "lstm":
        raise _FormatError(f"the cell {_quote(cell)} has no peepholes")
    if inputs < 0 or outputs < 1:
        raise _FormatError(f"expected inputs >= 0 and outputs >= 1, got {inputs} and {outputs}")
    # before anything is built: the metadata may describe a far larger network than the file contains
    N, (gates, biases, _) = schedule.hidden_size, CELLS[cell]
    shapes: dict[str, tuple[int, ...]] = {
        "layer.weight_ih_l0": (gates * N, inputs),
        "layer.weight_hh_l0": (gates * N, N),
        "layer.bias_l0": (biases * N,),
        "readout.weight": (outputs, N),
        "readout.bias": (outputs,),
    }
    if peepholes:
        shapes["layer.weight_ch_l0"] = (PEEPHOLES * N,)
    for name, shape in shapes.items():
        if name not in arrays:
            raise _FormatError(f"the tensor {name!r} is missing")
        array = arrays[name]
        if array.shape != shape or array.dtype != DTYPES["F32"]:
            raise _FormatError(f"the tensor {name!r} must be float32 {shape}, got {array.dtype} {array.shape}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _FormatError(f"the tensor {_quote(name)} has values that are not finite")
    if arrays["layer.weight_hh_l0"].reshape(gates, N, N)[:, ~schedule.mask()].any():
        raise _FormatError(
            f"its weights do not fit the schedule {shorten(schedule.spec)}: some lead from fast modules to slow ones"
        )
    options = {"peepholes": True} if peepholes else {}
    network = Network(LAYERS[cell](inputs, N, schedule=schedule, **options), outputs, softmax=metadata["softmax"])
    network.requires_grad_(False)
    for name, parameter in network.named_parameters():
        parameter.copy_(torch.from_numpy(arrays[name].astype(np.float32)))
    tensors = {name: array.astype(np.float64) for name, array in arrays.items() if name not in shapes}
    return SavedNetwork(metadata["kind"], method, network, tensors, metadata["about"])


def _fits(method: str, cell: str, schedule: Schedule) -> bool:
    """Whether a network of a method can have a cell and a schedule."""
    return cell in METHODS.get(method, ()) and (method.startswith("cw") or schedule.periods == (1,))


def _parse_object(text: str | bytes, name: str) -> dict[str, Any]:
    """The JSON object in a text."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise _FormatError(f"damaged: {name} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise _FormatError(f"damaged: {name} is not a JSON object")
    return value


def _digest(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """The SHA-256 of all metadata and arrays."""
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps([metadata, shapes], sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
