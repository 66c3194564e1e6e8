"""Calibration: inputs as a network will meet them, which set the ranges of its integers and judge the result.

an array (T, inputs) or (T, B, inputs), or several arrays (T, inputs)    the inputs of the network
FILE.npy, FILE.npz, FILE.csv                                             the same, from a file
sounds (n,)                                                              for a recogniser, at the rate of its features
bundle, folder:PATH, timit:PATH                                          for a recogniser, words with their labels
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...cascade import cascade
from ...experiments.array_files import ArrayFile, ArrayFileError
from ...experiments.errors import ArgumentError
from ...experiments.file_names import check_path, replace_undecodable
from ...experiments.tables import LARGEST_FILE, SUFFIXES, open_table
from ...experiments.words.corpus import BUNDLE, load_corpus
from ...experiments.words.features import mfcc
from ...untrusted import escape_controls
from ..model import Array, ExportError, Features, Model
from .integers import compute_outputs, quantise_inputs
from .quantisation import QuantisedModel, Ranges, quantise

Calibrating = str | PathLike[str] | NDArray[Any] | torch.Tensor | Sequence[NDArray[Any] | torch.Tensor]
"""What a network can be calibrated with."""

SEQUENCES = 64
"""How many sequences are computed at once."""
STEPS_WITHOUT_INPUT = 1024
"""The steps with which a network without inputs is calibrated."""
AXES = {1: ("sample",), 2: ("row", "column"), 3: ("row", "sequence", "column")}
"""The names of the axes of an array, by their number."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Sequences that set the ranges, and sequences that judge the result."""

    source: str
    """Where they come from, for people to read."""
    sequences: tuple[Array, ...]
    """The inputs (T, inputs) that set the ranges."""
    judged: tuple[Array, ...]
    """The inputs (T, inputs) that judge."""
    labels: tuple[int, ...] = ()
    """The right output at the end of each sequence that judges; empty if it is not known."""


@dataclass(frozen=True)
class QuantisationReport:
    """How far a network in int8 is from the same network in float32."""

    source: str
    """The inputs that it was calibrated and judged with."""
    sequences: int
    """How many sequences judged."""
    error: float
    """The root mean square of the outputs' differences, as a share of the outputs' own."""
    largest_difference: float
    """The largest difference of an output."""
    decisions: int
    """How many decisions were compared: those at the ends of words, or at all steps; 0 without decisions."""
    equal_decisions: int
    """How many decisions are those of float32."""
    accuracy: float | None = None
    """The share of right decisions, or None if the right ones are not known."""
    float_accuracy: float | None = None
    """The share of right decisions in float32."""

    def __str__(self) -> str:
        lines = [
            f"int8, calibrated and judged with {self.source}",
            f"outputs differ by {self.error:.2%} of their size (root mean square), at most by "
            f"{self.largest_difference:.3g}",
        ]
        if self.error >= 1:
            lines.append("int8 is no use for this network: outputs that are always 0 differ by 100%")
        if self.decisions:
            lines.append(f"{self.equal_decisions:,} of {self.decisions:,} decisions are those of float32")
        if self.accuracy is not None:
            lines.append(f"{self.accuracy:.1%} of the decisions are right, in float32 {self.float_accuracy:.1%}")
        return "\n".join(lines)


def quantise_model(model: Model, calibration: Calibrating | None) -> tuple[QuantisedModel, QuantisationReport]:
    """The model in integers, and how far it is from float32.

    Raises an ArgumentError for a calibration that cannot be used, and an ExportError for weights that are too large
    and for a network whose states or outputs are not finite.
    """
    read = read_calibration(model, calibration)
    _, ranges = run_floats(model, read.sequences)
    quantised = quantise(model, ranges)
    return quantised, judge(quantised, read)


def read_calibration(model: Model, calibration: Calibrating | None) -> Calibration:
    """The sequences of a calibration; None stands for the words of the package if the model is a recogniser."""
    if calibration is None and model.inputs == 0:
        sequences = (np.zeros((STEPS_WITHOUT_INPUT, 0), np.float32),)
        return Calibration("no input", sequences, sequences)
    if calibration is None and model.features is None:
        raise ArgumentError(
            "calibration",
            f"int8 needs inputs as the network will meet them, such as an array (T, {model.inputs}) or a file of one",
        )
    if calibration is None or isinstance(calibration, (str, PathLike)):
        try:
            return _read_source(model, BUNDLE if calibration is None else fspath(calibration))
        except ArgumentError as error:
            # a corpus and a table have arguments of their own, such as data
            raise ArgumentError("calibration", error.message) from error
    # a tensor and a data frame are one array, a list of arrays has no axes
    if not hasattr(calibration, "ndim") and not isinstance(calibration, Iterable):
        raise ArgumentError(
            "calibration", f"expected an array, several arrays or the path of a file, got {calibration!r}"
        )
    arrays = [calibration] if hasattr(calibration, "ndim") else list(calibration)
    return _check_sequences(model, "an array" if len(arrays) == 1 else f"{len(arrays):,} arrays", arrays)


