r"""Soft clocks: the recurrence of a Clockwork RNN whose modules have distributions over clocks.

A clock is a pair (period, phase): it ticks where t mod period == phase. Instead of one clock, each module has a
distribution over all candidates, the softmax of parameters of its own:

    q_i = softmax(sharpness * clocks[i])                                          (C,), one probability per candidate
    g_i(t) = sum over candidates c of q_i(c) [t mod period_c == phase_c]          probability that module i ticks at t
    m_ij = probability that P_j >= P_i                                            probability that module i reads j
    h_i(t) = (1 - g_i(t)) h_i(t - 1) + g_i(t) f( W_ih[i] x(t) + b[i] + sum over j of m_ij W_hh[i, j] h_j(t - 1) )

All of it is smooth in the parameters. Where every q_i is one-hot, every g_i(t) and m_ij is 0 or 1, and the equations
are the specification in `reference.py`. The q_i become one-hot as the sharpness grows. Alternatively, `draw_one_hot`
draws one-hot clocks from the q_i at every call, so that a network never learns to rely on mixtures.

The connections follow the periods. While the periods of two modules cross, m_ij goes from 1 to 0 and m_ji from 0 to 1,
so that a module that is certainly slower never reads the faster one. Modules that end at the same period read each
other, as the units of one module do.

Why a distribution over integers and not a real number: the ticks of a period p lie at the times n p, so the derivative
of the output by p grows with time, and gradient descent on p sees only the nearest of many local minima. The derivative
by q_i(c) adds up, over all ticks of clock c, whether a tick would have helped: it compares all candidates at once.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .cells import NONLINEARITIES
from .schedule import Schedule


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

    With a further axis S in every tensor, S networks run side by side: input (T, S, B, I), all others (S, ...).

    Args:
        input: (T, B, I)
        weight_ih: (N, I)
        weight_hh: (N, N)
        bias: (N,) or None
        h0: (B, N), the hidden state at t0 - 1
        probabilities: (G, C), the probability of every candidate as the clock of every module
        candidates: (C, 2), their periods and phases
        sizes: K_i, the number of units of every module
        t0: the clock at the first step of `input`
        nonlinearity: "tanh" or "relu"

    >>> clocks = torch.eye(2)  # one-hot: the first module has the first clock
    >>> soft_clockwork(
    ...     input=torch.ones(4, 1, 1),
    ...     weight_ih=torch.ones(2, 1),
    ...     weight_hh=torch.tensor([[0.0, 1.0], [1.0, 1.0]]),  # the second module is slower: it does not read the first
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
    ticks = tick_probabilities(probabilities, candidates, t0, len(input)).index_select(-1, module)
    connected = connection_probabilities(probabilities, candidates).index_select(-1, module).index_select(-2, module)
    weight = (weight_hh * connected).mT
    drive = input @ weight_ih.mT
    if bias is not None:
        drive = drive + bias.unsqueeze(-2)
    if len(input) == 0:
        # no steps that read everything: the gradient of every argument is zero, but defined
        return torch.lerp(h0, drive + h0 @ weight, ticks.unsqueeze(-2))
    h = h0
    output = []
    for a, g in zip(drive.unbind(0), ticks.unsqueeze(-2).unbind(0), strict=True):
        # lerp is exact where g is 0 or 1
        h = torch.lerp(h, f(a + h @ weight), g)
        output.append(h)
    return torch.stack(output)


def tick_probabilities(probabilities: Tensor, candidates: Tensor, t0: int, T: int) -> Tensor:
    """The probability that each module ticks at each time from t0 to t0 + T - 1, (T, G).

    Args:
        probabilities: (G, C), the probability of every candidate as the clock of every module
        candidates: (C, 2), their periods and phases
        t0: the clock at the first step
        T: the number of steps

    >>> candidates = torch.tensor([[1, 0], [2, 0], [4, 0]])
    >>> tick_probabilities(torch.tensor([[0.0, 0.5, 0.5]]), candidates, t0=0, T=6)[:, 0].tolist()
    [1.0, 0.0, 0.5, 0.0, 1.0, 0.0]
    """
    period, phase = candidates.unbind(1)
    t = torch.arange(t0, t0 + T, device=candidates.device)
    comb = (t[:, None] % period == phase).to(probabilities.dtype)  # (T, C)
    return (probabilities @ comb.T).movedim(-1, 0)


def connection_probabilities(probabilities: Tensor, candidates: Tensor) -> Tensor:
    """The probability m_ij that module i (row) reads module j (column), because j is no faster than i: (G, G).

    Args:
        probabilities: (G, C), the probability of every candidate as the clock of every module
        candidates: (C, 2), their periods and phases

    >>> candidates = torch.tensor([[1, 0], [2, 0], [4, 0]])
    >>> connection_probabilities(torch.tensor([[0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]), candidates)
    tensor([[1.0000, 0.7500],
            [0.2500, 1.0000]])
    """
    period = candidates[:, 0]
    no_faster = (period[:, None] <= period).to(probabilities.dtype)  # (C, C)
    connected = probabilities @ no_faster @ probabilities.mT
    # a module reads itself, whatever its period is
    itself = torch.eye(connected.shape[-1], dtype=torch.bool, device=connected.device)
    return connected.masked_fill(itself, 1.0)


def sharpness_at(progress: float, *, soft: float = 0.5, last: float = 30.0) -> float:
    """The sharpness of the clocks when the share `progress` of a training is done.

    It grows from 1 to `last` in equal ratios until the share `soft` is done, and is infinite from then on.

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


def settle_clocks(clocks: Tensor, chosen: Tensor) -> Tensor:
    """The clocks (..., G, C) with the chosen candidate of every module at least 1 above the module's others.

    When clocks become hard, an optimiser may still have momentum and two candidates may be equal. The distance keeps
    the choice as it is.

    Args:
        clocks: (..., G, C), with any number of leading axes for networks side by side
        chosen: (..., G), the index of one candidate for each module

    >>> settle_clocks(torch.tensor([[0.5, 0.5, 0.25], [0.0, 3.0, 1.0]]), torch.tensor([0, 1])).tolist()
    [[1.5, 0.5, 0.25], [0.0, 3.0, 1.0]]
    """
    place = chosen.unsqueeze(-1)
    others = clocks.scatter(-1, place, -math.inf).amax(dim=-1, keepdim=True)
    return clocks.scatter(-1, place, torch.maximum(clocks.gather(-1, place), others + 1))


def sharp_softmax(values: Tensor, sharpness: Tensor) -> Tensor:
    """softmax(sharpness * values) over the last axis. With infinite sharpness it is one-hot, at the first maximum.

    >>> sharp_softmax(torch.tensor([0.0, 1.0, 0.5, 1.0]), torch.tensor(torch.inf))
    tensor([0., 1., 0., 0.])
    """
    below = values - values.detach().amax(dim=-1, keepdim=True)
    # 0 times infinity is NaN, but 0 times the largest finite number is 0
    soft = (below * sharpness.clamp(max=torch.finfo(values.dtype).max)).softmax(dim=-1)
    hard = functional.one_hot(values.argmax(dim=-1), values.shape[-1]).to(soft)
    return torch.where(sharpness == math.inf, hard, soft)


def draw_one_hot(values: Tensor, sharpness: Tensor, noise: Tensor) -> Tensor:
    """One-hot draws (..., C) from softmax(sharpness * values), with the gradient of a softmax.

    If the noise has the standard Gumbel distribution, the position of the maximum of sharpness * values + noise is a
    draw from the softmax. Its gradient is replaced by that of softmax(sharpness * values + noise), which is close to
    the draw where the sharpness is high (the straight-through estimator).

    Args:
        values: (..., C)
        sharpness: ()
        noise: (..., C), for example `-torch.empty_like(values).exponential_().log()`

    >>> draw_one_hot(torch.tensor([0.0, 1.0, 0.5]), torch.tensor(2.0), noise=torch.tensor([0.0, 0.0, 3.0]))
    tensor([0., 0., 1.])
    """
    soft = (values * sharpness + noise).softmax(dim=-1)
    hard = functional.one_hot(soft.argmax(dim=-1), soft.shape[-1]).to(soft)
    # the difference is exactly 0: only its gradient counts
    return hard + (soft - soft.detach())


def list_candidates(periods: int | Sequence[int], phases: bool) -> list[tuple[int, int]]:
    """The candidates as pairs (period, phase), sorted.

    Args:
        periods: the periods, or the longest of 1, 2, 3, ...
        phases: if True, a period P has the phases 0, ..., P - 1; otherwise phase 0 only

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
