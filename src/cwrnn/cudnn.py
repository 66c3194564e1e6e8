"""The cascade on cuDNN: its layers compute the recurrences of the modules, with their drives and messages.

As in cascade.py, the slowest module runs first, for all time, on its own clock. To a faster module, the held states of
all slower modules are further inputs, so that input and messages are one product with joined weights:

    input of module i    [ x(t)  h_j(t - 1) ... ]     at its ticks t = m P_i, for all slower modules j
    its input weights    [ W_ih[i]  W_hh[i, j] ... ]
    h_i at its ticks     = cuDNN's layer of K_i units with the recurrent weights W_hh[i, i]

This is what `torch.nn.RNN`, `LSTM` and `GRU` call, and one module of period 1 is such a layer (cudnn_layer.py). A
message to a GRU stands inside the product with its reset gate, where cuDNN takes no input. So all modules of a GRU run
as one layer, whose gate z holds those that do not tick (gru_at_once.py). Where this would take longer, cuDNN computes
the slowest module, and gru_steps.py the others, tick by tick.

For a module of more than 1024 units, a tick is a few small launches that do not fill a GPU. So if all modules are that
large, they run beside each other: time is cut into up to 8 chunks of at least 64 steps, and each module has a stream of
its own. On an H200, two modules of 2048 units took 1.6 to 2.5 times as long as torch's layer of 2048 units
(benchmarks/gpu_backends.json). Smaller modules run one after the other, because cuDNN may run one kernel over all of
their steps, whose blocks wait for each other. Modules of a GRU that run tick by tick also run one after the other,
because the launches of Python limit them.

    slow module   | chunk 0 | chunk 1 | chunk 2 | ...
    fast module             | chunk 0           | chunk 1           | ...

The cascade computes every call that is not plain: torch.compile, torch.func, forward mode, tracing, dispatch modes,
peepholes, empty tensors; and calls in which no module ticks.

An infinite or NaN state spoils the gradients of modules that hear it, and no others, except in a GRU that runs as one
layer: there an infinite or NaN input, state or weight spoils all modules. With `lengths`, a module runs on beyond a
sequence's end with inputs of zeros, and 0 times infinity is NaN: there an infinite state or recurrent weight may spoil
gradients that are finite in the specification.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from .cascade import cascade, decimate
from .cells import CELLS
from .cudnn_layer import SATURATED, pack_weights, run_module, run_parts
from .gru_at_once import clear_forbidden, find_period, is_layer_faster, join_input
from .gru_steps import run_steps
from .held import HeldSignal, Pass, SignalPass, initial_state, last_tick_before, states_of
from .kernels.eligibility import is_plain_eager
from .kernels.tensors import check_network, with_memory
from .schedule import Schedule
from .sequences import mask

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
LARGEST_PERSISTENT = 1024
"""Units of the largest module for which cuDNN may run one kernel over all steps. Its blocks wait for each other, so two
such kernels should not run at the same time."""
MOST_CHUNKS = 8
SHORTEST_CHUNK = 64
"""Steps that make the calls of a further chunk worthwhile."""


def refuse(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why cuDNN cannot run on that device with that dtype; None if it can."""
    if device.type != "cuda":
        return "it runs on CUDA devices only"
    if dtype not in DTYPES:
        return "it takes float32, float64, bfloat16 and float16 only"
    return _refuse_device(device.index, dtype)


def _refuse_device(index: int | None, dtype: torch.dtype) -> str | None:
    if torch.version.hip is not None:
        return "AMD's devices have no cuDNN"
    if not torch.backends.cudnn.is_available():
        return "this torch has no cuDNN"
    if not torch._C._get_cudnn_enabled():
        return "torch.backends.cudnn.enabled is False"
    if dtype == torch.bfloat16 and _find_capability(index) < (8, 0):
        return "bfloat16 needs a device of compute capability 8.0 or above"
    return None


# torch.compile takes the answer as a constant. torch.compiler.assume_constant_result sets the same mark, but calling it
# imports torch._dynamo
_refuse_device._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _find_capability(index: int | None) -> tuple[int, int]:
    return torch.cuda.get_device_capability(index)


def run_plain(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    schedule: Schedule,
    t0: int,
    cell: str,
    weight_ch: Tensor | None,
) -> tuple[Any, Any]:
    """Output (T, B, N) and final state from a state of zeros, for plain calls (`is_plain_call`).

    The final state of an LSTM with a single module is h and c, each (1, B, N). Any other is one (1, B, parts N).
    """
    if schedule.periods == (1,) and weight_ch is None and input.numel() > 0:
        weight_ih, weight_hh, bias = with_memory(weight_ih=weight_ih, weight_hh=weight_hh, bias=bias)
        output, *ends = run_parts(input, weight_ih, weight_hh, bias, None, cell, None)
        return output, ends[0] if len(ends) == 1 else tuple(ends)
    done = run(input, weight_ih, weight_hh, bias, None, schedule, t0, cell, None, True, weight_ch)
    return done.hold(), done.h_n()


