"""Layers in tensor files: how an estimator describes its layer in JSON, and how it is built again from that.

A description is checked against the arrays of its file before anything is built: it may describe a far larger layer
than the file contains.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from .. import network
from ..cells import CELLS
from ..layer import AnyLayer
from ..schedule import Schedule
from ..tensor_files import FormatError, quote, read_tensors, write_tensors
from ..untrusted import shorten

LAYERS = {"rnn": network.LAYERS["tanh"], "lstm": network.LAYERS["lstm"], "gru": network.LAYERS["gru"]}
"""The layers by the names of the option `cell`."""

FIELDS: dict[str, type] = {
    "cell": str, "input_size": int, "num_layers": int, "bidirectional": bool, "dropout": float, "schedule": str,
}  # fmt: skip
"""The fields of a description and their types."""


def describe_layer(layer: AnyLayer) -> dict[str, Any]:
    """The arguments of a layer that `LAYERS` makes, for JSON.

    >>> from cwrnn import ClockworkGRU
    >>> describe_layer(ClockworkGRU(3, 8, schedule=[1, 4]))["schedule"]
    '1:4,4:4'
    """
    cell = next(name for name, kind in LAYERS.items() if isinstance(layer, kind))
    return {
        "cell": cell,
        "input_size": layer.input_size,
        "num_layers": layer.num_layers,
        "bidirectional": layer.bidirectional,
        "dropout": float(layer.dropout),
        "schedule": layer.schedule.spec,
    }


def restore_layer(description: Any, arrays: Mapping[str, NDArray[Any]], prefix: str = "layer.") -> AnyLayer:
    """The layer that a file describes, with the weights from its arrays; a FormatError names what is wrong.

    >>> from cwrnn import ClockworkRNN
    >>> layer = ClockworkRNN(2, 4, schedule=[1, 2])
    >>> arrays = {f"layer.{name}": value.detach().numpy() for name, value in layer.named_parameters()}
    >>> restored = restore_layer(describe_layer(layer), arrays)
    >>> torch.equal(restored.weight_hh_l0, layer.weight_hh_l0)
    True
    """
    description = check_fields("layer", description, FIELDS)
    cell, input_size, num_layers = description["cell"], description["input_size"], description["num_layers"]
    if cell not in LAYERS:
        raise FormatError(f"cell must be one of {', '.join(LAYERS)}, got {quote(cell)}")
    # dropout lies between layers, and a single layer would warn about it
    most = 1.0 if num_layers > 1 else 0.0
    if not (input_size >= 0 and 1 <= num_layers <= len(arrays) and 0 <= description["dropout"] <= most):
        raise FormatError(f"its layer makes no sense: {shorten(str(description), 200)}")
    try:
        schedule = Schedule.parse(description["schedule"])
    except ValueError as error:
        raise FormatError(shorten(str(error), 200)) from error
    directions = 2 if description["bidirectional"] else 1
    gates, biases, _ = CELLS["tanh" if cell == "rnn" else cell]
    N = schedule.hidden_size
    for number in range(num_layers):
        features = input_size if number == 0 else directions * N
        for suffix in ("", "_reverse")[:directions]:
            check_tensor(arrays, f"{prefix}weight_ih_l{number}{suffix}", (gates * N, features))
            check_tensor(arrays, f"{prefix}bias_l{number}{suffix}", (biases * N,))
            weights = check_tensor(arrays, f"{prefix}weight_hh_l{number}{suffix}", (gates * N, N))
            if weights.reshape(gates, N, N)[:, ~schedule.mask()].any():
                spec = shorten(schedule.spec)
                raise FormatError(
                    f"its weights do not fit the schedule {spec}: some lead from fast modules to slow ones"
                )
    layer: AnyLayer = LAYERS[cell](
        input_size,
        N,
        num_layers,
        bidirectional=description["bidirectional"],
        dropout=description["dropout"],
        schedule=schedule,
    )
    fill_parameters(layer, arrays, prefix)
    return layer


def restore_linear(
    arrays: Mapping[str, NDArray[Any]], prefix: str, in_features: int, out_features: int, *, make: Any = nn.Linear
) -> Any:
    """The linear layer whose weight and bias a file has under a prefix; `make` is its class."""
    check_tensor(arrays, f"{prefix}weight", (out_features, in_features))
    check_tensor(arrays, f"{prefix}bias", (out_features,))
    linear = make(in_features, out_features)
    fill_parameters(linear, arrays, prefix)
    return linear


def fill_parameters(module: nn.Module, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
    """Copies the arrays with a prefix into the parameters of the same names."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(arrays[f"{prefix}{name}"].astype(np.float32)))


