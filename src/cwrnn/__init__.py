"""The Clockwork RNN (Koutník, Greff, Gomez and Schmidhuber, 2014) for PyTorch."""

from . import init
from .held import Ticks
from .layer import ClockworkRNN, State
from .learned import Hardening, LearnedClockworkRNN
from .readout import Readout
from .reference import clockwork_reference
from .schedule import Operations, Schedule

__version__ = "0.1.0"

__all__ = [
    "ClockworkRNN",
    "Hardening",
    "LearnedClockworkRNN",
    "Operations",
    "Readout",
    "Schedule",
    "State",
    "Ticks",
    "clockwork_reference",
    "init",
]
