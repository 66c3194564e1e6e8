"""One time step of a Clockwork RNN, and the state that a stream carries from step to step."""

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree

from .cells import CELLS, PEEPHOLES, compute_drive, select_units, update
from .checks import can_read_clocks, check_clock
from .phases import group_by_phase, invert
from .schedule import Schedule


class State(NamedTuple):
    """The state of a stream: the hidden state, and the clock of the next step.

    The sequences of a batch may have clocks of their own: then `t` is a tensor (B,) of integers.

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
    t: int | Tensor
    """The number of steps that the stream has made, or a tensor (B,) with the number of every sequence.

    Do not change a tensor of clocks in place, because `step` does not check it again: pass `state._replace(t=...)`.
    """

    def detach(self) -> "State":
        """The state without the history of its gradients, to train on a stream in chunks.

        >>> State(torch.ones(1, 2, 8, requires_grad=True), t=5).detach().h.requires_grad
        False
        """
        return _convert(self, State, _detach)

    def to(self, *arguments: Any, **options: Any) -> "State":
        """The state on another device or with another dtype; the arguments are those of `torch.Tensor.to`.

        A tensor of clocks stays as it is, because the layer reads it before it computes: it may lie on any device, and
        is best left on the CPU.

        >>> State(torch.ones(1, 2, 8), t=5).to(torch.float64).h.dtype
        torch.float64
        """
        return _convert(self, State, lambda tensor: tensor.to(*arguments, **options))


class LSTMState(NamedTuple):
    """The state of a stream through a ClockworkLSTM: h, c, and the clock of the next step.

    The sequences of a batch may have clocks of their own: then `t` is a tensor (B,) of integers.

    `step` returns h and c as two views of one tensor, which are not contiguous if B > 1 or num_layers > 1: use
    `reshape` in place of `view`.

    >>> import cwrnn
    >>> lstm = cwrnn.ClockworkLSTM(3, 8)
    >>> output, state = lstm(torch.randn(5, 2, 3), return_state=True)
    >>> y, state = lstm.step(torch.randn(2, 3), state)  # continues after 5 steps
    >>> output, state = lstm(torch.randn(4, 2, 3), state)
    >>> state.t
    10
    """

    h: Tensor
    """The hidden state: (num_layers, B, N), or (num_layers, N) unbatched."""
    c: Tensor
    """The cell state, of the same shape."""
    t: int | Tensor
    """The number of steps that the stream has made, or a tensor (B,) with the number of every sequence.

    Do not change a tensor of clocks in place, because `step` does not check it again: pass `state._replace(t=...)`.
    """

    def detach(self) -> "LSTMState":
        """The state without the history of its gradients, to train on a stream in chunks.

        >>> h, c = torch.ones(2, 1, 2, 8, requires_grad=True)
        >>> LSTMState(h, c, t=5).detach().c.requires_grad
        False
        """
        return _convert(self, LSTMState, _detach)

    def to(self, *arguments: Any, **options: Any) -> "LSTMState":
        """The state on another device or with another dtype; the arguments are those of `torch.Tensor.to`.

        A tensor of clocks stays as it is, because the layer reads it before it computes: it may lie on any device, and
        is best left on the CPU.

        >>> LSTMState(torch.ones(1, 2, 8), torch.ones(1, 2, 8), t=5).to(torch.float64).c.dtype
        torch.float64
        """
        return _convert(self, LSTMState, lambda tensor: tensor.to(*arguments, **options))


AnyState = TypeVar("AnyState", State, LSTMState)


def _convert(state: AnyState, plain: Callable[..., AnyState], function: Callable[[Tensor], Tensor]) -> AnyState:
    """A state of type `plain` with every tensor converted, or `state` itself if no tensor changes."""
    tensors, t = [*state][:-1], state.t
    converted = [function(tensor) for tensor in tensors]
    return state if all(map(operator.is_, converted, tensors)) else plain(*converted, t)


def _detach(tensor: Tensor) -> Tensor:
    return tensor.detach() if tensor.requires_grad else tensor


class _Default(Enum):
    CLOCK = 0

    def __repr__(self) -> str:
        return "0"


UNSET_CLOCK: Any = _Default.CLOCK
"""The default of `t0`: 0, or the clock of `hx` if that is a State. A number beside a State is an error, even 0."""


def check_start(
    hx: Any, t0: int | Tensor, expected: "type[State] | type[LSTMState]" = State
) -> tuple[Any, int | Tensor]:
    """The hidden state and the clock from which a call of a layer starts, both checked where they contradict.

    Args:
        hx: a state of the type `expected`, or anything else, which is returned as it is
        t0: the clock, unless `hx` has its own
        expected: the type of the layer's states
    """
    if not isinstance(hx, expected):
        return hx, 0 if t0 is UNSET_CLOCK else check_clock("t0", t0)
    t = hx.t
    if t0 is not UNSET_CLOCK:
        kind, hidden = ("a State", "hx.h") if expected is State else ("an LSTMState", "(hx.h, hx.c)")
        raise ValueError(f"hx is {kind}, which has its own clock t={t}: pass it without t0, or {hidden} with t0={t0}")
    return hx.h if isinstance(hx, State) else (hx.h, hx.c), check_clock("hx.t", t)


class MessageCache(Protocol):
    """The messages that a backend keeps from one step of a layer to the next."""

    def step_if_unchanged(
        self, input: Any, h: Tensor, t: int | Tensor, cell: str, schedule: Schedule, parameters: Mapping[str, Any]
    ) -> tuple[Tensor, Tensor] | None:
        """The output (B, N) and the next state (1, B, N), if only input, state and time have changed; else None."""


class Running:
    """A state that `step` returned, with the messages that the backend keeps for the next step.

    The messages are a cache. The first step that continues from this state takes them; a step that finds none rebuilds
    them. A pickled state does not contain them.
    """

    plain: "type[State] | type[LSTMState]"
    """The type of the same state without messages."""
    joined: Tensor
    """(num_layers, B, parts N): the tensors of the state side by side, as the backend left them."""
    backend: str
    """The layer's choice of backend when the messages were made."""
    messages: "list[MessageCache | None]"
    """The messages of each layer, until a step takes them."""

    def take_messages(self) -> "list[MessageCache | None] | None":
        """The messages of each layer, for one caller only; None if there are none, or if they were taken before."""
        messages: list[MessageCache | None] | None = self.__dict__.pop("messages", None)
        return messages

    def __reduce__(self) -> tuple[Any, ...]:
        return self.plain, tuple(self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return repr(self.plain(*self))  # type: ignore[misc]


class RunningState(Running, State):
    """A `State` that `step` returned, with messages."""

    plain = State


class RunningLSTMState(Running, LSTMState):
    """An `LSTMState` that `step` returned, with messages."""

    plain = LSTMState


# torch.load(weights_only=True) accepts these: they consist of tensors and integers, and a schedule checks itself
torch.serialization.add_safe_globals([Schedule, State, LSTMState])
# torch.export saves programs that take or return a state
if hasattr(_pytree, "_register_namedtuple"):
    _pytree._register_namedtuple(State, serialized_type_name="cwrnn.State")
    _pytree._register_namedtuple(LSTMState, serialized_type_name="cwrnn.LSTMState")


def keep_messages(
    joined: Tensor,
    t: int | Tensor,
    backend: str,
    messages: "list[MessageCache | None]",
    plain: "type[State] | type[LSTMState]" = State,
) -> Any:
    """The state of type `plain` with the tensors `joined` and the clock t, and the messages for the next step.

    h and c of an LSTMState share the memory of `joined`. Without any messages the state has no more than its own type,
    which torch.export can save.
    """
    N = joined.shape[-1] // 2
    if not any(messages):
        return State(joined, t) if plain is State else LSTMState(joined[..., :N], joined[..., N:], t)
    state: RunningState | RunningLSTMState
    state = RunningState(joined, t) if plain is State else RunningLSTMState(joined[..., :N], joined[..., N:], t)
    state.joined = joined
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
    t: int | Tensor,
    cell: str,
    messages: None = None,
    weight_ch: Tensor | None = None,
) -> tuple[Tensor, Tensor, None]:
    """The output (B, N) and the state (B, parts N) after time t.

    Args are the input (B, I) at t, the weights, and the state `h` (B, parts N) at t - 1; t is one clock, or a tensor
    (B,) of clocks. Only the modules that are due are computed, except inside a graph whose clocks are a tensor: there
    all modules are computed, and those that are due are taken. The output has memory of its own, so that changing it
    in place does not change the state. A backend may keep messages for the next step; here nothing is kept.
    """
    gates, biases, parts = CELLS[cell]
    N = schedule.hidden_size
    if type(t) is int or not isinstance(t, Tensor):
        due = schedule.due(t)
    elif can_read_clocks(t):
        return _step_in_phases(input, weight_ih, weight_hh, bias, h, schedule, t, cell, weight_ch)
    else:
        due = tuple(range(schedule.modules))
    if not due and not torch.is_grad_enabled():
        return h[..., :N].clone(), h, None
    before = h.unflatten(-1, (parts, N))
    modules = list(before.split(schedule.sizes, dim=-1))
    for i in due:
        units = schedule.slices[i]
        message = F.linear(h[..., units.start : N], select_units(weight_hh[:, units.start :], gates, units))
        own_bias = None if bias is None else select_units(bias, biases, units)
        drive = compute_drive(cell, input, select_units(weight_ih, gates, units), own_bias)
        peepholes = None if weight_ch is None else select_units(weight_ch, PEEPHOLES, units)
        after = update(cell, drive, message, modules[i].flatten(-2), peepholes)
        if type(t) is not int and isinstance(t, Tensor):
            ticks = t.to(h.device) % schedule.periods[i] == 0
            after = torch.where(ticks[:, None], after, modules[i].flatten(-2))
        modules[i] = after.unflatten(-1, (parts, schedule.sizes[i]))
    after = torch.cat(modules, dim=-1).flatten(-2)
    if not due:
        # no units that read everything: the gradients of input and weights are zero, but defined
        nobody = F.linear(h[..., :N], weight_hh[:0]) + F.linear(input, weight_ih[:0])
        for numbers in (bias, weight_ch):
            nobody = nobody if numbers is None else nobody + numbers[:0]
        after = torch.cat((after, nobody), dim=-1)
    return after[..., :N].clone(), after, None


def _step_in_phases(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor,
    schedule: Schedule,
    clocks: Tensor,
    cell: str,
    weight_ch: Tensor | None,
) -> tuple[Tensor, Tensor, None]:
    """`clockwork_step` of sequences that have clocks of their own: one step for each set of modules that are due."""
    phases = group_by_phase(clocks, schedule.periods, 1, input.device)
    outputs, states = [], []
    for t, rows in phases:
        own_input, own_h = (input, h) if len(phases) == 1 else (input.index_select(0, rows), h.index_select(0, rows))
        output, after, _ = clockwork_step(
            own_input, weight_ih, weight_hh, bias, own_h, schedule, t, cell, None, weight_ch
        )
        outputs.append(output)
        states.append(after)
    if len(phases) == 1:
        return outputs[0], states[0], None
    places = invert(phases)
    return torch.cat(outputs).index_select(0, places), torch.cat(states).index_select(0, places), None
