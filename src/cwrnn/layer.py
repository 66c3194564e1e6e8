"""The layer: what ClockworkRNN, ClockworkLSTM and ClockworkGRU share (rnn.py, lstm.py and gru.py)."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .backends import Backend, check_backend, run_plain_layer, select_backend
from .cells import CELLS
from .checks import (
    check_arguments,
    check_features,
    check_hidden,
    check_input,
    check_start_clocks,
    check_state,
    check_step,
    is_autocast_on,
    list_parts,
)
from .fx_tracing import is_symbolic, record_call
from .held import Ticks
from .parameters import LayerParameters
from .phases import run_in_phases
from .schedule import Schedule
from .sequences import Layout, add_steps, arrange
from .state_dicts import join_biases, split_bias
from .step import UNSET_CLOCK, LSTMState, RunningLSTMState, RunningState, State, check_start, keep_messages

Hidden = TypeVar("Hidden")
"""The hidden state as torch's layers take and return it: h, or (h, c)."""
StreamState = TypeVar("StreamState")
"""The same with the clock of a stream."""
TorchLayer = TypeVar("TorchLayer", bound=nn.RNNBase)
Layer = TypeVar("Layer", bound="ClockworkLayer[Any, Any]")


class ClockworkLayer(LayerParameters, Generic[Hidden, StreamState]):
    """The layers and directions of a Clockwork RNN with any cell: the base class of the public layers.

    A subclass says which cell it has and which type its states have. Inside, the state is one tensor
    (layers * directions, B, parts N): h, or for the LSTM h and c side by side.
    """

    _state_type: ClassVar[Any] = State
    """The type of the layer's states: State, or for the LSTM LSTMState."""
    _defaults: ClassVar[Mapping[str, Any]] = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                                              "bidirectional": False}  # fmt: skip
    """The arguments of the constructor that torch's layer has as well, in its order, and their defaults."""

    def _build(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        bias: bool,
        batch_first: bool,
        dropout: float,
        bidirectional: bool,
        device: torch.device | str | int | None,
        dtype: torch.dtype | None,
        schedule: Schedule | str | Sequence[int] | int | None,
        backend: str,
    ) -> None:
        """Checks and sets all arguments that the layers have in common, and creates the parameters."""
        check_arguments(input_size, hidden_size, num_layers, bias, batch_first, dropout, dtype)
        check_backend(backend)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bool(bidirectional)
        self.schedule = Schedule.resolve(schedule, hidden_size)
        self.backend = backend
        self._create_parameters(device, dtype)
        self.reset_parameters()

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | StreamState | None = None,
        *,
        t0: int | Tensor = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor | PackedSequence, Hidden | StreamState]:
        """The output at every time step, and the final hidden state."""
        # the most common call takes the shortest way: a small network computes its output in the time of a few checks
        if (
            hx is None
            and lengths is None
            and (t0 is UNSET_CLOCK or (type(t0) is int and t0 >= 0))
            and self.num_layers == 1
            and not (return_state or self.bidirectional or self.batch_first)
        ):
            cell = self.cell
            outputs = run_plain_layer(
                self.backend,
                input,
                self._parameters,
                self.input_size,
                self.bias,
                self.peepholes,
                self.schedule,
                0 if t0 is UNSET_CLOCK else t0,
                cell,
            )
            if outputs is not None:
                output, ends = outputs
                # a backend may return h and c apart
                final: Any = _split(ends) if cell == "lstm" and type(ends) is not tuple else ends
                return output, final
        if is_symbolic(input):
            options = {"t0": t0, "lengths": lengths, "return_state": return_state}
            recorded: tuple[Tensor, Hidden] = record_call(self, input, hx, options)
            return recorded
        ticks, h_n = self._forward(input, hx, t0, lengths, return_state, hold=True)
        return ticks.hold(), h_n

    @overload
    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | None = None,
        *,
        t0: int | Tensor = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: Literal[False] = False,
    ) -> tuple[Ticks, Hidden]: ...

    @overload
    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | StreamState | None = None,
        *,
        t0: int | Tensor = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Ticks, Hidden | StreamState]: ...

    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | StreamState | None = None,
        *,
        t0: int | Tensor = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Ticks, Hidden | StreamState]:
        """The output before it is held, for a :class:`Readout`, and the final hidden state.

        The arguments are those of `forward`, which equals `ticks` followed by `Ticks.hold`.
        """
        return self._forward(input, hx, t0, lengths, return_state, hold=False)

    def step(self, input: Tensor, state: StreamState | tuple[Any, ...] | None = None) -> tuple[Tensor, StreamState]:
        """One time step: the output (B, N), and the state to pass to the next step.

        Only the modules that are due at the state's clock are computed. Under `torch.no_grad()`, `step` runs in the
        kernels: on a GPU in one launch for each layer, on a CPU in C. The C kernel caches each module's last message in
        the state. The cache is rebuilt when the state or the weights change. If you change single weights in the middle
        of a stream in a way that autograd does not see (`.data`, numpy), continue from a fresh `State(h, t)`, or
        `LSTMState(h, c, t)`. h and c of the LSTMState that it returns are views of one tensor.

        Args:
            input: (B, I), or (I,) unbatched
            state: the state that the last step returned, or that `forward` returned with `return_state`, or
                `State(h_n, t)` after t steps, for an LSTM `LSTMState(h_n, c_n, t)`, where t may be a tensor (B,) of
                clocks; None starts at t = 0

        >>> import cwrnn
        >>> rnn = cwrnn.ClockworkRNN(3, 8)
        >>> state = None
        >>> for x_t in torch.randn(5, 2, 3):
        ...     y, state = rnn.step(x_t, state)
        >>> y.shape, state.t
        (torch.Size([2, 8]), 5)
        """
        messages = None
        if isinstance(state, (RunningState, RunningLSTMState)):
            messages = state.take_messages()
            if messages is not None and self.num_layers == 1 and state.backend == self.backend:
                own = messages[0]
                if own is not None:
                    # the last step was checked: if nothing has changed since, little stands between input and kernel
                    t = state.t
                    stepped = own.step_if_unchanged(input, state.joined, t, self.cell, self.schedule, self._parameters)
                    if stepped is not None:
                        output, h = stepped
                        return output, keep_messages(h, t + 1, state.backend, messages, self._state_type)
        if self.bidirectional:
            raise RuntimeError("step: a bidirectional layer reads a sequence from its end; call forward on all of it")
        check_step(input)
        batched = input.dim() == 2
        check_features(input, input.dim(), self.input_size, self._parameter("weight_ih_l0"))
        x = input if batched else input.unsqueeze(0)
        expected = (self.num_layers, x.shape[0], self.hidden_size)
        parts = CELLS[self.cell].parts
        if state is None:
            h, t = x.new_zeros((*expected[:2], parts * self.hidden_size)), 0
        else:
            hidden, t = check_state(state, input, parts)
            hidden = [part if batched else part.unsqueeze(1) for part in hidden]
            check_hidden(hidden, x, expected)
            h = hidden[0] if parts == 1 else torch.cat(hidden, dim=-1)
        dtype, without_autocast = self._precision(x.device)
        backend = select_backend(self.backend, x.device, dtype)
        arithmetic = backend.arithmetic(dtype)
        messages = messages or [None] * self.num_layers
        states, kept = [], []
        with without_autocast:
            x, h = _cast(x, arithmetic), _cast(h, arithmetic)
            for layer in range(self.num_layers):
                if layer > 0:
                    x = F.dropout(x, self.dropout, self.training)
                weight_ih, weight_hh, bias, weight_ch = self._weights(f"_l{layer}", arithmetic)
                x, after, keep = backend.step(
                    x, weight_ih, weight_hh, bias, h[layer], self.schedule, t, self.cell, messages[layer], weight_ch
                )
                states.append(after)
                kept.append(keep)
            x, h = _cast(x, dtype), _cast(torch.stack(states) if self.num_layers > 1 else after.unsqueeze(0), dtype)
        if not batched:
            x, h = x.squeeze(0), h.squeeze(1)
        return x, keep_messages(h, t + 1, self.backend, kept, self._state_type)

    @classmethod
    def _convert_from(cls: type[Layer], layer: nn.RNNBase) -> Layer:
        """The layer with one module of period 1 that computes the same as a layer of torch."""
        converted: Layer = cls(**_shared_arguments(cls, layer), schedule=1).train(layer.training)
        with torch.no_grad():
            for name, parameter in converted.named_parameters():
                if name.startswith("bias"):
                    biases = getattr(layer, f"bias_ih{name[4:]}"), getattr(layer, f"bias_hh{name[4:]}")
                    parameter.copy_(join_biases(converted.cell, *biases))
                else:
                    parameter.copy_(getattr(layer, name))
        return converted

    def _convert_to(self, kind: type[TorchLayer]) -> TorchLayer:
        """The layer of torch that computes the same as this layer, if it has a single module of period 1."""
        if self.schedule.periods != (1,):
            raise ValueError(
                f"only a layer with one module of period 1 is a torch.nn.{kind.__name__}, "
                f"got periods {self.schedule.periods}"
            )
        converted = kind(**_shared_arguments(type(self), self)).train(self.training)
        with torch.no_grad():
            for name, parameter in converted.named_parameters():
                if name.startswith("bias"):
                    biases = split_bias(self.cell, getattr(self, f"bias{name[7:]}"))
                    parameter.copy_(biases[name.startswith("bias_hh")])
                else:
                    parameter.copy_(getattr(self, name))
        return converted

    def flatten_parameters(self) -> None:
        """Does nothing. Code that was written for torch's layers may call it."""

    def extra_repr(self) -> str:
        """The sizes, the arguments that differ from their defaults, and the schedule, as the constructor takes them."""
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in {**self._defaults, "peepholes": False, "backend": "auto"}.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        return f"{text}, schedule={self.schedule.spec!r}"

    def _forward(
        self,
        input: Tensor | PackedSequence,
        hx: Hidden | StreamState | None,
        t0: int | Tensor,
        lengths: Tensor | Sequence[int] | None,
        return_state: bool,
        hold: bool,
    ) -> tuple[Ticks, Hidden | StreamState]:
        return_state = return_state or isinstance(hx, self._state_type)
        if return_state and self.bidirectional:
            raise RuntimeError(
                "a bidirectional layer reads a sequence from its end, so its stream cannot be continued: "
                "pass hx as tensors, without return_state"
            )
        hidden, t0 = check_start(hx, t0, self._state_type)
        x, h, layout = self._enter(input, hidden, lengths)
        start = t0
        if type(t0) is not int and isinstance(t0, Tensor):
            check_start_clocks(t0, x.shape[1] if layout.batched else None, hx is hidden)
            start = layout.clocks_in(t0)
        end = add_steps(t0, layout.count_steps(x.shape[0])) if return_state else 0
        dtype, without_autocast = self._precision(x.device)
        # a compiled graph is one for all numbers of sequences, and only the kernel has peepholes
        batch = None if torch.compiler.is_compiling() or self.peepholes else x.shape[1]
        backend = select_backend(self.backend, x.device, dtype, self.schedule, self.cell, batch)
        arithmetic = backend.arithmetic(dtype)
        h_n = []
        with without_autocast:
            x, h = _cast(x, arithmetic), None if h is None else _cast(h, arithmetic)
            last = self.num_layers - 1
            for layer in range(last):
                below = self._run(backend, layer, x, h, start, layout, hold=True)
                h_n += [run.h_n() for run in below.passes]
                x = F.dropout(below.held(), self.dropout, self.training)
            ticks = self._run(backend, last, x, h, start, layout, hold)
            h_n += [run.h_n() for run in ticks.passes]
            after = _cast(layout.hidden_out(torch.cat(h_n) if len(h_n) > 1 else h_n[0]), dtype)
            if arithmetic != dtype:
                ticks = Ticks(tuple(run.to(dtype) for run in ticks.passes), layout)
        if self._state_type is not State:
            h, c = _split(after)
            return ticks, LSTMState(h, c, end) if return_state else (h, c)  # type: ignore[return-value]
        return ticks, State(after, end) if return_state else after  # type: ignore[return-value]

    def _run(
        self, backend: Backend, layer: int, x: Tensor, h: Tensor | None, t0: int | Tensor, layout: Layout, hold: bool
    ) -> Ticks:
        """One layer, in all directions, over x (T, B, features) from its part of h, the joined state.

        A state of None is zero. t0 is one clock, or a tensor (B,) of clocks in the order of x.
        """
        passes = []
        for direction, suffix in enumerate(self._suffixes(layer)):
            # the reverse clock counts from its own start
            sequence, clock = (x, t0) if direction == 0 else (layout.reverse(x), 0)
            weight_ih, weight_hh, bias, weight_ch = self._weights(suffix, x.dtype)
            initial = None if h is None else h[layer * self.num_directions + direction]
            run: Any = backend.run
            if type(clock) is not int and isinstance(clock, Tensor):
                run = partial(run_in_phases, backend.run)
            passes.append(
                run(
                    sequence, weight_ih, weight_hh, bias, initial, self.schedule, clock, self.cell, layout.lengths,
                    hold, weight_ch,
                )
            )  # fmt: skip
        return Ticks(tuple(passes), layout)

    def _weights(self, suffix: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """weight_ih, weight_hh, bias and weight_ch of one layer in one direction; None for those that it lacks."""
        weight_ih, weight_hh = self._parameter(f"weight_ih{suffix}"), self._parameter(f"weight_hh{suffix}")
        bias = self._parameter(f"bias{suffix}") if self.bias else None
        weight_ch = self._parameter(f"weight_ch{suffix}") if self.peepholes else None
        return (
            _cast(weight_ih, dtype),
            _cast(weight_hh, dtype),
            None if bias is None else _cast(bias, dtype),
            None if weight_ch is None else _cast(weight_ch, dtype),
        )

    def _precision(self, device: torch.device) -> tuple[torch.dtype, Any]:
        """The dtype of the results, and a context that turns autocast off if it is on."""
        dtype = self._parameter("weight_hh_l0").dtype
        if not is_autocast_on(device):
            return dtype, nullcontext()
        if dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device.type)
        return dtype, torch.autocast(device.type, enabled=False)

    def _enter(
        self, input: Tensor | PackedSequence, hx: Any, lengths: Tensor | Sequence[int] | None
    ) -> tuple[Tensor, Tensor | None, Layout]:
        """Checks the arguments: the input as (T, B, I), the state (layers * directions, B, parts N), their layout."""
        parts = CELLS[self.cell].parts
        hidden = list_parts(hx, parts)
        check_input(input, hidden, self.input_size, self.weight_ih_l0, self.cell)
        x, layout = arrange(input, lengths, self.batch_first)
        if hidden is None:
            return x, None, layout
        expected = (self.num_layers * self.num_directions, x.shape[1], self.hidden_size)
        # before the state is permuted like a packed batch, which would silently drop rows of one that is too large
        check_hidden(hidden if layout.batched else [part.unsqueeze(1) for part in hidden], x, expected)
        return x, layout.hidden_in(hidden[0] if parts == 1 else torch.cat(hidden, dim=-1)), layout


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    # the comparison is cheaper than a conversion that changes nothing
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _split(joined: Tensor) -> tuple[Tensor, Tensor]:
    """h and c, each in memory of its own, from a tensor (..., 2 N) with both side by side."""
    N = joined.shape[-1] // 2
    h, c = (part.clone(memory_format=torch.contiguous_format) for part in (joined[..., :N], joined[..., N:]))
    return h, c


def _shared_arguments(kind: type[ClockworkLayer[Any, Any]], layer: Any) -> dict[str, Any]:
    """The arguments of `layer`, ours or torch's, that a constructor of `kind` and of torch's layer both take."""
    names = "input_size", "hidden_size", *kind._defaults
    weight = layer.weight_hh_l0
    return {name: getattr(layer, name) for name in names} | {"device": weight.device, "dtype": weight.dtype}


AnyLayer = ClockworkLayer[Any, Any]
"""A ClockworkRNN, a ClockworkLSTM or a ClockworkGRU, for functions that take all of them."""
