"""Sequences: the X of classifiers and regressors, in every form that they take.

(n, T)              an array or DataFrame: n sequences of one channel, as scikit-learn reads a table
(n, T, channels)    an array; a sequence that ends earlier has NaN in all channels from its end on
a list              of arrays (T_i,) or (T_i, channels): sequences of different lengths

All of them become `Sequences`, one after another in a single array.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

LARGEST_VALUE = 1e30
"""Scaled values are cut off here: float32 ends at 3e38, and sums of values must not become infinite."""

DTYPES = [np.float64, np.float32]
"""The dtypes that values keep; all others become the first."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences of any lengths with the same channels.

    >>> sequences = Sequences(np.array([[1.0], [2.0], [3.0]]), np.array([2, 1]))
    >>> [sequence.tolist() for sequence in sequences.split()]
    [[[1.0], [2.0]], [[3.0]]]
    """

    values: NDArray[np.floating[Any]]
    """The steps of all sequences (total, channels), one sequence after another."""
    lengths: NDArray[np.int64]
    """The number of steps of each sequence (n,), at least 1."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def channels(self) -> int:
        """The number of channels."""
        return int(self.values.shape[1])

    def split(self) -> list[NDArray[np.floating[Any]]]:
        """The sequences as arrays (T_i, channels), which are views."""
        return np.split(self.values, np.cumsum(self.lengths)[:-1])

    def select(self, kept: NDArray[np.bool_]) -> "Sequences":
        """The sequences for which `kept` (n,) is True."""
        if kept.all():
            return self
        return Sequences(self.values[np.repeat(kept, self.lengths)], self.lengths[kept])