def list_arrays(module: nn.Module) -> dict[str, NDArray[np.float32]]:
    """The parameters of a network as float32 arrays, by their names."""
    return {
        name: np.ascontiguousarray(value.detach().cpu().numpy(), "<f4") for name, value in module.named_parameters()
    }


def check_tensor(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], dtype: str = "<f4"
) -> NDArray[Any]:
    """The array with a name; a FormatError if it is missing, has another shape or dtype, or is not finite."""
    if name not in arrays:
        raise FormatError(f"the tensor {quote(name)} is missing")
    array = arrays[name]
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise FormatError(
            f"the tensor {quote(name)} must be {np.dtype(dtype)} {shape}, got {array.dtype} {shorten(str(array.shape))}"
        )
    if not np.isfinite(array).all():
        raise FormatError(f"the tensor {quote(name)} has values that are not finite")
    return array


def check_fields(name: str, value: Any, types: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The JSON object `value`; a FormatError unless it has exactly these fields with these types."""
    if not isinstance(value, dict):
        raise FormatError(f"{name} must be a JSON object, got {shorten(repr(value))}")
    if set(value) != set(types):
        wrong = sorted(map(str, set(value) ^ set(types)))
        raise FormatError(f"{name} must have the fields {', '.join(types)}; it differs in {shorten(str(wrong))}")
    for field, kinds in types.items():
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        # a bool is an int for isinstance, and JSON writes 0.0 as 0 in some programs
        if type(value[field]) not in kinds and not (float in kinds and type(value[field]) is int):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise FormatError(f"{name}.{field} must be of type {expected}, got {shorten(repr(value[field]))}")
    return value


def write_model(path: str | Path, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes an estimator of the class `kind` to a file, completely or not at all."""
    write_tensors(Path(path), {"estimator": kind, **fields}, arrays, extra="estimators")


def read_model(path: str | Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The fields and the arrays of a file with an estimator of the class `kind`.

    Call it within `cwrnn.tensor_files.name_problems`, which turns its errors into a ModelError.
    """
    metadata, arrays = read_tensors(Path(path))
    found = metadata.pop("estimator", None)
    if found != kind:
        what = f"a {shorten(found)}" if isinstance(found, str) else "a network that is no estimator"
        raise FormatError(f"expected a {kind}, but this is {what}")
    metadata.pop("version")
    return metadata, arrays


def encode_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator for JSON; a ValueError names the one that cannot be saved.

    A Schedule becomes its text, which every estimator takes as well, and a source of random numbers becomes None.

    >>> encode_parameters({"schedule": Schedule((1, 2), (4, 4)), "hidden_size": np.int64(8)})
    {'schedule': '1:4,2:4', 'hidden_size': 8}
    """
    return {name: _encode(name, value) for name, value in parameters.items()}


def decode_parameters(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """The parameters that `encode_parameters` wrote; a FormatError unless they have these names.

    >>> decode_parameters({"class_weight": {"pairs": [["yes", 2.0], [1, 1.0]]}}, ["class_weight"])
    {'class_weight': {'yes': 2.0, 1: 1.0}}
    """
    names = set(names)
    if not isinstance(value, dict) or set(value) != names:
        raise FormatError(f"parameters must be those of this estimator, got {shorten(str(value), 200)}")
    return {name: _decode(name, encoded) for name, encoded in value.items()}


def _encode(name: str, value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Schedule):
        return value.spec
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_encode(name, item) for item in value]
    if isinstance(value, Mapping):
        return {"pairs": [[_encode(name, key), _encode(name, item)] for key, item in value.items()]}
    raise ValueError(f"{name}={shorten(repr(value))} cannot be saved: a {type(value).__name__} is no JSON")


def _decode(name: str, value: Any) -> Any:
    """A scalar, a list of scalars, or a dict whose keys and values are scalars."""
    if isinstance(value, dict):
        pairs = check_fields(name, value, {"pairs": list})["pairs"]
        if not all(isinstance(pair, list) and len(pair) == 2 and _are_scalars(pair) for pair in pairs):
            raise FormatError(f"{name} must be a list of pairs, got {shorten(str(pairs))}")
        return dict(pairs)
    if isinstance(value, list) and not _are_scalars(value):
        raise FormatError(f"{name} must be a list of numbers or texts, got {shorten(str(value))}")
    return value


def _are_scalars(values: Iterable[Any]) -> bool:
    return not any(isinstance(value, (list, dict)) for value in values)
