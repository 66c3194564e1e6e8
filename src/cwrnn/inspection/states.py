"""States and outputs of a network on some sequences, computed in float64 on a copy of it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ..layer import AnyLayer

Array = NDArray[np.float64]


def compute_states(layer: AnyLayer, inputs: Sequence[ArrayLike]) -> list[Array]:
    """The hidden states (T, N) of each sequence, held between ticks.

    Module i has the columns `layer.schedule.slices[i]`.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        inputs: sequences (T, I)

    >>> from cwrnn import ClockworkRNN
    >>> rnn = ClockworkRNN(3, 8, schedule=[1, 4])
    >>> slow = compute_states(rnn, [np.random.randn(10, 3)])[0][:, rnn.schedule.slices[1]]
    >>> bool((slow[4:8] == slow[4]).all())
    True
    """
    return run_layer(copy_layer(layer), as_sequences(layer, inputs))


def compute_outputs(layer: AnyLayer, readout: nn.Linear, inputs: Sequence[ArrayLike]) -> list[Array]:
    """The outputs (T, O) of the readout for each sequence.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        readout: a linear layer from its hidden units to the outputs
        inputs: sequences (T, I)

    >>> from cwrnn import ClockworkRNN
    >>> rnn, readout = ClockworkRNN(3, 8, schedule=[1, 4]), nn.Linear(8, 2)
    >>> [output.shape for output in compute_outputs(rnn, readout, [np.zeros((10, 3)), np.zeros((7, 3))])]
    [(10, 2), (7, 2)]
    """
    return run_network(copy_layer(layer), copy_readout(readout), as_sequences(layer, inputs))


def copy_layer(layer: AnyLayer) -> AnyLayer:
    """A float64 copy of the layer that has a bias and needs no gradient.

    Raises a ValueError if the layer has several layers or directions.

    >>> from cwrnn import ClockworkRNN
    >>> copy_layer(ClockworkRNN(3, 8, bias=False)).bias_l0.dtype
    torch.float64
    """
    if layer.num_layers != 1 or layer.bidirectional:
        raise ValueError(
            "inspection takes one layer of one direction, "
            f"got num_layers={layer.num_layers}, bidirectional={layer.bidirectional}"
        )
    options = {name: getattr(layer, name) for name in ("nonlinearity", "peepholes") if getattr(layer, name, False)}
    # a subclass may have a constructor of its own
    kind = next(base for base in type(layer).__mro__ if base.__module__.split(".")[0] == __name__.split(".")[0])
    # the initial values of the copy must not change the user's random numbers
    with torch.random.fork_rng(devices=[]):
        copy: AnyLayer = kind(
            layer.input_size,
            layer.hidden_size,
            dtype=torch.float64,
            schedule=layer.schedule,
            backend="torch",
            **options,
        )
    _copy_parameters(layer, copy)
    copy.clear_forbidden_weights()
    return copy.requires_grad_(False)


def copy_readout(readout: nn.Linear) -> nn.Linear:
    """A float64 copy of the readout that has a bias and needs no gradient."""
    with torch.random.fork_rng(devices=[]):
        copy = nn.Linear(readout.in_features, readout.out_features, dtype=torch.float64)
    _copy_parameters(readout, copy)
    return copy.requires_grad_(False)


def as_sequences(layer: AnyLayer, inputs: Sequence[ArrayLike]) -> list[Tensor]:
    """The inputs as float64 tensors; raises a ValueError unless all of them are (T, I) with T >= 1."""
    sequences = [torch.tensor(np.asarray(input, dtype=np.float64)) for input in inputs]
    if not sequences:
        raise ValueError("inspection needs at least one sequence")
    for sequence in sequences:
        if sequence.dim() != 2 or sequence.shape[1] != layer.input_size or len(sequence) == 0:
            raise ValueError(f"a sequence must be (T, {layer.input_size}), T >= 1, got {tuple(sequence.shape)}")
    return sequences


def run_layer(layer: AnyLayer, sequences: Sequence[Tensor]) -> list[Array]:
    """The hidden states (T, N) of a layer from `copy_layer` on sequences from `as_sequences`."""
    return [layer(sequence[:, None])[0][:, 0].numpy() for sequence in sequences]


def run_network(layer: AnyLayer, readout: nn.Linear, sequences: Sequence[Tensor]) -> list[Array]:
    """The outputs (T, O) of a layer from `copy_layer` and a readout from `copy_readout`."""
    return [readout(torch.from_numpy(states)).numpy() for states in run_layer(layer, sequences)]


@torch.no_grad()
def _copy_parameters(source: nn.Module, target: nn.Module) -> None:
    """Copies the parameters of `source` to `target`; a parameter that `source` does not have becomes zero."""
    for name, parameter in target.named_parameters():
        given: Tensor | None = getattr(source, name, None)
        parameter.copy_(torch.zeros_like(parameter) if given is None else given)
