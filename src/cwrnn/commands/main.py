"""The command `cwrnn`: the door to the experiments, which need more packages than the layer does."""

import sys
from collections.abc import Sequence

from ..extras import require


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 all is well, 1 something failed, 2 the command is not understood, 130 interrupted."""
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
