"""Figures of clocks: the errors of every series of periods, and how networks learned their clocks."""

import math
import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..report.drawing import INK, MUTED, Measure, fit_label, new_figure, scale, styled, wrap_label
from ..report.figures import draw_box
from ..report.statistics import box_of
from .comparison import SeriesResult
from .training import TrainedNetwork

GREEN = "#009e73"
BLUE = "#56b4e9"
SIGNIFICANT = 0.05
"""The p value below which a series gets a star."""

ROWS = 256
"""Number of rows of the map of periods, whose axis is logarithmic."""


@styled
def draw_series(series: Sequence[SeriesResult], measure: str) -> Any:
    """Draw a box for every series, the baseline first. A star marks a significant difference from the baseline."""
    figure = new_figure(max(5.0, 1.4 + 1.0 * len(series)), 4.2)
    panel = figure.subplots()
    labels = []
    for place, result in enumerate(series):
        if result.box.finished:
            draw_box(panel, place, result.box, GREEN if place == 0 else BLUE)
        star = "" if result.p is None or result.p >= SIGNIFICANT else " *"
        label = "\n".join(fit_label(line, 30) for line in _break_name(result.name).split("\n")) + star
        labels.append(f"{label}\n{result.box.diverged} of {result.runs}" if result.box.diverged else label)
    values = [
        value for result in series for value in (result.box.minimum, result.box.whiskers[1]) if math.isfinite(value)
    ]
    if values and min(values) > 0 and max(values) > 20 * min(values):
        panel.set_yscale("log")
    panel.set_xticks(range(len(series)), labels, fontsize=8)
    panel.set_xlim(-0.6, len(series) - 0.4)
    panel.grid(False, axis="x")
    panel.set_ylabel(measure)
    panel.axhline(series[0].box.median, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    notes = []
    if any(result.p is not None for result in series):
        notes.append(f"* significantly different from {fit_label(series[0].name, 60)} (p < {SIGNIFICANT:g}, corrected)")
    if any(result.box.diverged for result in series):
        notes.append("below the name: number of runs that diverged")
    panel.set_title("\n".join(notes), loc="left", fontsize=8, color=INK)
    return figure


@styled
def draw_learning(
    exponential: Sequence[TrainedNetwork],
    learned: Sequence[TrainedNetwork],
    measure: Measure,
    planted: Sequence[int] = (),
) -> Any:
    """Draw three panels: the periods during the training, the periods at its end, and the errors of both kinds.

    Args:
        exponential: networks with the exponential series
        learned: networks that learned their clocks, on the same data
        measure: how an error is drawn
        planted: periods that are known to be in the data
    """
    data = list(dict.fromkeys(network.data for network in learned))
    figure = new_figure(8.6 + 0.9 * (len(data) - 1), 4.4)
    during, end, errors = figure.subplots(1, 3, width_ratios=[4, 1.5, 2.2 + 0.9 * (len(data) - 1)])
    end.sharey(during)
    _draw_periods_during_training(during, learned, planted)
    _draw_periods_at_end(end, learned, planted)
    _draw_errors(errors, {"exponential": exponential, "learned": learned}, data, measure)
    return figure


def _draw_periods_during_training(panel: Any, learned: Sequence[TrainedNetwork], planted: Sequence[int]) -> None:
    """Draw a map of the mean number of modules with each period, from the beginning of the training to its end."""
    trace = np.mean([network.trace for network in learned], axis=0)  # (points, C)
    longest = trace.shape[1]
    # the periods 1 and longest get half an octave of room
    heights = np.linspace(-0.25, math.log2(longest) + 0.25, ROWS)
    periods = np.clip(np.rint(2**heights), 1, longest).astype(int)
    # not clipped: matplotlib names clip paths anew in every drawing, and the file must have the same bytes
    panel.imshow(np.sqrt(trace[:, periods - 1].T), aspect="auto", cmap="BuPu", vmin=0, vmax=1, interpolation="none",
                 clip_on=False, origin="lower", extent=(0, 100, heights[0], heights[-1]), gid="way")  # fmt: skip
    panel.axvline(50, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    powers = [2**power for power in range(int(math.log2(longest)) + 1)]
    shown = sorted(planted) or powers
    panel.set_yticks([math.log2(period) for period in shown], [str(period) for period in shown])
    panel.set_ylim(heights[0], heights[-1])
    panel.grid(False)
    panel.set_xlabel("share of the training [%]; clocks are hard after the dashed line")
    panel.set_ylabel("planted period" if planted else "period")
    panel.set_title("modules per network with each period: white 0, dark 1 or more", loc="left", fontsize=8, color=INK)


def _draw_periods_at_end(panel: Any, learned: Sequence[TrainedNetwork], planted: Sequence[int]) -> None:
    """Draw the share of the networks that have each period at the end of the training."""
    counts = Counter(period for network in learned for period in network.schedule.periods)
    labelled: list[float] = []
    for period, count in counts.most_common():
        share, height = 100 * count / len(learned), math.log2(period)
        panel.plot([0, share], [height] * 2, color=GREEN if period in planted else BLUE, linewidth=2.5,
                   solid_capstyle="butt", gid=f"found-{period}")  # fmt: skip
        # labels that would overlap are left out
        if all(abs(height - other) > 0.025 * math.log2(learned[0].trace.shape[1]) for other in labelled):
            labelled.append(height)
            panel.annotate(str(period), (share, height), (3, 0), textcoords="offset points", fontsize=7, va="center",
                           color=MUTED)  # fmt: skip
    panel.set_xlim(0, 118)
    panel.set_xticks([0, 50, 100])
    panel.tick_params(labelleft=False)
    panel.grid(False, axis="y")
    panel.set_xlabel("networks [%]")
    panel.set_title("periods at the end", loc="left", fontsize=8, color=INK)


def _draw_errors(panel: Any, kinds: dict[str, Sequence[TrainedNetwork]], data: Sequence[str], measure: Measure) -> None:
    """Draw a box for each kind of network on each data set."""
    drawn: list[float] = []
    for place, name in enumerate(data):
        for side, (networks, colour) in enumerate(zip(kinds.values(), (BLUE, GREEN), strict=True)):
            errors = [measure.scale * network.hard.reported for network in networks if network.data == name]
            finite = [error for error in errors if math.isfinite(error)]
            if finite:
                draw_box(panel, 1.6 * place + 0.65 * side, box_of(finite), colour)
                drawn += finite
    if len(data) == 1:
        panel.set_xticks([0, 0.65], list(kinds), fontsize=8)
    else:
        middles = [1.6 * place + 0.325 for place in range(len(data))]
        panel.set_xticks(middles, [wrap_label(name) for name in data], fontsize=7)
    panel.set_xlim(-0.5, 1.6 * (len(data) - 1) + 1.15)
    panel.grid(False, axis="x")
    scale(panel, drawn, measure)
    legend = " and ".join(f"{kind} ({colour})" for kind, colour in zip(kinds, ("blue", "green"), strict=True))
    panel.set_title("errors" if len(data) == 1 else f"errors: {legend}", loc="left", fontsize=8, color=INK)


def _break_name(name: str) -> str:
    """Break the name of a series into lines; a schedule of many modules is cut off.

    >>> _break_name("exponential-2"), _break_name("own 1:4,2:4,4:4,8:4")
    ('exponential\\n2', 'own\\n1:4,2:4,4:4,\\n8:4')
    """
    kind, _, spec = name.rpartition(" ")
    if ":" not in spec:
        return name.replace("exponential-", "exponential\n")
    lines = textwrap.wrap(spec.replace(",", ", "), 15, max_lines=5, placeholder=" ...")
    return "\n".join([*filter(None, [kind]), *(line.replace(", ", ",") for line in lines)])
