"""Readout: a linear layer on the output of a layer with clocks, computed at tick rate.

The output of a linear map changes only when its input does:

    W_out h(t) = sum over j of W_out[:, j] h_j(t),    and h_j(t) changes only when module j ticks

Each module's part is therefore multiplied once per tick and then held. For equal modules of K units and periods
1, 2, 4, ... that takes 2 K multiply-adds per output and step instead of N. The held output (T, B, N) is never built,
nor kept for backward.
"""

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from .held import Ticks


class Readout(nn.Linear):
    """A `torch.nn.Linear` that also takes the `Ticks` of a layer in place of its output, and is then faster.

    The parameters are those of `torch.nn.Linear`, so the state_dict of a trained one can be loaded.

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
        """The readout at every time step, in the form of the layer's input: batched or not, or packed.

        Args:
            input: the Ticks that the method `ticks` of a layer returns, or a tensor (..., N)
        """
        if isinstance(input, Ticks):
            return input.linear(self.weight, self.bias)
        if not isinstance(input, Tensor):
            raise TypeError(
                f"Readout takes a Tensor, or the Ticks of (ticks, h_n) = rnn.ticks(...), got: {type(input).__name__}"
            )
        return super().forward(input)
