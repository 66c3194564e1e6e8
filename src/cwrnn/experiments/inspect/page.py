"""The portrait: one page about one trained network, self-contained: figures are inside, nothing is fetched.

It answers for one network and its data what the paper's future work asks: how the network allocates its resources.
The same network and data make the same bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__, inspection
from ...inspection import Inspection, ModuleSummary
from ...schedule import Schedule
from ..json_safe import make_json_safe
from ..report.drawing import Measure
from ..report.numbers import format_count, format_error
from ..report.svg import inline_figure
from ..report.templates import make_template_environment
from ..sweep.run import Dataset
from . import figures as portrait_figures
from .figures import MEASURES
from .loading import Subject, describe

LONGEST = 1000
"""Steps, at most, that are looked back."""
TICKS = 8
"""In a sequence, at least, for a module of whose spectrum something is said."""

TITLES = {
    "activations": "What each module does",
    "spectra": "How fast each module moves",
    "memories": "How far back each module remembers",
    "silences": "What the output loses without a module",
    "weights": "The weights",
    "costs": "Multiply-adds",
}
"""Of the figures, in the order of the page."""


def inspect(subject: Subject) -> Inspection:
    """What is to be found. Lags are those that at least half of the sequences are longer than."""
    lengths = [len(each) for each in subject.inputs]
    longest = min(LONGEST, int(np.median(lengths)) - 1)
    return inspection.inspect(
        subject.layer, subject.network.readout, subject.inputs, subject.measure, longest=max(0, longest)
    )


def write(subject: Subject, found: Inspection, path: Path) -> None:
    """Writes the page."""
    environment = make_template_environment()
    environment.filters |= {"short": format_error, "percent": percent, "number": number, "frequency": frequency}
    drawings = {name: inline_figure(figure, name, TITLES[name]) for name, figure in _figures(subject, found).items()}
    page = environment.get_template("inspect/page.html.j2").render(
        subject=subject,
        generates=isinstance(subject.scene, Dataset),
        many=max(found.schedule.sizes) > portrait_figures.LINES,
        written=written,
        title=describe(subject),
        sentences=sentences(found),
        found=found,
        measures={name: MEASURES[name] for name in found.intact},
        titles=TITLES,
        drawings=drawings,
        version=__version__,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def numbers(subject: Subject, found: Inspection) -> dict[str, Any]:
    """All that the page shows but the states, for JSON: what is not finite is None."""
    told: dict[str, Any] = make_json_safe(
        {
            "network": describe(subject),
            "task": subject.task,
            "schedule": found.schedule.spec,
            "facts": dict(subject.facts),
            "sequences": len(subject.inputs),
            "intact": dict(found.intact),
            "modules": [asdict(module) for module in found.modules],
            "multiply_adds": {
                "recurrent": found.cost.recurrent.tolist(),
                "input": found.cost.input.tolist(),
                "readout": found.cost.readout.tolist(),
                "dense": found.cost.dense,
            },
            "memory": found.memory.norms.tolist(),
            "spectrum": {
                "frequencies": found.spectrum.frequencies.tolist(),
                "density": found.spectrum.density.tolist(),
            },
            "blocks": found.weights.recurrent.tolist(),
            "sentences": sentences(found),
        }
    )
    return told


def sentences(found: Inspection) -> list[str]:
    """What was found, in words: work, worth, memory and speed."""
    told = [_work(found), *_worth(found), _reaches(found), *_speeds(found)]
    return [sentence[0].upper() + sentence[1:] for sentence in told]


def _work(found: Inspection) -> str:
    total = float(found.cost.total.sum())
    if len(found.modules) == 1:
        return f"the network has one module, and makes {number(total)} multiply-adds per step."
    # the fewest that do half of the work
    order = sorted(found.modules, key=lambda module: -module.share)
    most: list[ModuleSummary] = []
    while _share(most) < 0.5:
        most.append(order[len(most)])
    units = sum(module.units for module in most) / found.schedule.hidden_size
    return (
        f"the network makes {number(total)} multiply-adds per step, {percent(total / found.cost.dense)} of the "
        f"{number(found.cost.dense)} of a dense network of the same size; {percent(_share(most))} of them are those of "
        f"{_named(most)}, with {percent(units)} of the units."
    )


def _worth(found: Inspection) -> list[str]:
    """What is lost without a module, of the errors the one that tells small losses apart."""
    if len(found.modules) == 1:
        return []
    name = list(found.intact)[-1]
    measure, intact = MEASURES[name], found.intact[name]
    order = sorted(found.modules, key=lambda module: module.silenced.mean[name])
    most, least = order[-1], order[0]
    told = [
        f"the output needs {_named([most])} the most, which makes {percent(most.share)} of the multiply-adds: held at "
        f"its mean, the {measure.name} is {written(measure, most.silenced.mean[name])} instead of "
        f"{written(measure, intact)}."
    ]
    idle = [
        module for module in order if all(module.silenced.mean[each] <= found.intact[each] for each in found.intact)
    ]
    if idle:
        are, any_of_them = ("are", "any of them") if len(idle) > 1 else ("is", "it")
        told.append(
            f"{_named(idle)}, with {percent(_share(idle))} of the multiply-adds, {are} of no use on these data: "
            f"the output is no worse without {any_of_them}."
        )
    else:
        told.append(
            f"{_named([least])}, with {percent(least.share)} of the multiply-adds, is needed the least: "
            f"{written(measure, least.silenced.mean[name])}."
        )
    return told


def _reaches(found: Inspection) -> str:
    reaches = [module.reach for module in found.modules if module.reach is not None]
    if not reaches:
        return "no module hears an input."

    def told(reach: int) -> str:
        modules = [module for module in found.modules if module.reach == reach]
        beyond = "at least " if any(module.reach_is_open for module in modules) else ""
        return f"{_named(modules)} remember{'s' if len(modules) == 1 else ''} {beyond}{format_count(reach, 'step')}"

    if max(reaches) == min(reaches):
        return f"{told(max(reaches))}."
    on = sum(module.reach is not None and module.reach >= module.period for module in found.modules)
    return (
        f"{told(max(reaches))}, {told(min(reaches))}. "
        f"{on} of {len(found.modules)} modules remember beyond their next tick."
    )


def _speeds(found: Inspection) -> list[str]:
    """Which modules are as fast as their clocks, of those whose spectrum can be told."""
    steps = 1 / found.spectrum.frequencies[1] if len(found.spectrum.frequencies) > 1 else 1
    moving = [module for module in found.modules if math.isfinite(module.in_band) and steps >= TICKS * module.period]
    if not moving:
        return []
    fast = [module for module in moving if module.median_frequency > 1 / (4 * module.period)]
    those = f" of those that tick at least {TICKS} times in a sequence" if len(moving) < len(found.modules) else ""
    if fast:
        are = "are" if len(fast) > 1 else "is"
        return [f"short of ticks {are}{those} {_named(fast)}: half of the power or more lies in the upper half of what "
                "the clock can say."]  # fmt: skip
    return [f"none{those or ' of the modules'} is short of ticks: more than half of the power lies in the lower half "
            "of what the clock can say."]  # fmt: skip


def _share(modules: Sequence[ModuleSummary]) -> float:
    return sum(module.share for module in modules)


def _named(modules: Sequence[ModuleSummary]) -> str:
    periods = [str(module.period) for module in sorted(modules, key=lambda module: module.period)]
    if len(periods) == 1:
        return f"the module of period {periods[0]}"
    return f"the modules of periods {', '.join(periods[:-1])} and {periods[-1]}"


def written(measure: Measure, error: float) -> str:
    """An error in its unit.

    >>> [written(MEASURES[name], 0.012345) for name in ("nmse", "error", "cross_entropy")]
    ['0.012', '1.2 %', '0.01']
    """
    if measure.unit == "%":
        return f"{measure.scale * error:.1f} %"
    return f"{error:.2f}" if measure.unit else format_error(error)


def number(count: float) -> str:
    """So many multiply-adds.

    >>> [number(0.6406), number(103.9), number(14280)]
    ['0.641', '104', '14,280']
    """
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def frequency(value: float) -> str:
    """In cycles per step, as the length of a cycle.

    >>> [frequency(0.25), frequency(0.0), frequency(math.nan)]
    ['1/4', '0', 'none']
    """
    if not math.isfinite(value):
        return "none"
    return f"1/{1 / value:.0f}" if value > 0 else "0"


def percent(share: float) -> str:
    """A share, in two digits that matter.

    >>> [percent(0.0123), percent(0.5), percent(0.9996), percent(1.0), percent(math.nan)]
    ['1.2 %', '50 %', '100 %', '100 %', 'none']
    """
    if not math.isfinite(share):
        return "none"
    return f"{100 * share:.0f} %" if share >= 0.0995 else f"{100 * share:.2g} %"


def _figures(subject: Subject, found: Inspection) -> dict[str, Any]:
    shown = [subject.inputs[subject.shown]]
    states = inspection.compute_states(subject.layer, shown)[0]
    output = inspection.compute_outputs(subject.layer, subject.network.readout, shown)[0]
    target = None
    if isinstance(subject.scene, Dataset):
        target = inspection.measure_spectrum([subject.scene.samples[:, None]], Schedule((1,), (1,)))
    return {
        "activations": portrait_figures.activations(subject, states, output),
        "spectra": portrait_figures.spectra(found, target),
        "memories": portrait_figures.memories(found),
        "silences": portrait_figures.silences(found),
        "weights": portrait_figures.weights(subject, found.schedule),
        "costs": portrait_figures.costs(found),
    }
