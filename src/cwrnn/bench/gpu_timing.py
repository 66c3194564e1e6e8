"""Timing on a GPU in two ways: calls that follow each other, and calls that the host waits for.

* back to back: events of the GPU lie around calls that follow each other without a pause, as in training. The time that
  the host needs to start a call counts only where it is longer than the call itself.
* synchronised: the clock of the host measures one call and the wait for its end, as in a program that needs the result
  at once. The time to start the call counts in full.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

WAYS = ("back_to_back", "synchronised")
"""The ways of timing, by the names of the fields of `Times`."""


class Times(NamedTuple):
    """Median seconds of one call, in each of the two ways."""

    back_to_back: float
    synchronised: float


class Effort(NamedTuple):
    """How long functions are timed."""

    seconds: float
    """About how many seconds one number may take."""
    turns: int
    """The turns of a function."""
    slow: float
    """A function whose call takes at least this many seconds is slow."""
    slow_turns: int
    """The turns of a slow function. Each is one call, which counts in both ways."""


THOROUGH = Effort(seconds=0.15, turns=5, slow=0.15, slow_turns=3)
QUICK = Effort(seconds=0.03, turns=3, slow=0.03, slow_turns=1)

MOST_CALLS = 20
"""The most calls of a turn."""


def time_on_device(
    functions: Sequence[Callable[[], Any]], effort: Effort = THOROUGH, *, is_warm: bool = False
) -> list[Times | None]:
    """The times of one call of each function: medians over several turns, which the functions take side by side.

    A function that needs more memory than there is gets None.

    Args:
        functions: what is timed
        effort: how long it is timed
        is_warm: whether every function was called before; if not, a first call is not timed
    """
    watches = [_Watch(function, effort, is_warm) for function in functions]
    for turn in range(max(effort.turns, effort.slow_turns)):
        for watch in watches:
            if_it_fits(watch.take_turn, turn)
    return [watch.get_medians() for watch in watches]


class _Watch:
    """The times of one function."""

    def __init__(self, function: Callable[[], Any], effort: Effort, is_warm: bool) -> None:
        self._function, self._effort = function, effort
        self._back_to_back: list[float] = []
        self._synchronised: list[float] = []
        if not is_warm:
            if_it_fits(function)
        self._once: Times | None = if_it_fits(_time_once, function)

    def take_turn(self, turn: int) -> None:
        """Times the calls of a turn."""
        if self._once is None:
            return
        if self._once.synchronised >= self._effort.slow:
            if turn < self._effort.slow_turns:
                self._add_once(self._once if turn == 0 else _time_once(self._function))
        elif turn < self._effort.turns:
            calls = round(self._effort.seconds / self._effort.turns / self._once.synchronised)
            calls = max(1, min(MOST_CALLS, calls))
            self._back_to_back.append(_time_calls(self._function, calls))
            self._synchronised += [_time_synchronised(self._function) for _ in range(calls)]

    def _add_once(self, times: Times) -> None:
        self._back_to_back.append(times.back_to_back)
        self._synchronised.append(times.synchronised)

    def get_medians(self) -> Times | None:
        """The medians of all turns, or None without a turn that fitted into memory."""
        if not self._back_to_back or not self._synchronised:
            return None
        return Times(statistics.median(self._back_to_back), statistics.median(self._synchronised))


def _time_calls(function: Callable[[], Any], calls: int) -> float:
    """The seconds of one call of several that follow each other, by events of the GPU."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(calls):
        function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls


def _time_synchronised(function: Callable[[], Any]) -> float:
    """The seconds of one call and of the wait for its end, by the clock of the host."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return max(time.perf_counter() - start, 1e-9)


def _time_once(function: Callable[[], Any]) -> Times:
    """The seconds of one call in both ways."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    seconds = _time_calls(function, 1)
    return Times(seconds, max(time.perf_counter() - start, 1e-9))


def if_it_fits(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of the function, or None if it needs more memory than the device has."""
    try:
        return function(*arguments)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
