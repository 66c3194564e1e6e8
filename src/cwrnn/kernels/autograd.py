"""The recurrence of a kernel as a function that autograd, torch.func, torch.compile and torch.export know.

A kernel computes the recurrence and its first derivatives, for S independent networks at once: tensors may have a
leading axis of replicas, and that is where `torch.func.vmap` leads. Derivatives beyond the first, and forward mode, are
taken of the cascade, which computes the same. Which kernel it is follows from where the tensors lie.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from ..cascade import cascade
from ..held import Pass, Stream, count_rows, initial_state, last_tick_before, states_of
from ..schedule import Schedule
from .cpu import loader as library
from .cpu import sequence as cpu
from .cpu.blocks import empty
from .cpu.loader import check_network, check_shapes, has_tangents, is_captured, is_watched, wants_gradient
from .gpu import launch as triton


def _kernel(tensor: Tensor) -> ModuleType:
    return cpu if tensor.is_cpu else triton


def compute_forward(*arguments: Any, keep_ticks: bool = True) -> tuple[Tensor, Any, Any]:
    """The final state (1, B, N), if `keep_ticks` the ticks of all modules in a row, if `hold` the output (T, B, N)."""
    outputs: tuple[Tensor, Any, Any] = _kernel(arguments[2]).forward(*arguments, keep_ticks=keep_ticks)
    return outputs


def compute_backward(wanted: Sequence[bool], *arguments: Any) -> list[Tensor | None]:
    """The gradients of input, weight_ih, weight_hh, bias and h0; None for those that are not wanted."""
    gradients: list[Tensor | None] = _kernel(arguments[2]).backward(wanted, *arguments)
    return gradients


class _Recurrence(torch.autograd.Function):
    """`compute_forward`, for autograd and for torch.func."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        final, ticks, held = compute_forward(*arguments)
        return (final, ticks) if held is None else (final, ticks, held)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings = inputs[6:10]
        ctx.save_for_backward(*inputs[:6], output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, g_final: Tensor | None, g_ticks: Tensor | None, g_held: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        return *_pull_back(ctx, g_final, g_ticks, g_held), None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        nested, stacked = _stack_replicas(info.batch_size, in_dims[:6], arguments[:6])
        outputs = _Recurrence.apply(*stacked, *arguments[6:])  # type: ignore[no-untyped-call]
        return _unstack_replicas(info.batch_size, nested, outputs)


class _EagerRecurrence(torch.autograd.Function):
    """The same without torch.func, and the final state with either the ticks or the output.

    Small networks have computed their output while torch looks at arguments and outputs: there are as few as can be.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        *tensors, settings = arguments
        final, ticks, held = compute_forward(*tensors, *settings)
        ctx.settings = settings
        ctx.save_for_backward(*tensors, ticks)
        ctx.set_materialize_grads(False)
        return final, ticks if held is None else held

    @staticmethod
    def backward(ctx: Any, g_final: Tensor | None, g_states: Tensor | None) -> tuple[Tensor | None, ...]:
        g_ticks, g_held = (None, g_states) if ctx.settings[3] else (g_states, None)
        return *_pull_back(ctx, g_final, g_ticks, g_held), None, None


def _pull_back(
    ctx: Any, g_final: Tensor | None, g_ticks: Tensor | None, g_held: Tensor | None
) -> Sequence[Tensor | None]:
    """The gradients of input, weight_ih, weight_hh, bias and h0, of those that are wanted."""
    wanted, settings, gradients = ctx.needs_input_grad[:5], ctx.settings[:3], (g_final, g_ticks, g_held)
    *network, h0, lengths, ticks = ctx.saved_tensors
    if has_tangents():
        found = _gradient_of_cascade(wanted, (*network, h0), lengths, gradients, *settings)
    elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
        found = _Gradient.apply(wanted, *settings, *network, h0, lengths, ticks, *gradients)  # type: ignore[no-untyped-call]
    else:
        return compute_backward(wanted, *network, lengths, ticks, *gradients, *settings)
    left = iter(found)
    return [next(left) if want else None for want in wanted]


class _Gradient(torch.autograd.Function):
    """Backward of `_Recurrence`, as a function that can itself be mapped and differentiated."""

    @staticmethod
    def forward(
        wanted: tuple[bool, ...], schedule: Schedule, t0: int, nonlinearity: str, *tensors: Any
    ) -> tuple[Tensor, ...]:
        network, others = tensors[:4], tensors[5:]
        found = compute_backward(wanted, *network, *others, schedule, t0, nonlinearity)
        return tuple(gradient for gradient in found if gradient is not None)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.wanted, *ctx.settings = inputs[:4]
        ctx.save_for_backward(*inputs[4:])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        # the derivative of a derivative: that of the cascade, which is made of ordinary operations
        *network, lengths, _, g_final, g_ticks, g_held = ctx.saved_tensors
        given = [*network, g_final, g_ticks, g_held]
        present = [i for i, tensor in enumerate(given) if tensor is not None]

        def gradient(*values: Tensor) -> tuple[Tensor, ...]:
            full = list(given)
            for i, value in zip(present, values, strict=True):
                full[i] = value
            schedule, t0, nonlinearity = ctx.settings
            return _gradient_of_cascade(ctx.wanted, full[:5], lengths, full[5:], schedule, t0, nonlinearity)

        pair: Any = torch.func.vjp(gradient, *(given[i] for i in present))
        _, pull_back = pair
        second: list[Tensor | None] = [None] * len(given)
        for i, value in zip(present, pull_back(tuple(cotangents)), strict=True):
            second[i] = value
        return *[None] * 4, *second[:5], None, None, *second[5:]

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        nested, stacked = _stack_replicas(info.batch_size, in_dims[4:], arguments[4:])
        outputs = _Gradient.apply(*arguments[:4], *stacked)  # type: ignore[no-untyped-call]
        return _unstack_replicas(info.batch_size, nested, outputs)


def _stack_replicas(
    size: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor | None]
) -> tuple[bool, list[Tensor | None]]:
    """Each tensor with the mapped axis in front, as one with the replicas that are there already.

    The tensors are those of a network: the third is weight_hh, whose dimensions tell whether there are.
    """
    weight_hh = tensors[2]
    assert weight_hh is not None
    nested = weight_hh.dim() - (in_dims[2] is not None) == 3
    stacked: list[Tensor | None] = []
    for tensor, dim in zip(tensors, in_dims, strict=True):
        if tensor is not None:
            tensor = tensor.expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            tensor = tensor.flatten(0, 1) if nested else tensor
        stacked.append(tensor)
    return nested, stacked


def _unstack_replicas(size: int, nested: bool, outputs: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    if nested:
        outputs = [output.unflatten(0, (size, -1)) for output in outputs]
    return tuple(outputs), (0,) * len(outputs)


def _gradient_of_cascade(
    wanted: Sequence[bool],
    network: Sequence[Tensor | None],
    lengths: Tensor | None,
    gradients: Sequence[Tensor | None],
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
) -> tuple[Tensor, ...]:
    """What `compute_backward` computes, by differentiating the cascade: the wanted gradients only."""
    g_final, g_ticks, g_held = gradients
    chosen = [i for i, want in enumerate(wanted) if want]

    def cascade_of_one(lengths: Any, input: Any, weight_ih: Any, weight_hh: Any, bias: Any, h0: Any) -> Any:
        done = cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity, lengths)
        ticks = torch.cat([module.values.flatten() for module in done.modules])
        return (done.h_n(), ticks) if g_held is None else (done.h_n(), ticks, done.hold())

    def states(*leaves: Any) -> Any:
        full = list(network)
        for i, leaf in zip(chosen, leaves, strict=True):
            full[i] = leaf
        if network[2].dim() == 2:  # type: ignore[union-attr]
            return cascade_of_one(lengths, *full)
        dims = tuple(None if tensor is None else 0 for tensor in (lengths, *full))
        return torch.func.vmap(cascade_of_one, in_dims=dims)(lengths, *full)

    pair: Any = torch.func.vjp(states, *(network[i] for i in chosen))
    found, pull_back = pair
    arriving = (g_final, g_ticks, g_held)[: len(found)]
    pulled: tuple[Tensor, ...] = pull_back(
        tuple(torch.zeros_like(value) if g is None else g for value, g in zip(found, arriving, strict=True))
    )
    return pulled


# ---- the operator: what torch.compile and torch.export see ----


# written out, because not every torch reads it from the annotations
SCHEMA = (
    "(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias, Tensor h0, Tensor? lengths, "
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity, bool hold) -> Tensor[]"
)
BACKWARD_SCHEMA = (
    "(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias, Tensor? lengths, Tensor ticks, "
    "Tensor? g_final, Tensor? g_ticks, Tensor? g_held, "
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity) -> Tensor[]"
)


@torch.library.custom_op("cwrnn::recurrence", mutates_args=(), schema=SCHEMA)
def _operator(*arguments: Any) -> list[Tensor]:
    *tensors, periods, sizes, t0, nonlinearity, hold = arguments
    operands = *tensors, Schedule(tuple(periods), tuple(sizes))
    _check_operands(*operands)
    outputs = compute_forward(*(*operands, t0, nonlinearity, hold))
    return [output for output in outputs if output is not None]


def _check_operands(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    lengths: Tensor | None,
    schedule: Schedule,
) -> None:
    """Anybody can call an operator, and inside a graph the layer cannot look at the lengths."""
    T, B, I = input.shape
    N = schedule.hidden_size
    expected = {"weight_ih": (N, I), "weight_hh": (N, N), "bias": (N,), "h0": (B, N), "lengths": (B,)}
    for name, tensor in zip(expected, (weight_ih, weight_hh, bias, h0, lengths), strict=True):
        if tensor is None:
            continue
        if tensor.shape != expected[name]:
            raise ValueError(f"{name} must have the shape {expected[name]}, got {tuple(tensor.shape)}")
        dtype = torch.int64 if name == "lengths" else input.dtype
        if tensor.dtype != dtype or tensor.device != input.device:
            raise ValueError(f"{name} must be {dtype} on {input.device}, got {tensor.dtype} on {tensor.device}")
    on_cpu = input.device.type == "cpu"
    reason = (library if on_cpu else triton).refuse(input.device, input.dtype)
    reason = triton.refuse_schedule(schedule) if reason is None and not on_cpu else reason
    if reason is not None:
        raise RuntimeError(f"the kernel cannot run on {input.device} with {input.dtype}: {reason}")
    # nor can anybody while a CUDA graph is captured; but what is captured has run before
    if lengths is None or B == 0 or (lengths.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if not (int(lengths.min()) >= 1 and int(lengths.max()) <= T):
        raise ValueError(f"lengths must lie between 1 and the {T} steps of the input, got {lengths.tolist()}")


@_operator.register_fake
def _(*arguments: Any) -> list[Tensor]:
    input, *_, h0, _, periods, sizes, t0, _, hold = arguments
    T, B, _ = input.shape
    N = sum(sizes)
    rows = count_rows(periods, t0, T)
    outputs = [h0.new_empty((1, B, N)), h0.new_empty((B * sum(map(operator.mul, rows, sizes)),))]
    return [*outputs, h0.new_empty((T, B, N))] if hold else outputs


@torch.library.custom_op("cwrnn::recurrence_backward", mutates_args=(), schema=BACKWARD_SCHEMA)
def _backward_operator(*arguments: Any) -> list[Tensor]:
    *tensors, periods, sizes, t0, nonlinearity = arguments
    wanted = [True, True, True, tensors[3] is not None, True]
    found = compute_backward(wanted, *(*tensors, Schedule(tuple(periods), tuple(sizes)), t0, nonlinearity))
    return [gradient for gradient in found if gradient is not None]


@_backward_operator.register_fake
def _(*arguments: Any) -> list[Tensor]:
    input, weight_ih, weight_hh, bias, _, ticks, *_, sizes, _, _ = arguments
    shapes = [input.shape, weight_ih.shape, weight_hh.shape, *([] if bias is None else [bias.shape])]
    return [ticks.new_empty(shape) for shape in (*shapes, (input.shape[1], sum(sizes)))]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    input, weight_ih, weight_hh, bias, _, lengths, *ctx.settings, _ = inputs
    ctx.save_for_backward(input, weight_ih, weight_hh, bias, lengths, output[1])


def _operator_backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    found = list(_backward_operator(*ctx.saved_tensors, *(*gradients, None)[:3], *ctx.settings))
    if ctx.saved_tensors[3] is None:
        found.insert(3, None)
    return *found, *[None] * 6


_operator.register_autograd(_operator_backward, setup_context=_setup_context)


# ---- the readout ----


class _Products(torch.autograd.Function):
    """What `weight` (O, N) makes of the states of every module, (n B, K) each, which lie one after another in `ticks`.

    Autograd by itself would make a gradient for each module's states, and then copy all of them into one.
    """

    @staticmethod
    def forward(ctx: Any, ticks: Tensor, weight: Tensor, shapes: Sequence[tuple[int, int]]) -> Any:
        ctx.save_for_backward(ticks, weight)
        ctx.shapes = shapes
        parts = zip(_states(ticks, shapes), _columns(weight, shapes), strict=True)
        return tuple(values @ column.T for values, column in parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ticks, weight = ctx.saved_tensors
        states, columns = _states(ticks, ctx.shapes), _columns(weight, ctx.shapes)
        # who differentiates again, or maps, must see it done
        if torch.is_grad_enabled() or is_watched() or any(map(is_legacy_batchedtensor, gradients)):
            by_module = [(g @ column).reshape(-1) for g, column in zip(gradients, columns, strict=True)]
            by_column = [g.T @ values for g, values in zip(gradients, states, strict=True)]
            return torch.cat(by_module), torch.cat(by_column, dim=1), None
        g_ticks = empty(ticks, ticks.shape) if ctx.needs_input_grad[0] else None
        g_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        if g_ticks is not None:
            for g, column, to in zip(gradients, columns, _states(g_ticks, ctx.shapes), strict=True):
                torch.mm(g, column, out=to)
        if g_weight is not None:
            for g, values, to in zip(gradients, states, _columns(g_weight, ctx.shapes), strict=True):
                torch.mm(g.T, values, out=to)
        return g_ticks, g_weight, None


def _states(ticks: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    parts = ticks.split([rows * size for rows, size in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _columns(weight: Tensor, shapes: Sequence[tuple[int, int]]) -> list[Tensor]:
    return list(weight.split([size for _, size in shapes], dim=1))


# ---- the backend ----


@dataclass(eq=False)
class KernelPass(Pass):
    """The ticks of all modules in one row, if they were kept; the final state; the held output, if it was asked for."""

    schedule: Schedule
    h0: Tensor | None
    state: Tensor
    ticks: Tensor | None
    held: Tensor | None

    @property
    def modules(self) -> tuple[Stream, ...]:
        """The states of every module, fastest first."""
        B = self.state.shape[-2]
        if self.ticks is None:
            assert self.held is not None
            h0 = initial_state(self.h0, self.held, self.schedule)
            return states_of(self.held, h0, self.schedule, self.t0)
        rows = count_rows(self.schedule.periods, self.t0, self.T)
        sizes = [n * B * size for n, size in zip(rows, self.schedule.sizes, strict=True)]
        parts = zip(self.ticks.split(sizes), rows, self.schedule.sizes, self.schedule.periods, strict=True)
        return tuple(
            Stream(values.view(n, B, size), period, last_tick_before(self.t0, period))
            for values, n, size, period in parts
        )

    def multiply(self, weight: Tensor) -> list[Stream]:
        """What `weight` (O, N) makes of the states of every module, each by its own columns."""
        tensors = self.ticks, weight
        if (
            self.ticks is None
            or not wants_gradient(tensors)
            or is_watched(tensors)
            or torch.is_autocast_enabled("cpu")
            or (weight.dtype, weight.device) != (self.ticks.dtype, torch.device("cpu"))
        ):
            return super().multiply(weight)
        B, periods = self.state.shape[-2], self.schedule.periods
        shapes = [
            (n * B, size) for n, size in zip(count_rows(periods, self.t0, self.T), self.schedule.sizes, strict=True)
        ]
        products: tuple[Tensor, ...] = _Products.apply(self.ticks, weight, shapes)  # type: ignore[no-untyped-call]
        return [
            Stream(values.unflatten(0, (-1, B)), period, last_tick_before(self.t0, period))
            for values, period in zip(products, periods, strict=True)
        ]

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        return super().hold() if self.held is None else self.held

    def final(self) -> Tensor:
        """(B, N): the hidden state at each sequence's own end."""
        return self.state.squeeze(0)

    def h_n(self) -> Tensor:
        """(1, B, N): the same, as a layer returns it."""
        return self.state


def run(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
    lengths: Tensor | None = None,
    hold: bool = True,
) -> Pass:
    """The states of every module at its own ticks, fastest module first; as `cascade`."""
    tensors = input, weight_ih, weight_hh, bias, h0, lengths
    settings = schedule, t0, nonlinearity, hold
    if is_watched(tensors):
        return _run_watched(tensors, *settings)
    check_network(*tensors[:5], schedule.hidden_size)
    state, states = _run_eager(tensors, settings, keep_ticks=not hold)
    ticks, held = (None, states) if hold else (states, None)
    return KernelPass(t0, input.shape[0], lengths, schedule, h0, state, ticks, held)


def _run_eager(tensors: Sequence[Tensor | None], settings: tuple[Any, ...], keep_ticks: bool) -> tuple[Tensor, Any]:
    """The final state, and the output, if it is held, or else the ticks.

    Without a gradient there are ticks only if `keep_ticks`; if there is neither, None.
    """
    if wants_gradient(tensors):
        outputs: tuple[Tensor, Tensor] = _EagerRecurrence.apply(*tensors, settings)  # type: ignore[no-untyped-call]
        return outputs
    final, ticks, held = compute_forward(*tensors, *settings, keep_ticks=keep_ticks)
    return final, ticks if held is None else held


def _run_watched(tensors: Sequence[Any], schedule: Schedule, t0: int, nonlinearity: str, hold: bool) -> Pass:
    """The same where other than autograd must see what is done."""
    input, weight_ih, weight_hh, bias, h0, lengths = tensors
    if (
        has_tangents()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace would see memory, and not who fills it
        or (torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active())
    ):
        return cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity, lengths)
    h0 = initial_state(h0, input, schedule)
    tensors = input, weight_ih, weight_hh, bias, h0, lengths
    if is_captured(tensors):
        state, ticks, *held = _operator(*tensors, schedule.periods, schedule.sizes, t0, nonlinearity, hold)
    else:
        check_network(*tensors[:5], schedule.hidden_size)
        state, ticks, *held = _Recurrence.apply(*tensors, schedule, t0, nonlinearity, hold)  # type: ignore[no-untyped-call]
    return KernelPass(t0, input.shape[0], lengths, schedule, h0, state, ticks, held[0] if hold else None)


