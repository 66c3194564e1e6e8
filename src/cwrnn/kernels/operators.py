"""The recurrence as operators of torch, which torch.compile and torch.export record as one node of their graphs.

torch itself calls the kernel of the device that the tensors lie on. The operators are defined by a `Library` and not by
`custom_op`, which wraps every call in checks that take longer than a small network computes.
"""

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch._library.autograd import Info, make_autograd_impl

from ..cells import CELLS, PEEPHOLES
from ..held import count_rows
from ..schedule import Schedule
from .autograd import (
    Kernel,
    Operands,
    Outputs,
    Recurrence,
    differentiate_cascade,
    differentiate_twice,
    need_cascade,
    spread,
)
from .cpu import loader, sequence
from .flops import prepare_counters
from .gpu import launch

# the schemas are written out, because not every torch reads them from the annotations
SCHEMA = (
    "(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias, Tensor? h0, Tensor? lengths, "
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity, bool hold, bool keep_ticks=True, "
    "Tensor? weight_ch=None) -> Tensor[]"
)
BACKWARD_SCHEMA = (
    "(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias, Tensor? lengths, Tensor ticks, "
    "Tensor? g_final, Tensor? g_ticks, Tensor? g_held, "
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity, bool[]? wanted=None, "
    "Tensor? weight_ch=None, Tensor? kept=None, Tensor? h0=None) -> Tensor[]"
)

Refuse = Callable[[torch.device, torch.dtype, Schedule, str], str | None]


def _refuse_on_cpu(device: torch.device, dtype: torch.dtype, schedule: Schedule, cell: str) -> str | None:
    return loader.refuse(device, dtype)


def _refuse_on_gpu(device: torch.device, dtype: torch.dtype, schedule: Schedule, cell: str) -> str | None:
    return launch.refuse(device, dtype) or launch.refuse_schedule(schedule, device, dtype, cell)


@lru_cache(maxsize=256)
def _make_schedule(periods: tuple[int, ...], sizes: tuple[int, ...]) -> Schedule:
    return Schedule(periods, sizes)


def _forward_of(kernel: Kernel, refuse: Refuse) -> Callable[..., list[Tensor]]:
    """The operator for the device of `kernel`.

    It returns the final state, the ticks if they are kept, the output if it is held, and with the ticks of a gated cell
    what its backward needs besides them.
    """

    def compute(
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        h0: Tensor | None,
        lengths: Tensor | None,
        periods: Sequence[int],
        sizes: Sequence[int],
        t0: int,
        nonlinearity: str,
        hold: bool,
        keep_ticks: bool = True,
        weight_ch: Tensor | None = None,
    ) -> list[Tensor]:
        schedule = _make_schedule(tuple(periods), tuple(sizes))
        expected = _expect_network(input, weight_ih, weight_hh, bias, weight_ch, lengths, schedule.sizes, nonlinearity)
        expected["h0"] = h0, (input.shape[1], CELLS[nonlinearity].parts * schedule.hidden_size)
        _check_operands(input, expected, t0)
        _check_kernel(input, schedule, nonlinearity, refuse)
        _check_lengths(lengths, input.shape[0])
        final, ticks, held, kept = kernel.forward(
            input, weight_ih, weight_hh, bias, h0, lengths, schedule, t0, nonlinearity, hold, keep_ticks, keep_ticks,
            weight_ch,
        )  # fmt: skip
        # a kernel may keep the ticks although they are not asked for
        return [output for output in (final, ticks if keep_ticks else None, held, kept) if output is not None]

    return compute


def _backward_of(kernel: Kernel, refuse: Refuse) -> Callable[..., list[Tensor]]:
    """The operator of the gradients for the device of `kernel`: the wanted ones of the operands.

    If `wanted` is None, it returns all of them. Only second derivatives read `h0`.
    """

    def compute(
        input: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias: Tensor | None,
        lengths: Tensor | None,
        ticks: Tensor,
        g_final: Tensor | None,
        g_ticks: Tensor | None,
        g_held: Tensor | None,
        periods: Sequence[int],
        sizes: Sequence[int],
        t0: int,
        nonlinearity: str,
        wanted: Sequence[bool] | None = None,
        weight_ch: Tensor | None = None,
        kept: Tensor | None = None,
        h0: Tensor | None = None,
    ) -> list[Tensor]:
        schedule = _make_schedule(tuple(periods), tuple(sizes))
        expected = _expect_network(input, weight_ih, weight_hh, bias, weight_ch, lengths, schedule.sizes, nonlinearity)
        T, B, _ = input.shape
        N = schedule.hidden_size
        states = B * sum(map(operator.mul, count_rows(periods, t0, T), sizes))
        expected |= {"ticks": (ticks, (states,)), "g_ticks": (g_ticks, (states,))}
        parts = CELLS[nonlinearity].parts
        expected |= {"g_final": (g_final, (1, B, parts * N)), "g_held": (g_held, (T, B, N))}
        size = kernel.count_kept(schedule, t0, T, B, nonlinearity, input.dtype)
        if (kept is None) != (size == 0):
            raise ValueError(f"kept must be the last output of recurrence for {nonlinearity!r}, got {kept}")
        expected["kept"] = kept, (size,)
        _check_operands(input, expected, t0)
        _check_kernel(input, schedule, nonlinearity, refuse)
        gradients = kernel.backward(
            _check_wanted(wanted, bias, weight_ch), input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks,
            g_held, schedule, t0, nonlinearity, weight_ch, kept,
        )  # fmt: skip
        return [gradient for gradient in gradients if gradient is not None]

    return compute


