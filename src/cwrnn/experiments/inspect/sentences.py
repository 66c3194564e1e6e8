"""The measurements of a network in sentences: the work, the worth, the memory and the speed of its modules."""

import math
from collections.abc import Mapping, Sequence

from ...inspection import Inspection, ModuleSummary
from ...inspection.feeding import CHANGE, LOSS
from ..report import drawing
from ..report.drawing import Measure
from ..report.numbers import format_count, format_error, join_words
from .inspected import CROSS_ENTROPY, ERROR, NMSE

MEASURES: Mapping[str, Measure] = {
    NMSE: drawing.NMSE,
    ERROR: drawing.PERCENT,
    CROSS_ENTROPY: Measure("cross entropy", "nats"),
    CHANGE: Measure("change of the output", "%", scale=100.0),
    LOSS: Measure("loss"),
}
"""How the errors of networks are written and drawn."""

FEWEST_TICKS = 8
"""The spectrum of a module that ticks less often in a sequence says nothing."""


def describe_inspection(inspection: Inspection) -> list[str]:
    """Return the measurements in sentences, for people to read."""
    sentences = [
        _describe_work(inspection),
        *_describe_worth(inspection),
        _describe_memory(inspection),
        *_describe_speed(inspection),
    ]
    return [sentence[0].upper() + sentence[1:] for sentence in sentences]


def _describe_work(inspection: Inspection) -> str:
    total = float(inspection.cost.total.sum())
    noun = "network" if inspection.cost.readout.any() else "layer"
    if len(inspection.modules) == 1:
        return f"the {noun} has one module, and makes {format_operations(total)} multiply-adds per step."
    # the fewest modules that do half of the work
    order = sorted(inspection.modules, key=lambda module: -module.share)
    busiest: list[ModuleSummary] = []
    while _sum_shares(busiest) < 0.5:
        busiest.append(order[len(busiest)])
    units = sum(module.units for module in busiest) / inspection.schedule.hidden_size
    names = _name_modules(busiest)
    return (
        f"the {noun} makes {format_operations(total)} multiply-adds per step, "
        f"{format_share(total / inspection.cost.dense)} of the {format_operations(inspection.cost.dense)} of a dense "
        f"{noun} of the same size. {names[0].upper()}{names[1:]} {'makes' if len(busiest) == 1 else 'make'} "
        f"{format_share(_sum_shares(busiest))} of them, with {format_share(units)} of the units."
    )


def _describe_worth(inspection: Inspection) -> list[str]:
    """Describe which modules the output needs, by the error that shows small losses best."""
    if len(inspection.modules) == 1:
        return []
    name = list(inspection.intact)[-1]
    intact = inspection.intact[name]
    order = sorted(inspection.modules, key=lambda module: module.silenced.mean[name])
    most, least = order[-1], order[0]
    sentences = [
        f"the output needs {_name_modules([most])} most, which makes {format_share(most.share)} of the multiply-adds: "
        f"with that module held at its mean, {_describe_error(name, most, intact)}."
    ]
    useless = [
        module
        for module in order
        if all(module.silenced.mean[error] <= intact for error, intact in inspection.intact.items())
    ]
    if useless:
        have, any_of_them = ("have", "any one of them") if len(useless) > 1 else ("has", "it")
        sentences.append(
            f"{_name_modules(useless)}, with {format_share(_sum_shares(useless))} of the multiply-adds, {have} no use "
            f"on these data: the output is no worse without {any_of_them}."
        )
    else:
        sentences.append(
            f"the output needs {_name_modules([least])} least, which makes {format_share(least.share)} of the "
            f"multiply-adds: with that module held at its mean, {_describe_error(name, least)}."
        )
    return sentences


def _describe_error(name: str, module: ModuleSummary, intact: float | None = None) -> str:
    """Return the error of the network without a module, beside that of the intact one if it is given."""
    measure, error = MEASURES[name], module.silenced.mean[name]
    if name == CHANGE:
        return f"the output changes by {format_measure(measure, error)} of its variance"
    instead = "" if intact is None else f" instead of {format_measure(measure, intact)}"
    return f"the {measure.name} is {format_measure(measure, error)}{instead}"


