"""A network that is inspected: its layer, the data that it is inspected on, and what the page shows of them.

Each task makes its own (`inspected.py` in its folder); `columns.py` makes one of a saved network and a table, and
`model.py` one of a layer inside any model.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from ...inspection import Array, Measure, Respond
from ...inspection.silence import respond_by_readout
from ...layer import AnyLayer, ClockworkLayer
from ...network import Network
from ...untrusted import escape_controls
from ..errors import ExperimentError
from ..progress import ProgressCallback

NMSE, ERROR, CROSS_ENTROPY = "nmse", "error", "cross_entropy"
"""The names of the errors of networks: of sequences, and the other two of words."""


class InspectionError(ExperimentError):
    """There is no network that can be inspected. The message says why, and what to do."""


@dataclass(frozen=True)
class InspectionOptions:
    """What a user asks for beside the network; None for nothing."""

    data: str | None = None
    """Other data than those that the network was trained on: a source of words, or a table."""
    word: str | None = None
    """The word that the figures show."""
    inputs: Sequence[str] | None = None
    """The columns of a table that the network reads."""
    target: str | None = None
    """The column of a table that the network's output is compared with."""
    length: int | None = None
    """The rows of a table in each sequence."""
    progress: ProgressCallback | None = None

    def refuse(self, names: Sequence[str], reason: str) -> None:
        """Raise an InspectionError if one of these options is given: "NAME REASON"."""
        for name in names:
            if getattr(self, name) is not None:
                raise InspectionError(f"{name} {reason}")


class Display(Protocol):
    """What a page shows about the sequence that its figures show."""

    @property
    def purpose(self) -> str:
        """What the network does, after its name: "that generates wave"."""

    @property
    def caption(self) -> str:
        """What the top panel of the first figure shows, in a sentence."""

    @property
    def scope(self) -> str:
        """The sequences that measurements are averaged over, such as "all test words"; empty if there is only one."""

    @property
    def signal(self) -> NDArray[np.float64] | None:
        """(T,): a signal whose spectrum stands beside those of the modules, if there is one."""

    def draw(self, panel: Any, time: NDArray[Any], input: NDArray[Any], output: Array | None) -> None:
        """Draw the top panel: the input (T, I) and the output (T, O) of the readout, if there is one."""


@dataclass(frozen=True, eq=False)
class InspectedNetwork:
    """A trained network, and the data to inspect it with."""

    task: str
    """The name of its task; empty for a model of a user."""
    name: str
    """The kind of network, for people to read, such as "CW-RNN"."""
    layer: AnyLayer
    readout: nn.Linear | None
    """The linear layer that alone reads its hidden units; None if something else does."""
    inputs: Sequence[NDArray[Any]]
    """The input sequences, each (T, I)."""
    measure: Measure | None
    """Computes the errors of the outputs of the readout; None if `recorded` is given."""
    shown: int
    """The number of the input sequence that the figures show."""
    display: Display
    facts: Mapping[str, str]
    """Where the network and the data come from, for people to read."""
    step: str = ""
    """The duration of a time step as an axis names it, such as " (of 10 ms)"."""
    recorded: Respond | None = None
    """Returns the errors of the model that the layer is part of; None if the readout makes the outputs."""

    @cached_property
    def respond(self) -> Respond:
        """Returns the errors of the network with a module silenced."""
        if self.recorded is not None:
            return self.recorded
        assert self.readout is not None
        assert self.measure is not None
        return respond_by_readout(self.layer, self.readout, self.inputs, self.measure)

    @property
    def description(self) -> str:
        """The network in one line, such as "CW-RNN of 40 units that generates wave"."""
        return f"{self.name} of {self.layer.hidden_size} units {self.display.purpose}"


def get_layer(network: Network) -> AnyLayer:
    """Return the hidden layer of a network with clocks."""
    assert isinstance(network.layer, ClockworkLayer)
    return network.layer


def check_finite(arrays: Sequence[NDArray[Any]], name: str) -> None:
    """Refuse numbers that overflow: nothing could be said about such a network."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise InspectionError(f"{name} are not finite: the numbers in its file are too large")


@contextmanager
def explain_weights(where: str) -> Iterator[None]:
    """Turn the error of weights that do not fit their network into an InspectionError."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        raise InspectionError(f"{escape_controls(where)} do not fit its network") from error
