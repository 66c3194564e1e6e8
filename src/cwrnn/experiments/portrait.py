"""The portrait: one page about one trained network, self-contained: figures are inside, nothing is fetched.

It answers for one network and its data what the paper's future work asks: how the network allocates its resources.
The same network and data make the same bytes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, inspection
from ..inspection import Inspection, Module
from . import drawing, portrait_figures, report
from .drawing import count, short
from .portrait_figures import MEASURES
from .runs import Dataset
from .subject import CROSS_ENTROPY, NMSE, Subject, describe

LONGEST = 1000
"""Steps, at most, that are looked back."""

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
    environment = report.templates()
    environment.filters |= {"short": short, "percent": percent}
    drawings = {
        name: report.inline(drawing.render(figure, "svg").decode(), name, TITLES[name])
        for name, figure in _figures(subject, found).items()
    }
    page = environment.get_template("portrait.html.j2").render(
        subject=subject,
        generates=isinstance(subject.scene, Dataset),
        title=describe(subject),
        sentences=sentences(subject, found),
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
    told: dict[str, Any] = report.plain(
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
            "blocks": found.blocks.recurrent.tolist(),
            "sentences": sentences(subject, found),
        }
    )
    return told


def sentences(subject: Subject, found: Inspection) -> list[str]:
    """What was found, in words: work, worth, memory and speed."""
    told = [_work(found)]
    if len(found.modules) > 1:
        told.append(_worth(subject, found))
    return [*told, _reaches(found), _speeds(found)]


def _work(found: Inspection) -> str:
    total = float(found.cost.total.sum())
    saving = f"{percent(total / found.cost.dense)} of the {found.cost.dense:.0f} of a dense network of the same size"
    text = f"The network makes {total:.3g} multiply-adds per step on average, {saving}."
    if len(found.modules) == 1:
        return f"The network has one module, and makes {total:.3g} multiply-adds per step."
    # the fewest that do half of the work
    order = sorted(found.modules, key=lambda module: -module.share)
    most: list[Module] = []
    while sum(module.share for module in most) < 0.5:
        most.append(order[len(most)])
    units = sum(module.units for module in most) / found.schedule.hidden_size
    work = sum(module.share for module in most)
    return f"{text} {_named(most).capitalize()} with {percent(units)} of the units {_does(most, 'take')} {percent(work)} of them."


def _worth(subject: Subject, found: Inspection) -> str:
    name = NMSE if NMSE in found.intact else CROSS_ENTROPY
    measure = MEASURES[name]
    order = sorted(found.modules, key=lambda module: module.silenced.mean[name])
    most, least = order[-1], order[0]
    return (
        f"Held at its mean, {_named([most])} costs the most: the {measure.name} goes from {short(found.intact[name])} to "
        f"{short(most.silenced.mean[name])}; it takes {percent(most.share)} of the multiply-adds. "
        f"{_named([least]).capitalize()}, with {percent(least.share)} of them, costs the least: "
        f"{short(least.silenced.mean[name])}."
    )


def _reaches(found: Inspection) -> str:
    hearing = [module for module in found.modules if module.reach is not None]
    if not hearing:
        return "No module hears an input."

    def told(module: Module) -> str:
        assert module.reach is not None
        return f"{'at least ' if module.reach_is_open else ''}{count(module.reach, 'step')}"

    furthest = max(hearing, key=lambda module: module.reach or 0)
    shortest = min(hearing, key=lambda module: module.reach or 0)
    text = f"Looked at through its derivatives, {_named([furthest])} remembers the furthest back, {told(furthest)}"
    if shortest.reach == furthest.reach:
        return f"{text}." if len(hearing) == 1 else f"{text}, and so do all others."
    beyond = [module for module in hearing if (module.reach or 0) >= module.period]
    return (
        f"{text}, {_named([shortest])} the least, {told(shortest)}. {len(beyond)} of {len(found.modules)} modules remember "
        "beyond their next tick."
    )


def _speeds(found: Inspection) -> str:
    moving = [module for module in found.modules if math.isfinite(module.in_band)]
    still = [module for module in found.modules if module not in moving]
    told = []
    if moving:
        edge = [module for module in moving if module.median_frequency > 1 / (4 * module.period)]
        told.append(
            f"{_named(edge).capitalize()} {_does(edge, 'have')} more than half of {_their(edge)} power in the upper half "
            "of what the clock lets through: a shorter period would be of use there."
            if edge
            else "Every module that moves has more than half of its power in the lower half of what its clock lets "
            "through: none is short of ticks."
        )
    if still:
        told.append(f"{_named(still).capitalize()} {_does(still, 'do')} not move.")
    return " ".join(told)


def _named(modules: Sequence[Module]) -> str:
    periods = [str(module.period) for module in sorted(modules, key=lambda module: module.period)]
    if len(periods) == 1:
        return f"the module of period {periods[0]}"
    return f"the modules of periods {', '.join(periods[:-1])} and {periods[-1]}"


def _does(modules: Sequence[Module], verb: str) -> str:
    return verb if len(modules) > 1 else {"have": "has", "do": "does"}.get(verb, f"{verb}s")


def _their(modules: Sequence[Module]) -> str:
    return "their" if len(modules) > 1 else "its"


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
    states = inspection.states(subject.layer, shown)[0]
    output = inspection.outputs(subject.layer, subject.network.readout, shown)[0]
    target = None
    if isinstance(subject.scene, Dataset):
        target = inspection.spectrum([subject.scene.samples[:, None]], inspection.Schedule((1,), (1,)))
    drawn: dict[str, Callable[[], Any]] = {
        "activations": lambda: portrait_figures.activations(subject, states, output),
        "spectra": lambda: portrait_figures.spectra(found, target),
        "memories": lambda: portrait_figures.memories(found),
        "silences": lambda: portrait_figures.silences(found),
        "weights": lambda: portrait_figures.weights(subject, found.schedule),
        "costs": lambda: portrait_figures.costs(found),
    }
    return {name: draw() for name, draw in drawn.items()}
