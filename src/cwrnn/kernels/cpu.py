"""The CPU kernel: the whole recurrence, forward and backward, in C (cpu.c), called through ctypes.

One call runs S independent networks on one schedule: tensors may have a leading axis of replicas, and that is
where `torch.func.vmap` leads. The kernel knows first derivatives. Those beyond, and forward mode, are taken of
the cascade, which computes the same.
"""

import math
import operator
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakTensorKeyDictionary

from ..cascade import cascade
from ..schedule import Schedule
from ..step import clockwork_step
from ..ticks import Pass, Stream, last_tick_before, states_of
from .library import (
    check_shapes,
    current_isa,
    dense,
    has_tangents,
    invoke,
    is_captured,
    is_watched,
    pointer,
    refuse,
    wants_gradient,
    whole,
)

LONGEST_CYCLE = 2**63 - 1
"""After so many steps all modules must be due together, for the kernel to count them."""


# ---- the calls ----


@lru_cache(maxsize=256)
def _clock(schedule: Schedule, t0: int, T: int) -> tuple[tuple[int, ...], int]:
    """What the kernel needs to know of a schedule for T steps from t0, and how many states that makes per sequence.

    The words are periods, sizes and first ticks, counted from t0.
    """
    firsts = [-t0 % period for period in schedule.periods]
    states = sum(map(operator.mul, _count_rows(schedule.periods, t0, T), schedule.sizes))
    return (*schedule.periods, *schedule.sizes, *firsts), states


def _count_rows(periods: Sequence[int], t0: int, T: int) -> list[int]:
    """How many states each module has: one per tick, and the one before. T may be a symbol."""
    return [(t0 + T - 1) // period - (t0 - 1) // period + 1 for period in periods]


def _network_words(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    modules: int,
    nonlinearity: str,
) -> list[int]:
    """The words that every call begins with. The tensors must be dense."""
    T, B, I = input.shape[-3:]
    if weight_hh.dim() == 2:
        S = 1
        strides = [0, 0, 0, 0, 0]
    else:
        S = weight_hh.shape[0]
        strides = [0 if tensor is None else tensor.stride(0) for tensor in (input, weight_ih, weight_hh, bias, lengths)]
    return [
        S, T, B, I, modules, nonlinearity == "relu", torch.get_num_threads(),
        input.data_ptr(), strides[0], input.stride(-3), input.stride(-2),
        weight_ih.data_ptr(), strides[1], weight_hh.data_ptr(), strides[2], pointer(bias), strides[3],
        pointer(lengths), strides[4],
    ]  # fmt: skip


def _forward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    lengths: Tensor | None,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
    hold: bool,
    keep_ticks: bool = True,
) -> tuple[Tensor, ...]:
    """The final state (B, N), the ticks of all modules in one row, and if `hold` the output (T, B, N).

    With replicas, (S, ...) of each. Without `keep_ticks` there is nothing in their place.
    """
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths = dense(bias, 1), dense(h0, 1), dense(lengths, 1)
    lead = weight_hh.shape[:-2]
    T, B, _ = input.shape[-3:]
    N = schedule.hidden_size
    clock, states = _clock(schedule, t0, T)
    final = h0.new_empty((*lead, B, N))
    ticks = h0.new_empty((*lead, B * states if keep_ticks else 0))
    held = h0.new_empty((*lead, T, B, N)) if hold else None
    invoke("forward", h0.dtype, [
        *_network_words(input, weight_ih, weight_hh, bias, lengths, schedule.modules, nonlinearity),
        ticks.data_ptr() if keep_ticks else 0,
        h0.data_ptr(), h0.stride(0) if lead else 0, h0.stride(-2), final.data_ptr(), pointer(held),
        *[0] * 11, *clock,
    ])  # fmt: skip
    return (final, ticks) if held is None else (final, ticks, held)


def _backward(
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
    nonlinearity: str,
) -> list[Tensor | None]:
    """The gradients of input, weight_ih, weight_hh, bias and h0; None for those that are not wanted."""
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, lengths = dense(bias, 1), dense(lengths, 1)
    lead = weight_hh.shape[:-2]
    T, B, I = input.shape[-3:]
    N = schedule.hidden_size
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    gradients = [ticks.new_empty((*lead, *shape)) if want else None for want, shape in zip(wanted, shapes, strict=True)]
    ticks, g_final, g_ticks = ticks.contiguous(), whole(g_final), whole(g_ticks)
    strides = 0, 0, 0
    if g_held is not None:
        g_held = dense(g_held, 1)
        strides = g_held.stride(0) if lead else 0, g_held.stride(-3), g_held.stride(-2)
    invoke("backward", ticks.dtype, [
        *_network_words(input, weight_ih, weight_hh, bias, lengths, schedule.modules, nonlinearity),
        ticks.data_ptr(), 0, 0, 0, 0, 0,
        pointer(g_ticks), pointer(g_final), pointer(g_held), *strides, *map(pointer, gradients),
        *_clock(schedule, t0, T)[0],
    ])  # fmt: skip
    return gradients


