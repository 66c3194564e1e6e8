"""Figures that several tasks share, each a matplotlib Figure made of records alone.

    box_plot          the errors of all runs, as in the paper's figures of errors
    draw_spread       the errors of every draw of the data
    clock_pairs       the errors of all runs, of each cell without clocks and with clocks
    search_curve      the errors at every learning rate of a search

The figures of one task lie in its own folder; `statistics` computes the numbers that are drawn.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...extras import require
from ..networks.methods import METHODS, find_method
from ..sweep.run import FINISHED, Record
from .drawing import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    NAMES,
    NMSE,
    STROKES,
    Measure,
    make_translucent,
    new_figure,
    scale,
    set_log_scale,
    styled,
)
from .draws import DrawSummary
from .numbers import format_power
from .statistics import Box, RateOutcome, box, methods_of, rate_outcomes, select_records, sizes_of


@styled
def box_plot(
    records: Sequence[Record],
    paper: Mapping[tuple[str, int], tuple[float, float]] | None = None,
    measure: Measure = NMSE,
    *,
    together: Sequence[str] = ("lstm", "cw"),
    has_draws: bool = False,
) -> Any:
    """Returns a figure of the errors by method and size, a panel for each method.

    Args:
        records: runs of any methods, sizes and data sets; the data sets are taken together
        paper: the paper's mean and standard deviation, by method and size, where it prints them
        measure: how an error is drawn
        together: the methods whose panels share one scale; the others have their own, like the paper's SRN in task 1
        has_draws: True if the data sets are draws of one: their means are drawn beside the boxes
    """
    methods, sizes = methods_of(records), sizes_of(records)
    width = max(6.0, 1.1 + len(methods) * max(1.6, 0.6 * len(sizes)))
    paper = {key: numbers for key, numbers in (paper or {}).items() if key[0] in methods and key[1] in sizes}
    figure = new_figure(width, 4.2)
    panels = figure.subplots(1, len(methods), squeeze=False)[0]
    boxes = {(m, s): box(select_records(records, m, s), measure.scale) for m in methods for s in sizes}
    failures = any(drawn.failed for drawn in boxes.values())
    groups = [[method] for method in methods if method not in together]
    groups.append([method for method in methods if method in together])
    shared = groups[-1]
    for panel, method in zip(panels, methods, strict=True):
        if method in shared[1:]:
            panel.sharey(panels[methods.index(shared[0])])
            panel.tick_params(labelleft=False)
    for panel, method in zip(panels, methods, strict=True):
        _draw_method(panel, records, method, boxes, paper, measure, failures)
        if has_draws:
            _draw_means(panel, records, method, sizes, measure)
    for group in groups:
        axes = [panels[methods.index(method)] for method in group]
        if axes:
            shown = [v for m in group for s in sizes for v in (boxes[m, s].minimum, boxes[m, s].whiskers[1])]
            shown += [measure.scale * (paper[m, s][0] + sign * paper[m, s][1]) for m in group for s in sizes
                      if (m, s) in paper for sign in (-1, 1)]  # fmt: skip
            top = scale(axes[0], shown, measure)
            for panel, method in zip(axes, group, strict=True):
                for place, size in enumerate(sizes):
                    _count_above(panel, place, boxes[method, size], top, COLOURS[method])
    _name_labels(panels[0], failures)
    _draw_key(figure, panels, paper, columns=4 if width > 7.5 else 2, has_draws=has_draws)
    return figure


@styled
def draw_spread(records: Sequence[Record], draws: DrawSummary, measure: Measure = NMSE) -> Any:
    """Returns a figure of the errors of every draw: a dot for each run, and a line through the draws' means.

    It shows the size at which the methods are compared, or the largest.

    Args:
        records: the runs that `draws` summarises, or those of some of its methods
        draws: the means and seeds of the draws
        measure: how an error is drawn
    """
    methods = methods_of(records)
    size = draws.tests[0].size if draws.tests else max(row.size for row in draws.rows)
    rows = {row.method: row for row in draws.rows if row.size == size and row.method in methods}
    widths = 1.0 + 0.5 * max(4, len(draws.seeds)), 0.6 + 0.65 * len(rows)
    figure = new_figure(0.5 + sum(widths), 4.2)
    panel, side = figure.subplots(1, 2, sharey=True, width_ratios=widths)
    drawn = [0.0]
    for place, (method, row) in enumerate(rows.items()):
        shift = 0.22 * (place - (len(rows) - 1) / 2)
        means = {seed: measure.scale * mean for seed, mean in row.means.items()}
        for column, seed in enumerate(draws.seeds):
            errors = [
                measure.scale * record.error
                for record in select_records(records, method, size)
                if record.status == FINISHED and draws.names[record.run.data] == seed
            ]
            drawn += errors
            panel.plot([column + shift] * len(errors), errors, linestyle="", marker="o", markersize=3, alpha=0.35,
                       markeredgewidth=0, color=COLOURS[method], gid=f"runs-{method}-{seed}")  # fmt: skip
        columns = [column for column, seed in enumerate(draws.seeds) if seed in means]
        panel.plot([column + shift for column in columns], [means[draws.seeds[column]] for column in columns],
                   color=COLOURS[method], marker=MARKERS[method], markersize=6, linewidth=0.9, label=NAMES[method],
                   gid=f"means-{method}")  # fmt: skip
        for offset, spread in ((-0.12, row.between), (0.12, row.within)):
            side.errorbar(place + offset, measure.scale * row.mean, measure.scale * (spread or 0.0),
                          fmt=MARKERS[method], markersize=6, capsize=3, color=COLOURS[method],
                          elinewidth=1.8 if offset < 0 else 0.9, gid=f"spread-{method}-{offset}")  # fmt: skip
    panel.set_xticks(range(len(draws.seeds)), [str(seed) for seed in draws.seeds])
    panel.set_xlabel("draw of the speakers (its seed)")
    panel.set_title(f"{size} parameters", loc="left")
    panel.grid(False, axis="x")
    scale(panel, drawn, measure)
    side.set_xticks(range(len(rows)), [NAMES[method] for method in rows], fontsize=8)
    side.set_xlim(-0.6, len(rows) - 0.4)
    side.tick_params(axis="x", length=0)
    side.grid(False, axis="x")
    side.set_title("mean ± deviation", loc="left")
    side.set_xlabel("thick: between draws\nthin: within a draw")
    figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=max(1, len(rows)))
    return figure


@styled
def clock_pairs(
    records: Sequence[Record],
    paper: Mapping[tuple[str, int], tuple[float, float]] | None = None,
    measure: Measure = NMSE,
) -> Any:
    """Returns a figure of the errors by method and size: a column for each cell, without clocks above and with below.

    All panels share one scale. The arguments are those of `box_plot`.
    """
    paper = paper or {}
    present, sizes = [method for method in methods_of(records) if method in METHODS], sizes_of(records)
    cells = list(dict.fromkeys(METHODS[method].cell for method in METHODS if method in present))
    width = 1.1 + len(cells) * max(1.9, 0.6 * len(sizes))
    figure = new_figure(max(6.0, width), 7.4)
    panels = figure.subplots(2, len(cells), squeeze=False, sharey=True)
    boxes = {(m, s): box(select_records(records, m, s), measure.scale) for m in present for s in sizes}
    failures = any(drawn.failed for drawn in boxes.values())
    shown = [v for drawn in boxes.values() for v in (drawn.minimum, drawn.whiskers[1])]
    shown += [
        measure.scale * (mean + sign * deviation)
        for key, (mean, deviation) in paper.items()
        if key in boxes
        for sign in (-1, 1)
    ]
    top = scale(panels[0, 0], shown, measure)
    label = panels[0, 0].get_ylabel()
    drawn: list[Any] = []
    for row, has_clocks in zip(panels, (False, True), strict=True):
        of_row = []
        for panel, cell in zip(row, cells, strict=True):
            method = find_method(cell, has_clocks=has_clocks)
            if method not in present:
                panel.remove()
                continue
            of_row.append(panel)
            _draw_method(panel, records, method, boxes, paper, measure, failures)
            for place, size in enumerate(sizes):
                _count_above(panel, place, boxes[method, size], top, COLOURS[method])
        for panel in of_row:
            panel.set_ylabel(label if panel is of_row[0] else "")
            panel.tick_params(labelleft=panel is of_row[0])
        if of_row:
            _name_labels(of_row[0], failures)
        drawn += of_row
    _draw_key(figure, drawn, {key: paper[key] for key in paper if key in boxes}, columns=4 if width > 7.5 else 2)
    return figure


def _draw_method(
    panel: Any,
    records: Sequence[Record],
    method: str,
    boxes: Mapping[tuple[str, int], Box],
    paper: Mapping[tuple[str, int], tuple[float, float]],
    measure: Measure,
    failures: bool,
) -> None:
    """Draws the errors of one method: a box for each size, with its numbers below and the paper's mean beside it."""
    sizes = sorted({size for _, size in boxes})
    labels = []
    for place, size in enumerate(sizes):
        here = boxes[method, size]
        runs = here.finished + here.diverged + here.failed
        hidden = {record.run.hidden for record in select_records(records, method, size)}
        rows = [str(size), "/".join(map(str, sorted(hidden))), f"{here.diverged} of {runs}"]
        labels.append("\n".join(rows + [f"{here.failed} of {runs}"] * failures) if runs else f"{size}\nno runs")
        if here.finished:
            draw_box(panel, place, here, COLOURS[method])
        elif runs:
            panel.text(place, 0.5, "no run finished", rotation=90, ha="center", va="center", color=MUTED,
                       transform=panel.get_xaxis_transform())  # fmt: skip
        if (method, size) in paper:
            mean, deviation = (measure.scale * number for number in paper[method, size])
            panel.errorbar(place + 0.4, mean, deviation, fmt="*", markersize=9, color=INK, capsize=2.5,
                           elinewidth=0.9, markeredgewidth=0, zorder=4, gid=f"paper-{method}-{size}")  # fmt: skip
    panel.set_xticks(range(len(sizes)), labels, fontsize=8, linespacing=1.45)
    panel.set_xlim(-0.6, len(sizes) - 0.35)
    panel.grid(False, axis="x")
    panel.tick_params(axis="x", length=0)
    panel.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left", pad=14)


