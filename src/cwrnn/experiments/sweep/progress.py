"""The progress of a sweep: how much of the work is done, and an estimate of the time that the rest will take."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from ..progress import Progress, ProgressCallback
from .batches import Batch, EpochsDone, Event, WorkerCount
from .run import FINISHED, Run

Kind = tuple[str, int, bool]
"""Method, hidden units, peepholes: networks of one kind take about the same time for the same work."""


class Estimate:
    """Estimates what is done and what is left: the planned work times the seconds that such work has taken so far."""

    def __init__(self, batches: Iterable[Batch], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._workers = 1
        self._left: dict[Kind, float] = defaultdict(float)
        self._done: dict[Kind, float] = defaultdict(float)
        self.runs = self.runs_done = 0
        for batch in batches:
            self._left[_kind(batch)] += batch.work
            self.runs += len(batch.runs)
        # for each batch that is being trained: time and share done at its first report, then at its last
        self._under_way: dict[Batch, tuple[float, float, float, float]] = {}
        # for each kind: the work that was done, and the seconds that it took
        self._planned: dict[Kind, float] = defaultdict(float)
        self._taken: dict[Kind, float] = defaultdict(float)

    def observe(self, event: Event) -> None:
        """Takes in an event of an engine."""
        if isinstance(event, WorkerCount):
            self._workers = event.workers
            return
        batch, kind = event.batch, _kind(event.batch)
        if isinstance(event, EpochsDone):
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
            # a run that diverged took less time than a network of its kind usually does
            if record.status == FINISHED:
                self._planned[kind] += batch.work / len(batch.runs)
                self._taken[kind] += record.seconds

    @property
    def known(self) -> bool:
        """True if the estimate rests on a measurement."""
        planned, taken = self._measured(None)
        return planned > 0 and taken > 0

    def fraction(self) -> float:
        """The share of the work that is done, from 0 to 1; 1 only when all runs are done."""
        if self.runs_done == self.runs:
            return 1.0
        under_way = sum(self._seconds_done(batch) for batch in self._under_way)
        done = self._seconds(self._done) + under_way
        left = self._seconds(self._left) - under_way
        return max(0.0, min(done / (done + left), 0.99))

    def seconds_left(self) -> float:
        """The seconds that the rest will take."""
        if self.runs_done == self.runs:
            return 0.0
        left = self._seconds(self._left) - sum(self._seconds_done(batch) for batch in self._under_way)
        # workers do not share a batch, so the last one takes as long as it takes
        last = (
            self._seconds_per_work(_kind(batch)) * batch.work - self._seconds_done(batch) for batch in self._under_way
        )
        return max(left / self._workers, *last, 0.0)

    def _seconds_done(self, batch: Batch) -> float:
        return self._seconds_per_work(_kind(batch)) * batch.work * self._under_way[batch][3]

    def _seconds(self, works: dict[Kind, float]) -> float:
        return sum(self._seconds_per_work(kind) * amount for kind, amount in works.items())

    def _seconds_per_work(self, kind: Kind) -> float:
        """The seconds that a planned second takes: as measured for this kind, or else for all kinds."""
        for measured_kind in (kind, None):
            planned, taken = self._measured(measured_kind)
            if planned > 0 and taken > 0:
                return taken / planned
        return 1.0

    def _measured(self, kind: Kind | None) -> tuple[float, float]:
        """The work that was done, and the seconds that it took; for all kinds if `kind` is None."""
        planned = self._planned.get(kind, 0.0) if kind else sum(self._planned.values())
        taken = self._taken.get(kind, 0.0) if kind else sum(self._taken.values())
        for batch, (began, before, now, share) in self._under_way.items():
            if kind in (None, _kind(batch)):
                planned += batch.work * (share - before)
                taken += now - began
        return planned, taken


def report_to(
    progress: ProgressCallback, estimate: Estimate, *, activity: str, already_done: int = 0
) -> Callable[[Event], None]:
    """A function that takes the events of an engine and calls `progress` after each.

    Args:
        progress: receives a `Progress` value
        estimate: of the runs that are to be trained
        activity: the text of the `Progress` values
        already_done: runs that need no training; they count as done, but not as work
    """

    def observe(event: Event) -> None:
        estimate.observe(event)
        seconds_left = estimate.seconds_left() if estimate.known or estimate.runs_done == estimate.runs else None
        done, total = already_done + estimate.runs_done, already_done + estimate.runs
        progress(Progress(activity, done, total, estimate.fraction(), seconds_left))

    return observe


def _kind(batch: Batch) -> Kind:
    run: Run = batch.runs[0]
    return run.method, run.hidden, run.settings.peepholes
