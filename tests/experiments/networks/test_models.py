"""Every model beside the Clockwork RNN can be built, counted, replicated and trained in both tasks of the paper."""

import html
import sys

import numpy as np
import pytest
import torch

from cwrnn.commands.app import run
from cwrnn.experiments.errors import ArgumentError
from cwrnn.experiments.generation import training as generation
from cwrnn.experiments.inspect.inspected import InspectionError
from cwrnn.experiments.inspect.loading import load_network
from cwrnn.experiments.networks.build import build_network, hidden_for, load_weights, parameter_count
from cwrnn.experiments.networks.methods import ALL_METHODS, METHODS, MODELS
from cwrnn.experiments.networks.models.table import build_layer, find_layer_class, require_packages
from cwrnn.experiments.networks.replicas import Replicas
from cwrnn.experiments.reproduction import reproduce_generation, reproduce_words
from cwrnn.experiments.sweep.run import Dataset
from cwrnn.experiments.task import find_task
from cwrnn.experiments.words import training as words

SHAPES = [(0, 1), (13, 25)]
"""Inputs and outputs of the paper's tasks."""
T = 12
RATES = {"lem": 1e-2, "cornn": 1e-2}
"""Learning rates with which a few epochs suffice; 3e-3 for the others."""


@pytest.fixture(params=MODELS)
def method(request):
    """The name of a model; skipped if a package that it needs is missing."""
    for package in find_layer_class(MODELS[request.param]).packages:
        pytest.importorskip(package)
    return request.param


def get_weights(network):
    return {name: value.numpy().copy() for name, value in network.state_dict().items()}


def make_wave():
    return Dataset("wave", 8000, np.sin(np.arange(30) / 3), "a sine")


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_parameters_are_counted(method, inputs, outputs):
    for units in (hidden_for(method, 1003, input_size=inputs, output_size=outputs), 7):
        network = build_network(method, units, inputs, outputs)
        count = sum(value.numel() for value in network.state_dict().values())
        assert parameter_count(method, units, inputs, outputs) == count


@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
@pytest.mark.parametrize("size", [1303, 10007])
def test_the_hidden_units_are_the_most_that_fit(method, inputs, outputs, size):
    units = hidden_for(method, size, input_size=inputs, output_size=outputs)
    assert parameter_count(method, units, inputs, outputs) <= size < parameter_count(method, units + 1, inputs, outputs)


def test_the_smallest_network_runs_and_a_smaller_one_is_refused(method):
    least = parameter_count(method, 1)
    assert hidden_for(method, least) == 1
    assert build_network(method, 1)(torch.zeros(5, 2, 0)).isfinite().all()
    name = f"{MODELS[method].article} {MODELS[method].label}"
    with pytest.raises(ValueError, match=f"^size must be at least {least} parameters for {name}, got {least - 1}$"):
        hidden_for(method, least - 1)


def test_the_seed_decides_the_weights(method):
    weights, same, other = (get_weights(build_network(method, 9, 3, 2, seed=seed)) for seed in (5, 5, 6))
    assert weights.keys() == same.keys()
    for name, value in weights.items():
        np.testing.assert_array_equal(value, same[name])
    for part in ("layer.", "readout."):
        assert any((value != other[name]).any() for name, value in weights.items() if name.startswith(part))


def test_building_a_layer_leaves_the_generator_alone(method):
    torch.manual_seed(3)
    build_layer(MODELS[method], 2, 5, seed=1)
    drawn = torch.rand(2)
    torch.manual_seed(3)
    torch.testing.assert_close(torch.rand(2), drawn, rtol=0, atol=0)


