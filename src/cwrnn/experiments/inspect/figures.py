"""Figures of one network. Each function returns a matplotlib Figure of one measurement.

draw_activations   the states of every unit over time, module by module, and the output
draw_spectra       how fast each module changes, compared with its clock
draw_memories      how far back each module remembers
draw_silences      the errors of the output without a module
draw_weights       the weights, block by block
draw_costs         the multiply-adds of each module
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ...extras import require
from ...inspection import Array, Inspection, Spectrum, held_noise_density
from ...schedule import Schedule
from ..report.drawing import (
    COLOURS,
    GRID,
    INK,
    KEY_OF_STATES,
    MUTED,
    TARGET,
    draw_module,
    draw_module_map,
    new_figure,
    styled,
)
from .inspected import InspectedNetwork
from .sentences import MEASURES, format_operations

MOST_LINES = 8
"""More units of a module cannot be distinguished as lines; they are drawn as rows of colours."""
FLOOR = 1e-3
"""Derivatives below this share of the highest are not drawn."""


@styled
def draw_activations(network: InspectedNetwork, states: Array, output: Array | None) -> Any:
    """Draw the states (T, N) of one sequence, from the slowest module to the fastest, below the output (T, O)."""
    schedule = network.layer.schedule
    T = len(states)
    figure = new_figure(8.5, 2.0 + 0.72 * schedule.modules)
    top, *panels = figure.subplots(1 + schedule.modules, 1, sharex=True, height_ratios=[2] + [1] * schedule.modules)
    time = np.arange(T)
    network.display.draw(top, time, network.inputs[network.shown], output)
    top.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0.1)
    many = max(schedule.sizes) > MOST_LINES
    for panel, module in zip(panels, reversed(range(schedule.modules)), strict=True):
        draw = draw_module_map if many else draw_module
        draw(panel, states, schedule, module)
    if many:
        panels[0].set_title(KEY_OF_STATES, loc="right", fontsize=8, color=MUTED)
    top.set_xlim(0, T if many else max(1, T - 1))
    panels[-1].set_xlabel(f"time step{network.step}")
    return figure


@styled
def draw_spectra(inspection: Inspection, target: Spectrum | None = None) -> Any:
    """Draw the power spectral density of every module, as a share of its power, one panel for each module.

    Args:
        inspection: the measurements of the network
        target: the spectrum of the sequence to generate, if there is one; it is drawn in every panel
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    schedule, spectrum = inspection.schedule, inspection.spectrum
    columns = min(3, schedule.modules)
    rows = -(-schedule.modules // columns)
    figure = new_figure(max(5.0, 3.0 * columns), 0.9 + 1.75 * rows)
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    # the frequency 1/2 has one sign, the others have two: its density is half as high
    inner = (spectrum.frequencies > 0) & (spectrum.frequencies < 0.5)
    frequencies = spectrum.frequencies[inner]
    steps = 1 / spectrum.frequencies[1] if len(spectrum.frequencies) > 1 else 1.0
    for panel in panels[schedule.modules :]:
        panel.remove()
    peaks = [0.0]
    for i, (panel, period) in enumerate(zip(panels, schedule.periods, strict=False)):
        panel.set_title(f"period {period}", loc="left", fontweight="bold", fontsize=9)
        panel.axvspan(1 / (2 * period), 0.5, color=GRID, alpha=0.45, linewidth=0, zorder=0)
        panel.axvline(1 / (2 * period), color=MUTED, linewidth=0.9)
        if period > 1:
            panel.axvline(1 / period, color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)))
        # with fewer ticks the curve means nothing
        if steps >= 4 * period:
            panel.plot(
                frequencies,
                held_noise_density(frequencies, period),
                color=MUTED,
                linewidth=0.8,
                linestyle=(0, (1, 1.2)),
            )
        if target is not None:
            panel.plot(frequencies, _normalise_density(target, 0)[inner], color=TARGET, linewidth=0.8, alpha=0.55)
        if inspection.modules[i].variance > 0 and np.isfinite(inspection.modules[i].median_frequency):
            shares = _normalise_density(spectrum, i)[inner]
            panel.plot(frequencies, shares, color=COLOURS["cw"], gid=f"spectrum-{i}")
            peaks.append(shares.max(initial=0.0))
        else:
            panel.text(0.5, 0.5, "constant", ha="center", va="center", color=MUTED, transform=panel.transAxes)
    first = panels[0]
    first.set_xscale("log", base=2)
    first.set_yscale("log")
    first.set_xlim(min(0.25, 1 / steps), 0.5)
    highest = max(peaks) or 1.0
    first.set_ylim(highest * 1e-6, highest * 3)
    ticks = [2**k for k in range(1, 20) if 2**k <= steps]
    ticks = ticks[:: 1 if len(ticks) < 6 else 2]
    first.set_xticks([1 / tick for tick in ticks], [f"1/{tick}" for tick in ticks])
    first.yaxis.set_major_formatter(_make_plain_formatter())
    first.minorticks_off()
    figure.supxlabel("frequency [cycles per step] (log scale)", fontsize=9)
    figure.supylabel("share of power density (log scale)", fontsize=9)
    keys = [
        lines.Line2D([], [], color=COLOURS["cw"], label="the module's states"),
        lines.Line2D([], [], color=MUTED, linewidth=0.8, linestyle=(0, (1, 1.2)), label="white noise, held"),
        lines.Line2D([], [], color=MUTED, linewidth=0.9, label="1 / (2 P)"),
        lines.Line2D([], [], color=MUTED, linewidth=0.9, linestyle=(0, (4, 2)), label="1 / P, its clock"),
    ]
    if target is not None:
        keys.insert(1, lines.Line2D([], [], color=TARGET, linewidth=0.8, alpha=0.55, label="the sequence"))
    figure.legend(handles=keys, loc="outside upper center", ncols=5)
    return figure


