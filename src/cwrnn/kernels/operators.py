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

from ..cells import NONLINEARITIES
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
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity, bool hold, bool keep_ticks=True) -> Tensor[]"
)
BACKWARD_SCHEMA = (
    "(Tensor input, Tensor weight_ih, Tensor weight_hh, Tensor? bias, Tensor? lengths, Tensor ticks, "
    "Tensor? g_final, Tensor? g_ticks, Tensor? g_held, "
    "int[] periods, int[] sizes, SymInt t0, str nonlinearity, bool[]? wanted=None) -> Tensor[]"
)

Refuse = Callable[[torch.device, torch.dtype, Schedule], str | None]


def _refuse_on_cpu(device: torch.device, dtype: torch.dtype, schedule: Schedule) -> str | None:
    return loader.refuse(device, dtype)


def _refuse_on_gpu(device: torch.device, dtype: torch.dtype, schedule: Schedule) -> str | None:
    return launch.refuse(device, dtype) or launch.refuse_schedule(schedule)


@lru_cache(maxsize=256)
def _make_schedule(periods: tuple[int, ...], sizes: tuple[int, ...]) -> Schedule:
    return Schedule(periods, sizes)


def _forward_of(kernel: Kernel, refuse: Refuse) -> Callable[..., list[Tensor]]:
    """The operator for the device of `kernel`.

    It returns the final state, the ticks if they are kept, and the output if it is held.
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
    ) -> list[Tensor]:
        schedule = _make_schedule(tuple(periods), tuple(sizes))
        expected = _expect_network(input, weight_ih, weight_hh, bias, lengths, schedule.sizes)
        expected["h0"] = h0, (input.shape[1], schedule.hidden_size)
        _check_operands(input, expected, t0, nonlinearity)
        _check_kernel(input, schedule, refuse)
        _check_lengths(lengths, input.shape[0])
        final, ticks, held, _ = kernel.forward(
            input, weight_ih, weight_hh, bias, h0, lengths, schedule, t0, nonlinearity, hold, keep_ticks
        )
        # a kernel may keep the ticks although they are not asked for
        return [output for output in (final, ticks if keep_ticks else None, held) if output is not None]

    return compute


def _backward_of(kernel: Kernel, refuse: Refuse) -> Callable[..., list[Tensor]]:
    """The operator of the gradients for the device of `kernel`: the wanted ones of input, weights, bias and h0.

    If `wanted` is None, it returns all of them.
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
    ) -> list[Tensor]:
        schedule = _make_schedule(tuple(periods), tuple(sizes))
        expected = _expect_network(input, weight_ih, weight_hh, bias, lengths, schedule.sizes)
        T, B, _ = input.shape
        N = schedule.hidden_size
        states = B * sum(map(operator.mul, count_rows(periods, t0, T), sizes))
        expected |= {"ticks": (ticks, (states,)), "g_ticks": (g_ticks, (states,))}
        expected |= {"g_final": (g_final, (1, B, N)), "g_held": (g_held, (T, B, N))}
        _check_operands(input, expected, t0, nonlinearity)
        _check_kernel(input, schedule, refuse)
        wanted = [*_check_wanted(wanted, bias), False]
        gradients = kernel.backward(
            wanted, input, weight_ih, weight_hh, bias, lengths, ticks, g_final, g_ticks, g_held,
            schedule, t0, nonlinearity,
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
    lengths: Tensor | None,
    sizes: Sequence[int],
) -> Expected:
    """The shapes of the tensors that forward and backward share."""
    if input.dim() != 3:
        raise ValueError(f"input must have the shape (T, B, I), got {tuple(input.shape)}")
    _, B, I = input.shape
    N = sum(sizes)
    return {
        "weight_ih": (weight_ih, (N, I)),
        "weight_hh": (weight_hh, (N, N)),
        "bias": (bias, (N,)),
        "lengths": (lengths, (B,)),
    }


def _check_operands(input: Tensor, expected: Expected, t0: int, nonlinearity: str) -> None:
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
    if nonlinearity not in NONLINEARITIES:
        raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")


def _check_wanted(wanted: Sequence[bool] | None, bias: Tensor | None) -> Sequence[bool]:
    """Which gradients are wanted: all that exist if `wanted` is None."""
    if wanted is None:
        return [True, True, True, bias is not None, True]
    if len(wanted) != len(Operands._fields) or (wanted[3] and bias is None):
        raise ValueError(f"wanted must have one entry for each of {', '.join(Operands._fields)}, got {list(wanted)}")
    return wanted


