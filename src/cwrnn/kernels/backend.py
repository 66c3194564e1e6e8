"""A kernel behind the signature of a backend: which way a call takes to it, and the states that it leaves.

plain eager calls           the kernel itself, or with gradients an autograd function (autograd.py)
torch.func                  an autograd function that can be mapped (autograd.py)
torch.compile, modes, ...   an operator (operators.py)
forward mode, tracing       the cascade: the kernel has no tangents
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..cascade import cascade
from ..cells import CELLS
from ..checks import are_known_finite
from ..held import HeldSignal, Pass, count_rows, initial_state, last_tick_before, states_of
from ..schedule import Schedule
from . import operators
from .autograd import Kernel, Recurrence, run_eager, run_mappable
from .eligibility import is_plain_eager, is_recorded, needs_plain_operations, wants_gradient
from .flops import prepare_counters
from .readout_products import multiply_states
from .tensors import check_network


class KernelBackend:
    """A backend that computes with `kernel`."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def run_plain(
        self,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        schedule: Schedule,
        t0: int,
        cell: str,
        weight_ch: Tensor | None,
    ) -> tuple[Any, Tensor]:
        """Output (T, B, N) and final state (1, B, parts N) from a state of zeros, for plain calls (`is_plain_call`)."""
        if torch.is_grad_enabled():
            recurrence = Recurrence(self.kernel, schedule, t0, cell, True)
            final, held = run_eager(input, weight_ih, weight_hh, bias, None, weight_ch, None, recurrence, False)
        else:
            final, _, held, _ = self.kernel.forward(
                input, weight_ih, weight_hh, bias, None, None, schedule, t0, cell, True, False, False, weight_ch
            )
        return held, final

    def run(
        self,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        schedule: Schedule,
        t0: int,
        cell: str,
        lengths: Tensor | None = None,
        hold: bool = True,
        weight_ch: Tensor | None = None,
    ) -> Pass:
        """The states of every module at its own ticks, fastest module first; as `cascade`."""
        recurrence = Recurrence(self.kernel, schedule, t0, cell, hold)
        if not is_plain_eager((input, weight_ih, weight_hh, bias, h0, weight_ch, lengths)):
            return _run_transformed(input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, recurrence)
        check_network(input, weight_ih, weight_hh, bias, h0, schedule.hidden_size, cell, weight_ch)
        state, states = run_eager(
            input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, recurrence, keep_ticks=not hold
        )
        ticks, held = (None, states) if hold else (states, None)
        return KernelPass(t0, input.shape[0], lengths, schedule, h0, state, ticks, held)


def record_plain(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    weight_ch: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """`KernelBackend.run_plain` as an operator, which torch runs by the kernel of the tensors' device."""
    keep_ticks = wants_gradient((input, weight_ih, weight_hh, bias, weight_ch))
    state, *states = operators.recurrence(
        input, weight_ih, weight_hh, bias, None, None,
        schedule.periods, schedule.sizes, t0, cell, True, keep_ticks, weight_ch,
    )  # fmt: skip
    return states[1 if keep_ticks else 0], state


def _run_transformed(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    weight_ch: Tensor | None,
    lengths: Tensor | None,
    recurrence: Recurrence,
) -> Pass:
    """`KernelBackend.run` where something other than autograd must see the operations."""
    schedule, t0, cell, hold = recurrence.schedule, recurrence.t0, recurrence.cell, recurrence.hold
    if needs_plain_operations():
        return cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, hold, weight_ch)
    tensors = input, weight_ih, weight_hh, bias, h0, weight_ch
    if not is_recorded((*tensors, lengths)):
        h0 = initial_state(h0, input, schedule, CELLS[cell].parts)
        check_network(input, weight_ih, weight_hh, bias, h0, schedule.hidden_size, cell, weight_ch)
        outputs = run_mappable(input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, recurrence)
        return KernelPass(t0, input.shape[0], lengths, schedule, h0, *outputs)
    if not torch.compiler.is_compiling():
        prepare_counters()
    keep_ticks = not hold or wants_gradient(tensors)
    state, *states = operators.recurrence(
        input, weight_ih, weight_hh, bias, h0, lengths,
        schedule.periods, schedule.sizes, t0, cell, hold, keep_ticks, weight_ch,
    )  # fmt: skip
    ticks, held = states[0] if keep_ticks else None, states[1 if keep_ticks else 0] if hold else None
    return KernelPass(t0, input.shape[0], lengths, schedule, h0, state, ticks, held)


@dataclass(eq=False)
class KernelPass(Pass):
    """The states as a kernel leaves them."""

    schedule: Schedule
    h0: Tensor | None
    state: Tensor
    """(1, B, parts N): the final state."""
    ticks: Tensor | None
    """The states of all modules at their ticks in one row, if they were kept."""
    held: Tensor | None
    """(T, B, N): the output, if it was computed."""

    @property
    def modules(self) -> tuple[HeldSignal, ...]:
        """The states of every module, fastest first."""
        if self.ticks is None:
            assert self.held is not None
            h0 = initial_state(self.h0, self.held, self.schedule)[..., : self.schedule.hidden_size]
            return states_of(self.held, h0, self.schedule, self.t0)
        B = self.state.shape[-2]
        rows = count_rows(self.schedule.periods, self.t0, self.T)
        lengths = [n * B * size for n, size in zip(rows, self.schedule.sizes, strict=True)]
        parts = zip(self.ticks.split(lengths), rows, self.schedule.sizes, self.schedule.periods, strict=True)
        return tuple(
            HeldSignal(values.view(n, B, size), period, last_tick_before(self.t0, period))
            for values, n, size, period in parts
        )

    def multiply(self, weight: Tensor) -> list[HeldSignal]:
        """The product of `weight` (O, N) with the states of every module, each by its own columns."""
        tensors = self.ticks, weight
        if (
            self.ticks is None
            or not wants_gradient(tensors)
            or not is_plain_eager(tensors)
            or torch.is_autocast_enabled("cpu")
            or (weight.dtype, weight.device) != (self.ticks.dtype, torch.device("cpu"))
            or not (self.h0 is None or are_known_finite(self.h0))
        ):
            return super().multiply(weight)
        B, periods = self.state.shape[-2], self.schedule.periods
        rows = count_rows(periods, self.t0, self.T)
        shapes = [(n * B, size) for n, size in zip(rows, self.schedule.sizes, strict=True)]
        products = multiply_states(self.ticks, weight, shapes)
        return [
            HeldSignal(values.unflatten(0, (n, B)), period, last_tick_before(self.t0, period))
            for values, n, period in zip(products, rows, periods, strict=True)
        ]

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        return super().hold() if self.held is None else self.held

    def final(self) -> Tensor:
        """(B, parts N): the state at each sequence's own end."""
        return self.state.squeeze(0)

    def h_n(self) -> Tensor:
        """(1, B, parts N): the state at each sequence's own end, with the axis of layers."""
        return self.state

    def to(self, dtype: torch.dtype) -> Pass:
        """The same states, rounded to `dtype`."""
        h0, ticks, held = (None if tensor is None else tensor.to(dtype) for tensor in (self.h0, self.ticks, self.held))
        return KernelPass(self.t0, self.T, self.lengths, self.schedule, h0, self.state.to(dtype), ticks, held)
