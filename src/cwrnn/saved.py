"""Saved networks: a trained network in one safetensors file, with everything that is needed to use it.

    tensors     the parameters of the network, and extra arrays such as the normalisation of features
    metadata    `cwrnn`, a JSON object: version, kind, method, schedule, inputs, outputs and softmax of the network;
                cell, unless it is "tanh", and peepholes, if there are any;
                about, an object with extra metadata, such as the data that the network was trained on; sha256

The file is a tensor file (tensor_files.py): loading executes no code from it, and every change is detected.
A ModelError refuses a file that has another format, is damaged or does not make sense. Saving a network twice gives the
same bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .cells import CELLS, NONLINEARITIES, PEEPHOLES
from .layer import AnyLayer, ClockworkLayer
from .network import LAYERS, Network
from .schedule import Schedule
from .tensor_files import DTYPES, FormatError, ModelError, name_problems, quote, read_tensors, write_tensors
from .untrusted import shorten

__all__ = ["ModelError", "SavedNetwork"]


METHODS = {
    "srn": ("tanh", "relu"), "lstm": ("lstm",), "gru": ("gru",),
    "cw": ("tanh", "relu"), "cw-lstm": ("lstm",), "cw-gru": ("gru",),
}  # fmt: skip
"""The cells of every method, the usual one first. A method without clocks has one module of period 1."""


def has_clocks(method: str) -> bool:
    """Whether the networks of a method have clocks.

    >>> has_clocks("cw-lstm"), has_clocks("lstm")
    (True, False)
    """
    return method.startswith("cw")


@dataclass(frozen=True, eq=False)
class SavedNetwork:
    """A trained network with the metadata that is needed to use it.

    >>> import tempfile
    >>> from cwrnn import ClockworkRNN
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
        metadata: dict[str, Any] = {
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
        parameters = {name: value.detach().cpu().numpy() for name, value in self.network.named_parameters()}
        arrays = {name: np.ascontiguousarray(value, "<f4") for name, value in parameters.items()}
        arrays |= {name: np.ascontiguousarray(value, "<f8") for name, value in self.tensors.items()}
        write_tensors(path, metadata, arrays, extra="experiments")

    @classmethod
    def load(cls, path: Path) -> "SavedNetwork":
        """The network saved in `path`; raises a ModelError that names the problem if there is one."""
        with name_problems(path):
            return _assemble(*read_tensors(path))


def _assemble(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> SavedNetwork:
    """The network with this metadata and these arrays, all of which are checked before anything is built."""
    if isinstance(metadata.get("estimator"), str):
        raise FormatError(f"this is a {shorten(metadata['estimator'])}, which its class in cwrnn.estimators loads")
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
            raise FormatError(f"{name} must be of type {kind.__name__}, got {shorten(repr(metadata.get(name)))}")
    if set(metadata) != set(types):
        raise FormatError(f"its metadata has unknown keys: {shorten(str(sorted(set(metadata) - set(types))))}")
    try:
        schedule = Schedule.parse(metadata["schedule"])
    except ValueError as error:
        raise FormatError(shorten(str(error), 200)) from error
    method, inputs, outputs = metadata["method"], metadata["inputs"], metadata["outputs"]
    cell, peepholes = metadata.get("cell", "tanh"), metadata.get("peepholes", False)
    if not _fits(method, cell, schedule):
        raise FormatError(
            f"there is no {quote(method)} with the cell {quote(cell)} and the schedule {shorten(schedule.spec)}"
        )
    if peepholes and cell != "lstm":
        raise FormatError(f"the cell {quote(cell)} has no peepholes")
    if inputs < 0 or outputs < 1:
        raise FormatError(f"expected inputs >= 0 and outputs >= 1, got {inputs} and {outputs}")
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
            raise FormatError(f"the tensor {name!r} is missing")
        array = arrays[name]
        if array.shape != shape or array.dtype != DTYPES["F32"]:
            raise FormatError(f"the tensor {name!r} must be float32 {shape}, got {array.dtype} {array.shape}")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise FormatError(f"the tensor {quote(name)} has values that are not finite")
    if arrays["layer.weight_hh_l0"].reshape(gates, N, N)[:, ~schedule.mask()].any():
        raise FormatError(
            f"its weights do not fit the schedule {shorten(schedule.spec)}: some lead from fast modules to slow ones"
        )
    options: dict[str, Any] = {"peepholes": True} if peepholes else {}
    if cell in NONLINEARITIES:
        options["nonlinearity"] = cell
    network = Network(LAYERS[cell](inputs, N, schedule=schedule, **options), outputs, softmax=metadata["softmax"])
    network.requires_grad_(False)
    for name, parameter in network.named_parameters():
        parameter.copy_(torch.from_numpy(arrays[name].astype(np.float32)))
    tensors = {name: array.astype(np.float64) for name, array in arrays.items() if name not in shapes}
    return SavedNetwork(metadata["kind"], method, network, tensors, metadata["about"])


def _fits(method: str, cell: str, schedule: Schedule) -> bool:
    """Whether a network of a method can have a cell and a schedule."""
    return cell in METHODS.get(method, ()) and (has_clocks(method) or schedule.periods == (1,))