def _normalise_density(spectrum: Spectrum, module: int) -> Array:
    """Return the density of a module, scaled to a power of 1."""
    density = spectrum.density[module]
    return np.asarray(density / (density.sum() * spectrum.frequencies[1]))


@styled
def draw_memories(inspection: Inspection) -> Any:
    """Draw the norm of the derivative of each module's state by the input, by lag, and mark each module's reach."""
    schedule, norms = inspection.schedule, inspection.memory.norms
    figure = new_figure(8.5, 4.2)
    panel = figure.subplots()
    lags = np.arange(norms.shape[1])
    highest = np.nanmax(norms) if np.isfinite(norms).any() else 0.0
    for i, period in enumerate(schedule.periods):
        colour = _pick_shade(0.22 + 0.66 * i / max(1, schedule.modules - 1))
        drawn = np.where(norms[i] >= FLOOR * highest, norms[i], np.nan)
        panel.plot(lags, drawn, drawstyle="steps-post", color=colour, label=f"period {period}", gid=f"memory-{i}")
        reach = inspection.memory.reach(i)
        if reach is not None:
            panel.plot(reach, norms[i, reach], marker=">" if inspection.memory.is_open(i) else "o", markersize=5,
                       color=colour, markeredgecolor=INK, markeredgewidth=0.6, linestyle="", clip_on=False,
                       zorder=4)  # fmt: skip
    if highest > 0:
        panel.set_yscale("log")
        ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
        panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(_make_plain_formatter())
        panel.set_yticks([], minor=True)
    # unlike a log scale, it has a place for 0
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
def draw_silences(inspection: Inspection, readers: str = "readout") -> Any:
    """Draw the errors without each module: a row for every error, a column for zero and one for the mean.

    Args:
        inspection: the measurements of the network
        readers: the part of the network that reads the modules
    """
    lines = require("matplotlib.lines", extra="experiments", purpose="drawing")
    patches = require("matplotlib.patches", extra="experiments", purpose="drawing")
    names = list(inspection.intact)
    figure = new_figure(8.5, 0.9 + 2.4 * len(names))
    panels = figure.subplots(len(names), 2, squeeze=False, sharex=True, sharey="row")
    places = np.arange(len(inspection.modules))
    everywhere, readers_only = COLOURS["cw"], COLOURS["lstm"]
    for place, (row, name) in enumerate(zip(panels, names, strict=True)):
        measure = MEASURES[name]
        intact = measure.scale * inspection.intact[name]
        drawn = [intact]
        for panel, (kind, title) in zip(row, (("zero", "held at zero"), ("mean", "held at its mean")), strict=True):
            for offset, suffix, colour in ((-0.2, "_readout", readers_only), (0.2, "", everywhere)):
                values = [
                    measure.scale * getattr(module.silenced, kind + suffix)[name] for module in inspection.modules
                ]
                drawn += values
                # bars begin at the error of the intact network
                panel.bar(places + offset, np.array(values) - intact, 0.38, bottom=intact, color=colour)
            panel.axhline(intact, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
            panel.grid(False, axis="x")
            panel.set_xticks(places, [str(module.period) for module in inspection.modules])
            panel.tick_params(axis="x", length=0)
            if place == 0:
                panel.set_title(title, loc="left")
        low, high = min(drawn), max(drawn)
        if low > 0 and high > 20 * low:
            row[0].set_yscale("log")
            row[0].yaxis.set_major_formatter(_make_plain_formatter())
            row[0].set_ylim(low / 1.5, high * 1.5)
            row[0].set_ylabel(f"{measure.label} (log scale)")
        else:
            room = 0.08 * (high - low) or 1.0
            row[0].set_ylim(low - room, high + room)
            row[0].set_ylabel(measure.label)
    figure.supxlabel("period of the module that is silenced", fontsize=9)
    keys = [
        patches.Patch(color=readers_only, label=f"for the {readers} only"),
        patches.Patch(color=everywhere, label=f"for the {readers} and all modules"),
        lines.Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="intact network"),
    ]
    figure.legend(handles=keys, loc="outside upper center", ncols=3)
    return figure


