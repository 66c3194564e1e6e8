"""Timing: functions that take turns, and what the machine can do at best."""

import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import __version__
from ..environment import processor
from ..kernels.cpu import loader as library
from ..layer import ClockworkRNN

SHORTEST = 0.15
"""Seconds of a turn: what takes less is called several times, as in a training loop."""

SLICES = 5
"""Into so many a turn is cut: other loads of the machine come and go by the second, and all should have their share."""

FEWEST = 3
"""Calls of a slice: the first one finds caches and memory as the others have left them, and must not decide."""

SLOW = 1.0
"""Seconds of a call from which on a turn is one of them: it does not notice how it finds the caches."""


def take_turns(functions: Sequence[Callable[[], Any]], repeats: int, device: torch.device) -> list[float]:
    """The median seconds of one call of each function, all of them measured in turn, after one that warms up.

    Turns of many calls are cut into slices, which run side by side.
    """
    turns = time_turns(functions, repeats, device, SHORTEST, SLICES)
    return [statistics.median(medians) for medians in turns]


def time_turns(
    functions: Sequence[Callable[[], Any]], repeats: int, device: torch.device, shortest: float, slices: int = 1
) -> list[list[float]]:
    """The seconds of one call in each of the turns, for every function.

    A turn is as many calls as fit into `shortest`, and counts with their median: the first ones find cold caches, and
    memory that the system has taken back.
    """
    counts = []
    for function in functions:
        function()
        seconds = _time(function, device)
        counts.append(max(FEWEST if seconds < SLOW else 1, min(1000, round(shortest / seconds))))
    turns: list[list[float]] = [[] for _ in functions]
    for turn in range(repeats):
        _show(f"turn {turn + 1} of {repeats}")
        calls: list[list[float]] = [[] for _ in functions]
        for part in range(slices):
            for function, count, found in zip(functions, counts, calls, strict=True):
                found += [_time(function, device) for _ in range(_share(count, part, slices))]
        for medians, found in zip(turns, calls, strict=True):
            medians.append(statistics.median(found))
    _show("")
    return turns


def median_ratio(turns: Sequence[float], others: Sequence[float]) -> float:
    """How many times as long as the others: the median over the turns, in each of which both were timed.

    What comes and goes on the machine meets both in the same turn; of the two medians it may meet one only.

    >>> median_ratio([2.0, 6.0, 2.2], [1.0, 3.0, 2.2])
    2.0
    """
    return statistics.median(one / other for one, other in zip(turns, others, strict=True))


def _share(count: int, part: int, slices: int) -> int:
    """How many of a turn's calls are in slice `part` of so many: FEWEST at least, or none, or all that there are."""
    wanted = max(1, min(slices, count // FEWEST))
    own = part * wanted // slices
    if own == (part + 1) * wanted // slices:
        return 0
    return count * (own + 1) // wanted - count * own // wanted


def _show(text: str) -> None:
    """Where a benchmark stands, on a line that the next one overwrites; for who sits in front of it."""
    if sys.stderr.isatty():
        print(f"\r{text:<20}\r", end="", file=sys.stderr, flush=True)


def _time(function: Callable[[], Any], device: torch.device) -> float:
    _synchronise(device)
    start = time.perf_counter()
    function()
    _synchronise(device)
    return max(time.perf_counter() - start, 1e-9)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure_peak(device: torch.device, dtype: torch.dtype) -> float:
    """The multiply-adds per second of a large matrix product: what torch itself reaches at best."""
    size = 1024 if device.type == "cpu" else 8192
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    (seconds,) = take_turns([lambda: torch.mm(left, right)], 7, device)
    return size**3 / seconds


def measure_floor(backend: str, device: torch.device, dtype: torch.dtype) -> tuple[float, float]:
    """Seconds per time step where there is nothing to multiply: one unit, one sequence; forward, and with backward."""
    T = 20_000 if backend == "cpu" else 200
    rnn = ClockworkRNN(1, 1, backend=backend, device=device, dtype=dtype)
    x, gradient = (torch.randn(T, 1, 1, device=device, dtype=dtype) for _ in range(2))
    forward, training = take_turns([forward_of(rnn, x), training_of(rnn, x, gradient)], 5, device)
    return forward / T, training / T


def forward_of(layer: Callable[[Any], Any], x: Any) -> Callable[[], None]:
    """A forward pass, as one does it to look at the result."""

    def run() -> None:
        with torch.no_grad():
            layer(x)

    return run


def training_of(layer: torch.nn.Module, x: Any, gradient: torch.Tensor) -> Callable[[], None]:
    """Forward and backward."""

    def run() -> None:
        layer.zero_grad()
        layer(x)[0].backward(gradient)

    return run


def machine(device: torch.device) -> dict[str, Any]:
    """Where the numbers come from."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else processor()
    return {
        "cwrnn": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": name,
        "threads": torch.get_num_threads(),
        "CPU kernel": library.current_isa() or f"none: {library.refuse(torch.device('cpu'), torch.float32)}",
    }
