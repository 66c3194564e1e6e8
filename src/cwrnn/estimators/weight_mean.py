"""WeightMean: the mean of a network's weights over its training, which forecasts better than its last weights.

    mean(n) = mean(n - 1) + 2 / (n + 1) * (weights(n) - mean(n - 1))

The n-th update has the weight n in this mean (polynomial-decay averaging; Shamir and Zhang, 2013), so that the first
ones are soon forgotten, and the noise of single batches is averaged away at any learning rate and any time to stop.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor


class WeightMean:
    """The mean of parameters over all updates so far.

    Args:
        parameters: the parameters, which the updates change in place

    >>> weight = torch.zeros(1)
    >>> mean = WeightMean([weight])
    >>> for value in (1.0, 2.0, 3.0):
    ...     _ = weight.fill_(value)
    ...     mean.add()
    >>> with mean.applied():
    ...     round(weight.item(), 4)  # (1 * 1 + 2 * 2 + 3 * 3) / (1 + 2 + 3)
    2.3333
    >>> weight.item()
    3.0
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = [parameter.detach() for parameter in parameters]
        self.mean = [parameter.clone() for parameter in self.parameters]
        self.updates = 0

    def add(self) -> None:
        """Takes the parameters after an update into the mean."""
        self.updates += 1
        torch._foreach_lerp_(self.mean, self.parameters, 2 / (self.updates + 1))

    def apply(self) -> None:
        """Gives the parameters their means."""
        torch._foreach_copy_(self.parameters, self.mean)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within the context, the parameters have their means; afterwards they are as before."""
        before = [parameter.clone() for parameter in self.parameters]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self.parameters, before)
