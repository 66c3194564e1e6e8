"""Pairs of torch's layers and ours that must give the same results: RNN, LSTM and GRU."""

from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from cwrnn import ClockworkGRU, ClockworkLSTM, ClockworkRNN

CLOCKWORK = {"RNN": ClockworkRNN, "LSTM": ClockworkLSTM, "GRU": ClockworkGRU}
TORCHS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}
KINDS = list(CLOCKWORK)
CELLS = ["RNN", "relu", "LSTM", "GRU"]
LAYERS = {name: TORCHS[name] for name in KINDS} | {
    f"Clockwork{name}": partial(CLOCKWORK[name], schedule=1) for name in KINDS
}
MAKERS = {
    "tanh": ClockworkRNN,
    "relu": partial(ClockworkRNN, nonlinearity="relu"),
    "lstm": ClockworkLSTM,
    "peepholes": partial(ClockworkLSTM, peepholes=True),
    "gru": ClockworkGRU,
}
FORMS = ["batched", "batch_first", "unbatched", "packed", "unsorted"]
# one module, as in torch's layers; nested periods; periods without common divisors, none of them 1
PERIODS = [(1,), (1, 2, 4), (2, 3, 7)]
T, B, I, N = 7, 4, 3, 5
LENGTHS = {"packed": (7, 7, 4, 1), "unsorted": (4, 7, 1, 7)}


def make_pair(*sizes, kind="RNN", **options):
    """Make a layer of torch, and our layer with the same weights. The kind "relu" is an RNN."""
    if kind == "relu":
        kind, options = "RNN", {"nonlinearity": "relu"} | options
    layer = TORCHS[kind](*(sizes or (I, N)), **({"dtype": torch.float64} | options))
    return layer, getattr(CLOCKWORK[kind], f"from_{kind.lower()}")(layer)


def randn(*shape, dtype=torch.float64, requires_grad=False):
    return torch.randn(*shape, dtype=dtype, requires_grad=requires_grad)


def arrange_input(form, x):
    """Return `x` (T, B, I) in one of the forms of input that torch's layers accept."""
    if form in LENGTHS:
        return pack_padded_sequence(x, torch.tensor(LENGTHS[form]), enforce_sorted=form == "packed")
    return {"batched": x, "batch_first": x.transpose(0, 1), "unbatched": x[:, 0]}[form]


def arrange_state(form, hx):
    return hx[:, 0] if form == "unbatched" and hx is not None else hx


def is_lstm(layer):
    """Whether `layer` is an LSTM, torch's or ours, or torch.compile of one."""
    return isinstance(getattr(layer, "_orig_mod", layer), (nn.LSTM, ClockworkLSTM))


def as_hidden(layer, h):
    """The tensor `h` in the form in which `layer` takes its state: for an LSTM h and a c that is made from it."""
    return (h, 2 * h.flip(-1)) if h is not None and is_lstm(layer) else h


def join(hidden):
    """A state as one tensor, h and c of an LSTM side by side."""
    return torch.cat(hidden, dim=-1) if isinstance(hidden, tuple) else hidden


def call(layer, x, hx=None, **options):
    """Call the layer from the state that `as_hidden` makes of `hx`; return the output and the joined final state."""
    output, hidden = layer(x, as_hidden(layer, hx), **options)
    return output, join(hidden)


def values(output):
    return output[0] if isinstance(output, PackedSequence) else output


def named_gradients(layer, loss, inputs):
    """Return the gradients by name, those of torch's two biases as the gradient of our one."""
    named = inputs | dict(layer.named_parameters())
    gradients = torch.autograd.grad(loss, list(named.values()), retain_graph=True, materialize_grads=True)
    found = dict(zip(named, gradients, strict=True))
    for name in [name for name in found if name.startswith("bias_hh")]:
        of_hh, of_ih = found.pop(name), found.pop(name.replace("hh", "ih"))
        # the second bias of a GRU's gate n is inside the reset product
        inside = of_hh[2 * layer.hidden_size :] if isinstance(layer, nn.GRU) else of_hh[:0]
        found[name.replace("bias_hh", "bias")] = torch.cat((of_ih, inside))
    return found


def run(layer, x, hx=None, **clock):
    """Call the layer; return output, final state and a loss in which every number has its own weight."""
    output, h_n = call(layer, x, hx, **clock)
    weights = [torch.linspace(-1, 2, v.numel(), dtype=v.dtype).view_as(v) for v in (values(output), h_n)]
    return output, h_n, (values(output).sin() * weights[0]).mean() + (h_n.cos() * weights[1]).mean()
