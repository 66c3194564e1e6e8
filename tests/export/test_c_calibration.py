"""Networks in int8 are calibrated with the inputs that they will meet, and compared with float32."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from support.made_recognisers import train_on_recordings, write_recordings

from cwrnn import ClockworkLSTM, ClockworkRNN
from cwrnn.commands.main import main
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.words.features import FeatureSettings
from cwrnn.export import ExportError, check_c, to_c
from cwrnn.export.c.calibration import (
    Calibration,
    QuantisationReport,
    judge,
    normalise,
    quantise_model,
    read_calibration,
    run_floats,
)
from cwrnn.export.c.quantisation import quantise
from cwrnn.export.model import read_model
from cwrnn.export.running import compute_outputs
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return Network(ClockworkRNN(3, 12, schedule=[1, 2, 4]), 2, softmax=True)


@pytest.fixture(scope="module")
def saved(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "net.safetensors"
    SavedNetwork("generation", "cw", network).save(path)
    return path


@pytest.fixture(scope="module")
def inputs():
    return (np.random.default_rng(0).standard_normal((60, 4, 3)) * [1, 10, 0.1]).astype(np.float32)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    return write_recordings(tmp_path_factory.mktemp("recordings") / "words")


@pytest.fixture(scope="module")
def recogniser(recordings):
    return train_on_recordings(recordings).recogniser


def test_arrays_and_files_give_the_same_program(network, inputs, tmp_path):
    one = inputs[:, 0]
    np.save(tmp_path / "one.npy", one.astype(np.float64))
    np.savez(tmp_path / "one.npz", first=one[None].transpose(1, 0, 2), second=one[:5])
    (tmp_path / "one.csv").write_text("a,b,c\n" + "\n".join(",".join(map(repr, row.tolist())) for row in one))
    given = [
        one,
        one[:, None],
        [one[:40], one[40:]],
        tmp_path / "one.npy",
        str(tmp_path / "one.npz"),
        tmp_path / "one.csv",
        torch.from_numpy(one),
        [torch.from_numpy(one[:40]).requires_grad_(), one[40:]],
    ]
    programs = set()
    for number, calibration in enumerate(given):
        result = to_c(network, tmp_path / str(number), numbers="int8", calibration=calibration)
        programs.add("".join(path.read_text() for path in result.files))
        assert result.quantisation.error < 0.02
    assert len(programs) == 1


def test_the_floats_are_those_of_the_network(network, inputs):
    model = read_model(network)
    sequences = [inputs[:, 0], inputs[:7, 1], inputs[:59, 2]]
    outputs, ranges = run_floats(model, sequences)
    for sequence, output in zip(sequences, outputs, strict=True):
        np.testing.assert_allclose(output, compute_outputs(model, sequence), atol=1e-5)
    largest = np.concatenate(sequences).__abs__().max(axis=0)
    np.testing.assert_array_equal(np.float32(ranges.inputs), largest)


def test_ranges_ignore_what_follows_the_end_of_a_sequence():
    layer = ClockworkLSTM(1, 4, schedule=[1, 2])
    with torch.no_grad():
        # all gates are open, and cells count the steps whose input is 0, but not those whose input is 1/2
        layer.weight_hh_l0.zero_()
        layer.weight_ih_l0.copy_(torch.tensor([0.0] * 8 + [-10.0] * 4 + [0.0] * 4)[:, None])
        layer.bias_l0.copy_(torch.tensor([20.0] * 8 + [5.0] * 4 + [20.0] * 4))
    model = read_model(layer)
    counting, idling = np.zeros((20, 1), np.float32), np.full((20, 1), 0.5, np.float32)
    assert run_floats(model, [counting])[1].cells == pytest.approx(20, abs=0.1)
    # zeros follow the first sequence until the second ends
    assert run_floats(model, [idling[:1], idling])[1].cells == 0


def test_the_ranges_of_the_calibration_are_doubled(network, inputs):
    model = read_model(network)
    quantised = quantise(model, run_floats(model, [inputs[:, 0]])[1])
    np.testing.assert_allclose(quantised.input_units * 32767, 2 * np.abs(inputs[:, 0]).max(axis=0), rtol=1e-6)


def make_bad(value, row, column):
    """Return an array (6, 3) of zeros with one other value, and a second one after it."""
    values = np.zeros((6, 3))
    values[row, column] = values[-1, -1] = value
    return values


@pytest.mark.parametrize(
    ("calibration", "message"),
    [
        (None, r"int8 needs inputs as the network will meet them, such as an array \(T, 3\)"),
        (np.zeros((5, 4)), r"expected the shape \(T, 3\) or \(T, B, 3\), got \(5, 4\)"),
        (np.zeros(3), r"expected the shape \(T, 3\) or \(T, B, 3\), got \(3,\)"),
        (np.zeros((0, 3)), r"got \(0, 3\)"),
        (np.zeros((2, 2, 2, 3)), r"got \(2, 2, 2, 3\)"),
        (np.array([["a", "b", "c"]]), "expected numbers, got the dtype <U1"),
        (
            make_bad(np.nan, 4, 1),
            r"an array: expected finite numbers .*, got nan in row 4, column 1 \(counted from 0\)",
        ),
        (make_bad(1e39, 0, 2), r"expected finite numbers within the range of float32, got 1e\+39 in row 0, column 2"),
        (make_bad(-np.inf, 4, 1)[:, None], "got -inf in row 4, sequence 0, column 1"),
        ([np.zeros((2, 3)), make_bad(np.inf, 5, 0)], "2 arrays, array 1: .* got inf in row 5, column 0"),
        ("bad.npy", r"bad\.npy: expected finite numbers .*, got nan in row 3, column 2"),
        (5, "expected an array, several arrays or the path of a file, got 5"),
        ([[[1.0, 2.0, 3.0], [1.0]]], "expected arrays of numbers: .*inhomogeneous"),
        ([], "expected at least one array, got none"),
        ("words", "expected a file that ends in .csv, .npy, .npz, .tsv, got 'words'"),
        ("missing.npy", "missing.npy: cannot be read: No such file"),
        ("missing.csv", "missing.csv: there is no such file"),
    ],
)
def test_calibrations_that_do_not_fit_are_refused(network, tmp_path, monkeypatch, calibration, message):
    monkeypatch.chdir(tmp_path)
    np.save("bad.npy", make_bad(np.nan, 3, 2))
    with pytest.raises(ArgumentError, match=message) as caught:
        to_c(network, tmp_path / "out", numbers="int8", calibration=calibration)
    assert caught.value.argument == "calibration"
    assert not (tmp_path / "out").exists()


def test_damaged_files_are_refused(network, tmp_path):
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    (tmp_path / "bad.csv").write_text("a,b,c\n1,2,x\n")
    with pytest.raises(ArgumentError, match=r"bad\.npy: the array has no header of numpy"):
        read_calibration(read_model(network), tmp_path / "bad.npy")
    with pytest.raises(ArgumentError, match=r"bad\.csv, line 2, column 'c': expected a number, got 'x'"):
        read_calibration(read_model(network), tmp_path / "bad.csv")


def test_only_int8_is_calibrated(network, inputs, tmp_path):
    for call in (
        lambda: to_c(network, tmp_path / "out", calibration=inputs),
        lambda: check_c(network, calibration=inputs),
    ):
        with pytest.raises(ArgumentError, match="calibration: only int8 is calibrated, got the numbers float32"):
            call()


def test_decisions_are_counted(network, inputs):
    model = read_model(network)
    quantised, report = quantise_model(model, inputs)
    # of a network that reads numbers, those of every step
    assert report.decisions == 240 >= report.equal_decisions > 230
    assert (report.accuracy, report.float_accuracy) == (None, None)
    # of a recogniser, those of the last step; here one label is wrong
    described = dataclasses.replace(model, features=object())
    decided = [int(output[-1].argmax()) for output in run_floats(model, list(inputs.transpose(1, 0, 2)))[0]]
    labels = (decided[0], decided[1], decided[2], 1 - decided[3])
    judged = tuple(inputs.transpose(1, 0, 2))
    quantised = dataclasses.replace(quantised, model=described)
    report = judge(quantised, Calibration("x", judged, judged, labels))
    assert (report.decisions, report.equal_decisions, report.accuracy, report.float_accuracy) == (4, 4, 0.75, 0.75)
    assert "75.0% of the decisions are right, in float32 75.0%" in str(report)
    # a network in integers that decides the opposite
    readout = dataclasses.replace(quantised.readout, factors=-quantised.readout.factors)
    report = judge(dataclasses.replace(quantised, readout=readout), Calibration("x", judged, judged, labels))
    assert (report.decisions, report.equal_decisions, report.accuracy, report.float_accuracy) == (4, 0, 0.25, 0.75)


def test_a_network_without_decisions_has_errors_alone(inputs):
    _, report = quantise_model(read_model(ClockworkRNN(3, 6, schedule=2)), inputs)
    assert report.decisions == 0
    assert "decisions" not in str(report)
    assert 0 < report.error < 0.02
    assert 0 < report.largest_difference < 0.05


def make_exploding(factor):
    """Return a ReLU network whose states grow by a factor at every step."""
    network = Network(ClockworkRNN(3, 1, 2, schedule=[1], nonlinearity="relu"), 2)
    with torch.no_grad():
        network.layer.weight_hh_l0.fill_(factor)
        network.layer.weight_ih_l0.fill_(1.0)
        network.layer.weight_ih_l1.fill_(1.0)
    return network


def test_exploding_networks_are_refused(tmp_path):
    inputs = np.ones((60, 3))
    with pytest.raises(ExportError, match="those of sequence 0 of the calibration are not, from step 4. on"):
        to_c(make_exploding(8.0), tmp_path / "out", numbers="int8", calibration=inputs)
    assert not (tmp_path / "out").exists()
    # a second layer whose units are 0 whatever the first one does
    network = make_exploding(8.0)
    with torch.no_grad():
        network.layer.weight_ih_l1.fill_(-1.0)
        network.layer.bias_l1.fill_(-1.0)
    with pytest.raises(ExportError, match="states are finite"):
        to_c(network, tmp_path / "out", numbers="int8", calibration=inputs)
    # float32 is compared as long as Python is finite
    assert check_c(make_exploding(8.0), steps=100).steps < 60


def test_inputs_too_small_for_float32_are_refused(network, tmp_path):
    with pytest.raises(ExportError, match="inputs that are out of the range of float32"):
        to_c(network, tmp_path / "out", numbers="int8", calibration=np.full((5, 3), 1e-44))


def test_a_useless_network_is_reported():
    report = QuantisationReport("x", sequences=1, error=1.0, largest_difference=1.0, decisions=0, equal_decisions=0)
    assert "int8 is no use for this network" in str(report)
    assert "no use" not in str(dataclasses.replace(report, error=0.99))


def test_rivals_fit_int8_whatever_the_inputs_of_the_network(tmp_path):
    network = Network(ClockworkRNN(2, 8, schedule=[1, 2]), 1)
    with torch.no_grad():
        network.layer.weight_ih_l0.mul_(1e-4)
    result = check_c(network, numbers="int8", calibration=np.full((20, 2), 1e4), steps=20)
    assert len(result.costs) == 5


def test_a_network_without_inputs_needs_no_calibration(tmp_path):
    result = to_c(ClockworkRNN(0, 6, schedule=2), tmp_path / "out", numbers="int8")
    assert result.quantisation.error < 0.05


def test_a_recogniser_is_calibrated_with_words(recogniser, recordings, tmp_path):
    own = to_c(recogniser, tmp_path / "own", numbers="int8", calibration=f"folder:{recordings}")
    assert own.quantisation.decisions == own.quantisation.sequences == 6
    assert own.quantisation.accuracy is not None
    # without a calibration: the words of the package, which this recogniser does not know
    bundled = to_c(recogniser, tmp_path / "bundled", numbers="int8")
    assert bundled.quantisation.decisions == 50
    assert bundled.quantisation.accuracy is None
    assert bundled.feature_state_bytes == 2852
    assert "features: 6,574 bytes of flash" in str(bundled)
    json.dumps(bundled.to_dict())
    with pytest.raises(ArgumentError, match="calibration: .*nowhere"):
        to_c(recogniser, tmp_path / "none", numbers="int8", calibration="folder:nowhere")


def test_a_recogniser_is_calibrated_with_sounds(recogniser):
    model = read_model(recogniser)
    sound = np.sin(np.arange(16_000) / 5)
    read = read_calibration(model, [sound, sound[:4000]])
    assert [len(sequence) for sequence in read.sequences] == [98, 23]
    np.testing.assert_array_equal(read.sequences[1], read.sequences[0][:23])
    np.testing.assert_array_equal(read_calibration(model, torch.from_numpy(sound)).sequences[0], read.sequences[0])
    sound[7] = np.nan
    with pytest.raises(ArgumentError, match="an array: .* got nan in sample 7"):
        read_calibration(model, sound)
    sound[7] = 0
    with pytest.raises(ArgumentError, match=r"or \(T, B, 13\) or sounds \(n,\), got \(300,\)"):
        read_calibration(model, sound[:300])


def test_words_with_other_features_are_refused(recogniser):
    features = dataclasses.replace(read_model(recogniser).features, settings=FeatureSettings(rate=8000, high=4000))
    model = dataclasses.replace(read_model(recogniser), features=features)
    with pytest.raises(ArgumentError, match="the words of bundle have other features than the recogniser: .*8000 Hz"):
        read_calibration(model, None)


def test_frames_are_normalised_as_in_training(recogniser):
    frames = np.random.default_rng(0).standard_normal((4, 13)).astype(np.float32)
    np.testing.assert_array_equal(normalise(read_model(recogniser).features, frames), recogniser.normalise(frames))


def test_the_command_calibrates_reports_and_checks(saved, inputs, tmp_path, capsys):
    np.save(tmp_path / "inputs.npy", inputs)
    arguments = ["export", str(saved), "--to", "c", "--numbers", "int8", "--calibrate", str(tmp_path / "inputs.npy")]
    assert main([*arguments, "--out", str(tmp_path / "a"), "--check", "--quiet"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"int8, calibrated and judged with {tmp_path / 'inputs.npy'}" in printed
    assert "of 240 decisions are those of float32" in printed
    assert "the program computes the same integers as Python over 10,000 steps" in printed
    assert main([*arguments, "--out", str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["quantisation"]["decisions"] == 240


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--numbers", "int8"], "--calibrate: int8 needs inputs as the network will meet them"),
        (["--calibrate", "x.npy"], "--calibrate: only int8 is calibrated"),
        (["--numbers", "int8", "--calibrate", "x.npy"], "--calibrate: x.npy: cannot be read"),
        (["--numbers", "int8", "--calibrate", "x.csv"], "--calibrate: x.csv: there is no such file"),
    ],
)
def test_the_command_refuses_wrong_calibrations(saved, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(saved), "--to", "c", "--out", "new", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()