def _check_kernel(input: Tensor, schedule: Schedule, refuse: Refuse) -> None:
    reason = refuse(input.device, input.dtype, schedule)
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
) -> list[Tensor]:
    """The outputs of `recurrence` without their values, for torch.compile, torch.export and the device meta."""
    expected = _expect_network(input, weight_ih, weight_hh, bias, lengths, sizes)
    T, B, _ = input.shape
    N = sum(sizes)
    _check_operands(input, expected | {"h0": (h0, (B, N))}, t0, nonlinearity)
    shapes: list[tuple[int, ...]] = [(1, B, N)]
    if keep_ticks:
        shapes.append((B * sum(map(operator.mul, count_rows(periods, t0, T), sizes)),))
    if hold:
        shapes.append((T, B, N))
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
) -> list[Tensor]:
    """The outputs of `recurrence_backward` without their values."""
    N = sum(sizes)
    shapes = input.shape, weight_ih.shape, weight_hh.shape, (N,), (input.shape[1], N)
    return [ticks.new_empty(shape) for shape, want in zip(shapes, _check_wanted(wanted, bias), strict=True) if want]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    input, weight_ih, weight_hh, bias, h0, lengths, *ctx.settings, hold, keep_ticks = inputs
    ctx.present = True, keep_ticks, hold
    ctx.save_for_backward(input, weight_ih, weight_hh, bias, h0, lengths, output[1] if keep_ticks else None)
    # zeros in place of a gradient that is absent would be filled and added at every tick
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, gradients: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    input, weight_ih, weight_hh, bias, h0, lengths, ticks = ctx.saved_tensors
    outputs = Outputs(*spread(gradients, ctx.present))
    wanted = list(ctx.needs_input_grad[: len(Operands._fields)])
    if ticks is None:
        # a graph that was recorded without gradients, and is differentiated all the same
        _, ticks = recurrence(input, weight_ih, weight_hh, bias, h0, lengths, *ctx.settings, False)
    computed: Sequence[Tensor]
    if need_cascade(outputs):
        call, operands = _describe(input, weight_ih, weight_hh, bias, ticks, ctx.settings)
        computed = differentiate_cascade(wanted, call, operands, lengths, outputs)
    else:
        computed = recurrence_backward(
            input, weight_ih, weight_hh, bias, lengths, ticks, *outputs, *ctx.settings, wanted
        )
    return *spread(computed, wanted), *_without_gradient(ctx, len(wanted))


def _describe(
    input: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None, ticks: Tensor, settings: Sequence[Any]
) -> tuple[Recurrence, Operands]:
    """The call that computed `ticks`. The row of each module begins with its initial state."""
    periods, sizes, t0, nonlinearity = settings
    schedule = _make_schedule(tuple(periods), tuple(sizes))
    T, B, _ = input.shape
    initial = [states[0] for states in _split_ticks(ticks, schedule, t0, T, B)]
    operands = Operands(input, weight_ih, weight_hh, bias, torch.cat(initial, dim=-1))
    return Recurrence(sequence, schedule, t0, nonlinearity, True), operands


def _split_ticks(ticks: Tensor, schedule: Schedule, t0: int, T: int, B: int) -> list[Tensor]:
    """The states (n + 1, B, K) of every module, as views of `ticks`."""
    rows = count_rows(schedule.periods, t0, T)
    parts = ticks.split([n * B * size for n, size in zip(rows, schedule.sizes, strict=True)])
    return [part.view(n, B, size) for part, n, size in zip(parts, rows, schedule.sizes, strict=True)]


def _setup_gradient_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    *tensors, periods, sizes, t0, nonlinearity, wanted = inputs
    ctx.settings = periods, sizes, t0, nonlinearity
    ctx.wanted = wanted
    ctx.shapes = [gradient.shape for gradient in output]
    ctx.save_for_backward(*tensors)


def _differentiate_backward(ctx: Any, cotangents: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    input, weight_ih, weight_hh, bias, lengths, ticks, *gradients = ctx.saved_tensors
    recurrence, operands = _describe(input, weight_ih, weight_hh, bias, ticks, ctx.settings)
    wanted = _check_wanted(ctx.wanted, bias)
    filled = [
        ticks.new_zeros(shape) if cotangent is None else cotangent
        for shape, cotangent in zip(ctx.shapes, cotangents, strict=True)
    ]
    g_operands, g_gradients = differentiate_twice(wanted, recurrence, operands, lengths, Outputs(*gradients), filled)
    *g_parameters, g_h0 = g_operands
    # of the ticks, only the initial states are read
    schedule = recurrence.schedule
    g_ticks = torch.zeros_like(ticks)
    T, B, _ = input.shape
    parts = zip(_split_ticks(g_ticks, schedule, recurrence.t0, T, B), g_h0.split(schedule.sizes, dim=-1), strict=True)
    for states, g_initial in parts:
        states[0] = g_initial
    differentiated = *g_parameters, None, g_ticks, *g_gradients
    return *differentiated, *_without_gradient(ctx, len(differentiated))


def _without_gradient(ctx: Any, count: int) -> list[None]:
    """One None for each argument after the first `count`. torch leaves out arguments that have their default value."""
    return [None] * (len(ctx.needs_input_grad) - count)


torch.library.register_fake("cwrnn::recurrence", _describe_outputs, lib=_library)
torch.library.register_fake("cwrnn::recurrence_backward", _describe_gradients, lib=_library)
_differentiate("recurrence", FORWARD, _backward, _setup_context)
_differentiate("recurrence_backward", BACKWARD, _differentiate_backward, _setup_gradient_context)

# for a FLOP counter that was imported before this package
prepare_counters()
