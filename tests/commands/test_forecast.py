"""`cwrnn forecast fit`, `predict` and `backtest` do what their help says."""

import importlib
import json
import re
import shlex
import sys

import numpy as np
import pandas as pd
import pytest
from support.html_pages import HOSTILE, Page

from cwrnn.commands.main import main
from cwrnn.estimators.forecaster import ClockworkForecaster
from cwrnn.estimators.made_series import make_load_series
from cwrnn.experiments import backtest_forecaster, fit_forecaster, make_forecast
from cwrnn.experiments.errors import ArgumentError, ExperimentError
from cwrnn.experiments.forecasting.backtesting import choose_competitors
from cwrnn.experiments.forecasting.page import TITLES
from cwrnn.experiments.report.svg import VARIABLES

TINY = ["--horizon", "3", "--hidden-size", "8", "--epochs", "1"]
TINY_ARGUMENTS = {"horizon": 3, "hidden_size": 8, "epochs": 1}


def make_table(days=70):
    """A table of daily values with a week in them, and two columns that are known in advance."""
    load = make_load_series(days=days, frequency="6h").resample("D").mean()
    frame = pd.DataFrame({"load": load, "north": 2 * load + np.arange(days), "warm": np.sin(np.arange(days))})
    frame["holiday"] = (frame.index.day_of_week == 6).astype(int)
    return frame.set_index(frame.index.as_unit("ns")).rename_axis("day")


@pytest.fixture(scope="module")
def table():
    return make_table()


@pytest.fixture(scope="module")
def files(tmp_path_factory, table):
    """A folder with the table, its first 60 days, and a model of these."""
    folder = tmp_path_factory.mktemp("forecast")
    table[["load"]].to_csv(folder / "load.csv")
    table[["load"]][:60].to_csv(folder / "old.csv")
    fit_forecaster(folder / "old.csv", folder / "model.safetensors", **TINY_ARGUMENTS)
    return folder


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run `cwrnn forecast` in an empty folder; return its exit code, and the texts that it prints."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main(["forecast", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_two_commands_lead_from_a_table_to_a_picture(command, files, tmp_path, capsys):
    code, out, err = command("fit", files / "old.csv", "--target", "load", *TINY, "--out", "new/model.safetensors")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "load in old.csv: 60 steps from 2024-01-01 00:00:00 to 2024-02-29 00:00:00, one every day"
    assert any(re.fullmatch(r" +7  calendar: week.*", line) for line in lines)
    assert "season: 7 steps; modules (period:units): " in out
    assert any(line.startswith("  load: mean absolute error ") for line in lines)
    assert any("of the values lie inside their 80 % intervals" in line for line in lines)
    # the command runs as it is printed
    program, *arguments = shlex.split(lines[-1])
    assert (program, main(arguments)) == ("cwrnn", 0)
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "old.csv has no step that the model had not seen"
    assert out.splitlines()[-2:] == ["The forecast is forecast.csv", "The picture is forecast.png"]
    assert (tmp_path / "forecast.png").read_bytes().startswith(b"\x89PNG")
    forecaster = ClockworkForecaster.load("new/model.safetensors")
    written = pd.read_csv("forecast.csv", index_col="day", parse_dates=True)
    assert written.columns.tolist() == ["load", "load_lower", "load_upper"]
    np.testing.assert_allclose(written["load"], forecaster.predict(), rtol=1e-6)
    np.testing.assert_allclose(written[["load_lower", "load_upper"]], forecaster.predict_interval(), rtol=1e-6)
    assert written.index.tolist() == list(pd.date_range("2024-03-01", periods=3))


