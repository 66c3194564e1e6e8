"""Figures of sequence generation, the first task, each a matplotlib Figure.

outputs           the output of the best network of every method and the target, as in the paper's figure 5
output            the same for one network, small
learning_curves   the errors over the epochs
activations       the states of a trained Clockwork RNN, module by module from slow to fast
rate_distortion   the bits per sample that the weights take, against the error
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ..networks.methods import ALL_METHODS
from ..report.drawing import (
    COLOURS,
    INK,
    MARKERS,
    MUTED,
    NAMES,
    SMALLEST,
    TARGET,
    draw_module,
    fit_label,
    make_translucent,
    new_figure,
    set_log_scale,
    styled,
    wrap_label,
)
from ..report.numbers import format_error
from ..report.statistics import best_record, box, methods_of, quartile_curve, select_records, sizes_of
from ..sweep.run import FINISHED, Dataset, Record
from . import training
from .names import readable_name
from .weight_coding import PCM_BITS, Baseline, Point


@styled
def outputs(records: Sequence[Record], datasets: Mapping[str, Dataset]) -> Any:
    """Returns a figure of what the best network of each method generates: a row per data set, a column per method."""
    methods = methods_of(records)
    present = {record.run.data for record in records}
    names = [name for name in datasets if name in present]
    figure = new_figure(max(5.0, 0.9 + 2.3 * len(methods)), 0.9 + 1.2 * len(names))
    panels = figure.subplots(len(names), len(methods), squeeze=False, sharey=True)
    lengths = {_list_times(datasets[name])[-1] for name in names}
    for place, (row, name) in enumerate(zip(panels, names, strict=True)):
        dataset = datasets[name]
        for panel, method in zip(row, methods, strict=True):
            mine = [record for record in records if (record.run.method, record.run.data) == (method, name)]
            record = best_record(mine)
            _draw_output(panel, dataset, record, f"output-{method}-{place}")
            outcome = describe_output(record) if mine else "no runs"
            panel.text(0.985, 0.97, outcome, transform=panel.transAxes, ha="right", va="top", fontsize=8)
            panel.tick_params(labelbottom=len(lengths) > 1 or place == len(names) - 1)
        row[0].set_ylabel(wrap_label(readable_name(name)), fontsize=8, rotation=0, ha="right", va="center",
                          multialignment="right")  # fmt: skip
    # the target's range and room for a line of text; a diverging output leaves the frame
    panels[0, 0].set_ylim(-1.2, 1.75)
    panels[0, 0].set_yticks([-1, 0, 1])
    for panel, method in zip(panels[0], methods, strict=True):
        panel.set_title(NAMES[method], color=COLOURS[method], fontweight="bold", loc="left")
    figure.supxlabel(_label_time(datasets[name] for name in names), fontsize=9)
    return figure


@styled
def output(dataset: Dataset, record: Record | None = None) -> Any:
    """Returns a small figure of what one network generates and of the target, or of the target alone."""
    figure = new_figure(4.8, 1.75)
    panel = figure.subplots()
    _draw_output(panel, dataset, record, "output", alone=record is None)
    panel.set_ylim(-1.2, 1.2)
    panel.set_yticks([-1, 0, 1])
    panel.set_xlabel(_label_time([dataset]))
    return figure


def describe_output(record: Record | None) -> str:
    """Returns the error of a network's output in a few words."""
    if record is None or record.output is None:
        return "no run finished"
    if record.status == FINISHED:
        return f"NMSE {format_error(record.error)}, {record.run.size} parameters"
    return f"diverged; its best: NMSE {format_error(record.best_error)}"


