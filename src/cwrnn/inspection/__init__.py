"""Inspection: measurements of each module of a trained Clockwork RNN.

    compute_states       the state of every unit over time
    measure_spectrum     how fast each module changes, compared with its clock
    measure_memory       how far back each module remembers
    silence_modules      how the output changes without a module
    measure_weights      how large the weights from module to module are
    count_operations     the multiply-adds of each module
    inspect              all of them, and a summary of each module
    inspect_layer        the same for a layer inside any model
    record_layer         the sequences that a layer reads while a model runs, and what the model loses without a module

A network is a layer, a ClockworkRNN, ClockworkLSTM or ClockworkGRU of one layer and one direction, and a linear
readout. Its data are sequences (T, I) of any lengths, with I = 0 for a network that generates. Everything is computed
in float64 on a copy of the network. States are the hidden states h; the c of an LSTM stays inside its module.
"""

from .cost import Cost, count_operations
from .memory import Memory, measure_memory
from .model import RecordedLayer, find_layer, record_layer
from .silence import Measure, Replacement, Respond, Silenced, silence_modules
from .spectrum import Spectrum, held_noise_density, measure_spectrum
from .states import Array, compute_outputs, compute_states
from .summary import Inspection, ModuleSummary, inspect, inspect_layer
from .weights import WeightNorms, measure_weights

__all__ = [
    "Array",
    "Cost",
    "Inspection",
    "Measure",
    "Memory",
    "ModuleSummary",
    "RecordedLayer",
    "Replacement",
    "Respond",
    "Silenced",
    "Spectrum",
    "WeightNorms",
    "compute_outputs",
    "compute_states",
    "count_operations",
    "find_layer",
    "held_noise_density",
    "inspect",
    "inspect_layer",
    "measure_memory",
    "measure_spectrum",
    "measure_weights",
    "record_layer",
    "silence_modules",
]
