"""Learned clocks: a Clockwork RNN that finds its periods by gradient descent.

While it is trained, each module has a distribution over candidate clocks (`soft_clocks.py` has the equations), which
becomes sharper until every module has one clock. `LearnedClockworkRNN.harden` then returns the ordinary layer.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .checks import (
    check_arguments,
    check_hidden,
    check_input,
    check_nonlinearity,
    is_autocast_on,
    list_parts,
)
from .fx_tracing import is_symbolic, record_call
from .rnn import ClockworkRNN
from .schedule import Schedule
from .sequences import Layout, arrange
from .soft_clocks import draw_one_hot, list_candidates, settle_clocks, sharp_softmax, sharpness_at, soft_clockwork
from .state_dicts import EXTRA_STATE, equals_stored, is_real_matrix, pack_integers
from .step import UNSET_CLOCK, State, check_start


class Hardening(NamedTuple):
    """Report of `LearnedClockworkRNN.harden`: how the hardened layer differs from the learned one.

    >>> rnn = LearnedClockworkRNN(3, 12, modules=4, candidates=10)
    >>> rnn.sharpen(progress=1.0)
    >>> hardened, report = rnn.harden(torch.randn(50, 2, 3))
    >>> report.t0, report.certainty, report.moved < 1e-10
    (0, 1.0, True)
    """

    units: Tensor
    """(N,): unit n of the hardened layer is unit `units[n]` of the learned one; hardening sorts them by period."""
    t0: int
    """The clock of the hardened layer when the clock of the learned one is 0; other than 0 only with learned phases."""
    moved: float
    """The normalised mean squared error of the outputs: squared difference over the variance before hardening."""
    largest: float
    """The largest absolute difference of an output."""
    certainty: float
    """The lowest probability, before hardening, of a clock that was chosen."""

    def __str__(self) -> str:
        return (
            f"outputs moved by {self.moved:.2g} of their variance, at most by {self.largest:.2g}; "
            f"least certain clock {self.certainty:.3g}"
        )


class LearnedClockworkRNN(nn.Module):
    r"""A Clockwork RNN of one layer that learns its periods, and optionally its phases, together with its weights.

    Train it like any layer, and call `sharpen` once per update with the progress of the training: the clocks begin as
    mixtures of all candidates and end as one candidate each. `harden` then returns the :class:`ClockworkRNN`.

    Args:
        input_size: I, the number of features of the input; 0 if there is none
        hidden_size: N, the number of hidden units
        modules: the number of modules, over which the units are split evenly, or a sequence of their sizes.
            Default: ``min(8, hidden_size)``
        candidates: the periods to choose from, or the longest of 1, 2, 3, ... Default: 32
        learn_phases: if ``True``, a clock of period P may tick at t mod P = 0, ..., P - 1, otherwise at 0 only.
            Default: ``False``
        draw_clocks: if ``True``, every call in training mode draws one-hot clocks from the distributions, as long as
            the sharpness is finite. Default: ``False``
        nonlinearity: ``"tanh"`` or ``"relu"``. Default: ``"tanh"``
        bias: if ``False``, there is no bias. Default: ``True``
        batch_first: if ``True``, input and output are (B, T, ...). Default: ``False``

    Inputs: input, hx, t0, return_state, and outputs: output, h_n
        the same as those of :class:`ClockworkRNN`, without support for a :class:`~torch.nn.utils.rnn.PackedSequence`

    Variables:
        * **weight_ih_l0** (N, I), **weight_hh_l0** (N, N), **bias_l0** (N): the same as those of :class:`ClockworkRNN`,
          except that every block of ``weight_hh`` counts while the clocks are soft
        * **clocks** (modules, C): one number for each of the C candidates; the probabilities are
          softmax(sharpness * clocks)
        * **candidates** (C, 2), a buffer: the period and the phase of every candidate
        * **sharpness** (), a buffer: 1 at first, infinite when the clocks are hard

    Examples::

        >>> rnn = LearnedClockworkRNN(3, 12, modules=4, candidates=10)
        >>> x = torch.randn(50, 2, 3)
        >>> output, h_n = rnn(x)
        >>> output.shape, h_n.shape
        (torch.Size([50, 2, 12]), torch.Size([1, 2, 12]))
        >>> rnn.sharpen(progress=1.0)
        >>> hardened, report = rnn.harden(x)
        >>> type(hardened).__name__, report.moved < 1e-10
        ('ClockworkRNN', True)
        >>> torch.allclose(hardened(x)[0], rnn(x)[0][..., report.units], atol=1e-5)
        True
    """

    candidates: Tensor
    sharpness: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        modules: int | Sequence[int] | None = None,
        candidates: int | Sequence[int] = 32,
        learn_phases: bool = False,
        draw_clocks: bool = False,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_nonlinearity(nonlinearity)
        check_arguments(input_size, hidden_size, 1, bias, batch_first, 0.0, dtype)
        for name, value in {"learn_phases": learn_phases, "draw_clocks": draw_clocks}.items():
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.nonlinearity = nonlinearity
        self.bias = bias
        self.batch_first = batch_first
        self.learn_phases = learn_phases
        self.draw_clocks = draw_clocks
        self.sizes = _split(hidden_size, modules)
        pairs = list_candidates(candidates, learn_phases)
        self.register_buffer("candidates", torch.tensor(pairs, device=device))
        self.register_buffer("sharpness", torch.ones((), device=device, dtype=dtype))
        self.weight_ih_l0 = nn.Parameter(torch.empty(hidden_size, input_size, device=device, dtype=dtype))
        self.weight_hh_l0 = nn.Parameter(torch.empty(hidden_size, hidden_size, device=device, dtype=dtype))
        if bias:
            self.bias_l0 = nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype))
        self.clocks = nn.Parameter(torch.empty(len(self.sizes), len(pairs), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new initial values: weights uniform in +-1 / sqrt(hidden_size), as torch does; clocks almost equal."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters():
            if name == "clocks":
                # not quite equal: modules with equal parameters would get equal gradients
                nn.init.normal_(parameter, std=0.01)
            else:
                nn.init.uniform_(parameter, -bound, bound)
        self.sharpness.fill_(1.0)

    def forward(
        self,
        input: Tensor,
        hx: Tensor | State | None = None,
        *,
        t0: int = UNSET_CLOCK,
        return_state: bool = False,
    ) -> tuple[Tensor, Tensor | State]:
        """The output at every time step and the final hidden state.

        Args:
            input: (T, B, I), (B, T, I) with `batch_first`, or (T, I) unbatched
            hx: (1, B, N), or (1, N) unbatched: the state before the first step. Default: zeros. Or the State of a
                stream that this call continues, which knows its clock
            t0: the clock at the first step, unless `hx` is a State. Default: 0
            return_state: if True, the final hidden state is a State even if `hx` is not one. Default: False
        """
        if is_symbolic(input):
            recorded: tuple[Tensor, Tensor] = record_call(self, input, hx, {"t0": t0, "return_state": return_state})
            return recorded
        h, t = _check_start(hx, t0)
        output, h_n = self._run(input, h, t, self._draw_probabilities())
        if not (return_state or isinstance(hx, State)):
            return output, h_n
        # the axis of time is the second one only if there is a batch
        return output, State(h_n, t + output.shape[int(self.batch_first and output.dim() == 3)])

    def _draw_probabilities(self) -> Tensor:
        """The probabilities of the clocks for one call, or one-hot clocks drawn from them."""
        if self.draw_clocks and self.training and self.sharpness < math.inf:
            # minus the logarithm of an exponential variable has the standard Gumbel distribution
            noise = -torch.empty_like(self.clocks).exponential_().log()
            return draw_one_hot(self.clocks, self.sharpness, noise)
        return self.probabilities()

    def _run(self, input: Tensor, hx: Tensor | None, t0: int, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        x, h, layout = self._enter(input, hx)
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias_l0 if self.bias else None
            weights = self.weight_ih_l0, self.weight_hh_l0, bias
            output = soft_clockwork(x, *weights, h, probabilities, self.candidates, self.sizes, t0, self.nonlinearity)
        # the sum of no states is zero, and has gradients
        h_n = output[-1] if len(output) > 0 else h + output.sum(0)
        sequence = layout.sequence_out(output)
        assert isinstance(sequence, Tensor)
        return sequence, layout.hidden_out(h_n.unsqueeze(0))

    def get_extra_state(self) -> Tensor:
        """The sizes of the modules, for the state_dict, (1, G); the candidates and their sharpness are buffers."""
        return pack_integers([self.sizes])

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # load_state_dict has copied the dict; state dicts of earlier versions have no sizes
        own = self.get_extra_state()
        stored = state_dict.pop(prefix + EXTRA_STATE, own)
        if not equals_stored(own, stored):
            readable = is_real_matrix(stored) and len(stored) == 1 and not stored.is_meta
            sizes = f"[{', '.join(f'{size:.15g}' for size in stored.tolist()[0])}]" if readable else repr(stored)
            error_msgs.append(
                f'size mismatch for "{prefix}{EXTRA_STATE}": the weights were saved with modules of the sizes {sizes}, '
                f"but this layer has modules of the sizes {list(self.sizes)}."
            )
            return
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def probabilities(self) -> Tensor:
        """The probability of each candidate as the clock of each module, (G, C)."""
        return sharp_softmax(self.clocks, self.sharpness)

    @property
    def periods(self) -> tuple[int, ...]:
        """The most probable period of every module, in the order of the modules, which need not be sorted."""
        return tuple(self._most_probable()[:, 0].tolist())

    @property
    def phases(self) -> tuple[int, ...]:
        """The phase of every module's most probable clock, which ticks where t mod period == phase."""
        return tuple(self._most_probable()[:, 1].tolist())

    @torch.no_grad()
    def sharpen(self, progress: float, *, soft: float = 0.5, last: float = 30.0) -> None:
        """Sets the sharpness of the clocks to its value when the share `progress` of the training is done.

        The sharpness grows from 1 to `last` in equal ratios until the share `soft` is done, and is infinite from then
        on: the clocks no longer change, and the weights adapt to them. At that point the layer also replaces phases
        that `harden` could not keep, so that the weights adapt to those too.

        >>> rnn = LearnedClockworkRNN(0, 8)
        >>> for progress in (0.0, 0.25, 0.5):
        ...     rnn.sharpen(progress, last=16.0)
        ...     print(rnn.sharpness.item())
        1.0
        4.0
        inf
        """
        sharpness = sharpness_at(progress, soft=soft, last=last)
        if sharpness == math.inf and self.sharpness < math.inf:
            self.clocks.copy_(settle_clocks(self.clocks, self._choose()[0]))
        self.sharpness.fill_(sharpness)

    @torch.no_grad()
    def harden(
        self, input: Tensor | None = None, hx: Tensor | State | None = None, *, t0: int = UNSET_CLOCK
    ) -> tuple[ClockworkRNN, Hardening]:
        """The ClockworkRNN with the most probable clocks, and a report of how much its outputs differ.

        The hardened layer has its modules sorted by period, and modules of equal period are merged. Its units are
        therefore in another order, and everything that reads them must be reordered: `readout.weight[:, report.units]`,
        `hx[..., report.units]`.

        A `Schedule` has no phases. Instead, the hardened layer starts at `t0 = report.t0`, a time at which its clocks
        stand as the learned ones do at 0. That is possible only if all modules tick together at some time. Where the
        learned phases rule that out, the less certain modules take their most probable phase that allows it.

        Args:
            input: a sequence on which to compare the outputs. Default: normal(0, 1) noise, four longest periods long
            hx: the state before that sequence, a tensor or a State. Default: zeros
            t0: the clock at its first step, unless `hx` is a State. Default: 0

        >>> rnn = LearnedClockworkRNN(3, 12, modules=4, candidates=10)
        >>> hardened, report = rnn.harden()
        >>> hardened.schedule.periods == tuple(sorted(set(rnn.periods)))
        True
        """
        h, t = _check_start(hx, t0)
        chosen, start = self._choose()
        periods = self.candidates[chosen, 0].tolist()
        order = sorted(range(len(self.sizes)), key=periods.__getitem__)
        blocks = torch.arange(self.hidden_size, device=self.clocks.device).split(self.sizes)
        units = torch.cat([blocks[i] for i in order])
        rnn = ClockworkRNN(
            self.input_size,
            self.hidden_size,
            nonlinearity=self.nonlinearity,
            bias=self.bias,
            batch_first=self.batch_first,
            device=self.clocks.device,
            dtype=self.clocks.dtype,
            schedule=Schedule(tuple(periods), self.sizes),
        ).train(self.training)
        for name, parameter in rnn.named_parameters():
            value = self.get_parameter(name)[units]
            parameter.copy_(value[:, units] if name == "weight_hh_l0" else value)
        rnn.clear_forbidden_weights()
        if input is None:
            generator = torch.Generator().manual_seed(0)
            shape = 4 * max(periods), 1, self.input_size
            noise = torch.randn(shape, generator=generator).to(self.clocks)
            input = noise.transpose(0, 1) if self.batch_first else noise
        before = self._run(input, h, t, self.probabilities())[0][..., units].flatten(0, -2).double()
        after = rnn(input, None if h is None else h[..., units], t0=t + start)[0].flatten(0, -2).double()
        difference = after - before
        variation = (before - before.mean(0)).square().sum()
        return rnn, Hardening(
            units=units,
            t0=start,
            moved=_ratio(difference.square().sum().item(), variation.item()),
            largest=difference.abs().max().item() if difference.numel() > 0 else 0.0,
            certainty=self.probabilities().gather(1, chosen[:, None]).min().item(),
        )

    def extra_repr(self) -> str:
        """The sizes, the candidates, the options that differ from their defaults, and the sharpness."""
        text = f"{self.input_size}, {self.hidden_size}, modules={list(self.sizes)}"
        text += f", candidates={len(self.candidates[:, 0].unique())} periods up to {self.candidates[:, 0].max().item()}"
        for name, default in {
            "learn_phases": False,
            "draw_clocks": False,
            "nonlinearity": "tanh",
            "bias": True,
            "batch_first": False,
        }.items():
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return f"{text}, sharpness={self.sharpness.item():g}"

    def _most_probable(self) -> Tensor:
        return self.candidates[self.clocks.detach().argmax(dim=1)]

    def _choose(self) -> tuple[Tensor, int]:
        """The index of every module's candidate, and the time since all of them ticked together, at time 0.

        Modules choose in the order of their certainty, each among the clocks of its most probable period that tick
        together with all clocks chosen before, at the times start, start + every, start + 2 every, ...
        """
        chosen = self.clocks.argmax(dim=1)
        start, every = 0, 1
        certainty = self.clocks.softmax(dim=1).amax(dim=1)
        for module in certainty.argsort(descending=True, stable=True).tolist():
            period = int(self.candidates[chosen[module], 0])
            common = math.gcd(period, every)
            phase = self.candidates[:, 1]
            fits = (self.candidates[:, 0] == period) & (phase % common == start % common)
            chosen[module] = self.clocks[module].masked_fill(~fits, -math.inf).argmax()
            wanted = int(phase[chosen[module]])
            # the Chinese remainder theorem, by trial: at most `period` trials
            while start % period != wanted:
                start += every
            every = math.lcm(every, period)
        return chosen, -start % every

    def _enter(self, input: Tensor, hx: Tensor | None) -> tuple[Tensor, Tensor, Layout]:
        """The input as (T, B, I), the state as (B, N), and the layout to return; raises the errors of ClockworkRNN."""
        if isinstance(input, PackedSequence):
            raise TypeError("LearnedClockworkRNN takes no PackedSequence: pad it, or harden the layer first")
        check_input(input, list_parts(hx, 1), self.input_size, self.weight_ih_l0, self.nonlinearity)
        x, layout = arrange(input, None, self.batch_first)
        if hx is None:
            h = x.new_zeros(1, x.shape[1], self.hidden_size)
        else:
            h = layout.hidden_in(hx)
            check_hidden([h], x, (1, x.shape[1], self.hidden_size))
        if is_autocast_on(x.device):
            x, h = x.to(self.clocks.dtype), h.to(self.clocks.dtype)
        return x, h[0], layout


def _split(hidden_size: int, modules: Any) -> tuple[int, ...]:
    """The sizes of the modules that the argument `modules` of LearnedClockworkRNN describes."""
    if modules is None:
        modules = min(8, hidden_size)
    if isinstance(modules, Sequence):
        schedule = Schedule(tuple(range(1, len(modules) + 1)), tuple(modules))
        if schedule.hidden_size != hidden_size:
            raise ValueError(f"the modules have {schedule.hidden_size} units, but hidden_size={hidden_size}")
        return schedule.sizes
    return Schedule.linear(hidden_size, modules).sizes


def _ratio(error: float, variation: float) -> float:
    if error == 0:
        return 0.0
    return error / variation if variation > 0 else math.inf


def _check_start(hx: Any, t0: int) -> tuple[Any, int]:
    """`check_start`, which also refuses a clock for each sequence, and one that does not fit into 64 bits."""
    h, t = check_start(hx, t0)
    if isinstance(t, Tensor):
        raise TypeError("the sequences of a LearnedClockworkRNN share one clock, an int; got a tensor of clocks")
    if t > 2**62:
        raise ValueError(f"the clock of a LearnedClockworkRNN must be at most 2**62, got {t}")
    return h, t