# ---- autograd ----


class _Recurrence(torch.autograd.Function):
    """`_forward`, for autograd and for torch.func."""

    @staticmethod
    def forward(*arguments: Any) -> tuple[Tensor, ...]:
        return _forward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.settings = inputs[6:9]
        ctx.save_for_backward(*inputs[:6], output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(
        ctx: Any, g_final: Tensor | None, g_ticks: Tensor | None, g_held: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        wanted = tuple(ctx.needs_input_grad[:5])
        tensors: tuple[Any, ...] = *ctx.saved_tensors, g_final, g_ticks, g_held
        if has_tangents():
            *network, lengths, _ = tensors[:7]
            left = iter(_gradient_of_cascade(wanted, network, lengths, tensors[7:], *ctx.settings))
            found = [next(left) if want else None for want in wanted]
        elif torch.is_grad_enabled() or torch._C._are_functorch_transforms_active():
            left = iter(_Gradient.apply(wanted, *ctx.settings, *tensors))  # type: ignore[no-untyped-call]
            found = [next(left) if want else None for want in wanted]
        else:
            found = _backward(wanted, *tensors[:4], *tensors[5:], *ctx.settings)
        return *found, *[None] * 5

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        nested, stacked = _stack_replicas(info.batch_size, in_dims[:6], arguments[:6])
        outputs = _Recurrence.apply(*stacked, *arguments[6:])  # type: ignore[no-untyped-call]
        return _unstack_replicas(info.batch_size, nested, outputs)


class _EagerRecurrence(torch.autograd.Function):
    """The same without torch.func, for which `apply` takes its time: it binds the arguments by their names."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        outputs = _forward(*arguments)
        _Recurrence.setup_context(ctx, arguments, outputs)
        return outputs

    backward = _Recurrence.backward


class _Gradient(torch.autograd.Function):
    """Backward of `_Recurrence`, as a function that can itself be mapped and differentiated."""

    @staticmethod
    def forward(
        wanted: tuple[bool, ...], schedule: Schedule, t0: int, nonlinearity: str, *tensors: Any
    ) -> tuple[Tensor, ...]:
        network, others = tensors[:4], tensors[5:]
        found = _backward(wanted, *network, *others, schedule, t0, nonlinearity)  # type: ignore[call-arg]
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
    """What `_backward` computes, by differentiating the cascade: the wanted gradients only."""
    g_final, g_ticks, g_held = gradients
    chosen = [i for i, want in enumerate(wanted) if want]

    def cascade_of_one(lengths: Any, input: Any, weight_ih: Any, weight_hh: Any, bias: Any, h0: Any) -> Any:
        done = cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity, lengths)
        ticks = torch.cat([module.values.flatten() for module in done.modules])
        return (done.final(), ticks) if g_held is None else (done.final(), ticks, done.hold())

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
    return list(_forward(*(*operands, t0, nonlinearity, hold)))


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
    reason = refuse(input.device, input.dtype)
    if reason is not None:
        raise RuntimeError(f"the CPU kernel cannot run on {input.device} with {input.dtype}: {reason}")
    if lengths is not None and B > 0 and not (int(lengths.min()) >= 1 and int(lengths.max()) <= T):
        raise ValueError(f"lengths must lie between 1 and the {T} steps of the input, got {lengths.tolist()}")


@_operator.register_fake
def _(*arguments: Any) -> list[Tensor]:
    input, *_, h0, _, periods, sizes, t0, _, hold = arguments
    T, B, _ = input.shape
    N = sum(sizes)
    rows = _count_rows(periods, t0, T)
    outputs = [h0.new_empty((B, N)), h0.new_empty((B * sum(map(operator.mul, rows, sizes)),))]
    return [*outputs, h0.new_empty((T, B, N))] if hold else outputs


@torch.library.custom_op("cwrnn::recurrence_backward", mutates_args=(), schema=BACKWARD_SCHEMA)
def _backward_operator(*arguments: Any) -> list[Tensor]:
    *tensors, periods, sizes, t0, nonlinearity = arguments
    wanted = [True, True, True, tensors[3] is not None, True]
    found = _backward(wanted, *(*tensors, Schedule(tuple(periods), tuple(sizes)), t0, nonlinearity))
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


# ---- the backend ----


@dataclass(eq=False)
class KernelPass(Pass):
    """The ticks of all modules in one row, if they were kept; the final state; the held output, if it was asked for."""

    schedule: Schedule
    h0: Tensor
    ticks: Tensor
    state: Tensor
    held: Tensor | None

    @property
    def modules(self) -> tuple[Stream, ...]:
        """The states of every module, fastest first."""
        B = self.state.shape[-2]
        if self.held is not None and self.ticks.numel() == 0:
            return states_of(self.held, self.h0, self.schedule, self.t0)
        rows = _count_rows(self.schedule.periods, self.t0, self.T)
        sizes = [n * B * size for n, size in zip(rows, self.schedule.sizes, strict=True)]
        parts = zip(self.ticks.split(sizes), rows, self.schedule.sizes, self.schedule.periods, strict=True)
        return tuple(
            Stream(values.view(n, B, size), period, last_tick_before(self.t0, period))
            for values, n, size, period in parts
        )

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        return super().hold() if self.held is None else self.held

    def final(self) -> Tensor:
        """(B, N): the hidden state at each sequence's own end."""
        return self.state


def run(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
    lengths: Tensor | None = None,
    hold: bool = True,
) -> Pass:
    """The states of every module at its own ticks, fastest module first; as `cascade`."""
    tensors = input, weight_ih, weight_hh, bias, h0, lengths
    if (
        has_tangents()
        or torch._C._get_tracing_state() is not None  # torch.jit.trace would see memory, and not who fills it
        or (torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active())
    ):
        return cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity, lengths)
    if is_captured(tensors):
        outputs = _operator(*tensors, schedule.periods, schedule.sizes, t0, nonlinearity, hold)
    elif torch._C._are_functorch_transforms_active():
        outputs = _Recurrence.apply(*tensors, schedule, t0, nonlinearity, hold)  # type: ignore[no-untyped-call]
    elif wants_gradient(tensors):
        outputs = _EagerRecurrence.apply(*tensors, schedule, t0, nonlinearity, hold)  # type: ignore[no-untyped-call]
    else:
        # who looks at the output, and will not go backward, needs no ticks
        outputs = _forward(*tensors, schedule, t0, nonlinearity, hold, keep_ticks=not hold)
    state, ticks = outputs[:2]
    return KernelPass(t0, input.shape[0], lengths, schedule, h0, ticks, state, outputs[2] if hold else None)


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
    tensors = input.unsqueeze(2), weight_ih, weight_hh, bias, input.new_zeros(S, 1, N)
    arguments = *tensors, None if lengths is None else lengths[:, None], schedule, 0, "tanh", True
    held: Tensor
    if wants_gradient(tensors):
        _, _, held = _EagerRecurrence.apply(*arguments)  # type: ignore[no-untyped-call]
    else:
        _, _, held = _forward(*arguments, keep_ticks=False)
    return held.squeeze(2)


class _Packed:
    """The weights of one layer as a step wants them, for as long as they do not change."""

    def __init__(self, schedule: Schedule, weight_ih: Tensor, weight_hh: Tensor) -> None:
        weight_ih, weight_hh = dense(weight_ih, 2), dense(weight_hh, 2)
        sizes = torch.empty(2, dtype=torch.int64)
        self.call = array("q", [0, weight_ih.shape[1], schedule.modules, *[0] * 16, *schedule.sizes, *schedule.periods])
        call = self.call[:]
        call[WEIGHT_IH] = weight_ih.data_ptr()
        call[WEIGHT_HH] = weight_hh.data_ptr()
        call[SIZES] = sizes.data_ptr()
        invoke("step_sizes", weight_hh.dtype, call)
        size, self.row = sizes.tolist()
        self.values = weight_hh.new_empty(size)
        call[PACKED] = self.call[PACKED] = self.values.data_ptr()
        invoke("step_pack", weight_hh.dtype, call)
        self.schedule = schedule
        self.isa = current_isa()

    @classmethod
    def of(cls, schedule: Schedule, weight_ih: Tensor, weight_hh: Tensor) -> "_Packed":
        """Those that were packed before, if they are the same: all streams through a layer share them."""
        new = cls(schedule, weight_ih, weight_hh)
        old: _Packed | None = _packed.get(weight_hh)
        if (
            old is not None
            and (old.schedule, old.isa, old.values.dtype) == (new.schedule, new.isa, new.values.dtype)
            and torch.equal(old.values, new.values)
        ):
            return old
        _packed[weight_hh] = new
        return new


_packed: Any = WeakTensorKeyDictionary()

# the places of Step in cpu.h
B_, RECTIFY, THREADS, WEIGHT_IH, WEIGHT_HH, PACKED, SIZES = 0, 3, 4, 5, 6, 7, 8
INPUT, INPUT_B, BIAS, H, H_B, NEXT, OUTPUT, SAID, KNOWN, CLOCK = range(9, 19)


class Said:
    """What all modules last said, as the kernel keeps it from step to step.

    A cache. It holds for the state that stands beside it, with which the kernel compares the state that comes in: one
    that was changed by hand is another one. And it holds for the weights as they were. Autograd counts their changes;
    of those made behind its back (a fused optimizer, `.data`, another process), the kernel sees those that concern all
    weights, because it looks at some of them at every step.
    """

    def __init__(
        self, schedule: Schedule, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None
    ) -> None:
        self.schedule = schedule
        self.weights = weight_ih, weight_hh, bias
        self.versions = weight_ih._version, weight_hh._version
        self.isa = current_isa()
        self.packed = _Packed.of(schedule, weight_ih, weight_hh)
        self.values = h.new_empty((h.shape[-2], self.packed.row))
        self.output = h.new_empty(h.shape[-2:])
        self.input_shape: torch.Size | None = None
        self.steps = 0
        self.cycle = math.lcm(*schedule.periods)
        self.call = self.packed.call[:]
        self.call[B_] = h.shape[-2]
        self.call[SAID] = self.values.data_ptr()

    def still_holds(
        self, schedule: Schedule, weight_ih: Tensor | None, weight_hh: Tensor | None, bias: Tensor | None, B: int
    ) -> bool:
        """Whether schedule and weights are still the same, and as many sequences listen."""
        own = self.weights
        return (
            own[1] is weight_hh and own[0] is weight_ih and own[2] is bias
            and self.versions == (own[0]._version, own[1]._version)
            and (self.schedule is schedule or self.schedule == schedule)
            and self.isa == current_isa()
            and self.values.shape[0] == B
        )  # fmt: skip

    def step(self, input: Tensor, h: Tensor, t: int, nonlinearity: str) -> tuple[Tensor, Tensor] | None:
        """The new state twice, each of its own: to show, as (B, N), and to go on with, in the shape of h.

        None if the weights were found to be others.
        """
        input, h = dense(input, 1), dense(h, 1)
        weight_ih, weight_hh, bias = self.weights
        if not (weight_ih.is_contiguous() and weight_hh.is_contiguous() and (bias is None or bias.is_contiguous())):
            weight_ih, weight_hh, bias = dense(weight_ih, 2), dense(weight_hh, 2), dense(bias, 1)
        output = torch.empty_like(self.output)
        after = torch.empty_like(h) if h.is_contiguous() else h.new_empty(h.shape)
        call = self.call
        call[RECTIFY] = nonlinearity == "relu"
        call[THREADS] = torch.get_num_threads()
        call[WEIGHT_IH] = weight_ih.data_ptr()
        call[WEIGHT_HH] = weight_hh.data_ptr()
        call[INPUT] = input.data_ptr()
        call[INPUT_B] = input.stride(0)
        call[BIAS] = 0 if bias is None else bias.data_ptr()
        call[H] = h.data_ptr()
        call[H_B] = h.stride(-2)
        call[NEXT] = after.data_ptr()
        call[OUTPUT] = output.data_ptr()
        call[KNOWN] = self.steps
        call[CLOCK] = t % self.cycle
        if not invoke("step", h.dtype, call):
            return None
        self.input_shape = input.shape
        self.steps += 1
        return output, after

    def goes_on(self, input: Any, h: Tensor, schedule: Schedule, parameters: Mapping[str, Tensor | None]) -> bool:
        """Whether `step` may follow at once on the last one: nothing has changed but input, state and time."""
        return (
            type(input) is Tensor
            and type(h) is Tensor
            and input.shape == self.input_shape
            and input.dtype == h.dtype == self.values.dtype
            and input.is_cpu
            and h.shape[-2:] == self.output.shape
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not is_watched(())
            and self.still_holds(
                schedule,
                parameters.get("weight_ih_l0"),
                parameters.get("weight_hh_l0"),
                parameters.get("bias_l0"),
                input.shape[0],
            )
        )


def step(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor,
    schedule: Schedule,
    t: int,
    nonlinearity: str,
    said: Said | None = None,
) -> tuple[Tensor, Tensor, Said | None]:
    """One time step, as `clockwork_step`, which takes over where derivatives are wanted, or weights do not last."""
    tensors = input, weight_ih, weight_hh, bias, h
    if (
        is_watched(tensors)
        or wants_gradient(tensors)
        or not (isinstance(weight_hh, Parameter) and isinstance(weight_ih, Parameter))
        or weight_hh.is_inference()
        or weight_ih.is_inference()
        or math.lcm(*schedule.periods) > LONGEST_CYCLE
    ):
        return clockwork_step(input, weight_ih, weight_hh, bias, h, schedule, t, nonlinearity)
    if said is None or not said.still_holds(schedule, weight_ih, weight_hh, bias, input.shape[0]):
        said = Said(schedule, h, weight_ih, weight_hh, bias)
    found = said.step(input, h, t, nonlinearity)
    while found is None:
        said = Said(schedule, h, weight_ih, weight_hh, bias)
        found = said.step(input, h, t, nonlinearity)
    return *found, said
