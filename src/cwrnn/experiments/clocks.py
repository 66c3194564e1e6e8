"""Clocks: are the periods that were planted in a sequence found, and what is that worth?

    target(t) = sum over planted periods P of a square wave that switches every P steps, and noise

Networks learn to generate the sequence from no input, as in task 1 of the paper. Those of the exponential series and
those that learn their clocks have the same modules, units, initial weights, targets and updates; the error is that
against the waves without the noise, which no network was shown. Updates are Adam's, of gradients that are cut to a norm
of 1 network by network: without that, half of the networks of either kind are lost to a few steep places.

    python -m cwrnn.experiments.clocks
"""

import argparse
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..learned import LearnedClockworkRNN, sharp_softmax, soft_clockwork
from ..schedule import Schedule
from . import planted
from .training import nmse

PLANTED = (3, 7, 21)


@dataclass(frozen=True)
class Settings:
    """The task and the training, of all networks alike."""

    planted: tuple[int, ...] = PLANTED
    steps: int = 210
    noise: float = 0.1
    """Standard deviation; a wave is +1 and -1 in turn."""
    hidden: int = 16
    modules: int = 4
    longest: int = 32
    """Of the periods to choose from."""
    epochs: int = 1000
    rate: float = 0.03
    """Of Adam; it falls to 0 over the last two fifths of the epochs."""
    clock_rate: float = 0.01
    """Of Adam for the clocks."""


@dataclass(frozen=True)
class Outcome:
    """What became of one network."""

    soft: float
    """The NMSE against the waves without noise, as trained."""
    hard: float
    """The same of the hardened network, with integer periods."""
    schedule: Schedule
    """Of the hardened network."""


def explained(period: int, found: Sequence[int]) -> bool:
    """Whether a clock that was found ticks whenever a wave of that period switches.

    >>> [explained(21, [3, 8]), explained(7, [3, 21])]
    [True, False]
    """
    return any(period % clock == 0 for clock in found)


