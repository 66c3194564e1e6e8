"""The CPU kernel: the whole recurrence, forward and backward, and its single step, in C (cpu.c), called through ctypes.

One call runs S independent networks on one schedule: tensors may have a leading axis of replicas. `function.py` makes
a function of it that autograd knows.
"""

import math
import operator
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakTensorKeyDictionary

from ...held import count_rows
from ...schedule import Schedule
from ...step import clockwork_step
from .blocks import empty
from .loader import (
    ORDINARY,
    check_network,
    current_isa,
    dense,
    invoke,
    is_watched,
    pointer,
    refuse,
    wants_gradient,
    whole,
)

CPU = torch.device("cpu")
LONGEST_CYCLE = 2**63 - 1
"""After so many steps all modules must be due together, for the kernel to count them."""


@lru_cache(maxsize=256)
def _clock(schedule: Schedule, t0: int, T: int) -> tuple["array[int]", int]:
    """What the kernel needs to know of a schedule for T steps from t0, and how many states that makes per sequence.

    The words, with which every call ends, are periods, sizes and first ticks, counted from t0.
    """
    firsts = [-t0 % period for period in schedule.periods]
    states = sum(map(operator.mul, count_rows(schedule.periods, t0, T), schedule.sizes))
    return array("q", [*schedule.periods, *schedule.sizes, *firsts]), states


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
    *_, T, B, I = input.shape
    *_, input_t, input_b, _ = input.stride()
    S, input_s, weight_ih_s, weight_hh_s, bias_s, lengths_s = 1, 0, 0, 0, 0, 0
    if weight_hh.dim() > 2:
        S = weight_hh.shape[0]
        input_s, weight_ih_s, weight_hh_s = input.stride(0), weight_ih.stride(0), weight_hh.stride(0)
        bias_s, lengths_s = (0 if tensor is None else tensor.stride(0) for tensor in (bias, lengths))
    return [
        S, T, B, I, modules, nonlinearity == "relu", torch.get_num_threads(),
        input.data_ptr(), input_s, input_t, input_b,
        weight_ih.data_ptr(), weight_ih_s, weight_hh.data_ptr(), weight_hh_s, pointer(bias), bias_s,
        pointer(lengths), lengths_s,
    ]  # fmt: skip