def _draw_means(panel: Any, records: Sequence[Record], method: str, sizes: Sequence[int], measure: Measure) -> None:
    """Draws a stroke for the mean of each data set, beside the boxes of one method."""
    for place, size in enumerate(sizes):
        errors: dict[str, list[float]] = {}
        for record in select_records(records, method, size):
            if record.status == FINISHED:
                errors.setdefault(record.run.data, []).append(measure.scale * record.error)
        means = [float(np.mean(group)) for group in errors.values()]
        panel.plot([place - 0.4] * len(means), means, linestyle="", marker="_", markersize=8, markeredgewidth=1.2,
                   color=COLOURS[method], gid=f"means-{method}-{size}")  # fmt: skip


def _name_labels(panel: Any, failures: bool) -> None:
    """Names the rows of numbers below the boxes, left of the panel."""
    names = ["parameters", "hidden units", "diverged"] + ["failed"] * failures
    panel.annotate("\n".join(names), (0, 0), (-12, -3.5), xycoords="axes fraction", fontsize=8,
                   textcoords="offset points", ha="right", va="top", linespacing=1.45, color=MUTED)  # fmt: skip


def _draw_key(
    figure: Any,
    panels: Sequence[Any],
    paper: Mapping[tuple[str, int], tuple[float, float]],
    *,
    columns: int,
    has_draws: bool = False,
) -> None:
    """Draws the key of a figure of boxes."""
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    keys = [
        lines.Line2D([], [], color=MUTED, marker="s", markersize=9, alpha=0.35, linestyle="", label="quartiles"),
        lines.Line2D([], [], color=INK, linewidth=1.6, label="median"),
        lines.Line2D([], [], color=INK, marker="D", markersize=4, linestyle="", label="mean"),
        lines.Line2D([], [], color=MUTED, linewidth=1, label="lowest and highest that are no outliers"),
        lines.Line2D([], [], color=MUTED, marker="o", markersize=4, fillstyle="none", linestyle="", label="outlier"),
    ]
    if has_draws:
        keys.append(lines.Line2D([], [], color=MUTED, marker="_", markersize=8, linestyle="", label="mean of a draw"))
    if any("↑" in text.get_text() for panel in panels for text in panel.texts):
        keys.append(lines.Line2D([], [], linestyle="", label="↑ number of runs above the frame"))
    if paper:
        keys.append(
            lines.Line2D([], [], color=INK, marker="*", markersize=9, markeredgewidth=0, linestyle="",
                         label="the paper: mean ± deviation")
        )  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", ncols=columns, handletextpad=0.6,
                  columnspacing=1.8)  # fmt: skip