def test_fit_prints_json(command, files):
    code, out, err = command("fit", files / "old.csv", *TINY, "--out", "m", "--seed", 3, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    forecaster = ClockworkForecaster.load("m")
    assert (found["targets"], found["time"], found["steps"], found["frequency"]) == (["load"], "day", 60, "D")
    assert (found["seed"], found["horizon"], forecaster.random_state) == (3, 3, 3)
    assert found["schedule"] == forecaster.schedule_.spec
    assert [clock["period"] for clock in found["clocks"]] == list(forecaster.clocks_.periods)
    assert found["clocks"][-1]["source"].startswith("calendar: week")
    assert found["held_out"]["coverage"] == forecaster.coverage_
    assert found["held_out"]["mae"] == {"load": forecaster.held_out_errors_[0][0]}
    assert found["held_out"]["naive_mae"] == {"load": forecaster.held_out_errors_[0][1]}
    assert found["validation_curve"] == forecaster.validation_curve_


def test_the_error_on_the_held_out_end_is_in_the_unit_of_the_series(files, table):
    fitted = fit_forecaster(files / "load.csv", **TINY_ARGUMENTS)
    load, first = table["load"], len(table) - fitted.held_out_steps + 1
    assert 3 < fitted.held_out_steps < 35
    changes = np.abs(load - load.shift(7)).to_numpy()
    naive = [changes[origin : origin + 3].mean() for origin in range(first, len(load) - 2)]
    error, found = fitted.forecaster.held_out_errors_[0]
    assert found == pytest.approx(np.mean(naive), rel=1e-5)
    assert 0.1 * found < error < 3 * found


def test_the_same_seed_gives_the_same_forecast(command, files):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert command("fit", files / "old.csv", *TINY, "--epochs", 2, "--seed", seed, "--out", name)[0] == 0
    weights = [ClockworkForecaster.load(name).network_.layer.weight_hh_l0.tolist() for name in "abc"]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


def test_an_existing_model_is_replaced_only_with_force(command, files, tmp_path):
    (tmp_path / "m").write_text("mine")
    code, out, err = command("fit", files / "old.csv", *TINY, "--out", "m")
    assert (code, out) == (2, "")
    assert "m exists already: add --force (force=True) to replace it" in " ".join(err.split())
    assert (tmp_path / "m").read_text() == "mine"
    assert command("fit", files / "old.csv", *TINY, "--out", "m", "--force", "--curve")[0] == 0
    assert (tmp_path / "m-loss.png").read_bytes().startswith(b"\x89PNG")


def test_the_clocks_of_the_user_are_taken(command, files):
    code, out, _ = command("fit", files / "old.csv", *TINY, "--schedule", "1,7", "--cell", "gru", "--out", "m")
    assert code == 0
    assert "modules (period:units): 1:4,7:4" in out
    assert ClockworkForecaster.load("m").schedule_.spec == "1:4,7:4"
    assert (
        command("fit", files / "old.csv", "--horizon", 3, "--epochs", 1, "--schedule", "1:4,7:2", "--out", "n")[0] == 0
    )
    assert ClockworkForecaster.load("n").schedule_.spec == "1:4,7:2"
    assert command("fit", files / "old.csv", *TINY, "--out", "o")[0] == 0
    assert 7 in ClockworkForecaster.load("o").schedule_.periods


def test_newer_rows_update_the_model(command, files, table):
    code, out, err = command("predict", files / "model.safetensors", files / "load.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["new_steps"], found["last"], found["times"][0]) == (10, "2024-03-10 00:00:00", "2024-03-11 00:00:00")
    forecaster = ClockworkForecaster.load(files / "model.safetensors").update(table["load"][60:])
    np.testing.assert_allclose(found["forecast"]["load"]["median"], forecaster.predict(), rtol=1e-6)


def test_update_keeps_the_state_for_the_next_rows(command, files, table, tmp_path):
    (tmp_path / "m").write_bytes((files / "model.safetensors").read_bytes())
    table[["load"]][60:65].to_csv("first.csv")
    table[["load"]][65:].to_csv("second.csv")
    code, out, err = command("predict", "m", "second.csv")
    assert (code, out) == (1, "")
    assert "second.csv: line 2: 2024-03-01 00:00:00 is missing before 2024-03-06 00:00:00 (5 times of" in err
    assert command("predict", "m", "first.csv", "--update")[0] == 0
    found = json.loads(command("predict", "m", "second.csv", "--json")[1])
    whole = json.loads(command("predict", files / "model.safetensors", files / "load.csv", "--json")[1])
    assert found["new_steps"] == 5
    np.testing.assert_allclose(found["forecast"]["load"]["upper"], whole["forecast"]["load"]["upper"], rtol=1e-5)
    assert command("predict", "m", "second.csv", "--missing", "hold")[0] == 0


def test_intervals_get_wider_with_their_coverage(command, files):
    widths = []
    for share in ("0.5", "0.95"):
        options = ["--coverage", share, "--out", "f.csv", "--picture", "f.svg", "--json"]
        code, out, _ = command("predict", files / "model.safetensors", files / "load.csv", *options)
        assert code == 0
        found = json.loads(out)["forecast"]["load"]
        widths.append(np.mean(found["upper"]) - np.mean(found["lower"]))
    assert widths[0] < widths[1]
    with open("f.svg") as file:
        text = file.read()
    for part in ("history", "interval", "forecast"):
        assert f'id="{part}"' in text


def test_several_targets_and_covariates(command, table):
    table[:60].to_csv("old.csv")
    options = ["--target", "load", "--target", "north", "--covariates", "warm, holiday", "--missing", "interpolate"]
    code, out, err = command("fit", "old.csv", *options, *TINY, "--out", "m")
    assert (code, err) == (0, "")
    assert "  north: mean absolute error " in out
    # the last row has no value of north: it counts as missing, not as the end
    later = table[["load", "north", "warm", "holiday"]].copy()
    later.iloc[62:, :2] = np.nan
    later.iloc[61, 1] = np.nan
    later[:64].to_csv("short.csv")
    code, out, err = command("predict", "m", "short.csv")
    assert (code, out) == (1, "")
    assert "column 'warm' has no value at 2024-03-05 00:00:00: a covariate must be known for all 3 steps" in err
    later.to_csv("later.csv")
    code, out, err = command("predict", "m", "later.csv", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["new_steps"] == 2
    assert set(found["forecast"]) == {"load", "north"}
    assert pd.read_csv("forecast.csv").columns.tolist()[4:] == ["north", "north_lower", "north_upper"]


def test_parquet_files_are_read(command, files, table):
    pytest.importorskip("pyarrow")
    table[["load"]].to_parquet("load.parquet")
    code, out, _ = command("predict", files / "model.safetensors", "load.parquet", "--json")
    assert code == 0
    assert json.loads(out)["new_steps"] == 10


def test_local_times_and_their_clocks_are_kept(command):
    index = pd.date_range("2024-10-20", periods=24 * 9, freq="h", tz="Europe/Berlin")
    values = np.sin(np.arange(len(index)) / 4)
    lines = [f"{time:%Y-%m-%d %H:%M},{value}" for time, value in zip(index, values, strict=True)]
    with open("local.csv", "w") as file:
        file.write("\n".join(["time,load", *lines]))
    code, _, err = command("fit", "local.csv", *TINY, "--out", "m")
    assert code == 1
    assert "occurs twice" in err
    assert command("fit", "local.csv", *TINY, "--timezone", "Europe/Berlin", "--out", "m")[0] == 0
    code, out, err = command("predict", "m", "local.csv", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["times"][0] == str(index[-1] + pd.Timedelta("1h"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cell", "mlp"], "--cell: expected one of rnn, lstm, gru, got 'mlp'"),
        (["--horizon", "0"], "'--horizon'"),
        (["--horizon", "10001"], "--horizon: expected at most 10000, got 10001"),
        (["--hidden-size", "10001"], "--hidden-size: expected at most 10000, got 10001"),
        (["--schedule", "1:2,x"], "--schedule: a schedule is written period:size"),
        (["--schedule", "0,7"], "--schedule:"),
        (["--schedule", "1:4,7:2"], "--schedule: the schedule has 6 units, but hidden_size=8"),
        (["--coverage", "1"], "--coverage: expected a share above 0 and below 1, such as 0.8, got 1.0"),
        (["--coverage", "nan"], "--coverage: expected a share above 0 and below 1"),
        (["--epochs", "0"], "'--epochs'"),
        (["--seed", str(2**32)], "--seed: expected at most"),
        (["--device", "abacus"], "--device:"),
        (["--missing", "guess"], "--missing: expected one of error, interpolate, hold, got 'guess'"),
        (["--out", "."], "--out: . is a folder: name a file"),
        (["--out", ""], "--out"),
    ],
)
def test_wrong_usage_of_fit_exits_with_2(command, files, tmp_path, arguments, message):
    out = [] if "--out" in arguments else ["--out", "m"]
    code, printed, err = command("fit", files / "old.csv", *TINY, *out, *arguments)
    assert (code, printed) == (2, "")
    assert message in " ".join(err.split())
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (None, [], "cwrnn: data.csv: cannot be read: No such file or directory"),
        ([], [], "data.csv: the file is empty"),
        (["day,load", "2024-01-01,1", "2024-01-02,2"], [], "there are 2 steps, but a horizon of 3 needs at least"),
        (["day,load", *(f"2024-01-0{i},7" for i in range(1, 10))], [], "column 'load' is constant, all its values"),
        (["day,load", "2024-01-01,1", "2024-01-02,two"], [], "line 3: column 'load' has 'two', which is not a number"),
        (["day,load", "2024-01-01,1"], ["--target", "laod"], "there is no column 'laod' (target)"),
        (["day,load", "2024-01-01,1"], ["--time", "month"], "there is no column 'month' (time)"),
        (["day,load", "2024-01-01,1"], ["--encoding", "x"], "there is no encoding 'x'"),
        (["day,load", "2024-01-01,1"], ["--timezone", "x"], "there is no time zone 'x'"),
    ],
)  # fmt: skip
def test_data_that_cannot_be_used_exit_with_1(command, tmp_path, lines, options, message):
    if lines is not None:
        (tmp_path / "data.csv").write_text("".join(f"{line}\n" for line in lines))
    for name in ("fit", "backtest"):
        out = ["--out", "m"]
        code, printed, err = command(name, "data.csv", *TINY, *out, *options)
        assert (code, printed) == (1, "")
        assert message in err
        assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["{model}", "missing.csv"], 1, "missing.csv: cannot be read"),
        (["{data}", "{data}"], 1, "this is not a safetensors file"),
        (["missing", "{data}"], 1, "missing: cannot be read"),
        (["{model}", "{data}", "--picture", "f.gif"], 2, "--picture: expected a file that ends in .png or .svg"),
        (["{model}", "{data}", "--out", "."], 2, "--out: . is a folder"),
        (["{model}", "{data}", "--out", "f.png"], 2, "--picture: expected another file than that of the forecast"),
        (["{model}", "{data}", "--coverage", "0"], 2, "--coverage: expected a share above 0"),
        (["{model}", "{data}", "--missing", "no"], 2, "--missing: expected one of error"),
        (["{model}"], 2, "DATA"),
    ],
)
def test_errors_of_predict(command, files, arguments, code, message):
    names = {"model": files / "model.safetensors", "data": files / "load.csv"}
    found, out, err = command("predict", *(argument.format(**names) for argument in arguments))
    assert (found, out) == (code, "")
    assert message in " ".join(err.split())


