"""The CPU kernel of a single time step, in C (step.h, rows.h): it keeps the messages of all modules from step to step.

A module that does not tick sends the message that it sent before. So a step multiplies only the states of the modules
that have just ticked, and reads the messages of all others (`Messages`) from memory.
"""

import math
from array import array
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakTensorKeyDictionary

from ...cells import CELLS
from ...schedule import Schedule
from ...step import clockwork_step
from ..eligibility import is_plain_eager, wants_gradient
from ..tensors import LOW_ADDRESS, check_network, dense, pointer, whole, with_memory
from .loader import CELL_NUMBERS, current_isa, invoke

LONGEST_CYCLE = 2**63 - 1
"""The kernel counts steps modulo the least common multiple of all periods, which may be no longer than this."""

CHANGING_WEIGHTS = "the weights of the layer changed while it made a step: finish the step before you change them"
"""The message if the weights differ even from those that were packed within the same call."""

# where the members of the structure `Step` in cpu.h stand in an array of 64-bit integers
(
    FIELD_B, FIELD_I, FIELD_G, FIELD_CELL, FIELD_THREADS,
    FIELD_WEIGHT_IH, FIELD_WEIGHT_HH, FIELD_PACKED, FIELD_SIZES,
    FIELD_INPUT, FIELD_INPUT_B, FIELD_BIAS, FIELD_WEIGHT_CH, FIELD_H, FIELD_H_B, FIELD_NEXT, FIELD_OUTPUT,
    FIELD_MESSAGES, FIELD_KNOWN, FIELD_CLOCK,
    FIELD_ROWS, FIELD_CLOCKS, FIELD_MADE, FIELD_CELLS, FIELD_ADVANCE,
    FIELD_MODULES,
) = range(26)  # fmt: skip


class PackedWeights:
    """The weights of one layer in the order in which a step reads them, valid until the weights change."""

    def __init__(self, schedule: Schedule, weight_ih: Tensor, weight_hh: Tensor, cell: str) -> None:
        weight_ih, weight_hh = with_memory(weight_ih=dense(weight_ih, 2), weight_hh=dense(weight_hh, 2))
        sizes = torch.empty(2, dtype=torch.int64, device="cpu")
        self.fields = array("q", [*[0] * FIELD_MODULES, *schedule.sizes, *schedule.periods])
        self.fields[FIELD_I] = weight_ih.shape[1]
        self.fields[FIELD_G] = schedule.modules
        self.fields[FIELD_CELL] = CELL_NUMBERS[cell]
        fields = self.fields[:]
        fields[FIELD_WEIGHT_IH] = weight_ih.data_ptr()
        fields[FIELD_WEIGHT_HH] = weight_hh.data_ptr()
        fields[FIELD_SIZES] = sizes.data_ptr()
        invoke("step_sizes", weight_hh.dtype, fields)
        size, self.row = sizes.tolist()
        self.values = weight_hh.new_empty(size)
        fields[FIELD_PACKED] = self.fields[FIELD_PACKED] = self.values.data_ptr()
        invoke("step_pack", weight_hh.dtype, fields)
        self.schedule = schedule
        self.isa = current_isa()

    @classmethod
    def of(cls, schedule: Schedule, weight_ih: Tensor, weight_hh: Tensor, cell: str) -> "PackedWeights":
        """The packed weights, which all streams through a layer share as long as they are equal."""
        new = cls(schedule, weight_ih, weight_hh, cell)
        old: PackedWeights | None = _packed.get(weight_hh)
        if (
            old is not None
            and (old.schedule, old.isa, old.values.dtype) == (new.schedule, new.isa, new.values.dtype)
            and old.row == new.row
            # bits, as the kernel compares them: 0.0 and -0.0 differ
            and torch.equal(old.values.view(torch.uint8), new.values.view(torch.uint8))
        ):
            return old
        _packed[weight_hh] = new
        return new


_packed: Any = WeakTensorKeyDictionary()


def forget_packed(weight_hh: Tensor) -> None:
    """Drops the packed weights of a layer, and with them the weak reference to its parameter."""
    _packed.pop(weight_hh, None)


