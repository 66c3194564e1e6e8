"""The history compressor against its equations, step by step."""

import pytest
import torch
from support.model_checks import check_model_layer, make_input, make_layer

from cwrnn.experiments.networks.models.compressor import HistoryCompressor


def run_compressor(sequence, layer):
    """States, prediction errors and ticks for one sequence (T, I)."""
    N = layer.hidden_size // 2
    h, k = sequence.new_zeros(N), sequence.new_zeros(N)
    states, errors, ticks = [], [], []
    lower, upper = layer.automatizer, layer.chunker
    for t, x in enumerate(sequence):
        predicted = layer.weight_prediction @ h + layer.bias_prediction
        h = torch.tanh(lower.weight_ih @ x + lower.weight_hh @ h + lower.bias)
        error = ((predicted - x) ** 2).mean()
        if t == 0 or error.item() > layer.threshold * sum(past.item() for past in errors) / t:
            k = torch.tanh(upper.weight_ih @ torch.cat((x, h)) + upper.weight_hh @ k + upper.bias)
            ticks.append(t)
        errors.append(error)
        states.append(torch.cat((h, k)))
    return torch.stack(states), torch.stack(errors), ticks


class TickingWithoutInput(HistoryCompressor):
    """The layer, except that without an input its chunker ticks at every second step and not only at the first."""

    def _find_ticks(self, errors):
        if self.bias_prediction.numel():
            return super()._find_ticks(errors)
        return (torch.arange(len(errors)) % 2 == 0)[:, None].expand(errors.shape)


def test_layer_keeps_the_contract():
    check_model_layer(TickingWithoutInput)


def test_without_input_only_the_recurrent_weights_of_the_chunker_break_the_contract():
    # after its only tick the chunker never reads its own state, so these weights have no effect
    with pytest.raises(AssertionError, match="^the gradient of chunker.weight_hh is 0"):
        check_model_layer(HistoryCompressor)
    layer = make_layer(HistoryCompressor, 0, 5)
    layer(make_input(20, 2, 0)).square().sum().backward()
    idle = [name for name, value in layer.named_parameters() if value.numel() and not value.grad.any()]
    assert idle == ["chunker.weight_hh"]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 1.5])
def test_states_follow_the_equations(threshold):
    layer, input = make_layer(HistoryCompressor, 3, 5), make_input(80, 3, 3)
    layer.threshold = threshold
    expected = [run_compressor(input[:, b], layer) for b in range(3)]
    torch.testing.assert_close(layer(input), torch.stack([states for states, _, _ in expected], dim=1))
    counts = [len(ticks) for _, _, ticks in expected]
    assert layer.measure_ticks(input) == pytest.approx(sum(counts) / 240)
    assert all(count == 80 if threshold == 0 else 5 < count < 60 for count in counts)


@pytest.mark.parametrize("weight", [0.0, 0.7])
def test_gradients_contain_the_prediction_error(weight):
    layer, input = make_layer(HistoryCompressor, 3, 5), make_input(60, 2, 3).requires_grad_()
    layer.prediction_weight = weight
    direction, wanted = make_input(60, 2, 10, seed=1), [input, *layer.parameters()]
    actual = torch.autograd.grad((layer(input) * direction).sum(), wanted)
    expected = [run_compressor(input[:, b], layer) for b in range(2)]
    states = torch.stack([own for own, _, _ in expected], dim=1)
    errors = torch.stack([own for _, own, _ in expected], dim=1)
    loss = (states * direction).sum() + weight * errors.mean()
    for a, e in zip(actual, torch.autograd.grad(loss, wanted), strict=True):
        torch.testing.assert_close(a, e)


def test_gradients_are_those_of_the_states():
    # without the attached loss, and with ticks that small changes do not move, the layer is differentiable
    layer, input = make_layer(HistoryCompressor, 2, 3), make_input(8, 2, 2)
    layer.prediction_weight = 0.0
    assert 0 < layer.measure_ticks(input) < 1
    names = [name for name, _ in layer.named_parameters()]

    def run(input, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (input,))

    torch.autograd.gradcheck(run, (input.requires_grad_(), *layer.parameters()))


def test_chunker_ticks_at_unexpected_inputs():
    # the automatizer predicts 0, so that only the sequence decides
    layer = make_layer(HistoryCompressor, 1, 4)
    with torch.no_grad():
        layer.weight_prediction.zero_()
        layer.bias_prediction.zero_()
    input = torch.full((40, 1, 1), 0.1, dtype=torch.float64)
    input[[13, 29]] = 1.0
    upper = layer(input)[:, 0, 4:]
    changes = upper.diff(dim=0).abs().amax(dim=1).nonzero().flatten() + 1
    # step 1 follows a single error of the same size: not a failure
    assert changes.tolist() == [13, 29]
    assert (upper[0] != 0).any()


def test_without_input_the_chunker_ticks_once():
    layer = make_layer(HistoryCompressor, 0, 4)
    states = layer(make_input(20, 2, 0))
    upper = states[..., 4:]
    assert (upper == upper[:1]).all()
    assert (upper != 0).all()
    assert (states[1:, :, :4] != states[:-1, :, :4]).any()
    assert layer.measure_ticks(make_input(20, 2, 0)) == 1 / 20


def test_prediction_is_trained_without_another_loss():
    layer = make_layer(HistoryCompressor, 1, 8)
    time = torch.arange(60, dtype=torch.float64)
    input = torch.sin(time[:, None, None] * torch.tensor([0.3, 0.5], dtype=torch.float64)[:, None])

    def measure_error():
        return torch.stack([run_compressor(input[:, b], layer)[1] for b in range(2)]).mean().item()

    before = measure_error()
    descent = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(40):
        descent.zero_grad()
        (0 * layer(input)).sum().backward()
        descent.step()
    assert measure_error() < 0.2 * before


def test_multiply_adds_if_all_predictions_fail():
    assert HistoryCompressor.count_multiply_adds(3, 5) == 5 * (3 + 5) + 3 * 5 + 5 * (3 + 5 + 5)


@pytest.mark.parametrize("name", ["threshold", "prediction_weight"])
def test_negative_arguments_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
        HistoryCompressor(3, 5, **{name: -1})