class Scaling(NamedTuple):
    """A mean and a deviation for each column, which bring values to mean 0 and deviation 1.

    >>> scaling = Scaling.measure(np.array([[0.0, 5.0], [2.0, 5.0]]))
    >>> scaling.apply(np.array([[3.0, 5.0]])), scaling.undo(np.array([[2.0, 0.0]]))
    (array([[2., 0.]]), array([[3., 5.]]))
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    """The standard deviation, or 1 for a column that is constant."""

    @classmethod
    def measure(cls, values: NDArray[Any]) -> "Scaling":
        """The scaling of `values` (n, columns)."""
        # divided by the largest value, no square overflows
        magnitude = np.abs(values).max(axis=0).astype(np.float64)
        magnitude[magnitude == 0] = 1.0
        shares = values / magnitude
        mean, deviation = shares.mean(axis=0, dtype=np.float64), shares.std(axis=0, dtype=np.float64)
        # what is left of a constant column is the rounding of its mean
        constant = deviation < 1e-7 if values.dtype == np.float32 else deviation < 1e-12
        deviation = np.where(constant, 1.0, deviation * magnitude)
        return cls(mean * magnitude, deviation)

    @classmethod
    def identity(cls, columns: int) -> "Scaling":
        """The scaling that changes nothing."""
        return cls(np.zeros(columns), np.ones(columns))

    def apply(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The scaled values, within +-LARGEST_VALUE."""
        with np.errstate(over="ignore"):
            scaled = (values - self.mean) / self.deviation
        result: NDArray[np.float64] = np.clip(scaled, -LARGEST_VALUE, LARGEST_VALUE)
        return result

    def undo(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """The values that `apply` scales to `values`."""
        with np.errstate(over="ignore"):
            result: NDArray[np.float64] = self.mean + self.deviation * values
        return result


class SequenceTensors:
    """Scaled sequences on a device, from which batches are taken.

    >>> tensors = SequenceTensors(Sequences(np.array([[1.0], [2.0], [3.0]]), np.array([2, 1])), Scaling.identity(1))
    >>> input, lengths = tensors.take(torch.tensor([1, 0]))
    >>> input[..., 0].tolist(), lengths.tolist()
    ([[3.0, 1.0], [0.0, 2.0]], [1, 2])
    """

    def __init__(self, sequences: Sequences, scaling: Scaling, device: torch.device | str = "cpu") -> None:
        # the step after the last one is the padding
        scaled = np.zeros((len(sequences.values) + 1, sequences.channels), dtype=np.float32)
        scaled[:-1] = scaling.apply(sequences.values)
        self.values = torch.from_numpy(scaled).to(device)
        self.lengths = torch.from_numpy(sequences.lengths)
        ends = self.lengths.cumsum(0)
        self.starts = (ends - self.lengths).to(device)
        self.common_length = int(self.lengths[0]) if (self.lengths == self.lengths[0]).all() else None

    def __len__(self) -> int:
        return len(self.lengths)

    def take(self, items: Tensor) -> tuple[Tensor, Tensor | None]:
        """The sequences with the numbers `items` (B,): (T, B, channels), padded with zeros, and their lengths (B,).

        The lengths are None if all sequences are of equal length.
        """
        starts = self.starts[items]
        if self.common_length is not None:
            steps = torch.arange(self.common_length, device=starts.device)
            return self.values[starts + steps[:, None]], None
        lengths = self.lengths[items.cpu()]
        steps = torch.arange(int(lengths.max()), device=starts.device)[:, None]
        on_device = lengths.to(starts.device)
        places = torch.where(steps < on_device, starts + steps, len(self.values) - 1)
        return self.values[places], on_device


def validate_sequences(estimator: BaseEstimator, X: Any, *, reset: bool) -> Sequences:
    """The sequences in X, checked as scikit-learn checks its input.

    Args:
        estimator: with `reset`, it gets `n_channels_`, `n_steps_` (the length of the rows if X is a table, else None),
            `n_features_in_` (the same length, or the number of channels) and `feature_names_in_` if X is a table with
            names. Without `reset`, X must have the same
        X: the sequences in one of the forms above
        reset: True in `fit`, False in `predict`
    """
    items = _list_sequences(X)
    if items is not None:
        sequences, steps = _join_sequences(items), None
    elif getattr(X, "ndim", None) == 3 or (isinstance(X, (list, tuple)) and np.ndim(X) == 3):
        sequences, steps = _read_cube(X), None
    elif reset or estimator.n_steps_ is not None:
        # with scikit-learn's check of the number of features and their names
        sequences, steps = _read_table(validate_data(estimator, X, reset=reset, dtype=DTYPES))
    else:
        sequences, steps = _read_table(check_array(X, dtype=DTYPES, input_name="X"))
    if reset:
        estimator.n_channels_, estimator.n_steps_ = sequences.channels, steps
        if steps is None:
            estimator.n_features_in_ = sequences.channels
            if hasattr(estimator, "feature_names_in_"):
                del estimator.feature_names_in_
    elif sequences.channels != estimator.n_channels_:
        raise ValueError(
            f"X has {sequences.channels} channels, but {type(estimator).__name__} is expecting "
            f"{estimator.n_channels_} channels as input"
        )
    return sequences


def _read_table(table: NDArray[Any]) -> tuple[Sequences, int]:
    """The sequences of a table (n, T), and their common length."""
    n, T = table.shape
    return Sequences(table.reshape(n * T, 1), np.full(n, T, dtype=np.int64)), T


def _read_cube(X: Any) -> Sequences:
    """The sequences of an array (n, T, channels)."""
    array = check_array(X, dtype=DTYPES, allow_nd=True, ensure_all_finite="allow-nan", input_name="X")
    if 0 in array.shape:
        raise ValueError(f"X must have at least one sequence, step and channel, got shape {array.shape}")
    return _strip_padding(array)


def _list_sequences(X: Any) -> Sequence[Any] | None:
    """The items of a list of sequences; None if X is an array or the nested lists of one."""
    if isinstance(X, np.ndarray):
        is_list = X.dtype == object and X.ndim == 1 and len(X) > 0 and np.ndim(X[0]) > 0
        return list(X) if is_list else None
    if not isinstance(X, (list, tuple)) or len(X) == 0:
        return None
    if any(hasattr(item, "__array__") and np.ndim(item) > 0 for item in X):
        return X
    if all(isinstance(item, (list, tuple)) for item in X) and len({len(item) for item in X}) > 1:
        return X
    return None


def _join_sequences(items: Sequence[Any]) -> Sequences:
    """The sequences of a list, after a check of each."""
    arrays = []
    for i, item in enumerate(items):
        try:
            array = np.asarray(item, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"X[{i}] must be an array of numbers: {error}") from error
        if array.ndim not in (1, 2) or array.size == 0:
            raise ValueError(
                f"X[{i}] must be (T,) or (T, channels) with at least one step and one channel, got shape {array.shape}"
            )
        arrays.append(array.reshape(len(array), -1))
        if arrays[i].shape[1] != arrays[0].shape[1]:
            raise ValueError(f"X[{i}] has {arrays[i].shape[1]} channels, but X[0] has {arrays[0].shape[1]}")
    values = np.concatenate(arrays)
    lengths = np.array([len(array) for array in arrays], dtype=np.int64)
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        i = int(np.repeat(np.arange(len(lengths)), lengths)[~finite][0])
        raise ValueError(f"Input X contains NaN or infinity: X[{i}]")
    return Sequences(values, lengths)


def _strip_padding(array: NDArray[Any]) -> Sequences:
    """The sequences of an array (n, T, channels) without the NaN after their ends."""
    n, T, channels = array.shape
    missing = np.isnan(array)
    if not missing.any():
        return Sequences(array.reshape(n * T, channels), np.full(n, T, dtype=np.int64))
    is_padding = np.logical_and.accumulate(missing.all(axis=2)[:, ::-1], axis=1)[:, ::-1]
    lengths = T - is_padding.sum(axis=1, dtype=np.int64)
    inside = missing.any(axis=2) & ~is_padding
    if inside.any():
        i, t = (int(numbers[0]) for numbers in np.nonzero(inside))
        raise ValueError(f"Input X contains NaN: X[{i}, {t}]. Only the steps after the end of a sequence may be NaN")
    if (lengths == 0).any():
        raise ValueError(f"Input X contains NaN: X[{int(np.argmin(lengths))}] has no step that is not NaN")
    return Sequences(array[~is_padding], lengths)