def run_replicas(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor,
    schedule: Schedule,
    lengths: Tensor | None = None,
) -> Tensor:
    """The states (S, T, N) of S networks from a state of zero, each on a sequence of its own, zero beyond its end.

    What `torch.func.vmap` of `run` gives for a batch of 1 and tanh, without what the mapping takes. First derivatives
    only. A network gives the same bits alone as among others, on any number of threads.

    Args:
        input: (S, T, I)
        weight_ih: (S, N, I)
        weight_hh: (S, N, N)
        bias: (S, N)
        schedule: of all networks
        lengths: (S,) int64: until where each sequence is read, to its end if None
    """
    S, _, I = input.shape
    N = schedule.hidden_size
    expected = {"weight_ih": (weight_ih, (S, N, I)), "weight_hh": (weight_hh, (S, N, N)), "bias": (bias, (S, N))}
    check_shapes(input.dtype, **expected)
    check_shapes(torch.int64, lengths=(lengths, (S,)))
    tensors = input.unsqueeze(2), weight_ih, weight_hh, bias, None, None if lengths is None else lengths[:, None]
    held: Tensor
    _, held = _run_eager(tensors, (schedule, 0, "tanh", True), keep_ticks=False)
    return held.squeeze(2)


def run_to_end(
    input: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor, schedule: Schedule, lengths: Tensor
) -> Tensor:
    """The states (S, B, N) of S networks at the ends of B sequences each, from a state of zero; as `run_replicas`.

    Args:
        input: (S, T, B, I)
        weight_ih: (S, N, I)
        weight_hh: (S, N, N)
        bias: (S, N)
        schedule: of all networks
        lengths: (S, B) int64: where each sequence ends
    """
    S, _, B, I = input.shape
    N = schedule.hidden_size
    check_shapes(input.dtype, weight_ih=(weight_ih, (S, N, I)), weight_hh=(weight_hh, (S, N, N)), bias=(bias, (S, N)))
    check_shapes(torch.int64, lengths=(lengths, (S, B)))
    tensors = input, weight_ih, weight_hh, bias, None, lengths
    final, _ = _run_eager(tensors, (schedule, 0, "tanh", False), keep_ticks=False)
    return final.squeeze(1)
