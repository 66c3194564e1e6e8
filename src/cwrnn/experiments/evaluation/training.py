"""Training on the evaluation tasks: one network at a time, on batches of sequences.

    loss = cross entropy, or squared error, mean over the answers of a batch          one update per batch, by Adam

The learning rate rises over the first tenth of all updates and then falls to zero along a cosine. The gradient is cut
to a norm. After every epoch the error of the validation part is measured, by which settings are chosen. The error of a
run is that of the test part, measured once, at the end.

The seconds of a run are those of its updates alone. On a CPU they are the processor time of the one thread that trains,
which other programs on the machine hardly change; on a GPU they are measured by the clock.

SRN, LSTM and GRU are torch's own layers, as users would have them. A network whose hidden layer is fixed (an echo state
network) is fitted by least squares in one pass.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from ... import init
from ...layer import ClockworkLayer
from ...network import Network
from ..networks.build import build_network
from ..networks.descent import SECONDS_BETWEEN_REPORTS
from ..networks.least_squares import fit_readout
from ..networks.methods import ALL_METHODS
from ..networks.models.model_layer import ModelLayer
from ..networks.result import TrainingResult
from ..networks.settings import TrainingSettings
from .examples import TEST, VALIDATION, Batch, Examples

SECOND_MOMENT = 0.999
"""How slowly Adam forgets the squares of gradients; the momentum of the settings is that of the gradients."""
CUT = 1.0
"""The norm to which the gradient is cut, over all parameters."""
WARM_UP = 0.1
"""The share of all updates in which the learning rate rises."""
MOST_MEASURED, MOST_STATES = 500, 2**27
"""The most sequences of a batch when errors are measured, and the most states of all their steps: 512 MiB."""
TORCH_LAYERS: Mapping[str, Callable[[int, int], nn.RNNBase]] = {"srn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
"""The methods that are layers of torch."""
COLUMNS = ("epochs", "seconds", "loss", "validation error")
"""The columns of a learning curve."""


@dataclass(frozen=True)
class EvaluationSettings(TrainingSettings):
    """The hyper-parameters of a run on an evaluation task."""

    momentum: float = 0.9
    modules: int = 1
    peepholes: bool = False
    forget_bias: float = 1.0
    batch: int = 128
    """Sequences of an update."""
    updates: int | None = None
    """The most updates, if they are to be fewer than those of all epochs."""
    device: str = "cpu"
    """The device that trains."""
    inputs: int = 1
    """Features of the input at every step."""
    outputs: int = 1
    """Outputs at every step: classes, or numbers."""

    @property
    def usual_epochs(self) -> int:
        """All epochs are made."""
        return self.epochs

    def count_updates(self, examples: Examples) -> int:
        """The updates of a run."""
        every = self.epochs * examples.count_updates(self.batch)
        return every if self.updates is None else min(every, self.updates)


def build_untrained(method: str, hidden: int, settings: EvaluationSettings, seed: int = 0) -> Network:
    """The network of a run, with its initial weights.

    Layers start as torch's do; the recurrent weights of simple cells are orthogonal within each module, and the forget
    gates of LSTMs have a bias of 1. The readout starts as `torch.nn.Linear` does.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_network(
            method,
            hidden,
            settings.inputs,
            settings.outputs,
            modules=settings.modules,
            schedule=settings.schedule,
            peepholes=settings.peepholes,
            seed=seed,
        ).float()
        layer = network.layer
        if method in TORCH_LAYERS:
            network.layer = layer = TORCH_LAYERS[method](settings.inputs, hidden)
        elif isinstance(layer, ClockworkLayer):
            layer.reset_parameters()
        network.readout.reset_parameters()
    if not ALL_METHODS[method].model:
        if ALL_METHODS[method].cell == "tanh":
            init.orthogonal_(layer, generator=torch.Generator().manual_seed(seed))
        if ALL_METHODS[method].cell == "lstm":
            _set_forget_bias(layer, settings.forget_bias)
    return network


