"""Figures about forecasts, each a matplotlib Figure.

draw_forecast       the end of a series, its forecast and the interval
draw_loss_curve     the losses of a training
draw_errors         the errors of all models of a backtest
draw_steps          the errors at every step ahead
draw_origins        the errors at every origin
draw_coverage       the share of values inside their intervals, at every step ahead
draw_examples       forecasts of the backtest beside the values that came
draw_curves         the losses of all networks of a backtest
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...estimators.backtest import OWN, BacktestResult
from ...estimators.forecaster import ClockworkForecaster
from ...estimators.time_axis import TimeAxis
from ...extras import require
from ...writing import write_files
from ..report.drawing import (
    COLOURS,
    INK,
    MUTED,
    STROKES,
    TARGET,
    fit_label,
    make_translucent,
    new_figure,
    render,
    styled,
)

LOOKS: dict[str, tuple[str, Any]] = {
    OWN: (COLOURS["cw"], "-"),
    "seasonal naive": (TARGET, STROKES[3]),
    "nn.LSTM": (COLOURS["lstm"], "-"),
    "nn.LSTM by the same rule": (COLOURS["lstm"], STROKES[2]),
    "nn.LSTM until it stops": (COLOURS["lstm"], STROKES[1]),
    "nn.GRU": (COLOURS["gru"], "-"),
    "nn.GRU by the same rule": (COLOURS["gru"], STROKES[2]),
    "nn.GRU until it stops": (COLOURS["gru"], STROKES[1]),
    "MSTL": (COLOURS["srn"], "-"),
    "AutoETS": (COLOURS["srn"], STROKES[1]),
    "LightGBM": (COLOURS["cw-gru"], STROKES[2]),
}
"""The colour and the stroke of every model."""

BAND = 0.22
"""The opacity of an interval."""

LONGEST_NAME = 34
"""The most characters of a column's name in a figure."""


def write_picture(figure: Any, path: Path) -> None:
    """Writes a figure to a PNG or SVG file, whole or not at all."""
    write_files({path: render(figure, path.suffix.lower()[1:])})


