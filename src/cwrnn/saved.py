"""Saved networks: a trained network in one safetensors file, with everything that is needed to use it.

    tensors     the parameters of the network, and extra arrays such as the normalisation of features
    metadata    `cwrnn`, a JSON object: version, kind, method, schedule, inputs, outputs and softmax of the network;
                about, an object with extra metadata, such as the data that the network was trained on; sha256

Loading executes no code from the file. A ModelError refuses a file that has another format, is damaged or does not make
sense. The sha256 covers all tensors and all metadata, so every change is detected. Saving a network twice gives the
same bytes.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .extras import require
from .layer import ClockworkRNN
from .network import Network
from .schedule import Schedule
from .writing import write_files

KEY = "cwrnn"
"""The key of our JSON object in the metadata of the file."""

VERSION = 1
"""The version of the format, which loading requires."""

LONGEST_HEADER = 100_000_000
"""The longest header in bytes, a limit of the safetensors format."""

DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
"""The dtypes in a file, by their names in safetensors: float32 for parameters, float64 for extra arrays."""


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
    """The method of the network: "srn" or "cw"."""
    network: Network
    """The network in float32. Its layer is a ClockworkRNN, for an SRN one with a single module of period 1."""
    tensors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """Extra arrays for this kind of network, such as the normalisation of features."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Extra metadata, JSON-serialisable."""

    def __post_init__(self) -> None:
        if not isinstance(self.network.layer, ClockworkRNN):
            raise TypeError(f"only Clockwork RNNs and SRNs can be saved, got a {type(self.network.layer).__name__}")

    @property
    def layer(self) -> ClockworkRNN:
        """The hidden layer."""
        assert isinstance(self.network.layer, ClockworkRNN)
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
        """Writes the network to `path`, completely or not at all; an existing file is replaced."""
        parameters = {name: value.detach().cpu().numpy() for name, value in self.network.named_parameters()}
        metadata = {
            "version": VERSION,
            "kind": self.kind,
            "method": self.method,
            "schedule": self.schedule.spec,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "softmax": self.network.softmax,
            "about": dict(self.about),
        }
        arrays = {name: np.ascontiguousarray(value, "<f4") for name, value in parameters.items()}
        arrays |= {name: np.ascontiguousarray(value, "<f8") for name, value in self.tensors.items()}
        text = json.dumps(metadata | {"sha256": _digest(metadata, arrays)}, ensure_ascii=False, allow_nan=False)
        safetensors = require("safetensors.numpy", extra="experiments", purpose="saving networks")
        write_files({path: safetensors.save(arrays, {KEY: text})})

    @classmethod
    def load(cls, path: Path) -> "SavedNetwork":
        """The network saved in `path`; raises a ModelError that names the problem if there is one."""
        try:
            return _assemble(*_read_file(path))
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
        except _FormatError as error:
            raise ModelError(f"{path}: {error}") from error


class _FormatError(Exception):
    """A problem with a file; the message does not name the file."""


def _read_file(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The metadata and the arrays of a file whose checksum is right."""
    with path.open("rb") as file:
        # the header first: a file of another format may be large
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= LONGEST_HEADER:
            raise _FormatError("empty" if not start else "this is not a safetensors file")
        header = file.read(length)
        if not header.startswith(b"{"):
            raise _FormatError("this is not a safetensors file")
        if len(header) < length:
            raise _FormatError("damaged: the file ends within its header")
        entries = _parse_object(header, "its header").get("__metadata__")
        if not isinstance(entries, dict) or KEY not in entries:
            raise _FormatError("a safetensors file, but not a network saved by cwrnn")
        metadata = _parse_object(entries[KEY], "its metadata")
        if metadata.get("version") != VERSION:
            raise _FormatError(
                f"saved in version {metadata.get('version')!r} of the format; this cwrnn reads version {VERSION}"
            )
        rest = file.read()
    safetensors = require("safetensors", extra="experiments", purpose="loading networks")
    try:
        tensors = safetensors.deserialize(start + header + rest)
    except safetensors.SafetensorError as error:
        raise _FormatError(f"damaged: {error}") from error
    arrays = {}
    for name, tensor in tensors:
        if tensor["dtype"] not in DTYPES:
            raise _FormatError(f"the tensor {name!r} is {tensor['dtype']}, expected one of {', '.join(DTYPES)}")
        arrays[name] = np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    if metadata.pop("sha256", None) != _digest(metadata, arrays):
        raise _FormatError("damaged: its contents do not match its checksum")
    return metadata, arrays


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
    }
    for name, kind in types.items():
        if type(metadata.get(name)) is not kind:
            raise _FormatError(f"{name} must be of type {kind.__name__}, got {metadata.get(name)!r}")
    if set(metadata) != set(types):
        raise _FormatError(f"its metadata has unknown keys: {sorted(set(metadata) - set(types))}")
    try:
        schedule = Schedule.parse(metadata["schedule"])
    except ValueError as error:
        raise _FormatError(str(error)) from error
    method, inputs, outputs = metadata["method"], metadata["inputs"], metadata["outputs"]
    if method not in ("srn", "cw") or (method == "srn" and schedule.periods != (1,)):
        raise _FormatError(f"there is no {method!r} with the schedule {schedule.spec}")
    if inputs < 0 or outputs < 1:
        raise _FormatError(f"expected inputs >= 0 and outputs >= 1, got {inputs} and {outputs}")
    # before anything is built: the metadata may describe a far larger network than the file contains
    N = schedule.hidden_size
    shapes = {
        "layer.weight_ih_l0": (N, inputs),
        "layer.weight_hh_l0": (N, N),
        "layer.bias_l0": (N,),
        "readout.weight": (outputs, N),
        "readout.bias": (outputs,),
    }
    for name, shape in shapes.items():
        if name not in arrays:
            raise _FormatError(f"the tensor {name!r} is missing")
        array = arrays[name]
        if array.shape != shape or array.dtype != DTYPES["F32"]:
            raise _FormatError(f"the tensor {name!r} must be float32 {shape}, got {array.dtype} {array.shape}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _FormatError(f"the tensor {name!r} has values that are not finite")
    if arrays["layer.weight_hh_l0"][~schedule.mask()].any():
        raise _FormatError(
            f"its weights do not fit the schedule {schedule.spec}: some lead from fast modules to slow ones"
        )
    network = Network(ClockworkRNN(inputs, N, schedule=schedule), outputs, softmax=metadata["softmax"])
    network.load_state_dict({name: torch.from_numpy(arrays[name].astype(np.float32)) for name in shapes})
    network.requires_grad_(False)
    tensors = {name: array.astype(np.float64) for name, array in arrays.items() if name not in shapes}
    return SavedNetwork(metadata["kind"], method, network, tensors, metadata["about"])


def _parse_object(text: str | bytes, name: str) -> dict[str, Any]:
    """The JSON object in a text; NaN and infinite numbers are refused."""

    def parse_finite(number: str) -> float:
        if not math.isfinite(float(number)):
            raise ValueError(f"{number} is not a finite number")
        return float(number)

    try:
        value = json.loads(text, parse_float=parse_finite, parse_constant=parse_finite)
    except (RecursionError, TypeError, ValueError) as error:
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
