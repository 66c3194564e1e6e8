"""The command `cwrnn`: starts the command line, or names the extra that it needs."""

import sys
from collections.abc import Sequence

from ..extras import require


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `cwrnn` and returns its exit code: 0 success, 1 an error, 2 wrong usage, 130 interrupted.

    Args:
        arguments: those of the command line. Default: those of the process
    """
    try:
        for package in ("typer", "rich"):
            require(package, extra="experiments", purpose="the command cwrnn")
        from .app import run

        return run(sys.argv[1:] if arguments is None else list(arguments))
    except ImportError as error:
        print(f"cwrnn: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return 130