def draw_box(panel: Any, place: float, here: Box, colour: str) -> None:
    """Draws a box with whiskers at `place` on the horizontal axis."""
    statistics = {
        "q1": here.lower,
        "med": here.median,
        "q3": here.upper,
        "whislo": here.whiskers[0],
        "whishi": here.whiskers[1],
        "mean": here.mean,
        "fliers": here.outliers,
    }
    fill = {"facecolor": make_translucent(colour, 0.3), "edgecolor": colour, "linewidth": 1.1}
    panel.bxp(
        [statistics], [place], widths=0.52, showmeans=True, patch_artist=True, manage_ticks=False, boxprops=fill,
        medianprops={"color": INK, "linewidth": 1.6, "solid_capstyle": "butt"},
        meanprops={"marker": "D", "markersize": 4, "markerfacecolor": INK, "markeredgecolor": "none"},
        whiskerprops={"color": colour, "linewidth": 1.1}, capprops={"color": colour, "linewidth": 1.1},
        flierprops={"marker": "o", "markersize": 3, "markerfacecolor": "none", "markeredgecolor": colour,
                    "markeredgewidth": 0.7, "alpha": 0.55},
    )  # fmt: skip


def _count_above(panel: Any, place: float, here: Box, top: float, colour: str) -> None:
    """Writes how many runs lie above the frame. A scale that reached the worst runs would flatten all others."""
    above = sum(value > top for value in here.outliers)
    if above:
        mean = ", mean" if here.mean > top else ""
        panel.annotate(f"↑ {above}{mean}", (place, 1), (0, 1), xycoords=panel.get_xaxis_transform(), fontsize=7,
                       textcoords="offset points", ha="center", va="bottom", color=colour)  # fmt: skip


