"""Run Python code in new processes."""

import os
import subprocess
import sys
from pathlib import Path


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run `code` in a new process with these environment variables, and capture its output."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )


def run_two_ranks(script: str, folder: Path) -> None:
    """Run `script FOLDER RANK` in two processes, of rank 0 and 1, and wait for both to succeed."""
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    environment = os.environ | paths | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, str(folder)]
    processes = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(errors)
