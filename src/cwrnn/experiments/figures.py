"""Figures: what the records of the first task show, each a matplotlib Figure made of records alone.

    box_plot          the errors of all runs, as in the paper's figure of them
    outputs           the best network of every method over the target, as in the paper's figure of outputs
    learning_curves   how the errors fell
    activations       what every module of a trained Clockwork RNN does, slow to fast
    rate_distortion   how many bits per sample the weights are, against the error
    search_curve      which learning rate is best

The numbers that are drawn come from the functions without a picture: `box`, `best`, `curve`, `searched`.
"""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..extras import require
from ..schedule import Schedule
from . import training
from .compression import PCM_BITS, Baseline, Point
from .models import METHODS
from .runs import Dataset, Record

NAMES = {"srn": "SRN", "lstm": "LSTM", "cw": "CW-RNN"}

# Okabe and Ito's, which colour-blind readers tell apart; a marker each, for those who print in grey
COLOURS = {"srn": "#d55e00", "lstm": "#0072b2", "cw": "#009e73"}
MARKERS = {"srn": "s", "lstm": "^", "cw": "o"}
STROKES = ("-", (0, (5, 1.5)), (0, (3, 1.5, 1, 1.5)), (0, (1, 1)))

INK, MUTED, GRID, TARGET = "#222222", "#5f6b76", "#e2e5e8", "#34495e"

STYLE: dict[str, Any] = {
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "legend.fontsize": 8,
    # the same bytes for the same numbers, and glyphs as paths: a page looks the same wherever it is opened
    "svg.hashsalt": "cwrnn",
    "svg.fonttype": "path",
}


def _styled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in the style of these figures, whatever style the user has set."""

    @functools.wraps(function)
    def within(*arguments: Any, **options: Any) -> Any:
        style = require("matplotlib.style", extra="experiments", purpose="drawing")
        with style.context(["default", STYLE]):
            return function(*arguments, **options)

    return within


@_styled
def render(figure: Any, format: str, dpi: int = 150) -> bytes:
    """The figure as the bytes of a file, "svg" or "png": the same for the same figure."""
    file = BytesIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None} if format == "svg" else {"Software": None}
    figure.savefig(file, format=format, dpi=dpi, metadata=metadata, transparent=format == "svg")
    # everything has its place: another format need not look for it again
    figure.set_layout_engine("none")
    return file.getvalue()


@dataclass(frozen=True)
class Box:
    """What a box with whiskers shows of the runs of one method and size."""

    finished: int
    diverged: int
    failed: int
    mean: float
    lower: float
    """The quartile below which a quarter of the runs lie."""
    median: float
    upper: float
    minimum: float
    maximum: float
    whiskers: tuple[float, float]
    """The lowest and the highest that are no outliers."""
    outliers: tuple[float, ...]
    """Further from the box than one and a half times its height."""


def box(records: Iterable[Record]) -> Box:
    """The box of these records; all its numbers are NaN if no run finished."""
    records = list(records)
    counts = {status: sum(record.status == status for record in records) for status in ("diverged", "failed")}
    values = np.sort([record.error for record in records if record.status == "finished"])
    if not len(values):
        nothing = math.nan
        return Box(0, **counts, mean=nothing, lower=nothing, median=nothing, upper=nothing, minimum=nothing,
                   maximum=nothing, whiskers=(nothing, nothing), outliers=())  # fmt: skip
    lower, median, upper = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    reach = 1.5 * (upper - lower)
    inside = (values >= lower - reach) & (values <= upper + reach)
    return Box(
        len(values),
        **counts,
        mean=float(values.mean()),
        lower=lower,
        median=median,
        upper=upper,
        minimum=float(values[0]),
        maximum=float(values[-1]),
        whiskers=(float(values[inside][0]), float(values[inside][-1])),
        outliers=tuple(values[~inside].tolist()),
    )


def best(records: Iterable[Record]) -> Record | None:
    """The record with the lowest NMSE; where none finished, the diverged one that was best on its way; or None."""
    records = list(records)
    finished = [record for record in records if record.status == "finished"]
    if finished:
        return min(finished, key=lambda record: (record.error, record.key))
    diverged = [record for record in records if record.status == "diverged" and math.isfinite(record.best_error)]
    return min(diverged, key=lambda record: (record.best_error, record.key), default=None)


def curve(records: Iterable[Record]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The epochs (E,), and the quartiles and the median (3, E) of the NMSE of the runs that finished."""
    curves = [record.curve for record in records if record.status == "finished" and record.curve is not None]
    if not curves:
        return np.empty(0), np.empty((3, 0))
    epochs = np.unique(np.concatenate([points[:, 0] for points in curves])).astype(np.float64)
    # a run of fewer epochs than another has no error after its last
    values = np.stack([np.interp(epochs, points[:, 0], points[:, 1], right=np.nan) for points in curves])
    return epochs, np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)


