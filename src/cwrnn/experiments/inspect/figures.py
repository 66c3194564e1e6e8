"""Figures of one network: what an inspection found, each a matplotlib Figure.

activations   what every unit does over time, module by module, and what comes of it
spectra       how fast each module moves, held against its clock
memories      how far back each module remembers
silences      what the output loses without a module
weights       the weights, block by block
costs         the multiply-adds of each module
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...inspection import Array, Inspection, Spectrum, held_noise_density
from ...schedule import Schedule
from ..report import drawing
from ..report.drawing import (
    COLOURS,
    GRID,
    INK,
    KEY_OF_STATES,
    MUTED,
    TARGET,
    Measure,
    draw_module,
    draw_module_map,
    fit_label,
    new_figure,
    styled,
)
from ..sweep.run import Dataset
from .loading import CROSS_ENTROPY, ERROR, NMSE, Spoken, Subject

MEASURES: Mapping[str, Measure] = {
    NMSE: drawing.NMSE,
    ERROR: drawing.PERCENT,
    CROSS_ENTROPY: Measure("cross entropy", "nats"),
}

RIVALS = 3
"""Words that are drawn beside the right one: the most probable."""
LINES = 8
"""More units of a module than these cannot be told apart as lines: colours stand for their states."""
FLOOR = 1e-3
"""What is less than so much of the highest is not drawn."""


@styled
def activations(subject: Subject, states: Array, output: Array) -> Any:
    """The states (T, N) of one sequence, module by module from slow to fast, and above them the output (T, O)."""
    schedule = subject.layer.schedule
    T = len(states)
    figure = new_figure(8.5, 2.0 + 0.72 * schedule.modules)
    top, *panels = figure.subplots(1 + schedule.modules, 1, sharex=True, height_ratios=[2] + [1] * schedule.modules)
    time = np.arange(T)
    if isinstance(subject.scene, Dataset):
        _draw_generated(top, time, output[:, 0], subject.scene)
    else:
        _draw_probabilities(top, time, output, subject.scene)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0.1)
    many = max(schedule.sizes) > LINES
    for panel, module in zip(panels, reversed(range(schedule.modules)), strict=True):
        draw = draw_module_map if many else draw_module
        draw(panel, states, schedule, module)
    if many:
        panels[0].set_title(KEY_OF_STATES, loc="right", fontsize=8, color=MUTED)
    top.set_xlim(0, T if many else max(1, T - 1))
    panels[-1].set_xlabel(f"time step (of {subject.step})")
    return figure


def _draw_generated(panel: Any, time: NDArray[Any], output: Array, dataset: Dataset) -> None:
    panel.plot(time, dataset.samples, linestyle=(0, (1, 1.1)), linewidth=1.3, color=TARGET, label="target")
    panel.plot(time, output, color=COLOURS["cw"], label="output")
    panel.set_ylim(-1.25, 1.25)
    panel.set_title(fit_label(dataset.name, 40), loc="left", fontsize=9, parse_math=False)


def _draw_probabilities(panel: Any, time: NDArray[Any], output: Array, scene: Spoken) -> None:
    probabilities = np.exp(output - np.logaddexp.reduce(output, axis=1, keepdims=True))
    others = [i for i in np.argsort(-probabilities.max(axis=0)) if i != scene.label][:RIVALS]
    for place, i in enumerate(others):
        panel.plot(time, probabilities[:, i], color=MUTED, linewidth=1.0, linestyle=((0, (4, 1.5)), (0, (1, 1)),
                   (0, (4, 1, 1, 1)))[place], label=_text(scene.words[i], 14))  # fmt: skip
    panel.plot(time, probabilities[:, scene.label], color=COLOURS["cw"], linewidth=1.8,
               label=_text(scene.words[scene.label], 14))  # fmt: skip
    panel.set_ylim(-0.03, 1.03)
    panel.set_ylabel("probability")
    panel.set_title(fit_label(f"“{scene.words[scene.label]}”, {scene.speaker}", 40), loc="left", fontsize=9,
                    parse_math=False)  # fmt: skip


@styled
def spectra(found: Inspection, target: Spectrum | None = None) -> Any:
    """The power spectral density of every module, as a share of its power, a panel each.

    Args:
        found: of the network
        target: of the sequence that is to be generated, if there is one: drawn in every panel
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    schedule, spectrum = found.schedule, found.spectrum
    columns = min(3, schedule.modules)
    rows = -(-schedule.modules // columns)
    figure = new_figure(max(5.0, 3.0 * columns), 0.9 + 1.75 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    # at 1/2 two signs are one: half as much
    inner = (spectrum.frequencies > 0) & (spectrum.frequencies < 0.5)
    frequencies = spectrum.frequencies[inner]
    steps = 1 / spectrum.frequencies[1] if len(spectrum.frequencies) > 1 else 1.0
    for panel in panels[schedule.modules :]:
        panel.remove()
    shown = [0.0]
    for i, (panel, period) in enumerate(zip(panels, schedule.periods, strict=False)):
        panel.set_title(f"period {period}", loc="left", fontweight="bold", fontsize=9)
        panel.axvspan(1 / (2 * period), 0.5, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        panel.axvline(1 / (2 * period), color=MUTED, linewidth=0.9)
        if period > 1:
            panel.axvline(1 / period, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
        # of fewer ticks nothing could be told
        if steps >= 4 * period:
            panel.plot(
                frequencies,
                held_noise_density(frequencies, period),
                color=MUTED,
                linewidth=0.8,
                linestyle=(0, (1, 1.2)),
            )
        if target is not None:
            panel.plot(frequencies, _shares(target, 0)[inner], color=TARGET, linewidth=0.8, alpha=0.55)
        if found.modules[i].variance > 0 and np.isfinite(found.modules[i].median_frequency):
            shares = _shares(spectrum, i)[inner]
            panel.plot(frequencies, shares, color=COLOURS["cw"], gid=f"spectrum-{i}")
            shown.append(shares.max(initial=0.0))
        else:
            panel.text(0.5, 0.5, "does not move", ha="center", va="center", color=MUTED, transform=panel.transAxes)
    first = panels[0]
    first.set_xscale("log", base=2)
    first.set_yscale("log")
    first.set_xlim(min(0.25, 1 / steps), 0.5)
    highest = max(shown) or 1.0
    first.set_ylim(highest * 1e-6, highest * 3)
    ticks = [2**k for k in range(1, 20) if 2**k <= steps]
    ticks = ticks[:: 1 if len(ticks) < 6 else 2]
    first.set_xticks([1 / tick for tick in ticks], [f"1/{tick}" for tick in ticks])
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    first.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:g}"))
    first.minorticks_off()
    figure.supxlabel("frequency [cycles per step] (log scale)", fontsize=9)
    figure.supylabel("share of power density (log scale)", fontsize=9)
    keys = [
        lines.Line2D([], [], color=COLOURS["cw"], label="the module's states"),
        lines.Line2D([], [], color=MUTED, linewidth=0.8, linestyle=(0, (1, 1.2)), label="noise, held as long"),
        lines.Line2D([], [], color=MUTED, linewidth=0.9, label="1 / (2 P)"),
        lines.Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="1 / P, its clock"),
    ]
    if target is not None:
        keys.insert(1, lines.Line2D([], [], color=TARGET, linewidth=0.8, alpha=0.55, label="the sequence"))
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    return figure


def _shares(spectrum: Spectrum, module: int) -> Array:
    """The density of a power of 1."""
    density = spectrum.density[module]
    return np.asarray(density / (density.sum() * spectrum.frequencies[1]))


@styled
def memories(found: Inspection) -> Any:
    """The norm of the derivative of each module's state by the input, by lag; a mark at each module's reach."""
    schedule, norms = found.schedule, found.memory.norms
    figure = new_figure(8.5, 4.2)
    panel = figure.subplots()
    lags = np.arange(norms.shape[1])
    highest = np.nanmax(norms) if np.isfinite(norms).any() else 0.0
    for i, period in enumerate(schedule.periods):
        colour = _shades(0.22 + 0.66 * i / max(1, schedule.modules - 1))
        drawn = np.where(norms[i] >= FLOOR * highest, norms[i], np.nan)
        panel.plot(lags, drawn, drawstyle="steps-post", color=colour, label=f"period {period}", gid=f"memory-{i}")
        reach = found.memory.reach(i)
        if reach is not None:
            panel.plot(reach, norms[i, reach], marker=">" if found.memory.is_open(i) else "o", markersize=5,
                       color=colour, markeredgecolor=INK, markeredgewidth=0.6, linestyle="", clip_on=False,
                       zorder=4)  # fmt: skip
    if highest > 0:
        panel.set_yscale("log")
        ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, place: f"{value:g}"))
        panel.set_yticks([], minor=True)
    # 0 has a place too
    panel.set_xscale("symlog", base=2, linthresh=1, linscale=0.7)
    ticks = [0] + [2**k for k in range(20) if 2**k < len(lags)]
    panel.set_xticks(ticks, [str(tick) for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.set_xlim(0, max(1, len(lags) - 1))
    panel.set_xlabel("lag [steps] (log scale)")
    panel.set_ylabel("norm of the derivative (log scale)")
    figure.legend(loc="outside right center")
    return figure


@styled
def silences(found: Inspection) -> Any:
    """What the output is worth without each module: a row for every measure, a column for zero and one for the mean."""
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    patches = require("matplotlib.patches", extra="experiments", purpose="drawing")
    names = list(found.intact)
    figure = new_figure(8.5, 0.9 + 2.4 * len(names))
    panels = figure.subplots(len(names), 2, squeeze=False, sharex=True, sharey="row")
    places = np.arange(len(found.modules))
    heard, own = COLOURS["cw"], COLOURS["lstm"]
    for place, (row, name) in enumerate(zip(panels, names, strict=True)):
        measure = MEASURES[name]
        intact = measure.scale * found.intact[name]
        every = [intact]
        for panel, (kind, title) in zip(row, (("zero", "replaced by zero"), ("mean", "held at its mean")), strict=True):
            for offset, suffix, colour in ((-0.2, "_readout", own), (0.2, "", heard)):
                values = [measure.scale * getattr(each.silenced, kind + suffix)[name] for each in found.modules]
                every += values
                # what is lost, from the network as it is
                panel.bar(places + offset, np.array(values) - intact, 0.38, bottom=intact, color=colour)
            panel.axhline(intact, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
            panel.grid(False, axis="x")
            panel.set_xticks(places, [str(each.period) for each in found.modules])
            panel.tick_params(axis="x", length=0)
            if place == 0:
                panel.set_title(title, loc="left")
        low, high = min(every), max(every)
        if low > 0 and high > 20 * low:
            row[0].set_yscale("log")
            row[0].set_ylim(low / 1.5, high * 1.5)
            row[0].set_ylabel(f"{measure.label} (log scale)")
        else:
            room = 0.08 * (high - low) or 1.0
            row[0].set_ylim(low - room, high + room)
            row[0].set_ylabel(measure.label)
    figure.supxlabel("period of the module that is silenced", fontsize=9)
    keys = [
        patches.Patch(color=own, label="for the readout only"),
        patches.Patch(color=heard, label="for the readout and all modules"),
        lines.Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="as it is"),
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=3)
    return figure


@styled
def weights(subject: Subject, schedule: Schedule) -> Any:
    """The absolute values of all weights: from the input, from unit to unit, and to the output."""
    recurrent = np.abs(subject.layer.weight_hh_l0.detach().double().numpy())
    heard = np.abs(subject.layer.weight_ih_l0.detach().double().numpy())
    said = np.abs(subject.network.readout.weight.detach().double().numpy())
    N, I, O = schedule.hidden_size, heard.shape[1], said.shape[0]
    # a strip needs some width, whatever it holds
    widths = [max(I / N, 0.12)] * (I > 0) + [1.0]
    side = 5.6
    figure = new_figure(side * sum(widths) + 1.6, side * (1 + max(O / N, 0.05)) + 0.9)
    panels = figure.subplots(2, len(widths), squeeze=False, width_ratios=widths, height_ratios=[1, max(O / N, 0.05)])
    mask = schedule.mask()
    highest = max(recurrent[mask].max(), heard.max(initial=0), said.max(initial=0)) or 1.0
    # what counts is which are large: the square root shows the others as well
    norm = require("matplotlib.colors", extra="experiments", purpose="drawing").PowerNorm(0.5, 0, highest)
    # unclipped: the names of clips differ from drawing to drawing
    options = {"cmap": "viridis", "norm": norm, "aspect": "auto", "interpolation": "nearest", "clip_on": False}
    main, below = panels[0, -1], panels[1, -1]
    main.set_facecolor("none")
    main.fill_between([-0.5, N - 0.5], -0.5, N - 0.5, facecolor="none", edgecolor=GRID, hatch="////", linewidth=0,
                      zorder=-1)  # fmt: skip
    image = main.imshow(np.where(mask, recurrent, np.nan), **options)
    below.imshow(said, **options)
    if I > 0:
        panels[0, 0].imshow(heard, **options)
        panels[1, 0].remove()
    middles = [(units.start + units.stop - 1) / 2 for units in schedule.slices]
    names = [str(period) for period in schedule.periods]
    for panel in [panels[0, 0], main, below]:
        panel.grid(False)
        panel.set_xticks([])
        panel.set_yticks([])
        for edge in ("top", "right"):
            panel.spines[edge].set_visible(True)
    for units in schedule.slices[1:]:
        at = units.start - 0.5
        for panel in {panels[0, 0], main}:
            panel.axhline(at, color="white", linewidth=0.8)
        for panel in (main, below):
            panel.axvline(at, color="white", linewidth=0.8)
    panels[0, 0].set_yticks(middles, names)
    panels[0, 0].set_ylabel("to the module of period")
    main.xaxis.tick_top()
    main.set_xticks(middles, names)
    main.xaxis.set_label_position("top")
    main.set_xlabel("from the module of period")
    main.tick_params(length=0)
    panels[0, 0].tick_params(length=0)
    below.set_ylabel("to the\noutput", rotation=0, ha="right", va="center", fontsize=8)
    if I > 0:
        panels[0, 0].set_title("from the input", fontsize=8, loc="left")
    bar = figure.colorbar(image, ax=panels[0].tolist(), shrink=0.6, pad=0.02)
    bar.set_label("absolute weight")
    bar.outline.set_visible(False)
    return figure


@styled
def costs(found: Inspection) -> Any:
    """The multiply-adds per step of each module: what it says to others, what it hears, what it says to the output."""
    cost = found.cost
    figure = new_figure(8.5, 1.1 + 0.3 * found.schedule.modules)
    panel = figure.subplots()
    places = np.arange(found.schedule.modules)
    left = np.zeros(len(places))
    parts: Sequence[tuple[str, Array, str]] = (
        ("recurrent", cost.recurrent, COLOURS["cw"]),
        ("input", cost.input, COLOURS["lstm"]),
        ("readout", cost.readout, COLOURS["srn"]),
    )
    for name, values, colour in parts:
        if values.any():
            panel.barh(places, values, 0.7, left, color=colour, label=name)
            left += values
    for place, value in zip(places, left, strict=True):
        panel.annotate(f"{value:.3g}", (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    panel.set_yticks(places, [f"period {period}" for period in found.schedule.periods])
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.margins(x=0.08)
    panel.set_xlabel("multiply-adds per step")
    panel.legend(loc="lower right")
    return figure


def _shades(value: float) -> Any:
    return require("matplotlib", extra="experiments", purpose="drawing").colormaps["viridis"](value)


def _text(name: str, length: int) -> str:
    """For a legend, where a name that begins with an underscore would be left out, and dollars are mathematics."""
    return fit_label(name, length).replace("$", r"\$").replace("_", "‗" if name.startswith("_") else "_")