def run(
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
    if (
        not is_plain_eager((input, weight_ih, weight_hh, bias, h0, weight_ch, lengths))
        or weight_ch is not None
        or input.numel() == 0
        or not any(schedule.ticks(t0, input.shape[0]))
    ):
        return cascade(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, hold, weight_ch)
    check_network(input, weight_ih, weight_hh, bias, h0, schedule.hidden_size, cell)
    input, weight_ih, weight_hh, bias, h0 = with_memory(
        input=input, weight_ih=weight_ih, weight_hh=weight_hh, bias=bias, h0=h0
    )
    input = mask(input, lengths)
    T, B, _ = input.shape
    if cell == "gru" and schedule.modules > 1 and is_layer_faster(B, input.dtype, schedule):
        return _run_at_once(input, weight_ih, weight_hh, bias, h0, schedule, t0, lengths)
    weights = _split_weights(weight_ih, weight_hh, bias, schedule, cell, lengths is not None)
    states = _split_state(h0, schedule, CELLS[cell].parts)
    chunks = _cut_time(input, schedule, cell)
    if len(chunks) == 1:
        modules = _run_chunk(input, weights, states, schedule, t0, t0, cell, lengths)
        return CudnnPass(t0, T, lengths, modules)
    with torch.no_grad():
        weights = [own._replace(packed=pack_weights(*own[:3])) for own in weights]
    streams = _fork(input, weights, states, lengths)
    parts = []
    for begin, end in chunks:
        parts.append(_run_chunk(input[begin:end], weights, states, schedule, t0 + begin, t0, cell, lengths, streams))
        states = [module.final[0] for module in parts[-1]]
    return CudnnPass(t0, T, lengths, tuple(map(_join, zip(*parts, strict=True))))


def _run_at_once(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    schedule: Schedule,
    t0: int,
    lengths: Tensor | None,
) -> SignalPass:
    """All modules of a GRU as one layer of cuDNN."""
    period, h0 = find_period(schedule), initial_state(h0, input, schedule)
    (steps,) = decimate(input, Schedule((period,), (schedule.hidden_size,)), t0)
    features, to_units = join_input(steps, weight_ih, schedule, last_tick_before(t0, period) + period)
    weights = ModuleWeights(to_units, clear_forbidden(weight_hh, schedule), bias, None)
    layer = _run_one(features, [], weights, h0, period, t0, t0, "gru", lengths)
    return SignalPass(t0, input.shape[0], lengths, states_of(layer.output, h0, schedule, t0, period))


class ModuleWeights(NamedTuple):
    """The weights of one module as cuDNN takes them."""

    weight_ih: Tensor
    """(gates K, ...): those of x and of all slower modules."""
    weight_hh: Tensor
    """(gates K, K)"""
    bias: Tensor | None
    packed: Tensor | None
    """All of them in a row, if several calls share them."""


def _run_chunk(
    input: Tensor,
    weights: Sequence[ModuleWeights],
    states: Sequence[Tensor | None],
    schedule: Schedule,
    clock: int,
    t0: int,
    cell: str,
    lengths: Tensor | None,
    streams: "Sequence[torch.cuda.Stream] | None" = None,
) -> "tuple[ModuleStates, ...]":
    """All modules over some steps of a sequence, fastest first, each on its stream if there are any.

    Args:
        input: (steps, B, I)
        weights: those of every module
        states: (B, parts K), those of every module before these steps; None is zero
        schedule: the modules
        clock: the clock at the first of these steps
        t0: the clock at the first step of the sequence
        cell: the name of the cell
        lengths: (B,), those of the whole sequences, or None
        streams: those of the modules, or None
    """
    inputs = decimate(input, schedule, clock)
    slower: list[ModuleStates] = []
    for i in reversed(range(schedule.modules)):
        with nullcontext() if streams is None else torch.cuda.stream(streams[i]):
            if streams is not None and slower:
                _wait_for_slower(streams, i, slower)
            # nothing here may use what another stream computes, except the states of slower modules
            module = _run_one(inputs[i], slower, weights[i], states[i], schedule.periods[i], clock, t0, cell, lengths)
            if i > 0:
                # made here, because the stream of the module that hears it has more to do
                _ = module.signal
        slower.insert(0, module)
    return tuple(slower)


def _run_one(
    features: Tensor,
    slower: "Sequence[ModuleStates]",
    weights: ModuleWeights,
    state: Tensor | None,
    period: int,
    clock: int,
    t0: int,
    cell: str,
    lengths: Tensor | None,
) -> "ModuleStates":
    """One module of `_run_chunk`, from x at its ticks (n, B, I) and the states of all slower modules."""
    start, n = last_tick_before(clock, period), features.shape[0]
    if n > 0 and slower and cell == "gru":
        signals = [module.signal for module in slower]
        output, final = run_steps(features, signals, *weights[:3], state, period, start)
        return ModuleStates(output, state, final, period, start)
    if slower:
        # the delay: the tick at start + period hears the states of one step before
        heard = [module.signal.at(start + period - 1, period, n) for module in slower]
        features = torch.cat((features, *heard), dim=-1)
    if lengths is not None and cell == "lstm":
        steps = torch.arange(n, device=features.device) * period + (start + period - t0)
        ended = steps[:, None] >= lengths
        features = torch.cat((features, ended[..., None].to(features.dtype)), dim=-1)
    if n > 0:
        output, final = run_module(features, *weights[:3], state, cell, weights.packed)
    else:
        output = features.new_empty((0, features.shape[1], weights.weight_hh.shape[1]))
        width = CELLS[cell].parts * output.shape[2]
        final = output.new_zeros((1, output.shape[1], width)) if state is None else state[None].clone()
    return ModuleStates(output, state, final, period, start)


def _split_weights(
    weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None, schedule: Schedule, cell: str, has_lengths: bool
) -> list[ModuleWeights]:
    """The weights of every module."""
    gates, biases, _ = CELLS[cell]
    weights: list[tuple[Tensor, Tensor, Tensor | None]] = [(weight_ih, weight_hh, bias)]
    if schedule.modules > 1:
        # autograd joins the gradients of a tensor once if it was split once
        own_ih, own_hh = _split_units(weight_ih, gates, schedule), _split_units(weight_hh, gates, schedule)
        own_bias = [None] * schedule.modules if bias is None else _split_units(bias, biases, schedule)
        weights = []
        for i, units in enumerate(schedule.slices):
            widths = units.start, schedule.sizes[i], schedule.hidden_size - units.stop
            _, recurrent, from_slower = own_hh[i].split(widths, dim=1)
            weights.append((torch.cat((own_ih[i], from_slower), dim=1), recurrent, own_bias[i]))
    if has_lengths and cell == "lstm":
        weights = [(_append_brake(to_units), recurrent, own) for to_units, recurrent, own in weights]
    return [ModuleWeights(*own, None) for own in weights]


def _split_units(tensor: Tensor, count: int, schedule: Schedule) -> list[Tensor]:
    """For each module, the rows of its units in a gate-major tensor with `count` rows per unit, gate-major as well."""
    blocks: Any = tensor.unflatten(0, (count, schedule.hidden_size))
    return [block.flatten(0, 1) for block in blocks.split(schedule.sizes, dim=1)]


def _split_state(h0: Tensor | None, schedule: Schedule, parts: int) -> list[Tensor | None]:
    """For each module, its part (B, parts K) of a state (B, parts N), or None."""
    if h0 is None or schedule.modules == 1:
        return [h0] * schedule.modules
    blocks: Any = h0.unflatten(-1, (parts, schedule.hidden_size))
    return [block.flatten(-2) for block in blocks.split(schedule.sizes, dim=-1)]


def _append_brake(weight_ih: Tensor) -> Tensor:
    """The input weights of an LSTM with a further input, which is 1 beyond a sequence's end and keeps c as it is there.

    cuDNN returns c after the last tick alone. This input closes gate i and opens gate f: c stays the same, and so does
    its gradient.
    """
    rows = weight_ih.shape[0]
    column = weight_ih.new_zeros((rows, 1))
    column[: rows // 4], column[rows // 4 : rows // 2] = -SATURATED, SATURATED
    return torch.cat((weight_ih, column), dim=1)


def _cut_time(input: Tensor, schedule: Schedule, cell: str) -> list[tuple[int, int]]:
    """The first and last steps of the chunks in which modules run beside each other; all steps if they should not."""
    T = input.shape[0]
    chunks = min(MOST_CHUNKS, T // SHORTEST_CHUNK)
    if (
        chunks < 2
        or schedule.modules == 1
        or cell == "gru"
        or min(schedule.sizes) <= LARGEST_PERSISTENT
        or not input.is_cuda
        or torch.cuda.is_current_stream_capturing()
    ):
        return [(0, T)]
    ends = [T * chunk // chunks for chunk in range(chunks + 1)]
    return list(pairwise(ends))


def _fork(
    input: Tensor, weights: Sequence[ModuleWeights], states: Sequence[Tensor | None], lengths: Tensor | None
) -> "list[torch.cuda.Stream]":
    """The streams of all modules: the caller's for the fastest, and for the others streams that begin after it."""
    main = torch.cuda.current_stream(input.device)
    others = _make_streams(input.device, len(weights) - 1)
    for stream, own, state in zip(others, weights[1:], states[1:], strict=True):
        stream.wait_stream(main)
        for tensor in (input, lengths, state, *own):
            if tensor is not None:
                _lend(tensor, stream)
    return [main, *others]


@cache
def _make_streams(device: torch.device, count: int) -> "list[torch.cuda.Stream]":
    return [torch.cuda.Stream(device) for _ in range(count)]


def _wait_for_slower(streams: "Sequence[torch.cuda.Stream]", i: int, slower: "Sequence[ModuleStates]") -> None:
    """Makes module i wait for the next slower one, which has waited for all others."""
    streams[i].wait_stream(streams[i + 1])
    for module in slower:
        for tensor in (module.output, module.final, module.signal.values):
            _lend(tensor, streams[i])


def _lend(tensor: Tensor, stream: "torch.cuda.Stream") -> None:
    """Keeps the memory of `tensor`, once it is freed, until `stream` has read it, also in a backward pass."""
    # `.data`, because this changes nothing that autograd should know
    tensor.data.record_stream(stream)


def _join(parts: "Sequence[ModuleStates]") -> "ModuleStates":
    """The states of a module in all chunks."""
    output = torch.cat([part.output for part in parts])
    return ModuleStates(output, parts[0].initial, parts[-1].final, parts[0].period, parts[0].start)


@dataclass(eq=False)
class ModuleStates:
    """The states of one module as cuDNN leaves them."""

    output: Tensor
    """(n, B, K): h at its ticks."""
    initial: Tensor | None
    """(B, parts K): the state before them; None is zero."""
    final: Tensor
    """(1, B, parts K): the state after them. If lengths differ, the c of an LSTM is that at each sequence's end; h is
    not."""
    period: int
    start: int
    """The last tick before the sequence begins."""

    @cached_property
    def signal(self) -> HeldSignal:
        """h, from the initial state on."""
        shape = self.output.shape[1:]
        h0 = self.output.new_zeros(shape) if self.initial is None else self.initial[:, : shape[-1]]
        return HeldSignal(torch.cat((h0[None], self.output)), self.period, self.start)


@dataclass(eq=False)
class CudnnPass(Pass):
    """A pass that makes the states with the initial state, a copy of the output, only if they are asked for."""

    runs: tuple[ModuleStates, ...]
    """The modules, fastest first."""

    @property
    def modules(self) -> tuple[HeldSignal, ...]:
        """The states of every module, fastest first."""
        return tuple(module.signal for module in self.runs)

    def hold(self) -> Tensor:
        """(T, B, N): the hidden state at every time step, zero beyond a sequence's end."""
        parts = [module.output if module.period == 1 else module.signal.at(self.t0, 1, self.T) for module in self.runs]
        return mask(parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1), self.lengths)

    def linear(self, weight: Tensor) -> Tensor:
        """(T, B, O): `weight` (O, N) times the hidden state at every time step, multiplied at tick rate."""
        if len(self.runs) == 1 and self.runs[0].period == 1:
            return F.linear(self.runs[0].output, weight)
        return super().linear(weight)

    def final(self) -> Tensor:
        """(B, parts N): the state at each sequence's own end."""
        return self.h_n().squeeze(0)

    def h_n(self) -> Tensor:
        """(1, B, parts N): the state at each sequence's own end, with the axis of layers."""
        ends = [module.final for module in self.runs]
        if self.lengths is None and len(ends) == 1:
            return ends[0]
        sizes = [module.output.shape[-1] for module in self.runs]
        h = [end[..., :size] for end, size in zip(ends, sizes, strict=True)]
        c = [end[..., size:] for end, size in zip(ends, sizes, strict=True)]
        if self.lengths is not None:
            # without cells, the final state of the signals is h
            h = [super().final()[None]]
        return torch.cat((*h, *c), dim=-1)

    def to(self, dtype: torch.dtype) -> Pass:
        """The same states, rounded to `dtype`."""
        runs = [
            replace(
                module,
                output=module.output.to(dtype),
                initial=None if module.initial is None else module.initial.to(dtype),
                final=module.final.to(dtype),
            )
            for module in self.runs
        ]
        return replace(self, runs=tuple(runs))
