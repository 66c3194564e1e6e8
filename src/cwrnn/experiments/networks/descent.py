"""Gradient descent as all trainings do it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

SECONDS_BETWEEN_REPORTS = 0.1
"""The shortest time between two progress reports of a training."""


def descend(values: Tensor, gradient: Tensor, velocity: Tensor, learning_rate: float, momentum: float) -> None:
    """Updates `values` and `velocity` in place as `torch.optim.SGD(nesterov=True)` does. Overwrites `gradient`.

    torch multiplies and adds in one operation. It does not promise to round the numbers at the end of a tensor, which
    fill no vector, like the others, and which numbers these are depends on how many networks train together. Two
    separate operations round all numbers alike.
    """
    velocity.mul_(momentum).add_(gradient)
    gradient.add_(velocity * momentum)
    values.sub_(gradient.mul_(learning_rate))


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Limits torch to one thread: networks of this size train slower on two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