def forward(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor | None,
    lengths: Tensor | None,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
    hold: bool,
    keep_ticks: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The final state (1, B, N), if `keep_ticks` the ticks of all modules in one row, if `hold` the output (T, B, N).

    With replicas, (S, ...) of each.
    """
    input, weight_ih, weight_hh = dense(input, 1), dense(weight_ih, 2), dense(weight_hh, 2)
    bias, h0, lengths = dense(bias, 1), dense(h0, 1), dense(lengths, 1)
    *lead, N, _ = weight_hh.shape
    *_, T, B, _ = input.shape
    clock, states = _clock(schedule, t0, T)
    final = input.new_empty(*lead, 1, B, N)
    ticks = empty(input, (*lead, B * states)) if keep_ticks else None
    held = empty(input, (*lead, T, B, N)) if hold else None
    h0_s, h0_b = (0, 0) if h0 is None else (h0.stride(0) if lead else 0, h0.stride(-2))
    words = array("q", [
        *_network_words(input, weight_ih, weight_hh, bias, lengths, schedule.modules, nonlinearity),
        pointer(ticks), pointer(h0), h0_s, h0_b, final.data_ptr(), pointer(held),
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ])  # fmt: skip
    invoke("forward", weight_hh.dtype, words + clock)
    return final, ticks, held


def infer(
    input: Tensor,
    parameters: Mapping[str, Any],
    features: int,
    biased: bool,
    schedule: Schedule,
    t0: int,
    nonlinearity: str,
) -> tuple[Tensor, Tensor] | None:
    """Output (T, B, N) and final state (1, B, N) from one of zeros, at once; None if that takes any consideration.

    A small network has computed its output while one asks what else could be meant. Here nobody wants a derivative or
    looks on, and all tensors are ordinary ones of one dtype on the CPU.
    """
    weight_ih, weight_hh = parameters.get("weight_ih_l0"), parameters.get("weight_hh_l0")
    bias = parameters.get("bias_l0")
    dtype, shape, N = input.dtype, input.shape, schedule.hidden_size
    if (
        torch.is_grad_enabled()
        or is_watched()
        or torch.is_autocast_enabled("cpu")
        or refuse(CPU, dtype) is not None
        or weight_ih is None
        or weight_hh is None
        or (bias is not None) != biased
        or len(shape) != 3
        or shape[2] != features
        or weight_ih.shape != (N, features)
        or weight_hh.shape != (N, N)
        or (bias is not None and bias.shape != (N,))
    ):
        return None
    for tensor in (input, weight_ih, weight_hh, bias):
        if tensor is not None and not (type(tensor) in ORDINARY and tensor.dtype == dtype and tensor.is_cpu):
            return None
    final, _, held = forward(
        input, weight_ih, weight_hh, bias, None, None, schedule, t0, nonlinearity, hold=True, keep_ticks=False
    )
    assert held is not None
    return held, final


def backward(
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
    *lead, N, _ = weight_hh.shape
    *_, T, B, I = input.shape
    shapes = (T, B, I), (N, I), (N, N), (N,), (B, N)
    gradients = [empty(ticks, (*lead, *shape)) if want else None for want, shape in zip(wanted, shapes, strict=True)]
    ticks, g_final, g_ticks, g_held = ticks.contiguous(), whole(g_final), whole(g_ticks), dense(g_held, 1)
    *_, g_held_s, g_held_t, g_held_b, _ = (0, 0, 0, 0) if g_held is None else (0, *g_held.stride())
    words = array("q", [
        *_network_words(input, weight_ih, weight_hh, bias, lengths, schedule.modules, nonlinearity),
        ticks.data_ptr(), 0, 0, 0, 0, 0,
        pointer(g_ticks), pointer(g_final), pointer(g_held), g_held_s, g_held_t, g_held_b, *map(pointer, gradients),
    ])  # fmt: skip
    invoke("backward", ticks.dtype, words + _clock(schedule, t0, T)[0])
    return gradients


class _Packed:
    """The weights of one layer as a step wants them, for as long as they do not change."""

    def __init__(self, schedule: Schedule, weight_ih: Tensor, weight_hh: Tensor) -> None:
        weight_ih, weight_hh = dense(weight_ih, 2), dense(weight_hh, 2)
        sizes = torch.empty(2, dtype=torch.int64, device=CPU)
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
        self.shapes = tuple(weight.shape for weight in (weight_ih, weight_hh, bias) if weight is not None)
        self.isa = current_isa()
        self.packed = _Packed.of(schedule, weight_ih, weight_hh)
        self.dtype = h.dtype
        self.values = h.new_empty((h.shape[-2], self.packed.row))
        self.output = h.new_empty(h.shape[-2:])
        self.input_shape: torch.Size | None = None
        self.state_shape = torch.Size((1, *self.output.shape))
        self.steps = 0
        self.cycle = math.lcm(*schedule.periods)
        self.call = self.packed.call[:]
        self.call[B_], N = h.shape[-2:]
        self.call[INPUT_B], self.call[H_B] = weight_ih.shape[1], N
        self.call[SAID] = self.values.data_ptr()

    def still_holds(
        self, schedule: Schedule, weight_ih: Tensor | None, weight_hh: Tensor | None, bias: Tensor | None
    ) -> bool:
        """Whether schedule and weights are still the same; `to` and `.data` change the same parameters."""
        own_ih, own_hh, own_bias = self.weights
        return (
            own_hh is weight_hh and own_ih is weight_ih and own_bias is bias
            and (own_ih._version, own_hh._version) == self.versions
            and own_hh.dtype is own_ih.dtype is self.dtype
            and own_hh.is_cpu and own_ih.is_cpu
            and (own_bias is None or (own_bias.dtype is self.dtype and own_bias.is_cpu))
            and own_ih.shape == self.shapes[0] and own_hh.shape == self.shapes[1]
            and (own_bias is None or own_bias.shape == self.shapes[2])
            and (self.schedule is schedule or self.schedule == schedule)
            and self.isa == current_isa()
        )  # fmt: skip

    def step(self, input: Tensor, h: Tensor, t: int, nonlinearity: str) -> tuple[Tensor, Tensor] | None:
        """The new state twice, each of its own: to show, as (B, N), and to go on with, in the shape of h.

        None if the weights were found to be others.
        """
        input, h = whole(input), whole(h)
        weight_ih, weight_hh, bias = self.weights
        if not (weight_ih.is_contiguous() and weight_hh.is_contiguous() and (bias is None or bias.is_contiguous())):
            weight_ih, weight_hh, bias = dense(weight_ih, 2), dense(weight_hh, 2), dense(bias, 1)
        output, after = torch.empty_like(self.output), torch.empty_like(h)
        call = self.call
        call[RECTIFY] = nonlinearity == "relu"
        call[THREADS] = torch.get_num_threads()
        call[WEIGHT_IH] = weight_ih.data_ptr()
        call[WEIGHT_HH] = weight_hh.data_ptr()
        call[INPUT] = input.data_ptr()
        call[BIAS] = 0 if bias is None else bias.data_ptr()
        call[H] = h.data_ptr()
        call[NEXT] = after.data_ptr()
        call[OUTPUT] = output.data_ptr()
        call[KNOWN] = self.steps
        call[CLOCK] = t % self.cycle
        if not invoke("step", self.dtype, call):
            return None
        self.input_shape = input.shape
        self.steps += 1
        return output, after

    def follow(
        self, input: Any, h: Tensor, t: int, nonlinearity: str, schedule: Schedule, parameters: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor] | None:
        """`step`, at once, if nothing has changed since the last one but input, state and time; else None."""
        if (
            type(input) is Tensor
            and type(h) is Tensor
            and input.shape == self.input_shape
            and h.shape == self.state_shape
            and input.dtype is h.dtype is self.dtype
            and input.is_cpu
            and self.still_holds(
                schedule, parameters.get("weight_ih_l0"), parameters.get("weight_hh_l0"), parameters.get("bias_l0")
            )
            and not torch.is_grad_enabled()
            and not torch.is_autocast_enabled("cpu")
            and not is_watched()
        ):
            return self.step(input, h, t, nonlinearity)
        return None


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
    listening = said is not None and said.output.shape[0] == input.shape[0]
    if said is None or not (listening and said.still_holds(schedule, weight_ih, weight_hh, bias)):
        check_network(input, weight_ih, weight_hh, bias, h, schedule.hidden_size)
        said = Said(schedule, h, weight_ih, weight_hh, bias)
    found = said.step(input, h, t, nonlinearity)
    while found is None:
        said = Said(schedule, h, weight_ih, weight_hh, bias)
        found = said.step(input, h, t, nonlinearity)
    return *found, said
