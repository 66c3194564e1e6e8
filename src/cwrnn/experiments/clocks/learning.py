"""Learning: networks that find their clocks, beside networks of the exponential series that are trained alike.

    generation    loss = 1/2 NMSE, where the target has mean 0 and variance 1          an update per epoch
    words         loss = - log softmax(W_out h(T) + b_out)[label], mean of a batch     an update per batch

Both kinds have the same modules, units, initial weights, and updates: Adam's, of gradients that are cut to a norm
network by network, at a rate that falls to 0 over the last two fifths. Without the cut, half of the networks of either
kind are lost to a few steep places. Words are heard in an order and with noise that are each network's own, as in
`classification`.

While clocks are soft, each network has drawn ones in every update (`draw` in `learned`), and learns from the mean of
several draws; in the second half they are hard. What was learned is then measured of the hardened network, an ordinary
Clockwork RNN.
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
from ..generation.training import nmse
from ..sweep.run import Dataset
from ..words import training as classification
from ..words.clips import TEST, TRAIN
from ..words.corpus import Corpus
from .square_waves import Planted

CLOCK_SHARE = 1 / 2
"""The rate of the clocks, as a share of that of the weights: a choice waits until there is something to choose for."""

CUT = 0.3
"""The norm to which the gradient of a network is cut, all of its parameters together."""

DRAWS = 4
"""Of the clocks, for every update while they are soft."""

BATCH = 25
"""Words of an update."""

POINTS = 100
"""In time, at which the distribution of the clocks is remembered, about."""


@dataclass(frozen=True)
class Settings:
    """The networks and their training, of both kinds alike."""

    hidden: int
    modules: int
    longest: int
    """Of the periods to choose from: 1, 2, 3, ..."""
    epochs: int
    learning_rate: float
    """Of Adam, for the weights."""


@dataclass(frozen=True)
class Errors:
    """How a network does."""

    train: float
    """On what it was trained on: NMSE, or the mean cross entropy of the training set. The best is chosen by it."""
    reported: float
    """NMSE, of planted sequences against the waves without noise; or the share of errors in the test set."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one network."""

    data: str
    """What it learned; sequences that differ in nothing but their noise are one."""
    seed: int
    soft: Errors
    """As trained."""
    hard: Errors
    """Of the hardened network, with integer periods."""
    schedule: Schedule
    """Of the hardened network."""
    trace: NDArray[np.float32]
    """(points, longest): how many of its modules had which period, from the beginning of the training to its end."""

    @property
    def changed(self) -> float:
        """By what share hardening changed the error; by nothing if the network had diverged before."""
        if self.hard.reported == self.soft.reported or not math.isfinite(self.soft.reported):
            return 0.0
        return abs(self.hard.reported / self.soft.reported - 1) if self.soft.reported > 0 else math.inf


def explained(period: int, found: Sequence[int]) -> bool:
    """Whether a clock, other than one that always ticks, ticks whenever a wave of that period switches.

    >>> [explained(21, [3, 8]), explained(7, [3, 21]), explained(7, [1, 2])]
    [True, False, False]
    """
    return any(clock > 1 and period % clock == 0 for clock in found)


def best(learned: Sequence[Outcome], exponential: Sequence[Outcome]) -> Outcome:
    """The learned network whose training error is the smallest share of the exponential networks' on the same data.

    Held against the median of those that did not diverge, so that easy data have no say. The test set has none either.
    """

    def share(outcome: Outcome) -> float:
        errors = [other.hard.train for other in exponential if other.data == outcome.data]
        usual = np.median([error for error in errors if math.isfinite(error)] or [1.0])
        found = float(outcome.hard.train / usual) if usual > 0 else outcome.hard.train
        return found if math.isfinite(found) else math.inf

    return min(learned, key=share)


class Task(Protocol):
    """What S networks learn at once."""

    inputs: int
    outputs: int
    updates: int
    """Per epoch."""
    example: Tensor
    """(T, B, inputs): what a network may hear, to compare it with the hardened one."""

    def losses(self, networks: "Networks") -> Iterator[Tensor]:
        """(S,), for every update of an epoch."""

    def errors(self, network: int, answer: Callable[[Tensor], Tensor]) -> Errors:
        """Of one network, which answers an input (T, B, inputs) by outputs (T, B, outputs)."""

    def name(self, network: int) -> str:
        """What it learns."""


