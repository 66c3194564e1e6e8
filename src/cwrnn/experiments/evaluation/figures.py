"""The figures of the evaluation tasks, each a matplotlib Figure made of records alone.

    draw_errors       test errors: against the parameters, or by method if there is one budget
    draw_costs        test errors against the multiply-adds of a time step, or against the seconds of training
    draw_curves       validation errors against the seconds of training
    draw_lengths      test errors against the length of the sequences

A store can have 20 methods. Their names stand beside their lines and points; none has to be found by its colour.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from ...extras import require
from ..networks.methods import PLACES
from ..report.drawing import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    NAMES,
    SMALLEST,
    Measure,
    fit_label,
    new_figure,
    styled,
)
from ..report.numbers import format_count, format_percent
from ..report.statistics import methods_of, sizes_of
from ..sweep.run import FINISHED, Record
from .copying import LETTERS
from .task import Evaluation

N = TypeVar("N")

BASELINES: Mapping[str, tuple[float, str]] = {
    "adding": (1 / 6, "the answer 1"),
    "copy": (1 - 1 / LETTERS, "guessing"),
}
"""The error of a network that remembers nothing, and its name, by task."""
LONG_NAMES = {"bits": "bits per character"}
"""Names of errors that an axis writes out."""
LARGEST_RATIO = 5.0
"""Scales are logarithmic if the largest error is more than so many times the lowest."""
MOST_TOGETHER = 7
"""The most methods whose learning curves share a panel."""
COSTS = {
    "operations": "multiply-adds per time step (log scale)",
    "seconds": "seconds of training, the median of the runs (log scale)",
}
"""The costs that errors are drawn against, and their axes."""
NAME_POINTS = 8
"""The size of the methods' names, in points."""


def make_measure(task: Evaluation, part: str = "test") -> Measure:
    """Returns how an error of the task is drawn: shares in percent, the others as they are.

    >>> from .task import EVALUATIONS
    >>> [make_measure(task).label for task in EVALUATIONS[:2]]
    ['test MSE', 'test error [%]']
    """
    if task.error_is_a_share:
        return Measure(f"{part} error", "%", scale=100.0, highest=100.0)
    return Measure(f"{part} {LONG_NAMES.get(task.error_name, task.error_name)}")


def make_number_format(task: Evaluation) -> Callable[[float], str]:
    """Returns the function that writes an error of the task: a share in percent, bits in three decimals.

    >>> from .task import EVALUATIONS
    >>> [make_number_format(task)(0.1234) for task in EVALUATIONS]
    ['0.12', '12.3 %', '12.3 %', '12.3 %', '0.123']
    """
    if task.error_is_a_share:
        return format_percent
    return lambda error: task.format_error(error) if math.isfinite(error) else "none"


def find_front(networks: Iterable[N], measure: Callable[[N], tuple[float, float]]) -> list[N]:
    """Returns the networks that no other beats in both cost and error, the cheapest one first.

    Args:
        networks: in any order
        measure: returns the cost and the error of a network

    >>> find_front([(3, 0.1), (1, 0.2), (2, 0.3), (4, 0.1)], lambda network: network)
    [(1, 0.2), (3, 0.1)]
    """
    front: list[N] = []
    for network in sorted(networks, key=measure):
        if not front or measure(network)[1] < measure(front[-1])[1]:
            front.append(network)
    return front


def has_baseline(figure: Any) -> bool:
    """Returns whether a panel of the figure has the line of a network that remembers nothing."""
    return any(line.get_gid() == "baseline" for panel in figure.axes for line in panel.lines)


@styled
def draw_errors(records: Sequence[Record], task: Evaluation, data: Sequence[str]) -> Any:
    """Returns a figure of the test errors, a panel for each data set: against parameters, or by method.

    Args:
        records: runs of any methods and budgets, one set of hyper-parameters for each
        task: their task
        data: the names of the data sets in the order of the panels
    """
    if len(sizes_of(records)) == 1:
        return _draw_ranking(records, task, data)
    groups = {name: [record for record in records if record.run.data == name] for name in data}
    return _draw_lines(groups, task, lambda record: record.parameters, "parameters (log scale)")


