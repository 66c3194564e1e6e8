"""The one dispatch: which backend computes a layer's recurrence.

Of the core, only this module, cudnn.py and the files that cudnn.py consists of import the kernels. A layer asks for a
backend by name, device, dtype and schedule, and calls it. A name that cannot run raises an error with the reason.
"auto" takes the first backend that can run, and logs once, at debug level, why the others were refused. There is no
silent fallback.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import cudnn
from .cascade import cascade
from .cells import CELLS
from .checks import is_autocast_on
from .held import Pass, SignalPass, initial_state, states_of
from .kernels.backend import KernelBackend, record_plain
from .kernels.cpu import loader, sequence, slots, stepping
from .kernels.eligibility import is_plain_call, needs_plain_operations
from .kernels.gpu import launch
from .kernels.gpu import stepping as gpu_stepping
from .reference import clockwork_reference
from .schedule import Schedule
from .sequences import mask
from .step import clockwork_step

logger = logging.getLogger("cwrnn")

Run = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Schedule, int, str, Tensor | None, bool, Tensor | None], Pass
]
RunPlain = Callable[[Tensor, Tensor, Tensor, Tensor | None, Schedule, int, str, Tensor | None], tuple[Any, Any]]
Step = Callable[
    [Tensor, Tensor, Tensor, Tensor | None, Tensor, Schedule, int | Tensor, str, Any, Tensor | None],
    tuple[Tensor, Tensor, Any],
]


class Backend(NamedTuple):
    """One way to compute the recurrence: its reasons to refuse a call, and the functions that compute one."""

    name: str
    refuse: Callable[[torch.device, torch.dtype], str | None]
    """Why this backend cannot run on a device with a dtype, or None if it can."""
    run: Run
    """Runs one layer over a sequence and returns its states: any tensors, any transform of torch."""
    run_plain: RunPlain | None = None
    """`run` from a state of zeros for plain calls (`is_plain_call`): output and final state, with no detour.

    The final state of an LSTM may be a pair, h and c, each in memory of its own. None if the backend has no shorter way
    than `run`.
    """
    step: Step = clockwork_step
    """Computes one time step: the output, the next state, and the messages to keep for the step after it, or None.

    Its time is one clock, or a tensor (B,) of clocks.
    """
    make_slots: Callable[[Schedule, str, slots.Weights], slots.StreamSlots] | None = None
    """Makes memory for many streams through one layer with a cell and weights, or None if the backend has none."""
    refuse_schedule: Callable[[Schedule, torch.device, torch.dtype, str], str | None] = (
        lambda schedule, device, dtype, cell: None
    )
    """Why this backend cannot run a schedule on a device with a dtype and a cell, or None if it can."""
    advise_against: Callable[[Schedule, torch.dtype, str, int], str | None] = lambda schedule, dtype, cell, batch: None
    """Why "auto" should prefer another backend for a schedule, a cell and a number of sequences, or None.

    An explicit choice ignores it.
    """
    has_operator: bool = False
    """Whether torch.compile records `run_plain` as one operator (kernels/operators.py)."""
    computed_in_float32: frozenset[torch.dtype] = frozenset()
    """The dtypes for which the backend computes in float32 and rounds the result.

    `run` converts such tensors itself. A caller that passes float32 instead, and rounds the result, saves a conversion;
    callers of `step` and `run_plain` must.
    """

    def arithmetic(self, dtype: torch.dtype) -> torch.dtype:
        """The dtype that the backend computes in to get results of `dtype`."""
        return torch.float32 if dtype in self.computed_in_float32 else dtype


def run_reference(
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
    """The specification behind the signature of a backend."""
    N, parts = schedule.hidden_size, CELLS[cell].parts
    h0 = initial_state(h0, input, schedule, parts)
    input = mask(input, lengths)
    states = clockwork_reference(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, weight_ch)
    signals = [
        states_of(part, initial, schedule, t0)
        for part, initial in zip(states.split(N, dim=-1), h0.split(N, dim=-1), strict=True)
    ]
    return SignalPass(t0, input.shape[0], lengths, *signals)


HALF_PRECISIONS = frozenset({torch.bfloat16, torch.float16})

_cpu = KernelBackend(sequence)
_gpu = KernelBackend(launch)


def _refuse_on_cpu(device: torch.device, dtype: torch.dtype) -> str | None:
    return loader.refuse(device, torch.float32 if dtype in HALF_PRECISIONS else dtype)


def _run_on_cpu(
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
    """The CPU kernel behind the signature of a backend: half precision is computed in float32 and rounded."""
    dtype = input.dtype
    if dtype not in HALF_PRECISIONS:
        return _cpu.run(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, hold, weight_ch)
    bias, h0, weight_ch = (None if tensor is None else tensor.float() for tensor in (bias, h0, weight_ch))
    input, weight_ih, weight_hh = input.float(), weight_ih.float(), weight_hh.float()
    return _cpu.run(input, weight_ih, weight_hh, bias, h0, schedule, t0, cell, lengths, hold, weight_ch).to(dtype)


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            "cpu",
            _refuse_on_cpu,
            _run_on_cpu,
            _cpu.run_plain,
            stepping.step,
            slots.StreamSlots,
            has_operator=True,
            computed_in_float32=HALF_PRECISIONS,
        ),
        Backend(
            "cuda",
            launch.refuse,
            _gpu.run,
            _gpu.run_plain,
            gpu_stepping.step,
            refuse_schedule=launch.refuse_schedule,
            advise_against=launch.advise_against,
            has_operator=True,
        ),
        Backend(
            "cudnn",
            cudnn.refuse,
            cudnn.run,
            cudnn.run_plain,
            gpu_stepping.step,
        ),
        Backend("torch", lambda device, dtype: None, cascade),
        Backend("reference", lambda device, dtype: None, run_reference),
    )
}
"""The backends by name, in the order in which "auto" tries them."""


def check_backend(name: str) -> None:
    """Raises a ValueError that lists the names of all backends, unless `name` is one of them."""
    if name not in ("auto", *BACKENDS):
        names = ", ".join(repr(known) for known in ("auto", *BACKENDS))
        raise ValueError(f"Unknown backend {name!r}. Select from {names}.")


def select_backend(
    name: str,
    device: torch.device,
    dtype: torch.dtype,
    schedule: Schedule | None = None,
    cell: str = "tanh",
    batch: int | None = None,
) -> Backend:
    """The backend `name`, or for "auto" the first that can run here and does not advise against itself.

    If `schedule` is None, only device and dtype decide. If `batch`, the number of sequences, is None, no backend
    advises against itself.

    >>> select_backend("torch", torch.device("cpu"), torch.float32).name
    'torch'
    """
    if name != "auto":
        return _require_backend(name, device, dtype, schedule, cell)
    for backend in BACKENDS.values():
        reason = _refuse(backend, device, dtype, schedule, cell)
        if reason is None and schedule is not None and batch is not None:
            reason = backend.advise_against(schedule, dtype, cell, batch)
        if reason is None:
            return backend
        # a graph has no place for a log
        if not torch.compiler.is_compiling():
            _log_refusal(backend.name, device.type, dtype, reason)
    raise RuntimeError(f"no backend can run on {device.type} with {dtype}")


def describe_cpu_kernel() -> str:
    """The instruction set that the CPU kernel uses here, or "none: " and the reason why it cannot run.

    >>> describe_cpu_kernel() != ""
    True
    """
    return loader.current_isa() or f"none: {loader.refuse(torch.device('cpu'), torch.float32)}"


def _require_backend(
    name: str, device: torch.device, dtype: torch.dtype, schedule: Schedule | None, cell: str
) -> Backend:
    """The backend `name`, or a RuntimeError with the reason why it cannot run, and the names of those that can."""
    check_backend(name)
    backend = BACKENDS[name]
    reason = _refuse(backend, device, dtype, schedule, cell)
    if reason is None:
        return backend
    usable = [other.name for other in BACKENDS.values() if _refuse(other, device, dtype, schedule, cell) is None]
    raise RuntimeError(
        f"backend {name!r} cannot run on {device.type} with {dtype}: {reason}. "
        f"Usable here: {', '.join(repr(other) for other in ('auto', *usable))}."
    )


def _refuse(
    backend: Backend, device: torch.device, dtype: torch.dtype, schedule: Schedule | None, cell: str
) -> str | None:
    reason = backend.refuse(device, dtype)
    return backend.refuse_schedule(schedule, device, dtype, cell) if reason is None and schedule is not None else reason


@cache
def _log_refusal(name: str, device: str, dtype: torch.dtype, reason: str) -> None:
    logger.debug("backend %r refused on %s with %s: %s", name, device, dtype, reason)


def make_stream_slots(
    name: str, schedule: Schedule, cell: str, weights: Sequence[slots.Weights]
) -> list[slots.StreamSlots] | None:
    """Memory for many streams through the layers that have these weights, in which the backend `name` steps them.

    None if that backend has no such memory, or cannot notice changes of these weights.
    """
    weight_hh = weights[0][1]
    backend = select_backend(name, weight_hh.device, weight_hh.dtype)
    if (
        backend.make_slots is None
        or weight_hh.dtype in backend.computed_in_float32
        or any(slots.refuse_slots(own) is not None for own in weights)
    ):
        return None
    return [backend.make_slots(schedule, cell, own) for own in weights]


def release_weights(weights: Iterable[Tensor]) -> None:
    """Ends all references of the backends to `weights`, which torch can then replace (`torch.utils.swap_tensors`)."""
    for weight in weights:
        stepping.forget_packed(weight)


def run_plain_layer(
    name: str,
    input: Any,
    parameters: Mapping[str, Any],
    input_size: int,
    has_bias: bool,
    has_peepholes: bool,
    schedule: Schedule,
    t0: int,
    cell: str,
) -> tuple[Tensor, Any] | None:
    """Output (T, B, N) and final state (1, B, parts N) of a single layer from a state of zeros, if the call is plain.

    The final state of an LSTM may be a pair, h and c. None if anything must be checked, cast, unpacked or transformed
    first. A small network computes its output in the time that such questions take, so the plain call asks them all at
    once (`is_plain_call`). A call that torch.compile records may be cast.
    """
    weight_ih: Any = parameters.get("weight_ih_l0")
    weight_hh: Any = parameters.get("weight_hh_l0")
    bias: Any = parameters.get("bias_l0")
    weight_ch: Any = parameters.get("weight_ch_l0") if has_peepholes else None
    N = schedule.hidden_size
    if not is_plain_call(
        input, weight_ih, weight_hh, bias, weight_ch, input_size, has_bias, has_peepholes, N, cell
    ):  # fmt: skip
        if torch.compiler.is_compiling():
            weights = weight_ih, weight_hh, bias, weight_ch
            expected = has_bias, has_peepholes
            return _record_layer(name, input, weights, expected, input_size, schedule, t0, cell)
        return None
    # only the kernel has peepholes
    batch = None if has_peepholes else input.shape[1]
    backend = select_backend(name, input.device, input.dtype, schedule, cell, batch)
    if input.dtype in backend.computed_in_float32:
        return None
    if backend.run_plain is not None:
        return backend.run_plain(input, weight_ih, weight_hh, bias, schedule, t0, cell, weight_ch)
    done = backend.run(input, weight_ih, weight_hh, bias, None, schedule, t0, cell, None, True, weight_ch)
    return done.hold(), done.h_n()


def _record_layer(
    name: str,
    input: Any,
    weights: tuple[Any, Any, Any, Any],
    expected: tuple[bool, bool],
    input_size: int,
    schedule: Schedule,
    t0: int,
    cell: str,
) -> tuple[Tensor, Tensor] | None:
    """`run_plain_layer` in a graph that torch.compile records, if an operator computes it: that operator, and casts.

    Before every call, a compiled layer checks that all attributes, functions and constants that were read while it was
    recorded are unchanged. This takes longer than a small network, so as few of them as possible are read here.
    `expected` says whether a bias and peepholes belong to the layer.
    """
    weight_ih, weight_hh, bias, weight_ch = weights
    if not isinstance(input, Tensor) or weight_ih is None or weight_hh is None:
        return None
    device, dtype, N = input.device, weight_hh.dtype, schedule.hidden_size
    rows = CELLS[cell].gates * N
    autocast = is_autocast_on(device)
    if (
        (bias is not None, weight_ch is not None) != expected
        or input.dim() != 3
        or input.shape[2] != input_size
        or weight_ih.shape != (rows, input_size)
        or weight_hh.shape != (rows, N)
        or weight_ih.device != device
        or weight_hh.device != device
        or not (input.dtype == dtype or (autocast and input.dtype.is_floating_point))
        or needs_plain_operations()
    ):
        return None
    if autocast and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(device.type)
    arithmetic = _choose_arithmetic(name, device, dtype, schedule.periods, schedule.sizes, cell)
    if arithmetic is None:
        return None
    tensors: list[Any] = [
        tensor if tensor is None or tensor.dtype == arithmetic else tensor.to(arithmetic)
        for tensor in (input, weight_ih, weight_hh, bias, weight_ch)
    ]
    input, weight_ih, weight_hh, bias, weight_ch = tensors
    held, final = record_plain(input, weight_ih, weight_hh, bias, schedule, t0, cell, weight_ch)
    return (held, final) if arithmetic == dtype else (held.to(dtype), final.to(dtype))


def _choose_arithmetic(
    name: str, device: torch.device, dtype: torch.dtype, periods: tuple[int, ...], sizes: tuple[int, ...], cell: str
) -> torch.dtype | None:
    """The dtype in which an operator computes results of `dtype`; None if no operator computes them."""
    try:
        backend = select_backend(name, device, dtype, Schedule(periods, sizes), cell)
    except RuntimeError:
        # the backend that was asked for cannot run: without the shortcut, the layer says so
        return None
    return backend.arithmetic(dtype) if backend.has_operator else None


# torch.compile takes the answer as a constant. torch.compiler.assume_constant_result sets the same mark, but calling it
# imports torch._dynamo
_choose_arithmetic._dynamo_marked_constant = True  # type: ignore[attr-defined]
