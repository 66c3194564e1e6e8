"""ClockworkClassifier: names the class of a sequence."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d
from torch import Tensor

from ..tensor_files import FormatError
from ..untrusted import shorten
from .saving import check_fields
from .sequence_estimator import SequenceEstimator
from .sequences import validate_sequences

LABEL_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64")
"""The dtypes of labels that are numbers; other labels are texts."""


class ClockworkClassifier(ClassifierMixin, SequenceEstimator):  # type: ignore[misc]
    """A classifier of sequences: a Clockwork RNN that reads each sequence and names its class at the end.

    X is an array or DataFrame (n, T) of n sequences with one channel; an array (n, T, channels), in which a sequence
    that ends early has NaN from its end on; or a list of arrays (T_i,) or (T_i, channels) of any lengths.

    Args:
        cell: "rnn", "lstm" or "gru": the cell of the hidden units
        hidden_size: the number of hidden units. Default: those of `schedule` if it says how many, else 128
        schedule: the clocks: a :class:`~cwrnn.Schedule`, its text ("1:64,8:64"), a list of periods, or the number of
            modules with periods 1, 2, 4, ... Default: None, from the rhythms in the data (`propose_schedule`)
        num_layers: the number of layers
        bidirectional: if True, a second network reads each sequence from its end
        dropout: the probability of dropout on the output of every layer
        scale: if True, every channel is brought to mean 0 and deviation 1
        class_weight: "balanced", or a dict of labels and their weights. Default: None, all classes weigh the same
        learning_rate: the highest learning rate of AdamW
        rate_shape: "one-cycle", in which the rate rises and then falls; "cosine", in which it falls; or "constant"
        max_epochs: the number of epochs, at most
        batch_size: the number of sequences in a batch; "auto" for an eighth of all, from 8 to 64
        early_stopping: if True, a share of the sequences is held out, training stops when their loss no longer falls,
            and the best weights are kept; "auto" for True if at least 10 sequences would be held out
        validation_fraction: the share that is held out
        patience: the number of epochs without a lower loss after which training stops; None for never
        clip: the largest norm of the gradient; None for no limit
        weight_decay: the weight decay of AdamW
        max_seconds: the time after which training stops; None for no limit. The result then depends on the machine's
            speed
        random_state: an integer makes `fit` reproducible to the bit on one machine; or a RandomState, or None
        device: "auto" for the GPU if there is one, or the name of a device of torch
        verbose: if True, a progress bar is drawn on standard error (rich)

    Attributes:
        classes_: the labels of the classes, sorted
        schedule_: the clocks of the network
        network_: the network, a torch module that maps (T, B, channels) and lengths (B,) to outputs (B, outputs)
        scaling_: the mean and deviation of every channel
        loss_curve_: the training loss of every epoch
        validation_curve_: the loss of the sequences that were held out, after every epoch; empty if there are none
        n_iter_: the number of epochs
        best_epoch_: the epoch, counted from 1, whose weights were kept
        stopped_: the reason of the end: "max_epochs", "patience", "max_seconds" or "diverged"
        n_channels_: the number of channels
        n_steps_: the length of the rows if X was a table (n, T), which `predict` then expects; else None, for any
        n_features_in_: the length of the rows if X was a table (n, T), else the number of channels
        feature_names_in_: the names of the columns, if X was a table with names

    >>> rng = np.random.default_rng(0)
    >>> X, y = 0.3 * rng.normal(size=(120, 150)), rng.choice(["down", "up"], size=120)
    >>> X[:, 0] = np.where(y == "up", 1, -1)  # the first of 150 steps decides
    >>> classifier = ClockworkClassifier(hidden_size=32, max_epochs=20, random_state=0).fit(X[:60], y[:60])
    >>> classifier.score(X[60:], y[60:]) > 0.9
    True
    """

    classes_: NDArray[Any]

    def __init__(
        self,
        *,
        cell: str = "rnn",
        hidden_size: int | None = None,
        schedule: Any = None,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        scale: bool = True,
        class_weight: Any = None,
        learning_rate: float = 5e-3,
        rate_shape: str = "one-cycle",
        max_epochs: int = 100,
        batch_size: int | str = "auto",
        early_stopping: bool | str = "auto",
        validation_fraction: float = 0.1,
        patience: int | None = 20,
        clip: float | None = 1.0,
        weight_decay: float = 0.0,
        max_seconds: float | None = None,
        random_state: Any = None,
        device: Any = "auto",
        verbose: bool | int = False,
    ) -> None:
        super().__init__(
            cell=cell, hidden_size=hidden_size, schedule=schedule, num_layers=num_layers, bidirectional=bidirectional,
            dropout=dropout, scale=scale, learning_rate=learning_rate, rate_shape=rate_shape, max_epochs=max_epochs,
            batch_size=batch_size, early_stopping=early_stopping, validation_fraction=validation_fraction,
            patience=patience, clip=clip, weight_decay=weight_decay, max_seconds=max_seconds,
            random_state=random_state, device=device, verbose=verbose,
        )  # fmt: skip
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ClockworkClassifier":
        """Trains a network on the sequences X and their classes y, and returns the classifier.

        Args:
            X: the sequences, in one of the forms that the class describes
            y: the label of the class of each sequence (n,): numbers or texts
            sample_weight: the weight of each sequence (n,); one of weight 0 is left out. Default: all weigh the same
        """
        self._require_target(y)
        self._check_parameters()
        sequences = validate_sequences(self, X, reset=True)
        y = column_or_1d(check_array(y, ensure_2d=False, dtype=None, input_name="y"), warn=True)
        check_consistent_length(sequences, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        numbers = numbers.astype(np.int64)
        weights = self._validate_weights(sample_weight, len(sequences))
        if self.class_weight is not None:
            shares = compute_class_weight(self.class_weight, classes=self.classes_, y=y)[numbers]
            weights = self._validate_weights(shares if weights is None else shares * weights, len(sequences))
        sequences, numbers, weights = self._drop_weightless(sequences, numbers, weights)
        self._fit(
            sequences,
            numbers,
            weights,
            compute_losses=_compute_losses,
            output_size=len(self.classes_),
            strata=numbers,
        )
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability (n, classes) of each class, in the order of `classes_`, for each sequence in X."""
        probabilities: NDArray[np.float64] = torch.from_numpy(self._compute_outputs(X)).softmax(dim=1).numpy()
        return probabilities

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of `predict_proba`, computed without a loss of precision near 0."""
        logarithms: NDArray[np.float64] = torch.from_numpy(self._compute_outputs(X)).log_softmax(dim=1).numpy()
        return logarithms

    def predict(self, X: Any) -> NDArray[Any]:
        """The label (n,) of the most probable class of each sequence in X."""
        chosen = self._compute_outputs(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def _describe_target(self) -> dict[str, Any]:
        kind = self.classes_.dtype.name if self.classes_.dtype.kind in "biuf" else self.classes_.dtype.kind
        values = self.classes_.tolist()
        if kind not in LABEL_TYPES and not (kind in "UO" and all(isinstance(value, str) for value in values)):
            raise ValueError(f"classes_ must be numbers or texts to be saved, got {shorten(repr(self.classes_))}")
        return {"dtype": kind, "labels": values}

    def _restore_target(self, description: Any, outputs: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        description = check_fields("target", description, {"dtype": str, "labels": list})
        kind, labels = description["dtype"], description["labels"]
        expected = str if kind in ("U", "O") else bool if kind == "bool" else (int, float)
        if kind not in (*LABEL_TYPES, "U", "O") or not all(isinstance(label, expected) for label in labels):
            raise FormatError(f"target.labels must be numbers or texts, got {shorten(str(description))}")
        try:
            self.classes_ = np.array(labels, dtype=kind)
        except (OverflowError, ValueError) as error:
            raise FormatError(f"target.labels must be {kind}: {error}") from error
        if len(labels) != outputs or not np.array_equal(np.unique(self.classes_), self.classes_):
            raise FormatError(f"target.labels must be {outputs} sorted labels, got {shorten(str(labels))}")


def _compute_losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")
