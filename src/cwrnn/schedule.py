"""Schedule: the modules of a hidden layer, and the times at which each of them ticks.

A schedule is a value made of integers only. It is built, printed, counted and tested without any layer, and a layer
takes it in place of the number of modules.

    >>> print(Schedule.exponential(hidden_size=10, modules=4))
    10 units in 4 modules, 4.1x fewer multiply-adds than a dense RNN
    module  period  size  t = 0       8       16      24      32      40      48      56
         1       1     3      ################################################################
         2       2     3      #.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.#.
         3       4     2      #...#...#...#...#...#...#...#...#...#...#...#...#...#...#...#...
         4       8     2      #.......#.......#.......#.......#.......#.......#.......#.......
"""

import itertools
import math
import operator
import random
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .extras import require

LONGEST = 2**40
"""The longest period, and the most units: with more, the strides of a tensor would not fit their integers."""

MOST_MODULES = 2**18
"""The most modules: the weights of a layer with more would fill 256 GiB."""


class Operations(NamedTuple):
    """Multiply-adds per time step of a hidden layer, averaged over the clock and counted in three ways.

    They are those of one gate: an LSTM takes 4 times as many, a GRU 3 times.

    >>> operations = Schedule.exponential(1024, 8).operations()
    >>> round(operations.dense / operations.cascade, 1)  # the cascade needs 16 times fewer than a dense RNN
    16.3
    """

    dense: float
    """The multiply-adds of an Elman network (SRN) of the same size."""
    paper: float
    """The count of the paper's appendix: a module that ticks multiplies the outputs of all slower modules again."""
    cascade: float
    """The count of the cascade: a module that ticks computes its message to itself and all faster modules once."""


