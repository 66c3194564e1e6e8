"""Runs the command `cwrnn`: `python -m cwrnn`."""

import sys

from .commands.main import main

if __name__ == "__main__":
    sys.exit(main())
