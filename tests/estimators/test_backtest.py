"""Backtests: scores equal their definitions, no model looks ahead, and competitors have equal means."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from torch import nn

from cwrnn.estimators import competitors as module
from cwrnn.estimators.backtest import run_backtest
from cwrnn.estimators.competitors import TorchForecaster, list_competitors
from cwrnn.estimators.forecaster import ClockworkForecaster
from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.time_axis import SeriesError

SMALL = {"horizon": 6, "hidden_size": 8, "max_epochs": 1, "batch_size": 2, "random_state": 0, "device": "cpu"}


def make_forecaster(**options):
    return ClockworkForecaster(**{**SMALL, **options})


@pytest.fixture(scope="module")
def load():
    return make_load_series(days=8)


@pytest.fixture(scope="module")
def result(load):
    return run_backtest(make_forecaster(), load, stride=5)


def test_scores_equal_their_definitions(result, load):
    y = load.to_numpy()
    assert result.season == 24
    assert result.data.train_end == 154
    assert result.data.origins == tuple(range(154, 187, 5))
    unit = np.abs(y[24:154] - y[:130]).mean()
    errors = np.stack([y[o : o + 6] - y[o - 24 : o - 18] for o in result.data.origins])
    naive = result.scores["seasonal naive"]
    assert math.isclose(naive.mase, np.abs(errors).mean() / unit)
    assert math.isclose(naive.mae, np.abs(errors).mean())
    assert math.isclose(naive.rmse, np.sqrt((errors**2).mean()))
    np.testing.assert_allclose(naive.mase_by_step, np.abs(errors).mean(axis=0) / unit)
    np.testing.assert_allclose(naive.mase_by_origin, np.abs(errors).mean(axis=1) / unit)
    own = result.forecasts["ClockworkForecaster"].quantiles[..., 0, :]
    actual = np.stack([y[o : o + 6] for o in result.data.origins])
    inside = (actual >= own[..., 0]) & (actual <= own[..., 2])
    assert math.isclose(result.scores["ClockworkForecaster"].coverage, inside.mean())
    assert result.origins.tolist() == [load.index[o] for o in result.data.origins]


def test_forecasts_are_those_of_fit_update_and_predict(result, load):
    forecaster = make_forecaster().fit(load[:154])
    for i, origin in enumerate(result.data.origins):
        if i:
            forecaster.update(load[origin - 5 : origin])
        found = result.forecasts["ClockworkForecaster"].quantiles[i, :, 0]
        np.testing.assert_allclose(found, forecaster.predict_quantiles([0.1, 0.5, 0.9]), rtol=1e-6)


def test_no_model_looks_ahead(result, load, monkeypatch):
    monkeypatch.setattr(module, "TREES", 20)
    changed = load.copy()
    changed.iloc[159:] += 50
    names = [name for name in list_competitors() if "until" not in name and not name.startswith("nn.")]
    same = run_backtest(make_forecaster(), load, stride=5, competitors=names).forecasts
    other = run_backtest(make_forecaster(), changed, stride=5, competitors=names).forecasts
    assert {"seasonal naive", "ClockworkForecaster"} <= set(other)
    known = [i for i, origin in enumerate(result.data.origins) if origin <= 159]
    for name, forecasts in other.items():
        np.testing.assert_array_equal(forecasts.quantiles[known], same[name].quantiles[known], err_msg=name)
        assert not np.array_equal(forecasts.quantiles[-1], same[name].quantiles[-1]), name


def test_the_table_and_its_json(result):
    lines = str(result).splitlines()
    assert lines[0] == "7 origins, 6 steps ahead, fitted to 154 of 192 steps, season 24"
    assert lines[1].split()[:4] == ["model", "MASE", "MAE", "RMSE"]
    assert lines[2].startswith("ClockworkForecaster")
    assert f"{result.scores['ClockworkForecaster'].mase:.3f}" in lines[2]
    assert len({len(line) for line in lines[1:]}) == 1
    values = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert values["models"]["seasonal naive"]["parameters"] is None
    assert values["models"]["ClockworkForecaster"]["mase"] == result.scores["ClockworkForecaster"].mase
    assert len(values["models"]["ClockworkForecaster"]["loss_curve"]) == 1
    assert values["origins"][0] == "2024-01-07 10:00:00"


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_torch_layers_have_equal_parameters_and_time(load, kind, monkeypatch):
    fitted = []
    train = TorchForecaster._train

    def remember(self, network, windows, settings, seed, progress):
        fitted.append((type(network.layer), network.count_parameters(), settings.max_seconds))
        return train(self, network, windows, settings, seed, progress)

    monkeypatch.setattr(TorchForecaster, "_train", remember)
    result = run_backtest(make_forecaster(hidden_size=32), load, competitors=[f"nn.{kind}"])
    own, rival = result.forecasts["ClockworkForecaster"], result.forecasts[f"nn.{kind}"]
    layer, parameters, seconds = fitted[0]
    assert layer is getattr(nn, kind)
    assert seconds == max(own.fit_seconds, 1e-3)
    assert abs(parameters - own.parameters) < 0.05 * own.parameters
    assert rival.parameters == parameters
    assert np.isfinite(rival.quantiles).all()


def test_torch_layers_train_by_the_same_rule(load, monkeypatch):
    fitted = []
    train = TorchForecaster._train

    def remember(self, network, windows, settings, seed, progress):
        fitted.append(settings)
        return train(self, network, windows, settings, seed, progress)

    monkeypatch.setattr(TorchForecaster, "_train", remember)
    forecaster = make_forecaster(max_epochs=2)
    result = run_backtest(forecaster, load, competitors=["nn.LSTM by the same rule"])
    assert fitted == [forecaster._check_parameters()]
    assert fitted[0].average
    assert len(result.forecasts["nn.LSTM by the same rule"].loss_curve) == 2


def test_torch_layers_train_until_they_stop(load, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1)
    forecaster = make_forecaster(max_epochs=2)
    result = run_backtest(forecaster, load, competitors=["nn.GRU until it stops"])
    curve = result.forecasts["nn.GRU until it stops"].validation_curve
    # each of the three rates ends with an epoch that was no better
    assert len(curve) >= 6
    assert result.forecasts["nn.GRU until it stops"].fit_seconds > 0


def test_several_series_and_missing_values(load):
    frame = pd.DataFrame({"load": load, "double": 2 * load + make_load_series(days=8, seed=4)})
    frame.iloc[160:165, 0] = np.nan
    frame.iloc[154:166, 1] = np.nan
    result = make_forecaster(missing="hold").backtest(frame, stride=6)
    score = result.scores["seasonal naive"]
    assert np.isfinite([score.mase, score.mae, score.rmse, score.coverage]).all()
    assert np.isnan(result.data.actual).sum() == 17
    y = frame.to_numpy()
    filled = frame.ffill().to_numpy()
    errors = [y[o : o + 6] - filled[o - 24 : o - 18] for o in result.data.origins]
    assert math.isclose(score.mae, np.nanmean(np.abs(errors)))


def test_statsforecast_and_lightgbm_forecast(load):
    pytest.importorskip("statsforecast")
    pytest.importorskip("lightgbm")
    result = run_backtest(make_forecaster(), load, competitors=["MSTL", "AutoETS", "LightGBM"])
    naive = np.abs(load.diff(24)).mean()
    for name in ("MSTL", "AutoETS", "LightGBM"):
        quantiles = result.forecasts[name].quantiles
        assert np.isfinite(quantiles).all()
        assert result.scores[name].mae < 4 * naive
    for name in ("MSTL", "AutoETS"):
        assert (np.diff(result.forecasts[name].quantiles, axis=-1) >= 0).all()


def test_progress_and_wrong_arguments(load):
    calls = []
    run_backtest(make_forecaster(), load, progress=lambda *arguments: calls.append(arguments))
    assert calls == [("ClockworkForecaster", 0, 2), ("seasonal naive", 1, 2)]
    for options, error, message in [
        ({"competitors": "prophet"}, ValueError, "competitors must be 'all' or among seasonal naive"),
        ({"test_size": 0}, ValueError, "test_size must be a share below 1, or a number of steps below 192, got 0"),
        ({"test_size": 500}, ValueError, "got 500"),
        ({"test_size": 5}, SeriesError, "leaves 5 to forecast; a horizon of 6 needs at least 6"),
        ({"stride": 0}, ValueError, "stride must be an integer of at least 1, got 0"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            run_backtest(make_forecaster(), load, **options)


def test_a_competitor_that_is_not_installed_is_named(load, monkeypatch):
    monkeypatch.setitem(module.PACKAGES, "LightGBM", "no_such_package")
    assert "LightGBM" not in list_competitors()
    with pytest.raises(
        ImportError, match=re.escape("the competitor LightGBM needs no_such_package: pip install 'cwrnn[")
    ):
        run_backtest(make_forecaster(), load, competitors=["LightGBM"])


def test_the_forecaster_itself_stays_as_it_is(load):
    forecaster = make_forecaster()
    forecaster.backtest(load)
    assert not hasattr(forecaster, "network_")