def test_times_of_another_kind_are_refused(command, files, tmp_path):
    (tmp_path / "steps.csv").write_text("day,load\n" + "".join(f"{i},{i}\n" for i in range(9)))
    code, _, err = command("predict", files / "model.safetensors", "steps.csv")
    assert code == 1
    assert "steps.csv: the times must be like those of the model, such as 2024-01-01 00:00:00, got step 0" in err


def test_a_classifier_is_no_forecaster(command, files, tmp_path):
    from cwrnn.estimators import ClockworkClassifier

    X = np.random.default_rng(0).normal(size=(12, 5))
    ClockworkClassifier(hidden_size=4, max_epochs=1).fit(X, np.arange(12) % 2).save("m")
    code, _, err = command("predict", "m", files / "load.csv")
    assert code == 1
    assert "expected a ClockworkForecaster, but this is a ClockworkClassifier" in err


def test_a_series_too_short_to_hold_out_an_end_has_no_measured_error(command, table):
    table[["load"]][:12].to_csv("short.csv")
    code, out, err = command("fit", "short.csv", *TINY, "--out", "m")
    assert (code, err) == (0, "")
    assert "The series is too short to hold out an end: error and coverage are not measured." in out
    found = json.loads(command("fit", "short.csv", *TINY, "--out", "n", "--json")[1])
    assert found["held_out"] == {"steps": 0, "mae": {}, "naive_mae": {}, "coverage": None}
    assert command("predict", "m", "short.csv")[0] == 0


