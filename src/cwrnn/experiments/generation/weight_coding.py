"""Weight coding: the weights of a network that generates a sequence are a lossy code of it (section 4.1 of the paper).

    bits per sample = bits of the parameters / samples of the sequence
    decoding        = building the network from the parameters, and letting it generate

There are two precisions: float32 as trained, and 8 bits per weight with a uniform scale for each tensor:

    weight ~ offset + scale * code,    code = 0, ..., 255;    offset and scale are float32 and count

Parameters are counted as in the paper: the weights from fast to slow modules of a Clockwork RNN do not exist and cost
nothing; its periods count. The decoder knows the shape of the network (method and size).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...schedule import Schedule
from ..networks.methods import PLACES
from ..sweep.run import Dataset, Record
from . import training

FLOAT = 32
CODE = 8
PRECISIONS = (FLOAT, CODE)
PCM_BITS = 16

# bits of an offset and a scale
OVERHEAD = 2 * FLOAT

Weights = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Point:
    """The runs of one method and size, with their weights at one precision."""

    method: str
    size: int
    bits: int
    """Bits per weight."""
    bits_per_sample: float
    """The median over the runs: sequences may differ in length."""
    runs: int
    """The number of runs that finished; the others have no weights to decode."""
    best: float
    """The median over the data sets of the lowest NMSE after decoding."""
    median: float
    """The median of the NMSE after decoding, over all runs."""


@dataclass(frozen=True)
class Baseline:
    """The samples themselves with fewer bits: plain PCM."""

    bits: int
    nmse: float
    """The median over the data sets."""


def measure(records: Iterable[Record], datasets: Mapping[str, Dataset]) -> list[Point]:
    """The points of every method, size and precision with a finished run, in the order of ALL_METHODS."""
    groups: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.status == "finished":
            groups.setdefault((record.run.method, record.run.size), []).append(record)
    points = []
    for method, size in sorted(groups, key=lambda group: (PLACES[group[0]], group[1])):
        group = groups[method, size]
        for bits in PRECISIONS:
            errors = [decoded_nmse(record, datasets[record.run.data], bits) for record in group]
            sample_bits = [code_bits(record, bits) / len(datasets[record.run.data].samples) for record in group]
            lowest: dict[str, float] = {}
            for record, error in zip(group, errors, strict=True):
                lowest[record.run.data] = min(error, lowest.get(record.run.data, math.inf))
            medians = (float(np.median(values)) for values in (sample_bits, list(lowest.values()), errors))
            bits_per_sample, best, median = medians
            points.append(Point(method, size, bits, bits_per_sample, len(group), best, median))
    return points


def baselines(datasets: Iterable[Dataset], bits: Sequence[int] = range(1, PCM_BITS + 1)) -> list[Baseline]:
    """The error of plain PCM at each number of bits, with levels that fill [-1, 1] evenly."""
    datasets = list(datasets)
    if not datasets:
        return []
    points = []
    for sample_bits in bits:
        levels = 2**sample_bits - 1
        errors = []
        for dataset in datasets:
            decoded = np.round((dataset.samples + 1) / 2 * levels) / levels * 2 - 1
            errors.append(training.nmse(decoded, dataset.samples))
        points.append(Baseline(sample_bits, float(np.median(errors))))
    return points


def code_bits(record: Record, bits: int) -> int:
    """The bits of the parameters, and of the scales of their tensors."""
    assert record.weights is not None
    tensors = sum(weight.size > 0 for weight in record.weights.values())
    return bits * record.parameters + (0 if bits == FLOAT else OVERHEAD * tensors)


def decoded_nmse(record: Record, dataset: Dataset, bits: int) -> float:
    """The NMSE of the sequence that the network generates from weights of this precision."""
    if bits == FLOAT:
        return record.error
    run = record.run
    assert record.weights is not None
    weights = quantise(record.weights, record.schedule)
    output = training.generate(run.method, run.hidden, weights, len(dataset.samples), run.settings)
    error = training.nmse(output.astype(np.float64), dataset.samples)
    return error if math.isfinite(error) else math.inf


def quantise(weights: Weights, schedule: str | None = None) -> dict[str, NDArray[np.float32]]:
    """The weights after encoding and decoding. Weights that a network with clocks does not have stay zero.

    >>> quantise({"bias": np.array([0.0, 0.1, 255.0], dtype=np.float32)})["bias"].tolist()
    [0.0, 0.0, 255.0]
    """
    decoded = {}
    for name, weight in weights.items():
        exists = _mask(name, weight, schedule)
        decoded[name] = np.zeros(weight.shape, dtype=np.float32)
        decoded[name][exists] = decode(*encode(weight[exists]))
    return decoded


def encode(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], np.float32, np.float32]:
    """The codes of the values, (n,), and their offset and scale."""
    if not values.size:
        return np.empty(0, dtype=np.uint8), np.float32(0), np.float32(0)
    offset = np.float32(values.min())
    scale = np.float32((float(values.max()) - float(offset)) / (2**CODE - 1))
    if not scale > 0:
        return np.zeros(values.shape, dtype=np.uint8), offset, np.float32(0)
    steps = np.round((values.astype(np.float64) - float(offset)) / float(scale))
    return np.clip(steps, 0, 2**CODE - 1).astype(np.uint8), offset, scale


def decode(codes: NDArray[np.uint8], offset: np.float32, scale: np.float32) -> NDArray[np.float32]:
    """The values of the codes."""
    return (float(offset) + float(scale) * codes.astype(np.float64)).astype(np.float32)


def _mask(name: str, weight: NDArray[np.float32], schedule: str | None) -> NDArray[np.bool_]:
    """Where a weight exists: everywhere, except in the recurrent weights of a network with clocks."""
    if schedule is not None and "weight_hh" in name:
        mask = Schedule.parse(schedule).mask()
        # the rows of one gate after another
        return np.tile(mask, (len(weight) // len(mask), 1))
    return np.ones(weight.shape, dtype=np.bool_)
