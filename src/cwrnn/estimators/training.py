"""The training loop of all estimators: any network, and a function that computes the loss of a batch.

`fit_network` trains with AdamW on shuffled batches of item numbers. After each epoch it measures the loss of the items
that were held out; when that no longer falls, it stops and goes back to the best weights. With `average`, all of this
is about the mean of the weights over the training. Only the loss function knows what an item is: a sequence, or a
window of a series.

One seed decides the initial weights, the order of the batches and the dropout, and torch's global generators stay as
they are. Two trainings with the same seed, data and settings on the same machine have the same bits, unless they have a
time limit.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn

from ..extras import require
from .weight_mean import WeightMean

RATE_SHAPES = ("constant", "cosine", "one-cycle")
"""The ways in which the learning rate changes over a training."""
WARM_UP = 0.1
"""The share of a one-cycle training in which the learning rate rises."""
FIRST_RATE = 0.04
"""The first learning rate of a one-cycle training, as a share of the highest."""
LAST_RATE = 0.01
"""The last learning rate of a training whose rate falls, as a share of the highest."""

BatchLoss = Callable[[Tensor], Tensor]
"""Computes the mean loss, a scalar, of a batch of items: int64 numbers (B,) on the device of the network."""


class TrainingError(RuntimeError):
    """A training came to no result, because the loss was not a finite number from the start."""


@dataclass(frozen=True)
class TrainingSettings:
    """The settings of a training.

    >>> TrainingSettings(max_epochs=0)
    Traceback (most recent call last):
        ...
    ValueError: max_epochs must be an integer of at least 1, got 0
    """

    learning_rate: float = 3e-3
    """The highest learning rate of AdamW."""
    max_epochs: int = 50
    """The number of epochs, at most."""
    batch_size: int = 32
    """The number of items in a batch."""
    patience: int | None = 8
    """Training stops after this many epochs without a lower validation loss; None for never. Without held-out items,
    the training loss counts instead."""
    tolerance: float = 0.0
    """A loss counts as lower if it is lower by this share of the best one."""
    clip: float | None = 1.0
    """The largest norm of the gradient; None for no limit."""
    weight_decay: float = 0.0
    """The weight decay of AdamW."""
    rate_shape: str = "constant"
    """"constant"; "cosine", which falls from the start to the end; or "one-cycle", which rises at first, then falls."""
    average: bool = False
    """Whether the network gets the mean of its weights over all updates (weight_mean.py). The held-out items then
    measure that mean."""
    max_seconds: float | None = None
    """Training stops after the first batch that ends later than this; None for no limit. The learning rate then falls
    with the time, if that passes faster than the epochs."""

    def __post_init__(self) -> None:
        _check_integer("max_epochs", self.max_epochs)
        _check_integer("batch_size", self.batch_size)
        if self.patience is not None:
            _check_integer("patience", self.patience)
        _check_number("learning_rate", self.learning_rate)
        _check_number("tolerance", self.tolerance, zero=True)
        _check_number("weight_decay", self.weight_decay, zero=True)
        for name in ("clip", "max_seconds"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name))
        if self.rate_shape not in RATE_SHAPES:
            raise ValueError(f"rate_shape must be one of {', '.join(RATE_SHAPES)}, got {self.rate_shape!r}")


@dataclass(frozen=True)
class TrainingCurve:
    """The course of a training."""

    train: tuple[float, ...]
    """The mean loss of the training items in each epoch, measured while the weights changed."""
    validation: tuple[float, ...]
    """The mean loss of the held-out items after each epoch; empty if there are none."""
    best_epoch: int
    """The epoch, counted from 1, whose weights the network has."""
    stopped: str
    """The reason of the end: "max_epochs", "patience", "max_seconds" or "diverged"."""
    seconds: float
    """The time of the training."""

    @property
    def epochs(self) -> int:
        """The number of epochs; the last one may have been cut short by the time limit."""
        return len(self.train)

    @property
    def best_loss(self) -> float:
        """The validation loss of the weights that the network has, or their training loss if nothing was held out."""
        return (self.validation or self.train)[self.best_epoch - 1]


@dataclass(frozen=True)
class TrainingProgress:
    """How far a training has come, after each batch."""

    epoch: int
    """The current epoch, counted from 1."""
    max_epochs: int
    """The number of epochs, at most."""
    fraction: float
    """The share of all batches, or of the time limit, that has passed, from 0 to 1."""
    train_loss: float | None
    """The training loss of the last finished epoch, or None in the first."""
    validation_loss: float | None
    """The validation loss of the last finished epoch, or None if there is none."""


TrainingCallback = Callable[[TrainingProgress], None]


def select_device(device: str | torch.device = "auto") -> torch.device:
    """The device that `device` names; "auto" is the GPU if torch can use one, and the CPU otherwise.

    >>> select_device("cpu")
    device(type='cpu')
    """
    if isinstance(device, str) and device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device must be 'auto' or the name of a device of torch, got {device!r}") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} cannot be used: torch finds no GPU")
    return chosen


@contextmanager
def seed_torch(seed: int, device: torch.device) -> Iterator[None]:
    """Within the context, torch's global generators start from `seed`; afterwards they are as before.

    >>> before = torch.get_rng_state()
    >>> with seed_torch(0, torch.device("cpu")):
    ...     first = torch.rand(3)
    >>> torch.equal(torch.get_rng_state(), before)
    True
    """
    cuda = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=cuda):
        # torch.manual_seed would also seed the other GPUs, whose state is not restored
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def fit_network(
    network: nn.Module,
    compute_loss: BatchLoss,
    train_items: Tensor,
    validation_items: Tensor | None = None,
    settings: TrainingSettings | None = None,
    *,
    seed: int,
    rate_shares: Mapping[Tensor, Tensor] | None = None,
    progress: TrainingCallback | None = None,
) -> TrainingCurve:
    """Trains a network in place and returns the course of the training. The network is in evaluation mode afterwards.

    Args:
        network: the network, on the device that it trains on
        compute_loss: the mean loss of a batch of items, with the network in training or evaluation mode
        train_items: the numbers (n,) of the items to learn from, int64
        validation_items: the numbers of the items that are held out; None or empty for none, then the network keeps its
            last weights, or their mean
        settings: the settings of the training. Default: TrainingSettings()
        seed: the seed of the order of the batches and of dropout
        rate_shares: the learning rates of some parameters, as shares of the usual one, in shapes that broadcast to
            those of the parameters. Default: None, all parameters learn at the same rate
        progress: called after each batch; an exception in it stops the training

    Raises:
        ValueError: there are no training items
        TrainingError: the loss is not finite in the first epoch. If this happens later, the training ends and the
            network has its best weights

    >>> with seed_torch(0, torch.device("cpu")):
    ...     line, x = nn.Linear(1, 1), torch.randn(64, 1)
    >>> curve = fit_network(line, lambda items: (line(x[items]) - 2 * x[items]).square().mean(), torch.arange(64),
    ...                     settings=TrainingSettings(learning_rate=0.1, batch_size=8, patience=None), seed=0)
    >>> round(line.weight.item(), 2), curve.epochs
    (2.0, 50)
    """
    if train_items.numel() == 0:
        raise ValueError("train_items is empty, expected at least one item to learn from")
    if validation_items is not None and validation_items.numel() == 0:
        validation_items = None
    loop = _Loop(network, compute_loss, settings or TrainingSettings(), rate_shares or {}, progress)
    with seed_torch(seed, loop.device):
        return loop.run(train_items, validation_items, torch.Generator().manual_seed(seed))


def measure_loss(network: nn.Module, compute_loss: BatchLoss, items: Tensor, batch_size: int) -> float:
    """The mean loss of items, with the network in evaluation mode and without gradients."""
    device, total = _find_device(network), 0.0
    network.eval()
    with torch.no_grad():
        losses = [(len(batch), compute_loss(batch)) for batch in items.to(device).split(batch_size)]
    for count, loss in losses:
        total += count * loss.item()
    return total / len(items)


@contextmanager
def show_training(verbose: bool | int | TrainingCallback, title: str = "training") -> Iterator[TrainingCallback | None]:
    """Yields a callback that draws a progress bar on standard error; `verbose` if it is one; None unless `verbose`."""
    if callable(verbose) or not verbose:
        yield verbose if callable(verbose) else None
        return
    rich = require("rich.progress", extra="estimators", purpose="verbose=True")
    console = require("rich.console", extra="estimators", purpose="verbose=True").Console(stderr=True)
    columns = [
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.fields[losses]}"),
        rich.TimeElapsedColumn(),
    ]
    with rich.Progress(*columns, console=console) as bars:
        bar = bars.add_task(title, total=1.0, losses="")

        def draw(progress: TrainingProgress) -> None:
            losses = "" if progress.train_loss is None else f"loss {progress.train_loss:.4g}"
            if progress.validation_loss is not None:
                losses += f", held out {progress.validation_loss:.4g}"
            bars.update(
                bar,
                completed=progress.fraction,
                description=f"{title}, epoch {progress.epoch} of at most {progress.max_epochs}",
                losses=losses,
            )

        yield draw


class _Loop:
    """A training while it runs."""

    def __init__(
        self,
        network: nn.Module,
        compute_loss: BatchLoss,
        settings: TrainingSettings,
        rate_shares: Mapping[Tensor, Tensor],
        progress: TrainingCallback | None,
    ) -> None:
        self.network, self.compute_loss, self.settings, self.progress = network, compute_loss, settings, progress
        self.rate_shares = rate_shares
        self.device = _find_device(network)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(
            self.parameters, lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self.mean = WeightMean(self.parameters) if settings.average else None
        self.train: list[float] = []
        self.validation: list[float] = []
        self.steps = 0
        self.started = time.monotonic()

    def run(self, train_items: Tensor, validation_items: Tensor | None, generator: torch.Generator) -> TrainingCurve:
        """Trains epoch after epoch until there is a reason to stop."""
        settings = self.settings
        total = settings.max_epochs * math.ceil(len(train_items) / settings.batch_size)
        best_loss, best_epoch, best = math.inf, 0, dict[str, Tensor]()
        stopped = "max_epochs"
        for epoch in range(1, settings.max_epochs + 1):
            order = train_items[torch.randperm(len(train_items), generator=generator)]
            self.train.append(self._train_epoch(order, total))
            with nullcontext() if self.mean is None else self.mean.applied():
                if validation_items is not None:
                    self.validation.append(
                        measure_loss(self.network, self.compute_loss, validation_items, settings.batch_size)
                    )
                loss = (self.validation or self.train)[-1]
                if not (math.isfinite(loss) and math.isfinite(self.train[-1])):
                    stopped = "diverged"
                    break
                if best_epoch == 0 or loss < best_loss - settings.tolerance * abs(best_loss):
                    best_loss, best_epoch, best = loss, epoch, _copy_weights(self.network)
            if self._has_no_time():
                stopped = "max_seconds"
                break
            if settings.patience is not None and epoch - best_epoch >= settings.patience:
                stopped = "patience"
                break
        if best_epoch == 0:
            raise TrainingError(
                f"the loss is {self.train[-1]} after the first epoch: learning_rate={settings.learning_rate} may be "
                "too high for these data, or their values too large"
            )
        if validation_items is not None or stopped == "diverged":
            self.network.load_state_dict(best)
        else:
            best_epoch = len(self.train)
            if self.mean is not None:
                self.mean.apply()
        self.network.eval()
        return TrainingCurve(
            tuple(self.train), tuple(self.validation), best_epoch, stopped, time.monotonic() - self.started
        )

    def _train_epoch(self, items: Tensor, total: int) -> float:
        """Takes one step for each batch, and returns the mean loss."""
        settings, count = self.settings, 0
        # added up on the device: to read a number from a GPU is to wait for it
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        self.network.train()
        for batch in items.to(self.device).split(settings.batch_size):
            fraction = self._measure_fraction(total)
            for group in self.optimizer.param_groups:
                group["lr"] = settings.learning_rate * _scale_rate(settings.rate_shape, fraction)
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.compute_loss(batch)
            loss.backward()
            if settings.clip is not None:
                nn.utils.clip_grad_norm_(self.parameters, settings.clip)
            self._change_weights()
            self.steps += 1
            count += len(batch)
            loss_sum += loss.detach() * len(batch)
            self._report(total)
            if self._has_no_time():
                break
        return (loss_sum / count).item()

    def _change_weights(self) -> None:
        """Takes a step of AdamW, of which parameters with a smaller learning rate keep their share."""
        before = [parameter.detach().clone() for parameter in self.rate_shares]
        self.optimizer.step()
        with torch.no_grad():
            for (parameter, share), old in zip(self.rate_shares.items(), before, strict=True):
                parameter.copy_(torch.lerp(old, parameter, share))
        if self.mean is not None:
            self.mean.add()

    def _measure_fraction(self, total: int) -> float:
        """The share of the training that has passed, in steps or in time."""
        fraction, most = self.steps / total, self.settings.max_seconds
        return fraction if most is None else min(max(fraction, (time.monotonic() - self.started) / most), 1.0)

    def _has_no_time(self) -> bool:
        most = self.settings.max_seconds
        return most is not None and time.monotonic() - self.started >= most

    def _report(self, total: int) -> None:
        if self.progress is not None:
            self.progress(
                TrainingProgress(
                    epoch=len(self.train) + 1,
                    max_epochs=self.settings.max_epochs,
                    fraction=self._measure_fraction(total),
                    train_loss=self.train[-1] if self.train else None,
                    validation_loss=self.validation[-1] if self.validation else None,
                )
            )


def _scale_rate(shape: str, fraction: float) -> float:
    """The learning rate at a point of the training, as a share of the highest.

    >>> [round(_scale_rate("one-cycle", fraction), 2) for fraction in (0, 0.05, 0.1, 0.55, 1)]
    [0.04, 0.52, 1.0, 0.5, 0.01]
    """
    if shape == "constant":
        return 1.0
    if shape == "one-cycle":
        if fraction < WARM_UP:
            return FIRST_RATE + (1 - FIRST_RATE) * fraction / WARM_UP
        fraction = (fraction - WARM_UP) / (1 - WARM_UP)
    return LAST_RATE + (1 - LAST_RATE) * (1 + math.cos(math.pi * fraction)) / 2


def _find_device(network: nn.Module) -> torch.device:
    return next(network.parameters()).device


def _copy_weights(network: nn.Module) -> dict[str, Any]:
    """The state_dict of a network, in memory of its own."""
    return {
        name: value.detach().clone() if isinstance(value, Tensor) else value
        for name, value in network.state_dict().items()
    }


def _check_integer(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def _check_number(name: str, value: object, *, zero: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    if value < 0 or (value == 0 and not zero):
        raise ValueError(f"{name} must be {'at least' if zero else 'above'} 0, got {value!r}")
