"""`make fuzz`: tries to break every door of the package for a while, and keeps what broke it."""

import os

# before numpy and torch are imported: a process with threads cannot be forked safely
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

import sys  # noqa: E402

if __name__ == "__main__":
    from .command import main

    sys.exit(main())
