"""Training a network to generate a sequence, alone and among others, with the same result."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from cwrnn.experiments.generation import training
from cwrnn.experiments.generation.training import HOPELESS, GenerationSettings, generate, nmse, states, train_many
from cwrnn.experiments.networks import descent
from cwrnn.experiments.networks.build import build_network
from cwrnn.experiments.networks.methods import METHODS
from cwrnn.experiments.networks.replicas import Replicas
from cwrnn.kernels.cpu import loader, readout

KERNEL = pytest.mark.skipif(loader.current_isa() is None, reason="the kernel was not built")
HIDDEN = {"srn": 6, "lstm": 4, "cw": 12, "gru": 5, "cw-lstm": 8, "cw-gru": 8}
RATES = {"srn": 1e-2, "lstm": 3e-3, "cw": 1e-2, "gru": 1e-2, "cw-lstm": 3e-3, "cw-gru": 1e-2}


def decay(steps=20):
    return np.exp(-np.arange(steps) / 4)


def targets_of(S, steps):
    return np.random.default_rng(1).uniform(-1, 1, size=(S, steps))


def train(method, target=None, *, seed=0, progress=None, hidden=None, **settings):
    """Trains one run; a network with clocks has four modules."""
    settings = GenerationSettings(**{"learning_rate": RATES[method], "epochs": 60, "modules": 4} | settings)
    target = decay() if target is None else target
    (result,) = train_many(method, hidden or HIDDEN[method], target[None], [seed], settings, progress=progress)
    return result


def assert_same(result, other):
    """Asserts that two results agree bit for bit, except in their time."""
    for field in dataclasses.fields(result):
        value, right = getattr(result, field.name), getattr(other, field.name)
        if field.name == "weights":
            assert value.keys() == right.keys()
            for name in value:
                np.testing.assert_array_equal(value[name], right[name])
        elif field.name != "seconds":
            np.testing.assert_array_equal(value, right)


def test_nmse_by_hand():
    target = np.array([0.0, 2.0, 4.0])
    # (1 + 0 + 9) / (4 + 0 + 4)
    assert nmse(np.array([1.0, 2.0, 1.0]), target) == 1.25
    assert nmse(np.full(3, 2.0, dtype=np.float32), target) == 1.0
    assert nmse(target, target) == 0.0
    with pytest.raises(ValueError, match="constant"):
        nmse(target, np.ones(3))
    with pytest.raises(ValueError, match="one shape"):
        nmse(np.ones(2), target)


@pytest.mark.parametrize("method", METHODS)
def test_training_learns_and_repeats(method):
    result, again, other = (train(method, seed=seed) for seed in (0, 0, 1))
    # beyond the mean of the target, which is all that a network without memory can learn
    assert result.error < 0.4
    assert result.error < 0.4 * result.curve[0, 1]
    assert (result.status, result.epochs, len(result.curve)) == ("finished", 60, 61)
    assert result.seconds > 0
    assert_same(result, again)
    assert not np.array_equal(result.output, other.output)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("peepholes", [True, False])
def test_training_agrees_with_torchs_optimiser(method, peepholes):
    """The whole training agrees with autograd and torch.optim.SGD, up to rounding."""
    target = targets_of(1, 30)[0]
    network = build_network(
        method, HIDDEN[method], modules=4, peepholes=peepholes, forget_bias=2.0, deviation=0.2, seed=5
    )
    optimiser = torch.optim.SGD(network.parameters(), lr=1e-2, momentum=0.9, nesterov=True)
    wanted = torch.from_numpy(target).float()[:, None, None]
    curve = []
    for _ in range(8):
        output = network(torch.zeros(30, 1, 0))
        loss = 0.5 * (output - wanted).square().sum()
        curve.append(nmse(output.detach().numpy().ravel(), target))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    settings = {"epochs": 8, "learning_rate": 1e-2, "momentum": 0.9}
    result = train(method, target, seed=5, peepholes=peepholes, forget_bias=2.0, deviation=0.2, **settings)
    np.testing.assert_allclose(result.curve[:-1, 1], curve, rtol=1e-4)
    assert abs(curve[-1] / curve[0] - 1) > 0.01
    trained = {name: parameter.detach() for name, parameter in network.named_parameters()}
    assert result.weights.keys() == trained.keys()
    for name, value in result.weights.items():
        np.testing.assert_allclose(value, trained[name].numpy(), rtol=1e-3, atol=1e-5)


def test_updates_are_those_of_torchs_optimiser():
    values, twin = torch.randn(3, 40, dtype=torch.float64), nn.Parameter(torch.empty(3, 40, dtype=torch.float64))
    twin.data.copy_(values)
    optimiser = torch.optim.SGD([twin], lr=0.1, momentum=0.9, nesterov=True)
    velocity = torch.zeros_like(values)
    for _ in range(5):
        twin.grad = torch.randn_like(twin)
        descent.descend(values, twin.grad.clone(), velocity, 0.1, 0.9)
        optimiser.step()
        torch.testing.assert_close(values, twin.detach(), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_weights_states_and_output_belong_together(method):
    target = decay()
    result = train(method, target, epochs=5)
    settings = GenerationSettings(RATES[method], modules=4)
    network = build_network(method, HIDDEN[method], modules=4)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in result.weights.items()})
    with torch.no_grad():
        expected = network(torch.zeros(30, 1, 0))[:, 0, 0].numpy()
        hidden = network.layer(torch.zeros(30, 1, 0))
    hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    output = generate(method, HIDDEN[method], result.weights, 30, settings)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(output[:20], result.output)
    assert result.error == nmse(result.output, target)
    np.testing.assert_allclose(
        states(method, HIDDEN[method], result.weights, 30, settings), hidden[:, 0].numpy(), rtol=1e-5, atol=1e-6
    )
    assert output.dtype == result.output.dtype == result.curve.dtype == np.float32
    assert all(value.dtype == np.float32 for value in result.weights.values())


def test_weights_of_another_network_are_refused():
    weights = train("srn", epochs=1).weights
    with pytest.raises(RuntimeError, match="size mismatch for layer.weight_hh_l0"):
        generate("srn", 7, weights, 10, GenerationSettings(1e-3))
    with pytest.raises(RuntimeError, match="Missing key"):
        generate("srn", 6, {}, 10, GenerationSettings(1e-3))


def test_the_best_is_the_lowest_of_the_curve():
    # momentum overshoots: the loss falls, then rises
    result = train("cw")
    best = int(np.argmin(result.curve[:, 1]))
    assert result.best_epoch == best < result.epochs
    assert result.best_error == pytest.approx(result.curve[best, 1], rel=1e-5)
    assert result.curve[-1].tolist() == [60, pytest.approx(result.error, rel=1e-5)]


def test_a_long_curve_is_thinned(monkeypatch):
    assert training.POINTS == 200
    monkeypatch.setattr(training, "POINTS", 20)
    result = train("srn", epochs=100)
    assert result.curve[:, 0].tolist() == [*range(0, 101, 5)]
    result = train("srn", epochs=43)
    assert result.curve[:, 0].tolist() == [*range(0, 43, 3), 43]
    # the best is not one of the points
    assert train("cw").best_error < train("cw").curve[:, 1].min()


def test_settings_are_plain_data():
    settings = GenerationSettings(3e-4)
    assert (settings.epochs, settings.momentum, settings.modules, settings.peepholes) == (2000, 0.95, 9, True)
    assert GenerationSettings(**json.loads(json.dumps(dataclasses.asdict(settings)))) == settings


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_diverged_keeps_its_best_weights(method):
    result = train(method, epochs=200, learning_rate=1e6)
    assert result.status == "diverged"
    assert math.isnan(result.error)
    assert 0 < result.epochs < 200
    assert np.isfinite(result.curve).all()
    assert result.curve[-1, 0] == result.epochs - 1
    assert result.best_error == pytest.approx(result.curve[:, 1].min(), rel=1e-5)
    # output and weights are those of the best epoch
    assert result.best_error == nmse(result.output, decay())
    again = generate(method, HIDDEN[method], result.weights, 20, GenerationSettings(1e6, modules=4))
    np.testing.assert_array_equal(again, result.output)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_ends_hopeless_has_diverged(method):
    """The error of such a run is finite, but would dominate every mean."""
    result = train_many(method, 12, [np.sin(np.arange(40) / 3)], [0], GenerationSettings(0.3, epochs=2, modules=4))[0]
    assert (result.status, result.epochs) == ("diverged", 2)
    assert math.isnan(result.error)
    # the curve reaches the last epoch, and the output is that of the best
    assert result.curve[-1, 0] == 2
    assert result.curve[-1, 1] > HOPELESS > result.best_error
    assert result.best_error == nmse(result.output, np.sin(np.arange(40) / 3))


def test_a_run_that_never_was_finite_has_its_initial_weights():
    result = train("srn", target=1e30 * decay())
    assert (result.status, result.epochs, result.best_epoch, result.curve.shape) == ("diverged", 0, 0, (0, 2))
    assert math.isnan(result.best_error)
    assert np.isnan(result.output).all()
    assert result.output.shape == (20,)
    np.testing.assert_array_equal(
        result.weights["layer.bias_l0"], build_network("srn", 6).layer.bias_l0.detach().numpy()
    )


def test_training_ends_when_all_have_diverged():
    epochs = []
    results = train_many(
        "srn", 4, [decay()] * 3, range(3), GenerationSettings(1e6, epochs=10**6), progress=epochs.append
    )
    assert {result.status for result in results} == {"diverged"}
    assert epochs[-1] == max(result.epochs for result in results) < 1000


def mixed(method, S):
    """Targets and settings with which some runs diverge early, some late, and some not."""
    targets = targets_of(S, 40)
    targets[S - 2] *= 1e30
    rate = {"srn": 8e-3, "lstm": 3e-2, "cw": 5e-3, "gru": 1.6e-2, "cw-lstm": 2.4e-2, "cw-gru": 1.4e-2}[method]
    return targets, GenerationSettings(rate, epochs=60, modules=4, deviation=0.5)


@KERNEL
@pytest.mark.parametrize("method", METHODS)
def test_a_run_gives_the_same_bits_alone(method):
    """The tests of the kernels check this for the kernels; this test checks it for the whole training."""
    S, hidden = 21, HIDDEN[method] + 1
    targets, settings = mixed(method, S)
    seeds = [7 * s % 20 for s in range(S)]
    together = []
    for threads in (3, 1):
        torch.set_num_threads(threads)
        together.append(train_many(method, hidden, targets, seeds, settings))
    # some runs diverge before the end
    assert 3 <= sum(result.epochs < settings.epochs for result in together[0]) <= 10
    for s in range(S):
        (alone,) = train_many(method, hidden, targets[s : s + 1], seeds[s : s + 1], settings)
        for results in together:
            assert_same(results[s], alone)


@KERNEL
@pytest.mark.parametrize("method", METHODS)
def test_large_batches_give_the_same_bits_on_any_number_of_threads(method):
    """torch divides these tensors among threads, and no part ends at the end of a vector."""
    targets = targets_of(70, 301)
    settings = GenerationSettings(RATES[method] / 30, epochs=3)
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(train_many(method, 31, targets, range(70), settings))
    torch.set_num_threads(1)
    for others in results[1:]:
        for result, right in zip(others, results[0], strict=True):
            assert_same(result, right)
    for s in range(0, 70, 6):
        (alone,) = train_many(method, 31, targets[s : s + 1], [s], settings)
        assert_same(alone, results[0][s])


def test_each_run_has_its_own_target_and_seed():
    settings = GenerationSettings(1e-2, epochs=60, modules=4)
    results = train_many("cw", 12, [decay(), -decay(), decay()], [0, 0, 1], settings)
    assert all(result.error < 0.4 for result in results)
    assert np.corrcoef(results[1].output, -decay())[0, 1] > 0.7
    assert not np.array_equal(results[0].output, results[2].output)


@pytest.mark.parametrize("method", METHODS)
def test_training_without_the_kernel_agrees(method, monkeypatch):
    targets, settings = targets_of(3, 25), GenerationSettings(RATES[method], epochs=4, modules=4)
    expected = train_many(method, HIDDEN[method], targets, range(3), settings)
    monkeypatch.setattr(loader._Loaded, "missing", "it is not wanted")
    found = train_many(method, HIDDEN[method], targets, range(3), settings)
    for result, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(result.curve, right.curve, rtol=1e-4)
        np.testing.assert_allclose(result.output, right.output, rtol=1e-3, atol=1e-5)
        for name, value in result.weights.items():
            np.testing.assert_allclose(value, right.weights[name], rtol=1e-3, atol=1e-5)


def test_each_run_has_its_share_of_the_time():
    targets, settings = mixed("srn", 6)
    results = train_many("srn", 5, targets, range(6), settings)
    # a run that diverges early has less time
    assert results[4].epochs == 0
    assert all(0 < results[4].seconds < result.seconds for result in results if result.epochs > 0)


def test_a_progress_callback_may_stop_the_training():
    epochs = []
    train("srn", epochs=30, progress=epochs.append)
    assert epochs == sorted(set(epochs))
    assert epochs[-1] == 30

    def stop(epoch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("srn", epochs=3, progress=stop)


def test_training_leaves_torch_as_it_was():
    torch.set_num_threads(2)
    with torch.no_grad():
        result = train("srn", epochs=2)
        assert not torch.is_grad_enabled()
    assert torch.get_num_threads() == 2
    assert result.epochs == 2


def test_arguments_are_checked():
    settings = GenerationSettings(1e-3, epochs=1)
    with pytest.raises(ValueError, match="epochs must be at least 1, got 0"):
        train("srn", epochs=0)
    with pytest.raises(ValueError, match="method must be one of srn, lstm, cw, gru, .*, mingru, got 'rnn'"):
        train_many("rnn", 2, [decay()], [0], settings)
    with pytest.raises(ValueError, match=r"targets must be \(S, T\) for S = 2 seeds, got shape \(1, 20\)"):
        train_many("srn", 2, [decay()], [0, 1], settings)
    with pytest.raises(ValueError, match="targets must be finite"):
        train_many("srn", 2, [decay() * np.nan], [0], settings)
    with pytest.raises(ValueError, match="target must not be constant"):
        train_many("srn", 2, [np.ones(5)], [0], settings)
    assert train_many("srn", 2, np.empty((0, 20)), [], settings) == []


@pytest.mark.parametrize("method", METHODS)
def test_replicas_equal_their_networks(method, close):
    """The networks have inputs and several outputs."""
    networks = [build_network(method, 9, 3, 2, modules=3, deviation=0.5, seed=s).double() for s in range(5)]
    replicas = Replicas(networks)
    x = torch.randn(5, 14, 3, dtype=torch.float64)
    outputs = replicas.outputs(x)
    cotangent = torch.randn_like(outputs)
    gradients = torch.autograd.grad(outputs, list(replicas.parameters.values()), cotangent)
    for s, network in enumerate(networks):
        expected = network(x[s][:, None])[:, 0]
        close(outputs[s], expected)
        right = torch.autograd.grad(expected, list(network.parameters()), cotangent[s])
        for value, own in zip(gradients, right, strict=True):
            close(value[s], own)
    assert networks[0].layer.cell == METHODS[method].cell


@KERNEL
@pytest.mark.parametrize("isa", loader.executable_isas())
@pytest.mark.parametrize("N", [1, 3, 16, 17, 40])
@pytest.mark.parametrize("O", [1, 5])
def test_the_readout_kernel_agrees_with_torch(isa, N, O, close):
    shapes = (3, 11, N), (3, O, N), (3, O)
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    hidden, weight, bias = tensors
    expected = torch.einsum("stn,son->sto", hidden, weight) + bias[:, None]
    cotangent = torch.randn_like(expected)
    usual = loader.current_isa()
    loader.use_isa(isa)
    try:
        output = readout.run(*tensors)
        gradients = torch.autograd.grad(output, tensors, cotangent)
    finally:
        loader.use_isa(usual)
    close(output, expected)
    for value, right in zip(gradients, torch.autograd.grad(expected, tensors, cotangent), strict=True):
        close(value, right)


def test_the_sum_of_squares_does_not_depend_on_the_number_of_runs():
    for T in (1, 2, 3, 8, 321):
        errors = torch.randn(4, T, dtype=torch.float64)
        torch.testing.assert_close(training.sum_of_squares(errors), errors.square().sum(1))
        assert torch.equal(training.sum_of_squares(errors)[2:3], training.sum_of_squares(errors[2:3]))
