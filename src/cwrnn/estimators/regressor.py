"""ClockworkRegressor: predicts numbers from a sequence."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length
from torch import Tensor

from ..tensor_files import FormatError
from .saving import check_fields
from .sequence_estimator import SequenceEstimator, check_finite
from .sequence_files import read_scaling
from .sequences import Scaling, validate_sequences


class ClockworkRegressor(MultiOutputMixin, RegressorMixin, SequenceEstimator):  # type: ignore[misc]
    """A regressor of sequences: a Clockwork RNN that reads each sequence and predicts one or more numbers at the end.

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
        loss: "squared_error", or "absolute_error", which cares less about outliers. Targets are scaled like channels
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
        n_outputs_: the number of targets
        target_scaling_: the mean and deviation of every target
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
    >>> X, y = 0.1 * rng.normal(size=(120, 150)), rng.uniform(-1, 1, size=120)
    >>> X[:, 0] = y  # the first of 150 steps decides
    >>> regressor = ClockworkRegressor(hidden_size=32, max_epochs=20, random_state=0).fit(X[:60], y[:60])
    >>> regressor.score(X[60:], y[60:]) > 0.8
    True
    """

    n_outputs_: int
    target_scaling_: Scaling

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
        loss: str = "squared_error",
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
        self.loss = loss

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "ClockworkRegressor":
        """Trains a network on the sequences X and their targets y, and returns the regressor.

        Args:
            X: the sequences, in one of the forms that the class describes
            y: the target of each sequence (n,), or several targets (n, outputs)
            sample_weight: the weight of each sequence (n,); one of weight 0 is left out. Default: all weigh the same
        """
        self._require_target(y)
        self._check_parameters()
        sequences = validate_sequences(self, X, reset=True)
        y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        if y.ndim not in (1, 2):
            raise ValueError(f"y must be (n,) or (n, outputs), got shape {y.shape}")
        check_consistent_length(sequences, y)
        weights = self._validate_weights(sample_weight, len(sequences))
        sequences, y, weights = self._drop_weightless(sequences, y, weights)
        self._target_dimensions = y.ndim
        columns = y.reshape(len(y), -1)
        self.n_outputs_ = columns.shape[1]
        self.target_scaling_ = Scaling.measure(columns)
        self._fit(
            sequences,
            self.target_scaling_.apply(columns).astype(np.float32),
            weights,
            compute_losses=LOSSES[self.loss],
            output_size=self.n_outputs_,
        )
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The predicted targets for each sequence in X: (n,) or (n, outputs), as y was."""
        outputs = self._compute_outputs(X)
        values = check_finite(self.target_scaling_.undo(outputs))
        return values[:, 0] if self._target_dimensions == 1 else values

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.loss!r}")

    def _list_scalings(self) -> dict[str, Scaling]:
        return {**super()._list_scalings(), "target_scaling": self.target_scaling_}

    def _describe_target(self) -> dict[str, Any]:
        return {"dimensions": self._target_dimensions}

    def _restore_target(self, description: Any, outputs: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        dimensions = check_fields("target", description, {"dimensions": int})["dimensions"]
        if dimensions not in (1, 2) or (dimensions == 1 and outputs != 1):
            raise FormatError(f"target.dimensions makes no sense for {outputs} outputs: {dimensions}")
        self._target_dimensions, self.n_outputs_ = dimensions, outputs
        self.target_scaling_ = read_scaling(arrays, "target_scaling", outputs)


def _square_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean(dim=1)


def _measure_errors(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).abs().mean(dim=1)


LOSSES = {"squared_error": _square_errors, "absolute_error": _measure_errors}
"""The losses (B,) of outputs (B, O) and targets (B, O), by their names."""