@torch.no_grad()
def _set_forget_bias(layer: nn.Module, value: float) -> None:
    if isinstance(layer, ClockworkLayer):
        init.forget_bias_(layer, value)
        return
    assert isinstance(layer, nn.LSTM)
    N = layer.hidden_size
    # torch adds two biases
    layer.get_parameter("bias_ih_l0")[N : 2 * N] = value
    layer.get_parameter("bias_hh_l0")[N : 2 * N] = 0.0


def answer(network: Network, batch: Batch) -> Tensor:
    """The outputs (A, B, O) of the network at the last A steps of a batch."""
    A = len(batch.target)
    layer, input = network.layer, batch.input
    if A > 1:
        outputs: Tensor = network(input)
        return outputs[-A:]
    # the last state is enough: a layer with clocks does not hold the others
    if isinstance(layer, ClockworkLayer):
        _, final = layer.ticks(input)
    elif isinstance(layer, ModelLayer):
        final = layer(input)[-1:]
    else:
        _, final = layer(input)
    h = final[0] if isinstance(final, tuple) else final
    read: Tensor = network.readout(h)
    return read


def measure_loss(outputs: Tensor, target: Tensor) -> Tensor:
    """The loss of outputs (A, B, O), mean over all answers."""
    if target.dim() == 2:
        return cross_entropy(outputs.flatten(0, 1), target.flatten())
    return mse_loss(outputs, target)


def train(
    method: str,
    hidden: int,
    examples: Examples,
    measure_error: Callable[[Tensor, Tensor], Tensor],
    seed: int,
    settings: EvaluationSettings,
    *,
    progress: Callable[[float], None] | None = None,
) -> TrainingResult:
    """The result of one network.

    The curve has a row for every epoch: `COLUMNS`. The output has the errors of the validation and of the test part. A
    run whose loss ceases to be finite has diverged.

    Args:
        method: one of ALL_METHODS
        hidden: hidden units
        examples: the data
        measure_error: returns the errors of outputs (A, B, O) and targets, one for each answer
        seed: the seed of initial weights and of the order of the examples
        settings: the hyper-parameters
        progress: called about ten times a second with the epochs made, and at the end; if it raises, training stops
    """
    network = build_untrained(method, hidden, settings, seed).to(settings.device)
    with torch.enable_grad():
        return _Training(network, examples, measure_error, seed, settings).run(progress)


