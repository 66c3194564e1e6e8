"""Readout: a linear layer on a Clockwork RNN's output, computed at tick rate.

What a linear map makes of a held state is the hold of what it makes of the state:

    W_out h(t) = sum over j of W_out[:, j] h_j(t),    and h_j(t) changes only when module j ticks

So each module's part is multiplied once per tick, 2 K multiply-adds per output and step for equal modules of
periods 1, 2, 4, ... instead of N, and the (T, B, N) output is never built, nor kept for backward.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .held import Ticks


class Readout(nn.Linear):
    """`torch.nn.Linear` that also takes the `Ticks` of a layer in place of its output.

    Its parameters are Linear's: a trained Linear's state_dict loads as it is.

    Examples:
        >>> import torch
        >>> from cwrnn import ClockworkRNN
        >>> rnn, readout = ClockworkRNN(3, 16, schedule=4), Readout(16, 2)
        >>> x = torch.randn(50, 8, 3)
        >>> ticks, h_n = rnn.ticks(x)
        >>> y = readout(ticks)
        >>> y.shape
        torch.Size([50, 8, 2])
        >>> output, h_n = rnn(x)
        >>> torch.allclose(y, readout(output), atol=1e-6)
        True
    """

    def forward(self, input: Tensor | Ticks) -> Tensor | PackedSequence:  # type: ignore[override]
        """The readout at every time step, in the guise of the sequence that went into the layer."""
        if isinstance(input, Ticks):
            return input.linear(self.weight, self.bias)
        if not isinstance(input, Tensor):
            raise TypeError(
                f"Readout takes a Tensor, or the Ticks of (ticks, h_n) = rnn.ticks(...), got: {type(input).__name__}"
            )
        return super().forward(input)