def test_backtest_prints_a_table_and_writes_a_page(command, table):
    table[[]].assign(**{HOSTILE: table["load"]}).to_csv("load.csv")
    options = ["--competitors", "seasonal naive,nn.LSTM", "--seeds", 2, "--stride", 4, "--out", "deep/page.html"]
    code, out, err = command("backtest", "load.csv", *TINY, *options)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1].startswith("The page is ")
    assert re.search(r"^ClockworkForecaster +\d\.\d{3} ± \d\.\d{3} ", out, flags=re.MULTILINE)
    assert re.search(r"^seasonal naive +\d\.\d{3} ", out, flags=re.MULTILINE)
    with open("deep/page.html", encoding="utf-8") as file:
        text = file.read()
    page = Page(text)
    assert "script" not in page.tags
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert "http" not in page.styles
    assert page.tags.count("svg") == len(TITLES)
    assert HOSTILE in page.text
    for name in (*TITLES, "result", "clocks", "repeat"):
        assert name in page.ids
    for sentence in lines[-4:-1]:
        assert sentence.replace(" %", "\u00a0%") in page.text
    for colour in VARIABLES:
        assert colour not in "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))


def test_backtest_prints_json(files, command, monkeypatch):
    from cwrnn.experiments.forecasting import page

    monkeypatch.setattr(page, "write_page", lambda backtest, path: None)
    code, out, err = command("backtest", files / "load.csv", *TINY, "--competitors", "seasonal naive", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found["models"]) == {"ClockworkForecaster", "seasonal naive"}
    # 14 of 70 steps, three at a time
    assert (found["train_steps"], len(found["origins"]), found["season"]) == (56, 4, 7)
    own = found["models"]["ClockworkForecaster"]
    assert own["mase"] == pytest.approx(np.mean(own["mase_by_step"]))
    assert own["mase"] == pytest.approx(np.mean(own["mase_by_origin"]))
    assert found["models"]["seasonal naive"]["parameters"] is None