class Sequences:
    """The first task: each network generates a sequence of its own; all of one length."""

    inputs, outputs, updates = 0, 1, 1

    def __init__(self, data: Sequence[Dataset]) -> None:
        self.data = data
        # however loud a sequence is, its gradients are alike
        targets = np.stack([(each.samples - each.samples.mean()) / each.samples.std() for each in data])
        self.targets = torch.from_numpy(targets).float()  # (S, T)
        self.example = torch.zeros(self.targets.shape[1], 1, 0)

    def losses(self, networks: "Networks") -> Iterator[Tensor]:
        """One update."""
        S, T = self.targets.shape
        outputs = networks.read(networks.states(torch.zeros(T, S, 1, 0)))[..., 0]  # (T, S, draws)
        yield 0.5 * (outputs - self.targets.T[:, :, None]).square().mean((0, 2))

    def errors(self, network: int, answer: Callable[[Tensor], Tensor]) -> Errors:
        """NMSE against the samples, and if they were planted against those without noise."""
        data = self.data[network]
        output = data.samples.mean() + data.samples.std() * answer(self.example)[:, 0, 0].numpy()
        train = nmse(output, data.samples)
        return Errors(train, nmse(output, data.clean) if isinstance(data, Planted) else train)

    def name(self, network: int) -> str:
        """Without the number of the noise."""
        data = self.data[network]
        return f"squares {', '.join(map(str, data.periods))}" if isinstance(data, Planted) else data.name