@dataclass(frozen=True)
class Searched:
    """What came of one learning rate. Here a run that diverged or failed counts as infinitely bad."""

    rate: float
    lower: float
    median: float
    upper: float
    runs: int
    diverged: int


def searched(records: Iterable[Record]) -> list[Searched]:
    """What came of every learning rate, from the lowest to the highest."""
    by_rate: dict[float, list[Record]] = {}
    for record in records:
        by_rate.setdefault(record.run.settings.learning_rate, []).append(record)
    found = []
    for rate, group in sorted(by_rate.items()):
        errors = [record.error if record.status == "finished" else math.inf for record in group]
        # the lower of two neighbours: between a number and infinity there is none
        lower, median, upper = (float(value) for value in np.quantile(errors, (0.25, 0.5, 0.75), method="lower"))
        diverged = sum(record.status == "diverged" for record in group)
        found.append(Searched(rate, lower, median, upper, len(group), diverged))
    return found


@_styled
def box_plot(records: Sequence[Record], paper: Mapping[tuple[str, int], tuple[float, float]] | None = None) -> Any:
    """The errors by method and size: a panel each, the SRN on its own scale as in the paper.

    Args:
        records: of any methods, sizes and data sets; the data sets are taken together
        paper: the paper's mean and standard deviation, by method and size, where it prints them
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    paper = paper or {}
    methods, sizes = _methods(records), _sizes(records)
    width = max(6.0, 1.2 + len(methods) * max(1.6, 0.78 * len(sizes)))
    figure = _figure(width, 4.4)
    panels = figure.subplots(1, len(methods), squeeze=False)[0]
    boxes = {(method, size): box(_of(records, method, size)) for method in methods for size in sizes}
    failures = any(each.failed for each in boxes.values())
    together = [method for method in methods if method != "srn"]
    for panel, method in zip(panels, methods, strict=True):
        if method in together[1:]:
            panel.sharey(panels[methods.index(together[0])])
            panel.tick_params(labelleft=False)
    for panel, method in zip(panels, methods, strict=True):
        labels = []
        for place, size in enumerate(sizes):
            here = boxes[method, size]
            runs = here.finished + here.diverged + here.failed
            hidden = {record.run.hidden for record in _of(records, method, size)}
            rows = [str(size), "/".join(map(str, sorted(hidden))), f"{here.diverged} of {runs}"]
            labels.append("\n".join(rows + [f"{here.failed} of {runs}"] * failures) if runs else f"{size}\nno runs")
            if here.finished:
                _draw_box(panel, place, here, COLOURS[method])
            elif runs:
                panel.text(place, 0.5, "no run finished", rotation=90, ha="center", va="center", color=MUTED,
                           transform=panel.get_xaxis_transform())  # fmt: skip
            if (method, size) in paper:
                mean, deviation = paper[method, size]
                panel.errorbar(place + 0.4, mean, deviation, fmt="*", markersize=9, color=INK, capsize=2.5,
                               elinewidth=0.9, markeredgewidth=0, zorder=4, gid=f"paper-{method}-{size}")  # fmt: skip
        panel.set_xticks(range(len(sizes)), labels, fontsize=8, linespacing=1.45)
        panel.set_xlim(-0.6, len(sizes) - 0.35)
        panel.grid(False, axis="x")
        panel.tick_params(axis="x", length=0)
        panel.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left", pad=14)
    for group in ([m for m in methods if m == "srn"], together):
        axes = [panels[methods.index(method)] for method in group]
        if axes:
            shown = [v for m in group for s in sizes for v in (boxes[m, s].minimum, boxes[m, s].whiskers[1])]
            shown += [paper[m, s][0] + sign * paper[m, s][1] for m in group for s in sizes if (m, s) in paper
                      for sign in (-1, 1)]  # fmt: skip
            top = _scale(axes[0], shown)
            for panel, method in zip(axes, group, strict=True):
                for place, size in enumerate(sizes):
                    _count_above(panel, place, boxes[method, size], top, COLOURS[method])
    rows_of_labels = ["parameters", "hidden units", "diverged"] + ["failed"] * failures
    panels[0].annotate("\n".join(rows_of_labels), (0, 0), (-12, -3.5), xycoords="axes fraction", fontsize=8,
                       textcoords="offset points", ha="right", va="top", linespacing=1.45, color=MUTED)  # fmt: skip
    keys = [
        lines.Line2D([], [], color=MUTED, marker="s", markersize=9, alpha=0.35, linestyle="", label="quartiles"),
        lines.Line2D([], [], color=INK, linewidth=1.6, label="median"),
        lines.Line2D([], [], color=INK, marker="D", markersize=4, linestyle="", label="mean"),
        lines.Line2D([], [], color=MUTED, linewidth=1, label="lowest and highest that are no outliers"),
        lines.Line2D([], [], color=MUTED, marker="o", markersize=4, fillstyle="none", linestyle="", label="outlier"),
    ]
    if any("↑" in text.get_text() for panel in panels for text in panel.texts):
        keys.append(lines.Line2D([], [], linestyle="", label="↑ so many runs lie above the frame"))
    if any((method, size) in paper for method in methods for size in sizes):
        keys.append(
            lines.Line2D([], [], color=INK, marker="*", markersize=9, markeredgewidth=0, linestyle="",
                         label="the paper: mean and deviation")
        )  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", ncols=4 if width > 9 else 2, handletextpad=0.6,
                  columnspacing=1.8)  # fmt: skip
    return figure


def _draw_box(panel: Any, place: float, here: Box, colour: str) -> None:
    statistics = {
        "q1": here.lower,
        "med": here.median,
        "q3": here.upper,
        "whislo": here.whiskers[0],
        "whishi": here.whiskers[1],
        "mean": here.mean,
        "fliers": here.outliers,
    }
    fill = {"facecolor": _paler(colour, 0.3), "edgecolor": colour, "linewidth": 1.1}
    panel.bxp(
        [statistics], [place], widths=0.52, showmeans=True, patch_artist=True, manage_ticks=False, boxprops=fill,
        medianprops={"color": INK, "linewidth": 1.6, "solid_capstyle": "butt"},
        meanprops={"marker": "D", "markersize": 4, "markerfacecolor": INK, "markeredgecolor": "none"},
        whiskerprops={"color": colour, "linewidth": 1.1}, capprops={"color": colour, "linewidth": 1.1},
        flierprops={"marker": "o", "markersize": 3, "markerfacecolor": "none", "markeredgecolor": colour,
                    "markeredgewidth": 0.7, "alpha": 0.55},
    )  # fmt: skip


def _count_above(panel: Any, place: float, here: Box, top: float, colour: str) -> None:
    """Says how many runs lie above the frame: a run on its way to infinity would leave no room for the others."""
    above = sum(value > top for value in here.outliers)
    if above:
        mean = ", mean" if here.mean > top else ""
        panel.annotate(f"↑ {above}{mean}", (place, 1), (0, 1), xycoords=panel.get_xaxis_transform(), fontsize=7,
                       textcoords="offset points", ha="center", va="bottom", color=colour)  # fmt: skip


@_styled
def outputs(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> Any:
    """What the best network of each method generates, over the target: a row per data set, a column per method."""
    methods = _methods(records)
    names = _datasets(records, datasets)
    figure = _figure(max(5.0, 1.0 + 3.1 * len(methods)), 0.9 + 1.35 * len(names))
    panels = figure.subplots(len(names), len(methods), squeeze=False, sharey=True)
    lengths = {_milliseconds(datasets[name]) for name in names}
    for place, (row, name) in enumerate(zip(panels, names, strict=True)):
        dataset = datasets[name]
        time = 1000 * np.arange(len(dataset.samples)) / dataset.rate
        for panel, method in zip(row, methods, strict=True):
            mine = [record for record in records if (record.run.method, record.run.data) == (method, name)]
            record = best(mine)
            panel.plot(time, dataset.samples, linestyle=(0, (1, 1)), linewidth=1.0, color=TARGET)
            if record is None or record.output is None:
                outcome = "no run finished" if mine else "no runs"
            elif record.status == "finished":
                panel.plot(time, record.output, color=COLOURS[method], gid=f"output-{method}-{place}")
                outcome = f"NMSE {short(record.error)}, {record.run.size} parameters"
            else:
                panel.plot(time, record.output, color=_paler(COLOURS[method], 0.5), gid=f"output-{method}-{place}")
                outcome = f"diverged; its best: NMSE {short(record.best_error)}"
            panel.text(0.985, 0.97, outcome, transform=panel.transAxes, ha="right", va="top", fontsize=8)
            panel.set_xlim(0, time[-1] if len(time) > 1 else 1)
            panel.tick_params(labelbottom=len(lengths) > 1 or place == len(names) - 1)
        row[0].set_ylabel(_wrapped(name), fontsize=8, rotation=0, ha="right", va="center", multialignment="right",
                          parse_math=False)  # fmt: skip
    # the target's range and room for a line of text, whatever a network that went astray puts out
    panels[0, 0].set_ylim(-1.2, 1.75)
    panels[0, 0].set_yticks([-1, 0, 1])
    for panel, method in zip(panels[0], methods, strict=True):
        panel.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left")
    figure.supxlabel("time [ms]", fontsize=9)
    return figure


@_styled
def learning_curves(records: Sequence[Record]) -> Any:
    """How the NMSE fell: median and quartiles over the runs that finished, a panel per size."""
    methods, sizes = _methods(records), _sizes(records)
    columns = min(4, len(sizes))
    rows = -(-len(sizes) // columns)
    figure = _figure(max(5.5, 1.0 + 2.45 * columns), 0.9 + 2.7 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for panel in panels[len(sizes) :]:
        panel.remove()
    for panel, size in zip(panels, sizes, strict=False):
        lost = []
        for method in methods:
            mine = _of(records, method, size)
            epochs, (lower, median, upper) = curve(mine)
            panel.fill_between(epochs, lower, upper, color=COLOURS[method], alpha=0.2, linewidth=0)
            panel.plot(epochs, median, color=COLOURS[method], label=NAMES[method],
                       gid=f"median-{method}-{size}")  # fmt: skip
            here = box(mine)
            for count, what in ((here.diverged, "diverged"), (here.failed, "failed")):
                if count:
                    lost.append((f"{NAMES[method]}: {count} of {len(mine)} {what}", COLOURS[method]))
        for line, (text, colour) in enumerate(reversed(lost)):
            panel.annotate(text, (0, 0), (4, 4 + 10 * line), xycoords="axes fraction", textcoords="offset points",
                           fontsize=7.5, color=colour)  # fmt: skip
        panel.set_title(f"{size} parameters", loc="left")
        panel.margins(x=0)
    _logarithmic(figure.axes, (value for panel in figure.axes for line in panel.lines for value in line.get_ydata()))
    figure.supxlabel("epochs", fontsize=9)
    figure.supylabel("NMSE (log scale)", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods))
    return figure


@_styled
def activations(record: Record, dataset: Dataset) -> Any:
    """The states of a trained Clockwork RNN, module by module from slow to fast, and its output over the target."""
    run = record.run
    if run.method != "cw" or record.weights is None or record.output is None or record.schedule is None:
        raise ValueError(f"record must be that of a trained Clockwork RNN, got a {record.status} run of {run.method}")
    schedule = Schedule.parse(record.schedule)
    steps = len(dataset.samples)
    states = training.states(run.method, run.hidden, record.weights, steps, run.settings)  # (T, N)
    figure = _figure(8.5, 2.0 + 0.72 * schedule.modules)
    top, *panels = figure.subplots(1 + schedule.modules, 1, sharex=True, height_ratios=[2] + [1] * schedule.modules)
    time = np.arange(steps)
    top.plot(time, dataset.samples, linestyle=(0, (1, 1.1)), linewidth=1.3, color=TARGET, label="target")
    top.plot(time, record.output, color=COLOURS["cw"], label=f"output, NMSE {short(record.error)}")
    top.set_ylim(-1.25, 1.25)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)
    # by its data set, which may be called anything
    top.set_title(label(run.data, 40), loc="left", fontsize=9, parse_math=False)
    shades = require("matplotlib", extra="experiments", purpose="drawing").colormaps["viridis"]
    for panel, module in zip(panels, reversed(range(schedule.modules)), strict=True):
        units = range(schedule.hidden_size)[schedule.slices[module]]
        for rank, unit in enumerate(units):
            # from dark to light within a module; the ends of the map would be lost on black and on white
            shade = shades(0.3 + 0.5 * rank / max(1, len(units) - 1))
            panel.plot(time, states[:, unit], drawstyle="steps-post", linewidth=1.0, color=shade, gid=f"unit-{unit}")
        period = schedule.periods[module]
        panel.set_ylim(-1.15, 1.15)
        panel.set_yticks([-1, 0, 1], ["", "0", ""])
        panel.grid(False, axis="x")
        panel.set_ylabel(f"period {period}", rotation=0, ha="right", va="center", fontweight="bold")
        panel.annotate(_count(len(units), "unit"), (1, 0.5), (5, 0), xycoords="axes fraction", fontsize=8,
                       textcoords="offset points", va="center", color=MUTED)  # fmt: skip
        # the ticks, where they can be told apart
        if steps / period <= 100:
            panel.vlines(schedule.ticks(0, steps)[module], -1.15, 1.15, color=GRID, linewidth=0.7, zorder=0)
    top.set_xlim(0, steps - 1)
    panels[-1].set_xlabel(f"time step (of {1e6 / dataset.rate:.3g} µs)")
    return figure


@_styled
def rate_distortion(points: Sequence[Point], baselines: Sequence[Baseline] = ()) -> Any:
    """Bits per sample against NMSE, at every precision of the weights: the best runs, and the median of all."""
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    methods = [method for method in METHODS if any(point.method == method for point in points)]
    figure = _figure(9.0, 4.4)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = {"best": "the best run of each data set", "median": "the median of all runs"}
    for panel, which in zip(panels, titles, strict=True):
        panel.plot([b.bits for b in baselines], [b.nmse for b in baselines], color=MUTED, linewidth=1.0,
                   linestyle=(0, (1, 1.2)), marker=".", markersize=3, gid=f"pcm-{which}")  # fmt: skip
        panel.axvline(PCM_BITS, color=MUTED, linewidth=0.9)
        for method in methods:
            for bits in sorted({point.bits for point in points}):
                mine = sorted(
                    (point for point in points if (point.method, point.bits) == (method, bits)),
                    key=lambda point: point.size,
                )
                rates, errors = [p.bits_per_sample for p in mine], [getattr(p, which) for p in mine]
                whole = bits == 32
                panel.plot(rates, errors, color=COLOURS[method], marker=MARKERS[method], markersize=5,
                           linestyle="-" if whole else (0, (4, 2)), gid=f"{which}-{method}-{bits}",
                           markerfacecolor=COLOURS[method] if whole else "none")  # fmt: skip
                for point, rate, error in zip(mine, rates, errors, strict=True):
                    if method == methods[-1] and math.isfinite(error):
                        panel.annotate(str(point.size), (rate, error), (-3, -5), textcoords="offset points",
                                       ha="right", va="top", fontsize=7, color=MUTED)  # fmt: skip
        panel.set_title(titles[which], loc="left")
        panel.set_xscale("log", base=2)
        panel.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:g}"))
        panel.set_xlabel("bits per sample (log scale)")
    errors = [error for point in points for error in (point.best, point.median) if 0 < error < math.inf]
    _logarithmic(panels, errors)
    if errors:
        # where the networks are, not where PCM goes
        panels[0].set_ylim(min(errors) / 4, max(2.0, 2 * max(errors)))
    panels[0].set_ylabel("NMSE after decoding (log scale)")
    keys = [
        lines.Line2D([], [], color=COLOURS[m], marker=MARKERS[m], markersize=5, label=NAMES[m], linestyle="")
        for m in methods
    ]
    keys += [
        lines.Line2D([], [], color=INK, marker="D", markersize=4, label="weights at float32"),
        lines.Line2D(
            [],
            [],
            color=INK,
            marker="D",
            markersize=4,
            markerfacecolor="none",
            linestyle=(0, (4, 2)),
            label="weights at 8 bits",
        ),
        lines.Line2D([], [], color=MUTED, linewidth=0.9, label=f"PCM of {PCM_BITS} bits"),
    ]
    if baselines:
        keys.append(
            lines.Line2D([], [], color=MUTED, linestyle=(0, (1, 1.2)), marker=".", markersize=3,
                         label="PCM of fewer bits")
        )  # fmt: skip
    figure.legend(handles=keys, loc="outside lower center", ncols=4)
    return figure


@_styled
def search_curve(records: Sequence[Record]) -> Any:
    """The NMSE against the learning rate, median and quartiles, and below it the share of the runs that diverged."""
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    methods, sizes = _methods(records), _sizes(records)
    figure = _figure(max(5.0, 1.0 + 2.9 * len(methods)), 4.4)
    upper, lower = figure.subplots(2, len(methods), squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    dashes = {size: STROKES[place % len(STROKES)] for place, size in enumerate(reversed(sizes))}
    points = [each for m in methods for s in sizes for each in searched(_of(records, m, s))]
    drawn = [value for each in points for value in (each.lower, each.median) if 0 < each.median < math.inf]
    for above, below, method in zip(upper, lower, methods, strict=True):
        most_finished = False
        for size in sizes:
            found = searched(_of(records, method, size))
            most_finished |= any(math.isfinite(each.median) for each in found)
            places = [each.rate for each in found]
            medians = np.array([each.median for each in found])
            # an upper quartile of infinity lies above any frame
            quartiles = (
                np.minimum([(each.lower, each.upper) for each in found], 100 * max(drawn, default=1.0)).reshape(-1, 2).T
            )
            shade = 0.2 / len(sizes) + 0.03
            known = np.isfinite(medians)
            above.fill_between(places, *quartiles, where=known, color=COLOURS[method], alpha=shade, linewidth=0)
            above.plot(places, np.where(known, medians, np.nan), color=COLOURS[method], markersize=5,
                       marker=MARKERS[method], linestyle=dashes[size], gid=f"search-{method}-{size}")  # fmt: skip
        found = searched(record for record in records if record.run.method == method)
        shares = [100 * each.diverged / each.runs for each in found]
        below.vlines([each.rate for each in found], 0, shares, color=COLOURS[method], linewidth=6,
                     gid=f"share-{method}")  # fmt: skip
        for panel in (above, below):
            panel.axvline(training.LEARNING_RATES[method], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
            panel.set_xscale("log")
        if not most_finished:
            above.text(0.5, 0.5, "no rate at which\nmost runs finished", ha="center", va="center", color=MUTED,
                       transform=above.transAxes)  # fmt: skip
        above.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left")
        below.tick_params(axis="x", labelsize=8)
    rates = {record.run.settings.learning_rate for record in records}
    every = rates | {training.LEARNING_RATES[method] for method in methods}
    lower[0].set_xlim(min(every) / 1.6, max(every) * 1.6)
    if len(rates) <= 8:
        lower[0].set_xticks(sorted(rates), [_power(rate) for rate in sorted(rates)])
        lower[0].set_xticks([], minor=True)
    _logarithmic(upper, drawn)
    if drawn:
        # what is ten times worse than the target's mean need not be told from what is worse still
        upper[0].set_ylim(min(drawn) / 1.5, max(3 * min(drawn), min(10.0, 3 * max(drawn))))
    # the highest lies within the panel, also when it is all of them
    lower[0].set_ylim(0, 105)
    lower[0].set_yticks([0, 50, 100])
    upper[0].set_ylabel("NMSE (log scale)")
    lower[0].set_ylabel("diverged [%]")
    figure.supxlabel("learning rate (log scale)", fontsize=9)
    keys = [lines.Line2D([], [], color=INK, linestyle=dashes[size], label=f"{size} parameters") for size in sizes]
    keys.append(lines.Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="the paper's rate"))
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    return figure


def short(nmse: float) -> str:
    """Two digits that matter, or a word where no number is left.

    >>> [short(0.00131), short(0.456), short(12.3), short(4.56e7), short(math.nan)]
    ['0.0013', '0.46', '12', '4.6e+07', 'none']
    """
    if not math.isfinite(nmse):
        return "none"
    if nmse != 0 and not 1e-4 <= abs(nmse) < 1e4:
        return f"{nmse:.1e}"
    return f"{nmse:#.2g}".rstrip(".") if abs(nmse) < 100 else f"{nmse:.0f}"


def _power(rate: float) -> str:
    """
    >>> [_power(3e-5), _power(0.00025), _power(1.0)]
    ['3e-5', '2.5e-4', '1e0']
    """
    mantissa, exponent = f"{rate:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def label(name: str, length: int) -> str:
    """`name` in at most `length` characters that can be drawn; what the font does not have becomes a question mark."""
    manager = require("matplotlib.font_manager", extra="experiments", purpose="drawing")
    font = manager.get_font(manager.findfont("DejaVu Sans"))
    drawn = "".join(each if each.isprintable() and font.get_char_index(ord(each)) else "?" for each in name)
    return drawn if len(drawn) <= length else f"{drawn[: length - 1]}…"


def _wrapped(name: str, width: int = 13) -> str:
    """A label of at most four lines, broken after signs that separate words where that is possible."""
    lines = [""]
    for part in re.findall(rf"[^\W_]{{1,{width}}}|[\W_]", label(name, 4 * width - 4)):
        if len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _figure(width: float, height: float) -> Any:
    # a Figure of its own draws by Agg and leaves pyplot's state alone
    figure = require("matplotlib.figure", extra="experiments", purpose="drawing").Figure((width, height))
    figure.set_layout_engine("constrained")
    return figure


def _scale(axes: Any, values: Iterable[float]) -> float:
    """Scales the axes for the values, by logarithm where they span more than a linear axis shows; its upper end."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        axes.set_ylabel("NMSE")
        return math.inf
    low, high = min(finite), max(finite)
    logarithmic = low > 0 and high > 20 * low
    if logarithmic:
        low, high = low / 1.5, high * 3
        axes.set_yscale("log")
    else:
        room = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
        low, high = max(0.0, low - room), high + room
    axes.set_ylim(low, high)
    axes.set_ylabel("NMSE (log scale)" if logarithmic else "NMSE")
    return high


def _logarithmic(axes: Iterable[Any], values: Iterable[float]) -> None:
    """Sets the axes' scale, and limits where no value could: a logarithm needs something above zero."""
    known = any(0 < value < math.inf for value in values)
    for each in axes:
        if not known:
            each.set_ylim(0.1, 2)
        each.set_yscale("log")


def _methods(records: Iterable[Record]) -> list[str]:
    found = {record.run.method for record in records}
    return [method for method in METHODS if method in found]


def _of(records: Iterable[Record], method: str, size: int) -> list[Record]:
    return [record for record in records if (record.run.method, record.run.size) == (method, size)]


def _sizes(records: Iterable[Record]) -> list[int]:
    return sorted({record.run.size for record in records})


def _datasets(records: Iterable[Record], datasets: Mapping[str, Dataset]) -> list[str]:
    found = {record.run.data for record in records}
    return [name for name in datasets if name in found]


def _milliseconds(dataset: Dataset) -> float:
    return 1000 * len(dataset.samples) / dataset.rate


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _paler(colour: str, alpha: float) -> tuple[str, float]:
    return colour, alpha
