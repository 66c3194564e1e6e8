"""The commands about forecasts: `cwrnn forecast fit`, `cwrnn forecast predict` and `cwrnn forecast backtest`.

The functions are imported when a command runs, because they need pandas and scikit-learn, which are an extra.
"""

from pathlib import Path
from typing import Annotated

import typer

from . import forecast_options, options
from .console import handle_errors, print_result, show_progress
from .forecast_options import OPTION_NAMES, split_list

FIT_EXAMPLES = """examples:

\b
cwrnn forecast fit load.csv --target load --horizon 24 --out model.safetensors
cwrnn forecast fit load.csv --target north --target south --covariates warm,holiday --out both.safetensors
cwrnn forecast fit load.parquet --horizon 48 --cell gru --schedule 1,48,336 --out gru.safetensors
cwrnn forecast fit local.csv --timezone Europe/Berlin --missing interpolate --out local.safetensors

The first column of dates has the times, whatever its name. They must be regular: every hour, every day, every month.

exit codes: 0 the model is written, 1 an error, 2 wrong usage, 130 interrupted
"""

PREDICT_EXAMPLES = """examples:

\b
cwrnn forecast predict model.safetensors load.csv                       forecast.csv and forecast.png
cwrnn forecast predict model.safetensors newer.csv --out next.csv --picture next.svg
cwrnn forecast predict model.safetensors today.csv --update             the model goes on from here next time
cwrnn forecast predict model.safetensors load.csv --coverage 0.95 --json

Rows that are newer than those the model has seen update its state. Its weights stay as they are.

exit codes: 0 the forecast is written, 1 an error, 2 wrong usage, 130 interrupted
"""

BACKTEST_EXAMPLES = """examples:

\b
cwrnn forecast backtest load.csv --target load                          backtest.html, beside five other models
cwrnn forecast backtest load.csv --target load --horizon 48 --seeds 5
cwrnn forecast backtest load.csv --target load --test 0.1 --stride 6 --out page.html
cwrnn forecast backtest load.csv --target load --competitors 'seasonal naive,nn.LSTM until it stops' --json

Every model is fitted once, to the part before the first origin. statsforecast and LightGBM take part if installed.

exit codes: 0 the page is written, 1 an error, 2 wrong usage, 130 interrupted
"""

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Forecast a column of a table, and compare forecasts."
)


