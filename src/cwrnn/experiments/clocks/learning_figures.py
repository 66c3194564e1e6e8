"""A figure of learned clocks: how the periods were found, which they are, and what that is worth."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..report.drawing import INK, MUTED, Measure, new_figure, scale, styled, wrapped
from ..report.figures import draw_box
from ..report.statistics import box_of
from .figures import COLOUR, OTHER
from .learning import Outcome

COLOURS = (OTHER, COLOUR)
"""Of the exponential series, and of learned clocks."""

ROWS = 256
"""Of the map; its axis of periods is one of logarithms."""


@styled
def learned_plot(
    exponential: Sequence[Outcome], learned: Sequence[Outcome], measure: Measure, planted: Sequence[int] = ()
) -> Any:
    """Three panels: the periods over the training, those in the end, and the errors of both kinds.

    Args:
        exponential: networks of the exponential series
        learned: networks that learned their clocks, on the same data
        measure: how an error is drawn
        planted: periods that are known to be in the data
    """
    data = list(dict.fromkeys(outcome.data for outcome in learned))
    figure = new_figure(8.6 + 0.9 * (len(data) - 1), 4.4)
    way, end, errors = figure.subplots(1, 3, width_ratios=[4, 1.5, 2.2 + 0.9 * (len(data) - 1)])
    end.sharey(way)
    _draw_way(way, learned, planted)
    _draw_end(end, learned, planted)
    _draw_errors(errors, {"exponential": exponential, "learned": learned}, data, measure)
    return figure


def _draw_way(panel: Any, learned: Sequence[Outcome], planted: Sequence[int]) -> None:
    """How many modules had which period, on average, from the beginning of the training to its end."""
    trace = np.mean([outcome.trace for outcome in learned], axis=0)  # (points, C)
    longest = trace.shape[1]
    # half an octave around 1 and the longest belongs to them
    heights = np.linspace(-0.25, math.log2(longest) + 0.25, ROWS)
    periods = np.clip(np.rint(2**heights), 1, longest).astype(int)
    # unclipped: the names of clips differ from drawing to drawing
    panel.imshow(np.sqrt(trace[:, periods - 1].T), aspect="auto", cmap="BuPu", vmin=0, vmax=1, interpolation="none",
                 clip_on=False, origin="lower", extent=(0, 100, heights[0], heights[-1]), gid="way")  # fmt: skip
    panel.axvline(50, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    usual = [2**power for power in range(int(math.log2(longest)) + 1)]
    shown = sorted(planted) or usual
    panel.set_yticks([math.log2(period) for period in shown], [str(period) for period in shown])
    panel.set_ylim(heights[0], heights[-1])
    panel.grid(False)
    panel.set_xlabel("training [%]; hard from the dashed line on")
    panel.set_ylabel("period (planted)" if planted else "period")
    panel.set_title("periods: white none, dark one module or more of every network", loc="left", fontsize=8, color=INK)


def _draw_end(panel: Any, learned: Sequence[Outcome], planted: Sequence[int]) -> None:
    """How many networks have which period in the end."""
    found = Counter(period for outcome in learned for period in outcome.schedule.periods)
    named: list[float] = []
    for period, count in found.most_common():
        share, height = 100 * count / len(learned), math.log2(period)
        panel.plot([0, share], [height] * 2, color=COLOUR if period in planted else OTHER, linewidth=2.5,
                   solid_capstyle="butt", gid=f"found-{period}")  # fmt: skip
        # where there is room
        if all(abs(height - other) > 0.025 * math.log2(learned[0].trace.shape[1]) for other in named):
            named.append(height)
            panel.annotate(str(period), (share, height), (3, 0), textcoords="offset points", fontsize=7, va="center",
                           color=MUTED)  # fmt: skip
    panel.set_xlim(0, 118)
    panel.set_xticks([0, 50, 100])
    panel.tick_params(labelleft=False)
    panel.grid(False, axis="y")
    panel.set_xlabel("networks [%]")
    panel.set_title("found", loc="left", fontsize=8, color=INK)


def _draw_errors(panel: Any, kinds: dict[str, Sequence[Outcome]], data: Sequence[str], measure: Measure) -> None:
    """A box for each kind, for all that was learned."""
    shown: list[float] = []
    for place, name in enumerate(data):
        for side, outcomes in enumerate(kinds.values()):
            errors = [measure.scale * each.hard.reported for each in outcomes if each.data == name]
            finite = [error for error in errors if math.isfinite(error)]
            if finite:
                draw_box(panel, 1.6 * place + 0.65 * side, box_of(finite), COLOURS[side])
                shown += finite
    if len(data) == 1:
        panel.set_xticks([0, 0.65], list(kinds), fontsize=8)
    else:
        panel.set_xticks(
            [1.6 * place + 0.325 for place in range(len(data))], [wrapped(name) for name in data], fontsize=7
        )
    panel.set_xlim(-0.5, 1.6 * (len(data) - 1) + 1.15)
    panel.grid(False, axis="x")
    scale(panel, shown, measure)
    said = " and ".join(f"{kind} ({colour})" for kind, colour in zip(kinds, ("blue", "green"), strict=True))
    panel.set_title("errors" if len(data) == 1 else f"errors: {said}", loc="left", fontsize=8, color=INK)
