"""Training of networks with learned clocks, and of networks with the exponential series, in the same way.

Both kinds have the same modules, units, initial weights and updates. The optimiser is Adam. The gradient of every
network is cut to a norm, and the learning rate falls to 0 over the last two fifths. Without the cut, a few steep places
of the loss ruin half of the networks of either kind.

While clocks are soft, every update draws hard clocks for each network (`soft_clocks.draw_one_hot`) and uses the mean of
several draws. In the second half of the training, clocks are hard. The errors are measured on the hardened network,
which is an ordinary Clockwork RNN.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...learned import LearnedClockworkRNN
from ...schedule import Schedule
from ...soft_clocks import draw_one_hot, settle_clocks, sharp_softmax, sharpness_at, soft_clockwork

CLOCK_SHARE = 1 / 2
"""The learning rate of the clocks, as a share of that of the weights: the weights must learn something first."""

CUT = 0.3
"""The norm to which the gradient of a network is cut, over all of its parameters."""

DRAWS = 4
"""Number of times that clocks are drawn for every update while they are soft."""

POINTS = 100
"""Approximate number of points in time at which the distribution of the clocks is recorded."""

ComputeOutputs = Callable[[Tensor], Tensor]
"""Returns the outputs (T, B, outputs) of a network for an input (T, B, inputs)."""


@dataclass(frozen=True)
class LearningSettings:
    """The shape of the networks and of their training, the same for both kinds."""

    hidden: int
    modules: int
    longest: int
    """The longest period that a learned clock can have; it chooses from 1, 2, 3, ... up to this."""
    epochs: int
    learning_rate: float
    """The learning rate of the weights."""


@dataclass(frozen=True)
class Errors:
    """The errors of one network."""

    train: float
    """The error by which the best network is chosen: NMSE, or the mean cross entropy of the training set."""
    reported: float
    """NMSE, for square waves against the waves without noise; or the error rate on the test set."""


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """One network after its training: its errors, its schedule and how it came to it."""

    data: str
    """The name of what it learned; sequences that differ only in their noise have the same name."""
    seed: int
    soft: Errors
    """The errors of the network as trained."""
    hard: Errors
    """The errors of the hardened network, which has integer periods."""
    schedule: Schedule
    """The schedule of the hardened network."""
    trace: NDArray[np.float32]
    """(points, longest): how many of its modules had each period, from the beginning of the training to its end."""

    @property
    def change_by_hardening(self) -> float:
        """The relative change of the error by hardening; 0 if the network had diverged before."""
        if self.hard.reported == self.soft.reported or not math.isfinite(self.soft.reported):
            return 0.0
        return abs(self.hard.reported / self.soft.reported - 1) if self.soft.reported > 0 else math.inf


class Objective(Protocol):
    """The data and losses from which S networks learn at once."""

    inputs: int
    outputs: int
    updates: int
    """Number of updates in an epoch."""
    example: Tensor
    """(T, B, inputs): an input on which a network is compared with the hardened one."""

    def losses(self, networks: "NetworkBatch") -> Iterator[Tensor]:
        """Yield the losses (S,) of the networks for every update of an epoch."""

    def measure_errors(self, network: int, compute: ComputeOutputs) -> Errors:
        """Return the errors of one network."""

    def name_data(self, network: int) -> str:
        """Return the name of the data that a network learns."""


class NetworkBatch:
    """S networks of one shape with their initial weights, with learned clocks or with the exponential series."""

    def __init__(
        self, objective: Objective, settings: LearningSettings, seeds: Sequence[int], *, learned: bool
    ) -> None:
        self.learned = learned
        self.networks = [_build(objective, settings, seed, learned) for seed in seeds]
        self.layer = self.networks[0][0]
        parts = [dict(rnn.named_parameters()) | dict(readout.named_parameters()) for rnn, readout in self.networks]
        self.parameters = {name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]}
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(learned or name != "clocks")
        self.sharpness = torch.tensor(1.0 if learned else math.inf)
        # one generator per network for its data and one for its clocks, apart from that of its initial weights
        self.generators, self.draws = ([np.random.default_rng([seed, use]) for seed in seeds] for use in (2, 3))

    @property
    def weights(self) -> list[Tensor]:
        """All parameters except the clocks."""
        return [parameter for name, parameter in self.parameters.items() if name != "clocks"]

    @torch.no_grad()
    def sharpen(self, progress: float) -> None:
        """Set the sharpness of all clocks, as `LearnedClockworkRNN.sharpen` does for one network."""
        sharpness = sharpness_at(progress) if self.learned else math.inf
        if sharpness == math.inf and self.sharpness < math.inf:
            clocks = self.parameters["clocks"]
            clocks.copy_(settle_clocks(clocks, clocks.argmax(dim=-1))).requires_grad_(False)
        self.sharpness.fill_(sharpness)

    def probabilities(self) -> Tensor:
        """Return the probabilities (S, modules, C) of the candidate clocks."""
        return sharp_softmax(self.parameters["clocks"], self.sharpness)

    def states(self, input: Tensor) -> Tensor:
        """Return the states (T, S, B, N) for the input (T, S, B, I).

        While clocks are soft, hard clocks are drawn several times, and the states are (T, S, draws * B, N), draw by
        draw.
        """
        parameters, chosen = self.parameters, self.probabilities()
        draws = DRAWS if self.sharpness < math.inf else 1
        if draws > 1:
            clocks = parameters["clocks"]
            noise = np.stack([generator.gumbel(size=(draws, *clocks.shape[1:])) for generator in self.draws])
            chosen = draw_one_hot(clocks[:, None], self.sharpness, torch.from_numpy(noise).to(clocks)).flatten(0, 1)
        weight_ih, weight_hh, bias = (
            parameters[name].repeat_interleave(draws, dim=0) for name in ("weight_ih_l0", "weight_hh_l0", "bias_l0")
        )
        T, S, B, _ = input.shape
        repeated = input.repeat_interleave(draws, dim=1)
        h0 = input.new_zeros(draws * S, B, self.layer.hidden_size)
        candidates, sizes = self.layer.candidates, self.layer.sizes
        states = soft_clockwork(repeated, weight_ih, weight_hh, bias, h0, chosen, candidates, sizes)
        return states.view(T, S, draws * B, -1)

    def read(self, states: Tensor) -> Tensor:
        """Return the outputs (..., S, B, O) for the states (..., S, B, N)."""
        return states @ self.parameters["weight"].mT + self.parameters["bias"][:, None]

    @torch.no_grad()
    def finish(self, objective: Objective, network: int, seed: int, trace: NDArray[np.float32]) -> TrainedNetwork:
        """Harden one of the networks and measure its errors."""
        rnn, readout = self.networks[network]
        for module in (rnn, readout):
            own = {name: self.parameters[name][network] for name, _ in module.named_parameters()}
            module.load_state_dict(own, strict=False)
        rnn.sharpness.fill_(self.sharpness)
        hardened, report = rnn.harden(objective.example)
        weight = readout.weight[:, report.units]
        return TrainedNetwork(
            data=objective.name_data(network),
            seed=seed,
            soft=objective.measure_errors(network, lambda x: readout(rnn(x)[0])),
            hard=objective.measure_errors(network, lambda x: hardened(x)[0] @ weight.T + readout.bias),
            schedule=hardened.schedule,
            trace=trace,
        )


def train_networks(
    objective: Objective,
    settings: LearningSettings,
    seeds: Sequence[int],
    *,
    learned: bool,
    after_update: Callable[[], Any] | None = None,
) -> list[TrainedNetwork]:
    """Train one network for each seed, all at once, and return them hardened.

    Args:
        objective: what they learn, made for as many networks
        settings: shape of the networks and of their training
        seeds: seeds of the initial weights, of the drawn clocks, and of the order and noise of the data
        learned: True for learned clocks, False for the exponential series
        after_update: called after every update; training stops if it raises

    >>> from ..generation.objective import SequenceObjective
    >>> from .square_waves import make_square_waves
    >>> settings = LearningSettings(hidden=8, modules=4, longest=10, epochs=2, learning_rate=0.03)
    >>> networks = train_networks(SequenceObjective([make_square_waves([3, 7])]), settings, [0], learned=False)
    >>> networks[0].schedule.periods
    (1, 2, 4, 8)
    """
    networks = NetworkBatch(objective, settings, seeds, learned=learned)
    groups = [{"params": networks.weights, "lr": settings.learning_rate}]
    if learned:
        groups.append({"params": [networks.parameters["clocks"]], "lr": CLOCK_SHARE * settings.learning_rate})
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    total = settings.epochs * objective.updates
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda update: min(1.0, 2.5 * (1 - update / total)))
    traces: list[Tensor] = []
    done = 0
    for _ in range(settings.epochs):
        losses = objective.losses(networks)
        for _ in range(objective.updates):
            networks.sharpen(done / total)
            if done % math.ceil(total / POINTS) == 0:
                traces.append(networks.probabilities().detach().sum(1))
            optimiser.zero_grad()
            next(losses).sum().backward()
            _cut_gradients(list(networks.parameters.values()))
            optimiser.step()
            fall.step()
            done += 1
            if after_update is not None:
                after_update()
    traces.append(networks.probabilities().detach().sum(1))
    trace = torch.stack(traces, dim=1).numpy()  # (S, points, C)
    return [networks.finish(objective, i, seed, trace[i]) for i, seed in enumerate(seeds)]


def _build(
    objective: Objective, settings: LearningSettings, seed: int, learned: bool
) -> tuple[LearnedClockworkRNN, nn.Linear]:
    exponential = Schedule.exponential(settings.hidden, settings.modules)
    candidates = settings.longest if learned else exponential.periods
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        readout = nn.Linear(settings.hidden, objective.outputs)
        rnn = LearnedClockworkRNN(objective.inputs, settings.hidden, modules=exponential.sizes, candidates=candidates)
    if not learned:
        # hard from the beginning
        nn.init.eye_(rnn.clocks)
        rnn.sharpen(1.0)
    return rnn, readout


def _cut_gradients(parameters: Sequence[Tensor]) -> None:
    """Scale the gradient of each network to the norm CUT if it is larger."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).norm(dim=1)
    for gradient in gradients:
        gradient.div_((norm / CUT).clamp(min=1.0).view(-1, *[1] * (gradient.dim() - 1)))