@dataclass(frozen=True)
class Schedule:
    """The periods and sizes of the modules, sorted by increasing period; modules of equal period are merged.

    >>> Schedule(periods=(4, 1, 4), sizes=(2, 3, 1))
    Schedule(periods=(1, 4), sizes=(3, 3))
    """

    periods: tuple[int, ...]
    """P_i: module i ticks at the times t with t mod P_i == 0."""
    sizes: tuple[int, ...]
    """K_i, the number of units of module i."""
    hidden_size: int = field(init=False, repr=False, compare=False)
    """N, the number of hidden units."""
    slices: tuple[slice, ...] = field(init=False, repr=False, compare=False)
    """The position of each module's units among the N hidden units."""

    def __post_init__(self) -> None:
        periods = _positive_integers("periods", self.periods)
        sizes = _positive_integers("sizes", self.sizes)
        if len(periods) != len(sizes):
            raise ValueError(f"periods and sizes must be of equal length, got {len(periods)} and {len(sizes)}")
        if not periods:
            raise ValueError("a schedule needs at least one module, got no periods")
        merged: dict[int, int] = {}
        for period, size in sorted(zip(periods, sizes, strict=True)):
            merged[period] = merged.get(period, 0) + size
        if max(merged) > LONGEST:
            raise ValueError(f"periods must be at most 2**40, got {max(merged)}")
        if sum(sizes) > LONGEST:
            raise ValueError(f"sizes must be at most 2**40 units in all, got {sum(sizes)}")
        ends = list(itertools.accumulate(merged.values()))
        object.__setattr__(self, "periods", tuple(merged))
        object.__setattr__(self, "sizes", tuple(merged.values()))
        object.__setattr__(self, "hidden_size", ends[-1])
        object.__setattr__(
            self, "slices", tuple(slice(end - merged[p], end) for p, end in zip(merged, ends, strict=True))
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # a pickle holds integers only, and the constructor checks them
        return Schedule, (self.periods, self.sizes)

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        # pickles of earlier versions set the attributes; only these two count, and they are checked like arguments
        if not isinstance(state, Mapping) or not {"periods", "sizes"} <= set(state):
            raise ValueError(f"a pickled schedule has periods and sizes, got {state!r}")
        object.__setattr__(self, "periods", state["periods"])
        object.__setattr__(self, "sizes", state["sizes"])
        self.__post_init__()

    @classmethod
    def resolve(cls, value: "Schedule | str | Iterable[int] | int | None", hidden_size: int) -> "Schedule":
        """The schedule of `hidden_size` units that `value` describes, in any form that a layer accepts.

        Args:
            value: a Schedule; its text form, as `print(rnn)` and `spec` show it; a sequence of periods, over which the
                units are split evenly; the number of modules, with periods 1, 2, 4, ...; or None for
                min(8, hidden_size) of those
            hidden_size: N, the number of hidden units

        >>> Schedule.resolve("1:4,2:4", 8)
        Schedule(periods=(1, 2), sizes=(4, 4))
        >>> Schedule.resolve([1, 2], 8) == Schedule.resolve(2, 8) == Schedule.resolve("1:4,2:4", 8)
        True
        >>> Schedule.resolve(None, 8).periods
        (1, 2, 4, 8, 16, 32, 64, 128)
        """
        if value is None:
            return cls.exponential(hidden_size, min(8, hidden_size))
        if isinstance(value, (int, np.integer)):
            return cls.exponential(hidden_size, value)
        if isinstance(value, (bytes, Mapping, Set)) or not isinstance(value, (Schedule, str, Iterable)):
            raise TypeError(
                "schedule must be a Schedule, its text form, a sequence of periods, a number of modules or None, "
                f"got {value!r}"
            )
        if not isinstance(value, (Schedule, str)):
            return cls.from_periods(hidden_size, value)
        schedule = cls.parse(value) if isinstance(value, str) else value
        if schedule.hidden_size != hidden_size:
            raise ValueError(f"the schedule has {schedule.hidden_size} units, but hidden_size={hidden_size}")
        return schedule

    @classmethod
    def from_periods(cls, hidden_size: int, periods: Iterable[int]) -> "Schedule":
        """The schedule with these periods and modules of equal size.

        If the units cannot be divided evenly, the fastest modules get one unit more.

        >>> Schedule.from_periods(11, [1, 2, 4])
        Schedule(periods=(1, 2, 4), sizes=(4, 4, 3))
        """
        periods = sorted(_positive_integers("periods", periods))
        if not periods:
            raise ValueError("a schedule needs at least one module, got no periods")
        hidden_size = _positive_integer("hidden_size", hidden_size)
        _check_modules(len(periods), hidden_size)
        share, remainder = divmod(hidden_size, len(periods))
        return cls(tuple(periods), tuple(share + (i < remainder) for i in range(len(periods))))

    @classmethod
    def exponential(cls, hidden_size: int, modules: int, base: float = 2) -> "Schedule":
        """The schedule with the periods 1, base, base^2, ..., the series of the paper, and modules of equal size.

        Periods are rounded, and each is at least 1 above the one before.

        >>> Schedule.exponential(9, 9).periods
        (1, 2, 4, 8, 16, 32, 64, 128, 256)
        >>> Schedule.exponential(8, 8, base=1.5).periods
        (1, 2, 3, 4, 5, 8, 11, 17)
        """
        if not base > 1 or not math.isfinite(base):
            raise ValueError(f"base must be a number greater than 1, got {base!r}")
        modules = _check_modules(modules, hidden_size)
        # an integer base stays exact beyond the integers that a float can hold
        return cls.from_periods(hidden_size, _increasing(round(base**i) for i in range(modules)))

    @classmethod
    def linear(cls, hidden_size: int, modules: int, step: int = 1) -> "Schedule":
        """The schedule with the periods 1, 1 + step, 1 + 2 step, ... and modules of equal size.

        >>> Schedule.linear(5, 5, step=3).periods
        (1, 4, 7, 10, 13)
        """
        step = _positive_integer("step", step)
        modules = _check_modules(modules, hidden_size)
        return cls.from_periods(hidden_size, (1 + step * i for i in range(modules)))

    @classmethod
    def fibonacci(cls, hidden_size: int, modules: int) -> "Schedule":
        """The schedule with the Fibonacci numbers 1, 2, 3, 5, 8, ... as periods and modules of equal size.

        >>> Schedule.fibonacci(6, 6).periods
        (1, 2, 3, 5, 8, 13)
        """
        modules = _check_modules(modules, hidden_size)
        periods = [1, 2]
        while len(periods) < modules:
            periods.append(_check_period(periods[-2] + periods[-1]))
        return cls.from_periods(hidden_size, periods[:modules])

    @classmethod
    def logarithmic(cls, hidden_size: int, modules: int, longest: int | None = None) -> "Schedule":
        """The schedule with periods from 1 to `longest` that grow as the logarithm of the module's number.

        Most of its modules are slow, whereas most modules of the exponential series are fast.

        Args:
            hidden_size: N, the number of hidden units
            modules: G, the number of modules, all of equal size
            longest: the longest period. Default: 2^(modules - 1), as in the exponential series

        >>> Schedule.logarithmic(6, 6).periods
        (1, 13, 20, 25, 29, 32)
        """
        modules = _check_modules(modules, hidden_size)
        longest = _check_longest(longest, modules)
        span = (longest - 1) / math.log(modules) if modules > 1 else 0.0
        periods = _increasing(1 + round(span * math.log(i)) for i in range(1, modules + 1))
        # at its end the series is so flat that rounding could push it beyond the longest period
        for i in reversed(range(modules)):
            periods[i] = min(periods[i], longest - (modules - 1 - i))
        return cls.from_periods(hidden_size, periods)

    @classmethod
    def random(cls, hidden_size: int, modules: int, seed: int, longest: int | None = None) -> "Schedule":
        """The schedule with different random periods from 1 to `longest`, always the same for the same seed.

        Args:
            hidden_size: N, the number of hidden units
            modules: G, the number of modules, all of equal size
            seed: the seed of the draw
            longest: the longest period. Default: 2^(modules - 1), as in the exponential series

        >>> Schedule.random(4, 4, seed=0, longest=20) == Schedule.random(4, 4, seed=0, longest=20)
        True
        """
        modules = _check_modules(modules, hidden_size)
        longest = _check_longest(longest, modules)
        generator = random.Random(operator.index(seed))
        return cls.from_periods(hidden_size, generator.sample(range(1, longest + 1), modules))

    @classmethod
    def from_spectrum(
        cls,
        signal: Any,
        hidden_size: int,
        modules: int | None = None,
        *,
        periods: Iterable[int] | None = None,
    ) -> "Schedule":
        """The schedule with module sizes proportional to the energy of a signal in each module's band.

        The paper suggests such schedules in section 5. A module of period P can follow frequencies up to 1 / (2 P).
        The band of a module lies below its own limit and above the limit of the next slower module; the band of the
        slowest module begins above frequency 0, so that the mean does not count. Energies come from the Welch spectrum
        (scipy, extra `spectrum`). Every module gets at least one unit.

        Args:
            signal: (time,) or (time, channels); the energies of the channels are added
            hidden_size: N, the number of hidden units
            modules: the number of modules, with periods 1, 2, 4, ...; give either this or `periods`
            periods: the periods of the modules

        >>> t = np.arange(4096)
        >>> slow = np.sin(2 * np.pi * t / 100)  # a wave of 100 steps needs a period of at most 50
        >>> Schedule.from_spectrum(slow, 20, periods=[1, 8, 32, 64]).sizes
        (1, 1, 17, 1)
        """
        signal = np.asarray(signal, dtype=np.float64)
        if signal.ndim not in (1, 2):
            raise ValueError(f"signal must be (time,) or (time, channels), got shape {signal.shape}")
        if not np.isfinite(signal).all():
            raise ValueError("signal must be finite, got NaN or infinity")
        if (modules is None) == (periods is None):
            raise ValueError("give either modules or periods")
        if periods is None:
            assert modules is not None
            periods = cls.exponential(hidden_size, modules).periods
        periods = sorted(set(_positive_integers("periods", periods)))
        hidden_size = _positive_integer("hidden_size", hidden_size)
        _check_modules(len(periods), hidden_size)
        longest = periods[-1]
        if signal.shape[0] < 2 * longest:
            raise ValueError(
                f"signal of {signal.shape[0]} steps is too short for a period of {longest}: "
                f"at least {2 * longest} steps are needed"
            )
        welch = require("scipy.signal", extra="spectrum", purpose="Schedule.from_spectrum").welch
        largest = np.abs(signal).max()
        if largest > 0 and not 1e-100 < largest < 1e100:
            # the power would not be a finite number above 0; only the ratios of energies count
            signal = signal / largest
        frequency, power = welch(signal, nperseg=min(signal.shape[0], 16 * longest), axis=0)
        power = power.reshape(len(frequency), -1).sum(axis=1)
        limits = 1 / (2 * np.asarray(periods))
        # the slowest module with a limit at or above the frequency; above all limits, the fastest module
        band = np.maximum((frequency[1:, None] <= limits).sum(axis=1) - 1, 0)
        energy = np.bincount(band, weights=power[1:], minlength=len(periods))
        if not energy.sum() > 0:
            raise ValueError("signal is constant: it has no spectrum to follow")
        return cls(tuple(periods), _apportion(hidden_size, energy.tolist()))

    @classmethod
    def parse(cls, text: str) -> "Schedule":
        """The schedule that `text` describes: pairs period:size, separated by commas, as `spec` writes them.

        >>> Schedule.parse("1:3, 2:3, 4:2").periods
        (1, 2, 4)
        """
        try:
            pairs = [(int(period), int(size)) for period, size in (part.split(":") for part in text.split(","))]
        except ValueError:
            raise ValueError(f"a schedule is written period:size,period:size,..., got {text!r}") from None
        return cls(tuple(period for period, _ in pairs), tuple(size for _, size in pairs))

    @property
    def spec(self) -> str:
        """The text form of the schedule, which `parse` reads: pairs period:size, separated by commas.

        >>> Schedule.exponential(10, 4).spec
        '1:3,2:3,4:2,8:2'
        """
        return ",".join(f"{period}:{size}" for period, size in zip(self.periods, self.sizes, strict=True))

    @property
    def modules(self) -> int:
        """G, the number of modules."""
        return len(self.periods)

    def due(self, t: int) -> tuple[int, ...]:
        """The indices of the modules that tick at time t.

        >>> Schedule.exponential(5, 5).due(6)  # figure 2: the modules of period 1 and 2
        (0, 1)
        """
        return tuple(i for i, period in enumerate(self.periods) if t % period == 0)

    def ticks(self, t0: int, T: int) -> tuple[range, ...]:
        """The times, on the absolute clock, at which each module ticks from t0 to t0 + T - 1.

        >>> Schedule.from_periods(3, [1, 2, 4]).ticks(5, 6)
        (range(5, 11), range(6, 11, 2), range(8, 11, 4))
        """
        return tuple(range(-(-t0 // period) * period, t0 + T, period) for period in self.periods)

    def mask(self) -> NDArray[np.bool_]:
        """The mask (N, N) of `weight_hh`: True where the weight [to, from] exists, as `from` is no faster than `to`.

        >>> Schedule.from_periods(3, [1, 2]).mask().astype(int).tolist()
        [[1, 1, 1], [1, 1, 1], [0, 0, 1]]
        """
        module = np.repeat(np.arange(self.modules), self.sizes)
        return module[:, None] <= module[None, :]

    def recurrent_parameter_count(self) -> int:
        """The number of recurrent weights that exist, N_H in the paper's appendix; an LSTM or a GRU has them per gate.

        >>> Schedule.exponential(40, 8).recurrent_parameter_count()  # n^2 / 2 + n k / 2
        900
        """
        return sum(self.sizes[i] * (self.hidden_size - rows.start) for i, rows in enumerate(self.slices))

    def parameter_count(self, input_size: int, output_size: int = 0, *, count_periods: bool = True) -> int:
        """The number of parameters of a hidden layer with one gate and one bias per unit, and of a linear readout.

        `count_parameters` of a layer counts those of any cell.

        Args:
            input_size: I, the number of features of the input
            output_size: the number of outputs of the readout; 0 for a hidden layer without one
            count_periods: whether the G periods count as parameters, as they do in the paper

        >>> Schedule.exponential(40, 9).parameter_count(input_size=0, output_size=1)  # table 1
        980
        """
        hidden = self.recurrent_parameter_count() + self.hidden_size * (input_size + 1)
        readout = output_size * (self.hidden_size + 1)
        return hidden + readout + count_periods * self.modules

    def operations(self, input_size: int = 0) -> Operations:
        """The multiply-adds per time step of the hidden layer, counted in three ways.

        Args:
            input_size: I, the number of features of the input; 0 counts the recurrent operations only

        >>> Schedule.exponential(1024, 8).operations()
        Operations(dense=1048576.0, paper=229504.0, cascade=64256.0)
        """
        N = self.hidden_size
        dense = paper = cascade = 0.0
        for period, size, rows in zip(self.periods, self.sizes, self.slices, strict=True):
            dense += size * (N + input_size)
            # appendix: module i reads itself and all slower modules
            paper += size * (N - rows.start + input_size) / period
            # module j sends a message to itself and all faster modules
            cascade += size * (rows.stop + input_size) / period
        return Operations(dense, paper, cascade)

    def __str__(self) -> str:
        width = 64
        operations = self.operations()
        marks = "".join(f"{t:<8}" for t in range(0, width, 8)).rstrip()
        plural = "s" if self.modules > 1 else ""
        lines = [
            f"{self.hidden_size} units in {self.modules} module{plural}, "
            f"{operations.dense / operations.cascade:.1f}x fewer multiply-adds than a dense RNN",
            f"module  period  size  t = {marks}",
        ]
        for i, (period, size) in enumerate(zip(self.periods, self.sizes, strict=True)):
            drawing = "".join("#" if t % period == 0 else "." for t in range(width))
            lines.append(f"{i + 1:6d}  {period:6d}  {size:4d}      {drawing}")
        return "\n".join(lines)


def _positive_integer(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = 0
    if number <= 0 or isinstance(value, (bool, np.bool_)):
        raise ValueError(
            f"{name} must be positive integers, got {value!r}"
            if name.endswith("s")
            else f"{name} must be a positive integer, got {value!r}"
        )
    return number


def _positive_integers(name: str, values: Any) -> list[int]:
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a sequence of positive integers, got {values!r}")
    # one more than there may be: an iterable need not end
    taken = list(itertools.islice(values, MOST_MODULES + 1))
    if len(taken) > MOST_MODULES:
        raise ValueError(f"{name} must be at most 2**18, one for each module, got more")
    return [_positive_integer(name, value) for value in taken]


def _check_modules(modules: Any, hidden_size: Any) -> int:
    hidden_size = _positive_integer("hidden_size", hidden_size)
    if isinstance(modules, bool) or not isinstance(modules, (int, np.integer)) or modules < 1:
        raise ValueError(f"the number of modules must be a positive integer, got {modules!r}")
    if modules > MOST_MODULES:
        raise ValueError(f"the number of modules must be at most 2**18, got {modules}")
    if modules > hidden_size:
        raise ValueError(f"{modules} modules need at least {modules} units, got hidden_size={hidden_size}")
    return int(modules)


def _check_longest(longest: int | None, modules: int) -> int:
    longest = min(2 ** (modules - 1), LONGEST) if longest is None else _positive_integer("longest", longest)
    if longest > LONGEST:
        raise ValueError(f"longest must be at most 2**40, got {longest}")
    if longest < modules:
        raise ValueError(f"{modules} different periods need longest >= {modules}, got longest={longest}")
    return longest


def _increasing(values: Iterable[int]) -> list[int]:
    result: list[int] = []
    for value in values:
        # checked one by one: the next power of a large base may not even be computable
        result.append(_check_period(max(value, result[-1] + 1) if result else value))
    return result


def _check_period(period: int) -> int:
    if period > LONGEST:
        raise ValueError(f"periods must be at most 2**40, got {period}")
    return period


def _apportion(units: int, energies: Sequence[float]) -> tuple[int, ...]:
    """Sizes of at least 1 that add up to `units`; units beyond 1 are shared out by energy (largest remainders)."""
    spare = units - len(energies)
    shares = [spare * energy / sum(energies) for energy in energies]
    sizes = [1 + math.floor(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: math.floor(shares[i]) - shares[i])
    for i in by_remainder[: units - sum(sizes)]:
        sizes[i] += 1
    return tuple(sizes)