@styled
def learning_curves(records: Sequence[Record]) -> Any:
    """Returns a figure of the NMSE over the epochs: median and quartiles of the finished runs, a panel per size."""
    methods, sizes = methods_of(records), sizes_of(records)
    columns = min(4, len(sizes))
    rows = -(-len(sizes) // columns)
    figure = new_figure(max(5.5, 1.0 + 2.45 * columns), 0.9 + 2.7 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for panel in panels[len(sizes) :]:
        panel.remove()
    for panel, size in zip(panels, sizes, strict=False):
        lost = []
        for method in methods:
            mine = select_records(records, method, size)
            epochs, (lower, median, upper) = quartile_curve(mine)
            panel.fill_between(epochs, lower, upper, color=COLOURS[method], alpha=0.2, linewidth=0)
            panel.plot(epochs, median, color=COLOURS[method], label=NAMES[method],
                       gid=f"median-{method}-{size}")  # fmt: skip
            here = box(mine)
            for number, status in ((here.diverged, "diverged"), (here.failed, "failed")):
                if number:
                    lost.append((f"{NAMES[method]}: {number} of {len(mine)} {status}", COLOURS[method]))
        for line, (text, colour) in enumerate(reversed(lost)):
            panel.annotate(text, (0, 0), (4, 4 + 10 * line), xycoords="axes fraction", textcoords="offset points",
                           fontsize=7.5, color=colour)  # fmt: skip
        panel.set_title(f"{size} parameters", loc="left")
        panel.margins(x=0)
    set_log_scale(figure.axes, (value for panel in figure.axes for line in panel.lines for value in line.get_ydata()))
    figure.supxlabel("epochs", fontsize=9)
    figure.supylabel("NMSE (log scale)", fontsize=9)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(methods))
    return figure


@styled
def activations(record: Record, dataset: Dataset) -> Any:
    """Returns a figure of the states of a trained Clockwork RNN, and of its output and the target.

    The modules are drawn from slow to fast.
    """
    run = record.run
    has_clocks = ALL_METHODS[run.method].has_clocks
    if not has_clocks or record.weights is None or record.output is None or record.schedule is None:
        raise ValueError(f"record must have a trained network with clocks, got a {record.status} run of {run.method}")
    schedule = Schedule.parse(record.schedule)
    steps = len(dataset.samples)
    states = training.states(run.method, run.hidden, record.weights, steps, run.settings)  # (T, N)
    figure = new_figure(6.8, 1.9 + 0.6 * schedule.modules)
    top, *panels = figure.subplots(1 + schedule.modules, 1, sharex=True, height_ratios=[2] + [1] * schedule.modules)
    time = np.arange(steps)
    top.plot(time, dataset.samples, linestyle=(0, (1, 1.1)), linewidth=1.3, color=TARGET, label="target")
    top.plot(time, record.output, color=COLOURS[run.method], label=f"output, NMSE {format_error(record.error)}")
    top.set_ylim(-1.25, 1.25)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.1)
    top.set_title(fit_label(readable_name(run.data), 40), loc="left", fontsize=9)
    for panel, module in zip(panels, reversed(range(schedule.modules)), strict=True):
        draw_module(panel, states, schedule, module)
    top.set_xlim(0, steps - 1)
    panels[-1].set_xlabel(f"time step{describe_step(dataset)}")
    return figure


@styled
def rate_distortion(points: Sequence[Point], baselines: Sequence[Baseline] = ()) -> Any:
    """Returns a figure of bits per sample against NMSE, at every precision of the weights.

    The panels show the best runs and the median of all runs.
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    methods = [method for method in ALL_METHODS if any(point.method == method for point in points)]
    figure = new_figure(9.0, 4.4)
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
    set_log_scale(panels, errors)
    if errors:
        # the range of the networks; PCM of many bits would need a far larger one
        panels[0].set_ylim(max(SMALLEST, min(errors) / 4), max(2.0, 2 * max(errors)))
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


def _draw_output(panel: Any, dataset: Dataset, record: Record | None, gid: str, *, alone: bool = False) -> None:
    """Draws the target, and over it the output of a network if it has one. The output of a diverged run is paler."""
    time = _list_times(dataset)
    panel.plot(time, dataset.samples, linestyle="-" if alone else (0, (1, 1)), linewidth=1.0, color=TARGET)
    if record is not None and record.output is not None:
        colour = COLOURS[record.run.method]
        finished = record.status == FINISHED
        panel.plot(time, record.output, color=colour if finished else make_translucent(colour, 0.5), gid=gid)
    panel.set_xlim(0, time[-1] if len(time) > 1 else 1)


def describe_step(dataset: Dataset) -> str:
    """Returns the duration of a step as an axis names it, or an empty text if it has none.

    >>> describe_step(Dataset("song", 8000, np.zeros(2), "")), describe_step(Dataset("load", 1, np.zeros(2), ""))
    (' (of 125 µs)', '')
    """
    return f" (of {1e6 / dataset.rate:.3g} µs)" if dataset.has_duration else ""


def _list_times(dataset: Dataset) -> NDArray[np.float64]:
    """Returns the times of all samples: in milliseconds, or in steps if these have no duration."""
    steps = np.arange(len(dataset.samples), dtype=np.float64)
    return 1000 * steps / dataset.rate if dataset.has_duration else steps


def _label_time(datasets: Iterable[Dataset]) -> str:
    """Returns the label of an axis of times."""
    units = {"time [ms]" if dataset.has_duration else "time step" for dataset in datasets}
    return " or ".join(sorted(units, reverse=True))
