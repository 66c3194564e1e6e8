"""Checks that every layer of `cwrnn.experiments.networks.models` must pass, whatever its equations are.

A model's own test compares its states with the equations of its paper; the contract of `ModelLayer` is checked here.
"""

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, vmap
from torch.utils.flop_counter import FlopCounterMode

from cwrnn.experiments.networks.models.model_layer import ModelLayer

I, B, S = 3, 2, 3
"""Values of the input, sequences and replicas of the checks."""
T = 24
"""Steps of most checks."""
LONG = 300
"""Steps after which every parameter has a gradient: more than twice the longest delay or period, 128."""


def check_model_layer(
    layer_class: type[ModelLayer], *, units: int = 12, products: int = 0, causal: bool = True, trains: bool = True
) -> None:
    """Check all that `ModelLayer` promises: sizes, costs, dtypes, empty inputs, seeds, causality, gradients, vmap.

    Args:
        layer_class: the layer, which is made with an input size of 3 and of 0
        units: the units of the layer in most checks
        products: the multiply-adds of a step for each unit beside those of the weight matrices
        causal: whether a state depends on the inputs up to its step only; False demands that it depends on later ones
        trains: whether the layer has parameters; False demands that `is_fixed` is True and that all weights are buffers
    """
    assert layer_class.is_fixed is not trains, "`is_fixed` must be True if and only if the layer does not train"
    _check_sizes(layer_class, units, trains)
    _check_multiply_adds(layer_class, units, products, trains)
    for input_size in (I, 0):
        _check_states(layer_class, input_size, units)
        _check_empty_inputs(layer_class, input_size, units)
        if trains:
            _check_gradients(layer_class, input_size, units)
        _check_vmap(layer_class, input_size, units)
    _check_independent_sequences(layer_class, units)
    _check_causality(layer_class, units, causal)


def make_layer(layer_class: type[ModelLayer], input_size: int, units: int, seed: int = 0) -> ModelLayer:
    """Return the layer in float64 with the initial weights of a seed."""
    torch.manual_seed(seed)
    return layer_class(input_size, units).double()


def make_input(*shape: int, seed: int = 0) -> Tensor:
    """Return normal random numbers in float64."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numpy_weights(layer: ModelLayer, *names: str) -> list[NDArray[np.float64]]:
    """Return the layer's parameters or buffers of these names."""
    return [layer.state_dict()[name].numpy() for name in names]


def check_gradients_numerically(layer: ModelLayer, input: Tensor) -> None:
    """Check the gradients of the input and of all parameters against differences of the states, in float64."""
    names = [name for name, _ in layer.named_parameters()]

    def run(input: Tensor, *weights: Tensor) -> Tensor:
        return _run(layer, dict(zip(names, weights, strict=True)), input)

    arguments = [input, *(layer.get_parameter(name) for name in names)]
    torch.autograd.gradcheck(run, [value.detach().clone().requires_grad_() for value in arguments], fast_mode=False)


def _check_sizes(layer_class: type[ModelLayer], units: int, trains: bool) -> None:
    """Check that parameters and states are counted, and that parameters grow; constants are not persistent buffers."""
    for input_size in (I, 0):
        for size in (units, units + 1, 3 * units):
            layer = layer_class(input_size, size)
            count = sum(value.numel() for value in layer.state_dict().values())
            assert layer_class.count_parameters(input_size, size) == count, f"count_parameters({input_size}, {size})"
            assert layer_class.count_states(size) == layer.hidden_size, f"count_states({size})"
            assert bool(list(layer.parameters())) is trains
        counts = [layer_class.count_parameters(input_size, size) for size in range(units, 4 * units)]
        assert all(a < b for a, b in pairwise(counts)), "count_parameters must grow with units"


def _check_multiply_adds(layer_class: type[ModelLayer], units: int, products: int, trains: bool) -> None:
    """Check the multiply-adds of a step against the sizes of the weight matrices and what torch counts in a pass.

    A fixed layer reads the weights of its sparse matrix one by one, which torch's counter does not see.
    """
    # the dilations of all layers divide it
    steps = 64
    for input_size in (I, 0):
        # the smaller layer has fewer units than a sparse one connects
        for size in (units // 2, units, 3 * units):
            layer = layer_class(input_size, size)
            matrices = sum(value.numel() for value in layer.state_dict().values() if value.dim() > 1)
            found = layer_class.count_multiply_adds(input_size, size)
            assert found == matrices + products * size, f"count_multiply_adds({input_size}, {size})"
            if trains:
                with FlopCounterMode(display=False) as counter, torch.no_grad():
                    layer(torch.randn(steps, B, input_size))
                assert counter.get_total_flops() == 2 * steps * B * matrices, f"products of {input_size}, {size}"


def _check_states(layer_class: type[ModelLayer], input_size: int, units: int) -> None:
    """Check shape, dtypes, seeds and that neither repeated calls nor the strides of the input change the states."""
    layer, input = make_layer(layer_class, input_size, units), make_input(T, B, input_size)
    states = layer(input)
    assert states.shape == (T, B, layer.hidden_size)
    assert states.dtype == torch.float64
    assert states.isfinite().all()
    torch.testing.assert_close(layer(input), states, rtol=0, atol=0)
    strided = input.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(layer(strided), states)
    torch.testing.assert_close(make_layer(layer_class, input_size, units)(input), states, rtol=0, atol=0)
    other = make_layer(layer_class, input_size, units, seed=1)
    assert any((other.state_dict()[name] != value).any() for name, value in layer.state_dict().items())
    torch.manual_seed(0)
    single = layer_class(input_size, units)(input.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), states, rtol=1e-3, atol=1e-3)


