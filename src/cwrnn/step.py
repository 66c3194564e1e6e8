"""One time step of a Clockwork RNN, and the state that a stream carries from step to step."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree

from .cells import CELLS, compute_drive, select_units, update
from .checks import check_clock
from .schedule import Schedule


class State(NamedTuple):
    """The state of a stream: the hidden state, and the clock of the next step.

    >>> import cwrnn
    >>> rnn = cwrnn.ClockworkRNN(3, 8)
    >>> output, state = rnn(torch.randn(5, 2, 3), return_state=True)
    >>> y, state = rnn.step(torch.randn(2, 3), state)  # continues after 5 steps
    >>> output, state = rnn(torch.randn(4, 2, 3), state)
    >>> state.t
    10
    """

    h: Tensor
    """(num_layers, B, N), or (num_layers, N) unbatched."""
    t: int
    """The number of steps that the stream has made."""

    def detach(self) -> "State":
        """The state without the history of its gradients, to train on a stream in chunks.

        >>> State(torch.ones(1, 2, 8, requires_grad=True), t=5).detach().h.requires_grad
        False
        """
        return State(self.h.detach(), self.t) if self.h.requires_grad else self

    def to(self, *arguments: Any, **options: Any) -> "State":
        """The state on another device or with another dtype; the arguments are those of `torch.Tensor.to`.

        >>> State(torch.ones(1, 2, 8), t=5).to(torch.float64).h.dtype
        torch.float64
        """
        h = self.h.to(*arguments, **options)
        return self if h is self.h else State(h, self.t)


class _Default(Enum):
    CLOCK = 0

    def __repr__(self) -> str:
        return "0"


UNSET_CLOCK: Any = _Default.CLOCK
"""The default of `t0`: 0, or the clock of `hx` if that is a State. A number beside a State is an error, even 0."""


def check_start(hx: "Tensor | State | None", t0: int) -> tuple[Tensor | None, int]:
    """The hidden state and the clock from which a call of a layer starts, both checked where they contradict."""
    if not isinstance(hx, State):
        return hx, 0 if t0 is UNSET_CLOCK else check_clock("t0", t0)
    h, t = hx
    if t0 is not UNSET_CLOCK:
        raise ValueError(f"hx is a State, which has its own clock t={t}: pass it without t0, or hx.h with t0={t0}")
    return h, check_clock("hx.t", t)


class MessageCache(Protocol):
    """The messages that a backend keeps from one step of a layer to the next."""

    def step_if_unchanged(
        self, input: Any, h: Tensor, t: int, nonlinearity: str, schedule: Schedule, parameters: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor] | None:
        """The output (B, N) and the next state (1, B, N), if only input, state and time have changed; else None."""


class RunningState(State):
    """A state that `ClockworkRNN.step` returned, with the messages that the backend keeps for the next step.

    The messages are a cache. The first step that continues from this state takes them; a step that finds none rebuilds
    them. A pickled state does not contain them.
    """

    backend: str
    """The layer's choice of backend when the messages were made."""
    messages: "list[MessageCache | None]"
    """The messages of each layer, until a step takes them."""

    def take_messages(self) -> "list[MessageCache | None] | None":
        """The messages of each layer, for one caller only; None if there are none, or if they were taken before."""
        messages: list[MessageCache | None] | None = self.__dict__.pop("messages", None)
        return messages

    def __reduce__(self) -> tuple[Any, ...]:
        return State, tuple(self)

    def __repr__(self) -> str:
        return repr(State(*self))


# torch.load(weights_only=True) accepts both: they consist of a tensor and integers, and a schedule checks itself
torch.serialization.add_safe_globals([Schedule, State])
# torch.export saves programs that take or return a state
if hasattr(_pytree, "_register_namedtuple"):
    _pytree._register_namedtuple(State, serialized_type_name="cwrnn.State")


def keep_messages(h: Tensor, t: int, backend: str, messages: "list[MessageCache | None]") -> RunningState:
    """The state (h, t) with the messages for the step that comes next."""
    state = RunningState(h, t)
    state.backend = backend
    state.messages = messages
    return state


def clockwork_step(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor,
    schedule: Schedule,
    t: int,
    cell: str,
    messages: None = None,
    weight_ch: Tensor | None = None,
) -> tuple[Tensor, Tensor, None]:
    """The output (B, N) and the state (B, parts N) after time t.

    Args are the input (B, I) at t, the weights, and the state `h` (B, parts N) at t - 1. Only the modules that are due
    are computed. The output has memory of its own, so that changing it in place does not change the state. A backend
    may keep messages for the next step; here nothing is kept.
    """
    gates, biases, parts = CELLS[cell]
    N = schedule.hidden_size
    due = schedule.due(t)
    if not due and not torch.is_grad_enabled():
        return h[..., :N].clone(), h, None
    before = h.unflatten(-1, (parts, N))
    modules = list(before.split(schedule.sizes, dim=-1))
    for i in due:
        units = schedule.slices[i]
        message = F.linear(h[..., units.start : N], select_units(weight_hh[:, units.start :], gates, units))
        own_bias = None if bias is None else select_units(bias, biases, units)
        drive = compute_drive(cell, input, select_units(weight_ih, gates, units), own_bias)
        peepholes = None if weight_ch is None else select_units(weight_ch, 3, units)
        after = update(cell, drive, message, modules[i].flatten(-2), peepholes)
        modules[i] = after.unflatten(-1, (parts, schedule.sizes[i]))
    after = torch.cat(modules, dim=-1).flatten(-2)
    if not due:
        # no units that read everything: the gradients of input and weights are zero, but defined
        nobody = F.linear(h[..., :N], weight_hh[:0]) + F.linear(input, weight_ih[:0])
        for numbers in (bias, weight_ch):
            nobody = nobody if numbers is None else nobody + numbers[:0]
        after = torch.cat((after, nobody), dim=-1)
    return after[..., :N].clone(), after, None
