"""Linear recurrent unit (Orvieto et al. 2023, LRU): a linear, diagonal, complex recurrence between nonlinear maps.

    u_1(t)     = V x(t) + c
    u_(k+1)(t) = u_k(t) + GLU( GELU( y_k(t) ) ),   k = 1, 2;  u_3 is the state that a readout reads

    s(t) = lambda * s(t-1) + exp(gamma) * B n(t),   n(t) = LayerNorm( u(t) )
    y(t) = Re( C s(t) ) + D * n(t),                 lambda = exp( -exp(nu) + i exp(theta) )

GLU(a) = (W a + w) * sigmoid(W' a + w'). s is complex and has as many values as there are units. Each of the two layers
has its own lambda, gamma, B, C, D, W and normalisation, which is over the units, because one over the batch is not
causal. A layer without input is driven by the bias c.

At the start the moduli of lambda lie between 0.9 and 0.999 (uniform in the area of the ring), the phases are uniform in
(0, 2 pi], and exp(gamma) is sqrt(1 - |lambda|^2). Complex weights are kept as pairs of real ones.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, glu, pad

from .model_layer import ModelLayer

LAYERS = 2
"""The recurrent layers, one above the other."""
R_MIN, R_MAX = 0.9, 0.999
"""The moduli of lambda at the start."""
BLOCK = 32
"""The steps of a block; the blocks of a sequence run at the same time."""
WIDE = 2048
"""The values per step, sequences times units, from which a plain loop over all steps is faster. With 64 units, 784
steps forward and backward take 3 ms in blocks and 19 in a loop for one sequence; for 128 sequences 350 and 160."""


class LinearRecurrentUnit(ModelLayer):
    """Two linear recurrent units, each with a gated linear unit and a skip connection.

    >>> LinearRecurrentUnit(3, 16)(torch.zeros(5, 2, 3)).shape
    torch.Size([5, 2, 16])
    """

    def __init__(self, input_size: int, units: int) -> None:
        super().__init__()
        self.hidden_size = units
        # not nn.Linear, which warns about an input of size 0
        bound = 1.0 / math.sqrt(max(input_size, 1))
        self.weight_ih = nn.Parameter(torch.empty(units, input_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(units).uniform_(-bound, bound))
        self.layers = nn.ModuleList(_Layer(units) for _ in range(LAYERS))

    @staticmethod
    def count_parameters(input_size: int, units: int) -> int:
        """The projection with its bias; per layer B and C in pairs, the two maps of the GLU, and eight vectors."""
        return units * (input_size + 1) + LAYERS * units * (6 * units + 8)

    @staticmethod
    def count_multiply_adds(input_size: int, units: int) -> float:
        """Every weight of a matrix once; lambda takes four per unit, D and the layer norm one each."""
        return units * input_size + LAYERS * units * (6 * units + 6)

    def forward(self, input: Tensor) -> Tensor:
        """The sum of the projected input and of both layers' outputs (T, B, units)."""
        u = input @ self.weight_ih.T + self.bias
        for layer in self.layers:
            u = u + layer(u)
        return u


class _Layer(nn.Module):
    """A layer norm, a linear recurrent unit and a gated linear unit."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(units)
        squares = torch.empty(units).uniform_(R_MIN**2, R_MAX**2)
        self.nu = nn.Parameter(torch.log(-0.5 * torch.log(squares)))
        self.theta = nn.Parameter(torch.log(2 * math.pi * (1.0 - torch.rand(units))))
        self.gamma = nn.Parameter(0.5 * torch.log1p(-squares))
        # pairs of real and imaginary parts
        self.B = nn.Parameter(torch.randn(units, 2, units) / math.sqrt(2 * units))
        self.C = nn.Parameter(torch.randn(units, units, 2) / math.sqrt(units))
        self.D = nn.Parameter(torch.randn(units))
        self.glu = nn.Linear(units, 2 * units)

    def forward(self, input: Tensor) -> Tensor:
        n = self.norm(input)
        weight_in = self.gamma.exp()[:, None, None] * self.B
        drive = (n @ weight_in.flatten(0, 1).T).unflatten(-1, (-1, 2))
        s = run_recurrence(torch.view_as_complex(drive), -self.nu.exp(), self.theta.exp())
        # Re(C s) = Re C Re s - Im C Im s
        weight_out = self.C * self.C.new_tensor([1.0, -1.0])
        y = torch.view_as_real(s).flatten(-2) @ weight_out.flatten(1).T + self.D * n
        return glu(self.glu(gelu(y)))


def run_recurrence(drive: Tensor, log_modulus: Tensor, phase: Tensor) -> Tensor:
    """The states s(t) = lambda * s(t-1) + drive(t) of all steps, from a state of zeros.

    The steps are cut into blocks. All blocks run at the same time from states of zeros. Their last states follow the
    same recurrence with lambda^BLOCK, and the states of each block get the share of the last state before it. No power
    of lambda is above 1 if |lambda| <= 1, so nothing overflows.

    Args:
        drive: complex (T, B, N)
        log_modulus: (N,), the real part of log(lambda)
        phase: (N,), the imaginary part of log(lambda)
    """
    T, B, N = drive.shape
    if T == 0:
        return drive
    L = min(T, BLOCK) if B * N < WIDE else T
    K = -(-T // L)
    factor = torch.polar(torch.exp(log_modulus), phase)
    first, *others = pad(drive, (0, 0, 0, 0, 0, K * L - T)).reshape(K, L, B, N).unbind(1)
    states = [first]
    for x in others:
        states.append(torch.addcmul(x, factor, states[-1]))
    blocks = torch.stack(states, 1)
    if K > 1:
        exponents = torch.arange(1, L + 1, device=drive.device)[:, None]
        powers = torch.polar(torch.exp(exponents * log_modulus), exponents * phase)
        ends = run_recurrence(states[-1][:-1], L * log_modulus, L * phase)
        blocks = torch.cat((blocks[:1], torch.addcmul(blocks[1:], powers[:, None], ends[:, None])))
    return blocks.reshape(K * L, B, N)[:T]
