"""Planning: the runs of any task, for each method in each size or with a schedule of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...schedule import Schedule
from ..networks.build import hidden_for, parameter_count, schedule_parameter_count
from ..networks.methods import ALL_METHODS
from ..networks.settings import TrainingSettings
from ..task import Data
from .run import Run

S = TypeVar("S", bound=TrainingSettings)


def plan_method(
    task: str,
    data: Iterable[Data],
    method: str,
    settings: TrainingSettings,
    *,
    sizes: Sequence[int],
    seeds: range,
    peepholes: bool,
    schedule: Schedule | None,
) -> list[Run]:
    """The runs of one method: each size on each data set with each seed.

    A `schedule` takes the place of all sizes, for methods with clocks.
    """
    if ALL_METHODS[method].cell == "lstm":
        # the keys of the other methods' runs must not depend on it
        settings = replace(settings, peepholes=peepholes)
    if ALL_METHODS[method].has_clocks and schedule is not None:
        settings = replace(settings, modules=schedule.modules, schedule=schedule.spec)
        size = schedule_parameter_count(
            method, schedule, settings.inputs, settings.outputs, peepholes=settings.peepholes
        )
        shapes = [(size, schedule.hidden_size, settings)]
    else:
        shapes = [
            (size, _hidden(method, size, fitting), fitting)
            for size in sizes
            for fitting in [fit_modules(method, size, settings)]
        ]
    return [
        Run(task, dataset.name, dataset.digest, method, size, hidden, seed, settings)
        for size, hidden, settings in shapes
        for dataset in data
        for seed in seeds
    ]


def plan_learning_rates(
    plan: Callable[..., list[Run]],
    task: str,
    data: Any,
    learning_rates: Sequence[float],
    methods: Sequence[str],
    **options: Any,
) -> list[Run]:
    """The runs of a search: those of the function `plan` with each learning rate, for all methods."""
    return [
        run
        for learning_rate in learning_rates
        for run in plan(
            data, methods=methods, learning_rates=dict.fromkeys(methods, learning_rate), task=task, **options
        )
    ]


def fit_modules(method: str, size: int, settings: S) -> S:
    """The settings with as many modules as a network of `size` parameters can have, at most those of `settings`.

    Only gated cells with clocks may have fewer: their smallest networks with the paper's modules are larger than some
    networks of the paper. A Clockwork RNN always has the modules of `settings`.
    """
    chosen = ALL_METHODS[method]
    if not chosen.has_clocks or chosen.cell == "tanh":
        return settings

    def fits(modules: int) -> bool:
        # a unit in each module
        least = parameter_count(
            method, modules, settings.inputs, settings.outputs, modules=modules, peepholes=settings.peepholes
        )
        return least <= size

    modules = next((count for count in range(settings.modules, 1, -1) if fits(count)), 1)
    return replace(settings, modules=modules)


def _hidden(method: str, size: int, settings: TrainingSettings) -> int:
    return hidden_for(
        method,
        size,
        input_size=settings.inputs,
        output_size=settings.outputs,
        modules=settings.modules,
        peepholes=settings.peepholes,
    )
