"""The states and the messages of many streams through one layer, in memory that the CPU kernel changes in place.

A stream has one slot: a row of messages, which begins with its h (rows.h), and a row of c for an LSTM. A step touches
the slots of the streams that have input, and no others. `stepping.py` has the same for a state that the caller holds.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...schedule import Schedule
from ..eligibility import is_plain_eager
from ..tensors import check_shapes, dense, pointer, whole, with_memory
from .loader import CELL_NUMBERS, invoke
from .stepping import (
    CHANGING_WEIGHTS,
    FIELD_ADVANCE,
    FIELD_B,
    FIELD_BIAS,
    FIELD_CELL,
    FIELD_CELLS,
    FIELD_CLOCKS,
    FIELD_INPUT,
    FIELD_KNOWN,
    FIELD_MADE,
    FIELD_MESSAGES,
    FIELD_OUTPUT,
    FIELD_PACKED,
    FIELD_ROWS,
    FIELD_THREADS,
    FIELD_WEIGHT_CH,
    FIELD_WEIGHT_HH,
    FIELD_WEIGHT_IH,
    BoundWeights,
)

Weights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""weight_ih, weight_hh, bias and weight_ch of a layer; None for those that it lacks."""


def refuse_slots(weights: Weights) -> str | None:
    """Why the kernel cannot notice changes of these weights, or None if it can."""
    weight_ih, weight_hh, _, _ = weights
    if not (isinstance(weight_ih, Parameter) and isinstance(weight_hh, Parameter)):
        return "they are computed anew for every call"
    if weight_ih.is_inference() or weight_hh.is_inference():
        return "they were made in inference mode"
    return None


class StreamSlots(BoundWeights):
    """The slots of all streams through one layer."""

    def __init__(self, schedule: Schedule, cell: str, weights: Weights) -> None:
        weight_ih, weight_hh, bias, weight_ch = weights
        self.cell = cell
        self.bind(schedule, weight_ih, weight_hh, bias, cell, weight_ch)
        self.values = weight_hh.new_empty((0, self.packed.row))
        self.c = weight_hh.new_empty((0, schedule.hidden_size if cell == "lstm" else 0))
        self.made = torch.zeros(0, dtype=torch.int64, device="cpu")
        self.steps = 0

    def grow(self, capacity: int) -> None:
        """Makes room for `capacity` streams; the slots that exist keep their streams."""
        # tensors made in inference mode could not be changed outside of it
        with torch.inference_mode(False), torch.no_grad():
            self.values, self.c, self.made = (_enlarge(old, capacity) for old in (self.values, self.c, self.made))

    def write(self, slot: int, state: Tensor) -> None:
        """Puts a stream with `state` (parts N) into a slot."""
        N = self.schedule.hidden_size
        self.values[slot, :N] = state[:N]
        self.c[slot] = state[N:]
        self.made[slot] = 0

    def read(self, slot: int) -> Tensor:
        """The state (parts N) of the stream in a slot, in memory of its own."""
        return torch.cat((self.values[slot, : self.schedule.hidden_size], self.c[slot]))

    def prepare(self, weights: Weights) -> None:
        """Takes the weights of the layer for the next step, and refuses those that do not fit its slots."""
        weight_ih, weight_hh, bias, weight_ch = weights
        if not self.still_hold(self.schedule, weight_ih, weight_hh, bias, self.cell, weight_ch):
            self._bind_again(weights)

    def step(self, input: Tensor, slots: Tensor, clocks: Tensor, advance: bool) -> Tensor:
        """The output (n, N) of one step of the streams in `slots` (n,), whose states it replaces.

        Args:
            input: (n, I)
            slots: (n,), all different
            clocks: (capacity,), the clock of the stream in every slot
            advance: if True, adds 1 to the clocks of these streams
        """
        if not is_plain_eager((input,)):
            raise RuntimeError(
                "the pool changes the states of its streams in place, so it takes tensors with memory of their own, "
                "outside of torch.compile, torch.func and dispatch modes"
            )
        output = input.new_empty((input.shape[0], self.schedule.hidden_size))
        if not self._invoke(whole(input), slots, clocks, advance, output):
            weight_ih, weight_hh, bias, weight_ch = self.weights
            self._bind_again((weight_ih, weight_hh, bias, weight_ch))
            if not self._invoke(whole(input), slots, clocks, advance, output):
                raise RuntimeError(CHANGING_WEIGHTS)
        self.steps += 1
        return output

    def _invoke(self, input: Tensor, slots: Tensor, clocks: Tensor, advance: bool, output: Tensor) -> bool:
        weight_ih, weight_hh, bias, weight_ch = self.weights
        weight_ih, weight_hh, bias, weight_ch, input = with_memory(
            weight_ih=dense(weight_ih, 2), weight_hh=dense(weight_hh, 2), bias=dense(bias, 1),
            weight_ch=dense(weight_ch, 1), input=input,
        )  # fmt: skip
        fields = self.fields
        fields[FIELD_B] = input.shape[0]
        fields[FIELD_CELL] = CELL_NUMBERS[self.cell]
        fields[FIELD_THREADS] = torch.get_num_threads()
        fields[FIELD_WEIGHT_IH] = weight_ih.data_ptr()
        fields[FIELD_WEIGHT_HH] = weight_hh.data_ptr()
        fields[FIELD_BIAS] = pointer(bias)
        fields[FIELD_WEIGHT_CH] = pointer(weight_ch)
        fields[FIELD_PACKED] = self.packed.values.data_ptr()
        fields[FIELD_INPUT] = input.data_ptr()
        fields[FIELD_OUTPUT] = output.data_ptr()
        fields[FIELD_MESSAGES] = self.values.data_ptr()
        fields[FIELD_CELLS] = self.c.data_ptr()
        fields[FIELD_MADE] = self.made.data_ptr()
        fields[FIELD_ROWS] = slots.data_ptr()
        fields[FIELD_CLOCKS] = clocks.data_ptr()
        fields[FIELD_ADVANCE] = int(advance)
        fields[FIELD_KNOWN] = self.steps
        return invoke("step_rows", self.dtype, fields)

    def _bind_again(self, weights: Weights) -> None:
        """Takes other weights: the states stay, and all messages are made again."""
        weight_ih, weight_hh, bias, weight_ch = weights
        reason = "they are not on the CPU" if not all(own is None or own.is_cpu for own in weights) else None
        reason = reason or refuse_slots(weights)
        if reason is not None:
            raise RuntimeError(f"the pool cannot use the weights of its layer any more, because {reason}")
        names = "weight_ih", "weight_hh", "bias", "weight_ch"
        shapes: Any = zip(weights, self.shapes, strict=True)
        check_shapes(self.values.dtype, **dict(zip(names, shapes, strict=True)))
        self.bind(self.schedule, weight_ih, weight_hh, bias, self.cell, weight_ch)
        N = self.schedule.hidden_size
        if self.values.shape[1] != self.packed.row:
            values = self.values.new_empty((self.values.shape[0], self.packed.row))
            values[:, :N] = self.values[:, :N]
            self.values = values
        self.made.zero_()


def _enlarge(old: Tensor, rows: int) -> Tensor:
    new = old.new_zeros((rows, *old.shape[1:]))
    new[: old.shape[0]] = old
    return new
