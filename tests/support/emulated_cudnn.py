"""cuDNN's recurrent layers and torch's fused GRU cell on the CPU: `install` gives their operators an implementation.

The layers compute with torch's own layers, and are as strict as cuDNN: they take the weights from the packed vector
alone, want contiguous states, and overwrite what the forward pass left for the gradients. The cell computes in float32
what has half precision, as on a GPU.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

FUNCTIONS = torch._VF.rnn_relu, torch._VF.rnn_tanh, torch._VF.lstm, torch._VF.gru
GATES = 1, 1, 4, 3
LSTM = 2
DTYPES = torch.float32, torch.float64, torch.bfloat16, torch.float16
KEPT = 77
"""What the forward pass leaves for the gradients."""


def compute(input, packed, hx, cx, mode, size):
    """The output, h, c (or None), and the weights that they were computed with."""
    I, rows = input.shape[-1], GATES[mode] * size
    assert packed.shape == (rows * (I + size + 2),)
    shapes = (rows, I), (rows, size), (rows,), (rows,)
    parts = packed.split([torch.Size(shape).numel() for shape in shapes])
    weights = [part.view(shape).detach().requires_grad_() for part, shape in zip(parts, shapes, strict=True)]
    state = hx if cx is None else (hx, cx)
    output, *ends = FUNCTIONS[mode](input, state, weights, True, 1, 0.0, True, False, False)
    return output, ends[0], ends[1] if mode == LSTM else None, weights


def check(input, packed, hx, cx, mode, layers, batch_first, dropout, bidirectional, batch_sizes, dropout_state):
    assert input.dim() == 3
    assert input.numel() > 0
    assert packed is not None, "torch would warn about weights that are not contiguous"
    assert packed.is_contiguous()
    assert hx.is_contiguous()
    assert (cx is None) == (mode != LSTM)
    assert cx is None or cx.is_contiguous()
    assert (layers, batch_first, dropout, bidirectional) == (1, False, 0, False)
    assert len(batch_sizes) == 0
    assert dropout_state is None


def run_forward(
    input, weight, stride, packed, hx, cx, mode, size, projections, layers, batch_first, dropout, train, bidirectional,
    batch_sizes, dropout_state,
):  # fmt: skip
    check(input, packed, hx, cx, mode, layers, batch_first, dropout, bidirectional, batch_sizes, dropout_state)
    assert (stride, len(weight), projections) == (4, 4, 0)
    with torch.no_grad():
        output, h, c, _ = compute(input, packed, hx, cx, mode, size)
    reserve = torch.full((input.shape[0],), KEPT, dtype=torch.uint8) if train else torch.empty(0, dtype=torch.uint8)
    return output.contiguous(), h.contiguous(), input.new_empty(0) if c is None else c.contiguous(), reserve, packed


def run_backward(
    input, weight, stride, packed, hx, cx, output, g_output, g_h, g_c, mode, size, projections, layers, batch_first,
    dropout, train, bidirectional, batch_sizes, dropout_state, reserve, mask,
):  # fmt: skip
    check(input, packed, hx, cx, mode, layers, batch_first, dropout, bidirectional, batch_sizes, dropout_state)
    assert train, "cudnn RNN backward can only be called in training mode"
    assert output.is_contiguous()
    assert (reserve == KEPT).all(), "what the forward pass left was used already"
    reserve.zero_()
    assert len(mask) == 4
    with torch.enable_grad():
        leaves = [None if value is None else value.detach().requires_grad_() for value in (input, hx, cx)]
        *outputs, weights = compute(leaves[0], packed, *leaves[1:], mode, size)
        pairs = [
            (value, gradient)
            for value, gradient in zip(outputs, (g_output, g_h, g_c), strict=True)
            if value is not None and gradient is not None
        ]
        wanted = [leaf for leaf in leaves if leaf is not None] + weights
        values, gradients = zip(*pairs, strict=True)
        found = torch.autograd.grad(values, wanted, gradients)
    to_weights = found[-4:] if mask[3] else []
    to_c = found[2] if cx is not None else torch.full_like(hx, torch.nan)
    # gradients are views of one vector
    joined = torch.cat([gradient.flatten() for gradient in to_weights]) if to_weights else None
    parts = joined.split([own.numel() for own in weight]) if to_weights else []
    return found[0], found[1], to_c, [part.view(own.shape) for part, own in zip(parts, weight, strict=False)]


def run_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    """The state after a tick of a GRU, and what the gradients need: a workspace of 5 numbers for each unit."""
    assert input_gates.shape == hidden_gates.shape == (len(hx), 3 * hx.shape[1])
    assert input_gates.dtype == hidden_gates.dtype == hx.dtype
    assert input_bias is None
    assert hidden_bias is None
    exact = torch.promote_types(hx.dtype, torch.float32)
    before = hx.to(exact)
    (r, z, n), (to_r, to_z, d) = (gates.to(exact).chunk(3, dim=1) for gates in (input_gates, hidden_gates))
    r, z = (r + to_r).sigmoid(), (z + to_z).sigmoid()
    n = (n + r * d).tanh()
    return (n + z * (before - n)).to(hx.dtype), torch.cat((r, z, n, before, d), dim=1).to(hx.dtype)


def run_cell_backward(g_hy, workspace, has_bias):
    """The gradients of both sums and of the state, and two of the biases that nobody may read."""
    assert workspace.shape == (len(g_hy), 5 * g_hy.shape[1])
    assert g_hy.dtype == workspace.dtype
    assert not has_bias
    exact = torch.promote_types(g_hy.dtype, torch.float32)
    g, (r, z, n, before, d) = g_hy.to(exact), workspace.to(exact).chunk(5, dim=1)
    to_n, to_z = g * (1 - z) * (1 - n * n), g * (before - n) * z * (1 - z)
    to_r = to_n * d * r * (1 - r)
    gates = torch.cat((to_r, to_z, to_n), dim=1), torch.cat((to_r, to_z, to_n * r), dim=1)
    nobody = g_hy.new_empty(0), g_hy.new_empty(0)
    return *(gradient.to(g_hy.dtype) for gradient in (*gates, g * z)), *nobody


def _in_a_thread(function):
    """`function` in another thread, because autograd is off in the implementation of an operator."""

    def run(*arguments, **options):
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function, *arguments, **options).result()

    return run


@cache
def install():
    """Gives the operators their implementation for as long as the process lives."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_cudnn_rnn", run_forward, "CPU")
    library.impl("_cudnn_rnn_backward", _in_a_thread(run_backward), "CPU")
    library.impl("_thnn_fused_gru_cell", run_cell, "CPU")
    library.impl("_thnn_fused_gru_cell_backward", run_cell_backward, "CPU")
    return library
