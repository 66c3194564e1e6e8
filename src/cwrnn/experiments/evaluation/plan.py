"""The runs of the evaluation tasks, and their settings unless given.

A size is a number of parameters, such as 10k, 70k or 3M. Every method gets the largest hidden layer that it allows.

On the images, the learning rates and periods of networks with clocks come from a few validation runs, never from a test
part (docs/where-a-clock-pays.md). All others are usual values that were hardly searched.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...schedule import Schedule
from ..errors import ArgumentError
from ..networks.build import hidden_for
from ..networks.methods import ALL_METHODS
from ..sweep.run import Run
from .examples import Examples
from .training import EvaluationSettings

PERIODS = (1, 2, 4, 8, 16, 32, 64, 128)
"""The periods of networks with clocks unless a recipe has others: the paper's series."""
LEARNING_RATE = 2e-3
"""The learning rate of methods that a recipe does not name."""


@dataclass(frozen=True)
class Recipe:
    """The settings of a task unless given."""

    sizes: tuple[int, ...]
    epochs: int
    batch: int = 128
    learning_rates: Mapping[str, float] = field(default_factory=dict)
    """By method; LEARNING_RATE for the others."""
    periods: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By method with clocks; PERIODS for the others."""

    def learning_rate(self, method: str) -> float:
        """The learning rate of a method."""
        return self.learning_rates.get(method, LEARNING_RATE)


GATED_RATES = {"lstm": 5e-3, "gru": 5e-3, "cw-lstm": 5e-3, "cw-gru": 5e-3}
"""The learning rates of gated cells; all other methods have LEARNING_RATE."""
IMAGE_RATES = {**GATED_RATES, "cw-lstm": 1e-2, "cw-gru": 1e-2}
"""The learning rates on both image tasks."""

RECIPES = {
    "adding": Recipe((10_000,), epochs=20, learning_rates=GATED_RATES),
    "copy": Recipe((10_000,), epochs=20, learning_rates=GATED_RATES),
    "sequential-mnist": Recipe(
        (70_000,),
        epochs=10,
        learning_rates=IMAGE_RATES,
        periods=dict.fromkeys(("cw", "cw-lstm", "cw-gru"), (3, 9, 27)),
    ),
    "permuted-mnist": Recipe(
        (70_000,),
        epochs=10,
        learning_rates=IMAGE_RATES,
        periods=dict.fromkeys(("cw", "cw-lstm", "cw-gru"), (3, 5, 7, 11)),
    ),
    "characters": Recipe((300_000,), epochs=10, batch=32, learning_rates=GATED_RATES),
}
"""The recipe of each task."""

SUFFIXES = {"": 1, "k": 1000, "m": 1_000_000}
"""What the letter after a number of parameters multiplies it by."""


def parse_size(text: str) -> int:
    """The number of parameters that a text such as "70k" or "3M" names.

    >>> parse_size("70k"), parse_size("3M"), parse_size("512")
    (70000, 3000000, 512)
    """
    match = re.fullmatch(r"(\d{1,12})([kKmM]?)", text.strip())
    if match is None:
        raise ArgumentError("sizes", f"expected numbers of parameters, such as 10k,70k or 3M, got {text!r}")
    return int(match[1]) * SUFFIXES[match[2].lower()]


def plan(
    datasets: Iterable[Examples],
    *,
    methods: Sequence[str],
    sizes: Sequence[int],
    runs: int,
    seed: int,
    epochs: int,
    batch: int,
    updates: int | None,
    device: str,
    learning_rates: Mapping[str, float],
    periods: Mapping[str, Sequence[int]],
) -> list[Run]:
    """Every run: each method in each size on each data set, with `runs` seeds from `seed` on.

    A ValueError if a size is too small for a method.
    """
    return [
        Run(examples.kind, examples.name, examples.digest, method, size, hidden, number, settings)
        for examples in datasets
        for method in methods
        for size in sizes
        for hidden, settings in [
            fit_settings(
                method,
                size,
                EvaluationSettings(
                    learning_rate=learning_rates[method],
                    epochs=epochs,
                    batch=batch,
                    updates=updates,
                    device=device,
                    inputs=examples.inputs,
                    outputs=examples.outputs,
                ),
                periods.get(method, PERIODS),
            )
        ]
        for number in range(seed, seed + runs)
    ]


def fit_settings(
    method: str, size: int, settings: EvaluationSettings, periods: Sequence[int]
) -> tuple[int, EvaluationSettings]:
    """The hidden units that fit into `size` parameters, and the settings with the schedule that they have."""
    modules = len(set(periods)) if ALL_METHODS[method].has_clocks else 1
    hidden = hidden_for(
        method,
        size,
        input_size=settings.inputs,
        output_size=settings.outputs,
        modules=modules,
        peepholes=settings.peepholes,
    )
    if not ALL_METHODS[method].has_clocks:
        return hidden, settings
    schedule = Schedule.from_periods(hidden, sorted(set(periods)))
    return hidden, replace(settings, modules=modules, schedule=schedule.spec)