def _describe_memory(inspection: Inspection) -> str:
    reaches = [module.reach for module in inspection.modules if module.reach is not None]
    if not reaches:
        return "no input reaches a module."

    def describe(reach: int) -> str:
        modules = [module for module in inspection.modules if module.reach == reach]
        beyond = "at least " if any(module.reach_is_open for module in modules) else ""
        verb = "remembers" if len(modules) == 1 else "remember"
        return f"{_name_modules(modules)} {verb} {beyond}{format_count(reach, 'step')}"

    if max(reaches) == min(reaches):
        return f"{describe(max(reaches))}."
    beyond = sum(module.reach is not None and module.reach >= module.period for module in inspection.modules)
    return (
        f"{describe(max(reaches))}; {describe(min(reaches))}. "
        f"{beyond} of {len(inspection.modules)} modules remember beyond their next tick."
    )


def _describe_speed(inspection: Inspection) -> list[str]:
    """Describe which modules move as fast as their clocks allow, among those that tick often enough to tell."""
    frequencies = inspection.spectrum.frequencies
    steps = 1 / frequencies[1] if len(frequencies) > 1 else 1
    moving = [
        module
        for module in inspection.modules
        if math.isfinite(module.in_band) and steps >= FEWEST_TICKS * module.period
    ]
    if not moving:
        return []
    fast = [module for module in moving if module.median_frequency > 1 / (4 * module.period)]
    among = ""
    if len(moving) < len(inspection.modules):
        among = f"of the modules that tick at least {FEWEST_TICKS} times in a sequence, "
    if fast:
        verb, whose = ("needs", "its") if len(fast) == 1 else ("need", "their")
        return [
            f"{among}{_name_modules(fast)} {verb} a faster clock: at least half of {whose} power lies in the upper "
            "half of the frequencies that the clock allows."
        ]
    none = f"{among}none" if among else "no module"
    return [
        f"{none} needs a faster clock: more than half of the power of each lies in the lower half of the frequencies "
        "that its clock allows."
    ]


def _sum_shares(modules: Sequence[ModuleSummary]) -> float:
    return sum(module.share for module in modules)


def _name_modules(modules: Sequence[ModuleSummary]) -> str:
    periods = [str(module.period) for module in sorted(modules, key=lambda module: module.period)]
    return (
        f"the module of period {periods[0]}" if len(periods) == 1 else f"the modules of periods {join_words(periods)}"
    )


def format_measure(measure: Measure, error: float) -> str:
    """Return an error in its unit.

    >>> [format_measure(MEASURES[name], 0.012345) for name in ("nmse", "error", "cross_entropy")]
    ['0.012', '1.2 %', '0.01']
    """
    if measure.unit == "%":
        return f"{measure.scale * error:.1f} %"
    return f"{error:.2f}" if measure.unit else format_error(error)


def format_operations(count: float) -> str:
    """Return a number of multiply-adds.

    >>> [format_operations(0.6406), format_operations(103.9), format_operations(14280)]
    ['0.641', '104', '14,280']
    """
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def format_frequency(value: float) -> str:
    """Return a frequency in cycles per step, as one cycle in so many steps.

    >>> [format_frequency(0.25), format_frequency(0.0), format_frequency(math.nan)]
    ['1/4', '0', 'none']
    """
    if not math.isfinite(value):
        return "none"
    return f"1/{1 / value:.0f}" if value > 0 else "0"


def format_share(share: float) -> str:
    """Return a share in percent, with two significant digits.

    >>> [format_share(0.0123), format_share(0.5), format_share(0.9996), format_share(1.0), format_share(math.nan)]
    ['1.2 %', '50 %', '100 %', '100 %', 'none']
    """
    if not math.isfinite(share):
        return "none"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"
