"""The objective of learned clocks on sequences: S networks generate them, and their NMSE is measured.

loss = 1/2 NMSE, where the target has mean 0 and variance 1          one update per epoch
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..clocks.training import ComputeOutputs, Errors, NetworkBatch
from ..sweep.run import Dataset
from .training import nmse


class SequenceObjective:
    """Each network generates one sequence; all sequences have the same length."""

    inputs, outputs, updates = 0, 1, 1

    def __init__(self, data: Sequence[Dataset]) -> None:
        self.data = data
        # normalised, so that the size of the gradients does not depend on how loud a sequence is
        targets = np.stack([(dataset.samples - dataset.samples.mean()) / dataset.samples.std() for dataset in data])
        self.targets = torch.from_numpy(targets).float()  # (S, T)
        self.example = torch.zeros(self.targets.shape[1], 1, 0)

    def losses(self, networks: NetworkBatch) -> Iterator[Tensor]:
        """Yield the losses (S,) of the one update of an epoch."""
        S, T = self.targets.shape
        outputs = networks.read(networks.states(torch.zeros(T, S, 1, 0)))[..., 0]  # (T, S, draws)
        yield 0.5 * (outputs - self.targets.T[:, :, None]).square().mean((0, 2))

    def measure_errors(self, network: int, compute: ComputeOutputs) -> Errors:
        """Return the NMSE against the samples and, for square waves, the NMSE against the waves without noise."""
        data = self.data[network]
        output = data.samples.mean() + data.samples.std() * compute(self.example)[:, 0, 0].numpy()
        train = nmse(output, data.samples)
        return Errors(train, nmse(output, data.clean))

    def name_data(self, network: int) -> str:
        """Return the name of the network's sequence."""
        return self.data[network].target_name


def make_objectives(data: Sequence[Dataset], runs: int, seed: int) -> list[tuple[SequenceObjective, list[int]]]:
    """Return the objectives for the sequences, each with the seeds of its networks.

    Sequences of the same length share an objective and are learned at once.

    Args:
        data: the sequences
        runs: number of networks for each sequence
        seed: seed of the first network; the next networks count from there
    """
    rows = [dataset for dataset in data for _ in range(runs)]
    groups: dict[int, list[int]] = {}
    for row, dataset in enumerate(rows):
        groups.setdefault(len(dataset.samples), []).append(row)
    return [
        (SequenceObjective([rows[row] for row in group]), [seed + row for row in group]) for group in groups.values()
    ]
