"""A saved estimator comes back to the bit; every other file is refused with the reason, and executes nothing."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from support.made_sequences import make_blobs, make_classes

from cwrnn import Schedule
from cwrnn.estimators import ClockworkClassifier, ClockworkRegressor
from cwrnn.saved import SavedNetwork
from cwrnn.tensor_files import ModelError, compute_digest

TINY = {"hidden_size": 8, "max_epochs": 2, "random_state": 0}


@pytest.fixture
def path(tmp_path):
    """The file of a classifier of ragged sequences with two channels."""
    X, y = make_classes(12, seed=0, shortest=5, longest=9)
    ClockworkClassifier(**TINY, schedule=[1, 3], early_stopping=True).fit(X, y).save(tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def read(path):
    with safetensors.safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["cwrnn"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write(path, metadata, arrays):
    metadata = {name: value for name, value in metadata.items() if name != "sha256"}
    text = json.dumps(metadata | {"sha256": compute_digest(metadata, arrays)})
    path.write_bytes(safetensors.numpy.save(arrays, {"cwrnn": text}))


def refused(path, message=None, kind=ClockworkClassifier):
    with pytest.raises(ModelError, match=message) as caught:
        kind.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [
    {}, {"cell": "gru"}, {"cell": "lstm", "num_layers": 2, "bidirectional": True, "dropout": 0.5},
    {"schedule": Schedule((1, 5), (6, 2)), "scale": False, "early_stopping": True, "batch_size": 5, "device": "cpu"},
    {"class_weight": {0: 1.0, 1: 2.5, 2: 1}}, {"schedule": (1, 2), "max_epochs": np.int64(2)},
], ids=str)  # fmt: skip
def test_a_classifier_comes_back_to_the_bit(tmp_path, options):
    X, y = make_blobs(30)
    before = ClockworkClassifier(**TINY | options).fit(X, y)
    before.save(tmp_path / "model")
    after = ClockworkClassifier.load(str(tmp_path / "model"))
    np.testing.assert_array_equal(after.predict_proba(X), before.predict_proba(X))
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    for name in ("n_features_in_", "n_channels_", "n_steps_", "schedule_", "n_iter_", "best_epoch_", "stopped_",
                 "loss_curve_", "validation_curve_"):  # fmt: skip
        assert getattr(after, name) == getattr(before, name)
    assert repr(after.network_) == repr(before.network_)
    assert not after.network_.training
    after.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    # the parameters are there, so that it can be fitted again
    np.testing.assert_array_equal(after.fit(X, y).predict_proba(X), before.predict_proba(X))


@pytest.mark.parametrize("columns", [None, 1, 3])
def test_a_regressor_comes_back_to_the_bit(tmp_path, columns):
    X, y = make_blobs(30)
    y = y * 1.5 if columns is None else np.stack([y * 1.5] * columns, axis=1)
    before = ClockworkRegressor(**TINY).fit(X, y)
    before.save(tmp_path / "model")
    after = ClockworkRegressor.load(tmp_path / "model")
    np.testing.assert_array_equal(after.predict(X), before.predict(X))
    assert after.n_outputs_ == before.n_outputs_
    assert after.predict(X).shape == y.shape


@pytest.mark.parametrize("labels", [
    ["né", "oui", "да"], [1, 5, 2**60], np.array([1, 2, 3], np.uint8), np.array(["a", "b", "c"], dtype=object),
    [False, True], np.array([1.0, 2.0, 4.0]),
], ids=str)  # fmt: skip
def test_labels_come_back_with_their_type(tmp_path, labels):
    X, numbers = make_blobs(30)
    y = np.asarray(labels)[numbers % len(labels)]
    before = ClockworkClassifier(**TINY).fit(X, y)
    before.save(tmp_path / "model")
    after = ClockworkClassifier.load(tmp_path / "model")
    assert after.classes_.dtype == before.classes_.dtype
    assert after.classes_.tolist() == before.classes_.tolist()
    assert after.predict(X).tolist() == before.predict(X).tolist()


def test_names_of_columns_come_back(tmp_path):
    X, y = make_blobs(30)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    ClockworkClassifier(**TINY).fit(frame, y).save(tmp_path / "model")
    after = ClockworkClassifier.load(tmp_path / "model")
    assert after.feature_names_in_.tolist() == list("abcdef")
    with pytest.raises(ValueError, match="feature names"):
        after.predict(frame[list("bacdef")])


def test_what_is_no_json_is_not_saved(tmp_path):
    X, y = make_blobs(30)
    classifier = ClockworkClassifier(**TINY).fit(X, y)
    with pytest.raises(ValueError, match="verbose=<built-in function print> cannot be saved"):
        classifier.set_params(verbose=print).save(tmp_path / "model")
    classifier.set_params(verbose=False).classes_ = np.array([b"a", b"b", b"c"])
    with pytest.raises(ValueError, match="classes_ must be numbers or texts to be saved"):
        classifier.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
    # a source of random numbers is not saved
    ClockworkClassifier(**TINY | {"random_state": np.random.RandomState(0)}).fit(X, y).save(tmp_path / "model")
    assert ClockworkClassifier.load(tmp_path / "model").random_state is None


def test_other_files_are_refused(path, tmp_path):
    refused(tmp_path / "nowhere", "cannot be read: No such file")
    refused(path, "expected a ClockworkRegressor, but this is a ClockworkClassifier", ClockworkRegressor)
    with pytest.raises(ModelError, match=r"this is a ClockworkClassifier, which its class in cwrnn\.estimators loads"):
        SavedNetwork.load(path)
    path.write_bytes(pickle.dumps(print))
    refused(path, "this is not a safetensors file")
    safetensors.numpy.save_file({"weight": np.ones(3)}, path)
    refused(path, "a safetensors file, but not one that cwrnn saved")


def test_a_network_that_is_no_estimator_is_refused(tmp_path):
    from cwrnn import ClockworkRNN
    from cwrnn.network import Network

    SavedNetwork("generation", "cw", Network(ClockworkRNN(0, 6, schedule=[1, 2]), 1)).save(tmp_path / "model")
    refused(tmp_path / "model", "expected a ClockworkClassifier, but this is a network that is no estimator")


def test_a_damaged_file_is_refused(path):
    data = path.read_bytes()
    random = np.random.default_rng(0)
    for place in random.integers(len(data), size=200):
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        if changed != data and not data[place : place + 1].isspace():
            refused(path)
    for end in random.integers(len(data), size=50):
        path.write_bytes(data[:end])
        refused(path)


@pytest.mark.parametrize(("place", "value", "message"), [
    (["parameters"], {}, "parameters must be those of this estimator"),
    (["parameters", "hidden_size"], -1, "its parameters cannot be used: hidden_size must be an integer"),
    (["parameters", "cell"], ["rnn"], "its parameters cannot be used"),
    (["parameters", "class_weight"], {"pairs": [[1]]}, "class_weight must be a list of pairs"),
    (["parameters", "class_weight"], {"import": "os"}, "class_weight must have the fields pairs"),
    (["layer", "cell"], "transformer", "cell must be one of rnn, lstm, gru, got 'transformer'"),
    (["layer", "cell"], "gru", r"the tensor 'layer.weight_ih_l0' must be float32 \(24, 2\), got float32 \(8, 2\)"),
    (["layer", "input_size"], 3, r"the tensor 'layer.weight_ih_l0' must be float32 \(8, 3\)"),
    (["layer", "num_layers"], 2, "the tensor 'layer.weight_ih_l1' is missing"),
    (["layer", "num_layers"], 10**12, "its layer makes no sense"),
    (["layer", "bidirectional"], True, "the tensor 'layer.weight_ih_l0_reverse' is missing"),
    (["layer", "bidirectional"], 1, "layer.bidirectional must be of type bool, got 1"),
    (["layer", "schedule"], "1:1000000000000", r"must be float32 \(1000000000000, 2\)"),
    (["layer", "schedule"], "1:2,3:6", "its weights do not fit the schedule 1:2,3:6"),
    (["layer", "schedule"], "often", "a schedule is written"),
    (["outputs"], 10**9, r"the tensor 'readout.weight' must be float32 \(1000000000, 8\)"),
    (["outputs"], True, "outputs must be of type int, got True"),
    (["input", "n_channels_"], 1, "its input makes no sense|its layer has 2 inputs, but n_channels_ is 1"),
    (["input", "feature_names_in_"], ["a"], "must be one text for each feature"),
    (["input", "extra"], 1, "input must have the fields .* it differs in"),
    (["training", "loss_curve_"], ["much"], "training must have losses that are numbers"),
    (["training", "n_iter_"], None, "training.n_iter_ must be of type int, got None"),
    (["target", "labels"], ["a", "b", "c"], "must be 4 sorted labels"),
    (["target", "labels"], ["b", "a", "c", "d"], "must be 4 sorted labels"),
    (["target", "labels"], ["a", "a", "c", "d"], "must be 4 sorted labels"),
    (["target", "labels"], [1, 2, 3, 4], "target.labels must be numbers or texts"),
    (["target", "dtype"], "S", "target.labels must be numbers or texts"),
    (["target", "dtype"], "int64", "target.labels must be numbers or texts"),
    (["target"], None, "target must be of type dict, got None"),
    (["unknown"], 1, "its metadata must have the fields"),
])  # fmt: skip
def test_a_file_that_makes_no_sense_is_refused(path, place, value, message):
    metadata, arrays = read(path)
    inner = metadata
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    write(path, metadata, arrays)
    refused(path, message)


def test_labels_that_do_not_fit_their_type_are_refused(path):
    metadata, arrays = read(path)
    metadata["target"] = {"dtype": "uint8", "labels": [1, 2, 3, 300]}
    write(path, metadata, arrays)
    refused(path, "target.labels must be uint8")


@pytest.mark.parametrize(("name", "value", "message"), [
    ("readout.bias", None, "the tensor 'readout.bias' is missing"),
    ("readout.bias", np.full(4, np.nan, np.float32), "'readout.bias' has values that are not finite"),
    ("scaling.mean", np.zeros(3), r"'scaling.mean' must be float64 \(2,\), got float64 \(3,\)"),
    ("scaling.mean", np.zeros(2, np.float32), r"'scaling.mean' must be float64 \(2,\), got float32 \(2,\)"),
    ("scaling.deviation", np.array([1.0, 0.0]), "'scaling.deviation' has values that are not above 0"),
    ("layer.weight_hh_l0", np.ones((8, 8), np.float32), "its weights do not fit the schedule"),
    ("surprise", np.zeros(1), r"it has unknown tensors: \['surprise'\]"),
])  # fmt: skip
def test_wrong_tensors_are_refused(path, name, value, message):
    metadata, arrays = read(path)
    arrays.pop(name, None)
    if value is not None:
        arrays[name] = value
    write(path, metadata, arrays)
    refused(path, message)


@pytest.mark.parametrize(("description", "message"), [
    ({"dimensions": 3}, "target.dimensions makes no sense for 1 outputs: 3"), ({}, "target must have the fields"),
])  # fmt: skip
def test_a_regressor_that_makes_no_sense_is_refused(tmp_path, description, message):
    X, y = make_blobs(12)
    path = tmp_path / "model"
    ClockworkRegressor(**TINY).fit(X, y).save(path)
    metadata, arrays = read(path)
    write(path, metadata | {"target": description}, arrays)
    refused(path, message, ClockworkRegressor)
