"""History compression: a slow network that sees only what a fast one did not expect (Schmidhuber 1992).

    h(t)   = tanh( W x(t) + U h(t-1) + b )                       automatizer, at every step
    p(t)   = V h(t-1) + c                                        its prediction of x(t)
    e(t)   = mean over features of ( p(t) - x(t) )^2
    k(t)   = tanh( W' x(t) + Q h(t) + U' k(t-1) + b' )           chunker, at t = 0 and where the prediction fails:
                                                                 e(t) > threshold * mean of e(0), ..., e(t-1)
    k(t)   = k(t-1)                                              chunker, at all other steps

States before the first step are zero. The automatizer is trained to predict: the mean of e over all steps and sequences
is added to the loss. The readout reads h and k. A prediction fails by comparison with the earlier ones of the same
sequence, so the rule needs no scale and no later step. The choice of steps has no gradient.

A module of the Clockwork RNN ticks at fixed steps; the chunker ticks at unexpected ones. It is computed on the
compressed sequence of its ticks. Without an input there is nothing to predict: the chunker then ticks at the first step
only, and its recurrent weights U' have no effect. Two parts of the paper's system are left out: the chunker gets no
representation of the time step, and the automatizer is not trained to imitate the chunker.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .model_layer import ModelLayer, attach_loss
from .unclocked import UnclockedLayer


class HistoryCompressor(ModelLayer):
    """An automatizer and a chunker of `units` tanh units each; the states are those of both, in this order.

    Args:
        input_size: I, which may be 0
        units: the units of each of the two levels
        threshold: a prediction fails if its error is more than this many times the mean of the earlier errors of the
            sequence. Default: 1.5, so that errors of equal size are no failures
        prediction_weight: the weight of the prediction error in the loss. Default: 1

    >>> HistoryCompressor(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 32])
    """

    def __init__(self, input_size: int, units: int, *, threshold: float = 1.5, prediction_weight: float = 1.0) -> None:
        super().__init__()
        for name, value in (("threshold", threshold), ("prediction_weight", prediction_weight)):
            if not value >= 0:
                raise ValueError(f"{name} must be at least 0, got {value}")
        self.hidden_size = self.count_states(units)
        self.threshold = threshold
        self.prediction_weight = prediction_weight
        self.automatizer = UnclockedLayer("tanh", input_size, units)
        self.chunker = UnclockedLayer("tanh", input_size + units, units)
        bound = 1.0 / math.sqrt(units)
        self.weight_prediction = nn.Parameter(torch.empty(input_size, units).uniform_(-bound, bound))
        self.bias_prediction = nn.Parameter(torch.empty(input_size).uniform_(-bound, bound))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """Both levels and the prediction."""
        automatizer = UnclockedLayer.count_parameters("tanh", input_size, units)
        chunker = UnclockedLayer.count_parameters("tanh", input_size + units, units)
        return automatizer + chunker + input_size * (units + 1)

    @staticmethod
    def count_states(units: int) -> int:
        """The states of both levels."""
        return 2 * units

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """An upper bound: every weight once, as if the chunker ticked at every step.

        `measure_ticks` says how often it ticks.
        """
        automatizer = UnclockedLayer.count_multiply_adds("tanh", input_size, units)
        chunker = UnclockedLayer.count_multiply_adds("tanh", input_size + units, units)
        return automatizer + chunker + input_size * units

    @torch.no_grad()
    def measure_ticks(self, input: Tensor) -> float:
        """The share of steps of the input (T, B, I) at which the chunker ticks; 0 if there are no steps.

        >>> HistoryCompressor(0, 16).measure_ticks(torch.zeros(10, 2, 0))
        0.1
        """
        ticks = self._find_ticks(self._compute_errors(input, self.automatizer(input)))
        return ticks.sum().item() / max(ticks.numel(), 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, 2 units): those of the automatizer, then those of the chunker."""
        lower = self.automatizer(input)
        errors = self._compute_errors(input, lower)
        ticks = self._find_ticks(errors.detach())
        # the steps with ticks come first, in their order; nothing reads the chunker's states after them
        order = torch.argsort(ticks.logical_not().long(), dim=0, stable=True)
        compressed = self.chunker(_select_steps(torch.cat((input, lower), dim=-1), order))
        # at each step, the state of the last tick
        upper = _select_steps(compressed, ticks.cumsum(0) - 1)
        loss = self.prediction_weight * errors.sum() / max(errors.numel(), 1)
        return attach_loss(torch.cat((lower, upper), dim=-1), loss)

    def _compute_errors(self, input: Tensor, lower: Tensor) -> Tensor:
        """The errors e (T, B) of the predictions, from the states (T, B, units) of the automatizer."""
        before = F.pad(lower, (0, 0, 0, 0, 1, 0))[:-1]
        predicted = before @ self.weight_prediction.T + self.bias_prediction
        return (predicted - input).square().sum(-1) / max(input.shape[2], 1)

    def _find_ticks(self, errors: Tensor) -> Tensor:
        """Whether the chunker ticks, (T, B): at the first step, and where the error is more than the threshold."""
        step = torch.arange(len(errors), device=errors.device)[:, None]
        mean = (errors.cumsum(0) - errors) / step.clamp(min=1)
        return (errors > self.threshold * mean) | (step == 0)


def _select_steps(sequences: Tensor, steps: Tensor) -> Tensor:
    """The values (T, B, F) of `sequences` (T, B, F) at the steps of each sequence, `steps` (T, B)."""
    return sequences.gather(0, steps[:, :, None].expand(-1, -1, sequences.shape[2]))
