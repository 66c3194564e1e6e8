"""Figures of clocks: what came of every series of periods."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from ..report.drawing import INK, MUTED, new_figure, styled
from ..report.figures import draw_box
from .comparison import Compared

COLOUR = "#009e73"
OTHER = "#56b4e9"
SIGNIFICANT = 0.05


@styled
def series_plot(found: Sequence[Compared], measure: str) -> Any:
    """A box for every series, the one that the others are held against first; a star for less than one in twenty."""
    figure = new_figure(max(5.0, 1.4 + 1.0 * len(found)), 4.2)
    panel = figure.subplots()
    labels = []
    for place, each in enumerate(found):
        if each.box.finished:
            draw_box(panel, place, each.box, COLOUR if place == 0 else OTHER)
        star = "" if each.p is None or each.p >= SIGNIFICANT else " *"
        runs = each.box.finished + each.box.diverged + each.box.failed
        name = _label(each.name)
        labels.append(f"{name}{star}\n{each.box.diverged} of {runs}" if each.box.diverged else f"{name}{star}")
    values = [value for each in found for value in (each.box.minimum, each.box.whiskers[1]) if math.isfinite(value)]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        panel.set_yscale("log")
    panel.set_xticks(range(len(found)), labels, fontsize=8)
    panel.set_xlim(-0.6, len(found) - 0.4)
    panel.grid(False, axis="x")
    panel.set_ylabel(measure)
    panel.axhline(found[0].box.median, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    notes = []
    if any(each.p is not None for each in found):
        notes.append(f"* differs from {found[0].name} by more than chance (p < {SIGNIFICANT:g}, corrected)")
    if any(each.box.diverged for each in found):
        notes.append("below a name: how many diverged")
    panel.set_title("\n".join(notes), loc="left", fontsize=8, color=INK)
    return figure


def _label(name: str) -> str:
    """A name in lines, a schedule of many modules not to its end.

    >>> _label("exponential-2"), _label("own 1:4,2:4,4:4,8:4")
    ('exponential\\n2', 'own\\n1:4,2:4,4:4,\\n8:4')
    """
    kind, _, spec = name.rpartition(" ")
    if ":" not in spec:
        return name.replace("exponential-", "exponential\n")
    lines = textwrap.wrap(spec.replace(",", ", "), 15, max_lines=5, placeholder=" ...")
    return "\n".join([*filter(None, [kind]), *(line.replace(", ", ",") for line in lines)])
