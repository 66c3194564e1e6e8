"""`backtest_forecaster`: forecasts of the end of a table from many origins, by a forecaster and its competitors."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...estimators.backtest import OWN, BacktestResult, Score, run_backtest
from ...estimators.clocks import Clocks
from ...estimators.competitors import COMPETITORS, list_competitors, resolve_competitors
from ...estimators.forecaster import ClockworkForecaster
from ...schedule import Schedule
from ...untrusted import escape_controls
from ..errors import ArgumentError
from ..file_names import check_new_file, check_path, format_page_path, replace_undecodable
from ..json_safe import make_json_safe
from ..limits import check_count
from ..progress import Progress, ProgressCallback
from ..report.numbers import format_count
from ..text_table import format_table
from .loading import (
    LARGEST_SEED,
    LoadedSeries,
    collect_notes,
    follow_training,
    load_series,
    make_forecaster,
    name_problems,
)

USUAL = ("seasonal naive", "nn.LSTM", "nn.GRU", "MSTL", "LightGBM")
"""The competitors of a backtest, as far as they are installed."""

NETWORKS = tuple(name for name in COMPETITORS if name.startswith("nn."))
"""The competitors whose forecasts depend on the seed; the others run once."""

MOST_SEEDS = 100
"""The most seeds of a backtest."""

CAPTION = (
    "MASE: the mean absolute error, divided by that of the value one season before on the training part. Coverage: the "
    "share of the values inside their intervals. Seconds: the time of the training."
)


@dataclass(frozen=True)
class ModelResult:
    """The errors of one model, for one seed or for several."""

    name: str
    scores: tuple[Score, ...]
    """The errors for each seed; one for a model without a seed."""

    @property
    def mase(self) -> float:
        """The mean of the MASE over the seeds."""
        return self.mean("mase")

    def mean(self, field: str) -> float:
        """Return the mean of a field of the scores over the seeds; NaN if the model does not have it."""
        return float(np.mean([getattr(score, field) for score in self.scores]))

    def deviation(self, field: str) -> float:
        """Return the standard deviation of a field over the seeds; NaN for a single seed."""
        values = [getattr(score, field) for score in self.scores]
        return float(np.std(values, ddof=1)) if len(values) > 1 else math.nan

    def format(self, field: str, digits: str) -> str:
        """Return the mean of a field as text, with its deviation if there are several seeds."""
        mean, deviation = self.mean(field), self.deviation(field)
        if math.isnan(mean):
            return "-"
        # no digits of a deviation that the mean does not have
        spread = ".2g" if digits.endswith("g") else digits
        return f"{mean:{digits}}" + ("" if math.isnan(deviation) else f" ± {deviation:{spread}}")

    @property
    def coverage_text(self) -> str:
        """The coverage of the intervals in percent, or "-" if the model has none."""
        coverage = self.mean("coverage")
        return "-" if math.isnan(coverage) else f"{100 * coverage:.1f} %"

    @property
    def parameters_text(self) -> str:
        """The number of parameters, or "-" if the model has none."""
        parameters = self.scores[0].parameters
        return "-" if parameters is None else f"{parameters:,}"

    @property
    def by_step(self) -> NDArray[np.float64]:
        """(H,): the MASE of every step ahead."""
        return _mean_curves([score.mase_by_step for score in self.scores])

    @property
    def by_origin(self) -> NDArray[np.float64]:
        """(origins,): the MASE of every origin; NaN if its values are missing."""
        return _mean_curves([score.mase_by_origin for score in self.scores])

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        fields = ("mase", "mae", "rmse", "coverage", "width", "fit_seconds")
        return {
            **{field: self.mean(field) for field in fields},
            "parameters": self.scores[0].parameters,
            "mase_by_seed": [score.mase for score in self.scores],
            "mase_by_step": self.by_step.tolist(),
            "mase_by_origin": self.by_origin.tolist(),
        }


@dataclass(frozen=True, eq=False)
class ForecasterBacktest:
    """The result of `backtest_forecaster`. Printing it shows a table."""

    forecaster: ClockworkForecaster
    """The forecaster with its parameters; those that were fitted are clones."""
    series: LoadedSeries
    results: tuple[BacktestResult, ...]
    """The backtest of each seed. Competitors without a seed are in the first one only."""
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()
    """Warnings about the trainings."""
    page: Path | None = None
    """The page, if one was written."""

    @property
    def models(self) -> dict[str, ModelResult]:
        """The errors of all models by their names; the forecaster itself comes first."""
        by_seed = [result.scores for result in self.results]
        return {
            name: ModelResult(name, tuple(scores[name] for scores in by_seed if name in scores)) for name in by_seed[0]
        }

    @property
    def clocks(self) -> Clocks:
        """The clocks of the forecaster."""
        return self.results[0].clocks

    def measure_coverage_by_step(self) -> dict[str, NDArray[np.float64]]:
        """Return the share (H,) of values inside their intervals at every step ahead, for models with intervals."""
        actual = self.results[0].data.actual
        shares: dict[str, list[NDArray[np.float64]]] = {}
        for result in self.results:
            for name, forecasts in result.forecasts.items():
                low, high = forecasts.quantiles[..., 0], forecasts.quantiles[..., 2]
                known = ~(np.isnan(actual) | np.isnan(low) | np.isnan(high))
                count = known.sum(axis=(0, 2))
                inside = (known & (actual >= low) & (actual <= high)).sum(axis=(0, 2))
                shares.setdefault(name, []).append(np.where(count > 0, inside / np.maximum(count, 1), np.nan))
        return {name: np.mean(curves, axis=0) for name, curves in shares.items()}

    @property
    def sentences(self) -> list[str]:
        """The result in sentences."""
        models = self.models
        own, others = models[OWN], [model for name, model in models.items() if name != OWN]
        data = self.results[0].data
        what = f"{data.horizon} steps ahead from {format_count(len(data.origins), 'origin')}"
        lines = [f"The mean absolute scaled error (MASE) of the forecaster is {own.format('mase', '.3f')}, {what}."]
        if others:
            best = min(others, key=lambda model: model.mase)
            lines.append(
                f"It is {_compare(own.mase, best.mase)} {best.name}, the best of the "
                f"{format_count(len(others), 'other model')} ({best.format('mase', '.3f')})."
                if len(others) > 1
                else f"It is {_compare(own.mase, best.mase)} {best.name} ({best.format('mase', '.3f')})."
            )
        if own.coverage_text != "-":
            lines.append(f"Its {100 * data.coverage:g} % intervals cover {own.coverage_text} of the values.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON; numbers that do not exist are None."""
        result = self.results[0]
        numbers: dict[str, Any] = make_json_safe(
            {
                **self.series.to_dict(),
                "horizon": result.data.horizon,
                "train_steps": result.data.train_end,
                "origins": [str(origin) for origin in result.origins],
                "season": result.season,
                "coverage": result.data.coverage,
                "seeds": self.seeds,
                "clocks": self.clocks.to_dict(),
                "models": {name: model.to_dict() for name, model in self.models.items()},
                "sentences": self.sentences,
                "notes": self.notes,
                "page": None if self.page is None else replace_undecodable(str(self.page.resolve())),
            }
        )
        return numbers

    def __str__(self) -> str:
        data = self.results[0].data
        headers = ["model", "MASE", "MAE", "RMSE", f"coverage\nof {100 * data.coverage:g} %", "seconds", "parameters"]
        rows = [
            [
                model.name,
                model.format("mase", ".3f"),
                f"{model.mean('mae'):.4g}",
                f"{model.mean('rmse'):.4g}",
                model.coverage_text,
                f"{model.mean('fit_seconds'):.1f}",
                model.parameters_text,
            ]
            for model in self.models.values()
        ]
        title = (
            f"{self.series}\n{format_count(len(data.origins), 'origin')}, {data.horizon} steps ahead; fitted to the "
            f"first {data.train_end} steps"
        )
        if len(self.seeds) > 1:
            title += f"; mean ± standard deviation of {len(self.seeds)} seeds"
        lines = [format_table(title, headers, rows, CAPTION), "", *self.sentences]
        lines += [f"note: {note}" for note in self.notes]
        if self.page is not None:
            lines.append(format_page_path(self.page))
        return "\n".join(escape_controls(replace_undecodable(line)) for line in "\n".join(lines).split("\n"))


