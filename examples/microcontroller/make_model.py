"""Save a network with random weights, in place of one that you have trained."""

import sys
from pathlib import Path

import torch

from cwrnn import ClockworkRNN
from cwrnn.network import Network
from cwrnn.saved import SavedNetwork

torch.manual_seed(0)
network = Network(ClockworkRNN(input_size=2, hidden_size=24, schedule=[1, 2, 4, 8]), output_size=1)
SavedNetwork("regression", "cw", network).save(Path(sys.argv[1]))