class BoundWeights:
    """The weights that messages were computed with.

    Autograd counts changes of the weights. Of changes that bypass autograd (a fused optimizer, `.data`, another
    process), the kernel notices those that concern all weights, because it compares some of them at every step.
    """

    def bind(
        self,
        schedule: Schedule,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        cell: str,
        weight_ch: Tensor | None = None,
    ) -> None:
        """Packs the weights for the next steps."""
        self.schedule = schedule
        self.weights = weight_ih, weight_hh, bias, weight_ch
        self.negated = any(weight is not None and weight.is_neg() for weight in self.weights)
        self.versions = weight_ih._version, weight_hh._version
        self.shapes = tuple(None if weight is None else weight.shape for weight in self.weights)
        self.isa = current_isa()
        self.cells = [other for other in CELLS if CELLS[other] == CELLS[cell]]
        self.packed = PackedWeights.of(schedule, weight_ih, weight_hh, cell)
        self.dtype = weight_hh.dtype
        self.fields = self.packed.fields[:]
        self.fields[FIELD_INPUT_B] = weight_ih.shape[1]

    def still_hold(
        self,
        schedule: Schedule,
        weight_ih: Tensor | None,
        weight_hh: Tensor | None,
        bias: Tensor | None,
        cell: str,
        weight_ch: Tensor | None = None,
    ) -> bool:
        """Whether schedule, weights and the shapes of the cell are those that were bound.

        The same parameters may have changed: `to` and `.data` replace their memory.
        """
        own_ih, own_hh, own_bias, own_ch = self.weights
        shape_ih, shape_hh, shape_bias, shape_ch = self.shapes
        return (
            own_hh is weight_hh and own_ih is weight_ih and own_bias is bias and own_ch is weight_ch
            and cell in self.cells
            and (own_ih._version, own_hh._version) == self.versions
            and own_hh.dtype is own_ih.dtype is self.dtype
            and own_hh.is_cpu and own_ih.is_cpu
            and own_ih.shape == shape_ih and own_hh.shape == shape_hh
            and (own_bias is None
                 or (own_bias.dtype is self.dtype and own_bias.is_cpu and own_bias.shape == shape_bias))
            and (own_ch is None
                 or (own_ch.dtype is self.dtype and own_ch.is_cpu and own_ch.shape == shape_ch))
            and (self.schedule is schedule or self.schedule == schedule)
            and self.isa == current_isa()
        )  # fmt: skip