def backtest_forecaster(
    data: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    targets: Sequence[str] | None = None,
    covariates: Sequence[str] = (),
    horizon: int = 24,
    test_size: float = 0.2,
    stride: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    competitors: Sequence[str] | str | None = None,
    time: str | None = None,
    time_format: str | None = None,
    timezone: str | None = None,
    encoding: str | None = None,
    missing: str = "error",
    cell: str | None = None,
    hidden_size: int | None = None,
    schedule: str | Schedule | None = None,
    coverage: float = 0.8,
    epochs: int | None = None,
    device: str = "auto",
    progress: ProgressCallback | None = None,
) -> ForecasterBacktest:
    """Forecast the end of a table from many origins, and compare the forecaster with other models.

    All models are fitted once, to the part before the first origin. At each origin they know everything before it. The
    networks without clocks have as many parameters as the forecaster, its recipe and its training time.

    Args:
        data: a CSV or Parquet file; its first line has the names of the columns
        out: the page to write; None to write none
        test_size: the share of the series at its end that is forecast, or the number of its steps
        stride: the number of steps between two origins; None for the horizon
        seeds: how many seeds to run; networks depend on them, other models run once
        seed: the first seed; the next ones count from there
        competitors: names from `cwrnn.estimators.competitors.list_competitors`; "all" for all that are installed; None
            for the usual ones that are installed
        progress: called before each model and after every batch; an exception in it stops the backtest

    All other arguments are those of `fit_forecaster`, and so are the errors.

    Example::

        result = cwrnn.experiments.backtest_forecaster("load.csv", "backtest.html", targets=["load"], seeds=3)
        print(result)
        print(result.models["ClockworkForecaster"].mase)
    """
    page = None if out is None else check_path("out", out)
    if page is not None:
        check_new_file("out", page, force=True)
    check_count("seeds", seeds, MOST_SEEDS)
    check_count("seed", seed, LARGEST_SEED - MOST_SEEDS, least=0)
    names = choose_competitors(competitors)
    forecaster = make_forecaster(
        horizon=horizon,
        cell=cell,
        hidden_size=hidden_size,
        schedule=schedule,
        coverage=coverage,
        missing=missing,
        epochs=epochs,
        seed=seed,
        device=device,
    )
    series = load_series(
        data,
        targets=targets,
        covariates=covariates,
        missing=missing,
        horizon=horizon,
        time=time,
        time_format=time_format,
        timezone=timezone,
        encoding=encoding,
    )
    _check_test(test_size, stride, series.steps, horizon)
    results = []
    with name_problems(series.table.path), collect_notes() as notes:
        for number in range(seeds):
            chosen = names if number == 0 else [name for name in names if name in NETWORKS]
            forecaster.set_params(random_state=seed + number)
            follow = _Follower(progress, number, seeds, len(chosen) + 1)
            forecaster.verbose = follow_training(follow.report_training)
            results.append(
                run_backtest(
                    forecaster,
                    series.y,
                    series.X,
                    test_size=test_size,
                    stride=stride,
                    competitors=chosen,
                    progress=follow.report_model,
                )
            )
    forecaster.set_params(random_state=seed, verbose=False)
    seed_list = tuple(range(seed, seed + seeds))
    backtest = ForecasterBacktest(forecaster, series, tuple(results), seed_list, tuple(dict.fromkeys(notes)), page)
    if page is not None:
        # importing matplotlib takes long
        from .page import write_page

        write_page(backtest, page)
    return backtest