def run_floats(model: Model, sequences: Sequence[Array]) -> tuple[list[Array], Ranges]:
    """The outputs (T, outputs) of every sequence in float32, and the largest sizes of all numbers.

    Raises an ExportError if a state or an output is not finite.
    """
    outputs: list[Array] = []
    sizes = np.zeros((2, 1))
    with torch.no_grad():
        for batch, lengths in _batch(sequences):
            hidden, ends = torch.from_numpy(batch), torch.from_numpy(lengths)
            for layer in model.layers:
                arrays = (layer.weight_ih, layer.weight_hh, layer.bias, layer.weight_ch)
                W_ih, W_hh, b, p = (None if array is None else torch.from_numpy(array) for array in arrays)
                done = cascade(hidden, W_ih, W_hh, b, None, layer.schedule, 0, layer.cell, ends, weight_ch=p)  # type: ignore[arg-type]
                hidden = done.hold()
                inside = torch.arange(len(batch))[:, None] < ends
                cells = [signal.at(0, 1, len(batch))[inside].abs().max().item() for signal in done.cells]
                sizes = np.maximum(sizes, [[hidden[inside].abs().max().item()], [max(cells, default=0.0)]])
            result = hidden.numpy()
            if model.readout_weight is not None:
                # numbers that are not finite are refused below
                with np.errstate(over="ignore", invalid="ignore"):
                    result = result @ model.readout_weight.T + (0 if model.readout_bias is None else model.readout_bias)
            outputs += [result[:length, i] for i, length in enumerate(lengths)]
    for number, output in enumerate(outputs):
        is_finite = np.isfinite(output).all(axis=1)
        if not is_finite.all():
            raise ExportError(
                f"int8 needs a network whose outputs are finite: in float32, those of sequence {number} of the "
                f"calibration are not, from step {is_finite.argmin()} on"
            )
    if not np.isfinite(sizes).all():
        raise ExportError("int8 needs a network whose states are finite: in float32, they are not over the calibration")
    largest = np.max([np.abs(sequence).max(axis=0) for sequence in sequences], axis=0)
    return outputs, Ranges(tuple(largest.tolist()), float(sizes[0, 0]), float(sizes[1, 0]))


def run_integers(quantised: QuantisedModel, sequences: Sequence[Array]) -> list[Array]:
    """The outputs (T, outputs) of every sequence in int8, as real numbers."""
    outputs: list[Array] = []
    for batch, lengths in _batch(sequences):
        integers = compute_outputs(quantised, quantise_inputs(quantised, batch))
        result = (integers * 2.0**-quantised.output_bits).astype(np.float32)
        outputs += [result[:length, i] for i, length in enumerate(lengths)]
    return outputs


def judge(quantised: QuantisedModel, calibration: Calibration) -> QuantisationReport:
    """Compare a network in integers with float32."""
    model = quantised.model
    floats, _ = run_floats(model, calibration.judged)
    integers = run_integers(quantised, calibration.judged)
    exact, found = np.concatenate(floats).astype(np.float64), np.concatenate(integers).astype(np.float64)
    size = float(np.sqrt(np.mean(exact**2)))
    decisions = equal = 0
    accuracy = float_accuracy = None
    if model.softmax or model.labels:
        if model.features is not None:
            exact_ends, found_ends = (np.stack([run[-1] for run in runs]) for runs in (floats, integers))
        else:
            exact_ends, found_ends = exact, found
        decided, expected = found_ends.argmax(axis=1), exact_ends.argmax(axis=1)
        decisions, equal = len(decided), int((decided == expected).sum())
        if calibration.labels:
            labels = np.array(calibration.labels)
            accuracy, float_accuracy = float((decided == labels).mean()), float((expected == labels).mean())
    return QuantisationReport(
        source=calibration.source,
        sequences=len(calibration.judged),
        error=float(np.sqrt(np.mean((found - exact) ** 2))) / size if size > 0 else 0.0,
        largest_difference=float(np.abs(found - exact).max()),
        decisions=decisions,
        equal_decisions=equal,
        accuracy=accuracy,
        float_accuracy=float_accuracy,
    )


