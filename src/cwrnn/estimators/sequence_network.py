"""SequenceNetwork: the network of classifiers and regressors."""

import torch
from torch import Tensor, nn

from ..layer import AnyLayer
from ..readout import Readout


class SequenceNetwork(nn.Module):
    """A layer with clocks, and a readout of its state at the end of each sequence.

    Args:
        layer: a ClockworkRNN, ClockworkLSTM or ClockworkGRU
        output_size: O, the number of outputs
        dropout: the probability of dropout on the state

    >>> from cwrnn import ClockworkGRU
    >>> network = SequenceNetwork(ClockworkGRU(3, 16, schedule=4), output_size=2)
    >>> network(torch.randn(50, 8, 3)).shape
    torch.Size([8, 2])
    """

    def __init__(self, layer: AnyLayer, output_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = nn.Dropout(dropout)
        self.readout = Readout(layer.hidden_size * layer.num_directions, output_size)

    def forward(self, input: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The outputs (B, O) for sequences (T, B, I) with these lengths (B,), or None if they all have T steps."""
        output: Tensor = self.readout(self.dropout(self.read(input, lengths)))
        return output

    def read(self, input: Tensor, lengths: Tensor | None = None) -> Tensor:
        """The state (B, directions * N) of the last layer at the end of each sequence."""
        _, state = self.layer.ticks(input, lengths=lengths)
        hidden = state[0] if isinstance(state, tuple) else state
        # the last layer, in both directions if there are two
        return torch.cat(tuple(hidden[-self.layer.num_directions :]), dim=-1)