def train(settings: Settings, seeds: Sequence[int], *, learned: bool) -> list[Outcome]:
    """What became of the networks of these seeds, all trained at once, with learned clocks or the exponential series.

    >>> outcomes = train(Settings(epochs=2, steps=30), [0, 1], learned=False)
    >>> outcomes[0].schedule.periods
    (1, 2, 4, 8)
    """
    networks = [_build(settings, seed, learned) for seed in seeds]
    layer = networks[0][0]
    waves = planted.waves(settings.planted, settings.steps)
    noise = [np.random.default_rng(seed).standard_normal(settings.steps) for seed in seeds]
    targets = torch.from_numpy(waves + settings.noise * np.array(noise)).float()  # (S, T)
    parts = [dict(rnn.named_parameters()) | dict(readout.named_parameters()) for rnn, readout in networks]
    parameters = {name: torch.stack([part[name].detach() for part in parts]).requires_grad_() for name in parts[0]}
    weights = [parameter for name, parameter in parameters.items() if name != "clocks"]
    groups = [{"params": weights, "lr": settings.rate}]
    if learned:
        groups.append({"params": [parameters["clocks"]], "lr": settings.clock_rate})
    optimiser = torch.optim.Adam(groups, betas=(0.9, 0.99))
    fall = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda epoch: min(1.0, 2.5 * (1 - epoch / settings.epochs)))
    for epoch in range(settings.epochs):
        layer.sharpen(epoch / settings.epochs if learned else 1.0)
        errors = _generate(layer, parameters, settings.steps) - targets
        optimiser.zero_grad()
        (0.5 * errors.square().mean(1).sum()).backward()
        _clip([parameter for group in optimiser.param_groups for parameter in group["params"]])
        optimiser.step()
        fall.step()
    with torch.no_grad():
        outputs = _generate(layer, parameters, settings.steps).numpy()
    outcomes = []
    for i, (rnn, readout) in enumerate(networks):
        for module in (rnn, readout):
            module.load_state_dict({name: parameters[name][i] for name, _ in module.named_parameters()}, strict=False)
        hardened, report = rnn.harden()
        with torch.no_grad():
            states, _ = hardened(torch.zeros(settings.steps, 1, 0), t0=report.t0)
            output = states[:, 0] @ readout.weight[0, report.units] + readout.bias
        outcomes.append(Outcome(nmse(outputs[i], waves), nmse(output.numpy(), waves), hardened.schedule))
    return outcomes


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains both kinds on the same targets, and prints a table."""
    parser = argparse.ArgumentParser(
        prog="python -m cwrnn.experiments.clocks", description=(__doc__ or "").split("\n")[0]
    )
    defaults = Settings()
    parser.add_argument("--seeds", type=int, default=20, help="networks of each kind (default: 20)")
    parser.add_argument("--planted", type=int, nargs="+", default=defaults.planted, metavar="P", help="periods")
    for name in ("steps", "noise", "hidden", "modules", "longest", "epochs", "rate", "clock_rate"):
        default = getattr(defaults, name)
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"{default}")
    options = vars(parser.parse_args(arguments))
    seeds = range(options.pop("seeds"))
    settings = Settings(**options | {"planted": tuple(options["planted"])})
    print(f"{'clocks':<12} {'NMSE: median':>12} {'mean':>8} {'worst':>8}   changed by hardening, at most   parameters")
    for learned in (False, True):
        outcomes = train(settings, seeds, learned=learned)
        errors = np.array([outcome.hard for outcome in outcomes])
        changed = max(abs(outcome.hard / outcome.soft - 1) for outcome in outcomes)
        counts = [outcome.schedule.parameter_count(0, 1) for outcome in outcomes]
        print(
            f"{'learned' if learned else 'exponential':<12} {np.median(errors):12.5f} {errors.mean():8.5f} "
            f"{errors.max():8.5f}   {changed:28.2%}   {min(counts)} to {max(counts)}"
        )
    for periods, count in Counter(outcome.schedule.periods for outcome in outcomes).most_common():
        print(f"{count:4d} x {', '.join(map(str, periods))}")
    for period in settings.planted:
        same = sum(period in outcome.schedule.periods for outcome in outcomes)
        enough = sum(explained(period, outcome.schedule.periods) for outcome in outcomes)
        print(f"{period} was found by {same} of {len(seeds)}, explained by {enough}")


def _build(settings: Settings, seed: int, learned: bool) -> tuple[LearnedClockworkRNN, nn.Linear]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        readout = nn.Linear(settings.hidden, 1)
        rnn = LearnedClockworkRNN(0, settings.hidden, modules=settings.modules, candidates=settings.longest)
    if not learned:
        # hard from the beginning, and left out of the updates
        periods = Schedule.exponential(settings.hidden, settings.modules).periods
        with torch.no_grad():
            rnn.clocks.copy_(rnn.candidates[:, 0] == torch.tensor(periods)[:, None])
        rnn.sharpness.fill_(math.inf)
    return rnn, readout


def _clip(parameters: Sequence[Tensor]) -> None:
    """Cuts the gradients of each network, all of its parameters together, to a norm of 1."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1).norm(dim=1)
    for gradient in gradients:
        gradient.div_(norm.clamp(min=1.0).view(-1, *[1] * (gradient.dim() - 1)))


def _generate(layer: LearnedClockworkRNN, parameters: dict[str, Tensor], steps: int) -> Tensor:
    """(S, T): what the networks generate."""
    S = len(parameters["clocks"])
    states = soft_clockwork(
        torch.zeros(steps, S, 1, 0),
        parameters["weight_ih_l0"],
        parameters["weight_hh_l0"],
        parameters["bias_l0"],
        torch.zeros(S, 1, layer.hidden_size),
        sharp_softmax(parameters["clocks"], layer.sharpness),
        layer.candidates,
        layer.sizes,
    )
    return (states @ parameters["weight"].mT)[:, :, 0, 0].T + parameters["bias"]


if __name__ == "__main__":
    main()