def _check_empty_inputs(layer_class: type[ModelLayer], input_size: int, units: int) -> None:
    """Check that no steps give no states, no sequences give none, and that both can be differentiated."""
    layer = make_layer(layer_class, input_size, units)
    for steps, sequences in ((0, B), (T, 0), (0, 0)):
        states = layer(make_input(steps, sequences, input_size))
        assert states.shape == (steps, sequences, layer.hidden_size)
        assert states.dtype == torch.float64
        if states.requires_grad:
            states.sum().backward()


def _check_independent_sequences(layer_class: type[ModelLayer], units: int) -> None:
    """Check that a sequence gives the same states alone as among others."""
    layer, input = make_layer(layer_class, I, units), make_input(T, B, I)
    states = layer(input)
    for b in range(B):
        torch.testing.assert_close(layer(input[:, b : b + 1]), states[:, b : b + 1])


def _check_causality(layer_class: type[ModelLayer], units: int, causal: bool) -> None:
    """Check that states depend on the input up to their own step, and on no later one if the layer is causal."""
    layer, input = make_layer(layer_class, I, units), make_input(LONG, B, I)
    states = layer(input)
    saw_the_future = False
    for t in (0, 1, 7, LONG // 2, LONG - 1):
        changed = input.clone()
        changed[t] = make_input(B, I, seed=1)
        difference = (layer(changed) - states).abs()
        assert t == LONG - 1 or difference[t:].max() > 1e-6, f"the input of step {t} changes no state from there on"
        saw_the_future |= bool((difference[:t] > 1e-12).any())
    assert saw_the_future is not causal, "an input changes states of earlier steps" if causal else "the layer is causal"
    if causal:
        torch.testing.assert_close(layer(input[: T + 1]), states[: T + 1])


def _check_gradients(layer_class: type[ModelLayer], input_size: int, units: int) -> None:
    """Check that gradients are finite and that all parameters have one: training demands it even of empty ones."""
    layer, input = make_layer(layer_class, input_size, units), make_input(LONG, B, input_size).requires_grad_()
    # weights that a layer sets to zero at the start could hide others from the loss
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter += 0.05 * make_input(*parameter.shape)
    states = layer(input)
    (states * make_input(*states.shape, seed=1)).sum().backward()
    for name, value in (*layer.named_parameters(), ("the input", input)):
        assert value.grad is not None, f"{name} has no gradient"
        assert value.grad.isfinite().all(), f"the gradient of {name} is not finite"
        assert value.numel() == 0 or (value.grad != 0).any(), f"the gradient of {name} is 0"


def _check_vmap(layer_class: type[ModelLayer], input_size: int, units: int) -> None:
    """Check that replicas under `vmap` have the states and gradients that they have alone."""
    layers = [make_layer(layer_class, input_size, units, seed) for seed in range(S)]
    names = [name for name, _ in layers[0].named_parameters()]
    weights = {name: torch.stack([layer.state_dict()[name] for layer in layers]) for name in layers[0].state_dict()}
    for name in names:
        weights[name].requires_grad_()
    input = make_input(S, T, B, input_size).requires_grad_()
    together = vmap(lambda weights, own: _run(layers[0], weights, own))(weights, input)
    alone = torch.stack([layer(input[s]) for s, layer in enumerate(layers)])
    torch.testing.assert_close(together, alone)
    shared = vmap(lambda weights: _run(layers[0], weights, input[0]))(weights)
    torch.testing.assert_close(shared, torch.stack([layer(input[0]) for layer in layers]))
    if not alone.requires_grad:
        return
    direction = make_input(*alone.shape, seed=1)
    gradients = torch.autograd.grad((together * direction).sum(), [input, *(weights[name] for name in names)])
    (alone_input,) = torch.autograd.grad((alone * direction).sum(), [input], retain_graph=True)
    torch.testing.assert_close(gradients[0], alone_input)
    for name, gradient in zip(names, gradients[1:], strict=True):
        own = [layer.get_parameter(name) for layer in layers]
        expected = torch.stack(torch.autograd.grad((alone * direction).sum(), own, retain_graph=True))
        torch.testing.assert_close(gradient, expected, msg=lambda text, name=name: f"gradient of {name}: {text}")


def _run(layer: ModelLayer, weights: Mapping[str, Tensor], input: Tensor) -> Tensor:
    states: Tensor = functional_call(layer, dict(weights), (input,))
    return states
