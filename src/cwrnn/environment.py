"""The machine that numbers come from."""

import platform
from pathlib import Path


def processor() -> str:
    """The processor's name, as far as the system tells it.

    >>> processor() != ""
    True
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
