"""One time step of a Clockwork RNN: only the modules that are due are touched."""

import torch
import torch.nn.functional as F
from torch import Tensor

from .reference import NONLINEARITIES
from .schedule import Schedule


def clockwork_step(
    input: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    h: Tensor,
    schedule: Schedule,
    t: int,
    nonlinearity: str,
    said: None = None,
) -> tuple[Tensor, Tensor, None]:
    """The hidden state (B, N) after time t, from the input (B, I) at t and the hidden state `h` (B, N) at t - 1.

    It is returned twice, to show and to go on with, so that whoever changes the one does not change the other. A
    backend may keep what was said at one step for the next; here nothing is kept.
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
