"""A GRU of several modules as one layer of cuDNN: gate z holds the modules that do not tick.

A GRU keeps a part z of its state, and where z is 1, all of it:

    h <- (1 - z) n + z h

So a further input of the layer holds a module: it is 1 at the steps at which the module does not tick, and its weights
are 2^14 to the gates z of the module's units and 0 elsewhere. The layer has all N units and the recurrent weights W_hh,
with zeros in the forbidden blocks. It runs at the steps at which any module may tick: all multiples of the greatest
common divisor of the periods.

    input of the layer    [ x(t)  1 if t mod P_2 != 0  1 if t mod P_3 != 0 ... ]

cuDNN may compute n + z (h - n), which rounds, so a state that the layer holds may change in its last digits. The states
of a module are taken from the steps at which it ticks (`pick_ticks`), and the output repeats them bit for bit.

The layer multiplies all its weights at every step, as `torch.nn.GRU` does. gru_steps.py multiplies less, but a tick of
it takes at least as long as Python needs to launch two kernels. `is_layer_faster` estimates both times.

Zero times infinity is NaN: an infinite or NaN input, state or weight of a module spoils all modules here, also those
that do not hear it.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .cudnn_layer import SATURATED
from .held import HeldSignal, last_tick_before, states_of
from .schedule import Schedule


class Speed(NamedTuple):
    """How fast one of the two ways computes a step, estimated from the times in benchmarks/gpu_backends.json (H200)."""

    least: float
    """Microseconds that a step takes at least."""
    bytes: float
    """Bytes of weights that it reads in a microsecond."""
    products: dict[torch.dtype, float]
    """Multiply-adds in a microsecond. For float32 those with torch's defaults: cuDNN uses tf32, a matrix product does
    not. float64 was not measured; it has the numbers of float32 without tf32."""

    def estimate(self, units: int, B: int, dtype: torch.dtype) -> float:
        """Microseconds of a step of a GRU with so many units."""
        weights = 3 * units * units
        return max(self.least, weights * dtype.itemsize / self.bytes, weights * B / self.products[dtype])


_WITHOUT_TF32 = {torch.bfloat16: 2.2e8, torch.float16: 2.2e8, torch.float32: 1.8e7, torch.float64: 1.8e7}
LAYER = Speed(15.0, 3.2e6, _WITHOUT_TF32 | {torch.float32: 9.6e7})
"""cuDNN's layer."""
TICKS = Speed(40.0, 1.0e6, _WITHOUT_TF32)
"""Single ticks, of which each is a matrix product and a cell."""


def find_period(schedule: Schedule) -> int:
    """The number of time steps from one step of the layer to the next: the greatest common divisor of all periods."""
    return math.gcd(*schedule.periods)


def is_layer_faster(B: int, dtype: torch.dtype, schedule: Schedule) -> bool:
    """Whether one layer should take less time than modules that run tick by tick, by an estimate of both.

    >>> is_layer_faster(64, torch.float32, Schedule((1, 2), (1024, 1024)))
    True
    >>> is_layer_faster(256, torch.bfloat16, Schedule((1, 2), (4096, 4096)))
    False
    """
    # microseconds per time step
    by_ticks = 0.0
    for i, (period, units) in enumerate(zip(schedule.periods, schedule.sizes, strict=True)):
        # the slowest module is a layer of its own
        speed = LAYER if i == schedule.modules - 1 else TICKS
        messages = 3 * units * sum(schedule.sizes[:i]) * B / TICKS.products[dtype]
        by_ticks += (speed.estimate(units, B, dtype) + messages) / period
    return LAYER.estimate(schedule.hidden_size, B, dtype) / find_period(schedule) < by_ticks


def join_input(input: Tensor, weight_ih: Tensor, schedule: Schedule, first: int) -> tuple[Tensor, Tensor]:
    """The input of the layer (n, B, ...) and its weights (3 N, ...), from x at its steps and weight_ih.

    Both are zero in a few last columns, because cuDNN multiplies widths that are multiples of 8 faster.

    Args:
        input: (n, B, I), x at the steps of the layer
        weight_ih: (3 N, I)
        schedule: the modules
        first: the clock at the first of these steps
    """
    n, B, I = input.shape
    period = find_period(schedule)
    held = [i for i in range(schedule.modules) if schedule.periods[i] != period]
    width = -(-(I + len(held)) // 8) * 8 - I
    times = torch.arange(first, first + n * period, period, device=input.device)
    holding = input.new_zeros((n, 1, width))
    columns = weight_ih.new_zeros((3, schedule.hidden_size, width))
    for column, i in enumerate(held):
        holding[:, 0, column] = times % schedule.periods[i] != 0
        columns[1, schedule.slices[i], column] = SATURATED
    joined = torch.cat((input, holding.expand(n, B, width)), dim=-1)
    return joined, torch.cat((weight_ih, columns.flatten(0, 1)), dim=1)


def clear_forbidden(weight_hh: Tensor, schedule: Schedule) -> Tensor:
    """weight_hh (3 N, N) with zeros in the blocks from fast modules to slow ones, whatever stands there."""
    gates = weight_hh.unflatten(0, (3, schedule.hidden_size))
    return torch.cat(list(_pad_rows(gates, schedule)), dim=1).flatten(0, 1)


def _pad_rows(gates: Tensor, schedule: Schedule) -> Iterator[Tensor]:
    """The rows (3, K, N) of every module, with zeros in the place of faster modules."""
    for units in schedule.slices:
        yield F.pad(gates[:, units, units.start :], (units.start, 0))


def pick_ticks(output: Tensor, h0: Tensor, schedule: Schedule, t0: int) -> tuple[HeldSignal, ...]:
    """The states of every module at its own ticks, from the output (n, B, N) of the layer and h0 (B, N)."""
    step = find_period(schedule)
    in_steps = Schedule(tuple(period // step for period in schedule.periods), schedule.sizes)
    signals = states_of(output, h0, in_steps, last_tick_before(t0, step) // step + 1)
    return tuple(HeldSignal(values, period * step, start * step) for values, period, start in signals)
