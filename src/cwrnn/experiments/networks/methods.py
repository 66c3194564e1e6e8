"""The methods: the kinds of networks that the experiments compare, each described once.

    srn       simple recurrent network (Elman)                             the paper's RNN
    lstm      Long Short-Term Memory, with or without peephole connections
    cw        Clockwork RNN
    gru       gated recurrent unit                                         not in the paper, as the next two
    cw-lstm   LSTM with the clocks of a Clockwork RNN
    cw-gru    GRU with the clocks of a Clockwork RNN

A network without clocks is one with a single module of period 1. The cells of the methods stand in `cwrnn.saved`.
`MODELS` has the models of other papers that stand beside them; each is a file in the folder `models`.
"""

from dataclasses import dataclass

from ...network import LAYERS
from ...saved import METHODS as CELLS_OF_METHODS
from ...saved import has_clocks
from ..errors import ArgumentError


@dataclass(frozen=True)
class Method:
    """A kind of network."""

    name: str
    """The name in stores, in commands and in Python."""
    label: str
    """The name for people to read."""
    article: str
    """The article before the label, "a" or "an"."""
    colour: str
    """The colour in figures and on pages."""
    marker: str
    """The marker in figures, for prints in grey."""
    model: str = ""
    """For a model of another paper: the module below `models` and its class, with a dot between them."""
    source: str = ""
    """For a model of another paper: its authors and year."""
    is_fixed: bool = False
    """Whether the hidden layer is not trained, and the readout is fitted by least squares."""

    @property
    def cell(self) -> str:
        """The cell of its units, a key of `cwrnn.cells.CELLS`; empty for a model of another paper."""
        return "" if self.model else CELLS_OF_METHODS[self.name][0]

    @property
    def has_clocks(self) -> bool:
        """Whether its modules have periods; without clocks it has one module of period 1."""
        return has_clocks(self.name)

    @property
    def plural(self) -> str:
        """The name of several such networks, with clocks in words.

        >>> METHODS["cw"].plural, METHODS["lstm"].plural
        ('Clockwork RNNs', 'LSTMs')
        """
        if not self.has_clocks:
            return f"{self.label}s"
        return "Clockwork RNNs" if self.cell == "tanh" else f"{self.cell.upper()}s with clocks"

    @property
    def layer(self) -> str:
        """The name of the class of its hidden layer in `cwrnn`."""
        return self.model.rpartition(".")[2] if self.model else LAYERS[self.cell].__name__

    @property
    def foreign_settings(self) -> frozenset[str]:
        """The names of the training settings that do not concern this method.

        The models of other papers draw the initial weights of their hidden layers by a rule of their own, stated in
        their files.
        """
        if self.model:
            drawn = frozenset({"modules", "peepholes", "forget_bias", "deviation"})
            return drawn | {"learning_rate", "epochs", "momentum", "noise", "patience"} if self.is_fixed else drawn
        clocks = frozenset() if self.has_clocks else frozenset({"modules"})
        return clocks if self.cell == "lstm" else clocks | {"peepholes", "forget_bias"}


# the hues of Okabe and Ito for the paper's methods, and three that colour-blind readers can distinguish from them and
# from each other; all are dark enough for text on white (WCAG AA)
METHODS = {
    method.name: method
    for method in (
        Method("srn", "SRN", "an", "#b84f00", "s"),
        Method("lstm", "LSTM", "an", "#0068a3", "^"),
        Method("cw", "CW-RNN", "a", "#00755a", "o"),
        Method("gru", "GRU", "a", "#8c10c8", "v"),
        Method("cw-lstm", "CW-LSTM", "a", "#1a1a66", "D"),
        Method("cw-gru", "CW-GRU", "a", "#6e0010", "P"),
    )
}
"""The methods by name: those of the paper in its order, then the others. Tables and figures have this order."""

MODELS = {
    method.name: method
    for method in (
        Method("leaky", "Leaky RNN", "a", "#7a5c00", "<", "leaky.LeakyRNN", "Mozer 1992, Jaeger et al. 2007"),
        Method("delays", "Delay RNN", "a", "#4d6b00", ">", "delays.HierarchicalDelays", "El Hihi and Bengio 1995"),
        Method("narx", "NARX RNN", "a", "#00696b", "p", "narx.NARXRNN", "Lin et al. 1996"),
        Method("temporal-kernel", "TK-RNN", "a", "#3f4fb5", "h", "temporal_kernel.TemporalKernelRNN",
               "Sutskever and Hinton 2010"),
        Method("multiplicative", "MRNN", "an", "#a1006b", "8", "multiplicative.MultiplicativeRNN",
               "Sutskever et al. 2011"),
        Method("esn", "ESN", "an", "#6b6b6b", "X", "echo_state.EchoStateNetwork", "Jaeger 2001", is_fixed=True),
        Method("compressor", "Compressor", "a", "#7d4a2d", "*", "compressor.HistoryCompressor", "Schmidhuber 1992"),
        Method("stacked-lstm", "Stacked LSTM", "a", "#2d5f8b", "1", "stacked_lstm.StackedLSTM", "Graves 2013"),
        Method("dilated", "Dilated RNN", "a", "#b3261e", "2", "dilated.DilatedRNN", "Chang et al. 2017"),
        Method("skip", "Skip RNN", "a", "#5a3fa0", "3", "skip.SkipRNN", "Campos et al. 2018"),
        Method("cornn", "coRNN", "a", "#006d3c", "4", "cornn.CoupledOscillators", "Rusch and Mishra 2021"),
        Method("lem", "LEM", "an", "#8a3b00", "d", "lem.LongExpressiveMemory", "Rusch et al. 2022"),
        Method("lru", "LRU", "an", "#00607a", "x", "lru.LinearRecurrentUnit", "Orvieto et al. 2023"),
        Method("mingru", "minGRU", "a", "#9a1f4b", "+", "mingru.MinimalGRU", "Feng et al. 2024"),
    )
}  # fmt: skip
"""The models of other papers by name, in the order of their years: the paper's related work, then younger ones."""

ALL_METHODS = {**METHODS, **MODELS}
"""All methods by name, in the order of tables and figures."""

PLACES = {name: place for place, name in enumerate(ALL_METHODS)}
"""The place of each method in that order."""

CLOCKED = tuple(name for name, method in METHODS.items() if method.has_clocks)
"""The methods with clocks, which take a schedule."""


def check_method(argument: str, method: str, known: tuple[str, ...] = tuple(METHODS)) -> str:
    """Returns `method`, or raises an ArgumentError that names the argument if `known` does not have it."""
    if method not in known:
        raise ArgumentError(argument, f"expected one of {', '.join(known)}, got {method!r}")
    return method


def find_method(cell: str, *, has_clocks: bool) -> str:
    """The name of the method with this cell, with clocks or without.

    >>> find_method("tanh", has_clocks=True)
    'cw'
    """
    return next(name for name, method in METHODS.items() if (method.cell, method.has_clocks) == (cell, has_clocks))
