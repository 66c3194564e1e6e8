r"""Learned clocks: a Clockwork RNN that finds its periods by gradient descent.

A clock is a pair (period, phase): it ticks where t mod period == phase. Each module has, instead of one clock, a
distribution over all candidates, the softmax of parameters of its own:

    q_i = softmax(sharpness * clocks[i])                                          (C,), one probability per candidate
    g_i(t) = sum over candidates c of q_i(c) [t mod period_c == phase_c]          how far module i ticks at t
    m_ij = probability that P_j >= P_i                                            how far module i hears module j
    h_i(t) = (1 - g_i(t)) h_i(t - 1) + g_i(t) f( W_ih[i] x(t) + b[i] + sum over j of m_ij W_hh[i, j] h_j(t - 1) )

All of it is smooth in the parameters. Where every q_i is one-hot, g_i(t) is 1 or 0 and m_ij is 1 or 0: that is the
specification in `reference.py`, and to get there is a matter of sharpness; or of drawing one-hot clocks from the q_i
(`draw_clocks`), so that a network never learns to rely on mixtures. Who hears whom follows the periods: when two
of them cross, m_ij goes from 1 to 0 and m_ji from 0 to 1 on the way, so a module that is certainly slower never hears
the faster one. Modules that end at the same period hear each other, as the units of one module do.

Why a distribution over integers, not a real number: the tick of a period p at time t lies at n p, so its derivative by
p grows with t, and a descent on p sees only the next of many local minima. The derivative by q_i(c) instead adds up,
over all the times at which clock c ticks, whether a tick would have helped: all candidates are compared at once.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .checks import autocasts, check_arguments, check_clock, check_hidden, check_input
from .layer import ClockworkRNN
from .reference import NONLINEARITIES
from .schedule import Schedule
from .sequences import Layout


class Hardening(NamedTuple):
    """What became of a layer with learned clocks when it was given integer ones."""

    units: Tensor
    """(N,): which of its units each unit of the hardened layer was; the hardened layer sorts them by period."""
    t0: int
    """The clock at which the hardened layer starts where the learned one starts at 0: 0 unless phases were learned."""
    moved: float
    """The squared difference of the outputs over the variance of those before: an NMSE of the one against the other."""
    largest: float
    """The largest difference of an output."""
    certainty: float
    """The probability of the least certain of the clocks that were chosen, before they were."""

    def __str__(self) -> str:
        return (
            f"outputs moved by {self.moved:.2g} of their variance, at most by {self.largest:.2g}; "
            f"least certain clock {self.certainty:.3g}"
        )


class LearnedClockworkRNN(nn.Module):
    r"""A Clockwork RNN of one layer whose periods, and by option phases, are learned with its weights.

    Train it as any layer, and call `sharpen` once per update with the progress of the training: the clocks begin as
    mixtures of all candidates and end as hard ones. Then `harden` returns the :class:`ClockworkRNN`.

    Args:
        input_size: I, the number of features of the input; 0 if there is none
        hidden_size: N, the number of hidden units
        modules: the number of modules, over which the units are split evenly, or the size of each of them.
            Default: ``min(8, hidden_size)``
        candidates: the periods to choose from, or the longest of 1, 2, 3, ... Default: 32
        learn_phases: if ``True``, a clock of period P may tick at t mod P = 0, ..., P - 1, else at 0 only.
            Default: ``False``
        draw_clocks: if ``True``, a layer in training whose clocks are soft has hard ones all the same, which every
            call draws from their distributions. Default: ``False``
        nonlinearity: ``"tanh"`` or ``"relu"``. Default: ``"tanh"``
        bias: if ``False``, there is no bias. Default: ``True``
        batch_first: if ``True``, input and output are (B, T, ...). Default: ``False``

    Inputs: input, hx, t0, and outputs: output, h_n
        as those of :class:`ClockworkRNN`, but no :class:`~torch.nn.utils.rnn.PackedSequence`

    Variables:
        weight_ih_l0 (N, I), weight_hh_l0 (N, N), bias_l0 (N)
            as those of :class:`ClockworkRNN`, but that every block of ``weight_hh`` may be heard while clocks are soft
        clocks (modules, C)
            a number for each of the C candidates: sharpness times these are the logarithms of the probabilities, but
            for a constant
        candidates (C, 2), sharpness ()
            buffers: the periods and phases to choose from; and 1 at first, infinite where the clocks are hard

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
        check_arguments(input_size, hidden_size, 1, nonlinearity, bias, batch_first, 0.0, dtype)
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
        """New initial values: weights uniform in +-1 / sqrt(hidden_size) as torch's, all clocks about as probable."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters():
            if name == "clocks":
                # modules that are alike stay alike
                nn.init.normal_(parameter, std=0.01)
            else:
                nn.init.uniform_(parameter, -bound, bound)
        self.sharpness.fill_(1.0)

    def forward(self, input: Tensor, hx: Tensor | None = None, *, t0: int = 0) -> tuple[Tensor, Tensor]:
        """The output at every time step, and the final hidden state."""
        if self.draw_clocks and self.training and self.sharpness < math.inf:
            # Gumbel's
            noise = -torch.empty_like(self.clocks).exponential_().log()
            return self._run(input, hx, t0, draw(self.clocks, self.sharpness, noise))
        return self._run(input, hx, t0, self.probabilities())

    def _run(self, input: Tensor, hx: Tensor | None, t0: int, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        t0 = check_clock("t0", t0)
        x, h, layout = self._enter(input, hx)
        with torch.autocast(x.device.type, enabled=False):
            bias = self.bias_l0 if self.bias else None
            weights = self.weight_ih_l0, self.weight_hh_l0, bias
            output = soft_clockwork(x, *weights, h, probabilities, self.candidates, self.sizes, t0, self.nonlinearity)
        h_n = output[-1] if len(output) > 0 else h
        sequence = layout.sequence_out(output)
        assert isinstance(sequence, Tensor)
        return sequence, layout.hidden_out(h_n.unsqueeze(0))

    def probabilities(self) -> Tensor:
        """(modules, C): how probable each candidate is as the clock of each module."""
        return sharp_softmax(self.clocks, self.sharpness)

    @property
    def periods(self) -> tuple[int, ...]:
        """The most probable period of every module, which need not be sorted."""
        return tuple(self._most_probable()[:, 0].tolist())

    @property
    def phases(self) -> tuple[int, ...]:
        """The most probable phase of every module: it ticks where t mod period == phase."""
        return tuple(self._most_probable()[:, 1].tolist())

    @torch.no_grad()
    def sharpen(self, progress: float, *, soft: float = 0.5, last: float = 30.0) -> None:
        """Sets the sharpness for a training of which the share `progress` is done.

        It grows from 1 to `last` in equal ratios until the share `soft` is done. From then on it is infinite: the
        clocks are hard, they stay as they are, and the weights get used to them. Phases that `harden` could not keep
        give way at that point, so that the weights get used to that too.

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
            self.clocks.copy_(lifted(self.clocks, self._choose()[0]))
        self.sharpness.fill_(sharpness)

    @torch.no_grad()
    def harden(
        self, input: Tensor | None = None, hx: Tensor | None = None, *, t0: int = 0
    ) -> tuple[ClockworkRNN, Hardening]:
        """The ordinary layer that has the most probable clocks, and a report of how far its outputs are from here.

        The hardened layer has modules sorted by period, and those of equal period merged. So its units are ordered
        anew, and whatever reads them must follow: `readout.weight[:, report.units]`, `hx[..., report.units]`.

        A `Schedule` has no phases, but a stream may start at any time of its clock: modules that ever tick together do
        so at 0. If phases were learned, the hardened layer starts at `t0 = report.t0`. Phases of modules that would
        never tick together give way, those of the less certain module first, to the most probable ones that fit.

        Args:
            input: what the outputs are compared on. Default: noise from normal(0, 1), as long as four longest periods
            hx: the state before it. Default: zeros
            t0: the clock at its first step. Default: 0
        """
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
        before = self._run(input, hx, t0, self.probabilities())[0][..., units].flatten(0, -2).double()
        after = rnn(input, None if hx is None else hx[..., units], t0=t0 + start)[0].flatten(0, -2).double()
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
        """The sizes, what differs from the defaults, and the clocks."""
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
        """The candidate of every module, such that all tick together; and how long before their time 0 they do.

        Modules choose in the order of their certainty, each among the clocks of its most probable period that tick
        together with those before: the times that these have in common are start, start + every, start + 2 every, ...
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
            # the Chinese remainder theorem, by trial: at most `period` of them
            while start % period != wanted:
                start += every
            every = math.lcm(every, period)
        return chosen, -start % every

    def _enter(self, input: Tensor, hx: Tensor | None) -> tuple[Tensor, Tensor, Layout]:
        """Input as (T, B, I), state as (B, N), and the way back; or the error of `ClockworkRNN`."""
        if isinstance(input, PackedSequence):
            raise TypeError("LearnedClockworkRNN takes no PackedSequence: pad it, or harden the layer first")
        check_input(input, hx, self.input_size, self.weight_ih_l0)
        batched = input.dim() == 3
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        layout = Layout(batched, self.batch_first)
        if hx is None:
            h = x.new_zeros(1, x.shape[1], self.hidden_size)
        else:
            h = layout.hidden_in(hx)
            check_hidden(h, x, (1, x.shape[1], self.hidden_size))
        if autocasts(x.device):
            x, h = x.to(self.clocks.dtype), h.to(self.clocks.dtype)
        return x, h[0], layout


def soft_clockwork(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    probabilities: Tensor,
    candidates: Tensor,
    sizes: Sequence[int],
    t0: int = 0,
    nonlinearity: str = "tanh",
) -> Tensor:
    """The hidden states at every time step (T, B, N) of a Clockwork RNN whose clocks are distributions.

    Many networks run at once if all tensors have an axis S before those that are named here, after T if there is one.

    Args:
        input: (T, B, I)
        weight_ih: (N, I)
        weight_hh: (N, N)
        bias: (N,) or None
        h0: (B, N), the hidden state at t0 - 1
        probabilities: (modules, C), of every candidate as the clock of every module
        candidates: (C, 2), periods and phases
        sizes: units of every module
        t0: the clock at the first step of `input`
        nonlinearity: "tanh" or "relu"

    >>> clocks = torch.eye(2)  # hard: the first module has the first clock
    >>> soft_clockwork(
    ...     input=torch.ones(4, 1, 1),
    ...     weight_ih=torch.ones(2, 1),
    ...     weight_hh=torch.tensor([[0.0, 1.0], [1.0, 1.0]]),  # the second, slower module does not hear the first
    ...     bias=None,
    ...     h0=torch.zeros(1, 2),
    ...     probabilities=clocks,
    ...     candidates=torch.tensor([[1, 0], [2, 0]]),
    ...     sizes=[1, 1],
    ...     nonlinearity="relu",
    ... )[:, 0].tolist()
    [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [3.0, 2.0]]
    """
    f = NONLINEARITIES[nonlinearity]
    module = torch.arange(len(sizes), device=h0.device).repeat_interleave(torch.tensor(sizes, device=h0.device))
    ticking = gate(probabilities, candidates, t0, len(input)).index_select(-1, module)
    heard = hearing(probabilities, candidates).index_select(-1, module).index_select(-2, module)
    weight = (weight_hh * heard).mT
    drive = input @ weight_ih.mT
    if bias is not None:
        drive = drive + bias.unsqueeze(-2)
    h = h0
    output = []
    for a, g in zip(drive.unbind(0), ticking.unsqueeze(-2).unbind(0), strict=True):
        # exact where g is 0 or 1
        h = torch.lerp(h, f(a + h @ weight), g)
        output.append(h)
    return torch.stack(output) if output else h0.new_zeros((0, *h0.shape))


def gate(probabilities: Tensor, candidates: Tensor, t0: int, T: int) -> Tensor:
    """(T, modules): the probability that each module ticks, from t0 to t0 + T - 1.

    >>> candidates = torch.tensor([[1, 0], [2, 0], [4, 0]])
    >>> gate(torch.tensor([[0.0, 0.5, 0.5]]), candidates, t0=0, T=6)[:, 0].tolist()
    [1.0, 0.0, 0.5, 0.0, 1.0, 0.0]
    """
    period, phase = candidates.unbind(1)
    t = torch.arange(t0, t0 + T, device=candidates.device)
    comb = (t[:, None] % period == phase).to(probabilities.dtype)  # (T, C)
    return (probabilities @ comb.T).movedim(-1, 0)


def hearing(probabilities: Tensor, candidates: Tensor) -> Tensor:
    """(modules, modules): the probability that each (column) is no faster than the other (row), which then hears it.

    >>> candidates = torch.tensor([[1, 0], [2, 0], [4, 0]])
    >>> hearing(torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]), candidates)
    tensor([[1.0000, 0.7500],
            [0.2500, 1.0000]])
    """
    period = candidates[:, 0]
    slower = (period[:, None] <= period).to(probabilities.dtype)  # (C, C)
    heard = probabilities @ slower @ probabilities.mT
    # a module hears itself, whatever its period is
    itself = torch.eye(heard.shape[-1], dtype=torch.bool, device=heard.device)
    return heard.masked_fill(itself, 1.0)


def sharpness_at(progress: float, *, soft: float = 0.5, last: float = 30.0) -> float:
    """The sharpness for a training of which the share `progress` is done, as `LearnedClockworkRNN.sharpen` says.

    >>> [sharpness_at(progress, last=16.0) for progress in (0.0, 0.25, 0.5, 1.0)]
    [1.0, 4.0, inf, inf]
    """
    if not 0 <= progress <= 1:
        raise ValueError(f"progress must lie between 0 and 1, got {progress!r}")
    if not 0 <= soft <= 1:
        raise ValueError(f"soft must lie between 0 and 1, got {soft!r}")
    if not 1 <= last < math.inf:
        raise ValueError(f"last must be a number of at least 1, got {last!r}")
    return float(last ** (progress / soft)) if progress < soft else math.inf


def lifted(clocks: Tensor, chosen: Tensor) -> Tensor:
    """(..., modules, C): the clocks, in which every module's chosen candidate is well above its others.

    An optimiser may have momentum left when the clocks become hard, and of equals only one may be chosen.

    Args:
        clocks: (..., modules, C); many networks at once if there are axes before these
        chosen: (..., modules), the number of a candidate for each

    >>> lifted(torch.tensor([[0.5, 0.5, 0.25], [0.0, 3.0, 1.0]]), torch.tensor([0, 1])).tolist()
    [[1.5, 0.5, 0.25], [0.0, 3.0, 1.0]]
    """
    place = chosen.unsqueeze(-1)
    others = clocks.scatter(-1, place, -math.inf).amax(dim=-1, keepdim=True)
    return clocks.scatter(-1, place, torch.maximum(clocks.gather(-1, place), others + 1))


def sharp_softmax(values: Tensor, sharpness: Tensor) -> Tensor:
    """softmax(sharpness * values); where the sharpness is infinite it is one-hot, at the first of the largest.

    >>> sharp_softmax(torch.tensor([0.0, 1.0, 0.5, 1.0]), torch.tensor(torch.inf))
    tensor([0., 1., 0., 0.])
    """
    below = values - values.detach().amax(dim=-1, keepdim=True)
    # 0 times infinity is no number, and 0 times the largest number is 0
    soft = (below * sharpness.clamp(max=torch.finfo(values.dtype).max)).softmax(dim=-1)
    hard = nn.functional.one_hot(values.argmax(dim=-1), values.shape[-1]).to(soft)
    return torch.where(sharpness == math.inf, hard, soft)


def draw(values: Tensor, sharpness: Tensor, noise: Tensor) -> Tensor:
    """(..., C): one-hot draws from softmax(sharpness * values), differentiable as if they were not hard.

    The largest of sharpness * values + noise is a draw from the softmax if the noise is Gumbel's. The softmax of that
    sum is near the draw where it is sharp, and its derivative is taken for the draw's ("straight through").

    >>> draw(torch.tensor([0.0, 1.0, 0.5]), torch.tensor(2.0), noise=torch.tensor([0.0, 0.0, 3.0]))
    tensor([0., 0., 1.])
    """
    soft = (values * sharpness + noise).softmax(dim=-1)
    hard = nn.functional.one_hot(soft.argmax(dim=-1), soft.shape[-1]).to(soft)
    # exactly the draw: what is subtracted from itself is 0
    return hard + (soft - soft.detach())


def list_candidates(periods: int | Sequence[int], phases: bool) -> list[tuple[int, int]]:
    """The clocks of these periods, or of all up to that one, by period and phase.

    >>> list_candidates(3, phases=False)
    [(1, 0), (2, 0), (3, 0)]
    >>> list_candidates([1, 3], phases=True)
    [(1, 0), (3, 0), (3, 1), (3, 2)]
    """
    if isinstance(periods, int) and not isinstance(periods, bool):
        if periods < 1:
            raise ValueError(f"candidates must be periods, or the longest of them, got {periods}")
        periods = range(1, periods + 1)
    if not isinstance(periods, Sequence) or isinstance(periods, (str, bytes)):
        raise TypeError(f"candidates must be an integer or a sequence of integers, got {periods!r}")
    distinct = Schedule(tuple(periods), (1,) * len(periods)).periods
    return [(period, phase) for period in distinct for phase in range(period if phases else 1)]


def _split(hidden_size: int, modules: Any) -> tuple[int, ...]:
    """The size of every module."""
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