def _batch(sequences: Sequence[Array]) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """Some sequences at a time: (T, B, inputs) with zeros after their ends, and their lengths (B)."""
    for start in range(0, len(sequences), SEQUENCES):
        some = sequences[start : start + SEQUENCES]
        lengths = np.array([len(sequence) for sequence in some])
        batch = np.zeros((lengths.max(), len(some), some[0].shape[1]), np.float32)
        for i, sequence in enumerate(some):
            batch[: len(sequence), i] = sequence
        yield batch, lengths


def _read_source(model: Model, source: str) -> Calibration:
    """The sequences of a file or a corpus."""
    if source.lower().endswith(SUFFIXES):
        name = escape_controls(replace_undecodable(source))
        return _check_sequences(model, name, _read_file(check_path("calibration", source)))
    if model.features is None:
        raise ArgumentError("calibration", f"expected a file that ends in {', '.join(SUFFIXES)}, got {source!r}")
    return _read_corpus(model, model.features, source)


def _read_file(path: Path) -> list[NDArray[Any]]:
    """The arrays of a file."""
    if path.suffix.lower() in (".csv", ".tsv"):
        table = open_table(path)
        return [table.select(table.columns, "calibration")]
    name = escape_controls(replace_undecodable(str(path)))
    try:
        file = ArrayFile(path, LARGEST_FILE)
        return [file.read(array) for array in file.headers]
    except ArrayFileError as error:
        raise ArgumentError("calibration", f"{name}: {escape_controls(str(error))}") from error
    except OSError as error:
        raise ArgumentError("calibration", f"{name}: cannot be read: {error.strerror}") from error


def _check_sequences(model: Model, source: str, arrays: Sequence[Any]) -> Calibration:
    sequences: list[Array] = []
    for number, array in enumerate(arrays):
        name = source if len(arrays) == 1 else f"{source}, array {number}"
        values = _convert_array(array)
        if values.dtype.kind not in "biuf":
            raise ArgumentError("calibration", f"expected numbers, got the dtype {values.dtype}")
        if values.ndim == 1 and model.features is not None and values.dtype.kind == "f":
            _check_finite(name, values)
            values = normalise(model.features, mfcc(values, model.features.settings))
        if values.ndim not in (2, 3) or values.shape[-1] != model.inputs or 0 in values.shape[:-1]:
            sound = " or sounds (n,)" if model.features is not None else ""
            raise ArgumentError(
                "calibration",
                f"expected the shape (T, {model.inputs}) or (T, B, {model.inputs}){sound}, got {np.shape(array)}",
            )
        numbers = _check_finite(name, values)
        sequences += list(numbers.transpose(1, 0, 2)) if numbers.ndim == 3 else [numbers]
    if not sequences:
        raise ArgumentError("calibration", "expected at least one array, got none")
    return Calibration(source, tuple(sequences), tuple(sequences))


def _convert_array(array: Any) -> NDArray[Any]:
    """A tensor, an array or nested lists as an array."""
    if isinstance(array, torch.Tensor):
        tensor = array.detach().cpu()
        # numpy has no bfloat16
        array = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    try:
        return np.asarray(array)
    except (TypeError, ValueError) as error:
        raise ArgumentError("calibration", f"expected arrays of numbers: {error}") from error


def _check_finite(source: str, values: NDArray[Any]) -> Array:
    """The values in float32; an ArgumentError names the first that is not finite there."""
    with np.errstate(over="ignore"):
        numbers: Array = values.astype(np.float32)
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        place = np.unravel_index(is_finite.argmin(), values.shape)
        described = ", ".join(f"{axis} {index}" for axis, index in zip(AXES[values.ndim], place, strict=True))
        raise ArgumentError(
            "calibration",
            f"{source}: expected finite numbers within the range of float32, got {values[place]} in {described} "
            "(counted from 0)",
        )
    return numbers


def _read_corpus(model: Model, features: Features, source: str) -> Calibration:
    """The words of a corpus: its training words set the ranges, and its test words judge."""
    corpus = load_corpus(source)
    if corpus.settings != features.settings:
        raise ArgumentError(
            "calibration",
            f"the words of {source} have other features than the recogniser: expected sounds at "
            f"{features.settings.rate} Hz",
        )
    known = [utterance for utterance in corpus.test if utterance.word in model.labels]
    judged = known or corpus.test
    return Calibration(
        source=corpus.source,
        sequences=tuple(normalise(features, utterance.features) for utterance in corpus.train),
        judged=tuple(normalise(features, utterance.features) for utterance in judged),
        labels=tuple(model.labels.index(utterance.word) for utterance in known),
    )


def normalise(features: Features, frames: NDArray[np.float32]) -> Array:
    """Frames (T, channels) as the network of a recogniser takes them."""
    normalised: Array = ((frames - features.mean) / features.deviation).astype(np.float32)
    return normalised