@styled
def search_curve(records: Sequence[Record], paper: Mapping[str, float], measure: Measure = NMSE) -> Any:
    """Returns a figure of the error against the learning rate, and below it of the share of the runs that diverged.

    Args:
        records: the runs of a search
        paper: the paper's learning rates, by method; other methods have none
        measure: how an error is drawn
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    methods, sizes = methods_of(records), sizes_of(records)
    figure = new_figure(max(5.0, 1.0 + 2.9 * len(methods)), 4.4)
    upper, lower = figure.subplots(2, len(methods), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    dashes = {size: STROKES[place % len(STROKES)] for place, size in enumerate(reversed(sizes))}
    outcomes_of = {(m, s): rate_outcomes(select_records(records, m, s), measure.scale) for m in methods for s in sizes}
    drawn = [
        value
        for outcomes in outcomes_of.values()
        for outcome in outcomes
        for value in (outcome.lower, outcome.median)
        if 0 < outcome.median < math.inf
    ]
    for above, below, method in zip(upper, lower, methods, strict=True):
        most_finished = False
        for size in sizes:
            outcomes = outcomes_of[method, size]
            most_finished |= any(math.isfinite(outcome.median) for outcome in outcomes)
            places = [outcome.learning_rate for outcome in outcomes]
            medians = np.array([outcome.median for outcome in outcomes])
            # a quartile of infinity is drawn far above the frame
            quartiles = np.minimum(_quartiles(outcomes), 100 * max(drawn, default=1.0))
            shade = 0.2 / len(sizes) + 0.03
            known = np.isfinite(medians)
            above.fill_between(places, *quartiles, where=known, color=COLOURS[method], alpha=shade, linewidth=0)
            above.plot(places, np.where(known, medians, np.nan), color=COLOURS[method], markersize=5,
                       marker=MARKERS[method], linestyle=dashes[size], gid=f"search-{method}-{size}")  # fmt: skip
        by_rate = rate_outcomes(record for record in records if record.run.method == method)
        shares = [100 * outcome.diverged / outcome.runs for outcome in by_rate]
        below.vlines([outcome.learning_rate for outcome in by_rate], 0, shares, color=COLOURS[method], linewidth=6,
                     gid=f"share-{method}")  # fmt: skip
        for panel in (above, below):
            if method in paper:
                panel.axvline(paper[method], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
            panel.set_xscale("log")
        if not most_finished:
            above.text(0.5, 0.5, "no rate at which\nmost runs finished", ha="center", va="center", color=MUTED,
                       transform=above.transAxes)  # fmt: skip
        above.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left")
        below.tick_params(axis="x", labelsize=8)
    rates = {record.run.settings.learning_rate for record in records}
    every = rates | {paper[method] for method in methods if method in paper}
    lower[0].set_xlim(min(every) / 1.6, max(every) * 1.6)
    if len(rates) <= 8:
        lower[0].set_xticks(sorted(rates), [format_power(rate) for rate in sorted(rates)])
        lower[0].set_xticks([], minor=True)
    if measure.highest < math.inf:
        upper[0].set_ylim(0, 1.03 * measure.highest)
        upper[0].set_ylabel(measure.label)
    else:
        set_log_scale(upper, drawn)
        upper[0].set_ylabel(f"{measure.label} (log scale)")
        if drawn:
            # errors above 10 are all useless: the frame ends there
            upper[0].set_ylim(min(drawn) / 1.5, max(3 * min(drawn), min(10.0, 3 * max(drawn))))
    # a share of 100 % lies within the panel, too
    lower[0].set_ylim(0, 105)
    lower[0].set_yticks([0, 50, 100])
    lower[0].set_ylabel("diverged [%]")
    figure.supxlabel("learning rate (log scale)", fontsize=9)
    keys = [lines.Line2D([], [], color=INK, linestyle=dashes[size], label=f"{size} parameters") for size in sizes]
    if any(method in paper for method in methods):
        keys.append(lines.Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="the paper's rate"))
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    return figure


def _quartiles(outcomes: Sequence[RateOutcome]) -> Any:
    """Returns the lower and the upper quartiles (2, rates)."""
    return np.array([(outcome.lower, outcome.upper) for outcome in outcomes]).reshape(-1, 2).T
