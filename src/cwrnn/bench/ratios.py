"""Ratios: how many times faster a layer is than the layer of torch with the same cell, from the rows of a record."""

from collections.abc import Mapping
from typing import Any

from .gpu_timing import WAYS

PASSES = {"forward": "forward", "training": "forward+backward"}
"""The passes that are timed, by their names in a row."""

KINDS = tuple((name, way) for name in PASSES for way in WAYS)
"""Every pass in every way of timing. A row has one ratio of each kind."""


def make_key(name: str, way: str, layer: str = "cwrnn") -> str:
    """The key of a number in a row: seconds of a pass of a layer, in one way of timing.

    >>> make_key("forward", "back_to_back"), make_key("training", "synchronised", "LSTM")
    ('forward', 'training_synchronised_lstm')
    """
    parts = (name, "" if way == "back_to_back" else way, "" if layer == "cwrnn" else layer.lower())
    return "_".join(part for part in parts if part)


def compute_ratios(row: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The ratios of a row by kind. A pass that was not timed has none.

    >>> compute_ratios({"layer": "GRU", "training": 0.2, "training_gru": 0.3, "forward": 0.1, "forward_gru": None})
    {('training', 'back_to_back'): 1.4999999999999998}
    """
    ratios = {}
    for kind in KINDS:
        own, other = row.get(make_key(*kind)), row.get(make_key(*kind, row["layer"]))
        if own is not None and other is not None:
            ratios[kind] = other / own
    return ratios


def format_kind(kind: tuple[str, str]) -> str:
    """The kind in words.

    >>> format_kind(("training", "back_to_back"))
    'forward+backward, back to back'
    """
    name, way = kind
    return f"{PASSES[name]}, {way.replace('_', ' ')}"
