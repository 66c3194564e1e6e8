"""The GPU kernel of a single time step: one launch of a CUDA program (cuda/step.cu).

A step takes less time than the Python code around it. Therefore the first step of a stream checks weights, shapes and
device, and prepares the arguments of the launch (`PreparedStep`), which stay with the state. The next step writes the
addresses of its tensors into them. Weights are read anew at every step, so a change of their numbers needs no notice.

One clock of the whole batch is part of the launch, and a captured CUDA graph repeats it. A tensor of clocks on the GPU
is read when the program runs: a captured graph then continues the stream from whatever the tensor holds.
"""

import logging
from array import array
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...cells import CELLS
from ...checks import INTEGERS, LATEST, is_autocast_on
from ...schedule import Schedule
from ...step import clockwork_step
from ..eligibility import is_plain_eager, wants_gradient
from ..tensors import LOW_ADDRESS, check_network, check_shapes, dense, pointer, whole, with_memory
from . import driver

logger = logging.getLogger("cwrnn")

CELL_NUMBERS = {"tanh": 0, "relu": 1, "lstm": 2, "gru": 3}
"""The numbers of the cells in cuda/step.cu."""
CAPACITIES = (8, 32, 128)
"""A program is compiled for at most so many modules. A launch copies its arguments, which may have 4 KB."""
WARPS = 4
"""Warps of a block, as in cuda/step.cu."""
ENOUGH_WARPS = 1024
"""Warps that keep a GPU busy: a warp computes several units only if as many warps remain."""
LARGEST = 2**31 - 1
"""The most units, inputs and sequences, which the program counts in 32 bits."""

# where the members of the structure `Call` of cuda/step.cu stand in an array of 64-bit integers
(
    FIELD_B, FIELD_I, FIELD_N, FIELD_GROUPS, FIELD_MODULES,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_HH, FIELD_BIAS, FIELD_WEIGHT_CH,
    FIELD_INPUT, FIELD_H, FIELD_NEXT, FIELD_OUTPUT, FIELD_CLOCKS, FIELD_CLOCK,
    FIELD_TABLE,
) = range(16)  # fmt: skip


