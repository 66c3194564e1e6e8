"""The models by the names of their methods. A model is imported when it is first asked for."""

from collections.abc import Sequence
from importlib import import_module
from typing import cast

import torch

from ....extras import require
from ...errors import ArgumentError
from ..methods import ALL_METHODS, Method
from .model_layer import ModelLayer


def find_layer_class(method: Method) -> type[ModelLayer]:
    """The class of a model's hidden layer."""
    module, _, name = method.model.rpartition(".")
    return cast(type[ModelLayer], getattr(import_module(f".{module}", __package__), name))


def build_layer(method: Method, input_size: int, units: int, *, seed: int = 0) -> ModelLayer:
    """The hidden layer of a model, with initial weights that are the same for the same seed.

    Args:
        method: a method with a model
        input_size: features of the input, 0 if there is none
        units: the size of the layer; what it counts depends on the model
        seed: the seed of the initial weights
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return find_layer_class(method)(input_size, units)


def require_packages(method: Method) -> None:
    """Raises an ImportError that names the extra if a package that the method needs is missing."""
    if method.model:
        for package in find_layer_class(method).packages:
            require(package, extra="models", purpose=f"the method {method.name}")


def check_methods(methods: Sequence[str] | str) -> tuple[str, ...]:
    """The methods in the order of ALL_METHODS, which decides the order of the tables.

    An ArgumentError if there are none or one is unknown, an ImportError if one needs a package that is missing.

    >>> check_methods(["cw", "srn"])
    ('srn', 'cw')
    """
    names = [methods] if isinstance(methods, str) else list(methods)
    for name in names or [""]:
        if name not in ALL_METHODS:
            raise ArgumentError("methods", f"expected some of {', '.join(ALL_METHODS)}, got {name!r}")
        require_packages(ALL_METHODS[name])
    return tuple(name for name in ALL_METHODS if name in names)
