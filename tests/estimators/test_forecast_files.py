"""Forecasters in files: the same bits come back, and hostile or damaged files are refused with their reason."""

import copy
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from cwrnn import Schedule
from cwrnn.estimators.forecaster import ClockworkForecaster
from cwrnn.estimators.made_series import make_load_series
from cwrnn.estimators.saving import write_model
from cwrnn.tensor_files import ModelError, read_tensors

SMALL = {"horizon": 6, "hidden_size": 8, "max_epochs": 1, "batch_size": 2, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def load():
    return make_load_series(days=6)


@pytest.fixture(scope="module")
def saved(load, tmp_path_factory):
    path = tmp_path_factory.mktemp("forecaster") / "model.safetensors"
    forecaster = ClockworkForecaster(**SMALL).fit(load)
    forecaster.save(path)
    return forecaster, path


@pytest.fixture
def change(saved, tmp_path):
    """A function that writes the file again with other fields and arrays, and a checksum that is right."""

    def write(edit):
        metadata, arrays = read_tensors(saved[1])
        arrays = {name: array.copy() for name, array in arrays.items()}
        edit(metadata, arrays)
        kind = metadata.pop("estimator")
        metadata.pop("version")
        path = tmp_path / "changed.safetensors"
        write_model(path, kind, metadata, {name: np.ascontiguousarray(array) for name, array in arrays.items()})
        return path

    return write


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_the_same_bits_come_back(load, tmp_path, cell):
    X = pd.DataFrame({"wind": np.random.default_rng(0).normal(size=len(load) + 30)},
                     pd.date_range(load.index[0], periods=len(load) + 30, freq="h"))  # fmt: skip
    frame = pd.DataFrame({"load": load, "other": load[::-1].to_numpy() ** 2})
    forecaster = ClockworkForecaster(**SMALL, cell=cell).fit(frame[:-10], X)
    path = tmp_path / "model.safetensors"
    forecaster.save(path)
    loaded = ClockworkForecaster.load(path)
    for method in ("predict", "predict_interval", "predict_quantiles"):
        found, expected = (getattr(model, method)(X=X) for model in (loaded, forecaster))
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
    found, expected = (model.update(frame[-10:], X).predict(X) for model in (loaded, forecaster))
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert loaded.get_params() == forecaster.get_params()
    for name in (
        "schedule_", "seasons_", "clocks_", "coverage_", "loss_curve_", "validation_curve_", "best_epoch_", "n_iter_",
        "stopped_", "columns_", "covariates_", "axis_", "fit_seconds_", "n_parameters_",
    ):  # fmt: skip
        assert getattr(loaded, name) == getattr(forecaster, name), name
    loaded.save(tmp_path / "again.safetensors")
    forecaster.save(path)
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_a_stream_goes_on_where_it_stood(saved, load):
    forecaster, path = copy.deepcopy(saved[0]), saved[1]
    loaded = ClockworkForecaster.load(path)
    new = make_load_series(days=8)[len(load) :]
    pd.testing.assert_series_equal(loaded.update(new).predict(), forecaster.update(new).predict(), rtol=1e-6)
    assert loaded.predict().index[0] == new.index[-1] + pd.Timedelta("1h")


def test_parameters_of_every_kind_are_saved(load, tmp_path):
    path = tmp_path / "model.safetensors"
    options = {"schedule": Schedule((1, 4), (4, 4)), "seasons": (4, 24), "horizon": np.int64(6)}
    options = SMALL | options | {"random_state": np.random.RandomState(0)}
    ClockworkForecaster(**options).fit(load.to_numpy()).save(path)
    loaded = ClockworkForecaster.load(path)
    assert (loaded.schedule, loaded.seasons, loaded.random_state) == ("1:4,4:4", [4, 24], None)
    assert loaded.schedule_ == Schedule((1, 4), (4, 4))
    # it can be fitted again
    assert loaded.fit(load.to_numpy()).predict().index[0] == len(load)


def test_a_forecaster_without_held_out_end_is_saved(tmp_path):
    path = tmp_path / "model.safetensors"
    ClockworkForecaster(**SMALL).fit(np.arange(12.0) ** 2).save(path)
    assert math.isnan(ClockworkForecaster.load(path).coverage_)


def test_columns_without_a_text_are_refused(load, tmp_path):
    frame = pd.DataFrame({("a", "b"): load, ("a", "c"): load + 1})
    forecaster = ClockworkForecaster(**SMALL).fit(frame)
    with pytest.raises(
        ValueError, match=re.escape("the columns of y must be texts or integers to be saved, got ('a', 'b')")
    ):
        forecaster.save(tmp_path / "model.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_every_damage_is_found(saved, tmp_path):
    content = saved[1].read_bytes()
    path = tmp_path / "damaged.safetensors"
    rng = np.random.default_rng(0)
    for place in [0, 3, 8, 9, len(content) - 1, *rng.integers(10, len(content), 40).tolist()]:
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(ModelError, match=re.escape(str(path))):
            ClockworkForecaster.load(path)
    for length in [0, 4, 8, 100, len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(ModelError):
            ClockworkForecaster.load(path)
    with pytest.raises(ModelError, match="No such file"):
        ClockworkForecaster.load(tmp_path / "absent.safetensors")
    with pytest.raises(ModelError, match="Is a directory"):
        ClockworkForecaster.load(tmp_path)


def set_field(name, value):
    return lambda fields, arrays: fields.__setitem__(name, value)


def set_parameter(name, value):
    return lambda fields, arrays: fields["parameters"].__setitem__(name, value)


def set_array(name, function):
    return lambda fields, arrays: arrays.__setitem__(name, function(arrays[name]))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (set_field("estimator", "ClockworkGuess"), "expected a ClockworkForecaster, but this is a ClockworkGuess"),
        (set_field("more", 1), "differs in ['more']"),
        (set_field("horizon", 7), "must be float32 (7, 1, "),
        (set_field("horizon", 2**40), "horizon must be at least 1"),
        (set_field("horizon", True), "horizon must be of type int"),
        (set_field("seasons", []), "seasons must be rising divisors of the last one"),
        (set_field("seasons", [0]), "seasons must be rising divisors of the last one"),
        (set_field("seasons", [5, 24]), "seasons must be rising divisors of the last one"),
        (set_field("seasons", [2**62]), "must be float64"),
        (set_field("columns", []), "its columns make no sense"),
        (set_field("columns", ["a", "b"]), "its columns make no sense"),
        (set_field("columns", [["a"]]), "columns must be different texts or integers"),
        (set_field("covariates", ["wind"]), "must be float64 (1,)"),
        (set_field("start", -1), "its history makes no sense"),
        (set_field("start", 2**60), "its times make no sense"),
        (set_field("axis", {}), "its times make no sense: a time axis has kind, frequency, first, zone and name"),
        (set_field("clocks", [{"period": "1"}]), "clocks must have the fields"),
        (set_field("coverage", "high"), "coverage must be of type"),
        (lambda fields, arrays: fields["layer"].__setitem__("schedule", "1:9"), "must be float32 (36, "),
        (lambda fields, arrays: fields["layer"].__setitem__("cell", "os.system"), "cell must be one of rnn, lstm, gru"),
        (lambda fields, arrays: fields["layer"].__setitem__("num_layers", 2), "weight_ih_l1"),
        (set_parameter("horizon", "24"), "horizon must be an integer of at least 1, got '24'"),
        (set_parameter("evil", 1), "its parameters differ from those of a ClockworkForecaster in ['evil']"),
        (set_parameter("schedule", "1:1"), "the schedule has 1 units, but hidden_size=8"),
        (set_parameter("schedule", {}), "schedule must be a Schedule"),
        (set_parameter("coverage", 0), "coverage must be a number above 0 and below 1, got 0"),
        (set_array("network.readout.weight", lambda array: array * np.float32("nan")), "values that are not finite"),
        (set_array("network.weights", lambda array: array[1:]), "must be float32"),
        (set_array("features.scales", lambda array: array * 0), "must be between 1e-100 and 1e+100"),
        (set_array("features.mean", lambda array: array.astype("<f4")), "must be float64"),
        (set_array("history.values", lambda array: array[:3]), "history"),
        (set_array("history.values", lambda array: array * 1e300), "must be between -1e+100 and 1e+100"),
        (set_array("history.profiles", lambda array: array[..., 1:]), "must be float64"),
        (set_array("state.h", lambda array: array[:, 1:]), "must be float32 (1, 8)"),
        (set_array("calibration.factors", lambda array: array[1:]), "must be float64"),
        (set_array("calibration.factors", lambda array: -array), "the factors of its intervals must increase from 0"),
        (set_array("calibration.growth", lambda array: array + 99), "and stay near their start"),
        (set_array("stream.outputs", lambda array: array[:, 1:]), "must be float32 (6, "),
        (set_array("stream.outputs", lambda array: array[:0]), "must have 1 to 6 rows, got 0"),
        (set_array("stream.outputs", lambda array: np.concatenate([array, array])), "must have 1 to 6 rows, got 12"),
        (lambda fields, arrays: arrays.pop("stream.outputs"), "the tensor 'stream.outputs' is missing"),
        (set_array("loss_curve", lambda array: array[None]), "must be float64"),
        (lambda fields, arrays: arrays.pop("state.h"), "the tensor 'state.h' is missing"),
        (lambda fields, arrays: arrays.pop("loss_curve"), "the tensor 'loss_curve' is missing"),
        (lambda fields, arrays: arrays.pop("history.values"), "its history makes no sense"),
    ],
)  # fmt: skip
def test_files_that_make_no_sense_are_refused(change, edit, message):
    path = change(edit)
    with pytest.raises(ModelError, match=re.escape(message)) as raised:
        ClockworkForecaster.load(path)
    assert str(raised.value).startswith(str(path))


def test_weights_that_are_too_large_are_named(change):
    huge = ClockworkForecaster.load(change(set_array("network.weights", lambda array: array * 0 + np.float32(3e38))))
    with pytest.raises(FloatingPointError, match="the forecasts are not finite numbers"):
        huge.predict()
    # the interval does not follow such forecasts
    assert np.isfinite(huge.update([70.0]).stream_.calibration.growth).all()


def test_a_file_that_is_only_rewritten_is_accepted(change, saved):
    loaded = ClockworkForecaster.load(change(lambda fields, arrays: None))
    pd.testing.assert_series_equal(loaded.predict(), saved[0].predict(), check_exact=True)


def test_the_metadata_is_plain_json(saved):
    fields, _ = read_tensors(saved[1])
    assert json.loads(json.dumps(fields))["columns"] == ["load"]
