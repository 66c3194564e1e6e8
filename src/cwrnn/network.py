"""Network: a hidden layer and its readout at every time step; and the table of the layers."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from .gru import ClockworkGRU
from .lstm import ClockworkLSTM
from .readout import Readout
from .rnn import ClockworkRNN

LAYERS: dict[str, type[Any]] = {"tanh": ClockworkRNN, "relu": ClockworkRNN, "lstm": ClockworkLSTM, "gru": ClockworkGRU}
"""The classes of the hidden layers by their cells. A ClockworkRNN takes its cell as the argument `nonlinearity`."""


class Network(nn.Module):
    """A hidden layer with a linear or softmax readout at every time step.

    Args:
        layer: a module with the attribute `hidden_size` that maps the input (T, B, I) to hidden states (T, B, N), or to
            a tuple that begins with them, as the layers of torch do. If it offers `ticks`, as the
            layers with clocks do, the readout reads those.
        output_size: O, the number of outputs
        softmax: if True, the outputs are the logarithms of a softmax, as `torch.nn.NLLLoss` takes them

    >>> import torch
    >>> from cwrnn import ClockworkRNN
    >>> network = Network(ClockworkRNN(3, 16, schedule=4), output_size=2, softmax=True)
    >>> network(torch.randn(50, 8, 3)).shape
    torch.Size([50, 8, 2])
    >>> Network(nn.GRU(3, 16), output_size=2)(torch.randn(50, 8, 3)).shape
    torch.Size([50, 8, 2])
    """

    def __init__(self, layer: nn.Module, output_size: int, *, softmax: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.readout = Readout(cast(int, layer.hidden_size), output_size)
        self.softmax = softmax

    def forward(self, input: Tensor) -> Tensor:
        """The outputs (T, B, O) for the input (T, B, I)."""
        run: Callable[[Tensor], Any] = getattr(self.layer, "ticks", self.layer)
        hidden = run(input)
        output: Tensor = self.readout(hidden[0] if isinstance(hidden, tuple) else hidden)
        return output.log_softmax(-1) if self.softmax else output