def test_seeds_are_averaged_and_models_without_one_run_once(files):
    names = ["seasonal naive", "nn.GRU"]
    both = backtest_forecaster(files / "load.csv", seeds=2, seed=5, competitors=names, **TINY_ARGUMENTS)
    one = backtest_forecaster(files / "load.csv", seed=6, competitors=["seasonal naive"], **TINY_ARGUMENTS)
    assert both.seeds == (5, 6)
    assert [len(model.scores) for model in both.models.values()] == [2, 1, 2]
    own = both.models["ClockworkForecaster"]
    assert own.scores[1].mase == one.models["ClockworkForecaster"].mase
    assert own.mase == np.mean([score.mase for score in own.scores])
    assert own.deviation("mase") == pytest.approx(abs(own.scores[0].mase - own.scores[1].mase) / np.sqrt(2))


def test_the_seasonal_naive_forecast_is_the_value_one_week_before(files, table):
    result = backtest_forecaster(files / "load.csv", competitors=["seasonal naive"], **TINY_ARGUMENTS)
    load = table["load"].to_numpy()
    errors = [abs(load[origin + h] - load[origin + h - 7]) for origin in range(56, 68, 3) for h in range(3)]
    assert result.models["seasonal naive"].mean("mae") == pytest.approx(np.mean(errors))
    unit = np.mean(np.abs(load[7:56] - load[:49]))
    assert result.models["seasonal naive"].mase == pytest.approx(np.mean(errors) / unit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--competitors", "MSTM"], "--competitors: must be 'all' or among seasonal naive, nn.LSTM"),
        (["--test", "0"], "--test: expected a share below 1, or a number of steps below 70, got 0.0"),
        (["--test", "2"], "--test: leaves 2 of 70 steps to forecast, but a horizon of 3 needs at least 3"),
        (["--stride", "0"], "'--stride'"),
        (["--stride", "71"], "--stride: expected at most 70, got 71"),
        (["--seeds", "101"], "--seeds: expected at most 100, got 101"),
        (["--out", "."], "--out: . is a folder"),
    ],
)
def test_wrong_usage_of_backtest_exits_with_2(command, files, arguments, message):
    code, printed, err = command("backtest", files / "load.csv", *TINY, *arguments)
    assert (code, printed) == (2, "")
    assert message in " ".join(err.split())


