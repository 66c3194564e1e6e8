"""Planning: the runs of a task, alike for both: each method in each size, or with a schedule of its own."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...schedule import Schedule
from ..generation.training import Settings
from ..networks.build import hidden_for
from .run import Data, Run


def plan_method(
    task: str,
    data: Iterable[Data],
    method: str,
    settings: Settings,
    *,
    sizes: Sequence[int],
    seeds: range,
    peepholes: bool,
    schedule: Schedule | None,
) -> list[Run]:
    """The runs of one method: each size on each data set with each seed.

    With a schedule, that is the Clockwork RNN, in place of those of all sizes.
    """
    if method == "lstm":
        # of no concern to the others, whose runs stay the same
        settings = replace(settings, peepholes=peepholes)
    if method == "cw" and schedule is not None:
        settings = replace(settings, modules=schedule.modules, schedule=schedule.spec)
        shapes = [(schedule.parameter_count(settings.inputs, settings.outputs), schedule.hidden_size)]
    else:
        shapes = [(size, _hidden(method, size, settings)) for size in sizes]
    return [
        Run(task, each.name, each.digest, method, size, hidden, seed, settings)
        for size, hidden in shapes
        for each in data
        for seed in seeds
    ]


def plan_rates(
    plan: Callable[..., list[Run]], task: str, data: Any, rates: Sequence[float], methods: Sequence[str], **options: Any
) -> list[Run]:
    """The runs of a search: those of `plan` with each learning rate, for all methods."""
    return [
        run
        for rate in rates
        for run in plan(data, methods=methods, learning_rates=dict.fromkeys(methods, rate), task=task, **options)
    ]


def _hidden(method: str, size: int, settings: Settings) -> int:
    return hidden_for(
        method,
        size,
        input_size=settings.inputs,
        output_size=settings.outputs,
        modules=settings.modules,
        peepholes=settings.peepholes,
    )
