"""The Clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014) for PyTorch.

>>> import torch, cwrnn
>>> rnn = cwrnn.ClockworkRNN(13, 104, schedule=8)  # 8 modules with periods 1, 2, 4, ..., 128
>>> output, h_n = rnn(torch.randn(200, 4, 13))  # as torch.nn.RNN
>>> output.shape
torch.Size([200, 4, 104])
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import init
from .gru import ClockworkGRU
from .held import Ticks
from .learned import Hardening, LearnedClockworkRNN
from .lstm import ClockworkLSTM
from .readout import Readout
from .reference import clockwork_reference
from .rnn import ClockworkRNN
from .saved_states import load_state, save_state
from .schedule import Operations, Schedule
from .step import LSTMState, State
from .streams import StreamPool

if TYPE_CHECKING:
    from .experiments.inspect.model import inspect

__version__ = "0.6.0"

__all__ = [
    "ClockworkGRU",
    "ClockworkLSTM",
    "ClockworkRNN",
    "Hardening",
    "LSTMState",
    "LearnedClockworkRNN",
    "Operations",
    "Readout",
    "Schedule",
    "State",
    "StreamPool",
    "Ticks",
    "clockwork_reference",
    "init",
    "inspect",
    "load_state",
    "save_state",
]

_LAZY = {"inspect": ".experiments.inspect.model"}
"""The modules of public names that are imported when a name is first used, because they import much."""


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name], __name__), name)
