"""Clocks in a graph: the ticks of every period in a sequence of T steps from clock t0, where T and t0 are inputs.

Steps are counted from the first step of the sequence, s = t - t0. For a period P,

    first = -t0 mod P                                the step of the first tick
    ticks = (T - first + P - 1) div P                the number of ticks, which may be 0
    row(s) = (s - first + P) div P                   the number of ticks up to step s >= first - P

so that no division sees a negative number, which operators round in different ways. A module has row(s) as the row of
its values at step s, where row 0 is the value before the first tick.

A recurrence must not be empty, because runtimes handle that differently: a module without a tick makes one step from
the last input, and what it computes there is never read. Its time axis therefore has max(ticks, 1) steps.
"""

from collections.abc import Callable

from .graph import Graph


class Clocks:
    """The ticks of all periods in one graph, each computed once. Every method returns the name of a value.

    Args:
        graph: the graph
        sequence: the input (T, B, features), T at least 1
        t0: the clock at the first step, an integer without axes
    """

    def __init__(self, graph: Graph, sequence: str, t0: str) -> None:
        self.graph = graph
        shape = graph.add("Shape", sequence)
        self.steps = graph.add("Gather", shape, graph.integer(0))
        self.batch = graph.add("Gather", shape, graph.integer(1))
        self._before = graph.add("Neg", t0)
        self._known: dict[tuple[str, int, int], str] = {}

    def first(self, period: int) -> str:
        """The step of the first tick; it may lie beyond the end of the sequence."""
        return self._once("first", period, 0, lambda: self.graph.add("Mod", self._before, self._number(period)))

    def ticks(self, period: int) -> str:
        """The number of ticks."""

        def compute() -> str:
            rest = self.graph.add("Sub", self.steps, self.first(period))
            return self.graph.add("Div", self.graph.add("Add", rest, self._number(period - 1)), self._number(period))

        return self.steps if period == 1 else self._once("ticks", period, 0, compute)

    def length(self, period: int) -> str:
        """The length of the time axis of a module: its ticks, but at least 1."""
        if period == 1:
            return self.steps
        return self._once("length", period, 0, lambda: self.graph.add("Max", self.ticks(period), self.graph.integer(1)))

    def shape(self, period: int, features: int) -> str:
        """The shape (length, B, features) of values at the ticks of a period."""

        def compute() -> str:
            axes = [self.graph.unsqueeze(axis, 0) for axis in (self.length(period), self.batch)]
            return self.graph.concat([*axes, self.graph.integers(features)], axis=0)

        return self._once("shape", period, features, compute)

    def decimate(self, value: str, period: int) -> str:
        """The rows of `value` (T, ...) at the ticks of a period."""
        if period == 1:
            return value

        def compute() -> str:
            last = self.graph.add("Sub", self.steps, self.graph.integer(1))
            return self.graph.unsqueeze(self.graph.add("Min", self.first(period), last), 0)

        start = self._once("start", period, 0, compute)
        end = self.graph.integers(2**63 - 1)
        return self.graph.add("Slice", value, start, end, self.graph.integers(0), self.graph.integers(period))

    def heard(self, period: int, listener: int) -> str:
        """The rows of a module of `period` that a module of period `listener` hears at its ticks: one step before."""
        return self._once("heard", period, listener, lambda: self._rows(period, self._times(listener, -1, extra=0)))

    def absorbed(self, period: int, faster: int) -> str:
        """The rows of a module of `period` that hold while each row of a module of period `faster` does."""
        return self._once("absorbed", period, faster, lambda: self._rows(period, self._times(faster, -faster, extra=1)))

    def held(self, period: int) -> str:
        """The rows of a module of `period` that hold at every step of the sequence."""
        return self._once("held", period, 1, lambda: self._rows(period, self._times(1, 0, extra=0)))

    def _times(self, period: int, offset: int, extra: int) -> str:
        """The steps of the ticks of a period, moved by `offset`, and of `extra` more ticks."""

        def compute() -> str:
            count = self.length(period)
            if extra:
                count = self.graph.add("Add", count, self.graph.integer(extra))
            ticks = self.graph.add("Range", self.graph.integer(0), count, self.graph.integer(1))
            if period > 1:
                ticks = self.graph.add("Mul", ticks, self._number(period))
            shift = self.graph.add("Add", self.first(period), self.graph.integer(offset))
            return self.graph.add("Add", ticks, shift)

        return self._once(f"times {extra}", period, offset, compute)

    def _rows(self, period: int, times: str) -> str:
        shift = self.graph.add("Sub", self._number(period), self.first(period))
        return self.graph.add("Div", self.graph.add("Add", times, shift), self._number(period))

    def _number(self, period: int) -> str:
        return self.graph.integer(period)

    def _once(self, word: str, period: int, other: int, compute: Callable[[], str]) -> str:
        key = word, period, other
        if key not in self._known:
            self._known[key] = compute()
        return self._known[key]
