"""Export: a trained network as a program for another machine."""

from .model import Exportable, ExportError
from .onnx import OnnxStepper, check_onnx, get_onnx_translations, to_onnx

__all__ = ["ExportError", "Exportable", "OnnxStepper", "check_onnx", "get_onnx_translations", "to_onnx"]
