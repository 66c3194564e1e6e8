"""Timing: functions that take turns, the machine that they run on, and the best that it can do."""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import __version__
from ..backends import describe_cpu_kernel
from ..environment import cores, processor
from ..rnn import ClockworkRNN

SHORTEST = 0.15
"""Seconds of a turn. A function that takes less is called several times, as in a training loop."""

SLICES = 5
"""The number of slices of a turn. Other jobs come and go by the second, and should disturb all functions equally."""

FEWEST = 3
"""The fewest calls of a slice. The first call finds caches and memory as another function left them."""

SLOW = 1.0
"""A function that takes at least this many seconds is called once per turn: cold caches do not matter to it."""

BUSY = 0.5
"""The load per core at which a machine counts as busy before a benchmark starts."""


def take_turns(functions: Sequence[Callable[[], Any]], repeats: int, device: torch.device) -> list[float]:
    """The median seconds of one call of each function, all of them measured in turn after a warm-up.

    Turns of many calls are cut into slices, which run side by side.

    >>> import math
    >>> seconds = take_turns([lambda: math.factorial(9), lambda: math.factorial(99)], 1, torch.device("cpu"))
    >>> len(seconds), min(seconds) > 0
    (2, True)
    """
    turns = time_turns(functions, repeats, device, SHORTEST, SLICES)
    return [statistics.median(medians) for medians in turns]


def time_turns(
    functions: Sequence[Callable[[], Any]], repeats: int, device: torch.device, shortest: float, slices: int = 1
) -> list[list[float]]:
    """The seconds of one call in each of the turns, for every function.

    A turn has as many calls as fit into `shortest` seconds and counts with their median, because the first calls find
    cold caches and memory that the system has taken back.
    """
    counts = []
    for function in functions:
        function()
        seconds = _time_call(function, device)
        counts.append(max(FEWEST if seconds < SLOW else 1, min(1000, round(shortest / seconds))))
    turns: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats):
        show_progress(f"turn {turn + 1} of {repeats}")
        calls: list[list[float]] = [[] for _ in functions]
        for part in range(slices):
            for function, count, times in zip(functions, counts, calls, strict=True):
                times += [_time_call(function, device) for _ in range(_calls_of_slice(count, part, slices))]
        for medians, times in zip(turns, calls, strict=True):
            medians.append(statistics.median(times))
    show_progress("")
    return turns


def median_ratio(turns: Sequence[float], others: Sequence[float]) -> float:
    """The median over the turns of the ratio of two functions that were timed in the same turns.

    Another job on the machine disturbs both functions of a turn, but perhaps only one of the two medians.

    >>> median_ratio([2.0, 6.0, 2.2], [1.0, 3.0, 2.2])
    2.0
    """
    return statistics.median(one / other for one, other in zip(turns, others, strict=True))


def _calls_of_slice(count: int, part: int, slices: int) -> int:
    """The number of a turn's `count` calls in slice `part`: at least FEWEST, or none, or all of them."""
    wanted = max(1, min(slices, count // FEWEST))
    own = part * wanted // slices
    if own == (part + 1) * wanted // slices:
        return 0
    return count * (own + 1) // wanted - count * own // wanted


def show_progress(text: str) -> None:
    """Shows the progress of a benchmark on a terminal, on a line that the next text overwrites."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def _time_call(function: Callable[[], Any], device: torch.device) -> float:
    _synchronise(device)
    start = time.perf_counter()
    function()
    _synchronise(device)
    return max(time.perf_counter() - start, 1e-9)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The multiply-adds per second of a large matrix product of torch, the highest rate to expect."""
    size = 1024 if device.type == "cpu" else 8192
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    (seconds,) = take_turns([lambda: torch.mm(left, right)], 7, device)
    return size**3 / seconds


def measure_floor(backend: str, device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Seconds per time step of a layer of one unit on one sequence, forward and forward + backward."""
    T = 20_000 if backend == "cpu" else 200
    rnn = ClockworkRNN(1, 1, backend=backend, device=device, dtype=dtype)
    x, gradient = (torch.randn(T, 1, 1, device=device, dtype=dtype) for _ in range(2))
    forward, training = take_turns([make_forward(rnn, x), make_training(rnn, x, gradient)], 5, device)
    return forward / T, training / T


def make_forward(layer: Callable[[Any], Any], x: Any) -> Callable[[], None]:
    """A function that runs the layer on x without gradients, as for inference."""

    def run() -> None:
        with torch.no_grad():
            layer(x)

    return run


def make_training(layer: torch.nn.Module, x: Any, gradient: torch.Tensor) -> Callable[[], None]:
    """A function that runs the layer on x forward and backward, from this gradient of the output."""

    def run() -> None:
        layer.zero_grad()
        layer(x)[0].backward(gradient)

    return run


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The versions, the device and the load of the machine that the numbers come from.

    A GPU adds the versions of CUDA, which has the compiler of our programs, and of cuDNN.

    `load` has the averages of the last 1, 5 and 15 minutes; it is None where the system has no such averages.

    >>> sorted(describe_machine(torch.device("cpu")))
    ['CPU kernel', 'cores', 'cwrnn', 'device', 'load', 'python', 'threads', 'torch']
    """
    on_gpu = device.type == "cuda"
    return {
        "cwrnn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if on_gpu else processor(),
        **({"CUDA": torch.version.cuda, "cuDNN": torch.backends.cudnn.version()} if on_gpu else {}),
        "threads": torch.get_num_threads(),
        "CPU kernel": describe_cpu_kernel(),
        "cores": cores(),
        "load": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
    }


def format_load(load: Sequence[float] | None, cores: int, threads: int) -> str:
    """A line about the load of the machine before the benchmark, with advice if it is busy.

    >>> format_load([0.1, 0.3, 0.2], cores=2, threads=2)
    'load of the last minute: 0.1 on 2 cores'
    >>> format_load([3.25, 2.0, 2.0], cores=2, threads=2)
    'load of the last minute: 3.2 on 2 cores; this machine is busy: use --threads 1'
    """
    if load is None:
        return f"load of the last minute: unknown, on {cores} cores"
    text = f"load of the last minute: {load[0]:.1f} on {cores} cores"
    if load[0] < BUSY * cores:
        return text
    advice = "use --threads 1" if threads > 1 else "long calls suffer more than short ones, do not quote this"
    return f"{text}; this machine is busy: {advice}"
