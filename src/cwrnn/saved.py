"""Saved networks: a trained network in one safetensors file, with all that is needed to use it.

    tensors     the network's parameters, and what else its kind needs
    metadata    `cwrnn`, a JSON object: version, kind, method, schedule, inputs, outputs and softmax of the network;
                about, an object: what the kind needs in words, and where the network comes from; sha256

Loading executes nothing. A file that is foreign, damaged or makes no sense is refused with a ModelError: the sha256 is
that of all there is, so that no change goes unnoticed. The same network gives the same bytes.
"""

import hashlib
import json
import math
import os
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

KEY = "cwrnn"
"""Of the metadata."""
VERSION = 1

LONGEST_HEADER = 100_000_000
"""Bytes; safetensors' own limit."""

DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
"""By safetensors' names: of the parameters, and of what else there is."""


class ModelError(ValueError):
    """A file is not a saved network, or not one of the kind that is needed."""


@dataclass(frozen=True, eq=False)
class SavedNetwork:
    """A network and what is to be known of it.

    >>> import tempfile
    >>> from cwrnn.experiments.networks.build import build
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "wave.safetensors"
    ...     SavedNetwork("generation", "cw", build("cw", 12).float(), about={"sequence": "wave"}).save(path)
    ...     saved = SavedNetwork.load(path)
    >>> saved.kind, saved.schedule.periods, saved.about
    ('generation', (1, 2, 4, 8, 16, 32, 64, 128, 256), {'sequence': 'wave'})
    """

    kind: str
    """What it does: "words", "generation"."""
    method: str
    """"srn" or "cw"."""
    network: Network
    """Its layer is a ClockworkRNN, of one module of period 1 if it is an SRN; float32."""
    tensors: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    """What else the kind needs, in numbers."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """And in words; JSON."""

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
        """Of the hidden layer."""
        return self.layer.schedule

    @property
    def inputs(self) -> int:
        """Features of the input at every step."""
        return self.layer.input_size

    @property
    def outputs(self) -> int:
        """Of the network at every step."""
        return self.network.readout.out_features

    def save(self, path: Path) -> None:
        """Write it to `path`, whole or not at all; a file that is there is replaced."""
        parameters = {name: value.detach().cpu().numpy() for name, value in self.network.state_dict().items()}
        said = {
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
        text = json.dumps(said | {"sha256": _digest(said, arrays)}, ensure_ascii=False, allow_nan=False)
        safetensors = require("safetensors.numpy", extra="experiments", purpose="saving networks")
        _write(path, safetensors.save(arrays, {KEY: text}))

    @classmethod
    def load(cls, path: Path) -> "SavedNetwork":
        """The network in `path`, or a ModelError that says what is wrong with the file."""
        try:
            return _assembled(*_read(path))
        except OSError as error:
            raise ModelError(f"{path}: cannot be read: {error.strerror or error}") from error
        except _WrongError as error:
            raise ModelError(f"{path}: {error}") from error


class _WrongError(Exception):
    """What is wrong with a file, without its name."""


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What is said in a file that is whole, and its arrays."""
    with path.open("rb") as file:
        # before all of a file is read that is something else, and perhaps large
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or not 2 <= length <= LONGEST_HEADER:
            raise _WrongError("empty" if not start else "this is not a safetensors file")
        header = file.read(length)
        if not header.startswith(b"{"):
            raise _WrongError("this is not a safetensors file")
        if len(header) < length:
            raise _WrongError("damaged: the file ends within its header")
        metadata = _object(header, "its header").get("__metadata__")
        if not isinstance(metadata, dict) or KEY not in metadata:
            raise _WrongError("a safetensors file, but not a network that cwrnn has saved")
        said = _object(metadata[KEY], "what it says of itself")
        if said.get("version") != VERSION:
            raise _WrongError(
                f"saved in version {said.get('version')!r} of the format, and this cwrnn reads version {VERSION}"
            )
        rest = file.read()
    safetensors = require("safetensors", extra="experiments", purpose="loading networks")
    try:
        found = safetensors.deserialize(start + header + rest)
    except safetensors.SafetensorError as error:
        raise _WrongError(f"damaged: {error}") from error
    arrays = {}
    for name, tensor in found:
        if tensor["dtype"] not in DTYPES:
            raise _WrongError(f"the tensor {name!r} is {tensor['dtype']}, expected one of {', '.join(DTYPES)}")
        arrays[name] = np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
    if said.pop("sha256", None) != _digest(said, arrays):
        raise _WrongError("damaged: its contents do not match its checksum")
    return said, arrays


def _assembled(said: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedNetwork:
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
        if type(said.get(name)) is not kind:
            raise _WrongError(f"{name} must be of type {kind.__name__}, got {said.get(name)!r}")
    if set(said) != set(types):
        raise _WrongError(f"it says {sorted(set(said) - set(types))}, which this cwrnn does not know")
    try:
        schedule = Schedule.parse(said["schedule"])
    except ValueError as error:
        raise _WrongError(str(error)) from error
    method, inputs, outputs = said["method"], said["inputs"], said["outputs"]
    if method not in ("srn", "cw") or (method == "srn" and schedule.periods != (1,)):
        raise _WrongError(f"there is no {method!r} of schedule {schedule.spec}")
    if inputs < 0 or outputs < 1:
        raise _WrongError(f"expected inputs >= 0 and outputs >= 1, got {inputs} and {outputs}")
    # before anything is built: what is said may be far more than what is there
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
            raise _WrongError(f"the tensor {name!r} is missing")
        array = arrays[name]
        if array.shape != shape or array.dtype != DTYPES["F32"]:
            raise _WrongError(f"the tensor {name!r} must be float32 {shape}, got {array.dtype} {array.shape}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise _WrongError(f"the tensor {name!r} has numbers that are not finite")
    if arrays["layer.weight_hh_l0"][~schedule.mask()].any():
        raise _WrongError(
            f"its weights do not fit the schedule {schedule.spec}: there are some from fast modules to slow"
        )
    built = Network(ClockworkRNN(inputs, N, schedule=schedule), outputs, softmax=said["softmax"])
    built.load_state_dict({name: torch.from_numpy(arrays[name].astype(np.float32)) for name in shapes})
    built.requires_grad_(False)
    tensors = {name: array.astype(np.float64) for name, array in arrays.items() if name not in shapes}
    return SavedNetwork(said["kind"], method, built, tensors, said["about"])


def _object(text: str | bytes, name: str) -> dict[str, Any]:
    """The JSON object in a text; numbers that are none are refused."""

    def finite(number: str) -> float:
        if not math.isfinite(float(number)):
            raise ValueError(f"{number} is not a finite number")
        return float(number)

    try:
        value = json.loads(text, parse_float=finite, parse_constant=finite)
    except (RecursionError, TypeError, ValueError) as error:
        raise _WrongError(f"damaged: {name} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise _WrongError(f"damaged: {name} is not a JSON object")
    return value


def _digest(said: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """The hash of all of it."""
    shapes = {name: [array.dtype.str, list(array.shape)] for name, array in arrays.items()}
    digest = hashlib.sha256(json.dumps([said, shapes], sort_keys=True, allow_nan=False).encode())
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()


def _write(path: Path, data: bytes) -> None:
    """Written beside and moved into place: who is killed leaves what was there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
