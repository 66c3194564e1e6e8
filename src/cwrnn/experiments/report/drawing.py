"""Drawing: what all figures have in common, their colours, their style and their bytes, and how numbers are written."""

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


KEY_OF_STATES = "states from -1 (orange) to 1 (purple)"


@dataclass(frozen=True)
class Measure:
    """How an error is drawn: its name on an axis, and what it is multiplied with."""

    name: str
    unit: str = ""
    scale: float = 1.0
    highest: float = math.inf
    """What it cannot exceed, as drawn; what has such an end has its beginning at 0."""

    @property
    def label(self) -> str:
        """With its unit.

        >>> PERCENT.label
        'test error [%]'
        """
        return f"{self.name} [{self.unit}]" if self.unit else self.name


NMSE = Measure("NMSE")
PERCENT = Measure("test error", "%", scale=100.0, highest=100.0)


def styled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in the style of these figures, whatever style the user has set."""

    @functools.wraps(function)
    def within(*arguments: Any, **options: Any) -> Any:
        style = require("matplotlib.style", extra="experiments", purpose="drawing")
        with style.context(["default", STYLE]):
            return function(*arguments, **options)

    return within


@styled
def render(figure: Any, format: str, dpi: int = 150) -> bytes:
    """The figure as the bytes of a file, "svg" or "png": the same for the same figure."""
    file = BytesIO()
    metadata = {"Date": None, "Creator": None, "Format": None, "Type": None} if format == "svg" else {"Software": None}
    figure.savefig(file, format=format, dpi=dpi, metadata=metadata, transparent=format == "svg")
    # everything has its place: another format need not look for it again
    figure.set_layout_engine("none")
    return file.getvalue()


def write(figure: Any, folder: Path, name: str) -> dict[str, Path]:
    """Writes the figure into the folder, as "svg" and as "png"; returns the files by these names."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {format: folder / f"{name}.{format}" for format in ("svg", "png")}
    for format, path in paths.items():
        path.write_bytes(render(figure, format))
    return paths


def short(error: float) -> str:
    """Two digits that matter, or a word where no number is left.

    >>> [short(0.00131), short(0.456), short(12.3), short(4.56e7), short(math.nan)]
    ['0.0013', '0.46', '12', '4.6e+07', 'none']
    """
    if not math.isfinite(error):
        return "none"
    if error != 0 and not 1e-4 <= abs(error) < 1e4:
        return f"{error:.1e}"
    return f"{error:#.2g}".rstrip(".") if abs(error) < 100 else f"{error:.0f}"


def percent(error: float, unit: str = " %") -> str:
    """An error rate in percent, or a word where no number is left.

    >>> [percent(0.16789), percent(0.16789, unit=""), percent(math.nan)]
    ['16.8 %', '16.8', 'none']
    """
    return f"{100 * error:.1f}{unit}" if math.isfinite(error) else "none"


def power(rate: float) -> str:
    """A rate on an axis.

    >>> [power(3e-5), power(0.00025), power(1.0)]
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


def wrapped(name: str, width: int = 13) -> str:
    """A label of at most four lines, broken after signs that separate words where that is possible."""
    lines = [""]
    for part in re.findall(rf"[^\W_]{{1,{width}}}|[\W_]", label(name, 4 * width - 4)):
        if len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def new_figure(width: float, height: float) -> Any:
    """An empty figure of that many inches."""
    # a Figure of its own draws by Agg and leaves pyplot's state alone
    figure = require("matplotlib.figure", extra="experiments", purpose="drawing").Figure((width, height))
    figure.set_layout_engine("constrained")
    return figure


def draw_module(panel: Any, states: NDArray[Any], schedule: Schedule, module: int) -> None:
    """Draws what a module's units do over time: its part of the states (T, N), held from tick to tick."""
    shades = require("matplotlib", extra="experiments", purpose="drawing").colormaps["viridis"]
    steps = len(states)
    units = range(schedule.hidden_size)[schedule.slices[module]]
    for rank, unit in enumerate(units):
        # from dark to light within a module; the ends of the map would be lost on black and on white
        shade = shades(0.3 + 0.5 * rank / max(1, len(units) - 1))
        panel.plot(np.arange(steps), states[:, unit], drawstyle="steps-post", linewidth=1.0, color=shade,
                   gid=f"unit-{unit}")  # fmt: skip
    period = schedule.periods[module]
    panel.set_ylim(-1.15, 1.15)
    panel.set_yticks([-1, 0, 1], ["", "0", ""])
    panel.grid(False, axis="x")
    panel.set_ylabel(f"period {period}", rotation=0, ha="right", va="center", fontweight="bold")
    panel.annotate(count(len(units), "unit"), (1, 0.5), (5, 0), xycoords="axes fraction", fontsize=8,
                   textcoords="offset points", va="center", color=MUTED)  # fmt: skip
    # the ticks, where they can be told apart
    if steps / period <= 100:
        panel.vlines(schedule.ticks(0, steps)[module], -1.15, 1.15, color=GRID, linewidth=0.7, zorder=0)


def draw_module_map(panel: Any, states: NDArray[Any], schedule: Schedule, module: int) -> None:
    """Draws the same as a map, a row for each unit and a mark above at each tick; `KEY_OF_STATES` explains it."""
    steps, units = len(states), schedule.slices[module]
    # unclipped: the names of clips differ from drawing to drawing
    panel.imshow(states[:, units].T, aspect="auto", cmap="PuOr", vmin=-1, vmax=1, interpolation="none", clip_on=False,
                 extent=(0, steps, 0, 1), gid=f"module-{module}")  # fmt: skip
    panel.set_yticks([])
    panel.grid(False)
    panel.set_ylabel(f"period {schedule.periods[module]}", rotation=0, ha="right", va="center", fontweight="bold",
                     fontsize=8)  # fmt: skip
    panel.annotate(count(schedule.sizes[module], "unit"), (1, 0.5), (5, 0), xycoords="axes fraction", fontsize=8,
                   textcoords="offset points", va="center", color=MUTED)  # fmt: skip
    panel.vlines(schedule.ticks(0, steps)[module], 1.0, 1.2, color=INK, linewidth=0.8, clip_on=False,
                 gid=f"ticks-{module}")  # fmt: skip
    panel.spines[:].set_visible(False)
    panel.tick_params(length=0)


def scale(axes: Any, values: Iterable[float], measure: Measure) -> float:
    """Scales the axes for the values, by logarithm where they span more than a linear axis shows; its upper end."""
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


def logarithmic(axes: Iterable[Any], values: Iterable[float]) -> None:
    """Sets the axes' scale, and limits where no value could: a logarithm needs something above zero."""
    known = any(0 < value < math.inf for value in values)
    for each in axes:
        if not known:
            each.set_ylim(0.1, 2)
        each.set_yscale("log")


def paler(colour: str, alpha: float) -> tuple[str, float]:
    """`colour` as matplotlib takes one that is not opaque."""
    return colour, alpha


def count(number: int, thing: str) -> str:
    """So many things.

    >>> [count(1, "run"), count(2, "run")]
    ['1 run', '2 runs']
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