@styled
def draw_lengths(records: Sequence[Record], task: Evaluation, lengths: Mapping[str, int], label: str) -> Any:
    """Returns a figure of the test errors against the length of the sequences, a panel for each budget.

    Args:
        records: runs of any methods and budgets, one set of hyper-parameters for each
        task: their task
        lengths: the length of each data set, by its name
        label: what a length is
    """
    groups = {
        f"{size:,} parameters": [record for record in records if record.run.size == size] for size in sizes_of(records)
    }
    return _draw_lines(groups, task, lambda record: lengths[record.run.data], f"{label} (log scale)")


@styled
def draw_costs(
    records: Sequence[Record],
    task: Evaluation,
    data: Sequence[str],
    kind: str,
    costs: Mapping[tuple[str, str, int], float],
) -> Any:
    """Returns a figure of the test errors against what the networks cost, a panel for each data set.

    The grey steps lead through the networks that no other beats in both.

    Args:
        records: runs of any methods and budgets, one set of hyper-parameters for each
        task: their task
        data: the names of the data sets in the order of the panels
        kind: one of COSTS
        costs: by data set, method and size
    """
    measure = make_measure(task)
    figure, panels = _new_panels(len(data), 7.4, 4.9)

    def cost_of(record: Record) -> float:
        return costs[record.run.data, record.run.method, record.run.size]

    groups = [
        _mean_points([record for record in records if record.run.data == name], measure, cost_of) for name in data
    ]
    for place, (panel, points) in enumerate(zip(panels, groups, strict=True)):
        _scale_errors(panel, "y", [value for point in points for value in point.errors], measure)
        _scale_amounts(panel, [point.x for point in points], COSTS[kind])
        _draw_front(panel, points)
        for method in dict.fromkeys(point.method for point in points):
            mine = [point for point in points if point.method == method]
            panel.plot([point.x for point in mine], [point.mean for point in mine], linewidth=0.8, alpha=0.6,
                       color=COLOURS[method])  # fmt: skip
            for point in mine:
                _draw_point(panel, point, f"{kind}-{place}-{method}-{point.size}")
        _draw_baseline(panel, task, measure)
        _title(panel, data[place], len(data))
    # the names need the layout
    figure.draw_without_rendering()
    for panel, points in zip(panels, groups, strict=True):
        _name_points(panel, points)
    return figure


