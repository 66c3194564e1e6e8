"""Optional dependencies: imported where they are used, and named when they are missing."""

import importlib
from typing import Any


def require(module: str, *, extra: str, purpose: str) -> Any:
    """The module `module`, or an ImportError that says which extra of cwrnn brings it.

    >>> require("math", extra="spectrum", purpose="counting").floor(1.5)
    1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install 'cwrnn[{extra}]'") from error