@pytest.mark.parametrize("inputs", [0, 3])
def test_replicas_are_the_networks(method, inputs):
    """Outputs and gradients of three networks at once, and of the two that are kept, are those of each alone."""
    networks = [build_network(method, 9, inputs, 2, seed=seed).double() for seed in range(3)]
    input = torch.randn(3, T, inputs, dtype=torch.float64)
    replicas = Replicas(networks)
    for rows in ([0, 1, 2], [0, 2]):
        if len(rows) < 3:
            replicas.keep(torch.tensor(rows))
        outputs = replicas.outputs(input[rows])
        direction = torch.randn_like(outputs)
        gradients = torch.autograd.grad((outputs * direction).sum(), list(replicas.parameters.values()))
        for place, row in enumerate(rows):
            alone = networks[row](input[row][:, None])[:, 0]
            torch.testing.assert_close(outputs[place], alone)
            own = torch.autograd.grad((alone * direction[place]).sum(), list(networks[row].parameters()))
            for gradient, expected in zip(gradients, own, strict=True):
                torch.testing.assert_close(gradient[place], expected)


def test_replicas_decide_at_the_ends_of_sequences(method):
    networks = [build_network(method, 9, 3, 4, softmax=True, seed=seed).double() for seed in range(2)]
    input, lengths = torch.randn(2, T, 2, 3, dtype=torch.float64), torch.tensor([[T, 5], [1, 7]])
    decisions = Replicas(networks).decide(input, lengths)
    for s, network in enumerate(networks):
        for b in range(2):
            alone = network(input[s, :, b : b + 1])[lengths[s, b] - 1, 0]
            torch.testing.assert_close(decisions[s, b], alone)


def test_a_network_learns_a_sequence(method):
    settings = generation.GenerationSettings(RATES.get(method, 3e-3), epochs=8)
    targets = np.stack([np.exp(-np.arange(T) / 4), np.sin(np.arange(T) / 2)])
    results = generation.train_many(method, 9, targets, [0, 1], settings)
    for result, target in zip(results, targets, strict=True):
        assert result.status == "finished"
        assert result.error < result.curve[0, 1]
        assert result.curve[-1, 1] == pytest.approx(result.error, rel=1e-4)
        assert result.curve[-1, 0] == result.epochs
        output = generation.generate(method, 9, result.weights, T, settings)
        np.testing.assert_allclose(output, result.output, rtol=1e-4, atol=1e-5)
        assert generation.nmse(output, target) == pytest.approx(result.error, rel=1e-3)
    [alone] = generation.train_many(method, 9, targets[1:], [1], settings)
    np.testing.assert_allclose(alone.output, results[1].output, rtol=1e-3, atol=1e-4)


def test_a_network_learns_words(method):
    settings = words.WordSettings(RATES.get(method, 3e-3), epochs=3, noise=0.1, inputs=2, outputs=3)
    generator = np.random.default_rng(0)
    means = generator.standard_normal((3, 2))
    sequences = [
        ((means[label] + 0.1 * generator.standard_normal((length, 2))).astype(np.float32), label)
        for length in (5, 4)
        for label in range(3)
    ]
    train, test = sequences[:3], sequences[3:]
    [result, other] = words.train_many(method, 9, train, test, [0, 1], settings)
    assert result.status == other.status == "finished"
    assert result.curve.shape[1] == 4
    assert result.curve[result.best_epoch, 1] < result.curve[0, 1]
    assert result.error == result.curve[result.best_epoch, 3]
    if MODELS[method].is_fixed:
        # three words and nine units: the fit is exact
        assert result.curve[:, 2].tolist()[1:] == [0.0]
        assert result.curve[:, 0].tolist() == [0, 1]
    for features, expected in zip([features for features, _ in test], result.output, strict=True):
        states, decisions = words.follow(method, 9, result.weights, features, settings)
        assert states.shape == (len(features), build_network(method, 9, 2, 3).layer.hidden_size)
        np.testing.assert_allclose(decisions[-1], expected, rtol=1e-3, atol=1e-4)
    network = load_weights(words.build_untrained(method, 9, settings, seed=4), other.weights)
    outputs = network(torch.from_numpy(test[1][0])[:, None])[-1, 0]
    np.testing.assert_allclose(outputs.detach().numpy(), other.output[1], rtol=1e-3, atol=1e-4)


