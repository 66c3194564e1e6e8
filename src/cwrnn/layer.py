"""ClockworkRNN: the layer, as a drop-in for torch.nn.RNN."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .backends import Backend, check_backend, run_plain_layer, select_backend
from .checks import (
    check_arguments,
    check_features,
    check_hidden,
    check_input,
    check_state,
    check_step,
    is_autocast_on,
)
from .fx_tracing import is_symbolic, record_call
from .held import Ticks
from .parameters import LayerParameters
from .schedule import Schedule
from .sequences import Layout, arrange
from .step import UNSET_CLOCK, RunningState, State, check_start, keep_messages


class ClockworkRNN(LayerParameters):
    r"""A Clockwork RNN: an Elman RNN whose hidden layer is split into modules with clocks of their own.

    .. code-block:: none

        for each module i with t mod P_i == 0:
            h_i(t) = tanh( W_ih[i] x(t) + b[i] + sum over j >= i of W_hh[i, j] h_j(t - 1) )
        every other module holds: h_i(t) = h_i(t - 1)

    Arguments, shapes and errors are those of :class:`torch.nn.RNN`, with these differences: there is one bias (torch
    has two, of which only the sum matters); ``input_size`` may be 0 (a network that generates); a sequence may have no
    steps (an empty chunk of a stream). With one module of period 1 both layers compute the same.

    Args:
        input_size: I, the number of features of the input; 0 if there is none
        hidden_size: N, the number of hidden units
        num_layers: the number of layers; each reads the output of the one below, and all share one clock. Default: 1
        nonlinearity: ``"tanh"`` or ``"relu"``. Default: ``"tanh"``
        bias: if ``False``, there is no bias. Default: ``True``
        batch_first: if ``True``, input and output are (B, T, ...). Default: ``False``
        dropout: the probability of dropout on the output of every layer except the last. Default: 0
        bidirectional: if ``True``, a second network reads the sequence from its end; its clock counts from there,
            starting at 0. Default: ``False``
        schedule: a :class:`Schedule`, or its text form, ``"1:4,2:4"`` for two modules of 4 units with periods 1 and
            2; or a sequence of periods, over which the units are split evenly; or the number of modules, with periods
            1, 2, 4, ...; or None for ``min(8, hidden_size)`` of those
        backend: ``"auto"``, ``"cpu"``, ``"triton"``, ``"torch"`` or ``"reference"``. Default: ``"auto"``, the first of
            these that can run on the device with the dtype

    Inputs: input, hx, t0, lengths, return_state
        * **input**: (T, B, I), (B, T, I) with ``batch_first``, (T, I) unbatched, or a
          :class:`~torch.nn.utils.rnn.PackedSequence`
        * **hx**: (layers * directions, B, N), without B if unbatched: the state before the first step.
          Default: zeros. Or the :class:`State` of a stream that this call continues, which knows its clock
        * **t0**: the clock at the first step, unless `hx` is a :class:`State`. To continue a stream from a tensor, pass
          the number of steps before this call. Default: 0
        * **lengths**: B integers, if the sequences of a padded batch have different lengths
        * **return_state**: if ``True``, the second output is a :class:`State` even if `hx` is not one.
          Default: ``False``

    Outputs: output, h_n
        * **output**: (T, B, directions * N), in the form of the input: the state of the last layer at every step,
          zero beyond a sequence's end
        * **h_n**: (layers * directions, B, N), without B if unbatched: the state at each sequence's own end. If `hx` is
          a :class:`State`, or with `return_state`, it is a :class:`State` with the clock after the last step, for the
          next call of the layer or of `step`

    Variables:
        * **weight_ih_l[k]** (N, I): the weights from the input of layer k
        * **weight_hh_l[k]** (N, N): the recurrent weights of layer k, stored dense. The blocks below the diagonal, from
          fast modules to slow ones, are zero, are never read and get no gradient. They are not parameters of the
          model, though ``numel()`` counts them: 44 % of ``weight_hh`` with 8 modules of equal size. `count_parameters`
          counts the parameters that exist
        * **bias_l[k]** (N): the biases of layer k

        The reverse direction has the same variables with the suffix ``_reverse``. In layers k > 0, the input has
        directions * N features instead of I. Initial values are uniform in +-1 / sqrt(N), as torch's. The
        ``state_dict`` also holds the schedule: loading it into a layer with other clocks is an error.

    Examples::

        >>> rnn = ClockworkRNN(13, 104, schedule=8)  # periods 1, 2, 4, ..., 128
        >>> x = torch.randn(200, 4, 13)
        >>> output, h_n = rnn(x)
        >>> output.shape, h_n.shape
        (torch.Size([200, 4, 104]), torch.Size([1, 4, 104]))
        >>> first, state = rnn(x[:77], return_state=True)  # the same sequence as a stream of two chunks
        >>> second, state = rnn(x[77:], state)
        >>> torch.allclose(output, torch.cat([first, second]), atol=1e-6)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        schedule: Schedule | str | Sequence[int] | int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_arguments(input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, dtype)
        check_backend(backend)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.nonlinearity = nonlinearity
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
        hx: Tensor | State | None = None,
        *,
        t0: int = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """The output at every time step, and the final hidden state."""
        # the most common call takes the shortest way: a small network computes its output in the time of a few checks
        if (
            hx is None
            and lengths is None
            and (t0 is UNSET_CLOCK or (type(t0) is int and t0 >= 0))
            and self.num_layers == 1
            and not (return_state or self.bidirectional or self.batch_first)
        ):
            outputs = run_plain_layer(
                self.backend,
                input,
                self._parameters,
                self.input_size,
                self.bias,
                self.schedule,
                0 if t0 is UNSET_CLOCK else t0,
                self.nonlinearity,
            )
            if outputs is not None:
                return outputs
        if is_symbolic(input):
            options = {"t0": t0, "lengths": lengths, "return_state": return_state}
            recorded: tuple[Tensor, Tensor] = record_call(self, input, hx, options)
            return recorded
        ticks, h_n = self._forward(input, hx, t0, lengths, return_state, hold=True)
        return ticks.hold(), h_n

    @overload
    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        t0: int = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: Literal[False] = False,
    ) -> tuple[Ticks, Tensor]: ...

    @overload
    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | State | None = None,
        *,
        t0: int = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Ticks, Tensor | State]: ...

    def ticks(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | State | None = None,
        *,
        t0: int = UNSET_CLOCK,
        lengths: Tensor | Sequence[int] | None = None,
        return_state: bool = False,
    ) -> tuple[Ticks, Tensor | State]:
        """The output before it is held, for a :class:`Readout`, and the final hidden state.

        The arguments are those of `forward`, which equals `ticks` followed by `Ticks.hold`.
        """
        return self._forward(input, hx, t0, lengths, return_state, hold=False)

    def step(self, input: Tensor, state: "State | tuple[Tensor, int] | None" = None) -> tuple[Tensor, State]:
        """One time step: the output (B, N), and the state to pass to the next step.

        Only the modules that are due at the state's clock are computed. Under `torch.no_grad()`, `step` runs in the C
        kernel and caches each module's last message in the state. The cache is rebuilt when the state or the weights
        change. If you change single weights in the middle of a stream in a way that autograd does not see (`.data`,
        numpy), continue from a fresh `State(h, t)`.

        Args:
            input: (B, I), or (I,) unbatched
            state: the state that the last step returned, or that `forward` returned as a :class:`State`, or
                `State(h_n, t)` after t steps; None starts at t = 0

        >>> rnn = ClockworkRNN(3, 8)
        >>> state = None
        >>> for x_t in torch.randn(5, 2, 3):
        ...     y, state = rnn.step(x_t, state)
        >>> y.shape, state.t
        (torch.Size([2, 8]), 5)
        """
        messages = None
        if isinstance(state, RunningState):
            messages = state.take_messages()
            if messages is not None and self.num_layers == 1 and state.backend == self.backend:
                own = messages[0]
                if own is not None:
                    # the last step was checked: if nothing has changed since, little stands between input and kernel
                    h, t = state
                    stepped = own.step_if_unchanged(input, h, t, self.nonlinearity, self.schedule, self._parameters)
                    if stepped is not None:
                        output, h = stepped
                        return output, keep_messages(h, t + 1, state.backend, messages)
        if self.bidirectional:
            raise RuntimeError("step: a bidirectional layer reads a sequence from its end; call forward on all of it")
        check_step(input)
        batched = input.dim() == 2
        check_features(input, input.dim(), self.input_size, self._parameter("weight_ih_l0"))
        x = input if batched else input.unsqueeze(0)
        expected = (self.num_layers, x.shape[0], self.hidden_size)
        if state is None:
            h, t = x.new_zeros(expected), 0
        else:
            h, t = check_state(state, input)
            h = h if batched else h.unsqueeze(1)
            check_hidden(h, x, expected)
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
                weights = self._weights(f"_l{layer}", arithmetic)
                x, after, keep = backend.step(
                    x, *weights, h[layer], self.schedule, t, self.nonlinearity, messages[layer]
                )
                states.append(after)
                kept.append(keep)
            x, h = _cast(x, dtype), _cast(torch.stack(states) if self.num_layers > 1 else after.unsqueeze(0), dtype)
        if not batched:
            x, h = x.squeeze(0), h.squeeze(1)
        return x, keep_messages(h, t + 1, self.backend, kept)

    @classmethod
    def from_rnn(cls, rnn: nn.RNN) -> "ClockworkRNN":
        """A layer with one module of period 1 that computes the same as `rnn`.

        >>> rnn, x = nn.RNN(3, 5), torch.randn(7, 2, 3)
        >>> torch.allclose(ClockworkRNN.from_rnn(rnn)(x)[0], rnn(x)[0], atol=1e-6)
        True
        """
        if not isinstance(rnn, nn.RNN):
            raise TypeError(f"from_rnn takes a torch.nn.RNN, got {type(rnn).__name__}")
        layer = cls(**_shared_arguments(rnn), schedule=1).train(rnn.training)
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                if name.startswith("bias"):
                    parameter.copy_(getattr(rnn, f"bias_ih{name[4:]}") + getattr(rnn, f"bias_hh{name[4:]}"))
                else:
                    parameter.copy_(getattr(rnn, name))
        return layer

    def to_rnn(self) -> nn.RNN:
        """The `torch.nn.RNN` that computes the same as this layer, if it has a single module of period 1."""
        if self.schedule.periods != (1,):
            raise ValueError(
                f"only a layer with one module of period 1 is a torch.nn.RNN, got periods {self.schedule.periods}"
            )
        rnn = nn.RNN(**_shared_arguments(self)).train(self.training)
        with torch.no_grad():
            for name, parameter in rnn.named_parameters():
                if name.startswith("bias_hh"):
                    parameter.zero_()
                else:
                    parameter.copy_(getattr(self, name.replace("bias_ih", "bias")))
        return rnn

    def flatten_parameters(self) -> None:
        """Does nothing. Code that was written for torch.nn.RNN may call it."""

    def extra_repr(self) -> str:
        """The sizes, the arguments that differ from their defaults, and the schedule, as the constructor takes them."""
        text = f"{self.input_size}, {self.hidden_size}"
        defaults = {"num_layers": 1, "nonlinearity": "tanh", "bias": True, "batch_first": False, "dropout": 0.0,
                    "bidirectional": False, "backend": "auto"}  # fmt: skip
        for name, default in defaults.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)!r}"
        return f"{text}, schedule={self.schedule.spec!r}"

    def _forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | State | None,
        t0: int,
        lengths: Tensor | Sequence[int] | None,
        return_state: bool,
        hold: bool,
    ) -> tuple[Ticks, Tensor | State]:
        return_state = return_state or isinstance(hx, State)
        if return_state and self.bidirectional:
            raise RuntimeError(
                "a bidirectional layer reads a sequence from its end, so its stream cannot be continued: "
                "pass hx as a Tensor, without return_state"
            )
        hx, t0 = check_start(hx, t0)
        x, h, layout = self._enter(input, hx, lengths)
        steps = layout.common_length(x.shape[0]) if return_state else 0
        dtype, without_autocast = self._precision(x.device)
        backend = select_backend(self.backend, x.device, dtype, self.schedule)
        arithmetic = backend.arithmetic(dtype)
        h_n = []
        with without_autocast:
            x, h = _cast(x, arithmetic), None if h is None else _cast(h, arithmetic)
            last = self.num_layers - 1
            for layer in range(last):
                below = self._run(backend, layer, x, h, t0, layout, hold=True)
                h_n += [run.h_n() for run in below.passes]
                x = F.dropout(below.held(), self.dropout, self.training)
            ticks = self._run(backend, last, x, h, t0, layout, hold)
            h_n += [run.h_n() for run in ticks.passes]
            after = _cast(layout.hidden_out(torch.cat(h_n) if len(h_n) > 1 else h_n[0]), dtype)
            if arithmetic != dtype:
                ticks = Ticks(tuple(run.to(dtype) for run in ticks.passes), layout)
        return ticks, State(after, t0 + steps) if return_state else after

    def _run(
        self, backend: Backend, layer: int, x: Tensor, h: Tensor | None, t0: int, layout: Layout, hold: bool
    ) -> Ticks:
        """One layer, in all directions, over x (T, B, features) from its part of h (layers * directions, B, N).

        A state of None is zero.
        """
        passes = []
        for direction, suffix in enumerate(self._suffixes(layer)):
            # the reverse clock counts from its own start
            sequence, clock = (x, t0) if direction == 0 else (layout.reverse(x), 0)
            weights = self._weights(suffix, x.dtype)
            initial = None if h is None else h[layer * self.num_directions + direction]
            passes.append(
                backend.run(
                    sequence, *weights, initial, self.schedule, clock, self.nonlinearity, layout.lengths, hold, None
                )
            )
        return Ticks(tuple(passes), layout)

    def _weights(self, suffix: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        weight_ih, weight_hh = self._parameter(f"weight_ih{suffix}"), self._parameter(f"weight_hh{suffix}")
        bias = self._parameter(f"bias{suffix}") if self.bias else None
        return _cast(weight_ih, dtype), _cast(weight_hh, dtype), None if bias is None else _cast(bias, dtype)

    def _precision(self, device: torch.device) -> tuple[torch.dtype, Any]:
        """The dtype of the results, and a context that turns autocast off if it is on."""
        dtype = self._parameter("weight_hh_l0").dtype
        if not is_autocast_on(device):
            return dtype, nullcontext()
        if dtype != torch.float64:
            dtype = torch.get_autocast_dtype(device.type)
        return dtype, torch.autocast(device.type, enabled=False)

    def _enter(
        self, input: Tensor | PackedSequence, hx: Tensor | None, lengths: Tensor | Sequence[int] | None
    ) -> tuple[Tensor, Tensor | None, Layout]:
        """Checks the arguments: the input as (T, B, I), the state as (layers * directions, B, N), and their layout."""
        check_input(input, hx, self.input_size, self.weight_ih_l0)
        x, layout = arrange(input, lengths, self.batch_first)
        if hx is None:
            return x, None, layout
        expected = (self.num_layers * self.num_directions, x.shape[1], self.hidden_size)
        # before the state is permuted like a packed batch, which would silently drop rows of one that is too large
        check_hidden(hx if layout.batched else hx.unsqueeze(1), x, expected)
        return x, layout.hidden_in(hx), layout


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    # the comparison is cheaper than a conversion that changes nothing
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def _shared_arguments(layer: Any) -> dict[str, Any]:
    names = ("input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout",
             "bidirectional")  # fmt: skip
    weight = layer.weight_hh_l0
    return {name: getattr(layer, name) for name in names} | {"device": weight.device, "dtype": weight.dtype}