@app.command("fit", epilog=FIT_EXAMPLES)
def fit(
    data: forecast_options.Data,
    out: Annotated[
        Path, typer.Option("--out", parser=options.parse_path, metavar="MODEL", help="The safetensors file to write.")
    ],
    target: forecast_options.Target = None,
    horizon: forecast_options.Horizon = 24,
    time: forecast_options.Time = None,
    covariates: forecast_options.Covariates = None,
    missing: forecast_options.Missing = "error",
    cell: forecast_options.Cell = None,
    hidden_size: forecast_options.HiddenSize = None,
    schedule: forecast_options.Schedule = None,
    coverage: forecast_options.Coverage = 0.8,
    epochs: forecast_options.Epochs = None,
    seed: forecast_options.Seed = 0,
    device: forecast_options.Device = "auto",
    time_format: forecast_options.TimeFormat = None,
    timezone: forecast_options.Timezone = None,
    encoding: forecast_options.Encoding = None,
    curve: Annotated[
        bool, typer.Option("--curve", help="Draw the loss curve into MODEL-loss.png, beside the model.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace MODEL if it exists.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a network with clocks to columns of a table, and write it to a file.

    Prints the clocks that the calendar and the spectrum suggest, and the error and the coverage on the end of the
    table, which is held out.

    In Python: cwrnn.experiments.fit_forecaster, or cwrnn.estimators.ClockworkForecaster for data of pandas.
    """
    with handle_errors(option_names=OPTION_NAMES):
        from ..experiments.forecasting.fitting import fit_forecaster

        with show_progress(quiet=quiet, unit="epochs", lines=False) as progress:
            fitted = fit_forecaster(
                data,
                out,
                targets=target,
                covariates=split_list(covariates),
                horizon=horizon,
                time=time,
                time_format=time_format,
                timezone=timezone,
                encoding=encoding,
                missing=missing,
                cell=cell,
                hidden_size=hidden_size,
                schedule=schedule,
                coverage=coverage,
                epochs=epochs,
                seed=seed,
                device=device,
                curve=curve,
                force=force,
                progress=progress,
            )
        print_result(fitted, as_json=as_json)


@app.command("predict", epilog=PREDICT_EXAMPLES)
def predict(
    model: Annotated[
        Path,
        typer.Argument(parser=options.parse_path, metavar="MODEL", help="The file that `cwrnn forecast fit` wrote."),
    ],
    data: forecast_options.Data,
    out: Annotated[
        Path, typer.Option("--out", parser=options.parse_path, metavar="CSV", help="The CSV file to write.")
    ] = Path("forecast.csv"),
    picture: Annotated[
        Path | None,
        typer.Option(
            "--picture",
            parser=options.parse_path,
            metavar="FILE",
            help="The PNG or SVG file to draw.",
            show_default="the name of --out, with .png",
        ),
    ] = None,
    coverage: Annotated[
        float | None,
        typer.Option(
            "--coverage",
            metavar="SHARE",
            help="The share of values that intervals should cover.",
            show_default="that of the model",
        ),
    ] = None,
    missing: Annotated[
        str | None,
        typer.Option(
            "--missing",
            metavar="error|interpolate|hold",
            help="What to do about missing values and times.",
            show_default="as in `forecast fit`",
        ),
    ] = None,
    time_format: forecast_options.TimeFormat = None,
    encoding: forecast_options.Encoding = None,
    update: Annotated[
        bool, typer.Option("--update", help="Write MODEL again, with its state after the last row of DATA.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Forecast the steps after the end of a table, and write a CSV file and a picture of them.

    DATA has the columns that the model was fitted to. Covariates must be known until the last step of the forecast: add
    rows for these steps, with nothing in the columns to forecast.

    In Python: cwrnn.experiments.make_forecast.
    """
    with handle_errors(option_names=OPTION_NAMES):
        from ..experiments.forecasting.prediction import make_forecast

        forecast = make_forecast(
            model,
            data,
            out,
            picture=out.parent / f"{out.stem}.png" if picture is None else picture,
            coverage=coverage,
            missing=missing,
            time_format=time_format,
            encoding=encoding,
            update=update,
        )
        print_result(forecast, as_json=as_json)


@app.command("backtest", epilog=BACKTEST_EXAMPLES)
def backtest(
    data: forecast_options.Data,
    target: forecast_options.Target = None,
    horizon: forecast_options.Horizon = 24,
    test: Annotated[
        float,
        typer.Option(
            "--test", metavar="SHARE", help="The share of the table at its end to forecast, or a number of steps."
        ),
    ] = 0.2,
    stride: Annotated[
        int | None,
        typer.Option("--stride", min=1, metavar="N", help="The steps between two origins.", show_default="the horizon"),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, metavar="N", help="How many seeds to train networks with.")
    ] = 1,
    competitors: Annotated[
        str | None,
        typer.Option(
            "--competitors",
            metavar="LIST",
            help="Other models, some of: seasonal naive, nn.LSTM, nn.GRU, nn.LSTM by the same rule, nn.GRU by "
            "the same rule, nn.LSTM until it stops, nn.GRU until it stops, MSTL, AutoETS, LightGBM; or all.",
            show_default="the first three, and MSTL and LightGBM if installed",
        ),
    ] = None,
    time: forecast_options.Time = None,
    covariates: forecast_options.Covariates = None,
    missing: forecast_options.Missing = "error",
    cell: forecast_options.Cell = None,
    hidden_size: forecast_options.HiddenSize = None,
    schedule: forecast_options.Schedule = None,
    coverage: forecast_options.Coverage = 0.8,
    epochs: forecast_options.Epochs = None,
    seed: forecast_options.Seed = 0,
    device: forecast_options.Device = "auto",
    time_format: forecast_options.TimeFormat = None,
    timezone: forecast_options.Timezone = None,
    encoding: forecast_options.Encoding = None,
    out: Annotated[
        Path, typer.Option("--out", parser=options.parse_path, metavar="PAGE", help="The page to write.")
    ] = Path("backtest.html"),
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Forecast the end of a table from many origins, beside other models, and write a page about it.

    The other networks have as many parameters as the one with clocks, the same recipe and the same training time.

    In Python: cwrnn.experiments.backtest_forecaster.
    """
    with handle_errors(option_names=OPTION_NAMES):
        from ..experiments.forecasting.backtesting import backtest_forecaster

        with show_progress(quiet=quiet, unit="models", lines=False) as progress:
            result = backtest_forecaster(
                data,
                out,
                targets=target,
                covariates=split_list(covariates),
                horizon=horizon,
                test_size=test,
                stride=stride,
                seeds=seeds,
                seed=seed,
                competitors="all" if competitors == "all" else split_list(competitors) or None,
                time=time,
                time_format=time_format,
                timezone=timezone,
                encoding=encoding,
                missing=missing,
                cell=cell,
                hidden_size=hidden_size,
                schedule=schedule,
                coverage=coverage,
                epochs=epochs,
                device=device,
                progress=progress,
            )
        print_result(result, as_json=as_json)
