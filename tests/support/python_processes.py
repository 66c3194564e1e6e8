"""Run Python code in a new process."""

import os
import subprocess
import sys


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    """Run `code` in a new process with these environment variables, and capture its output."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