Expected = dict[str, tuple[Tensor | None, tuple[int, ...]]]
"""Tensors that may be missing, and the shapes that they must have, by name."""


def _expect_network(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    weight_ch: Tensor | None,
    lengths: Tensor | None,
    sizes: Sequence[int],
    cell: str,
) -> Expected:
    """The shapes of the tensors that forward and backward share."""
    if cell not in CELLS:
        names = ", ".join(f"'{name}'" for name in CELLS)
        raise ValueError(f"Unknown cell '{cell}'. Select from {names}.")
    if weight_ch is not None and cell != "lstm":
        raise ValueError(f"only an LSTM has peepholes, got weight_ch for {cell!r}")
    if input.dim() != 3:
        raise ValueError(f"input must have the shape (T, B, I), got {tuple(input.shape)}")
    _, B, I = input.shape
    N = sum(sizes)
    gates, biases, _ = CELLS[cell]
    return {
        "weight_ih": (weight_ih, (gates * N, I)),
        "weight_hh": (weight_hh, (gates * N, N)),
        "bias": (bias, (biases * N,)),
        "weight_ch": (weight_ch, (PEEPHOLES * N,)),
        "lengths": (lengths, (B,)),
    }


def _check_operands(input: Tensor, expected: Expected, t0: int) -> None:
    """Refuses operands that do not fit: anybody can call an operator, and a kernel reads memory by these shapes."""
    input_dtype, device = input.dtype, input.device
    for name, (tensor, shape) in expected.items():
        if tensor is None:
            continue
        if tensor.shape != shape:
            raise ValueError(f"{name} must have the shape {shape}, got {tuple(tensor.shape)}")
        dtype = torch.int64 if name == "lengths" else input_dtype
        if tensor.dtype != dtype or tensor.device != device:
            raise ValueError(f"{name} must be {dtype} on {device}, got {tensor.dtype} on {tensor.device}")
    if t0 < 0:
        raise ValueError(f"t0 must be zero or greater, got {t0}")


def _check_wanted(wanted: Sequence[bool] | None, bias: Tensor | None, weight_ch: Tensor | None) -> Sequence[bool]:
    """Which gradients are wanted: all that exist if `wanted` is None."""
    existing = Operands(True, True, True, bias is not None, True, weight_ch is not None)
    if wanted is None:
        return existing
    # programs that were saved before there were peepholes do not mention them
    wanted = [*wanted, False] if len(wanted) == len(existing) - 1 else wanted
    if len(wanted) != len(existing) or any(want and not exists for want, exists in zip(wanted, existing, strict=True)):
        raise ValueError(f"wanted must have one entry for each of {', '.join(Operands._fields)}, got {list(wanted)}")
    return wanted


def _check_kernel(input: Tensor, schedule: Schedule, cell: str, refuse: Refuse) -> None:
    reason = refuse(input.device, input.dtype, schedule, cell)
    if reason is not None:
        raise RuntimeError(f"the kernel cannot run on {input.device} with {input.dtype}: {reason}")


def _check_lengths(lengths: Tensor | None, T: int) -> None:
    """Refuses lengths that do not fit T steps: inside a graph the layer cannot check them."""
    # lengths cannot be read while a CUDA graph is captured; the same call was checked when it ran before the capture
    if lengths is None or lengths.numel() == 0 or (lengths.is_cuda and torch.cuda.is_current_stream_capturing()):
        return
    if not (int(lengths.min()) >= 1 and int(lengths.max()) <= T):
        raise ValueError(f"lengths must lie between 1 and the {T} steps of the input, got {lengths.tolist()}")


# the operators live as long as the library; another part of the package also defines operators in this namespace
_library = torch.library.Library("cwrnn", "FRAGMENT")


Implementations = dict[str, Callable[..., list[Tensor]]]
"""The functions that compute an operator, by the dispatch key of their device."""


