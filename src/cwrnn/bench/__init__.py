"""How fast the package is: side by side with torch's own layers of the same size, in one run.

    python -m cwrnn.bench                                     everything: some minutes
    python -m cwrnn.bench layers step                         some regimes: layers, replicas, step, growth
    python -m cwrnn.bench 1024,8,512,32,32 256,8,512,32,32    layers of these sizes: n, modules, T, B, inputs
    python -m cwrnn.bench --backend torch --threads 2 --json out/bench.json --picture out/bench.png

A result counts only if it is right: before anything is timed, output and gradients are compared with the
specification. Each number is the median of several runs, all that are compared taking turns. On a busy machine use
--threads 1: two threads that wait for each other measure the other jobs.
"""

from .command import main
from .layers import check
from .timing import take_turns

__all__ = ["check", "main", "take_turns"]
