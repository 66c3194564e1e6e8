"""ONNX: a network for runtimes in other languages and on other devices.

graph.py        nodes and constants
clocks.py       the ticks of every period in a sequence, for any T and t0
recurrence.py   a module over its ticks
cascade.py      a layer: all modules, slowest first
sequence.py     the model for whole sequences
step.py         the models for single steps
stepper.py      OnnxStepper, which runs these; needs neither cwrnn nor torch
checking.py     the comparison with the specification
files.py        to_onnx
"""

from .files import OnnxCheck, OnnxExport, check_onnx, to_onnx
from .stepper import OnnxStepper
from .translation import get_onnx_translations

__all__ = ["OnnxCheck", "OnnxExport", "OnnxStepper", "check_onnx", "get_onnx_translations", "to_onnx"]
