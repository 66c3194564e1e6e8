"""ClockworkForecaster: forecasts, streams, covariates, intervals and refusals, on small made series."""

import copy
import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN, Schedule
from cwrnn.estimators.features import Features
from cwrnn.estimators.forecaster import ClockworkForecaster
from cwrnn.estimators.history import History
from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.time_axis import SeriesError

HORIZON = 12
SMALL = {"horizon": HORIZON, "hidden_size": 12, "max_epochs": 2, "batch_size": 4, "random_state": 0, "device": "cpu"}


def make_forecaster(**options):
    return ClockworkForecaster(**{**SMALL, **options})


@pytest.fixture(scope="module")
def load():
    return make_load_series(days=35)


@pytest.fixture(scope="module")
def fitted(load):
    return make_forecaster().fit(load)


@pytest.fixture
def forecaster(fitted):
    return copy.deepcopy(fitted)


def test_forecasts_follow_the_series(fitted, load):
    forecast = fitted.predict()
    assert isinstance(forecast, pd.Series)
    assert forecast.name == "load"
    pd.testing.assert_index_equal(forecast.index, pd.date_range(load.index[-1], periods=13, freq="h", name="time")[1:])
    # a day of this load lies between 60 and 115, and a wrong phase or scale would not
    assert np.abs(forecast.to_numpy() - load.to_numpy()[-168 : -168 + HORIZON]).max() < 15


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_forecasts_have_the_unit_of_the_times(load, unit, tmp_path):
    index = load.index.as_unit(unit)
    known, new = load.set_axis(index)[:-24], load[-24:]
    forecaster = make_forecaster(max_epochs=1).fit(known)
    forecaster.save(tmp_path / "model")
    for same in (forecaster, ClockworkForecaster.load(tmp_path / "model")):
        pd.testing.assert_index_equal(same.predict().index, index[-24 : -24 + HORIZON], check_names=False)
        # the times of new observations may have another unit
        same.update(new)
        assert same.predict().index[0] == index[-1] + pd.Timedelta("1h")
        assert same.predict().index.unit == unit


def test_clocks_and_seasons_come_from_the_data(fitted, load):
    assert fitted.seasons_ == (24, 168)
    assert fitted.clocks_.periods == (1, 2, 4, 24, 168)
    assert "calendar: day" in str(fitted.clocks_)
    assert fitted.schedule_.spec == "1:4,2:3,4:3,24:1,168:1"
    given = make_forecaster(schedule=[1, 12], max_epochs=1).fit(load)
    assert given.schedule_ == Schedule.from_periods(12, [1, 12])
    assert make_forecaster(hidden_size=2, max_epochs=1).fit(load[:200]).schedule_.periods == (1, 24)


def test_forecasts_beat_the_same_hour_last_week():
    y = make_load_series(days=70, seed=3)
    result = make_forecaster(max_epochs=5).backtest(y)
    assert result.scores["ClockworkForecaster"].mase < 0.75 * result.scores["seasonal naive"].mase


def test_a_series_that_repeats_itself_is_continued():
    y = make_load_series(days=42, noise=0)
    forecast = make_forecaster(max_epochs=1).fit(y[:-24]).predict()
    np.testing.assert_allclose(forecast, y[-24:-12], atol=1.0)


def test_one_seed_has_the_same_bits(load, fitted):
    before = torch.get_rng_state()
    again = make_forecaster().fit(load)
    assert torch.equal(torch.get_rng_state(), before)
    pd.testing.assert_series_equal(again.predict(), fitted.predict(), check_exact=True)
    assert again.loss_curve_ == fitted.loss_curve_
    other = make_forecaster(random_state=1).fit(load)
    assert other.loss_curve_ != fitted.loss_curve_


@pytest.mark.parametrize(("cell", "layer"), [("rnn", ClockworkRNN), ("lstm", ClockworkLSTM), ("gru", ClockworkGRU)])
def test_every_cell_streams(load, cell, layer):
    forecaster = make_forecaster(cell=cell, max_epochs=1).fit(load[:-30])
    assert type(forecaster.network_.layer) is layer
    assert_stream_equals_whole(forecaster.update(load[-30:]), load)


