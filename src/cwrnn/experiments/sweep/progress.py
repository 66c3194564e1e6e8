"""Progress: how far a sweep is and how long it will take, as a bar on a terminal, elsewhere in plain lines."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...extras import require
from .run import FINISHED, Run
from .workers import Batch, Crew, Event, Progress

Kind = tuple[str, int, bool]
"""Method, hidden units, peepholes: what networks of a kind take is alike."""

BETWEEN_LINES = 0.05
"""The share of the work after which there is another plain line."""
BETWEEN_UPDATES = 0.2
"""Seconds; a sweep has better things to do."""


class Estimate:
    """What is done and what is left: the work that was planned, times what such work was seen to take."""

    def __init__(self, batches: Iterable[Batch], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._workers = 1
        self._left: dict[Kind, float] = defaultdict(float)
        self._done: dict[Kind, float] = defaultdict(float)
        self.runs = self.runs_done = 0
        for batch in batches:
            self._left[_kind(batch)] += batch.work
            self.runs += len(batch.runs)
        # of the batches that are being trained: the time and the share that was done, when first and last heard of
        self._under_way: dict[Batch, tuple[float, float, float, float]] = {}
        # of each kind: the work that was done, and the seconds that it took
        self._planned: dict[Kind, float] = defaultdict(float)
        self._taken: dict[Kind, float] = defaultdict(float)

    def observe(self, event: Event) -> None:
        """Takes in what an engine says."""
        if isinstance(event, Crew):
            self._workers = event.workers
            return
        batch, kind = event.batch, _kind(event.batch)
        if isinstance(event, Progress):
            if event.epochs == 0:
                self._under_way.pop(batch, None)
            else:
                now, share = self.clock(), min(1.0, event.epochs / batch.runs[0].settings.usual_epochs)
                began, before, _, _ = self._under_way.get(batch, (now, share, now, share))
                self._under_way[batch] = began, before, now, share
            return
        self._under_way.pop(batch, None)
        self._left[kind] -= batch.work
        self._done[kind] += batch.work
        self.runs_done += len(batch.runs)
        for record in event.records:
            # one that diverged took less than such a network does
            if record.status == FINISHED:
                self._planned[kind] += batch.work / len(batch.runs)
                self._taken[kind] += record.seconds

    @property
    def known(self) -> bool:
        """Whether it rests on something that was measured."""
        planned, taken = self._measured(None)
        return planned > 0 and taken > 0

    def fraction(self) -> float:
        """The share of the work that is done, 0 to 1; 1 when all is."""
        if self.runs_done == self.runs:
            return 1.0
        under_way = sum(self._seconds_done(batch) for batch in self._under_way)
        done = self._seconds(self._done) + under_way
        left = self._seconds(self._left) - under_way
        return max(0.0, min(done / (done + left), 0.99))

    def seconds_left(self) -> float:
        """How long the rest will take."""
        if self.runs_done == self.runs:
            return 0.0
        left = self._seconds(self._left) - sum(self._seconds_done(batch) for batch in self._under_way)
        # a batch is one worker's, and the last ones are not shared
        last = (self._rate(_kind(batch)) * batch.work - self._seconds_done(batch) for batch in self._under_way)
        return max(left / self._workers, *last, 0.0)

    def _seconds_done(self, batch: Batch) -> float:
        return self._rate(_kind(batch)) * batch.work * self._under_way[batch][3]

    def _seconds(self, works: dict[Kind, float]) -> float:
        return sum(self._rate(kind) * amount for kind, amount in works.items())

    def _rate(self, kind: Kind) -> float:
        """The seconds that a planned one takes: as seen of this kind, or of all so far."""
        for each in (kind, None):
            planned, taken = self._measured(each)
            if planned > 0 and taken > 0:
                return taken / planned
        return 1.0

    def _measured(self, kind: Kind | None) -> tuple[float, float]:
        """Work that was done, and the seconds that it took; of all kinds if none is named."""
        planned = self._planned.get(kind, 0.0) if kind else sum(self._planned.values())
        taken = self._taken.get(kind, 0.0) if kind else sum(self._taken.values())
        for batch, (began, before, now, share) in self._under_way.items():
            if kind in (None, _kind(batch)):
                planned += batch.work * (share - before)
                taken += now - began
        return planned, taken


@contextmanager
def shown(estimate: Estimate, *, quiet: bool = False, step: str = "") -> Iterator[Callable[[Event], None]]:
    """What to tell every event, so that who waits can see how far it is; on stderr.

    A sweep that is one step of many has its name before the bar, which goes when it is done; elsewhere than on a
    terminal such steps are for their caller to tell.
    """
    if quiet:
        yield estimate.observe
        return
    console = require("rich.console", extra="experiments", purpose="the command line").Console(stderr=True)
    if step and not console.is_terminal:
        yield estimate.observe
        return
    with _bar(console, estimate, step) if console.is_terminal else _lines(console, estimate) as observe:
        yield observe


@contextmanager
def counted(text: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """What to tell how many of how many things are done, for a bar on a terminal's stderr; elsewhere there is none."""
    console = require("rich.console", extra="experiments", purpose="the command line").Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda done, total: None
        return
    rich_progress = require("rich.progress", extra="experiments", purpose="the command line")
    with rich_progress.Progress(console=console, transient=True) as bars:
        bar = bars.add_task(text, total=None)
        yield lambda done, total: bars.update(bar, completed=done, total=total)


@contextmanager
def _bar(console: Any, estimate: Estimate, step: str) -> Iterator[Callable[[Event], None]]:
    rich_progress = require("rich.progress", extra="experiments", purpose="the command line")
    columns = (
        *([rich_progress.TextColumn(step, markup=False)] if step else []),
        rich_progress.BarColumn(bar_width=28),
        rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[runs]} of {task.fields[all]} runs"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("{task.fields[left]}"),
    )
    with rich_progress.Progress(*columns, console=console, transient=bool(step)) as bars:
        bar = bars.add_task("", total=1.0, runs=0, all=estimate.runs, left="")
        updated = -math.inf

        def observe(event: Event) -> None:
            nonlocal updated
            estimate.observe(event)
            last = estimate.runs_done == estimate.runs
            if last or estimate.clock() - updated >= BETWEEN_UPDATES:
                updated = estimate.clock()
                left = f"about {duration(estimate.seconds_left())} left" if estimate.known and not last else ""
                bars.update(bar, completed=estimate.fraction(), runs=estimate.runs_done, left=left)

        yield observe


@contextmanager
def _lines(console: Any, estimate: Estimate) -> Iterator[Callable[[Event], None]]:
    started = estimate.clock()
    shown = -BETWEEN_LINES

    def observe(event: Event) -> None:
        nonlocal shown
        estimate.observe(event)
        done = estimate.fraction()
        # the first estimate that rests on a measurement, then one for each part of the work, and the last
        if done == 1.0 or (estimate.known and done - shown >= BETWEEN_LINES):
            shown = done
            gone, left = duration(estimate.clock() - started), duration(estimate.seconds_left())
            console.print(
                f"{100 * done:3.0f} %  {estimate.runs_done} of {estimate.runs} runs, {gone} gone, about {left} left",
                highlight=False,
                soft_wrap=True,
            )

    yield observe


def duration(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> duration(59.6), duration(3661)
    ('1:00', '1:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _kind(batch: Batch) -> Kind:
    run: Run = batch.runs[0]
    return run.method, run.hidden, run.settings.peepholes
