"""NVRTC from the package nvidia-cuda-nvrtc, which compiles CUDA programs without a GPU."""

import ctypes
from functools import cache
from importlib import metadata

PACKAGE = "nvidia-cuda-nvrtc"


@cache
def load_nvrtc():
    """The library, or None if the package is not installed."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return None
    libraries = sorted((file for file in files if ".so" in file.name), key=lambda file: "builtins" not in file.name)
    loaded = [ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL) for file in libraries]
    return loaded[-1] if loaded else None
