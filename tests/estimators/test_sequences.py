"""Tables, arrays and lists become the same sequences, and what is none is refused with the place of the problem."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator

from cwrnn.estimators.sequences import Scaling, Sequences, SequenceTensors, validate_sequences

TABLE = np.arange(12.0).reshape(3, 4)
CUBE = np.arange(24.0).reshape(3, 4, 2)
RAGGED = [np.arange(3.0), np.arange(5.0), np.arange(1.0)]


class Any(BaseEstimator):
    """An estimator that reads X."""


def read(X, like=None):
    estimator = Any()
    if like is not None:
        validate_sequences(estimator, like, reset=True)
    return validate_sequences(estimator, X, reset=like is None)


def assert_equal(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.lengths, other.lengths)


@pytest.mark.parametrize(
    ("X", "same"),
    [
        (pd.DataFrame(TABLE), TABLE),
        (TABLE.tolist(), TABLE),
        (TABLE.astype(np.float32), TABLE),
        (TABLE.astype(object), TABLE),
        (TABLE[:, :, None], TABLE),
        (list(TABLE), TABLE),
        (torch.from_numpy(TABLE), TABLE),
        (CUBE.tolist(), CUBE),
        (list(CUBE), CUBE),
        ([pd.DataFrame(sequence) for sequence in CUBE], CUBE),
        ([sequence.tolist() for sequence in RAGGED], RAGGED),
        ([sequence[:, None] for sequence in RAGGED], RAGGED),
        (tuple(map(torch.from_numpy, RAGGED)), RAGGED),
        (np.array(RAGGED, dtype=object), RAGGED),
    ],
)
def test_forms_of_the_same_sequences(X, same):
    assert_equal(read(X), read(same))


def test_padding_with_nan_ends_a_sequence():
    padded = np.full((3, 5, 1), np.nan)
    for i, sequence in enumerate(RAGGED):
        padded[i, : len(sequence), 0] = sequence
    assert_equal(read(padded), read(RAGGED))
    assert read(padded).lengths.tolist() == [3, 5, 1]


def test_split_and_select():
    sequences = read(RAGGED)
    assert [part[:, 0].tolist() for part in sequences.split()] == [part.tolist() for part in RAGGED]
    assert [len(part) for part in sequences.select(np.array([True, False, True])).split()] == [3, 1]
    assert len(sequences) == 3


@pytest.mark.parametrize(
    ("X", "features", "channels"),
    [(TABLE, 4, 1), (CUBE, 2, 2), (RAGGED, 1, 1), (list(TABLE), 1, 1), (list(CUBE), 2, 2)],
)
def test_attributes(X, features, channels):
    estimator = Any()
    validate_sequences(estimator, X, reset=True)
    assert (estimator.n_features_in_, estimator.n_channels_) == (features, channels)
    assert estimator.n_steps_ == (4 if X is TABLE else None)


def test_names_of_columns_are_kept_and_forgotten():
    estimator = Any()
    validate_sequences(estimator, pd.DataFrame(TABLE, columns=list("abcd")), reset=True)
    assert estimator.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    with pytest.raises(ValueError, match="feature names should match"):
        validate_sequences(estimator, pd.DataFrame(TABLE, columns=list("abdc")), reset=False)
    validate_sequences(estimator, CUBE, reset=True)
    assert not hasattr(estimator, "feature_names_in_")


def test_sequences_may_be_longer_later_but_rows_of_a_table_may_not():
    assert len(read([np.zeros(9)], like=RAGGED)) == 1
    assert len(read(np.zeros((1, 9, 2)), like=CUBE)) == 1
    assert len(read(RAGGED, like=TABLE)) == 3
    assert len(read(TABLE, like=RAGGED)) == 3
    with pytest.raises(ValueError, match="X has 3 features, but Any is expecting 4 features as input"):
        read(TABLE[:, :3], like=TABLE)


@pytest.mark.parametrize(
    ("X", "like", "message"),
    [
        (TABLE, CUBE, "X has 1 channels, but Any is expecting 2 channels as input"),
        (CUBE, RAGGED, "X has 2 channels, but Any is expecting 1 channels as input"),
        ([np.zeros((3, 2)), np.zeros((3, 1))], None, r"X\[1\] has 1 channels, but X\[0\] has 2"),
        ([np.zeros(3), np.zeros(0)], None, r"X\[1\] must be \(T,\) or \(T, channels\) .* got shape \(0,\)"),
        ([np.zeros(3), np.zeros((2, 2, 2))], None, r"X\[1\] must be .* got shape \(2, 2, 2\)"),
        ([np.zeros(3), 7], None, r"X\[1\] must be .* got shape \(\)"),
        ([np.zeros(3), ["one", "two"]], None, r"X\[1\] must be an array of numbers"),
        ([np.zeros(3), np.array([1, np.nan])], None, r"Input X contains NaN or infinity: X\[1\]"),
        ([np.zeros(3), np.array([1, np.inf])], None, r"Input X contains NaN or infinity: X\[1\]"),
        (np.array([[[1.0], [np.nan], [2.0]]]), None, r"Input X contains NaN: X\[0, 1\]\. Only the steps after the end"),
        (np.array([[[1.0, 1.0], [np.nan, 2.0]]]), None, r"Input X contains NaN: X\[0, 1\]"),
        (np.array([[[1.0]], [[np.nan]]]), None, r"Input X contains NaN: X\[1\] has no step that is not NaN"),
        (np.array([[[np.inf]]]), None, "Input X contains infinity"),
        (np.array([[1.0, np.nan]]), None, "Input X contains NaN"),
        (np.zeros((0, 4, 2)), None, "Found array with 0 sample"),
        (np.zeros((2, 0, 2)), None, r"at least one sequence, step and channel, got shape \(2, 0, 2\)"),
        (np.zeros((2, 2, 2, 2)), None, "Found array with dim 4"),
        (np.zeros(4), None, "Expected 2D array, got 1D array instead"),
        ([], None, "Expected 2D array, got 1D array instead"),
        ([1.0, 2.0], None, "Expected 2D array, got 1D array instead"),
    ],
)
def test_other_input_is_refused(X, like, message):
    with pytest.raises(ValueError, match=message):
        read(X, like)


def test_a_batch_is_padded_to_its_longest_sequence():
    tensors = SequenceTensors(read(RAGGED), Scaling.identity(1))
    input, lengths = tensors.take(torch.tensor([2, 0]))
    assert input.shape == (3, 2, 1)
    assert input[..., 0].T.tolist() == [[0, 0, 0], [0, 1, 2]]
    assert lengths.tolist() == [1, 3]
    input, lengths = SequenceTensors(read(TABLE), Scaling.identity(1)).take(torch.tensor([1]))
    assert (input[..., 0].T.tolist(), lengths) == ([[4, 5, 6, 7]], None)


def test_scaling_gives_mean_0_and_deviation_1():
    values = np.random.default_rng(0).normal(3, 7, size=(50, 2)) * [1, 1e200]
    scaling = Scaling.measure(values)
    scaled = scaling.apply(values)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), 1)
    np.testing.assert_allclose(scaling.undo(scaled), values)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e300, -5e-300])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_constant_column_is_not_blown_up(value, dtype):
    values = np.full((1000, 1), value).clip(-1e30, 1e30).astype(dtype)
    scaling = Scaling.measure(values)
    assert scaling.deviation == 1
    assert np.abs(scaling.apply(values)).max() <= 1e-6 * max(abs(values).max(), 1)


def test_huge_values_stay_finite():
    scaling = Scaling.measure(np.array([[0.0], [1e-5]]))
    assert np.isfinite(scaling.apply(np.array([[1e308], [-1e308]])).astype(np.float32)).all()


def test_sequences_are_no_copies():
    sequences = read(TABLE)
    assert isinstance(sequences, Sequences)
    assert np.shares_memory(sequences.select(np.ones(3, bool)).values, sequences.values)