@styled
def draw_forecast(forecast: Any, history: Any, coverage: float, axis: TimeAxis) -> Any:
    """Returns a figure of a forecast, a panel for each target.

    Args:
        forecast: a DataFrame with the columns NAME, NAME_lower and NAME_upper for each target
        history: a DataFrame of the targets before
        coverage: the coverage of the intervals
        axis: the times
    """
    names = list(history.columns)
    figure = new_figure(8.0, 1.0 + 2.3 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    before, after = _place_times(history.index), _place_times(forecast.index)
    for panel, name in zip(panels, names, strict=True):
        median, lower, upper = (forecast[f"{name}{end}"].to_numpy() for end in ("", "_lower", "_upper"))
        panel.plot(before, history[name].to_numpy(), color=INK, linewidth=1.1, label="history", gid="history")
        panel.fill_between(after, lower, upper, color=make_translucent(COLOURS["cw"], BAND), linewidth=0,
                           label=f"{100 * coverage:g} % interval", gid="interval")  # fmt: skip
        panel.plot(after, median, color=COLOURS["cw"], linewidth=1.8, label="forecast", gid="forecast",
                   marker="o" if len(after) < 3 else "", markersize=4)  # fmt: skip
        if len(before):
            panel.axvline(after[0] - (after[0] - before[-1]) / 2, color=MUTED, linewidth=0.8, linestyle=":")
        panel.set_ylabel(fit_label(name, LONGEST_NAME))
        panel.margins(x=0.01)
    panels[0].legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
    _label_times(panels[-1], axis)
    return figure


@styled
def draw_loss_curve(forecaster: ClockworkForecaster) -> Any:
    """Returns a small figure of the losses of a training, with the epoch that was kept."""
    figure = new_figure(5.0, 2.8)
    panel = figure.subplots()
    train, validation = forecaster.loss_curve_, forecaster.validation_curve_
    panel.plot(np.arange(1, len(train) + 1), train, color=MUTED, label="training")
    if validation:
        panel.plot(np.arange(1, len(validation) + 1), validation, color=COLOURS["cw"], label="held-out end")
        best = forecaster.best_epoch_
        panel.plot(best, validation[best - 1], "o", color=COLOURS["cw"], label=f"kept: epoch {best}")
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set_xlabel("epoch")
    panel.set_ylabel("loss")
    panel.legend()
    return figure


@styled
def draw_errors(scores: Mapping[str, Sequence[float]]) -> Any:
    """Returns a figure of the MASE of all models: a dot for every seed, and the mean."""
    names = list(scores)
    figure = new_figure(6.4, 0.8 + 0.36 * len(names))
    panel = figure.subplots()
    for row, name in enumerate(names):
        values, colour = np.array(scores[name]), LOOKS[name][0]
        panel.barh(
            row, values.mean(), height=0.62, color=make_translucent(colour, BAND), edgecolor=colour, linewidth=0.8
        )
        if len(values) > 1:
            panel.plot(values, np.full(len(values), row), "o", markersize=4, color=colour)
        panel.annotate(f"{values.mean():.3f}", (max(values.max(), values.mean()), row), (5, 0), va="center", fontsize=8,
                       textcoords="offset points")  # fmt: skip
    panel.set_yticks(range(len(names)), names)
    panel.invert_yaxis()
    panel.grid(False, axis="y")
    panel.margins(x=0.12)
    panel.set_xlim(left=0)
    panel.set_xlabel("MASE")
    return figure


@styled
def draw_steps(curves: Mapping[str, NDArray[np.float64]]) -> Any:
    """Returns a figure of the MASE (H,) of all models at every step ahead."""
    figure = new_figure(7.0, 3.4)
    panel = figure.subplots()
    _draw_lines(panel, curves, np.arange(1, max(map(len, curves.values())) + 1))
    panel.set_xlabel("steps ahead")
    panel.set_ylabel("MASE")
    panel.set_ylim(bottom=0)
    return figure


@styled
def draw_origins(curves: Mapping[str, NDArray[np.float64]], result: BacktestResult) -> Any:
    """Returns a figure of the MASE (origins,) of all models at every origin, over time."""
    figure = new_figure(8.0, 3.4)
    panel = figure.subplots()
    _draw_lines(panel, curves, _place_times(result.origins), linewidth=1.0)
    panel.set_ylabel("MASE")
    panel.set_ylim(bottom=0)
    _label_times(panel, result.data.axis)
    return figure


@styled
def draw_coverage(curves: Mapping[str, NDArray[np.float64]], coverage: float) -> Any:
    """Returns a figure of the share (H,) of values inside their intervals at every step ahead."""
    figure = new_figure(7.0, 3.4)
    panel = figure.subplots()
    panel.axhline(100 * coverage, color=MUTED, linewidth=0.8, linestyle=":")
    _draw_lines(panel, {name: 100 * curve for name, curve in curves.items()}, np.arange(1, _count(curves) + 1))
    panel.set_xlabel("steps ahead")
    panel.set_ylabel(f"coverage of {100 * coverage:g} % intervals [%]")
    panel.set_ylim(0, 103)
    return figure


@styled
def draw_examples(result: BacktestResult, origins: Mapping[str, int], names: Sequence[str]) -> Any:
    """Returns a figure of forecasts beside the values that came, a panel for each origin.

    Args:
        result: the backtest
        origins: the number of an origin for each panel, by the title of the panel
        names: the models to draw; the first has its interval
    """
    data, channel = result.data, 0
    figure = new_figure(8.0, 0.9 + 2.1 * len(origins))
    panels = figure.subplots(len(origins), 1, squeeze=False)[:, 0]
    for panel, (title, number) in zip(panels, origins.items(), strict=True):
        origin = data.origins[number]
        start = max(0, origin - max(2 * data.horizon, min(result.season, 10 * data.horizon)))
        end = origin + data.horizon
        times = _place_times(data.axis.index(start, end - start))
        known = np.where(data.observed[start:end, channel], data.values[start:end, channel], np.nan)
        panel.plot(times, known, color=INK, linewidth=1.1, label="observed")
        ahead = times[origin - start :]
        for name in names:
            quantiles = result.forecasts[name].quantiles[number, :, channel]
            colour, stroke = LOOKS[name]
            if name == names[0]:
                panel.fill_between(ahead, quantiles[:, 0], quantiles[:, 2], color=make_translucent(colour, BAND),
                                   linewidth=0, label=f"its {100 * data.coverage:g} % interval")  # fmt: skip
            panel.plot(ahead, quantiles[:, 1], color=colour, linestyle=stroke, label=name)
        panel.axvline(ahead[0] - (times[1] - times[0]) / 2, color=MUTED, linewidth=0.8, linestyle=":")
        panel.set_title(title, loc="left", fontsize=9)
        panel.set_ylabel(fit_label(str(data.columns[channel]), LONGEST_NAME))
        panel.margins(x=0.01)
        _label_times(panel, data.axis)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4)
    return figure


