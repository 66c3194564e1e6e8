"""The objective of learned clocks on columns: S networks return the target at every row of a sequence.

loss = 1/2 mean over t of (y(t) - target(t))^2, mean of a batch of sequences     one update per batch
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ..clocks.training import ComputeOutputs, Errors, NetworkBatch
from ..generation.training import nmse
from .columns import Columns, Sequences

BATCH = 8
"""Number of sequences in an update."""


class ColumnObjective:
    """Networks learn the columns, each in an order of its own. The validation part chooses the best."""

    outputs = 1

    def __init__(self, columns: Columns) -> None:
        self.columns, self.inputs = columns, columns.inputs.shape[1]
        train = columns.parts["training"]
        self.train = torch.from_numpy(train.inputs).transpose(0, 1)  # (T, n, I)
        self.targets = torch.from_numpy(train.targets.astype(np.float32)).T  # (T, n)
        self.updates = math.ceil(self.train.shape[1] / BATCH)
        self.example = self.train[:, :BATCH]

    def losses(self, networks: NetworkBatch) -> Iterator[Tensor]:
        """Yield the losses (S,) of every batch; each network goes through all sequences in an order of its own."""
        count = self.train.shape[1]
        orders = torch.from_numpy(np.stack([generator.permutation(count) for generator in networks.generators]))
        for order in orders.split(BATCH, dim=1):  # (S, B)
            states = networks.states(self.train[:, order])  # (T, S, draws * B, N)
            outputs = networks.read(states)[..., 0]
            targets = self.targets[:, order].repeat(1, 1, outputs.shape[2] // order.shape[1])
            yield 0.5 * (outputs - targets).square().mean((0, 2))

    def measure_errors(self, network: int, compute: ComputeOutputs) -> Errors:
        """Return the NMSE of the validation part, which chooses, and of the test part."""

        def measure(part: Sequences) -> float:
            return nmse(compute(torch.from_numpy(part.inputs).transpose(0, 1))[..., 0].T.numpy(), part.targets)

        return Errors(measure(self.columns.parts["validation"]), measure(self.columns.parts["test"]))

    def name_data(self, network: int) -> str:
        """Return the name of the columns, which all networks learn."""
        return self.columns.name
