"""Running a model on data: batch after batch, in evaluation mode, always from the same random numbers."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..held import Ticks
from ..layer import AnyLayer
from .states import Array

CHANGE, LOSS = "change", "loss"
"""The names of the errors of a model: the change of its output, as a share of the output's variance, and its loss."""

Loss = Callable[[Any, Any], Any]
"""A function from the output of a model and the target of a batch to a number."""
Feed = Callable[[nn.Module], Any]
"""A function that runs a model on some data and returns its output."""


class RefusedCallError(ValueError):
    """A model calls its layer in a way that cannot be inspected."""


@dataclass(frozen=True)
class Outcome:
    """The output of a model on one batch, and its loss if there is one."""

    output: Array
    loss: float | None


class Runner:
    """Runs a model on all batches of its data, each time from the same random numbers."""

    def __init__(self, model: nn.Module, feeds: Iterator[tuple[Feed, Any]], loss: Loss | None) -> None:
        self._model, self._loss = model, loss
        self._unread = feeds
        self._feeds: list[tuple[Feed, Any]] = []

    def run_until(self, is_enough: Callable[[], bool]) -> list[Outcome]:
        """Run the model on batch after batch until there is enough, and remember these batches."""
        outcomes = []
        with _evaluate(self._model):
            for feed, target in self._unread:
                self._feeds.append((feed, target))
                outcomes.append(self._run_one(feed, target))
                if is_enough():
                    break
        if not outcomes:
            raise ValueError("data: there is no batch")
        if self._loss is None and not np.concatenate([outcome.output for outcome in outcomes]).var() > 0:
            raise ValueError("data: the output of the model is constant on them, so it cannot lose anything")
        return outcomes

    def run(self) -> list[Outcome]:
        """Run the model on the same batches again."""
        with _evaluate(self._model):
            return [self._run_one(feed, target) for feed, target in self._feeds]

    def compare(self, outcomes: Sequence[Outcome], intact: Sequence[Outcome]) -> dict[str, float]:
        """The error of the outcomes."""
        if self._loss is not None:
            return {LOSS: float(np.mean([outcome.loss for outcome in outcomes]))}
        changed, before = (np.concatenate([one.output for one in many]) for many in (outcomes, intact))
        return {CHANGE: float(np.square(changed - before).mean() / before.var())}

    def _run_one(self, feed: Feed, target: Any) -> Outcome:
        try:
            output = feed(self._model)
        except RefusedCallError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"data: the model cannot run on them: {error}") from error
        tensor = _find_tensor(output)
        if not tensor.isfinite().all():
            raise ValueError("data: the output of the model is not finite on them")
        loss = None if self._loss is None else float(self._loss(output, target))
        return Outcome(tensor.detach().double().cpu().numpy().ravel(), loss)


@contextmanager
def _evaluate(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode, without gradients and with the same random numbers, and back."""
    modes = {module: module.training for module in model.modules()}
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    model.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=sorted(devices, key=str)):
            torch.manual_seed(0)
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def list_feeds(data: Any, layer: AnyLayer, needs_target: bool) -> Iterator[tuple[Feed, Any]]:
    """Yield a function for each batch that runs the model on it, and the target of the batch."""
    if isinstance(data, (Tensor, np.ndarray)):
        data = [data]
    elif callable(data):
        if needs_target:
            raise ValueError("loss: a function as data has no targets; let it return the output, without a loss")
        yield data, None
        return
    elif not isinstance(data, Iterable) or isinstance(data, (str, bytes, Mapping)):
        raise TypeError(
            f"data must be a tensor, an array, an iterable of batches or a function, got {type(data).__name__}"
        )
    for batch in data:
        target = None
        if needs_target:
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                raise ValueError("loss: every batch of data must be a pair of an input and a target")
            target = _convert(batch[1], layer)
        yield _make_feed(batch[0] if isinstance(batch, (tuple, list)) else batch, layer), target


def _make_feed(batch: Any, layer: AnyLayer) -> Feed:
    if isinstance(batch, Mapping):
        options = {name: _convert(value, layer) for name, value in batch.items()}
        return lambda model: model(**options)
    converted = _convert(batch, layer)
    return lambda model: model(converted)


def _convert(value: Any, layer: AnyLayer) -> Any:
    """An array as a tensor on the layer's device, with its dtype if it has fractions; tensors go to the device."""
    weight = layer.weight_hh_l0
    if isinstance(value, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(value))
        return tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else tensor.dtype)
    on_device: Any = value.to(weight.device) if isinstance(value, (Tensor, PackedSequence)) else value  # type: ignore[arg-type]
    return on_device


def _find_tensor(output: Any) -> Tensor:
    """The output of a model: a tensor, or the first tensor of a tuple, a list or a dictionary."""
    first = output
    if isinstance(first, Ticks):
        first = first.hold()
    if isinstance(first, PackedSequence):
        first = first.data
    if isinstance(first, Mapping):
        first = list(first.values())
    if isinstance(first, (tuple, list)) and len(first) > 0:
        return _find_tensor(first[0])
    if not isinstance(first, Tensor) or not first.is_floating_point() or first.numel() == 0:
        kind = f"a tensor of {first.dtype}" if isinstance(first, Tensor) else type(output).__name__
        raise ValueError(
            f"data: the model must return numbers in a tensor, or begin with one, got {kind}: pass a function of the "
            "model that returns such a tensor"
        )
    return first
