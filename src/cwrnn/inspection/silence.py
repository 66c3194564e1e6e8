"""Silence: how the output changes when the state of one module is replaced by a constant."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ..cells import add_message
from ..layer import AnyLayer
from ..schedule import Schedule
from .states import Array, as_sequences, compute_states, copy_layer, copy_readout, run_network

Measure = Callable[[Sequence[Array]], Mapping[str, float]]
"""A function from the outputs (T, O) of all sequences to errors by name; lower is better."""


@dataclass(frozen=True)
class Silenced:
    """The errors of a network, by the names of the measure, when the state of one module is replaced by a constant."""

    zero_readout: Mapping[str, float]
    """The errors if the readout reads zero: the output lacks the direct contribution of the module."""
    zero: Mapping[str, float]
    """The errors if the readout and all modules read zero: the network lacks everything that the module sends."""
    mean_readout: Mapping[str, float]
    """The errors if the readout reads the mean of the state over all steps of all sequences."""
    mean: Mapping[str, float]
    """The errors if the readout and all modules read that mean: the network lacks the module's changes over time, but
    has its mean, which a bias could replace."""


class Replacement(NamedTuple):
    """A constant that takes the place of the state of one module."""

    module: int
    """The place of the module in the schedule."""
    value: Tensor
    """(units,) float64: the constant."""
    everywhere: bool
    """Whether the other modules read the constant too, or the readout only."""


Respond = Callable[[Replacement | None], Mapping[str, float]]
"""A function that returns the errors of a network with a replacement, or of the intact network for None."""


def silence_modules(
    layer: AnyLayer, readout: nn.Linear, inputs: Sequence[ArrayLike], measure: Measure
) -> tuple[Mapping[str, float], list[Silenced]]:
    """The errors of the intact network, and its errors with each module silenced in turn.

    The readers of a silenced module find a constant in place of its state h, from before the first step on.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        readout: a linear layer from its hidden units to the outputs
        inputs: sequences (T, I)
        measure: computes the errors of the outputs

    >>> from cwrnn import ClockworkRNN
    >>> rnn, readout = ClockworkRNN(3, 8, schedule=[1, 4]), nn.Linear(8, 1)
    >>> measure = lambda outputs: {"variance": float(np.concatenate(outputs).var())}
    >>> intact, silenced = silence_modules(rnn, readout, [np.random.randn(20, 3)], measure)
    >>> list(intact), len(silenced), list(silenced[1].zero)
    (['variance'], 2, ['variance'])
    """
    respond = respond_by_readout(layer, readout, inputs, measure)
    return silence_each(layer.schedule, compute_states(layer, inputs), respond)


def silence_each(
    schedule: Schedule, states: Sequence[Array], respond: Respond
) -> tuple[Mapping[str, float], list[Silenced]]:
    """The errors of any intact network, and its errors with each module of one of its layers silenced in turn.

    Args:
        schedule: the modules of the layer
        states: (T, N) for each sequence: the states of the layer, whose means take the places of states
        respond: returns the errors of the network
    """
    intact = respond(None)
    mean = torch.from_numpy(np.concatenate(states).mean(axis=0))
    silenced = []
    for module, units in enumerate(schedule.slices):
        errors = {}
        for name, value in (("zero", torch.zeros_like(mean)), ("mean", mean)):
            for suffix, everywhere in (("_readout", False), ("", True)):
                errors[name + suffix] = respond(Replacement(module, value[units], everywhere))
        silenced.append(Silenced(**errors))
    return intact, silenced


def respond_by_readout(layer: AnyLayer, readout: nn.Linear, inputs: Sequence[ArrayLike], measure: Measure) -> Respond:
    """The function that returns the errors of a layer with a linear readout."""
    copy, linear, sequences = copy_layer(layer), copy_readout(readout), as_sequences(layer, inputs)

    def respond(replacement: Replacement | None) -> Mapping[str, float]:
        if replacement is None:
            return measure(run_network(copy, linear, sequences))
        units = layer.schedule.slices[replacement.module]
        changed = _replace_state(copy, linear, units, replacement.value, replacement.everywhere)
        return measure(run_network(*changed, sequences))

    return respond


def silence_readers(layer: AnyLayer, units: slice, value: Tensor) -> AnyLayer:
    """A float64 copy of a layer whose modules read `value` in place of the state of `units`."""
    layer = copy_layer(layer)
    weight, bias = layer.get_parameter("weight_hh_l0"), layer.get_parameter("bias_l0")
    # a weighted constant is a bias
    bias.copy_(add_message(layer.cell, bias, weight[:, units] @ value))
    weight[:, units] = 0
    return layer


def _replace_state(
    layer: AnyLayer, readout: nn.Linear, units: slice, value: Tensor, everywhere: bool
) -> tuple[AnyLayer, nn.Linear]:
    """A network whose readout, and with `everywhere` all modules, read `value` in place of the state of `units`."""
    readout = copy_readout(readout)
    readout.bias.add_(readout.weight[:, units] @ value)
    readout.weight[:, units] = 0
    if everywhere:
        layer = silence_readers(layer, units, value)
    return layer, readout
