"""Progress: how far a sweep is and how long it will take, as a bar on a terminal, elsewhere in plain lines."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ..extras import require
from .engine import Batch, Crew, Event, Progress
from .runs import FINISHED, Run

Kind = tuple[str, int, bool]
"""Method, hidden units, peepholes: what networks of a kind take is alike."""

BETWEEN_LINES = 0.05
"""The share of the work after which there is another plain line."""
BETWEEN_UPDATES = 0.2
"""Seconds; a sweep has better things to do."""


class Estimate:
    """What is done and what is left: the work that was planned, times what such work was seen to take."""

    def __init__(self, batches: Iterable[Batch]) -> None:
        self._workers = 1
        self._left: dict[Kind, float] = defaultdict(float)
        self._done: dict[Kind, float] = defaultdict(float)
        self.runs = self.runs_done = 0
        for batch in batches:
            self._left[_kind(batch)] += batch.work
            self.runs += len(batch.runs)
        # the share that is done of the batches that are being trained
        self._under_way: dict[Batch, float] = {}
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
                self._under_way[batch] = min(1.0, event.epochs / batch.runs[0].settings.epochs)
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

    def fraction(self) -> float:
        """The share of the work that is done, 0 to 1."""
        if self.runs_done == self.runs:
            return 1.0
        done = self._seconds(self._done) + sum(self._shares())
        left = self._seconds(self._left) - sum(self._shares())
        return min(done / (done + left), 1.0)

    def seconds_left(self) -> float:
        """How long the rest will take."""
        if self.runs_done == self.runs:
            return 0.0
        left = self._seconds(self._left) - sum(self._shares())
        # a batch is one worker's, and the last ones are not shared
        last = [self._rate(_kind(batch)) * batch.work * (1 - share) for batch, share in self._under_way.items()]
        return max(left / self._workers, *last, 0.0)

    def _shares(self) -> Iterator[float]:
        return (self._rate(_kind(batch)) * batch.work * share for batch, share in self._under_way.items())

    def _seconds(self, works: dict[Kind, float]) -> float:
        return sum(self._rate(kind) * amount for kind, amount in works.items())

    def _rate(self, kind: Kind) -> float:
        """The seconds that a planned one takes: as seen of this kind, or of all so far."""
        known = kind if self._planned[kind] > 0 else None
        planned = self._planned[known] if known else sum(self._planned.values())
        taken = self._taken[known] if known else sum(self._taken.values())
        return taken / planned if planned > 0 and taken > 0 else 1.0


@contextmanager
def shown(
    estimate: Estimate, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Event], None]]:
    """What to tell every event, so that who waits can see how far it is; on stderr."""
    if quiet:
        yield estimate.observe
        return
    console = require("rich.console", extra="experiments", purpose="the command line").Console(stderr=True)
    with (_bar if console.is_terminal else _lines)(console, estimate, clock) as observe:
        yield observe


@contextmanager
def _bar(console: Any, estimate: Estimate, clock: Callable[[], float]) -> Iterator[Callable[[Event], None]]:
    rich_progress = require("rich.progress", extra="experiments", purpose="the command line")
    columns = (
        rich_progress.BarColumn(bar_width=28),
        rich_progress.TaskProgressColumn(),
        rich_progress.TextColumn("{task.fields[runs]} of {task.fields[all]} runs"),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("{task.fields[left]}"),
    )
    with rich_progress.Progress(*columns, console=console) as bars:
        bar = bars.add_task("", total=1.0, runs=0, all=estimate.runs, left="")
        updated = -BETWEEN_UPDATES

        def observe(event: Event) -> None:
            nonlocal updated
            estimate.observe(event)
            if clock() - updated >= BETWEEN_UPDATES or estimate.runs_done == estimate.runs:
                updated = clock()
                left = f"about {duration(estimate.seconds_left())} left" if estimate.runs_done < estimate.runs else ""
                bars.update(bar, completed=estimate.fraction(), runs=estimate.runs_done, left=left)

        yield observe


@contextmanager
def _lines(console: Any, estimate: Estimate, clock: Callable[[], float]) -> Iterator[Callable[[Event], None]]:
    started = clock()
    shown = -BETWEEN_LINES

    def observe(event: Event) -> None:
        nonlocal shown
        estimate.observe(event)
        done = estimate.fraction()
        # the first estimate that rests on a measurement, then one for each part of the work, and the last
        if estimate.runs_done > 0 and (done - shown >= BETWEEN_LINES or (done == 1.0 and shown < 1.0)):
            shown = done
            gone, left = duration(clock() - started), duration(estimate.seconds_left())
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
