"""Drawing: the colours, the style, the parts and the bytes that all figures have in common."""

import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...extras import require
from ...schedule import Schedule
from ...writing import write_files
from ..networks.methods import ALL_METHODS
from .numbers import format_count

NAMES = {name: method.label for name, method in ALL_METHODS.items()}
COLOURS = {name: method.colour for name, method in ALL_METHODS.items()}
MARKERS = {name: method.marker for name, method in ALL_METHODS.items()}
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
    # the same numbers give the same bytes; glyphs are paths, so that a page looks the same on every machine
    "svg.hashsalt": "cwrnn",
    "svg.fonttype": "path",
}


SMALLEST = 1e-300
"""The lowest limit of a logarithmic axis. A fraction of the smallest number would be zero."""
KEY_OF_STATES = "states from -1 (orange) to 1 (purple)"
"""Explains the colours of `draw_module_map`."""


@dataclass(frozen=True)
class Measure:
    """How an error is drawn: its name and unit on an axis, and the factor from the error to that unit."""

    name: str
    unit: str = ""
    scale: float = 1.0
    highest: float = math.inf
    """The largest value that is possible, as drawn. If it is finite, axes begin at 0."""

    @property
    def label(self) -> str:
        """The name and the unit.

        >>> PERCENT.label
        'test error [%]'
        """
        return f"{self.name} [{self.unit}]" if self.unit else self.name


NMSE = Measure("NMSE")
PERCENT = Measure("test error", "%", scale=100.0, highest=100.0)


def styled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function that draws: it uses the style of these figures, whatever style the user has set."""

    @functools.wraps(function)
    def within(*arguments: Any, **options: Any) -> Any:
        style = require("matplotlib.style", extra="experiments", purpose="drawing")
        with style.context(["default", STYLE]):
            return function(*arguments, **options)

    return within


@styled
def render(figure: Any, format: str, dpi: int = 150) -> bytes:
    """Returns the bytes of the figure's file, "svg" or "png". The same figure gives the same bytes."""
    file = BytesIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None} if format == "svg" else {"Software": None}
    figure.savefig(file, format=format, dpi=dpi, metadata=metadata, transparent=format == "svg")
    # the layout is done: another format can use it as it is
    figure.set_layout_engine("none")
    return file.getvalue()


def render_files(figure: Any, folder: Path, name: str) -> dict[Path, bytes]:
    """Returns the figure's two files, `name`.svg and `name`.png in the folder, and their bytes."""
    return {folder / f"{name}.{format}": render(figure, format) for format in ("svg", "png")}


def write_figure(figure: Any, folder: Path, name: str) -> list[Path]:
    """Writes the figure into the folder as `name`.svg and `name`.png, whole or not at all; returns their paths."""
    contents = render_files(figure, folder, name)
    write_files(contents)
    return list(contents)


def fit_label(name: str, length: int) -> str:
    """Returns `name` in at most `length` characters, as a text that matplotlib draws as it is.

    Every text of a user goes into a figure through this function or `wrap_label`. Characters that the font cannot draw
    become question marks, and nothing in it is a formula.

    >>> fit_label("$x_", 10), fit_label("_private", 10)
    ('\\\\$x_', ' _private')
    """
    return _escape_markup(_shorten(name, length))


def wrap_label(name: str, width: int = 13) -> str:
    """Returns `name` in at most four lines, which end after signs that separate words where that is possible."""
    lines = [""]
    for part in re.findall(rf"[^\W_]{{1,{width}}}|[\W_]", _shorten(name, 4 * width - 4)):
        if len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return _escape_markup("\n".join(lines))


def _escape_markup(text: str) -> str:
    """Returns `text` such that matplotlib draws it as it is.

    Matplotlib takes text between dollars for a formula, and leaves labels that are empty or begin with an underscore
    out of legends.
    """
    escaped = text.replace("$", r"\$")
    return f" {escaped}" if escaped[:1] in ("", "_") else escaped


def _shorten(name: str, length: int) -> str:
    """Returns `name` in at most `length` characters, with a question mark for each that the font cannot draw."""
    manager = require("matplotlib.font_manager", extra="experiments", purpose="drawing")
    font = manager.get_font(manager.findfont("DejaVu Sans"))
    drawn = "".join(letter if letter.isprintable() and font.get_char_index(ord(letter)) else "?" for letter in name)
    return drawn if len(drawn) <= length else f"{drawn[: length - 1]}…"