def assert_stream_equals_whole(forecaster, y, X=None):
    """The state after updates equals that of one pass over the whole series."""
    features, stream = forecaster.features_, forecaster.stream_
    values = np.asarray(y, dtype=float).reshape(len(y), -1)
    known = np.empty((len(y), 0)) if X is None else np.asarray(X, dtype=float)
    history = History.begin(features.season, values.shape[1], known.shape[1]).extend(values, known)
    inputs = torch.from_numpy(features.compute_inputs(history, 0, len(values)))
    with torch.no_grad():
        _, state = forecaster.network_.layer(inputs, return_state=True)
    assert stream.state.t == state.t == stream.steps == len(values)
    for found, expected in zip(stream.state[:-1], state[:-1], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_updates_equal_reading_the_whole_series(load):
    one_by_one = make_forecaster().fit(load[:-60])
    at_once = copy.deepcopy(one_by_one)
    for t in range(60):
        one_by_one.update(load[len(load) - 60 + t :][:1])
    at_once.update(load[-60:])
    assert_stream_equals_whole(one_by_one, load)
    assert_stream_equals_whole(at_once, load)
    pd.testing.assert_series_equal(one_by_one.predict(), at_once.predict(), rtol=1e-6)
    assert one_by_one.predict().index[0] == load.index[-1] + pd.Timedelta("1h")


def test_the_cost_of_an_observation_does_not_grow(load, monkeypatch):
    forecaster = make_forecaster(seasons=(24,), max_epochs=1).fit(load)
    steps, rows = [], []
    layer = forecaster.network_.layer
    step, extend = layer.step, History.extend

    def count_step(*arguments):
        steps.append(1)
        return step(*arguments)

    def count_rows(self, *arguments):
        rows.append(len(self.values))
        return extend(self, *arguments)

    monkeypatch.setattr(layer, "step", count_step)
    # no sequence is read again
    monkeypatch.setattr(layer, "forward", None)
    monkeypatch.setattr(History, "extend", count_rows)
    new = make_load_series(days=38, seed=1)[len(load) :]
    for t in range(len(new)):
        forecaster.update(new[t : t + 1])
        assert len(steps) == t + 1
    assert rows == [240 + HORIZON] * len(new)
    assert len(forecaster.stream_.outputs) == HORIZON
    assert forecaster.stream_.steps == len(load) + len(new)


def test_the_history_is_bounded():
    y = make_load_series(days=3)
    forecaster = make_forecaster(horizon=2, seasons=(4,), max_epochs=1).fit(y)
    assert len(forecaster.stream_.history.values) == 42
    forecaster.update(make_load_series(days=6)[len(y) :])
    assert len(forecaster.stream_.history.values) == 42


def test_arrays_continue_where_they_ended(forecaster, load):
    other = copy.deepcopy(forecaster)
    new = make_load_series(days=36)[len(load) :]
    pd.testing.assert_series_equal(forecaster.update(new).predict(), other.update(new.to_numpy()).predict())


def test_several_series_are_forecast_together():
    y = make_load_series(days=35)
    frame = pd.DataFrame({"load": y, "tenth": -y / 10 + make_load_series(days=35, seed=5) / 20})
    forecaster = make_forecaster().fit(frame[:-20])
    forecast = forecaster.predict()
    assert list(forecast.columns) == ["load", "tenth"]
    assert abs(forecast["load"].mean() - y.mean()) < 25
    assert abs(forecast["tenth"].mean() - frame["tenth"].mean()) < 2.5
    assert forecaster.predict_interval().columns.tolist() == [
        ("load", "lower"), ("load", "upper"), ("tenth", "lower"), ("tenth", "upper")
    ]  # fmt: skip
    assert forecaster.predict_quantiles([0.2]).columns.tolist() == [("load", 0.2), ("tenth", 0.2)]
    assert_stream_equals_whole(forecaster.update(frame[-20:]), frame)


def make_driven_series():
    y = make_load_series(days=50, noise=0.3)
    X = pd.DataFrame({"wind": np.random.default_rng(0).normal(size=len(y))}, y.index)
    return y + 10 * X["wind"], X


def test_covariates_that_are_known_in_advance_help():
    y, X = make_driven_series()
    options = {"competitors": [], "test_size": 240}
    blind = make_forecaster(max_epochs=3).backtest(y, **options).scores["ClockworkForecaster"]
    seeing = make_forecaster(max_epochs=3).backtest(y, X, **options).scores["ClockworkForecaster"]
    assert seeing.mae < 0.4 * blind.mae


def test_covariates_are_checked():
    y, X = make_driven_series()
    y, X = y[-600:], X[-600:]
    forecaster = make_forecaster(max_epochs=1).fit(y[:-40], X)
    with pytest.raises(ValueError, match="X must have the covariates 'wind' of 12 steps, got None"):
        forecaster.predict()
    with pytest.raises(SeriesError, match="X has no row for"):
        forecaster.predict(X[:-40])
    first = forecaster.predict(X[-40:])
    assert not np.allclose(first, forecaster.predict(X + 1))
    # rows that are not needed do not matter
    pd.testing.assert_series_equal(first, forecaster.predict(X))
    with pytest.raises(ValueError, match="X must have the covariates"):
        forecaster.update(y[-40:])
    forecaster.update(y[-40:], X)
    assert_stream_equals_whole(forecaster, y, X)
    with pytest.raises(ValueError, match="X must be None: the forecaster was fitted without covariates"):
        make_forecaster(max_epochs=1).fit(y).predict(X)


def test_intervals_are_nested(fitted):
    narrow, wide = fitted.predict_interval(coverage=0.5), fitted.predict_interval(coverage=0.95)
    middle = fitted.predict()
    default = fitted.predict_interval()
    assert (wide["lower"] <= default["lower"]).all()
    assert (default["lower"] <= narrow["lower"]).all()
    assert (narrow["lower"] <= middle).all()
    assert (middle <= narrow["upper"]).all()
    assert (narrow["upper"] <= default["upper"]).all()
    assert (default["upper"] <= wide["upper"]).all()
    quantiles = fitted.predict_quantiles([0.9, 0.1, 0.5])
    assert quantiles.columns.tolist() == [0.9, 0.1, 0.5]
    np.testing.assert_allclose(quantiles[0.5], middle)
    np.testing.assert_allclose(quantiles[[0.1, 0.9]], default)
    for levels, message in [
        ([], "at least one probability"),
        ([0.0], "above 0 and below 1, got 0.0"),
        (["x"], "float"),
    ]:
        with pytest.raises(ValueError, match=message):
            fitted.predict_quantiles(levels)
    with pytest.raises(ValueError, match="coverage must be a number above 0 and below 1, got 1"):
        fitted.predict_interval(coverage=1)


def test_intervals_cover_new_values():
    y = make_load_series(days=150, seed=2)
    result = make_forecaster(max_epochs=5, coverage=0.7).backtest(y, test_size=0.3, competitors=[])
    score = result.scores["ClockworkForecaster"]
    assert abs(score.coverage - 0.7) < 0.05
    assert abs(make_forecaster(max_epochs=1).fit(y).coverage_ - 0.8) < 0.15


def test_intervals_follow_new_observations(forecaster, load):
    """Each observation scores the forecasts of it that were made 1, 2, ..., H steps before."""
    new = make_load_series(days=36)[len(load) :]
    new.iloc[3] += 40
    forecaster = copy.deepcopy(forecaster)
    with torch.no_grad():  # so that forecasts of one step differ widely, and their order matters
        forecaster.network_.readout.weight.mul_(30)
    expected = copy.deepcopy(forecaster)
    calibration = expected.stream_.calibration
    # the forecasts that were made inside of fit
    history, made = load.to_numpy(), {}
    for t, value in enumerate(new):
        made[t] = expected.predict_quantiles([0.1, 0.5, 0.9]).to_numpy()
        expected.update(new[t : t + 1])
        moved = expected.stream_.calibration.growth[:, 0] - calibration.growth[:, 0]
        for h in range(min(t + 1, HORIZON)):
            low, _, high = made[t - h][h]
            # an interval that was drawn before the factors moved may end a little elsewhere
            if abs(value - low) > 0.1 * (high - low) and abs(value - high) > 0.1 * (high - low):
                missed = not low <= value <= high
                assert math.isclose(moved[h], 0.03 * (missed - 0.2), rel_tol=1e-6), (t, h)
        calibration = expected.stream_.calibration
    assert len(history) + len(new) == expected.stream_.steps
    at_once = forecaster.update(new)
    np.testing.assert_allclose(at_once.stream_.calibration.growth, calibration.growth)


def test_filled_values_move_no_interval(load):
    forecaster = make_forecaster(missing="hold", max_epochs=1).fit(load)
    before = forecaster.stream_.calibration.growth
    np.testing.assert_array_equal(forecaster.update([np.nan]).stream_.calibration.growth, before)
    assert (forecaster.update([1e4]).stream_.calibration.growth > before).all()


def test_values_that_are_missing_are_filled_and_never_a_target(load):
    y = load.copy()
    y.iloc[100:110] = np.nan
    with pytest.raises(SeriesError, match="column 'load' has no value at 2024-01-05 04:00:00"):
        make_forecaster().fit(y)
    seen = []
    for missing in ("hold", "interpolate"):
        forecaster = make_forecaster(missing=missing, max_epochs=1).fit(y.drop(y.index[300:303]))
        assert forecaster.stream_.steps == len(load)
        seen.append(forecaster.predict())
    assert not np.allclose(seen[0], seen[1])
    new = pd.Series([np.nan, 80.0], pd.date_range(load.index[-1], periods=3, freq="h")[1:], name="load")
    assert forecaster.update(new).stream_.history.values[-2:, 0].tolist() == [(load.iloc[-1] + 80) / 2, 80]


def test_filled_values_do_not_teach(load, monkeypatch):
    from cwrnn.estimators import forecaster as module

    importances = []
    windows = module.Windows
    monkeypatch.setattr(
        module, "Windows", lambda *arguments: importances.append(windows(*arguments)) or importances[-1]
    )
    y = load.copy()
    y.iloc[400] = np.nan
    make_forecaster(missing="hold", max_epochs=1).fit(y)
    importance = importances[0].importance[..., 0]
    rows, ahead = np.nonzero(importance[168 : -HORIZON - 1].numpy() == 0)
    assert {int(row) + 168 + int(step) + 1 for row, step in zip(rows, ahead, strict=True)} == {400}
    assert len(rows) == HORIZON


def test_the_held_out_end_does_not_teach(load):
    changed = load.copy()
    held_out = make_forecaster().fit(load)
    changed.iloc[-100:] += 30
    other = make_forecaster().fit(changed)
    assert other.loss_curve_ == held_out.loss_curve_
    assert other.validation_curve_ != held_out.validation_curve_
    torch.testing.assert_close(other.network_.weights, held_out.network_.weights, rtol=0, atol=0)


def test_the_best_weights_are_kept(load):
    forecaster = make_forecaster(max_epochs=6, learning_rate=0.2).fit(load)
    assert len(forecaster.loss_curve_) == len(forecaster.validation_curve_) == forecaster.n_iter_ == 6
    assert forecaster.best_epoch_ == 1 + int(np.argmin(forecaster.validation_curve_))
    assert forecaster.stopped_ == "max_epochs"
    impatient = make_forecaster(max_epochs=40, learning_rate=0.5, patience=1).fit(load)
    assert impatient.stopped_ == "patience"
    assert impatient.n_iter_ < 40


def test_schedules_and_seasons_can_be_given(load):
    schedule = Schedule((1, 5), (3, 4))
    forecaster = make_forecaster(schedule=schedule, hidden_size=7, seasons=[24], max_epochs=1).fit(load)
    assert forecaster.schedule_ == schedule
    assert forecaster.seasons_ == (24,)
    assert make_forecaster(seasons=(24,), max_epochs=1).fit(load).clocks_.periods == (1, 2, 4, 24)
    with pytest.raises(ValueError, match="the schedule has 7 units, but hidden_size=12"):
        make_forecaster(schedule=schedule).fit(load)
    with pytest.raises(ValueError, match=re.escape("seasons must divide the longest one, got (24, 100)")):
        make_forecaster(seasons=(24, 100)).fit(load)
    with pytest.raises(
        SeriesError, match="y has 840 steps, but a season of 500 and a horizon of 12 need at least 1012"
    ):
        make_forecaster(seasons=(500,)).fit(load)
    with pytest.raises(
        TypeError, match=re.escape("seasons must be a sequence of positive integers, such as (24, 168), got 24")
    ):
        make_forecaster(seasons=24).fit(load)
    with pytest.raises(ValueError, match="seasons must be a sequence of positive integers"):
        make_forecaster(seasons=(0,)).fit(load)


@pytest.mark.parametrize(
    ("index", "seasons"),
    [
        (pd.date_range("2010-01-01", periods=120, freq="MS"), (12,)),
        (pd.period_range("2010-01", periods=120, freq="M"), (12,)),
        (pd.date_range("2024-01-01", periods=120, freq="D", tz="Europe/Berlin"), (7,)),
        (pd.RangeIndex(5, 5 + 3 * 120, 3), (12,)),
    ],
)
def test_any_index(index, seasons):
    values = 10 + np.sin(2 * np.pi * np.arange(120) / seasons[0]) + 0.1 * np.random.default_rng(0).normal(size=120)
    forecaster = make_forecaster(max_epochs=1).fit(pd.Series(values[:100], index[:100]))
    assert forecaster.seasons_ == seasons
    pd.testing.assert_index_equal(forecaster.predict().index, index[100:112], check_names=False)
    pd.testing.assert_index_equal(forecaster.update(values[100:101]).predict().index, index[101:113], check_names=False)
    assert forecaster.predict().name is None


def test_arrays_and_short_series():
    rng = np.random.default_rng(0)
    for T in (7, 12, 30):
        forecaster = make_forecaster(horizon=3).fit(rng.normal(size=T).cumsum())
        assert forecaster.seasons_ == (1,)
        assert np.isfinite(forecaster.predict()).all()
        assert np.isfinite(forecaster.predict_interval().to_numpy()).all()
        assert forecaster.predict().index.tolist() == [T, T + 1, T + 2]
    assert make_forecaster(horizon=3).fit(np.arange(44.0) ** 2).validation_curve_
    with pytest.raises(SeriesError, match="y has 6 steps, but a horizon of 3 needs at least 7"):
        make_forecaster(horizon=3).fit(np.arange(6.0))
    alone = make_forecaster(horizon=3).fit(rng.normal(size=8))
    assert alone.validation_curve_ == []
    assert math.isnan(alone.coverage_)


def test_what_cannot_be_learned_is_refused(load):
    with pytest.raises(SeriesError, match="column 'load' is constant, all its values are 3"):
        make_forecaster().fit(load * 0 + 3)
    for options, message in [
        ({"horizon": 0}, "horizon must be an integer of at least 1, got 0"),
        ({"horizon": 2.5}, "horizon must be an integer of at least 1, got 2.5"),
        ({"hidden_size": True}, "hidden_size must be an integer of at least 1, got True"),
        ({"cell": "elman"}, "cell must be one of rnn, lstm, gru, got 'elman'"),
        ({"coverage": 1.0}, "coverage must be a number above 0 and below 1, got 1.0"),
        ({"validation_fraction": 0}, "validation_fraction must be a number above 0 and below 1, got 0"),
        ({"missing": "drop"}, "missing must be one of 'error', 'interpolate', 'hold', got 'drop'"),
        ({"max_epochs": 0}, "max_epochs must be an integer of at least 1, got 0"),
        ({"learning_rate": -1.0}, "learning_rate must be above 0, got -1.0"),
        ({"device": "abacus"}, "device must be 'auto' or the name of a device of torch, got 'abacus'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            make_forecaster(**options).fit(load)
    for method in ("predict", "predict_interval", "predict_quantiles"):
        with pytest.raises(NotFittedError):
            getattr(make_forecaster(), method)()
    with pytest.raises(NotFittedError):
        make_forecaster().update([1.0])


def test_it_is_an_estimator_of_scikit_learn(fitted):
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert not hasattr(copied, "network_")
    assert copied.set_params(horizon=7, cell="gru").horizon == 7
    assert "horizon=7" in repr(copied)
    with pytest.raises(ValueError, match="Invalid parameter 'horizons'"):
        copied.set_params(horizons=3)


def test_it_can_be_pickled(fitted, load):
    again = pickle.loads(pickle.dumps(fitted))
    new = make_load_series(days=36)[len(load) :]
    pd.testing.assert_series_equal(again.update(new).predict(), copy.deepcopy(fitted).update(new).predict())


def test_fitting_again_forgets_everything(load):
    forecaster = make_forecaster(max_epochs=1).fit(load)
    expected = forecaster.predict()
    forecaster.fit(load[:300])
    forecaster.fit(load)
    pd.testing.assert_series_equal(forecaster.predict(), expected)


def test_a_progress_bar_is_drawn_on_demand(load, capsys):
    make_forecaster(max_epochs=1, verbose=True).fit(load[:400])
    assert "ClockworkForecaster" in capsys.readouterr().err
    make_forecaster(max_epochs=1).fit(load[:400])
    assert capsys.readouterr().err == ""


def test_features_are_fitted_to_the_training_part_only(load, monkeypatch):
    from cwrnn.estimators import forecaster as module

    lengths = []
    fit_features = module.fit_features
    monkeypatch.setattr(
        module, "fit_features", lambda values, *rest: lengths.append(len(values)) or fit_features(values, *rest)
    )
    forecaster = make_forecaster(max_epochs=1).fit(load)
    assert isinstance(forecaster.features_, Features)
    assert lengths == [630]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_used_for_training(load):
    forecaster = make_forecaster(device="cuda").fit(load)
    expected = make_forecaster(device="cpu").fit(load)
    np.testing.assert_allclose(forecaster.loss_curve_, expected.loss_curve_, rtol=1e-2)
    assert next(forecaster.network_.parameters()).device.type == "cpu"
    assert_stream_equals_whole(forecaster, load)
