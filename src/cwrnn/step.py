"""One time step of a Clockwork RNN, and the state that a stream carries from step to step."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import NONLINEARITIES
from .schedule import Schedule


class State(NamedTuple):
    """The state of a stream: the hidden state, and the clock of the next step.

    >>> import cwrnn
    >>> rnn = cwrnn.ClockworkRNN(3, 8)
    >>> output, h_n = rnn(torch.randn(5, 2, 3))
    >>> y, state = rnn.step(torch.randn(2, 3), cwrnn.State(h_n, t=5))  # continues after 5 steps
    >>> state.t
    6
    """

    h: Tensor
    """(num_layers, B, N), or (num_layers, N) unbatched."""
    t: int
    """The number of steps that the stream has made."""


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
    nonlinearity: str,
    messages: None = None,
) -> tuple[Tensor, Tensor, None]:
    """The hidden state (B, N) after time t, from the input (B, I) at t and the hidden state `h` (B, N) at t - 1.

    Only the modules that are due are computed. The state is returned twice, as the output and as the state to continue
    from, so that changing one in place does not change the other. A backend may keep messages for the next step; here
    nothing is kept.
    """
    f = NONLINEARITIES[nonlinearity]
    due = schedule.due(t)
    if not due:
        return h.clone(), h, None
    modules = list(h.split(schedule.sizes, dim=-1))
    for i in due:
        rows = schedule.slices[i]
        a = F.linear(h[..., rows.start :], weight_hh[rows, rows.start :])
        a = a + F.linear(input, weight_ih[rows], None if bias is None else bias[rows])
        modules[i] = f(a)
    after = torch.cat(modules, dim=-1)
    return after.clone(), after, None
