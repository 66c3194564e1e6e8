"""The recurrence of a kernel as functions that autograd and torch.func know.

A kernel computes the recurrence and its first derivatives, for S independent networks at once: tensors may have a
leading axis of replicas, and `torch.func.vmap` maps onto that axis. Higher derivatives and forward mode are those of
the cascade, which computes the same with ordinary operations.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from ..cascade import cascade
from ..schedule import Schedule
from .eligibility import has_tangents, wants_gradient
from .flops import prepare_counters


class Kernel(Protocol):
    """A recurrence and its first derivatives, on the device that the kernel was written for."""

    def forward(
        self,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        lengths: Tensor | None,
        schedule: Schedule,
        t0: int,
        cell: str,
        hold: bool,
        keep_ticks: bool = True,
        keep_gates: bool = True,
        weight_ch: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The final state (1, B, N); the ticks of all modules in a row, if `keep_ticks`; the output, if `hold`.

        The fourth result is one row of all that `backward` needs besides the ticks: the gates of an LSTM or a GRU, if
        `keep_gates`, and None for other cells.
        """

    def count_kept(self, schedule: Schedule, t0: int, T: int, B: int, cell: str, dtype: torch.dtype) -> int:
        """How many numbers the fourth result of `forward` has; 0 for cells that need none. T and B may be symbols."""

    def backward(
        self,
        wanted: Sequence[bool],
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        lengths: Tensor | None,
        ticks: Tensor,
        g_final: Tensor | None,
        g_ticks: Tensor | None,
        g_held: Tensor | None,
        schedule: Schedule,
        t0: int,
        cell: str,
        weight_ch: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> list[Tensor | None]:
        """The gradients of input, weight_ih, weight_hh, bias, h0 and weight_ch; None for those that are not wanted.

        `kept` is the fourth result of `forward`.
        """


@dataclass(eq=False, slots=True)
class Recurrence:
    """The settings of one call other than its tensors, as one argument of an autograd function."""

    kernel: Kernel
    schedule: Schedule
    t0: int
    cell: str
    hold: bool
    """Whether the output (T, B, N) is computed."""


class Operands(NamedTuple):
    """The tensors of a call that may have gradients."""

    input: Any
    weight_ih: Any
    weight_hh: Any
    bias: Any
    h0: Any
    weight_ch: Any


class Outputs(NamedTuple):
    """The results of a call, or their gradients: the final state, the ticks of all modules in a row, the output."""

    final: Any
    ticks: Any
    held: Any


def run_eager(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    weight_ch: Tensor | None,
    lengths: Tensor | None,
    recurrence: Recurrence,
    keep_ticks: bool,
) -> tuple[Tensor, Any]:
    """The final state, and the output if it is held, or else the ticks: for plain eager calls only.

    Without a gradient the ticks are computed only if `keep_ticks`; if there is neither output nor ticks, None.
    """
    if wants_gradient((input, weight_ih, weight_hh, bias, h0, weight_ch)):
        outputs: tuple[Tensor, Tensor] = _EagerFunction.apply(  # type: ignore[no-untyped-call]
            input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, recurrence
        )
        return outputs
    final, ticks, held, _ = recurrence.kernel.forward(
        input, weight_ih, weight_hh, bias, h0, lengths,
        recurrence.schedule, recurrence.t0, recurrence.cell, recurrence.hold,
        keep_ticks=keep_ticks, keep_gates=False, weight_ch=weight_ch,
    )  # fmt: skip
    return final, ticks if held is None else held


class _EagerFunction(torch.autograd.Function):
    """The recurrence for plain eager calls: the final state, and the output if it is held, or else the ticks.

    torch inspects every argument and output, and a small network computes its output in that time. So there are as few
    of them as possible.
    """

    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        weight_ch: Tensor | None,
        lengths: Tensor | None,
        recurrence: Recurrence,
    ) -> tuple[Tensor, Any]:
        final, ticks, held, kept = recurrence.kernel.forward(
            input, weight_ih, weight_hh, bias, h0, lengths,
            recurrence.schedule, recurrence.t0, recurrence.cell, recurrence.hold, weight_ch=weight_ch,
        )  # fmt: skip
        ctx.recurrence = recurrence
        ctx.save_for_backward(input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, ticks, kept)
        ctx.set_materialize_grads(False)
        return final, ticks if held is None else held

    @staticmethod
    def backward(ctx: Any, g_final: Tensor | None, g_states: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.recurrence.hold:
            return *_pull_back(ctx, Outputs(g_final, None, g_states)), None, None
        return *_pull_back(ctx, Outputs(g_final, g_states, None)), None, None


def run_mappable(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    weight_ch: Tensor | None,
    lengths: Tensor | None,
    recurrence: Recurrence,
) -> Outputs:
    """The final state, the ticks of all modules in a row, and the output if it is held: for calls inside torch.func."""
    final, ticks, *others = _MappableFunction.apply(  # type: ignore[no-untyped-call]
        input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, recurrence
    )
    return Outputs(final, ticks, others[0] if recurrence.hold else None)


class _MappableFunction(torch.autograd.Function):
    """The recurrence for torch.func: the final state, the ticks, the output if it is held, and what backward needs."""

    @staticmethod
    def forward(
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        weight_ch: Tensor | None,
        lengths: Tensor | None,
        recurrence: Recurrence,
    ) -> tuple[Any, ...]:
        outputs = recurrence.kernel.forward(
            input, weight_ih, weight_hh, bias, h0, lengths,
            recurrence.schedule, recurrence.t0, recurrence.cell, recurrence.hold, weight_ch=weight_ch,
        )  # fmt: skip
        return tuple(output for output in outputs if output is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        *tensors, ctx.recurrence = inputs
        _, ticks, *others = output
        kept = others[ctx.recurrence.hold :]
        ctx.mark_non_differentiable(*kept)
        ctx.save_for_backward(*tensors, ticks, kept[0] if kept else None)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, g_final: Tensor | None, g_ticks: Tensor | None, *others: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        g_held = others[0] if ctx.recurrence.hold else None
        return *_pull_back(ctx, Outputs(g_final, g_ticks, g_held)), None, None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: Any,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        weight_ch: Tensor | None,
        lengths: Tensor | None,
        recurrence: Recurrence,
    ) -> Any:
        *dims, _ = in_dims
        _, _, weight_hh_dim, *_ = dims
        nested = _has_replicas(weight_hh, weight_hh_dim)
        tensors = input, weight_ih, weight_hh, bias, h0, weight_ch, lengths
        stacked = _stack_replicas(info.batch_size, nested, dims, tensors)
        outputs = _MappableFunction.apply(*stacked, recurrence)  # type: ignore[no-untyped-call]
        return _unstack_replicas(info.batch_size, nested, outputs)


def _pull_back(ctx: Any, gradients: Outputs) -> Sequence[Tensor | None]:
    """The gradients of the operands; None for those that are not wanted."""
    recurrence: Recurrence = ctx.recurrence
    *wanted, _, _ = ctx.needs_input_grad
    input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, ticks, kept = ctx.saved_tensors
    if need_cascade(gradients):
        operands = Operands(input, weight_ih, weight_hh, bias, h0, weight_ch)
        computed = differentiate_cascade(wanted, recurrence, operands, lengths, gradients)
    elif torch._C._len_torch_dispatch_stack() > 0 and weight_hh.dim() == 2:
        # a dispatch mode sees operators only
        prepare_counters()
        schedule = recurrence.schedule
        operator = torch.ops.cwrnn.recurrence_backward
        computed = operator(
            input, weight_ih, weight_hh, bias, lengths, ticks, *gradients,
            schedule.periods, schedule.sizes, recurrence.t0, recurrence.cell, wanted, weight_ch, kept, h0,
        )  # fmt: skip
    elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        computed = _GradientFunction.apply(  # type: ignore[no-untyped-call]
            wanted, recurrence, input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, ticks, kept, *gradients
        )
    else:
        return recurrence.kernel.backward(
            wanted, input, weight_ih, weight_hh, bias, lengths, ticks, *gradients,
            recurrence.schedule, recurrence.t0, recurrence.cell, weight_ch, kept,
        )  # fmt: skip
    return spread(computed, wanted)


def need_cascade(gradients: Outputs) -> bool:
    """True if neither kernel nor operator can take `gradients`: in forward mode, and if they are batched.

    torch.autograd.grad(is_grads_batched=True) batches by tensors that have no memory, and has no rule for autograd
    functions.
    """
    batched = any(gradient is not None and is_legacy_batchedtensor(gradient) for gradient in gradients)
    return batched or has_tangents()


class _GradientFunction(torch.autograd.Function):
    """The wanted gradients of the recurrence, as a function that can itself be mapped and differentiated."""

    @staticmethod
    def forward(
        wanted: Sequence[bool],
        recurrence: Recurrence,
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        weight_ch: Tensor | None,
        lengths: Tensor | None,
        ticks: Tensor,
        kept: Tensor | None,
        g_final: Tensor | None,
        g_ticks: Tensor | None,
        g_held: Tensor | None,
    ) -> tuple[Tensor, ...]:
        computed = recurrence.kernel.backward(
            wanted, input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held,
            recurrence.schedule, recurrence.t0, recurrence.cell, weight_ch, kept,
        )  # fmt: skip
        return tuple(gradient for gradient in computed if gradient is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.wanted, ctx.recurrence, *tensors = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        input, weight_ih, weight_hh, bias, h0, weight_ch, lengths, _, _, *gradients = ctx.saved_tensors
        operands = Operands(input, weight_ih, weight_hh, bias, h0, weight_ch)
        g_operands, g_gradients = differentiate_twice(
            ctx.wanted, ctx.recurrence, operands, lengths, Outputs(*gradients), cotangents
        )
        # neither the lengths, nor the ticks and gates, which follow from the operands, have a gradient of their own
        return None, None, *g_operands, None, None, None, *g_gradients

    @staticmethod
    def vmap(info: Any, in_dims: Any, wanted: Sequence[bool], recurrence: Recurrence, *tensors: Any) -> Any:
        _, _, *dims = in_dims
        _, _, weight_hh_dim, *_ = dims
        _, _, weight_hh, *_ = tensors
        nested = _has_replicas(weight_hh, weight_hh_dim)
        stacked = _stack_replicas(info.batch_size, nested, dims, tensors)
        outputs = _GradientFunction.apply(wanted, recurrence, *stacked)  # type: ignore[no-untyped-call]
        return _unstack_replicas(info.batch_size, nested, outputs)


def differentiate_twice(
    wanted: Sequence[bool],
    recurrence: Recurrence,
    operands: Operands,
    lengths: Tensor | None,
    gradients: Outputs,
    cotangents: Sequence[Tensor],
) -> tuple[Operands, Outputs]:
    """The gradients of `operands` and `gradients`, from those of all wanted gradients that they lead to.

    The derivative of a derivative is that of the cascade, which is made of ordinary operations.
    """
    tensors = *operands, *gradients
    present = [tensor is not None for tensor in tensors]

    def differentiate(*values: Tensor) -> tuple[Tensor, ...]:
        *operands, g_final, g_ticks, g_held = spread(values, present)
        gradients = Outputs(g_final, g_ticks, g_held)
        return differentiate_cascade(wanted, recurrence, Operands(*operands), lengths, gradients)

    pair: Any = torch.func.vjp(differentiate, *(tensor for tensor in tensors if tensor is not None))
    _, pull_back = pair
    *g_operands, g_final, g_ticks, g_held = spread(pull_back(tuple(cotangents)), present)
    return Operands(*g_operands), Outputs(g_final, g_ticks, g_held)


def differentiate_cascade(
    wanted: Sequence[bool], recurrence: Recurrence, operands: Operands, lengths: Tensor | None, gradients: Outputs
) -> tuple[Tensor, ...]:
    """The gradients that `Kernel.backward` computes, by differentiating the cascade: the wanted ones only."""
    schedule, t0, cell = recurrence.schedule, recurrence.t0, recurrence.cell

    def run_one(lengths: Any, input: Any, weight_ih: Any, weight_hh: Any, bias: Any, h0: Any, weight_ch: Any) -> Any:
        done = cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, True, weight_ch)
        ticks = torch.cat([module.values.flatten() for module in done.modules])
        return (done.h_n(), ticks) if gradients.held is None else (done.h_n(), ticks, done.hold())

    def run(*leaves: Any) -> Any:
        chosen = spread(leaves, wanted)
        tensors = [leaf if want else operand for want, leaf, operand in zip(wanted, chosen, operands, strict=True)]
        if operands.weight_hh.dim() == 2:
            return run_one(lengths, *tensors)
        dims = tuple(None if tensor is None else 0 for tensor in (lengths, *tensors))
        return torch.func.vmap(run_one, in_dims=dims)(lengths, *tensors)

    pair: Any = torch.func.vjp(run, *(operand for want, operand in zip(wanted, operands, strict=True) if want))
    outputs, pull_back = pair
    cotangents = (
        torch.zeros_like(value) if gradient is None else gradient
        for value, gradient in zip(outputs, gradients, strict=False)
    )
    pulled: tuple[Tensor, ...] = pull_back(tuple(cotangents))
    return pulled


def spread(values: Iterable[Any], places: Iterable[bool]) -> list[Any]:
    """One value after the other for each True of `places`, and None for each False."""
    remaining = iter(values)
    return [next(remaining) if filled else None for filled in places]


def _has_replicas(weight_hh: Tensor, dim: int | None) -> bool:
    """Whether the network whose recurrent weights are mapped along `dim` has an axis of replicas already."""
    return weight_hh.dim() - (dim is not None) == 3


def _stack_replicas(
    size: int, nested: bool, dims: Sequence[int | None], tensors: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Each tensor with the mapped axis in front; if `nested`, as one axis with the replicas that are there already."""
    stacked: list[Tensor | None] = []
    for tensor, dim in zip(tensors, dims, strict=True):
        if tensor is not None:
            tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            tensor = tensor.flatten(0, 1) if nested else tensor
        stacked.append(tensor)
    return stacked


def _unstack_replicas(size: int, nested: bool, outputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    if nested:
        outputs = [output.unflatten(0, (size, -1)) for output in outputs]
    return tuple(outputs), (0,) * len(outputs)
