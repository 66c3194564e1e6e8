"""The environment that numbers come from: package, commit, torch, Python, machine, threads and backend."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

from . import __version__
from .backends import select_backend


@cache
def environment() -> dict[str, str]:
    """The surroundings that the numbers of a run may depend on and that are no part of its configuration.

    Training always runs on one thread per process, hence "threads": "1".

    >>> sorted(environment())
    ['backend', 'commit', 'cwrnn', 'machine', 'python', 'threads', 'torch']
    """
    return {
        "cwrnn": __version__,
        "commit": _commit(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.platform()}, {processor()}, {cores()} cores",
        "threads": "1",
        "backend": select_backend("auto", torch.device("cpu"), torch.float32).name,
    }


def processor() -> str:
    """The processor's name as the operating system reports it, or the name of its architecture.

    >>> processor() != ""
    True
    """
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cores() -> int:
    """The number of cores that this process may use.

    >>> cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _commit() -> str:
    """The commit of the running source, with a + if files differ from it; "unknown" for an installed package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return "unknown"
    try:
        commit, changes = (
            subprocess.run(
                # a git that is killed with this process must not leave the lock of its index behind
                ["git", "--no-optional-locks", "-C", str(root), *arguments],
                capture_output=True,
                text=True,
                check=True,
                timeout=10,
            ).stdout.strip()
            for arguments in (("rev-parse", "HEAD"), ("status", "--porcelain", "--untracked-files=no"))
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit + ("+" if changes else "")
