"""Export: a trained network as a program for another machine.

    from cwrnn.export import to_c
    print(to_c("words.safetensors", "firmware/words", name="word_model"))

Each function takes a file or a network in memory, writes a new folder, and returns a result that prints itself. The
command `cwrnn export` calls the same functions.
"""

from .c.check import CCheck, check_c
from .c.source import CExport, to_c
from .model import Exportable, ExportError
from .onnx import OnnxCheck, OnnxExport, OnnxStepper, check_onnx, get_onnx_translations, to_onnx
from .wasm.export import WasmExport, to_wasm

__all__ = [
    "CCheck", "CExport", "ExportError", "Exportable", "OnnxCheck", "OnnxExport", "OnnxStepper", "WasmExport",
    "check_c", "check_onnx", "get_onnx_translations", "to_c", "to_onnx", "to_wasm",
]  # fmt: skip