def new_figure(width: float, height: float) -> Any:
    """Returns an empty figure of that many inches."""
    # a Figure made without pyplot draws with Agg and leaves pyplot's state alone
    figure = require("matplotlib.figure", extra="experiments", purpose="drawing").Figure((width, height))
    figure.set_layout_engine("constrained")
    return figure


def draw_module(panel: Any, states: NDArray[Any], schedule: Schedule, module: int) -> None:
    """Draws a line for each unit of a module: its part of the states (T, N), held from tick to tick."""
    shades = require("matplotlib", extra="experiments", purpose="drawing").colormaps["viridis"]
    steps = len(states)
    units = range(schedule.hidden_size)[schedule.slices[module]]
    for rank, unit in enumerate(units):
        # from dark to light within a module; the ends of the map would vanish on black and on white
        shade = shades(0.3 + 0.5 * rank / max(1, len(units) - 1))
        panel.plot(np.arange(steps), states[:, unit], drawstyle="steps-post", linewidth=1.0, color=shade,
                   gid=f"unit-{unit}")  # fmt: skip
    period = schedule.periods[module]
    panel.set_ylim(-1.15, 1.15)
    panel.set_yticks([-1, 0, 1], ["", "0", ""])
    panel.grid(False, axis="x")
    panel.set_ylabel(f"period {period}", rotation=0, ha="right", va="center", fontweight="bold")
    panel.annotate(format_count(len(units), "unit"), (1, 0.5), (5, 0), xycoords="axes fraction", fontsize=8,
                   textcoords="offset points", va="center", color=MUTED)  # fmt: skip
    # more ticks than these would merge into a grey area
    if steps / period <= 100:
        panel.vlines(schedule.ticks(0, steps)[module], -1.15, 1.15, color=GRID, linewidth=0.7, zorder=0)


def draw_module_map(panel: Any, states: NDArray[Any], schedule: Schedule, module: int) -> None:
    """Draws the states of a module as colours: a row for each unit, and a mark above it at each tick."""
    steps, units = len(states), schedule.slices[module]
    # not clipped, because the names of clip paths differ from drawing to drawing
    panel.imshow(states[:, units].T, aspect="auto", cmap="PuOr", vmin=-1, vmax=1, interpolation="none", clip_on=False,
                 extent=(0, steps, 0, 1), gid=f"module-{module}")  # fmt: skip
    panel.set_yticks([])
    panel.grid(False)
    panel.set_ylabel(f"period {schedule.periods[module]}", rotation=0, ha="right", va="center", fontweight="bold",
                     fontsize=8)  # fmt: skip
    panel.annotate(format_count(schedule.sizes[module], "unit"), (1, 0.5), (5, 0), xycoords="axes fraction", fontsize=8,
                   textcoords="offset points", va="center", color=MUTED)  # fmt: skip
    panel.vlines(schedule.ticks(0, steps)[module], 1.0, 1.2, color=INK, linewidth=0.8, clip_on=False,
                 gid=f"ticks-{module}")  # fmt: skip
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)


def scale(axes: Any, values: Iterable[float], measure: Measure) -> float:
    """Sets the limits of the axes for the values, and returns the upper one.

    The scale is logarithmic if the values span more than a linear axis can show.
    """
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        axes.set_ylabel(measure.label)
        return math.inf
    low, high = min(finite), max(finite)
    by_logarithm = low > 0 and high > 20 * low and measure.highest == math.inf
    if by_logarithm:
        low, high = low / 1.5, high * 3
        axes.set_yscale("log")
    elif measure.highest < math.inf:
        low, high = 0.0, min(1.03 * measure.highest, 1.1 * high or measure.highest)
    else:
        room = 0.25 * (high - low) or 0.1 * abs(high) or 1.0
        low, high = max(0.0, low - room), high + room
    axes.set_ylim(low, high)
    axes.set_ylabel(f"{measure.label} (log scale)" if by_logarithm else measure.label)
    return high


def set_log_scale(axes: Iterable[Any], values: Iterable[float]) -> None:
    """Makes the scale of the axes logarithmic, and sets its limits if no value is above zero."""
    known = any(0 < value < math.inf for value in values)
    for panel in axes:
        if not known:
            panel.set_ylim(0.1, 2)
        panel.set_yscale("log")


def make_translucent(colour: str, alpha: float) -> tuple[str, float]:
    """Returns `colour` in the form that matplotlib takes for a colour with an opacity."""
    return colour, alpha