class Words:
    """The second task: networks tell words apart at the last of their frames."""

    def __init__(self, corpus: Corpus, noise: float = classification.Settings.noise) -> None:
        self.inputs, self.outputs = corpus.settings.channels, len(corpus.words)
        self.corpus, self.noise = corpus, noise
        self.train, self.test = (_padded(corpus.normalised(split)) for split in (TRAIN, TEST))
        self.updates = math.ceil(len(corpus.train) / BATCH)
        self.example = self.train[0][:, :BATCH]

    def losses(self, networks: "Networks") -> Iterator[Tensor]:
        """An update for each batch; every network goes through all words in an order of its own."""
        input, lengths, labels = self.train
        orders = torch.from_numpy(np.stack([each.permutation(len(labels)) for each in networks.generators]))
        for order in orders.split(BATCH, dim=1):  # (S, B)
            longest = lengths[order].amax(dim=1).tolist()
            heard = input[: max(longest), order]  # (T, S, B, I)
            noise = np.zeros(heard.shape, dtype=np.float32)
            for network, (T, generator) in enumerate(zip(longest, networks.generators, strict=True)):
                # as long as its own words, not those of others: a network is the same alone
                noise[:T, network] = generator.standard_normal((T, *heard.shape[2:]), dtype=np.float32)
            heard = heard + self.noise * torch.from_numpy(noise)
            states = networks.states(heard)
            each = order.repeat(1, states.shape[2] // order.shape[1])  # (S, draws * B)
            last = (lengths[each] - 1)[None, :, :, None].expand(1, *states.shape[1:])
            outputs = networks.read(states.gather(0, last)[0])  # (S, draws * B, O)
            yield nn.functional.cross_entropy(outputs.mT, labels[each], reduction="none").mean(1)

    def errors(self, network: int, answer: Callable[[Tensor], Tensor]) -> Errors:
        """The cross entropy of the training set, and the share of errors in the test set."""
        train, test = (
            answer(input)[lengths - 1, torch.arange(len(lengths))] for input, lengths, _ in (self.train, self.test)
        )
        right = nn.functional.cross_entropy(train.double(), self.train[2])
        return Errors(float(right), float((test.argmax(-1) != self.test[2]).double().mean()))

    def name(self, network: int) -> str:
        """The corpus's."""
        return self.corpus.name


class Networks:
    """S networks of one shape with their initial weights: with learned clocks, or those of the exponential series."""

    def __init__(self, task: Task, settings: Settings, seeds: Sequence[int], *, learned: bool) -> None:
        self.learned = learned
        self.networks = [_build(task, settings, seed, learned) for seed in seeds]
        self.layer = self.networks[0][0]
        parts = [dict(rnn.named_parameters()) | dict(readout.named_parameters()) for rnn, readout in self.networks]
        self.parameters = {name: torch.stack([part[name].detach() for part in parts]) for name in parts[0]}
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(learned or name != "clocks")
        self.sharpness = torch.tensor(1.0 if learned else math.inf)
        # each network's own, for words and clocks; not that of its initial weights
        self.generators, self.draws = ([np.random.default_rng([seed, use]) for seed in seeds] for use in (2, 3))

    @property
    def weights(self) -> list[Tensor]:
        """All parameters but the clocks."""
        return [parameter for name, parameter in self.parameters.items() if name != "clocks"]

    @torch.no_grad()
    def sharpen(self, progress: float) -> None:
        """As `LearnedClockworkRNN.sharpen`, for all of them."""
        sharpness = sharpness_at(progress) if self.learned else math.inf
        if sharpness == math.inf and self.sharpness < math.inf:
            clocks = self.parameters["clocks"]
            clocks.copy_(settle_clocks(clocks, clocks.argmax(dim=-1))).requires_grad_(False)
        self.sharpness.fill_(sharpness)

    def probabilities(self) -> Tensor:
        """(S, modules, C): of the candidates as clocks."""
        return sharp_softmax(self.parameters["clocks"], self.sharpness)

    def states(self, input: Tensor) -> Tensor:
        """(T, S, B, N): the states for the input (T, S, B, I).

        Where the clocks are soft, hard ones are drawn several times: then it is (T, S, draws * B, N), draw by draw.
        """
        parameters, chosen = self.parameters, self.probabilities()
        draws = DRAWS if self.sharpness < math.inf else 1
        if draws > 1:
            clocks = parameters["clocks"]
            noise = np.stack([each.gumbel(size=(draws, *clocks.shape[1:])) for each in self.draws])
            chosen = draw_one_hot(clocks[:, None], self.sharpness, torch.from_numpy(noise).to(clocks)).flatten(0, 1)
        weight_ih, weight_hh, bias = (
            parameters[name].repeat_interleave(draws, dim=0) for name in ("weight_ih_l0", "weight_hh_l0", "bias_l0")
        )
        T, S, B, _ = input.shape
        heard = input.repeat_interleave(draws, dim=1)
        h0 = input.new_zeros(draws * S, B, self.layer.hidden_size)
        states = soft_clockwork(heard, weight_ih, weight_hh, bias, h0, chosen, self.layer.candidates, self.layer.sizes)
        return states.view(T, S, draws * B, -1)

    def read(self, states: Tensor) -> Tensor:
        """(..., S, B, O): the outputs for the states (..., S, B, N)."""
        return states @ self.parameters["weight"].mT + self.parameters["bias"][:, None]

    @torch.no_grad()
    def finish(self, task: Task, network: int, seed: int, trace: NDArray[np.float32]) -> Outcome:
        """What became of one of them."""
        rnn, readout = self.networks[network]
        for module in (rnn, readout):
            own = {name: self.parameters[name][network] for name, _ in module.named_parameters()}
            module.load_state_dict(own, strict=False)
        rnn.sharpness.fill_(self.sharpness)
        hardened, report = rnn.harden(task.example)
        return Outcome(
            data=task.name(network),
            seed=seed,
            soft=task.errors(network, lambda x: readout(rnn(x)[0])),
            hard=task.errors(network, lambda x: hardened(x)[0] @ readout.weight[:, report.units].T + readout.bias),
            schedule=hardened.schedule,
            trace=trace,
        )


def train(
    task: Task,
    settings: Settings,
    seeds: Sequence[int],
    *,
    learned: bool,
    progress: Callable[[], Any] | None = None,
) -> list[Outcome]:
    """What became of the networks of these seeds, all trained at once, with learned clocks or the exponential series.

    Args:
        task: made for as many networks
        settings: of all of them
        seeds: of initial weights, draws, orders and noise
        learned: which of both kinds
        progress: called after every update; if it raises, training stops

    >>> from .square_waves import squares
    >>> settings = Settings(hidden=8, modules=4, longest=10, epochs=2, learning_rate=0.03)
    >>> outcomes = train(Sequences([squares([3, 7])] * 2), settings, [0, 1], learned=False)
    >>> outcomes[0].schedule.periods
    (1, 2, 4, 8)
    """
    networks = Networks(task, settings, seeds, learned=learned)
    groups = [{"params": networks.weights, "lr": settings.learning_rate}]
    if learned:
        groups.append({"params": [networks.parameters["clocks"]], "lr": CLOCK_SHARE * settings.learning_rate})
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    total = settings.epochs * task.updates
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda update: min(1.0, 2.5 * (1 - update / total)))
    traces: list[Tensor] = []
    done = 0
    for _ in range(settings.epochs):
        losses = task.losses(networks)
        for _ in range(task.updates):
            networks.sharpen(done / total)
            if done % math.ceil(total / POINTS) == 0:
                traces.append(networks.probabilities().detach().sum(1))
            optimiser.zero_grad()
            next(losses).sum().backward()
            _cut(list(networks.parameters.values()))
            optimiser.step()
            fall.step()
            done += 1
            if progress is not None:
                progress()
    traces.append(networks.probabilities().detach().sum(1))
    trace = torch.stack(traces, dim=1).numpy()  # (S, points, C)
    return [networks.finish(task, i, seed, trace[i]) for i, seed in enumerate(seeds)]


def _build(task: Task, settings: Settings, seed: int, learned: bool) -> tuple[LearnedClockworkRNN, nn.Linear]:
    usual = Schedule.exponential(settings.hidden, settings.modules)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        readout = nn.Linear(settings.hidden, task.outputs)
        rnn = LearnedClockworkRNN(
            task.inputs, settings.hidden, modules=usual.sizes, candidates=settings.longest if learned else usual.periods
        )
    if not learned:
        # hard from the beginning
        nn.init.eye_(rnn.clocks)
        rnn.sharpen(1.0)
    return rnn, readout


def _cut(parameters: Sequence[Tensor]) -> None:
    """Cuts the gradients of each network."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).norm(dim=1)
    for gradient in gradients:
        gradient.div_((norm / CUT).clamp(min=1.0).view(-1, *[1] * (gradient.dim() - 1)))


def _padded(sequences: Sequence[classification.Labelled]) -> tuple[Tensor, Tensor, Tensor]:
    """Input (T, B, I), zero beyond the ends, lengths (B,) and labels (B,)."""
    padded = classification.Padded(sequences)
    return padded.input.transpose(0, 1), padded.lengths, padded.labels