def _define(name: str, schema: str, implementations: Implementations) -> Any:
    """Defines the operator `name` and returns it. The kernels read tensors of any strides."""
    _library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
    for key, compute in implementations.items():
        # torch.compile must not look into kernels
        _library.impl(name, _disable_dynamo(compute), key)
    return getattr(torch.ops.cwrnn, name).default


def _differentiate(
    name: str, implementations: Implementations, backward: Callable[..., Any], setup_context: Callable[..., None]
) -> None:
    """Gives the operator `name` its derivative, as `torch.library.register_autograd` does, and a shortcut.

    torch enters an operator twice: once for autograd, once for the device. A compiled graph calls its operators without
    gradients, so the second entry is left out there: it takes a third of the time that torch needs for such a call.
    """
    record = make_autograd_impl(getattr(torch.ops.cwrnn, name).default, Info(backward, setup_context))
    _library.impl(name, record, "Autograd", with_keyset=True)
    for key, compute in implementations.items():
        _library.impl(name, _disable_dynamo(_shorten(key, compute, record)), f"Autograd{key}", with_keyset=True)


def _shorten(key: str, compute: Callable[..., list[Tensor]], record: Callable[..., Any]) -> Callable[..., Any]:
    """`record`, which autograd enters; `compute` itself if there are no gradients and nothing else sees the call."""
    plain = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)).raw_repr()

    def enter(keys: Any, *arguments: Any) -> Any:
        if not torch.is_grad_enabled() and (keys & torch._C._after_autograd_keyset).raw_repr() == plain:
            return compute(*arguments)
        return record(keys, *arguments)

    return enter


FORWARD: Implementations = {
    "CPU": _forward_of(sequence, _refuse_on_cpu),
    "CUDA": _forward_of(launch, _refuse_on_gpu),
}
BACKWARD: Implementations = {
    "CPU": _backward_of(sequence, _refuse_on_cpu),
    "CUDA": _backward_of(launch, _refuse_on_gpu),
}
recurrence = _define("recurrence", SCHEMA, FORWARD)
recurrence_backward = _define("recurrence_backward", BACKWARD_SCHEMA, BACKWARD)


def _describe_outputs(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    periods: Sequence[int],
    sizes: Sequence[int],
    t0: int,
    nonlinearity: str,
    hold: bool,
    keep_ticks: bool = True,
    weight_ch: Tensor | None = None,
) -> list[Tensor]:
    """The outputs of `recurrence` without their values, for torch.compile, torch.export and the device meta."""
    expected = _expect_network(input, weight_ih, weight_hh, bias, weight_ch, lengths, sizes, nonlinearity)
    T, B, _ = input.shape
    N = sum(sizes)
    parts = CELLS[nonlinearity].parts
    _check_operands(input, expected | {"h0": (h0, (B, parts * N))}, t0)
    shapes: list[tuple[int, ...]] = [(1, B, parts * N)]
    if keep_ticks:
        shapes.append((B * sum(map(operator.mul, count_rows(periods, t0, T), sizes)),))
    if hold:
        shapes.append((T, B, N))
    if keep_ticks:
        kernel = launch if input.is_cuda else sequence
        kept = kernel.count_kept(_make_schedule(tuple(periods), tuple(sizes)), t0, T, B, nonlinearity, input.dtype)
        shapes += [(kept,)] if CELLS[nonlinearity].gates > 1 else []
    return [input.new_empty(shape) for shape in shapes]