def _join_gates(weight: Tensor, hidden_size: int) -> Array:
    """Return the root mean square over the gates, (N, columns), of weights that are stored gate after gate."""
    rows, columns = weight.shape
    gates = weight.detach().double().cpu().numpy().reshape(rows // hidden_size, hidden_size, columns)
    return np.asarray(np.sqrt(np.square(gates).mean(axis=0)))


@styled
def draw_weights(network: InspectedNetwork) -> Any:
    """Draw the absolute values of all weights: from the input, from unit to unit, and to the output.

    The gates of a cell are drawn as one weight, their root mean square.
    """
    schedule = network.layer.schedule
    N = schedule.hidden_size
    recurrent, from_input = _join_gates(network.layer.weight_hh_l0, N), _join_gates(network.layer.weight_ih_l0, N)
    to_output = np.zeros((0, N))
    if network.readout is not None:
        to_output = np.abs(network.readout.weight.detach().double().cpu().numpy())
    I, O = from_input.shape[1], to_output.shape[0]
    # a strip of one row or column must still be visible
    widths = [max(I / N, 0.12)] * (I > 0) + [1.0]
    heights = [1.0] + [max(O / N, 0.05)] * (O > 0)
    side = 5.6
    figure = new_figure(side * sum(widths) + 1.6, side * sum(heights) + 0.9)
    panels = figure.subplots(len(heights), len(widths), squeeze=False, width_ratios=widths, height_ratios=heights)
    mask = schedule.mask()
    highest = max(recurrent[mask].max(), from_input.max(initial=0), to_output.max(initial=0)) or 1.0
    # the square root makes small weights visible beside large ones
    norm = require("matplotlib.colors", extra="experiments", purpose="drawing").PowerNorm(0.5, 0, highest)
    # unclipped, because the ids of clip paths differ from drawing to drawing
    options = {"cmap": "viridis", "norm": norm, "aspect": "auto", "interpolation": "nearest", "clip_on": False}
    main, below = panels[0, -1], panels[1:, -1].tolist()
    main.set_facecolor("none")
    main.fill_between([-0.5, N - 0.5], -0.5, N - 0.5, facecolor="none", edgecolor=GRID, hatch="////", linewidth=0,
                      zorder=-1)  # fmt: skip
    image = main.imshow(np.where(mask, recurrent, np.nan), **options)
    for panel in below:
        panel.imshow(to_output, **options)
        panel.set_ylabel("to the\noutput", rotation=0, ha="right", va="center", fontsize=8)
    if I > 0:
        panels[0, 0].imshow(from_input, **options)
        for panel in panels[1:, 0]:
            panel.remove()
    for panel in [panels[0, 0], main, *below]:
        panel.grid(False)
        panel.set_xticks([])
        panel.set_yticks([])
        for edge in ("top", "right"):
            panel.spines[edge].set_visible(True)
    for units in schedule.slices[1:]:
        at = units.start - 0.5
        for panel in {panels[0, 0], main}:
            panel.axhline(at, color="white", linewidth=0.8)
        for panel in (main, *below):
            panel.axvline(at, color="white", linewidth=0.8)
    _label_modules(panels[0, 0], main, schedule)
    if I > 0:
        panels[0, 0].set_title("from the input", fontsize=8, loc="left")
    bar = figure.colorbar(image, ax=panels[0].tolist(), shrink=0.6, pad=0.02)
    bar.set_label("absolute weight")
    bar.outline.set_visible(False)
    return figure


def _label_modules(left: Any, main: Any, schedule: Schedule) -> None:
    """Write the periods beside the rows of the panel on the left, and above the columns of the main one."""
    middles = [(units.start + units.stop - 1) / 2 for units in schedule.slices]
    names = [str(period) for period in schedule.periods]
    left.set_yticks(middles, names)
    left.set_ylabel("to the module of period")
    main.xaxis.tick_top()
    main.set_xticks(middles, names)
    main.xaxis.set_label_position("top")
    main.set_xlabel("from the module of period")
    main.tick_params(length=0)
    left.tick_params(length=0)


@styled
def draw_costs(inspection: Inspection) -> Any:
    """Draw the multiply-adds per step of each module: for its messages, for its input, and for the readout."""
    cost, schedule = inspection.cost, inspection.schedule
    figure = new_figure(8.5, 1.1 + 0.3 * schedule.modules)
    panel = figure.subplots()
    places = np.arange(schedule.modules)
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
        panel.annotate(
            format_operations(value), (value, place), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    panel.set_yticks(places, [f"period {period}" for period in schedule.periods])
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    panel.tick_params(axis="y", length=0)
    panel.margins(x=0.08)
    panel.set_xlabel("multiply-adds per step")
    panel.legend(loc="lower right")
    return figure


def _make_plain_formatter() -> Any:
    """Return a formatter that writes 0.01 where a log scale would write a power of 10."""
    ticker = require("matplotlib.ticker", extra="experiments", purpose="drawing")
    return ticker.FuncFormatter(lambda value, place: f"{value:g}")


def _pick_shade(value: float) -> Any:
    """Return the colour at `value`, from 0 to 1, of a scale from dark to light."""
    return require("matplotlib", extra="experiments", purpose="drawing").colormaps["viridis"](value)