class PreparedStep:
    """The arguments of a step's launch, for weights, shapes and a device that were checked.

    It is a `MessageCache` that holds no messages.
    """

    def __init__(
        self,
        schedule: Schedule,
        input: Tensor,
        h: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        cell: str,
        weight_ch: Tensor | None,
    ) -> None:
        B, N, (gates, _, parts) = input.shape[0], schedule.hidden_size, CELLS[cell]
        self.schedule, self.cell = schedule, cell
        self.weights = weight_ih, weight_hh, bias, weight_ch
        self.descriptions = tuple(map(_describe, self.weights))
        # references, because the launch reads them after this function
        self.read = with_memory(
            weight_ih=dense(weight_ih, 2), weight_hh=dense(weight_hh, 2), bias=dense(bias, 1),
            weight_ch=dense(weight_ch, 1),
        )  # fmt: skip
        self.lasts = all(
            own is None or (own is given and isinstance(given, Parameter))
            for own, given in zip(self.read, self.weights, strict=True)
        )
        self.dtype, self.device, self.index = input.dtype, input.device, input.get_device()
        self.input_shape, self.output_shape = input.shape, (B, N)
        self.state_shape = torch.Size((1, B, parts * N))
        units, sequences = choose_tile(B, N, gates)
        groups, table = _list_modules(schedule, units)
        capacity = min(size for size in CAPACITIES if size >= schedule.modules)
        constants = (
            ("ELEMENT", driver.ELEMENTS[input.dtype]), ("CELL", CELL_NUMBERS[cell]), ("UNITS", units),
            ("SEQUENCES", sequences), ("MODULES", capacity),
        )  # fmt: skip
        self.program: Any = driver.load_program("step.cu", "compute_step", constants, 32 * WARPS, 0, self.index)
        self.columns, self.rows = -(-B // sequences), -(-groups // WARPS)
        self.fields = array("q", [*[0] * FIELD_TABLE, *table, *[0] * (3 * (capacity - schedule.modules))])
        self.fields[FIELD_B], self.fields[FIELD_I], self.fields[FIELD_N] = B, input.shape[1], N
        self.fields[FIELD_GROUPS], self.fields[FIELD_MODULES] = groups, schedule.modules
        for field, weight in enumerate(self.read, FIELD_WEIGHT_IH):
            self.fields[field] = pointer(weight)

    def fits(
        self,
        schedule: Schedule,
        weight_ih: Tensor | None,
        weight_hh: Tensor | None,
        bias: Tensor | None,
        cell: str,
        weight_ch: Tensor | None,
    ) -> bool:
        """Whether cell, schedule and weights are those that were checked, and the weights lie where they did."""
        own_ih, own_hh, own_bias, own_ch = self.weights
        return (
            own_ih is weight_ih and own_hh is weight_hh and own_bias is bias and own_ch is weight_ch
            and cell == self.cell
            and (self.schedule is schedule or self.schedule == schedule)
            and (_describe(own_ih), _describe(own_hh), _describe(own_bias), _describe(own_ch)) == self.descriptions
        )  # fmt: skip

    def takes(self, input: Tensor, h: Tensor) -> bool:
        """Whether dtype and device of the tensors of a step are those that were checked."""
        return (
            input.dtype is h.dtype is self.dtype
            and input.get_device() == h.get_device() == self.index
            and input.shape == self.input_shape
        )

    def step(self, input: Tensor, h: Tensor, t: int | Tensor) -> tuple[Tensor, Tensor]:
        """The output (B, N), and the next state in the shape of h. t is one clock, or a tensor (B,) of clocks."""
        input, h = whole(input), whole(h)
        at_input, at_h = input.data_ptr(), h.data_ptr()
        if at_input < LOW_ADDRESS or at_h < LOW_ADDRESS:
            input, h = with_memory(input=input, state=h)
            at_input, at_h = input.data_ptr(), h.data_ptr()
        output, after = input.new_empty(self.output_shape), torch.empty_like(h)
        fields = self.fields
        fields[FIELD_INPUT], fields[FIELD_H] = at_input, at_h
        fields[FIELD_NEXT], fields[FIELD_OUTPUT] = after.data_ptr(), output.data_ptr()
        if isinstance(t, int):
            fields[FIELD_CLOCKS], fields[FIELD_CLOCK] = 0, t
        else:
            # a copy lives until the launch, and its memory is reused by later work of the same stream only
            clocks = t.to(self.device).contiguous()
            fields[FIELD_CLOCKS] = clocks.data_ptr()
        driver.launch_on(self.index, self.program, self.columns, self.rows, fields)
        return output, after

    def step_if_unchanged(
        self, input: Any, h: Tensor, t: int | Tensor, cell: str, schedule: Schedule, parameters: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor] | None:
        """`step` at once, if nothing but input, state and time has changed since the last one; else None."""
        if (
            is_plain_eager()
            and type(input) is Tensor
            and type(h) is Tensor
            and self.takes(input, h)
            and h.shape == self.state_shape
            and self.fits(
                schedule, parameters.get("weight_ih_l0"), parameters.get("weight_hh_l0"), parameters.get("bias_l0"),
                cell, parameters.get("weight_ch_l0"),
            )
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled(self.device.type)
            and (
                t <= LATEST
                if type(t) is int
                else type(t) is Tensor and t.dtype is torch.int64 and t.shape == input.shape[:1]
            )
        ):  # fmt: skip
            return self.step(input, h, t)
        return None


def step(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor,
    schedule: Schedule,
    t: int | Tensor,
    cell: str,
    messages: Any = None,
    weight_ch: Tensor | None = None,
) -> tuple[Tensor, Tensor, PreparedStep | None]:
    """One time step, as `clockwork_step`, which computes it if gradients are wanted or if a launch cannot."""
    tensors = input, weight_ih, weight_hh, bias, h, weight_ch
    clocks = t if isinstance(t, Tensor) else None
    if not is_plain_eager((*tensors, clocks)) or wants_gradient(tensors) or not _can_launch(input, h, schedule, t):
        return clockwork_step(input, weight_ih, weight_hh, bias, h, schedule, t, cell, weight_ch=weight_ch)
    network = weight_ih, weight_hh, bias, cell, weight_ch
    if not (isinstance(messages, PreparedStep) and messages.takes(input, h) and messages.fits(schedule, *network)):
        check_network(input, weight_ih, weight_hh, bias, h, schedule.hidden_size, cell, weight_ch)
        _check_devices_and_dtypes(input, h, weight_ih, weight_hh, bias, weight_ch)
        messages = PreparedStep(schedule, input, h, *network)
    elif h.shape != messages.state_shape[1:]:
        raise ValueError(f"the state must be {tuple(messages.state_shape[1:])}, got {tuple(h.shape)}")
    if clocks is not None:
        if clocks.shape != input.shape[:1] or clocks.dtype not in INTEGERS:
            raise ValueError(
                f"the clocks must be integers of shape {tuple(input.shape[:1])}, "
                f"got {clocks.dtype} {tuple(clocks.shape)}"
            )
        t = clocks if clocks.dtype is torch.int64 else clocks.to(torch.int64)
    output, after = messages.step(input, h, t)
    return output, after, messages if messages.lasts else None


def choose_tile(B: int, N: int, gates: int) -> tuple[int, int]:
    """The units and the sequences of a warp.

    >>> choose_tile(1, 1024, 1), choose_tile(64, 1024, 1), choose_tile(64, 1024, 4)
    ((1, 1), (4, 8), (1, 8))
    """
    sequences = min(8, 1 << (B - 1).bit_length())
    if gates == 1:
        for units in (4, 2):
            if units * sequences <= 32 and N // units * -(-B // sequences) >= ENOUGH_WARPS:
                return units, sequences
    return 1, sequences


@lru_cache(maxsize=1024)
def _list_modules(schedule: Schedule, units: int) -> tuple[int, tuple[int, ...]]:
    """The groups of `units` units, and for each module the structure `Module`: first group, first unit, period."""
    groups = 0
    table: list[int] = []
    for period, rows in zip(schedule.periods, schedule.slices, strict=True):
        table += groups, rows.start, period
        groups += -(-(rows.stop - rows.start) // units)
    return groups, tuple(table)


def _describe(weight: Tensor | None) -> tuple[int, torch.Size, torch.dtype, bool] | None:
    """What the launch depends on. `to` and `.data` replace the memory of the same parameter."""
    return None if weight is None else (weight.data_ptr(), weight.shape, weight.dtype, weight.is_contiguous())


def _can_launch(input: Tensor, h: Tensor, schedule: Schedule, t: Any) -> bool:
    """Whether the program takes a step; it computes those of real streams."""
    return (
        input.dim() == h.dim() == 2
        and input.dtype in driver.ELEMENTS
        and 0 < input.shape[0] <= LARGEST
        and max(input.shape[1], schedule.hidden_size) <= LARGEST
        and schedule.modules <= CAPACITIES[-1]
        and (isinstance(t, Tensor) or (type(t) is int and 0 <= t <= LATEST))
        and not is_autocast_on(input.device)
        and refuse_programs() is None
    )


@cache
def refuse_programs() -> str | None:
    """Why no CUDA program can be compiled here, which is logged once; None if one can be."""
    reason = driver.refuse()
    if reason is not None:
        logger.debug("steps on the GPU take several launches: %s", reason)
    return reason


def _check_devices_and_dtypes(input: Tensor, h: Tensor, *weights: Tensor | None) -> None:
    """Raises an error if a tensor's dtype is not that of the input, or if the state lies on another device."""
    names = "state", "weight_ih", "weight_hh", "bias", "weight_ch"
    tensors = zip(names, (h, *weights), strict=True)
    check_shapes(input.dtype, **{name: (one, () if one is None else tuple(one.shape)) for name, one in tensors})
    if h.device != input.device:
        raise RuntimeError(
            "Input and hidden tensors are not at the same device, "
            f"found input tensor at {input.device} and hidden tensor at {h.device}"
        )
