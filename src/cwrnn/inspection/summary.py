"""Summary: all measurements of one network, and the main numbers of each module."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from ..layer import AnyLayer
from ..schedule import Schedule
from .cost import Cost, count_operations
from .memory import Memory, measure_memory
from .silence import Measure, Respond, Silenced, respond_by_readout, silence_each
from .spectrum import Spectrum, measure_spectrum
from .states import compute_states
from .weights import WeightNorms, measure_weights


@dataclass(frozen=True)
class ModuleSummary:
    """The main numbers of one module."""

    period: int
    units: int
    parameters: int
    """The number of its parameters that exist; zeros that are only stored, from faster modules, are not counted."""
    operations: float
    """Multiply-adds per step."""
    share: float
    """Its share of the multiply-adds of all modules."""
    variance: float
    """The variance of a unit's state over all steps of all sequences, averaged over its units."""
    median_frequency: float
    """The frequency below which half of its power lies, in cycles per step; NaN if its state is constant."""
    in_band: float
    """The share of its power at frequencies up to 1 / (2 P); NaN if its state is constant."""
    reach: int | None
    """The longest lag at which its memory is at least 1 / e of the highest; None if it gets no input."""
    reach_is_open: bool
    """True if the data end at the reach, so that it may be longer."""
    input_weight: float
    """The norm of its weights from the input."""
    output_weight: float
    """The norm of the readout's weights for it; NaN without a readout."""
    silenced: Silenced
    """The errors of the network when this module is silenced."""


@dataclass(frozen=True)
class Inspection:
    """All measurements of one network, as `inspect` returns them."""

    schedule: Schedule
    spectrum: Spectrum
    memory: Memory
    weights: WeightNorms
    cost: Cost
    intact: Mapping[str, float]
    """The errors of the intact network, by the names of the measure."""
    modules: Sequence[ModuleSummary]


def inspect(
    layer: AnyLayer,
    readout: nn.Linear,
    inputs: Sequence[ArrayLike],
    measure: Measure,
    *,
    longest: int | None = None,
) -> Inspection:
    """All measurements of a network on some sequences, and a summary of each module.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        readout: a linear layer from its hidden units to the outputs
        inputs: sequences (T, I)
        measure: computes the errors of the outputs (T, O) of all sequences, by name
        longest: the longest lag of the memory. Default: all lags

    >>> from cwrnn import ClockworkRNN
    >>> rnn, linear = ClockworkRNN(3, 8, schedule=[1, 4]), nn.Linear(8, 1)
    >>> inspection = inspect(rnn, linear, [np.random.randn(20, 3)], lambda outputs: {"power": float(outputs[0].var())})
    >>> [module.period for module in inspection.modules]
    [1, 4]
    """
    respond = respond_by_readout(layer, readout, inputs, measure)
    return inspect_layer(layer, inputs, respond, readout=readout, longest=longest)


def inspect_layer(
    layer: AnyLayer,
    inputs: Sequence[ArrayLike],
    respond: Respond,
    *,
    readout: nn.Linear | None = None,
    longest: int | None = None,
    remembered: Sequence[ArrayLike] | None = None,
) -> Inspection:
    """All measurements of a layer inside any network, and a summary of each module.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction
        inputs: the sequences (T, I) that it reads
        respond: returns the errors of the network with a module silenced
        readout: the linear layer that alone reads its hidden units; None if something else does
        longest: the longest lag of the memory. Default: all lags
        remembered: the sequences on which the memory is measured, which takes longest. Default: `inputs`

    >>> from cwrnn import ClockworkRNN
    >>> rnn, inputs = ClockworkRNN(3, 8, schedule=[1, 4]), [np.random.randn(20, 3)]
    >>> inspection = inspect_layer(rnn, inputs, lambda replacement: {"error": float(replacement is not None)})
    >>> inspection.intact, inspection.modules[0].silenced.mean
    ({'error': 0.0}, {'error': 1.0})
    """
    schedule = layer.schedule
    states = compute_states(layer, inputs)
    spectrum = measure_spectrum(states, schedule)
    memory = measure_memory(layer, inputs if remembered is None else remembered, longest)
    weights = measure_weights(layer, readout)
    cost = count_operations(
        schedule,
        layer.input_size,
        0 if readout is None else readout.out_features,
        bias=layer.bias,
        cell=layer.cell,
        peepholes=layer.peepholes,
    )
    intact, silenced = silence_each(schedule, states, respond)
    variance = np.concatenate(states).var(axis=0)
    modules = [
        ModuleSummary(
            period=period,
            units=schedule.sizes[i],
            parameters=int(cost.parameters[i]),
            operations=float(cost.total[i]),
            share=float(cost.total[i] / cost.total.sum()),
            variance=float(variance[schedule.slices[i]].mean()),
            median_frequency=spectrum.median(i),
            in_band=spectrum.share_below(i, 1 / (2 * period)),
            reach=memory.reach(i),
            reach_is_open=memory.is_open(i),
            input_weight=float(weights.input[i]),
            output_weight=float(weights.output[i]),
            silenced=silenced[i],
        )
        for i, period in enumerate(schedule.periods)
    ]
    return Inspection(schedule, spectrum, memory, weights, cost, intact, modules)
