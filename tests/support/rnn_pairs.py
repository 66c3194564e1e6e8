"""Pairs of torch.nn.RNN and ClockworkRNN that must give the same results."""

from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from cwrnn import ClockworkRNN

LAYERS = {"RNN": nn.RNN, "ClockworkRNN": partial(ClockworkRNN, schedule=1)}
FORMS = ["batched", "batch_first", "unbatched", "packed", "unsorted"]
# one module, as in torch.nn.RNN; nested periods; periods without common divisors, none of them 1
PERIODS = [(1,), (1, 2, 4), (2, 3, 7)]
T, B, I, N = 7, 4, 3, 5
LENGTHS = {"packed": (7, 7, 4, 1), "unsorted": (4, 7, 1, 7)}


def make_pair(*sizes, **options):
    """Make a torch.nn.RNN, and a ClockworkRNN with the same weights."""
    options = {"dtype": torch.float64} | options
    rnn = nn.RNN(*(sizes or (I, N)), **options)
    return rnn, ClockworkRNN.from_rnn(rnn)


def randn(*shape, dtype=torch.float64, requires_grad=False):
    return torch.randn(*shape, dtype=dtype, requires_grad=requires_grad)


def arrange_input(form, x):
    """Return `x` (T, B, I) in one of the forms of input that torch.nn.RNN accepts."""
    if form in LENGTHS:
        return pack_padded_sequence(x, torch.tensor(LENGTHS[form]), enforce_sorted=form == "packed")
    return {"batched": x, "batch_first": x.transpose(0, 1), "unbatched": x[:, 0]}[form]


def arrange_state(form, hx):
    return hx[:, 0] if form == "unbatched" and hx is not None else hx


def values(output):
    return output[0] if isinstance(output, PackedSequence) else output


def named_gradients(layer, loss, inputs):
    """Return the gradients by name, without torch's second bias: its gradient always equals that of the first."""
    named = inputs | {
        name.replace("bias_ih", "bias"): p for name, p in layer.named_parameters() if "bias_hh" not in name
    }
    gradients = torch.autograd.grad(loss, list(named.values()), retain_graph=True, materialize_grads=True)
    return dict(zip(named, gradients, strict=True))


def run(layer, x, *arguments, **clock):
    """Call the layer; return output, h_n and a loss in which every number has its own weight."""
    output, h_n = layer(x, *arguments, **clock)
    weights = [torch.linspace(-1, 2, v.numel(), dtype=v.dtype).view_as(v) for v in (values(output), h_n)]
    return output, h_n, (values(output).sin() * weights[0]).mean() + (h_n.cos() * weights[1]).mean()
