"""A GRU of several modules as one layer of cuDNN: gate z holds the modules that do not tick.

A GRU keeps a part z of its state, and where z is 1, all of it:

    h <- (1 - z) n + z h

So a further input of the layer holds a module: it is 2^15 at the steps at which the module does not tick, and 0 at the
others. Its weights are 2^15 to the gates z and n of the module's units, and 0 elsewhere. Then z and n are 1, unless the
other inputs of these gates add up to about -2^30. In float16 the product may be infinite, which leaves z and n at 1 and
their gradients at 0. The layer has all N units and the recurrent weights W_hh, with zeros in the forbidden blocks. It
runs at the steps at which any module may tick: all multiples of the greatest common divisor of the periods.

    input of the layer    [ x(t)  2^15 if t mod P_2 != 0  2^15 if t mod P_3 != 0 ... ]

cuDNN may compute n + z (h - n), which rounds. Where n is 1, it rounds a held state once and not at every step. The
states of a module are taken from the steps at which it ticks (`states_of`), and the output repeats them bit for bit.

The layer multiplies all its weights at every step, as `torch.nn.GRU` does. gru_steps.py multiplies less, but a tick of
it takes at least as long as Python needs to launch two kernels. `is_layer_faster` estimates both times.

Zero times infinity is NaN: an infinite or NaN input, state or weight of a module spoils all modules here, also those
that do not hear it.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .cudnn_layer import SATURATED
from .kernels.precision import allows_tf32
from .schedule import Schedule

HALF, FLOAT32, TF32 = 2.2e8, 1.8e7, 9.6e7
"""Multiply-adds of large products in a microsecond: in half precision, and in float32 without and with tf32. These and
the following numbers are estimates from the times in benchmarks/gpu_backends.json (H200). float64, which was not
measured, has the number of float32."""


class Speed(NamedTuple):
    """How fast one of the two ways computes a step."""

    least: float
    """Microseconds that a step takes at least."""
    bytes: float
    """Bytes of weights that it reads in a microsecond."""

    def estimate(self, units: int, B: int, dtype: torch.dtype, products: float) -> float:
        """The microseconds of one step of a GRU with `units` units, at `products` multiply-adds in a microsecond."""
        weights = 3 * units * units
        return max(self.least, weights * dtype.itemsize / self.bytes, weights * B / products)


LAYER = Speed(15.0, 3.2e6)
"""cuDNN's layer."""
TICKS = Speed(40.0, 1.0e6)
"""Single ticks, of which each is a matrix product and a cell."""


def find_period(schedule: Schedule) -> int:
    """The number of time steps from one step of the layer to the next: the greatest common divisor of all periods."""
    return math.gcd(*schedule.periods)


def is_layer_faster(B: int, dtype: torch.dtype, schedule: Schedule) -> bool:
    """Whether one layer should take less time than modules that run tick by tick, by an estimate of both.

    >>> is_layer_faster(64, torch.float32, Schedule((1, 2), (1024, 1024)))
    True
    >>> is_layer_faster(256, torch.bfloat16, Schedule((1, 2), (2048, 2048)))
    False
    """
    in_layer, in_products = (_find_products(dtype, operator) for operator in ("rnn", "matmul"))
    # microseconds per time step
    by_ticks = 0.0
    for i, (period, units) in enumerate(zip(schedule.periods, schedule.sizes, strict=True)):
        if i == schedule.modules - 1:
            # the slowest module is a layer of its own
            tick = LAYER.estimate(units, B, dtype, in_layer)
        else:
            tick = TICKS.estimate(units, B, dtype, in_products)
        messages = 3 * units * sum(schedule.sizes[:i]) * B / in_products
        by_ticks += (tick + messages) / period
    return LAYER.estimate(schedule.hidden_size, B, dtype, in_layer) / find_period(schedule) < by_ticks


def _find_products(dtype: torch.dtype, operator: str) -> float:
    if dtype.itemsize == 2:
        return HALF
    return TF32 if dtype == torch.float32 and allows_tf32(operator) else FLOAT32


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
    step = find_period(schedule)
    held = [i for i in range(schedule.modules) if schedule.periods[i] != step]
    width = -(-(I + len(held)) // 8) * 8 - I
    holding = input.new_zeros((n, 1, width))
    holding[..., : len(held)] = SATURATED
    columns = weight_ih.new_zeros((3, schedule.hidden_size, width))
    for column, i in enumerate(held):
        period = schedule.periods[i]
        holding[-first % period // step :: period // step, 0, column] = 0
        columns[1:, schedule.slices[i], column] = SATURATED
    joined = torch.cat((input, holding.expand(n, B, width)), dim=-1)
    return joined, torch.cat((weight_ih, columns.flatten(0, 1)), dim=1)


def clear_forbidden(weight_hh: Tensor, schedule: Schedule) -> Tensor:
    """weight_hh (3 N, N) with zeros in the blocks from fast modules to slow ones, whatever stands there."""
    # autograd joins the gradients of a tensor once if it was split once
    rows = weight_hh.unflatten(0, (3, schedule.hidden_size)).split(schedule.sizes, dim=1)
    starts = [units.start for units in schedule.slices]
    filled = [F.pad(own[..., start:], (start, 0)) for own, start in zip(rows, starts, strict=True)]
    return torch.cat(filled, dim=1).flatten(0, 1)
