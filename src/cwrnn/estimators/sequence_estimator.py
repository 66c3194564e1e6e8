"""SequenceEstimator: what ClockworkClassifier and ClockworkRegressor share, which is all but their targets."""

import copy
import math
import warnings
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted
from torch import Tensor

from ..layer import AnyLayer
from ..schedule import Schedule
from ..tensor_files import name_problems
from .clocks import propose_schedule
from .saving import LAYERS, read_model, write_model
from .sequence_files import describe_estimator, restore_estimator
from .sequence_network import SequenceNetwork
from .sequences import Scaling, Sequences, SequenceTensors, validate_sequences
from .training import TrainingCurve, TrainingSettings, fit_network, seed_torch, select_device, show_training

DEFAULT_HIDDEN_SIZE = 128
"""The number of hidden units, if neither `hidden_size` nor `schedule` says it."""

FEWEST_HELD_OUT = 10
"""With early_stopping="auto", sequences are held out if they are at least this many."""

MOST_STEPS = 2**20
"""The most steps of all sequences of a batch in `predict`."""

Estimator = TypeVar("Estimator", bound="SequenceEstimator")


class SequenceEstimator(BaseEstimator):  # type: ignore[misc]
    """The base class of the classifier and the regressor: parameters, training, outputs of the network, and files."""

    network_: SequenceNetwork
    scaling_: Scaling
    schedule_: Schedule
    n_features_in_: int
    n_channels_: int
    n_steps_: int | None
    loss_curve_: list[float]
    validation_curve_: list[float]
    n_iter_: int
    best_epoch_: int
    stopped_: str

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
        self.cell = cell
        self.hidden_size = hidden_size
        self.schedule = schedule
        self.num_layers = num_layers
        self.bidirectional = bidirectional
        self.dropout = dropout
        self.scale = scale
        self.learning_rate = learning_rate
        self.rate_shape = rate_shape
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.clip = clip
        self.weight_decay = weight_decay
        self.max_seconds = max_seconds
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "network_" in state and next(self.network_.parameters()).device.type != "cpu":
            # a pickle must load on a machine without a GPU
            state["network_"] = copy.deepcopy(self.network_).cpu()
        return state

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the fitted estimator to one safetensors file, completely or not at all; an existing file is replaced.

        Raises a ValueError if a parameter or a label cannot be written as JSON, and an OSError if the file cannot be
        written.
        """
        check_is_fitted(self)
        write_model(Path(path), type(self).__name__, *describe_estimator(self))

    @classmethod
    def load(cls: type[Estimator], path: str | PathLike[str]) -> Estimator:
        """The estimator saved in `path`. Nothing in the file is executed; a ModelError names what is wrong with it."""
        with name_problems(Path(path)):
            fields, arrays = read_model(Path(path), cls.__name__)
            estimator = cls()
            restore_estimator(estimator, fields, arrays)
            return estimator

    def _describe_target(self) -> dict[str, Any]:
        """What a file says about the target, for JSON."""
        raise NotImplementedError

    def _restore_target(self, description: Any, outputs: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Sets the attributes that `_describe_target` described, after a check of each."""
        raise NotImplementedError

    def _list_scalings(self) -> dict[str, Scaling]:
        """All scalings of the estimator, by their names in a file."""
        return {"scaling": self.scaling_}

    def _fit(
        self,
        sequences: Sequences,
        targets: NDArray[Any],
        weights: NDArray[np.float64] | None,
        *,
        compute_losses: Callable[[Tensor, Tensor], Tensor],
        output_size: int,
        strata: NDArray[np.int64] | None = None,
    ) -> None:
        """Builds and trains the network, and sets the attributes that describe it.

        Args:
            sequences: the sequences
            targets: the targets (n, ...), in the dtype that `compute_losses` takes
            weights: the weights (n,) of the sequences; None if all weigh the same
            compute_losses: the losses (B,) of outputs (B, O) and targets (B, ...)
            output_size: O, the number of outputs
            strata: numbers (n,), each of which is held out in equal shares; None to hold out any
        """
        device = select_device(self.device)
        settings = self._make_settings(len(sequences))
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.scaling_ = Scaling.measure(sequences.values) if self.scale else Scaling.identity(sequences.channels)
        self.schedule_ = self._choose_schedule(sequences)
        with seed_torch(seed, device):
            network = SequenceNetwork(self._make_layer(), output_size, float(self.dropout)).to(device)
        inputs = SequenceTensors(sequences, self.scaling_, device)
        on_device = torch.from_numpy(targets).to(device)
        shares = None
        if weights is not None:
            shares = torch.from_numpy((weights / weights.mean()).astype(np.float32)).to(device)

        def compute_loss(items: Tensor) -> Tensor:
            losses = compute_losses(network(*inputs.take(items)), on_device[items])
            return losses.mean() if shares is None else (losses * shares[items]).mean()

        train, held_out = self._hold_out(len(sequences), strata, np.random.RandomState(seed))
        with show_training(self.verbose, type(self).__name__) as progress:
            curve = fit_network(network, compute_loss, train, held_out, settings, seed=seed, progress=progress)
        self.network_ = network
        self._keep_curve(curve)

    def _compute_outputs(self, X: Any) -> NDArray[np.float64]:
        """The outputs (n, O) of the network for the sequences in X."""
        check_is_fitted(self)
        sequences = validate_sequences(self, X, reset=False)
        device = select_device(self.device)
        network = self.network_.to(device)
        inputs = SequenceTensors(sequences, self.scaling_, device)
        batch = max(1, MOST_STEPS // int(sequences.lengths.max()))
        with torch.no_grad():
            states = [
                network.read(*inputs.take(items)) for items in torch.arange(len(inputs), device=device).split(batch)
            ]
            # in float32 the result would depend on the number of sequences, in its last bits
            weight, bias = network.readout.weight.double(), network.readout.bias.double()
            outputs: NDArray[np.float64] = F.linear(torch.cat(states).double(), weight, bias).cpu().numpy()
        return check_finite(outputs)

    def _validate_weights(self, sample_weight: Any, n: int) -> NDArray[np.float64] | None:
        """The weights (n,) of the sequences; None if all weigh the same."""
        if sample_weight is None:
            return None
        weights: NDArray[np.float64]
        weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
        if weights.ndim != 1:
            raise ValueError(f"Sample weights must be 1D array, got shape {weights.shape}")
        check_consistent_length(np.empty(n), weights)
        if (weights < 0).any():
            raise ValueError("Negative values in data passed to `sample_weight`")
        if not weights.any():
            raise ValueError("Sample weights must contain at least one non-zero number")
        return weights

    def _drop_weightless(
        self, sequences: Sequences, targets: NDArray[Any], weights: NDArray[np.float64] | None
    ) -> tuple[Sequences, NDArray[Any], NDArray[np.float64] | None]:
        """Sequences, targets and weights without those that have the weight 0."""
        if weights is None or weights.all():
            return sequences, targets, weights
        kept = weights > 0
        return sequences.select(kept), targets[kept], weights[kept]

    def _require_target(self, y: Any) -> None:
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")

    def _check_parameters(self) -> None:
        """Refuses values of parameters that neither the layer nor the training checks."""
        if self.cell not in LAYERS:
            raise ValueError(f"cell must be one of {', '.join(LAYERS)}, got {self.cell!r}")
        if self.hidden_size is not None:
            _check_count("hidden_size", self.hidden_size)
        _check_count("num_layers", self.num_layers)
        _check_share("dropout", self.dropout, zero=True)
        _check_share("validation_fraction", self.validation_fraction)
        if not (isinstance(self.early_stopping, (bool, np.bool_)) or self.early_stopping == "auto"):
            raise ValueError(f"early_stopping must be True, False or 'auto', got {self.early_stopping!r}")
        self._make_settings(1)

    def _make_settings(self, n: int) -> TrainingSettings:
        """The settings of the training of n sequences."""
        batch_size = self.batch_size
        if isinstance(batch_size, str):
            if batch_size != "auto":
                raise ValueError(f"batch_size must be an integer of at least 1 or 'auto', got {batch_size!r}")
            batch_size = min(max(n // 8, 8), 64)
        return TrainingSettings(
            learning_rate=self.learning_rate,
            max_epochs=self.max_epochs,
            batch_size=batch_size,
            patience=self.patience,
            clip=self.clip,
            weight_decay=self.weight_decay,
            rate_shape=self.rate_shape,
            max_seconds=self.max_seconds,
        )

    def _choose_schedule(self, sequences: Sequences) -> Schedule:
        """The schedule that the parameters give, or that the sequences suggest."""
        schedule = Schedule.parse(self.schedule) if isinstance(self.schedule, str) else self.schedule
        hidden_size = self.hidden_size
        if hidden_size is None:
            hidden_size = schedule.hidden_size if isinstance(schedule, Schedule) else DEFAULT_HIDDEN_SIZE
        if schedule is None:
            return propose_schedule(sequences.split(), int(hidden_size))
        return Schedule.resolve(schedule, int(hidden_size))

    def _make_layer(self) -> AnyLayer:
        layer: AnyLayer = LAYERS[self.cell](
            self.n_channels_,
            self.schedule_.hidden_size,
            int(self.num_layers),
            bidirectional=bool(self.bidirectional),
            dropout=float(self.dropout) if self.num_layers > 1 else 0.0,
            schedule=self.schedule_,
        )
        return layer

    def _hold_out(
        self, n: int, strata: NDArray[np.int64] | None, random: np.random.RandomState
    ) -> tuple[Tensor, Tensor | None]:
        """The numbers of the sequences to learn from, and of those that decide when to stop."""
        if self.early_stopping == "auto":
            is_wanted = n * self.validation_fraction >= FEWEST_HELD_OUT
        else:
            is_wanted = bool(self.early_stopping)
        groups = [np.arange(n)] if strata is None else [np.flatnonzero(strata == k) for k in np.unique(strata)]
        # of each group, at least one stays
        counts = [min(round(self.validation_fraction * len(group)), len(group) - 1) for group in groups]
        if not is_wanted or sum(counts) == 0:
            return torch.arange(n), None
        held_out = np.zeros(n, dtype=bool)
        for group, count in zip(groups, counts, strict=True):
            held_out[random.permutation(group)[:count]] = True
        return torch.from_numpy(np.flatnonzero(~held_out)), torch.from_numpy(np.flatnonzero(held_out))

    def _keep_curve(self, curve: TrainingCurve) -> None:
        if curve.stopped == "diverged":
            warnings.warn(
                f"the loss was not finite in epoch {curve.epochs}: the weights of epoch {curve.best_epoch} were kept; "
                f"learning_rate={self.learning_rate} may be too high",
                ConvergenceWarning,
                stacklevel=4,
            )
        # JSON has no numbers that are not finite
        self.loss_curve_ = [loss for loss in curve.train if math.isfinite(loss)]
        self.validation_curve_ = [loss for loss in curve.validation if math.isfinite(loss)]
        self.n_iter_ = curve.epochs
        self.best_epoch_ = curve.best_epoch
        self.stopped_ = curve.stopped


def check_finite(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns `outputs`; raises a FloatingPointError unless all are finite, as weights from a file may prevent."""
    if not np.isfinite(outputs).all():
        raise FloatingPointError("the outputs are not finite numbers: the weights of the network are too large")
    return outputs


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def _check_share(name: str, value: Any, *, zero: bool = False) -> None:
    # NaN is in no range
    is_inside = isinstance(value, Real) and 0 <= float(value) < 1 and (zero or value != 0)
    if isinstance(value, bool) or not is_inside:
        raise ValueError(f"{name} must be a number {'from 0 to' if zero else 'above 0 and'} below 1, got {value!r}")