def test_a_fixed_network_keeps_its_hidden_layer():
    pytest.importorskip("reservoirpy")
    settings = generation.GenerationSettings(1.0, epochs=50)
    calls = []
    [_, result] = generation.train_many("esn", 20, np.random.rand(2, 30), [0, 7], settings, progress=calls.append)
    assert calls == [1]
    assert (result.epochs, result.best_epoch) == (1, 1)
    initial = get_weights(build_network("esn", 20, seed=7))
    assert result.weights.keys() == initial.keys()
    for name, value in result.weights.items():
        if name.startswith("layer."):
            np.testing.assert_array_equal(value, initial[name])
        else:
            assert (value != initial[name]).all()


@pytest.mark.parametrize("task", ["generation", "words"])
def test_every_method_has_a_learning_rate_and_a_cost(task):
    rates = find_task(task).learning_rates
    assert list(rates) == list(ALL_METHODS)
    costs = sys.modules[type(find_task(task)).__module__].SECONDS_PER_STEP
    assert list(costs) == list(ALL_METHODS)
    assert all(fixed > 0 for fixed, _ in costs.values())


def test_settings_of_other_networks_do_not_concern_models():
    for model in MODELS.values():
        assert model.foreign_settings >= {"modules", "peepholes", "forget_bias", "deviation"}
        assert ("learning_rate" in model.foreign_settings) == model.is_fixed
    assert "deviation" not in METHODS["cw"].foreign_settings


def test_an_unknown_method_is_refused_before_training(tmp_path, capsys):
    with pytest.raises(ArgumentError, match="methods: expected some of srn, .*, leaky, .*, mingru, got 'rnn'"):
        reproduce_generation(methods=["leaky", "rnn"])
    assert run(["reproduce", "words", "--methods", "leaky,rnn", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "Invalid value for --methods: expected some of srn, " in error
    assert "Traceback" not in error


def test_a_size_below_the_smallest_network_is_refused(tmp_path, capsys):
    arguments = ["--methods", "dilated", "--sizes", "3", "--out", str(tmp_path / "out")]
    assert run(["reproduce", "generation", *arguments]) == 2
    assert "--sizes: size must be at least 59 parameters for a Dilated RNN, got 3" in capsys.readouterr().err


@pytest.mark.parametrize("name", [name for name in MODELS if find_layer_class(MODELS[name]).packages])
def test_a_missing_package_is_refused_before_training(name, tmp_path, capsys, monkeypatch):
    [package] = find_layer_class(MODELS[name]).packages
    monkeypatch.setitem(sys.modules, package, None)
    message = f"the method {name} needs {package}: pip install 'cwrnn[models]'"
    with pytest.raises(ImportError) as refused:
        require_packages(MODELS[name])
    assert str(refused.value) == message
    assert run(["reproduce", "generation", "--methods", f"cw,{name}", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


def test_a_page_shows_models_beside_the_papers_networks(tmp_path, capsys):
    """They stand in tables and figures, but only the paper's network can be inspected."""
    result = reproduce_generation(
        make_wave(), methods=["leaky", "cw"], sizes=[100], runs=1, epochs=2, workers=1, out=tmp_path
    )
    assert [row.method for row in result.rows] == ["cw", "leaky"]
    page = html.unescape(result.page.read_text())
    assert "Of the paper's methods, only CW-RNN was trained" in page
    assert "What two kinds of network make" in page
    assert '<td class="leaky">Leaky RNN</td>' in page
    assert load_network(tmp_path).name == "CW-RNN"
    key = next(record.key for record in result.tasks[0].records if record.run.method == "leaky")
    assert run(["inspect", str(tmp_path), "--run", key[:8]]) == 1
    error = capsys.readouterr().err
    assert f"the run {key[:12]} is a Leaky RNN, which cannot be inspected: expected one of SRN, LSTM, CW-RNN" in error
    assert "Traceback" not in error


def test_a_page_of_models_alone_is_written(tmp_path):
    options = {"sizes": [500], "runs": 1, "epochs": 1, "workers": 1, "out": tmp_path}
    result = reproduce_words(words=["making", "subway"], methods=["leaky"], **options)
    assert "Only Leaky RNN was trained" in result.page.read_text()
    with pytest.raises(InspectionError, match="is a Leaky RNN, which cannot be inspected"):
        load_network(tmp_path)
