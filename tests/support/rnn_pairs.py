"""torch.nn.RNN and the ClockworkRNN that must do the same, side by side."""

from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from cwrnn import ClockworkRNN

LAYERS = {"RNN": nn.RNN, "ClockworkRNN": partial(ClockworkRNN, schedule=1)}
GUISES = ["batched", "batch_first", "unbatched", "packed", "unsorted"]
# torch.nn.RNN; nested periods; periods with nothing in common, none of them 1
PERIODS = [(1,), (1, 2, 4), (2, 3, 7)]
T, B, I, N = 7, 4, 3, 5
LENGTHS = {"packed": (7, 7, 4, 1), "unsorted": (4, 7, 1, 7)}


def make_pair(*sizes, **options):
    """torch.nn.RNN and the ClockworkRNN that must do the same."""
    options = {"dtype": torch.float64} | options
    rnn = nn.RNN(*(sizes or (I, N)), **options)
    return rnn, ClockworkRNN.from_rnn(rnn)


def randn(*shape, dtype=torch.float64, requires_grad=False):
    return torch.randn(*shape, dtype=dtype, requires_grad=requires_grad)


def dress(guise, x):
    """x (T, B, I) in a guise that torch's RNNs take."""
    if guise in LENGTHS:
        return pack_padded_sequence(x, torch.tensor(LENGTHS[guise]), enforce_sorted=guise == "packed")
    return {"batched": x, "batch_first": x.transpose(0, 1), "unbatched": x[:, 0]}[guise]


def dress_state(guise, hx):
    return hx[:, 0] if guise == "unbatched" and hx is not None else hx


def values(output):
    return output[0] if isinstance(output, PackedSequence) else output


def named_gradients(layer, loss, inputs):
    """Gradients by name. torch's second bias is left out: its gradient is compared with the first's elsewhere."""
    named = inputs | {
        name.replace("bias_ih", "bias"): p for name, p in layer.named_parameters() if "bias_hh" not in name
    }
    gradients = torch.autograd.grad(loss, list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, gradients, strict=True))


def run(layer, x, *arguments, **clock):
    """A call in which every output reaches the loss with a weight of its own: output, h_n, loss."""
    output, h_n = layer(x, *arguments, **clock)
    weights = [torch.linspace(-1, 2, v.numel(), dtype=v.dtype).view_as(v) for v in (values(output), h_n)]
    return output, h_n, (values(output).sin() * weights[0]).mean() + (h_n.cos() * weights[1]).mean()
