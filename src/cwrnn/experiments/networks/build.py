"""The networks of all methods, each with one hidden layer and a linear or softmax readout.

`methods.py` lists the methods. Every parameter is drawn from a normal distribution with mean 0, except the bias of the
forget gates of an LSTM. The models of other papers draw the weights of their hidden layers by a rule of their own,
stated in their files.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from ... import init
from ...cells import CELLS
from ...layer import AnyLayer
from ...network import LAYERS, Network
from ...schedule import Schedule
from .. import paper
from .methods import ALL_METHODS, Method
from .models.table import build_layer, find_layer_class

PAPER_TABLES = (
    (
        (paper.GENERATION_INPUTS, paper.GENERATION_OUTPUTS),
        paper.GENERATION_MODULES,
        paper.GENERATION_HIDDEN_UNITS,
    ),
    ((paper.WORDS_INPUTS, paper.WORDS_OUTPUTS), paper.WORDS_MODULES, paper.WORDS_HIDDEN_UNITS),
)
"""Tables 1 and 2 of the paper: (inputs, outputs), modules of the CW-RNN, hidden units by method and size."""

DRAWN = (
    "layer.weight_ih_l0",
    "layer.weight_hh_l0",
    "layer.weight_ch_l0",
    "layer.bias_l0",
    "readout.weight",
    "readout.bias",
)
"""The order in which initial weights are drawn. It decides the weights of a seed, which are those of every version."""

FORMER_NAMES = {
    "layer.weight_ih": "layer.weight_ih_l0",
    "layer.weight_hh": "layer.weight_hh_l0",
    "layer.weight_ch": "layer.weight_ch_l0",
    "layer.bias": "layer.bias_l0",
}
"""The names of an LSTM's parameters in stores of version 0.3 and earlier, and their present names."""


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
        method: one of ALL_METHODS
        hidden_size: hidden units, or cells of an LSTM
        input_size: features of the input, 0 if there is none
        output_size: outputs
        softmax: whether they are the logarithms of a softmax, as `torch.nn.NLLLoss` takes them, or linear
        modules: modules of a network with clocks, with periods 1, 2, 4, ...; the other networks ignore it
        schedule: the modules of a network with clocks as `Schedule.parse` reads them; overrides `modules`
        peepholes: whether an LSTM has peephole connections, from its cells to its gates
        forget_bias: initial bias of an LSTM's forget gates
        deviation: standard deviation of the initial weights
        seed: the seed of the initial weights

    >>> build_network("cw", 40)(torch.zeros(320, 1, 0)).shape
    torch.Size([320, 1, 1])
    """
    chosen = _find_method(method)
    if chosen.model:
        beside = Network(build_layer(chosen, input_size, hidden_size, seed=seed), output_size, softmax=softmax)
        init.paper_(beside.readout, deviation, generator=torch.Generator().manual_seed(seed))
        return beside
    modules_of_layer = _schedule(chosen, hidden_size, modules, schedule)
    options = {"peepholes": peepholes} if chosen.cell == "lstm" else {}
    layer: AnyLayer = LAYERS[chosen.cell](input_size, hidden_size, schedule=modules_of_layer, **options)
    network = Network(layer, output_size, softmax=softmax)
    parameters = dict(network.named_parameters())
    in_order = nn.ParameterList([parameters[name] for name in DRAWN if name in parameters])
    init.paper_(in_order, deviation, generator=torch.Generator().manual_seed(seed))
    layer.clear_forbidden_weights()
    if chosen.cell == "lstm":
        init.forget_bias_(layer, forget_bias)
    return network


def load_weights(network: Network, weights: Mapping[str, ArrayLike]) -> Network:
    """The network, with these weights by the names of its parameters.

    Stores of version 0.3 and earlier have other names for the parameters of an LSTM. The weights of a fixed layer are
    those of its buffers.
    """
    parameters = {name: torch.tensor(np.asarray(value)) for name, value in weights.items()}
    own = network.state_dict()
    for former, name in FORMER_NAMES.items():
        if former in parameters and name in own:
            value = parameters.pop(former)
            parameters[name] = value.flatten() if name.endswith("weight_ch_l0") else value
    network.load_state_dict(parameters)
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
    another method in a size of these tables it is the number whose parameters are closest to `size`. For any other
    network it is the largest number that needs at most `size` parameters.

    >>> [hidden_for("srn", 1000), hidden_for("lstm", 1000), hidden_for("cw", 1000)]
    [31, 15, 40]
    >>> hidden_for("cw", 979)
    39
    """
    chosen = _find_method(method)
    closest = False
    for shape, paper_modules, hidden in PAPER_TABLES:
        if (input_size, output_size) != shape:
            continue
        if method not in hidden:
            closest = any(size in sizes for sizes in hidden.values())
        elif size in hidden[method] and (not chosen.has_clocks or modules == paper_modules):
            return hidden[method][size]

    def count(hidden_size: int) -> int:
        return parameter_count(method, hidden_size, input_size, output_size, modules=modules, peepholes=peepholes)

    # every module needs a unit
    fewest = modules if chosen.has_clocks else 1
    if size < count(fewest):
        network = f"{chosen.article} {chosen.label}"
        if chosen.has_clocks:
            network += f" of {modules} module{'s' if modules > 1 else ''}"
        if chosen.cell == "lstm":
            network += f" with{'' if peepholes else 'out'} peepholes"
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
    return too_many if closest and count(too_many) - size < size - count(enough) else enough


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
    """The parameters of a network, as the paper counts them: the periods of a network with clocks are included.

    >>> [parameter_count("cw", 40), parameter_count("srn", 31), parameter_count("lstm", 15, peepholes=False)]
    [980, 1024, 976]
    """
    found = _find_method(method)
    if found.model:
        layer = find_layer_class(found)
        return layer.count_parameters(input_size, hidden_size) + output_size * (layer.count_states(hidden_size) + 1)
    chosen = _schedule(found, hidden_size, modules, schedule)
    return schedule_parameter_count(method, chosen, input_size, output_size, peepholes=peepholes)


def schedule_parameter_count(
    method: str, schedule: Schedule, input_size: int, output_size: int, *, peepholes: bool = True
) -> int:
    """The parameters of a network with the modules of `schedule`, as the paper counts them.

    >>> schedule_parameter_count("cw", Schedule.exponential(40, 9), 0, 1)
    980
    """
    chosen, N = _find_method(method), schedule.hidden_size
    cell = CELLS[chosen.cell]
    layer = cell.gates * (schedule.recurrent_parameter_count() + N * input_size) + cell.biases * N
    if chosen.cell == "lstm" and peepholes:
        # one for the input, the forget and the output gate of every cell
        layer += 3 * N
    return layer + output_size * (N + 1) + (schedule.modules if chosen.has_clocks else 0)


def _schedule(method: Method, hidden_size: int, modules: int, spec: str | None) -> Schedule:
    if not method.has_clocks or spec is None:
        return Schedule.exponential(hidden_size, modules if method.has_clocks else 1)
    schedule = Schedule.parse(spec)
    if schedule.hidden_size != hidden_size:
        raise ValueError(f"the schedule {spec} has {schedule.hidden_size} units, not {hidden_size}")
    return schedule


def _find_method(method: str) -> Method:
    if method not in ALL_METHODS:
        raise ValueError(f"method must be one of {', '.join(ALL_METHODS)}, got {method!r}")
    return ALL_METHODS[method]
