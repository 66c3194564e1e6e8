"""The page about a backtest. It is self-contained: figures are inside, and nothing is fetched."""

from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...environment import environment
from ...estimators.backtest import OWN
from ...writing import write_files
from ..report.svg import inline_figure
from ..report.templates import make_template_environment
from . import figures
from .backtesting import CAPTION, ForecasterBacktest

TITLES = {
    "errors": "All models",
    "examples": "Forecasts and what came",
    "steps": "The error at every step ahead",
    "origins": "The error over time",
    "coverage": "The intervals",
    "curves": "The trainings",
}
"""The titles of the figures, in the order of the page."""

CLASSES = {
    OWN: "cw", "nn.LSTM": "lstm", "nn.LSTM by the same rule": "lstm", "nn.LSTM until it stops": "lstm",
    "nn.GRU": "gru", "nn.GRU by the same rule": "gru", "nn.GRU until it stops": "gru",
    "MSTL": "srn", "AutoETS": "srn", "LightGBM": "cw-gru",
}  # fmt: skip
"""The class of the style sheet that gives a model's name its colour."""


def draw_figures(backtest: ForecasterBacktest) -> dict[str, Any]:
    """Return the figures by name, as matplotlib Figures."""
    models, first = backtest.models, backtest.results[0]
    drawn = {
        "errors": figures.draw_errors({name: [s.mase for s in model.scores] for name, model in models.items()}),
        "examples": figures.draw_examples(first, choose_examples(backtest), [OWN, *list(models)[1:2]]),
        "steps": figures.draw_steps({name: model.by_step for name, model in models.items()}),
        "origins": figures.draw_origins({name: model.by_origin for name, model in models.items()}, first),
        "coverage": figures.draw_coverage(backtest.measure_coverage_by_step(), first.data.coverage),
        "curves": figures.draw_curves(first),
    }
    return {name: drawn[name] for name in TITLES}


def choose_examples(backtest: ForecasterBacktest) -> dict[str, int]:
    """Return the origins with the lowest, the median and the highest error of the forecaster, by their titles."""
    errors = np.array(backtest.results[0].scores[OWN].mase_by_origin)
    order = [int(place) for place in np.argsort(errors) if not np.isnan(errors[place])]
    places = {"the best forecast": 0, "a median forecast": len(order) // 2, "the worst forecast": len(order) - 1}
    chosen: dict[str, int] = {}
    for title, place in places.items():
        if order and order[place] not in chosen.values():
            chosen[f"{title} of {len(errors)}: MASE {errors[order[place]]:.2f}"] = order[place]
    return chosen or {"the first forecast": 0}


def write_page(backtest: ForecasterBacktest, path: Path) -> None:
    """Write the page to `path`, whole or not at all."""
    result = backtest.results[0]
    drawings = {name: inline_figure(figure, name, TITLES[name]) for name, figure in draw_figures(backtest).items()}
    page = (
        make_template_environment()
        .get_template("forecasting/page.html.j2")
        .render(
            backtest=backtest,
            data=result.data,
            season=result.season,
            series=str(backtest.series),
            models=backtest.models.values(),
            classes=CLASSES,
            lowest=min(model.mase for model in backtest.models.values()),
            clocks=backtest.clocks.clocks,
            schedule=result.schedule.spec,
            caption=CAPTION,
            titles=TITLES,
            drawings=drawings,
            environment=environment(),
            version=__version__,
        )
    )
    write_files({path: page.encode()})
