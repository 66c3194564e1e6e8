"""A small task for training loops: repeat the input of three steps before."""

import torch
from torch import Tensor, nn

from cwrnn import ClockworkRNN
from cwrnn.network import Network

DELAY, T, I = 3, 24, 2


def make_examples(count: int) -> tuple[Tensor, Tensor]:
    """Return inputs and targets, both (count, T, I)."""
    x = torch.randn(count, T, I, generator=torch.Generator().manual_seed(count))
    return x, x.roll(DELAY, dims=1).index_fill(1, torch.arange(DELAY), 0.0)


def make_network(schedule="1:8,2:8", **options) -> Network:
    layer = ClockworkRNN(I, 16, batch_first=True, schedule=schedule, **options)
    return Network(layer, output_size=I)


def mean_squared_error(network: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    x, target = batch
    return (network(x) - target).square().mean()
