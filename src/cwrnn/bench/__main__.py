"""Runs the benchmark: `python -m cwrnn.bench`."""

import sys

from .command import main

sys.exit(main())