class _Training:
    """One network that is being trained."""

    def __init__(
        self,
        network: Network,
        examples: Examples,
        measure_error: Callable[[Tensor, Tensor], Tensor],
        seed: int,
        settings: EvaluationSettings,
    ) -> None:
        self.network, self.examples, self.settings = network, examples, settings
        self.measure_error = measure_error
        # another generator than that of the initial weights
        self.generator = np.random.default_rng([seed, 3])
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        betas = (settings.momentum, SECOND_MOMENT)
        self.optimiser = torch.optim.Adam(self.parameters, lr=settings.learning_rate, betas=betas)
        self.updates, self.made = settings.count_updates(examples), 0
        self.updates_of_epoch = examples.count_updates(settings.batch)
        self.seconds = 0.0
        self.curve: list[tuple[float, float, float, float]] = []

    def run(self, progress: Callable[[float], None] | None) -> TrainingResult:
        """Makes all updates, or stops when the loss is not finite."""
        layer = self.network.layer
        if isinstance(layer, ModelLayer) and layer.is_fixed:
            self._fit()
            if progress is not None:
                progress(float(self.settings.usual_epochs))
            return self._finish(is_finite=True)
        reported, finite = time.perf_counter(), True
        while self.made < self.updates and finite:
            losses = []
            left = min(self.updates_of_epoch, self.updates - self.made)
            for batch in islice(self.examples.make_epoch(self.settings.batch, self.generator), left):
                losses.append(self._learn(batch))
                now = time.perf_counter()
                if progress is not None and now - reported > SECONDS_BETWEEN_REPORTS:
                    progress(self.made / self.updates * self.settings.usual_epochs)
                    reported = now
                if not math.isfinite(losses[-1]):
                    finite = False
                    break
            if finite:
                self._remember(float(np.mean(losses)))
        if progress is not None:
            progress(float(self.settings.usual_epochs))
        return self._finish(is_finite=finite)

    def _warm_up(self, batch: Batch) -> None:
        """Runs forward and backward once without an update: kernels are loaded or compiled before seconds count."""
        loss = measure_loss(answer(self.network, batch), batch.target)
        torch.autograd.grad(loss, self.parameters, allow_unused=True)

    def _learn(self, batch: Batch) -> float:
        """Makes one update, and returns the loss before it."""
        self._set_learning_rate()
        batch = self._move(batch)
        if self.made == 0:
            self._warm_up(batch)
        began = self._now()
        self.optimiser.zero_grad(set_to_none=True)
        loss = measure_loss(answer(self.network, batch), batch.target)
        value = loss.item()
        if math.isfinite(value):
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, CUT)
            self.optimiser.step()
        self.made += 1
        self.seconds += self._now() - began
        return value

    def _set_learning_rate(self) -> None:
        share = self.made / self.updates
        if share < WARM_UP:
            factor = (self.made + 1) / (WARM_UP * self.updates + 1)
        else:
            factor = 0.5 * (1.0 + math.cos(math.pi * (share - WARM_UP) / (1.0 - WARM_UP)))
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.learning_rate * min(1.0, factor)

    def _now(self) -> float:
        device = torch.device(self.settings.device)
        if device.type == "cpu":
            return time.thread_time()
        torch.cuda.synchronize(device)
        return time.perf_counter()

    def _move(self, batch: Batch) -> Batch:
        return Batch(batch.input.to(self.settings.device), batch.target.to(self.settings.device))

    def _fit(self) -> None:
        """Fits the readout of a fixed layer by least squares, in one epoch, or in all updates if they are fewer."""
        began, making = self._now(), 0.0
        self.made = min(self.updates, self.updates_of_epoch)
        batches = islice(self.examples.make_epoch(self.settings.batch, self.generator), self.made)

        def states() -> Iterator[tuple[Tensor, Tensor]]:
            nonlocal making
            while True:
                before = self._now()
                batch = next(batches, None)
                if batch is None:
                    return
                moved = self._move(batch)
                # as in an update, to make the examples takes no seconds of the method
                making += self._now() - before
                A = len(moved.target)
                with torch.no_grad():
                    yield self.network.layer(moved.input)[-A:].flatten(0, 1), moved.target.flatten(0, 1)

        fit_readout(self.network, states(), classes=self.settings.outputs if self.examples.has_classes else None)
        self.seconds = self._now() - began - making
        self._remember(math.nan)

    def _remember(self, loss: float) -> None:
        epochs = self.made / self.updates_of_epoch
        self.curve.append((epochs, self.seconds, loss, self._measure(VALIDATION)))

    def _measure(self, part: str) -> float:
        """The mean error of the network over all answers of a part; NaN if an output is not finite."""
        total, count = 0.0, 0
        states = self.examples.length * self.network.readout.in_features
        with torch.no_grad():
            for batch in self.examples.make_part(part, max(1, min(MOST_MEASURED, MOST_STATES // states))):
                moved = self._move(batch)
                outputs = answer(self.network, moved)
                # the largest of outputs that are no numbers would still be a class
                if not outputs.isfinite().all():
                    return math.nan
                errors = self.measure_error(outputs, moved.target)
                total, count = total + float(errors.double().sum()), count + errors.numel()
        return total / count

    def _finish(self, is_finite: bool) -> TrainingResult:
        error = self._measure(TEST) if is_finite else math.nan
        validation = self.curve[-1][3] if self.curve else math.nan
        is_finite = math.isfinite(error)
        return TrainingResult(
            status="finished" if is_finite else "diverged",
            error=error,
            best_error=error,
            best_epoch=math.ceil(self.made / self.updates_of_epoch) if is_finite else 0,
            epochs=math.ceil(self.made / self.updates_of_epoch),
            curve=np.array(self.curve, dtype=np.float32).reshape(-1, len(COLUMNS)),
            output=np.array([validation, error], dtype=np.float32),
            weights=_weights(self.network),
            seconds=self.seconds,
        )


def _weights(network: Network) -> dict[str, NDArray[np.float32]]:
    state: dict[str, Any] = network.state_dict()
    return {name: value.detach().float().cpu().numpy().copy() for name, value in state.items()}
