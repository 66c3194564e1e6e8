"""What the layers of all models beside the Clockwork RNN share.

A model is one file of this folder with one class. Its head has the equations of its paper, in the letters of
`reference.py`; `build_layer` makes it from a method's name, an input size and a number of units.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn


class ModelLayer(nn.Module, ABC):
    """A hidden layer that maps the input (T, B, I) to states (T, B, hidden_size), from a state of zeros.

    The constructor takes `input_size` (I, which may be 0) and `units`, and draws the initial weights from torch's
    global generator. Everything is differentiable, works in float64, and under `torch.func.vmap` over the parameters.
    """

    is_fixed: ClassVar[bool] = False
    """Whether the layer is not trained: its weights are buffers, and only the readout is fitted."""
    packages: ClassVar[tuple[str, ...]] = ()
    """The modules of the extra `models` that it imports: a missing one is refused before anything is trained."""
    hidden_size: int
    """The number of values per step that a readout reads; not always the number of units."""

    @staticmethod
    @abstractmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The weights of the layer, trained or fixed; it grows with `units`."""

    @staticmethod
    @abstractmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """The multiply-adds of one time step of one sequence, by weights of any shape, without the readout.

        Neither this count nor `count_parameters` and `count_states` builds a layer or imports one of the `packages`.
        """

    @staticmethod
    def count_states(units: int) -> int:
        """The `hidden_size` of a layer with this many units."""
        return units

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, hidden_size) for the input (T, B, I)."""


class _AttachLoss(torch.autograd.Function):
    """Returns its first argument; in the backward pass, the second gets a gradient of 1."""

    generate_vmap_rule = True

    @staticmethod
    def forward(states: Tensor, loss: Tensor) -> Tensor:
        return states.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        (gradient,) = gradients
        return gradient, gradient.new_ones(())


def attach_loss(states: Tensor, loss: Tensor) -> Tensor:
    """The states, unchanged; whatever is minimised, the scalar `loss` is added to it.

    A layer with a loss of its own, such as a prediction of its input, thus needs no training loop of its own.

    >>> weight = torch.tensor(3.0, requires_grad=True)
    >>> attach_loss(torch.ones(2), weight.square()).sum().backward()
    >>> weight.grad
    tensor(6.)
    """
    attached: Tensor = _AttachLoss.apply(states, loss)  # type: ignore[no-untyped-call]
    return attached
