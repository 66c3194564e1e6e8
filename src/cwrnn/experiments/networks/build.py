"""The three networks that the paper compares, each with one hidden layer and a linear or softmax readout.

    srn    simple recurrent network (Elman): a Clockwork RNN with one module of period 1
    lstm   Long Short-Term Memory, with or without peephole connections
    cw     Clockwork RNN; periods 1, 2, 4, ...

Every parameter is drawn from a normal distribution with mean 0, except the bias of the LSTM's forget gates.
"""

import torch
from torch import nn

from ... import init
from ...layer import ClockworkRNN
from ...network import Network
from ...schedule import Schedule
from .. import paper
from .lstm import LSTM

METHODS = ("srn", "lstm", "cw")
"""The networks, in the order of the paper."""

PAPER_TABLES = (
    (
        (paper.GENERATION_INPUTS, paper.GENERATION_OUTPUTS),
        paper.GENERATION_MODULES,
        paper.GENERATION_HIDDEN_UNITS,
    ),
    ((paper.WORDS_INPUTS, paper.WORDS_OUTPUTS), paper.WORDS_MODULES, paper.WORDS_HIDDEN_UNITS),
)
"""Tables 1 and 2 of the paper: (inputs, outputs), modules of the CW-RNN, hidden units by method and size."""


def build_network(
    method: str,
    hidden_size: int,
    input_size: int = 0,
    output_size: int = 1,
    *,
    softmax: bool = False,
    modules: int = paper.GENERATION_MODULES,
    schedule: str | None = None,
    peepholes: bool = True,
    forget_bias: float = paper.LSTM_FORGET_BIAS,
    deviation: float = paper.WEIGHT_DEVIATION,
    seed: int = 0,
) -> Network:
    """A network with initial weights that are the same for the same seed.

    Args:
        method: "srn", "lstm" or "cw"
        hidden_size: hidden units, or cells of an LSTM
        input_size: features of the input, 0 if there is none
        output_size: outputs
        softmax: whether they are the logarithms of a softmax, as `torch.nn.NLLLoss` takes them, or linear
        modules: modules of a Clockwork RNN, with periods 1, 2, 4, ...; the other networks ignore it
        schedule: the modules of a Clockwork RNN as `Schedule.parse` reads them; overrides `modules`
        peepholes: whether an LSTM has peephole connections, from its cells to its gates
        forget_bias: initial bias of an LSTM's forget gates
        deviation: standard deviation of the initial weights
        seed: the seed of the initial weights

    >>> build_network("cw", 40)(torch.zeros(320, 1, 0)).shape
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
    modules: int = paper.GENERATION_MODULES,
    peepholes: bool = True,
) -> int:
    """The hidden units of a network of `size` parameters.

    For a network of the paper it is the number in table 1 or 2, which may mean a few parameters more than `size`. For
    any other network it is the largest number that needs at most `size` parameters.

    >>> [hidden_for("srn", 1000), hidden_for("lstm", 1000), hidden_for("cw", 1000)]
    [31, 15, 40]
    >>> hidden_for("cw", 979)
    39
    """
    _check_method(method)
    for shape, paper_modules, hidden in PAPER_TABLES:
        is_paper_shape = (input_size, output_size) == shape and (method != "cw" or modules == paper_modules)
        if is_paper_shape and size in hidden[method]:
            return hidden[method][size]

    def count(hidden_size: int) -> int:
        return parameter_count(method, hidden_size, input_size, output_size, modules=modules, peepholes=peepholes)

    # every module needs a unit
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
    modules: int = paper.GENERATION_MODULES,
    schedule: str | None = None,
    peepholes: bool = True,
) -> int:
    """The parameters of a network, as the paper counts them: the periods of a Clockwork RNN are included.

    >>> [parameter_count("cw", 40), parameter_count("srn", 31), parameter_count("lstm", 15, peepholes=False)]
    [980, 1024, 976]
    """
    _check_method(method)
    if method == "cw":
        return _schedule(method, hidden_size, modules, schedule).parameter_count(input_size, output_size)
    # one bias per unit
    layer = hidden_size * (input_size + hidden_size + 1)
    if method == "lstm":
        # the cell input and three gates are a layer each; a peephole leads to every gate
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