def test_the_usual_competitors_are_those_that_are_installed(monkeypatch):
    from cwrnn.estimators import competitors

    monkeypatch.setattr(competitors.importlib.util, "find_spec", lambda name: None)
    assert choose_competitors(None) == ["seasonal naive", "nn.LSTM", "nn.GRU"]
    assert choose_competitors(["nn.GRU", "nn.GRU"]) == ["nn.GRU"]
    with pytest.raises(ArgumentError, match="competitors: must be 'all' or among"):
        choose_competitors("guessing")


def test_progress_is_reported(files):
    seen = []
    fit_forecaster(files / "old.csv", **(TINY_ARGUMENTS | {"epochs": 2}), progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert (seen[0].activity, seen[-1].done, seen[-1].total, fractions[-1]) == ("training", 2, 2, 1.0)
    seen.clear()
    names = ["seasonal naive", "nn.LSTM"]
    backtest_forecaster(files / "load.csv", seeds=2, competitors=names, **TINY_ARGUMENTS, progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert {"seasonal naive, seed 1 of 2", "nn.LSTM, seed 2 of 2"} <= {progress.activity for progress in seen}


def test_an_interrupt_ends_the_command_with_130(command, files, monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(ClockworkForecaster, "_train", interrupt)
    code, out, err = command("fit", files / "old.csv", *TINY, "--out", "m")
    assert (code, out, err) == (130, "", "Interrupted.\n")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("package", ["pandas", "sklearn"])
def test_a_missing_package_is_named_with_its_extra(command, files, monkeypatch, package):
    for name in [name for name in sys.modules if name.startswith("cwrnn.experiments.forecasting")]:
        monkeypatch.delitem(sys.modules, name)
    whole = importlib.import_module

    def refuse(name, *arguments):
        if name == package:
            raise ImportError(name)
        return whole(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", refuse)
    for name in ("fit", "backtest"):
        code, out, err = command(name, files / "old.csv", "--out", "m")
        assert (code, out) == (1, "")
        assert f"cwrnn: forecasting needs {package}: pip install 'cwrnn[forecast]'" in err


def test_results_can_be_used_in_python(files, table, tmp_path):
    forecast = make_forecast(files / "model.safetensors", files / "load.csv", tmp_path / "f.csv")
    assert forecast.picture is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.csv"]
    pd.testing.assert_frame_equal(forecast.history, table[["load"]], check_freq=False)
    assert (forecast.frame["load_lower"] < forecast.frame["load_upper"]).all()
    with pytest.raises(ExperimentError, match="cannot be read"):
        make_forecast(files / "model.safetensors", "nowhere.csv")


@pytest.mark.parametrize("name", ["fit", "predict", "backtest"])
def test_help_has_examples(command, name):
    code, out, _ = command(name, "--help")
    assert code == 0
    assert "examples:" in out
    assert "exit codes: 0" in out
    assert "--json" in out


def test_the_help_shows_the_defaults_of_the_forecaster(command):
    text = " ".join(command("fit", "--help")[1].split())
    forecaster = ClockworkForecaster()
    for option, default in [
        ("--cell", forecaster.cell),
        ("--hidden-size", forecaster.hidden_size),
        ("--epochs", forecaster.max_epochs),
    ]:
        assert re.search(rf"{option} [^\[]*\[default: \({default}\)", text)
