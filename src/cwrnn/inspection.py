"""Inspection: what a trained Clockwork RNN does with its modules, in numbers.

    states        what every unit does over time
    spectrum      how fast each module moves, held against its clock
    memory        how far back each module remembers
    silence       what the output loses without a module
    blocks        how large the weights from module to module are
    cost          the multiply-adds of each module
    inspect       all of them, and a line for each module that sums them up

A network is a layer, a ClockworkRNN of one layer and one direction, and a linear readout. Its data are sequences (T, I)
of any lengths, I = 0 for a network that generates. All is computed in float64 and leaves the network as it is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from .layer import ClockworkRNN
from .schedule import Schedule

Array = NDArray[np.float64]

CYCLE = 2**20
"""Steps of the clock that are looked at, if it takes more for all modules to tick at once again."""

Measure = Callable[[Sequence[Array]], Mapping[str, float]]
"""What the outputs (T, O) of all sequences are worth: errors by name, the lower the better."""


def states(layer: ClockworkRNN, inputs: Sequence[ArrayLike]) -> list[Array]:
    """The states (T, N) of each sequence, held between ticks; `schedule.slices` says whose unit is whose.

    >>> rnn = ClockworkRNN(3, 8, schedule=[1, 4])
    >>> slow = states(rnn, [np.random.randn(10, 3)])[0][:, rnn.schedule.slices[1]]
    >>> bool((slow[4:8] == slow[4]).all())
    True
    """
    return _states(_plain(layer), _sequences(layer, inputs))


def outputs(layer: ClockworkRNN, readout: nn.Linear, inputs: Sequence[ArrayLike]) -> list[Array]:
    """What the readout makes of the states: (T, O) for each sequence."""
    return _outputs(_plain(layer), _linear(readout), _sequences(layer, inputs))


@dataclass(frozen=True)
class Spectrum:
    """Power spectral densities."""

    frequencies: Array
    """(F,): cycles per step, from 0 to 1/2."""
    density: Array
    """(G, F): of each module; its sum times the distance of two frequencies is a unit's mean power."""

    def share_below(self, module: int, frequency: float) -> float:
        """The share of a module's power up to a frequency; NaN of a module that does not move."""
        power = self.density[module]
        total = float(power.sum())
        return float(power[self.frequencies <= frequency].sum()) / total if total > 0 else math.nan

    def median(self, module: int) -> float:
        """The frequency up to which half of a module's power lies; NaN of a module that does not move."""
        summed = self.density[module].cumsum()
        return float(self.frequencies[np.searchsorted(summed, summed[-1] / 2)]) if summed[-1] > 0 else math.nan