def _describe_gradients(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    ticks: Tensor,
    g_final: Tensor | None,
    g_ticks: Tensor | None,
    g_held: Tensor | None,
    periods: Sequence[int],
    sizes: Sequence[int],
    t0: int,
    nonlinearity: str,
    wanted: Sequence[bool] | None = None,
    weight_ch: Tensor | None = None,
    kept: Tensor | None = None,
    h0: Tensor | None = None,
) -> list[Tensor]:
    """The outputs of `recurrence_backward` without their values."""
    N = sum(sizes)
    _, biases, parts = CELLS[nonlinearity]
    shapes = input.shape, weight_ih.shape, weight_hh.shape, (biases * N,), (input.shape[1], parts * N), (PEEPHOLES * N,)
    wanted = _check_wanted(wanted, bias, weight_ch)
    return [ticks.new_empty(shape) for shape, want in zip(shapes, wanted, strict=True) if want]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    input, weight_ih, weight_hh, bias, h0, lengths, *ctx.settings, hold, keep_ticks, weight_ch = inputs
    ticks = output[1] if keep_ticks else None
    kept = output[1 + keep_ticks + hold :]
    ctx.present = True, keep_ticks, hold, bool(kept)
    ctx.mark_non_differentiable(*kept)
    ctx.save_for_backward(
        input, weight_ih, weight_hh, bias, h0, lengths, weight_ch, ticks, kept[0] if kept else None
    )  # fmt: skip
    # zeros in place of a gradient that is absent would be filled and added at every tick
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    input, weight_ih, weight_hh, bias, h0, lengths, weight_ch, ticks, kept = ctx.saved_tensors
    *outputs, _ = spread(gradients, ctx.present)
    wanted = [*ctx.needs_input_grad[:PLACE_OF_LENGTHS], any(ctx.needs_input_grad[PLACE_OF_WEIGHT_CH:])]
    if ticks is None:
        # a graph that was recorded without gradients, and is differentiated all the same
        _, ticks, *again = recurrence(
            input, weight_ih, weight_hh, bias, h0, lengths, *ctx.settings, False, True, weight_ch
        )  # fmt: skip
        kept = again[0] if again else None
    computed: Sequence[Tensor]
    if need_cascade(Outputs(*outputs)):
        operands = Operands(input, weight_ih, weight_hh, bias, h0, weight_ch)
        computed = differentiate_cascade(wanted, _describe(ctx.settings), operands, lengths, Outputs(*outputs))
    else:
        computed = recurrence_backward(
            input, weight_ih, weight_hh, bias, lengths, ticks, *outputs, *ctx.settings, wanted, weight_ch, kept, h0
        )
    *g_operands, g_weight_ch = spread(computed, wanted)
    return _place_gradients(ctx, {**dict(enumerate(g_operands)), PLACE_OF_WEIGHT_CH: g_weight_ch})


def _describe(settings: Sequence[Any]) -> Recurrence:
    """The settings of a call, for functions that differentiate the cascade."""
    periods, sizes, t0, cell = settings
    return Recurrence(sequence, _make_schedule(tuple(periods), tuple(sizes)), t0, cell, True)


def _setup_gradient_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *tensors, periods, sizes, t0, nonlinearity, ctx.wanted, weight_ch, _, h0 = inputs
    ctx.settings = periods, sizes, t0, nonlinearity
    ctx.shapes = [gradient.shape for gradient in output]
    ctx.save_for_backward(*tensors, weight_ch, h0)


def _differentiate_backward(ctx: Any, cotangents: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    input, weight_ih, weight_hh, bias, lengths, ticks, *gradients, weight_ch, h0 = ctx.saved_tensors
    # an absent initial state is zero, and its gradient may have been wanted
    wanted = Operands(*_check_wanted(ctx.wanted, bias, weight_ch))
    initial = h0 if h0 is not None or not wanted.h0 else _zeros_like_state(input, weight_hh, ctx.settings)
    operands = Operands(input, weight_ih, weight_hh, bias, initial, weight_ch)
    filled = [
        ticks.new_zeros(shape) if cotangent is None else cotangent
        for shape, cotangent in zip(ctx.shapes, cotangents, strict=True)
    ]
    g_operands, g_gradients = differentiate_twice(
        wanted, _describe(ctx.settings), operands, lengths, Outputs(*gradients), filled
    )
    *g_parameters, g_h0, g_weight_ch = g_operands
    # ticks and gates follow from the operands
    first = *g_parameters, None, None, *g_gradients
    last = {PLACE_OF_BACKWARD_WEIGHT_CH: g_weight_ch, PLACE_OF_BACKWARD_WEIGHT_CH + 2: None if h0 is None else g_h0}
    return _place_gradients(ctx, {**dict(enumerate(first)), **last})


def _zeros_like_state(input: Tensor, weight_hh: Tensor, settings: Sequence[Any]) -> Tensor:
    *_, cell = settings
    return input.new_zeros((input.shape[1], CELLS[cell].parts * weight_hh.shape[1]))


def _place_gradients(ctx: Any, gradients: dict[int, Tensor | None]) -> tuple[Tensor | None, ...]:
    """The gradient of each argument by its place, or None. torch leaves out arguments that have their default value."""
    return tuple(gradients.get(place) for place in range(len(ctx.needs_input_grad)))


PLACE_OF_LENGTHS, PLACE_OF_WEIGHT_CH = (
    [argument.name for argument in recurrence._schema.arguments].index(name) for name in ("lengths", "weight_ch")
)
PLACE_OF_BACKWARD_WEIGHT_CH = [argument.name for argument in recurrence_backward._schema.arguments].index("weight_ch")

torch.library.register_fake("cwrnn::recurrence", _describe_outputs, lib=_library)
torch.library.register_fake("cwrnn::recurrence_backward", _describe_gradients, lib=_library)
_differentiate("recurrence", FORWARD, _backward, _setup_context)
_differentiate("recurrence_backward", BACKWARD, _differentiate_backward, _setup_gradient_context)

# for a FLOP counter that was imported before this package
prepare_counters()