class Messages(BoundWeights):
    """The last message of every module, as the kernel keeps them from step to step: a cache.

    The messages belong to one state. The kernel compares the state that comes in with it, so a state that was changed
    by hand does not match. They also belong to the weights as they were.
    """

    def __init__(
        self,
        schedule: Schedule,
        h: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        cell: str,
        weight_ch: Tensor | None = None,
    ) -> None:
        self.bind(schedule, weight_ih, weight_hh, bias, cell, weight_ch)
        self.values = h.new_empty((h.shape[-2], self.packed.row))
        self.output = h.new_empty((h.shape[-2], schedule.hidden_size))
        self.input_shape: torch.Size | None = None
        self.state_shape = torch.Size((1, *h.shape[-2:]))
        self.steps = 0
        self.cycle = math.lcm(*schedule.periods)
        self.fields[FIELD_B], self.fields[FIELD_H_B] = h.shape[-2:]
        self.fields[FIELD_MESSAGES] = self.values.data_ptr()

    def step(self, input: Tensor, h: Tensor, t: int | Tensor, cell: str) -> tuple[Tensor, Tensor] | None:
        """The output (B, N), and the next state in the shape of h, which begins with it, but in memory of its own.

        t is one clock, or a tensor (B,) of clocks. The result is None if the kernel finds other weights than those that
        the messages were computed with.
        """
        input, h = whole(input), whole(h)
        weight_ih, weight_hh, bias, weight_ch = self.weights
        if self.negated or not (
            weight_ih.is_contiguous() and weight_hh.is_contiguous() and (bias is None or bias.is_contiguous())
        ):
            weight_ih, weight_hh, bias = dense(weight_ih, 2), dense(weight_hh, 2), dense(bias, 1)
        weight_ch = dense(weight_ch, 1)
        output, after = torch.empty_like(self.output), torch.empty_like(h)
        fields = self.fields
        fields[FIELD_CELL] = CELL_NUMBERS[cell]
        fields[FIELD_THREADS] = torch.get_num_threads()
        fields[FIELD_WEIGHT_IH] = at_weight_ih = weight_ih.data_ptr()
        fields[FIELD_WEIGHT_HH] = at_weight_hh = weight_hh.data_ptr()
        fields[FIELD_INPUT] = at_input = input.data_ptr()
        fields[FIELD_H] = at_h = h.data_ptr()
        low = LOW_ADDRESS
        missing = at_input < low or at_h < low or at_weight_ih < low or at_weight_hh < low
        if bias is not None:
            fields[FIELD_BIAS] = at_bias = bias.data_ptr()
            missing = missing or at_bias < low
        if weight_ch is not None:
            fields[FIELD_WEIGHT_CH] = at_weight_ch = weight_ch.data_ptr()
            missing = missing or at_weight_ch < low
        if missing:
            weight_ih, weight_hh, bias, weight_ch, input, h = with_memory(
                weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, weight_ch=weight_ch, input=input, state=h
            )
            fields[FIELD_WEIGHT_IH] = weight_ih.data_ptr()
            fields[FIELD_WEIGHT_HH] = weight_hh.data_ptr()
            fields[FIELD_INPUT] = input.data_ptr()
            fields[FIELD_BIAS] = pointer(bias)
            fields[FIELD_WEIGHT_CH] = pointer(weight_ch)
            fields[FIELD_H] = h.data_ptr()
        fields[FIELD_NEXT] = after.data_ptr()
        fields[FIELD_OUTPUT] = output.data_ptr()
        fields[FIELD_KNOWN] = self.steps
        if isinstance(t, int):
            fields[FIELD_CLOCK] = t % self.cycle
            done = invoke("step", self.dtype, fields)
        else:
            (clocks,) = with_memory(clocks=t.cpu().contiguous())
            fields[FIELD_CLOCKS] = clocks.data_ptr()
            done = invoke("step_rows", self.dtype, fields)
        if not done:
            return None
        self.input_shape = input.shape
        self.steps += 1
        return output, after

    def step_if_unchanged(
        self, input: Any, h: Tensor, t: int | Tensor, cell: str, schedule: Schedule, parameters: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor] | None:
        """`step` at once, if nothing but input, state and time has changed since the last one; else None."""
        if (
            # first, because torch.compile can neither follow `still_hold` nor guard what it reads
            is_plain_eager()
            and type(input) is Tensor
            and type(h) is Tensor
            and input.shape == self.input_shape
            and h.shape == self.state_shape
            and input.dtype is h.dtype is self.dtype
            and input.is_cpu
            and self.still_hold(
                schedule, parameters.get("weight_ih_l0"), parameters.get("weight_hh_l0"), parameters.get("bias_l0"),
                cell, parameters.get("weight_ch_l0"),
            )
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and (isinstance(t, int) or (t.dtype is torch.int64 and t.shape == input.shape[:1]))
        ):  # fmt: skip
            return self.step(input, h, t, cell)
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
    messages: Messages | None = None,
    weight_ch: Tensor | None = None,
) -> tuple[Tensor, Tensor, Messages | None]:
    """One time step, as `clockwork_step`, which computes it if gradients are wanted or if the weights are temporary."""
    tensors = input, weight_ih, weight_hh, bias, h, weight_ch
    if (
        not is_plain_eager(tensors)
        or wants_gradient(tensors)
        or not (isinstance(weight_hh, Parameter) and isinstance(weight_ih, Parameter))
        or weight_hh.is_inference()
        or weight_ih.is_inference()
        or math.lcm(*schedule.periods) > LONGEST_CYCLE
    ):
        return clockwork_step(input, weight_ih, weight_hh, bias, h, schedule, t, cell, weight_ch=weight_ch)
    same_batch = messages is not None and messages.output.shape[0] == input.shape[0]
    network = weight_ih, weight_hh, bias, cell, weight_ch
    if messages is None or not (same_batch and messages.still_hold(schedule, *network)):
        check_network(input, weight_ih, weight_hh, bias, h, schedule.hidden_size, cell, weight_ch)
        messages = Messages(schedule, h, *network)
    stepped = messages.step(input, h, t, cell)
    if stepped is None:
        messages = Messages(schedule, h, *network)
        stepped = messages.step(input, h, t, cell)
    if stepped is None:
        raise RuntimeError(CHANGING_WEIGHTS)
    return *stepped, messages
