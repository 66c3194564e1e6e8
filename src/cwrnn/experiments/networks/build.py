"""Models: the three networks that the paper compares, with one hidden layer and a linear or softmax readout each.

    srn    simple recurrent network (Elman): a Clockwork RNN with one module of period 1
    lstm   Long Short-Term Memory, with peephole connections unless they are refused
    cw     Clockwork RNN; periods 1, 2, 4, ...

Every parameter begins as a draw from normal(0, 0.1), but for the bias of LSTM's forget gates, which begins as 5.
"""

import torch
from torch import nn

from ... import init
from ...layer import ClockworkRNN
from ...network import Network
from ...schedule import Schedule
from .lstm import LSTM

METHODS = ("srn", "lstm", "cw")

SIZES = (100, 250, 500, 1000)
"""Parameters of the networks of task 1, table 1 of the paper."""

MODULES = 9
"""Of the Clockwork RNNs of task 1."""

HIDDEN = {
    "srn": {100: 9, 250: 15, 500: 22, 1000: 31},
    "lstm": {100: 4, 250: 7, 500: 10, 1000: 15},
    "cw": {100: 11, 250: 19, 500: 27, 1000: 40},
}
"""The hidden units, or cells, of those sizes: table 1."""

WORD_SIZES = (500, 1000, 2500, 5000, 10000)
"""Parameters of the networks of task 2, table 2, which read 13 features and tell 25 words apart."""

WORD_MODULES = 7
"""Of the Clockwork RNNs of task 2."""

WORD_HIDDEN = {
    "srn": {500: 10, 1000: 18, 2500: 34, 5000: 54, 10000: 84},
    "lstm": {500: 5, 1000: 8, 2500: 17, 5000: 26, 10000: 41},
    "cw": {500: 10, 1000: 19, 2500: 40, 5000: 65, 10000: 102},
}
"""The hidden units, or cells, of those sizes: table 2."""


def build(
    method: str,
    hidden_size: int,
    input_size: int = 0,
    output_size: int = 1,
    *,
    softmax: bool = False,
    modules: int = MODULES,
    schedule: str | None = None,
    peepholes: bool = True,
    forget_bias: float = 5.0,
    deviation: float = 0.1,
    seed: int = 0,
) -> Network:
    """A network with its initial weights, the same for the same seed.

    Args:
        method: "srn", "lstm" or "cw"
        hidden_size: hidden units, or cells of an LSTM
        input_size: features of the input, 0 if there is none
        output_size: outputs
        softmax: whether they are the logarithms of a softmax, as `torch.nn.NLLLoss` takes them, or linear
        modules: modules of a Clockwork RNN, with periods 1, 2, 4, ...; the others have none
        schedule: the modules of a Clockwork RNN, as `Schedule.parse` reads them, in place of those
        peepholes: whether an LSTM's gates see its cells
        forget_bias: initial bias of an LSTM's forget gates
        deviation: standard deviation of the initial weights
        seed: of the initial weights

    >>> build("cw", 40)(torch.zeros(320, 1, 0)).shape
    torch.Size([320, 1, 1])
    """
    _check_method(method)
    layer: ClockworkRNN | LSTM
    if method == "lstm":
        layer = LSTM(input_size, hidden_size, peepholes=peepholes)
    else:
        layer = ClockworkRNN(input_size, hidden_size, schedule=_schedule(method, hidden_size, modules, schedule))
    network = Network(layer, output_size, softmax=softmax)
    init.paper_(network, deviation, generator=torch.Generator().manual_seed(seed))
    if isinstance(layer, LSTM):
        nn.init.constant_(layer.bias[hidden_size : 2 * hidden_size], forget_bias)
    return network


def hidden_for(
    method: str,
    size: int,
    *,
    input_size: int = 0,
    output_size: int = 1,
    modules: int = MODULES,
    peepholes: bool = True,
) -> int:
    """The hidden units of a network of `size` parameters.

    What the paper's tables 1 and 2 say if it is one of its networks, which may be a few parameters larger; otherwise
    as many units as there can be with at most `size` parameters.

    >>> [hidden_for("srn", 1000), hidden_for("lstm", 1000), hidden_for("cw", 1000)]
    [31, 15, 40]
    >>> hidden_for("cw", 979)
    39
    """
    _check_method(method)
    for shape, usual, hidden in (((0, 1), MODULES, HIDDEN), ((13, 25), WORD_MODULES, WORD_HIDDEN)):
        if (input_size, output_size) == shape and (method != "cw" or modules == usual) and size in hidden[method]:
            return hidden[method][size]

    def count(hidden_size: int) -> int:
        return parameter_count(method, hidden_size, input_size, output_size, modules=modules, peepholes=peepholes)

    # a module needs a unit
    fewest = modules if method == "cw" else 1
    if size < count(fewest):
        network = {
            "srn": "an SRN",
            "lstm": f"an LSTM with{'' if peepholes else 'out'} peepholes",
            "cw": f"a CW-RNN of {modules} module{'s' if modules > 1 else ''}",
        }[method]
        raise ValueError(f"size must be at least {count(fewest)} parameters for {network}, got {size}")
    enough, too_many = fewest, 2 * fewest
    while count(too_many) <= size:
        enough, too_many = too_many, 2 * too_many
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if count(middle) <= size:
            enough = middle
        else:
            too_many = middle
    return enough


def parameter_count(
    method: str,
    hidden_size: int,
    input_size: int = 0,
    output_size: int = 1,
    *,
    modules: int = MODULES,
    schedule: str | None = None,
    peepholes: bool = True,
) -> int:
    """The parameters of such a network, as the paper counts them: the periods of a Clockwork RNN are included.

    >>> [parameter_count("cw", 40), parameter_count("srn", 31), parameter_count("lstm", 15, peepholes=False)]
    [980, 1024, 976]
    """
    _check_method(method)
    if method == "cw":
        return _schedule(method, hidden_size, modules, schedule).parameter_count(input_size, output_size)
    # one bias per unit
    layer = hidden_size * (input_size + hidden_size + 1)
    if method == "lstm":
        # an input and three gates, each a layer of its own; every gate sees the cell
        layer = 4 * layer + 3 * hidden_size * peepholes
    return layer + output_size * (hidden_size + 1)


def _schedule(method: str, hidden_size: int, modules: int, spec: str | None) -> Schedule:
    if method == "srn" or spec is None:
        return Schedule.exponential(hidden_size, modules if method == "cw" else 1)
    schedule = Schedule.parse(spec)
    if schedule.hidden_size != hidden_size:
        raise ValueError(f"the schedule {spec} has {schedule.hidden_size} units, not {hidden_size}")
    return schedule


def _check_method(method: str) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