def choose_competitors(competitors: Sequence[str] | str | None) -> list[str]:
    """Return the names of competitors; an ArgumentError if there is no such model."""
    if competitors is None:
        installed = list_competitors()
        return [name for name in USUAL if name in installed]
    try:
        return list(dict.fromkeys(resolve_competitors(competitors)))
    except ValueError as error:
        raise ArgumentError("competitors", str(error).removeprefix("competitors ")) from error


class _Follower:
    """Reports how far the backtests of all seeds have come."""

    def __init__(self, progress: ProgressCallback | None, run: int, runs: int, models: int) -> None:
        self.progress, self.run, self.runs, self.models = progress, run, runs, models
        self.name, self.number = "", 0

    def report_model(self, name: str, number: int, total: int) -> None:
        """Report that the next model begins."""
        self.name, self.number = name, number
        self._report(0.0)

    def report_training(self, training: Progress) -> None:
        """Report that the training of a network goes on."""
        self._report(training.fraction)

    def _report(self, fraction: float) -> None:
        if self.progress is not None:
            seed = f", seed {self.run + 1} of {self.runs}" if self.runs > 1 else ""
            share = (self.run + (self.number + fraction) / self.models) / self.runs
            self.progress(Progress(f"{self.name}{seed}", self.number, self.models, share))


def _check_test(test_size: float, stride: int | None, steps: int, horizon: int) -> None:
    """Raise an ArgumentError if there would be no forecast."""
    if isinstance(test_size, bool) or not 0 < test_size < steps:
        raise ArgumentError(
            "test_size", f"expected a share below 1, or a number of steps below {steps}, got {test_size}"
        )
    test = int(steps * test_size) if test_size < 1 else int(test_size)
    if test < horizon:
        raise ArgumentError(
            "test_size",
            f"leaves {test} of {steps} steps to forecast, but a horizon of {horizon} needs at least {horizon}",
        )
    if stride is not None:
        check_count("stride", stride, steps)


def _mean_curves(curves: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = np.mean(np.array(curves, dtype=np.float64), axis=0)
    return mean


def _compare(own: float, other: float) -> str:
    """Return how far an error lies below or above another one.

    >>> _compare(0.5, 1.0), _compare(1.1, 1.0), _compare(1.001, 1.0)
    ('50 % below that of', '10 % above that of', 'the same as that of')
    """
    if not other > 0 or abs(own / other - 1) < 0.005:
        return "the same as that of"
    return f"{100 * abs(1 - own / other):.0f} % {'below' if own < other else 'above'} that of"