@styled
def draw_curves(result: BacktestResult) -> Any:
    """Returns a figure of the held-out losses of all networks, or of their training losses if nothing is held out."""
    curves = {
        name: np.array(forecasts.validation_curve or forecasts.loss_curve)
        for name, forecasts in result.forecasts.items()
        if forecasts.loss_curve
    }
    figure = new_figure(7.0, 3.2)
    panel = figure.subplots()
    for name, curve in curves.items():
        colour, stroke = LOOKS[name]
        panel.plot(np.arange(1, len(curve) + 1), curve, color=colour, linestyle=stroke, label=name,
                   marker="o" if len(curve) == 1 else "")  # fmt: skip
    if max(map(len, curves.values()), default=1) > 200:
        panel.set_xscale("log")
    else:
        panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set_xlabel("epoch")
    panel.set_ylabel("loss on the held-out end")
    panel.legend()
    return figure


def _draw_lines(panel: Any, curves: Mapping[str, NDArray[np.float64]], x: Any, linewidth: float = 1.4) -> None:
    """Draws a line for each model; the forecaster's own lies on top."""
    for name, curve in curves.items():
        if np.isnan(curve).all():
            continue
        colour, stroke = LOOKS[name]
        is_own = name == OWN
        panel.plot(x[: len(curve)], curve, color=colour, linestyle=stroke, label=name, zorder=3 if is_own else 2,
                   linewidth=linewidth + (0.6 if is_own else 0), marker="o" if len(curve) == 1 else "")  # fmt: skip
    panel.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)


def _count(curves: Mapping[str, NDArray[np.float64]]) -> int:
    return max((len(curve) for curve in curves.values()), default=0)


def _place_times(index: Any) -> NDArray[np.float64]:
    """The places of times on an axis: days since 1970, in UTC, or the numbers themselves."""
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    if not isinstance(index, pd.DatetimeIndex):
        return np.asarray(index, dtype=np.float64)
    index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
    places: NDArray[np.float64] = index.to_numpy().astype("datetime64[ns]").astype(np.int64) / 86400e9
    return places


def _label_times(panel: Any, axis: TimeAxis) -> None:
    """Labels a horizontal axis with dates in the time zone of the series, or with its name."""
    if axis.kind == "numbers":
        panel.set_xlabel(fit_label("step" if axis.name is None else str(axis.name), LONGEST_NAME))
        return
    dates = require("matplotlib.dates", extra="experiments", purpose="drawing")
    zone = getattr(axis.first, "tz", None)
    low, high = panel.get_xlim()
    if not (math.isfinite(low) and math.isfinite(high)) or min(abs(low), abs(high)) > 2e6:
        return
    locator = dates.AutoDateLocator(tz=zone, minticks=4, maxticks=8)
    panel.xaxis.set_major_locator(locator)
    formats = ["%Y", "%b", "%d %b", "%H:%M", "%H:%M", "%S.%f"]
    formatter = dates.ConciseDateFormatter(locator, tz=zone, formats=formats, show_offset=False,
                                           zero_formats=["", "%Y", "%d %b", "%d %b", "%H:%M", "%H:%M"])  # fmt: skip
    panel.xaxis.set_major_formatter(formatter)
    years = sorted({dates.num2date(place, tz=zone).year for place in (low, high)})
    panel.set_xlabel(" to ".join(map(str, years)), color=MUTED, fontsize=8, loc="right")