def spectrum(states: Sequence[Array], schedule: Schedule) -> Spectrum:
    """The power spectral density of each module's states, as they are held.

    Of every sequence and unit: the mean is taken off, a Hann window laid over it, and the squares of its Fourier
    transform divided by those of the window. Then the mean over a module's units, and over sequences by their length.

    A module of period P has news at the frequencies up to 1 / (2 P), half its clock's 1 / P. What it has above are the
    images that holding leaves: copies of its spectrum around the multiples of 1 / P, under the envelope of `held`.

    >>> wave = np.sin(2 * np.pi * np.arange(64) / 8)[:, None]
    >>> found = spectrum([wave], Schedule((1,), (1,)))
    >>> float(found.frequencies[found.density[0].argmax()])
    0.125
    """
    steps = max(len(each) for each in states)
    frequencies = np.fft.rfftfreq(steps).astype(np.float64)
    total = np.zeros((len(frequencies), schedule.hidden_size))
    for each in states:
        T = len(each)
        # without the zeros at its ends, so that it has something for every step
        window = np.sin(np.pi * np.arange(1, T + 1) / (T + 1)) ** 2
        moved = (each - each.mean(axis=0)) * window[:, None]
        total += T * np.abs(np.fft.rfft(moved, steps, axis=0)) ** 2 / np.square(window).sum()
    total /= sum(len(each) for each in states)
    # both signs of a frequency in one, but for those that have one sign
    total[1 : (steps + 1) // 2] *= 2
    density = np.stack([total[:, units].mean(axis=1) for units in schedule.slices])
    return Spectrum(frequencies, density)


def held(frequencies: ArrayLike, period: int) -> Array:
    """The density of white noise of power 1 that is held for `period` steps: what holding alone makes of a spectrum.

    >>> held([0.1, 0.25, 0.4], 1).tolist()
    [2.0, 2.0, 2.0]
    >>> held([0.25, 0.5], 4).round(12).tolist()  # zero at the multiples of 1 / period
    [0.0, 0.0]
    """
    frequencies = np.asarray(frequencies, dtype=np.float64)
    # numpy's sinc is sin(pi x) / (pi x), which knows what becomes of 0 / 0
    return np.asarray(2 * period * np.square(np.sinc(frequencies * period) / np.sinc(frequencies)))


@dataclass(frozen=True)
class Memory:
    """How much each module's state depends on what was heard before."""

    norms: Array
    """(G, L): by lag, from 0 on; NaN where the data are too short to tell."""
    pairs: NDArray[np.int64]
    """(G, L): how many pairs of an input and a later state each is the mean of."""

    def reach(self, module: int) -> int | None:
        """The longest lag at which the norm is at least 1 / e of its highest; None of a module that hears nothing."""
        norms = np.nan_to_num(self.norms[module])
        return int(np.flatnonzero(norms >= norms.max() / math.e)[-1]) if norms.max() > 0 else None

    def is_open(self, module: int) -> bool:
        """Whether the reach is the longest lag that there is: the data are too short to see the end of it."""
        known = np.flatnonzero(np.isfinite(self.norms[module]))
        return self.reach(module) == int(known[-1]) if len(known) else False


def memory(layer: ClockworkRNN, inputs: Sequence[ArrayLike], longest: int | None = None) -> Memory:
    """How far back each module remembers: the derivative of its state by the input, by lag.

        norm(i, l) = sqrt( mean over s of || d h_i(s + l) / d x(s) ||_F^2 )

    The mean is over the times s at which module i can hear an input at all, itself or through others: at which it or a
    slower module ticks. It is that of an endless stream, whatever the lengths of the sequences: the times at which
    module j is the slowest that ticks have the mean of those that have a step s + l after them, and count as often as
    the clock has them. If there are none with such a step, the others count for them, as long as these are at least
    half of all that the sequences have; else there is no norm.

    The derivatives are exact: they are carried forward from each input to all later states. A network without input is
    thought to have one, of one feature for each unit, which is added to what the unit's nonlinearity is taken of.

    Args:
        layer: of N units
        inputs: sequences
        longest: lags up to this one only; the work for a sequence of T steps is T * longest * N^2 * I at most

    >>> rnn = ClockworkRNN(1, 1, schedule=[3], nonlinearity="relu", bias=False)
    >>> _ = nn.init.constant_(rnn.weight_ih_l0, 1.0), nn.init.constant_(rnn.weight_hh_l0, 0.5)
    >>> memory(rnn, [np.ones((30, 1))], longest=7).norms[0].tolist()  # it forgets half at each of its ticks
    [1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    """
    schedule = layer.schedule
    G = schedule.modules
    plain, sequences = _plain(layer), _sequences(layer, inputs)
    lags = max(len(each) for each in sequences)
    if longest is not None:
        lags = min(lags, longest + 1)
    # by the slowest module that ticks when the input comes, and the lag
    energy, pairs = np.zeros((G, lags, G)), np.zeros((G, lags), dtype=np.int64)
    for each, done in zip(sequences, _states(plain, sequences), strict=True):
        _add_memory(plain, each, done, energy, pairs)
    rates = np.bincount(_slowest(schedule, min(math.lcm(*schedule.periods), CYCLE)) + 1, minlength=G + 1)[1:]
    weights = np.where(pairs > 0, rates[:, None], 0)
    means = weights[..., None] * energy / np.maximum(pairs, 1)[..., None]
    norms, heard = np.full((G, lags), np.nan), np.zeros((G, lags), dtype=np.int64)
    for i in range(G):
        heard[i] = pairs[i:].sum(axis=0)
        known = 2 * weights[i:].sum(axis=0) >= weights[i:, 0].sum()
        norms[i, known] = np.sqrt(means[i:, known, i].sum(axis=0) / weights[i:, known].sum(axis=0))
    return Memory(norms, heard)


def _slowest(schedule: Schedule, T: int) -> NDArray[np.int64]:
    """(T,): the slowest module that ticks at each time; -1 where none does."""
    found = np.full(T, -1)
    for i, ticks in enumerate(schedule.ticks(0, T)):
        found[ticks.start : T : ticks.step] = i
    return found


def _add_memory(layer: ClockworkRNN, input: Tensor, done: Array, energy: Array, pairs: NDArray[np.int64]) -> None:
    """Adds what one sequence has.

    Args:
        layer: of N units in G modules
        input: (T, I)
        done: (T, N), the states
        energy: (G, L, G): the squared norms, by the slowest module that ticks at the input, lag, and module
        pairs: (G, L): how many they are
    """
    schedule, T, lags = layer.schedule, len(input), pairs.shape[1]
    N = schedule.hidden_size
    weight = torch.where(torch.from_numpy(schedule.mask()), layer.weight_hh_l0.detach(), 0)
    heard = layer.weight_ih_l0.detach() if layer.input_size else torch.eye(N, dtype=torch.float64)
    features = heard.shape[1]
    slopes = 1 - np.square(done) if layer.nonlinearity == "tanh" else (done > 0).astype(np.float64)
    derivative = torch.zeros(N, T, features, dtype=torch.float64)
    """Of the state at time t by the input at every time s."""
    norms = np.zeros((T, schedule.modules))
    """Their squares, module by module."""
    slowest = _slowest(schedule, T)
    for t in range(T):
        first = max(0, t - lags + 1)
        due = schedule.due(t)
        if due:
            rows = torch.cat([torch.arange(N)[schedule.slices[i]] for i in due])
            slope = torch.from_numpy(slopes[t])[rows, None]
            before = derivative[:, first:t].flatten(1)
            derivative[rows, first:t] = (slope * (weight[rows] @ before)).unflatten(1, (t - first, features))
            derivative[rows, t] = slope * heard[rows]
            for i in due:
                squares = derivative[schedule.slices[i], first : t + 1].square()
                norms[first : t + 1, i] = squares.sum(dim=(0, 2)).numpy()
        times = np.flatnonzero(slowest[first : t + 1] >= 0) + first
        # each lag once: nothing is added twice to one place
        places = slowest[times], t - times
        energy[places] += norms[times]
        pairs[places] += 1


@dataclass(frozen=True)
class Silenced:
    """What the output is worth when the state of one module is replaced, by the names of the measure."""

    zero_readout: Mapping[str, float]
    """By zero, for the readout only: what the module says to the output itself."""
    zero: Mapping[str, float]
    """By zero, for the readout and all modules that hear it: all that it says."""
    mean_readout: Mapping[str, float]
    """By its mean over all steps of all sequences, for the readout only."""
    mean: Mapping[str, float]
    """By its mean, for all: what is lost is what it does over time, not the constant that could be a bias."""


def silence(
    layer: ClockworkRNN, readout: nn.Linear, inputs: Sequence[ArrayLike], measure: Measure
) -> tuple[Mapping[str, float], list[Silenced]]:
    """What the output is worth as it is, and with each module silenced in turn.

    A silenced module has a constant state from before the first step on, for those that hear it; what it would have
    computed itself is heard by nobody.
    """
    plain, linear, sequences = _plain(layer), _linear(readout), _sequences(layer, inputs)
    intact = measure(_outputs(plain, linear, sequences))
    mean = torch.from_numpy(np.concatenate(_states(plain, sequences)).mean(axis=0))
    found = []
    for units in layer.schedule.slices:
        values = {}
        for name, value in (("zero", torch.zeros_like(mean)), ("mean", mean)):
            for suffix, everywhere in (("_readout", False), ("", True)):
                changed = _without(plain, linear, units, value[units], everywhere)
                values[name + suffix] = measure(_outputs(*changed, sequences))
        found.append(Silenced(**values))
    return intact, found


def _without(
    layer: ClockworkRNN, readout: nn.Linear, units: slice, value: Tensor, everywhere: bool
) -> tuple[ClockworkRNN, nn.Linear]:
    """The network in which the units have that value for the readout, and for all modules if `everywhere`."""
    layer, readout = _plain(layer), _linear(readout)
    heard = [(readout.weight, readout.bias)]
    if everywhere:
        heard.append((layer.get_parameter("weight_hh_l0"), layer.get_parameter("bias_l0")))
    for weight, bias in heard:
        # a constant is a bias
        bias.add_(weight[:, units] @ value)
        weight[:, units] = 0
    return layer, readout


@dataclass(frozen=True)
class Blocks:
    """How large the weights are, module by module."""

    recurrent: Array
    """(G, G): root mean square of the weights of weight_hh from the module of the column to that of the row; NaN where
    there are none, from fast modules to slow ones."""
    input: Array
    """(G,): norm of the weights from the input; 0 without one."""
    output: Array
    """(G,): norm of the readout's weights."""


def blocks(layer: ClockworkRNN, readout: nn.Linear) -> Blocks:
    """How large the weights from module to module are, those from the input and those to the output."""
    schedule = layer.schedule
    plain, weight_out = _plain(layer), readout.weight.detach().double()
    weight = plain.weight_hh_l0.detach()
    G = schedule.modules
    recurrent = np.full((G, G), np.nan)
    for i in range(G):
        for j in range(i, G):
            block = weight[schedule.slices[i], schedule.slices[j]]
            recurrent[i, j] = float(block.square().mean().sqrt())
    return Blocks(
        recurrent,
        np.array([float(plain.weight_ih_l0.detach()[units].norm()) for units in schedule.slices]),
        np.array([float(weight_out[:, units].norm()) for units in schedule.slices]),
    )


@dataclass(frozen=True)
class Cost:
    """Multiply-adds per time step, averaged over the clock."""

    recurrent: Array
    """(G,): of what each module says to itself and to all faster ones, once per tick."""
    input: Array
    """(G,): of what each module hears of the input."""
    readout: Array
    """(G,): of what each module says to the output, once per tick."""
    dense: float
    """Of all, if all units ticked at every step and heard all others: an Elman network (SRN) of the same size."""

    @property
    def total(self) -> Array:
        """(G,): of each module."""
        return self.recurrent + self.input + self.readout


def cost(schedule: Schedule, input_size: int, output_size: int) -> Cost:
    """The multiply-adds of each module, counted as the layer and its Readout compute them.

    >>> float(cost(Schedule.exponential(1024, 8), 0, 0).total.sum())  # Schedule.operations counts the same
    64256.0
    """
    N = schedule.hidden_size
    sizes, periods = np.array(schedule.sizes, dtype=np.float64), np.array(schedule.periods, dtype=np.float64)
    hearing = np.array([units.stop for units in schedule.slices])
    return Cost(
        recurrent=sizes * hearing / periods,
        input=sizes * input_size / periods,
        readout=sizes * output_size / periods,
        dense=float(N * (N + input_size + output_size)),
    )


@dataclass(frozen=True)
class Module:
    """What is to be known of one module."""

    period: int
    units: int
    operations: float
    """Multiply-adds per step."""
    share: float
    """Of the multiply-adds of all modules."""
    variance: float
    """Of its units' states over all steps of all sequences, their mean."""
    median_frequency: float
    """Up to which half of its power lies, in cycles per step; NaN if it does not move."""
    in_band: float
    """The share of its power up to 1 / (2 P); NaN if it does not move."""
    reach: int | None
    """The longest lag at which the memory is at least 1 / e of its highest."""
    reach_is_open: bool
    """Whether the data end there."""
    input_weight: float
    """The norm of its weights from the input."""
    output_weight: float
    """The norm of the readout's weights for it."""
    silenced: Silenced


@dataclass(frozen=True)
class Inspection:
    """All that was found."""

    schedule: Schedule
    spectrum: Spectrum
    memory: Memory
    blocks: Blocks
    cost: Cost
    intact: Mapping[str, float]
    """What the output is worth as it is."""
    modules: Sequence[Module]


def inspect(
    layer: ClockworkRNN,
    readout: nn.Linear,
    inputs: Sequence[ArrayLike],
    measure: Measure,
    *,
    longest: int | None = None,
) -> Inspection:
    """All that can be told of a network on these sequences; `longest` is that of `memory`.

    >>> rnn, linear = ClockworkRNN(3, 8, schedule=[1, 4]), nn.Linear(8, 1)
    >>> found = inspect(rnn, linear, [np.random.randn(20, 3)], lambda outputs: {"largest": float(outputs[0].max())})
    >>> [module.period for module in found.modules]
    [1, 4]
    """
    schedule = layer.schedule
    done = states(layer, inputs)
    moving = spectrum(done, schedule)
    remembered = memory(layer, inputs, longest)
    weights = blocks(layer, readout)
    counted = cost(schedule, layer.input_size, readout.out_features)
    intact, silenced = silence(layer, readout, inputs, measure)
    variance = np.concatenate(done).var(axis=0)
    modules = [
        Module(
            period=period,
            units=schedule.sizes[i],
            operations=float(counted.total[i]),
            share=float(counted.total[i] / counted.total.sum()),
            variance=float(variance[schedule.slices[i]].mean()),
            median_frequency=moving.median(i),
            in_band=moving.share_below(i, 1 / (2 * period)),
            reach=remembered.reach(i),
            reach_is_open=remembered.is_open(i),
            input_weight=float(weights.input[i]),
            output_weight=float(weights.output[i]),
            silenced=silenced[i],
        )
        for i, period in enumerate(schedule.periods)
    ]
    return Inspection(schedule, moving, remembered, weights, counted, intact, modules)


def _plain(layer: ClockworkRNN) -> ClockworkRNN:
    """A copy of the layer in float64 that has a bias; one that cannot be inspected is refused."""
    if layer.num_layers != 1 or layer.bidirectional:
        raise ValueError(
            "inspection takes one layer of one direction, "
            f"got num_layers={layer.num_layers}, bidirectional={layer.bidirectional}"
        )
    plain = ClockworkRNN(
        layer.input_size,
        layer.hidden_size,
        nonlinearity=layer.nonlinearity,
        dtype=torch.float64,
        schedule=layer.schedule,
        backend="torch",
    )
    _copy(layer, plain)
    plain.clear_forbidden_weights()
    return plain.requires_grad_(False)


def _linear(readout: nn.Linear) -> nn.Linear:
    """A copy of the readout in float64 that has a bias."""
    linear = nn.Linear(readout.in_features, readout.out_features, dtype=torch.float64)
    _copy(readout, linear)
    return linear.requires_grad_(False)


@torch.no_grad()
def _copy(source: nn.Module, target: nn.Module) -> None:
    """The parameters of one for those of the other; what the source does not have is zero."""
    for name, parameter in target.named_parameters():
        given: Tensor | None = getattr(source, name, None)
        parameter.copy_(torch.zeros_like(parameter) if given is None else given)


def _sequences(layer: ClockworkRNN, inputs: Sequence[ArrayLike]) -> list[Tensor]:
    found = [torch.tensor(np.asarray(each, dtype=np.float64)) for each in inputs]
    if not found:
        raise ValueError("inspection needs at least one sequence")
    for each in found:
        if each.dim() != 2 or each.shape[1] != layer.input_size or len(each) == 0:
            raise ValueError(f"a sequence must be (T, {layer.input_size}), T >= 1, got {tuple(each.shape)}")
    return found


def _states(layer: ClockworkRNN, sequences: Sequence[Tensor]) -> list[Array]:
    return [layer(each[:, None])[0][:, 0].numpy() for each in sequences]


def _outputs(layer: ClockworkRNN, readout: nn.Linear, sequences: Sequence[Tensor]) -> list[Array]:
    return [readout(torch.from_numpy(each)).numpy() for each in _states(layer, sequences)]
