"""Planning: the runs of any task, for each method in each size or with a schedule of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...schedule import Schedule
from ..networks.build import hidden_for
from ..networks.settings import TrainingSettings
from ..task import Data
from .run import Run


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

    A `schedule` takes the place of the Clockwork RNNs of all sizes.
    """
    if method == "lstm":
        # the keys of the other methods' runs must not depend on it
        settings = replace(settings, peepholes=peepholes)
    if method == "cw" and schedule is not None:
        settings = replace(settings, modules=schedule.modules, schedule=schedule.spec)
        shapes = [(schedule.parameter_count(settings.inputs, settings.outputs), schedule.hidden_size)]
    else:
        shapes = [(size, _hidden(method, size, settings)) for size in sizes]
    return [
        Run(task, dataset.name, dataset.digest, method, size, hidden, seed, settings)
        for size, hidden in shapes
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


def _hidden(method: str, size: int, settings: TrainingSettings) -> int:
    return hidden_for(
        method,
        size,
        input_size=settings.inputs,
        output_size=settings.outputs,
        modules=settings.modules,
        peepholes=settings.peepholes,
    )
