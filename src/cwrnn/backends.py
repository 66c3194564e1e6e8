"""The one dispatch: which backend computes a layer's recurrence.

Every backend has the signature of `cascade`, and returns a `Pass`: the states of every module at its own ticks.
An explicit choice that cannot run raises, with the reason; "auto" takes the first that can, and says once, at
debug level, why the others could not. Nothing falls back in silence.
"""

import logging
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .cascade import cascade
from .held import Pass, StreamPass, initial_state, states_of
from .kernels import autograd as function
from .kernels.cpu import loader as library
from .kernels.cpu import sequence as cpu
from .kernels.gpu import launch as triton
from .reference import clockwork_reference
from .schedule import Schedule
from .sequences import mask
from .step import clockwork_step

logger = logging.getLogger("cwrnn")

Run = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Schedule, int, str, Tensor | None, bool], Pass]
Step = Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Schedule, int, str, Any], tuple[Tensor, Tensor, Any]]


class Backend(NamedTuple):
    """One way to compute the recurrence."""

    refuse: Callable[[torch.device, torch.dtype], str | None]
    """Why it cannot run on that device with that dtype; None if it can."""
    load: Callable[[], Run]
    """The function itself, imported when it is first needed."""
    step: Step = clockwork_step
    """One time step: the state after it, twice, and what the backend keeps for the next, or None."""
    unsuited: Callable[[Schedule], str | None] = lambda schedule: None
    """Why it cannot run with those modules; None if it can."""
    outdone: Callable[[Schedule, torch.dtype], str | None] = lambda schedule, dtype: None
    """Why another may be faster with those modules, which then runs unless it was chosen; None if it is not."""


def run_reference(
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
    """The specification behind the signature of a backend."""
    h0 = initial_state(h0, input, schedule)
    input = mask(input, lengths)
    output = clockwork_reference(input, weight_ih, weight_hh, bias, h0, schedule, t0, nonlinearity)
    return StreamPass(t0, input.shape[0], lengths, states_of(output, h0, schedule, t0))


# the order is that of preference
BACKENDS: dict[str, Backend] = {
    "cpu": Backend(refuse=library.refuse, load=lambda: function.run, step=cpu.step),
    "triton": Backend(
        refuse=triton.refuse, load=lambda: function.run, unsuited=triton.refuse_schedule, outdone=triton.advise_against
    ),
    "torch": Backend(refuse=lambda device, dtype: None, load=lambda: cascade),
    "reference": Backend(refuse=lambda device, dtype: None, load=lambda: run_reference),
}


def check_backend(name: str) -> None:
    """A ValueError that lists the names, unless `name` is one of them."""
    if name not in ("auto", *BACKENDS):
        names = ", ".join(repr(known) for known in ("auto", *BACKENDS))
        raise ValueError(f"Unknown backend {name!r}. Select from {names}.")


def select(name: str, device: torch.device, dtype: torch.dtype, schedule: Schedule | None = None) -> Run:
    """The backend `name`, or for "auto" the first that can run here.

    >>> select("torch", torch.device("cpu"), torch.float32).__name__
    'cascade'
    """
    return BACKENDS[choose(name, device, dtype, schedule)].load()


def choose(name: str, device: torch.device, dtype: torch.dtype, schedule: Schedule | None = None) -> str:
    """The name of the backend that runs where `name` is asked for; with any modules, if `schedule` is None."""
    if name != "auto":
        check_backend(name)
        reason = _refusal(BACKENDS[name], device, dtype, schedule)
        if reason is not None:
            usable = [
                other for other, backend in BACKENDS.items() if _refusal(backend, device, dtype, schedule) is None
            ]
            raise RuntimeError(
                f"backend {name!r} cannot run on {device.type} with {dtype}: {reason}. "
                f"Usable here: {', '.join(repr(other) for other in ('auto', *usable))}."
            )
        return name
    for candidate, backend in BACKENDS.items():
        reason = _refusal(backend, device, dtype, schedule)
        if reason is None and schedule is not None:
            reason = backend.outdone(schedule, dtype)
        if reason is None:
            return candidate
        # a graph has no place for a log
        if not torch.compiler.is_compiling():
            _log_refusal(candidate, device.type, dtype, reason)
    raise RuntimeError(f"no backend can run on {device.type} with {dtype}")


def _refusal(backend: Backend, device: torch.device, dtype: torch.dtype, schedule: Schedule | None) -> str | None:
    reason = backend.refuse(device, dtype)
    return backend.unsuited(schedule) if reason is None and schedule is not None else reason


@cache
def _log_refusal(name: str, device: str, dtype: torch.dtype, reason: str) -> None:
    logger.debug("backend %r refused on %s with %s: %s", name, device, dtype, reason)
