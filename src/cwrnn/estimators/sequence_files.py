"""Files of classifiers and regressors: their fields and arrays, and the estimator that these describe.

tensors     layer.*, readout.*     the network
            scaling.*              the mean and the deviation of each channel; target_scaling.* of each output
metadata    parameters             the parameters of the estimator
            layer, outputs         the layer and the number of outputs
            input, training        the attributes that `fit` sets about the input and the training
            target                 labels of the classes, or the form of the outputs
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..readout import Readout
from ..tensor_files import FormatError
from ..untrusted import shorten
from .saving import (
    check_fields,
    check_tensor,
    decode_parameters,
    describe_layer,
    encode_parameters,
    list_arrays,
    restore_layer,
    restore_linear,
)
from .sequence_network import SequenceNetwork
from .sequences import Scaling

CURVE: dict[str, type] = {
    "loss_curve_": list, "validation_curve_": list, "n_iter_": int, "best_epoch_": int, "stopped_": str,
}  # fmt: skip
"""The attributes that describe the training, and their types."""

FEATURES: dict[str, type | tuple[type, ...]] = {
    "n_features_in_": int,
    "n_channels_": int,
    "n_steps_": (int, type(None)),
    "feature_names_in_": (list, type(None)),
}
"""The attributes that describe the input, and their types in a file."""


def describe_estimator(estimator: Any) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The fields and the arrays of a fitted classifier or regressor, for its file."""
    network: SequenceNetwork = estimator.network_
    names = getattr(estimator, "feature_names_in_", None)
    fields = {
        "parameters": encode_parameters(estimator.get_params(deep=False)),
        "layer": describe_layer(network.layer),
        "outputs": network.readout.out_features,
        "input": {
            "n_features_in_": estimator.n_features_in_,
            "n_channels_": estimator.n_channels_,
            "n_steps_": estimator.n_steps_,
            "feature_names_in_": None if names is None else names.tolist(),
        },
        "training": {name: getattr(estimator, name) for name in CURVE},
        "target": estimator._describe_target(),
    }
    arrays: dict[str, NDArray[Any]] = {**list_arrays(network)}
    for name, scaling in estimator._list_scalings().items():
        for part, value in scaling._asdict().items():
            arrays[f"{name}.{part}"] = np.ascontiguousarray(value, "<f8")
    return fields, arrays


def restore_estimator(estimator: Any, fields: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Gives a new estimator the parameters and attributes in a file; a FormatError names what makes no sense."""
    types: dict[str, type] = {
        "parameters": dict,
        "layer": dict,
        "outputs": int,
        "input": dict,
        "training": dict,
        "target": dict,
    }
    fields = check_fields("its metadata", fields, types)
    estimator.set_params(**decode_parameters(fields["parameters"], estimator.get_params(deep=False)))
    try:
        estimator._check_parameters()
    except (TypeError, ValueError) as error:
        raise FormatError(f"its parameters cannot be used: {error}") from error
    input = check_fields("input", fields["input"], FEATURES)
    names = input.pop("feature_names_in_")
    if names is not None:
        if len(names) != input["n_features_in_"] or not all(isinstance(name, str) for name in names):
            raise FormatError("input.feature_names_in_ must be one text for each feature")
        estimator.feature_names_in_ = np.array(names, dtype=object)
    if input["n_features_in_"] != (input["n_steps_"] or input["n_channels_"]):
        raise FormatError(f"its input makes no sense: {shorten(str(input), 200)}")
    training = check_fields("training", fields["training"], CURVE)
    if not all(type(loss) in (int, float) for loss in training["loss_curve_"] + training["validation_curve_"]):
        raise FormatError("training must have losses that are numbers")
    for name, value in (input | training).items():
        setattr(estimator, name, value)
    layer, outputs = restore_layer(fields["layer"], arrays), fields["outputs"]
    if layer.input_size != estimator.n_channels_:
        raise FormatError(f"its layer has {layer.input_size} inputs, but n_channels_ is {estimator.n_channels_}")
    network = SequenceNetwork(layer, 1, float(estimator.dropout))
    network.readout = restore_linear(arrays, "readout.", network.readout.in_features, outputs, make=Readout)
    estimator.network_, estimator.schedule_ = network.eval(), layer.schedule
    estimator.scaling_ = read_scaling(arrays, "scaling", layer.input_size)
    estimator._restore_target(fields["target"], outputs, arrays)
    known = {f"{name}.{part}" for name in estimator._list_scalings() for part in Scaling._fields}
    unknown = set(arrays) - known - {name for name, _ in network.named_parameters()}
    if unknown:
        raise FormatError(f"it has unknown tensors: {shorten(str(sorted(unknown)))}")


def read_scaling(arrays: Mapping[str, NDArray[Any]], name: str, columns: int) -> Scaling:
    """The scaling of some columns that a file has under a name."""
    mean, deviation = (check_tensor(arrays, f"{name}.{part}", (columns,), "<f8").copy() for part in Scaling._fields)
    if not (deviation > 0).all():
        raise FormatError(f"the tensor '{name}.deviation' has values that are not above 0")
    return Scaling(mean, deviation)
