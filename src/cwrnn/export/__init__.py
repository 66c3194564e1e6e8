"""Export: a trained network as a program for another machine."""

from .model import Exportable, ExportError

__all__ = ["ExportError", "Exportable"]
