"""Optional dependencies: they are imported where they are used, and an error names the extra that installs them."""

import importlib
from typing import Any


def require(module: str, *, extra: str, purpose: str) -> Any:
    """Imports and returns a module; raises an ImportError that names the extra of cwrnn if it is missing.

    Args:
        module: the name of the module, for example "scipy.signal"
        extra: the extra of cwrnn that installs it
        purpose: the feature that needs it, for the message

    >>> require("math", extra="spectrum", purpose="counting").floor(1.5)
    1
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(f"{purpose} needs {package}: pip install 'cwrnn[{extra}]'") from error