@styled
def draw_curves(records: Sequence[Record], task: Evaluation) -> Any:
    """Returns a figure of the validation errors against the seconds of training, a thin line for each run.

    Few methods share a panel; of more than MOST_TOGETHER each has its own, with the others in grey behind it.

    Args:
        records: runs of one budget on one data set
        task: their task
    """
    measure = make_measure(task, "validation")
    methods = methods_of(records)
    curves = {
        method: [curve for record in records if record.run.method == method and len(curve := _curve(record, measure))]
        for method in methods
    }
    methods = [method for method in methods if curves[method]]
    every = [curve for method in methods for curve in curves[method]]
    together = len(methods) <= MOST_TOGETHER
    columns = 1 if together else 5
    rows = -(-max(1, len(methods)) // columns) if not together else 1
    figure = new_figure(8.2, 4.4 if together else 0.5 + 1.45 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    first = panels[0]
    label = _scale_errors(first, "y", [value for curve in every for value in curve[:, 1]], measure, set_label=together)
    _scale_amounts(first, [value for curve in every for value in curve[:, 0]])
    if together:
        for method in methods:
            _draw_method_curves(first, curves[method], method)
        first.set_xlabel("seconds of training (log scale)")
        _draw_baseline(first, task, measure)
        ends = [(method, *_middle(curves[method])[-1]) for method in methods]
        _name_ends(first, ends, 4.4)
        return figure
    for panel, method in zip(panels, methods, strict=False):
        for other in methods:
            if other != method:
                middle = _thin(_middle(curves[other]))
                panel.plot(middle[:, 0], middle[:, 1], color=MUTED, alpha=0.28, linewidth=0.6, zorder=1)
        _draw_method_curves(panel, curves[method], method)
        _draw_baseline(panel, task, measure, name=False)
        panel.set_title(NAMES[method], color=COLOURS[method], fontsize=9, fontweight="bold", loc="left", pad=3)
        panel.tick_params(labelsize=7.5)
        panel.set_xlabel("")
    for place, panel in enumerate(panels[len(methods) :], len(methods)):
        panel.set_visible(False)
        # the panel above has the labels that this one would have
        panels[place - columns].tick_params(labelbottom=True)
    figure.supxlabel("seconds of training (log scale)", fontsize=9)
    figure.supylabel(label, fontsize=9)
    return figure


class _Point:
    """The mean test error of one network, with the errors of its runs, as drawn."""

    def __init__(self, method: str, size: int, x: float, errors: Sequence[float]) -> None:
        self.method, self.size, self.x, self.errors = method, size, x, errors
        self.mean = float(np.mean(errors))


def _mean_points(
    records: Iterable[Record], measure: Measure, x_of: Callable[[Record], float] = lambda record: 0.0
) -> list[_Point]:
    """Returns a point for each method, size and x of the finished runs, in the order of ALL_METHODS and of x."""
    groups: dict[tuple[str, int, float], list[float]] = {}
    for record in records:
        if record.status == FINISHED and math.isfinite(record.error):
            key = record.run.method, record.run.size, float(x_of(record))
            groups.setdefault(key, []).append(measure.scale * record.error)
    order = sorted(groups, key=lambda key: (PLACES[key[0]], key[2], key[1]))
    return [_Point(method, size, x, groups[method, size, x]) for method, size, x in order]


def _new_panels(count: int, width: float, height: float) -> tuple[Any, list[Any]]:
    """Returns a figure with that many panels of this width and height in inches, one below the other."""
    figure = new_figure(width, height * max(1, count))
    return figure, list(figure.subplots(max(1, count), 1, squeeze=False)[:, 0])


def _draw_ranking(records: Sequence[Record], task: Evaluation, data: Sequence[str]) -> Any:
    """Draws a row for each method, the best one on top: a marker for each run, a stroke for the mean."""
    measure = make_measure(task)
    order = _rank_methods(records, data)
    columns = len(data)
    height = 1.0 + 0.235 * max(3, len(order))
    figure = new_figure(max(7.4, 1.4 + 3.1 * columns), height)
    panels = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
    places = {method: -place for place, method in enumerate(order)}
    for column, (panel, name) in enumerate(zip(panels, data, strict=True)):
        mine = [record for record in records if record.run.data == name]
        points = {point.method: point for point in _mean_points(mine, measure)}
        _scale_errors(panel, "x", [value for point in points.values() for value in point.errors], measure)
        for method, place in places.items():
            runs = [record for record in mine if record.run.method == method]
            note = _write_note(points.get(method), runs, task, measure)
            panel.annotate(
                note,
                (1, place),
                (6, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
                fontsize=NAME_POINTS,
                color=COLOURS[method] if method in points else MUTED,
            )
            if method in points:
                errors = points[method].errors
                panel.plot(errors, [place] * len(errors), linestyle="", marker=MARKERS[method], markersize=5,
                           color=COLOURS[method], alpha=0.75, gid=f"errors-{column}-{method}")  # fmt: skip
                panel.plot([points[method].mean] * 2, [place - 0.38, place + 0.38], color=INK, linewidth=1.3,
                           gid=f"mean-{column}-{method}", solid_capstyle="butt")  # fmt: skip
        _draw_baseline(panel, task, measure, axis="x")
        _title(panel, name, columns)
        panel.set_ylim(-len(order) + 0.4, 0.6)
        panel.tick_params(axis="y", length=0)
    panels[0].set_yticks([*places.values()], [NAMES[method] for method in order])
    for text, method in zip(panels[0].get_yticklabels(), order, strict=True):
        text.set_color(COLOURS[method])
        text.set_fontweight("bold")
    return figure


def _write_note(point: _Point | None, runs: Sequence[Record], task: Evaluation, measure: Measure) -> str:
    """Returns the mean error of a row in words, and how many of its runs did not finish."""
    lost = sum(record.status != FINISHED for record in runs)
    if point is None:
        return "no run finished" if runs else "no runs"
    text = make_number_format(task)(point.mean / measure.scale)
    return f"{text}   ({format_count(lost, 'run')} lost)" if lost else text


def _rank_methods(records: Sequence[Record], data: Sequence[str]) -> list[str]:
    """Returns the methods by their mean rank over the data sets, the best one first; those without errors last."""
    methods = methods_of(records)
    ranks = dict.fromkeys(methods, 0.0)
    for name in data:
        points = _mean_points([record for record in records if record.run.data == name], Measure(""))
        means = {point.method: point.mean for point in points}
        for method in methods:
            ranks[method] += sum(mean < means.get(method, math.inf) for mean in means.values())
    return sorted(methods, key=lambda method: (ranks[method], methods.index(method)))


def _draw_lines(
    groups: Mapping[str, Sequence[Record]], task: Evaluation, x_of: Callable[[Record], float], label: str
) -> Any:
    """Draws a panel for each group: a line of means for each method, named at its right end."""
    measure = make_measure(task)
    figure, panels = _new_panels(len(groups), 7.4, 4.4)
    for place, (panel, (name, records)) in enumerate(zip(panels, groups.items(), strict=True)):
        points = _mean_points(records, measure, x_of)
        _scale_errors(panel, "y", [value for point in points for value in point.errors], measure)
        _scale_amounts(panel, [point.x for point in points], label)
        ends = []
        for method in dict.fromkeys(point.method for point in points):
            mine = [point for point in points if point.method == method]
            panel.plot([point.x for point in mine], [point.mean for point in mine], color=COLOURS[method],
                       linewidth=1.1, gid=f"lines-{place}-{method}")  # fmt: skip
            for point in mine:
                _draw_point(panel, point, f"lines-{place}-{method}-{point.x:g}")
            ends.append((method, mine[-1].x, mine[-1].mean))
        _draw_baseline(panel, task, measure)
        _title(panel, name, len(groups))
        _name_ends(panel, ends, 4.4)
    return figure


def _draw_point(panel: Any, point: _Point, gid: str) -> None:
    """Draws a mean, and a bar from the lowest to the highest error."""
    if len(point.errors) > 1:
        panel.vlines(point.x, min(point.errors), max(point.errors), color=COLOURS[point.method], linewidth=0.9,
                     alpha=0.7)  # fmt: skip
    panel.plot([point.x], [point.mean], linestyle="", marker=MARKERS[point.method], markersize=6.5,
               color=COLOURS[point.method], zorder=3, gid=gid)  # fmt: skip


def _draw_front(panel: Any, points: Sequence[_Point]) -> None:
    """Draws steps through the points that no other point beats in both cost and error."""
    front = find_front(points, lambda point: (point.x, point.mean))
    if len(front) > 1:
        panel.step([point.x for point in front], [point.mean for point in front], where="post", color=MUTED,
                   alpha=0.45, linewidth=3, zorder=1, gid="front")  # fmt: skip


def _draw_method_curves(panel: Any, curves: Sequence[Any], method: str) -> None:
    """Draws the curves of the runs of one method; a run with one point is a marker."""
    for place, curve in enumerate(curves):
        panel.plot(
            curve[:, 0],
            curve[:, 1],
            color=COLOURS[method],
            linewidth=0.9,
            zorder=2,
            marker=MARKERS[method] if len(curve) == 1 else "",
            markersize=5,
            gid=f"curve-{method}-{place}",
        )


def _curve(record: Record, measure: Measure) -> Any:
    """Returns the seconds and the validation errors of a run that can be drawn, (n, 2)."""
    if record.curve is None:
        return np.empty((0, 2))
    points = record.curve[:, [1, 3]].astype(np.float64) * (1.0, measure.scale)
    return points[np.isfinite(points).all(axis=1) & (points[:, 0] > 0)]


def _middle(curves: Sequence[Any]) -> Any:
    """Returns the curve whose last error is the median, or the lower of two."""
    return sorted(curves, key=lambda curve: float(curve[-1, 1]))[(len(curves) - 1) // 2]


def _thin(curve: Any, most: int = 9) -> Any:
    """Returns at most so many points of a curve, the first and the last among them."""
    places = np.unique(np.linspace(0, len(curve) - 1, most).round().astype(int))
    return curve[places]


def _title(panel: Any, name: str, count: int) -> None:
    """Names a panel, if there are several."""
    if count > 1:
        panel.set_title(fit_label(name, 50), loc="left", fontweight="bold", fontsize=9.5)


def _scale_errors(panel: Any, axis: str, values: Iterable[float], measure: Measure, *, set_label: bool = True) -> str:
    """Sets scale, limits, ticks and label of the axis of the errors, "x" or "y"; returns the label."""
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    finite = [value for value in values if math.isfinite(value)] or [1.0]
    low, high = min(finite), max(finite)
    label = measure.label
    if low > 0 and high > LARGEST_RATIO * low:
        label = f"{label} (log scale)"
        getattr(panel, f"set_{axis}scale")("log")
        room = max(1.25, (high / low) ** 0.06)
        getattr(panel, f"set_{axis}lim")(max(low / room, SMALLEST), min(high * room, 1e300))
        ticks = getattr(panel, f"{axis}axis")
        # names of numbers are wider than high
        if high / low < (2000 if axis == "y" else 60):
            ticks.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0), numticks=30))
            ticks.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
        ticks.set_minor_formatter(ticker.NullFormatter())
    else:
        room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
        bottom = min(0.0, low) - (0.02 * high if low <= 0 else 0.0) if measure.highest < math.inf else low - room
        getattr(panel, f"set_{axis}lim")(bottom, high + room)
    if set_label:
        getattr(panel, f"set_{axis}label")(label)
    return label


def _scale_amounts(panel: Any, values: Iterable[float], label: str = "") -> None:
    """Makes the horizontal axis logarithmic, with room beside the outermost values and plain numbers at its ticks."""
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    known = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = min(known), max(known)
    room = max(1.15, (high / low) ** 0.05)
    panel.set_xscale("log")
    panel.set_xlim(low / room, high * room)
    shares = (1.0, 2.0, 3.0, 5.0, 7.0) if high < 15 * low else (1.0, 2.0, 5.0) if high < 80 * low else (1.0,)
    panel.xaxis.set_major_locator(ticker.LogLocator(subs=shares, numticks=30))
    panel.xaxis.set_major_formatter(
        ticker.FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    )
    panel.xaxis.set_minor_formatter(ticker.NullFormatter())
    panel.set_xlabel(label)


def _draw_baseline(panel: Any, task: Evaluation, measure: Measure, *, axis: str = "y", name: bool = True) -> None:
    """Draws a dashed line at the error of a network that remembers nothing, where it is known and within the frame."""
    if task.name not in BASELINES:
        return
    error, text = BASELINES[task.name]
    value = measure.scale * error
    low, high = getattr(panel, f"get_{axis}lim")()
    # so that it shows if errors come near to it
    if not low < value < high * 1.3:
        return
    getattr(panel, f"set_{axis}lim")(low, max(high, value * 1.08))
    draw = panel.axhline if axis == "y" else panel.axvline
    draw(value, color=MUTED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1, gid="baseline")
    if name and axis == "y":
        panel.annotate(text, (0, value), (4, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
                       fontsize=7.5, color=MUTED)  # fmt: skip
    elif name:
        # on top, where the best methods are, which are far from it
        panel.annotate(text, (value, 1), (-3, -2), xycoords=("data", "axes fraction"), textcoords="offset points",
                       fontsize=7.5, color=MUTED, ha="right", va="top", rotation=90)  # fmt: skip


def _name_ends(panel: Any, ends: Sequence[tuple[str, float, float]], height: float) -> None:
    """Writes the names of methods right of the panel, at the heights of the points (x, y), moved apart where needed."""
    if not ends:
        return
    to_axes = panel.transData + panel.transAxes.inverted()
    points = {method: to_axes.transform((x, y)) for method, x, y in ends}
    gap = 1.22 * NAME_POINTS / (72 * (height - 0.8))
    order = sorted(points, key=lambda method: (points[method][1], method))
    places = _spread([float(points[method][1]) for method in order], gap)
    for method, place in zip(order, places, strict=True):
        x, y = points[method]
        panel.plot([x, 1.015, 1.03], [y, place, place], transform=panel.transAxes, color=COLOURS[method], linewidth=0.5,
                   alpha=0.7, clip_on=False)  # fmt: skip
        panel.annotate(NAMES[method], (1.035, place), xycoords="axes fraction", va="center", fontsize=NAME_POINTS,
                       color=COLOURS[method], annotation_clip=False)  # fmt: skip


def _spread(values: Sequence[float], gap: float) -> list[float]:
    """Returns places near the increasing values that are at least `gap` apart, within 0 and 1 if they fit there.

    >>> _spread([0.0, 0.5, 0.5], 0.25), _spread([1.0, 1.0], 0.25)
    ([0.0, 0.375, 0.625], [0.75, 1.0])
    """

    def place_block(members: list[float]) -> float:
        half = gap * (len(members) - 1) / 2
        return max(half, min(1 - half, sum(members) / len(members)))

    # neighbours that are too close become a block around their mean
    blocks: list[list[float]] = []
    for value in values:
        blocks.append([value])
        while len(blocks) > 1:
            lower, upper = blocks[-2:]
            if place_block(upper) - place_block(lower) >= gap * (len(lower) + len(upper)) / 2 - 1e-12:
                break
            blocks[-2:] = [[*lower, *upper]]
    return [
        place_block(members) + gap * (place - (len(members) - 1) / 2)
        for members in blocks
        for place in range(len(members))
    ]


def _name_points(panel: Any, points: Sequence[_Point]) -> None:
    """Writes the name of each method beside its point of the largest budget, where it covers the least."""
    pixel = 72.0 / panel.figure.dpi
    frame = [pixel * value for value in panel.get_window_extent().extents]
    places = {id(point): pixel * panel.transData.transform((point.x, point.mean)) for point in points}
    taken = [_box_around(x, y, 8, 8) for x, y in places.values()]
    for line in panel.lines:
        ends = pixel * line.get_transform().transform(line.get_xydata())
        # the corners of steps are not among the points
        ends = ends if line.get_drawstyle() == "default" else _make_corners(ends)
        taken += [box for start, end in pairwise(ends.tolist()) for box in _cover_line(start, end)]
    named = {point.method: point for point in points}
    for point in sorted(named.values(), key=lambda point: (-point.mean, point.x)):
        x, y = places[id(point)]
        width, height = 0.6 * NAME_POINTS * len(NAMES[point.method]) + 2, 1.15 * NAME_POINTS
        best: tuple[float, float, float] | None = None
        for distance in (8, 13, 20, 28, 38, 50):
            for angle in (0, 180, 90, 270, 35, 325, 145, 215):
                dx, dy = math.cos(math.radians(angle)), math.sin(math.radians(angle))
                middle = x + dx * (distance + width / 2), y + dy * (distance + height / 2)
                box = _box_around(*middle, width, height)
                cost = sum(_overlap(box, other) for other in taken) + 3 * _outside(box, frame) + 0.15 * distance
                if best is None or cost < best[0]:
                    best = cost, *middle
        assert best is not None
        _, at, level = best
        taken.append(_box_around(at, level, width, height))
        far = math.hypot(max(0.0, abs(at - x) - width / 2), level - y) > 14
        panel.annotate(
            NAMES[point.method], (point.x, point.mean), (at - x, level - y), textcoords="offset points", ha="center",
            va="center", fontsize=NAME_POINTS, color=COLOURS[point.method], annotation_clip=False, in_layout=False,
            arrowprops={"arrowstyle": "-", "color": COLOURS[point.method], "linewidth": 0.5, "shrinkB": 4, "shrinkA": 0}
            if far else None,
        )  # fmt: skip


def _make_corners(points: Any) -> Any:
    """Returns the points (2 n - 1, 2) of steps that go right and then down through points (n, 2)."""
    corners = np.repeat(points, 2, axis=0)[:-1]
    corners[1::2, 0] = points[1:, 0]
    return corners


def _cover_line(start: Sequence[float], end: Sequence[float]) -> list[tuple[float, float, float, float]]:
    """Returns small boxes along a line from start to end."""
    count = max(1, math.ceil(math.dist(start, end) / 4))
    return [
        _box_around(start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]), 4, 4)
        for share in (np.arange(count) + 0.5) / count
    ]


def _box_around(x: float, y: float, width: float, height: float) -> tuple[float, float, float, float]:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Returns the area that two boxes share, as (left, bottom, right, top)."""
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _outside(box: Sequence[float], frame: Sequence[float]) -> float:
    """Returns the area of a box outside of a frame."""
    return (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, frame)
